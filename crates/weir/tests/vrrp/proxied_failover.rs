//! Tests that clients of a failed director's proxy get a reset soon after the takeover, even if they send nothing.

use std::fs;
use std::io::{ErrorKind, Read};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, Instant};

use super::config;
use super::connections::connect;
use super::pair::{Pair, VIP};
use super::world::privileged;

/// Time limit for the reset after the takeover. The first segment is sent after 50 ms, the last one after 3 s.
const RESET_LIMIT: Duration = Duration::from_secs(5);
/// A server that sends a byte and then waits.
const WAITING: &str = "SYSTEM:printf p; sleep 60";
/// A server that sends a byte every 100 ms.
const DOWNLOAD: &str = "SYSTEM:while printf p; do sleep 0.1; done";

/// Starts two directors, the first of which is active, and a server on the first one.
fn start(server: &str, has_sync: bool) -> Pair {
    let mut pair = Pair::new();
    let mut socat = pair.world.command("director", "socat");
    let socat = socat
        .args(["TCP-LISTEN:9,bind=127.0.0.1,fork,reuseaddr", server])
        .spawn()
        .expect("start socat");
    pair.world.kill_on_drop(socat);
    let key = pair.path("sync.key");
    fs::write(&key, "a key for the tests of synchronization").expect("write the file");
    fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).expect("set the file mode");
    for (host, local, peer, priority) in [
        ("director", "10.0.0.3", "10.0.0.4", 150),
        ("second", "10.0.0.4", "10.0.0.3", 100),
    ] {
        let sync = format!(
            "[sync]\nlisten = \"{local}:8482\"\npeers = [\"{peer}:8482\"]\nkey = {{ file = \"{key}\" }}\n"
        );
        let sync = if has_sync { sync.as_str() } else { "" };
        // With this setting, a socket can be bound to the VIP before the takeover.
        let setting = "sysctl -qw net.ipv4.ip_nonlocal_bind=1 net.ipv6.ip_nonlocal_bind=1";
        assert!(pair.world.output(host, setting).status.success());
        pair.start(host, &config(priority, sync));
        pair.wait_for_holder("director");
    }
    pair
}

/// Cuts the link of the active director, and waits until the other one is active.
fn fail_over(pair: &Pair) {
    pair.disconnect("director");
    pair.wait_for("the second director", || pair.holds("second", VIP));
}

/// Reads until there is an error, or no data for [`RESET_LIMIT`].
fn read_error(stream: &mut TcpStream) -> ErrorKind {
    stream
        .set_read_timeout(Some(RESET_LIMIT))
        .expect("set the timeout");
    loop {
        match stream.read(&mut [0; 64]) {
            Ok(0) => return ErrorKind::UnexpectedEof,
            Ok(_) => {}
            // A signal interrupts a read with a timeout.
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return error.kind(),
        }
    }
}

fn peer_connections(pair: &Pair, host: &str) -> u64 {
    let status = pair.status(host);
    let count = &status["sync"]["peers"][0]["proxied_connections"];
    count.as_u64().unwrap_or(0)
}

fn assert_clients_get_reset(server: &str) {
    let pair = start(server, true);
    let mut streams: Vec<TcpStream> = (0..5).map(|_| connect(&pair)).collect();
    pair.wait_for("the connections on the second director", || {
        peer_connections(&pair, "second") == 5
    });
    // A connection that its client closes is removed from the list.
    streams.pop();
    pair.wait_for("the removal of a connection", || {
        peer_connections(&pair, "second") == 4
    });
    assert_eq!(pair.status("director")["sync"]["proxied_connections"], 4);
    fail_over(&pair);
    let start = Instant::now();
    for stream in &mut streams {
        assert_eq!(read_error(stream), ErrorKind::ConnectionReset);
    }
    println!("resets {:?} after the takeover", start.elapsed());
    let prompts = pair.status("second")["sync"]["reset_prompts"].as_u64();
    assert!(prompts.is_some_and(|it| it >= 4), "{prompts:?}");
    assert_eq!(peer_connections(&pair, "second"), 0);
}

#[test]
fn clients_that_wait_for_a_response_get_a_reset_after_the_takeover() {
    if privileged() {
        assert_clients_get_reset(WAITING);
    }
}

#[test]
fn downloads_get_a_reset_after_the_takeover() {
    if privileged() {
        assert_clients_get_reset(DOWNLOAD);
    }
}

/// Shows that the tests above can fail.
#[test]
fn waiting_client_gets_no_reset_without_sync() {
    if !privileged() {
        return;
    }
    let pair = start(WAITING, false);
    let mut stream = connect(&pair);
    // With [sync], the connection would be in the other director's list by now.
    std::thread::sleep(Duration::from_secs(3));
    fail_over(&pair);
    assert_eq!(read_error(&mut stream), ErrorKind::WouldBlock);
}

/// A director that gives up the VIP without a failure resets its connections itself, and new connections to the other
/// director are not affected.
#[test]
fn new_connections_survive_the_segments_after_a_takeover() {
    if !privileged() {
        return;
    }
    let mut pair = start(WAITING, true);
    let mut socat = pair.world.command("second", "socat");
    let socat = socat
        .args(["TCP-LISTEN:9,bind=127.0.0.1,fork,reuseaddr", WAITING])
        .spawn()
        .expect("start socat");
    pair.world.kill_on_drop(socat);
    let mut previous = connect(&pair);
    pair.wait_for("the connection on the second director", || {
        peer_connections(&pair, "second") == 1
    });
    pair.weir("director", &["vrrp", "outside", "release"]);
    assert_eq!(read_error(&mut previous), ErrorKind::ConnectionReset);
    let mut current = connect(&pair);
    assert_eq!(read_error(&mut current), ErrorKind::WouldBlock);
}
