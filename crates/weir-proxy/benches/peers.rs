//! Compares CPU time per request, latency and memory with HAProxy and nginx.
//!
//! Each proxy has one worker on CPU 0; the load generator and the origin server run on the other CPUs.
//!
//! Other work on the machine disturbs rates more than CPU time, but affects both: compare ratios, not nanoseconds.
//!
//! `WEIR_BENCH_SECONDS` and `WEIR_BENCH_ROUNDS` override the defaults of 2 and 3.

mod rig;

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;

use rig::{
    Candidate, ORIGIN, command_on, compare, haproxy_command, is_selected, median, nginx_command,
    nginx_log, setting, spawn, start_origin, weir_command, wrk,
};
use weir_model::{Proxy, ProxyProtocol};

const SERVE: &str = "WEIR_BENCH_SERVE";
/// Number of clients that have sent one request and stay connected.
const IDLE: usize = 5_000;

/// Name, path, number of connections, and whether connections are kept alive.
const CASES: [(&str, &str, u32, bool); 4] = [
    ("small, keep-alive", "/small", 64, true),
    ("16 KB, keep-alive", "/16k", 64, true),
    ("1 MB, keep-alive", "/1m", 16, true),
    ("small, a connection each", "/small", 64, false),
];

fn main() {
    if let Ok(listen) = std::env::var(SERVE) {
        return serve(listen.parse().expect("parse address"));
    }
    if let Some(reason) =
        rig::missing_requirements(&["nginx", "haproxy", "wrk", "h2load", "taskset"])
    {
        println!("proxy compared with peers: skipped, {reason}");
        return;
    }
    let directory = rig::directory();
    let _origin = start_origin(&directory);
    let candidates = [
        start_haproxy(&directory),
        start_nginx(&directory),
        start_weir(&directory),
    ];
    for (name, path, connections, keep_alive) in CASES {
        let name = format!("{name}, {connections} connections");
        compare(&name, &candidates, |candidate| {
            let url = format!("http://{}{path}", candidate.listen);
            wrk(&url, connections, keep_alive)
        });
    }
    let name = "small, keep-alive, latency at 70 % of the first proxy's maximum";
    compare_paced(name, &directory, &candidates, "/small");
    drop(candidates);
    two_workers(&directory);
    for candidate in [start_haproxy(&directory), start_weir(&directory)] {
        measure_idle_memory(&candidate);
    }
    let _ = fs::remove_dir_all(&directory);
}

/// Compares the CPU time per request of two workers with that of one worker. The load generator and the origin server
/// use the same two CPUs in both cases, so they share caches and the kernel equally, and any difference comes from
/// Weir.
fn two_workers(directory: &Path) {
    let candidates = [
        start_weir_on(directory, "one", "127.0.0.1:17083", "0"),
        start_weir_on(directory, "two", "127.0.0.1:17084", "0,1"),
    ];
    let name = "small, keep-alive, 64 connections, two workers compared with one";
    compare(name, &candidates, |candidate| {
        wrk(&format!("http://{}/small", candidate.listen), 64, true)
    });
}

/// Sends `rate` requests per second over 64 connections. Returns the sorted response latencies in microseconds.
fn paced_latencies(directory: &Path, url: &str, rate: u64) -> Vec<u32> {
    const CONNECTIONS: u64 = 64;
    let log = directory.join("latencies");
    let requests = rate * u64::from(setting("WEIR_BENCH_SECONDS", 2));
    let mut command = command_on("1", "h2load");
    command.args(["--h1", "-t1", &format!("-c{CONNECTIONS}")]);
    command.arg(format!("--rps={}", rate / CONNECTIONS));
    command.arg(format!("-n{requests}"));
    command.arg("--log-file").arg(&log).arg(url);
    // h2load appends to the file.
    let _ = fs::remove_file(&log);
    let output = command.output();
    assert!(
        output.is_ok_and(|output| output.status.success()),
        "h2load failed"
    );
    let lines = fs::read_to_string(&log).expect("read latencies");
    let mut elapsed: Vec<u32> = lines
        .lines()
        .map(|line| {
            let mut columns = line.split('\t').skip(1);
            assert_eq!(columns.next(), Some("200"), "{url}: {line}");
            let us = columns.next().and_then(|text| text.parse().ok());
            us.expect("parse microseconds")
        })
        .collect();
    elapsed.sort_unstable();
    elapsed
}

