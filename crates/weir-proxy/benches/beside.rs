//! CPU per request beside HAProxy and nginx, all with one worker on CPU 0, load and origin on the others.
//!
//! Other work on the machine disturbs rates more than CPU time, but it does: read ratios, not nanoseconds.
//!
//! `WEIR_BENCH_SECONDS` and `WEIR_BENCH_ROUNDS` change 2 and 3.

mod rig;

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;

use rig::{Candidate, ORIGIN, compare, is_wanted, nginx_command, on, origin, spawn, wrk};
use weir_model::{Desired, Pool, Proxy, ProxyProtocol, Server};

const SERVE: &str = "WEIR_BENCH_SERVE";
/// Clients that have asked once and stay.
const IDLE: usize = 5_000;

/// What is asked for, and by how many connections.
const CASES: [(&str, &str, u32, bool); 4] = [
    ("small, keep-alive", "/small", 64, true),
    ("16 KB, keep-alive", "/16k", 64, true),
    ("1 MB, keep-alive", "/1m", 16, true),
    ("small, a connection each", "/small", 64, false),
];

fn main() {
    if let Ok(listen) = std::env::var(SERVE) {
        return serve(listen.parse().expect("an address"));
    }
    if let Some(why) = rig::missing(&["nginx", "haproxy", "wrk", "taskset"]) {
        println!("the proxy beside its peers: skipped, {why}");
        return;
    }
    let directory = rig::directory();
    let _origin = origin(&directory);
    let candidates = [haproxy(&directory), nginx(&directory), weir()];
    for (name, path, connections, keeps) in CASES {
        let name = format!("{name}, {connections} connections");
        compare(&name, &candidates, |candidate| {
            let url = format!("http://{}{path}", candidate.listen);
            wrk(&url, connections, keeps)
        });
    }
    drop(candidates);
    two_workers();
    for candidate in [haproxy(&directory), weir()] {
        idle(&candidate);
    }
    let _ = fs::remove_dir_all(&directory);
}

/// CPU per request of two workers to one's, both with load and origin beside them on the same two CPUs: caches and the kernel are
/// shared alike, so that what differs is Weir's.
fn two_workers() {
    let candidates = [
        weir_on("one", "127.0.0.1:17083", "0"),
        weir_on("two", "127.0.0.1:17084", "0,1"),
    ];
    let name = "small, keep-alive, 64 connections, two workers beside one";
    compare(name, &candidates, |candidate| {
        wrk(&format!("http://{}/small", candidate.listen), 64, true)
    });
}

/// What clients cost that have asked once and stay.
fn idle(candidate: &Candidate) {
    let name = "memory of an idle keep-alive connection";
    if !is_wanted(name) {
        return;
    }
    let ask = |stream: &mut TcpStream| {
        let mut answer = [0u8; 4096];
        let asked = stream.write_all(b"GET /small HTTP/1.1\r\nHost: h\r\n\r\n");
        let read = asked.and_then(|()| stream.read(&mut answer));
        assert!(read.is_ok_and(|octets| answer[..octets].starts_with(b"HTTP/1.1 200")));
    };
    let connect = || TcpStream::connect(candidate.listen).expect("it listens");
    // What the first clients bring about is not theirs.
    (0..100).for_each(|_| ask(&mut connect()));
    let before = memory(candidate.pid);
    let mut clients: Vec<TcpStream> = (0..IDLE).map(|_| connect()).collect();
    clients.iter_mut().for_each(ask);
    let after = memory(candidate.pid);
    println!(
        "{name}: {:8} {} octets, with {IDLE} of them",
        candidate.name,
        after.saturating_sub(before) / IDLE as u64
    );
}

/// What the re-executed program does: one worker, because it runs on one CPU.
fn serve(listen: SocketAddr) {
    let origin: SocketAddr = ORIGIN.parse().expect("an address");
    let mut pool = Pool::new("origin");
    pool.servers
        .push(Server::new(ORIGIN, origin.ip(), Some(origin.port())));
    let mut service = Proxy::new("bench", ProxyProtocol::Http, "origin");
    service.listen.push(listen);
    let desired = Desired {
        pools: vec![pool],
        proxies: vec![service],
        ..Desired::default()
    };
    let mut proxy = weir_proxy::Proxy::new();
    let prepared = proxy.prepare(&desired).expect("listening");
    proxy.commit(prepared);
    loop {
        std::thread::park();
    }
}

fn weir() -> Candidate {
    weir_on("weir", "127.0.0.1:17083", "0")
}

/// With a worker for each CPU of the list.
fn weir_on(name: &'static str, listen: &'static str, cpus: &str) -> Candidate {
    let mut command = on(cpus, std::env::current_exe().expect("this program"));
    command.env(SERVE, listen);
    spawn(name, listen, command)
}

fn haproxy(directory: &Path) -> Candidate {
    let file = directory.join("haproxy.cfg");
    let text = format!(
        "global\n nbthread 1\n maxconn 7000\n tune.bufsize 65536\ndefaults\n mode http\n timeout client 60s\n timeout server 60s\n \
         timeout connect 5s\n http-reuse always\n option splice-response\n option forwardfor\nfrontend f\n bind 127.0.0.1:17081\n \
         default_backend b\nbackend b\n server s {ORIGIN}\n"
    );
    fs::write(&file, text).expect("written");
    let mut command = on("0", "haproxy");
    command.arg("-db").arg("-f").arg(file);
    spawn("haproxy", "127.0.0.1:17081", command)
}

fn nginx(directory: &Path) -> Candidate {
    let server = format!(
        "upstream u {{ server {ORIGIN}; keepalive 256; }} server {{ listen 127.0.0.1:17082; location / {{ proxy_pass http://u; \
         proxy_http_version 1.1; proxy_set_header Connection \"\"; proxy_set_header X-Forwarded-For $remote_addr; \
         proxy_buffers 8 64k; }} }}"
    );
    let command = nginx_command(directory, "peer", "0", &server);
    spawn("nginx", "127.0.0.1:17082", command)
}

/// Resident octets that are the process's own.
fn memory(pid: u32) -> u64 {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).expect("it runs");
    let line = text.lines().find_map(|line| line.strip_prefix("RssAnon:"));
    let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    kib.expect("a size") * 1024
}
