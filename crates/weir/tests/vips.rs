//! Tests that Weir adds, announces and removes the VIPs of proxy services (`vip_interface`).
//!
//! The tests run with and without a layer 4 engine.

mod world;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use world::{Family, World, bracketed, privileged, wait_for};

const V4: &str = "10.71.0.11";
const V6: &str = "fd71::11";

const POOL: &str = "[pool.web]\nservers = [\"10.71.0.20\"]\n";

fn proxy_service() -> String {
    format!(
        "[service.www]\nlisten = [\"{V4}:80\", \"[{V6}]:80\"]\nforward = \"proxy\"\nprotocol = \"http\"\npool = \
         \"web\"\n"
    )
}

fn other_service(address: &str) -> String {
    format!(
        "[service.other]\nlisten = [\"{address}\"]\nforward = \"proxy\"\nprotocol = \"http\"\npool = \"web\"\n"
    )
}

fn config(services: &str) -> String {
    format!("[node]\nvip_interface = \"eth0\"\n{POOL}{services}")
}

fn has_address(world: &World, vip: &str) -> bool {
    let output = world.output("director", "ip -o addr show dev eth0");
    String::from_utf8_lossy(&output.stdout).contains(&format!("{vip}/"))
}

/// Returns whether the kernel avoids an IPv6 address as a source.
fn is_deprecated(world: &World, vip: &str) -> bool {
    let output = world.output("director", "ip -o -6 addr show dev eth0 deprecated");
    String::from_utf8_lossy(&output.stdout).contains(&format!("{vip}/"))
}

fn wait_for_removal_in_log(world: &World, vip: &str) {
    let line = format!("removed a VIP that Weir had added address={vip}");
    wait_for(&line, Duration::from_secs(10), || {
        world.log().contains(&line)
    });
}

fn vip_state(world: &World, service: &str) -> String {
    let status = world.status();
    let services = status["services"]
        .as_array()
        .expect("services is not an array")
        .iter();
    let mut found = services.filter(|it| it["name"] == service);
    let found = found.next().unwrap_or_else(|| panic!("{status:#}"));
    found["vip"]
        .as_str()
        .expect("state is not a string")
        .to_owned()
}

#[test]
fn proxy_vip_is_added_announced_and_removed() {
    if !privileged() {
        return;
    }
    let mut world = World::new(1);
    world.start_nginx(1024);
    // Only Weir's announcement can correct the wrong MAC address in the client's neighbor table.
    for vip in [V4, V6] {
        world.ip(
            "client",
            &format!("neigh add {vip} lladdr 02:00:00:00:00:99 dev eth0 nud stale"),
        );
    }
    let pid = world.start_daemon(&config(&proxy_service()));
    for vip in [V4, V6] {
        assert!(has_address(&world, vip), "{vip} was not added");
        wait_for("the announcement", Duration::from_secs(10), || {
            let neighbor = world.output("client", &format!("ip neigh show {vip}"));
            !String::from_utf8_lossy(&neighbor.stdout).contains("02:00:00:00:00:99")
        });
        let url = format!(
            "http://{}/name",
            bracketed(vip.parse().expect("parse the address"))
        );
        world.get(&url).unwrap_or_else(|error| panic!("{error}"));
    }
    assert_eq!(vip_state(&world, "www"), "added");
    let pins = world.pin_dir("director");
    assert!(!pins.exists(), "a proxy must not require the data plane");
    // Weir restores an address that another program removes.
    world.ip("director", &format!("addr del {V4}/32 dev eth0"));
    wait_for(
        "the address to be restored",
        Duration::from_secs(10),
        || has_address(&world, V4),
    );
    // Weir removes the address of a removed service, but keeps an address that existed before.
    world.reload(&config(&other_service("10.71.0.10:80")));
    assert!(
        !has_address(&world, V4) && !has_address(&world, V6),
        "unused VIPs must be removed"
    );
    assert_eq!(vip_state(&world, "other"), "local");
    world.reload(&config(&proxy_service()));
    world.kill_keeper(pid);
    let output = world.run_weir(&["clean"]);
    assert!(
        !has_address(&world, V4) && !has_address(&world, V6),
        "clean must remove the VIPs"
    );
    assert!(
        output.contains(&format!("{V4} removed from eth0\n")),
        "{output}"
    );
    assert!(has_address(&world, "10.71.0.10"));
}

