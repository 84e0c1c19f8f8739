//! Runs a worker thread with its own listeners, clients, server connections and epoll set.
//!
//! Workers share little: mainly the plan, the services' limits, the servers' loads, and idle server connections.

mod apply_plan;
mod h2;
mod handover;
mod listen;
mod shed;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed};
use std::sync::mpsc::Sender;

use rustix::buffer::spare_capacity;
use rustix::event::Timespec;
use rustix::event::epoll::{self, Event, EventFlags};
use rustix::io::Errno;
use weir_model::GOLDEN_64;
use weir_sys::{Clock, now_ns};

use self::listen::Listener;
use self::shed::IdleClients;
use crate::context::{Context, LINGER_BATCH_MS, Readiness, token};
use crate::h2::{Actions, H2ClientConn, H2ServerConn};
use crate::handover::HandedOverConnection;
use crate::idle_pool::SWEEP_MS;
use crate::plan::Detail;
use crate::plan::SharedState;
use crate::queue::{Inbox, Notification};
use crate::session::{Outcome, Session};
use crate::slab::{Key, Slab};
use crate::socket;

/// Maximum number of events per call of epoll_wait(2).
const MAX_EVENTS: usize = 256;
/// Maximum number of events per wake-up that are handled for clients that have closed their connections.
const MAX_ENDED: usize = 32;
/// Number of expired deadlines of each kind that are handled per wake-up, in addition to one for each event. Closing a
/// TLS connection takes about 100 µs.
const MIN_EXPIRED: usize = 8;
/// Interval between attempts to resume a paused listener, in milliseconds.
const PAUSE_MS: u64 = 100;

/// A worker thread and its state.
#[derive(Debug)]
pub(crate) struct Worker {
    shared: Arc<SharedState>,
    wake: Arc<OwnedFd>,
    generation: u64,
    listening: Slab<Listener>,
    sessions: Slab<Session>,
    /// HTTP/2 connections from clients, and their pending actions.
    h2_servers: Slab<H2ServerConn>,
    actions: Actions,
    /// Sessions that can continue without an event.
    runnable: Vec<Key>,
    /// Events for clients that have closed their connections. If many do so at the same time, they must not delay the
    /// others.
    ended: VecDeque<(u64, EventFlags)>,
    /// Whether a listener is paused.
    has_paused_listener: bool,
    /// Listeners stay paused until this time, because descriptors were exhausted.
    resume_accept_at: u64,
    /// Idle clients that can be closed to make room for others.
    idle: IdleClients,
    /// When exhausted descriptors were last logged; 0 = never.
    warned_at: u64,
    /// The last seen value of [`SharedState::withdrawals`].
    withdrawals: u64,
    /// The channel to the process that takes over the clients.
    handover_sender: Option<Sender<HandedOverConnection>>,
    /// The last seen value of [`SharedState::arrivals`].
    arrivals: u64,
    cx: Context,
}

fn now_ms() -> u64 {
    now_ns(Clock::MonotonicCoarse) / 1_000_000
}

/// The parts of a worker that are created before its thread. Unlike the worker, this value can move to that thread.
#[derive(Debug)]
pub(crate) struct WorkerConfig {
    /// Index of the worker.
    number: usize,
    shared: Arc<SharedState>,
    wake: Arc<OwnedFd>,
    epoll: OwnedFd,
    inbox: Arc<Inbox>,
    /// Whether there are other workers.
    has_other_workers: bool,
}

