//! Long connections during reloads and upgrades: WebSockets, slow downloads and uploads, HTTP/2 streams, and idle
//! clients. None breaks, and every byte is correct.

use std::io::{Read, Write};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use super::keeper::until;
use super::{Client, GET, Origin, Proxy, configuration};

/// Number of clients of each kind, sizes, and the protocols below them.
struct Size {
    sockets: usize,
    /// Between two messages of a WebSocket.
    pause: Duration,
    downloads: usize,
    uploads: usize,
    idle: usize,
    streams: usize,
    /// Size of a download.
    bytes: usize,
    reloads: usize,
    upgrades: usize,
}

fn size() -> Size {
    match std::env::var_os("WEIR_SOAK") {
        Some(_) => Size {
            sockets: 1000,
            pause: Duration::from_secs(1),
            downloads: 100,
            uploads: 100,
            idle: 100,
            streams: 20,
            bytes: 50_000_000,
            reloads: 20,
            upgrades: 5,
        },
        None => Size {
            sockets: 40,
            pause: Duration::from_millis(100),
            downloads: 6,
            uploads: 10,
            idle: 20,
            streams: 4,
            bytes: 20_000_000,
            reloads: 4,
            upgrades: 2,
        },
    }
}

/// An upload's length, and the size of its pieces.
const UPLOAD: usize = 200_000;
const PIECE: usize = 500;
/// Pause between two pieces of a slow transfer.
const SLOW: Duration = Duration::from_millis(200);

type Outcome = Result<(), String>;

/// Clients of one kind, each on a thread, until they are stopped.
struct ClientGroup {
    threads: Vec<JoinHandle<Outcome>>,
}

/// State that all clients share.
#[derive(Clone, Default)]
struct Signals {
    end: Arc<AtomicBool>,
    /// Number of clients that have started.
    started: Arc<AtomicUsize>,
}

impl Signals {
    fn begin(&self) {
        self.started.fetch_add(1, Ordering::Relaxed);
    }

    fn has_ended(&self) -> bool {
        self.end.load(Ordering::Relaxed)
    }
}

impl ClientGroup {
    fn start(
        count: usize,
        to: SocketAddr,
        signals: &Signals,
        work: fn(&mut Client, &Signals) -> Outcome,
    ) -> Self {
        let start = |number| {
            let signals = signals.clone();
            // Small stacks: there may be thousands.
            let builder = std::thread::Builder::new().stack_size(256 * 1024);
            let thread = builder.spawn(move || {
                let mut client = Client::connect(to);
                // A timeout on a busy machine is not a broken connection.
                let timeout = Some(Duration::from_secs(60));
                client.0.set_read_timeout(timeout).expect("a timeout");
                work(&mut client, &signals).map_err(|why| format!("{number}: {why}"))
            });
            thread.expect("a thread")
        };
        Self {
            threads: (0..count).map(start).collect(),
        }
    }

    /// Whether a client has ended already.
    fn is_broken(&self) -> bool {
        self.threads.iter().any(JoinHandle::is_finished)
    }

    fn end(self, what: &str) {
        let outcomes = self
            .threads
            .into_iter()
            .map(|thread| thread.join().expect("no panic"));
        let failed: Vec<String> = outcomes.filter_map(Result::err).collect();
        assert_eq!(failed, Vec::<String>::new(), "{what}");
    }
}

fn text(error: impl ToString) -> String {
    error.to_string()
}

/// Sends a message and reads the same one back, repeatedly.
fn socket(client: &mut Client, signals: &Signals) -> Outcome {
    let upgrade =
        "GET /upgrade HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n";
    client.0.write_all(upgrade.as_bytes()).map_err(text)?;
    let (head, _) = client.response().map_err(text)?.ok_or("no answer")?;
    if !head.starts_with("HTTP/1.1 101") {
        return Err(head);
    }
    signals.begin();
    let pause = size().pause;
    for round in 0u64.. {
        let message = [round.to_be_bytes(); 16].concat();
        let mut back = vec![0; message.len()];
        client.0.write_all(&message).map_err(text)?;
        client
            .0
            .read_exact(&mut back)
            .map_err(|e| format!("message {round}: {e}"))?;
        if back != message {
            return Err(format!("message {round}: wrong bytes"));
        }
        if signals.has_ended() {
            break;
        }
        std::thread::sleep(pause);
    }
    Ok(())
}

