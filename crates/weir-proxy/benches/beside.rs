//! CPU per request beside HAProxy and nginx, all with one worker on CPU 0, load and origin on the others.
//!
//! The measure is the process's own accounting (`/proc/PID/task/*/schedstat`) divided by the requests that wrk counted; rounds go
//! through the candidates in turn, and each ratio is the median over rounds of candidate to HAProxy in the same round. Other
//! work on the machine disturbs rates more than this, but it does: read ratios, not nanoseconds.
//!
//! `WEIR_BENCH_SECONDS` and `WEIR_BENCH_ROUNDS` change 2 and 3.

use std::fs;
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use weir_model::{Desired, Pool, Proxy, ProxyProtocol, Server};

const SERVE: &str = "WEIR_BENCH_SERVE";
const ORIGIN: &str = "127.0.0.1:17080";

/// What is asked for, and by how many connections.
const CASES: [(&str, &str, u32, bool); 4] = [
    ("small, keep-alive", "/small", 64, true),
    ("16 KB, keep-alive", "/16k", 64, true),
    ("1 MB, keep-alive", "/1m", 16, true),
    ("small, a connection each", "/small", 64, false),
];

struct Candidate {
    name: &'static str,
    listen: &'static str,
    child: Child,
    /// Whose CPU time counts.
    pid: u32,
}

