//! Tests `weir` under the name `ipvsadm`.
//!
//! The services that it creates balance packets, outlive the daemon, and coexist with the file's services.

mod world;

use std::fs;
use std::io::Write as _;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::Duration;

use world::{Family, World, privileged, wait_for};

const NODE: &str = "[node]\ninterfaces = [\"eth0\"]\nmax_flows = 65536\n";

/// Exit code, standard output and standard error.
type CommandResult = (i32, String, String);

/// Runs `ipvsadm LINE` on the director.
fn ipvsadm(world: &World, line: &str) -> CommandResult {
    ipvsadm_with_input(world, line, "")
}

/// Runs `ipvsadm LINE` on the director with this standard input.
fn ipvsadm_with_input(world: &World, line: &str, input: &str) -> CommandResult {
    let link = world.path("ipvsadm");
    if !link.exists() {
        std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_weir"), &link)
            .expect("create a symbolic link");
    }
    let mut child = world
        .command("director", link.to_str().expect("path is valid UTF-8"))
        .env("WEIR_RUNTIME_DIR", world.path("run-director"))
        .env("WEIR_PIN_DIR", world.pin_dir("director"))
        .args(line.split_whitespace())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("start the process");
    let mut stdin = child.stdin.take().expect("stream is piped");
    let _ = stdin.write_all(input.as_bytes());
    drop(stdin);
    let output = child.wait_with_output().expect("wait for the process");
    (
        output.status.code().expect("process exited with a code"),
        String::from_utf8(output.stdout).expect("text is valid UTF-8"),
        String::from_utf8(output.stderr).expect("text is valid UTF-8"),
    )
}

/// Runs a line and asserts that it succeeds without errors. Returns its output.
fn run_ipvsadm(world: &World, line: &str) -> String {
    let (code, output, errors) = ipvsadm(world, line);
    assert_eq!((code, errors.as_str()), (0, ""), "{line}: {output}");
    output
}

/// Runs a line and asserts that it fails with this exit code and text.
fn assert_rejected(world: &World, line: &str, code: i32, text: &str) {
    let (actual_code, output, errors) = ipvsadm(world, line);
    assert!(errors.contains(text), "{line}: {errors}");
    assert_eq!((actual_code, output.as_str()), (code, ""), "{line}");
}

/// Sends a request to the VIP. Returns the name of the server that responds.
fn responding_server(world: &World) -> String {
    let url = format!("http://{}/name", Family::V4.vip());
    let body = world.get(&url).expect("receive a response");
    String::from_utf8_lossy(&body).trim().to_owned()
}

fn world_with_two_servers() -> World {
    let mut world = World::new(2);
    world.start_nginx(1024);
    let vip = Family::V4.vip().to_string();
    world.prepare_direct_servers(&vip);
    world
}

