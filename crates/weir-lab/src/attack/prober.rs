//! Runs the well-behaved clients, whose latency is measured during an attack. They send requests at a low, fixed rate
//! from an address that the attacker does not use. Every second request uses a new connection; the others reuse
//! connections. The rate does not depend on the responses (open loop), and the latency of a failed request is the time
//! limit, so that a proxy gains nothing by rejecting requests.

use std::collections::BTreeMap;
use std::io;
use std::net::{Ipv4Addr, SocketAddrV4, TcpStream};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::frame::{
    self, ACK, DATA, END_HEADERS, END_STREAM, FrameReader, GOAWAY, HEADERS, RST_STREAM, SETTINGS,
};
use super::socket::{self, Event, Poll};

/// Interval between two requests.
pub(crate) const REQUEST_INTERVAL: Duration = Duration::from_millis(10);
/// Time limit for a response.
pub(crate) const RESPONSE_TIMEOUT: Duration = Duration::from_secs(2);
/// Source address of the prober.
const SOURCE: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 1);
const TICK: Duration = Duration::from_millis(1);

/// A completed request from the prober.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sample {
    /// Time at which the request was due.
    pub(crate) due: Instant,
    /// The latency; [`RESPONSE_TIMEOUT`] if the request failed.
    pub(crate) latency: Duration,
    pub(crate) succeeded: bool,
}

/// State that the prober and the trial share.
#[derive(Default)]
pub(crate) struct Probes {
    samples: Mutex<Vec<Sample>>,
    pub(crate) stop: AtomicBool,
}

