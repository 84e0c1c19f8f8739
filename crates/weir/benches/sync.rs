//! Measures the cost of `[sync]` outside the data plane, and how many flows are missing when a director fails.
//!
//! Two directors run in network namespaces, and the first receives new flows at a steady rate.
//!
//! A flow consists of a SYN and an ACK that the pinned program processes in test runs, so no client or server network
//! stack is involved. The CPU time is the time that the daemon's threads use while the flows begin, minus the time that
//! they use in an equal period without flows. At the end, SIGSTOP stops the sender's daemon, so the other director has
//! only the flows that the daemon had sent by then. The rows "direct, sync" of the packet benchmark measure the cost in
//! the data plane.
//!
//! `WEIR_BENCH_FLOWS` sets the flows per second, `WEIR_BENCH_SECONDS` the duration of a round, and `WEIR_BENCH_ROUNDS`
//! the number of rounds. The benchmark requires root.

#[path = "../tests/world/mod.rs"]
mod world;

use std::fs;
use std::net::Ipv4Addr;
use std::process::Stdio;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use weir_abi::{KIND_FORWARD, State};
use weir_dataplane::{Dataplane, OpenOptions, PinDir, TestInput, open_readonly, pinned_sizes};
use weir_sys::NetNs;
use world::{World, wait_for};

const VIP: Ipv4Addr = Ipv4Addr::new(10, 71, 0, 10);
const DIRECTORS: [(&str, u8); 2] = [("director", 3), ("second", 4)];
const TIMEOUT: Duration = Duration::from_secs(60);
/// Maximum CPU time per flow on each director in microseconds, and maximum missing flows in milliseconds of traffic.
const GOALS: (f64, f64) = (1.5, 20.0);
const FIRST_PORT: u16 = 1024;
const PORTS: u32 = 60_000;

/// Returns the number in an environment variable, or `default` if it is unset or invalid.
fn number_from_environment(name: &str, default: u32) -> u32 {
    let text = std::env::var(name).ok();
    text.and_then(|it| it.parse().ok()).unwrap_or(default)
}

/// A printed figure: text, unit, goal and value.
type Figure = (&'static str, &'static str, f64, fn(&Round) -> f64);

/// The result of a round: CPU time per flow on the sender and on the receiver, and missing flows in milliseconds of
/// traffic.
#[derive(Clone, Copy, Debug)]
struct Round {
    sender_us: f64,
    receiver_us: f64,
    missing_ms: f64,
    /// Number of flows that began per second.
    flows_per_second: f64,
}

fn main() {
    if !world::privileged() {
        return;
    }
    let (rate, seconds) = (
        number_from_environment("WEIR_BENCH_FLOWS", 100_000),
        number_from_environment("WEIR_BENCH_SECONDS", 5),
    );
    let rounds = number_from_environment("WEIR_BENCH_ROUNDS", 3).max(1);
    println!("[sync]: {rate} new flows per second for {seconds} s, {rounds} rounds\n");
    let mut results = Vec::new();
    for forward in ["direct", "nat"] {
        results.clear();
        for _ in 0..rounds {
            results.push(run_round(forward, rate, seconds));
        }
        print_row(forward, &results);
    }
}

fn print_row(forward: &str, rounds: &[Round]) {
    let (cpu, missing) = GOALS;
    let min_rate = rounds
        .iter()
        .map(|it| it.flows_per_second)
        .fold(f64::INFINITY, f64::min);
    println!("sync, {forward}: at least {min_rate:.0} new flows per second");
    let values: [Figure; 3] = [
        ("sender CPU per flow", "us", cpu, |it| it.sender_us),
        ("receiver CPU per flow", "us", cpu, |it| it.receiver_us),
        ("flows missing after the failure", "ms", missing, |it| {
            it.missing_ms
        }),
    ];
    for (text, unit, goal, value) in values {
        let mut values: Vec<f64> = rounds.iter().map(value).collect();
        values.sort_by(f64::total_cmp);
        let (min, max) = (values[0], values[values.len() - 1]);
        let median = values[values.len() / 2];
        println!(
            "sync, {forward}, {text}: {median:.2} {unit} ({min:.2}…{max:.2}) (goal: ≤ {goal}, {})",
            if median <= goal { "met" } else { "NOT met" }
        );
    }
}

