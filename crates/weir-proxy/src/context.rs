//! Defines the state that a worker's sessions share: buffers, connections to servers, clocks, timer wheels.

mod idle;
mod upstream;

use std::cell::RefCell;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;

use weir_http::{Exchange, Field};
use weir_model::SplitMix64;
use weir_select::limit::Slot;
use weir_select::{Balancer, Budget};
use weir_sys::{Clock, now_ns};

pub(crate) use self::upstream::{IdleLimits, Upstream};
use crate::h2::{H2ClientConn, Wakeups};
use crate::idle_pool::IdlePool;
use crate::log::LogRecord;
use crate::pipe::Pipes;
use crate::plan::{Mirror, Service};
use crate::queue::Inbox;
use crate::slab::{Key, Slab};
use crate::verdict::{AuthRequest, Verdict};
use crate::wheel::Wheel;

/// Buffer sizes in bytes for reading heads and bodies. Smaller body reads would need more system calls; larger head
/// reads would cause cache misses.
pub(crate) const HEAD_BUFFER_BYTES: usize = 64 << 10;
pub(crate) const BODY_BUFFER_BYTES: usize = 256 << 10;
/// Maximum number of spare buffers, and their maximum size in bytes.
const MAX_SPARE: usize = 1024;
const MAX_SPARE_BYTES: usize = 16 << 10;
/// Maximum time until a waiting request's client is watched for disconnection, in milliseconds.
const WATCH_MS: u64 = 50;
/// How long a lingering connection is read at each wake-up without being registered with epoll, in milliseconds, and
/// the maximum number of such connections.
pub(crate) const LINGER_BATCH_MS: u64 = 20;
const MAX_LINGERING: usize = 32;
/// Maximum number of spare large buffers, for data that slow clients have not received yet.
const MAX_LARGE: usize = 8;

/// The last known state of a socket.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Readiness {
    pub(crate) readable: bool,
    pub(crate) writable: bool,
    /// Whether the peer has finished sending. Unread bytes may remain.
    pub(crate) read_closed: bool,
    /// Whether both directions are closed.
    pub(crate) broken: bool,
}

impl Readiness {
    /// Updates the state after a read of `bytes` bytes into a buffer of `capacity` bytes. A read that did not fill the
    /// buffer has consumed all available bytes; only the end of stream may follow.
    pub(crate) const fn after_read(&mut self, bytes: usize, capacity: usize) {
        if bytes < capacity && !self.read_closed {
            self.readable = false;
        }
    }
}

/// A worker's view of a service.
#[derive(Debug)]
pub(crate) struct LocalService {
    pub(crate) service: Arc<Service>,
    /// One balancer per pool.
    pub(crate) balancers: RefCell<Vec<Balancer>>,
    /// The retry budget.
    pub(crate) budget: Budget,
    /// Whether the service is no longer configured; its clients finish their current requests.
    pub(crate) is_removed: bool,
}

/// A copy of a request for a mirror, or an authorization request.
#[derive(Debug)]
pub(crate) struct MirrorCopy {
    pub(crate) local: Rc<LocalService>,
    pub(crate) mirror: Arc<Mirror>,
    /// Pool name; a new configuration may change its index.
    pub(crate) pool: String,
    /// Client address and listener port.
    pub(crate) peer: SocketAddr,
    pub(crate) port: u16,
    /// The copy's concurrency slot.
    pub(crate) slot: Slot,
    /// The state of the copy's framing before its body.
    pub(crate) exchange: Exchange,
    /// The head, and the part of the body received so far.
    pub(crate) bytes: Vec<u8>,
    /// Length of the head in bytes.
    pub(crate) head_len: usize,
    /// Hash for the `hash` scheduler.
    pub(crate) hash: u64,
    /// For an authorization request: the session that receives the verdict.
    pub(crate) auth_request: Option<AuthRequest>,
}

