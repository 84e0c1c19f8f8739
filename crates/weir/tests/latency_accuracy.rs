//! Compares the estimated latency with the latency at the server's own interface, for real programs with `direct`.
//!
//! Prints both for each workload. On a loaded machine, the estimate includes the time that packets wait between the
//! director and the server, so the test fails only on large errors. With `WEIR_ACCURACY=1`, which requires an idle
//! machine, the mean must be within 5 % or 0.15 ms.

mod world;

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use serde_json::Value;
use world::{Family, World, privileged, sh, wait_for};

const TIMEOUT: Duration = Duration::from_secs(30);

/// A workload: its service, its port, and how `truth.py` measures the true latency.
struct Workload {
    name: &'static str,
    port: u16,
    /// Minimum payload of a response in bytes.
    min_payload: &'static str,
    /// Number of exchanges to skip at the start of a connection.
    skip_count: &'static str,
    /// Payload lengths of packets that are not requests.
    ignored_lengths: &'static [&'static str],
    /// Command to run on the client's host, in which `VIP` and `FILE` are replaced.
    load: &'static str,
}

const fn plain_workload(name: &'static str, port: u16, load: &'static str) -> Workload {
    Workload {
        name,
        port,
        min_payload: "1",
        skip_count: "0",
        ignored_lengths: &[],
        load,
    }
}

/// Workloads of at least 60 connections each, which start at different times. With a 1 ms clock, the samples of a
/// connection are off by up to 0.5 ms on average, and connections that start together are off by the same amount.
const WORKLOADS: [Workload; 9] = [
    plain_workload("nginx", 80, "ab -q -n NUMBER -c 4 http://VIP:80/page"),
    Workload {
        min_payload: "1000",
        skip_count: "1",
        ..plain_workload("tls", 443, "ab -q -n NUMBER -c 4 https://VIP:443/page")
    },
    Workload {
        // The response is shorter than the record of a session ticket.
        min_payload: "300",
        skip_count: "1",
        ..plain_workload(
            "tls-small",
            444,
            "ab -q -n NUMBER -c 4 https://VIP:444/small",
        )
    },
    Workload {
        min_payload: "1000",
        skip_count: "1",
        ignored_lengths: &["24", "31", "35", "39"],
        ..plain_workload(
            "http2",
            445,
            "sh REPEAT 4 h2load -n 6 -c 1 -t 1 https://VIP:445/page",
        )
    },
    plain_workload(
        "upload",
        83,
        "ab -q -n NUMBER -c 4 -p FILE -T text/plain http://VIP:83/up",
    ),
    Workload {
        min_payload: "30",
        ..plain_workload(
            "continue",
            85,
            "sh REPEAT 2 curl -s -o /dev/null -H Expect:100-continue --data-binary @FILE http://VIP:85/up",
        )
    },
    Workload {
        min_payload: "2",
        ..plain_workload(
            "postgres",
            5432,
            "pgbench -h VIP -U postgres -n -f QUERY -C -c 2 -t 40 postgres",
        )
    },
    plain_workload(
        "redis",
        6379,
        "sh REPEAT 6 redis-benchmark -h VIP -c 1 -n 40 -t get -q",
    ),
    plain_workload(
        "persistent",
        82,
        "sh REPEAT 15 wrk -t 1 -c 1 -d 1 http://VIP:82/page",
    ),
];

/// Shell script that runs a command 60 times, several in parallel.
const REPEAT: &str = "parallel=$1; shift; seq 60 | xargs -P $parallel -I{} \"$@\" >/dev/null";

/// Number of requests from `ab`.
const REQUESTS: u32 = 400;
/// Number of requests from `ab` on a distant client's host.
const DISTANT_REQUESTS: u32 = 240;

/// Workloads that also run with a distant client. They do not include small responses over TLS: the client acknowledges
/// those together with a session ticket that the server sent before the request, so their latency is unknown.
const DISTANT_WORKLOADS: [&str; 4] = ["nginx", "tls", "http2", "redis"];

fn config() -> String {
    let server = Family::V4.server(0);
    let services = WORKLOADS.iter().map(|workload| {
        format!(
            "[pool.{0}]\nservers = [\"{server}\"]\n[service.{0}]\nlisten = [\"{1}:{2}\"]\nforward = \"direct\"\n\
             pool = \"{0}\"\n",
            workload.name,
            Family::V4.vip(),
            workload.port
        )
    });
    let services: String = services.collect();
    format!("[node]\ninterfaces = [\"eth0\"]\n{services}")
}

