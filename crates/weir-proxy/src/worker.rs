//! One thread: its listeners, its clients, its connections to servers, one epoll set. Nothing is shared with other workers
//! but the plan and the servers' loads.

mod fronts;
mod handover;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed};
use std::sync::mpsc::Sender;

use rustix::buffer::spare_capacity;
use rustix::event::Timespec;
use rustix::event::epoll::{self, Event, EventFlags};
use rustix::io::Errno;
use weir_sys::{Clock, now_ns};

use crate::balance::Balance;
use crate::budget::Budget;
use crate::context::{Context, Local, Ready, local, token};
use crate::h2::{Back, Errands, Front};
use crate::handover::Handed;
use crate::plan::{Listeners, Service, Shared};
use crate::queue::Inbox;
use crate::session::{Fate, Session};
use crate::slab::{Key, Slab};
use crate::socket;
use crate::tls::Channel;
use crate::transport::Transport;

/// Events taken in one call, and clients accepted in one turn.
const EVENTS: usize = 256;
const ACCEPTS: usize = 64;
/// How long a paused listener waits before it is asked again.
const PAUSE_MS: u64 = 100;

/// A listener that this worker accepts from.
#[derive(Debug)]
struct Listening {
    from: Arc<Listeners>,
    number: usize,
    local: Rc<Local>,
    /// Not watched: the service has as many clients as it may, or the process as many descriptors.
    paused: bool,
}

impl AsFd for Listening {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.from.sockets[self.number].as_fd()
    }
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Worker {
    shared: Arc<Shared>,
    wake: Arc<OwnedFd>,
    generation: u64,
    listening: Slab<Listening>,
    sessions: Slab<Session>,
    /// Clients' HTTP/2 connections, and what they want done.
    fronts: Slab<Front>,
    errands: Errands,
    /// Sessions that could go on.
    again: Vec<Key>,
    /// A listener is paused.
    any_paused: bool,
    /// Where another process gets the clients.
    outlet: Option<Sender<Handed>>,
    /// How often connections of another process came, as far as was looked.
    arrivals: u64,
    cx: Context,
}

fn now_ms() -> u64 {
    now_ns(Clock::MonotonicCoarse) / 1_000_000
}

/// A worker before it has its thread; what it holds later never leaves that.
#[derive(Debug)]
pub(crate) struct Seed {
    number: usize,
    shared: Arc<Shared>,
    wake: Arc<OwnedFd>,
    epoll: OwnedFd,
    inbox: Arc<Inbox>,
}

impl Seed {
    /// Worker number `number`, woken by writing to `wake`.
    ///
    /// # Errors
    /// The kernel has no epoll set for it.
    pub(crate) fn new(
        number: usize,
        shared: Arc<Shared>,
        wake: Arc<OwnedFd>,
    ) -> rustix::io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        socket::watch_level(&epoll, &*wake, token::of(token::WAKE, Key::NONE))?;
        Ok(Self {
            number,
            shared,
            inbox: Arc::new(Inbox::new(Arc::clone(&wake))),
            wake,
            epoll,
        })
    }

    /// On its thread.
    pub(crate) fn grow(self) -> Worker {
        let seed =
            now_ns(Clock::Monotonic).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ self.number as u64;
        Worker {
            shared: self.shared,
            wake: self.wake,
            generation: 0,
            listening: Slab::new(),
            sessions: Slab::new(),
            fronts: Slab::new(),
            errands: Errands::new(),
            again: Vec::new(),
            any_paused: false,
            outlet: None,
            arrivals: 0,
            cx: Context::new(self.number, self.epoll, now_ms(), seed, self.inbox),
        }
    }
}

impl Worker {
    /// Runs until it is told to stop, or has drained.
    pub(crate) fn run(mut self) {
        let mut events: Vec<Event> = Vec::with_capacity(EVENTS);
        loop {
            self.sleep(&mut events);
            self.cx.now = now_ms();
            self.look_up();
            if self.shared.stop.load(Acquire) || (self.cx.draining && self.is_empty()) {
                return;
            }
            for event in events.drain(..) {
                self.dispatch(event);
            }
            for (key, line) in self.cx.inbox.take() {
                match self.sessions.get(key) {
                    Some(session) if session.is_queued() => self.turn(key, Session::called),
                    // It has left: the next one's turn.
                    _ => line.call(1),
                }
            }
            for key in std::mem::take(&mut self.again) {
                self.turn(key, Session::drive);
            }
            self.answer_bells();
            self.expire();
        }
    }