/// While no daemon was running, clients may have learned another MAC address, and traffic confirms the wrong entry. An
/// earlier version added IPv6 VIPs that the kernel can select as source addresses.
#[test]
fn present_vip_is_announced_and_deprecated_when_daemon_starts() {
    if !privileged() {
        return;
    }
    const V4_LAYER_4: &str = "10.71.0.12";
    let mut world = World::new(1);
    world.start_nginx(1024);
    let layer_4 = format!(
        "[service.l4]\nlisten = [\"{V4_LAYER_4}:80\"]\nforward = \"direct\"\npool = \"web\"\n"
    );
    for (services, vips) in [
        (proxy_service(), vec![V4, V6]),
        (
            format!("{}{layer_4}", proxy_service()),
            vec![V4, V6, V4_LAYER_4],
        ),
    ] {
        let config = config(&services);
        let pid = world.start_daemon(&config);
        world.kill_keeper(pid);
        for vip in &vips {
            assert!(has_address(&world, vip), "{vip} must stay after a crash");
            world.ip(
                "client",
                &format!("neigh replace {vip} lladdr 02:00:00:00:00:99 dev eth0 nud reachable"),
            );
        }
        world.ip(
            "director",
            &format!("addr change {V6}/128 dev eth0 preferred_lft forever"),
        );
        assert!(!is_deprecated(&world, V6));
        let pid = world.start_daemon(&config);
        assert!(is_deprecated(&world, V6));
        for vip in &vips {
            wait_for("the announcement", Duration::from_secs(10), || {
                let neighbor = world.output("client", &format!("ip neigh show {vip}"));
                let neighbor = String::from_utf8_lossy(&neighbor.stdout).into_owned();
                neighbor.contains("lladdr") && !neighbor.contains("02:00:00:00:00:99")
            });
        }
        world.kill_keeper(pid);
    }
}

/// If two machines had the VIP, clients would use the one whose reply or announcement they received last.
#[test]
fn vip_of_another_machine_is_logged_at_startup() {
    if !privileged() {
        return;
    }
    let mut world = World::new(1);
    world.start_nginx(1024);
    world.add_router("other", 77);
    world.ip("other", &format!("addr add {V4}/32 dev eth0"));
    world.start_daemon(&config(&proxy_service()));
    wait_for("the warning", Duration::from_secs(10), || {
        world
            .log()
            .contains("another machine has a VIP of this director")
    });
    let log = world.log();
    let found = format!("replies to ARP requests for the VIP {V4}");
    assert!(log.contains(&found), "{log}");
    assert!(!log.contains(&format!("for the VIP {V6}")), "{log}");
}

/// While a server had the VIPs, clients learned its MAC address. The director announces the VIPs when the server has
/// lost them, with and without a layer 4 engine.
#[test]
fn vip_is_announced_when_another_machine_has_lost_it() {
    if !privileged() {
        return;
    }
    const V4_LAYER_4: &str = "10.71.0.12";
    let mut world = World::new(1);
    world.start_nginx(1024);
    let layer_4 = format!(
        "[service.l4]\nlisten = [\"{V4_LAYER_4}:80\"]\nforward = \"nat\"\npool = \"web\"\n"
    );
    let (server, director) = (world.mac("server0"), world.mac("director"));
    for (services, vips) in [
        (proxy_service(), vec![V4, V6]),
        (
            format!("{}{layer_4}", proxy_service()),
            vec![V4, V6, V4_LAYER_4],
        ),
    ] {
        let with_prefix = |vip: &str| match vip.contains(':') {
            true => format!("{vip}/128 dev eth0 nodad"),
            false => format!("{vip}/32 dev eth0"),
        };
        for vip in &vips {
            world.ip("server0", &format!("addr add {}", with_prefix(vip)));
        }
        let pid = world.start_daemon(&config(&services));
        let has_logged = |vip: &str, text: &str| {
            let log = world.log();
            let mut lines = log.lines();
            lines.any(|line| line.contains(text) && line.contains(&format!("address={vip} ")))
        };
        for vip in &vips {
            let text = "another machine replies for a VIP of this director";
            wait_for("the conflict", Duration::from_secs(30), || {
                has_logged(vip, text)
            });
            world.ip(
                "client",
                &format!("neigh replace {vip} lladdr {server} dev eth0 nud reachable"),
            );
        }
        for vip in &vips {
            world.ip(
                "server0",
                &format!("addr del {}", with_prefix(vip).replace(" nodad", "")),
            );
        }
        for vip in &vips {
            let text = "the other machine no longer replies for the VIP";
            wait_for("the end of the conflict", Duration::from_secs(30), || {
                has_logged(vip, text)
            });
            wait_for("the announcement", Duration::from_secs(10), || {
                let neighbor = world.output("client", &format!("ip neigh show {vip}"));
                String::from_utf8_lossy(&neighbor.stdout).contains(&director)
            });
        }
        world.kill_keeper(pid);
    }
}

