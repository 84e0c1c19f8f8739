//! Tests the synchronization of connections whose addresses are translated.
//!
//! The cases are source ports of `snat` that two directors assign at the same time, and replies if the director's
//! kernel does not forward.

use std::io::Read;
use std::net::TcpStream;
use std::time::Duration;

use super::world::{self, privileged, wait_for};
use super::{Connection, DIRECT, HELD_CONNECTIONS, Pair, Setup, TIMEOUT, VIP};

const SECOND_VIP: &str = "10.0.0.11";
const SNAT: &str = "10.0.0.100";
/// The port range is so small that the directors would choose the same ports if they did not divide it.
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

/// Routes the server's replies to a range of source ports to a director.
fn route_replies(pair: &Pair, (first, last): (u16, u16), table: u32, director: &str) {
    pair.world.ip(
        "server0",
        &format!("route replace {SNAT}/32 via {director} table {table}"),
    );
    let rule = format!("to {SNAT}/32 ipproto tcp dport {first}-{last} lookup {table}");
    pair.world
        .ip("server0", &format!("rule add {rule} priority {table}"));
}

/// Two directors are active, each with its own VIP, and translate to the same source address for the same server.
#[test]
fn directors_assign_different_source_ports_concurrently() {
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
    let output = pair
        .world
        .weir("director")
        .args(["check", "-c"])
        .arg(path)
        .output();
    let warnings = String::from_utf8_lossy(&output.expect("run weir").stderr).into_owned();
    assert!(
        warnings.contains("assigns the source ports 20000-20099: 2 directors share 20000-20199"),
        "{warnings}"
    );
    pair.world
        .ip("second", &format!("addr add {SECOND_VIP}/32 dev eth0"));
    pair.update_neighbor("client", SECOND_VIP, "second");
    route_replies(&pair, (20_000, 20_099), 101, "10.0.0.3");
    route_replies(&pair, (20_100, 20_199), 102, "10.0.0.4");
    let open = |vip: &'static str| {
        pair.world.spawn_on("client", move || {
            (0..HELD_CONNECTIONS)
                .map(|_| Connection::open_to(vip).expect("open a connection"))
                .collect::<Vec<Connection>>()
        })
    };
    let (first, second) = (open(VIP), open(SECOND_VIP));
    let mut connections = first.join().expect("thread panicked");
    connections.extend(second.join().expect("thread panicked"));
    wait_for("the flows on both directors", TIMEOUT, || {
        let flow_count = 2 * HELD_CONNECTIONS as u64;
        pair.total("director") == flow_count && pair.total("second") == flow_count
    });
    for host in ["director", "second"] {
        let records = pair.status(host)["sync"]["records"].clone();
        // The status omits counters that are zero.
        assert!(records["conflict"].is_null(), "{host}: {records}");
        assert!(
            records["inserted"].as_u64() >= Some(HELD_CONNECTIONS as u64),
            "{records}"
        );
    }
    // The second director takes over the first director's VIP and ports.
    pair.move_vip_to("second", Some("director"));
    pair.world.ip(
        "server0",
        &format!("route replace {SNAT}/32 via 10.0.0.4 table 101"),
    );
    let surviving = connections
        .iter_mut()
        .map(|it| usize::from(it.reaches_same_server()));
    assert_eq!(surviving.sum::<usize>(), 2 * HELD_CONNECTIONS);
    assert_eq!(pair.open_connections(4).len(), 4);
}

/// A service with a server that sends a line every 100 ms.
const CLOCK: &str = "[pool.clock]\nservers = [\"10.0.0.5:81\"]\n[service.clock]\nlisten = \
                     [\"10.0.0.10:81\"]\nforward = \"nat\"\npool = \"clock\"";

/// If the kernel does not forward, the data plane cannot look up routes to clients.
#[test]
fn replies_of_received_flows_are_translated_without_forwarding() {
    if !privileged() {
        return;
    }
    let setup = Setup {
        forward: "nat",
        service: CLOCK,
        ..DIRECT
    };
    let mut pair = Pair::new("nat");
    let script = "SYSTEM:while echo tick; do sleep 0.1; done";
    let clock = pair
        .world
        .command("server0", "socat")
        .args(["TCP-LISTEN:81,fork,reuseaddr", script])
        .spawn();
    pair.world.kill_on_drop(clock.expect("start socat"));
    for host in ["director", "second"] {
        world::sh(&format!(
            "ip netns exec {} sysctl -qw net.ipv4.ip_forward=0",
            pair.world.namespace(host)
        ));
        pair.start(host, &setup);
    }
    let mut connections = pair.open_connections(HELD_CONNECTIONS);
    // The client only receives, so after the failover the server sends the first packet.
    let receiver = pair.world.spawn_on("client", || {
        let mut stream = TcpStream::connect((VIP, 81)).expect("connect");
        let limit = Some(Duration::from_secs(20));
        stream
            .set_read_timeout(limit)
            .expect("set the read timeout");
        stream.read_exact(&mut [0; 5]).expect("read the first line");
        stream
    });
    let mut receiver = receiver.join().expect("thread panicked");
    wait_for("the flows on the second director", TIMEOUT, || {
        let services = pair.status("second")["services"].clone();
        let clock = services
            .as_array()
            .and_then(|all| all.iter().find(|it| it["name"] == "clock").cloned());
        let clock = clock.unwrap_or_default();
        pair.total("second") >= HELD_CONNECTIONS as u64
            && clock["servers"][0]["active_connections"] == 1
    });
    // Discard the lines that arrived before the failover.
    pair.move_vip_to("second", Some("director"));
    receiver
        .set_nonblocking(true)
        .expect("set the socket's blocking mode");
    while receiver.read(&mut [0; 64]).is_ok_and(|length| length > 0) {}
    receiver
        .set_nonblocking(false)
        .expect("set the socket's blocking mode");
    receiver
        .read_exact(&mut [0; 20])
        .expect("read lines through the second director");
    let surviving = connections
        .iter_mut()
        .map(|it| usize::from(it.reaches_same_server()));
    assert_eq!(surviving.sum::<usize>(), HELD_CONNECTIONS);
}
