//! Tests of servers that are removed while they have connections: `on_remove`, weight 0, and overrides.

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

fn name(world: &World) -> String {
    let url = format!("http://{}/name", Family::V4.vip());
    let body = world.get(&url).expect("receive an answer");
    String::from_utf8_lossy(&body).trim().to_owned()
}

/// Starts a download that takes some seconds, and waits for its first bytes.
fn slow_download(world: &World) -> Child {
    let child = world
        .command("client", "curl")
        .args(["-sS", "--max-time", "30", "--limit-rate", "3M", "-o"])
        .arg(world.path("came"))
        .arg(format!("http://{}/big", Family::V4.vip()))
        .stderr(Stdio::piped())
        .spawn()
        .expect("start curl");
    wait_for("the first bytes", Duration::from_secs(10), || {
        std::fs::metadata(world.path("came")).is_ok_and(|facts| facts.len() > 0)
    });
    child
}

/// Starts a download from the first server, and then replaces this server by the second one. Returns curl's output, and
/// whether the download is complete.
fn replaced_under_a_download(on_remove: &str) -> (World, std::process::Output, bool) {
    let mut world = prepared_world(12 * MIB);
    world.start_director(&config(on_remove, "\"10.71.0.20\""));
    let curl = slow_download(&world);
    let after = config(on_remove, "\"10.71.0.21\"");
    let path = world.write_config(&after);
    let plan = world.run_weir(&["plan", "-c", path.to_str().expect("path is valid UTF-8")]);
    assert!(
        plan.contains("10.71.0.20") && plan.contains("1 live flow"),
        "the plan names what it touches: {plan}"
    );
    world.reload(&after);
    assert_eq!(name(&world), "server1");
    let output = curl.wait_with_output().expect("wait for curl");
    let received = std::fs::read(world.path("came")).unwrap_or_default();
    let whole = received == std::fs::read(world.path("big")).expect("read the original");
    (world, output, whole)
}