    fn is_empty(&self) -> bool {
        self.sessions.len() == 0 && self.fronts.len() == 0
    }

    fn sleep(&self, events: &mut Vec<Event>) {
        let ms = if self.again.is_empty() && self.cx.bell.borrow().is_empty() {
            let cx = &self.cx;
            let wheels = [&cx.wheel, &cx.idle_wheel, &cx.front_wheel, &cx.back_wheel];
            let paused = self.any_paused.then_some(PAUSE_MS);
            wheels
                .iter()
                .filter_map(|wheel| wheel.sleep_ms())
                .min()
                .or(paused)
        } else {
            Some(0)
        };
        let timeout = ms.map(|ms| Timespec {
            tv_sec: 0,
            tv_nsec: i64::try_from(ms * 1_000_000).unwrap_or(0),
        });
        match epoll::wait(&self.cx.epoll, spare_capacity(events), timeout.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            // Nothing can be done but to try again; the descriptor is the thread's own.
            Err(error) => tracing::error!(%error, "epoll"),
        }
    }

    /// Once per wake-up: is there another plan, or an end?
    fn look_up(&mut self) {
        let generation = self.shared.generation.load(Acquire);
        if generation != self.generation {
            self.generation = generation;
            self.adopt();
        }
        self.look_for_handover();
        if self.shared.draining.load(Acquire) && !self.cx.draining {
            self.cx.draining = true;
            let all = self.listening.keys();
            all.into_iter().for_each(|key| self.stop_listening(key));
            self.ring_fronts();
            self.end_idle_sessions();
            self.cx.end_idle_of(|_| false);
        }
    }

    fn adopt(&mut self) {
        let plan = self.shared.plan();
        self.cx.targets(plan.targets);
        let mut former: HashMap<String, Rc<Local>> = HashMap::new();
        for key in self.sessions.keys() {
            if let Some(session) = self.sessions.get(key) {
                let local = &session.local;
                former
                    .entry(local.service.name.clone())
                    .or_insert_with(|| Rc::clone(local));
            }
        }
        for key in self.fronts.keys() {
            if let Some(front) = self.fronts.get(key) {
                let local = &front.local;
                former
                    .entry(local.service.name.clone())
                    .or_insert_with(|| Rc::clone(local));
            }
        }
        for key in self.listening.keys() {
            if let Some(listening) = self.listening.get(key) {
                let local = &listening.local;
                former.insert(local.service.name.clone(), Rc::clone(local));
            }
        }
        let locals: HashMap<String, Rc<Local>> = plan
            .services
            .iter()
            .map(|service| {
                let known = former.get(&service.name);
                let balances = known.map_or_else(Vec::new, |known| known.balances.take());
                let balances = balances.into_iter().map(Balance::renewed).collect();
                (service.name.clone(), local(Arc::clone(service), balances))
            })
            .collect();
        self.adopt_listeners(&locals);
        self.adopt_sessions(&former, &locals);
        let stays: std::collections::HashSet<u32> = plan
            .services
            .iter()
            .flat_map(|service| service.targets().map(|target| target.id))
            .collect();
        self.cx.end_idle_of(|target| stays.contains(&target.id));
    }

    fn adopt_listeners(&mut self, locals: &HashMap<String, Rc<Local>>) {
        let wanted = || {
            locals.values().flat_map(|local| {
                local
                    .service
                    .listen
                    .iter()
                    .map(move |listen| (listen, local))
            })
        };
        for key in self.listening.keys() {
            let Some(listening) = self.listening.get_mut(key) else {
                continue;
            };
            match wanted().find(|(listen, _)| Arc::ptr_eq(listen, &listening.from)) {
                Some((_, local)) => listening.local = Rc::clone(local),
                None => self.stop_listening(key),
            }
        }
        if self.cx.draining {
            return;
        }
        let present: Vec<Arc<Listeners>> = self
            .listening
            .keys()
            .into_iter()
            .filter_map(|key| {
                self.listening
                    .get(key)
                    .map(|listening| Arc::clone(&listening.from))
            })
            .collect();
        for (listen, local) in wanted() {
            if present.iter().any(|known| Arc::ptr_eq(known, listen)) {
                continue;
            }
            let own = (self.cx.worker..listen.sockets.len()).step_by(listen.workers);
            for number in own {
                let key = self.listening.insert(Listening {
                    from: Arc::clone(listen),
                    number,
                    local: Rc::clone(local),
                    paused: true,
                });
                self.resume(key);
            }
        }
    }

