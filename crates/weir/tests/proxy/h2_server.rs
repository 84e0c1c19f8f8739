//! Tests HTTP/2 servers that limit concurrent streams.
//!
//! The limit applies to each connection, and requests fail only if no server allows another stream.

use super::*;

/// A server that advertises configured stream limits. It delays its responses until it has received a configured
/// number of requests.
struct Server {
    address: SocketAddr,
    connections: Arc<AtomicU64>,
}

#[derive(Clone, Copy)]
struct Behavior {
    /// Stream limit of a connection, by the connection's number.
    stream_limit: fn(u64) -> u32,
    /// Stream limit after the first response; `None` = unchanged.
    limit_after_response: Option<u32>,
    /// Number of requests that the server receives before it sends the first response.
    requests_before_response: u64,
}

const DEFAULT_BEHAVIOR: Behavior = Behavior {
    stream_limit: |_| 100,
    limit_after_response: None,
    requests_before_response: 1,
};

const HEADERS: u8 = 1;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const ACK: u8 = 1;

/// Returns an HTTP/2 frame.
fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut frame = u32::try_from(payload.len())
        .expect("too long")
        .to_be_bytes()[1..]
        .to_vec();
    frame.extend_from_slice(&[kind, flags]);
    frame.extend_from_slice(&stream.to_be_bytes());
    frame.extend_from_slice(payload);
    frame
}

/// Returns a SETTINGS frame with SETTINGS_MAX_CONCURRENT_STREAMS.
fn max_streams_frame(limit: u32) -> Vec<u8> {
    frame(
        SETTINGS,
        0,
        0,
        &[&[0, 3][..], &limit.to_be_bytes()].concat(),
    )
}

impl Server {
    fn start(behavior: Behavior) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("bind a listener");
        let address = listener.local_addr().expect("get local address");
        let connections = Arc::new(AtomicU64::new(0));
        let (count, requests_received) = (Arc::clone(&connections), Arc::new(AtomicU64::new(0)));
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let number = count.fetch_add(1, Ordering::SeqCst);
                let requests_received = Arc::clone(&requests_received);
                // The test closes connections intentionally.
                std::thread::spawn(move || {
                    serve(stream, number, behavior, &requests_received).unwrap_or(())
                });
            }
        });
        Self {
            address,
            connections,
        }
    }

    /// Returns the number of connections accepted since the start.
    fn connections(&self) -> u64 {
        self.connections.load(Ordering::SeqCst)
    }
}

fn serve(
    mut stream: TcpStream,
    number: u64,
    behavior: Behavior,
    requests_received: &AtomicU64,
) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    stream.write_all(&max_streams_frame((behavior.stream_limit)(number)))?;
    let mut reader = stream.try_clone()?;
    let (sender, frames) = std::sync::mpsc::channel();
    std::thread::spawn(move || read_frames(&mut reader, &sender));
    let mut waiting_streams = Vec::new();
    let mut is_first = true;
    loop {
        match frames.recv_timeout(Duration::from_millis(5)) {
            Ok((HEADERS, id)) => {
                requests_received.fetch_add(1, Ordering::SeqCst);
                waiting_streams.push(id);
            }
            Ok((kind, _)) => stream.write_all(&frame(
                kind,
                ACK,
                0,
                &[0; 8][..usize::from(kind == PING) * 8],
            ))?,
            Err(std::sync::mpsc::RecvTimeoutError::Timeout) => {}
            Err(_) => return Ok(()),
        }
        if requests_received.load(Ordering::SeqCst) >= behavior.requests_before_response {
            for id in waiting_streams.drain(..) {
                stream.write_all(&frame(HEADERS, 5, id, &[0x88]))?;
                if let Some(limit_after_response) = behavior.limit_after_response
                    && std::mem::take(&mut is_first)
                {
                    stream.write_all(&max_streams_frame(limit_after_response))?;
                }
            }
        }
    }
}

