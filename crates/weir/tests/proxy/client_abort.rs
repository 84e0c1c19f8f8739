//! Tests clients that disconnect before the response.
//!
//! Weir aborts their requests at the servers, removes them from queues, and keeps no state for them.

use std::net::Shutdown;
use std::sync::Mutex;
use std::sync::atomic::AtomicI64;

use h2::client;

use super::tls::{Authority, connect};
use super::*;

const TIMEOUT: Duration = Duration::from_secs(20);

/// A server that counts the open requests and delays its responses until the test releases them.
pub(super) struct SlowServer {
    pub(super) address: SocketAddr,
    shared: Arc<SharedState>,
}

/// State that the connections of the server share.
#[derive(Default)]
struct SharedState {
    requests: AtomicU64,
    /// Number of open connections that have sent a request.
    open_connections: AtomicI64,
    held_streams: Mutex<Vec<TcpStream>>,
    /// Whether responses are sent immediately.
    responds_immediately: AtomicBool,
}

impl SlowServer {
    /// Starts the server. It delays all responses until `respond` is called.
    pub(super) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("bind a listener");
        let address = listener.local_addr().expect("get local address");
        let shared = Arc::new(SharedState::default());
        let state = Arc::clone(&shared);
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let state = Arc::clone(&state);
                let builder = std::thread::Builder::new().stack_size(128 << 10);
                let thread = builder.spawn(move || serve(stream, &state));
                thread.expect("spawn a thread");
            }
        });
        Self { address, shared }
    }

    /// Returns the number of requests received since the start.
    fn requests(&self) -> u64 {
        self.shared.requests.load(Ordering::Relaxed)
    }

    /// Returns the number of open connections that have sent a request.
    pub(super) fn open_connections(&self) -> i64 {
        self.shared.open_connections.load(Ordering::Relaxed)
    }

    /// Makes the server respond to all held requests and to all later ones.
    pub(super) fn respond(&self) {
        self.shared
            .responds_immediately
            .store(true, Ordering::Relaxed);
        for mut stream in self
            .shared
            .held_streams
            .lock()
            .expect("lock poisoned")
            .drain(..)
        {
            let _ = stream.write_all(RESPONSE);
        }
    }
}

const RESPONSE: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nslow";

/// Serves a connection until the client closes it.
fn serve(mut stream: TcpStream, shared: &SharedState) {
    let mut buffer = [0u8; 4096];
    let mut head = Vec::new();
    let mut has_sent_request = false;
    loop {
        match stream.read(&mut buffer) {
            Ok(0) | Err(_) => break,
            Ok(bytes) => head.extend_from_slice(&buffer[..bytes]),
        }
        if !head.ends_with(b"\r\n\r\n") {
            continue;
        }
        head.clear();
        shared.requests.fetch_add(1, Ordering::Relaxed);
        if !has_sent_request {
            shared.open_connections.fetch_add(1, Ordering::Relaxed);
        }
        has_sent_request = true;
        let mut held_streams = shared.held_streams.lock().expect("lock poisoned");
        if shared.responds_immediately.load(Ordering::Relaxed) {
            let _ = stream.write_all(RESPONSE);
        } else {
            held_streams.push(stream.try_clone().expect("duplicate descriptor"));
        }
    }
    if has_sent_request {
        shared.open_connections.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Waits until the condition returns true. Returns the elapsed time.
pub(super) fn wait_until(description: &str, mut condition: impl FnMut() -> bool) -> Duration {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < TIMEOUT, "timed out: {description}");
        std::thread::sleep(Duration::from_millis(10));
    }
    start.elapsed()
}

/// Configures the socket so that closing it sends a reset.
fn reset_on_close(client: &Client) {
    rustix::net::sockopt::set_socket_linger(&client.0, Some(Duration::ZERO))
        .expect("set SO_LINGER");
}

/// Returns the service from the status document.
fn service(proxy: &Proxy) -> serde_json::Value {
    proxy.status()["services"][0].clone()
}

/// Returns the number of open file descriptors of the daemon.
fn descriptor_count(proxy: &Proxy) -> usize {
    let daemon = keeper::daemon(proxy.child.id());
    fs::read_dir(format!("/proc/{daemon}/fd"))
        .expect("read /proc")
        .count()
}