fn config(world: &World, forward: &str, host: &str) -> String {
    let address = |number: u8| format!("10.71.0.{number}:8482");
    let [local, peer] = match host {
        "director" => [3, 4],
        _ => [4, 3],
    };
    let servers: Vec<String> = (0..4).map(|n| format!("\"10.71.0.{}\"", 20 + n)).collect();
    format!(
        "[node]\nattach = \"xdp\"\ninterfaces = [\"eth0\"]\nmax_flows = 2097152\nsyn_budget = 1000000\n\
         [pool.web]\nscheduler = \"wlc\"\nservers = [{}]\n[service.web]\nlisten = [\"{VIP}:80\"]\n\
         forward = \"{forward}\"\npool = \"web\"\n[sync]\nlisten = \"{}\"\npeers = [\"{}\"]\n\
         key = {{ file = \"{}\" }}\n",
        servers.join(", "),
        address(local),
        address(peer),
        world.path("sync.key").display()
    )
}

fn start_daemon(world: &mut World, forward: &str, host: &str) -> u32 {
    let path = world.path(&format!("{host}.toml"));
    fs::write(&path, config(world, forward, host)).expect("write the configuration");
    let log = fs::File::create(world.path(&format!("{host}.log"))).expect("create the log file");
    let child = world
        .weir(host)
        .args(["run", "-c"])
        .arg(path)
        .stdout(Stdio::null())
        .stderr(log)
        .spawn()
        .expect("start weir");
    let keeper = child.id();
    world.kill_on_drop(child);
    wait_for("the daemon", TIMEOUT, || {
        world
            .weir(host)
            .args(["status", "--json"])
            .output()
            .is_ok_and(|it| it.stdout.starts_with(b"{"))
    });
    daemon_pid(keeper)
}

/// Returns the process ID of the keeper's child that runs the daemon.
fn daemon_pid(keeper: u32) -> u32 {
    let children = format!("/proc/{keeper}/task/{keeper}/children");
    let children = fs::read_to_string(children).expect("read the keeper's children");
    let is_daemon = |pid: &u32| {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        line.split(|byte| *byte == 0).any(|word| word == b"run")
    };
    let mut pids = children
        .split_whitespace()
        .filter_map(|pid| pid.parse().ok());
    pids.find(is_daemon).expect("keeper has no daemon")
}

/// Returns the CPU time of all threads of a process (proc(5), schedstat).
fn cpu_time(pid: u32) -> Duration {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).expect("read the process's threads");
    let times = tasks.flatten().filter_map(|task| {
        let text = fs::read_to_string(task.path().join("schedstat")).ok()?;
        text.split_whitespace().next()?.parse::<u64>().ok()
    });
    Duration::from_nanos(times.sum())
}

fn is_established(world: &World, host: &str) -> bool {
    let output = world.weir(host).args(["status", "--json"]).output();
    let text = output.expect("run weir").stdout;
    let status: serde_json::Value = serde_json::from_slice(&text).unwrap_or_default();
    status["sync"]["peers"][0]["state"] == "established"
}

/// Returns the number of established flows in the table.
fn count_flows(world: &World, host: &str) -> usize {
    let plane = open_readonly(&PinDir::new(world.pin_dir(host))).expect("open the data plane");
    let is_established_flow = |flow: &weir_dataplane::Flow| {
        let meta = flow.meta();
        meta.kind == KIND_FORWARD && meta.state == State::Established as u8
    };
    plane.maps.flows.walk().filter(is_established_flow).count()
}

fn run_round(forward: &str, rate: u32, seconds: u32) -> Round {
    let mut world = World::new(4);
    world.add_router("second", 4);
    fs::write(world.path("sync.key"), "a key for the benchmark of [sync]").expect("write the key");
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    fs::set_permissions(world.path("sync.key"), mode).expect("set the file mode");
    let pids = DIRECTORS.map(|(host, _)| start_daemon(&mut world, forward, host));
    for (host, _) in DIRECTORS {
        wait_for("an established peer", TIMEOUT, || {
            is_established(&world, host)
        });
    }
    let time = Duration::from_secs(seconds.into());
    let before = pids.map(cpu_time);
    std::thread::sleep(time);
    let idle = [0, 1].map(|index| cpu_time(pids[index]) - before[index]);

    let cpu_before = pids.map(cpu_time);
    let sent = start_flows(&world, rate, time);
    // From now on the sender sends nothing, as if its links had been cut.
    let sender = Pid::from_raw(pids[0].cast_signed()).expect("process ID is zero");
    kill_process(sender, Signal::STOP).expect("send a signal to the process");
    let sender_cpu = cpu_time(pids[0]) - cpu_before[0];
    let received = wait_for_last_flows(&world);
    let receiver_cpu = cpu_time(pids[1]) - cpu_before[1];
    kill_process(sender, Signal::CONT).expect("send a signal to the process");
    clean(&world);
    let us_per_flow = |total: Duration, idle: Duration, flows: u32| {
        total.saturating_sub(idle).as_secs_f64() * 1e6 / f64::from(flows.max(1))
    };
    let received = u32::try_from(received).unwrap_or(u32::MAX);
    // A busy machine might not reach the rate.
    let flows_per_second = f64::from(sent) / time.as_secs_f64();
    Round {
        sender_us: us_per_flow(sender_cpu, idle[0], received),
        receiver_us: us_per_flow(receiver_cpu, idle[1], received),
        missing_ms: f64::from(sent.saturating_sub(received)) * 1e3 / flows_per_second,
        flows_per_second,
    }
}

