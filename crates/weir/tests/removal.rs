//! Tests servers that are removed while they have connections: `on_remove`, weight 0, and overrides.

mod world;

use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, TcpStream, UdpSocket};
use std::process::{Child, Stdio};
use std::sync::mpsc::channel;
use std::time::Duration;

use world::{Family, World, bracketed, full_prefix, privileged, wait_for};

const MIB: usize = 1 << 20;

fn config(on_remove: &str, servers: &str) -> String {
    format!(
        "[node]\ninterfaces = [\"eth0\"]\n[pool.web]\nscheduler = \"rr\"\non_remove = \"{on_remove}\"\nservers = \
         [{servers}]\n\
         [service.web]\nlisten = [\"{}:80\"]\nforward = \"direct\"\npool = \"web\"\n",
        Family::V4.vip()
    )
}

fn prepared_world(big_bytes: usize) -> World {
    let mut world = World::new(2);
    world.start_nginx(big_bytes);
    world.prepare_direct_servers(&Family::V4.vip());
    world
}

fn responding_server(world: &World) -> String {
    let url = format!("http://{}/name", Family::V4.vip());
    let body = world.get(&url).expect("receive a response");
    String::from_utf8_lossy(&body).trim().to_owned()
}

/// Starts a download at a limited rate (curl's `--limit-rate`) and waits for its first bytes.
fn slow_download(world: &World, rate: &str) -> Child {
    let child = world
        .command("client", "curl")
        .args(["-sS", "--max-time", "60", "--limit-rate", rate, "-o"])
        .arg(world.path("download"))
        .arg(format!("http://{}/big", Family::V4.vip()))
        .stderr(Stdio::piped())
        .spawn()
        .expect("start curl");
    wait_for("the first bytes", Duration::from_secs(10), || {
        std::fs::metadata(world.path("download")).is_ok_and(|metadata| metadata.len() > 0)
    });
    child
}

/// Starts a download from the first server and then replaces this server with the second one. Returns the network,
/// curl's output, and whether the download is complete.
fn replace_server_during_download(on_remove: &str) -> (World, std::process::Output, bool) {
    let mut world = prepared_world(12 * MIB);
    world.start_daemon(&config(on_remove, "\"10.71.0.20\""));
    // A download that is to be aborted must not end before the reload, however long that takes.
    let rate = if on_remove == "keep" { "3M" } else { "300K" };
    let curl = slow_download(&world, rate);
    let new_config = config(on_remove, "\"10.71.0.21\"");
    let path = world.write_config(&new_config);
    let plan = world.run_weir(&["plan", "-c", path.to_str().expect("path is not UTF-8")]);
    assert!(
        plan.contains("10.71.0.20") && plan.contains("1 live flow"),
        "the plan must list the server and its live flow: {plan}"
    );
    world.reload(&new_config);
    assert_eq!(responding_server(&world), "server1");
    let output = curl.wait_with_output().expect("wait for curl");
    let received = std::fs::read(world.path("download")).unwrap_or_default();
    let is_complete = received == std::fs::read(world.path("big")).expect("read the original");
    (world, output, is_complete)
}