/// Runs a command with the director's directories on the client. Returns the exit code and the output.
fn run_in_other_namespace(world: &World, arguments: &[&str]) -> (Option<i32>, String) {
    let output = world
        .weir("client")
        .env("WEIR_RUNTIME_DIR", world.path("run-director"))
        .env("WEIR_PIN_DIR", world.pin_dir("director"))
        .args(arguments)
        .output()
        .expect("run weir");
    let text = [output.stdout, output.stderr].concat();
    (
        output.status.code(),
        String::from_utf8_lossy(&text).into_owned(),
    )
}

/// Weir records interfaces by name. A command in another namespace must neither change interfaces with the same names
/// there nor delete the record.
#[test]
fn clean_in_a_different_namespace_is_refused() {
    if !privileged() {
        return;
    }
    let mut world = World::new(1);
    world.start_nginx(1024);
    let pid = world.start_daemon(&config(&format!(
        "{}[service.l4]\nlisten = [\"10.71.0.12:80\"]\nforward = \"direct\"\npool = \"web\"\n",
        proxy_service()
    )));
    world.kill_keeper(pid);
    // Add the same address to an interface with the same name in the other namespace; Weir did not add this address.
    world.ip("client", "addr add 10.71.0.12/32 dev eth0");
    let run = |arguments: &[&str]| run_in_other_namespace(&world, arguments);
    let client_has_address = || {
        let output = world.output("client", "ip -o addr show dev eth0");
        String::from_utf8_lossy(&output.stdout).contains("10.71.0.12/")
    };
    let (code, output) = run(&["clean"]);
    let command = format!(
        "nsenter --net=/run/netns/{} weir clean --runtime-dir {} --pin-dir {}",
        world.namespace("director"),
        world.path("run-director").display(),
        world.pin_dir("director").display()
    );
    assert!(code == Some(1) && output.contains(&command), "{output}");
    let (code, output) = run(&["doctor"]);
    assert!(
        code == Some(1) && output.contains("weir doctor --runtime-dir"),
        "{output}"
    );
    // Another director does not adopt the existing objects either.
    let file = world.path("weir.toml");
    let (code, output) = run(&["run", "-c", file.to_str().expect("path is not UTF-8")]);
    assert!(code == Some(1) && output.contains(&command), "{output}");
    assert!(
        world.pin_dir("director").exists(),
        "nothing must be removed"
    );

    let (code, output) = run(&["clean", "--force"]);
    assert_eq!(code, Some(0), "{output}");
    let expected = format!(
        "10.71.0.12 on eth0 in /run/netns/{} was not removed",
        world.namespace("director")
    );
    assert!(output.contains(&expected), "{output}");
    assert!(
        client_has_address() && has_address(&world, "10.71.0.12"),
        "{output}"
    );
    assert!(!world.pin_dir("director").exists());
}

