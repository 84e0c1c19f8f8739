//! Measures candidates side by side. Each has one worker on CPU 0. CPU 1 runs the load generator and the origin server.
//! The metric is the CPU time of the process (`/proc/PID/task/*/schedstat`) divided by the number of requests that the
//! load generator counted. All candidates write an access log to a file, as a proxy in production does.
//!
//! `WEIR_BENCH_HAPROXY` is the path of an HAProxy binary to use instead of Debian's, for example one built with AWS-LC.

use std::fs;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use weir_model::{AccessLog, Desired, LogFormat, Pool, Proxy, Server};

/// Address of the origin server.
pub(crate) const ORIGIN: &str = "127.0.0.1:17080";

/// Environment variable with the path of the access log.
const LOG: &str = "WEIR_BENCH_LOG";

/// A program to measure.
pub(crate) struct Candidate {
    pub(crate) name: &'static str,
    pub(crate) listen: &'static str,
    child: Child,
    /// The process whose CPU time is measured.
    pub(crate) pid: u32,
}

impl Drop for Candidate {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns why the benchmark cannot run: too few CPUs, or missing programs. Returns `None` if it can run.
pub(crate) fn missing_requirements(programs: &[&str]) -> Option<String> {
    let is_installed = |program: &&str| {
        let found = Command::new("sh")
            .args(["-c", &format!("PATH=$PATH:/usr/sbin command -v {program}")])
            .output();
        found.is_ok_and(|output| output.status.success())
    };
    let missing: Vec<&str> = programs
        .iter()
        .copied()
        .filter(|program| !is_installed(program))
        .collect();
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    (!missing.is_empty() || cpus < 2).then(|| format!("needs two CPUs and {}", missing.join(", ")))
}

/// Creates a directory for this run.
pub(crate) fn directory() -> PathBuf {
    let directory = std::env::temp_dir().join(format!("weir-bench-{}", std::process::id()));
    fs::create_dir_all(&directory).expect("create directory");
    directory
}

/// Returns a number from the environment, or `default` if it is not set.
pub(crate) fn setting(name: &str, default: u32) -> u32 {
    let text = std::env::var(name).ok();
    text.and_then(|text| text.parse().ok()).unwrap_or(default)
}

pub(crate) fn spawn(name: &'static str, listen: &'static str, mut command: Command) -> Candidate {
    let child = command.stdin(Stdio::null()).spawn().expect("spawn process");
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

/// Returns a command that runs `program` on these CPUs.
pub(crate) fn command_on(cpus: &str, program: impl AsRef<std::ffi::OsStr>) -> Command {
    let mut command = Command::new("taskset");
    command.args(["-c", cpus]).arg(program);
    command.env(
        "PATH",
        format!("{}:/usr/sbin", std::env::var("PATH").unwrap_or_default()),
    );
    command
}

pub(crate) fn nginx_command(directory: &Path, name: &str, cpu: &str, server: &str) -> Command {
    let file = directory.join(format!("{name}.conf"));
    let temporary = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .map(|kind| format!("{kind}_temp_path {}/{name}-{kind};", directory.display()))
        .join(" ");
    let text = format!(
        "daemon off; master_process off; worker_processes 1; pid {0}/{name}.pid; error_log {0}/{name}.err;\nevents {{ \
         worker_connections 8192; }}\nhttp {{ access_log off; keepalive_requests 100000000; sendfile on; {temporary}\n{server} }}\n",
        directory.display()
    );
    fs::write(&file, text).expect("write file");
    let mut command = command_on(cpu, "nginx");
    command.arg("-c").arg(file).stdout(Stdio::null());
    command
}

/// Returns the command for HAProxy with this configuration. HAProxy opens no log file itself, so it logs to standard
/// output, which is a file.
pub(crate) fn haproxy_command(directory: &Path, text: &str) -> Command {
    let file = directory.join("haproxy.cfg");
    let log = "log stdout format raw local0\n option httplog";
    fs::write(
        &file,
        text.replace("mode http", &format!("mode http\n {log}")),
    )
    .expect("write file");
    let program = std::env::var("WEIR_BENCH_HAPROXY").unwrap_or_else(|_| "haproxy".to_owned());
    let mut command = command_on("0", program);
    command.arg("-db").arg("-f").arg(file);
    command.stdout(fs::File::create(directory.join("haproxy.log")).expect("create file"));
    command
}

/// Returns the nginx directive for the access log with the least overhead.
pub(crate) fn nginx_log(directory: &Path) -> String {
    format!(
        "access_log {}/nginx.log combined buffer=64k;",
        directory.display()
    )
}

/// Runs `service` in front of the origin server forever, with one worker per CPU that the process may use.
pub(crate) fn serve(mut service: Proxy) {
    let origin: std::net::SocketAddr = ORIGIN.parse().expect("parse address");
    let mut pool = Pool::new(service.pool.clone());
    pool.servers
        .push(Server::new(ORIGIN, origin.ip(), Some(origin.port())));
    service.access_log = Some(AccessLog {
        path: std::env::var(LOG).expect("path of the access log is set"),
        format: LogFormat::Combined,
        sample: 1,
        syslog: weir_model::SyslogFormat::default(),
    });
    let desired = Desired {
        pools: vec![pool],
        proxies: vec![service],
        ..Desired::default()
    };
    let mut proxy = weir_proxy::Proxy::new();
    let prepared = proxy.prepare(&desired).expect("prepare");
    proxy.commit(prepared);
    loop {
        std::thread::park();
    }
}

/// Returns a command that runs this program again; the new process calls [`serve`].
pub(crate) fn weir_command(directory: &Path, cpus: &str) -> Command {
    let mut command = command_on(cpus, std::env::current_exe().expect("path of this program"));
    command.env(LOG, directory.join("weir.log"));
    command.stdout(Stdio::null());
    command
}

/// Starts nginx with files of three sizes.
pub(crate) fn start_origin(directory: &Path) -> Candidate {
    let root: PathBuf = directory.join("root");
    fs::create_dir_all(&root).expect("create directory");
    for (name, size) in [("small", 4), ("16k", 16 << 10), ("1m", 1 << 20)] {
        fs::write(root.join(name), vec![b'x'; size]).expect("write file");
    }
    let server = format!(
        "server {{ listen {ORIGIN}; root {}; open_file_cache max=10; }}",
        root.display()
    );
    let command = nginx_command(directory, "origin", "1", &server);
    spawn("origin", ORIGIN, command)
}

/// Returns the CPU time of all threads of a process so far, in nanoseconds.
fn cpu_time(pid: u32) -> u64 {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).expect("list threads");
    tasks
        .filter_map(|task| fs::read_to_string(task.ok()?.path().join("schedstat")).ok())
        .filter_map(|text| text.split(' ').next()?.parse::<u64>().ok())
        .sum()
}

/// Returns the CPU time per request in nanoseconds. `load` returns the number of requests.
pub(crate) fn cost(candidate: &Candidate, load: impl FnOnce(&Candidate) -> u64) -> f64 {
    let before = cpu_time(candidate.pid);
    let requests = load(candidate);
    assert!(requests > 0, "{} served no request", candidate.name);
    (cpu_time(candidate.pid) - before) as f64 / requests as f64
}

/// Runs wrk, and returns the number of requests that it counted. Panics if a response had an error status.
pub(crate) fn wrk(url: &str, connections: u32, keep_alive: bool) -> u64 {
    let seconds = setting("WEIR_BENCH_SECONDS", 2);
    let mut command = command_on("1", "wrk");
    command.args(["-t1", &format!("-c{connections}"), &format!("-d{seconds}s")]);
    if !keep_alive {
        command.args(["-H", "Connection: close"]);
    }
    let output = command.arg(url).output().expect("run wrk");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(!text.contains("Non-2xx"), "{url}: {text}");
    let line = text.lines().find(|line| line.contains(" requests in "));
    line.and_then(|line| line.trim().split(' ').next()?.parse().ok())
        .unwrap_or(0)
}

/// Returns the median.
pub(crate) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

/// Returns whether a row is selected. An argument after `--` selects the rows whose name contains it; without an
/// argument, all rows are selected.
pub(crate) fn is_selected(name: &str) -> bool {
    let mut arguments = std::env::args().skip(1);
    let part = arguments.find(|argument| !argument.starts_with('-'));
    part.is_none_or(|part| name.contains(&part))
}

/// Measures the candidates in turn, for several rounds. Each ratio is the median over the rounds of the ratio to the
/// first candidate in the same round.
pub(crate) fn compare(
    name: &str,
    candidates: &[Candidate],
    mut load: impl FnMut(&Candidate) -> u64,
) {
    if !is_selected(name) {
        return;
    }
    let rounds = setting("WEIR_BENCH_ROUNDS", 3);
    let mut costs = vec![Vec::new(); candidates.len()];
    for _ in 0..rounds {
        for (candidate, costs) in candidates.iter().zip(&mut costs) {
            costs.push(cost(candidate, &mut load));
        }
    }
    println!(
        "{name}: CPU per request, and ratio to {} in the same round",
        candidates[0].name
    );
    for (candidate, cost) in candidates.iter().zip(&costs) {
        let ratios = cost.iter().zip(&costs[0]);
        let ratios = ratios.map(|(cost, first)| cost / first).collect();
        println!(
            "  {:8} {:7.2} us   {:.2}",
            candidate.name,
            median(cost.clone()) / 1_000.0,
            median(ratios)
        );
    }
}
