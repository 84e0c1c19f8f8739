//! Runs long tests of a large cluster: the duration and CPU time of changes, and publications of many services.

use std::fmt::Write as _;
use std::ops::Range;
use std::time::{Instant, SystemTime};

use super::layer4::{POOL, published_config};
use super::*;

fn is_soak() -> bool {
    std::env::var_os("WEIR_SOAK").is_some()
}

/// Returns the CPU time of a keeper and its child processes, in clock ticks of 10 ms (proc(5)).
fn cpu_ticks(keeper: u32) -> u64 {
    let process_ticks = |pid: u32| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let fields = stat.rsplit_once(')').map(|(_, fields)| fields.to_owned());
        let fields = fields.unwrap_or_default();
        let times = fields.split_whitespace().skip(11).take(2);
        times.filter_map(|it| it.parse::<u64>().ok()).sum::<u64>()
    };
    let children = fs::read_to_string(format!("/proc/{keeper}/task/{keeper}/children"));
    let children = children.unwrap_or_default();
    let children = children.split_whitespace().filter_map(|it| it.parse().ok());
    process_ticks(keeper) + children.map(process_ticks).sum::<u64>()
}

impl Group {
    /// Returns the time at which a director applied a weight according to its log.
    fn applied_at(&self, n: usize, weight: u32) -> Option<String> {
        let log = fs::read_to_string(self.world.path(&format!("{}.log", DIRECTORS[n])));
        let log = log.ok()?;
        let field = format!("weight={weight}");
        let mut lines = log
            .lines()
            .rev()
            .filter(|it| it.contains("an operator changed a server"));
        let line = lines.find(|line| line.split(' ').any(|word| word == field))?;
        Some(line.split(' ').next()?.to_owned())
    }

    fn cpu_ticks(&self) -> u64 {
        let keepers = self.directors.iter().flatten();
        keepers.map(|it| cpu_ticks(it.id())).sum()
    }

    /// Changes a weight `rounds` times. Prints the CPU time, and the time until the last director has applied the
    /// weight. Reads the logs, because a status query would take more CPU time than the change.
    fn measure_weights(&self, case: &str, rounds: u32, first: u32) {
        let count = self.directors.len();
        let (idle, pause) = (self.cpu_ticks(), Duration::from_secs(3));
        std::thread::sleep(pause);
        let idle = (self.cpu_ticks() - idle) as f64 / pause.as_secs_f64();
        let (mut times, before, started) = (Vec::new(), self.cpu_ticks(), Instant::now());
        for weight in first..first + rounds {
            // The daemon closes idle connections.
            let mut api = self.api(0);
            let requested_at = SystemTime::now();
            let path = format!("/v1/servers/web/{}", POOL[0]);
            api.post(&path, &serde_json::json!({ "weight": weight }));
            api.receive();
            let mut applied = Vec::new();
            wait_for("the weight", TIMEOUT, || {
                applied = (0..count)
                    .filter_map(|n| self.applied_at(n, weight))
                    .collect();
                applied.len() == count
            });
            let last = applied.iter().max().expect("no directors");
            times.push(duration_until(requested_at, last));
        }
        let used_ticks =
            (self.cpu_ticks() - before) as f64 - idle * started.elapsed().as_secs_f64();
        times.sort_unstable();
        println!(
            "{case}: weight change applied on {count} directors: median {:?} (goal: 200 ms), worst {:?}; {:.1} ms of \
             CPU time per director",
            times[times.len() / 2],
            times[times.len() - 1],
            used_ticks.max(0.0) * 10.0 / f64::from(rounds) / count as f64,
        );
    }
}

