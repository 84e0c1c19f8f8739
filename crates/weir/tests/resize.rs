//! The flow table changes its size or layout while connections begin, go on and end: no packet is lost over it.

mod world;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use weir_dataplane::{Dataplane, OpenOptions, Opened, PinDir, open_readonly};
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
    assert_nothing_lost(&world, load.end(), forward);
}

/// The clients met no error, packets no loss, and every server's counts are those of the table.
fn assert_nothing_lost(world: &World, ended: Vec<std::io::Result<()>>, forward: &str) {
    assert!(
        ended.iter().all(Result::is_ok),
        "{forward}: {ended:?} {:#}",
        world.status()
    );
    assert_eq!(losses(world), [""; 0], "{forward}");
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
fn a_table_of_another_size_costs_no_packet_under_direct_at_length() {
    if privileged() {
        resized_under_load(Family::V4, "direct");
    }
}

#[test]
fn a_table_of_another_size_costs_no_packet_under_nat_at_length() {
    if privileged() {
        resized_under_load(Family::V4, "nat");
    }
}

/// Puts the pinned table, of whatever layout it is, into one of the release before, as that release would have left it.
fn become_the_release_before(world: &World) {
    let pins = world.pin_dir("director");
    let opened = world.inside("director", move || {
        let sizes = open_readonly(&PinDir::new(&pins))?.sizes;
        let (mut plane, opened) = Dataplane::open(&OpenOptions {
            sizes,
            flow_layout: 1,
            ..OpenOptions::new(&pins)
        })?;
        plane.activate()?;
        plane.migrate_flows()?;
        Ok::<_, weir_dataplane::Error>(opened)
    });
    let opened = opened.join().expect("a thread").expect("a data plane");
    assert_eq!(opened, Opened::FlowsMigrating);
}

fn layouts(world: &World) -> Vec<String> {
    let entries = std::fs::read_dir(world.pin_dir("director")).expect("a pin directory");
    let names = entries.map(|entry| entry.expect("an entry").file_name());
    let names = names.map(|name| name.to_string_lossy().into_owned());
    names.filter(|name| name.starts_with("flows-")).collect()
}

fn adopted_under_load(forward: &str) {
    let family = Family::V4;
    let mut world = World::new(2);
    world.start_nginx(1024);
    if forward == "nat" {
        world.route_replies_through_director();
    } else {
        world.prepare_servers(&["--forward", forward, "--vip", &family.vip().to_string()]);
    }
    let config = config(family, forward, 300_000);
    let pid = world.start_director(&config);
    let load = Load::start(&world, SocketAddr::new(family.vip(), 80));
    load.wait_for_more(100);
    world.kill_director(pid);
    become_the_release_before(&world);
    let before = layouts(&world);
    assert!(
        before.len() == 1 && before[0].starts_with("flows-1-"),
        "{before:?}"
    );
    load.wait_for_more(100);
    world.start_director(&config);
    let after = layouts(&world);
    assert!(
        after.len() == 1 && after[0].starts_with("flows-2-"),
        "{after:?}"
    );
    assert!(world.log().contains("flows moved"), "{}", world.log());
    load.wait_for_more(100);
    assert_nothing_lost(&world, load.end(), forward);
}

#[test]
fn the_layout_of_the_release_before_is_taken_over_under_direct() {
    if privileged() {
        adopted_under_load("direct");
    }
}

#[test]
fn the_layout_of_the_release_before_is_taken_over_under_nat() {
    if privileged() {
        adopted_under_load("nat");
    }
}
