//! What a worker's connections share: room to work in, server connections, clocks.

use std::cell::RefCell;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;

use rustix::io::Errno;
use weir_http::Field;
use weir_sys::{Clock, now_ns};

use crate::balance::{Balance, Dice};
use crate::budget::Budget;
use crate::h2::{Back, Bell, Owner, Strand, StrandEnd};
use crate::log::Note;
use crate::pipe::Pipes;
use crate::plan::{Millis, Service, Target};
use crate::queue::Inbox;
use crate::slab::{Key, Slab};
use crate::socket;
use crate::tls::{self, Channel};
use crate::transport::Transport;
use crate::wheel::{Deadline, Wheel};

/// Room for what is read while heads are expected, and while a body streams. With less than a body's size in one read the
/// calls dominate; with more for heads the caches suffer.
pub(crate) const HEAD_ROOM: usize = 64 << 10;
pub(crate) const BODY_ROOM: usize = 256 << 10;
/// Buffers that are kept for the next request, and the largest of them.
const SPARE_MAX: usize = 1024;
const SPARE_SIZE: usize = 16 << 10;
/// Large buffers that are kept for slow clients.
const LARGE_MAX: usize = 8;

/// How long connections wait of which there are more than a service keeps: clients that come in bursts would else have most of
/// their requests wait for new ones.
const SURPLUS_MS: u64 = 1_000;

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
    /// After a read of `got` octets into room for `room`: fewer mean that there are no more, unless the end is to be read.
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
    pub(crate) balances: RefCell<Vec<Balance>>,
    /// Of requests that are sent again.
    pub(crate) budget: Budget,
    /// No configuration has it any more: its clients finish what they began.
    pub(crate) gone: bool,
}

/// A connection to a server.
#[derive(Debug)]
pub(crate) struct Upstream {
    pub(crate) transport: Transport,
    pub(crate) target: Arc<Target>,
    pub(crate) port: u16,
    /// Who uses it; none while it waits.
    pub(crate) session: Key,
    pub(crate) ready: Ready,
    /// The beginning of a response head that is not all there.
    pub(crate) input: Vec<u8>,
    /// It was told for whom it is, and is for nobody else.
    pub(crate) introduced: bool,
    /// Exchanges that it had before.
    pub(crate) served: u32,
    pub(crate) deadline: Deadline,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Context {
    pub(crate) worker: usize,
    pub(crate) epoll: OwnedFd,
    pub(crate) upstreams: Slab<Upstream>,
    /// Waiting connections by target, the last used on top.
    idle: Vec<Vec<Key>>,
    pub(crate) wheel: Wheel,
    pub(crate) idle_wheel: Wheel,
    /// Of clients' HTTP/2 connections.
    pub(crate) front_wheel: Wheel,
    /// Servers' HTTP/2 connections; a place is empty while its connection has its turn.
    pub(crate) backs: Slab<Option<Box<Back>>>,
    pub(crate) back_wheel: Wheel,
    /// HTTP/2 connections whose streams did something.
    pub(crate) bell: Bell,
    /// Milliseconds of a clock that only goes forward, taken once per wake-up.
    pub(crate) now: u64,
    pub(crate) scratch: Vec<u8>,
    pub(crate) out: Vec<u8>,
    pub(crate) fields: Vec<Field>,
    spare: Vec<Vec<u8>>,
    large: Vec<Vec<u8>>,
    pub(crate) pipes: Pipes,
    pub(crate) dice: Dice,
    /// No further requests.
    pub(crate) draining: bool,
    /// Another process gets the clients, as soon as they can be handed to it.
    pub(crate) handing: bool,
    /// When a failed handshake was last spoken of.
    complained: u64,
    pub(crate) inbox: Arc<Inbox>,
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
    pub(crate) const FRONT: u64 = 4;
    pub(crate) const BACK: u64 = 5;

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
    ) -> Self {
        Self {
            worker,
            epoll,
            upstreams: Slab::new(),
            idle: Vec::new(),
            wheel: Wheel::new(now),
            idle_wheel: Wheel::new(now),
            front_wheel: Wheel::new(now),
            backs: Slab::new(),
            back_wheel: Wheel::new(now),
            bell: Bell::default(),
            now,
            scratch: vec![0; BODY_ROOM],
            out: Vec::with_capacity(HEAD_ROOM),
            fields: Vec::with_capacity(64),
            spare: Vec::new(),
            large: Vec::new(),
            pipes: Pipes::default(),
            dice: Dice::new(seed),
            draining: false,
            handing: false,
            complained: 0,
            inbox,
            notes: Vec::new(),
        }
    }

