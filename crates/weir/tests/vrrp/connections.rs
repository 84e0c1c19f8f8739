//! Tests proxy connections when their address moves to another director.

use std::io::{ErrorKind, Read};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use super::config;
use super::pair::{Pair, VIP};
use super::world::privileged;

/// Starts the only director and a server that sends a byte and waits. Returns the connection of a client that has
/// received the byte.
fn connect_through_director(pair: &mut Pair) -> TcpStream {
    let mut server = pair.world.command("director", "socat");
    let server = server
        .args([
            "TCP-LISTEN:9,bind=127.0.0.1,fork,reuseaddr",
            "SYSTEM:printf p; sleep 60",
        ])
        .spawn()
        .expect("start socat");
    pair.world.kill_on_drop(server);
    pair.start("director", &config(150, ""));
    pair.wait_for_holder("director");
    connect(pair)
}

/// Opens a client's connection to the proxy, and reads the first byte.
pub(super) fn connect(pair: &Pair) -> TcpStream {
    let address: SocketAddr = format!("{VIP}:8080").parse().expect("valid address");
    let mut connected = None;
    pair.wait_for("data from the server", || {
        let connect = move || {
            let limit = Duration::from_secs(2);
            let mut stream = TcpStream::connect_timeout(&address, limit).ok()?;
            stream.set_read_timeout(Some(limit)).ok()?;
            stream.read_exact(&mut [0]).ok()?;
            Some(stream)
        };
        let client = pair.world.spawn_on("client", connect);
        connected = client.join().expect("thread panicked");
        connected.is_some()
    });
    connected.expect("connect")
}

/// Returns the error of a read that waits for at most `limit`.
fn read_error(stream: &mut TcpStream, limit: Duration) -> ErrorKind {
    stream
        .set_read_timeout(Some(limit))
        .expect("set the timeout");
    loop {
        let error = stream.read(&mut [0]).expect_err("the server sends no data");
        // A signal interrupts a read with a timeout.
        if error.kind() != ErrorKind::Interrupted {
            return error.kind();
        }
    }
}

/// A client that waits for data sends no packet to which the next active director could respond with a reset.
#[test]
fn released_director_resets_clients_that_wait_for_data() {
    if !privileged() {
        return;
    }
    let mut pair = Pair::new();
    let mut stream = connect_through_director(&mut pair);
    pair.weir("director", &["vrrp", "outside", "release"]);
    let error = read_error(&mut stream, Duration::from_secs(10));
    assert_eq!(error, ErrorKind::ConnectionReset);
}

/// The address stays on the interface with a different prefix length.
#[test]
fn address_that_is_handed_over_keeps_its_connections() {
    if !privileged() {
        return;
    }
    let mut pair = Pair::new();
    let mut stream = connect_through_director(&mut pair);
    pair.reload("director", "[node]\nvip_interface = \"eth0\"\n");
    let error = read_error(&mut stream, Duration::from_secs(3));
    assert_eq!(error, ErrorKind::WouldBlock);
    assert!(pair.holds("director", VIP));
}
