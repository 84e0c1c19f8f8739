//! Tests HTTP/2 to clients and servers.
//!
//! The clients are curl, h2spec, clients that use streams and trailers as gRPC does, and malicious clients.

use std::convert::Infallible;

use bytes::Bytes;
use h2::{Reason, RecvStream, client, server};
use http::{HeaderMap, Request, Response};

use super::headers::receive_trailers;
use super::tls::Authority;
use super::*;

fn curl(arguments: &[&str]) -> String {
    let output = Command::new("curl")
        .args(["-sS", "--max-time", "20"])
        .args(arguments)
        .output()
        .expect("run curl");
    let text = [output.stdout, output.stderr].concat();
    String::from_utf8_lossy(&text).into_owned()
}

#[test]
fn access_log_shows_protocol_version() {
    let origin = Origin::start("o");
    let directory = std::env::temp_dir().join(format!("weir-log2-{}", std::process::id()));
    fs::create_dir_all(&directory).expect("create directory");
    let file = directory.join("access.log");
    let log = format!("access_log = \"{}\"", file.display());
    let proxy = Proxy::start("http", &[origin.address()], &log);
    for flag in ["--http2-prior-knowledge", "--http1.1", "--http1.0"] {
        curl(&[flag, &format!("http://{}/{flag}", proxy.listen)]);
    }
    let read = || fs::read_to_string(&file).unwrap_or_default();
    let deadline = Instant::now() + Duration::from_secs(10);
    while read().lines().count() < 3 && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(20));
    }
    for line in [
        "\"GET /--http2-prior-knowledge HTTP/2.0\" 200 ",
        "\"GET /--http1.1 HTTP/1.1\" 200 ",
        "\"GET /--http1.0 HTTP/1.0\" 200 ",
    ] {
        assert!(read().contains(line), "no {line} in {}", read());
    }
    let _ = fs::remove_dir_all(&directory);
}

#[test]
fn http2_works_with_and_without_tls() {
    let authority = Authority::new("h2");
    authority.sign("one", "IP:127.0.0.1,DNS:a.example", 30);
    let origin = Origin::start("o");
    let plain_proxy = Proxy::start("http", &[origin.address()], "");
    let tls = format!("tls = {{ certificates = \"{}\" }}", authority.certs());
    let secure = Proxy::start("http", &[origin.address()], &tls);
    let body = authority.write_file("body", &vec![b'x'; 3_000_000]);
    let origins = [
        (
            format!("http://{}", plain_proxy.listen),
            "--http2-prior-knowledge",
            "http",
        ),
        (format!("https://{}", secure.listen), "--http2", "https"),
    ];
    for (origin, flag, scheme) in &origins {
        let ca = authority.ca();
        let fetch = |extra: &[&str]| curl(&[&[*flag, "--cacert", &ca], extra].concat());
        let output = fetch(&["-i", &format!("{origin}/x?y"), "-H", "Cookie: a=1"]);
        assert!(output.starts_with("HTTP/2 200"), "{output}");
        assert!(output.contains("GET /x?y HTTP/1.1\r\n"), "{output}");
        assert!(
            output.contains(&format!("X-Forwarded-Proto: {scheme}\r\n")),
            "{output}"
        );
        assert!(output.contains("cookie: a=1\r\n"), "{output}");
        assert!(
            output.contains(&format!(
                "host: {}\r\n",
                origin.split("//").nth(1).expect("no host")
            )),
            "{output}"
        );
        assert_eq!(
            fetch(&[
                &format!("{origin}/sum"),
                "--data-binary",
                &format!("@{body}")
            ]),
            "3000000"
        );
        assert_eq!(fetch(&[&format!("{origin}/chunked")]), "in two parts");
        assert_eq!(fetch(&[&format!("{origin}/until-close")]), "until the end");
        let head = fetch(&["-I", &format!("{origin}/")]);
        assert!(head.starts_with("HTTP/2 200"), "{head}");
    }
    assert!(curl(&["-i", &origins[0].0]).starts_with("HTTP/1.1 200"));
    // After an upgrade from HTTP/1.1, Weir sends the response to the first request over HTTP/2.
    let output = curl(&["-i", "--http2", &format!("{}/x?z", origins[0].0)]);
    assert!(output.starts_with("HTTP/1.1 101 "), "{output}");
    assert!(
        output.contains("HTTP/2 200") && output.contains("GET /x?z HTTP/1.1\r\n"),
        "{output}"
    );
    assert!(
        !output.to_ascii_lowercase().contains("http2-settings"),
        "{output}"
    );
    // Weir does not negotiate HTTP/2 if it is disabled.
    let off = format!("{tls}\nhttp2 = false");
    secure.reload(&configuration(
        secure.listen,
        "http",
        &[origin.address()],
        &off,
    ));
    let output = curl(&["-i", "--http2", "--cacert", &authority.ca(), &origins[1].0]);
    assert!(output.starts_with("HTTP/1.1 200"), "{output}");
}

