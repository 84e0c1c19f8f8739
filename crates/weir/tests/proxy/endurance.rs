//! Many reloads under `ab`; each run alternates with one without reloads, with the latencies of both.

use std::fs;
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::{Proxy, configuration, free_address};

/// Rounds of one quiet and one disturbed run each.
const ROUNDS: usize = 5;
/// Interval of checks whether a quiet run has ended, and of reloads in the short form.
const SELDOM: Duration = Duration::from_millis(35);
const OFTEN: Duration = Duration::from_millis(20);

/// nginx on two addresses: the cost of a thread per connection must not be part of the latencies.
struct Nginx {
    child: Child,
    addresses: [SocketAddr; 2],
    directory: std::path::PathBuf,
}

impl Nginx {
    fn start() -> Self {
        let directory = std::env::temp_dir().join(format!("weir-nginx-{}", std::process::id()));
        fs::create_dir_all(&directory).expect("a directory");
        let addresses = [free_address(), free_address()];
        let [one, two] = addresses;
        let prefix = directory.display();
        let file = directory.join("nginx.conf");
        let text = format!(
            "daemon off; master_process off; pid {prefix}/pid; error_log {prefix}/log;\nevents {{ worker_connections \
             4096; }}\n\
             http {{ access_log off; keepalive_requests 100000000; server {{ listen {one}; listen {two}; return 200 \
             \"one\\n\"; }} }}\n"
        );
        fs::write(&file, text).expect("written");
        let path = std::env::var("PATH").unwrap_or_default();
        let mut command = Command::new("nginx");
        command.env("PATH", format!("{path}:/usr/sbin"));
        let child = command.arg("-c").arg(&file).stderr(Stdio::null()).spawn();
        let child = child.expect("nginx starts");
        let deadline = Instant::now() + Duration::from_secs(10);
        while TcpStream::connect(two).is_err() {
            assert!(Instant::now() < deadline, "nginx does not listen");
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

/// Results of `ab`: failed requests, and the latency of 99.99 % and of all requests in milliseconds.
struct Seen {
    failed: u64,
    most: u64,
    all: u64,
}

/// Runs `ab`, and `work` periodically until it ends.
fn under_load(proxy: &Proxy, requests: u64, every: Duration, mut work: impl FnMut()) -> Seen {
    let all = proxy.directory.join("requests.tsv");
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
        .arg(&all)
        .arg(format!("http://{}/", proxy.listen))
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("ab starts");
    while ab.try_wait().expect("it can be asked").is_none() {
        let started = Instant::now();
        work();
        std::thread::sleep(every.saturating_sub(started.elapsed()));
    }
    let output = ab.wait_with_output().expect("ab ends");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let number = |label: &str| -> Option<u64> {
        let line = text.lines().find_map(|line| line.strip_prefix(label))?;
        line.split_whitespace().next()?.parse().ok()
    };
    assert_eq!(number("Complete requests:"), Some(requests), "{text}");
    let times = fs::read_to_string(&all).expect("every request");
    let total = |line: &str| line.split('\t').nth(4)?.parse::<u64>().ok();
    let mut times: Vec<u64> = times.lines().filter_map(total).collect();
    times.sort_unstable();
    Seen {
        failed: number("Failed requests:").expect("a number")
            + number("Non-2xx responses:").unwrap_or(0),
        most: times[times.len() * 9999 / 10_000 - 1],
        all: times[times.len() - 1],
    }
}

fn median(mut of: Vec<u64>) -> u64 {
    of.sort_unstable();
    of[of.len() / 2]
}

#[test]
fn requests_survive_many_reloads_at_length() {
    let at_length = std::env::var_os("WEIR_SOAK").is_some();
    let (requests, wanted): (u64, usize) = if at_length {
        (1_000_000, 1_500)
    } else {
        (100_000, 150)
    };
    let nginx = Nginx::start();
    let [one, two] = nginx.addresses;
    let proxy = Proxy::start("http", &[one, two], "");
    let (mut quiet, mut disturbed) = (Vec::new(), Vec::new());
    let mut reloads = 0;
    for _ in 0..ROUNDS {
        let started = Instant::now();
        quiet.push(under_load(&proxy, requests / 5, SELDOM, || {}));
        // The given ratio of reloads to requests, and a few more: each reload takes CPU time from the requests.
        let every = if at_length {
            started.elapsed() / (wanted as u32 / ROUNDS as u32 * 6 / 5)
        } else {
            OFTEN
        };
        disturbed.push(under_load(&proxy, requests / 5, every, || {
            // One server and one limit change each time, so pools and plans are rebuilt.
            let servers = [two, one];
            let servers = &servers[..1 + reloads % 2];
            let more = format!("limits = {{ retries = {} }}", 1 + reloads % 3);
            proxy.reload(&configuration(proxy.listen, "http", servers, &more));
            reloads += 1;
        }));
    }
    let of = |seen: &[Seen], what: fn(&Seen) -> u64| median(seen.iter().map(what).collect());
    println!(
        "{requests} requests, {reloads} reloads; medians of {ROUNDS}: 99.99 % in {} ms, quiet {} ms; all in {} ms, \
         quiet {} ms",
        of(&disturbed, |seen| seen.most),
        of(&quiet, |seen| seen.most),
        of(&disturbed, |seen| seen.all),
        of(&quiet, |seen| seen.all),
    );
    for seen in quiet.iter().chain(&disturbed) {
        assert_eq!(seen.failed, 0);
    }
    assert!(reloads >= wanted, "{reloads} reloads");
}
