//! Provides a test server with a thread per connection.
//!
//! It implements HTTP/1.1 without a library and behaves specially on some paths.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// State that the connections of the server share.
#[derive(Default)]
struct SharedState {
    connections: AtomicU64,
    /// Whether a request for `/slow` has arrived.
    has_slow_request: AtomicBool,
    slow_requests: AtomicU64,
    slow_requests_max: AtomicU64,
    stop: AtomicBool,
    streams: Mutex<Vec<TcpStream>>,
}

/// The test server.
pub(crate) struct Origin {
    address: SocketAddr,
    shared: Arc<SharedState>,
}

impl Origin {
    /// Starts an HTTP server. The body of a response is a line with `name` followed by the head of the request; some
    /// paths have other responses.
    pub(crate) fn start(name: &str) -> Self {
        let name = name.to_owned();
        Self::serve(move |stream, shared| {
            // The test closes connections intentionally.
            let _ = serve_http(&stream, &name, shared);
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

    fn serve(handler: impl Fn(TcpStream, &SharedState) + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("bind a listener");
        let address = listener.local_addr().expect("get local address");
        let shared = Arc::new(SharedState::default());
        let (state, handler) = (Arc::clone(&shared), Arc::new(handler));
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                if state.stop.load(Ordering::Relaxed) {
                    return;
                }
                state.connections.fetch_add(1, Ordering::Relaxed);
                state
                    .streams
                    .lock()
                    .expect("lock poisoned")
                    .push(stream.try_clone().expect("duplicate descriptor"));
                let (state, handler) = (Arc::clone(&state), Arc::clone(&handler));
                std::thread::spawn(move || handler(stream, &state));
            }
        });
        Self { address, shared }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the number of connections accepted since the start.
    pub(crate) fn connections(&self) -> u64 {
        self.shared.connections.load(Ordering::Relaxed)
    }

    /// Returns the highest number of concurrent requests for `/slow`.
    pub(crate) fn max_concurrent_slow(&self) -> u64 {
        self.shared.slow_requests_max.load(Ordering::Relaxed)
    }

    /// Waits until a request for `/slow` has arrived.
    pub(crate) fn wait_for_slow(&self) {
        let deadline = Instant::now() + Duration::from_secs(10);
        while !self.shared.has_slow_request.load(Ordering::Relaxed) {
            assert!(Instant::now() < deadline, "no request for /slow arrived");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Stops the server by closing the listener and every connection.
    pub(crate) fn stop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        // Wake the listener's thread, which then ends.
        let _ = TcpStream::connect(self.address);
        for stream in self.shared.streams.lock().expect("lock poisoned").drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

/// Serves HTTP requests on a connection.
fn serve_http(stream: &TcpStream, name: &str, shared: &SharedState) -> std::io::Result<()> {
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
        let length = read_body(&head, &mut reader)?;
        let path = head.split(' ').nth(1).unwrap_or_default();
        let response = match path {
            "/sum" => ok_response(&length.to_string()),
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
                let mut discarded = Vec::new();
                reader.read_to_end(&mut discarded)?;
                return Ok(());
            }
            "/cookie" => ok_response(name).replacen("\r\n", "\r\nSet-Cookie: ID=abc; Path=/x\r\n", 1),
            "/large" => {
                let body: Vec<u8> = (0..5_000_000u32).map(|index| (index % 251) as u8).collect();
                writer.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 5000000\r\n\r\n")?;
                writer.write_all(&body)?;
                continue;
            }
            path if path.starts_with("/pattern-") => {
                let length: usize = path["/pattern-".len()..].parse().unwrap_or(0);
                write!(writer, "HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n")?;
                let pattern: Vec<u8> = (0..251 * 256u32).map(|index| (index % 251) as u8).collect();
                let mut remaining = length;
                while remaining > 0 {
                    let count = remaining.min(pattern.len());
                    writer.write_all(&pattern[..count])?;
                    remaining -= count;
                }
                continue;
            }
            "/lag" => {
                std::thread::sleep(Duration::from_millis(if name == "slow" { 300 } else { 1 }));
                ok_response(name)
            }
            "/slow" => {
                shared.has_slow_request.store(true, Ordering::Relaxed);
                let slow_requests = shared.slow_requests.fetch_add(1, Ordering::Relaxed) + 1;
                shared.slow_requests_max.fetch_max(slow_requests, Ordering::Relaxed);
                std::thread::sleep(Duration::from_millis(500));
                shared.slow_requests.fetch_sub(1, Ordering::Relaxed);
                ok_response("slow")
            }
            _ => ok_response(&format!("{name}\n{head}")),
        };
        writer.write_all(response.as_bytes())?;
    }
}

fn ok_response(body: &str) -> String {
    format!(
        "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
}

/// Reads the next line. Fails at the end of the stream.
fn read_line(reader: &mut impl BufRead) -> std::io::Result<String> {
    let mut line = String::new();
    match reader.read_line(&mut line)? {
        0 => Err(std::io::ErrorKind::UnexpectedEof.into()),
        _ => Ok(line),
    }
}

/// Reads a request's body. Returns its length.
fn read_body(head: &str, reader: &mut impl BufRead) -> std::io::Result<u64> {
    let field = |name: &str| {
        head.lines().find_map(|line| {
            let (field_name, value) = line.split_once(':')?;
            field_name
                .eq_ignore_ascii_case(name)
                .then(|| value.trim().to_owned())
        })
    };
    if field("transfer-encoding").is_some() {
        let mut sum = 0;
        loop {
            let mut line = read_line(reader)?;
            let digits = line.split([';', '\r']).next().unwrap_or_default();
            let size = u64::from_str_radix(digits, 16).unwrap_or(0);
            if size == 0 {
                while line != "\r\n" {
                    line = read_line(reader)?;
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
