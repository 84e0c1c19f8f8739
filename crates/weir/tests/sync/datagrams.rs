//! Tests that datagrams of a client reach the same server after a failover.

use std::net::UdpSocket;
use std::time::Duration;

use super::world::{privileged, wait_for};
use super::{ADDRESSES, Pair, SERVERS, TIMEOUT, VIP};

const PORT: u16 = 5300;
const CLIENTS: usize = 12;
/// Maximum number of datagrams until a reply arrives.
const ATTEMPTS: usize = 3;

fn config(pair: &Pair, host: &str) -> String {
    let servers: Vec<String> = (0..SERVERS)
        .map(|n| format!("\"10.0.0.{}\"", 5 + n))
        .collect();
    format!(
        "[pool.echo]\nscheduler = \"wlc\"\nservers = [{}]\n[service.echo]\nlisten = [\"udp/{VIP}:{PORT}\"]\n\
         forward = \"direct\"\npool = \"echo\"\n{}",
        servers.join(", "),
        pair.sync_section(host)
    )
}

/// Returns the number of the server that replies to a datagram.
fn responding_server(socket: &UdpSocket) -> Option<u8> {
    let mut buffer = [0; 16];
    (0..ATTEMPTS).find_map(|_| {
        socket.send(b"?").ok()?;
        socket.recv(&mut buffer).ok()?;
        Some(buffer[0])
    })
}

#[test]
fn datagrams_reach_the_same_server_after_failover() {
    if !privileged() {
        return;
    }
    let mut pair = Pair::new("direct");
    let vip = VIP.parse().expect("parse the address");
    pair.world.start_udp_echo(PORT, |_| vip);
    for (host, _) in ADDRESSES {
        let config = config(&pair, host);
        pair.start_with(host, &config);
    }
    wait_for("an established peer", TIMEOUT, || {
        pair.peer("director")["state"] == "established" && pair.peer("second")["complete"] == true
    });
    let thread = pair.world.spawn_on("client", || {
        let socket = || {
            let socket = UdpSocket::bind("0.0.0.0:0").expect("bind a UDP socket");
            socket.connect((VIP, PORT)).expect("set the destination");
            let timeout = Some(Duration::from_secs(2));
            socket.set_read_timeout(timeout).expect("set the timeout");
            socket
        };
        (0..CLIENTS).map(|_| socket()).collect::<Vec<UdpSocket>>()
    });
    let sockets = thread.join().expect("thread panicked");
    let servers: Vec<Option<u8>> = sockets.iter().map(responding_server).collect();
    assert!(servers.iter().all(Option::is_some), "{servers:?}");
    // A flow is sent only after it has lasted for some time.
    wait_for("the flows on the second director", TIMEOUT, || {
        assert!(
            sockets
                .iter()
                .map(responding_server)
                .eq(servers.iter().copied())
        );
        pair.total("second") == CLIENTS as u64
    });
    pair.move_vip_to("second", Some("director"));
    // In this order, wlc would choose other servers for new flows.
    for (socket, server) in sockets.iter().zip(&servers).rev() {
        assert_eq!(
            responding_server(socket),
            *server,
            "servers before the failover: {servers:?}"
        );
    }
}
