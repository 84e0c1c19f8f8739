//! Clients that disconnect before the response: their requests are removed from servers and queues, and the daemon
//! keeps no state of them.

use std::net::Shutdown;
use std::sync::Mutex;
use std::sync::atomic::AtomicI64;

use h2::client;

use super::tls::{Authority, connect};
use super::*;

const TIMEOUT: Duration = Duration::from_secs(20);

/// A server that holds its responses until the test releases them, and counts the open requests.
pub(super) struct Slow {
    pub(super) address: SocketAddr,
    seen: Arc<Seen>,
}

#[derive(Default)]
struct Seen {
    requests: AtomicU64,
    /// Number of open connections that have sent a request.
    open: AtomicI64,
    held: Mutex<Vec<TcpStream>>,
    /// Whether requests get their response immediately.
    quick: AtomicBool,
}

impl Slow {
    /// Starts the server. It holds all responses until `answer` is called.
    pub(super) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("bind a listener");
        let address = listener.local_addr().expect("get local address");
        let seen = Arc::new(Seen::default());
        let shared = Arc::clone(&seen);
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let seen = Arc::clone(&shared);
                let thread = std::thread::Builder::new().stack_size(128 << 10);
                let served = thread.spawn(move || serve(stream, &seen));
                served.expect("spawn a thread");
            }
        });
        Self { address, seen }
    }

    /// Returns the number of requests since the start.
    fn requests(&self) -> u64 {
        self.seen.requests.load(Ordering::Relaxed)
    }

    /// Returns the number of open connections that have sent a request.
    pub(super) fn open(&self) -> i64 {
        self.seen.open.load(Ordering::Relaxed)
    }

    /// Responds to all held requests and to all later ones.
    pub(super) fn answer(&self) {
        self.seen.quick.store(true, Ordering::Relaxed);
        for mut stream in self.seen.held.lock().expect("lock poisoned").drain(..) {
            let _ = stream.write_all(ANSWER);
        }
    }
}

const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nslow";

