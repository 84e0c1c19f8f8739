//! `weir doctor` and `weir real-server doctor` find what was broken on purpose, and say nothing where nothing is.

mod world;

use std::time::Duration;

use world::{Family, World, privileged, wait_for};

const PATIENCE: Duration = Duration::from_secs(20);

fn config(forward: &str) -> String {
    format!(
        "[node]\ninterfaces = [\"eth0\"]\n\n[pool.web]\nservers = [\"{}\", \"{}\"]\n\n\
         [service.web]\nlisten = [\"{}:80\"]\npool = \"web\"\nforward = \"{forward}\"\n",
        Family::V4.server(0),
        Family::V4.server(1),
        Family::V4.vip()
    )
}

/// Exit code and what was said.
fn asked(world: &World, host: &str, arguments: &[&str]) -> (i32, String) {
    let output = world
        .weir(host)
        .args(arguments)
        .output()
        .expect("weir runs");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let code = output.status.code().expect("it ends by itself");
    (code, text + &String::from_utf8_lossy(&output.stderr))
}

fn finds(world: &World, host: &str, arguments: &[&str], words: &[&str]) {
    let (code, text) = asked(world, host, arguments);
    assert_eq!(code, 1, "{text}");
    for word in words {
        assert!(text.contains(word), "{word} in {text}");
    }
}

#[test]
fn servers() {
    if !privileged() {
        return;
    }
    let mut world = World::new(2);
    world.start_nginx(64);
    let vip = Family::V4.vip().to_string();
    let doctor = ["real-server", "doctor"];
    finds(
        &world,
        "server0",
        &doctor,
        &["prepared for no VIP", "weir real-server up"],
    );
    world.prepare_servers(&["--forward", "direct", "--vip", &format!("{vip}:80")]);
    assert_eq!(
        asked(&world, "server0", &doctor).0,
        0,
        "{:?}",
        asked(&world, "server0", &doctor)
    );

    let sysctl = |line: &str| {
        assert!(
            world
                .output("server0", &format!("sysctl -qw {line}"))
                .status
                .success()
        );
    };
    sysctl("net.ipv4.conf.all.arp_ignore=0");
    sysctl("net.ipv4.conf.all.arp_announce=0");
    world.ip("server0", &format!("addr del {vip}/32 dev lo"));
    let told = [
        "answers ARP for the VIP",
        "carry the VIP as sender",
        "drops them",
        "doctor --fix",
    ];
    finds(&world, "server0", &doctor, &told);
    let (code, text) = asked(&world, "server0", &["real-server", "doctor", "--fix"]);
    assert_eq!((code, text.matches("(mended)").count()), (0, 3), "{text}");
    assert_eq!(asked(&world, "server0", &doctor).0, 0);

    world.ip("server0", &format!("addr add {vip}/24 dev eth0"));
    finds(
        &world,
        "server0",
        &doctor,
        &["is on eth0", &format!("ip addr del {vip}/24 dev eth0")],
    );
    world.ip("server0", &format!("addr del {vip}/24 dev eth0"));
    world.kill_nginx(0);
    wait_for("nobody listens", PATIENCE, || {
        asked(&world, "server0", &doctor)
            .1
            .contains("nobody listens on port 80")
    });
    let (_, json) = asked(&world, "server0", &["real-server", "doctor", "--json"]);
    let found: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!(found.as_array().map(Vec::len), Some(1), "{json}");
}

#[test]
fn directors() {
    if !privileged() {
        return;
    }
    let mut world = World::new(2);
    world.start_nginx(64);
    let vip = Family::V4.vip().to_string();
    world.prepare_servers(&["--forward", "direct", "--vip", &vip]);
    let path = world.write_config(&config("direct"));
    let path = path.to_str().expect("a plain path").to_owned();
    let doctor = ["doctor", "-c", &path];
    finds(&world, "director", &doctor, &["no daemon runs", "weir run"]);
    world.start_director(&config("direct"));
    wait_for("all is well", PATIENCE, || {
        asked(&world, "director", &doctor).0 == 0
    });

    assert!(
        world
            .output("server1", "sysctl -qw net.ipv4.conf.all.arp_ignore=0")
            .status
            .success()
    );
    finds(
        &world,
        "director",
        &doctor,
        &["answers ARP for the VIP", "past the director"],
    );
    assert!(
        world
            .output("server1", "sysctl -qw net.ipv4.conf.all.arp_ignore=1")
            .status
            .success()
    );
    assert_eq!(asked(&world, "director", &doctor).0, 0);

    // What a router with a reverse path filter does to answers from the VIP.
    for n in 0..2 {
        let line = format!(
            "nft 'add table inet t; add chain inet t out {{ type filter hook output priority 0; }}; add rule inet t out ip saddr {vip} drop'"
        );
        let output = world
            .command(&format!("server{n}"), "sh")
            .args(["-ec", &line])
            .output();
        assert!(output.expect("sh runs").status.success());
    }
    for _ in 0..12 {
        let line = format!("curl -s -o /dev/null --connect-timeout 0.3 http://{vip}/name");
        world.output("client", &line);
    }
    wait_for("what upstream drops", PATIENCE, || {
        asked(&world, "director", &doctor)
            .1
            .contains("no client ever finished")
    });
    world.ip("director", &format!("addr del {vip}/32 dev eth0"));
    finds(
        &world,
        "director",
        &doctor,
        &["is on no interface of this machine", "ip addr add"],
    );
}