impl WorkerConfig {
    /// Prepares worker `number`, which is woken by writing to `wake`.
    ///
    /// # Errors
    /// Fails if the epoll set cannot be created.
    pub(crate) fn new(
        number: usize,
        shared: Arc<SharedState>,
        wake: Arc<OwnedFd>,
        has_other_workers: bool,
    ) -> rustix::io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        socket::watch_level(&epoll, &*wake, token::pack(token::WAKE, Key::NONE))?;
        Ok(Self {
            number,
            shared,
            inbox: Arc::new(Inbox::new(Arc::clone(&wake))),
            wake,
            epoll,
            has_other_workers,
        })
    }

    /// Builds the worker. Must be called on its thread.
    pub(crate) fn build(self) -> Worker {
        let seed = now_ns(Clock::Monotonic).wrapping_mul(GOLDEN_64) ^ self.number as u64;
        let idle_pool = self
            .has_other_workers
            .then(|| Arc::clone(&self.shared.idle_pool));
        Worker {
            shared: self.shared,
            wake: self.wake,
            generation: 0,
            listening: Slab::new(),
            sessions: Slab::new(),
            h2_servers: Slab::new(),
            actions: Actions::new(),
            runnable: Vec::new(),
            ended: VecDeque::new(),
            has_paused_listener: false,
            resume_accept_at: 0,
            idle: IdleClients::default(),
            warned_at: 0,
            withdrawals: 0,
            handover_sender: None,
            arrivals: 0,
            cx: Context::new(
                self.number,
                self.epoll,
                now_ms(),
                seed,
                self.inbox,
                idle_pool,
            ),
        }
    }
}

impl Worker {
    /// Runs until the worker is stopped, or until it is draining and has no connections.
    pub(crate) fn run(mut self) {
        let mut events: Vec<Event> = Vec::with_capacity(MAX_EVENTS);
        loop {
            self.sleep(&mut events);
            self.cx.now = now_ms();
            self.cx.now_us = now_ns(Clock::Monotonic) / 1_000;
            self.poll_control();
            if self.shared.stop.load(Acquire) || (self.cx.draining && self.is_empty()) {
                return;
            }
            self.handle_wakeup(&mut events);
        }
    }

    /// Handles events, notifications from other threads, and expired deadlines.
    fn handle_wakeup(&mut self, events: &mut Vec<Event>) {
        self.check_lingering();
        let max_expired = MIN_EXPIRED + events.len();
        for event in events.drain(..) {
            let (token, flags) = (event.data.u64(), event.flags);
            if is_client_end(token, flags) {
                self.ended.push_back((token, flags));
            } else {
                self.dispatch(token, flags);
            }
        }
        for _ in 0..MAX_ENDED {
            let Some((token, flags)) = self.ended.pop_front() else {
                break;
            };
            self.dispatch(token, flags);
        }
        for (key, notification) in self.cx.inbox.take() {
            self.handle_notification(key, notification);
        }
        for key in std::mem::take(&mut self.runnable) {
            self.run_session(key, Session::drive);
        }
        self.run_wakeups();
        self.expire(max_expired);
        self.send_copies();
        while !self.cx.verdicts.is_empty() {
            self.deliver_verdicts();
            self.send_copies();
        }
    }

    /// Continues the sessions that wait for verdicts.
    fn deliver_verdicts(&mut self) {
        for (auth_request, verdict) in std::mem::take(&mut self.cx.verdicts) {
            self.run_session(auth_request.session, |session, key, cx| {
                session.handle_verdict(auth_request, verdict, key, cx)
            });
        }
    }

    /// Starts the sessions that send copies of requests, including authorization requests.
    fn send_copies(&mut self) {
        for copy in std::mem::take(&mut self.cx.copies) {
            let key = self.sessions.insert(Session::from_copy(copy));
            self.run_session(key, Session::begin_as_copy);
        }
    }

    fn handle_notification(&mut self, key: Key, notification: Notification) {
        match notification {
            Notification::Turn(queue) => match self.sessions.get(key) {
                Some(session) if session.is_queued() => {
                    self.run_session(key, Session::handle_queue_turn);
                }
                // The session has ended: wake the next one in the queue.
                _ => queue.wake(1),
            },
            Notification::Done(ticket, done) => {
                self.run_session(key, |session, key, cx| {
                    session.handle_job_result(ticket, done, key, cx)
                });
            }
        }
    }

