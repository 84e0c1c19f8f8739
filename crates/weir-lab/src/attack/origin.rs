//! Runs the server behind the proxies: HTTP/1.1 on one thread, with three paths.
//!
//! The server responds to `/probe` immediately, and to `/slow` after a delay that is longer than a trial. The response
//! to `/large` is 64 MiB long and is sent as fast as the proxy reads it. The server counts requests for `/slow` and
//! `/large`: total, in flight, and maximum in flight.

use std::collections::VecDeque;
use std::io;
use std::net::{Ipv4Addr, SocketAddrV4, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::net::sockopt;

use super::socket::{self, Event, Poll};

/// The listen address.
pub(crate) const ADDRESS: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::LOCALHOST, 9000);

const LISTENER: u64 = u64::MAX;
const TICK: Duration = Duration::from_millis(20);
/// Maximum number of connections; others wait in the kernel. The limit leaves descriptors for the attacker, which is in
/// the same process.
const MAX_CONNECTIONS: usize = 12_000;
const LARGE_BODY_BYTES: usize = 64 << 20;
const WRITE_BYTES: usize = 64 << 10;
/// Send buffer size of a socket, so that the kernel buffers only a small part of a large response.
const SEND_BUFFER_BYTES: usize = 64 << 10;
/// Maximum length of a request head.
const MAX_HEAD_BYTES: usize = 64 << 10;

/// Counts the requests that proxies send for `/slow` and `/large`, and stops the server.
#[derive(Default)]
pub(crate) struct RequestCounters {
    /// Requests for `/slow` and `/large`.
    pub(crate) total: AtomicU64,
    /// Requests that have neither received a complete response nor been aborted.
    pub(crate) in_flight: AtomicU64,
    /// Maximum of `in_flight`.
    pub(crate) max_in_flight: AtomicU64,
    /// Stops the server.
    pub(crate) stop: AtomicBool,
}

impl RequestCounters {
    fn begin(&self) {
        self.total.fetch_add(1, Ordering::Relaxed);
        let in_flight = self.in_flight.fetch_add(1, Ordering::Relaxed) + 1;
        self.max_in_flight.fetch_max(in_flight, Ordering::Relaxed);
    }

    fn end(&self) {
        self.in_flight.fetch_sub(1, Ordering::Relaxed);
    }
}

struct Connection {
    socket: TcpStream,
    head: Vec<u8>,
    pending: Vec<u8>,
    /// Number of bytes of a large response that are not yet in `pending`.
    unsent_bytes: usize,
    /// Whether a counted request is in flight.
    is_counted: bool,
    closes_after_response: bool,
    generation: u64,
}

/// The server behind the proxies; see the module documentation.
pub(crate) struct Origin<'a> {
    listener: TcpListener,
    poll: Poll,
    slots: Vec<Option<Connection>>,
    free: Vec<usize>,
    generation: u64,
    delay: Duration,
    /// Slot, generation and time of each delayed response; sorted by time, because all delays are equal.
    delayed_responses: VecDeque<(usize, u64, Instant)>,
    requests: &'a RequestCounters,
}

impl<'a> Origin<'a> {
    /// Opens the listening socket.
    pub(crate) fn bind(delay: Duration, requests: &'a RequestCounters) -> io::Result<Self> {
        let listener = TcpListener::bind(ADDRESS)?;
        listener.set_nonblocking(true)?;
        // std uses a backlog of 128; a second call to listen(2) changes it.
        rustix::net::listen(&listener, 4096)?;
        let poll = Poll::new()?;
        poll.add(&listener, LISTENER)?;
        Ok(Self {
            listener,
            poll,
            slots: Vec::new(),
            free: Vec::new(),
            generation: 0,
            delay,
            delayed_responses: VecDeque::new(),
            requests,
        })
    }

    /// Serves requests until [`RequestCounters::stop`] is set.
    pub(crate) fn run(mut self) -> io::Result<()> {
        while !self.requests.stop.load(Ordering::Relaxed) {
            // Connections that wait because of the limit trigger no further event, so accept them in every iteration.
            self.accept();
            for event in self.poll.wait(TICK)? {
                if event.token != LISTENER {
                    self.handle(event);
                }
            }
            self.send_due_responses();
        }
        Ok(())
    }

