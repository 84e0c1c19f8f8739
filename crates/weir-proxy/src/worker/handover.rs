//! Hands a worker's clients over to another process, and takes over clients from one.

use std::net::{Ipv4Addr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed};

use rustix::net::getpeername;

use super::Worker;
use crate::context::{self, Local, Ready, Stay, Upstream, token};
use crate::descriptor::Use;
use crate::handover::{Handed, Tunnel};
use crate::plan::Target;
use crate::session::Session;
use crate::slab::Key;
use crate::transport::Transport;
use crate::wheel::Deadline;

impl Worker {
    /// Once per wake-up: starts a handover, and takes over connections that were received.
    pub(super) fn poll_handover(&mut self) {
        if self.shared.handing.load(Acquire) && !self.cx.handing {
            self.outlet = self.shared.outlet();
            self.cx.handing = true;
            self.cx.draining = true;
            // The other process accepts from the same sockets.
            for key in self.listening.keys() {
                self.pause(key);
                self.listening.remove(key);
            }
            self.cx.end_idle_of(|_| false);
            // HTTP/2 connections stay here and get GOAWAY.
            self.wake_h2_servers();
            for key in self.sessions.keys() {
                self.hand_over(key);
            }
        }
        let arrivals = self.shared.arrivals.load(Acquire);
        if arrivals != self.arrivals {
            self.arrivals = arrivals;
            for handed in self.shared.inbox.take(self.cx.worker) {
                match &self.outlet {
                    // Received just before the next handover started.
                    Some(outlet) => drop(outlet.send(handed)),
                    None => self.take_over(handed),
                }
            }
        }
    }

    /// Hands a session over if possible.
    pub(super) fn hand_over(&mut self, key: Key) {
        let Some(outlet) = &self.outlet else { return };
        // The other process has only the active configuration. Sessions of an older one finish here.
        let plan = self.shared.plan();
        let can = |session: &Session| {
            session.can_be_handed(&self.cx) && session.is_in(&plan.services, &self.cx)
        };
        if !self.sessions.get(key).is_some_and(can) {
            return;
        }
        let Some(session) = self.sessions.remove(key) else {
            return;
        };
        let service = Arc::clone(&session.local.service);
        service.clients.fetch_sub(1, Relaxed);
        service.counters.of(self.cx.worker).present.sub(1);
        if let Some(handed) = session.hand(&mut self.cx) {
            // Fails if the other process has ended: the connection is closed.
            let _ = outlet.send(handed);
        }
    }

    fn take_over(&mut self, mut handed: Handed) {
        let Some(local) = self.local_of(&handed.service) else {
            tracing::warn!(
                service = handed.service,
                "dropped a connection that was handed over for an unknown service"
            );
            return;
        };
        let mut server = (Key::NONE, 0);
        if let Some(tunnel) = &mut handed.tunnel {
            match self.take_server(&local, tunnel) {
                Some(found) => server = found,
                None => {
                    tracing::warn!(
                        server = tunnel.name,
                        "dropped a tunnel whose server connection cannot be taken over"
                    );
                    return;
                }
            }
        }
        let service = &local.service;
        service.clients.fetch_add(1, Relaxed);
        service.counters.of(self.cx.worker).present.add(1);
        let session = Session::handed(handed, Rc::clone(&local), server.0, server.1);
        let key = self.sessions.insert(session);
        if let Some(upstream) = self.cx.upstreams.get_mut(server.0) {
            upstream.session = key;
        }
        self.turn(key, Session::resume);
    }

    /// An active service, or one that a reload has removed in the meantime.
    fn local_of(&self, name: &str) -> Option<Rc<Local>> {
        let locals = self.listening.keys().into_iter();
        let mut locals = locals.filter_map(|key| self.listening.get(key).map(|l| &l.local));
        if let Some(local) = locals.find(|local| local.service.name == name) {
            return Some(Rc::clone(local));
        }
        let plan = self.shared.plan();
        let service = plan.former.iter().find(|service| service.name == name)?;
        Some(context::removed(Arc::clone(service), Vec::new()))
    }

    /// Registers the tunnel's server connection and returns it with the number of its pool. A server that a reload has
    /// removed gets a separate target.
    fn take_server(&mut self, local: &Local, tunnel: &mut Tunnel) -> Option<(Key, usize)> {
        let pools = &local.service.pools;
        let pool = pools.iter().position(|pool| pool.pool == tunnel.pool);
        let pool = pool.unwrap_or(0);
        let mut list = pools.get(pool)?.list.iter();
        let target = list.find(|target| target.name == tunnel.name);
        let target = &target.map_or_else(|| Arc::new(self.unlisted_target(tunnel)), Arc::clone);
        let key = self.cx.upstreams.insert(Upstream {
            transport: Transport::plain(tunnel.server.try_clone().ok()?).counted(Use::Server),
            target: Arc::clone(target),
            port: tunnel.port,
            session: Key::NONE,
            ready: Ready {
                readable: true,
                writable: true,
                ..Ready::default()
            },
            input: Vec::new(),
            served: 0,
            dedicated: true,
            deadline: Deadline::default(),
            stay: Stay::default(),
        });
        let upstream = self.cx.upstreams.get(key)?;
        let token = token::of(token::SERVER, key);
        if upstream.transport.watch(&self.cx.epoll, token).is_err() {
            self.cx.upstreams.remove(key);
            return None;
        }
        target.load.active.fetch_add(1, Relaxed);
        Some((key, pool))
    }

    fn unlisted_target(&self, tunnel: &Tunnel) -> Target {
        let address = getpeername(&tunnel.server).ok().flatten();
        let address = address.and_then(|address| SocketAddr::try_from(address).ok());
        let address = address.map_or(Ipv4Addr::UNSPECIFIED.into(), |address| address.ip());
        Target::unlisted(&tunnel.name, address, tunnel.port, self.cx.worker)
    }
}