    fn is_empty(&self) -> bool {
        self.sessions.len() == 0 && self.h2_servers.len() == 0
    }

    fn sleep(&self, events: &mut Vec<Event>) {
        let has_work = !self.runnable.is_empty() || !self.ended.is_empty();
        let ms = if !has_work && self.cx.wakeups.borrow().is_empty() {
            let cx = &self.cx;
            let wheels = [
                &cx.wheel,
                &cx.idle_wheel,
                &cx.h2_server_wheel,
                &cx.resume_wheel,
                &cx.h2_client_wheel,
            ];
            let pause = self.has_paused_listener.then_some(PAUSE_MS);
            let soonest = wheels.iter().filter_map(|wheel| wheel.sleep_ms()).min();
            let sweep = cx.has_parked().then_some(SWEEP_MS);
            let linger = (!cx.lingering.is_empty()).then_some(LINGER_BATCH_MS);
            [soonest.or(pause), sweep, linger]
                .into_iter()
                .flatten()
                .min()
        } else {
            Some(0)
        };
        let timeout = ms.map(|ms| Timespec {
            tv_sec: 0,
            tv_nsec: i64::try_from(ms * 1_000_000).unwrap_or(0),
        });
        match epoll::wait(&self.cx.epoll, spare_capacity(events), timeout.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            // Cannot happen with a valid descriptor. The loop tries again.
            Err(error) => tracing::error!(%error, "epoll_wait failed"),
        }
    }

    /// Applies a new plan, and starts draining or a handover. Called once per wake-up.
    fn poll_control(&mut self) {
        let generation = self.shared.generation.load(Acquire);
        if generation != self.generation {
            self.generation = generation;
            self.apply_plan();
        }
        let withdrawals = self.shared.withdrawals.load(Acquire);
        if withdrawals != self.withdrawals {
            self.withdrawals = withdrawals;
            self.cx
                .close_idle_unless(|target| !target.load.is_withdrawn());
            self.cx.close_removed_connections();
            self.drive_h2_clients();
        }
        self.poll_handover();
        if self.shared.draining.load(Acquire) && !self.cx.draining {
            self.cx.draining = true;
            let listeners = self.listening.keys();
            listeners
                .into_iter()
                .for_each(|key| self.stop_listening(key));
            self.wake_h2_servers();
            self.close_idle_sessions();
            self.cx.close_idle_unless(|_| false);
        }
    }

    fn dispatch(&mut self, token: u64, flags: EventFlags) {
        let key = token::key(token);
        match token::kind(token) {
            token::LISTENER => self.accept(key),
            token::CLIENT => {
                if let Some(session) = self.sessions.get_mut(key) {
                    update_ready(&mut session.ready, flags);
                    self.run_session(key, Session::drive);
                }
            }
            token::H2_SERVER => {
                if let Some(server_conn) = self.h2_servers.get_mut(key) {
                    update_ready(server_conn.ready(), flags);
                    if !server_conn.ignores_events(self.cx.now) {
                        self.drive_h2_server(key, H2ServerConn::drive);
                    }
                }
            }
            token::H2_CLIENT => {
                if let Some(Some(client_conn)) = self.cx.h2_clients.get_mut(key) {
                    update_ready(client_conn.ready(), flags);
                    self.drive_h2_client(key, H2ClientConn::drive);
                }
            }
            token::SERVER => {
                let Some(upstream) = self.cx.upstreams.get_mut(key) else {
                    return;
                };
                update_ready(&mut upstream.ready, flags);
                let session = upstream.session;
                if !session.is_none() {
                    self.run_session(session, Session::drive);
                } else if upstream.ready.readable {
                    // The server has closed the connection, or has sent data without a request.
                    self.cx.close_idle(key);
                }
            }
            _ => {
                let mut count = [0u8; 8];
                // The value is not used: control state is polled at every wake-up.
                let _ = rustix::io::read(&*self.wake, &mut count);
            }
        }
    }