    fn accept(&mut self) {
        while self.slots.len() - self.free.len() < MAX_CONNECTIONS {
            let Ok((socket, _)) = self.listener.accept() else {
                return;
            };
            let index = self.free.pop().unwrap_or_else(|| {
                self.slots.push(None);
                self.slots.len() - 1
            });
            let registered = socket
                .set_nonblocking(true)
                .and_then(|()| socket.set_nodelay(true))
                .and_then(|()| self.poll.add(&socket, index as u64));
            if registered.is_err() {
                self.free.push(index);
                continue;
            }
            self.generation += 1;
            self.slots[index] = Some(Connection {
                socket,
                head: Vec::new(),
                pending: Vec::new(),
                unsent_bytes: 0,
                is_counted: false,
                closes_after_response: false,
                generation: self.generation,
            });
        }
    }

    fn handle(&mut self, event: Event) {
        let index = usize::try_from(event.token).unwrap_or(usize::MAX);
        let Some(connection) = self.slots.get_mut(index).and_then(Option::as_mut) else {
            return;
        };
        let head = &mut connection.head;
        let is_counted = connection.is_counted;
        let mut is_open = !event.readable
            || socket::drain(&mut connection.socket, |bytes| {
                // The body of a counted request is discarded.
                if !is_counted && head.len() < MAX_HEAD_BYTES {
                    head.extend(bytes);
                }
            });
        if let Some(end) = connection.head.windows(4).position(|it| it == b"\r\n\r\n") {
            let path = connection.head.split(|byte| *byte == b' ').nth(1);
            let path = path.unwrap_or_default().to_vec();
            connection.head.drain(..end + 4);
            match &path[..] {
                b"/slow" => {
                    let response = (index, connection.generation, Instant::now() + self.delay);
                    self.delayed_responses.push_back(response);
                    connection.count(self.requests);
                }
                b"/large" => {
                    // A larger buffer would hide how much the proxy has read.
                    let _ =
                        sockopt::set_socket_send_buffer_size(&connection.socket, SEND_BUFFER_BYTES);
                    let head =
                        format!("HTTP/1.1 200 OK\r\nContent-Length: {LARGE_BODY_BYTES}\r\n\r\n");
                    connection.pending.extend(head.as_bytes());
                    connection.unsent_bytes = LARGE_BODY_BYTES;
                    connection.closes_after_response = true;
                    connection.count(self.requests);
                }
                _ => connection
                    .pending
                    .extend(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"),
            }
        }
        is_open = is_open && connection.write();
        if !is_open || event.closed {
            self.close(index);
        }
    }

    fn send_due_responses(&mut self) {
        let now = Instant::now();
        while let Some(&(index, generation, due)) = self.delayed_responses.front()
            && due <= now
        {
            self.delayed_responses.pop_front();
            let Some(connection) = self.slots[index].as_mut() else {
                continue;
            };
            if connection.generation == generation {
                let response =
                    b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok";
                connection.pending.extend(response);
                connection.closes_after_response = true;
                if !connection.write() {
                    self.close(index);
                }
            }
        }
    }

    fn close(&mut self, index: usize) {
        if let Some(connection) = self.slots[index].take() {
            if connection.is_counted {
                self.requests.end();
            }
            self.free.push(index);
        }
    }
}

impl Connection {
    fn count(&mut self, requests: &RequestCounters) {
        if !self.is_counted {
            self.is_counted = true;
            requests.begin();
        }
    }

    /// Writes the response. Returns `false` if the connection must be closed: its last response is complete, or the
    /// connection is broken.
    fn write(&mut self) -> bool {
        loop {
            if self.pending.is_empty() && self.unsent_bytes > 0 {
                let length = self.unsent_bytes.min(WRITE_BYTES);
                self.pending.resize(length, b'x');
                self.unsent_bytes -= length;
            }
            if self.pending.is_empty() {
                return !self.closes_after_response;
            }
            if !socket::flush(&mut self.socket, &mut self.pending) {
                return false;
            }
            if !self.pending.is_empty() {
                return true;
            }
        }
    }
}