/// Serves a connection until the client closes it.
fn serve(mut stream: TcpStream, seen: &Seen) {
    let mut buffer = [0u8; 4096];
    let mut head = Vec::new();
    let mut request_count = false;
    loop {
        match stream.read(&mut buffer) {
            Ok(0) | Err(_) => break,
            Ok(bytes) => head.extend_from_slice(&buffer[..bytes]),
        }
        if !head.ends_with(b"\r\n\r\n") {
            continue;
        }
        head.clear();
        seen.requests.fetch_add(1, Ordering::Relaxed);
        if !request_count {
            seen.open.fetch_add(1, Ordering::Relaxed);
        }
        request_count = true;
        let mut held = seen.held.lock().expect("lock poisoned");
        if seen.quick.load(Ordering::Relaxed) {
            let _ = stream.write_all(ANSWER);
        } else {
            held.push(stream.try_clone().expect("duplicate descriptor"));
        }
    }
    if request_count {
        seen.open.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Waits until the condition holds. Returns the time that it took.
pub(super) fn until(what: &str, mut holds: impl FnMut() -> bool) -> Duration {
    let began = Instant::now();
    while !holds() {
        assert!(began.elapsed() < TIMEOUT, "timed out: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
    began.elapsed()
}

/// Makes the connection close with a reset.
fn reset(client: &Client) {
    rustix::net::sockopt::set_socket_linger(&client.0, Some(Duration::ZERO))
        .expect("set SO_LINGER");
}

/// Returns the service in the status document.
fn service(proxy: &Proxy) -> serde_json::Value {
    proxy.status()["services"][0].clone()
}

/// Returns the number of open file descriptors of the daemon.
fn descriptors(proxy: &Proxy) -> usize {
    let daemon = keeper::daemon(proxy.child.id());
    fs::read_dir(format!("/proc/{daemon}/fd"))
        .expect("read /proc")
        .count()
}

/// Configures a pool with one server that accepts `most` concurrent requests.
fn limited(proxy: &Proxy, server: SocketAddr, most: u32, more: &str) {
    let text = configuration(proxy.listen, "http", &[server], more).replace(
        &format!("servers = [\"{server}\"]"),
        &format!(
            "servers = [{{ address = \"{server}\", max_connections = {most} }}]\nqueue_timeout = \"1m\""
        ),
    );
    proxy.reload(&text);
}

/// 2 × 2 000 requests whose clients disconnect, by FIN and by a reset, while the server works, and as many that
/// disconnect immediately.
#[test]
fn abandoned_requests_are_aborted_at_the_server() {
    const CLIENTS: usize = 1_000;
    weir_sys::raise_nofile().expect("raise the file descriptor limit");
    let origin = Slow::start();
    let log = std::env::temp_dir().join(format!("weir-abandoned-{}", std::process::id()));
    let _ = fs::remove_file(&log);
    let more = format!(
        "access_log = {{ path = \"{}\", format = \"{{status}} {{end}} {{retries}}\" }}",
        log.display()
    );
    let proxy = Proxy::start("http", &[origin.address], &more);
    let before = descriptors(&proxy);
    for resets in [false, true] {
        let earlier = origin.requests();
        let fetch = || {
            let mut client = Client::connect(proxy.listen);
            client.send(GET);
            if resets {
                reset(&client);
            }
            client
        };
        let clients: Vec<Client> = (0..CLIENTS).map(|_| fetch()).collect();
        until("all requests are at the server", || {
            origin.requests() == earlier + CLIENTS as u64
        });
        drop(clients);
        until("no request is left at the server", || origin.open() == 0);
        (0..CLIENTS).for_each(|_| drop(fetch()));
        until("no request is left, active or queued", || {
            let service = service(&proxy);
            origin.open() == 0
                && service["clients"] == 0
                && service["servers"][0]["active_connections"] == 0
        });
    }
    until("the descriptors are given back", || {
        descriptors(&proxy) <= before + 16
    });
    let service = service(&proxy);
    assert_eq!(service["retries"], 0, "{service:#}");
    assert_eq!(service["errors"], 0, "{service:#}");
    let lines = || fs::read_to_string(&log).unwrap_or_default();
    until("each has a line in the access log", || {
        lines().lines().count() >= 2 * CLIENTS
    });
    let lines = lines();
    let fault_of_client = |line: &&str| ["0 CH 0", "0 CC 0"].contains(line);
    let waited = lines.lines().filter(fault_of_client).count();
    assert!(waited >= 2 * CLIENTS, "{waited} lines with CH or CC");
    let _ = fs::remove_file(&log);
}

/// A client that only shuts down writing gets its response if `abort_on_close` is false. A reset aborts the request
/// anyway.
#[test]
fn half_closed_client_gets_its_response_without_abort_on_close() {
    let origin = Slow::start();
    let proxy = Proxy::start("http", &[origin.address], "abort_on_close = false");
    let mut half = Client::connect(proxy.listen);
    half.send(GET);
    half.0.shutdown(Shutdown::Write).expect("shut down writing");
    let mut gone = Client::connect(proxy.listen);
    gone.send(GET);
    until("both are at the server", || origin.open() == 2);
    reset(&gone);
    drop(gone);
    until("the one that was reset is not", || origin.open() == 1);
    origin.answer();
    let answer = half
        .response()
        .expect("read response")
        .expect("no response");
    assert!(answer.0.starts_with("HTTP/1.1 200"), "{}", answer.0);
}

/// Pipelined data is not an end of stream, and is processed after the first request.
#[test]
fn pipelined_requests_are_not_taken_for_a_close() {
    let authority = Authority::new("ahead");
    authority.sign("one", "DNS:a.example", 30);
    let origin = Slow::start();
    let proxy = Proxy::start("http", &[origin.address], "");
    let tls = format!("tls = {{ certificates = \"{}\" }}", authority.certs());
    let secure = Proxy::start("http", &[origin.address], &tls);
    let mut client = Client::connect(proxy.listen);
    let mut over_tls = connect(&authority.client(None), secure.listen, "a.example");
    client.send(GET);
    over_tls.write_all(GET.as_bytes()).expect("write");
    until("both are at the server", || origin.open() == 2);
    // The second request arrives in another segment, while the server works.
    for _ in 0..2 {
        client.send(GET);
        over_tls.write_all(GET.as_bytes()).expect("write");
        over_tls.flush().expect("flush");
        std::thread::sleep(Duration::from_millis(150));
    }
    assert_eq!(origin.open(), 2);
    origin.answer();
    for _ in 0..3 {
        let answer = client
            .response()
            .expect("read response")
            .expect("no response");
        assert!(answer.0.starts_with("HTTP/1.1 200"), "{}", answer.0);
    }
    let mut output = Vec::new();
    let mut buffer = [0; 4096];
    while output.windows(4).filter(|part| part == b"slow").count() < 3 {
        let bytes = over_tls.read(&mut buffer).expect("read response");
        assert!(bytes > 0, "{}", String::from_utf8_lossy(&output));
        output.extend_from_slice(&buffer[..bytes]);
    }
}

/// The end of a TLS session counts as a disconnect, even if the TCP connection stays open.
#[test]
fn close_notify_ends_the_request() {
    let authority = Authority::new("notify");
    authority.sign("one", "DNS:a.example", 30);
    let origin = Slow::start();
    let tls = format!("tls = {{ certificates = \"{}\" }}", authority.certs());
    let proxy = Proxy::start("http", &[origin.address], &tls);
    let mut client = connect(&authority.client(None), proxy.listen, "a.example");
    client.write_all(GET.as_bytes()).expect("write");
    until("it is at the server", || origin.open() == 1);
    client.conn.send_close_notify();
    client.flush().expect("flush");
    until("it is not any more", || origin.open() == 0);
}

/// 5 000 queued clients that have disconnected do not delay the next client.
#[test]
fn closed_clients_in_queue_do_not_delay_others() {
    const QUEUED: usize = 5_000;
    weir_sys::raise_nofile().expect("raise the file descriptor limit");
    let origin = Slow::start();
    let proxy = Proxy::start("http", &[origin.address], "");
    limited(&proxy, origin.address, 2, "");
    let fetch = || {
        let mut client = Client::connect(proxy.listen);
        client.send(GET);
        client
    };
    let mut first: Vec<Client> = (0..2).map(|_| fetch()).collect();
    until("both slots are in use", || origin.open() == 2);
    let waiting: Vec<Client> = (0..QUEUED).map(|_| fetch()).collect();
    until("the others are queued", || {
        service(&proxy)["queued"] == QUEUED as u64
    });
    let mut next = fetch();
    until("so is the next one", || {
        service(&proxy)["queued"] == QUEUED as u64 + 1
    });
    drop(waiting);
    until("only that one is queued", || service(&proxy)["queued"] == 1);
    assert_eq!(origin.requests(), 2);
    origin.answer();
    for client in first.iter_mut().chain([&mut next]) {
        let answer = client
            .response()
            .expect("read response")
            .expect("no response");
        assert!(answer.0.starts_with("HTTP/1.1 200"), "{}", answer.0);
    }
    assert_eq!(service(&proxy)["queued"], 0);
    assert_eq!(
        origin.requests(),
        3,
        "requests of disconnected clients must not be sent"
    );
}

/// Two aborted requests release their slots, and are not counted as errors of the server.
#[test]
fn abandoned_requests_free_their_slots() {
    let origin = Slow::start();
    let proxy = Proxy::start("http", &[origin.address], "");
    limited(&proxy, origin.address, 2, "");
    for _ in 0..50 {
        let earlier = origin.requests();
        let two: Vec<Client> = (0..2)
            .map(|_| {
                let mut client = Client::connect(proxy.listen);
                client.send(GET);
                client
            })
            .collect();
        until("both are at the server", || {
            origin.requests() == earlier + 2
        });
        drop(two);
        // There is no queue, so the next client would get a 503 before the slots are free.
        until("both slots are free", || {
            service(&proxy)["servers"][0]["active_connections"] == 0
        });
    }
    origin.answer();
    let mut next = Client::connect(proxy.listen);
    assert!(next.fetch(GET).0.starts_with("HTTP/1.1 200"));
    let service = service(&proxy);
    assert_eq!(service["retries"], 0, "{service:#}");
    assert!(service["servers"][0]["ejected"].is_null(), "{service:#}");
}

/// Over HTTP/2 the stream is reset: by the client, and between two Weirs by the first one.
#[test]
fn abandoned_requests_reset_their_streams() {
    let origin = Slow::start();
    let back = Proxy::start("http", &[origin.address], "");
    let front = Proxy::start("http", &[back.listen], "");
    let text = configuration(front.listen, "http", &[back.listen], "");
    front.reload(&text.replace("\n\n[service.s]", "\nhttp2 = true\n\n[service.s]"));
    let clients: Vec<Client> = (0..20)
        .map(|_| {
            let mut client = Client::connect(front.listen);
            client.send(GET);
            client
        })
        .collect();
    until("all are at the server", || origin.open() == 20);
    drop(clients);
    until("none is any more", || origin.open() == 0);
    until("nor at the second Weir", || {
        service(&back)["servers"][0]["active_connections"] == 0
            && service(&front)["servers"][0]["active_connections"] == 0
    });
    let connections = service(&back)["clients"].as_u64();
    assert!(connections > Some(0), "connections stay");
}

/// Streams that are reset while they are queued are removed from the queue.
#[test]
fn reset_streams_leave_the_queue() {
    let origin = Slow::start();
    let proxy = Proxy::start("http", &[origin.address], "");
    limited(&proxy, origin.address, 1, "");
    let mut first = Client::connect(proxy.listen);
    first.send(GET);
    until("the slot is in use", || origin.open() == 1);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("build runtime");
    runtime.block_on(async {
        let tcp = tokio::net::TcpStream::connect(proxy.listen)
            .await
            .expect("connect");
        let (mut send, connection) = client::handshake(tcp).await.expect("HTTP/2 handshake");
        tokio::spawn(connection);
        let mut streams = Vec::new();
        for _ in 0..50 {
            send = send.ready().await.expect("wait for a free stream");
            let request = http::Request::get("http://a.example/")
                .body(())
                .expect("build request");
            streams.push(send.send_request(request, true).expect("send request"));
        }
        let queued = async |wanted: u64| {
            let began = Instant::now();
            while service(&proxy)["queued"] != wanted {
                assert!(
                    began.elapsed() < TIMEOUT,
                    "timed out: {wanted} queued requests"
                );
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        queued(50).await;
        for (_, stream) in &mut streams {
            stream.send_reset(h2::Reason::CANCEL);
        }
        queued(0).await;
    });
    assert_eq!(origin.requests(), 1);
}

/// A reset closes a tunnel whose client had shut down writing before.
#[test]
fn reset_ends_a_half_closed_tunnel() {
    let origin = Slow::start();
    let proxy = Proxy::start("tcp", &[origin.address], "");
    let mut client = Client::connect(proxy.listen);
    client.send(GET);
    until("the server has the request", || origin.requests() == 1);
    let listener = TcpListener::bind("127.0.0.1:0").expect("bind a listener");
    let silent = Proxy::start(
        "tcp",
        &[listener.local_addr().expect("get local address")],
        "",
    );
    let half = Client::connect(silent.listen);
    let (_server, _) = listener.accept().expect("accept a connection");
    half.0.shutdown(Shutdown::Write).expect("shut down writing");
    // Both connections close: one immediately by a reset, the other one after a half-close.
    std::thread::sleep(Duration::from_millis(100));
    for client in [&client, &half] {
        reset(client);
    }
    drop((client, half));
    for proxy in [&proxy, &silent] {
        until("no client is left", || service(proxy)["clients"] == 0);
    }
    until("the server's connection is closed", || origin.open() == 0);
}