#[test]
fn open_connection_keeps_its_vip() {
    if !privileged() {
        return;
    }
    let mut world = World::new(1);
    world.start_nginx(1024);
    world.start_daemon(&config(&proxy_service()));
    let client = world.spawn_on("client", || {
        let mut stream = TcpStream::connect((V4, 80)).expect("connect");
        stream
            .set_read_timeout(Some(Duration::from_secs(10)))
            .expect("set the read timeout");
        stream
            .write_all(b"GET /name HTTP/1.1\r\nHost: a\r\n")
            .expect("send");
        stream
    });
    let mut stream = client.join().expect("thread panicked");
    // A request is in progress, and a reload does not abort it.
    world.reload(&config(&other_service(&format!("[{V6}]:80"))));
    assert!(
        has_address(&world, V4),
        "an open connection must keep its VIP"
    );
    // The reload has reported the removal, so `plan` does not report it, although the address is still present.
    let plan = weir_output(&world, &["plan"]);
    assert_eq!(plan, "no changes\n");
    stream
        .write_all(b"Connection: close\r\n\r\n")
        .expect("send");
    let mut response = String::new();
    stream
        .read_to_string(&mut response)
        .expect("read the response");
    assert!(response.contains("200 OK"), "{response}");
    drop(stream);
    wait_for("the removal of the VIP", Duration::from_secs(20), || {
        !has_address(&world, V4)
    });
    assert!(has_address(&world, V6));
    wait_for_removal_in_log(&world, V4);
}

#[test]
fn layer_4_engine_takes_over_vips() {
    if !privileged() {
        return;
    }
    let mut world = World::new(1);
    world.start_nginx(1024);
    let pid = world.start_daemon(&config(&proxy_service()));
    let layer_4 = "[service.l4]\nlisten = [\"10.71.0.12:80\"]\nforward = \"nat\"\nsnat = true\npool = \"web\"\n";
    world.reload(&config(&format!("{}{layer_4}", proxy_service())));
    assert!(has_address(&world, V4) && has_address(&world, "10.71.0.12"));
    assert_eq!(vip_state(&world, "www"), "added");
    let url = format!(
        "http://{}/name",
        bracketed(V4.parse().expect("parse the address"))
    );
    world.get(&url).unwrap_or_else(|error| panic!("{error}"));
    // A restarted daemon still has the list of VIPs that Weir added.
    world.kill_keeper(pid);
    let pid = world.start_daemon(&config(layer_4));
    wait_for(
        "the removal of the proxy's address",
        Duration::from_secs(10),
        || !has_address(&world, V4),
    );
    wait_for_removal_in_log(&world, V4);
    world.kill_keeper(pid);
    world.run_weir(&["clean"]);
    assert!(!has_address(&world, "10.71.0.12"));
    let vip = Family::V4.vip().to_string();
    assert!(
        has_address(&world, &vip),
        "an existing address must be kept"
    );
}

#[test]
fn missing_proxy_vip_is_reported() {
    if !privileged() {
        return;
    }
    let mut world = World::new(1);
    let config_without_interface = format!("{POOL}{}", proxy_service());
    let path = world.write_config(&config_without_interface);
    let check = world
        .weir("director")
        .args(["check", "-c"])
        .arg(&path)
        .output();
    let check = check.expect("run weir");
    let text = String::from_utf8_lossy(&check.stderr).into_owned()
        + &String::from_utf8_lossy(&check.stdout);
    assert!(
        text.contains(&format!(
            "no interface of this machine has {V4} of service www"
        )),
        "{text}"
    );
    assert!(
        text.contains("connections cannot reach the service"),
        "{text}"
    );
    world.start_daemon(&config_without_interface);
    assert_eq!(vip_state(&world, "www"), "absent");
    let absent = format!("no interface of this machine has {V4} of service www");
    wait_for("the warning in the log", Duration::from_secs(10), || {
        world.log().contains(&format!("WARN {absent}"))
    });
    for command in ["plan", "reload"] {
        let text = weir_output(&world, &[command]);
        assert!(
            text.contains(&format!("warning: {absent}")),
            "{command}: {text}"
        );
    }
    let doctor = world
        .weir("director")
        .args(["doctor", "-c"])
        .arg(&path)
        .output();
    let doctor = doctor.expect("run weir");
    let text = String::from_utf8_lossy(&doctor.stdout);
    assert!(
        text.contains(&format!("no interface of this machine has the VIP {V4}")),
        "{text}"
    );
}