/// Reads a body slowly until its end is near, and compares every byte.
fn download(client: &mut Client, signals: &Signals) -> Outcome {
    let bytes = size().bytes;
    let request = format!("GET /pattern-{bytes} HTTP/1.1\r\nHost: a\r\n\r\n");
    client.0.write_all(request.as_bytes()).map_err(text)?;
    let mut head = Vec::new();
    let mut byte = [0u8; 1];
    while !head.ends_with(b"\r\n\r\n") {
        client.0.read_exact(&mut byte).map_err(text)?;
        head.push(byte[0]);
    }
    signals.begin();
    let (mut at, mut room) = (0, vec![0; 64 * 1024]);
    // The expected bytes, from any offset in the pattern.
    let pattern: Vec<u8> = (0..=250).cycle().take(room.len() + 251).collect();
    while at < bytes {
        let length = client
            .0
            .read(&mut room)
            .map_err(|e| format!("after {at}: {e}"))?;
        if length == 0 {
            return Err(format!("end of stream after {at}"));
        }
        if !pattern[at % 251..].starts_with(&room[..length]) {
            return Err(format!("wrong bytes after {at}"));
        }
        at += length;
        if !signals.has_ended() {
            std::thread::sleep(SLOW);
        }
    }
    Ok(())
}

/// Sends a body slowly until its end is near; the server returns the number of bytes.
fn upload(client: &mut Client, signals: &Signals) -> Outcome {
    let head = format!("POST /sum HTTP/1.1\r\nHost: a\r\nContent-Length: {UPLOAD}\r\n\r\n");
    client.0.write_all(head.as_bytes()).map_err(text)?;
    signals.begin();
    for at in 0..UPLOAD / PIECE {
        client
            .0
            .write_all(&[b'x'; PIECE])
            .map_err(|e| format!("piece {at}: {e}"))?;
        if !signals.has_ended() {
            std::thread::sleep(SLOW);
        }
    }
    let (head, body) = client.response().map_err(text)?.ok_or("no answer")?;
    if body != UPLOAD.to_string().as_bytes() {
        return Err(head);
    }
    Ok(())
}

/// A request, a long pause, and another request over the same connection.
fn wait(client: &mut Client, signals: &Signals) -> Outcome {
    let mut fetch = || {
        client.0.write_all(GET.as_bytes()).map_err(text)?;
        match client.response().map_err(text)? {
            Some((head, _)) if head.starts_with("HTTP/1.1 200") => Ok(()),
            other => Err(format!("{other:?}")),
        }
    };
    fetch()?;
    signals.begin();
    while !signals.has_ended() {
        std::thread::sleep(SLOW);
    }
    fetch()
}

/// Sends an HTTP/2 stream slowly; the server returns the number of bytes.
fn stream(proxy: &Proxy, number: usize) -> Child {
    let body = proxy.directory.join(format!("body-{number}"));
    std::fs::write(&body, vec![b'x'; 2_000_000]).expect("written");
    Command::new("curl")
        .args(["-sS", "--max-time", "300", "--http2-prior-knowledge"])
        .args(["--limit-rate", "100K", "--data-binary"])
        .arg(format!("@{}", body.display()))
        .arg(format!("http://{}/sum", proxy.listen))
        .stdout(Stdio::piped())
        .spawn()
        .expect("curl runs")
}

#[test]
fn long_lived_connections_survive_reloads_and_upgrades_at_length() {
    weir_sys::raise_nofile().expect("many descriptors");
    let size = size();
    let (one, two) = (Origin::start("one"), Origin::start("two"));
    let servers = [one.address(), two.address()];
    let patient = "timeouts = { client = \"5m\", server = \"5m\", tunnel = \"5m\" }";
    let proxy = Proxy::start("http", &servers, patient);
    let signals = Signals::default();
    let start = |count, work| ClientGroup::start(count, proxy.listen, &signals, work);
    let groups = [
        ("WebSockets", start(size.sockets, socket)),
        ("downloads", start(size.downloads, download)),
        ("uploads", start(size.uploads, upload)),
        ("waiting clients", start(size.idle, wait)),
    ];
    let streams: Vec<Child> = (0..size.streams)
        .map(|number| stream(&proxy, number))
        .collect();
    let all = size.sockets + size.downloads + size.uploads + size.idle;
    let started = || signals.started.load(Ordering::Relaxed);
    let broken = || groups.iter().any(|(_, group)| group.is_broken());
    until("all clients", || started() == all || broken());
    let early = started();
    // A client that fails before it has started reports why at the end.
    let reloads = if early == all { size.reloads } else { 0 };
    for round in 0..reloads {
        let more = format!("{patient}\nlimits = {{ retries = {} }}", 1 + round % 3);
        proxy.reload(&configuration(
            proxy.listen,
            "http",
            &servers[..1 + round % 2],
            &more,
        ));
        if round % (size.reloads / size.upgrades) == 0 {
            let (done, text) = proxy.upgrade();
            assert!(done, "{text}");
        }
        std::thread::sleep(Duration::from_millis(500));
    }
    signals.end.store(true, Ordering::Relaxed);
    for (what, group) in groups {
        group.end(what);
    }
    for stream in streams {
        let output = stream.wait_with_output().expect("curl ends");
        assert_eq!(String::from_utf8_lossy(&output.stdout), "2000000");
    }
    assert_eq!(early, all, "all have started");
    println!(
        "{all} connections and {} streams over {} reloads and {} upgrades",
        size.streams, size.reloads, size.upgrades
    );
}
