//! CPU per request beside HAProxy and nginx, all with one worker on CPU 0, load and origin on the others.
//!
//! Other work on the machine disturbs rates more than CPU time, but it does: read ratios, not nanoseconds.
//!
//! `WEIR_BENCH_SECONDS` and `WEIR_BENCH_ROUNDS` change 2 and 3.

mod rig;

use std::fs;
use std::net::SocketAddr;
use std::path::Path;

use rig::{Candidate, ORIGIN, compare, nginx_command, on, origin, spawn, wrk};
use weir_model::{Desired, Pool, Proxy, ProxyProtocol, Server};

const SERVE: &str = "WEIR_BENCH_SERVE";

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
    let _ = fs::remove_dir_all(&directory);
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
    let mut command = on("0", std::env::current_exe().expect("this program"));
    command.env(SERVE, "127.0.0.1:17083");
    spawn("weir", "127.0.0.1:17083", command)
}

fn haproxy(directory: &Path) -> Candidate {
    let file = directory.join("haproxy.cfg");
    let text = format!(
        "global\n nbthread 1\n maxconn 2000\n tune.bufsize 65536\ndefaults\n mode http\n timeout client 60s\n timeout server 60s\n \
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