/// Runs the complete h2spec suite, with and without TLS.
#[test]
fn h2spec_passes() {
    let directory = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("h2spec");
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tools/h2spec.sh");
    let build = Command::new(script)
        .arg(&directory)
        .output()
        .expect("run shell");
    if !build.status.success() {
        let error = String::from_utf8_lossy(&build.stderr);
        let _ = weir_testing::require(&format!("h2spec ({error})"), false);
        return;
    }
    let authority = Authority::new("h2spec");
    authority.sign("one", "IP:127.0.0.1", 30);
    let origin = Origin::start("o");
    let tls = format!("tls = {{ certificates = \"{}\" }}", authority.certs());
    let run_h2spec = |extra: &str, flags: &[&str]| {
        let proxy = Proxy::start("http", &[origin.address()], extra);
        let output = Command::new(directory.join("h2spec"))
            .args(flags)
            .args(["-h", "127.0.0.1", "-p", &proxy.listen.port().to_string()])
            .output()
            .expect("run h2spec");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let summary = text
            .lines()
            .rfind(|line| line.contains(" tests, "))
            .unwrap_or_default();
        assert_eq!(
            summary, "145 tests, 145 passed, 0 skipped, 0 failed",
            "{flags:?} {text}"
        );
    };
    // h2spec mostly waits, so the two runs are concurrent.
    std::thread::scope(|scope| {
        scope.spawn(|| run_h2spec(&tls, &["-t", "-k"]));
        run_h2spec("", &[]);
    });
}

/// Returns an HTTP/2 frame.
fn frame(kind: u8, flags: u8, stream: u8, payload: &[u8]) -> Vec<u8> {
    let mut frame = u32::try_from(payload.len())
        .expect("too long")
        .to_be_bytes()[1..]
        .to_vec();
    frame.extend_from_slice(&[kind, flags, 0, 0, 0, stream]);
    frame.extend_from_slice(payload);
    frame
}

/// Sends `opening` once and `repeated` many times. Returns the code of the last GOAWAY if `is_reading` is true.
fn flood(listen: SocketAddr, opening: &[u8], repeated: &[u8], is_reading: bool) -> Option<u32> {
    let mut stream = TcpStream::connect(listen).expect("connect");
    let limit = Some(Duration::from_secs(5));
    stream.set_read_timeout(limit).expect("set read timeout");
    stream.set_write_timeout(limit).expect("set write timeout");
    let mut reader = stream.try_clone().expect("duplicate descriptor");
    let reading = std::thread::spawn(move || {
        let mut received = Vec::new();
        let mut buffer = vec![0; 1 << 16];
        while is_reading && let Ok(bytes @ 1..) = reader.read(&mut buffer) {
            received.extend_from_slice(&buffer[..bytes]);
        }
        last_goaway(&received)
    });
    let mut bytes = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    bytes.extend(frame(4, 0, 0, &[]));
    bytes.extend_from_slice(opening);
    let burst = repeated.repeat(100);
    let _ = stream.write_all(&bytes);
    // Send a hundred times the limit, or until the peer stops reading.
    for _ in 0..1_000 {
        if stream.write_all(&burst).is_err() {
            break;
        }
    }
    reading.join().expect("thread panicked")
}

