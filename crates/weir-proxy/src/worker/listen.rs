//! Who comes: listeners, and when they are not looked at.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use rustix::io::Errno;

use super::{PAUSE_MS, Worker};
use crate::context::{Local, token};
use crate::descriptor::{TABLE, Use};
use crate::plan::{Listeners, Service};
use crate::session::Session;
use crate::slab::Key;
use crate::socket;
use crate::tls::Channel;
use crate::transport::Transport;

/// Clients accepted in one turn.
const ACCEPTS: usize = 64;

/// A listener that this worker accepts from.
#[derive(Debug)]
pub(super) struct Listening {
    pub(super) from: Arc<Listeners>,
    pub(super) number: usize,
    pub(super) local: Rc<Local>,
    /// Not watched: the service has as many clients as it may, or the process as many descriptors.
    pub(super) paused: bool,
}

impl AsFd for Listening {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.from.sockets[self.number].as_fd()
    }
}

impl Worker {
    /// Watches it, where that may be.
    pub(super) fn resume(&mut self, key: Key) {
        let Some(listening) = self.listening.get_mut(key) else {
            return;
        };
        let watched =
            socket::watch_level(&self.cx.epoll, &*listening, token::of(token::LISTENER, key));
        listening.paused = watched.is_err();
    }

    /// Watches it no more, until there is room.
    pub(super) fn pause(&mut self, key: Key) {
        if let Some(listening) = self.listening.get_mut(key) {
            listening.paused = true;
            self.any_paused = true;
            socket::unwatch(&self.cx.epoll, &*listening);
        }
    }

    /// Takes in who is there already: closing would reset them.
    pub(super) fn stop_listening(&mut self, key: Key) {
        self.accept(key);
        self.pause(key);
        self.listening.remove(key);
    }

    /// Takes in who has come, as long as there is room.
    pub(super) fn accept(&mut self, key: Key) {
        for _ in 0..ACCEPTS {
            let Some(local) = self.listening.get(key).map(|it| Rc::clone(&it.local)) else {
                return;
            };
            let service = &local.service;
            if service.clients.load(Relaxed) >= service.connections {
                self.pause(key);
                return;
            }
            if !TABLE.admits() && !self.make_room() {
                service.counters.of(self.cx.worker).pauses.add(1);
                self.warn_about_descriptors(&service.name);
                self.pause(key);
                return;
            }
            let Some(listening) = self.listening.get(key) else {
                return;
            };
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
                    if self.cx.complains() {
                        tracing::warn!(%error, service = service.name, "accepting failed; trying again soon");
                    }
                    TABLE.refit();
                    self.accepts_from = self.cx.now + PAUSE_MS;
                    self.pause(key);
                    return;
                }
            }
        }
    }

    /// Watches those again whose services have room.
    pub(super) fn resume_paused(&mut self) {
        if self.cx.now < self.accepts_from {
            return;
        }
        TABLE.refit();
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
        return Some(Transport::plain(client).counted(Use::Client));
    };
    match Channel::accept(tls) {
        Ok(channel) => Some(Transport::secure(client, channel).counted(Use::Client)),
        Err(error) => {
            tracing::error!(%error, service = service.name, "no TLS");
            None
        }
    }
}
