//! Runs scenarios written as text: the bytes that a client and a server send, and what each of them must receive.
//!
//! The files `scenario/*.txt` contain the scenarios, one file for each area. A line begins with a keyword:
//!
//! - `scenario TEXT`: begins a scenario. TEXT is its name.
//! - `service`: lines of the service's table for the following scenarios. They replace the previous lines of `service`,
//!   `pool` and `rules`.
//! - `pool`, `rules`: additional lines for the pool's table, and lines after the service.
//! - `client [slowly]`: the bytes that the client sends, one at a time if `slowly`. The client then shuts down its
//!   write side and reads to the end of the stream.
//! - `server [slowly] [close]`: the response to a request, one block for each request. The server closes the connection
//!   after a block with `close`, and after a request for which no block is left.
//! - `probe`: the response to every request for `/probe`.
//! - `server-received TEXT`, `server-not-received TEXT`: bytes that the server must or must not receive.
//! - `client-received TEXT`, `client-not-received TEXT`: the same for the client.
//! - `requests N`, `connections N`: the number of requests (other than probes) or connections that the server must
//!   receive.
//! - `state STATE`: the state that the server must reach in `weir status` within [`TIMEOUT`].
//!
//! The lines of a block follow its keyword, indented by two spaces. Each line is sent with CRLF unless it ends with
//! `\`. In all texts, `\r`, `\n`, `\t`, `\\` and `\xNN` stand for bytes.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use super::Proxy;

const TIMEOUT: Duration = Duration::from_secs(30);
const NO_SCENARIO: &str = "line before the first `scenario`";

/// Bytes that a client or a server sends.
#[derive(Debug, Default, Clone)]
struct Message {
    bytes: Vec<u8>,
    is_slow: bool,
    /// Whether the server closes the connection afterwards.
    close: bool,
}

#[derive(Debug, Default, Clone)]
struct Scenario {
    name: String,
    /// Lines of `service`, `pool` and `rules`.
    tables: [String; 3],
    client: Message,
    server: Vec<Message>,
    probe: Option<Vec<u8>>,
    /// The keywords of expectations and their texts.
    expected: Vec<(String, Vec<u8>)>,
}

/// Returns the bytes of a text with escapes.
fn unescape(text: &str) -> Vec<u8> {
    let mut out = Vec::new();
    let mut rest = text.chars();
    while let Some(char) = rest.next() {
        if char != '\\' {
            out.extend(char.to_string().into_bytes());
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

/// Returns the bytes of a line in a block, with CRLF unless the line ends with a single `\`.
fn parse_line(text: &str) -> Vec<u8> {
    match text.strip_suffix('\\') {
        Some(open) if !open.ends_with('\\') => unescape(open),
        _ => [unescape(text), b"\r\n".to_vec()].concat(),
    }
}

/// Parses the scenarios of a file.
fn parse_scenarios(text: &str) -> Vec<Scenario> {
    let mut scenarios: Vec<Scenario> = Vec::new();
    let mut tables: [String; 3] = Default::default();
    let mut block = "";
    for line in text.lines() {
        if line.starts_with('#') {
            continue;
        }
        if let Some(inner) = line.strip_prefix("  ") {
            match (block, scenarios.last_mut()) {
                ("service", _) => tables[0] += &format!("{inner}\n"),
                ("pool", _) => tables[1] += &format!("{inner}\n"),
                ("rules", _) => tables[2] += &format!("{inner}\n"),
                ("client", Some(scenario)) => scenario.client.bytes.extend(parse_line(inner)),
                ("server", Some(scenario)) => {
                    let response = scenario
                        .server
                        .last_mut()
                        .expect("line before the first `server`");
                    response.bytes.extend(parse_line(inner));
                }
                ("probe", Some(scenario)) => scenario
                    .probe
                    .get_or_insert_default()
                    .extend(parse_line(inner)),
                _ => panic!("line outside of a block: {line:?}"),
            }
            continue;
        }
        if line.is_empty() {
            continue;
        }
        let (keyword, rest) = line.split_once(' ').unwrap_or((line, ""));
        match keyword {
            "service" => tables = Default::default(),
            "pool" | "rules" | "probe" => {}
            "scenario" => scenarios.push(Scenario {
                name: rest.to_owned(),
                tables: tables.clone(),
                ..Scenario::default()
            }),
            "client" => {
                let scenario = scenarios.last_mut().expect(NO_SCENARIO);
                scenario.client.is_slow = rest.contains("slowly");
            }
            "server" => {
                let scenario = scenarios.last_mut().expect(NO_SCENARIO);
                scenario.server.push(Message {
                    is_slow: rest.contains("slowly"),
                    close: rest.contains("close"),
                    ..Message::default()
                });
            }
            "server-received"
            | "server-not-received"
            | "client-received"
            | "client-not-received"
            | "requests"
            | "connections"
            | "state" => {
                let scenario = scenarios.last_mut().expect(NO_SCENARIO);
                scenario.expected.push((keyword.to_owned(), unescape(rest)));
            }
            other => panic!("unknown keyword {other:?}"),
        }
        block = match keyword {
            "service" | "pool" | "rules" | "client" | "server" | "probe" => keyword,
            _ => "",
        };
    }
    scenarios
}

/// The current scenario, and everything that the server has received during it.
#[derive(Debug, Default)]
struct ServerState {
    scenario: Scenario,
    received: Vec<u8>,
    requests: usize,
    connections: usize,
}

/// Starts a server that responds as the current scenario specifies. Returns its address.
fn serve(state: &Arc<Mutex<ServerState>>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("bind a listener");
    let address = listener.local_addr().expect("get local address");
    let state = Arc::clone(state);
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let state = Arc::clone(&state);
            state.lock().expect("lock poisoned").connections += 1;
            std::thread::spawn(move || {
                // The scenario closes connections intentionally.
                let _ = serve_connection(stream, &state);
            });
        }
    });
    address
}