/// Returns the error code of the last GOAWAY in these frames.
pub(super) fn last_goaway(mut frames: &[u8]) -> Option<u32> {
    let mut found = None;
    while let Some(header) = frames.get(..9) {
        let length = usize::from(header[1]) << 8 | usize::from(header[2]);
        let end = (9 + length).min(frames.len());
        if header[3] == 7
            && let Some(code) = frames.get(13..17)
        {
            found = code.try_into().ok().map(u32::from_be_bytes);
        }
        frames = &frames[end..];
    }
    found
}

#[test]
fn connections_flooding_idle_frames_are_closed() {
    const ENHANCE_YOUR_CALM: u32 = 11;
    let origin = Origin::start("o");
    let proxy = Proxy::start("http", &[origin.address()], "");
    let resident_kib = || {
        let pids = fs::read_to_string(format!("/proc/{0}/task/{0}/children", proxy.child.id()));
        let pids = pids.expect("read children of the keeper");
        let pid = pids
            .split_whitespace()
            .next()
            .expect("keeper has no child process")
            .to_owned();
        let text = fs::read_to_string(format!("/proc/{pid}/status")).expect("read /proc");
        let line = text.lines().find_map(|line| line.strip_prefix("RssAnon:"));
        let kib = line.and_then(|line| line.split_whitespace().next());
        kib.and_then(|kib| kib.parse::<u64>().ok())
            .expect("no RssAnon")
    };
    let before = resident_kib();
    // An incomplete header block. CONTINUATION frames with and without content follow.
    let head = frame(1, 1, 1, &[0x82]);
    // A request whose content never ends.
    let post_head = frame(1, 4, 1, &[0x83, 0x86, 0x84, 0x41, 1, b'a']);
    let settings = [0, 3, 0, 0, 0, 100];
    for (name, opening, repeated) in [
        ("SETTINGS", Vec::new(), frame(4, 0, 0, &settings)),
        ("empty SETTINGS", Vec::new(), frame(4, 0, 0, &[])),
        ("PING", Vec::new(), frame(6, 0, 0, b"12345678")),
        ("PRIORITY", Vec::new(), frame(2, 0, 3, &[0, 0, 0, 0, 1])),
        ("unknown", Vec::new(), frame(0x77, 0, 0, b"x")),
        ("WINDOW_UPDATE", Vec::new(), frame(8, 0, 0, &[0, 0, 0, 1])),
        ("empty DATA", post_head, frame(0, 0, 1, &[])),
        ("CONTINUATION", head.clone(), frame(9, 0, 1, &[])),
        ("full CONTINUATION", head, frame(9, 0, 1, &[0x84; 16])),
    ] {
        let code = flood(proxy.listen, &opening, &repeated, true);
        // The frame parser may already have rejected an incomplete head.
        let is_rejected_early = name.ends_with("CONTINUATION") && code != Some(0);
        assert!(
            is_rejected_early || code == Some(ENHANCE_YOUR_CALM),
            "{name}: {code:?}"
        );
        flood(proxy.listen, &opening, &repeated, false);
        assert!(
            Client::connect(proxy.listen)
                .fetch(GET)
                .0
                .starts_with("HTTP/1.1 200"),
            "another client must be served after {name}"
        );
    }
    let after = resident_kib();
    assert!(after < before + 16_384, "{before} KiB, then {after} KiB");
}

/// Runs a future on this thread, with a time limit.
fn block_on<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("build runtime");
    let limit = Duration::from_secs(60);
    runtime.block_on(async {
        tokio::time::timeout(limit, future)
            .await
            .expect("timed out")
    })
}

