//! Tests the diagnosis of servers in a `nat` service without `snat` whose gateway is not the director.
//!
//! Such a server causes a warning. It is ejected only if it has no check.

use serde_json::Value;

use super::TIMEOUT;
use super::world::{Family, World, bracketed, full_prefix, privileged, sh, wait_for};

/// The VIP of a `direct` service with the same pool.
const SECOND_VIP: &str = "10.71.0.11";

/// Returns a configuration with a small flow table: the daemon reads the whole table to distinguish clients, and reads
/// a larger table less often.
fn config(family: Family) -> String {
    format!(
        "[node]\ninterfaces = [\"eth0\"]\nmax_flows = 16384\n\n\
         [pool.web]\nscheduler = \"rr\"\nservers = [\"{}\", \"{}\"]\n\
         [pool.web.check]\nkind = \"http\"\npath = \"/name\"\ninterval = \"200ms\"\ntimeout = \"500ms\"\n\n\
         [service.web]\nlisten = [\"{}:80\"]\nforward = \"nat\"\npool = \"web\"\n",
        family.server(0),
        family.server(1),
        bracketed(family.vip())
    )
}

const CHECK: &str = "[pool.web.check]\nkind = \"http\"\npath = \"/name\"\ninterval = \"200ms\"\ntimeout = \"500ms\"\n";

/// Returns a configuration in which a `nat` and a `direct` service share a pool with this check.
fn config_with_shared_pool(check: &str) -> String {
    let text = config(Family::V4).replace(CHECK, check);
    assert_eq!(text.contains(CHECK), check == CHECK);
    format!(
        "{text}[service.second]\nlisten = [\"{SECOND_VIP}:80\"]\nforward = \"direct\"\npool = \"web\"\n"
    )
}

/// Returns a network with the shared pool. Only server 0 sends replies of the `nat` service to the director.
fn shared_world(check: &str) -> World {
    let mut world = World::new(2);
    world.start_nginx(64);
    add_clients(&world, Family::V4);
    world.ip("director", &format!("addr add {SECOND_VIP}/32 dev eth0"));
    world.prepare_direct_servers(&SECOND_VIP);
    return_through_director(&world, 0, "add");
    return_through_director(&world, 1, "add");
    return_through_director(&world, 1, "del");
    world.start_daemon(&config_with_shared_pool(check));
    world
}

/// Changes the routes for replies from a server's own address, but not from a VIP, through the director.
fn return_through_director(world: &World, n: usize, change: &str) {
    let (host, director) = (format!("server{n}"), Family::V4.director());
    let server = Family::V4.server(n);
    world.ip(&host, &format!("rule {change} from {server} lookup 100"));
    for client in clients(Family::V4) {
        world.ip(
            &host,
            &format!("route {change} {client}/32 via {director} table 100"),
        );
    }
}

fn server_of(world: &World, service: &str, n: usize) -> Value {
    let status = world.status();
    let mut services = status["services"]
        .as_array()
        .expect("services is not an array")
        .iter();
    let service = services
        .find(|it| it["name"] == service)
        .expect("service not found");
    let mut servers = service["servers"]
        .as_array()
        .expect("servers is not an array")
        .iter();
    let address = Family::V4.server(n).to_string();
    servers
        .find(|it| it["address"] == address)
        .expect("server not found")
        .clone()
}

/// Returns whether a server has weight 1 and is not ejected.
fn is_used(world: &World, service: &str, n: usize) -> bool {
    let server = server_of(world, service, n);
    server["ejected"].is_null() && server["effective_weight"] == 1
}

/// Returns three additional addresses of the client host, each of which counts as a client.
fn clients(family: Family) -> Vec<String> {
    (40..43).map(|n| family.host(n).to_string()).collect()
}

fn add_clients(world: &World, family: Family) {
    for address in clients(family) {
        let nodad = if family == Family::V6 { " nodad" } else { "" };
        let length = full_prefix(family);
        world.ip(
            "client",
            &format!("addr add {address}/{length} dev eth0{nodad}"),
        );
    }
}

/// Sends `times` requests from each client. Returns the number of responses.
fn count_responses(world: &World, family: Family, times: usize) -> usize {
    let url = format!("http://{}/name", bracketed(family.vip()));
    let children: Vec<_> = clients(family)
        .into_iter()
        .flat_map(|address| (0..times).map(move |_| address.clone()))
        .map(|address| {
            world
                .command("client", "curl")
                .args([
                    "-s",
                    "-g",
                    "-o",
                    "/dev/null",
                    "-m",
                    "2",
                    "--interface",
                    &address,
                    &url,
                ])
                .spawn()
                .expect("start curl")
        })
        .collect();
    let statuses = children
        .into_iter()
        .map(|mut child| child.wait().expect("wait for curl"));
    statuses.filter(std::process::ExitStatus::success).count()
}