#[test]
#[expect(clippy::too_many_lines, reason = "one scenario, step by step")]
fn ipvsadm_service_balances_and_survives_daemon() {
    if !privileged() {
        return;
    }
    let mut world = world_with_two_servers();
    let service = format!("-t {}:80", Family::V4.vip());
    let server = |n| format!("{service} -r {}", Family::V4.server(n));
    let pid = world.start_daemon(NODE);
    run_ipvsadm(&world, &format!("-A {service} -s rr"));
    for n in 0..2 {
        run_ipvsadm(&world, &format!("-a {} -g", server(n)));
    }
    let mut servers: Vec<String> = (0..4).map(|_| responding_server(&world)).collect();
    servers.sort();
    servers.dedup();
    assert_eq!(servers.len(), 2, "{servers:?}");
    let listing = run_ipvsadm(&world, "-L -n --stats");
    let line = listing
        .lines()
        .find(|line| line.starts_with("TCP"))
        .expect("the service should exist");
    assert_eq!(line.split_whitespace().nth(2), Some("4"), "{listing}");
    let connections = run_ipvsadm(&world, "-L -n -c");
    assert_eq!(connections.matches("TCP ").count(), 4, "{connections}");
    assert!(
        world
            .status()
            .to_string()
            .contains("\"origin\":\"ipvsadm\"")
    );

    // `-Z` resets only the counters that the listing shows.
    run_ipvsadm(&world, "-Z");
    let listing = run_ipvsadm(&world, "-L -n --stats --exact");
    let line = listing
        .lines()
        .find(|line| line.starts_with("TCP"))
        .expect("the service should exist");
    assert_eq!(line.split_whitespace().nth(2), Some("0"), "{listing}");
    assert_eq!(world.status()["services"][0]["connections"], 4);

    let saved_rules = run_ipvsadm(&world, "-S -n");
    world.kill_keeper(pid);
    responding_server(&world);
    assert_eq!(
        run_ipvsadm(&world, "-S -n"),
        saved_rules,
        "without a daemon"
    );
    run_ipvsadm(&world, &format!("-e {} -g -w 0", server(0)));
    let remaining: Vec<String> = (0..4).map(|_| responding_server(&world)).collect();
    assert!(
        remaining.iter().all(|name| *name == remaining[0]),
        "{remaining:?}"
    );
    run_ipvsadm(&world, "--set 100 0 50");
    // Concurrent invocations wait for each other.
    std::thread::scope(|calls| {
        for _ in 0..3 {
            calls.spawn(|| run_ipvsadm(&world, "-Z"));
        }
    });

    world.start_daemon(NODE);
    let timeouts = "Timeout (tcp tcpfin udp): 100 120 50\n";
    assert_eq!(run_ipvsadm(&world, "-L --timeout"), timeouts);
    let listing = run_ipvsadm(&world, "-L -n");
    assert!(
        listing.contains(&format!(
            "  -> {}:80                Route   0 ",
            Family::V4.server(0)
        )),
        "{listing}"
    );
    assert_eq!(responding_server(&world), remaining[0]);
    world.reload(NODE);
    assert_eq!(responding_server(&world), remaining[0], "after a reload");

    // An override also applies to these servers.
    let other_server = Family::V4.server(usize::from(remaining[0] == "server1"));
    run_ipvsadm(&world, &format!("-e {} -g -w 1", server(0)));
    let name = format!("ipvsadm:tcp/{}:80/{other_server}:80", Family::V4.vip());
    world.run_weir(&["server", &name, "drain"]);
    assert!(world.status().to_string().contains("\"state\":\"drain\""));
    let responding: Vec<String> = (0..4).map(|_| responding_server(&world)).collect();
    assert!(
        responding.iter().all(|name| *name != remaining[0]),
        "{responding:?}"
    );
    world.run_weir(&["server", &name, "ready"]);

    // Without a scheduler, no new flow begins.
    run_ipvsadm(&world, &format!("-E {service} -s none"));
    let url = format!("http://{}/name", Family::V4.vip());
    assert!(world.get_within(2, &url).is_err());
    run_ipvsadm(&world, &format!("-D {service}"));
    assert_eq!(run_ipvsadm(&world, "-S -n"), "");
}

#[test]
fn persistent_client_is_listed_as_template() {
    if !privileged() {
        return;
    }
    let mut world = world_with_two_servers();
    world.start_daemon(NODE);
    let service = format!("-t {}:80", Family::V4.vip());
    run_ipvsadm(&world, &format!("-A {service} -s rr -p 300"));
    for n in 0..2 {
        run_ipvsadm(
            &world,
            &format!("-a {service} -r {} -g", Family::V4.server(n)),
        );
    }
    let first = responding_server(&world);
    for _ in 0..3 {
        assert_eq!(responding_server(&world), first);
    }
    let listing = run_ipvsadm(&world, "-L -n --persistent-conn");
    let has_one_template = |line: &str| line.split_whitespace().nth(3) == Some("1");
    assert_eq!(
        listing
            .lines()
            .filter(|line| has_one_template(line))
            .count(),
        1,
        "{listing}"
    );
    let connections = run_ipvsadm(&world, "-L -n -c");
    let template = format!("{}:0 ", Family::V4.client());
    let rows: Vec<&str> = connections
        .lines()
        .filter(|line| line.contains(&template))
        .collect();
    assert_eq!(rows.len(), 1, "{connections}");
    assert!(
        rows[0].contains(" ASSURED ") && rows[0].starts_with("TCP 0"),
        "{connections}"
    );
    assert_eq!(connections.matches("TCP ").count(), 5, "{connections}");
}

