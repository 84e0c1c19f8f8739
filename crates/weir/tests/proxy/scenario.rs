//! Scenarios as text: the bytes that a client and a server send, and what each of them must receive.
//!
//! The files `scenario/*.txt` contain them, one file for each area. A line begins with a keyword:
//!
//! - `scenario TEXT`: begins a scenario. TEXT is its name.
//! - `given`: the lines of the service's table from here on. Without lines, the defaults apply.
//! - `pool`: the same for the lines of the pool's table.
//! - `rules`: the same for the lines after the service.
//! - `client [slowly]`: the bytes to send, one at a time if `slowly`. Then the client shuts down writing and reads to
//!   the end of the stream.
//! - `server [slowly] [close]`: the response to a request, one block for each request. With `close`, the server closes
//!   the connection after it.
//! - `probe`: the response to every request for `/probe`.
//! - `heard TEXT`, `unheard TEXT`: bytes that the server received or did not receive.
//! - `got TEXT`, `ungot TEXT`: the same for the client.
//! - `requests N`, `connections N`: the numbers of requests and connections that the server received.
//! - `state WORD`: the server's state in `weir status` at the end.
//!
//! The lines of a block follow it, indented by two spaces. Each ends with CRLF unless it ends with `\`. In all texts
//! `\r`, `\n`, `\t`, `\\` and `\xNN` stand for bytes.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use super::Proxy;

const TIMEOUT: Duration = Duration::from_secs(30);

#[derive(Debug, Default, Clone)]
struct Answer {
    bytes: Vec<u8>,
    slowly: bool,
    close: bool,
}

#[derive(Debug, Default, Clone)]
struct Scenario {
    shows: String,
    given: [String; 3],
    client: Answer,
    server: Vec<Answer>,
    probe: Option<Vec<u8>>,
    expected: Vec<(String, Vec<u8>)>,
}

/// Returns a text with escapes as bytes.
fn bytes(text: &str) -> Vec<u8> {
    let mut out = Vec::new();
    let mut rest = text.chars();
    while let Some(one) = rest.next() {
        if one != '\\' {
            out.extend(one.to_string().into_bytes());
            continue;
        }
        match rest.next() {
            Some('r') => out.push(b'\r'),
            Some('n') => out.push(b'\n'),
            Some('t') => out.push(b'\t'),
            Some('x') => {
                let digits: String = rest.by_ref().take(2).collect();
                out.push(u8::from_str_radix(&digits, 16).expect("invalid hexadecimal escape"));
            }
            Some(other) => out.push(u8::try_from(other).expect("escape is not ASCII")),
            None => {}
        }
    }
    out
}

/// Returns the bytes of a line in a block.
fn line(text: &str) -> Vec<u8> {
    match text.strip_suffix('\\') {
        Some(open) if !open.ends_with('\\') => bytes(open),
        _ => [bytes(text), b"\r\n".to_vec()].concat(),
    }
}

/// Parses the scenarios of a file.
fn parse(text: &str) -> Vec<Scenario> {
    let mut all: Vec<Scenario> = Vec::new();
    let mut given: [String; 3] = Default::default();
    let mut block = "";
    for raw in text.lines() {
        if raw.starts_with('#') {
            continue;
        }
        if let Some(inner) = raw.strip_prefix("  ") {
            let now = all.last_mut();
            match (block, now) {
                ("given", _) => given[0] += &format!("{inner}\n"),
                ("pool", _) => given[1] += &format!("{inner}\n"),
                ("rules", _) => given[2] += &format!("{inner}\n"),
                ("client", Some(now)) => now.client.bytes.extend(line(inner)),
                ("server", Some(now)) => {
                    let answer = now
                        .server
                        .last_mut()
                        .expect("line before the first `server`");
                    answer.bytes.extend(line(inner));
                }
                ("probe", Some(now)) => now.probe.get_or_insert_default().extend(line(inner)),
                _ => panic!("no block for {raw:?}"),
            }
            continue;
        }
        if raw.is_empty() {
            continue;
        }
        let (word, rest) = raw.split_once(' ').unwrap_or((raw, ""));
        match word {
            "given" => given = Default::default(),
            "pool" | "rules" | "probe" => {}
            "scenario" => all.push(Scenario {
                shows: rest.to_owned(),
                given: given.clone(),
                ..Scenario::default()
            }),
            "client" => {
                let now = all.last_mut().expect("line before the first `scenario`");
                now.client.slowly = rest.contains("slowly");
            }
            "server" => {
                let now = all.last_mut().expect("line before the first `scenario`");
                now.server.push(Answer {
                    slowly: rest.contains("slowly"),
                    close: rest.contains("close"),
                    ..Answer::default()
                });
            }
            "heard" | "unheard" | "got" | "ungot" | "requests" | "connections" | "state" => {
                let now = all.last_mut().expect("line before the first `scenario`");
                now.expected.push((word.to_owned(), bytes(rest)));
            }
            other => panic!("no line begins with {other:?}"),
        }
        block = match word {
            "given" | "pool" | "rules" | "client" | "server" | "probe" => word,
            _ => "",
        };
    }
    all
}

