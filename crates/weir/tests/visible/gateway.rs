//! Under `nat` without `snat`, a server whose gateway is not the director: a warning, and no more than that.

use serde_json::Value;

use super::PATIENCE;
use super::world::{Family, World, bracketed, full_prefix, privileged, sh, wait_for};

fn config(family: Family) -> String {
    format!(
        "[node]\ninterfaces = [\"eth0\"]\n\n\
         [pool.web]\nscheduler = \"rr\"\nservers = [\"{}\", \"{}\"]\n\
         [pool.web.check]\nkind = \"http\"\npath = \"/name\"\ninterval = \"200ms\"\ntimeout = \"500ms\"\n\n\
         [service.web]\nlisten = [\"{}:80\"]\nforward = \"nat\"\npool = \"web\"\n",
        family.server(0),
        family.server(1),
        bracketed(family.vip())
    )
}

/// Three more addresses of the client's, as many clients.
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

/// Each client asks `times`; how many answers came.
fn ask(world: &World, family: Family, times: usize) -> usize {
    let url = format!("http://{}/name", bracketed(family.vip()));
    let asked: Vec<_> = clients(family)
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
                .expect("curl starts")
        })
        .collect();
    let ended = asked
        .into_iter()
        .map(|mut child| child.wait().expect("curl ends"));
    ended.filter(std::process::ExitStatus::success).count()
}

fn warning(world: &World, family: Family, n: usize) -> Value {
    world.server_status(family.server(n))["warning"].clone()
}

/// Routes of a server to the clients by way of the director.
fn route(world: &World, family: Family, n: usize, change: &str) {
    let flag = if family == Family::V6 { "-6 " } else { "" };
    for address in clients(family) {
        let (length, director) = (full_prefix(family), family.director());
        world.ip(
            &format!("server{n}"),
            &format!("{flag}route {change} {address}/{length} via {director}"),
        );
    }
}

fn found(family: Family) {
    if !privileged() {
        return;
    }
    let mut world = World::new(2);
    world.start_nginx(64);
    add_clients(&world, family);
    world.start_director(&config(family));
    wait_for("both servers", PATIENCE, || {
        (0..2).all(|n| world.server_status(family.server(n))["state"] == "up")
    });
    assert_eq!(ask(&world, family, 3), 0, "replies go past the director");
    wait_for("warnings", PATIENCE, || {
        (0..2).all(|n| warning(&world, family, n)["reason"].is_string())
    });
    for n in 0..2 {
        let server = world.server_status(family.server(n));
        assert_eq!(
            (&server["state"], &server["effective_weight"]),
            (&"up".into(), &1.into())
        );
        let reason = server["warning"]["reason"].as_str().expect("a reason");
        assert!(
            reason.contains("got no reply through the director"),
            "{reason}"
        );
        let name = family.server(n).to_string();
        let text = world.says(&["status"]);
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
        let log = world.log();
        let logged = log
            .lines()
            .filter(|it| it.contains("get no reply") && it.contains(&name));
        assert_eq!(logged.count(), 1, "{log}");
    }

    // One server gets its route: its warning goes with the first replies, the other's stays.
    route(&world, family, 0, "add");
    wait_for("the end of one warning", PATIENCE, || {
        ask(&world, family, 1);
        warning(&world, family, 0).is_null()
    });
    assert!(warning(&world, family, 1)["reason"].is_string());
    assert!(world.log().contains("come through the director again"));
}

#[test]
fn servers_with_another_gateway_get_a_warning_until_they_reply() {
    found(Family::V4);
}

#[test]
fn servers_with_another_gateway_get_a_warning_until_they_reply_v6() {
    found(Family::V6);
}

#[test]
fn a_dead_server_is_down_and_has_no_warning() {
    if !privileged() {
        return;
    }
    let family = Family::V4;
    let mut world = World::new(2);
    world.start_nginx(64);
    add_clients(&world, family);
    for n in 0..2 {
        route(&world, family, n, "add");
    }
    world.start_director(&config(family));
    wait_for("both servers", PATIENCE, || {
        (0..2).all(|n| world.server_status(family.server(n))["state"] == "up")
    });
    assert_eq!(ask(&world, family, 3), 9);
    let server1 = world.namespace("server1");
    sh(&format!("ip -n {server1} link set eth0 down"));
    ask(&world, family, 3);
    wait_for("the check", PATIENCE, || {
        world.server_status(family.server(1))["state"] == "down"
    });
    assert!((0..2).all(|n| warning(&world, family, n).is_null()));
    assert!(!world.log().contains("get no reply"));
}