/// Sends a request. Returns whether there was a response within half a second.
fn fetch_once(world: &World, family: Family) -> bool {
    let (client, url) = (
        clients(family)[0].clone(),
        format!("http://{}/name", bracketed(family.vip())),
    );
    let options = ["-s", "-g", "-o", "/dev/null", "-m", "0.5", "--interface"];
    let mut curl = world.command("client", "curl");
    curl.args(options).args([&client, &url]);
    curl.status().expect("start curl").success()
}

fn warning(world: &World, family: Family, n: usize) -> Value {
    world.server_status(family.server(n))["warning"].clone()
}

/// Changes a server's routes to the clients through the director.
fn change_routes(world: &World, family: Family, n: usize, change: &str) {
    let flag = if family == Family::V6 { "-6 " } else { "" };
    for address in clients(family) {
        let (length, director) = (full_prefix(family), family.director());
        world.ip(
            &format!("server{n}"),
            &format!("{flag}route {change} {address}/{length} via {director}"),
        );
    }
}

fn assert_warned_until_reply(family: Family) {
    if !privileged() {
        return;
    }
    let mut world = World::new(2);
    world.start_nginx(64);
    add_clients(&world, family);
    world.start_daemon(&config(family));
    wait_for("both servers", TIMEOUT, || {
        (0..2).all(|n| world.server_status(family.server(n))["state"] == "up")
    });
    assert_eq!(
        count_responses(&world, family, 3),
        0,
        "replies must bypass the director"
    );
    wait_for("warnings", TIMEOUT, || {
        count_responses(&world, family, 1);
        (0..2).all(|n| warning(&world, family, n)["reason"].is_string())
    });
    for n in 0..2 {
        let server = world.server_status(family.server(n));
        assert_eq!(
            (&server["state"], &server["effective_weight"]),
            (&"up".into(), &1.into())
        );
        let reason = server["warning"]["reason"]
            .as_str()
            .expect("reason is not a string");
        assert!(
            reason.contains("received no reply through the director"),
            "{reason}"
        );
        let name = family.server(n).to_string();
        let text = world.run_weir(&["status"]);
        assert!(text.contains(&format!("warning: {name}: ")), "{text}");
        let doctor = world.output_of("doctor");
        assert!(
            doctor.contains(&format!("server {name} of web: ")),
            "{doctor}"
        );
        assert!(
            doctor.contains(&format!("default via {}", family.director())),
            "{doctor}"
        );
        for output in [&text, &doctor] {
            assert!(output.contains(" (last seen "), "{output}");
        }
        let end = "ends with the server's next reply to a client, or 5 min after the last SYN";
        assert!(doctor.contains(end), "{doctor}");
        let log = world.log();
        let logged = log
            .lines()
            .filter(|it| it.contains("receive no replies") && it.contains(&name));
        assert_eq!(logged.count(), 1, "{log}");
    }

    // Add the route of one server: its warning ends with the first reply. The other server's warning remains.
    change_routes(&world, family, 0, "add");
    wait_for("a response", TIMEOUT, || fetch_once(&world, family));
    let ended = warning(&world, family, 0);
    assert!(ended.is_null(), "{ended}");
    assert!(warning(&world, family, 1)["reason"].is_string());
    wait_for("the log", TIMEOUT, || {
        world.log().contains("pass through the director again")
    });
}

#[test]
fn wrong_gateway_causes_warning_until_server_replies() {
    assert_warned_until_reply(Family::V4);
}

#[test]
fn wrong_gateway_causes_warning_until_server_replies_v6() {
    assert_warned_until_reply(Family::V6);
}

/// The VIP is on the servers' network, so a server replies to a probe from the VIP directly.
#[test]
fn path_check_passes_with_wrong_gateway_and_clients_cause_warning() {
    if !privileged() {
        return;
    }
    let family = Family::V4;
    let mut world = World::new(2);
    world.start_nginx(64);
    add_clients(&world, family);
    let path = CHECK.to_owned() + "via = \"path\"\n";
    world.start_daemon(&config(family).replace(CHECK, &path));
    let both_up =
        |world: &World| (0..2).all(|n| world.server_status(family.server(n))["state"] == "up");
    wait_for("both servers", TIMEOUT, || both_up(&world));
    wait_for("warnings", TIMEOUT, || {
        count_responses(&world, family, 1);
        (0..2).all(|n| warning(&world, family, n)["reason"].is_string())
    });
    assert!(both_up(&world), "{:#}", world.status());
}

#[test]
fn dead_server_is_down_without_warning() {
    if !privileged() {
        return;
    }
    let family = Family::V4;
    let mut world = World::new(2);
    world.start_nginx(64);
    add_clients(&world, family);
    for n in 0..2 {
        change_routes(&world, family, n, "add");
    }
    world.start_daemon(&config(family));
    wait_for("both servers", TIMEOUT, || {
        (0..2).all(|n| world.server_status(family.server(n))["state"] == "up")
    });
    assert_eq!(count_responses(&world, family, 3), 9);
    let server1 = world.namespace("server1");
    sh(&format!("ip -n {server1} link set eth0 down"));
    count_responses(&world, family, 3);
    wait_for("the check", TIMEOUT, || {
        world.server_status(family.server(1))["state"] == "down"
    });
    assert!((0..2).all(|n| warning(&world, family, n).is_null()));
    assert!(!world.log().contains("receive no replies"));
}