/// The part of a worker's state that its sessions use.
#[derive(Debug)]
pub(crate) struct Context {
    pub(crate) worker: usize,
    pub(crate) epoll: OwnedFd,
    pub(crate) upstreams: Slab<Upstream>,
    /// Idle connections by target, the most recently used one last.
    idle: Vec<Vec<Key>>,
    /// The pool of idle connections that workers share; `None` = there are no other workers.
    idle_pool: Option<Arc<IdlePool>>,
    pub(crate) wheel: Wheel,
    pub(crate) idle_wheel: Wheel,
    /// Timers for HTTP/2 connections from clients.
    pub(crate) h2_server_wheel: Wheel,
    /// Timers for resuming paused reads from HTTP/2 clients.
    pub(crate) resume_wheel: Wheel,
    /// HTTP/2 connections to servers; a slot is empty while its connection is being driven.
    pub(crate) h2_clients: Slab<Option<Box<H2ClientConn>>>,
    pub(crate) h2_client_wheel: Wheel,
    /// HTTP/2 connections whose streams made progress.
    pub(crate) wakeups: Wakeups,
    /// Milliseconds of the coarse monotonic clock, read once per wake-up.
    pub(crate) now: u64,
    /// Microseconds of the monotonic clock, for durations; read once per wake-up.
    pub(crate) now_us: u64,
    pub(crate) scratch: Vec<u8>,
    pub(crate) out: Vec<u8>,
    pub(crate) fields: Vec<Field>,
    /// Buffer for a normalized path.
    pub(crate) path: Vec<u8>,
    spare_buffers: Vec<Vec<u8>>,
    large_buffers: Vec<Vec<u8>>,
    pub(crate) pipes: Pipes,
    pub(crate) random: SplitMix64,
    /// Whether no further requests are accepted.
    pub(crate) draining: bool,
    /// Whether clients are handed over to another process as soon as possible.
    pub(crate) handing_over: bool,
    /// Time at which [`Self::may_warn`] last returned true.
    warned_at: u64,
    pub(crate) inbox: Arc<Inbox>,
    /// Sessions that wait for a server and are not registered with epoll yet.
    unwatched: Vec<Key>,
    /// HTTP/2 connections that wait for their client to close and are not registered with epoll, each with its deadline
    /// in milliseconds on the worker clock.
    pub(crate) lingering: Vec<(Key, u64)>,
    /// Request copies to send.
    pub(crate) copies: Vec<MirrorCopy>,
    /// Verdicts for other sessions.
    pub(crate) verdicts: Vec<(AuthRequest, Verdict)>,
    /// Ticket of the last job.
    last_ticket: u64,
    /// When the `unwatched` sessions will be registered, in milliseconds on the worker clock.
    watch_at: u64,
    /// Spare log records.
    #[expect(clippy::vec_box, reason = "sessions take and return the box")]
    spare_log_records: Vec<Box<LogRecord>>,
}

/// Packs the kind and key of an epoll event's source into the event's 64 bits.
pub(crate) mod token {
    use crate::slab::Key;

    pub(crate) const LISTENER: u64 = 0;
    pub(crate) const CLIENT: u64 = 1;
    pub(crate) const SERVER: u64 = 2;
    pub(crate) const WAKE: u64 = 3;
    pub(crate) const H2_SERVER: u64 = 4;
    pub(crate) const H2_CLIENT: u64 = 5;

    pub(crate) const fn pack(kind: u64, key: Key) -> u64 {
        kind << 60 | (key.generation as u64) << 32 | key.index as u64
    }

    pub(crate) const fn kind(token: u64) -> u64 {
        token >> 60
    }

    pub(crate) const fn key(token: u64) -> Key {
        Key {
            index: token as u32,
            generation: (token >> 32) as u32 & ((1 << Key::GENERATION_BITS) - 1),
        }
    }
}

impl Context {
    pub(crate) fn new(
        worker: usize,
        epoll: OwnedFd,
        now: u64,
        seed: u64,
        inbox: Arc<Inbox>,
        idle_pool: Option<Arc<IdlePool>>,
    ) -> Self {
        Self {
            worker,
            epoll,
            upstreams: Slab::new(),
            idle: Vec::new(),
            idle_pool,
            wheel: Wheel::new(now),
            idle_wheel: Wheel::new(now),
            h2_server_wheel: Wheel::new(now),
            resume_wheel: Wheel::new(now),
            h2_clients: Slab::new(),
            h2_client_wheel: Wheel::new(now),
            wakeups: Wakeups::default(),
            now,
            now_us: 0,
            scratch: vec![0; BODY_BUFFER_BYTES],
            out: Vec::with_capacity(HEAD_BUFFER_BYTES),
            fields: Vec::with_capacity(64),
            path: Vec::new(),
            spare_buffers: Vec::new(),
            large_buffers: Vec::new(),
            pipes: Pipes::default(),
            random: SplitMix64::new(seed),
            draining: false,
            handing_over: false,
            warned_at: 0,
            inbox,
            unwatched: Vec::new(),
            lingering: Vec::new(),
            copies: Vec::new(),
            verdicts: Vec::new(),
            last_ticket: 0,
            watch_at: 0,
            spare_log_records: Vec::new(),
        }
    }

