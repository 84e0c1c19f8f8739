//! Tests `least-time` with `direct`: the director sends fewer connections to a slow server.
//!
//! The director receives no replies, but still measures server latency.

mod world;

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use world::{Family, World, privileged, wait_for};

const TIMEOUT: Duration = Duration::from_secs(30);
const SERVERS: usize = 3;
const CLIENTS: usize = 4;
const FAMILY: Family = Family::V4;

fn config(scheduler: &str) -> String {
    config_with("", &format!("scheduler = \"{scheduler}\""))
}

fn config_with(node: &str, pool: &str) -> String {
    let servers: Vec<String> = (0..SERVERS)
        .map(|n| format!("\"{}\"", FAMILY.server(n)))
        .collect();
    format!(
        "[node]\ninterfaces = [\"eth0\"]\n{node}\n\
         [pool.web]\n{pool}\nservers = [{}]\n\n\
         [service.web]\nlisten = [\"{}:80\"]\nforward = \"direct\"\npool = \"web\"\n",
        servers.join(", "),
        FAMILY.vip()
    )
}

/// One server per host, which responds to a request of any length after a delay that the test can change.
struct Servers {
    delays_us: Vec<Arc<AtomicU64>>,
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Servers {
    fn start(world: &World) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let delays_us: Vec<_> = (0..SERVERS)
            .map(|_| Arc::new(AtomicU64::new(1_000)))
            .collect();
        let threads = delays_us.iter().enumerate().map(|(n, delay)| {
            let (stop, delay) = (Arc::clone(&stop), Arc::clone(delay));
            world.spawn_on(&format!("server{n}"), move || {
                let any = SocketAddr::from((Ipv4Addr::UNSPECIFIED, 80));
                let listener = TcpListener::bind(any).expect("bind a listener");
                listener
                    .set_nonblocking(true)
                    .expect("set the listener to non-blocking mode");
                while !stop.load(Ordering::Relaxed) {
                    let Ok((stream, _)) = listener.accept() else {
                        std::thread::sleep(Duration::from_micros(200));
                        continue;
                    };
                    let delay = Arc::clone(&delay);
                    std::thread::spawn(move || serve(stream, &delay));
                }
            })
        });
        let threads = threads.collect();
        Self {
            delays_us,
            stop,
            threads,
        }
    }

    fn set_delay(&self, n: usize, delay: Duration) {
        let delay_us = delay.as_micros() as u64;
        self.delays_us[n].store(delay_us, Ordering::Relaxed);
    }

    fn stop(self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads {
            thread.join().expect("server thread panicked");
        }
    }
}

fn serve(mut stream: TcpStream, delay_us: &AtomicU64) {
    let mut buffer = [0; 4096];
    let timeout = Some(Duration::from_secs(10));
    if stream.set_nonblocking(false).is_err() || stream.set_read_timeout(timeout).is_err() {
        return;
    }
    while let Ok(1..) = stream.read(&mut buffer) {
        std::thread::sleep(Duration::from_micros(delay_us.load(Ordering::Relaxed)));
        if stream
            .write_all(b"HTTP/1.1 204 No Content\r\n\r\n")
            .is_err()
        {
            return;
        }
    }
}

/// Clients that open a connection per request.
struct Clients {
    stop: Arc<AtomicBool>,
    failed: Arc<AtomicU64>,
    threads: Vec<JoinHandle<()>>,
}

impl Clients {
    fn start(world: &World) -> Self {
        Self::start_with_vips(world, &[&[FAMILY.vip()][..]; CLIENTS])
    }

    /// Starts one client per element of `vips`, which uses these VIPs in turn.
    fn start_with_vips(world: &World, vips: &[&[IpAddr]]) -> Self {
        let (stop, failed) = (Arc::default(), Arc::default());
        let threads = vips.iter().map(|vips| {
            let vips = vips.to_vec();
            let (stop, failed) = (Arc::clone(&stop), Arc::clone(&failed));
            world.spawn_on("client", move || {
                for vip in vips.into_iter().cycle() {
                    if AtomicBool::load(&stop, Ordering::Relaxed) {
                        return;
                    }
                    if fetch(SocketAddr::new(vip, 80)).is_err() {
                        AtomicU64::fetch_add(&failed, 1, Ordering::Relaxed);
                    }
                    std::thread::sleep(Duration::from_millis(2));
                }
            })
        });
        let threads = threads.collect();
        Self {
            stop,
            failed,
            threads,
        }
    }

