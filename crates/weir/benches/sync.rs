//! The cost of `[sync]` outside the data plane, and what is missing when a director fails: two directors in network
//! namespaces, the first of which gets new flows at a steady rate.
//!
//! A flow is a SYN and an ACK that the pinned program processes in test runs, so that no other stack takes part. The
//! CPU time is that of the daemons' threads while the flows begin, less that of the same time without flows. At the
//! end the sender's daemon is stopped at one instant: what it has sent by then is all that the other director gets.
//! What `[sync]` costs in the data plane is in the rows "direct, sync" of the packet benchmark.
//!
//! `WEIR_BENCH_FLOWS` sets the flows per second, `WEIR_BENCH_SECONDS` the time, `WEIR_BENCH_ROUNDS` the rounds. Needs
//! root.

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
const PATIENCE: Duration = Duration::from_secs(60);
/// Microseconds of CPU for each flow on each side, and milliseconds of flows that may be missing.
const GOALS: (f64, f64) = (1.5, 20.0);
const FIRST_PORT: u16 = 1024;
const PORTS: u32 = 60_000;

/// A number of the environment.
fn number(name: &str, default: u32) -> u32 {
    let text = std::env::var(name).ok();
    text.and_then(|it| it.parse().ok()).unwrap_or(default)
}

/// What is printed: its text, unit, goal and value.
type Column = (&'static str, &'static str, f64, fn(&Round) -> f64);

/// The result of a round: CPU time for each flow of sender and receiver, and missing flows in milliseconds.
#[derive(Clone, Copy, Debug)]
struct Round {
    sender_us: f64,
    receiver_us: f64,
    missing_ms: f64,
    /// Flows that began each second.
    reached: f64,
}

fn main() {
    if !world::privileged() {
        return;
    }
    let (rate, seconds) = (
        number("WEIR_BENCH_FLOWS", 100_000),
        number("WEIR_BENCH_SECONDS", 5),
    );
    let rounds = number("WEIR_BENCH_ROUNDS", 3).max(1);
    println!("[sync]: {rate} new flows a second for {seconds} s, {rounds} rounds\n");
    let mut all = Vec::new();
    for forward in ["direct", "nat"] {
        all.clear();
        for _ in 0..rounds {
            all.push(round(forward, rate, seconds));
        }
        print_row(forward, &all);
    }
}

fn print_row(forward: &str, rounds: &[Round]) {
    let (cpu, missing) = GOALS;
    let reached = rounds
        .iter()
        .map(|it| it.reached)
        .fold(f64::INFINITY, f64::min);
    println!("sync, {forward}: at least {reached:.0} flows began each second");
    let values: [Column; 3] = [
        ("CPU of the sender for a flow", "us", cpu, |it| it.sender_us),
        ("CPU of the receiver for a flow", "us", cpu, |it| {
            it.receiver_us
        }),
        ("flows missing after the failure", "ms", missing, |it| {
            it.missing_ms
        }),
    ];
    for (what, unit, goal, value) in values {
        let mut values: Vec<f64> = rounds.iter().map(value).collect();
        values.sort_by(f64::total_cmp);
        let (least, most) = (values[0], values[values.len() - 1]);
        let median = values[values.len() / 2];
        println!(
            "sync, {forward}, {what}: {median:.2} {unit} ({least:.2}…{most:.2}) (goal: ≤ {goal}, {})",
            if median <= goal { "met" } else { "NOT met" }
        );
    }
}

fn config(world: &World, forward: &str, host: &str) -> String {
    let address = |number: u8| format!("10.71.0.{number}:8482");
    let [own, peer] = match host {
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
        address(own),
        address(peer),
        world.path("sync.key").display()
    )
}

fn start(world: &mut World, forward: &str, host: &str) -> u32 {
    let path = world.path(&format!("{host}.toml"));
    fs::write(&path, config(world, forward, host)).expect("written");
    let log = fs::File::create(world.path(&format!("{host}.log"))).expect("a log");
    let child = world
        .weir(host)
        .args(["run", "-c"])
        .arg(path)
        .stdout(Stdio::null())
        .stderr(log)
        .spawn()
        .expect("it starts");
    let keeper = child.id();
    world.adopt(child);
    wait_for("the daemon", PATIENCE, || {
        world
            .weir(host)
            .args(["status", "--json"])
            .output()
            .is_ok_and(|it| it.stdout.starts_with(b"{"))
    });
    daemon(keeper)
}

/// The keeper's child that runs the daemon.
fn daemon(keeper: u32) -> u32 {
    let children = format!("/proc/{keeper}/task/{keeper}/children");
    let children = fs::read_to_string(children).expect("the keeper runs");
    let is_daemon = |pid: &u32| {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        line.split(|byte| *byte == 0).any(|word| word == b"run")
    };
    let mut pids = children
        .split_whitespace()
        .filter_map(|pid| pid.parse().ok());
    pids.find(is_daemon).expect("a daemon")
}

/// Time on a CPU of all threads of a process (proc(5), schedstat).
fn cpu(pid: u32) -> Duration {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).expect("it runs");
    let times = tasks.flatten().filter_map(|task| {
        let text = fs::read_to_string(task.path().join("schedstat")).ok()?;
        text.split_whitespace().next()?.parse::<u64>().ok()
    });
    Duration::from_nanos(times.sum())
}