/// Serves a connection with the responses of the current scenario.
fn serve_connection(mut stream: TcpStream, state: &Mutex<ServerState>) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    loop {
        let mut message = Vec::new();
        if !read_message(&mut stream, &mut message)? {
            // Record the bytes that have arrived, even though the message is incomplete.
            state
                .lock()
                .expect("lock poisoned")
                .received
                .extend(message);
            return stream.shutdown(Shutdown::Both);
        }
        let next = {
            let state = &mut *state.lock().expect("lock poisoned");
            let is_probe = message.windows(8).any(|part| part == b" /probe ");
            state.received.extend_from_slice(&message);
            match &state.scenario.probe {
                Some(bytes) if is_probe => Some(Message {
                    bytes: bytes.clone(),
                    is_slow: false,
                    close: true,
                }),
                _ => {
                    state.requests += 1;
                    state.scenario.server.get(state.requests - 1).cloned()
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

/// Sends bytes, one at a time if `is_slow` is set.
fn send(stream: &mut TcpStream, message: &Message) -> std::io::Result<()> {
    let step = if message.is_slow {
        1
    } else {
        message.bytes.len().max(1)
    };
    message
        .bytes
        .chunks(step)
        .try_for_each(|part| stream.write_all(part))
}

/// Reads until the message ends with `end`, which must begin at or after `start`. Returns whether `end` was found.
fn read_until(
    stream: &mut TcpStream,
    message: &mut Vec<u8>,
    start: usize,
    end: &[u8],
) -> std::io::Result<bool> {
    let mut byte = [0u8; 1];
    while !message[start..].ends_with(end) {
        if stream.read(&mut byte)? == 0 {
            return Ok(false);
        }
        message.push(byte[0]);
    }
    Ok(true)
}

/// Reads a head and the body that the head announces. Returns whether the message is complete.
fn read_message(stream: &mut TcpStream, message: &mut Vec<u8>) -> std::io::Result<bool> {
    if !read_until(stream, message, 0, b"\r\n\r\n")? {
        return Ok(false);
    }
    let head = String::from_utf8_lossy(message).to_ascii_lowercase();
    if head.contains("\r\ntransfer-encoding: chunked\r\n") {
        loop {
            let start = message.len();
            if !read_until(stream, message, start, b"\r\n")? {
                return Ok(false);
            }
            let line = String::from_utf8_lossy(&message[start..]).into_owned();
            let digits = line.split([';', '\r']).next().unwrap_or_default();
            let size = usize::from_str_radix(digits, 16).unwrap_or(0);
            let start = message.len();
            if size == 0 {
                // Read trailers, if any.
                return Ok(read_until(stream, message, start, b"\r\n")?
                    && (message[start..] == *b"\r\n"
                        || read_until(stream, message, start, b"\r\n\r\n")?));
            }
            message.resize(start + size + 2, 0);
            stream.read_exact(&mut message[start..])?;
        }
    }
    let length = head
        .lines()
        .find_map(|line| line.strip_prefix("content-length:"))
        .and_then(|value| value.trim().parse().ok())
        .unwrap_or(0);
    let start = message.len();
    message.resize(start + length, 0);
    Ok(stream.read_exact(&mut message[start..]).is_ok())
}

/// Sends a client's bytes. Returns everything that the client receives until the connection ends.
fn fetch(listen: SocketAddr, request: &Message) -> Vec<u8> {
    let mut stream = TcpStream::connect(listen).expect("connect");
    stream.set_nodelay(true).expect("set TCP_NODELAY");
    stream
        .set_read_timeout(Some(TIMEOUT))
        .expect("set read timeout");
    // The other side may close the connection before the client has sent everything.
    let _ = send(&mut stream, request);
    let _ = stream.shutdown(Shutdown::Write);
    let mut received = Vec::new();
    let _ = stream.read_to_end(&mut received);
    received
}

fn contains(text: &[u8], part: &[u8]) -> bool {
    part.is_empty() || text.windows(part.len()).any(|window| window == part)
}

fn configuration(listen: SocketAddr, server: SocketAddr, tables: &[String; 3]) -> String {
    let [service, pool, rules] = tables;
    format!(
        "[pool.p]\nservers = [\"{server}\"]\n{pool}\n[service.s]\nlisten = [\"{listen}\"]\nforward = \"proxy\"\n\
         protocol = \
         \"http\"\npool = \"p\"\nabort_on_close = false\n{service}\n{rules}\n"
    )
}

/// Waits until the server has the expected state.
fn wait_for_state(proxy: &Proxy, expected: &str) -> Result<(), String> {
    let deadline = Instant::now() + TIMEOUT;
    loop {
        let status = proxy.status();
        let server = &status["services"][0]["servers"][0];
        if server["state"] == expected {
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

/// Runs a scenario. Returns the expectations that are not met.
fn run_scenario(proxy: &Proxy, state: &Mutex<ServerState>, scenario: &Scenario) -> Vec<String> {
    let response = if scenario.client.bytes.is_empty() {
        Vec::new()
    } else {
        fetch(proxy.listen, &scenario.client)
    };
    let mut failures = Vec::new();
    for (keyword, bytes) in &scenario.expected {
        let text = String::from_utf8_lossy(bytes).into_owned();
        if keyword == "state" {
            failures.extend(wait_for_state(proxy, &text).err());
            continue;
        }
        let state = state.lock().expect("lock poisoned");
        let (actual, expected) = match keyword.as_str() {
            "server-received" => (contains(&state.received, bytes), true),
            "server-not-received" => (contains(&state.received, bytes), false),
            "client-received" => (contains(&response, bytes), true),
            "client-not-received" => (contains(&response, bytes), false),
            "requests" => (state.requests.to_string() == text, true),
            _ => (state.connections.to_string() == text, true),
        };
        if actual != expected {
            failures.push(format!(
                "{keyword} {text:?}; the server received {} requests on {} connections: {:?}; the client received {:?}",
                state.requests,
                state.connections,
                String::from_utf8_lossy(&state.received),
                String::from_utf8_lossy(&response)
            ));
        }
    }
    failures
}

/// Runs every scenario in a text. Returns the number of scenarios.
fn run_all(text: &str) -> usize {
    let proxy = Proxy::start("http", &[super::free_address()], "");
    let mut failures = Vec::new();
    let scenarios = parse_scenarios(text);
    for scenario in &scenarios {
        // Each scenario has its own server, so late messages of the previous scenario do not reach it.
        let state = Arc::new(Mutex::new(ServerState {
            scenario: scenario.clone(),
            ..ServerState::default()
        }));
        let server = serve(&state);
        proxy.reload(&configuration(proxy.listen, server, &scenario.tables));
        let unmet_expectations = run_scenario(&proxy, &state, scenario);
        failures.extend(
            unmet_expectations
                .iter()
                .map(|expectation| format!("{}: {expectation}", scenario.name)),
        );
    }
    assert!(
        failures.is_empty(),
        "{} failures in {} scenarios:\n{}",
        failures.len(),
        scenarios.len(),
        failures.join("\n")
    );
    scenarios.len()
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
