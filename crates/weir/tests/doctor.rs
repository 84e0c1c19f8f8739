//! Tests that `weir doctor` and `weir real-server doctor` report each fault, and nothing on a healthy host.
//!
//! The tests cause the faults.

#[path = "doctor/conntrack.rs"]
mod conntrack;
#[path = "doctor/director.rs"]
mod director;
#[path = "doctor/manager.rs"]
mod manager;
#[path = "doctor/server.rs"]
mod server;
#[path = "doctor/server_list.rs"]
mod server_list;
mod world;

use std::net::{IpAddr, SocketAddr};
use std::process::Command;
use std::time::Duration;

use rustix::net::{AddressFamily, SendFlags, SocketType, ipproto, sendto, socket};
use world::{Family, World, privileged, wait_for};

const TIMEOUT: Duration = Duration::from_secs(20);

fn config(forward: &str) -> String {
    format!(
        "[node]\ninterfaces = [\"eth0\"]\n\n[pool.web]\nservers = [\"{}\", \"{}\"]\n\n\
         [service.web]\nlisten = [\"{}:80\"]\npool = \"web\"\nforward = \"{forward}\"\n",
        Family::V4.server(0),
        Family::V4.server(1),
        Family::V4.vip()
    )
}

/// Returns a command that runs a program on a host with a separate `/etc/sysctl.d`, a separate `/etc/systemd/system`
/// that contains the unit for servers, and the `keepalived.conf` that the test wrote to `keepalived`.
fn local_command(world: &World, host: &str, program: &str) -> Command {
    let directory = world.path(&format!("sysctl.d-{host}"));
    std::fs::create_dir_all(&directory).expect("create a directory");
    let keepalived = world.path("keepalived");
    std::fs::create_dir_all(&keepalived).expect("create a directory");
    let units = world.path(&format!("systemd-{host}"));
    std::fs::create_dir_all(&units).expect("create a directory");
    let name = "weir-real-server@.service";
    let packaging = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/packaging");
    std::fs::copy(format!("{packaging}/{name}"), units.join(name)).expect("copy the unit");
    let line = format!(
        "mkdir -p /etc/keepalived /etc/systemd/system; mount --bind {} /etc/sysctl.d && mount --bind {} \
         /etc/keepalived && mount --bind {} /etc/systemd/system && exec \"$@\"",
        directory.display(),
        keepalived.display(),
        units.display()
    );
    let command = world.weir(host);
    let mut outer = world.command(host, "unshare");
    for (name, value) in command.get_envs() {
        if let Some(value) = value {
            outer.env(name, value);
        }
    }
    outer.args(["--mount", "sh", "-ec", &line, "sh", program]);
    outer
}

/// Runs `weir ARGUMENTS` on a host. Returns the exit code and the output.
fn run_on(world: &World, host: &str, arguments: &[&str]) -> (i32, String) {
    let output = local_command(world, host, env!("CARGO_BIN_EXE_weir"))
        .args(arguments)
        .output()
        .expect("run weir");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let code = output.status.code().expect("killed by a signal");
    (code, text + &String::from_utf8_lossy(&output.stderr))
}

fn assert_finds(world: &World, host: &str, arguments: &[&str], fragments: &[&str]) {
    let (code, text) = run_on(world, host, arguments);
    assert_eq!(code, 1, "{text}");
    for fragment in fragments {
        assert!(text.contains(fragment), "{fragment:?} is not in {text}");
    }
}

/// Runs a shell command on a host and asserts that it succeeds.
fn run_shell(world: &World, host: &str, line: &str) {
    let output = local_command(world, host, "sh")
        .args(["-ec", line])
        .output();
    let output = output.expect("run sh");
    assert!(output.status.success(), "{line}: {output:?}");
}

