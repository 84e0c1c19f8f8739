//! Sends requests of every kind while servers fail, are drained and return, and compares the records of both sides.
//!
//! The clients' records of (request, response, server) must match the servers' records.
//!
//! `WEIR_SOAK` raises the number of requests to a million.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::Proxy;

const SERVERS: usize = 4;
const CLIENTS: usize = 8;
/// Maximum number of requests that a client sends over one connection.
const REQUESTS_PER_CONNECTION: u64 = 50;
const LARGE_BYTES: usize = 150_000;

/// How many times a server received each request, by request number.
type Ledger = Arc<Mutex<HashMap<u64, u32>>>;

/// A server that can stop and restart at the same address.
struct Server {
    name: String,
    address: SocketAddr,
    ledger: Ledger,
    is_alive: Arc<AtomicBool>,
    open: Arc<Mutex<Vec<TcpStream>>>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    fn start(name: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("bind a listener");
        let mut server = Self {
            name: name.to_owned(),
            address: listener.local_addr().expect("get local address"),
            ledger: Ledger::default(),
            is_alive: Arc::default(),
            open: Arc::default(),
            thread: None,
        };
        server.listen(listener);
        server
    }

    fn listen(&mut self, listener: TcpListener) {
        self.is_alive = Arc::new(AtomicBool::new(true));
        let (is_alive, open) = (Arc::clone(&self.is_alive), Arc::clone(&self.open));
        let (ledger, name) = (Arc::clone(&self.ledger), self.name.clone());
        self.thread = Some(std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                if !is_alive.load(Ordering::Acquire) {
                    return;
                }
                let mut open = open.lock().expect("lock poisoned");
                open.retain(|stream| stream.take_error().is_ok() && stream.peer_addr().is_ok());
                open.push(stream.try_clone().expect("duplicate descriptor"));
                let (ledger, name) = (Arc::clone(&ledger), name.clone());
                std::thread::spawn(move || drop(serve(&stream, &ledger, &name)));
            }
        }));
    }

    /// Closes the listener and all connections, even during a response.
    fn stop(&mut self) {
        self.is_alive.store(false, Ordering::Release);
        // Wake the listener's thread, which then ends.
        let _ = TcpStream::connect(self.address);
        self.thread.take().map(JoinHandle::join);
        for stream in self.open.lock().expect("lock poisoned").drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    /// Listens again at the same address.
    fn restart(&mut self) {
        let deadline = Instant::now() + Duration::from_secs(10);
        let listener = loop {
            match TcpListener::bind(self.address) {
                Ok(listener) => break listener,
                Err(error) => assert!(Instant::now() < deadline, "{error}"),
            }
            std::thread::sleep(Duration::from_millis(5));
        };
        self.listen(listener);
    }
}

/// Returns bytes derived from a request's number.
fn content(number: u64, length: usize) -> Vec<u8> {
    (0..length)
        .map(|index| (number as usize + index) as u8)
        .collect()
}

/// Returns a checksum of the bytes.
fn checksum(bytes: &[u8]) -> u64 {
    bytes.iter().fold(7, |checksum: u64, byte| {
        checksum.wrapping_mul(31).wrapping_add(u64::from(*byte))
    })
}

fn field<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    head.lines().find_map(|line| {
        let (field_name, value) = line.split_once(':')?;
        field_name.eq_ignore_ascii_case(name).then(|| value.trim())
    })
}

/// Reads a head. Returns `None` if the connection closed before it began.
fn read_head(reader: &mut impl BufRead) -> std::io::Result<Option<String>> {
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if reader.read_line(&mut head)? == 0 {
            return match head.is_empty() {
                true => Ok(None),
                false => Err(std::io::ErrorKind::UnexpectedEof.into()),
            };
        }
    }
    Ok(Some(head))
}