#[test]
fn rates_follow_traffic() {
    if !privileged() {
        return;
    }
    let mut world = world_with_two_servers();
    world.start_daemon(NODE);
    let service = format!("-t {}:80", Family::V4.vip());
    run_ipvsadm(&world, &format!("-A {service}"));
    run_ipvsadm(
        &world,
        &format!("-a {service} -r {} -g", Family::V4.server(0)),
    );
    let rate = || {
        let listing = run_ipvsadm(&world, "-L -n --rate");
        let line = listing
            .lines()
            .find(|line| line.starts_with("TCP"))
            .expect("the service should exist");
        let packets = line
            .split_whitespace()
            .nth(3)
            .expect("listing contains the number");
        packets.parse::<u64>().expect("parse a number")
    };
    assert_eq!(rate(), 0);
    wait_for("a rate above 0", Duration::from_secs(20), || {
        responding_server(&world);
        rate() > 0
    });
    wait_for("a rate of 0", Duration::from_secs(60), || rate() == 0);
}

const FILE: &str = "[pool.web]\nservers = [\"10.71.0.20\", \"10.71.0.21\"]\n\
    [service.web]\nlisten = [\"10.71.0.10:80\"]\nforward = \"direct\"\npool = \"web\"\n";

#[test]
#[expect(clippy::too_many_lines, reason = "one scenario, step by step")]
fn configured_services_are_listed_and_read_only() {
    if !privileged() {
        return;
    }
    let mut world = World::new(2);
    world.start_daemon(&format!("{NODE}{FILE}"));
    let web = "-t 10.71.0.10:80";
    run_ipvsadm(&world, "-A -u 10.71.0.10:53 -s rr");
    run_ipvsadm(&world, "-A --sctp-service 10.71.0.10:3868");
    let before = run_ipvsadm(&world, "-S -n");
    assert!(
        before.contains("-a -t 10.71.0.10:80 -r 10.71.0.20:80 -g -w 1\n"),
        "{before}"
    );
    assert!(
        before.contains("-A --sctp-service 10.71.0.10:3868 -s wlc\n"),
        "{before}"
    );
    let position = "weir.toml:6: service web is defined in the file";
    assert_rejected(
        &world,
        &format!("-A {web}"),
        255,
        "Service already exists\n",
    );
    for line in [
        format!("-D {web}"),
        format!("-E {web} -s rr"),
        format!("-a {web} -r 10.71.0.22"),
        format!("-d {web} -r 10.71.0.20"),
        format!("-e {web} -r 10.71.0.20 -m"),
        format!("-e {web} -r 10.71.0.20 -x 5"),
    ] {
        assert_rejected(&world, &line, 255, position);
    }
    assert_rejected(
        &world,
        &format!("-e {web} -r 10.71.0.99"),
        255,
        "No such destination\n",
    );
    assert_rejected(&world, "-L -t 10.71.0.10:81", 1, "No such service\n");
    assert_rejected(
        &world,
        "--start-daemon master",
        255,
        "Operation not supported\n",
    );
    assert_rejected(
        &world,
        "--stop-daemon master",
        255,
        "No daemon is running\n",
    );
    let (code, output, note) = ipvsadm(&world, "-A -f 7 -6 -s rr -p 100");
    assert_eq!((code, output.as_str()), (0, ""));
    assert!(
        note.contains("set net.ipv6.conf.all.forwarding = 1"),
        "{note}"
    );
    assert_rejected(&world, "-A -f 7 -6", 255, "Service already exists\n");
    assert_rejected(&world, "-E -f 7 -s wlc", 255, "No such service\n");
    let saved_rules = run_ipvsadm(&world, "-S -n");
    assert!(
        saved_rules.contains("-A -f 7 -6 -s rr -p 100\n"),
        "{saved_rules}"
    );
    run_ipvsadm(&world, "-D -f 7 -6");
    assert_eq!(run_ipvsadm(&world, "-L --daemon"), "");
    assert_eq!(run_ipvsadm(&world, "-S -n"), before);

    // A changed weight is an override. Setting the weight that the file specifies removes the override.
    run_ipvsadm(&world, &format!("-e {web} -r 10.71.0.20 -w 0"));
    assert_eq!(
        world.server_status("10.71.0.20".parse().expect("parse the address"))["override"],
        "weight 0"
    );
    run_ipvsadm(&world, &format!("-e {web} -r 10.71.0.20 -w 1"));
    assert!(
        world.server_status("10.71.0.20".parse().expect("parse the address"))["override"].is_null()
    );

    // Weir rejects a file that defines a service that ipvsadm has created.
    let conflict = world.path("conflict.toml");
    let text = format!("{NODE}{FILE}").replace("\"10.71.0.10:80\"", "\"udp/10.71.0.10:53\"");
    fs::write(&conflict, text).expect("write the file");
    let output = world
        .weir("director")
        .args([
            "reload",
            "-c",
            conflict.to_str().expect("path is valid UTF-8"),
        ])
        .output()
        .expect("run weir");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{errors}");
    for part in [
        "conflict.toml:6:",
        "udp/10.71.0.10:53",
        "ipvsadm -D -u 10.71.0.10:53",
    ] {
        assert!(errors.contains(part), "{errors}");
    }
    assert_eq!(run_ipvsadm(&world, "-S -n"), before);

    run_ipvsadm(&world, "-C");
    let remaining = run_ipvsadm(&world, "-S -n");
    assert!(
        remaining.contains("-A -t 10.71.0.10:80") && !remaining.contains("-u "),
        "{remaining}"
    );
}

