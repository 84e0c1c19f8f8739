//! Tests that Weir restores its kernel objects under traffic after another program has changed them.
//!
//! Each repair is logged and counted once.

mod world;

use std::io::Read;
use std::process::Command;
use std::time::{Duration, Instant};

use world::{Family, World, privileged, sh, wait_for};

const TIMEOUT: Duration = Duration::from_secs(15);

fn config() -> String {
    format!(
        "[node]\ninterfaces = [\"eth0\"]\nvip_interface = \"eth0\"\n\n\
         [pool.web]\nservers = [\"{}\"]\n\n\
         [service.web]\nlisten = [\"{VIP}:80\"]\nforward = \"nat\"\npool = \"web\"\nsnat = true\n",
        Family::V4.server(0),
    )
}

const VIP: &str = "10.71.0.99";

fn is_reachable(world: &World) -> bool {
    let line = format!("curl -s -o /dev/null -m 1 http://{VIP}/name");
    world.output("client", &line).status.success()
}

fn repair_count(world: &World, kind: &str) -> u64 {
    let label = format!("weir_drift_repaired_total{{what=\"{kind}\"}} ");
    let metrics = world.metrics();
    let line = metrics.lines().find_map(|line| line.strip_prefix(&label));
    line.and_then(|count| count.parse().ok())
        .unwrap_or_else(|| panic!("{label} is not in {metrics}"))
}

/// Changes an object with `inject_fault`, and waits until Weir restores it. Asserts that clients are served, and that
/// Weir counts and logs the repair once.
fn assert_restored(world: &World, kind: &str, message: &str, inject_fault: impl FnOnce()) {
    // On a busy machine, a response can take longer than `curl` waits.
    wait_for(
        &format!("clients to be served before {message}"),
        TIMEOUT,
        || is_reachable(world),
    );
    let (before, logged) = (
        repair_count(world, kind),
        world.log().matches(message).count(),
    );
    inject_fault();
    let started = Instant::now();
    wait_for(message, TIMEOUT, || repair_count(world, kind) > before);
    wait_for(
        &format!("clients to be served after {message}"),
        TIMEOUT,
        || is_reachable(world),
    );
    println!("{message}: restored within {:?}", started.elapsed());
    assert_eq!(
        repair_count(world, kind),
        before + 1,
        "{message}: {}",
        world.log()
    );
    assert_eq!(
        world.log().matches(message).count(),
        logged + 1,
        "{}",
        world.log()
    );
}