impl Drop for Candidate {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn main() {
    if let Ok(listen) = std::env::var(SERVE) {
        return serve(listen.parse().expect("an address"));
    }
    let missing: Vec<&str> = ["nginx", "haproxy", "wrk", "taskset"]
        .into_iter()
        .filter(|name| !is_there(name))
        .collect();
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    if !missing.is_empty() || cpus < 2 {
        println!(
            "the proxy beside its peers: skipped, needs two CPUs and {}",
            missing.join(", ")
        );
        return;
    }
    let directory = std::env::temp_dir().join(format!("weir-bench-{}", std::process::id()));
    fs::create_dir_all(&directory).expect("a directory");
    let _origin = origin(&directory);
    let candidates = [haproxy(&directory), nginx(&directory), weir()];
    // A part of a row's name, as cargo passes it on behind `--`.
    let wanted = std::env::args()
        .skip(1)
        .find(|argument| !argument.starts_with('-'));
    let is_wanted = |name: &str| {
        wanted
            .as_ref()
            .is_none_or(|part| name.contains(part.as_str()))
    };
    for (name, path, connections, keeps) in CASES {
        if !is_wanted(name) {
            continue;
        }
        compare(name, path, connections, keeps, &candidates);
    }
    let _ = fs::remove_dir_all(&directory);
}

fn is_there(program: &str) -> bool {
    let found = Command::new("sh")
        .args(["-c", &format!("PATH=$PATH:/usr/sbin command -v {program}")])
        .output();
    found.is_ok_and(|output| output.status.success())
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

fn spawn(name: &'static str, listen: &'static str, mut command: Command) -> Candidate {
    let child = command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .spawn()
        .expect("it starts");
    let deadline = Instant::now() + Duration::from_secs(10);
    while TcpStream::connect(listen).is_err() {
        assert!(Instant::now() < deadline, "{name} does not listen");
        std::thread::sleep(Duration::from_millis(20));
    }
    let pid = child.id();
    Candidate {
        name,
        listen,
        child,
        pid,
    }
}

/// `program` on one CPU.
fn on(cpu: &str, program: impl AsRef<std::ffi::OsStr>) -> Command {
    let mut command = Command::new("taskset");
    command.args(["-c", cpu]).arg(program);
    command.env(
        "PATH",
        format!("{}:/usr/sbin", std::env::var("PATH").unwrap_or_default()),
    );
    command
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

fn nginx_command(directory: &Path, name: &str, cpu: &str, server: &str) -> Command {
    let file = directory.join(format!("{name}.conf"));
    let temporary = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .map(|kind| format!("{kind}_temp_path {}/{name}-{kind};", directory.display()))
        .join(" ");
    let text = format!(
        "daemon off; master_process off; worker_processes 1; pid {0}/{name}.pid; error_log {0}/{name}.err;\nevents {{ \
         worker_connections 8192; }}\nhttp {{ access_log off; keepalive_requests 100000000; sendfile on; {temporary}\n{server} }}\n",
        directory.display()
    );
    fs::write(&file, text).expect("written");
    let mut command = on(cpu, "nginx");
    command.arg("-c").arg(file);
    command
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

fn origin(directory: &Path) -> Candidate {
    let root: PathBuf = directory.join("root");
    fs::create_dir_all(&root).expect("a directory");
    for (name, size) in [("small", 4), ("16k", 16 << 10), ("1m", 1 << 20)] {
        fs::write(root.join(name), vec![b'x'; size]).expect("written");
    }
    let server = format!(
        "server {{ listen {ORIGIN}; root {}; open_file_cache max=10; }}",
        root.display()
    );
    let command = nginx_command(directory, "origin", "1", &server);
    spawn("origin", ORIGIN, command)
}

/// Nanoseconds on a CPU so far, over all threads of a process and of those that it has started.
fn cpu_time(pid: u32) -> u64 {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).expect("it runs");
    let own: u64 = tasks
        .filter_map(|task| fs::read_to_string(task.ok()?.path().join("schedstat")).ok())
        .filter_map(|text| text.split(' ').next()?.parse::<u64>().ok())
        .sum();
    own + children(pid).into_iter().map(cpu_time).sum::<u64>()
}

/// weir's keeper has a daemon that does the work.
fn children(pid: u32) -> Vec<u32> {
    let parent = |text: &str| -> Option<u32> {
        let (_, rest) = text.rsplit_once(')')?;
        rest.split_whitespace().nth(1)?.parse().ok()
    };
    let processes = fs::read_dir("/proc").expect("/proc").flatten();
    let numbers = processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    numbers
        .filter(|child| {
            let stat = fs::read_to_string(format!("/proc/{child}/stat"));
            stat.is_ok_and(|stat| parent(&stat) == Some(pid))
        })
        .collect()
}

/// Nanoseconds per request in one run, and requests in it; panics when an answer was wrong.
fn run(candidate: &Candidate, path: &str, connections: u32, keeps: bool) -> (f64, u64) {
    let seconds = std::env::var("WEIR_BENCH_SECONDS").unwrap_or_else(|_| "2".to_owned());
    let mut command = on("1", "wrk");
    command.args(["-t1", &format!("-c{connections}"), &format!("-d{seconds}s")]);
    if !keeps {
        command.args(["-H", "Connection: close"]);
    }
    let before = cpu_time(candidate.pid);
    let output = command
        .arg(format!("http://{}{path}", candidate.listen))
        .output()
        .expect("wrk runs");
    let spent = cpu_time(candidate.pid) - before;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(!text.contains("Non-2xx"), "{}: {text}", candidate.name);
    let line = text.lines().find(|line| line.contains(" requests in "));
    let requests = line
        .and_then(|line| line.trim().split(' ').next()?.parse().ok())
        .unwrap_or(0u64);
    assert!(requests > 0, "{}: {text}", candidate.name);
    (spent as f64 / requests as f64, requests)
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

fn compare(name: &str, path: &str, connections: u32, keeps: bool, candidates: &[Candidate]) {
    let rounds: usize = std::env::var("WEIR_BENCH_ROUNDS")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(3);
    let mut costs = vec![Vec::new(); candidates.len()];
    for _ in 0..rounds {
        for (candidate, costs) in candidates.iter().zip(&mut costs) {
            costs.push(run(candidate, path, connections, keeps).0);
        }
    }
    println!(
        "{name}, {connections} connections: CPU per request, and to HAProxy in the same round"
    );
    for (candidate, cost) in candidates.iter().zip(&costs) {
        let ratios = cost
            .iter()
            .zip(&costs[0])
            .map(|(mine, theirs)| mine / theirs)
            .collect();
        println!(
            "  {:8} {:7.2} us   {:.2}",
            candidate.name,
            median(cost.clone()) / 1_000.0,
            median(ratios)
        );
    }
}
