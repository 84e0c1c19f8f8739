//! Tests the source address, interface and PROXY header of probes as the peers receive them.

use std::io::Read;
use std::net::TcpListener;
use std::sync::mpsc::{Receiver, channel};

use super::*;

/// A second address of the director.
const SECOND_ADDRESS: &str = "10.71.0.33";
/// The director's address on its second link to the server.
const SECOND_LINK_ADDRESS: &str = "10.72.0.3";

/// Starts recording the source and the first bytes of every connection to a port of server 0.
fn start_recorder(world: &World, port: u16) -> Receiver<(String, Vec<u8>)> {
    let (sender, receiver) = channel();
    let starter = world.spawn_on("server0", move || {
        let listener = TcpListener::bind(("0.0.0.0", port)).expect("bind a listener");
        std::thread::spawn(move || {
            // If a client resets the connection immediately, record only its address.
            while let Ok((mut client, from)) = listener.accept() {
                let from = from.ip().to_string();
                let _ = client.set_read_timeout(Some(Duration::from_millis(500)));
                let mut bytes = vec![0; 512];
                let length = client.read(&mut bytes).unwrap_or(0);
                bytes.truncate(length);
                if sender.send((from, bytes)).is_err() {
                    break;
                }
            }
        });
    });
    starter.join().expect("listener thread panicked");
    receiver
}

/// Waits for a recorded probe. Returns its source and its first bytes.
fn receive_probe(recorder: &Receiver<(String, Vec<u8>)>) -> (String, Vec<u8>) {
    recorder.recv_timeout(TIMEOUT).expect("receive a probe")
}

/// Adds a second address, and a second link over which the same server can be reached.
fn add_second_link(world: &World) {
    let (director, server) = (world.namespace("director"), world.namespace("server0"));
    sh(&format!(
        "ip -n {director} link add eth1 type veth peer name eth1 netns {server}"
    ));
    let server_address = Family::V4.server(0);
    for (host, line) in [
        ("director", format!("addr add {SECOND_ADDRESS}/24 dev eth0")),
        ("director", "link set eth1 up".to_owned()),
        ("server0", "link set eth1 up".to_owned()),
        (
            "director",
            format!("addr add {SECOND_LINK_ADDRESS}/24 dev eth1"),
        ),
        ("server0", "addr add 10.72.0.20/24 dev eth1".to_owned()),
        (
            "director",
            format!("route add {server_address}/32 dev eth0 metric 100"),
        ),
        (
            "director",
            format!("route add {server_address}/32 dev eth1 metric 200"),
        ),
    ] {
        world.ip(host, &line);
    }
}

#[test]
#[expect(clippy::too_many_lines, reason = "one scenario, step by step")]
fn probes_use_configured_source_and_target() {
    if !privileged() {
        return;
    }
    let mut world = World::new(1);
    add_second_link(&world);
    let ports = 7001..=7003;
    let recorders: Vec<_> = ports.map(|port| start_recorder(&world, port)).collect();
    // nft rules on the server count datagrams and echo requests.
    let rules = format!(
        "table inet seen {{\n chain in {{\n type filter hook input priority 0;\n\
         ip saddr {SECOND_ADDRESS} icmp type echo-request counter name echo_from_source\n\
         ip saddr {SECOND_ADDRESS} udp dport 7004 counter name udp_from_source\n\
         iifname eth1 ip saddr {SECOND_LINK_ADDRESS} icmp type echo-request counter name echo_on_link\n\
         iifname eth1 tcp dport 7003 counter name tcp_on_link\n\
         iifname eth1 tcp dport != 7003 counter name unexpected\n }}\n"
    );
    let names = [
        "echo_from_source",
        "udp_from_source",
        "echo_on_link",
        "tcp_on_link",
        "unexpected",
    ];
    let counters = names
        .map(|name| format!(" counter {name} {{ }}\n"))
        .concat();
    let rules = rules.replacen("{\n", &format!("{{\n{counters}"), 1) + "}\n";
    std::fs::write(world.path("seen.nft"), rules).expect("write the file");
    let output = world.output(
        "server0",
        &format!("nft -f {}", world.path("seen.nft").display()),
    );
    assert!(output.status.success(), "{output:?}");

    let source = format!("source = \"{SECOND_ADDRESS}\"");
    let checks = [
        ("plain", "kind = \"tcp\"\nport = 7001".to_owned()),
        ("other", format!("kind = \"tcp\"\nport = 7002\n{source}")),
        (
            "side",
            "kind = \"tcp\"\nport = 7003\ninterface = \"eth1\"".to_owned(),
        ),
        ("ping", format!("kind = \"ping\"\n{source}")),
        ("echo", "kind = \"ping\"\ninterface = \"eth1\"".to_owned()),
        (
            "udp",
            format!("kind = \"udp\"\nport = 7004\npayload = \"78\"\n{source}"),
        ),
        // The director does not have this address, so the check cannot assess the server.
        (
            "absent",
            "kind = \"tcp\"\nport = 7001\nsource = \"10.71.0.99\"".to_owned(),
        ),
    ];
    world.start_daemon(&config(&checks));
    for (recorder, from) in recorders.iter().zip([
        &Family::V4.director().to_string(),
        SECOND_ADDRESS,
        SECOND_LINK_ADDRESS,
    ]) {
        for _ in 0..3 {
            assert_eq!(receive_probe(recorder).0, from);
        }
    }
    for name in ["plain", "other", "side", "ping", "echo"] {
        wait_for_state(&world, name, "up", "");
    }
    assert_eq!(server(&world, "absent")["state"], "starting");
    let packets = |name: &str| {
        let output = world.output("server0", &format!("nft list counter inet seen {name}"));
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let mut words = text
            .split_whitespace()
            .skip_while(|word| *word != "packets");
        let packets = words.nth(1).and_then(|word| word.parse::<u64>().ok());
        packets.unwrap_or_else(|| panic!("{name}: {output:?}"))
    };
    for name in [
        "echo_from_source",
        "udp_from_source",
        "echo_on_link",
        "tcp_on_link",
    ] {
        wait_for(name, TIMEOUT, || packets(name) > 1);
    }
    assert_eq!(
        packets("unexpected"),
        0,
        "only the probe with `interface` may use the second link"
    );
}