fn bpftool(arguments: &str) -> String {
    let words = arguments.split_whitespace();
    let output = Command::new("bpftool")
        .args(words)
        .output()
        .expect("run bpftool");
    assert!(output.status.success(), "bpftool {arguments}: {output:?}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Returns the path of the pin with this name.
fn find_pin(world: &World, name: &str) -> String {
    let output = Command::new("find")
        .arg(world.pin_dir("director"))
        .args(["-name", name])
        .output()
        .expect("run find");
    let text = String::from_utf8_lossy(&output.stdout);
    text.lines()
        .next()
        .unwrap_or_else(|| panic!("no pin {name}"))
        .to_owned()
}

/// A client that sends requests continuously until it is dropped. It fails if a request takes longer than 15 s: three
/// faults can each drop a SYN, and the kernel sends the fourth SYN 7 s after the first.
struct Load(std::process::Child);

impl Load {
    fn start(world: &World) -> Self {
        let child = world
            .command("client", "ab")
            .args(["-q", "-r", "-s", "15", "-c", "8", "-n", "2000000"])
            .arg(format!("http://{VIP}/name"))
            .stdout(std::process::Stdio::null())
            .stderr(std::process::Stdio::piped())
            .spawn()
            .expect("start ab");
        Self(child)
    }

    fn assert_running(&mut self) {
        let status = self.0.try_wait().expect("wait for ab");
        let mut errors = String::new();
        if let (Some(_), Some(stderr)) = (&status, &mut self.0.stderr) {
            let _ = stderr.read_to_string(&mut errors);
        }
        assert_eq!(status, None, "the load failed: {errors}");
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn drifted_objects_are_restored() {
    if !privileged() {
        return;
    }
    let mut world = World::new(1);
    world.start_nginx(64);
    world.start_daemon(&config());
    wait_for("the service", TIMEOUT, || is_reachable(&world));
    let mut load = Load::start(&world);

    assert_restored(&world, "program", "restored a program", || {
        let links = Command::new("find")
            .arg(world.pin_dir("director"))
            .args(["-path", "*link*", "-name", "*balance*"])
            .output()
            .expect("run find");
        let text = String::from_utf8_lossy(&links.stdout).into_owned();
        let link = text
            .lines()
            .next()
            .unwrap_or_else(|| panic!("no link at tc: {text}"));
        bpftool(&format!("link detach pinned {link}"));
    });
    assert_restored(&world, "element", "rewrote map elements", || {
        let map = find_pin(&world, "weir_vips");
        let dump: serde_json::Value =
            serde_json::from_str(&bpftool(&format!("-j map dump pinned {map}")))
                .expect("parse the output");
        let key = dump[0]["key"].as_array().expect("key is not an array");
        let key: Vec<&str> = key
            .iter()
            .map(|byte| byte.as_str().expect("byte is not a string"))
            .collect();
        bpftool(&format!(
            "map delete pinned {map} key hex {}",
            key.join(" ").replace("0x", "")
        ));
    });
    assert_restored(&world, "address", "re-added a VIP", || {
        world.ip("director", &format!("addr del {VIP}/32 dev eth0"));
    });
    assert_restored(
        &world,
        "neighbour",
        "the next hop's MAC address changed",
        || {
            world.ip("server0", "link set eth0 address 02:00:00:00:00:77");
            // The kernel ignores a new link-layer address within a second of the last update (locktime,
            // net/ipv4/arp.c).
            let line = format!("ping -c 1 -W 1 {}", Family::V4.director());
            for _ in 0..5 {
                world.ip("server0", "neigh flush dev eth0");
                if world.output("server0", &line).status.success() {
                    break;
                }
            }
        },
    );
    load.assert_running();
    drop(load);
    assert_link_failures_are_logged(&world);
}

fn assert_link_failures_are_logged(world: &World) {
    // The neighbors are removed with the link, and return with the same addresses.
    let count_changes = |world: &World| {
        world
            .log()
            .matches("the next hop's MAC address changed")
            .count()
    };
    let changes = count_changes(world);
    world.ip("director", "link set eth0 down");
    world.ip("director", "link set eth0 up");
    wait_for("the service after the link was down", TIMEOUT, || {
        is_reachable(world)
    });
    assert_eq!(count_changes(world), changes, "{}", world.log());
    // The director's own link stays up: only the kernel's probes show that the server does not reply.
    world.ip("server0", "link set eth0 down");
    let probe = format!("neigh change {} dev eth0 nud probe", Family::V4.server(0));
    world.ip("director", &probe);
    wait_for("the unreachable next hop", TIMEOUT, || {
        let log = world.log();
        log.contains("the server's only next hop is unreachable")
    });
}

/// The test removes, changes or adds one of thousands of listeners.
#[test]
fn elements_of_large_tables_are_restored() {
    if !privileged() {
        return;
    }
    let mut world = World::new(1);
    world.start_nginx(64);
    let listen: Vec<String> = (0..6000)
        .map(|n| format!("\"{VIP}:{}\"", 10_000 + n))
        .collect();
    world.start_daemon(&format!(
        "{}[service.many]\nlisten = [{}]\nforward = \"nat\"\npool = \"web\"\nsnat = true\n",
        config(),
        listen.join(", ")
    ));
    wait_for("the service", TIMEOUT, || is_reachable(&world));
    let mut load = Load::start(&world);
    let map = find_pin(&world, "weir_listeners");
    let key = |port: u16| {
        // The layout of `struct listener`: IPv4-mapped address, port, protocol.
        let [high, low] = port.to_be_bytes();
        format!(
            "00 00 00 00 00 00 00 00 00 00 ff ff 0a 47 00 63 {high:02x} {low:02x} 06 00 00 00 00 00"
        )
    };
    let message = "rewrote map elements";
    for port in [10_000, 13_000, 15_999] {
        assert_restored(&world, "element", message, || {
            bpftool(&format!("map delete pinned {map} key hex {}", key(port)));
        });
    }
    assert_restored(&world, "element", message, || {
        let key = key(14_000);
        bpftool(&format!(
            "map update pinned {map} key hex {key} value hex 07 00 00 00"
        ));
    });
    assert_restored(&world, "element", message, || {
        let key = key(81);
        bpftool(&format!(
            "map update pinned {map} key hex {key} value hex 01 00 00 00"
        ));
    });
    load.assert_running();
}

/// The daemon on a server maintains the settings of `weir real-server`.
#[test]
fn real_server_settings_are_restored() {
    if !privileged() {
        return;
    }
    let mut world = World::new(1);
    world.start_nginx(64);
    let vip = Family::V4.vip().to_string();
    world.prepare_direct_servers(&vip);
    world.start_daemon(&format!(
        "[node]\ninterfaces = [\"eth0\"]\n[pool.web]\nservers = [\"{}\"]\n\
         [service.web]\nlisten = [\"{vip}:80\"]\nforward = \"direct\"\npool = \"web\"\n",
        Family::V4.server(0)
    ));
    let path = world.path("server.toml");
    std::fs::write(&path, "[node]\n").expect("write the configuration");
    let log = world.path("server.log");
    let file = std::fs::File::create(&log).expect("create the log file");
    let daemon = world
        .weir("server0")
        .args(["run", "-c"])
        .arg(&path)
        .stdout(std::process::Stdio::null())
        .stderr(file)
        .spawn()
        .expect("start the daemon");
    world.kill_on_drop(daemon);
    let status = || -> serde_json::Value {
        let output = world.weir("server0").args(["status", "--json"]).output();
        serde_json::from_slice(&output.expect("run weir").stdout).unwrap_or_default()
    };
    let server_log = || std::fs::read_to_string(&log).unwrap_or_default();
    wait_for("the server's daemon", TIMEOUT, || {
        if status()["revision"].is_u64() {
            return true;
        }
        eprintln!("{}", server_log());
        false
    });
    let is_served = || {
        let line = format!("curl -s -o /dev/null -m 1 http://{vip}/name");
        world.output("client", &line).status.success()
    };
    let faults = [
        (
            "arp_ignore",
            "sysctl -qw net.ipv4.conf.all.arp_ignore=0".to_owned(),
        ),
        (
            "arp_announce",
            "sysctl -qw net.ipv4.conf.all.arp_announce=0".to_owned(),
        ),
        ("to lo", format!("ip addr del {vip}/32 dev lo")),
    ];
    for (repairs, (fragment, line)) in (1..).zip(&faults) {
        assert!(is_served(), "before {line}");
        assert!(world.output("server0", line).status.success(), "{line}");
        let started = Instant::now();
        wait_for(line, TIMEOUT, || {
            status()["drift"]["real_server"] == repairs
        });
        wait_for("clients to be served", TIMEOUT, is_served);
        println!("{line}: restored within {:?}", started.elapsed());
        let events = server_log();
        let events = events
            .lines()
            .filter(|it| it.contains(fragment) && it.contains("repaired a setting"));
        assert_eq!(events.count(), 1, "{}", server_log());
    }
}

#[test]
fn replaced_program_is_restored() {
    if !privileged() {
        return;
    }
    let mut world = World::with_mode(1, Some("xdp"));
    world.start_nginx(64);
    let keeper = world.start_daemon(&config());
    wait_for("the service", TIMEOUT, || is_reachable(&world));
    let source = world.path("other.c");
    std::fs::write(
        &source,
        "__attribute__((section(\"xdp\"), used)) int other(void *ctx) { return 2; }\n\
         char _license[] __attribute__((section(\"license\"), used)) = \"GPL\";\n",
    )
    .expect("write the program");
    let object = world.path("other.o");
    sh(&format!(
        "clang -target bpf -O2 -c {} -o {}",
        source.display(),
        object.display()
    ));
    assert_restored(&world, "program", "restored a program", || {
        let links = Command::new("find")
            .arg(world.pin_dir("director"))
            .args(["-path", "*link*", "-name", "*xdp*"])
            .output()
            .expect("run find");
        let text = String::from_utf8_lossy(&links.stdout).into_owned();
        let link = text
            .lines()
            .next()
            .unwrap_or_else(|| panic!("no link of XDP: {text}"));
        // The daemon is stopped in the meantime; otherwise, it could repair the link before the other program is
        // attached.
        let command = format!(
            "daemon=$(pgrep -P {keeper}); kill -STOP $daemon; trap \"kill -CONT $daemon\" EXIT
             bpftool link detach pinned {link}
             ip -n {} link set dev eth0 xdp obj {} sec xdp",
            world.namespace("director"),
            object.display()
        );
        sh(&command);
    });
}