/// The other server replies to clients, so the server with the wrong gateway is an outlier, but its check shows that it
/// is alive.
#[test]
fn server_with_wrong_gateway_is_not_ejected_while_its_check_passes() {
    if !privileged() {
        return;
    }
    let world = shared_world(CHECK);
    wait_for("both servers", TIMEOUT, || {
        (0..2).all(|n| world.server_status(Family::V4.server(n))["state"] == "up")
    });
    wait_for("a warning", TIMEOUT, || {
        count_responses(&world, Family::V4, 4);
        server_of(&world, "web", 1)["warning"].is_object()
    });
    for service in ["web", "second"] {
        assert!(
            (0..2).all(|n| is_used(&world, service, n)),
            "{:#}",
            world.status()
        );
    }
    assert!(server_of(&world, "web", 0)["warning"].is_null());
    assert!(server_of(&world, "second", 1)["warning"].is_null());
    let log = world.log();
    assert!(!log.contains("a server was ejected"), "{log}");
    let doctor = world.output_of("doctor");
    assert!(doctor.contains("server 10.71.0.21 of web: "), "{doctor}");
    // The director must not be the gateway of a server that replies to clients of `second` from the VIP.
    assert!(
        doctor.contains("set `snat = true` in [service.web]"),
        "{doctor}"
    );
    assert!(!doctor.contains("is ejected"), "{doctor}");
}

/// The gateway of a server changes while the server has clients. Weir may consider the server dead until a later probe
/// passes.
#[test]
fn server_with_changed_gateway_returns_with_a_warning() {
    if !privileged() {
        return;
    }
    let world = shared_world(CHECK);
    return_through_director(&world, 1, "add");
    wait_for("replies from both servers", TIMEOUT, || {
        count_responses(&world, Family::V4, 2);
        (0..2).all(|n| server_of(&world, "web", n)["handshakes"]["finished"].as_u64() > Some(2))
    });
    return_through_director(&world, 1, "del");
    wait_for("a warning", TIMEOUT, || {
        count_responses(&world, Family::V4, 4);
        server_of(&world, "web", 1)["warning"].is_object()
    });
    for _ in 0..3 {
        assert!(is_used(&world, "web", 1), "{:#}", world.status());
        count_responses(&world, Family::V4, 4);
    }
    assert!(is_used(&world, "second", 1));
    return_through_director(&world, 1, "add");
    wait_for("the warning to be cleared", TIMEOUT, || {
        count_responses(&world, Family::V4, 2);
        server_of(&world, "web", 1)["warning"].is_null()
    });
}

/// Without a check, a server that does not reply may be dead. Weir ejects it only from the service whose clients get no
/// reply.
#[test]
fn ejection_affects_only_service_without_replies() {
    if !privileged() {
        return;
    }
    let world = shared_world("");
    wait_for("the ejection", TIMEOUT, || {
        count_responses(&world, Family::V4, 4);
        server_of(&world, "web", 1)["ejected"].is_object()
    });
    assert!(is_used(&world, "web", 0));
    for n in 0..2 {
        assert!(is_used(&world, "second", n), "{:#}", world.status());
    }
    let doctor = world.output_of("doctor");
    assert!(
        doctor.contains("server 10.71.0.21 of web is ejected"),
        "{doctor}"
    );
    assert!(
        doctor.contains("its replies do not return through this machine"),
        "{doctor}"
    );
    assert!(!doctor.contains("of second is ejected"), "{doctor}");
}

/// An operator who tries out a service may use only one client.
#[test]
fn one_client_on_server_segment_triggers_warning() {
    if !privileged() {
        return;
    }
    let family = Family::V4;
    let mut world = World::new(2);
    world.start_nginx(64);
    add_clients(&world, family);
    world.start_daemon(&config(family));
    wait_for("both servers", TIMEOUT, || {
        (0..2).all(|n| world.server_status(family.server(n))["state"] == "up")
    });
    let client = clients(family)[0].clone();
    let url = format!("http://{}/name", family.vip());
    let curl = world
        .command("client", "curl")
        .args(["-s", "-m", "60", "--interface", &client, &url])
        .spawn()
        .expect("start curl");
    world.kill_on_drop(curl);
    let reasons = || {
        (0..2).filter_map(|n| {
            warning(&world, family, n)["reason"]
                .as_str()
                .map(str::to_owned)
        })
    };
    wait_for("a warning", TIMEOUT, || reasons().count() == 1);
    let reason = reasons().next().unwrap_or_default();
    let cause = format!("the client {client} is on the server's own segment");
    assert!(reason.contains(&cause), "{reason}");
    let doctor = world.output_of("doctor");
    assert!(
        doctor.contains(&cause) && doctor.contains("snat = true"),
        "{doctor}"
    );
}
