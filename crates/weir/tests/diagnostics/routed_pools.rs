//! Tests that Weir checks and shows a pool like any other if only routes of a proxy service use it.

use serde_json::Value;

use super::world::{Family, World, privileged, wait_for};
use super::{TIMEOUT, service};

/// Returns a configuration with three pools: the service's own, one with the same server and a different check, and one
/// with a port on which no process listens.
fn config() -> String {
    let (server, dead, vip) = (
        format!("{}:80", Family::V4.server(0)),
        format!("{}:8009", Family::V4.server(0)),
        Family::V4.vip(),
    );
    let check = "interval = \"100ms\"\ntimeout = \"200ms\"\nrise = 1\nfall = 1\nkind = \"http\"\npath = \"/name\"";
    format!(
        "[pool.green]\nservers = [\"{server}\"]\n[pool.green.check]\n{check}\nexpect = {{ body = \"server0\" }}\n\n\
         [pool.blue]\nservers = [\"{server}\"]\n[pool.blue.check]\n{check}\nexpect = {{ body = \"blue\" }}\n\n\
         [pool.dead]\nservers = [\"{dead}\"]\n[pool.dead.check]\n{check}\n\n\
         [service.www]\nlisten = [\"{vip}:8080\"]\nforward = \"proxy\"\nprotocol = \"http\"\npool = \"green\"\n\
         [[route]]\nservice = \"www\"\npath = \"/blue/*\"\npool = \"blue\"\n\
         [[route]]\nservice = \"www\"\npath = \"/dead/*\"\npool = \"dead\"\n"
    )
}

fn server<'a>(status: &'a Value, pool: &str) -> &'a Value {
    let servers = service(status, "www")["servers"].as_array();
    let mut servers = servers.expect("servers is not an array").iter();
    servers
        .find(|server| server["pool"] == pool)
        .unwrap_or_else(|| panic!("{pool} is not in {status:#}"))
}

fn has_state_and_probe(status: &Value, pool: &str, state: &str, probe: &str) -> bool {
    let server = server(status, pool);
    let results = server["checks"][0]["results"].as_str();
    server["state"] == state && results.is_some_and(|it| it.ends_with(probe))
}

#[test]
fn status_shows_probes_and_reasons_of_routed_pools() {
    if !privileged() {
        return;
    }
    let mut world = World::new(1);
    world.start_nginx(64);
    world.start_daemon(&config());
    wait_for("probes of every pool", TIMEOUT, || {
        let status = world.status();
        has_state_and_probe(&status, "green", "up", "++")
            && has_state_and_probe(&status, "blue", "down", "--")
            && has_state_and_probe(&status, "dead", "down", "--")
    });
    let dead = format!("{}:8009: connection refused", Family::V4.server(0));
    let status = world.status();
    assert_eq!(
        server(&status, "dead")["reason"],
        dead.as_str(),
        "{status:#}"
    );
    let blue = server(&status, "blue")["reason"].clone();
    assert!(blue.to_string().contains("body does not contain"), "{blue}");
    let text = world.run_weir(&["status"]);
    let line = text
        .lines()
        .find(|line| line.contains("connection refused"));
    assert!(line.is_some_and(|line| line.contains("--")), "{text}");

    // The next daemon shows the same reasons, both before and after its first probes.
    world.run_weir(&["upgrade"]);
    let status = world.status();
    assert_eq!(
        server(&status, "dead")["reason"],
        dead.as_str(),
        "{status:#}"
    );
    assert_eq!(server(&status, "blue")["reason"], blue, "{status:#}");
    let line = format!("of www is down: {dead}");
    let output = world.output_of("doctor");
    assert!(output.contains(&line), "{output}");
}

#[test]
fn routed_pool_without_check_causes_warning() {
    let directory = std::env::temp_dir().join(format!("weir-routed-{}", std::process::id()));
    std::fs::create_dir_all(&directory).expect("create a directory");
    let file = directory.join("weir.toml");
    let text = "[pool.green]\nservers = [\"10.0.0.5:80\"]\n[pool.green.check]\nkind = \"tcp\"\n\
                [pool.blue]\nservers = [\"10.0.0.6:80\"]\n[pool.red]\nservers = [\"10.0.0.7:80\"]\n\
                [service.www]\nlisten = [\"127.0.0.1:8080\"]\nforward = \"proxy\"\nprotocol = \"http\"\npool = \
                \"green\"\n\
                [[route]]\nservice = \"www\"\npath = \"/blue/*\"\npool = \"blue\"\n\
                [[route]]\nservice = \"www\"\npath = \"/red/*\"\nsplit = [\"green:9\", \"red:1\"]\n";
    std::fs::write(&file, text).expect("write the file");
    let output = std::process::Command::new(super::world::program::program_under_test())
        .args(["check", "-c"])
        .arg(&file)
        .env("NO_COLOR", "1")
        .output()
        .expect("run weir");
    let _ = std::fs::remove_dir_all(&directory);
    let text = String::from_utf8_lossy(&output.stderr).into_owned()
        + &String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}");
    for pool in ["blue", "red"] {
        assert!(
            text.contains(&format!("pool `{pool}` has no check")),
            "{text}"
        );
    }
    assert_eq!(text.matches("W022").count(), 2, "{text}");
}