#[test]
fn keep_does_not_interrupt_downloads() {
    if !privileged() {
        return;
    }
    let (_world, output, is_complete) = replace_server_during_download("keep");
    assert!(
        output.status.success() && is_complete,
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

#[test]
fn reset_aborts_downloads() {
    if !privileged() {
        return;
    }
    let (world, output, is_complete) = replace_server_during_download("reset");
    assert!(
        !output.status.success() && !is_complete,
        "{:#}",
        world.status()
    );
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(
        errors.to_lowercase().contains("reset"),
        "the client must receive a reset: {errors} {:#}",
        world.status()
    );
}

/// Returns an address that is routed to the director but is not configured there.
fn routed_vip(family: Family) -> IpAddr {
    match family {
        Family::V4 => Ipv4Addr::new(10, 99, 0, 10).into(),
        Family::V6 => Ipv6Addr::new(0xfd99, 0, 0, 0, 0, 0, 0, 10).into(),
    }
}

fn routed_config(family: Family, forward: &str, server: usize) -> String {
    format!(
        "[node]\ninterfaces = [\"eth0\"]\n[pool.web]\non_remove = \"reset\"\nservers = [\"{}\"]\n\
         [service.web]\nlisten = [\"{}:80\"]\nforward = \"{forward}\"\npool = \"web\"\n\
         [service.time]\nlisten = [\"udp/{}:123\"]\nforward = \"{forward}\"\npool = \"web\"\n",
        family.server(server),
        bracketed(routed_vip(family)),
        bracketed(routed_vip(family)),
    )
}

/// Calls `exchange` until the connection fails. Returns the error.
fn wait_for_error(mut exchange: impl FnMut() -> std::io::Result<()>) -> ErrorKind {
    let mut error_kind = None;
    wait_for("an error at the client", Duration::from_secs(20), || {
        error_kind = exchange().err().map(|error| error.kind());
        error_kind.is_some_and(|kind| kind != ErrorKind::WouldBlock)
    });
    error_kind.expect("no error")
}

/// Opens a TCP connection and a connected UDP socket to a routed VIP, removes their server, and asserts that both fail.
#[expect(clippy::too_many_lines, reason = "one scenario, step by step")]
fn assert_removal_rejects_clients_of_routed_vip(family: Family, forward: &str) {
    let mut world = World::new(2);
    let vip = routed_vip(family);
    world.start_nginx(1024);
    if forward == "nat" {
        world.route_replies_through_director();
    } else {
        world.prepare_servers(&["--forward", forward, "--vip", &vip.to_string()]);
    }
    world.start_udp_echo(123, |n| match forward {
        "nat" => family.server(n),
        _ => vip,
    });
    let flag = if family == Family::V6 { "-6 " } else { "" };
    world.ip(
        "client",
        &format!(
            "{flag}route add {vip}/{} via {}",
            full_prefix(family),
            family.director()
        ),
    );
    world.start_daemon(&routed_config(family, forward, 0));
    let (connected, removed) = (channel(), channel());
    let client = world.spawn_on("client", move || {
        let mut tcp = TcpStream::connect((vip, 80)).expect("connect");
        let udp = UdpSocket::bind((family.client(), 0)).expect("bind a UDP socket");
        udp.connect((vip, 123)).expect("connect the socket");
        udp.set_read_timeout(Some(Duration::from_secs(20)))
            .expect("set the read timeout");
        udp.send(b"what time is it").expect("send");
        udp.recv(&mut [0; 64]).expect("receive the echo");
        udp.set_read_timeout(Some(Duration::from_millis(50)))
            .expect("set the read timeout");
        tcp.write_all(b"GET /name HTTP/1.1\r\nHost: web\r\n\r\n")
            .expect("send");
        let mut buffer = [0; 4096];
        assert!(tcp.read(&mut buffer).expect("read a response") > 0);
        connected
            .0
            .send(())
            .expect("send the signal that the client is connected");
        removed
            .1
            .recv()
            .expect("receive the signal that the server is removed");
        let tcp_error =
            wait_for_error(|| tcp.write_all(b"GET /name HTTP/1.1\r\nHost: web\r\n\r\n"));
        let udp_error = wait_for_error(|| {
            udp.send(b"and now")?;
            udp.recv(&mut buffer).map(drop)
        });
        // The remaining server serves the same client.
        let mut stream = TcpStream::connect((vip, 80)).expect("open another connection");
        stream
            .write_all(b"GET /name HTTP/1.0\r\n\r\n")
            .expect("send");
        let mut body = String::new();
        stream.read_to_string(&mut body).expect("read the response");
        (tcp_error, udp_error, body)
    });
    connected
        .1
        .recv()
        .expect("receive the signal that the client is connected");
    world.reload(&routed_config(family, forward, 1));
    removed
        .0
        .send(())
        .expect("send the signal that the server is removed");
    let (tcp_error, udp_error, body) = client.join().expect("client thread panicked");
    assert!(
        matches!(
            tcp_error,
            ErrorKind::ConnectionReset | ErrorKind::BrokenPipe
        ),
        "{forward} {family:?}: {tcp_error}"
    );
    assert_eq!(
        udp_error,
        ErrorKind::ConnectionRefused,
        "{forward} {family:?}"
    );
    assert!(body.ends_with("server1\n"), "{forward} {family:?}: {body}");
    assert!(
        world.packet_count("reject_removed") >= 2,
        "{:#}",
        world.status()
    );
    let removed_server = world.server_status(family.server(0));
    assert_eq!(
        (
            &removed_server["active_connections"],
            &removed_server["inactive_connections"]
        ),
        (&0.into(), &1.into()),
        "{forward} {family:?}: {removed_server:#}"
    );
}

#[test]
fn clients_of_routed_vip_are_rejected_with_direct() {
    if !privileged() {
        return;
    }
    assert_removal_rejects_clients_of_routed_vip(Family::V4, "direct");
    assert_removal_rejects_clients_of_routed_vip(Family::V6, "direct");
}

#[test]
fn clients_of_routed_vip_are_rejected_with_nat_tunnel_and_l3dsr() {
    if !privileged() {
        return;
    }
    assert_removal_rejects_clients_of_routed_vip(Family::V4, "nat");
    assert_removal_rejects_clients_of_routed_vip(Family::V4, "tunnel");
    assert_removal_rejects_clients_of_routed_vip(Family::V6, "l3dsr");
}

#[test]
fn reschedule_assigns_flows_to_a_different_server() {
    if !privileged() {
        return;
    }
    let (world, output, is_complete) = replace_server_during_download("reschedule");
    // The second server does not have the connection, so it resets the connection.
    assert!(
        !output.status.success() && !is_complete,
        "{:#}",
        world.status()
    );
    assert!(world.server_status(Family::V4.server(1))["connections"].as_u64() >= Some(2));
}

#[test]
fn weight_zero_keeps_flows_but_accepts_no_new_ones() {
    if !privileged() {
        return;
    }
    let mut world = prepared_world(12 * MIB);
    world.start_daemon(&config("keep", "\"10.71.0.20\""));
    let curl = slow_download(&world, "3M");
    world.reload(&config(
        "keep",
        "{ address = \"10.71.0.20\", weight = 0 }, \"10.71.0.21\"",
    ));
    for _ in 0..4 {
        assert_eq!(responding_server(&world), "server1");
    }
    assert!(
        curl.wait_with_output()
            .expect("wait for curl")
            .status
            .success()
    );
    let expected = std::fs::read(world.path("big")).expect("read the original");
    assert!(std::fs::read(world.path("download")).expect("read the copy") == expected);
}

#[test]
fn overrides_survive_restarts() {
    if !privileged() {
        return;
    }
    let mut world = prepared_world(1024);
    let text = config("keep", "\"10.71.0.20\", \"10.71.0.21\"");
    let mut pid = world.start_daemon(&text);
    let first = || Family::V4.server(0);
    for (command, state, weight) in [
        (&["drain"][..], "drain", 0),
        (&["maint"], "maint", 0),
        (&["weight", "0"], "unchecked", 0),
        (&["weight", "5"], "unchecked", 5),
        (&["ready"], "unchecked", 1),
    ] {
        let arguments = [&["server", "web/10.71.0.20"], command].concat();
        world.run_weir(&arguments);
        for restart in [false, true] {
            if restart {
                world.kill_keeper(pid);
                pid = world.start_daemon(&text);
            }
            let server = world.server_status(first());
            assert_eq!(
                server["state"], state,
                "{command:?} restart {restart}: {server:#}"
            );
            assert_eq!(
                server["effective_weight"], weight,
                "{command:?} restart {restart}: {server:#}"
            );
            let names: Vec<String> = (0..4).map(|_| responding_server(&world)).collect();
            let is_reached = names.iter().any(|name| name == "server0");
            assert_eq!(
                is_reached,
                weight > 0,
                "{command:?} restart {restart}: {names:?}"
            );
        }
    }
}