#[test]
#[expect(clippy::too_many_lines, reason = "one scenario, step by step")]
fn proxy_header_precedes_the_probe() {
    if !privileged() {
        return;
    }
    let mut world = World::new(1);
    world.ip(
        "director",
        &format!("addr add {SECOND_ADDRESS}/24 dev eth0"),
    );
    let (director, server) = (Family::V4.director(), Family::V4.server(0));
    let recorders: Vec<_> = (7001..=7004)
        .map(|port| start_recorder(&world, port))
        .collect();
    // nginx trusts the header and rejects clients that send none.
    let root = world.path("proxied").display().to_string();
    std::fs::create_dir_all(&root).expect("create a directory");
    let text = format!(
        "daemon off; master_process off; user root; pid {root}/pid; error_log {root}/error.log;\n\
         events {{ }}\nhttp {{ access_log off; client_body_temp_path {root}/b; proxy_temp_path {root}/p;\n\
         fastcgi_temp_path {root}/f; uwsgi_temp_path {root}/u; scgi_temp_path {root}/s;\n\
         server {{ listen 8080 proxy_protocol; return 200 \"from <$proxy_protocol_addr>\"; }} }}\n"
    );
    std::fs::write(world.path("proxied/nginx.conf"), text).expect("write the file");
    start(&mut world, "nginx", &["-c", &format!("{root}/nginx.conf")]);
    wait_for_port(&world, 8080);

    let http = |extra: &str, from: &str| {
        format!("kind = \"http\"\nport = 8080\nexpect = {{ body = \"from <{from}>\" }}\n{extra}")
    };
    let (v1, v2) = ("proxy_protocol = \"v1\"", "proxy_protocol = \"v2\"");
    let source = format!("{v1}\nsource = \"{SECOND_ADDRESS}\"");
    let checks = [
        ("one", http(v1, &director.to_string())),
        ("two", http(v2, "")),
        ("other", http(&source, SECOND_ADDRESS)),
        ("none", http("", &director.to_string())),
        ("tcp", format!("kind = \"tcp\"\nport = 7001\n{v1}")),
        (
            "agent",
            format!("kind = \"agent\"\nport = 7002\nsend = \"hello\"\n{v2}"),
        ),
        (
            "tls",
            format!("kind = \"tls\"\nport = 7003\nverify = false\n{v1}"),
        ),
        ("redis", format!("kind = \"redis\"\nport = 7004\n{source}")),
    ];
    world.start_daemon(&config(&checks));
    for name in ["one", "two", "other"] {
        wait_for_state(&world, name, "up", "");
    }
    wait_for_state(&world, "none", "down", "");

    let header = |from: &dyn std::fmt::Display| format!("PROXY TCP4 {from} {server} ");
    let (_, tcp) = receive_probe(&recorders[0]);
    assert!(tcp.starts_with(header(&director).as_bytes()), "{tcp:?}");
    assert!(tcp.ends_with(b" 7001\r\n"), "{tcp:?}");
    // Version 2 with the command LOCAL marks a connection from the director itself.
    let (_, agent) = receive_probe(&recorders[1]);
    let local = b"\r\n\r\n\0\r\nQUIT\n\x20\0\0\0";
    assert!(agent.starts_with(local), "{agent:?}");
    let (_, tls) = receive_probe(&recorders[2]);
    let end = tls
        .windows(2)
        .position(|pair| pair == b"\r\n")
        .expect("no end of the header")
        + 2;
    assert!(tls.starts_with(header(&director).as_bytes()), "{tls:?}");
    assert!(
        tls.get(end).is_none_or(|byte| *byte == 0x16),
        "a handshake must follow the header: {tls:?}"
    );
    let (from, redis) = receive_probe(&recorders[3]);
    assert_eq!(from, SECOND_ADDRESS);
    assert!(
        redis.starts_with(header(&SECOND_ADDRESS).as_bytes()),
        "{redis:?}"
    );
}
