//! Drives HTTP/2 connections, and starts, resumes and ends the sessions that serve their streams.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::atomic::Ordering::Relaxed;

use super::Worker;
use crate::context::{Context, Readiness, token};
use crate::h2::{Action, Actions, H2ClientConn, H2ServerConn, Owner, PipeState, StreamPipeEnd};
use crate::plan::Detail;
use crate::session::Session;
use crate::slab::Key;
use crate::transport::Transport;

/// Maximum number of rounds between connections and sessions before epoll is polled again.
const MAX_ROUNDS: usize = 8;

impl Worker {
    /// Replaces a session with an HTTP/2 connection.
    pub(super) fn upgrade_to_h2(&mut self, key: Key) {
        let Some(session) = self.sessions.remove(key) else {
            return;
        };
        let details = session.local.service.details.of(self.cx.worker);
        details.of(Detail::H2Clients).add(1);
        details.of(Detail::H2Connections).add(1);
        let server_conn = self
            .h2_servers
            .insert(H2ServerConn::new(session.into_upgrade()));
        self.drive_h2_server(server_conn, H2ServerConn::begin);
    }

    /// Drives the connections whose streams made progress. Works in rounds, so the responses of one round are sent
    /// together.
    pub(super) fn run_wakeups(&mut self) {
        for _ in 0..MAX_ROUNDS {
            let mut tokens = std::mem::take(&mut *self.cx.wakeups.borrow_mut());
            if tokens.is_empty() {
                return;
            }
            tokens.sort_unstable();
            tokens.dedup();
            for token in tokens {
                match token::kind(token) {
                    token::H2_CLIENT => {
                        self.drive_h2_client(token::key(token), H2ClientConn::drive)
                    }
                    _ => self.drive_h2_server(token::key(token), H2ServerConn::drive),
                }
            }
        }
    }

    /// Schedules all HTTP/2 connections from clients, for example to send GOAWAY.
    pub(super) fn wake_h2_servers(&self) {
        let keys = self.h2_servers.keys().into_iter();
        let tokens = keys.map(|key| token::pack(token::H2_SERVER, key));
        self.cx.wakeups.borrow_mut().extend(tokens);
    }

    /// Resumes reading from at most `limit` clients whose pause is over.
    pub(super) fn resume_h2_servers(&mut self, limit: usize) {
        let servers = &mut self.h2_servers;
        let wheel = &mut self.cx.resume_wheel;
        let now = self.cx.now;
        for key in wheel.take_expired(now, limit, servers, |conn| Some(&mut conn.resume_deadline)) {
            self.drive_h2_server(key, H2ServerConn::drive);
        }
    }

    /// Closes lingering HTTP/2 connections if their clients have closed them.
    pub(super) fn check_lingering(&mut self) {
        for (key, until) in std::mem::take(&mut self.cx.lingering) {
            self.drive_h2_server(key, |server_conn, key, cx, _| {
                server_conn.continue_linger(key, until, cx)
            });
        }
    }

    pub(super) fn drive_h2_server(
        &mut self,
        key: Key,
        handle: impl FnOnce(&mut H2ServerConn, Key, &mut Context, &mut Actions) -> bool,
    ) {
        let Some(server_conn) = self.h2_servers.get_mut(key) else {
            return;
        };
        let mut actions = std::mem::take(&mut self.actions);
        let cx = &mut self.cx;
        // As with sessions, a panic closes only the connection that caused it.
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            handle(server_conn, key, cx, &mut actions)
        }));
        let has_panicked = outcome.is_err();
        if !self.unwrap_or_log_panic(outcome)
            && let Some(mut server_conn) = self.h2_servers.remove(key)
        {
            // After a panic, some streams may still have sessions.
            let close = || server_conn.close(&mut actions);
            if has_panicked && catch_unwind(AssertUnwindSafe(close)).is_err() {
                tracing::error!("panic while closing an HTTP/2 connection");
            }
            let service = &server_conn.local.service;
            service.clients.fetch_sub(1, Relaxed);
            service.counters.of(self.cx.worker).current.sub(1);
            service.detail(self.cx.worker, Detail::H2Clients).sub(1);
            if has_panicked {
                let panics = service.detail(self.cx.worker, Detail::InternalErrors);
                panics.add(1);
            }
        }
        for action in actions.drain(..) {
            self.perform(action);
        }
        self.actions = actions;
    }

    fn unwrap_or_log_panic(&mut self, outcome: std::thread::Result<bool>) -> bool {
        outcome.unwrap_or_else(|_| {
            tracing::error!("panic while handling an HTTP/2 connection");
            self.cx.restore_buffers();
            false
        })
    }

    pub(super) fn drive_h2_client(
        &mut self,
        key: Key,
        handle: impl FnOnce(&mut H2ClientConn, Key, &mut Context, &mut Actions) -> bool,
    ) {
        // The connection is removed from the slab while it is driven, because driving it borrows the context, which
        // contains the slab.
        let Some(mut client_conn) = self.cx.h2_clients.get_mut(key).and_then(Option::take) else {
            return;
        };
        let mut actions = std::mem::take(&mut self.actions);
        let cx = &mut self.cx;
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            handle(&mut client_conn, key, cx, &mut actions)
        }));
        let has_panicked = outcome.is_err();
        let is_open = self.unwrap_or_log_panic(outcome);
        let close = || client_conn.close(&mut actions);
        if has_panicked && catch_unwind(AssertUnwindSafe(close)).is_err() {
            tracing::error!("panic while closing an HTTP/2 connection to a server");
        }
        match self.cx.h2_clients.get_mut(key) {
            Some(slot) if is_open => *slot = Some(client_conn),
            _ => drop(self.cx.h2_clients.remove(key)),
        }
        for action in actions.drain(..) {
            self.perform(action);
        }
        self.actions = actions;
    }

    /// Drives all HTTP/2 connections to servers. Connections that are no longer needed close themselves.
    pub(super) fn drive_h2_clients(&mut self) {
        for key in self.cx.h2_clients.keys() {
            self.drive_h2_client(key, H2ClientConn::drive);
        }
    }

    fn perform(&mut self, action: Action) {
        let (owner, is_closed) = match action {
            Action::Serve(stream) if stream.pipe.borrow().state == PipeState::Closed => return,
            Action::Serve(stream) => {
                let transport = Transport::stream(StreamPipeEnd(Rc::clone(&stream.pipe)));
                let mut session = Session::new(transport, stream.peer, stream.port, stream.local);
                session.destination = stream.destination;
                session.stream_tls = stream.tls;
                let key = self.sessions.insert(session);
                stream.pipe.borrow_mut().owner = Owner::Session(key);
                return self.run_session(key, Session::begin);
            }
            Action::Resume(owner) => (owner, false),
            Action::Close(owner) => (owner, true),
        };
        let mark_ready = |ready: &mut Readiness| {
            ready.readable = true;
            ready.writable = true;
            ready.read_closed |= is_closed;
            ready.broken |= is_closed;
        };
        let key = match owner {
            // If the stream is still open, another action of the same round starts the session, which then reads the
            // stream's state.
            Owner::Pending => return,
            Owner::Session(key) => {
                let Some(session) = self.sessions.get_mut(key) else {
                    return;
                };
                mark_ready(&mut session.ready);
                key
            }
            Owner::Server(key) => {
                let Some(upstream) = self.cx.upstreams.get_mut(key) else {
                    return;
                };
                mark_ready(&mut upstream.ready);
                upstream.session
            }
        };
        self.run_session(key, Session::drive);
    }
}
