//! Tests that reloads and upgrades break no long-lived connection.
//!
//! The connections are WebSockets, slow downloads and uploads, HTTP/2 streams, and idle clients. No byte may be lost or
//! corrupted.

use std::io::{Read, Write};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use super::keeper::wait_until;
use super::{Client, GET, Origin, Proxy, configuration};

/// The number of clients of each kind, the sizes, and the numbers of reloads and upgrades.
struct Size {
    websockets: usize,
    /// Interval between two messages on a WebSocket.
    message_interval: Duration,
    downloads: usize,
    uploads: usize,
    idle: usize,
    streams: usize,
    /// Size of a download in bytes.
    download_bytes: usize,
    reloads: usize,
    upgrades: usize,
}

fn size() -> Size {
    match std::env::var_os("WEIR_SOAK") {
        Some(_) => Size {
            websockets: 1000,
            message_interval: Duration::from_secs(1),
            downloads: 100,
            uploads: 100,
            idle: 100,
            streams: 20,
            download_bytes: 50_000_000,
            reloads: 20,
            upgrades: 5,
        },
        None => Size {
            websockets: 40,
            message_interval: Duration::from_millis(100),
            downloads: 6,
            uploads: 10,
            idle: 20,
            streams: 4,
            download_bytes: 20_000_000,
            reloads: 4,
            upgrades: 2,
        },
    }
}

/// Size of an upload and of each write, in bytes.
const UPLOAD_BYTES: usize = 200_000;
const WRITE_BYTES: usize = 500;
/// Interval between two writes or reads of a slow transfer, and between checks of an idle client.
const TRANSFER_INTERVAL: Duration = Duration::from_millis(200);

type Outcome = Result<(), String>;

/// Clients of one kind, each on its own thread.
struct ClientGroup {
    threads: Vec<JoinHandle<Outcome>>,
}

/// State that all clients share.
#[derive(Clone, Default)]
struct Signals {
    stop: Arc<AtomicBool>,
    /// Number of clients that have started.
    started: Arc<AtomicUsize>,
}

impl Signals {
    fn mark_started(&self) {
        self.started.fetch_add(1, Ordering::Relaxed);
    }

    fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}

impl ClientGroup {
    fn start(
        count: usize,
        address: SocketAddr,
        signals: &Signals,
        client_loop: fn(&mut Client, &Signals) -> Outcome,
    ) -> Self {
        let start = |number| {
            let signals = signals.clone();
            // Use small stacks, because there may be thousands of threads.
            let builder = std::thread::Builder::new().stack_size(256 * 1024);
            let thread = builder.spawn(move || {
                let mut client = Client::connect(address);
                // Use a long timeout, so that a slow machine is not mistaken for a broken connection.
                let timeout = Some(Duration::from_secs(60));
                client
                    .0
                    .set_read_timeout(timeout)
                    .expect("set read timeout");
                client_loop(&mut client, &signals)
                    .map_err(|error| format!("client {number}: {error}"))
            });
            thread.expect("spawn a thread")
        };
        Self {
            threads: (0..count).map(start).collect(),
        }
    }

    /// Returns whether a client has ended early.
    fn has_ended_client(&self) -> bool {
        self.threads.iter().any(JoinHandle::is_finished)
    }

    fn join(self, kind: &str) {
        let outcomes = self
            .threads
            .into_iter()
            .map(|thread| thread.join().expect("thread panicked"));
        let failed: Vec<String> = outcomes.filter_map(Result::err).collect();
        assert_eq!(failed, Vec::<String>::new(), "{kind}");
    }
}

fn error_text(error: impl ToString) -> String {
    error.to_string()
}

/// Sends a message and reads it back, repeatedly.
fn run_websocket(client: &mut Client, signals: &Signals) -> Outcome {
    let upgrade =
        "GET /upgrade HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n";
    client.0.write_all(upgrade.as_bytes()).map_err(error_text)?;
    let (head, _) = client
        .read_response()
        .map_err(error_text)?
        .ok_or("no response")?;
    if !head.starts_with("HTTP/1.1 101") {
        return Err(head);
    }
    signals.mark_started();
    let message_interval = size().message_interval;
    for round in 0u64.. {
        let message = [round.to_be_bytes(); 16].concat();
        let mut echo = vec![0; message.len()];
        client.0.write_all(&message).map_err(error_text)?;
        client
            .0
            .read_exact(&mut echo)
            .map_err(|e| format!("message {round}: {e}"))?;
        if echo != message {
            return Err(format!("message {round}: wrong bytes"));
        }
        if signals.is_stopped() {
            break;
        }
        std::thread::sleep(message_interval);
    }
    Ok(())
}

/// Reads a body slowly until the test ends and then at full speed, and compares every byte.
fn run_download(client: &mut Client, signals: &Signals) -> Outcome {
    let bytes = size().download_bytes;
    let request = format!("GET /pattern-{bytes} HTTP/1.1\r\nHost: a\r\n\r\n");
    client.0.write_all(request.as_bytes()).map_err(error_text)?;
    let mut head = Vec::new();
    let mut byte = [0u8; 1];
    while !head.ends_with(b"\r\n\r\n") {
        client.0.read_exact(&mut byte).map_err(error_text)?;
        head.push(byte[0]);
    }
    signals.mark_started();
    let (mut offset, mut buffer) = (0, vec![0; 64 * 1024]);
    // The expected bytes from any offset in the pattern.
    let pattern: Vec<u8> = (0..=250).cycle().take(buffer.len() + 251).collect();
    while offset < bytes {
        let length = client
            .0
            .read(&mut buffer)
            .map_err(|e| format!("after {offset} bytes: {e}"))?;
        if length == 0 {
            return Err(format!("end of stream after {offset} bytes"));
        }
        if !pattern[offset % 251..].starts_with(&buffer[..length]) {
            return Err(format!("wrong bytes after {offset} bytes"));
        }
        offset += length;
        if !signals.is_stopped() {
            std::thread::sleep(TRANSFER_INTERVAL);
        }
    }
    Ok(())
}

