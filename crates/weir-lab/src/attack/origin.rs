//! The server behind the proxies: HTTP/1.1 on one thread, three paths. `/probe` is answered at once. `/slow` is
//! answered after a delay that is longer than a trial. `/large` is answered by 64 MiB, as fast as they are taken.
//! Requests for the latter two are counted: in all, under way, and the most at once.

use std::collections::VecDeque;
use std::io;
use std::net::{Ipv4Addr, SocketAddrV4, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::net::sockopt;

use super::socket::{self, Event, Poll};

/// Where it listens.
pub(crate) const ADDRESS: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::LOCALHOST, 9000);

const LISTENER: u64 = u64::MAX;
const TICK: Duration = Duration::from_millis(20);
/// Connections at once: the process's descriptors are the attacker's too. Beyond it they wait in the kernel.
const CONNECTIONS: usize = 12_000;
const LARGE: usize = 64 << 20;
const PIECE: usize = 64 << 10;
/// Of a socket, so that little of a large answer is in the kernel.
const SEND_BUFFER: usize = 64 << 10;
/// Longest request head.
const HEAD: usize = 64 << 10;

/// What the proxies asked for.
#[derive(Default)]
pub(crate) struct Requests {
    /// For `/slow` and `/large`, ever.
    pub(crate) total: AtomicU64,
    /// Of these, not yet answered and not given up.
    pub(crate) present: AtomicU64,
    /// The most at once.
    pub(crate) most: AtomicU64,
    /// Ends the origin.
    pub(crate) stop: AtomicBool,
}

impl Requests {
    fn begin(&self) {
        self.total.fetch_add(1, Ordering::Relaxed);
        let present = self.present.fetch_add(1, Ordering::Relaxed) + 1;
        self.most.fetch_max(present, Ordering::Relaxed);
    }

    fn end(&self) {
        self.present.fetch_sub(1, Ordering::Relaxed);
    }
}

struct Connection {
    socket: TcpStream,
    head: Vec<u8>,
    pending: Vec<u8>,
    /// Bytes of a large answer that are not in `pending` yet.
    rest: usize,
    /// A counted request is under way.
    counted: bool,
    closes: bool,
    generation: u64,
}

/// See the module.
pub(crate) struct Origin<'a> {
    listener: TcpListener,
    poll: Poll,
    slots: Vec<Option<Connection>>,
    free: Vec<usize>,
    generation: u64,
    delay: Duration,
    /// Slot, generation and time of the answer; in order, as all delays are equal.
    waiting: VecDeque<(usize, u64, Instant)>,
    requests: &'a Requests,
}

impl<'a> Origin<'a> {
    /// Listens.
    pub(crate) fn bind(delay: Duration, requests: &'a Requests) -> io::Result<Self> {
        let listener = TcpListener::bind(ADDRESS)?;
        listener.set_nonblocking(true)?;
        // std listens with a backlog of 128; a second call changes it.
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
            waiting: VecDeque::new(),
            requests,
        })
    }

    /// Serves until it is stopped.
    pub(crate) fn run(mut self) -> io::Result<()> {
        while !self.requests.stop.load(Ordering::Relaxed) {
            // Every time: what the limit kept out waits without a further event.
            self.accept();
            for event in self.poll.wait(TICK)? {
                if event.token != LISTENER {
                    self.handle(event);
                }
            }
            self.answer_due();
        }
        Ok(())
    }

    fn accept(&mut self) {
        while self.slots.len() - self.free.len() < CONNECTIONS {
            let Ok((socket, _)) = self.listener.accept() else {
                return;
            };
            let at = self.free.pop().unwrap_or_else(|| {
                self.slots.push(None);
                self.slots.len() - 1
            });
            let registered = socket
                .set_nonblocking(true)
                .and_then(|()| socket.set_nodelay(true))
                .and_then(|()| self.poll.add(&socket, at as u64));
            if registered.is_err() {
                self.free.push(at);
                continue;
            }
            self.generation += 1;
            self.slots[at] = Some(Connection {
                socket,
                head: Vec::new(),
                pending: Vec::new(),
                rest: 0,
                counted: false,
                closes: false,
                generation: self.generation,
            });
        }
    }

    fn handle(&mut self, event: Event) {
        let at = usize::try_from(event.token).unwrap_or(usize::MAX);
        let Some(connection) = self.slots.get_mut(at).and_then(Option::as_mut) else {
            return;
        };
        let head = &mut connection.head;
        let counted = connection.counted;
        let mut lives = !event.readable
            || socket::drain(&mut connection.socket, |bytes| {
                // The body of a counted request does not matter.
                if !counted && head.len() < HEAD {
                    head.extend(bytes);
                }
            });
        if let Some(end) = connection.head.windows(4).position(|it| it == b"\r\n\r\n") {
            let path = connection.head.split(|byte| *byte == b' ').nth(1);
            let path = path.unwrap_or_default().to_vec();
            connection.head.drain(..end + 4);
            match &path[..] {
                b"/slow" => {
                    let answer = (at, connection.generation, Instant::now() + self.delay);
                    self.waiting.push_back(answer);
                    connection.count(self.requests);
                }
                b"/large" => {
                    // A larger buffer would hide how much a proxy took.
                    let _ = sockopt::set_socket_send_buffer_size(&connection.socket, SEND_BUFFER);
                    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {LARGE}\r\n\r\n");
                    connection.pending.extend(head.as_bytes());
                    connection.rest = LARGE;
                    connection.closes = true;
                    connection.count(self.requests);
                }
                _ => connection
                    .pending
                    .extend(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"),
            }
        }
        lives = lives && connection.write();
        if !lives || event.ended {
            self.close(at);
        }
    }

    fn answer_due(&mut self) {
        let now = Instant::now();
        while let Some(&(at, generation, due)) = self.waiting.front()
            && due <= now
        {
            self.waiting.pop_front();
            let Some(connection) = self.slots[at].as_mut() else {
                continue;
            };
            if connection.generation == generation {
                let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok";
                connection.pending.extend(answer);
                connection.closes = true;
                if !connection.write() {
                    self.close(at);
                }
            }
        }
    }

    fn close(&mut self, at: usize) {
        if let Some(connection) = self.slots[at].take() {
            if connection.counted {
                self.requests.end();
            }
            self.free.push(at);
        }
    }
}

impl Connection {
    fn count(&mut self, requests: &Requests) {
        if !self.counted {
            self.counted = true;
            requests.begin();
        }
    }

    /// `false` = done, or broken.
    fn write(&mut self) -> bool {
        loop {
            if self.pending.is_empty() && self.rest > 0 {
                let piece = self.rest.min(PIECE);
                self.pending.resize(piece, b'x');
                self.rest -= piece;
            }
            if self.pending.is_empty() {
                return !self.closes;
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
