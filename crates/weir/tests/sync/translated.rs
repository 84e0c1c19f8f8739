//! Translated connections: source ports of `snat` that two directors assign at the same time, and replies where the
//! director's kernel does not forward.

use std::io::Read;
use std::net::TcpStream;
use std::time::Duration;

use super::world::{self, privileged, wait_for};
use super::{DIRECT, HELD, Held, Pair, Plan, TIMEOUT, VIP};

const SECOND_VIP: &str = "10.0.0.11";
const SNAT: &str = "10.0.0.100";
/// Few ports, so that directors that do not divide them choose the same ones.
const PORTS: (u16, u16) = (20_000, 20_199);

fn config(pair: &Pair, host: &str) -> String {
    let (first, last) = PORTS;
    format!(
        "[pool.web]\nservers = [\"10.0.0.5:80\"]\ncheck = {{ kind = \"http\", path = \"/name\" }}\n\
         [service.web]\nlisten = [\"{VIP}:80\", \"{SECOND_VIP}:80\"]\nforward = \"nat\"\npool = \"web\"\n\
         snat = {{ addresses = [\"{SNAT}\"], ports = \"{first}-{last}\" }}\n{}",
        pair.sync_section(host)
    )
}

/// Lets the server's replies to some source ports go to a director.
fn lead(pair: &Pair, (first, last): (u16, u16), table: u32, director: &str) {
    pair.world.ip(
        "server0",
        &format!("route replace {SNAT}/32 via {director} table {table}"),
    );
    let rule = format!("to {SNAT}/32 ipproto tcp dport {first}-{last} lookup {table}");
    pair.world
        .ip("server0", &format!("rule add {rule} priority {table}"));
}

/// Two directors are active, each with a VIP of its own, and translate to one address towards one server.
#[test]
fn directors_assign_different_source_ports_at_the_same_time() {
    if !privileged() {
        return;
    }
    let mut pair = Pair::new("direct");
    for host in ["director", "second"] {
        let config = config(&pair, host);
        pair.start_with(host, &config);
        pair.wait_until_up(host, 1);
    }
    let path = pair.world.path("director.toml");
    let checked = pair
        .world
        .weir("director")
        .args(["check", "-c"])
        .arg(path)
        .output();
    let checked = String::from_utf8_lossy(&checked.expect("weir runs").stderr).into_owned();
    assert!(
        checked.contains("assigns the source ports 20000-20099: 2 directors share 20000-20199"),
        "{checked}"
    );
    pair.world
        .ip("second", &format!("addr add {SECOND_VIP}/32 dev eth0"));
    pair.learn("client", SECOND_VIP, "second");
    lead(&pair, (20_000, 20_099), 101, "10.0.0.3");
    lead(&pair, (20_100, 20_199), 102, "10.0.0.4");
    let open = |vip: &'static str| {
        pair.world.inside("client", move || {
            (0..HELD)
                .map(|_| Held::open_to(vip).expect("it is served"))
                .collect::<Vec<Held>>()
        })
    };
    let (first, second) = (open(VIP), open(SECOND_VIP));
    let mut held = first.join().expect("all connect");
    held.extend(second.join().expect("all connect"));
    wait_for("the flows on both directors", TIMEOUT, || {
        let all = 2 * HELD as u64;
        pair.total("director") == all && pair.total("second") == all
    });
    for host in ["director", "second"] {
        let records = pair.status(host)["sync"]["records"].clone();
        // Results that never occurred are omitted.
        assert!(records["conflict"].is_null(), "{host}: {records}");
        assert!(
            records["inserted"].as_u64() >= Some(HELD as u64),
            "{records}"
        );
    }
    // The second director takes over the other's VIP and ports.
    pair.move_to("second", Some("director"));
    pair.world.ip(
        "server0",
        &format!("route replace {SNAT}/32 via 10.0.0.4 table 101"),
    );
    let kept = held.iter_mut().map(|it| usize::from(it.continues()));
    assert_eq!(kept.sum::<usize>(), 2 * HELD);
    assert_eq!(pair.hold(4).len(), 4);
}

/// A server that sends a line every 100 ms.
const CLOCK: &str = "[pool.clock]\nservers = [\"10.0.0.5:81\"]\n[service.clock]\nlisten = \
                     [\"10.0.0.10:81\"]\nforward = \"nat\"\npool = \"clock\"";

/// A kernel that does not forward returns no routes to clients to the data plane.
#[test]
fn replies_of_received_flows_are_translated_without_forwarding() {
    if !privileged() {
        return;
    }
    let plan = Plan {
        forward: "nat",
        service: CLOCK,
        ..DIRECT
    };
    let mut pair = Pair::new("nat");
    let loops = "SYSTEM:while echo tick; do sleep 0.1; done";
    let clock = pair
        .world
        .command("server0", "socat")
        .args(["TCP-LISTEN:81,fork,reuseaddr", loops])
        .spawn();
    pair.world.adopt(clock.expect("socat runs"));
    for host in ["director", "second"] {
        world::sh(&format!(
            "ip netns exec {} sysctl -qw net.ipv4.ip_forward=0",
            pair.world.namespace(host)
        ));
        pair.start(host, &plan);
    }
    let mut held = pair.hold(HELD);
    // A client that only receives: the server speaks first on the second director.
    let silent = pair.world.inside("client", || {
        let mut stream = TcpStream::connect((VIP, 81)).expect("it connects");
        let limit = Some(Duration::from_secs(20));
        stream.set_read_timeout(limit).expect("a limit");
        stream.read_exact(&mut [0; 5]).expect("it begins");
        stream
    });
    let mut silent = silent.join().expect("it is served");
    wait_for("the flows on the second director", TIMEOUT, || {
        let services = pair.status("second")["services"].clone();
        let clock = services
            .as_array()
            .and_then(|all| all.iter().find(|it| it["name"] == "clock").cloned());
        let clock = clock.unwrap_or_default();
        pair.total("second") >= HELD as u64 && clock["servers"][0]["active_connections"] == 1
    });
    // What has arrived before the failover.
    pair.move_to("second", Some("director"));
    silent.set_nonblocking(true).expect("a socket");
    while silent.read(&mut [0; 64]).is_ok_and(|length| length > 0) {}
    silent.set_nonblocking(false).expect("a socket");
    silent
        .read_exact(&mut [0; 20])
        .expect("lines through the second director");
    let kept = held.iter_mut().map(|it| usize::from(it.continues()));
    assert_eq!(kept.sum::<usize>(), HELD);
}