/// Sends a body slowly until the test ends and then at full speed. The server responds with the number of bytes
/// received.
fn run_upload(client: &mut Client, signals: &Signals) -> Outcome {
    let head = format!("POST /sum HTTP/1.1\r\nHost: a\r\nContent-Length: {UPLOAD_BYTES}\r\n\r\n");
    client.0.write_all(head.as_bytes()).map_err(error_text)?;
    signals.mark_started();
    for index in 0..UPLOAD_BYTES / WRITE_BYTES {
        client
            .0
            .write_all(&[b'x'; WRITE_BYTES])
            .map_err(|e| format!("write {index}: {e}"))?;
        if !signals.is_stopped() {
            std::thread::sleep(TRANSFER_INTERVAL);
        }
    }
    let (head, body) = client
        .read_response()
        .map_err(error_text)?
        .ok_or("no response")?;
    if body != UPLOAD_BYTES.to_string().as_bytes() {
        return Err(head);
    }
    Ok(())
}

/// Sends a request, waits until the test ends, and sends another request on the same connection.
fn run_idle_client(client: &mut Client, signals: &Signals) -> Outcome {
    let mut fetch = || {
        client.0.write_all(GET.as_bytes()).map_err(error_text)?;
        match client.read_response().map_err(error_text)? {
            Some((head, _)) if head.starts_with("HTTP/1.1 200") => Ok(()),
            other => Err(format!("{other:?}")),
        }
    };
    fetch()?;
    signals.mark_started();
    while !signals.is_stopped() {
        std::thread::sleep(TRANSFER_INTERVAL);
    }
    fetch()
}

/// Starts a rate-limited HTTP/2 upload with curl. The server responds with the number of bytes received.
fn start_http2_upload(proxy: &Proxy, number: usize) -> Child {
    let body = proxy.directory.join(format!("body-{number}"));
    std::fs::write(&body, vec![b'x'; 2_000_000]).expect("write file");
    Command::new("curl")
        .args(["-sS", "--max-time", "300", "--http2-prior-knowledge"])
        .args(["--limit-rate", "100K", "--data-binary"])
        .arg(format!("@{}", body.display()))
        .arg(format!("http://{}/sum", proxy.listen))
        .stdout(Stdio::piped())
        .spawn()
        .expect("start curl")
}

#[test]
fn long_lived_connections_survive_reloads_and_upgrades_soak() {
    weir_sys::raise_nofile().expect("raise the file descriptor limit");
    let size = size();
    let (one, two) = (Origin::start("one"), Origin::start("two"));
    let servers = [one.address(), two.address()];
    let long_timeouts = "timeouts = { client = \"5m\", server = \"5m\", tunnel = \"5m\" }";
    let proxy = Proxy::start("http", &servers, long_timeouts);
    let signals = Signals::default();
    let start = |count, client_loop| ClientGroup::start(count, proxy.listen, &signals, client_loop);
    let groups = [
        ("WebSockets", start(size.websockets, run_websocket)),
        ("downloads", start(size.downloads, run_download)),
        ("uploads", start(size.uploads, run_upload)),
        ("idle clients", start(size.idle, run_idle_client)),
    ];
    let streams: Vec<Child> = (0..size.streams)
        .map(|number| start_http2_upload(&proxy, number))
        .collect();
    let client_count = size.websockets + size.downloads + size.uploads + size.idle;
    let started = || signals.started.load(Ordering::Relaxed);
    let has_failed = || groups.iter().any(|(_, group)| group.has_ended_client());
    wait_until("all clients have started", || {
        started() == client_count || has_failed()
    });
    let started_clients = started();
    // If a client fails before it has started, its error is reported at the end.
    let reloads = if started_clients == client_count {
        size.reloads
    } else {
        0
    };
    for round in 0..reloads {
        let extra = format!(
            "{long_timeouts}\nlimits = {{ retries = {} }}",
            1 + round % 3
        );
        proxy.reload(&configuration(
            proxy.listen,
            "http",
            &servers[..1 + round % 2],
            &extra,
        ));
        if round % (size.reloads / size.upgrades) == 0 {
            let (succeeded, output) = proxy.upgrade();
            assert!(succeeded, "{output}");
        }
        std::thread::sleep(Duration::from_millis(500));
    }
    signals.stop.store(true, Ordering::Relaxed);
    for (kind, group) in groups {
        group.join(kind);
    }
    for stream in streams {
        let output = stream.wait_with_output().expect("wait for curl");
        assert_eq!(String::from_utf8_lossy(&output.stdout), "2000000");
    }
    assert_eq!(
        started_clients, client_count,
        "not all clients have started"
    );
    println!(
        "{client_count} connections and {} streams survived {} reloads and {} upgrades",
        size.streams, size.reloads, size.upgrades
    );
}