impl Group {
    /// Publishes a configuration. Prints the time until etcd has stored it and the time until all directors have
    /// applied it.
    fn measure_publication(&self, case: &str, text: &str) {
        let path = self.world.path("measured.toml");
        fs::write(&path, text).expect("write the file");
        let path = path.to_str().expect("not UTF-8").to_owned();
        let (before, started) = (self.cpu_ticks(), Instant::now());
        let arguments = ["cluster", "publish", &path, "--guard", "0s", "--no-wait"];
        let output = self.run_weir(3, &arguments);
        let version = output.trim().rsplit(' ').next().expect("no version");
        let version: u64 = version.parse().expect("parse the version");
        let stored = started.elapsed();
        let mut api = self.api(3);
        wait_for("the rollout", 10 * TIMEOUT, || {
            api.get("/v1/cluster");
            let group = api.receive();
            assert_ne!(group["rollout"], "stopped", "{group}");
            // The director might not yet have read the publication from etcd.
            group["published"] == version && group["rollout"] == "complete"
        });
        let count = self.directors.len() as f64;
        println!(
            "{case}: in etcd after {stored:?} (goal: 3 s), on {count} directors after {:?}; {:.0} ms of CPU time per \
             director",
            started.elapsed(),
            (self.cpu_ticks() - before) as f64 * 10.0 / count,
        );
    }
}

/// Returns the time from `start` to a log timestamp of the form `2026-11-26T23:19:02.123456Z`.
fn duration_until(start: SystemTime, timestamp: &str) -> Duration {
    const DAY: u64 = 86_400;
    let clock = timestamp
        .split('T')
        .nth(1)
        .expect("no time")
        .trim_end_matches('Z');
    let mut parts = clock.split(':');
    let mut next_number = || {
        parts
            .next()
            .and_then(|it| it.parse::<f64>().ok())
            .expect("parse the timestamp")
    };
    let seconds = next_number() * 3600.0 + next_number() * 60.0 + next_number();
    let epoch = start
        .duration_since(SystemTime::UNIX_EPOCH)
        .expect("time is before the epoch");
    let start_seconds = (epoch.as_secs() % DAY) as f64 + f64::from(epoch.subsec_micros()) / 1e6;
    // If the interval includes midnight, the difference is negative.
    let elapsed = seconds - start_seconds;
    let elapsed = if elapsed < -1.0 {
        elapsed + DAY as f64
    } else {
        elapsed
    };
    Duration::from_secs_f64(elapsed.max(0.0))
}

/// Returns the effective weight of a server in the data plane of each director.
fn weights(group: &Group) -> Vec<Value> {
    let weight = |n: usize| group.servers(n)[0]["effective_weight"].clone();
    (0..group.directors.len()).map(weight).collect()
}

/// Returns a configuration with `count` services.
fn many_services(count: usize) -> String {
    add_services(published_config("direct", &POOL[..2]), 2..count)
}

/// Adds services numbered `numbers` to a configuration.
pub(super) fn add_services(mut text: String, numbers: Range<usize>) -> String {
    for n in numbers {
        let (high, low) = (n / 250, n % 250 + 1);
        let _ = writeln!(
            text,
            "[service.s{n}]\nlisten = [\"198.18.{high}.{low}:80\"]\nforward = \"direct\"\npool = \"web\""
        );
    }
    text
}

#[test]
fn eight_directors_apply_changes_soak() {
    if !privileged() || !is_soak() {
        return;
    }
    let group = Group::layer4(3, 8, 2);
    let output = group.publish(0, &published_config("direct", &POOL[..2]), "0s");
    assert!(output.status.success(), "{output:?}");
    group.measure_weights("2 services", 30, 2);
    assert_eq!(weights(&group), vec![Value::from(31); 8]);
    let text = many_services(10_000);
    for (case, text) in [
        ("10 000 services added", text.clone()),
        (
            "one of 10 000 changed",
            text.replace("198.18.0.7:80", "198.18.0.7:81"),
        ),
    ] {
        group.measure_publication(case, &text);
    }
    group.measure_weights("10 000 services", 10, 100);
    let mut api = group.api(7);
    api.get("/v1/status");
    assert_eq!(api.receive()["cluster"]["version"], 3);
}