/// Connects with HTTP/2 prior knowledge.
async fn connect_http2(address: SocketAddr) -> client::SendRequest<Bytes> {
    let stream = tokio::net::TcpStream::connect(address)
        .await
        .expect("connect");
    let (send, connection) = client::handshake(stream).await.expect("HTTP/2 handshake");
    // The streams report errors of the connection.
    tokio::spawn(async move { connection.await.unwrap_or(()) });
    send.ready().await.expect("wait for a free stream")
}

/// Reads a body to its end. Returns the content and the trailers.
async fn collect(mut body: RecvStream) -> Result<(Vec<u8>, Option<HeaderMap>), h2::Error> {
    let mut content = Vec::new();
    while let Some(data) = body.data().await {
        let data = data?;
        body.flow_control().release_capacity(data.len())?;
        content.extend_from_slice(&data);
    }
    Ok((content, body.trailers().await?))
}

fn post(path: &str) -> Request<()> {
    Request::post(format!("http://a.example{path}"))
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .body(())
        .expect("build request")
}

/// A server that sends back each message as it arrives and then trailers, as gRPC servers do.
pub(super) struct Echo {
    address: SocketAddr,
    connections: Arc<AtomicU64>,
    /// Number of connections that have ended.
    ended_connections: Arc<AtomicU64>,
}

impl Echo {
    pub(super) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("bind a listener");
        listener.set_nonblocking(true).expect("set nonblocking");
        let address = listener.local_addr().expect("get local address");
        let connections = Arc::new(AtomicU64::new(0));
        let count = Arc::clone(&connections);
        let ended_connections = Arc::new(AtomicU64::new(0));
        let ended_count = Arc::clone(&ended_connections);
        std::thread::spawn(move || -> Infallible {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .expect("build runtime");
            runtime.block_on(async {
                let listener =
                    tokio::net::TcpListener::from_std(listener).expect("register listener");
                loop {
                    let (stream, _) = listener.accept().await.expect("accept a connection");
                    count.fetch_add(1, Ordering::Relaxed);
                    let ended_count = Arc::clone(&ended_count);
                    tokio::spawn(async move {
                        let Ok(mut connection) = server::handshake(stream).await else {
                            return;
                        };
                        while let Some(Ok((request, respond))) = connection.accept().await {
                            tokio::spawn(async move { echo(request, respond).await.unwrap_or(()) });
                        }
                        ended_count.fetch_add(1, Ordering::Relaxed);
                    });
                }
            })
        });
        Self {
            address,
            connections,
            ended_connections,
        }
    }
}

async fn echo(
    request: Request<RecvStream>,
    mut respond: server::SendResponse<Bytes>,
) -> Result<(), h2::Error> {
    let accepts_trailers = request
        .headers()
        .get("te")
        .is_some_and(|te| te == "trailers");
    let response = Response::builder()
        .header("content-type", "application/grpc")
        .header("te-seen", accepts_trailers.to_string())
        .body(())
        .expect("build response");
    if request.uri().path() == "/hints" {
        let hints = Response::builder()
            .status(103)
            .header("link", "</a.css>; rel=preload")
            .body(())
            .expect("build response");
        respond.send_informational(hints)?;
    }
    if request.uri().path() == "/trailers-only" {
        let mut response = response;
        response.headers_mut().insert("grpc-status", 12.into());
        respond.send_response(response, true)?;
        return Ok(());
    }
    let mut send = respond.send_response(response, false)?;
    let mut body = request.into_body();
    while let Some(data) = body.data().await {
        let data = data?;
        body.flow_control().release_capacity(data.len())?;
        send.send_data(data, false)?;
    }
    let mut trailers = HeaderMap::new();
    trailers.insert("grpc-status", 0.into());
    send.send_trailers(trailers)
}