fn start_servers(world: &mut World) {
    let directory = world.path("server");
    fs::create_dir(&directory).expect("create a directory");
    fs::write(directory.join("page"), vec![b'x'; 20_000]).expect("write the page");
    fs::write(directory.join("small"), vec![b'x'; 100]).expect("write the page");
    fs::write(world.path("upload"), vec![b'x'; 100_000]).expect("write the file");
    fs::write(world.path("repeat"), REPEAT).expect("write the script");
    fs::write(world.path("query"), "SELECT 1;\n").expect("write the script");
    let path = directory.display();
    sh(&format!(
        "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=test -keyout {path}/key -out {path}/cert \
         2>/dev/null"
    ));
    let temp_paths: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .iter()
        .map(|kind| format!("{kind}_temp_path {path}/{kind}; "))
        .collect();
    let text = format!(
        "daemon off; user root; pid {path}/pid; error_log {path}/log;\nevents {{}}\n\
         http {{ {temp_paths} access_log off;\nssl_certificate {path}/cert; ssl_certificate_key {path}/key;\n\
         ssl_protocols TLSv1.3; client_max_body_size 1m; client_body_buffer_size 1m;\n\
         server {{ listen 80; listen 82; listen 443 ssl; listen 444 ssl; root {path}; }}\n\
         server {{ listen 445 ssl http2; root {path}; }}\n\
         server {{ listen 83; listen 85; location /up {{ proxy_pass http://127.0.0.1:84; }} }}\n\
         server {{ listen 127.0.0.1:84; location / {{ return 200 done; }} }} }}\n"
    );
    fs::write(directory.join("nginx.conf"), text).expect("write the configuration");
    let data = world.path("data");
    let bin_dirs = fs::read_dir("/usr/lib/postgresql")
        .expect("find PostgreSQL (run tools/install-deps.sh to install it)")
        .flatten()
        .map(|entry| entry.path().join("bin").display().to_string());
    let (data, bin_dir) = (
        data.display(),
        bin_dirs
            .max()
            .expect("at least one version of PostgreSQL should be installed"),
    );
    let as_postgres = "setpriv --reuid postgres --regid postgres --clear-groups --";
    sh(&format!(
        "chmod 711 {0}; install -d -o postgres -m 700 {data}; {as_postgres} {bin_dir}/initdb -D {data} -A trust \
         --no-sync --locale=C >/dev/null; echo 'host all all 0.0.0.0/0 trust' >>{data}/pg_hba.conf",
        world.path(".").display()
    ));
    for line in [
        format!("nginx -p {path} -c {path}/nginx.conf"),
        "redis-server --port 6379 --save --protected-mode no --dir /tmp".to_owned(),
        format!("{as_postgres} {bin_dir}/postgres -D {data} -h 0.0.0.0 -k {data} -c fsync=off"),
    ] {
        let mut arguments = line.split_whitespace();
        let mut command = world.command(
            "server0",
            arguments.next().expect("line starts with a program"),
        );
        let child = command
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        world.kill_on_drop(child.expect("start the process"));
    }
}

/// Returns the estimated latency of a server.
fn latency(world: &World, name: &str) -> Value {
    let status = world.status();
    let services = status["services"].as_array().expect("services is an array");
    let found = services.iter().find(|it| it["name"] == name);
    found.expect("the service should exist")["servers"][0]["latency"].clone()
}

/// Runs a workload and returns the true latency.
fn measure_true_latency(world: &World, workload: &Workload, requests: u32) -> Value {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/latency_accuracy/truth.py");
    let mut command = world.command("server0", "python3");
    command
        .arg(script)
        .args([
            &workload.port.to_string(),
            workload.min_payload,
            workload.skip_count,
        ])
        .args(workload.ignored_lengths)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    let mut child = command.spawn().expect("start python3");
    let mut output = BufReader::new(child.stdout.take().expect("stream is piped"));
    let mut line = String::new();
    output.read_line(&mut line).expect("read the line `ready`");
    assert_eq!(line, "ready\n");
    let vip = Family::V4.vip().to_string();
    let file = world.path("upload").display().to_string();
    let script = world.path("repeat").display().to_string();
    let load = workload.load.replace("VIP", &vip).replace("FILE", &file);
    let load = load
        .replace("REPEAT", &script)
        .replace("NUMBER", &requests.to_string())
        .replace("QUERY", &world.path("query").display().to_string());
    let result = world.output("client", &load);
    assert!(result.status.success(), "{load}: {result:?}");
    drop(child.stdin.take());
    line.clear();
    output.read_line(&mut line).expect("read the result");
    child.wait().expect("wait for the process");
    serde_json::from_str(&line).expect("output is valid JSON")
}