    /// After a turn that did not come to its end: what turns take out and put back is there again.
    pub(crate) fn mend(&mut self) {
        self.scratch.resize(BODY_ROOM, 0);
        self.out.clear();
        self.fields.clear();
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

    /// Begins a connection for `session`, which has a place at the server.
    pub(crate) fn open(
        &mut self,
        target: &Arc<Target>,
        port: u16,
        session: Key,
        tls: Option<&tls::Back>,
    ) -> rustix::io::Result<Key> {
        let transport = reach(target, port, tls)?;
        let key = self.upstreams.insert(Upstream {
            transport,
            target: Arc::clone(target),
            port,
            session,
            ready: Ready::default(),
            input: Vec::new(),
            introduced: false,
            served: 0,
            deadline: Deadline::default(),
        });
        let watched = match self.upstreams.get(key) {
            Some(upstream) => upstream
                .transport
                .watch(&self.epoll, token::of(token::SERVER, key)),
            None => Ok(()),
        };
        if let Err(error) = watched {
            self.upstreams.remove(key);
            return Err(error);
        }
        target.counters.of(self.worker).connections.add(1);
        Ok(key)
    }

    /// A request for `session` over an HTTP/2 connection to the server, a new one where none has room.
    pub(crate) fn open_stream(
        &mut self,
        target: &Arc<Target>,
        port: u16,
        session: Key,
        tls: Option<&tls::Back>,
        service: &Service,
    ) -> rustix::io::Result<Key> {
        let takes = |key: &Key| {
            let back = self.backs.get(*key).and_then(Option::as_deref);
            back.is_some_and(|back| back.takes(target, port, service.server_requests))
        };
        let known = self.backs.keys().into_iter().find(takes);
        let link = match known {
            Some(link) => link,
            None => self.open_back(target, port, tls, &service.timeouts)?,
        };
        let Some(Some(back)) = self.backs.get_mut(link) else {
            return Err(Errno::NOTCONN);
        };
        let token = token::of(token::BACK, link);
        let strand = Strand::new(&self.bell, token, back.is_secure(), back.strand_state());
        let strand = Rc::new(RefCell::new(strand));
        back.add(Rc::clone(&strand));
        let key = self.upstreams.insert(Upstream {
            transport: Transport::strand(StrandEnd(Rc::clone(&strand))),
            target: Arc::clone(target),
            port,
            session,
            ready: Ready {
                writable: true,
                ..Ready::default()
            },
            input: Vec::new(),
            served: u32::from(known.is_some()),
            introduced: true,
            deadline: Deadline::default(),
        });
        strand.borrow_mut().owner = Owner::Server(key);
        Ok(key)
    }

    fn open_back(
        &mut self,
        target: &Arc<Target>,
        port: u16,
        tls: Option<&tls::Back>,
        timeouts: &Millis,
    ) -> rustix::io::Result<Key> {
        let transport = reach(target, port, tls)?;
        let back = Back::new(transport, target, port, timeouts.idle);
        let key = self.backs.insert(Some(Box::new(back)));
        let Some(Some(back)) = self.backs.get_mut(key) else {
            return Err(Errno::NOTCONN);
        };
        if let Err(error) = back.watch(&self.epoll, token::of(token::BACK, key)) {
            self.backs.remove(key);
            return Err(error);
        }
        self.back_wheel
            .set(&mut back.deadline, key, self.now + timeouts.connect);
        target.counters.of(self.worker).connections.add(1);
        Ok(key)
    }

    /// A waiting connection for `session`, which has a place at the server; `checked` asks the kernel whether it still stands.
    pub(crate) fn reuse(
        &mut self,
        target: &Target,
        port: u16,
        session: Key,
        checked: bool,
    ) -> Option<Key> {
        loop {
            let waiting = self.idle.get_mut(target.id as usize)?;
            let at = waiting.iter().rposition(|key| {
                self.upstreams
                    .get(*key)
                    .is_some_and(|upstream| upstream.port == port)
            })?;
            let key = waiting.remove(at);
            target.counters.of(self.worker).present.sub(1);
            let upstream = self.upstreams.get_mut(key)?;
            if upstream.ready.ended
                || upstream.ready.readable
                || (checked && !upstream.transport.is_silent())
            {
                self.upstreams.remove(key);
                continue;
            }
            upstream.session = session;
            upstream.served = upstream.served.saturating_add(1);
            return Some(key);
        }
    }

    /// The exchange over it is over; `stays` = it can serve another, of which `most` wait for long.
    pub(crate) fn release(&mut self, key: Key, stays: bool, most: usize, idle_ms: u64) {
        let Some(upstream) = self.upstreams.get_mut(key) else {
            return;
        };
        let target = Arc::clone(&upstream.target);
        upstream.session = Key::NONE;
        let id = upstream.target.id as usize;
        let waits = stays
            && !upstream.transport.is_strand()
            && !self.draining
            && !upstream.ready.ended
            && !upstream.ready.readable;
        match self.idle.get_mut(id).filter(|_| waits && most > 0) {
            Some(waiting) => {
                let ms = if waiting.len() < most {
                    idle_ms
                } else {
                    idle_ms.min(SURPLUS_MS)
                };
                waiting.push(key);
                upstream.target.counters.of(self.worker).present.add(1);
                self.idle_wheel
                    .set(&mut upstream.deadline, key, self.now + ms);
            }
            None => drop(self.upstreams.remove(key)),
        }
        target.give_back();
    }

    /// Ends a connection that nobody uses.
    pub(crate) fn end_idle(&mut self, key: Key) {
        let Some(upstream) = self.upstreams.get(key) else {
            return;
        };
        if upstream.session.is_none() {
            let target = Arc::clone(&upstream.target);
            if let Some(waiting) = self.idle.get_mut(target.id as usize) {
                let before = waiting.len();
                waiting.retain(|other| *other != key);
                target
                    .counters
                    .of(self.worker)
                    .present
                    .sub((before - waiting.len()) as u64);
            }
            self.upstreams.remove(key);
        }
    }

    /// Ends every connection that waits for a target that `stays` does not name.
    pub(crate) fn end_idle_of(&mut self, stays: impl Fn(&Target) -> bool) {
        let ends = |key: &Key| {
            let upstream = self.upstreams.get(*key);
            upstream.is_some_and(|upstream| upstream.session.is_none() && !stays(&upstream.target))
        };
        let keys: Vec<Key> = self.upstreams.keys().into_iter().filter(ends).collect();
        for key in keys {
            self.end_idle(key);
        }
    }
}

/// Begins to connect.
fn reach(target: &Target, port: u16, tls: Option<&tls::Back>) -> rustix::io::Result<Transport> {
    let socket = socket::connect((target.address, port).into())?;
    let Some(back) = tls else {
        return Ok(Transport::plain(socket));
    };
    let channel = Channel::connect(&back.config, back.name(target.address));
    Ok(Transport::secure(
        socket,
        channel.map_err(|_| Errno::INVAL)?,
    ))
}

/// A service as a worker begins to have it.
pub(crate) fn local(service: Arc<Service>, mut balances: Vec<Balance>) -> Rc<Local> {
    balances.resize_with(service.pools.len(), Balance::default);
    Rc::new(Local {
        service,
        balances: RefCell::new(balances),
        budget: Budget::default(),
        gone: false,
    })
}