    /// Stops the clients. Returns the number of failed requests.
    fn stop(self) -> u64 {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads {
            thread.join().expect("client thread panicked");
        }
        self.failed.load(Ordering::Relaxed)
    }
}

fn fetch(to: SocketAddr) -> std::io::Result<()> {
    let mut stream = TcpStream::connect_timeout(&to, Duration::from_secs(5))?;
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    stream.write_all(b"GET / HTTP/1.1\r\nHost: test\r\n\r\n")?;
    let mut buffer = [0; 256];
    match stream.read(&mut buffer)? {
        0 => Err(std::io::ErrorKind::UnexpectedEof.into()),
        _ => Ok(()),
    }
}

fn connections(world: &World) -> Vec<u64> {
    let status = world.status();
    let servers = status["services"][0]["servers"].as_array();
    let servers = servers.expect("the service should exist");
    let count = |n: usize| {
        let address = FAMILY.server(n).to_string();
        let server = servers.iter().find(|server| server["address"] == address);
        server.and_then(|server| server["connections"].as_u64())
    };
    (0..SERVERS)
        .map(|n| count(n).expect("connections is a number"))
        .collect()
}

/// Returns a server's share of the next `count` connections, in percent.
fn share(world: &World, server: usize, count: u64) -> f64 {
    let before = connections(world);
    let mut current = Vec::new();
    wait_for("more connections", TIMEOUT, || {
        current = connections(world);
        current.iter().sum::<u64>() >= before.iter().sum::<u64>() + count
    });
    let new: Vec<u64> = current
        .iter()
        .zip(&before)
        .map(|(current, previous)| current - previous)
        .collect();
    100.0 * new[server] as f64 / new.iter().sum::<u64>() as f64
}

fn latency(world: &World, server: usize) -> serde_json::Value {
    world.server_status(FAMILY.server(server))["latency"].clone()
}

fn wait_for_share(world: &World, description: &str, is_expected: impl Fn(f64) -> bool) {
    let start = Instant::now();
    wait_for(description, TIMEOUT, || is_expected(share(world, 0, 300)));
    println!("{description} after {:?}", start.elapsed());
}

#[test]
fn slow_server_gets_fewer_connections_with_direct() {
    if !privileged() {
        return;
    }
    let mut world = World::new(SERVERS);
    let servers = Servers::start(&world);
    let vip = FAMILY.vip().to_string();
    world.prepare_direct_servers(&vip);
    world.start_daemon(&config("least-time"));
    let clients = Clients::start(&world);
    wait_for("samples from every server", TIMEOUT, || {
        (0..SERVERS).all(|n| latency(&world, n)["samples"].as_u64() > Some(50))
    });
    wait_for_share(&world, "an equal share", |percent| {
        (15.0..55.0).contains(&percent)
    });

    servers.set_delay(0, Duration::from_millis(20));
    wait_for_share(&world, "a small share", |percent| percent < 10.0);
    wait_for("a latency of 20 ms", TIMEOUT, || {
        latency(&world, 0)["p90_ms"].as_f64() > Some(15.0)
    });
    for n in 0..SERVERS {
        println!("server {n}: {}", latency(&world, n));
    }
    assert_eq!(latency(&world, 0)["method"], "timestamps");
    // A request takes 1 ms, and longer on a slow machine.
    assert!(latency(&world, 1)["p50_ms"].as_f64() < Some(15.0));
    let metrics = world.metrics();
    assert!(metrics.contains("weir_server_latency_seconds{"));
    let packet = format!("tcp 10.9.9.9:4000 {vip}:80");
    let explanation = world.run_weir(&["explain", "--packet", &packet]);
    assert!(explanation.contains("latency"), "{explanation}");
    let outcome = format!("scheduler least-time chooses one of {SERVERS} servers of pool");
    assert!(explanation.contains(&outcome), "{explanation}");

    servers.set_delay(0, Duration::from_millis(1));
    wait_for_share(&world, "an equal share again", |percent| percent > 20.0);
    assert_eq!(clients.stop(), 0, "failed requests");
    servers.stop();
}