/// Returns a file with a proxy service at these addresses.
fn proxy_file(listen: &str) -> String {
    format!(
        "{NODE}[pool.web]\nservers = [\"10.71.0.20:80\"]\n\
         [service.site]\nlisten = [{listen}]\nforward = \"proxy\"\nprotocol = \"http\"\npool = \"web\"\n"
    )
}

/// Runs `weir SUBCOMMAND -c FILE` on the director and asserts that it rejects the file because of the ipvsadm service
/// at the VIP.
fn assert_conflict(world: &World, subcommand: &str, file: &str) {
    let output = world
        .weir("director")
        .args([subcommand, "-c", file])
        .output()
        .expect("run weir");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{subcommand}: {errors}");
    for part in [
        "6:10: service site: tcp/10.71.0.10:80 is already used",
        "`weir ipvsadm -D -t 10.71.0.10:80`",
        "`weir ipvsadm -C`",
    ] {
        assert!(errors.contains(part), "{subcommand}: {errors}");
    }
}

/// Asserts that ipvsadm cannot create or change a service at the address of the proxy service `site`.
fn assert_proxy_address_is_taken(world: &World) {
    let vip = "-t 10.71.0.10:80";
    let position = "weir.toml:6: service site is defined in the file";
    let other_listeners = "-A -t 10.71.0.10:81 -s wlc\n-A -u 10.71.0.10:80 -s wlc\n";
    let exists = "Service already exists\n";
    assert_rejected(world, &format!("-A {vip}"), 255, exists);
    assert_rejected(world, &format!("-D {vip}"), 255, position);
    assert_rejected(world, &format!("-a {vip} -r 10.71.0.20"), 255, position);
    let restored = ipvsadm_with_input(world, "-R", &format!("-A {vip}\n{other_listeners}"));
    assert_eq!(restored.2, exists);
    let saved_rules = run_ipvsadm(world, "-S -n");
    let mut saved_rules: Vec<&str> = saved_rules.lines().collect();
    saved_rules.sort_unstable();
    assert_eq!(saved_rules.join("\n") + "\n", other_listeners);
    run_ipvsadm(world, "-C");
}