fn is_established(world: &World, host: &str) -> bool {
    let output = world.weir(host).args(["status", "--json"]).output();
    let text = output.expect("weir runs").stdout;
    let status: serde_json::Value = serde_json::from_slice(&text).unwrap_or_default();
    status["sync"]["peers"][0]["state"] == "established"
}

/// Flows of the table that have begun, in one direction.
fn flows(world: &World, host: &str) -> usize {
    let plane = open_readonly(&PinDir::new(world.pin_dir(host))).expect("a data plane");
    let has_begun = |flow: &weir_dataplane::Flow| {
        let meta = flow.meta();
        meta.kind == KIND_FORWARD && meta.state == State::Established as u8
    };
    plane.maps.flows.walk().filter(has_begun).count()
}

fn round(forward: &str, rate: u32, seconds: u32) -> Round {
    let mut world = World::new(4);
    world.add_router("second", 4);
    fs::write(world.path("sync.key"), "a key for the benchmark of [sync]").expect("written");
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    fs::set_permissions(world.path("sync.key"), mode).expect("private");
    let pids = DIRECTORS.map(|(host, _)| start(&mut world, forward, host));
    for (host, _) in DIRECTORS {
        wait_for("an established peer", PATIENCE, || {
            is_established(&world, host)
        });
    }
    let time = Duration::from_secs(seconds.into());
    let before = pids.map(cpu);
    std::thread::sleep(time);
    let idle = [0, 1].map(|at| cpu(pids[at]) - before[at]);

    let begin_time = pids.map(cpu);
    let sent = generate(&world, rate, time);
    // The sender has no time left, as when its links are cut.
    let sender = Pid::from_raw(pids[0].cast_signed()).expect("a pid");
    kill_process(sender, Signal::STOP).expect("it runs");
    let sender_cpu = cpu(pids[0]) - begin_time[0];
    let received = settled(&world);
    let receiver_cpu = cpu(pids[1]) - begin_time[1];
    kill_process(sender, Signal::CONT).expect("it runs");
    clean(&world);
    let each = |total: Duration, idle: Duration, flows: u32| {
        total.saturating_sub(idle).as_secs_f64() * 1e6 / f64::from(flows.max(1))
    };
    let received = u32::try_from(received).unwrap_or(u32::MAX);
    // A busy machine may not reach the rate.
    let reached = f64::from(sent) / time.as_secs_f64();
    Round {
        sender_us: each(sender_cpu, idle[0], received),
        receiver_us: each(receiver_cpu, idle[1], received),
        missing_ms: f64::from(sent.saturating_sub(received)) * 1e3 / reached,
        reached,
    }
}

/// Flows of the second director when it gets no more.
fn settled(world: &World) -> usize {
    let mut last = flows(world, "second");
    wait_for("the last flows", PATIENCE, || {
        std::thread::sleep(Duration::from_millis(200));
        let now = flows(world, "second");
        std::mem::replace(&mut last, now) == now
    });
    last
}

fn clean(world: &World) {
    for (host, _) in DIRECTORS {
        let _ = world.weir(host).args(["clean", "--force"]).output();
    }
    world::remove_tree(&world.pin_dir("second"));
}

/// Lets flows begin at the first director. Returns how many.
fn generate(world: &World, rate: u32, time: Duration) -> u32 {
    let pins = world.pin_dir("director");
    let name = world.namespace("director");
    let namespace = NetNs::named(&name).expect("the namespace");
    let _inside = namespace.enter().expect("root may enter it");
    let sizes = pinned_sizes(&PinDir::new(&pins)).expect("a data plane");
    let (plane, _) = Dataplane::open(&OpenOptions {
        sizes: sizes.expect("sizes"),
        ..OpenOptions::new(&pins)
    })
    .expect("a data plane");
    let shown = world.output("director", "ip -o link show dev eth0");
    let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
    let ifindex = shown.split(':').next().and_then(|it| it.parse().ok());
    let ifindex = ifindex.expect("the index of eth0");
    let mac = shown.split("link/ether ").nth(1).expect("its address");
    let mac: Vec<u8> = mac
        .split([':', ' '])
        .take(6)
        .map(|byte| u8::from_str_radix(byte, 16).expect("a byte"))
        .collect();
    let run = |packet: &[u8]| {
        let input = TestInput {
            ingress_ifindex: ifindex,
            ..TestInput::xdp(packet)
        };
        plane.test_run("weir_xdp", &input).expect("it runs");
    };
    let started = Instant::now();
    let mut flow = 0;
    while started.elapsed() < time {
        let due = (started.elapsed().as_secs_f64() * f64::from(rate)) as u32;
        while flow < due {
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

/// A TCP segment of a client to a MAC address, without payload. The sums are correct, as those of clients are.
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
    let pseudo = words(&ip[12..20]) + 6 + 20;
    let sum = checksum(&tcp, pseudo);
    tcp[16..18].copy_from_slice(&sum.to_be_bytes());
    frame.extend(ip);
    frame.extend(tcp);
    frame
}

fn words(bytes: &[u8]) -> u32 {
    let pairs = bytes.chunks_exact(2);
    pairs
        .map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]])))
        .sum()
}

/// RFC 1071.
fn checksum(bytes: &[u8], more: u32) -> u16 {
    let mut sum = words(bytes) + more;
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}