    fn adopt_sessions(
        &mut self,
        former: &HashMap<String, Rc<Local>>,
        locals: &HashMap<String, Rc<Local>>,
    ) {
        // A service that is gone: one mark for all of its clients.
        let gone: HashMap<&String, Rc<Local>> = former
            .iter()
            .filter(|(name, _)| !locals.contains_key(*name))
            .map(|(name, known)| {
                let ending = Local {
                    budget: Budget::default(),
                    service: Arc::clone(&known.service),
                    balances: known.balances.take().into(),
                    gone: true,
                };
                (name, Rc::new(ending))
            })
            .collect();
        for key in self.sessions.keys() {
            let Some(session) = self.sessions.get_mut(key) else {
                continue;
            };
            let name = &session.local.service.name;
            if let Some(local) = locals.get(name).or_else(|| gone.get(name)) {
                session.adopt(local);
            }
        }
        for key in self.fronts.keys() {
            let Some(front) = self.fronts.get_mut(key) else {
                continue;
            };
            let name = &front.local.service.name;
            if let Some(local) = locals.get(name).or_else(|| gone.get(name)) {
                front.local = Rc::clone(local);
            }
        }
        self.ring_fronts();
        self.end_idle_sessions();
    }

    /// Ends the sessions that wait for a request which will not be served.
    fn end_idle_sessions(&mut self) {
        for key in self.sessions.keys() {
            let ends =
                |session: &Session| session.is_idle() && (session.local.gone || self.cx.draining);
            if self.sessions.get(key).is_some_and(ends) {
                self.close(key);
            }
        }
    }

    fn resume(&mut self, key: Key) {
        let Some(listening) = self.listening.get_mut(key) else {
            return;
        };
        let watched =
            socket::watch_level(&self.cx.epoll, &*listening, token::of(token::LISTENER, key));
        listening.paused = watched.is_err();
    }

    fn pause(&mut self, key: Key) {
        if let Some(listening) = self.listening.get_mut(key) {
            listening.paused = true;
            self.any_paused = true;
            socket::unwatch(&self.cx.epoll, &*listening);
        }
    }

    /// Takes in who is there already: closing would reset them.
    fn stop_listening(&mut self, key: Key) {
        self.accept(key);
        self.pause(key);
        self.listening.remove(key);
    }

    fn dispatch(&mut self, event: Event) {
        let token = event.data.u64();
        let key = token::key(token);
        let flags = event.flags;
        match token::kind(token) {
            token::LISTENER => self.accept(key),
            token::CLIENT => {
                if let Some(session) = self.sessions.get_mut(key) {
                    note(&mut session.ready, flags);
                    self.turn(key, Session::drive);
                }
            }
            token::FRONT => {
                if let Some(front) = self.fronts.get_mut(key) {
                    note(front.ready(), flags);
                    self.drive_front(key, Front::drive);
                }
            }
            token::BACK => {
                if let Some(Some(back)) = self.cx.backs.get_mut(key) {
                    note(back.ready(), flags);
                    self.drive_back(key, Back::drive);
                }
            }
            token::SERVER => {
                let Some(upstream) = self.cx.upstreams.get_mut(key) else {
                    return;
                };
                note(&mut upstream.ready, flags);
                let session = upstream.session;
                if !session.is_none() {
                    self.turn(session, Session::drive);
                } else if upstream.ready.readable {
                    // It ended, or speaks unasked.
                    self.cx.end_idle(key);
                }
            }
            _ => {
                let mut count = [0u8; 8];
                // Whatever it counts: the plan is looked up at every wake-up.
                let _ = rustix::io::read(&*self.wake, &mut count);
            }
        }
    }

    fn accept(&mut self, key: Key) {
        for _ in 0..ACCEPTS {
            let Some(listening) = self.listening.get(key) else {
                return;
            };
            let local = Rc::clone(&listening.local);
            let service = &local.service;
            if service.clients.load(Relaxed) >= service.connections {
                self.pause(key);
                return;
            }
            let port = listening.from.address.port();
            match socket::accept(listening.as_fd()) {
                Ok((client, peer)) => {
                    let Some(transport) = transport(client, service) else {
                        continue;
                    };
                    service.clients.fetch_add(1, Relaxed);
                    let counters = service.counters.of(self.cx.worker);
                    counters.connections.add(1);
                    counters.present.add(1);
                    let session = self
                        .sessions
                        .insert(Session::new(transport, peer, port, local));
                    self.turn(session, Session::begin);
                }
                Err(Errno::AGAIN) => return,
                Err(error) => {
                    tracing::warn!(%error, service = service.name, "accepting failed; trying again soon");
                    self.pause(key);
                    return;
                }
            }
        }
    }