#[test]
fn proxy_and_ipvsadm_services_cannot_share_an_address() {
    if !privileged() {
        return;
    }
    let mut world = World::new(1);
    let pid = world.start_daemon(NODE);
    let vip = "-t 10.71.0.10:80";
    run_ipvsadm(&world, &format!("-A {vip}"));
    let conflict = world.path("conflict.toml");
    fs::write(&conflict, proxy_file("\"10.71.0.10:80\"")).expect("write the file");
    let conflict = conflict.to_str().expect("path is valid UTF-8");
    assert_conflict(&world, "plan", conflict);
    assert_conflict(&world, "reload", conflict);
    // A service at an address takes precedence over a wildcard.
    world.reload(&proxy_file("\"0.0.0.0:80\", \"[::]:80\""));
    world.kill_keeper(pid);
    assert_conflict(&world, "run", conflict);
    run_ipvsadm(&world, &format!("-D {vip}"));

    let pid = world.start_daemon(&proxy_file("\"10.71.0.10:80\""));
    assert_proxy_address_is_taken(&world);
    world.reload(&proxy_file("\"10.71.0.10:80\", \"10.71.0.10:8080\""));
    world.kill_keeper(pid);
    assert_proxy_address_is_taken(&world);
}

/// Earlier versions accepted both services. The daemon does not start, but the command in the error message removes the
/// service.
#[test]
fn service_conflicting_with_proxy_can_be_deleted_without_daemon() {
    if !privileged() {
        return;
    }
    let mut world = World::new(1);
    let pid = world.start_daemon(&proxy_file("\"0.0.0.0:80\""));
    run_ipvsadm(&world, "-A -t 10.71.0.10:80");
    run_ipvsadm(&world, "-A -t 10.71.0.10:8080");
    world.kill_keeper(pid);
    let file = proxy_file("\"10.71.0.10:80\", \"10.71.0.10:8080\"");
    fs::write(world.path("run-director/in-force.toml"), &file).expect("write the copy");
    let conflict = world.path("conflict.toml");
    fs::write(&conflict, &file).expect("write the file");
    assert_conflict(
        &world,
        "run",
        conflict.to_str().expect("path is valid UTF-8"),
    );
    assert!(run_ipvsadm(&world, "-S -n").contains("-A -t 10.71.0.10:80 "));
    run_ipvsadm(&world, "-D -t 10.71.0.10:80");
    run_ipvsadm(&world, "-D -t 10.71.0.10:8080");
    world.start_daemon(&file);
}

/// The rows of a removed service remain, because its flows continue.
#[test]
fn status_without_daemon_omits_deleted_service() {
    if !privileged() {
        return;
    }
    let mut world = world_with_two_servers();
    let pid = world.start_daemon(NODE);
    for service in ["-t 10.71.0.10:80", "-t 10.71.0.10:8080"] {
        run_ipvsadm(&world, &format!("-A {service} -s rr"));
        run_ipvsadm(
            &world,
            &format!("-a {service} -r {} -g", Family::V4.server(0)),
        );
    }
    responding_server(&world);
    world.kill_keeper(pid);
    run_ipvsadm(&world, "-D -t 10.71.0.10:80");
    let services = world.status()["services"].clone();
    let names = services.as_array().expect("services is an array").iter();
    let names: Vec<_> = names.map(|service| service["name"].clone()).collect();
    assert_eq!(names, ["ipvsadm:tcp/10.71.0.10:8080"], "{services:#}");
}