/// Configures a pool with one server that accepts `max_connections` concurrent requests.
fn limit_server(proxy: &Proxy, server: SocketAddr, max_connections: u32, service_lines: &str) {
    let text = configuration(proxy.listen, "http", &[server], service_lines).replace(
        &format!("servers = [\"{server}\"]"),
        &format!(
            "servers = [{{ address = \"{server}\", max_connections = {max_connections} }}]\nqueue_timeout = \"1m\""
        ),
    );
    proxy.reload(&text);
}

/// 1,000 clients disconnect after the server has received their requests, and another 1,000 immediately after they have
/// sent their requests, first with FIN and then with RST.
#[test]
fn abandoned_requests_are_aborted_at_the_server() {
    const CLIENTS: usize = 1_000;
    weir_sys::raise_nofile().expect("raise the file descriptor limit");
    let origin = SlowServer::start();
    let log = std::env::temp_dir().join(format!("weir-abandoned-{}", std::process::id()));
    let _ = fs::remove_file(&log);
    let extra = format!(
        "access_log = {{ path = \"{}\", format = \"{{status}} {{end}} {{retries}}\" }}",
        log.display()
    );
    let proxy = Proxy::start("http", &[origin.address], &extra);
    let before = descriptor_count(&proxy);
    for with_reset in [false, true] {
        let requests_before = origin.requests();
        let fetch = || {
            let mut client = Client::connect(proxy.listen);
            client.send(GET);
            if with_reset {
                reset_on_close(&client);
            }
            client
        };
        let clients: Vec<Client> = (0..CLIENTS).map(|_| fetch()).collect();
        // Late requests of clients from the previous round may be counted too.
        wait_until("the server has received all requests", || {
            origin.requests() >= requests_before + CLIENTS as u64
        });
        drop(clients);
        wait_until("no request is open at the server", || {
            origin.open_connections() == 0
        });
        (0..CLIENTS).for_each(|_| drop(fetch()));
        wait_until("no request is open, active or queued", || {
            let service = service(&proxy);
            origin.open_connections() == 0
                && service["clients"] == 0
                && service["servers"][0]["active_connections"] == 0
        });
    }
    wait_until("the daemon has closed its descriptors", || {
        descriptor_count(&proxy) <= before + 16
    });
    let service = service(&proxy);
    assert_eq!(service["retries"], 0, "{service:#}");
    assert_eq!(service["errors"], 0, "{service:#}");
    let lines = || fs::read_to_string(&log).unwrap_or_default();
    wait_until("the access log has enough lines", || {
        lines().lines().count() >= 2 * CLIENTS
    });
    let lines = lines();
    let is_client_abort = |line: &&str| ["0 CH 0", "0 CC 0"].contains(line);
    let aborted = lines.lines().filter(is_client_abort).count();
    assert!(aborted >= 2 * CLIENTS, "{aborted} lines with CH or CC");
    let _ = fs::remove_file(&log);
}

/// If `abort_on_close` is false, a client that only shuts down its write side still gets its response. A reset aborts
/// the request anyway.
#[test]
fn half_closed_client_gets_its_response_without_abort_on_close() {
    let origin = SlowServer::start();
    let proxy = Proxy::start("http", &[origin.address], "abort_on_close = false");
    let mut half_closed = Client::connect(proxy.listen);
    half_closed.send(GET);
    half_closed
        .0
        .shutdown(Shutdown::Write)
        .expect("shut down the write side");
    let mut reset_client = Client::connect(proxy.listen);
    reset_client.send(GET);
    wait_until("the server has received both requests", || {
        origin.open_connections() == 2
    });
    reset_on_close(&reset_client);
    drop(reset_client);
    wait_until("the request of the reset client is aborted", || {
        origin.open_connections() == 1
    });
    origin.respond();
    let response = half_closed
        .read_response()
        .expect("read response")
        .expect("no response");
    assert!(response.0.starts_with("HTTP/1.1 200"), "{}", response.0);
}

