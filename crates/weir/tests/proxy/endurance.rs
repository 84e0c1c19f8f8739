//! Tests many reloads under load from `ab`. Runs with and without reloads alternate; prints the latencies of both.

use std::fs;
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::{Proxy, configuration, free_address};

/// Number of rounds. Each round has one run without reloads and one with reloads.
const ROUNDS: usize = 5;
/// Interval at which a run without reloads checks whether `ab` has finished.
const POLL_INTERVAL: Duration = Duration::from_millis(35);
/// Interval between reloads in the short form.
const RELOAD_INTERVAL: Duration = Duration::from_millis(20);

/// nginx on two addresses. A server with a thread per connection would distort the latencies.
struct Nginx {
    child: Child,
    addresses: [SocketAddr; 2],
    directory: std::path::PathBuf,
}

impl Nginx {
    fn start() -> Self {
        let directory = std::env::temp_dir().join(format!("weir-nginx-{}", std::process::id()));
        fs::create_dir_all(&directory).expect("create directory");
        let addresses = [free_address(), free_address()];
        let [first, second] = addresses;
        let prefix = directory.display();
        let file = directory.join("nginx.conf");
        let text = format!(
            "daemon off; master_process off; pid {prefix}/pid; error_log {prefix}/log;\nevents {{ worker_connections \
             4096; }}\n\
             http {{ access_log off; keepalive_requests 100000000; server {{ listen {first}; listen {second}; return \
             200 \"one\\n\"; }} }}\n"
        );
        fs::write(&file, text).expect("write file");
        let path = std::env::var("PATH").unwrap_or_default();
        let mut command = Command::new("nginx");
        command.env("PATH", format!("{path}:/usr/sbin"));
        let child = command.arg("-c").arg(&file).stderr(Stdio::null()).spawn();
        let child = child.expect("start nginx");
        let deadline = Instant::now() + Duration::from_secs(10);
        while TcpStream::connect(second).is_err() {
            assert!(Instant::now() < deadline, "nginx is not listening");
            std::thread::sleep(Duration::from_millis(20));
        }
        Self {
            child,
            addresses,
            directory,
        }
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs::remove_dir_all(&self.directory);
    }
}

/// Results of `ab`: failed requests, and the 99.99th percentile and maximum of the latencies in milliseconds.
struct Results {
    failed: u64,
    p9999_ms: u64,
    max_ms: u64,
}

/// Runs `ab`, and calls `action` at this interval until `ab` finishes.
fn run_ab(proxy: &Proxy, requests: u64, interval: Duration, mut action: impl FnMut()) -> Results {
    let latencies_file = proxy.directory.join("requests.tsv");
    let mut ab = Command::new("ab")
        .args([
            "-q",
            "-r",
            "-s",
            "20",
            "-c",
            "10",
            "-n",
            &requests.to_string(),
            "-g",
        ])
        .arg(&latencies_file)
        .arg(format!("http://{}/", proxy.listen))
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("start ab");
    while ab.try_wait().expect("get process status").is_none() {
        let started = Instant::now();
        action();
        std::thread::sleep(interval.saturating_sub(started.elapsed()));
    }
    let output = ab.wait_with_output().expect("wait for ab");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let number = |label: &str| -> Option<u64> {
        let line = text.lines().find_map(|line| line.strip_prefix(label))?;
        line.split_whitespace().next()?.parse().ok()
    };
    assert_eq!(number("Complete requests:"), Some(requests), "{text}");
    let times = fs::read_to_string(&latencies_file).expect("read latencies of ab");
    let total = |line: &str| line.split('\t').nth(4)?.parse::<u64>().ok();
    let mut times: Vec<u64> = times.lines().filter_map(total).collect();
    times.sort_unstable();
    Results {
        failed: number("Failed requests:").expect("number not found")
            + number("Non-2xx responses:").unwrap_or(0),
        p9999_ms: times[times.len() * 9999 / 10_000 - 1],
        max_ms: times[times.len() - 1],
    }
}

fn median(mut values: Vec<u64>) -> u64 {
    values.sort_unstable();
    values[values.len() / 2]
}

#[test]
fn requests_survive_many_reloads_soak() {
    let is_soak = std::env::var_os("WEIR_SOAK").is_some();
    let (requests, reloads_min): (u64, usize) = if is_soak {
        (1_000_000, 1_500)
    } else {
        (100_000, 150)
    };
    let nginx = Nginx::start();
    let [first, second] = nginx.addresses;
    let proxy = Proxy::start("http", &[first, second], "");
    let (mut without_reloads, mut with_reloads) = (Vec::new(), Vec::new());
    let mut reloads = 0;
    for _ in 0..ROUNDS {
        let started = Instant::now();
        without_reloads.push(run_ab(&proxy, requests / 5, POLL_INTERVAL, || {}));
        // The interval allows for a fifth more reloads than required, because each reload takes CPU time from the
        // requests.
        let interval = if is_soak {
            started.elapsed() / (reloads_min as u32 / ROUNDS as u32 * 6 / 5)
        } else {
            RELOAD_INTERVAL
        };
        with_reloads.push(run_ab(&proxy, requests / 5, interval, || {
            // Each reload changes one server and one limit, so Weir rebuilds pools and plans.
            let servers = [second, first];
            let servers = &servers[..1 + reloads % 2];
            let extra = format!("limits = {{ retries = {} }}", 1 + reloads % 3);
            proxy.reload(&configuration(proxy.listen, "http", servers, &extra));
            reloads += 1;
        }));
    }
    let median_of = |results: &[Results], value: fn(&Results) -> u64| {
        median(results.iter().map(value).collect())
    };
    println!(
        "{requests} requests, {reloads} reloads; medians of {ROUNDS} rounds: 99.99 % of the requests in {} ms (without \
         reloads {} ms), all in {} ms (without reloads {} ms)",
        median_of(&with_reloads, |results| results.p9999_ms),
        median_of(&without_reloads, |results| results.p9999_ms),
        median_of(&with_reloads, |results| results.max_ms),
        median_of(&without_reloads, |results| results.max_ms),
    );
    for results in without_reloads.iter().chain(&with_reloads) {
        assert_eq!(results.failed, 0);
    }
    assert!(reloads >= reloads_min, "{reloads} reloads");
}
