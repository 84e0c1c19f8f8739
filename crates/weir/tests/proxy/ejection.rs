//! Tests that servers with faulty responses are ejected temporarily, without any check.

use std::io::{BufRead, BufReader};
use std::sync::atomic::AtomicU8;

use super::*;

const HEALTHY: u8 = 0;
const RETURNS_500: u8 = 1;
const CLOSES: u8 = 2;

/// A server that, depending on `mode`, responds with 200, responds with 500, or closes without a response. It serves
/// one request per connection.
struct FaultyServer {
    address: SocketAddr,
    mode: Arc<AtomicU8>,
    requests: Arc<AtomicU64>,
}

impl FaultyServer {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("bind a listener");
        let address = listener.local_addr().expect("get local address");
        let (mode, requests) = (
            Arc::new(AtomicU8::new(HEALTHY)),
            Arc::new(AtomicU64::new(0)),
        );
        let (shared_mode, shared_requests) = (Arc::clone(&mode), Arc::clone(&requests));
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                // Ignore errors: the test closes connections intentionally.
                let _ = serve(&stream, shared_mode.load(Ordering::Relaxed));
                shared_requests.fetch_add(1, Ordering::Relaxed);
            }
        });
        Self {
            address,
            mode,
            requests,
        }
    }

    /// Returns the number of requests received since the start.
    fn requests(&self) -> u64 {
        self.requests.load(Ordering::Relaxed)
    }
}

fn serve(mut stream: &TcpStream, mode: u8) -> std::io::Result<()> {
    let mut lines = BufReader::new(stream).lines();
    while !lines.next().transpose()?.unwrap_or_default().is_empty() {}
    let status = match mode {
        HEALTHY => "200 OK",
        RETURNS_500 => "500 Internal Server Error",
        _ => return Ok(()),
    };
    let text = format!("HTTP/1.1 {status}\r\nContent-Length: 1\r\nConnection: close\r\n\r\nm");
    stream.write_all(text.as_bytes())
}

const TIMEOUT: Duration = Duration::from_secs(60);

/// Sends requests continuously until `condition` returns true for the service's status. Returns the numbers of
/// responses with status 200 and with other statuses.
fn fetch_until(
    proxy: &Proxy,
    description: &str,
    mut condition: impl FnMut(&serde_json::Value) -> bool,
) -> [u64; 2] {
    let deadline = Instant::now() + TIMEOUT;
    let mut client = Client::connect(proxy.listen);
    let mut received = [0; 2];
    loop {
        for _ in 0..50 {
            let (head, _) = client.fetch(GET);
            received[usize::from(!head.starts_with("HTTP/1.1 200 "))] += 1;
        }
        let status = proxy.status();
        if condition(&status["services"][0]) {
            return received;
        }
        assert!(
            Instant::now() < deadline,
            "timed out: {description}: {status:#}"
        );
    }
}

#[test]
fn failing_server_is_ejected_until_it_recovers() {
    let good_servers = [Origin::start("one"), Origin::start("two")];
    let faulty = FaultyServer::start();
    let servers = [
        good_servers[0].address(),
        faulty.address,
        good_servers[1].address(),
    ];
    let proxy = Proxy::start("http", &servers, "");
    let reason = |service: &serde_json::Value| {
        let reason = &service["servers"][1]["ejected"]["reason"];
        reason.as_str().map(str::to_owned)
    };
    let counts = fetch_until(&proxy, "the faulty server has received requests", |_| {
        faulty.requests() > 20
    });
    assert_eq!(counts[1], 0);

    faulty.mode.store(RETURNS_500, Ordering::Relaxed);
    let mut cause = String::new();
    fetch_until(&proxy, "the faulty server is ejected", |service| {
        reason(service).is_some_and(|reason| {
            cause = reason;
            true
        })
    });
    assert!(cause.contains("with status 5xx"), "{cause}");
    let status = proxy.status();
    let server = &status["services"][0]["servers"][1];
    assert_eq!(
        server["state"], "unchecked",
        "ejection must not change the check state"
    );
    assert_eq!(
        (&server["effective_weight"], &server["weight"]),
        (&0.into(), &1.into())
    );
    assert!(
        proxy
            .weir(&["status"])
            .1
            .contains("(ejected: all recent requests failed: ")
    );
    assert_eq!(proxy.log().matches("a server was ejected").count(), 1);
    let before = faulty.requests();
    let counts = fetch_until(&proxy, "the faulty server is still ejected", |service| {
        reason(service).is_some()
    });
    assert_eq!((counts[1], faulty.requests()), (0, before));

    // The server returns automatically. If it closes connections, Weir retries the requests on other servers and no
    // client receives an error.
    faulty.mode.store(HEALTHY, Ordering::Relaxed);
    let counts = fetch_until(&proxy, "the server is used again", |service| {
        reason(service).is_none() && faulty.requests() > before + 20
    });
    assert_eq!(counts[1], 0);
    faulty.mode.store(CLOSES, Ordering::Relaxed);
    let counts = fetch_until(&proxy, "the server is ejected again", |service| {
        reason(service).is_some_and(|reason| reason.contains("without a complete response"))
    });
    assert_eq!(counts[1], 0, "idempotent requests must be retried");
}

