//! Tests every kind of check that evaluates responses, with every kind of hostile server.
//!
//! All servers are reported down, and probing continues.

mod world;

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::time::{Duration, Instant};

use world::{Family, World, privileged, wait_for};

const TIMEOUT: Duration = Duration::from_secs(30);

/// The kind of check, the keys that it requires, and the first bytes of a good server's response.
const STREAMS: [(&str, &str, &[u8]); 9] = [
    ("http", "", b"HTTP/1.1 200 OK\r\nServer: ha"),
    ("https", "verify = false", &[22, 3, 3, 0, 122, 2, 0, 0, 118]),
    ("tls", "verify = false", &[22, 3, 3, 0, 122, 2, 0, 0, 118]),
    ("grpc", "", &[0, 0, 18, 4, 0, 0, 0, 0, 0, 0, 3]),
    ("smtp", "", b"220 mail.exam"),
    ("redis", "", b"+PO"),
    ("mysql", "", &[74, 0, 0, 0, 10, b'5', b'.']),
    ("postgres", "", &[b'R', 0, 0]),
    ("agent", "", b"up 50"),
];

const DATAGRAMS: [(&str, &str, &[u8]); 2] = [
    (
        "dns",
        "query = \"www.example\"",
        &[0, 1, 0x81, 0x80, 0, 1, 0],
    ),
    (
        "udp",
        "payload = \"00\"\nexpect = { bytes = \"01 02 03\" }",
        &[1, 2],
    ),
];

/// Behavior of a hostile server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Behavior {
    /// The server does not listen on the port.
    Refused,
    /// The server sends no data.
    Silent,
    /// The server sends the beginning of a good response and closes the connection.
    Truncated,
    /// The server sends data until the probe closes the connection, or 200 datagrams over UDP.
    Endless,
    /// The server sends bytes that are not a valid response.
    Garbage,
    /// The server sends the beginning of a good response slowly and repeatedly, or nothing over UDP.
    Drip,
}

const BEHAVIORS: [Behavior; 6] = [
    Behavior::Refused,
    Behavior::Silent,
    Behavior::Truncated,
    Behavior::Endless,
    Behavior::Garbage,
    Behavior::Drip,
];

const NOISE: [u8; 64] = [0xff; 64];

fn port(kind: usize, behavior: usize) -> u16 {
    u16::try_from(8000 + 10 * kind + behavior).expect("number fits in 16 bits")
}

fn serve_stream(mut client: TcpStream, behavior: Behavior, beginning: &'static [u8]) {
    let _ = client.set_write_timeout(Some(Duration::from_secs(5)));
    match behavior {
        Behavior::Refused => return,
        Behavior::Silent => {}
        Behavior::Truncated => {
            let _ = client.write_all(beginning);
            return;
        }
        Behavior::Endless => {
            while client.write_all(&[b'x'; 4096]).is_ok() {}
            return;
        }
        Behavior::Garbage => drop(client.write_all(&NOISE)),
        Behavior::Drip => {
            for byte in beginning.iter().cycle() {
                if client.write_all(&[*byte]).is_err() {
                    return;
                }
                std::thread::sleep(Duration::from_millis(200));
            }
        }
    }
    // Wait until the probe times out.
    while client.read(&mut [0; 512]).is_ok_and(|length| length > 0) {}
}

fn start_stream_server(world: &World, port: u16, behavior: Behavior, beginning: &'static [u8]) {
    let starter = world.spawn_on("server0", move || {
        let listener = TcpListener::bind(("0.0.0.0", port)).expect("bind a listener");
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                std::thread::spawn(move || serve_stream(client, behavior, beginning));
            }
        });
    });
    starter.join().expect("listener thread panicked");
}

fn start_datagram_server(world: &World, port: u16, behavior: Behavior, beginning: &'static [u8]) {
    let starter = world.spawn_on("server0", move || {
        let socket = UdpSocket::bind(("0.0.0.0", port)).expect("bind a UDP socket");
        std::thread::spawn(move || {
            while let Ok((_, from)) = socket.recv_from(&mut [0; 512]) {
                let _ = match behavior {
                    Behavior::Refused | Behavior::Silent | Behavior::Drip => Ok(0),
                    Behavior::Truncated => socket.send_to(beginning, from),
                    Behavior::Garbage => socket.send_to(&NOISE, from),
                    Behavior::Endless => (0..200)
                        .try_for_each(|_| socket.send_to(&NOISE, from).map(drop))
                        .map(|()| 0),
                };
            }
        });
    });
    starter.join().expect("server thread panicked");
}

#[test]
fn every_check_kind_fails_with_hostile_servers_and_probing_continues() {
    if !privileged() {
        return;
    }
    let mut world = World::new(1);
    let mut text = "[node]\ninterfaces = [\"eth0\"]\n".to_owned();
    let mut names = Vec::new();
    let kinds = STREAMS.into_iter().chain(DATAGRAMS);
    for (n, (kind, keys, beginning)) in kinds.enumerate() {
        for (m, behavior) in BEHAVIORS.into_iter().enumerate() {
            let server_port = port(n, m);
            match (behavior, n < STREAMS.len()) {
                (Behavior::Refused, _) => {}
                (_, true) => start_stream_server(&world, server_port, behavior, beginning),
                (_, false) => start_datagram_server(&world, server_port, behavior, beginning),
            }
            let name = format!("{kind}-{behavior:?}").to_lowercase();
            text += &format!(
                "[pool.{name}]\nservers = [\"{}\"]\n[pool.{name}.check]\nkind = \"{kind}\"\nport = {server_port}\n\
                 interval = \"500ms\"\ntimeout = \"500ms\"\nrise = 1\nfall = 1\n{keys}\n\
                 [service.{name}]\nlisten = [\"{}:{server_port}\"]\nforward = \"direct\"\npool = \"{name}\"\n",
                Family::V4.server(0),
                Family::V4.vip(),
            );
            names.push(name);
        }
    }
    world.start_daemon(&text);
    let deadline = Instant::now() + TIMEOUT;
    loop {
        let status = world.status();
        let services = status["services"]
            .as_array()
            .expect("services is an array")
            .clone();
        let wrong: Vec<String> = services
            .iter()
            .filter_map(|service| {
                let server = &service["servers"][0];
                let results = server["checks"][0]["results"].as_str().unwrap_or_default();
                let has_failed = results.len() >= 3 && !results.contains('+');
                let has_reason = server["reason"]
                    .as_str()
                    .is_some_and(|reason| !reason.is_empty());
                (server["state"] != "down" || !has_failed || !has_reason).then(|| {
                    format!(
                        "{}: {} {results} {}",
                        service["name"], server["state"], server["reason"]
                    )
                })
            })
            .collect();
        assert_eq!(services.len(), names.len());
        if wrong.is_empty() {
            break;
        }
        assert!(Instant::now() < deadline, "{wrong:#?}");
        std::thread::sleep(Duration::from_millis(200));
    }
    wait_for("probing to continue", TIMEOUT, || {
        world.status()["checks"]["probes"].as_u64() > Some(8 * names.len() as u64)
    });
}
