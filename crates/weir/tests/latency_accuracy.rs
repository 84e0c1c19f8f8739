//! The estimated latency compared with what the server's own interface shows, with real programs under `direct`.
//!
//! Prints both for each workload. The machine's load adds to the estimate what packets wait between the director and
//! the server, so that only gross errors fail; with `WEIR_ACCURACY=1`, for a quiet machine, the mean must be within 5 %
//! or 0.15 ms.

mod world;

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use serde_json::Value;
use world::{Family, World, privileged, sh, wait_for};

const LIMIT: Duration = Duration::from_secs(30);

/// A workload: its service, port, and how the truth is found, see `truth.py`.
struct Work {
    name: &'static str,
    port: u16,
    least: &'static str,
    skipped: &'static str,
    ignored: &'static [&'static str],
    /// Run in the client's host; `VIP` and `FILE` are replaced.
    load: &'static str,
}

const fn work(name: &'static str, port: u16, load: &'static str) -> Work {
    Work {
        name,
        port,
        least: "1",
        skipped: "0",
        ignored: &[],
        load,
    }
}

/// At least 60 connections each, begun at different times: a clock with a unit of 1 ms makes the samples of a
/// connection wrong by up to half of it on average, and those of connections that begin in the same moment by the same.
const WORKS: [Work; 9] = [
    work("nginx", 80, "ab -q -n NUMBER -c 4 http://VIP:80/page"),
    Work {
        least: "1000",
        skipped: "1",
        ..work("tls", 443, "ab -q -n NUMBER -c 4 https://VIP:443/page")
    },
    Work {
        // Fewer bytes than a ticket has, and its record.
        least: "300",
        skipped: "1",
        ..work(
            "tls-small",
            444,
            "ab -q -n NUMBER -c 4 https://VIP:444/small",
        )
    },
    Work {
        least: "1000",
        skipped: "1",
        ignored: &["24", "31", "35", "39"],
        ..work(
            "http2",
            445,
            "sh SPREAD 4 h2load -n 6 -c 1 -t 1 https://VIP:445/page",
        )
    },
    work(
        "upload",
        83,
        "ab -q -n NUMBER -c 4 -p FILE -T text/plain http://VIP:83/up",
    ),
    Work {
        least: "30",
        ..work(
            "continue",
            85,
            "sh SPREAD 2 curl -s -o /dev/null -H Expect:100-continue --data-binary @FILE http://VIP:85/up",
        )
    },
    Work {
        least: "2",
        ..work(
            "postgres",
            5432,
            "pgbench -h VIP -U postgres -n -f QUERY -C -c 2 -t 40 postgres",
        )
    },
    work(
        "redis",
        6379,
        "sh SPREAD 6 redis-benchmark -h VIP -c 1 -n 40 -t get -q",
    ),
    work(
        "kept",
        82,
        "sh SPREAD 15 wrk -t 1 -c 1 -d 1 http://VIP:82/page",
    ),
];

/// Runs a command 60 times, several at once.
const SPREAD: &str = "at_once=$1; shift; seq 60 | xargs -P $at_once -I{} \"$@\" >/dev/null";

/// Requests of `ab`, and with a distant client.
const NUMBER: u32 = 400;
const FAR_NUMBER: u32 = 240;

/// Those that run with a distant client too. Not small answers over TLS: the client acknowledges them together with a
/// ticket that was sent before the request, so that their time is unknown.
const FAR: [&str; 4] = ["nginx", "tls", "http2", "redis"];

fn config() -> String {
    let server = Family::V4.server(0);
    let services = WORKS.iter().map(|work| {
        format!(
            "[pool.{0}]\nservers = [\"{server}\"]\n[service.{0}]\nlisten = [\"{1}:{2}\"]\nforward = \"direct\"\n\
             pool = \"{0}\"\n",
            work.name,
            Family::V4.vip(),
            work.port
        )
    });
    let services: String = services.collect();
    format!("[node]\ninterfaces = [\"eth0\"]\n{services}")
}