/// If all servers fail, they all remain in use. If `max_ejected` is 0, no server is ejected.
#[test]
fn no_server_is_ejected_if_all_fail_or_ejection_is_disabled() {
    let faulty_servers = [FaultyServer::start(), FaultyServer::start()];
    let proxy = Proxy::start(
        "http",
        &faulty_servers.each_ref().map(|server| server.address),
        "",
    );
    for server in &faulty_servers {
        server.mode.store(RETURNS_500, Ordering::Relaxed);
    }
    let started = Instant::now();
    let none_is_ejected = |service: &serde_json::Value| {
        let servers = service["servers"].as_array().expect("no servers");
        assert!(
            servers.iter().all(|server| server["ejected"].is_null()),
            "{service:#}"
        );
        started.elapsed() > Duration::from_secs(4)
    };
    fetch_until(&proxy, "four seconds have passed", none_is_ejected);

    let good_origin = Origin::start("good");
    let servers = [good_origin.address(), faulty_servers[0].address];
    let text = configuration(proxy.listen, "http", &servers, "");
    let text = text.replace("[pool.p]\n", "[pool.p]\nmax_ejected = 0\n");
    proxy.reload(&text);
    let before = (Instant::now(), faulty_servers[0].requests());
    fetch_until(&proxy, "four more seconds have passed", |service| {
        let ejected = &service["servers"][1]["ejected"];
        assert!(ejected.is_null(), "{service:#}");
        before.0.elapsed() > Duration::from_secs(4)
    });
    assert!(
        faulty_servers[0].requests() > before.1 + 10,
        "the failing server must still get requests"
    );
}

/// The check of an ejected server fails. The server is then down, so the log must not report that Weir is retrying it.
#[test]
fn ejected_server_that_goes_down_is_not_retried() {
    let good_origin = Origin::start("good");
    let faulty = FaultyServer::start();
    let servers = [good_origin.address(), faulty.address];
    let proxy = Proxy::start("http", &servers, "");
    let check_listener = TcpListener::bind("127.0.0.1:0").expect("bind a listener");
    let port = check_listener
        .local_addr()
        .expect("get local address")
        .port();
    let check = format!(
        "{{ kind = \"tcp\", port = {port}, interval = \"200ms\", timeout = \"200ms\", rise = 1, fall = 1 }}"
    );
    let text = configuration(proxy.listen, "http", &servers, "");
    let address = format!("\"{}\"", faulty.address);
    let checked_server = format!("{{ address = {address}, check = {check} }}");
    proxy.reload(&text.replace(&address, &checked_server));
    fetch_until(&proxy, "the checked server is up", |service| {
        service["servers"][1]["state"] == "up"
    });
    faulty.mode.store(RETURNS_500, Ordering::Relaxed);
    fetch_until(&proxy, "the faulty server is ejected", |service| {
        !service["servers"][1]["ejected"].is_null()
    });
    drop(check_listener);
    fetch_until(&proxy, "the ejected server is down", |service| {
        let server = &service["servers"][1];
        server["state"] == "down" && server["ejected"].is_null()
    });
    let log = proxy.log();
    assert_eq!(log.matches("a server was ejected").count(), 1, "{log}");
    assert!(!log.contains("is being retried"), "{log}");
}
