//! Tests idle connections and downloads with each forwarding method when the active director's links are cut.

use std::io::{Read, Write};
use std::net::{SocketAddr, SocketAddrV4, TcpStream};
use std::time::Duration;

use rustix::net::{AddressFamily, SocketType, connect, socket, sockopt};

use super::world::{privileged, wait_for};
use super::{Connection, Pair, SNAT, Setup, TIMEOUT, VIP};

/// Size of a download in bytes, many times that of the client's receive buffer.
pub(super) const DOWNLOAD_BYTES: usize = 96 << 10;
const RECEIVE_BUFFER_BYTES: usize = 8 << 10;
/// Number of bytes of a download that are received before the cut.
const BYTES_BEFORE_CUT: usize = 2 << 10;

/// Forwarding methods, with additional lines of the service.
const METHODS: [(&str, &str, &str); 4] = [
    ("direct", "direct", ""),
    ("tunnel", "tunnel", ""),
    ("nat", "nat", ""),
    ("nat and snat", "nat", SNAT),
];

/// A download whose first bytes the client has read.
struct Download {
    stream: TcpStream,
    received: Vec<u8>,
}

impl Download {
    fn start() -> Option<Self> {
        let socket = socket(AddressFamily::INET, SocketType::STREAM, None).ok()?;
        sockopt::set_socket_recv_buffer_size(&socket, RECEIVE_BUFFER_BYTES).ok()?;
        let vip: SocketAddrV4 = format!("{VIP}:80").parse().ok()?;
        connect(&socket, &SocketAddr::V4(vip)).ok()?;
        let mut stream = TcpStream::from(socket);
        stream.set_read_timeout(Some(Duration::from_secs(5))).ok()?;
        stream
            .write_all(b"GET /big HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
            .ok()?;
        let mut received = vec![0; BYTES_BEFORE_CUT];
        stream.read_exact(&mut received).ok()?;
        Some(Self { stream, received })
    }

    /// Reads the rest of the download. Returns whether it is complete.
    fn finish(&mut self) -> bool {
        if self.stream.read_to_end(&mut self.received).is_err() {
            return false;
        }
        let head = self.received.windows(4).position(|it| it == b"\r\n\r\n");
        head.is_some_and(|index| self.received.len() - index - 4 == DOWNLOAD_BYTES)
    }
}

/// Returns whether a director needs the other's flows because it cannot compute the server and the translation from a
/// packet.
fn needs_flows(setup: Setup) -> bool {
    setup.scheduler == "wlc" || setup.forward == "nat"
}

/// Returns how many of `count` idle connections and of `count` downloads break.
fn count_broken(setup: Setup, count: usize) -> (usize, usize) {
    let mut pair = Pair::with_setup(setup, DOWNLOAD_BYTES);
    pair.start("director", &setup);
    pair.start("second", &setup);
    let mut connections = pair.open_connections(count);
    let client = pair.world.spawn_on("client", move || {
        (0..count)
            .map(|_| Download::start().expect("start the download"))
            .collect::<Vec<Download>>()
    });
    let mut downloads = client.join().expect("thread panicked");
    if setup.sync {
        wait_for("the flows on the second director", TIMEOUT, || {
            let is_sent = pair.peer("director")["queued"] == 0;
            // A director does not send flows if the other director can compute their servers.
            is_sent
                && (!needs_flows(setup)
                    || pair.total("second") >= 2 * count as u64
                        && pair.counts("second") == pair.counts("director"))
        });
    }
    pair.move_vip_to("second", Some("director"));
    let broken = |surviving: usize| count - surviving;
    let idle = connections
        .iter_mut()
        .map(|it| usize::from(Connection::reaches_same_server(it)))
        .sum();
    let complete = downloads
        .iter_mut()
        .map(|it| usize::from(it.finish()))
        .sum();
    // A new connection shows that the network and the second director work.
    assert_eq!(pair.open_connections(4).len(), 4);
    (broken(idle), broken(complete))
}

fn setup(forward: &'static str, service: &'static str, scheduler: &'static str) -> Setup {
    Setup {
        forward,
        service,
        scheduler,
        sync: true,
    }
}

#[test]
fn no_connection_breaks_when_active_director_is_cut_off() {
    if !privileged() {
        return;
    }
    assert_eq!(count_broken(setup("tunnel", "", "wlc"), 40), (0, 0));
    assert_eq!(count_broken(setup("nat", SNAT, "maglev"), 40), (0, 0));
}

/// Without `[sync]`, a director does not have the other's flows. It finds the server only if its scheduler computes the
/// server from the packet, and it never finds the translation. `WEIR_CUT_CONNECTIONS` sets the number of connections of
/// each kind. `WEIR_CUT_METHODS` lists the methods to test, separated by commas, to run the test in parts.
#[test]
fn connections_survive_only_if_synchronized_or_computable_soak() {
    if std::env::var_os("WEIR_SOAK").is_none() || !privileged() {
        return;
    }
    let count = std::env::var("WEIR_CUT_CONNECTIONS").ok();
    let count = count.and_then(|it| it.parse().ok()).unwrap_or(1_000);
    let selected = std::env::var("WEIR_CUT_METHODS").ok();
    let is_selected = |name: &str| {
        let names = selected.as_deref();
        names.is_none_or(|names| names.split(',').any(|it| it == name))
    };
    let methods: Vec<_> = METHODS.iter().filter(|it| is_selected(it.0)).collect();
    assert!(!methods.is_empty(), "WEIR_CUT_METHODS: {selected:?}");
    for (name, forward, service) in methods {
        for scheduler in ["wlc", "maglev"] {
            for sync in [true, false] {
                let setup = Setup {
                    sync,
                    ..setup(forward, service, scheduler)
                };
                let (idle, downloads) = count_broken(setup, count);
                println!(
                    "{name}, {scheduler}, [sync] {}: {idle} of {count} idle connections and {downloads} of {count} \
                     downloads broken",
                    if sync { "on" } else { "off" }
                );
                if sync || !needs_flows(setup) {
                    assert_eq!((idle, downloads), (0, 0));
                } else {
                    assert!(
                        idle > 0 && downloads > 0,
                        "connections must break without [sync]"
                    );
                }
            }
        }
    }
}
