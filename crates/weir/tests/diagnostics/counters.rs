//! Tests that the counters for unexpected packets do not count Weir's own connections.

use super::TIMEOUT;
use super::world::{Family, World, bracketed, privileged, wait_for};

/// Returns a configuration with probes to the server and through the forwarding methods, from the VIP and from an
/// address of `snat`, and with a proxy service on the same VIP.
fn config(family: Family) -> String {
    let (server, vip) = (family.server(0), bracketed(family.vip()));
    let check =
        "kind = \"http\"\nport = 80\npath = \"/name\"\ninterval = \"100ms\"\ntimeout = \"500ms\"";
    let pool = |name: &str, via: &str| {
        format!(
            "[pool.{name}]\nservers = [\"{server}\"]\n[pool.{name}.check]\n{check}\nvia = \"{via}\"\n\n"
        )
    };
    let service = |name: &str, port: u16, forward: &str| {
        format!("[service.{name}]\nlisten = [\"{vip}:{port}\"]\npool = \"{name}\"\n{forward}\n\n")
    };
    [
        "[node]\ninterfaces = [\"eth0\"]\n\n".to_owned(),
        pool("routed", "both"),
        pool("translated", "server"),
        pool("straight", "both"),
        format!(
            "[pool.proxied]\nservers = [\"{}:80\"]\n[pool.proxied.check]\n{check}\n\n",
            bracketed(server)
        ),
        service("routed", 80, "forward = \"nat\""),
        service("translated", 81, "forward = \"nat\"\nsnat = true"),
        service("straight", 82, "forward = \"direct\""),
        service("proxied", 83, "forward = \"proxy\"\nprotocol = \"http\""),
    ]
    .concat()
}

fn assert_own_packets_not_counted(family: Family) {
    if !privileged() {
        return;
    }
    let mut world = World::new(1);
    world.start_nginx(64);
    let vip = family.vip();
    world.start_daemon(&config(family));
    wait_for("probes", TIMEOUT, || {
        world.status()["checks"]["probes"].as_u64() > Some(60)
    });
    let url = format!("http://{}:83/name", bracketed(vip));
    assert_eq!(world.get(&url).as_deref(), Ok(&b"server0\n"[..]));
    // A reply that arrives after its probe has timed out matches no socket.
    let late_replies = world.packet_count("pass_no_service");
    assert!(late_replies <= 3, "{:#}", world.status()["reasons"]);
    assert!(
        world.packet_count("pass_local_socket") > 20,
        "{:#}",
        world.status()["reasons"]
    );

    // Packets to a closed port are still counted.
    let url = format!("http://{}:99/name", bracketed(vip));
    world
        .get_within(2, &url)
        .expect_err("request to a closed port must fail");
    assert!(world.packet_count("pass_no_service") > late_replies);
}

#[test]
fn own_connections_are_not_counted_as_no_service() {
    assert_own_packets_not_counted(Family::V4);
}

#[test]
fn own_connections_are_not_counted_as_no_service_v6() {
    assert_own_packets_not_counted(Family::V6);
}