fn start_servers(world: &mut World) {
    let directory = world.path("server");
    fs::create_dir(&directory).expect("a directory");
    fs::write(directory.join("page"), vec![b'x'; 20_000]).expect("a page");
    fs::write(directory.join("small"), vec![b'x'; 100]).expect("a page");
    fs::write(world.path("upload"), vec![b'x'; 100_000]).expect("a file");
    fs::write(world.path("spread"), SPREAD).expect("a script");
    fs::write(world.path("query"), "SELECT 1;\n").expect("a script");
    let path = directory.display();
    sh(&format!(
        "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=test -keyout {path}/key -out {path}/cert \
         2>/dev/null"
    ));
    let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .iter()
        .map(|kind| format!("{kind}_temp_path {path}/{kind}; "))
        .collect();
    let text = format!(
        "daemon off; user root; pid {path}/pid; error_log {path}/log;\nevents {{}}\n\
         http {{ {temporary} access_log off;\nssl_certificate {path}/cert; ssl_certificate_key {path}/key;\n\
         ssl_protocols TLSv1.3; client_max_body_size 1m; client_body_buffer_size 1m;\n\
         server {{ listen 80; listen 82; listen 443 ssl; listen 444 ssl; root {path}; }}\n\
         server {{ listen 445 ssl http2; root {path}; }}\n\
         server {{ listen 83; listen 85; location /up {{ proxy_pass http://127.0.0.1:84; }} }}\n\
         server {{ listen 127.0.0.1:84; location / {{ return 200 done; }} }} }}\n"
    );
    fs::write(directory.join("nginx.conf"), text).expect("a configuration");
    let data = world.path("data");
    let programs = fs::read_dir("/usr/lib/postgresql")
        .expect("tools/install-deps.sh installs it")
        .flatten()
        .map(|entry| entry.path().join("bin").display().to_string());
    let (data, programs) = (data.display(), programs.max().expect("a version"));
    let as_postgres = "setpriv --reuid postgres --regid postgres --clear-groups --";
    sh(&format!(
        "chmod 711 {0}; install -d -o postgres -m 700 {data}; {as_postgres} {programs}/initdb -D {data} -A trust \
         --no-sync --locale=C >/dev/null; echo 'host all all 0.0.0.0/0 trust' >>{data}/pg_hba.conf",
        world.path(".").display()
    ));
    for line in [
        format!("nginx -p {path} -c {path}/nginx.conf"),
        "redis-server --port 6379 --save --protected-mode no --dir /tmp".to_owned(),
        format!("{as_postgres} {programs}/postgres -D {data} -h 0.0.0.0 -k {data} -c fsync=off"),
    ] {
        let mut words = line.split_whitespace();
        let mut command = world.command("server0", words.next().expect("a program"));
        let child = command
            .args(words)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        world.adopt(child.expect("it starts"));
    }
}

fn service(world: &World, name: &str) -> Value {
    let status = world.status();
    let services = status["services"].as_array().expect("services");
    let found = services.iter().find(|it| it["name"] == name);
    found.expect("the service")["servers"][0]["latency"].clone()
}

/// Runs a workload and returns the truth.
fn measured(world: &World, work: &Work, number: u32) -> Value {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/latency_accuracy/truth.py");
    let mut command = world.command("server0", "python3");
    command
        .arg(script)
        .args([&work.port.to_string(), work.least, work.skipped])
        .args(work.ignored)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    let mut child = command.spawn().expect("python3 runs");
    let mut output = BufReader::new(child.stdout.take().expect("piped"));
    let mut line = String::new();
    output.read_line(&mut line).expect("ready");
    assert_eq!(line, "ready\n");
    let vip = Family::V4.vip().to_string();
    let file = world.path("upload").display().to_string();
    let script = world.path("spread").display().to_string();
    let load = work.load.replace("VIP", &vip).replace("FILE", &file);
    let load = load
        .replace("SPREAD", &script)
        .replace("NUMBER", &number.to_string())
        .replace("QUERY", &world.path("query").display().to_string());
    let loaded = world.output("client", &load);
    assert!(loaded.status.success(), "{load}: {loaded:?}");
    drop(child.stdin.take());
    line.clear();
    output.read_line(&mut line).expect("the result");
    child.wait().expect("it ends");
    serde_json::from_str(&line).expect("JSON")
}