/// Starts a network with servers and clients. The service uses `direct`.
fn start_world(node: &str, pool: &str) -> (World, Servers, Clients) {
    let mut world = World::new(SERVERS);
    let servers = Servers::start(&world);
    let vip = FAMILY.vip().to_string();
    world.prepare_direct_servers(&vip);
    world.start_daemon(&config_with(node, pool));
    let clients = Clients::start(&world);
    (world, servers, clients)
}

fn weight(world: &World, server: usize) -> u64 {
    let status = world.server_status(FAMILY.server(server));
    status["effective_weight"]
        .as_u64()
        .expect("weight is a number")
}

#[test]
fn weights_follow_latency_without_moving_flows() {
    if !privileged() {
        return;
    }
    let pool = "scheduler = { name = \"mh\", flags = [\"mh-port\"] }\nadapt = \"latency\"";
    let (world, servers, clients) = start_world("", pool);
    wait_for("samples from every server", TIMEOUT, || {
        (0..SERVERS).all(|n| latency(&world, n)["samples"].as_u64() > Some(50))
    });
    let to = SocketAddr::new(FAMILY.vip(), 80);
    let thread = world.spawn_on("client", move || {
        let connect = |_| TcpStream::connect(to).expect("connect");
        (0..30).map(connect).collect::<Vec<_>>()
    });
    let mut streams = thread.join().expect("client thread panicked");
    servers.set_delay(0, Duration::from_millis(30));
    wait_for("a smaller weight", 2 * TIMEOUT, || {
        weight(&world, 0) * 3 < weight(&world, 1)
    });
    // If a flow moved, its new server would reset it.
    for stream in &mut streams {
        stream
            .write_all(b"GET / HTTP/1.1\r\nHost: test\r\n\r\n")
            .expect("send a request");
        let mut buffer = [0; 64];
        assert!(stream.read(&mut buffer).expect("read a response") > 0);
    }
    servers.set_delay(0, Duration::from_millis(1));
    // On a loaded machine, servers of equal speed differ slightly.
    wait_for("similar weights", 2 * TIMEOUT, || {
        let weights: Vec<u64> = (0..SERVERS).map(|n| weight(&world, n)).collect();
        let (min, max) = (weights.iter().min(), weights.iter().max());
        min.zip(max).is_some_and(|(min, max)| min * 3 > max * 2)
    });
    assert_eq!(clients.stop(), 0, "failed requests");
    servers.stop();
}

#[test]
fn server_above_max_latency_is_ejected_and_reported_by_doctor() {
    if !privileged() {
        return;
    }
    let (world, servers, clients) = start_world("", "scheduler = \"rr\"\nmax_latency = \"200ms\"");
    servers.set_delay(0, Duration::from_millis(60));
    wait_for("samples from every server", TIMEOUT, || {
        (0..SERVERS).all(|n| latency(&world, n)["samples"].as_u64() > Some(100))
    });
    wait_for("the finding about the slow server", TIMEOUT, || {
        let output = world.weir("director").args(["doctor"]).output();
        let text = String::from_utf8_lossy(&output.expect("run weir").stdout).into_owned();
        text.contains(&format!("server {} of web is slow", FAMILY.server(0)))
    });
    let ejected = || world.server_status(FAMILY.server(0))["ejected"].to_string();
    assert_eq!(ejected(), "null");
    servers.set_delay(0, Duration::from_millis(400));
    wait_for("the ejection of the slow server", TIMEOUT, || {
        ejected().contains("all responses took longer than 200 ms")
    });
    servers.set_delay(0, Duration::from_millis(1));
    wait_for("the ejection to end", TIMEOUT, || ejected() == "null");
    assert_eq!(clients.stop(), 0, "failed requests");
    servers.stop();
}