#[test]
fn keep_does_not_interrupt_downloads() {
    if !privileged() {
        return;
    }
    let (_world, output, whole) = replaced_under_a_download("keep");
    assert!(
        output.status.success() && whole,
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

#[test]
fn reset_aborts_downloads() {
    if !privileged() {
        return;
    }
    let (world, output, whole) = replaced_under_a_download("reset");
    assert!(!output.status.success() && !whole, "{:#}", world.status());
    let printed = String::from_utf8_lossy(&output.stderr);
    assert!(
        printed.to_lowercase().contains("reset"),
        "the client gets an error: {printed} {:#}",
        world.status()
    );
}

/// Returns an address that is routed to the director, but is not configured there.
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

/// Calls `talk` until the connection fails. Returns the error.
fn until_refused(mut talk: impl FnMut() -> std::io::Result<()>) -> ErrorKind {
    let mut refused = None;
    wait_for("an error at the client", Duration::from_secs(20), || {
        refused = talk().err().map(|error| error.kind());
        refused.is_some_and(|kind| kind != ErrorKind::WouldBlock)
    });
    refused.expect("connection has an error")
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
    world.start_director(&routed_config(family, forward, 0));
    let (connected, continues) = (channel(), channel());
    let client = world.inside("client", move || {
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
        let mut answer = [0; 4096];
        assert!(tcp.read(&mut answer).expect("read an answer") > 0);
        connected.0.send(()).expect("test receives the result");
        continues
            .1
            .recv()
            .expect("receive the signal that the server is removed");
        let over_tcp = until_refused(|| tcp.write_all(b"GET /name HTTP/1.1\r\nHost: web\r\n\r\n"));
        let over_udp = until_refused(|| {
            udp.send(b"and now")?;
            udp.recv(&mut answer).map(drop)
        });
        // The remaining server serves the same client.
        let mut again = TcpStream::connect((vip, 80)).expect("open another connection");
        again
            .write_all(b"GET /name HTTP/1.0\r\n\r\n")
            .expect("send");
        let mut body = String::new();
        again.read_to_string(&mut body).expect("read an answer");
        (over_tcp, over_udp, body)
    });
    connected.1.recv().expect("client connected");
    world.reload(&routed_config(family, forward, 1));
    continues.0.send(()).expect("client thread is waiting");
    let (over_tcp, over_udp, body) = client.join().expect("client thread panicked");
    assert!(
        matches!(over_tcp, ErrorKind::ConnectionReset | ErrorKind::BrokenPipe),
        "{forward} {family:?}: {over_tcp}"
    );
    assert_eq!(
        over_udp,
        ErrorKind::ConnectionRefused,
        "{forward} {family:?}"
    );
    assert!(body.ends_with("server1\n"), "{forward} {family:?}: {body}");
    assert!(world.packets("reject_removed") >= 2, "{:#}", world.status());
    let gone = world.server_status(family.server(0));
    assert_eq!(
        (&gone["active_connections"], &gone["inactive_connections"]),
        (&0.into(), &1.into()),
        "{forward} {family:?}: {gone:#}"
    );
}

#[test]
fn director_sends_reset() {
    if !privileged() {
        return;
    }
    assert_removal_rejects_clients_of_routed_vip(Family::V4, "direct");
    assert_removal_rejects_clients_of_routed_vip(Family::V6, "direct");
}

#[test]
fn reset_is_sent_under_every_forward() {
    if !privileged() {
        return;
    }
    assert_removal_rejects_clients_of_routed_vip(Family::V4, "nat");
    assert_removal_rejects_clients_of_routed_vip(Family::V4, "tunnel");
    assert_removal_rejects_clients_of_routed_vip(Family::V6, "l3dsr");
}

#[test]
fn reschedule_moves_flows_to_another_server() {
    if !privileged() {
        return;
    }
    let (world, output, whole) = replaced_under_a_download("reschedule");
    // The other server does not know the connection and resets it.
    assert!(!output.status.success() && !whole, "{:#}", world.status());
    assert!(world.server_status(Family::V4.server(1))["connections"].as_u64() >= Some(2));
}

#[test]
fn weight_zero_keeps_flows_but_accepts_none() {
    if !privileged() {
        return;
    }
    let mut world = prepared_world(12 * MIB);
    world.start_director(&config("keep", "\"10.71.0.20\""));
    let curl = slow_download(&world);
    world.reload(&config(
        "keep",
        "{ address = \"10.71.0.20\", weight = 0 }, \"10.71.0.21\"",
    ));
    for _ in 0..4 {
        assert_eq!(name(&world), "server1");
    }
    assert!(
        curl.wait_with_output()
            .expect("wait for curl")
            .status
            .success()
    );
    let expected = std::fs::read(world.path("big")).expect("read the original");
    assert!(std::fs::read(world.path("came")).expect("read the copy") == expected);
}

#[test]
fn overrides_survive_restarts() {
    if !privileged() {
        return;
    }
    let mut world = prepared_world(1024);
    let text = config("keep", "\"10.71.0.20\", \"10.71.0.21\"");
    let mut pid = world.start_director(&text);
    let first = || Family::V4.server(0);
    for (word, state, weight) in [
        (&["drain"][..], "drain", 0),
        (&["maint"], "maint", 0),
        (&["weight", "0"], "unchecked", 0),
        (&["weight", "5"], "unchecked", 5),
        (&["ready"], "unchecked", 1),
    ] {
        let arguments = [&["server", "web/10.71.0.20"], word].concat();
        world.run_weir(&arguments);
        for restart in [false, true] {
            if restart {
                world.kill_director(pid);
                pid = world.start_director(&text);
            }
            let server = world.server_status(first());
            assert_eq!(
                server["state"], state,
                "{word:?} restart {restart}: {server:#}"
            );
            assert_eq!(
                server["effective_weight"], weight,
                "{word:?} restart {restart}: {server:#}"
            );
            let names: Vec<String> = (0..4).map(|_| name(&world)).collect();
            let reached = names.iter().any(|name| name == "server0");
            assert_eq!(reached, weight > 0, "{word:?} restart {restart}: {names:?}");
        }
    }
}