/// Weir does not treat pipelined data as an end of stream, and processes it after the first request.
#[test]
fn pipelined_requests_are_not_treated_as_end_of_stream() {
    let authority = Authority::new("ahead");
    authority.sign("one", "DNS:a.example", 30);
    let origin = SlowServer::start();
    let proxy = Proxy::start("http", &[origin.address], "");
    let tls = format!("tls = {{ certificates = \"{}\" }}", authority.certs());
    let tls_proxy = Proxy::start("http", &[origin.address], &tls);
    let mut client = Client::connect(proxy.listen);
    let mut tls_client = connect(&authority.client(None), tls_proxy.listen, "a.example");
    client.send(GET);
    tls_client.write_all(GET.as_bytes()).expect("write");
    wait_until("the server has received both requests", || {
        origin.open_connections() == 2
    });
    // The second request arrives in another segment while the server is processing the first.
    for _ in 0..2 {
        client.send(GET);
        tls_client.write_all(GET.as_bytes()).expect("write");
        tls_client.flush().expect("flush");
        std::thread::sleep(Duration::from_millis(150));
    }
    assert_eq!(origin.open_connections(), 2);
    origin.respond();
    for _ in 0..3 {
        let response = client
            .read_response()
            .expect("read response")
            .expect("no response");
        assert!(response.0.starts_with("HTTP/1.1 200"), "{}", response.0);
    }
    let mut output = Vec::new();
    let mut buffer = [0; 4096];
    while output.windows(4).filter(|part| part == b"slow").count() < 3 {
        let bytes = tls_client.read(&mut buffer).expect("read response");
        assert!(bytes > 0, "{}", String::from_utf8_lossy(&output));
        output.extend_from_slice(&buffer[..bytes]);
    }
}

/// The end of a TLS session counts as a disconnect even if the TCP connection stays open.
#[test]
fn close_notify_ends_the_request() {
    let authority = Authority::new("notify");
    authority.sign("one", "DNS:a.example", 30);
    let origin = SlowServer::start();
    let tls = format!("tls = {{ certificates = \"{}\" }}", authority.certs());
    let proxy = Proxy::start("http", &[origin.address], &tls);
    let mut client = connect(&authority.client(None), proxy.listen, "a.example");
    client.write_all(GET.as_bytes()).expect("write");
    wait_until("the server has received the request", || {
        origin.open_connections() == 1
    });
    client.conn.send_close_notify();
    client.flush().expect("flush");
    wait_until("the request is aborted", || origin.open_connections() == 0);
}

/// 5,000 queued clients that have disconnected do not delay the next client.
#[test]
fn closed_clients_in_queue_do_not_delay_others() {
    const QUEUED: usize = 5_000;
    weir_sys::raise_nofile().expect("raise the file descriptor limit");
    let origin = SlowServer::start();
    let proxy = Proxy::start("http", &[origin.address], "");
    limit_server(&proxy, origin.address, 2, "");
    let fetch = || {
        let mut client = Client::connect(proxy.listen);
        client.send(GET);
        client
    };
    let mut first: Vec<Client> = (0..2).map(|_| fetch()).collect();
    wait_until("both slots are in use", || origin.open_connections() == 2);
    let queued_clients: Vec<Client> = (0..QUEUED).map(|_| fetch()).collect();
    wait_until("the other requests are queued", || {
        service(&proxy)["queued"] == QUEUED as u64
    });
    let mut next = fetch();
    wait_until("the request of the next client is queued", || {
        service(&proxy)["queued"] == QUEUED as u64 + 1
    });
    drop(queued_clients);
    wait_until("only the request of the next client is queued", || {
        service(&proxy)["queued"] == 1
    });
    assert_eq!(origin.requests(), 2);
    origin.respond();
    for client in first.iter_mut().chain([&mut next]) {
        let response = client
            .read_response()
            .expect("read response")
            .expect("no response");
        assert!(response.0.starts_with("HTTP/1.1 200"), "{}", response.0);
    }
    assert_eq!(service(&proxy)["queued"], 0);
    assert_eq!(
        origin.requests(),
        3,
        "requests of disconnected clients must not be sent"
    );
}

/// Aborted requests release their slots and do not count as errors of the server.
#[test]
fn abandoned_requests_free_their_slots() {
    let origin = SlowServer::start();
    let proxy = Proxy::start("http", &[origin.address], "");
    limit_server(&proxy, origin.address, 2, "");
    for _ in 0..50 {
        let requests_before = origin.requests();
        let clients: Vec<Client> = (0..2)
            .map(|_| {
                let mut client = Client::connect(proxy.listen);
                client.send(GET);
                client
            })
            .collect();
        wait_until("the server has received both requests", || {
            origin.requests() == requests_before + 2
        });
        drop(clients);
        // Wait for the slots; otherwise, the next requests would wait in the queue.
        wait_until("both slots are free", || {
            service(&proxy)["servers"][0]["active_connections"] == 0
        });
    }
    origin.respond();
    let mut next = Client::connect(proxy.listen);
    assert!(next.fetch(GET).0.starts_with("HTTP/1.1 200"));
    let service = service(&proxy);
    assert_eq!(service["retries"], 0, "{service:#}");
    assert!(service["servers"][0]["ejected"].is_null(), "{service:#}");
}