/// Returns, for each of a sample of the new services, whether a director has it. This is faster than reading the status
/// of thousands of services.
fn new_services_present(group: &Group, n: usize) -> Vec<bool> {
    let mut api = group.api(n);
    let vips = [
        "198.18.39.250",
        "198.18.30.7",
        "198.18.20.9",
        "198.18.10.11",
        "198.18.0.3",
    ];
    for vip in vips {
        let packet = format!("tcp 10.71.0.2:50000 {vip}:80");
        api.post("/v1/explain", &serde_json::json!({ "packet": packet }));
    }
    let responses = vips.map(|_| api.receive());
    responses
        .iter()
        .map(|it| it["service"].is_string())
        .collect()
}

/// Asserts that each director has either the old or the new services. If a director switches between two queries, all
/// services queried after the first present one must be present.
fn assert_atomic(group: &Group) {
    for n in 0..group.directors.len() {
        let present = new_services_present(group, n);
        assert!(present.is_sorted(), "director {n}: {present:?}");
    }
}

/// Returns the number of configuration chunks in etcd.
fn chunk_count(group: &Group) -> usize {
    let prefix = "/weir/edge/config/chunk/";
    let keys = group.etcdctl(&["get", "--prefix", "--keys-only", prefix]);
    let keys = String::from_utf8_lossy(&keys.stdout).into_owned();
    keys.lines().filter(|line| line.starts_with(prefix)).count()
}

#[test]
fn large_publication_is_atomic_while_etcd_is_killed_soak() {
    if !privileged() || !is_soak() {
        return;
    }

    const SERVICES: usize = 10_000;
    let limit = Duration::from_secs(300);
    let mut group = Group::layer4(3, 3, 2);
    let output = group.publish(0, &published_config("direct", &POOL[..2]), "0s");
    assert!(output.status.success(), "{output:?}");
    let file = group.world.path("many.toml");
    fs::write(&file, many_services(SERVICES)).expect("write the file");
    let log = fs::File::create(group.world.path("publish.log")).expect("create the log file");
    let started = Instant::now();
    let mut command = group.world.weir(DIRECTORS[0]);
    command
        .args(["cluster", "publish", "--guard", "0s"])
        .arg(&file);
    command.stdout(Stdio::null()).stderr(log);
    let mut publisher = command.spawn().expect("start weir");
    // After the first chunks have arrived, etcd loses quorum; later, all its members are down.
    wait_for("a chunk", limit, || {
        let ended = publisher.try_wait().expect("query the process state");
        let log = fs::read_to_string(group.world.path("publish.log")).expect("read the log");
        assert!(ended.is_none(), "publication ended too early: {log}");
        chunk_count(&group) > 1
    });
    group.kill_etcd(0);
    group.kill_etcd(1);
    assert_atomic(&group);
    std::thread::sleep(Duration::from_secs(1));
    group.kill_etcd(2);
    println!("etcd is down after {:?}", started.elapsed());
    assert_atomic(&group);
    for n in 0..3 {
        group.start_etcd(n);
    }
    group.wait_for_etcd();

    // Another member is killed while the directors apply the configuration.
    let has_new_services = |n: usize| new_services_present(&group, n).contains(&true);
    wait_for("the first director", limit, || (0..3).any(has_new_services));
    group.kill_etcd(1);
    assert_atomic(&group);
    group.start_etcd(1);
    let mut ended = None;
    wait_for("the publication to finish", limit, || {
        assert_atomic(&group);
        ended = publisher.try_wait().expect("query the process state");
        ended.is_some()
    });
    let log = fs::read_to_string(group.world.path("publish.log")).expect("read the log");
    assert!(ended.is_some_and(|it| it.success()), "{log}");
    println!(
        "{SERVICES} services: published on 3 directors in {:?}",
        started.elapsed()
    );
    for n in 0..3 {
        let mut api = group.api(n);
        api.get("/v1/status");
        let status = api.receive();
        let services = status["services"].as_array().map(Vec::len);
        let version = status["cluster"]["version"].as_u64();
        assert_eq!(
            (services, version),
            (Some(SERVICES), Some(2)),
            "director {n}"
        );
    }
}