/// Starts a director with one server that provides all services.
fn start_world() -> World {
    let mut world = World::new(1);
    start_servers(&mut world);
    let vip = Family::V4.vip().to_string();
    world.prepare_direct_servers(&vip);
    world.start_daemon(&config());
    for workload in &WORKLOADS {
        let address = format!("{vip}:{}", workload.port);
        wait_for(workload.name, TIMEOUT, || {
            let probe = world.output("client", &format!("curl -sk -m 2 telnet://{address}"));
            // curl's exit codes: 28 = no data before the timeout, 52 = no data before the end, 56 = receive error.
            matches!(probe.status.code(), Some(0 | 28 | 52 | 56))
        });
    }
    world
}

/// Returns the estimator's counters.
fn counters(world: &World) -> BTreeMap<String, u64> {
    let status = world.status();
    let entries = status["latency"].as_array().cloned().unwrap_or_default();
    let counter = |it: &Value| {
        let name = it["reason"].as_str().expect("name is a string").to_owned();
        (name, it["packets"].as_u64().expect("value is a number"))
    };
    entries.iter().map(counter).collect()
}

/// Runs a workload and asserts that the estimated latency is close to the true latency.
fn assert_accurate(world: &World, workload: &Workload, requests: u32, client: &str) {
    let before = counters(world);
    let truth = measure_true_latency(world, workload, requests);
    let exchanges = truth["samples"].as_u64().expect("value is a number");
    assert!(exchanges >= 50, "{}: {truth}", workload.name);
    let min_samples = exchanges.min(200) / 3;
    let deadline = Instant::now() + Duration::from_secs(5);
    let samples = |estimate: &Value| estimate["samples"].as_u64().unwrap_or(0);
    while samples(&latency(world, workload.name)) < min_samples && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(50));
    }
    let estimate = latency(world, workload.name);
    let field = |value: &Value, name: &str| value[name].as_f64().unwrap_or(f64::NAN);
    println!(
        "{:<9} {client:<12} truth {:7.3} {:7.3} {:7.3} {:7.3} ms of {:>6}, estimate {:7.3} {:7.3} {:7.3} {:7.3} ms of \
         {:>6}, {}",
        workload.name,
        field(&truth, "mean"),
        field(&truth, "p50"),
        field(&truth, "p90"),
        field(&truth, "p99"),
        truth["samples"],
        field(&estimate, "mean_ms"),
        field(&estimate, "p50_ms"),
        field(&estimate, "p90_ms"),
        field(&estimate, "p99_ms"),
        estimate["samples"],
        estimate["method"],
    );
    let mut events = counters(world);
    for (name, count) in &mut events {
        *count -= before.get(name).copied().unwrap_or(0);
    }
    events.retain(|_, count| *count > 0);
    println!("          {events:?}");
    assert!(
        samples(&estimate) >= min_samples,
        "{}: {estimate}",
        workload.name
    );
    assert_eq!(estimate["method"], "timestamps");
    let (truth, estimate) = (field(&truth, "mean"), field(&estimate, "mean_ms"));
    let limit = match std::env::var_os("WEIR_ACCURACY") {
        Some(_) => (truth * 0.05).max(0.15),
        None => truth * 0.5 + 1.0,
    };
    let error = (estimate - truth).abs();
    assert!(
        error <= limit,
        "{}: estimated {estimate} ms, expected {truth}",
        workload.name
    );
}

#[test]
fn estimates_match_latency_at_server_interface() {
    if !privileged() {
        return;
    }
    let world = start_world();
    for workload in &WORKLOADS {
        assert_accurate(&world, workload, REQUESTS, "near");
    }
}

#[test]
fn estimates_exclude_path_to_distant_client_and_losses() {
    if !privileged() {
        return;
    }
    let mut world = start_world();
    world.insert_relay("client", "0.01", 10);
    for workload in WORKLOADS
        .iter()
        .filter(|workload| DISTANT_WORKLOADS.contains(&workload.name))
    {
        assert_accurate(&world, workload, DISTANT_REQUESTS, "20 ms, 1 %");
    }
}

#[test]
fn estimates_exclude_path_to_very_distant_client_soak() {
    if !privileged() || std::env::var_os("WEIR_SOAK").is_none() {
        return;
    }
    for (delay_s, client) in [("0.001", "2 ms"), ("0.025", "50 ms"), ("0.05", "100 ms")] {
        let mut world = start_world();
        world.insert_relay("client", delay_s, 0);
        for workload in WORKLOADS
            .iter()
            .filter(|workload| DISTANT_WORKLOADS.contains(&workload.name))
        {
            assert_accurate(&world, workload, DISTANT_REQUESTS, client);
        }
    }
}
