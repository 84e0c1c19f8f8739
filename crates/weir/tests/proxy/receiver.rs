//! Provides a web server that records the requests it receives.
//!
//! It serves one request per connection and one connection at a time.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

/// A request as the server received it.
#[derive(Debug, Clone)]
pub(super) struct ReceivedRequest {
    /// The request line and the header fields.
    pub(super) head: String,
    /// The body, including the chunk framing if it is chunked.
    pub(super) body: Vec<u8>,
    /// The status of the response.
    pub(super) status: u16,
}

impl ReceivedRequest {
    pub(super) fn body_text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

/// The test server.
pub(super) struct Receiver {
    pub(super) address: SocketAddr,
    received: Arc<Mutex<Vec<ReceivedRequest>>>,
    status: Arc<AtomicU16>,
}

impl Receiver {
    /// Starts a server that responds to every request with status 200 and body `{}`.
    pub(super) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("bind a listener");
        let receiver = Self {
            address: listener.local_addr().expect("get local address"),
            received: Arc::default(),
            status: Arc::new(AtomicU16::new(200)),
        };
        let (received, status) = (Arc::clone(&receiver.received), Arc::clone(&receiver.status));
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let status = status.load(Ordering::Relaxed);
                if let Ok(request) = receive(stream, status) {
                    received.lock().expect("lock poisoned").push(request);
                }
            }
        });
        receiver
    }

    /// Sets the status of all later responses.
    pub(super) fn set_status(&self, status: u16) {
        self.status.store(status, Ordering::Relaxed);
    }

    /// Returns all requests so far.
    pub(super) fn received(&self) -> MutexGuard<'_, Vec<ReceivedRequest>> {
        self.received.lock().expect("lock poisoned")
    }
}

/// Receives one request and sends a response with this status.
fn receive(stream: TcpStream, status: u16) -> std::io::Result<ReceivedRequest> {
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
    // Without `Connection: close`, the proxy could send its next request on this connection before it is closed.
    let response =
        format!("HTTP/1.1 {status} Status\r\nConnection: close\r\nContent-Length: 2\r\n\r\n{{}}");
    reader.get_mut().write_all(response.as_bytes())?;
    Ok(ReceivedRequest { head, body, status })
}