pub(super) fn start_grpc_proxy(echo: &Echo) -> Proxy {
    start_http2_proxy(echo, "")
}

/// Starts a daemon that uses HTTP/2 to the server. Its service contains the lines `extra`.
pub(super) fn start_http2_proxy(echo: &Echo, extra: &str) -> Proxy {
    let proxy = Proxy::start("http", &[echo.address], "");
    let text = configuration(proxy.listen, "http", &[echo.address], extra);
    proxy.reload(&text.replace("\n\n[service.s]", "\nhttp2 = true\n\n[service.s]"));
    proxy
}

#[test]
fn grpc_messages_are_streamed_both_ways_with_trailers() {
    let echo = Echo::start();
    let proxy = start_grpc_proxy(&echo);
    block_on(async {
        let mut send = connect_http2(proxy.listen).await;
        let (response, mut stream) = send
            .send_request(post("/talk"), false)
            .expect("send request");
        stream
            .send_data(Bytes::from_static(b"one"), false)
            .expect("send data");
        // The response begins before the request ends, and each message comes back immediately.
        let response = response.await.expect("receive response");
        assert_eq!(response.headers()["te-seen"], "true");
        let mut body = response.into_body();
        assert_eq!(
            body.data().await.expect("stream ended").expect("read data"),
            "one"
        );
        stream
            .send_data(Bytes::from_static(b"two"), false)
            .expect("send data");
        assert_eq!(
            body.data().await.expect("stream ended").expect("read data"),
            "two"
        );
        stream.send_data(Bytes::new(), true).expect("send data");
        let (rest, trailers) = collect(body).await.expect("read body");
        assert!(rest.is_empty());
        assert_eq!(trailers.expect("no trailers")["grpc-status"], "0");
        // Test a response that consists only of trailers.
        let (response, _) = send
            .send_request(post("/trailers-only"), true)
            .expect("send request");
        let response = response.await.expect("receive response");
        assert_eq!(response.headers()["grpc-status"], "12");
        assert!(response.body().is_end_stream());
        // Test many concurrent requests over one connection to the server.
        let calls = (0..64usize).map(|number| {
            let (response, mut stream) = send
                .send_request(post("/talk"), false)
                .expect("send request");
            let content = Bytes::from(vec![number as u8; 10_000]);
            stream.send_data(content.clone(), true).expect("send data");
            tokio::spawn(async move {
                let response = response.await.expect("receive response");
                let (received, trailers) = collect(response.into_body()).await.expect("read body");
                assert_eq!((received, trailers.is_some()), (content.to_vec(), true));
            })
        });
        for call in calls.collect::<Vec<_>>() {
            call.await.expect("task panicked");
        }
    });
    let connections = echo.connections.load(Ordering::Relaxed);
    assert!(
        connections <= 2,
        "{connections} connections for 66 requests from at most two workers"
    );
}

#[test]
fn http1_clients_reach_http2_servers() {
    let echo = Echo::start();
    let proxy = start_grpc_proxy(&echo);
    let mut client = Client::connect(proxy.listen);
    client.send(
        "POST /x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
    );
    let mut text = String::new();
    let mut byte = [0u8; 1];
    while !text.ends_with("0\r\ngrpc-status: 0\r\n\r\n") {
        assert_eq!(client.0.read(&mut byte).expect(&text), 1, "{text}");
        text.push(char::from(byte[0]));
    }
    assert!(text.starts_with("HTTP/1.1 200 OK\r\n"), "{text}");
    assert!(
        text.contains("transfer-encoding: chunked\r\n\r\n5\r\nhello\r\n"),
        "{text}"
    );
}