/// Reads a body by its framing. If `until_eof` is true, reads a body without a length to the end of the stream.
fn read_body(head: &str, reader: &mut impl BufRead, until_eof: bool) -> std::io::Result<Vec<u8>> {
    let mut body = Vec::new();
    if field(head, "transfer-encoding").is_some() {
        loop {
            let mut line = String::new();
            reader.read_line(&mut line)?;
            let size = usize::from_str_radix(line.trim(), 16);
            let size = size.map_err(|_| std::io::ErrorKind::UnexpectedEof)?;
            let start = body.len();
            body.resize(start + size + 2, 0);
            reader.read_exact(&mut body[start..])?;
            body.truncate(start + size);
            if size == 0 {
                return Ok(body);
            }
        }
    }
    match field(head, "content-length").and_then(|value| value.parse().ok()) {
        Some(length) => {
            body.resize(length, 0);
            reader.read_exact(&mut body)?;
        }
        None if until_eof => drop(reader.read_to_end(&mut body)?),
        None => {}
    }
    Ok(body)
}

/// Returns the bytes in chunked transfer coding.
fn chunks(bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    for part in bytes.chunks(1_000) {
        out.extend_from_slice(format!("{:x}\r\n", part.len()).as_bytes());
        out.extend_from_slice(part);
        out.extend_from_slice(b"\r\n");
    }
    out.extend_from_slice(b"0\r\n\r\n");
    out
}

/// Serves requests on a connection and records them.
fn serve(stream: &TcpStream, ledger: &Ledger, name: &str) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let mut reader = BufReader::new(stream.try_clone()?);
    let mut writer = stream.try_clone()?;
    while let Some(head) = read_head(&mut reader)? {
        let body = read_body(&head, &mut reader, false)?;
        let mut words = head.split([' ', '/']).filter(|word| !word.is_empty());
        let method = words.next().unwrap_or_default();
        let number: u64 = words.next().and_then(|word| word.parse().ok()).unwrap_or(0);
        let kind = words.next().unwrap_or_default();
        *ledger
            .lock()
            .expect("lock poisoned")
            .entry(number)
            .or_default() += 1;
        let output = format!(
            "HTTP/1.1 200 OK\r\nX-Server: {name}\r\nX-Number: {number}\r\nX-Sum: {}\r\n",
            checksum(&body)
        );
        let text = content(number, if kind == "large" { LARGE_BYTES } else { 40 });
        let (extra, text) = match kind {
            "chunked" => (
                "Transfer-Encoding: chunked\r\n\r\n".to_owned(),
                chunks(&text),
            ),
            "close" => ("Connection: close\r\n\r\n".to_owned(), text),
            _ => (format!("Content-Length: {}\r\n\r\n", text.len()), text),
        };
        let mut out = (output + &extra).into_bytes();
        if method != "HEAD" {
            out.extend_from_slice(&text);
        }
        writer.write_all(&out)?;
        if kind == "close" {
            return stream.shutdown(Shutdown::Both);
        }
    }
    Ok(())
}

/// Outcome of a request.
#[derive(Debug)]
enum Outcome {
    /// A complete response from this server.
    Served(String),
    /// A response from Weir itself.
    WeirResponse(String),
    /// The response began but was cut off.
    Truncated,
    /// The connection ended without a response.
    NoResponse,
}

/// The properties of a request.
struct RequestKind {
    method: &'static str,
    /// The kind of response that the path requests.
    kind: &'static str,
    /// The content, and whether the client sends it in chunks.
    body: Option<(Vec<u8>, bool)>,
}

/// Returns the kind of the request with this number.
fn kind(number: u64) -> RequestKind {
    let (method, kind, body) = match number % 16 {
        0 => ("GET", "large", None),
        1 => ("HEAD", "small", None),
        2 | 3 => ("POST", "small", Some((content(number, 500), false))),
        4 => ("POST", "chunked", Some((content(number, 3_000), true))),
        5 => ("POST", "large", Some((content(number, 100_000), false))),
        6 | 7 => ("GET", "chunked", None),
        8 if number.is_multiple_of(5) => ("GET", "close", None),
        9 => ("PUT", "small", None),
        _ => ("GET", "small", None),
    };
    RequestKind { method, kind, body }
}

