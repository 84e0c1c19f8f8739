//! HTTP/2 servers that limit concurrent streams: the limit applies to each connection, and no request fails because of
//! it.

use super::*;

/// A server whose connections announce the given stream limits. It holds its responses until a given number of requests
/// is in progress.
struct Server {
    address: SocketAddr,
    connections: Arc<AtomicU64>,
}

#[derive(Clone, Copy)]
struct Behavior {
    /// Returns the stream limit of a connection by its number.
    allows: fn(u64) -> u32,
    /// The stream limit after the first response.
    later: Option<u32>,
    /// Number of requests in progress before the first response.
    at_once: u64,
}

const DEFAULT_BEHAVIOR: Behavior = Behavior {
    allows: |_| 100,
    later: None,
    at_once: 1,
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
fn allow(most: u32) -> Vec<u8> {
    frame(SETTINGS, 0, 0, &[&[0, 3][..], &most.to_be_bytes()].concat())
}

impl Server {
    fn start(behavior: Behavior) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("bind a listener");
        let address = listener.local_addr().expect("get local address");
        let connections = Arc::new(AtomicU64::new(0));
        let (count, present) = (Arc::clone(&connections), Arc::new(AtomicU64::new(0)));
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let number = count.fetch_add(1, Ordering::SeqCst);
                let present = Arc::clone(&present);
                // The test closes connections intentionally.
                std::thread::spawn(move || serve(stream, number, behavior, &present).unwrap_or(()));
            }
        });
        Self {
            address,
            connections,
        }
    }

    /// Returns the number of connections since the start.
    fn connections(&self) -> u64 {
        self.connections.load(Ordering::SeqCst)
    }
}

fn serve(
    mut stream: TcpStream,
    number: u64,
    behavior: Behavior,
    present: &AtomicU64,
) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    stream.write_all(&allow((behavior.allows)(number)))?;
    let mut reader = stream.try_clone()?;
    let (fetch, asked) = std::sync::mpsc::channel();
    std::thread::spawn(move || read(&mut reader, &fetch));
    let mut waiting = Vec::new();
    let mut first = true;
    loop {
        match asked.recv_timeout(Duration::from_millis(5)) {
            Ok((HEADERS, id)) => {
                present.fetch_add(1, Ordering::SeqCst);
                waiting.push(id);
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
        if present.load(Ordering::SeqCst) >= behavior.at_once {
            for id in waiting.drain(..) {
                stream.write_all(&frame(HEADERS, 5, id, &[0x88]))?;
                if let Some(later) = behavior.later
                    && std::mem::take(&mut first)
                {
                    stream.write_all(&allow(later))?;
                }
            }
        }
    }
}

/// Reads frames and passes on those that need a response, until the connection ends.
fn read(stream: &mut TcpStream, to: &std::sync::mpsc::Sender<(u8, u32)>) -> std::io::Result<()> {
    stream.read_exact(&mut [0; 24])?;
    loop {
        let mut header = [0; 9];
        stream.read_exact(&mut header)?;
        let [_, a, b, kind, flags, id @ ..] = header;
        let mut payload = vec![0; usize::from(a) << 8 | usize::from(b)];
        stream.read_exact(&mut payload)?;
        let asks = kind == HEADERS || matches!(kind, SETTINGS | PING) && flags & ACK == 0;
        if asks && to.send((kind, u32::from_be_bytes(id))).is_err() {
            return Ok(());
        }
    }
}

fn proxy(servers: &[SocketAddr]) -> Proxy {
    let proxy = Proxy::start("http", servers, "");
    let text = configuration(proxy.listen, "http", servers, "");
    proxy.reload(&text.replace("\n\n[service.s]", "\nhttp2 = true\n\n[service.s]"));
    proxy
}

const POST: &str = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nok";

/// Sends the same request on `count` connections. Returns the status lines of the responses.
fn send_at_once(proxy: &Proxy, count: usize, text: &str) -> Vec<String> {
    let mut clients: Vec<Client> = (0..count).map(|_| Client::connect(proxy.listen)).collect();
    clients.iter_mut().for_each(|client| client.send(text));
    let answer = |client: &mut Client| match client.response() {
        Ok(Some((head, _))) => head.lines().next().unwrap_or_default().to_owned(),
        other => format!("{other:?}"),
    };
    clients.iter_mut().map(answer).collect()
}

#[test]
fn server_that_allows_few_streams_gets_more_connections() {
    let server = Server::start(Behavior {
        allows: |_| 2,
        at_once: 20,
        ..DEFAULT_BEHAVIOR
    });
    let proxy = proxy(&[server.address]);
    // The server responds to none of them before all have arrived.
    let answers = send_at_once(&proxy, 20, POST);
    assert!(answers.iter().all(|it| it.contains(" 200 ")), "{answers:?}");
    // Each of two workers has its own connections, and the last one may have free streams.
    let connections = server.connections();
    assert!((10..=11).contains(&connections), "{connections}");
}

#[test]
fn server_connection_without_streams_is_replaced() {
    let server = Server::start(Behavior {
        allows: |number| if number < 2 { 0 } else { 100 },
        ..DEFAULT_BEHAVIOR
    });
    let proxy = proxy(&[server.address]);
    let answers = send_at_once(&proxy, 1, POST);
    assert!(answers.iter().all(|it| it.contains(" 200 ")), "{answers:?}");
    assert_eq!(server.connections(), 3);
}

#[test]
fn server_without_streams_counts_as_down() {
    let never = Server::start(Behavior {
        allows: |_| 0,
        ..DEFAULT_BEHAVIOR
    });
    let alone = proxy(&[never.address]);
    let answers = send_at_once(&alone, 10, POST);
    assert!(answers.iter().all(|it| it.contains(" 503 ")), "{answers:?}");
    let other = Server::start(DEFAULT_BEHAVIOR);
    let both = proxy(&[never.address, other.address]);
    for _ in 0..4 {
        let answers = send_at_once(&both, 5, POST);
        assert!(answers.iter().all(|it| it.contains(" 200 ")), "{answers:?}");
    }
}

#[test]
fn stream_limit_dropping_to_zero_redirects_the_next_request() {
    let server = Server::start(Behavior {
        later: Some(0),
        ..DEFAULT_BEHAVIOR
    });
    let proxy = proxy(&[server.address]);
    for _ in 0..6 {
        let answers = send_at_once(&proxy, 1, GET);
        assert!(answers.iter().all(|it| it.contains(" 200 ")), "{answers:?}");
    }
}