    /// Replaces the buffers that were lost when a session panicked.
    pub(crate) fn restore_buffers(&mut self) {
        self.scratch.resize(BODY_BUFFER_BYTES, 0);
        self.out.clear();
        self.fields.clear();
    }

    /// Returns a new ticket for a job.
    pub(crate) const fn next_ticket(&mut self) -> u64 {
        self.last_ticket += 1;
        self.last_ticket
    }

    /// Schedules a session to be registered with epoll within [`WATCH_MS`] milliseconds.
    pub(crate) fn watch_soon(&mut self, key: Key) {
        if self.unwatched.is_empty() {
            self.watch_at = self.now + WATCH_MS;
        }
        self.unwatched.push(key);
    }

    /// Takes the sessions that are due for registration with epoll.
    pub(crate) fn take_unwatched(&mut self) -> Vec<Key> {
        if self.unwatched.is_empty() || self.now < self.watch_at {
            return Vec::new();
        }
        std::mem::take(&mut self.unwatched)
    }

    /// Returns whether another connection may linger without being registered with epoll.
    pub(crate) const fn has_room_for_lingering(&self) -> bool {
        self.lingering.len() < MAX_LINGERING
    }

    /// Makes room for the idle connections to `count` targets.
    pub(crate) fn reserve_targets(&mut self, count: usize) {
        self.idle.resize_with(count.max(self.idle.len()), Vec::new);
    }

    /// Returns an empty buffer. [`recycle`](Self::recycle) takes it back.
    pub(crate) fn buffer(&mut self) -> Vec<u8> {
        self.spare_buffers.pop().unwrap_or_default()
    }

    /// Returns an empty buffer for data that a slow client has not received yet.
    pub(crate) fn large_buffer(&mut self) -> Vec<u8> {
        self.large_buffers.pop().unwrap_or_default()
    }

    /// Returns a log record for an exchange that begins now.
    pub(crate) fn new_log_record(&mut self) -> Box<LogRecord> {
        let mut record = self.spare_log_records.pop().unwrap_or_default();
        record.begin(now_ns(Clock::Monotonic));
        record
    }

    /// Takes back a log record.
    pub(crate) fn recycle_log_record(&mut self, record: Box<LogRecord>) {
        if self.spare_log_records.len() < MAX_SPARE {
            self.spare_log_records.push(record);
        }
    }

    /// Takes back a buffer.
    pub(crate) fn recycle(&mut self, mut buffer: Vec<u8>) {
        let (spares, max) = match buffer.capacity() {
            0 => return,
            size if size <= MAX_SPARE_BYTES => (&mut self.spare_buffers, MAX_SPARE),
            size if size <= 2 * BODY_BUFFER_BYTES => (&mut self.large_buffers, MAX_LARGE),
            _ => return,
        };
        if spares.len() < max {
            buffer.clear();
            spares.push(buffer);
        }
    }

    /// Returns whether to log a failure that can occur for every request: true at most once per second.
    pub(crate) const fn may_warn(&mut self) -> bool {
        let is_due = self.now >= self.warned_at + 1_000;
        if is_due {
            self.warned_at = self.now;
        }
        is_due
    }
}

/// Creates a worker's view of a configured service.
pub(crate) fn local_service(service: Arc<Service>, balancers: Vec<Balancer>) -> Rc<LocalService> {
    new_local(service, balancers, false)
}

/// Creates a worker's view of a service that is no longer configured.
pub(crate) fn removed_service(service: Arc<Service>, balancers: Vec<Balancer>) -> Rc<LocalService> {
    new_local(service, balancers, true)
}

fn new_local(
    service: Arc<Service>,
    mut balancers: Vec<Balancer>,
    is_removed: bool,
) -> Rc<LocalService> {
    balancers.resize_with(service.pools.len(), Balancer::default);
    Rc::new(LocalService {
        service,
        balancers: RefCell::new(balancers),
        budget: Budget::default(),
        is_removed,
    })
}
