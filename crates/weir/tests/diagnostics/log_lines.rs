//! Tests that the director logs each change once, as plain text.

use super::TIMEOUT;
use super::log_line::find_debug_output;
use super::world::{Family, World, privileged, wait_for};

/// Returns a configuration with four pools that have the same server. One is used by a layer 4 service, one by a proxy
/// service, one by both, and one by no service.
fn config() -> String {
    let (server, vip) = (Family::V4.server(0), Family::V4.vip());
    let pools: String = ["packets", "requests", "both", "unused"]
        .iter()
        .map(|name| {
            format!(
                "[pool.{name}]\nservers = [\"{server}:80\"]\n[pool.{name}.check]\nkind = \"http\"\npath = \"/name\"\n\
                 interval = \"100ms\"\ntimeout = \"200ms\"\nrise = 1\nfall = 1\n\n"
            )
        })
        .collect();
    let proxy = "forward = \"proxy\"\nprotocol = \"http\"";
    format!(
        "[node]\ninterfaces = [\"eth0\"]\n\n{pools}\
         [service.a]\nlisten = [\"{vip}:80\"]\nforward = \"nat\"\nsnat = true\npool = \"packets\"\n\n\
         [service.b]\nlisten = [\"{vip}:81\"]\nforward = \"nat\"\nsnat = true\npool = \"both\"\n\n\
         [service.c]\nlisten = [\"{vip}:8081\"]\n{proxy}\npool = \"both\"\n\n\
         [service.d]\nlisten = [\"{vip}:8082\"]\n{proxy}\npool = \"requests\"\n"
    )
}

fn all_have_state(world: &World, state: &str) -> bool {
    let status = world.status();
    let services = status["services"].as_array().expect("services is an array");
    services.len() == 4
        && services.iter().all(|service| {
            let servers = service["servers"].as_array().expect("servers is an array");
            servers.iter().all(|server| server["state"] == state)
        })
}

#[test]
fn pool_change_is_logged_once() {
    if !privileged() {
        return;
    }
    let mut world = World::new(1);
    world.start_nginx(64);
    world.start_daemon(&config());
    wait_for("all servers to be up", TIMEOUT, || {
        all_have_state(&world, "up")
    });
    world.kill_nginx(0);
    wait_for("all servers to be down", TIMEOUT, || {
        all_have_state(&world, "down")
    });
    world.start_nginx_on("server0", 0, "");
    wait_for("all servers to be up again", TIMEOUT, || {
        all_have_state(&world, "up")
    });
    let log = world.log();
    for pool in ["packets", "requests", "both"] {
        for (from, to) in [("up", "down"), ("down", "up")] {
            let line = format!("pool state changed pool=\"{pool}\" from=\"{from}\" to=\"{to}\"");
            assert_eq!(log.matches(&line).count(), 1, "{line}: {log}");
        }
    }
    let server = format!("both/{}:80", Family::V4.server(0));
    world.run_weir(&["server", &server, "drain"]);
    wait_for(
        "the log line about the pool of a drained server",
        TIMEOUT,
        || {
            let log = world.log();
            log.matches("pool state changed pool=\"both\" from=\"up\" to=\"down\"")
                .count()
                == 2
        },
    );
    assert_eq!(find_debug_output(&world.log()), None);
}