/// Waits until the second director stops receiving flows. Returns the number of its flows.
fn wait_for_last_flows(world: &World) -> usize {
    let mut last = count_flows(world, "second");
    wait_for("the last flows", TIMEOUT, || {
        std::thread::sleep(Duration::from_millis(200));
        let count = count_flows(world, "second");
        std::mem::replace(&mut last, count) == count
    });
    last
}

fn clean(world: &World) {
    for (host, _) in DIRECTORS {
        let _ = world.weir(host).args(["clean", "--force"]).output();
    }
    world::remove_tree(&world.pin_dir("second"));
}

/// Starts flows through the first director for `time`. Returns their number.
fn start_flows(world: &World, rate: u32, time: Duration) -> u32 {
    let pins = world.pin_dir("director");
    let name = world.namespace("director");
    let namespace = NetNs::open_named(&name).expect("open the namespace");
    let _inside = namespace.enter().expect("enter the namespace as root");
    let sizes = pinned_sizes(&PinDir::new(&pins)).expect("read the sizes of the data plane");
    let (plane, _) = Dataplane::open(&OpenOptions {
        sizes: sizes.expect("data plane is not pinned"),
        ..OpenOptions::new(&pins)
    })
    .expect("open the data plane");
    let link = world.output("director", "ip -o link show dev eth0");
    let link = String::from_utf8_lossy(&link.stdout).into_owned();
    let ifindex = link.split(':').next().and_then(|it| it.parse().ok());
    let ifindex = ifindex.expect("parse the index of eth0");
    let mac = link
        .split("link/ether ")
        .nth(1)
        .expect("eth0 has no MAC address");
    let mac: Vec<u8> = mac
        .split([':', ' '])
        .take(6)
        .map(|byte| u8::from_str_radix(byte, 16).expect("parse the MAC address"))
        .collect();
    let run = |packet: &[u8]| {
        let input = TestInput {
            ingress_ifindex: ifindex,
            ..TestInput::xdp(packet)
        };
        plane.test_run("weir_xdp", &input).expect("run the program");
    };
    let started = Instant::now();
    let mut flow = 0;
    while started.elapsed() < time {
        let target = (started.elapsed().as_secs_f64() * f64::from(rate)) as u32;
        while flow < target {
            run(&packet(&mac, flow, SYN));
            run(&packet(&mac, flow, ACK));
            flow += 1;
        }
        std::thread::sleep(Duration::from_micros(200));
    }
    flow
}

const SYN: u8 = 2;
const ACK: u8 = 16;

/// Returns a frame to `mac` with a TCP segment from a client. The segment has no payload, and its checksums are
/// correct.
fn packet(mac: &[u8], flow: u32, flags: u8) -> Vec<u8> {
    let [high, low] = ((FIRST_PORT as u32 + flow % PORTS) as u16).to_be_bytes();
    let client = Ipv4Addr::new(10, 71, 1, 1 + (flow / PORTS) as u8);
    let mut frame = [mac, &[2, 0, 0, 0, 0, 2, 8, 0]].concat();
    let mut ip = vec![0x45, 0, 0, 40, 0, 0, 0x40, 0, 64, 6, 0, 0];
    ip.extend(client.octets());
    ip.extend(VIP.octets());
    let sum = checksum(&ip, 0);
    ip[10..12].copy_from_slice(&sum.to_be_bytes());
    let mut tcp = vec![
        high, low, 0, 80, 0, 0, 0, 1, 0, 0, 0, 1, 0x50, flags, 0xff, 0xff, 0, 0, 0, 0,
    ];
    let pseudo_header_sum = sum_words(&ip[12..20]) + 6 + 20;
    let sum = checksum(&tcp, pseudo_header_sum);
    tcp[16..18].copy_from_slice(&sum.to_be_bytes());
    frame.extend(ip);
    frame.extend(tcp);
    frame
}

/// Returns the sum of the 16-bit words in `bytes`.
fn sum_words(bytes: &[u8]) -> u32 {
    let pairs = bytes.chunks_exact(2);
    pairs
        .map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]])))
        .sum()
}

/// Returns the Internet checksum of `bytes` (RFC 1071), starting with the sum `initial`.
fn checksum(bytes: &[u8], initial: u32) -> u16 {
    let mut sum = sum_words(bytes) + initial;
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}
