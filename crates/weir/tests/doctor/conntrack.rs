//! Tests that the doctor reports how conntrack affects a server's clients if rules enable conntrack.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream, UdpSocket};

use super::server::{DOCTOR, prepared_world};
use super::*;

/// The connection is older than the rules, so conntrack has not seen its handshake.
#[test]
fn untracked_connections_are_reported() {
    if !privileged() {
        return;
    }
    let world = prepared_world();
    let (request_sender, request_receiver) = std::sync::mpsc::channel::<()>();
    let (result_sender, result_receiver) = std::sync::mpsc::channel();
    let vip = SocketAddr::new(Family::V4.vip(), 80);
    let client = world.spawn_on("client", move || {
        let mut stream = TcpStream::connect(vip).expect("connect through the director");
        result_sender.send(0).expect("test receives the result");
        request_receiver.recv().expect("receive the test's request");
        let request = "GET /name HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
        stream
            .write_all(request.as_bytes())
            .expect("send the request");
        let mut text = Vec::new();
        let _ = stream.read_to_end(&mut text);
        let _ = result_sender.send(text.len());
    });
    assert_eq!(result_receiver.recv_timeout(TIMEOUT), Ok(0));
    run_shell(
        &world,
        "server0",
        "sysctl -qw net.netfilter.nf_conntrack_tcp_loose=0; nft 'add table inet filter; \
         add chain inet filter input { type filter hook input priority 0; }; add rule inet filter input ct state \
         invalid drop'",
    );
    request_sender.send(()).expect("client thread is waiting");
    assert!(
        result_receiver
            .recv_timeout(Duration::from_secs(2))
            .is_err(),
        "the rules must drop the client's packets"
    );
    assert_fixed_by_command(&world, "server0", &DOCTOR, "nf_conntrack_tcp_loose is 0");
    let length = result_receiver
        .recv_timeout(TIMEOUT)
        .expect("client receives the response");
    assert!(length > 0);
    client.join().expect("client thread panicked");
}

/// The limit is global, not per namespace, so the test fills the table instead of lowering the limit, and empties the
/// table instead of raising the limit.
#[test]
fn nearly_full_conntrack_table_is_reported() {
    if !privileged() {
        return;
    }
    let world = prepared_world();
    let read_number = |name: &str| -> u32 {
        let output = world.output("server0", &format!("sysctl -n net.netfilter.{name}"));
        let text = String::from_utf8_lossy(&output.stdout);
        text.trim()
            .parse()
            .unwrap_or_else(|_| panic!("{name}: {output:?}"))
    };
    run_shell(
        &world,
        "server0",
        "sysctl -qw net.netfilter.nf_conntrack_udp_timeout=12; nft 'add table inet filter; \
         add chain inet filter input { type filter hook input priority 0; }; \
         add rule inet filter input ct state new meta l4proto udp drop; \
         add chain inet filter out { type filter hook output priority 0; }; \
         add rule inet filter out ct state new accept'",
    );
    let max_entries = read_number("nf_conntrack_max");
    assert_eq!(
        fix_command(&world, "server0", &DOCTOR, "the conntrack table contains"),
        None
    );
    let target = max_entries / 100 * 93;
    let flood = world.spawn_on("server0", move || {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("bind a UDP socket");
        for n in 0..target {
            let [_, a, b, c] = (n + 0x0100).to_be_bytes();
            let _ = socket.send_to(b"", (Ipv4Addr::new(127, 1 + a, b, c), 9));
        }
    });
    flood.join().expect("flood thread panicked");
    let expected = "the conntrack table contains";
    let command = fix_command(&world, "server0", &DOCTOR, expected);
    let command =
        command.unwrap_or_else(|| panic!("{} of {max_entries}", read_number("nf_conntrack_count")));
    assert_eq!(
        command,
        format!(
            "sysctl -w net.netfilter.nf_conntrack_max={}",
            max_entries * 2
        )
    );
    wait_for("entries to expire", Duration::from_secs(120), || {
        fix_command(&world, "server0", &DOCTOR, expected).is_none()
    });
}
