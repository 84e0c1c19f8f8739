//! Servers whose responses show that they are faulty are ejected for a while, without any check.

use std::io::{BufRead, BufReader};
use std::sync::atomic::AtomicU8;

use super::*;

const WELL: u8 = 0;
const FAILS: u8 = 1;
const HANGS_UP: u8 = 2;

/// A server that answers normally, answers 500, or closes without an answer, as the test selects; one request per
/// connection.
struct Moody {
    address: SocketAddr,
    mood: Arc<AtomicU8>,
    requests: Arc<AtomicU64>,
}

impl Moody {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("its address");
        let (mood, requests) = (Arc::new(AtomicU8::new(WELL)), Arc::new(AtomicU64::new(0)));
        let (its_mood, its_asked) = (Arc::clone(&mood), Arc::clone(&requests));
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                // The test breaks connections on purpose.
                let _ = serve(&stream, its_mood.load(Ordering::Relaxed));
                its_asked.fetch_add(1, Ordering::Relaxed);
            }
        });
        Self {
            address,
            mood,
            requests,
        }
    }

    fn requests(&self) -> u64 {
        self.requests.load(Ordering::Relaxed)
    }
}

fn serve(mut stream: &TcpStream, mood: u8) -> std::io::Result<()> {
    let mut lines = BufReader::new(stream).lines();
    while !lines.next().transpose()?.unwrap_or_default().is_empty() {}
    let status = match mood {
        WELL => "200 OK",
        FAILS => "500 Internal Server Error",
        _ => return Ok(()),
    };
    let text = format!("HTTP/1.1 {status}\r\nContent-Length: 1\r\nConnection: close\r\n\r\nm");
    stream.write_all(text.as_bytes())
}

const TIMEOUT: Duration = Duration::from_secs(60);

/// Sends requests continuously until `done` returns true for the status; returns the number of 200 and other responses.
fn fetch_until(
    proxy: &Proxy,
    what: &str,
    mut done: impl FnMut(&serde_json::Value) -> bool,
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
        if done(&status["services"][0]) {
            return received;
        }
        assert!(Instant::now() < deadline, "{what}: {status:#}");
    }
}

#[test]
fn failing_server_is_ejected_and_retried() {
    let good = [Origin::start("one"), Origin::start("two")];
    let moody = Moody::start();
    let servers = [good[0].address(), moody.address, good[1].address()];
    let proxy = Proxy::start("http", &servers, "");
    let reason = |service: &serde_json::Value| {
        let reason = &service["servers"][1]["ejected"]["reason"];
        reason.as_str().map(str::to_owned)
    };
    let fine = fetch_until(&proxy, "requests everywhere", |_| moody.requests() > 20);
    assert_eq!(fine[1], 0);

    moody.mood.store(FAILS, Ordering::Relaxed);
    let mut output = String::new();
    fetch_until(&proxy, "the ejection", |service| {
        reason(service).is_some_and(|why| {
            output = why;
            true
        })
    });
    assert!(output.contains("with status 5xx"), "{output}");
    let status = proxy.status();
    let server = &status["services"][0]["servers"][1];
    assert_eq!(server["state"], "unchecked", "apart from checks");
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
    let before = moody.requests();
    let during = fetch_until(&proxy, "clients are spared", |service| {
        reason(service).is_some()
    });
    assert_eq!((during[1], moody.requests()), (0, before));

    // It returns by itself. If it closes connections, clients do not notice, because other servers are tried.
    moody.mood.store(WELL, Ordering::Relaxed);
    let back = fetch_until(&proxy, "the trial", |service| {
        reason(service).is_none() && moody.requests() > before + 20
    });
    assert_eq!(back[1], 0);
    moody.mood.store(HANGS_UP, Ordering::Relaxed);
    let hung = fetch_until(&proxy, "the second ejection", |service| {
        reason(service).is_some_and(|why| why.contains("without a complete response"))
    });
    assert_eq!(hung[1], 0, "a request that can be repeated is");
}

/// If all servers fail, none is better, and all stay in use. If no ejection is allowed, none is ejected.
#[test]
fn no_ejection_when_all_fail_or_when_disabled() {
    let all = [Moody::start(), Moody::start()];
    let proxy = Proxy::start("http", &all.each_ref().map(|it| it.address), "");
    for server in &all {
        server.mood.store(FAILS, Ordering::Relaxed);
    }
    let began = Instant::now();
    let is_whole = |service: &serde_json::Value| {
        let servers = service["servers"].as_array().expect("servers");
        assert!(
            servers.iter().all(|it| it["ejected"].is_null()),
            "{service:#}"
        );
        began.elapsed() > Duration::from_secs(4)
    };
    fetch_until(&proxy, "four seconds", is_whole);

    let good = Origin::start("good");
    let servers = [good.address(), all[0].address];
    let text = configuration(proxy.listen, "http", &servers, "");
    let text = text.replace("[pool.p]\n", "[pool.p]\nmax_ejected = 0\n");
    proxy.reload(&text);
    let before = (Instant::now(), all[0].requests());
    fetch_until(&proxy, "four seconds more", |service| {
        let ejected = &service["servers"][1]["ejected"];
        assert!(ejected.is_null(), "{service:#}");
        before.0.elapsed() > Duration::from_secs(4)
    });
    assert!(all[0].requests() > before.1 + 10, "it gets requests anyway");
}
