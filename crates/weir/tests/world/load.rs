//! Runs clients that send requests continuously, and checks their results after they stop.
//!
//! There must be no errors, no lost packets, and exact counts.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::{World, wait_for};

const CONNECTIONS: usize = 20;

/// A connection, and the data needed to describe its failure.
struct Connection {
    stream: TcpStream,
    opened: Instant,
    requests: u32,
}

impl Connection {
    fn open(to: SocketAddr) -> std::io::Result<Self> {
        let opened = Instant::now();
        let stream = TcpStream::connect_timeout(&to, Duration::from_secs(20)).map_err(|error| {
            with_context(&error, &format!("connect within {:?}", opened.elapsed()))
        })?;
        stream.set_read_timeout(Some(Duration::from_secs(20)))?;
        Ok(Self {
            stream,
            opened,
            requests: 0,
        })
    }

    /// Sends one request and reads the response.
    fn exchange(&mut self) -> std::io::Result<()> {
        self.requests += 1;
        let exchanged = exchange(&mut self.stream);
        exchanged.map_err(|error| {
            let (from, age, number) = (
                self.stream.local_addr(),
                self.opened.elapsed(),
                self.requests,
            );
            with_context(
                &error,
                &format!("request {number} from {from:?}, {age:?} after connect was called"),
            )
        })
    }
}

fn with_context(error: &std::io::Error, step: &str) -> std::io::Error {
    std::io::Error::new(error.kind(), format!("{step}: {error}"))
}

/// Sends one request over an open connection and reads the response.
fn exchange(stream: &mut TcpStream) -> std::io::Result<()> {
    stream.write_all(b"GET /name HTTP/1.1\r\nHost: web\r\n\r\n")?;
    let mut response = Vec::new();
    let mut buffer = [0; 4096];
    // The body is one line without a carriage return.
    while !response.ends_with(b"\n") || response.ends_with(b"\r\n") {
        match stream.read(&mut buffer)? {
            0 => return Err(std::io::ErrorKind::UnexpectedEof.into()),
            length => response.extend_from_slice(&buffer[..length]),
        }
    }
    Ok(())
}

/// Clients that send requests over persistent connections and over new ones until they are stopped.
pub struct Load {
    stop: Arc<AtomicBool>,
    exchanges: Arc<AtomicU64>,
    clients: Vec<JoinHandle<std::io::Result<()>>>,
}

impl Load {
    pub fn start(world: &World, to: SocketAddr) -> Self {
        let mut load = Self {
            stop: Arc::new(AtomicBool::new(false)),
            exchanges: Arc::new(AtomicU64::new(0)),
            clients: Vec::new(),
        };
        for is_persistent in [true, true, false] {
            let (stop, exchanges) = (Arc::clone(&load.stop), Arc::clone(&load.exchanges));
            load.clients.push(world.spawn_on("client", move || {
                let mut connections = Vec::new();
                for _ in 0..CONNECTIONS {
                    connections.push(Connection::open(to)?);
                }
                while !stop.load(Ordering::Relaxed) {
                    for connection in &mut connections {
                        if !is_persistent {
                            *connection = Connection::open(to)?;
                        }
                        connection.exchange()?;
                        exchanges.fetch_add(1, Ordering::Relaxed);
                    }
                }
                Ok(())
            }));
        }
        load
    }

    /// Waits until `more` additional requests have received a response or a client has failed.
    pub fn wait_for_more(&self, more: u64) {
        let before = self.exchanges.load(Ordering::Relaxed);
        wait_for("more exchanges", Duration::from_secs(60), || {
            self.exchanges.load(Ordering::Relaxed) >= before + more
                || self.clients.iter().any(JoinHandle::is_finished)
        });
    }

    /// Stops the clients and returns the result of each.
    pub fn stop(self) -> Vec<std::io::Result<()>> {
        self.stop.store(true, Ordering::Relaxed);
        let clients = self.clients.into_iter();
        clients
            .map(|client| client.join().expect("client thread panicked"))
            .collect()
    }
}

/// Returns the counts of packets that the data plane dropped or could not assign, with the reasons.
pub fn losses(world: &World) -> Vec<String> {
    let status = world.status();
    let reasons = status["reasons"].as_array().expect("reasons is an array");
    let lost = reasons.iter().filter(|row| {
        let reason = row["reason"].as_str().unwrap_or_default();
        row["packets"].as_u64() > Some(0)
            && (reason.starts_with("drop_") || reason == "pass_no_flow")
    });
    lost.map(ToString::to_string).collect()
}

/// Asserts that no client failed, that no packets were lost, and that each server's counts match the flow table.
pub fn assert_nothing_lost(world: &World, results: Vec<std::io::Result<()>>) {
    assert!(
        results.iter().all(Result::is_ok),
        "{results:?}\n{}{:#}",
        world.tcp_failures(),
        world.status()
    );
    assert_eq!(losses(world), [""; 0], "{:#}", world.status());
    // Flows may end between reading the servers' counts and iterating over the table.
    wait_for(
        "counts that match the flow table",
        Duration::from_secs(60),
        || {
            let status = world.status();
            let services = status["services"]
                .as_array()
                .expect("services is an array")
                .iter();
            let expected: u64 = services.map(expected_entries).sum();
            let entries = status["flows"]["entries"]
                .as_u64()
                .expect("count is a number");
            expected == entries
        },
    );
}

/// Returns the number of table entries that a service's counts imply: two per `nat` flow, one per persistent client.
fn expected_entries(service: &serde_json::Value) -> u64 {
    let directions = if service["forward"] == "nat" { 2 } else { 1 };
    let servers = service["servers"]
        .as_array()
        .expect("servers is an array")
        .iter();
    let entries = servers.map(|server| {
        let count = |name: &str| server[name].as_u64().unwrap_or(0);
        let flows = count("active_connections") + count("inactive_connections");
        flows * directions + count("persistent_connections")
    });
    entries.sum()
}