/// Reads frames until the connection ends, and passes on those that need a response.
fn read_frames(
    stream: &mut TcpStream,
    sender: &std::sync::mpsc::Sender<(u8, u32)>,
) -> std::io::Result<()> {
    stream.read_exact(&mut [0; 24])?;
    loop {
        let mut header = [0; 9];
        stream.read_exact(&mut header)?;
        let [_, a, b, kind, flags, id @ ..] = header;
        let mut payload = vec![0; usize::from(a) << 8 | usize::from(b)];
        stream.read_exact(&mut payload)?;
        let needs_response = kind == HEADERS || matches!(kind, SETTINGS | PING) && flags & ACK == 0;
        if needs_response && sender.send((kind, u32::from_be_bytes(id))).is_err() {
            return Ok(());
        }
    }
}

fn start_proxy(servers: &[SocketAddr]) -> Proxy {
    let daemon = Proxy::start("http", servers, "");
    let text = configuration(daemon.listen, "http", servers, "");
    daemon.reload(&text.replace("\n\n[service.s]", "\nhttp2 = true\n\n[service.s]"));
    daemon
}

const POST: &str = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nok";

/// Sends the same request on `count` connections at the same time. Returns the status lines of the responses.
fn send_at_once(proxy: &Proxy, count: usize, request: &str) -> Vec<String> {
    let mut clients: Vec<Client> = (0..count).map(|_| Client::connect(proxy.listen)).collect();
    clients.iter_mut().for_each(|client| client.send(request));
    let status_line = |client: &mut Client| match client.read_response() {
        Ok(Some((head, _))) => head.lines().next().unwrap_or_default().to_owned(),
        other => format!("{other:?}"),
    };
    clients.iter_mut().map(status_line).collect()
}

#[test]
fn server_that_allows_few_streams_gets_more_connections() {
    let server = Server::start(Behavior {
        stream_limit: |_| 2,
        requests_before_response: 20,
        ..DEFAULT_BEHAVIOR
    });
    let proxy = start_proxy(&[server.address]);
    // The server does not respond to any of the requests until all have arrived.
    let status_lines = send_at_once(&proxy, 20, POST);
    assert!(
        status_lines.iter().all(|line| line.contains(" 200 ")),
        "{status_lines:?}"
    );
    // Each of the two workers has its own connections, the last of which may have free streams.
    let connections = server.connections();
    assert!((10..=11).contains(&connections), "{connections}");
}

#[test]
fn connection_that_allows_no_streams_is_replaced() {
    let server = Server::start(Behavior {
        stream_limit: |number| if number < 2 { 0 } else { 100 },
        ..DEFAULT_BEHAVIOR
    });
    let proxy = start_proxy(&[server.address]);
    let status_lines = send_at_once(&proxy, 1, POST);
    assert!(
        status_lines.iter().all(|line| line.contains(" 200 ")),
        "{status_lines:?}"
    );
    assert_eq!(server.connections(), 3);
}

#[test]
fn server_that_allows_no_streams_counts_as_down() {
    let without_streams = Server::start(Behavior {
        stream_limit: |_| 0,
        ..DEFAULT_BEHAVIOR
    });
    let proxy = start_proxy(&[without_streams.address]);
    let status_lines = send_at_once(&proxy, 10, POST);
    assert!(
        status_lines.iter().all(|line| line.contains(" 503 ")),
        "{status_lines:?}"
    );
    let other = Server::start(DEFAULT_BEHAVIOR);
    let proxy_with_both = start_proxy(&[without_streams.address, other.address]);
    for _ in 0..4 {
        let status_lines = send_at_once(&proxy_with_both, 5, POST);
        assert!(
            status_lines.iter().all(|line| line.contains(" 200 ")),
            "{status_lines:?}"
        );
    }
}

#[test]
fn requests_succeed_after_the_stream_limit_drops_to_zero() {
    let server = Server::start(Behavior {
        limit_after_response: Some(0),
        ..DEFAULT_BEHAVIOR
    });
    let proxy = start_proxy(&[server.address]);
    for _ in 0..6 {
        let status_lines = send_at_once(&proxy, 1, GET);
        assert!(
            status_lines.iter().all(|line| line.contains(" 200 ")),
            "{status_lines:?}"
        );
    }
}