    fn turn(&mut self, key: Key, work: impl FnOnce(&mut Session, Key, &mut Context) -> Fate) {
        let Some(session) = self.sessions.get_mut(key) else {
            return;
        };
        // A defect costs the connection that met it, and no other.
        let cx = &mut self.cx;
        let fate = catch_unwind(AssertUnwindSafe(|| work(session, key, cx)));
        match fate {
            Ok(Fate::Stays) => {
                if self.cx.handing {
                    self.hand(key);
                }
            }
            Ok(Fate::Again) => self.again.push(key),
            Ok(Fate::Ends) => self.close(key),
            Ok(Fate::Http2) => self.promote(key),
            Err(_) => {
                tracing::error!(
                    service = session.local.service.name,
                    "a connection's handling failed"
                );
                self.cx.mend();
                self.close(key);
            }
        }
    }

    fn close(&mut self, key: Key) {
        if let Some(mut session) = self.sessions.remove(key) {
            let cx = &mut self.cx;
            if catch_unwind(AssertUnwindSafe(|| session.end(cx))).is_err() {
                tracing::error!("a connection's end failed");
            }
            if session.is_stream() {
                return;
            }
            let service = &session.local.service;
            service.clients.fetch_sub(1, Relaxed);
            service.counters.of(self.cx.worker).present.sub(1);
        }
    }

    fn expire(&mut self) {
        let now = self.cx.now;
        let mut over = Vec::new();
        let sessions = &mut self.sessions;
        self.cx.wheel.advance(now, |wheel, key, slot| {
            if let Some(session) = sessions.get_mut(key)
                && wheel.is_over(&mut session.deadline, key, slot, now)
            {
                over.push(key);
            }
        });
        for key in over.drain(..) {
            self.turn(key, Session::expire);
        }
        let fronts = &mut self.fronts;
        self.cx.front_wheel.advance(now, |wheel, key, slot| {
            if let Some(front) = fronts.get_mut(key)
                && wheel.is_over(&mut front.deadline, key, slot, now)
            {
                over.push(key);
            }
        });
        for key in over.drain(..) {
            self.drive_front(key, Front::expire);
        }
        let backs = &mut self.cx.backs;
        self.cx.back_wheel.advance(now, |wheel, key, slot| {
            if let Some(Some(back)) = backs.get_mut(key)
                && wheel.is_over(&mut back.deadline, key, slot, now)
            {
                over.push(key);
            }
        });
        for key in over.drain(..) {
            self.drive_back(key, Back::expire);
        }
        let upstreams = &mut self.cx.upstreams;
        self.cx.idle_wheel.advance(now, |wheel, key, slot| {
            if let Some(upstream) = upstreams.get_mut(key)
                && wheel.is_over(&mut upstream.deadline, key, slot, now)
            {
                over.push(key);
            }
        });
        over.into_iter().for_each(|key| self.cx.end_idle(key));
        if self.any_paused {
            self.resume_paused();
        }
    }

    fn resume_paused(&mut self) {
        self.any_paused = false;
        for key in self.listening.keys() {
            let room = |listening: &Listening| {
                let service = &listening.local.service;
                listening.paused && service.clients.load(Relaxed) < service.connections
            };
            if self.listening.get(key).is_some_and(room) {
                self.resume(key);
            }
            self.any_paused |= self
                .listening
                .get(key)
                .is_some_and(|listening| listening.paused);
        }
    }
}

/// What a client is spoken to over.
fn transport(client: OwnedFd, service: &Service) -> Option<Transport> {
    let Some(tls) = &service.tls else {
        return Some(Transport::plain(client));
    };
    match Channel::accept(tls) {
        Ok(channel) => Some(Transport::secure(client, channel)),
        Err(error) => {
            tracing::error!(%error, service = service.name, "no TLS");
            None
        }
    }
}

fn note(ready: &mut Ready, flags: EventFlags) {
    let over = flags.intersects(EventFlags::HUP | EventFlags::ERR);
    ready.broken |= over;
    ready.ended |= over || flags.contains(EventFlags::RDHUP);
    ready.readable |= ready.ended || flags.contains(EventFlags::IN);
    ready.writable |= over || flags.contains(EventFlags::OUT);
}
