//! VIPs of proxy services: added by `vip_interface`, announced, and removed again, with and without a layer 4 engine.

mod world;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use world::{Family, World, bracketed, privileged, wait_for};

const V4: &str = "10.71.0.11";
const V6: &str = "fd71::11";

const POOL: &str = "[pool.web]\nservers = [\"10.71.0.20\"]\n";

fn proxy() -> String {
    format!(
        "[service.www]\nlisten = [\"{V4}:80\", \"[{V6}]:80\"]\nforward = \"proxy\"\nprotocol = \"http\"\npool = \
         \"web\"\n"
    )
}

fn other(address: &str) -> String {
    format!(
        "[service.other]\nlisten = [\"{address}\"]\nforward = \"proxy\"\nprotocol = \"http\"\npool = \"web\"\n"
    )
}

fn config(services: &str) -> String {
    format!("[node]\nvip_interface = \"eth0\"\n{POOL}{services}")
}

fn has(world: &World, vip: &str) -> bool {
    let output = world.output("director", "ip -o addr show dev eth0");
    String::from_utf8_lossy(&output.stdout).contains(&format!("{vip}/"))
}

fn vip_state(world: &World, service: &str) -> String {
    let status = world.status();
    let services = status["services"].as_array().expect("services").iter();
    let mut found = services.filter(|it| it["name"] == service);
    let found = found.next().unwrap_or_else(|| panic!("{status:#}"));
    found["vip"].as_str().expect("a word").to_owned()
}

#[test]
fn proxy_vip_is_added_announced_and_removed() {
    if !privileged() {
        return;
    }
    let mut world = World::new(1);
    world.start_nginx(1024);
    // A neighbour with another MAC address in its table is corrected by the announcement alone.
    for vip in [V4, V6] {
        world.ip(
            "client",
            &format!("neigh add {vip} lladdr 02:00:00:00:00:99 dev eth0 nud stale"),
        );
    }
    let pid = world.start_director(&config(&proxy()));
    for vip in [V4, V6] {
        assert!(has(&world, vip), "{vip} was not added");
        wait_for("the announcement", Duration::from_secs(10), || {
            let known = world.output("client", &format!("ip neigh show {vip}"));
            !String::from_utf8_lossy(&known.stdout).contains("02:00:00:00:00:99")
        });
        let url = format!(
            "http://{}/name",
            bracketed(vip.parse().expect("an address"))
        );
        world.get(&url).unwrap_or_else(|error| panic!("{error}"));
    }
    assert_eq!(vip_state(&world, "www"), "added");
    let pins = world.pin_dir("director");
    assert!(!pins.exists(), "a proxy alone needs no data plane");
    // An address that another program removes is restored.
    world.ip("director", &format!("addr del {V4}/32 dev eth0"));
    wait_for("the address again", Duration::from_secs(10), || {
        has(&world, V4)
    });
    // If a service is removed, its address is removed; an address that was there before stays.
    world.reload(&config(&other("10.71.0.10:80")));
    assert!(!has(&world, V4) && !has(&world, V6), "nothing needs them");
    assert_eq!(vip_state(&world, "other"), "local");
    world.reload(&config(&proxy()));
    world.kill_director(pid);
    let printed = world.run_weir(&["clean"]);
    assert!(!has(&world, V4) && !has(&world, V6), "clean removes them");
    assert!(
        printed.contains(&format!("{V4} removed from eth0\n")),
        "{printed}"
    );
    assert!(has(&world, "10.71.0.10"));
}

/// Interfaces are recorded by name: a command in another namespace must not change those that have the same names
/// there, and must not forget the record.
#[test]
fn clean_in_another_namespace_is_refused() {
    if !privileged() {
        return;
    }
    let mut world = World::new(1);
    world.start_nginx(1024);
    let pid = world.start_director(&config(&format!(
        "{}[service.l4]\nlisten = [\"10.71.0.12:80\"]\nforward = \"direct\"\npool = \"web\"\n",
        proxy()
    )));
    world.kill_director(pid);
    // An address with the same name and interface, which Weir has not added.
    world.ip("client", "addr add 10.71.0.12/32 dev eth0");
    let clean = |arguments: &[&str]| {
        let output = world
            .weir("client")
            .env("WEIR_RUNTIME_DIR", world.path("run-director"))
            .env("WEIR_PIN_DIR", world.pin_dir("director"))
            .arg("clean")
            .args(arguments)
            .output()
            .expect("weir runs");
        let text = [output.stdout, output.stderr].concat();
        (
            output.status.code(),
            String::from_utf8_lossy(&text).into_owned(),
        )
    };
    let on_client = || {
        let output = world.output("client", "ip -o addr show dev eth0");
        String::from_utf8_lossy(&output.stdout).contains("10.71.0.12/")
    };
    let (code, printed) = clean(&[]);
    let command = format!(
        "nsenter --net=/run/netns/{} weir clean",
        world.namespace("director")
    );
    assert!(code == Some(1) && printed.contains(&command), "{printed}");
    assert!(world.pin_dir("director").exists(), "nothing was removed");

    let (code, printed) = clean(&["--force"]);
    assert_eq!(code, Some(0), "{printed}");
    let kept = format!(
        "10.71.0.12 on eth0 in /run/netns/{} is not removed",
        world.namespace("director")
    );
    assert!(printed.contains(&kept), "{printed}");
    assert!(on_client() && has(&world, "10.71.0.12"), "{printed}");
    assert!(!world.pin_dir("director").exists());
}

