//! Accepts clients, and pauses listeners while limits are reached.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use rustix::io::Errno;

use super::{PAUSE_MS, Worker};
use crate::context::{LocalService, token};
use crate::descriptor::{DescriptorUse, TABLE};
use crate::plan::{Listeners, Service};
use crate::session::Session;
use crate::slab::Key;
use crate::socket;
use crate::tls::Channel;
use crate::transport::Transport;

/// Maximum number of clients accepted per event.
const MAX_ACCEPTS: usize = 64;

/// A listening socket that this worker accepts from.
#[derive(Debug)]
pub(super) struct Listener {
    pub(super) listeners: Arc<Listeners>,
    /// Index of the socket in `listeners`.
    pub(super) socket_index: usize,
    pub(super) local: Rc<LocalService>,
    /// Whether the socket is not registered with epoll, because the service's client limit or the descriptor limit is
    /// reached, or because accepting failed.
    pub(super) paused: bool,
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.listeners.sockets[self.socket_index].as_fd()
    }
}

impl Worker {
    /// Registers a listener with epoll.
    pub(super) fn resume(&mut self, key: Key) {
        let Some(listener) = self.listening.get_mut(key) else {
            return;
        };
        let registered = socket::watch_level(
            &self.cx.epoll,
            &*listener,
            token::pack(token::LISTENER, key),
        );
        listener.paused = registered.is_err();
    }

    /// Unregisters a listener from epoll until more clients may be accepted.
    pub(super) fn pause(&mut self, key: Key) {
        if let Some(listener) = self.listening.get_mut(key) {
            listener.paused = true;
            self.has_paused_listener = true;
            socket::unwatch(&self.cx.epoll, &*listener);
        }
    }

    /// Removes a listener. First accepts the clients in its backlog, because closing the socket would reset them.
    pub(super) fn stop_listening(&mut self, key: Key) {
        self.accept(key);
        self.pause(key);
        self.listening.remove(key);
    }

    /// Accepts clients, up to the limits.
    pub(super) fn accept(&mut self, key: Key) {
        for _ in 0..MAX_ACCEPTS {
            let Some(local) = self
                .listening
                .get(key)
                .map(|listener| Rc::clone(&listener.local))
            else {
                return;
            };
            let service = &local.service;
            if service.clients.load(Relaxed) >= service.connections {
                self.pause(key);
                return;
            }
            if !TABLE.has_room_for_client() && !self.make_room() {
                service.counters.of(self.cx.worker).pauses.add(1);
                self.warn_about_descriptors(&service.name);
                self.pause(key);
                return;
            }
            let Some(listener) = self.listening.get(key) else {
                return;
            };
            let port = listener.listeners.address.port();
            match socket::accept(listener.as_fd()) {
                Ok((client, peer)) => {
                    let Some(transport) = transport(client, service) else {
                        continue;
                    };
                    let clients = service.clients.fetch_add(1, Relaxed) + 1;
                    if clients > service.exchanges.peak.load(Relaxed) {
                        service.exchanges.peak.fetch_max(clients, Relaxed);
                    }
                    let counters = service.counters.of(self.cx.worker);
                    counters.connections.add(1);
                    counters.current.add(1);
                    let session = self
                        .sessions
                        .insert(Session::new(transport, peer, port, local));
                    self.run_session(session, Session::begin);
                }
                Err(Errno::AGAIN) => return,
                Err(error) => {
                    if self.cx.may_warn() {
                        tracing::warn!(%error, service = service.name, "failed to accept a client; retrying");
                    }
                    TABLE.update_limit();
                    self.resume_accept_at = self.cx.now + PAUSE_MS;
                    self.pause(key);
                    return;
                }
            }
        }
    }

    /// Resumes the listeners of services that are below their client limit. Does nothing for a while after a failure to
    /// accept a client.
    pub(super) fn resume_paused(&mut self) {
        if self.cx.now < self.resume_accept_at {
            return;
        }
        TABLE.update_limit();
        self.has_paused_listener = false;
        for key in self.listening.keys() {
            let has_room = |listener: &Listener| {
                let service = &listener.local.service;
                listener.paused && service.clients.load(Relaxed) < service.connections
            };
            if self.listening.get(key).is_some_and(has_room) {
                self.resume(key);
            }
            self.has_paused_listener |= self
                .listening
                .get(key)
                .is_some_and(|listener| listener.paused);
        }
    }
}

/// Creates the transport of a new client; `None` = TLS failed.
fn transport(client: OwnedFd, service: &Service) -> Option<Transport> {
    let Some(tls) = &service.tls else {
        return Some(Transport::plain(client).with_descriptor_count(DescriptorUse::Client));
    };
    match Channel::accept(tls) {
        Ok(channel) => {
            Some(Transport::secure(client, channel).with_descriptor_count(DescriptorUse::Client))
        }
        Err(error) => {
            tracing::error!(%error, service = service.name, "failed to create a TLS connection");
            None
        }
    }
}