#[test]
fn restore_continues_after_rejections_and_stops_at_syntax_errors() {
    if !privileged() {
        return;
    }
    let mut world = World::new(0);
    world.start_daemon(NODE);
    let restore = |text: &str| ipvsadm_with_input(&world, "-R", text);
    let table = "-A -t 10.71.0.10:80 -s rr\n\n-a -t 10.71.0.10:80 -r 10.71.0.20:80 -g -w 3\n\
                 -A -u 10.71.0.10:53 -s sh -p 30 -M 255.255.255.0 -b sh-port\n-A -t [fd71::10]:80 -s none\n";
    assert_eq!(restore(table), (0, String::new(), String::new()));
    let saved_rules = run_ipvsadm(&world, "-S -n");
    assert_eq!(saved_rules.lines().count(), 4, "{saved_rules}");
    run_ipvsadm(&world, "-C");
    assert_eq!(restore(&saved_rules).0, 0);
    assert_eq!(
        run_ipvsadm(&world, "-S -n"),
        saved_rules,
        "after a round trip"
    );

    // A rejected line is reported and the next one is executed. The exit code is that of the last line.
    let (code, _, errors) = restore("-A -t 10.71.0.11:80 -s nope\nipvsadm -A -t 10.71.0.12:80\n");
    assert_eq!(
        (code, errors.as_str()),
        (0, "Scheduler or persistence engine not found\n")
    );
    assert!(run_ipvsadm(&world, "-S -n").contains("10.71.0.12:80"));
    assert_eq!(restore("-D -t 10.71.0.12:80\n-D -t 10.71.0.12:80").0, 255);
    let (code, _, errors) = restore("-L -q\n-A -t 10.71.0.13:80\n");
    assert_eq!((code, errors.as_str()), (0, "-q: unknown option\n"));

    // A syntax error ends the run. The effects of the preceding lines remain.
    let (code, _, errors) = restore("-A -t 10.71.0.14:80\n-A -t 10.71.0.15\n-A -t 10.71.0.16:80\n");
    assert_eq!(
        (code, errors.as_str()),
        (2, "Zero port specified for non-persistent service\n")
    );
    let saved_rules = run_ipvsadm(&world, "-S -n");
    assert!(
        saved_rules.contains("10.71.0.14:80") && !saved_rules.contains("10.71.0.16"),
        "{saved_rules}"
    );
    let (code, _, errors) = restore("# a comment\n");
    assert!(errors.starts_with("Try `"), "{errors}");
    assert_eq!(code, 255);
    assert_eq!(restore("-R\n").0, 255);
}

#[test]
fn commands_fail_without_daemon_and_data_plane() {
    if !privileged() {
        return;
    }
    let world = World::new(0);
    assert_rejected(&world, "-L", 2, "Can't initialize ipvs: ");
    assert_rejected(&world, "-A -t 10.71.0.10:80", 2, "Can't initialize ipvs: ");
}

#[test]
fn weights_above_65535_are_used_unchanged() {
    if !privileged() {
        return;
    }
    let mut world = world_with_two_servers();
    world.start_daemon(NODE);
    let table = "-A -t 10.71.0.10:80 -s wrr\n\
                 -a -t 10.71.0.10:80 -r 10.71.0.20:80 -g -w 2000000000\n\
                 -a -t 10.71.0.10:80 -r 10.71.0.21:80 -g -w 1000000000\n";
    let (code, _, errors) = ipvsadm_with_input(&world, "-R", table);
    assert_eq!((code, errors.as_str()), (0, ""));
    assert_eq!(run_ipvsadm(&world, "-S -n"), table);
    assert!(run_ipvsadm(&world, "-L -n").contains("Route   2000000000 "));
    let mut counts = std::collections::BTreeMap::<String, u32>::new();
    for _ in 0..30 {
        *counts.entry(responding_server(&world)).or_default() += 1;
    }
    let counts: Vec<u32> = counts.into_values().collect();
    assert_eq!(counts, [20, 10]);
    assert_rejected(
        &world,
        "-e -t 10.71.0.10:80 -r 10.71.0.20:80 -g -w 2147483648",
        2,
        "illegal weight specified",
    );
}

#[test]
fn listing_states_that_sctp_is_not_balanced() {
    if !privileged() {
        return;
    }
    let mut world = World::new(0);
    world.start_daemon(NODE);
    run_ipvsadm(&world, "-A -t 10.71.0.10:80 -s rr");
    run_ipvsadm(&world, "-A --sctp-service 10.71.0.10:3868 -s rr");
    let note = "note: SCTP services are kept and listed; their packets are not balanced\n";
    for line in ["-L -n", "-L -n --sctp-service 10.71.0.10:3868"] {
        let (code, output, errors) = ipvsadm(&world, line);
        assert!(
            errors.ends_with(note) && errors.lines().count() == 1,
            "{errors}"
        );
        assert!(output.contains("\nSCTP 10.71.0.10:3868 rr"), "{output}");
        assert!(!output.contains("note") && code == 0, "{output}");
    }
    run_ipvsadm(&world, "-L -n -t 10.71.0.10:80");
    run_ipvsadm(&world, "-S -n");
}

