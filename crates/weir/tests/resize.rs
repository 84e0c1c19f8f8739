//! The flow table changes its size while connections begin, go on and end: no packet is lost over it.

mod world;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use world::{Family, World, bracketed, privileged, wait_for};

const CONNECTIONS: usize = 20;

fn config(family: Family, forward: &str, max_flows: u32) -> String {
    format!(
        "[node]\ninterfaces = [\"eth0\"]\nmax_flows = {max_flows}\n\
         [pool.web]\nservers = [\"{}\", \"{}\"]\n\
         [service.web]\nlisten = [\"{}:80\"]\nforward = \"{forward}\"\npool = \"web\"\n",
        family.server(0),
        family.server(1),
        bracketed(family.vip()),
    )
}

/// One request and its answer over an open connection.
fn exchange(stream: &mut TcpStream) -> std::io::Result<()> {
    stream.write_all(b"GET /name HTTP/1.1\r\nHost: web\r\n\r\n")?;
    let mut answer = Vec::new();
    let mut buffer = [0; 4096];
    while !answer.ends_with(b"server0\n") && !answer.ends_with(b"server1\n") {
        match stream.read(&mut buffer)? {
            0 => return Err(std::io::ErrorKind::UnexpectedEof.into()),
            length => answer.extend_from_slice(&buffer[..length]),
        }
    }
    Ok(())
}

fn connect(to: SocketAddr) -> std::io::Result<TcpStream> {
    let stream = TcpStream::connect_timeout(&to, Duration::from_secs(20))?;
    stream.set_read_timeout(Some(Duration::from_secs(20)))?;
    Ok(stream)
}

/// Clients that talk until they are told to stop: over connections that stay open, and over ever new ones.
struct Load {
    stop: Arc<AtomicBool>,
    exchanges: Arc<AtomicU64>,
    clients: Vec<JoinHandle<std::io::Result<()>>>,
}

impl Load {
    fn start(world: &World, to: SocketAddr) -> Self {
        let mut load = Self {
            stop: Arc::new(AtomicBool::new(false)),
            exchanges: Arc::new(AtomicU64::new(0)),
            clients: Vec::new(),
        };
        for stays in [true, true, false] {
            let (stop, exchanges) = (Arc::clone(&load.stop), Arc::clone(&load.exchanges));
            load.clients.push(world.inside("client", move || {
                let mut streams = Vec::new();
                for _ in 0..CONNECTIONS {
                    streams.push(connect(to)?);
                }
                while !stop.load(Ordering::Relaxed) {
                    for stream in &mut streams {
                        if !stays {
                            *stream = connect(to)?;
                        }
                        exchange(stream)?;
                        exchanges.fetch_add(1, Ordering::Relaxed);
                    }
                }
                Ok(())
            }));
        }
        load
    }

    fn wait_for_more(&self, more: u64) {
        let before = self.exchanges.load(Ordering::Relaxed);
        wait_for("exchanges", Duration::from_secs(60), || {
            self.exchanges.load(Ordering::Relaxed) >= before + more
                || self.clients.iter().any(JoinHandle::is_finished)
        });
    }

    fn end(self) -> Vec<std::io::Result<()>> {
        self.stop.store(true, Ordering::Relaxed);
        let clients = self.clients.into_iter();
        clients
            .map(|client| client.join().expect("a client's thread"))
            .collect()
    }
}

/// What the data plane lost or did not know, with its reason.
fn losses(world: &World) -> Vec<String> {
    let status = world.status();
    let reasons = status["reasons"].as_array().expect("reasons");
    let lost = reasons.iter().filter(|row| {
        let reason = row["reason"].as_str().unwrap_or_default();
        row["packets"].as_u64() > Some(0)
            && (reason.starts_with("drop_") || reason == "pass_no_flow")
    });
    lost.map(ToString::to_string).collect()
}

fn resized_under_load(family: Family, forward: &str) {
    let mut world = World::new(2);
    world.start_nginx(1024);
    if forward == "nat" {
        world.route_replies_through_director();
    } else {
        world.prepare_servers(&["--forward", forward, "--vip", &family.vip().to_string()]);
    }
    let sizes = [300_000, 700_000, 200_000, 500_000];
    world.start_director(&config(family, forward, sizes[0]));
    let load = Load::start(&world, SocketAddr::new(family.vip(), 80));
    load.wait_for_more(100);
    let soak = std::env::var_os("WEIR_SOAK").is_some();
    for round in 1..=if soak { 100 } else { 8 } {
        world.reload(&config(family, forward, sizes[round % sizes.len()]));
        load.wait_for_more(100);
    }
    let ended = load.end();
    assert!(
        ended.iter().all(Result::is_ok),
        "{forward}: {ended:?} {:#}",
        world.status()
    );
    assert_eq!(losses(&world), [""; 0], "{forward}");
    let status = world.status();
    let servers = status["services"][0]["servers"].as_array();
    let counted: u64 = servers
        .expect("servers")
        .iter()
        .flat_map(|server| ["active_connections", "inactive_connections"].map(|name| &server[name]))
        .map(|count| count.as_u64().expect("a count"))
        .sum();
    let directions = if forward == "nat" { 2 } else { 1 };
    let entries = status["flows"]["entries"].as_u64();
    assert_eq!(entries, Some(counted * directions), "counts are exact");
}

#[test]
fn a_table_of_another_size_costs_no_packet_under_direct() {
    if privileged() {
        resized_under_load(Family::V4, "direct");
    }
}

#[test]
fn a_table_of_another_size_costs_no_packet_under_nat() {
    if privileged() {
        resized_under_load(Family::V4, "nat");
    }
}