/// If a proxy forwards to another one, the first one resets the HTTP/2 streams of clients that have disconnected.
#[test]
fn abandoned_requests_reset_their_streams() {
    let origin = SlowServer::start();
    let second = Proxy::start("http", &[origin.address], "");
    let first = Proxy::start("http", &[second.listen], "");
    let text = configuration(first.listen, "http", &[second.listen], "");
    first.reload(&text.replace("\n\n[service.s]", "\nhttp2 = true\n\n[service.s]"));
    let clients: Vec<Client> = (0..20)
        .map(|_| {
            let mut client = Client::connect(first.listen);
            client.send(GET);
            client
        })
        .collect();
    wait_until("the server has received all requests", || {
        origin.open_connections() == 20
    });
    drop(clients);
    wait_until("all requests are aborted", || {
        origin.open_connections() == 0
    });
    wait_until("no request is active in either proxy", || {
        service(&second)["servers"][0]["active_connections"] == 0
            && service(&first)["servers"][0]["active_connections"] == 0
    });
    let connections = service(&second)["clients"].as_u64();
    assert!(
        connections > Some(0),
        "the connections between the two proxies must stay open"
    );
}

/// Streams that are reset while they are queued are removed from the queue.
#[test]
fn reset_streams_are_removed_from_the_queue() {
    let origin = SlowServer::start();
    let proxy = Proxy::start("http", &[origin.address], "");
    limit_server(&proxy, origin.address, 1, "");
    let mut first = Client::connect(proxy.listen);
    first.send(GET);
    wait_until("the slot is in use", || origin.open_connections() == 1);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("build runtime");
    runtime.block_on(async {
        let tcp = tokio::net::TcpStream::connect(proxy.listen)
            .await
            .expect("connect");
        let (mut send, connection) = client::handshake(tcp)
            .await
            .expect("complete the HTTP/2 handshake");
        tokio::spawn(connection);
        let mut streams = Vec::new();
        for _ in 0..50 {
            send = send.ready().await.expect("wait for a free stream");
            let request = http::Request::get("http://a.example/")
                .body(())
                .expect("build request");
            streams.push(send.send_request(request, true).expect("send request"));
        }
        let wait_for_queued = async |expected: u64| {
            let started = Instant::now();
            while service(&proxy)["queued"] != expected {
                assert!(
                    started.elapsed() < TIMEOUT,
                    "timed out: {expected} queued requests"
                );
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        wait_for_queued(50).await;
        for (_, stream) in &mut streams {
            stream.send_reset(h2::Reason::CANCEL);
        }
        wait_for_queued(0).await;
    });
    assert_eq!(origin.requests(), 1);
}

/// A reset closes a tunnel, even if the client has already shut down its write side.
#[test]
fn reset_ends_a_half_closed_tunnel() {
    let origin = SlowServer::start();
    let proxy = Proxy::start("tcp", &[origin.address], "");
    let mut client = Client::connect(proxy.listen);
    client.send(GET);
    wait_until("the server has the request", || origin.requests() == 1);
    let listener = TcpListener::bind("127.0.0.1:0").expect("bind a listener");
    let silent = Proxy::start(
        "tcp",
        &[listener.local_addr().expect("get local address")],
        "",
    );
    let half_closed = Client::connect(silent.listen);
    let (_server, _) = listener.accept().expect("accept a connection");
    half_closed
        .0
        .shutdown(Shutdown::Write)
        .expect("shut down the write side");
    // Reset both connections: one immediately, the other after a half-close.
    std::thread::sleep(Duration::from_millis(100));
    for client in [&client, &half_closed] {
        reset_on_close(client);
    }
    drop((client, half_closed));
    for proxy in [&proxy, &silent] {
        wait_until("the service has no client", || {
            service(proxy)["clients"] == 0
        });
    }
    wait_until("the server's connection is closed", || {
        origin.open_connections() == 0
    });
}