/// Returns the fix command of the finding with this text. The command is empty if the operator must decide. Returns
/// `None` if there is no such finding.
fn fix_command(world: &World, host: &str, arguments: &[&str], expected: &str) -> Option<String> {
    let mut arguments = arguments.to_vec();
    arguments.push("--json");
    let (_, text) = run_on(world, host, &arguments);
    let findings: serde_json::Value = serde_json::from_str(&text).unwrap_or_else(|error| {
        panic!("{error}: {text}");
    });
    let mut findings = findings.as_array().expect("not an array").iter();
    let is_match = |finding: &&serde_json::Value| {
        finding["seen"]
            .as_str()
            .is_some_and(|it| it.contains(expected))
    };
    let finding = findings.find(is_match)?;
    let fix = finding["mend"].as_str().unwrap_or_default();
    // The operator decides whether the condition is true.
    let command = fix.strip_prefix("if clients must reach this port: ");
    Some(command.unwrap_or(fix).to_owned())
}

/// Asserts that the doctor reports the finding, and that its fix command removes the finding.
fn assert_fixed_by_command(world: &World, host: &str, arguments: &[&str], expected: &str) {
    let command = fix_command(world, host, arguments, expected);
    let command = command.unwrap_or_else(|| {
        panic!("{expected}: {}", run_on(world, host, arguments).1);
    });
    run_shell(world, host, &command);
    let remaining = fix_command(world, host, arguments, expected);
    assert_eq!(remaining, None, "after {command}");
}

/// Asserts that the doctor reports that the next boot would remove the settings of `up`, and that its fix removes the
/// finding.
fn assert_enabled_at_boot(world: &World, host: &str) {
    let (doctor, expected) = (["real-server", "doctor"], "only until the next boot");
    let fix = fix_command(world, host, &doctor, expected).expect("no finding");
    // The systemd of the machine does not see the host's directories.
    let fix = fix.replace("systemctl", "systemctl --root=/");
    run_shell(world, host, &fix);
    assert_eq!(fix_command(world, host, &doctor, expected), None, "{fix}");
}

#[test]
fn server_faults_are_reported_and_fixed() {
    if !privileged() {
        return;
    }
    let mut world = World::new(2);
    world.start_nginx(64);
    let vip = Family::V4.vip().to_string();
    let doctor = ["real-server", "doctor"];
    assert_finds(
        &world,
        "server0",
        &doctor,
        &[
            "no VIP is configured on this machine",
            "weir real-server up",
        ],
    );
    world.prepare_direct_servers(&format!("{vip}:80"));
    assert_enabled_at_boot(&world, "server0");
    assert_eq!(
        run_on(&world, "server0", &doctor).0,
        0,
        "{:?}",
        run_on(&world, "server0", &doctor)
    );

    let sysctl = |line: &str| {
        assert!(
            world
                .output("server0", &format!("sysctl -qw {line}"))
                .status
                .success()
        );
    };
    sysctl("net.ipv4.conf.all.arp_ignore=0");
    sysctl("net.ipv4.conf.all.arp_announce=0");
    world.ip("server0", &format!("addr del {vip}/32 dev lo"));
    let findings = [
        "replies to ARP requests for the VIP",
        "have the VIP as the sender",
        "drops them",
        "doctor --fix",
    ];
    assert_finds(&world, "server0", &doctor, &findings);
    let (code, text) = run_on(&world, "server0", &["real-server", "doctor", "--fix"]);
    assert_eq!((code, text.matches("(fixed)").count()), (0, 3), "{text}");
    assert_eq!(run_on(&world, "server0", &doctor).0, 0);

    world.ip("server0", &format!("addr add {vip}/24 dev eth0"));
    assert_finds(
        &world,
        "server0",
        &doctor,
        &["is on eth0", &format!("ip addr del {vip}/24 dev eth0")],
    );
    world.ip("server0", &format!("addr del {vip}/24 dev eth0"));
    world.kill_nginx(0);
    wait_for("no listener", TIMEOUT, || {
        run_on(&world, "server0", &doctor)
            .1
            .contains("no socket listens on port 80")
    });
    let (_, json) = run_on(&world, "server0", &["real-server", "doctor", "--json"]);
    let findings: serde_json::Value = serde_json::from_str(&json).expect("parse the output");
    assert_eq!(findings.as_array().map(Vec::len), Some(1), "{json}");
}

