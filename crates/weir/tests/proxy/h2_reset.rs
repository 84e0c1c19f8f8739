//! Tests HTTP/2 clients that reset their streams or cause Weir to reset them (rapid reset, MadeYouReset).
//!
//! Weir aborts the requests of reset streams at the server, and other clients are not affected.

use super::keeper::wait_until;
use super::*;

/// A server that responds only to `/quick` and counts the other requests, which stay open.
pub(super) struct HoldingServer {
    pub(super) address: SocketAddr,
    requests: Arc<AtomicU64>,
    open_requests: Arc<AtomicU64>,
}

impl HoldingServer {
    pub(super) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("bind a listener");
        listener.set_nonblocking(true).expect("set nonblocking");
        let address = listener.local_addr().expect("get local address");
        let (requests, open_requests) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        let counts = (Arc::clone(&requests), Arc::clone(&open_requests));
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .expect("build runtime");
            runtime.block_on(async move {
                let listener =
                    tokio::net::TcpListener::from_std(listener).expect("register listener");
                while let Ok((stream, _)) = listener.accept().await {
                    let counts = counts.clone();
                    // Ignore errors: the test closes connections intentionally.
                    tokio::spawn(async move { serve(stream, counts).await.unwrap_or(()) });
                }
            });
        });
        Self {
            address,
            requests,
            open_requests,
        }
    }

    /// Returns the number of open requests.
    pub(super) fn in_progress(&self) -> u64 {
        self.open_requests.load(Ordering::SeqCst)
    }

    /// Returns the number of requests received since the start.
    fn requests(&self) -> u64 {
        self.requests.load(Ordering::SeqCst)
    }
}

/// Serves a connection. A request other than `/quick` stays open until the client disconnects.
async fn serve(
    mut stream: tokio::net::TcpStream,
    (requests, open_requests): (Arc<AtomicU64>, Arc<AtomicU64>),
) -> std::io::Result<()> {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let mut text = Vec::new();
    loop {
        text.clear();
        while !text.windows(4).any(|part| part == b"\r\n\r\n") {
            if stream.read_buf(&mut text).await? == 0 {
                return Ok(());
            }
        }
        if text.starts_with(b"GET /quick ") {
            let response = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
            stream.write_all(response).await?;
            continue;
        }
        requests.fetch_add(1, Ordering::SeqCst);
        open_requests.fetch_add(1, Ordering::SeqCst);
        while let Ok(1..) = stream.read_buf(&mut text).await {}
        open_requests.fetch_sub(1, Ordering::SeqCst);
        return Ok(());
    }
}

/// Returns an HTTP/2 frame.
pub(super) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut frame = u32::try_from(payload.len())
        .expect("too long")
        .to_be_bytes()[1..]
        .to_vec();
    frame.extend_from_slice(&[kind, flags]);
    frame.extend_from_slice(&stream.to_be_bytes());
    frame.extend_from_slice(payload);
    frame
}

pub(super) const DATA: u8 = 0;
pub(super) const HEADERS: u8 = 1;
const PRIORITY: u8 = 2;
const RST_STREAM: u8 = 3;
pub(super) const SETTINGS: u8 = 4;
const GOAWAY: u8 = 7;
const WINDOW_UPDATE: u8 = 8;
pub(super) const END_STREAM: u8 = 1;
pub(super) const END_HEADERS: u8 = 4;

/// HPACK blocks of `GET http://a/`, and of `POST http://a/` with `content-length: 5`.
const REQUEST: &[u8] = &[0x82, 0x86, 0x84, 0x41, 1, b'a'];
const POST_WITH_LENGTH: &[u8] = &[0x83, 0x86, 0x84, 0x41, 1, b'a', 0x0f, 0x0d, 1, b'5'];

fn request(stream: u32) -> Vec<u8> {
    frame(HEADERS, END_STREAM | END_HEADERS, stream, REQUEST)
}

/// A function that returns a request on the given stream, and the frames that end the stream before the response.
type Ending = fn(u32) -> (Vec<u8>, Vec<u8>);