impl Probes {
    /// Returns all completed requests, in the order in which they were due.
    pub(crate) fn samples(&self) -> Vec<Sample> {
        let mut samples = self.lock().clone();
        samples.sort_by_key(|sample| sample.due);
        samples
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Sample>> {
        // The list is only appended to, so it is valid even if the mutex is poisoned.
        self.samples
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

struct Connection {
    socket: TcpStream,
    pending: Vec<u8>,
    keep_alive: bool,
    /// Time at which the request in flight was due.
    due: Option<Instant>,
    stream: u32,
    succeeded: bool,
    frames: FrameReader,
    text: Vec<u8>,
    settings_seen: bool,
}

enum Outcome {
    Waiting,
    Done(bool),
    Closed,
}

/// The other clients; see the module documentation.
pub(crate) struct Prober<'a> {
    address: SocketAddrV4,
    http2: bool,
    poll: Poll,
    connections: BTreeMap<u64, Connection>,
    idle: Vec<u64>,
    next_token: u64,
    probes: &'a Probes,
}

impl<'a> Prober<'a> {
    pub(crate) fn new(address: SocketAddrV4, http2: bool, probes: &'a Probes) -> io::Result<Self> {
        Ok(Self {
            address,
            http2,
            poll: Poll::new()?,
            connections: BTreeMap::new(),
            idle: Vec::new(),
            next_token: 0,
            probes,
        })
    }

    /// Sends requests until [`Probes::stop`] is set, then waits until all requests are complete.
    pub(crate) fn run(mut self) -> io::Result<()> {
        let mut next = Instant::now();
        let mut number = 0_u64;
        loop {
            let is_stopping = self.probes.stop.load(Ordering::Relaxed);
            if is_stopping && self.connections.values().all(|it| it.due.is_none()) {
                return Ok(());
            }
            if !is_stopping && Instant::now() >= next {
                self.issue(number.is_multiple_of(2), next);
                number += 1;
                next += REQUEST_INTERVAL;
            }
            for event in self.poll.wait(TICK)? {
                self.handle(event);
            }
            self.expire();
        }
    }

    /// Issues a request. Its latency is measured from the time at which it was due.
    fn issue(&mut self, keep_alive: bool, due: Instant) {
        let idle = if keep_alive { self.idle.pop() } else { None };
        let token = match idle.map_or_else(|| self.open(keep_alive), Ok) {
            Ok(token) => token,
            Err(_) => return self.record(due, false),
        };
        let Some(connection) = self.connections.get_mut(&token) else {
            return self.record(due, false);
        };
        connection.due = Some(due);
        connection.write_request(self.http2);
        if !socket::flush(&mut connection.socket, &mut connection.pending) {
            self.fail(token);
        }
    }

    fn open(&mut self, keep_alive: bool) -> io::Result<u64> {
        let socket = socket::connect(SOURCE, self.address)?;
        let token = self.next_token;
        self.next_token += 1;
        self.poll.add(&socket, token)?;
        let connection = Connection {
            socket,
            pending: if self.http2 {
                frame::opening_bytes(false)
            } else {
                Vec::new()
            },
            keep_alive,
            due: None,
            stream: 0,
            succeeded: false,
            frames: FrameReader::default(),
            text: Vec::new(),
            settings_seen: false,
        };
        self.connections.insert(token, connection);
        Ok(token)
    }

    fn handle(&mut self, event: Event) {
        let http2 = self.http2;
        let Some(connection) = self.connections.get_mut(&event.token) else {
            return;
        };
        let mut outcome = Outcome::Waiting;
        if event.readable {
            outcome = connection.read(http2);
        }
        if event.writable && !socket::flush(&mut connection.socket, &mut connection.pending) {
            outcome = Outcome::Closed;
        }
        match outcome {
            Outcome::Waiting if !event.closed => {}
            Outcome::Waiting | Outcome::Closed => self.fail(event.token),
            Outcome::Done(succeeded) => {
                let is_reusable = connection.keep_alive && succeeded && !event.closed;
                if let Some(due) = connection.due.take() {
                    self.record(due, succeeded);
                }
                if is_reusable {
                    self.idle.push(event.token);
                } else {
                    self.connections.remove(&event.token);
                }
            }
        }
    }

    /// Handles a closed connection. The close of an idle connection is not a failure.
    fn fail(&mut self, token: u64) {
        self.idle.retain(|idle| *idle != token);
        if let Some(due) = self.connections.remove(&token).and_then(|it| it.due) {
            self.record(due, false);
        }
    }

    fn expire(&mut self) {
        let is_late = |connection: &Connection| {
            connection
                .due
                .is_some_and(|due| due.elapsed() >= RESPONSE_TIMEOUT)
        };
        let late: Vec<u64> = self
            .connections
            .iter()
            .filter(|(_, connection)| is_late(connection))
            .map(|(token, _)| *token)
            .collect();
        for token in late {
            self.fail(token);
        }
    }

    fn record(&self, due: Instant, succeeded: bool) {
        let latency = if succeeded {
            due.elapsed().min(RESPONSE_TIMEOUT)
        } else {
            RESPONSE_TIMEOUT
        };
        self.probes.lock().push(Sample {
            due,
            latency,
            succeeded,
        });
    }
}

impl Connection {
    fn write_request(&mut self, http2: bool) {
        self.succeeded = false;
        self.text.clear();
        if http2 {
            self.stream = if self.stream == 0 { 1 } else { self.stream + 2 };
            let flags = END_STREAM | END_HEADERS;
            frame::append_frame(
                &mut self.pending,
                HEADERS,
                flags,
                self.stream,
                &frame::get_block("/probe"),
            );
        } else {
            self.pending
                .extend(b"GET /probe HTTP/1.1\r\nHost: probe.example\r\n\r\n");
        }
    }

    fn read(&mut self, http2: bool) -> Outcome {
        let (frames, text) = (&mut self.frames, &mut self.text);
        let is_open = socket::drain(&mut self.socket, |bytes| {
            if http2 {
                frames.feed(bytes);
            } else {
                text.extend(bytes);
            }
        });
        let outcome = if http2 {
            self.read_frames()
        } else {
            self.read_text()
        };
        match outcome {
            Outcome::Waiting if !is_open => Outcome::Closed,
            outcome => outcome,
        }
    }

    fn read_text(&self) -> Outcome {
        let end = self.text.windows(4).position(|it| it == b"\r\n\r\n");
        match end {
            Some(end) if self.text.len() >= end + 6 => {
                Outcome::Done(self.text.starts_with(b"HTTP/1.1 200 "))
            }
            _ => Outcome::Waiting,
        }
    }

    fn read_frames(&mut self) -> Outcome {
        let mut outcome = Outcome::Waiting;
        while let Some(received) = self.frames.next() {
            let is_own_stream = received.stream == self.stream && self.due.is_some();
            match received.kind {
                SETTINGS if received.flags & ACK == 0 && !self.settings_seen => {
                    self.settings_seen = true;
                    frame::append_frame(&mut self.pending, SETTINGS, ACK, 0, &[]);
                }
                GOAWAY if !matches!(outcome, Outcome::Done(_)) => outcome = Outcome::Closed,
                HEADERS if is_own_stream => {
                    self.succeeded = frame::is_success(received.flags, &received.payload);
                }
                RST_STREAM if is_own_stream => outcome = Outcome::Done(false),
                _ => {}
            }
            let can_end_stream = matches!(received.kind, HEADERS | DATA);
            if is_own_stream && can_end_stream && received.flags & END_STREAM != 0 {
                outcome = Outcome::Done(self.succeeded);
            }
        }
        if !self.pending.is_empty() {
            // If the connection is broken, the next event reports it.
            let _ = socket::flush(&mut self.socket, &mut self.pending);
        }
        outcome
    }
}