/// Runs `weir ARGUMENTS`. Returns its output from both streams.
fn weir_output(world: &World, arguments: &[&str]) -> String {
    let output = world.weir("director").args(arguments).output();
    let output = output.expect("run weir");
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

fn assert_warned_about_removed_vips(services: &str, vips: &[&str]) {
    let mut world = World::new(1);
    world.start_daemon(&config(services));
    assert!(vips.iter().all(|vip| has_address(&world, vip)));
    let log = world.log();
    let running = log.lines().find(|line| line.contains(" running "));
    let running = running.unwrap_or_else(|| panic!("{log}"));
    let path = world.write_config(&format!("{POOL}{services}"));
    let path = path.to_str().expect("path is not UTF-8");
    let plan = weir_output(&world, &["plan", "-c", path]);
    assert_eq!(plan.matches("warning: eth0 loses ").count(), 1, "{plan}");
    let check = weir_output(&world, &["check", "-c", path]);
    assert_eq!(check.matches("warning: ").count(), 1, "{check}");
    assert!(
        check.contains("help: set vip_interface = \"eth0\" in [node]"),
        "{check}"
    );
    for vip in vips {
        assert!(running.contains(&format!("{vip} on eth0")), "{running}");
        let change = format!("- address {vip} on eth0\n");
        assert!(plan.contains(&change), "{plan}");
        let address = format!("{vip} of service");
        assert!(check.contains(&address), "{check}");
        assert!(check.contains("will be removed from eth0"), "{check}");
    }
    // The reload does remove the addresses, as the warnings state.
    world.reload(&format!("{POOL}{services}"));
    wait_for(
        "the removal of the addresses",
        Duration::from_secs(10),
        || !vips.iter().any(|vip| has_address(&world, vip)),
    );
}

#[test]
fn reload_that_removes_proxy_vips_causes_warning() {
    if privileged() {
        assert_warned_about_removed_vips(&proxy_service(), &[V4, V6]);
    }
}

#[test]
fn reload_that_removes_layer_4_vips_causes_warning() {
    if privileged() {
        let layer_4 = "[service.l4]\nlisten = [\"10.71.0.12:80\"]\nforward = \"nat\"\nsnat = true\npool = \"web\"\n";
        assert_warned_about_removed_vips(layer_4, &["10.71.0.12"]);
    }
}

/// The virtual router adds the address again, so the advice to set `vip_interface` would be wrong.
#[test]
fn reload_that_moves_vip_to_virtual_router_causes_no_warning() {
    if !privileged() {
        return;
    }
    let mut world = World::new(1);
    let vip = "10.71.0.12";
    let service = format!(
        "[service.l4]\nlisten = [\"{vip}:80\"]\nforward = \"nat\"\nsnat = true\npool = \"web\"\n"
    );
    world.start_daemon(&config(&service));
    let router = format!(
        "[vrrp.web]\ninterface = \"eth0\"\nvirtual_router_id = 51\naddresses = [\"{vip}/32\"]\n"
    );
    let path = world.write_config(&format!("{POOL}{service}{router}"));
    let path = path.to_str().expect("path is not UTF-8");
    let check = weir_output(&world, &["check", "-c", path]);
    let plan = weir_output(&world, &["plan", "-c", path]);
    for output in [&check, &plan] {
        assert!(!output.contains("eth0 loses"), "{output}");
        assert!(!output.contains("will be removed"), "{output}");
    }
    let changes = |output: &str| -> Vec<String> {
        let lines = output.lines();
        lines
            .filter(|line| line.starts_with(['+', '-', '~']))
            .map(str::to_owned)
            .collect()
    };
    let change = format!("~ address {vip} on eth0: vip_interface -> vrrp");
    assert!(plan.contains(&change), "{plan}");
    let reload = weir_output(&world, &["reload", "-c", path]);
    assert_eq!(changes(&reload), changes(&plan), "{reload}");
    wait_for(
        "the virtual router to add the address",
        Duration::from_secs(30),
        || {
            let status = weir_output(&world, &["vrrp"]);
            status.contains("active") && has_address(&world, vip)
        },
    );
}