const ENDINGS: [(&str, Ending); 9] = [
    ("RST_STREAM", |id| {
        (request(id), frame(RST_STREAM, 0, id, &[0, 0, 0, 8]))
    }),
    ("a window that overflows", |id| {
        let window = 0x7fff_ffffu32.to_be_bytes();
        (request(id), frame(WINDOW_UPDATE, 0, id, &window))
    }),
    ("PRIORITY that depends on its own stream", |id| {
        let [a, b, c, d] = id.to_be_bytes();
        (request(id), frame(PRIORITY, 0, id, &[a, b, c, d, 1]))
    }),
    ("content-length mismatch", |id| {
        let request = frame(HEADERS, END_HEADERS, id, POST_WITH_LENGTH);
        (request, frame(DATA, END_STREAM, id, b"x"))
    }),
    ("DATA after END_STREAM", |id| {
        (request(id), frame(DATA, END_STREAM, id, b"x"))
    }),
    ("HEADERS after END_STREAM", |id| (request(id), request(id))),
    ("WINDOW_UPDATE of 0", |id| {
        (request(id), frame(WINDOW_UPDATE, 0, id, &[0; 4]))
    }),
    ("PRIORITY with a wrong length", |id| {
        (request(id), frame(PRIORITY, 0, id, &[0; 4]))
    }),
    ("RST_STREAM with a wrong length", |id| {
        (request(id), frame(RST_STREAM, 0, id, &[0; 3]))
    }),
];

/// Connects with HTTP/2 prior knowledge.
pub(super) fn connect_http2(listen: SocketAddr) -> TcpStream {
    connect_http2_from([127, 0, 0, 1], listen)
}

/// Connects from the given loopback address.
fn connect_http2_from(client: [u8; 4], listen: SocketAddr) -> TcpStream {
    use rustix::net::{AddressFamily, SocketType, bind, connect, socket};
    let socket = socket(AddressFamily::INET, SocketType::STREAM, None).expect("create socket");
    bind(&socket, &SocketAddr::from((client, 0))).expect("bind socket");
    connect(&socket, &listen).expect("connect");
    let mut stream = TcpStream::from(socket);
    stream.set_nodelay(true).expect("set TCP_NODELAY");
    let limit = Some(Duration::from_secs(10));
    stream.set_read_timeout(limit).expect("set read timeout");
    stream.set_write_timeout(limit).expect("set write timeout");
    let mut preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    preface.extend(frame(SETTINGS, 0, 0, &[]));
    stream.write_all(&preface).expect("write");
    stream
}

/// Returns the number of open file descriptors of the daemon and its keeper.
fn descriptors(proxy: &Proxy) -> usize {
    let count = |pid: String| fs::read_dir(format!("/proc/{pid}/fd")).map_or(0, Iterator::count);
    let parent = proxy.child.id();
    let children = fs::read_to_string(format!("/proc/{parent}/task/{parent}/children"));
    let children = children.unwrap_or_default();
    let children = children.split_whitespace().map(str::to_owned);
    children.chain([parent.to_string()]).map(count).sum()
}

/// Asserts that another client is served.
fn assert_other_client_is_served(proxy: &Proxy) {
    let mut client = Client::connect(proxy.listen);
    let (head, _) = client.fetch("GET /quick HTTP/1.1\r\nHost: a\r\n\r\n");
    assert!(
        head.starts_with("HTTP/1.1 200 "),
        "another client must be served: {head}"
    );
}