#[test]
fn open_connection_keeps_its_vip() {
    if !privileged() {
        return;
    }
    let mut world = World::new(1);
    world.start_nginx(1024);
    world.start_director(&config(&proxy()));
    let held = world.inside("client", || {
        let mut stream = TcpStream::connect((V4, 80)).expect("it connects");
        stream
            .set_read_timeout(Some(Duration::from_secs(10)))
            .expect("a limit");
        stream
            .write_all(b"GET /name HTTP/1.1\r\nHost: a\r\n")
            .expect("sent");
        stream
    });
    let mut held = held.join().expect("connected");
    // A request is in progress: a reload does not abort it.
    world.reload(&config(&other(&format!("[{V6}]:80"))));
    assert!(has(&world, V4), "a connection needs it");
    held.write_all(b"Connection: close\r\n\r\n").expect("sent");
    let mut answer = String::new();
    held.read_to_string(&mut answer).expect("it is answered");
    assert!(answer.contains("200 OK"), "{answer}");
    drop(held);
    wait_for("its end", Duration::from_secs(20), || !has(&world, V4));
    assert!(has(&world, V6));
}

#[test]
fn engine_takes_over_vips() {
    if !privileged() {
        return;
    }
    let mut world = World::new(1);
    world.start_nginx(1024);
    let pid = world.start_director(&config(&proxy()));
    let layer_4 = "[service.l4]\nlisten = [\"10.71.0.12:80\"]\nforward = \"nat\"\nsnat = true\npool = \"web\"\n";
    world.reload(&config(&format!("{}{layer_4}", proxy())));
    assert!(has(&world, V4) && has(&world, "10.71.0.12"));
    assert_eq!(vip_state(&world, "www"), "added");
    let url = format!("http://{}/name", bracketed(V4.parse().expect("an address")));
    world.get(&url).unwrap_or_else(|error| panic!("{error}"));
    // Another daemon still knows them.
    world.kill_director(pid);
    let pid = world.start_director(&config(layer_4));
    wait_for("the proxy's address to go", Duration::from_secs(10), || {
        !has(&world, V4)
    });
    world.kill_director(pid);
    world.run_weir(&["clean"]);
    assert!(!has(&world, "10.71.0.12"));
    let vip = Family::V4.vip().to_string();
    assert!(has(&world, &vip), "the one found there stays");
}

#[test]
fn missing_proxy_vip_is_reported() {
    if !privileged() {
        return;
    }
    let mut world = World::new(1);
    let without = format!("{POOL}{}", proxy());
    let path = world.write_config(&without);
    let check = world
        .weir("director")
        .args(["check", "-c"])
        .arg(&path)
        .output();
    let check = check.expect("weir runs");
    let text = String::from_utf8_lossy(&check.stderr).into_owned()
        + &String::from_utf8_lossy(&check.stdout);
    assert!(
        text.contains(&format!("{V4} of service www is on no interface")),
        "{text}"
    );
    assert!(
        text.contains("connections cannot reach the service"),
        "{text}"
    );
    world.start_director(&without);
    assert_eq!(vip_state(&world, "www"), "absent");
    let doctor = world
        .weir("director")
        .args(["doctor", "-c"])
        .arg(&path)
        .output();
    let doctor = doctor.expect("weir runs");
    let text = String::from_utf8_lossy(&doctor.stdout);
    assert!(
        text.contains(&format!("the VIP {V4} is on no interface")),
        "{text}"
    );
}

/// What `weir` prints to both streams.
fn printed(world: &World, arguments: &[&str]) -> String {
    let output = world.weir("director").args(arguments).output();
    let output = output.expect("weir runs");
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

fn without_vip_interface_it_is_warned_about(services: &str, vips: &[&str]) {
    let mut world = World::new(1);
    world.start_director(&config(services));
    assert!(vips.iter().all(|vip| has(&world, vip)));
    let log = world.log();
    let running = log.lines().find(|line| line.contains(" running "));
    let running = running.unwrap_or_else(|| panic!("{log}"));
    let path = world.write_config(&format!("{POOL}{services}"));
    let path = path.to_str().expect("a plain path");
    let plan = printed(&world, &["plan", "-c", path]);
    assert_eq!(plan.matches("warning: eth0 loses ").count(), 1, "{plan}");
    let check = printed(&world, &["check", "-c", path]);
    assert_eq!(check.matches("warning: ").count(), 1, "{check}");
    assert!(
        check.contains("help: write vip_interface = \"eth0\" in [node]"),
        "{check}"
    );
    for vip in vips {
        assert!(running.contains(&format!("{vip} on eth0")), "{running}");
        let gone = format!("- address {vip} on eth0\n");
        assert!(plan.contains(&gone), "{plan}");
        let removed = format!("{vip} of service");
        assert!(check.contains(&removed), "{check}");
        assert!(check.contains("will be removed from eth0"), "{check}");
    }
    // The warning is correct.
    world.reload(&format!("{POOL}{services}"));
    wait_for("the addresses to go", Duration::from_secs(10), || {
        !vips.iter().any(|vip| has(&world, vip))
    });
}

#[test]
fn addresses_that_a_reload_removes_are_warned_about() {
    if privileged() {
        without_vip_interface_it_is_warned_about(&proxy(), &[V4, V6]);
    }
}

#[test]
fn addresses_that_an_engine_removes_are_warned_about() {
    if privileged() {
        let layer_4 = "[service.l4]\nlisten = [\"10.71.0.12:80\"]\nforward = \"nat\"\nsnat = true\npool = \"web\"\n";
        without_vip_interface_it_is_warned_about(layer_4, &["10.71.0.12"]);
    }
}