#[test]
fn director_faults_are_reported_and_fixed() {
    if !privileged() {
        return;
    }
    let mut world = World::new(2);
    world.start_nginx(64);
    let vip = Family::V4.vip().to_string();
    world.prepare_direct_servers(&vip);
    let path = world.write_config(&config("direct"));
    let path = path.to_str().expect("path is not UTF-8").to_owned();
    let doctor = ["doctor", "-c", &path];
    assert_finds(
        &world,
        "director",
        &doctor,
        &["no daemon is running", "nothing is repaired"],
    );
    world.start_daemon(&config("direct"));
    wait_for("a report without findings", TIMEOUT, || {
        run_on(&world, "director", &doctor).0 == 0
    });

    assert!(
        world
            .output("server1", "sysctl -qw net.ipv4.conf.all.arp_ignore=0")
            .status
            .success()
    );
    assert_finds(
        &world,
        "director",
        &doctor,
        &[
            "replies to ARP requests for the VIP",
            "bypassing the director",
        ],
    );
    assert!(
        world
            .output("server1", "sysctl -qw net.ipv4.conf.all.arp_ignore=1")
            .status
            .success()
    );
    assert_eq!(run_on(&world, "director", &doctor).0, 0);

    // Simulate a router whose reverse path filter drops replies from the VIP.
    for n in 0..2 {
        let line = format!(
            "nft 'add table inet t; add chain inet t out {{ type filter hook output priority 0; }}; add rule inet t \
             out ip saddr {vip} drop'"
        );
        let output = world
            .command(&format!("server{n}"), "sh")
            .args(["-ec", &line])
            .output();
        assert!(output.expect("run sh").status.success());
    }
    for _ in 0..12 {
        let line = format!("curl -s -o /dev/null --connect-timeout 0.3 http://{vip}/name");
        world.output("client", &line);
    }
    wait_for("a finding about the upstream router", TIMEOUT, || {
        run_on(&world, "director", &doctor)
            .1
            .contains("no handshake has completed (last SYN ")
    });
    world.ip("director", &format!("addr del {vip}/32 dev eth0"));
    assert_finds(
        &world,
        "director",
        &doctor,
        &["no interface of this machine has the VIP", "ip addr add"],
    );
}

/// Segments with a wrong checksum increment the counter, and the doctor reports their source.
#[test]
fn wrong_checksums_at_server_are_reported() {
    if !privileged() {
        return;
    }
    let world = World::new(1);
    let doctor = ["real-server", "doctor"];
    let (_, text) = run_on(&world, "server0", &doctor);
    assert!(!text.contains("InCsumErrors"), "{text}");
    let server = match Family::V4.server(0) {
        IpAddr::V4(server) => SocketAddr::from((server, 0)),
        IpAddr::V6(_) => unreachable!("address is IPv4"),
    };
    let sender = world.spawn_on("client", move || {
        let socket = socket(AddressFamily::INET, SocketType::RAW, Some(ipproto::TCP));
        let socket = socket.expect("open the socket as root");
        // A SYN to port 80 with the checksum 0x1234.
        let segment = [
            0x9c, 0x40, 0, 80, 0, 0, 0, 1, 0, 0, 0, 0, 0x50, 2, 0xff, 0xff, 0x12, 0x34, 0, 0,
        ];
        for _ in 0..50 {
            let sent = sendto(&socket, &segment, SendFlags::empty(), &server);
            assert_eq!(sent.expect("send the segment"), segment.len());
        }
    });
    sender.join().expect("thread panicked");
    assert_finds(
        &world,
        "server0",
        &doctor,
        &["50 of ", "wrong checksum (InCsumErrors)", "virtual device"],
    );
}
