//! Tests servers on the director itself, and on a host that is also a client.

mod world;

use std::net::SocketAddr;

use world::{Family, World, bracketed, privileged};

const MIB: usize = 1 << 20;

fn config(family: Family, servers: &str, forward: &str, extra: &str) -> String {
    format!(
        "[node]\ninterfaces = [\"eth0\"]\n[pool.web]\nscheduler = \"rr\"\nservers = [{servers}]\n\
         [service.web]\nlisten = [\"{}:80\"]\nforward = \"{forward}\"\n{extra}pool = \"web\"\n",
        bracketed(family.vip())
    )
}

/// Asserts that another host and the director itself serve requests alternately, and that a large file arrives intact.
fn assert_director_serves(family: Family, forward: &str, port_suffix: &str) {
    if !privileged() {
        return;
    }
    let mut world = World::new(1);
    world.start_nginx(4 * MIB);
    world.start_nginx_on("director", 1, port_suffix);
    if forward == "direct" {
        world.prepare_direct_servers(&family.vip());
    } else {
        world.route_replies_through_director();
    }
    let director = if port_suffix.is_empty() {
        family.director().to_string()
    } else {
        format!("{}{port_suffix}", bracketed(family.director()))
    };
    let servers = format!("\"{}\", \"{director}\"", family.server(0));
    world.start_daemon(&config(family, &servers, forward, ""));
    let url = format!("http://{}", bracketed(family.vip()));
    let expected = std::fs::read(world.path("big")).expect("read the original");
    for _ in 0..4 {
        let big = world.get(&format!("{url}/big"));
        let big = big.unwrap_or_else(|error| panic!("{error}: {:#}", world.status()));
        assert!(
            big == expected,
            "the received file ({} bytes) differs from the original",
            big.len()
        );
    }
    let status = world.status();
    let servers = status["services"][0]["servers"]
        .as_array()
        .expect("servers is an array");
    assert!(
        servers.iter().all(|server| server["connections"] == 2),
        "{status:#}"
    );
}

#[test]
fn nat_v4_reaches_a_local_server() {
    assert_director_serves(Family::V4, "nat", ":8080");
}

#[test]
fn nat_v6_reaches_a_local_server() {
    assert_director_serves(Family::V6, "nat", ":8080");
}

#[test]
fn direct_v4_reaches_a_local_server() {
    assert_director_serves(Family::V4, "direct", "");
}

/// A server is also a client of the service. With `nat` and `snat`, it gets responses from both servers, including
/// itself.
#[test]
fn server_connects_to_its_own_vip() {
    if !privileged() {
        return;
    }
    for family in [Family::V4, Family::V6] {
        let mut world = World::new(2);
        world.start_nginx(1024);
        let servers = format!("\"{}\", \"{}\"", family.server(0), family.server(1));
        world.start_daemon(&config(family, &servers, "nat", "snat = true\n"));
        let mut responses = std::collections::BTreeSet::new();
        for _ in 0..4 {
            let line = format!(
                "curl -sS -g --max-time 5 http://{}/name",
                bracketed(family.vip())
            );
            let output = world.output("server0", &line);
            assert!(
                output.status.success(),
                "{}",
                String::from_utf8_lossy(&output.stderr)
            );
            responses.insert(output.stdout);
        }
        assert_eq!(responses.len(), 2, "only one of the two servers responded");
    }
}

/// Weir does not handle packets from the director's own programs, so their connections to a server need no SNAT port.
#[test]
fn director_connects_to_server_while_snat_ports_are_exhausted() {
    if !privileged() {
        return;
    }
    let family = Family::V4;
    let mut world = World::new(1);
    world.start_nginx(4 * MIB);
    world.start_sink(9000, family);
    let servers = format!("\"{}\"", family.server(0));
    // `snat` has only two ports, so a third concurrent connection fails.
    let snat = "snat = { addresses = [\"10.71.0.3\"], ports = \"20000-20001\" }\n";
    let text =
        config(family, &servers, "nat", snat).replace(":80\"]", ":80\", \"10.71.0.10:9000\"]");
    world.start_daemon(&text);
    let sink = SocketAddr::new(family.vip(), 9000);
    let opened = world.open_connections(sink, 5);
    assert!(
        opened < 5,
        "five connections were opened at the same time with only two SNAT ports"
    );
    assert!(opened >= 2, "not both SNAT ports were used: {opened}");
    assert!(
        world.packet_count("drop_snat_exhausted") > 0,
        "{:#}",
        world.status()
    );
    let metrics = world.metrics();
    assert!(
        metrics
            .lines()
            .any(|line| line.contains("drop_snat_exhausted") && !line.ends_with(" 0")),
        "{metrics}"
    );
    let line = format!("curl -sS --max-time 5 http://{}/big", family.server(0));
    let output = world.output("director", &line);
    assert_eq!(
        output.stdout.len(),
        4 * MIB,
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
}