/// A director with one server that has all services.
fn start() -> World {
    let mut world = World::new(1);
    start_servers(&mut world);
    let vip = Family::V4.vip().to_string();
    world.prepare_direct_servers(&vip);
    world.start_director(&config());
    for work in &WORKS {
        let address = format!("{vip}:{}", work.port);
        wait_for(work.name, LIMIT, || {
            let probe = world.output("client", &format!("curl -sk -m 2 telnet://{address}"));
            // 28 = connected, and nothing more came.
            matches!(probe.status.code(), Some(0 | 28 | 52 | 56))
        });
    }
    world
}

/// The counters of the estimator.
fn counters(world: &World) -> BTreeMap<String, u64> {
    let status = world.status();
    let listed = status["latency"].as_array().cloned().unwrap_or_default();
    let counter = |it: &Value| {
        let name = it["reason"].as_str().expect("a name").to_owned();
        (name, it["packets"].as_u64().expect("a number"))
    };
    listed.iter().map(counter).collect()
}

/// Runs a workload and compares its latencies.
fn compare(world: &World, work: &Work, number: u32, client: &str) {
    let before = counters(world);
    let truth = measured(world, work, number);
    let exchanges = truth["samples"].as_u64().expect("a number");
    assert!(exchanges >= 50, "{}: {truth}", work.name);
    let least = exchanges.min(200) / 3;
    let deadline = Instant::now() + Duration::from_secs(5);
    let samples = |estimate: &Value| estimate["samples"].as_u64().unwrap_or(0);
    while samples(&service(world, work.name)) < least && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(50));
    }
    let estimate = service(world, work.name);
    let of = |value: &Value, name: &str| value[name].as_f64().unwrap_or(f64::NAN);
    println!(
        "{:<9} {client:<12} truth {:7.3} {:7.3} {:7.3} {:7.3} ms of {:>6}, estimate {:7.3} {:7.3} {:7.3} {:7.3} ms of \
         {:>6}, {}",
        work.name,
        of(&truth, "mean"),
        of(&truth, "p50"),
        of(&truth, "p90"),
        of(&truth, "p99"),
        truth["samples"],
        of(&estimate, "mean_ms"),
        of(&estimate, "p50_ms"),
        of(&estimate, "p90_ms"),
        of(&estimate, "p99_ms"),
        estimate["samples"],
        estimate["method"],
    );
    let mut counted = counters(world);
    for (name, count) in &mut counted {
        *count -= before.get(name).copied().unwrap_or(0);
    }
    counted.retain(|_, count| *count > 0);
    println!("          {counted:?}");
    assert!(samples(&estimate) >= least, "{}: {estimate}", work.name);
    assert_eq!(estimate["method"], "timestamps");
    let (truth, estimate) = (of(&truth, "mean"), of(&estimate, "mean_ms"));
    let limit = match std::env::var_os("WEIR_ACCURACY") {
        Some(_) => (truth * 0.05).max(0.15),
        None => truth * 0.5 + 1.0,
    };
    let away = (estimate - truth).abs();
    assert!(away <= limit, "{}: {estimate} ms for {truth}", work.name);
}

#[test]
fn estimates_are_what_the_servers_interface_shows() {
    if !privileged() {
        return;
    }
    let world = start();
    for work in &WORKS {
        compare(&world, work, NUMBER, "near");
    }
}

#[test]
fn estimates_do_not_contain_the_way_to_a_distant_client_and_its_losses() {
    if !privileged() {
        return;
    }
    let mut world = start();
    world.relay("client", "0.01", 10);
    for work in WORKS.iter().filter(|work| FAR.contains(&work.name)) {
        compare(&world, work, FAR_NUMBER, "20 ms, 1 %");
    }
}

#[test]
fn estimates_do_not_contain_the_way_to_a_very_distant_client_at_length() {
    if !privileged() || std::env::var_os("WEIR_SOAK").is_none() {
        return;
    }
    for (seconds, client) in [("0.001", "2 ms"), ("0.025", "50 ms"), ("0.05", "100 ms")] {
        let mut world = start();
        world.relay("client", seconds, 0);
        for work in WORKS.iter().filter(|work| FAR.contains(&work.name)) {
            compare(&world, work, FAR_NUMBER, client);
        }
    }
}