/// Compares latencies at 70 % of the first candidate's maximum request rate.
fn compare_paced(name: &str, directory: &Path, candidates: &[Candidate], path: &str) {
    const SHARES: [(&str, f64); 3] = [("p50", 0.5), ("p99", 0.99), ("p99.9", 0.999)];
    if !is_selected(name) {
        return;
    }
    let url = |candidate: &Candidate| format!("http://{}{path}", candidate.listen);
    let max_rate =
        wrk(&url(&candidates[0]), 64, true) / u64::from(setting("WEIR_BENCH_SECONDS", 2));
    let rate = max_rate * 7 / 10;
    let mut latencies = vec![[const { Vec::new() }; SHARES.len()]; candidates.len()];
    for _ in 0..setting("WEIR_BENCH_ROUNDS", 3) {
        for (candidate, latencies) in candidates.iter().zip(&mut latencies) {
            let elapsed = paced_latencies(directory, &url(candidate), rate);
            for ((_, share), latencies) in SHARES.iter().zip(latencies) {
                let index = (elapsed.len() as f64 * share) as usize;
                latencies.push(f64::from(elapsed[index.min(elapsed.len() - 1)]));
            }
        }
    }
    println!("{name}: {rate} requests per second, medians of the rounds");
    for (candidate, latencies) in candidates.iter().zip(latencies) {
        let shares = SHARES.iter().zip(latencies);
        let texts = shares.map(|((share, _), us)| format!("{share} {:6.0} us", median(us)));
        println!(
            "  {:8} {}",
            candidate.name,
            texts.collect::<Vec<_>>().join("   ")
        );
    }
}

/// Measures the memory of clients that have sent one request and stay connected.
fn measure_idle_memory(candidate: &Candidate) {
    let name = "memory of an idle keep-alive connection";
    if !is_selected(name) {
        return;
    }
    let fetch = |stream: &mut TcpStream| {
        let mut response = [0u8; 4096];
        let sent = stream.write_all(b"GET /small HTTP/1.1\r\nHost: h\r\n\r\n");
        let read = sent.and_then(|()| stream.read(&mut response));
        assert!(read.is_ok_and(|bytes| response[..bytes].starts_with(b"HTTP/1.1 200")));
    };
    let connect = || TcpStream::connect(candidate.listen).expect("connect");
    // The first clients cause one-time allocations, which must not be counted.
    (0..100).for_each(|_| fetch(&mut connect()));
    let before = memory(candidate.pid);
    let mut clients: Vec<TcpStream> = (0..IDLE).map(|_| connect()).collect();
    clients.iter_mut().for_each(fetch);
    let after = memory(candidate.pid);
    println!(
        "{name}: {:8} {} bytes, with {IDLE} of them",
        candidate.name,
        after.saturating_sub(before) / IDLE as u64
    );
}

/// Runs the proxy. The benchmark re-executes itself for this.
fn serve(listen: SocketAddr) {
    let mut service = Proxy::new("bench", ProxyProtocol::Http, "origin");
    service.listen.push(listen);
    rig::serve(service);
}

fn start_weir(directory: &Path) -> Candidate {
    start_weir_on(directory, "weir", "127.0.0.1:17083", "0")
}

/// Starts Weir with one worker per CPU in the list.
fn start_weir_on(
    directory: &Path,
    name: &'static str,
    listen: &'static str,
    cpus: &str,
) -> Candidate {
    let mut command = weir_command(directory, cpus);
    command.env(SERVE, listen);
    spawn(name, listen, command)
}

fn start_haproxy(directory: &Path) -> Candidate {
    let text = format!(
        "global\n nbthread 1\n maxconn 7000\n tune.bufsize 65536\ndefaults\n mode http\n timeout client 60s\n timeout server 60s\n \
         timeout connect 5s\n http-reuse always\n option splice-response\n option forwardfor\nfrontend f\n bind 127.0.0.1:17081\n \
         default_backend b\nbackend b\n server s {ORIGIN}\n"
    );
    spawn(
        "haproxy",
        "127.0.0.1:17081",
        haproxy_command(directory, &text),
    )
}

fn start_nginx(directory: &Path) -> Candidate {
    let server = format!(
        "upstream u {{ server {ORIGIN}; keepalive 256; }} server {{ listen 127.0.0.1:17082; {} location / {{ proxy_pass http://u; \
         proxy_http_version 1.1; proxy_set_header Connection \"\"; proxy_set_header X-Forwarded-For $remote_addr; \
         proxy_buffers 8 64k; }} }}",
        nginx_log(directory)
    );
    let command = nginx_command(directory, "peer", "0", &server);
    spawn("nginx", "127.0.0.1:17082", command)
}

/// Returns the anonymous resident memory of a process, in bytes.
fn memory(pid: u32) -> u64 {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).expect("read process status");
    let line = text.lines().find_map(|line| line.strip_prefix("RssAnon:"));
    let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    kib.expect("find RssAnon") * 1024
}