/// Sends a request and reads its response. Returns the outcome, and whether the connection stays open.
fn fetch(stream: &TcpStream, reader: &mut impl BufRead, number: u64) -> (Outcome, bool) {
    let RequestKind { method, kind, body } = kind(number);
    let mut text = format!("{method} /{number}/{kind} HTTP/1.1\r\nHost: h\r\n").into_bytes();
    match &body {
        Some((bytes, true)) => {
            text.extend_from_slice(b"Transfer-Encoding: chunked\r\n\r\n");
            text.extend_from_slice(&chunks(bytes));
        }
        Some((bytes, false)) => {
            text.extend_from_slice(format!("Content-Length: {}\r\n\r\n", bytes.len()).as_bytes());
            text.extend_from_slice(bytes);
        }
        None => text.extend_from_slice(b"\r\n"),
    }
    // A client that receives a response before it has sent everything still reads the response.
    let _ = (&*stream).write_all(&text);
    let Ok(Some(head)) = read_head(reader) else {
        return (Outcome::NoResponse, false);
    };
    let is_reusable = !head.contains("\r\nConnection: close\r\n");
    if !head.starts_with("HTTP/1.1 200 ") {
        let is_complete = read_body(&head, reader, false).is_ok();
        return (Outcome::WeirResponse(head), is_reusable && is_complete);
    }
    let received = match method {
        "HEAD" => Ok(Vec::new()),
        _ => read_body(&head, reader, true),
    };
    let Ok(received) = received else {
        return (Outcome::Truncated, false);
    };
    let expected = content(number, if kind == "large" { LARGE_BYTES } else { 40 });
    let sent = body.map_or_else(Vec::new, |(bytes, _)| bytes);
    assert_eq!(
        field(&head, "x-number"),
        Some(&*number.to_string()),
        "{head}"
    );
    assert_eq!(
        field(&head, "x-sum"),
        Some(&*checksum(&sent).to_string()),
        "{head}"
    );
    if kind == "close" {
        // The head does not announce the length of this response.
        assert!(expected.starts_with(&received), "{number}");
    } else if method != "HEAD" {
        assert!(
            received == expected,
            "request {number}: the body differs from the server's response"
        );
    }
    let server = field(&head, "x-server").unwrap_or_default().to_owned();
    (Outcome::Served(server), is_reusable)
}

/// Sends one client's requests until request number `total` is reached. Returns the outcomes by request number.
fn run_client(listen: SocketAddr, next: &AtomicU64, total: u64) -> Vec<(u64, Outcome)> {
    let mut ledger = Vec::new();
    loop {
        let stream = TcpStream::connect(listen).expect("connect to Weir");
        stream.set_nodelay(true).expect("set TCP_NODELAY");
        stream
            .set_read_timeout(Some(Duration::from_secs(30)))
            .expect("set read timeout");
        let mut reader = BufReader::new(stream.try_clone().expect("duplicate descriptor"));
        for _ in 0..REQUESTS_PER_CONNECTION {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= total {
                return ledger;
            }
            let (outcome, is_reusable) = fetch(&stream, &mut reader, number);
            ledger.push((number, outcome));
            if !is_reusable {
                break;
            }
        }
    }
}

/// Returns the resident memory (in KiB) and the number of open descriptors of the daemon.
fn resource_usage(proxy: &Proxy) -> (u64, usize) {
    let keeper = proxy.child.id();
    let children = std::fs::read_to_string(format!("/proc/{keeper}/task/{keeper}/children"));
    let children = children.expect("read children of the keeper");
    let pid = children
        .split_whitespace()
        .next()
        .expect("keeper has no child process");
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("read /proc");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.split_whitespace().next()?.parse().ok());
    let descriptors = std::fs::read_dir(format!("/proc/{pid}/fd")).expect("read /proc");
    (kib.expect("no VmRSS"), descriptors.count())
}

/// Stops, restarts, drains and re-enables the servers in turn until all requests have been sent. Returns the number of
/// rounds.
fn disturb_servers(proxy: &Proxy, servers: &mut [Server], next: &AtomicU64, total: u64) -> usize {
    let mut rounds = 0;
    while next.load(Ordering::Relaxed) < total {
        let server = &mut servers[rounds % SERVERS];
        let name = format!("p/{}", server.address);
        let run_weir = |command: &str| {
            let (succeeded, output) = proxy.weir(&["server", &name, command]);
            assert!(succeeded, "{output}");
        };
        if rounds % 3 == 2 {
            run_weir("drain");
            run_weir("ready");
        } else {
            server.stop();
            // The pause is long enough for some requests to reach the stopped server.
            std::thread::sleep(Duration::from_millis(30));
            server.restart();
        }
        std::thread::sleep(Duration::from_millis(60));
        rounds += 1;
    }
    rounds
}