    fn run_session(
        &mut self,
        key: Key,
        handle: impl FnOnce(&mut Session, Key, &mut Context) -> Outcome,
    ) {
        let Some(session) = self.sessions.get_mut(key) else {
            return;
        };
        // A panic closes only the connection that caused it.
        let cx = &mut self.cx;
        let outcome = catch_unwind(AssertUnwindSafe(|| handle(session, key, cx)));
        match outcome {
            Ok(Outcome::Wait) => {
                if self.cx.handing_over {
                    self.hand_over(key);
                }
            }
            Ok(Outcome::Yield) => self.runnable.push(key),
            Ok(Outcome::End) => self.close(key),
            Ok(Outcome::Http2) => self.upgrade_to_h2(key),
            Err(_) => {
                tracing::error!(
                    service = session.local.service.name,
                    "panic while handling a connection"
                );
                let service = &session.local.service;
                service
                    .detail(self.cx.worker, Detail::InternalErrors)
                    .add(1);
                self.cx.restore_buffers();
                self.close(key);
            }
        }
    }

    fn close(&mut self, key: Key) {
        if let Some(mut session) = self.sessions.remove(key) {
            let cx = &mut self.cx;
            if catch_unwind(AssertUnwindSafe(|| session.end(cx))).is_err() {
                tracing::error!("panic while closing a connection");
            }
            if session.is_stream() {
                return;
            }
            let service = &session.local.service;
            service.clients.fetch_sub(1, Relaxed);
            service.counters.of(self.cx.worker).current.sub(1);
        }
    }

    /// Handles expired deadlines, at most `limit` of each kind. The others are handled after the next events, so that
    /// many simultaneous deadlines do not delay other connections.
    fn expire(&mut self, limit: usize) {
        let now = self.cx.now;
        let sessions = &mut self.sessions;
        let wheel = &mut self.cx.wheel;
        for key in wheel.take_expired(now, limit, sessions, |it| Some(&mut it.deadline)) {
            self.run_session(key, Session::expire);
        }
        let servers = &mut self.h2_servers;
        let wheel = &mut self.cx.h2_server_wheel;
        for key in wheel.take_expired(now, limit, servers, |it| Some(&mut it.deadline)) {
            self.drive_h2_server(key, H2ServerConn::expire);
        }
        self.resume_h2_servers(limit);
        let clients = &mut self.cx.h2_clients;
        let wheel = &mut self.cx.h2_client_wheel;
        for key in wheel.take_expired(now, limit, clients, |it| Some(&mut it.as_mut()?.deadline)) {
            self.drive_h2_client(key, H2ClientConn::expire);
        }
        let upstreams = &mut self.cx.upstreams;
        let wheel = &mut self.cx.idle_wheel;
        for key in wheel.take_expired(now, limit, upstreams, |it| Some(&mut it.deadline)) {
            self.cx.park_or_close(key);
        }
        for key in self.cx.take_unwatched() {
            if let Some(session) = self.sessions.get_mut(key) {
                session.watch_now(key, &self.cx);
            }
        }
        self.cx.sweep();
        self.shed_for_others();
        if self.has_paused_listener {
            self.resume_paused();
        }
    }
}

/// Returns whether a client has closed its connection, or its sending direction.
fn is_client_end(token: u64, flags: EventFlags) -> bool {
    let ends = EventFlags::RDHUP | EventFlags::HUP | EventFlags::ERR;
    flags.intersects(ends) && matches!(token::kind(token), token::CLIENT | token::H2_SERVER)
}

fn update_ready(ready: &mut Readiness, flags: EventFlags) {
    let is_closed = flags.intersects(EventFlags::HUP | EventFlags::ERR);
    ready.broken |= is_closed;
    ready.read_closed |= is_closed || flags.contains(EventFlags::RDHUP);
    ready.readable |= ready.read_closed || flags.contains(EventFlags::IN);
    ready.writable |= is_closed || flags.contains(EventFlags::OUT);
}