#[test]
fn connection_is_closed_after_its_request_limit() {
    let echo = Echo::start();
    let proxy = start_http2_proxy(
        &echo,
        "limits = { server_requests = 2 }\ntimeouts = { idle = \"1h\" }",
    );
    let mut client = Client::connect(proxy.listen);
    for _ in 0..8 {
        let (head, _) = client.fetch("GET /trailers-only HTTP/1.1\r\nHost: a\r\n\r\n");
        assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
    }
    let ended_connections = || echo.ended_connections.load(Ordering::Relaxed);
    super::keeper::wait_until("four connections have ended", || ended_connections() == 4);
    assert_eq!(echo.connections.load(Ordering::Relaxed), 4);
}

/// Returns the daemon's private memory in KiB. It excludes pages of the program file: how many of them are resident
/// depends on the page cache and on the code that has run.
fn resident_kib(proxy: &Proxy) -> u64 {
    let daemon = super::keeper::daemon(proxy.child.id());
    let path = format!("/proc/{daemon}/status");
    let text = fs::read_to_string(path).expect("read /proc");
    let line = text.lines().find_map(|line| line.strip_prefix("RssAnon:"));
    let number = line.and_then(|line| line.trim().split(' ').next()?.parse().ok());
    number.expect("number not found")
}

#[test]
fn client_that_stops_reading_uses_bounded_memory() {
    assert_unread_streams_use_bounded_memory(65_535, 6 << 10, true);
}

/// A client with a zero window has received no content, so its streams need less memory.
#[test]
fn zero_window_uses_less_memory() {
    // The measured growth is 2.3 MB, compared with 5 MB for streams that have received some content.
    assert_unread_streams_use_bounded_memory(0, 7 << 9, false);
}

/// Opens 100 streams with this window and does not read them. Asserts that the daemon's memory grows by at least 1 MiB
/// and by less than `limit_kib`. If `read_at_end` is true, reads 1 MB of one of the streams at the end.
fn assert_unread_streams_use_bounded_memory(window: u32, limit_kib: u64, read_at_end: bool) {
    // The body of each response is 100 MB long.
    let listener = TcpListener::bind("127.0.0.1:0").expect("bind a listener");
    let origin = listener.local_addr().expect("get local address");
    let sent = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&sent);
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let count = Arc::clone(&count);
            std::thread::spawn(move || {
                let mut stream = stream;
                let _ = stream.read(&mut [0; 4096]);
                let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 100000000\r\n\r\n");
                let part = vec![b'x'; 10_000];
                while stream.write_all(&part).is_ok() {
                    count.fetch_add(part.len() as u64, Ordering::Relaxed);
                }
            });
        }
    });
    let proxy = Proxy::start("http", &[origin], "");
    let before = resident_kib(&proxy);
    block_on(async {
        let stream = tokio::net::TcpStream::connect(proxy.listen)
            .await
            .expect("connect");
        // Each stream has its own window, so the streams progress independently.
        let handshake = client::Builder::new()
            .initial_window_size(window)
            .initial_connection_window_size(64 << 20)
            .handshake::<_, Bytes>(stream);
        let (send, connection) = handshake.await.expect("HTTP/2 handshake");
        tokio::spawn(async move { connection.await.unwrap_or(()) });
        let mut send = send.ready().await.expect("wait for a free stream");
        let mut responses = Vec::new();
        for _ in 0..100 {
            let request = Request::get("http://a.example/")
                .body(())
                .expect("build request");
            responses.push(
                send.send_request(request, true)
                    .expect("send request")
                    .0
                    .await
                    .expect("receive response"),
            );
        }
        // Wait until the server cannot send any more bytes.
        let mut last = u64::MAX;
        while sent.load(Ordering::Relaxed) != last {
            last = sent.load(Ordering::Relaxed);
            tokio::time::sleep(Duration::from_millis(700)).await;
        }
        let growth_kib = resident_kib(&proxy).saturating_sub(before);
        assert!(
            (1 << 10..limit_kib).contains(&growth_kib),
            "{growth_kib} KiB for 100 streams that the client does not read"
        );
        if !read_at_end {
            return;
        }
        let mut body = responses.swap_remove(0).into_body();
        let mut received = 0;
        while received < 1_000_000 {
            let data = body.data().await.expect("stream ended").expect("read data");
            body.flow_control()
                .release_capacity(data.len())
                .expect("release flow-control capacity");
            received += data.len();
        }
    });
}

