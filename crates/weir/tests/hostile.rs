//! Every kind of check with every kind of hostile server: no probe takes longer than its timeout, and all servers are
//! down.

mod world;

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::time::{Duration, Instant};

use world::{Family, World, privileged, wait_for};

const PATIENCE: Duration = Duration::from_secs(30);

/// A kind, the keys that it requires, and how the response of a good server begins.
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

/// Behaviour of a hostile server; the first port of each kind is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Play {
    Refused,
    Silent,
    Half,
    Endless,
    Garbage,
    Drip,
}

const PLAYS: [Play; 6] = [
    Play::Refused,
    Play::Silent,
    Play::Half,
    Play::Endless,
    Play::Garbage,
    Play::Drip,
];

const NOISE: [u8; 64] = [0xff; 64];

fn port(kind: usize, play: usize) -> u16 {
    u16::try_from(8000 + 10 * kind + play).expect("few kinds")
}

fn play_stream(mut client: TcpStream, play: Play, beginning: &'static [u8]) {
    let _ = client.set_write_timeout(Some(Duration::from_secs(5)));
    match play {
        Play::Refused => return,
        Play::Silent => {}
        Play::Half => {
            let _ = client.write_all(beginning);
            return;
        }
        Play::Endless => {
            while client.write_all(&[b'x'; 4096]).is_ok() {}
            return;
        }
        Play::Garbage => drop(client.write_all(&NOISE)),
        Play::Drip => {
            for byte in beginning.iter().cycle() {
                if client.write_all(&[*byte]).is_err() {
                    return;
                }
                std::thread::sleep(Duration::from_millis(200));
            }
        }
    }
    // Until the probe times out.
    while client.read(&mut [0; 512]).is_ok_and(|length| length > 0) {}
}

fn listen(world: &World, at: u16, play: Play, beginning: &'static [u8]) {
    let listening = world.inside("server0", move || {
        let listener = TcpListener::bind(("0.0.0.0", at)).expect("the port is free");
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                std::thread::spawn(move || play_stream(client, play, beginning));
            }
        });
    });
    listening.join().expect("it listens");
}

fn answer(world: &World, at: u16, play: Play, beginning: &'static [u8]) {
    let answering = world.inside("server0", move || {
        let socket = UdpSocket::bind(("0.0.0.0", at)).expect("the port is free");
        std::thread::spawn(move || {
            while let Ok((_, from)) = socket.recv_from(&mut [0; 512]) {
                let _ = match play {
                    Play::Refused | Play::Silent | Play::Drip => Ok(0),
                    Play::Half => socket.send_to(beginning, from),
                    Play::Garbage => socket.send_to(&NOISE, from),
                    Play::Endless => (0..200)
                        .try_for_each(|_| socket.send_to(&NOISE, from).map(drop))
                        .map(|()| 0),
                };
            }
        });
    });
    answering.join().expect("it answers");
}

#[test]
fn every_check_kind_survives_every_hostile_server() {
    if !privileged() {
        return;
    }
    let mut world = World::new(1);
    let mut text = "[node]\ninterfaces = [\"eth0\"]\n".to_owned();
    let mut names = Vec::new();
    let kinds = STREAMS.into_iter().chain(DATAGRAMS);
    for (n, (kind, keys, beginning)) in kinds.enumerate() {
        for (m, play) in PLAYS.into_iter().enumerate() {
            let at = port(n, m);
            match (play, n < STREAMS.len()) {
                (Play::Refused, _) => {}
                (_, true) => listen(&world, at, play, beginning),
                (_, false) => answer(&world, at, play, beginning),
            }
            let name = format!("{kind}-{play:?}").to_lowercase();
            text += &format!(
                "[pool.{name}]\nservers = [\"{}\"]\n[pool.{name}.check]\nkind = \"{kind}\"\nport = {at}\n\
                 interval = \"500ms\"\ntimeout = \"500ms\"\nrise = 1\nfall = 1\n{keys}\n\
                 [service.{name}]\nlisten = [\"{}:{at}\"]\nforward = \"direct\"\npool = \"{name}\"\n",
                Family::V4.server(0),
                Family::V4.vip(),
            );
            names.push(name);
        }
    }
    world.start_director(&text);
    let deadline = Instant::now() + PATIENCE;
    loop {
        let status = world.status();
        let services = status["services"].as_array().expect("services").clone();
        let wrong: Vec<String> = services
            .iter()
            .filter_map(|service| {
                let server = &service["servers"][0];
                let results = server["checks"][0]["results"].as_str().unwrap_or_default();
                let many = results.len() >= 3 && !results.contains('+');
                let said = server["reason"]
                    .as_str()
                    .is_some_and(|reason| !reason.is_empty());
                (server["state"] != "down" || !many || !said).then(|| {
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
    wait_for("probing to go on", PATIENCE, || {
        world.status()["checks"]["probes"].as_u64() > Some(8 * names.len() as u64)
    });
}