#[test]
fn latency_estimation_can_be_disabled() {
    if !privileged() {
        return;
    }
    let (world, servers, clients) = start_world("latency = false\n", "scheduler = \"least-time\"");
    wait_for("connections", TIMEOUT, || {
        connections(&world).iter().sum::<u64>() > 300
    });
    for n in 0..SERVERS {
        assert!(latency(&world, n).is_null());
    }
    // No packet may have been sampled.
    let metrics = world.metrics();
    let packets = metrics
        .lines()
        .find(|line| line.starts_with("weir_latency_events_total{event=\"packets\"}"));
    assert!(
        packets.is_none_or(|line| line.ends_with(" 0")),
        "{packets:?}"
    );
    let shares = (0..SERVERS).map(|n| share(&world, n, 200));
    assert!(shares.clone().all(|percent| percent > 15.0));
    world.reload(&config("least-time"));
    wait_for("samples after the reload", TIMEOUT, || {
        latency(&world, 0)["samples"].as_u64() > Some(10)
    });
    assert_eq!(clients.stop(), 0, "failed requests");
    servers.stop();
}

#[test]
fn shares_stay_within_20_percent_of_mean_for_ten_minutes_soak() {
    const SECONDS: usize = 600;
    if !privileged() || std::env::var_os("WEIR_SOAK").is_none() {
        return;
    }
    // A flow stays in the table for two minutes after its end, and a connection from the same port belongs to it. With
    // several VIPs per client, no port is reused within this time: the kernel uses half of the ports for connections.
    let vips: Vec<IpAddr> = (100..124).map(|number| FAMILY.host(number)).collect();
    let clients: Vec<&[IpAddr]> = vips.chunks(3).collect();
    let listen: Vec<String> = vips.iter().map(|vip| format!("\"{vip}:80\"")).collect();
    let config = config_with("vip_interface = \"eth0\"", "scheduler = \"least-time\"")
        .replace(&format!("\"{}:80\"", FAMILY.vip()), &listen.join(", "));
    let mut world = World::new(SERVERS);
    let servers = Servers::start(&world);
    for vip in &vips {
        world.prepare_direct_servers(&vip.to_string());
    }
    let ports = world
        .command("client", "sysctl")
        .arg("net.ipv4.ip_local_port_range=1024 65535")
        .status();
    assert!(ports.expect("run sysctl").success());
    world.start_daemon(&config);
    let clients = Clients::start_with_vips(&world, &clients);
    wait_for("samples from every server", TIMEOUT, || {
        (0..SERVERS).all(|n| latency(&world, n)["samples"].as_u64() > Some(50))
    });
    assert_eq!(clients.failed.load(Ordering::Relaxed), 0, "failed requests");

    let mut seconds = Vec::new();
    let mut before = connections(&world);
    for number in 1..=SECONDS {
        let begin = Instant::now();
        std::thread::sleep(Duration::from_secs(1));
        let current = connections(&world);
        let new: Vec<f64> = current
            .iter()
            .zip(&before)
            .map(|(current, previous)| (current - previous) as f64)
            .collect();
        let total: f64 = new.iter().sum();
        if number % 60 == 0 {
            println!(
                "second {number}: {total} connections in {:?}",
                begin.elapsed()
            );
        }
        seconds.push(new.iter().map(|count| count / total).collect::<Vec<f64>>());
        before = current;
    }
    for server in 0..SERVERS {
        let shares = || seconds.iter().map(|shares| shares[server]);
        let mean = shares().sum::<f64>() / seconds.len() as f64;
        let (min, max) = shares().fold((f64::MAX, 0.0_f64), |(min, max), share| {
            (min.min(share), max.max(share))
        });
        println!(
            "server {server}: mean {mean:.4}, {:.3} to {:.3} of the mean",
            min / mean,
            max / mean
        );
        assert!(min > 0.8 * mean && max < 1.2 * mean, "server {server}");
    }
    assert_eq!(clients.stop(), 0, "failed requests");
    servers.stop();
}
