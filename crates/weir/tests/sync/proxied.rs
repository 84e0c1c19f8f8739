//! Tests connections of proxy services when the VIP moves, with a data plane, over IPv4 and IPv6.

use std::fmt::Write as _;
use std::io::ErrorKind;
use std::io::Read;
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use super::world::{privileged, wait_for};
use super::{ADDRESSES, DIRECT, Pair, SERVERS, TIMEOUT, VIP, request_server_name};

const VIP_V6: &str = "fd71::a";
/// Time limit for the reset after the takeover. The first segment is sent after 50 ms, the last one after 3 s.
const RESET_LIMIT: Duration = Duration::from_secs(5);

fn connect(pair: &Pair, address: SocketAddr) -> TcpStream {
    let client = pair.world.spawn_on("client", move || {
        let mut stream = TcpStream::connect_timeout(&address, Duration::from_secs(5)).ok()?;
        stream.set_read_timeout(Some(RESET_LIMIT)).ok()?;
        request_server_name(&mut stream)?;
        Some(stream)
    });
    let connected = client.join().expect("thread panicked");
    connected.unwrap_or_else(|| panic!("no response from {address}"))
}

/// The layer 4 service has the same VIP, so its data plane sees the clients' packets.
#[test]
fn proxied_clients_get_a_reset_from_the_next_director() {
    if !privileged() {
        return;
    }
    let mut pair = Pair::new("direct");
    for (host, number) in [("client", 2), ("director", 3), ("second", 4)] {
        let address = format!("addr add fd71::{number}/64 dev eth0 nodad");
        pair.world.ip(host, &address);
    }
    let vip_v6 = format!("addr add {VIP_V6}/128 dev eth0 nodad");
    pair.world.ip("director", &vip_v6);
    for (host, _) in ADDRESSES {
        let mut config = pair.config(host, &DIRECT);
        let _ = write!(
            config,
            "[pool.proxied]\nservers = [\"10.0.0.5:80\"]\n[service.proxied]\n\
             listen = [\"{VIP}:8080\", \"[{VIP_V6}]:8080\"]\nforward = \"proxy\"\nprotocol = \"http\"\n\
             pool = \"proxied\"\n"
        );
        pair.start_with(host, &config);
    }
    for (host, _) in ADDRESSES {
        pair.wait_until_up(host, SERVERS.into());
    }
    let addresses = [
        SocketAddr::new(VIP.parse().expect("an address"), 8080),
        SocketAddr::new(VIP_V6.parse().expect("an address"), 8080),
    ];
    let mut streams: Vec<TcpStream> = addresses
        .iter()
        .map(|address| connect(&pair, *address))
        .collect();
    wait_for("the connections on the second director", TIMEOUT, || {
        pair.peer("second")["proxied_connections"] == 2
    });
    pair.move_vip_to("second", Some("director"));
    pair.world.ip("second", &vip_v6);
    pair.update_neighbor("client", VIP_V6, "second");
    for (stream, address) in streams.iter_mut().zip(addresses) {
        let error = stream
            .read(&mut [0])
            .expect_err("the connection must be reset");
        assert_eq!(error.kind(), ErrorKind::ConnectionReset, "{address}");
    }
    // New connections are accepted.
    for address in addresses {
        connect(&pair, address);
    }
}