#[test]
fn imported_table_is_valid_configuration() {
    if !privileged() {
        return;
    }
    let mut world = World::new(0);
    let saved_path = world.path("saved");
    let table = "-A -t 10.71.0.10:80 -s sh -b sh-port,sh-fallback\n\
                 -a -t 10.71.0.10:80 -r 10.71.0.20:80 -g -w 3\n\
                 -a -t 10.71.0.10:80 -r 10.71.0.21:80 -i -w 0 --tun-type gue --tun-port 6081 --tun-csum\n\
                 -A --sctp-service 10.71.0.10:3868 -s wlc\n\
                 -A -t [fd71::10]:443 -s wlc\n\
                 -a -t [fd71::10]:443 -r [fd71::20]:8443 -m -w 1\n\
                 -A -t 10.71.0.10:81 -s wlc --pe sip\n";
    fs::write(&saved_path, table).expect("write the file");
    let output = world
        .weir("director")
        .args([
            "import",
            "ipvsadm",
            saved_path.to_str().expect("path is valid UTF-8"),
        ])
        .output()
        .expect("run weir");
    let notes = String::from_utf8_lossy(&output.stderr).into_owned();
    // Clients of a removed service are no longer served.
    assert_eq!(output.status.code(), Some(1), "{notes}");
    let losses = notes
        .split_once("BEHAVIOR CHANGES")
        .expect("text contains the heading")
        .1;
    assert!(
        losses.contains("\n  line 4: -A --sctp-service 10.71.0.10:3868 -s wlc: "),
        "{notes}"
    );
    assert!(losses.contains("\n  line 7: "), "{notes}");
    assert_eq!(notes.matches("line ").count(), 2, "{notes}");
    let text = String::from_utf8(output.stdout).expect("text is valid UTF-8");
    // Neither ipvsadm nor the imported file adds the VIPs. Comments in the file report this and name the setting that
    // makes Weir add them.
    let first = text.lines().next().expect("output has a first line");
    assert_eq!(
        first,
        "# VIPs: 10.71.0.10 (now on eth0), fd71::10 (now on no interface)."
    );
    assert!(text.contains("\n# vip_interface = \"eth0\"\n"), "{text}");
    assert!(text.contains("weir ipvsadm -C\n"), "{text}");
    assert!(!text.contains("\nvip_interface"), "{text}");
    let path = world.write_config(&text);
    world.run_weir(&["check", "-c", path.to_str().expect("path is valid UTF-8")]);

    world.start_daemon(&format!("{NODE}{text}"));
    let saved_rules = run_ipvsadm(&world, "-S -n");
    let imported: Vec<&str> = table
        .lines()
        .filter(|line| !line.contains("sctp") && !line.contains("--pe"))
        .collect();
    // `-S` prints flags in a fixed order.
    let imported = imported
        .join("\n")
        .replace("sh-port,sh-fallback", "sh-fallback,sh-port")
        + "\n";
    assert_eq!(saved_rules, imported);
}

#[test]
fn subcommand_behaves_like_ipvsadm_link() {
    let weir = |arguments: &[&str]| {
        Command::new(env!("CARGO_BIN_EXE_weir"))
            .args(arguments)
            .env("WEIR_RUNTIME_DIR", "/nonexistent")
            .env("WEIR_PIN_DIR", "/nonexistent")
            .output()
            .expect("run weir")
    };
    let output = weir(&["ipvsadm", "-L", "-c", "--stats"]);
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(output.stderr, b"options conflicts in the list command\n");
    let output = weir(&["ipvsadm", "-x"]);
    assert_eq!(output.status.code(), Some(255));
    let version = "ipvsadm v1.31 2019/12/24 (compiled with popt and IPVS v1.2.1)\n";
    assert_eq!(weir(&["ipvsadm", "-v"]).stdout, version.as_bytes());
    let output = Command::new(env!("CARGO_BIN_EXE_weir"))
        .arg0("/sbin/ipvsadm")
        .arg("foo")
        .output()
        .expect("run weir");
    let help = "Try `/sbin/ipvsadm -h' or '/sbin/ipvsadm --help' for more information.\n";
    assert_eq!(output.stderr, help.as_bytes());
}
