//! What a worker's connections share: room to work in, server connections, clocks.

mod upstream;
mod waiting;

use std::cell::RefCell;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;

use weir_http::Field;
use weir_select::{Balancer, Budget, Random};
use weir_sys::{Clock, now_ns};

pub(crate) use self::upstream::{Stay, Upstream};
use crate::h2::{H2ClientConn, Wakeups};
use crate::idle_pool::IdlePool;
use crate::log::Note;
use crate::pipe::Pipes;
use crate::plan::Service;
use crate::queue::Inbox;
use crate::slab::{Key, Slab};
use crate::wheel::Wheel;

/// Room for what is read while heads are expected, and while a body streams. With less than a body's size in one read
/// the calls dominate; with more for heads the caches suffer.
pub(crate) const HEAD_ROOM: usize = 64 << 10;
pub(crate) const BODY_ROOM: usize = 256 << 10;
/// Buffers that are kept for the next request, and the largest of them.
const SPARE_MAX: usize = 1024;
const SPARE_SIZE: usize = 16 << 10;
/// How long a request may wait before its client's end is looked for.
const WATCH_MS: u64 = 50;
/// Large buffers that are kept for slow clients.
const LARGE_MAX: usize = 8;

/// What the kernel said last of a socket.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Ready {
    pub(crate) readable: bool,
    pub(crate) writable: bool,
    /// The other side sends no more, once all is read.
    pub(crate) ended: bool,
    /// Both ways are over.
    pub(crate) broken: bool,
}

impl Ready {
    /// After a read of `got` octets into room for `room`: fewer mean that there are no more, unless the end is to be
    /// read.
    pub(crate) const fn after_read(&mut self, got: usize, room: usize) {
        if got < room && !self.ended {
            self.readable = false;
        }
    }
}

/// A service as this worker has it.
#[derive(Debug)]
pub(crate) struct Local {
    pub(crate) service: Arc<Service>,
    /// One for each of the service's pools.
    pub(crate) balancers: RefCell<Vec<Balancer>>,
    /// Of requests that are sent again.
    pub(crate) budget: Budget,
    /// No configuration has it any more: its clients finish what they began.
    pub(crate) gone: bool,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Context {
    pub(crate) worker: usize,
    pub(crate) epoll: OwnedFd,
    pub(crate) upstreams: Slab<Upstream>,
    /// Waiting connections by target, the last used on top.
    idle: Vec<Vec<Key>>,
    /// Where those go that waited in vain, if other workers may want them.
    idle_pool: Option<Arc<IdlePool>>,
    pub(crate) wheel: Wheel,
    pub(crate) idle_wheel: Wheel,
    /// Of clients' HTTP/2 connections.
    pub(crate) h2_server_wheel: Wheel,
    /// Of those that are read slowly.
    pub(crate) pace_wheel: Wheel,
    /// Servers' HTTP/2 connections; a place is empty while its connection has its turn.
    pub(crate) h2_clients: Slab<Option<Box<H2ClientConn>>>,
    pub(crate) h2_client_wheel: Wheel,
    /// HTTP/2 connections whose streams did something.
    pub(crate) wakeups: Wakeups,
    /// Milliseconds of a clock that only goes forward, taken once per wake-up.
    pub(crate) now: u64,
    pub(crate) scratch: Vec<u8>,
    pub(crate) out: Vec<u8>,
    pub(crate) fields: Vec<Field>,
    /// For a path in its normal form.
    pub(crate) path: Vec<u8>,
    spare: Vec<Vec<u8>>,
    large: Vec<Vec<u8>>,
    pub(crate) pipes: Pipes,
    pub(crate) random: Random,
    /// No further requests.
    pub(crate) draining: bool,
    /// Another process gets the clients, as soon as they can be handed to it.
    pub(crate) handing: bool,
    /// When a failed handshake was last spoken of.
    complained: u64,
    pub(crate) inbox: Arc<Inbox>,
    /// Sessions that wait for a server and are not in epoll, and when those that still do enter it.
    unwatched: Vec<Key>,
    watch_at: u64,
    /// Notes that are not in use.
    #[expect(clippy::vec_box, reason = "a session takes the box and gives it back")]
    notes: Vec<Box<Note>>,
}

/// Which thing an event is about, in the event's 64 bits.
pub(crate) mod token {
    use crate::slab::Key;

