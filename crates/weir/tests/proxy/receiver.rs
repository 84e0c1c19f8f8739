//! A web server for tests that records the requests it receives: one per connection, one after the other.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

/// A request as it was received.
#[derive(Debug, Clone)]
pub(super) struct Received {
    /// The request line and the fields.
    pub(super) head: String,
    /// The body, with its chunks if it is chunked.
    pub(super) body: Vec<u8>,
    /// The status of the response.
    pub(super) status: u16,
}

impl Received {
    pub(super) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

/// The test server.
pub(super) struct Receiver {
    pub(super) address: SocketAddr,
    received: Arc<Mutex<Vec<Received>>>,
    status: Arc<AtomicU16>,
}

impl Receiver {
    /// Responds with 200 and `{}`.
    pub(super) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let receiver = Self {
            address: listener.local_addr().expect("its address"),
            received: Arc::default(),
            status: Arc::new(AtomicU16::new(200)),
        };
        let (received, status) = (Arc::clone(&receiver.received), Arc::clone(&receiver.status));
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let status = status.load(Ordering::Relaxed);
                if let Ok(request) = receive(stream, status) {
                    received.lock().expect("no panic").push(request);
                }
            }
        });
        receiver
    }

    /// The status of later responses.
    pub(super) fn respond(&self, status: u16) {
        self.status.store(status, Ordering::Relaxed);
    }

    /// All requests so far.
    pub(super) fn received(&self) -> MutexGuard<'_, Vec<Received>> {
        self.received.lock().expect("no panic")
    }
}

fn receive(stream: TcpStream, status: u16) -> std::io::Result<Received> {
    let mut reader = BufReader::new(stream);
    let (mut head, mut length, mut is_chunked) = (String::new(), 0, false);
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line)? == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        let lower = line.to_ascii_lowercase();
        if let Some(value) = lower.strip_prefix("content-length: ") {
            length = value.trim().parse().unwrap_or(0);
        }
        is_chunked |= lower.starts_with("transfer-encoding: chunked");
        if line.trim().is_empty() {
            break;
        }
        head.push_str(&line);
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    while is_chunked && !body.ends_with(b"0\r\n\r\n") {
        if reader.read_until(b'\n', &mut body)? == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
    }
    let answer = format!("HTTP/1.1 {status} Status\r\nContent-Length: 2\r\n\r\n{{}}");
    reader.get_mut().write_all(answer.as_bytes())?;
    Ok(Received { head, body, status })
}