/// Everything that the server has received in the current scenario.
#[derive(Debug, Default)]
struct ServerState {
    scenario: Scenario,
    received: Vec<u8>,
    requests: usize,
    connections: usize,
}

/// Starts a server that responds as the current scenario specifies. Returns its address.
fn serve(stage: &Arc<Mutex<ServerState>>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("bind a listener");
    let address = listener.local_addr().expect("get local address");
    let stage = Arc::clone(stage);
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let stage = Arc::clone(&stage);
            stage.lock().expect("lock poisoned").connections += 1;
            std::thread::spawn(move || {
                // The scenario closes connections intentionally.
                let _ = answer(stream, &stage);
            });
        }
    });
    address
}

/// Serves a connection with the responses of the current scenario.
fn answer(mut stream: TcpStream, stage: &Mutex<ServerState>) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    loop {
        let mut message = Vec::new();
        if !read_message(&mut stream, &mut message)? {
            // The bytes that have arrived are recorded anyway.
            stage
                .lock()
                .expect("lock poisoned")
                .received
                .extend(message);
            return stream.shutdown(Shutdown::Both);
        }
        let next = {
            let stage = &mut *stage.lock().expect("lock poisoned");
            let probed = message.windows(8).any(|part| part == b" /probe ");
            stage.received.extend_from_slice(&message);
            match &stage.scenario.probe {
                Some(bytes) if probed => Some(Answer {
                    bytes: bytes.clone(),
                    slowly: false,
                    close: true,
                }),
                _ => {
                    stage.requests += 1;
                    stage.scenario.server.get(stage.requests - 1).cloned()
                }
            }
        };
        let Some(next) = next else {
            return stream.shutdown(Shutdown::Both);
        };
        send(&mut stream, &next)?;
        if next.close {
            return stream.shutdown(Shutdown::Both);
        }
    }
}

/// Sends bytes, one at a time if `slowly` is set.
fn send(stream: &mut TcpStream, what: &Answer) -> std::io::Result<()> {
    let step = if what.slowly {
        1
    } else {
        what.bytes.len().max(1)
    };
    what.bytes
        .chunks(step)
        .try_for_each(|part| stream.write_all(part))
}

/// Reads until `end` is found at or after index `from`. Returns whether it was found.
fn until(
    stream: &mut TcpStream,
    message: &mut Vec<u8>,
    from: usize,
    end: &[u8],
) -> std::io::Result<bool> {
    let mut byte = [0u8; 1];
    while !message[from..].ends_with(end) {
        if stream.read(&mut byte)? == 0 {
            return Ok(false);
        }
        message.push(byte[0]);
    }
    Ok(true)
}

/// Reads a head, and the body that it announces. Returns whether the message is complete.
fn read_message(stream: &mut TcpStream, message: &mut Vec<u8>) -> std::io::Result<bool> {
    if !until(stream, message, 0, b"\r\n\r\n")? {
        return Ok(false);
    }
    let head = String::from_utf8_lossy(message).to_ascii_lowercase();
    if head.contains("\r\ntransfer-encoding: chunked\r\n") {
        loop {
            let from = message.len();
            if !until(stream, message, from, b"\r\n")? {
                return Ok(false);
            }
            let line = String::from_utf8_lossy(&message[from..]).into_owned();
            let digits = line.split([';', '\r']).next().unwrap_or_default();
            let size = usize::from_str_radix(digits, 16).unwrap_or(0);
            let from = message.len();
            if size == 0 {
                // Trailers, if any.
                return Ok(until(stream, message, from, b"\r\n")?
                    && (message[from..] == *b"\r\n"
                        || until(stream, message, from, b"\r\n\r\n")?));
            }
            message.resize(from + size + 2, 0);
            stream.read_exact(&mut message[from..])?;
        }
    }
    let length = head
        .lines()
        .find_map(|line| line.strip_prefix("content-length:"))
        .and_then(|value| value.trim().parse().ok())
        .unwrap_or(0);
    let from = message.len();
    message.resize(from + length, 0);
    Ok(stream.read_exact(&mut message[from..]).is_ok())
}

