//! A test server with a thread per connection: HTTP/1.1 without a library, with special behaviour on some paths.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

#[derive(Default)]
struct Seen {
    connections: AtomicU64,
    slow: AtomicBool,
    present: AtomicU64,
    at_once: AtomicU64,
    stop: AtomicBool,
    open: Mutex<Vec<TcpStream>>,
}

/// The test server.
pub(crate) struct Origin {
    address: SocketAddr,
    seen: Arc<Seen>,
}

impl Origin {
    /// Starts an HTTP server. The first line of every response is `name`, followed by the received request.
    pub(crate) fn start(name: &str) -> Self {
        let name = name.to_owned();
        Self::serve(move |stream, seen| {
            // The test closes connections intentionally.
            let _ = http(&stream, &name, seen);
        })
    }

    /// Starts a TCP server that echoes everything it receives.
    pub(crate) fn start_tcp() -> Self {
        Self::serve(|mut stream, _| {
            let mut reader = stream.try_clone().expect("duplicate descriptor");
            let _ = std::io::copy(&mut reader, &mut stream);
            let _ = stream.shutdown(Shutdown::Write);
        })
    }

    fn serve(work: impl Fn(TcpStream, &Seen) + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("bind a listener");
        let address = listener.local_addr().expect("get local address");
        let seen = Arc::new(Seen::default());
        let (shared, work) = (Arc::clone(&seen), Arc::new(work));
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                if shared.stop.load(Ordering::Relaxed) {
                    return;
                }
                shared.connections.fetch_add(1, Ordering::Relaxed);
                shared
                    .open
                    .lock()
                    .expect("lock poisoned")
                    .push(stream.try_clone().expect("duplicate descriptor"));
                let (shared, work) = (Arc::clone(&shared), Arc::clone(&work));
                std::thread::spawn(move || work(stream, &shared));
            }
        });
        Self { address, seen }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the number of connections since the start.
    pub(crate) fn connections(&self) -> u64 {
        self.seen.connections.load(Ordering::Relaxed)
    }

    /// Returns the highest number of concurrent requests for `/slow`.
    pub(crate) fn slow_at_once(&self) -> u64 {
        self.seen.at_once.load(Ordering::Relaxed)
    }

    /// Waits until a request for `/slow` is in progress.
    pub(crate) fn wait_for_slow(&self) {
        let deadline = Instant::now() + Duration::from_secs(10);
        while !self.seen.slow.load(Ordering::Relaxed) {
            assert!(Instant::now() < deadline, "no request arrived");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Stops: closes the listener and every connection.
    pub(crate) fn stop(&mut self) {
        self.seen.stop.store(true, Ordering::Relaxed);
        // Wakes the listener's thread, which then ends.
        let _ = TcpStream::connect(self.address);
        for stream in self.seen.open.lock().expect("lock poisoned").drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

/// Serves HTTP requests on a connection.
fn http(stream: &TcpStream, name: &str, seen: &Seen) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream.try_clone()?);
    let mut writer = stream.try_clone()?;
    writer.set_nodelay(true)?;
    loop {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            if reader.read_line(&mut head)? == 0 {
                return Ok(());
            }
        }
        let length = body(&head, &mut reader)?;
        let path = head.split(' ').nth(1).unwrap_or_default();
        let answer = match path {
            "/sum" => ok(&length.to_string()),
            "/until-close" => {
                writer.write_all(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nuntil the end")?;
                return writer.shutdown(Shutdown::Both);
            }
            "/chunked" => {
                "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nin \r\n9\r\ntwo parts\r\n0\r\n\
                 \r\n".to_owned()
            }
            "/upgrade" => {
                writer.write_all(b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")?;
                std::io::copy(&mut reader, &mut writer)?;
                return Ok(());
            }
            "/silence" => {
                let mut nothing = Vec::new();
                reader.read_to_end(&mut nothing)?;
                return Ok(());
            }
            "/cookie" => ok(name).replacen("\r\n", "\r\nSet-Cookie: ID=abc; Path=/x\r\n", 1),
            "/large" => {
                let body: Vec<u8> = (0..5_000_000u32).map(|at| (at % 251) as u8).collect();
                writer.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 5000000\r\n\r\n")?;
                writer.write_all(&body)?;
                continue;
            }
            path if path.starts_with("/pattern-") => {
                let length: usize = path["/pattern-".len()..].parse().unwrap_or(0);
                write!(writer, "HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n")?;
                let turn: Vec<u8> = (0..251 * 256u32).map(|at| (at % 251) as u8).collect();
                let mut left = length;
                while left > 0 {
                    let now = left.min(turn.len());
                    writer.write_all(&turn[..now])?;
                    left -= now;
                }
                continue;
            }
            "/lag" => {
                std::thread::sleep(Duration::from_millis(if name == "slow" { 300 } else { 1 }));
                ok(name)
            }
            "/slow" => {
                seen.slow.store(true, Ordering::Relaxed);
                let present = seen.present.fetch_add(1, Ordering::Relaxed) + 1;
                seen.at_once.fetch_max(present, Ordering::Relaxed);
                std::thread::sleep(Duration::from_millis(500));
                seen.present.fetch_sub(1, Ordering::Relaxed);
                ok("slow")
            }
            _ => ok(&format!("{name}\n{head}")),
        };
        writer.write_all(answer.as_bytes())?;
    }
}

fn ok(body: &str) -> String {
    format!(
        "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
}

/// Returns the next line. Fails if the stream ends within it.
fn line_of(reader: &mut impl BufRead) -> std::io::Result<String> {
    let mut line = String::new();
    match reader.read_line(&mut line)? {
        0 => Err(std::io::ErrorKind::UnexpectedEof.into()),
        _ => Ok(line),
    }
}

/// Reads a request's body. Returns its length.
fn body(head: &str, reader: &mut impl BufRead) -> std::io::Result<u64> {
    let field = |name: &str| {
        head.lines().find_map(|line| {
            let (found, value) = line.split_once(':')?;
            found
                .eq_ignore_ascii_case(name)
                .then(|| value.trim().to_owned())
        })
    };
    if field("transfer-encoding").is_some() {
        let mut sum = 0;
        loop {
            let mut line = line_of(reader)?;
            let digits = line.split([';', '\r']).next().unwrap_or_default();
            let size = u64::from_str_radix(digits, 16).unwrap_or(0);
            if size == 0 {
                while line != "\r\n" {
                    line = line_of(reader)?;
                }
                return Ok(sum);
            }
            std::io::copy(&mut reader.take(size + 2), &mut std::io::sink())?;
            sum += size;
        }
    }
    let length = field("content-length")
        .and_then(|value| value.parse().ok())
        .unwrap_or(0);
    std::io::copy(&mut reader.take(length), &mut std::io::sink())
}