#[test]
fn header_rules_apply_to_http2_trailers() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("bind a listener");
    let address = listener.local_addr().expect("get local address");
    let proxy = Proxy::start("http", &[address], "remove_header = [\"X-User\"]");
    let trailers = block_on(async {
        let stream = tokio::net::TcpStream::connect(proxy.listen)
            .await
            .expect("connect");
        let (send, connection) = client::handshake(stream).await.expect("HTTP/2 handshake");
        tokio::spawn(connection);
        let mut send = send.ready().await.expect("wait for a free stream");
        let request = Request::post("http://a.example/")
            .body(())
            .expect("build request");
        let (response, mut body) = send.send_request(request, false).expect("send request");
        body.send_data("x".into(), false).expect("send data");
        let mut trailers = HeaderMap::new();
        for (name, value) in [
            ("x-user", "root"),
            ("x-forwarded-for", "6.6.6.6"),
            ("sum", "1"),
        ] {
            trailers.insert(name, value.parse().expect("parse value"));
        }
        body.send_trailers(trailers).expect("send trailers");
        let forwarded = tokio::task::spawn_blocking(move || receive_trailers(&listener));
        assert_eq!(response.await.expect("receive response").status(), 200);
        forwarded.await.expect("task panicked")
    });
    assert_eq!(trailers, "sum: 1\r\n\r\n");
}

#[test]
fn client_that_resets_every_request_gets_enhance_your_calm() {
    let origin = Origin::start("o");
    let proxy = Proxy::start("http", &[origin.address()], "");
    block_on(async {
        let stream = tokio::net::TcpStream::connect(proxy.listen)
            .await
            .expect("connect");
        let (mut send, connection) = client::handshake(stream).await.expect("HTTP/2 handshake");
        let end = tokio::spawn(connection);
        for _ in 0..5_000 {
            let Ok(ready) = send.ready().await else { break };
            send = ready;
            let request = Request::get("http://a.example/slow")
                .body(())
                .expect("build request");
            let Ok((_, mut stream)) = send.send_request(request, false) else {
                break;
            };
            stream.send_reset(Reason::CANCEL);
            tokio::task::yield_now().await;
            if end.is_finished() {
                break;
            }
        }
        let error = end
            .await
            .expect("task panicked")
            .expect_err("connection ended without an error");
        assert_eq!(error.reason(), Some(Reason::ENHANCE_YOUR_CALM), "{error}");
    });
    assert!(origin.connections() < 1_000, "{}", origin.connections());
    assert!(
        Client::connect(proxy.listen)
            .fetch(GET)
            .0
            .starts_with("HTTP/1.1 200"),
        "another client must be served"
    );
}

#[test]
fn open_http2_streams_finish_during_shutdown() {
    let origin = Origin::start("o");
    let mut proxy = Proxy::start("http", &[origin.address()], "");
    block_on(async {
        let stream = tokio::net::TcpStream::connect(proxy.listen)
            .await
            .expect("connect");
        let (send, connection) = client::handshake(stream).await.expect("HTTP/2 handshake");
        let end = tokio::spawn(connection);
        let mut send = send.ready().await.expect("wait for a free stream");
        let request = Request::get("http://a.example/slow")
            .body(())
            .expect("build request");
        let (response, _) = send.send_request(request, true).expect("send request");
        tokio::task::spawn_blocking(move || {
            origin.wait_for_slow();
            assert!(proxy.terminate().success());
        });
        let response = response.await.expect("receive response");
        assert_eq!(
            collect(response.into_body()).await.expect("read body").0,
            b"slow"
        );
        drop(send);
        end.await
            .expect("task panicked")
            .expect("connection failed");
    });
}