    pub(crate) const LISTENER: u64 = 0;
    pub(crate) const CLIENT: u64 = 1;
    pub(crate) const SERVER: u64 = 2;
    pub(crate) const WAKE: u64 = 3;
    pub(crate) const H2_SERVER: u64 = 4;
    pub(crate) const H2_CLIENT: u64 = 5;

    pub(crate) const fn of(kind: u64, key: Key) -> u64 {
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
            pace_wheel: Wheel::new(now),
            h2_clients: Slab::new(),
            h2_client_wheel: Wheel::new(now),
            wakeups: Wakeups::default(),
            now,
            scratch: vec![0; BODY_ROOM],
            out: Vec::with_capacity(HEAD_ROOM),
            fields: Vec::with_capacity(64),
            path: Vec::new(),
            spare: Vec::new(),
            large: Vec::new(),
            pipes: Pipes::default(),
            random: Random::new(seed),
            draining: false,
            handing: false,
            complained: 0,
            inbox,
            unwatched: Vec::new(),
            watch_at: 0,
            notes: Vec::new(),
        }
    }

    /// After a turn that did not come to its end: what turns take out and put back is there again.
    pub(crate) fn restore_buffers(&mut self) {
        self.scratch.resize(BODY_ROOM, 0);
        self.out.clear();
        self.fields.clear();
    }

    /// The session enters epoll at the next tick.
    pub(crate) fn watch_soon(&mut self, key: Key) {
        if self.unwatched.is_empty() {
            self.watch_at = self.now + WATCH_MS;
        }
        self.unwatched.push(key);
    }

    /// Sessions that are to enter epoll now.
    pub(crate) fn take_unwatched(&mut self) -> Vec<Key> {
        if self.unwatched.is_empty() || self.now < self.watch_at {
            return Vec::new();
        }
        std::mem::take(&mut self.unwatched)
    }

    /// Room for as many targets as there ever were.
    pub(crate) fn targets(&mut self, count: usize) {
        self.idle.resize_with(count.max(self.idle.len()), Vec::new);
    }

    /// A buffer to fill; [`recycle`](Self::recycle) takes it back.
    pub(crate) fn buffer(&mut self) -> Vec<u8> {
        self.spare.pop().unwrap_or_default()
    }

    /// A buffer for what a slow client does not take.
    pub(crate) fn large(&mut self) -> Vec<u8> {
        self.large.pop().unwrap_or_default()
    }

    /// A note of an exchange that begins now.
    pub(crate) fn note(&mut self) -> Box<Note> {
        let mut note = self.notes.pop().unwrap_or_default();
        note.begin(now_ns(Clock::Monotonic));
        note
    }

    /// Takes one back.
    pub(crate) fn forget(&mut self, note: Box<Note>) {
        if self.notes.len() < SPARE_MAX {
            self.notes.push(note);
        }
    }

    pub(crate) fn recycle(&mut self, mut buffer: Vec<u8>) {
        let (kept, most) = match buffer.capacity() {
            0 => return,
            size if size <= SPARE_SIZE => (&mut self.spare, SPARE_MAX),
            size if size <= 2 * BODY_ROOM => (&mut self.large, LARGE_MAX),
            _ => return,
        };
        if kept.len() < most {
            buffer.clear();
            kept.push(buffer);
        }
    }

    /// Whether a failure that may come with every request is to be logged: one in a second is.
    pub(crate) const fn complains(&mut self) -> bool {
        let due = self.now >= self.complained + 1_000;
        if due {
            self.complained = self.now;
        }
        due
    }
}

/// A service as a worker begins to have it.
pub(crate) fn local(service: Arc<Service>, balancers: Vec<Balancer>) -> Rc<Local> {
    new_local(service, balancers, false)
}

/// A service that no configuration has any more.
pub(crate) fn gone(service: Arc<Service>, balancers: Vec<Balancer>) -> Rc<Local> {
    new_local(service, balancers, true)
}

fn new_local(service: Arc<Service>, mut balancers: Vec<Balancer>, gone: bool) -> Rc<Local> {
    balancers.resize_with(service.pools.len(), Balancer::default);
    Rc::new(Local {
        service,
        balancers: RefCell::new(balancers),
        budget: Budget::default(),
        gone,
    })
}