#[test]
fn records_match_after_mixed_operations_soak() {
    let is_soak = std::env::var_os("WEIR_SOAK").is_some();
    let total: u64 = if is_soak { 1_000_000 } else { 8_000 };
    let mut servers: Vec<Server> = (0..SERVERS)
        .map(|index| Server::start(&format!("s{index}")))
        .collect();
    let addresses: Vec<SocketAddr> = servers.iter().map(|server| server.address).collect();
    let proxy = Proxy::start("http", &addresses, "");
    let next = AtomicU64::new(1);
    // Memory and descriptors must not grow after the first part.
    let first_part = total / 10;
    let (mut ledger, mut rounds) = (Vec::new(), 0);
    let mut before = (0, 0);
    for end in [first_part, total] {
        next.fetch_min(end, Ordering::Relaxed);
        std::thread::scope(|scope| {
            let clients: Vec<_> = (0..CLIENTS)
                .map(|_| scope.spawn(|| run_client(proxy.listen, &next, end)))
                .collect();
            rounds += disturb_servers(&proxy, &mut servers, &next, end);
            for client in clients {
                ledger.extend(client.join().expect("client thread panicked"));
            }
        });
        next.store(end, Ordering::Relaxed);
        if end == first_part {
            before = resource_usage(&proxy);
        }
    }
    assert_records_match(&ledger, &servers, rounds, total);
    let deadline = Instant::now() + Duration::from_secs(10);
    let mut after = resource_usage(&proxy);
    while after.1 > before.1 + 64 && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(50));
        after = resource_usage(&proxy);
    }
    assert!(
        after.1 <= before.1 + 64,
        "descriptors: {before:?}, then {after:?}"
    );
    assert!(
        after.0 <= before.0 + 16_384,
        "memory: {before:?}, then {after:?}"
    );
    println!("{total} requests, {rounds} rounds; KiB and descriptors {before:?}, then {after:?}");
}

/// Compares the clients' records with the servers' records.
fn assert_records_match(ledger: &[(u64, Outcome)], servers: &[Server], rounds: usize, total: u64) {
    let ledgers: HashMap<&str, HashMap<u64, u32>> = servers
        .iter()
        .map(|server| {
            let ledger = server.ledger.lock().expect("lock poisoned").clone();
            (server.name.as_str(), ledger)
        })
        .collect();
    let (mut served, mut lost) = (0u64, Vec::new());
    for (number, outcome) in ledger {
        let request = kind(*number);
        let is_retryable = request.body.is_none();
        match outcome {
            Outcome::Served(server) => {
                served += 1;
                let record = ledgers
                    .get(server.as_str())
                    .and_then(|ledger| ledger.get(number));
                assert!(
                    record.is_some(),
                    "request {number}: {server} did not record it"
                );
            }
            Outcome::WeirResponse(head) => {
                assert!(!is_retryable, "request {number} was not retried: {head}");
                lost.push(number);
            }
            // Weir cannot retry a request whose response has begun.
            Outcome::Truncated => lost.push(number),
            Outcome::NoResponse => {
                assert!(
                    !is_retryable,
                    "request {number}: {} got no response",
                    request.method
                );
                lost.push(number);
            }
        }
        if !is_retryable {
            let times: u32 = ledgers
                .values()
                .filter_map(|ledger| ledger.get(number))
                .sum();
            assert!(
                times <= 1,
                "request {number}: {} was received {times} times",
                request.method
            );
        }
    }
    assert_eq!(ledger.len() as u64, total - 1);
    assert!(rounds >= 6, "only {rounds} rounds");
    // Each failure may lose only the requests that were in progress at one server.
    assert!(
        lost.len() <= rounds * CLIENTS,
        "{} of {total} failed in {rounds} rounds, {served} served",
        lost.len()
    );
}