/// Sends a client's bytes. Returns everything that it receives until the connection ends.
fn fetch(listen: SocketAddr, what: &Answer) -> Vec<u8> {
    let mut stream = TcpStream::connect(listen).expect("connect");
    stream.set_nodelay(true).expect("set TCP_NODELAY");
    stream
        .set_read_timeout(Some(TIMEOUT))
        .expect("set read timeout");
    // The connection may be closed before everything is sent.
    let _ = send(&mut stream, what);
    let _ = stream.shutdown(Shutdown::Write);
    let mut all = Vec::new();
    let _ = stream.read_to_end(&mut all);
    all
}

fn contains(text: &[u8], part: &[u8]) -> bool {
    part.is_empty() || text.windows(part.len()).any(|window| window == part)
}

fn configuration(listen: SocketAddr, server: SocketAddr, given: &[String; 3]) -> String {
    let [service, pool, rules] = given;
    format!(
        "[pool.p]\nservers = [\"{server}\"]\n{pool}\n[service.s]\nlisten = [\"{listen}\"]\nforward = \"proxy\"\n\
         protocol = \
         \"http\"\npool = \"p\"\nabort_on_close = false\n{service}\n{rules}\n"
    )
}

/// Waits until the server has the expected state.
fn state(proxy: &Proxy, wanted: &str) -> Result<(), String> {
    let deadline = Instant::now() + TIMEOUT;
    loop {
        let status = proxy.status();
        let server = &status["services"][0]["servers"][0];
        if server["state"] == wanted {
            return Ok(());
        }
        if Instant::now() > deadline {
            return Err(format!(
                "the server is {}: {}",
                server["state"], server["reason"]
            ));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Runs a scenario. Returns the differences from its expectations.
fn run(proxy: &Proxy, stage: &Mutex<ServerState>, scenario: &Scenario) -> Vec<String> {
    let got = if scenario.client.bytes.is_empty() {
        Vec::new()
    } else {
        fetch(proxy.listen, &scenario.client)
    };
    let mut wrong = Vec::new();
    for (word, text) in &scenario.expected {
        let shown = String::from_utf8_lossy(text).into_owned();
        if word == "state" {
            wrong.extend(state(proxy, &shown).err());
            continue;
        }
        let stage = stage.lock().expect("lock poisoned");
        let (seen, wanted) = match word.as_str() {
            "heard" => (contains(&stage.received, text), true),
            "unheard" => (contains(&stage.received, text), false),
            "got" => (contains(&got, text), true),
            "ungot" => (contains(&got, text), false),
            "requests" => (stage.requests.to_string() == shown, true),
            _ => (stage.connections.to_string() == shown, true),
        };
        if seen != wanted {
            wrong.push(format!(
                "{word} {shown:?}; {} requests on {} connections: {:?}; got {:?}",
                stage.requests,
                stage.connections,
                String::from_utf8_lossy(&stage.received),
                String::from_utf8_lossy(&got)
            ));
        }
    }
    wrong
}

/// Runs every scenario of a text. Returns their number.
fn run_all(text: &str) -> usize {
    let proxy = Proxy::start("http", &[super::free_address()], "");
    let mut wrong = Vec::new();
    let all = parse(text);
    for scenario in &all {
        // Each scenario has its own server, so that late messages of the previous scenario do not reach it.
        let stage = Arc::new(Mutex::new(ServerState {
            scenario: scenario.clone(),
            ..ServerState::default()
        }));
        let server = serve(&stage);
        proxy.reload(&configuration(proxy.listen, server, &scenario.given));
        let faults = run(&proxy, &stage, scenario);
        wrong.extend(
            faults
                .iter()
                .map(|fault| format!("{}: {fault}", scenario.shows)),
        );
    }
    assert!(
        wrong.is_empty(),
        "{} of {}:\n{}",
        wrong.len(),
        all.len(),
        wrong.join("\n")
    );
    all.len()
}

#[test]
fn messages_are_accepted_or_rejected_per_rfc() {
    assert!(run_all(include_str!("scenario/messages.txt")) >= 50);
}

#[test]
fn rules_behave_as_configured() {
    assert!(run_all(include_str!("scenario/rules.txt")) >= 20);
}

#[test]
fn connections_are_reused_only_when_safe() {
    assert!(run_all(include_str!("scenario/connections.txt")) >= 10);
}

#[test]
fn checks_determine_server_state() {
    assert!(run_all(include_str!("scenario/checks.txt")) >= 6);
}