#[test]
fn immediately_reset_streams_leave_no_open_requests_or_descriptors() {
    let mut failures = Vec::new();
    for (name, ending) in ENDINGS {
        let origin = HoldingServer::start();
        let proxy = Proxy::start("http", &[origin.address], "");
        assert_other_client_is_served(&proxy);
        let before = descriptors(&proxy);
        // The number of resets stays within the limit per network, even though a reset that Weir sends counts twice.
        for _ in 0..12 {
            let mut client = connect_http2(proxy.listen);
            for number in 0..40 {
                let (request, end) = ending(2 * number + 1);
                if client.write_all(&[request, end].concat()).is_err() {
                    break;
                }
            }
            // Wait until the daemon has read everything.
            let _ = client.shutdown(std::net::Shutdown::Write);
            let _ = client.read_to_end(&mut Vec::new());
        }
        assert_other_client_is_served(&proxy);
        let deadline = Instant::now() + Duration::from_secs(10);
        while origin.in_progress() > 0 || descriptors(&proxy) > before + 4 {
            if Instant::now() > deadline {
                let (open, requests, after) =
                    (origin.in_progress(), origin.requests(), descriptors(&proxy));
                failures.push(format!(
                    "{name}: {open} of {requests} requests are open at the server; descriptors: {before}, then {after}"
                ));
                break;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn forwarded_request_ends_with_its_stream() {
    for (name, ending) in ENDINGS {
        let origin = HoldingServer::start();
        // One of these requests is incomplete; with buffering, Weir would wait for the rest of its body.
        let no_buffering = "request_buffering = false";
        let proxy = Proxy::start("http", &[origin.address], no_buffering);
        let (first, last) = ending(1);
        let mut client = connect_http2(proxy.listen);
        client.write_all(&first).expect("write");
        wait_until("the server has received the request", || {
            origin.in_progress() == 1
        });
        client.write_all(&last).expect("write");
        wait_until(&format!("{name} aborts the request"), || {
            origin.in_progress() == 0
        });
        // The request also ends when its connection closes.
        let mut client = connect_http2(proxy.listen);
        client.write_all(&first).expect("write");
        wait_until("the server has received the request", || {
            origin.in_progress() == 1
        });
        drop(client);
        wait_until("the request of the disconnected client is aborted", || {
            origin.in_progress() == 0
        });
        assert_other_client_is_served(&proxy);
    }
}

#[test]
fn reset_streams_free_server_slots() {
    let origin = HoldingServer::start();
    let proxy = Proxy::start("http", &[origin.address], "");
    let text = configuration(proxy.listen, "http", &[origin.address], "");
    let server = format!("\"{}\"", origin.address);
    let limited = format!(
        "{{ address = \"{}\", max_connections = 5 }}",
        origin.address
    );
    proxy.reload(&text.replace(&server, &limited));
    for (name, ending) in &ENDINGS[..4] {
        let mut client = connect_http2(proxy.listen);
        for number in 0..40 {
            let (request, end) = ending(2 * number + 1);
            client.write_all(&[request, end].concat()).expect("write");
        }
        // The connection stays open.
        let active_connections =
            || proxy.status()["services"][0]["servers"][0]["active_connections"].as_u64();
        wait_until(&format!("{name} frees all slots"), || {
            active_connections() == Some(0)
        });
        assert_other_client_is_served(&proxy);
        drop(client);
    }
}

/// Sends `count` requests and resets them immediately. Returns the outcome of another request on the same connection.
fn reset(client: [u8; 4], listen: SocketAddr, count: u32) -> Result<u8, u32> {
    let mut stream = connect_http2_from(client, listen);
    for number in 0..count {
        let (request, end) = ENDINGS[0].1(2 * number + 1);
        if stream.write_all(&[request, end].concat()).is_err() {
            break;
        }
    }
    fetch_quick(&mut stream, 2 * count + 1)
}

/// Requests `/quick`. Returns the first byte of the response's HPACK block, or an error: the code of a reset, or 1000
/// plus the code of a GOAWAY.
pub(super) fn fetch_quick(client: &mut TcpStream, id: u32) -> Result<u8, u32> {
    let block = [&[0x82, 0x86, 0x41, 1, b'a', 4, 6], &b"/quick"[..]].concat();
    let request = frame(HEADERS, END_STREAM | END_HEADERS, id, &block);
    client.write_all(&request).expect("write");
    loop {
        let mut header = [0; 9];
        client.read_exact(&mut header).expect("read frame header");
        let length = usize::from(header[1]) << 8 | usize::from(header[2]);
        let mut payload = vec![0; length];
        client.read_exact(&mut payload).expect("read frame payload");
        match header[3] {
            HEADERS => return Ok(payload[0]),
            RST_STREAM => {
                return Err(u32::from_be_bytes(
                    payload[..4].try_into().expect("not 4 bytes"),
                ));
            }
            GOAWAY => {
                return Err(
                    1_000 + u32::from_be_bytes(payload[4..8].try_into().expect("not 4 bytes"))
                );
            }
            _ => {}
        }
    }
}

const ENHANCE_YOUR_CALM: u32 = 11;
const REFUSED_STREAM: u32 = 7;
/// `:status: 200`, indexed.
pub(super) const OK: u8 = 0x88;

#[test]
fn resetting_network_is_rejected_and_others_are_served() {
    let origin = HoldingServer::start();
    let proxy = Proxy::start("http", &[origin.address], "");
    let other_address = [127, 0, 0, 77];
    let mut other_client = connect_http2_from(other_address, proxy.listen);
    assert_eq!(fetch_quick(&mut other_client, 1), Ok(OK));
    // Each connection stays within its own limit. The first nine together also stay within the network's burst limit,
    // which is ten seconds' worth of resets.
    let resets = |times| -> Vec<_> {
        let outcomes = (0..times).map(|_| reset([127, 0, 0, 1], proxy.listen, 100));
        outcomes.collect()
    };
    let outcomes = resets(9);
    assert!(
        outcomes.iter().all(|outcome| *outcome == Ok(OK)),
        "{outcomes:?}"
    );
    let outcomes = resets(12);
    assert_eq!(
        outcomes.last(),
        Some(&Err(1_000 + ENHANCE_YOUR_CALM)),
        "{outcomes:?}"
    );
    // Weir closes a new connection from the same network, even though it has not reset any stream.
    assert_eq!(
        fetch_quick(&mut connect_http2(proxy.listen), 1),
        Err(1_000 + ENHANCE_YOUR_CALM)
    );
    assert_eq!(fetch_quick(&mut other_client, 3), Ok(OK));
    assert_eq!(
        fetch_quick(&mut connect_http2_from(other_address, proxy.listen), 1),
        Ok(OK)
    );
    assert_other_client_is_served(&proxy);
    wait_until("no request is open at the server", || {
        origin.in_progress() == 0
    });
    let status = proxy.status();
    let count = status["services"][0]["streams_reset"].as_u64();
    assert!(count > Some(900), "{status:#}");
}

#[test]
fn service_reset_limit_rejects_only_resetting_clients() {
    let origin = HoldingServer::start();
    let proxy = Proxy::start("http", &[origin.address], "limits = { resets = 1 }");
    let mut other_client = connect_http2_from([127, 0, 3, 1], proxy.listen);
    assert_eq!(fetch_quick(&mut other_client, 1), Ok(OK));
    // Nine resets from an address are within the limit per network. More than a thousand in total exceed the limit of
    // the service.
    let mut resetting_client = connect_http2_from([127, 0, 2, 200], proxy.listen);
    for last in 0..130 {
        let outcome = reset([127, 0, 2, last], proxy.listen, 9);
        assert!(
            outcome == Ok(OK) || outcome == Err(REFUSED_STREAM),
            "{outcome:?}"
        );
    }
    let (request, end) = ENDINGS[0].1(1);
    resetting_client
        .write_all(&[request, end].concat())
        .expect("write");
    let outcomes: Vec<_> = (1..4)
        .map(|number| fetch_quick(&mut resetting_client, 2 * number + 1))
        .collect();
    assert!(outcomes.contains(&Err(REFUSED_STREAM)), "{outcomes:?}");
    assert_eq!(fetch_quick(&mut other_client, 3), Ok(OK));
    assert_eq!(
        fetch_quick(&mut connect_http2_from([127, 0, 3, 2], proxy.listen), 1),
        Ok(OK)
    );
    wait_until("no request is open at the server", || {
        origin.in_progress() == 0
    });
}

#[test]
fn trusted_proxies_are_exempt_from_network_reset_limit() {
    let origin = HoldingServer::start();
    let trusted = "trusted = [\"127.0.0.0/24\"]";
    let proxy = Proxy::start("http", &[origin.address], trusted);
    for _ in 0..15 {
        assert_eq!(reset([127, 0, 0, 1], proxy.listen, 100), Ok(OK));
    }
    assert_eq!(fetch_quick(&mut connect_http2(proxy.listen), 1), Ok(OK));
}

#[test]
fn http2_library_warnings_are_limited_and_counted() {
    let origin = HoldingServer::start();
    let proxy = Proxy::start("http", &[origin.address], "");
    let mut client = connect_http2(proxy.listen);
    // Each PING acknowledgement without a preceding PING causes a warning.
    let unsolicited = frame(6, 1, 0, b"12345678");
    client.write_all(&unsolicited.repeat(500)).expect("write");
    assert_eq!(fetch_quick(&mut client, 1), Ok(OK));
    let lines = || proxy.log().matches("PING ack").count();
    assert!((1..=10).contains(&lines()), "{} lines", lines());
    wait_until("the log reports the suppressed lines", || {
        client.write_all(&unsolicited).expect("write");
        proxy
            .log()
            .contains("lines from the HTTP/2 library were suppressed")
    });
}
