//! Hands a worker's clients over to another process, and takes over clients that it receives.

use std::net::{Ipv4Addr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed};

use rustix::net::getpeername;

use super::Worker;
use crate::context::{self, IdleLimits, LocalService, Readiness, Upstream, token};
use crate::descriptor::DescriptorUse;
use crate::handover::{HandedOverConnection, Tunnel};
use crate::plan::Target;
use crate::session::Session;
use crate::slab::Key;
use crate::transport::Transport;
use crate::wheel::Deadline;

impl Worker {
    /// Starts a requested handover, and takes over connections that have arrived. Called once per wake-up.
    pub(super) fn poll_handover(&mut self) {
        if self.shared.handing_over.load(Acquire) && !self.cx.handing_over {
            self.handover_sender = self.shared.handover_sender();
            self.cx.handing_over = true;
            self.cx.draining = true;
            // The other process accepts from the same sockets.
            for key in self.listening.keys() {
                self.pause(key);
                self.listening.remove(key);
            }
            self.cx.close_idle_unless(|_| false);
            // HTTP/2 connections stay in this process and send GOAWAY.
            self.wake_h2_servers();
            for key in self.sessions.keys() {
                self.hand_over(key);
            }
        }
        let arrivals = self.shared.arrivals.load(Acquire);
        if arrivals != self.arrivals {
            self.arrivals = arrivals;
            for connection in self.shared.inbox.take(self.cx.worker) {
                match &self.handover_sender {
                    // Received just before the next handover started.
                    Some(sender) => drop(sender.send(connection)),
                    None => self.take_over(connection),
                }
            }
        }
    }

    /// Hands a session over if another process can continue it in its current state.
    pub(super) fn hand_over(&mut self, key: Key) {
        let Some(sender) = &self.handover_sender else {
            return;
        };
        // The other process has only the active configuration. Sessions with an older configuration end here.
        let plan = self.shared.plan();
        let can_hand_over = |session: &Session| {
            session.can_be_handed_over(&self.cx) && session.is_served_by(&plan.services, &self.cx)
        };
        if !self.sessions.get(key).is_some_and(can_hand_over) {
            return;
        }
        let Some(session) = self.sessions.remove(key) else {
            return;
        };
        let service = Arc::clone(&session.local.service);
        service.clients.fetch_sub(1, Relaxed);
        service.counters.of(self.cx.worker).current.sub(1);
        if let Some(connection) = session.into_handover(&mut self.cx) {
            // Fails if the other process has exited; the connection is then closed.
            let _ = sender.send(connection);
        }
    }

    fn take_over(&mut self, mut connection: HandedOverConnection) {
        let Some(local) = self.local_by_name(&connection.service) else {
            tracing::warn!(
                service = connection.service,
                "dropped a connection that was handed over for an unknown service"
            );
            return;
        };
        let mut server = (Key::NONE, 0);
        if let Some(tunnel) = &mut connection.tunnel {
            match self.take_server(&local, tunnel) {
                Some(registered) => server = registered,
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
        service.counters.of(self.cx.worker).current.add(1);
        let session = Session::from_handover(connection, Rc::clone(&local), server.0, server.1);
        let key = self.sessions.insert(session);
        if let Some(upstream) = self.cx.upstreams.get_mut(server.0) {
            upstream.session = key;
        }
        self.run_session(key, Session::resume);
    }

    /// Returns the local state of a service that is active or that a reload has removed since the handover started.
    fn local_by_name(&self, name: &str) -> Option<Rc<LocalService>> {
        let locals = self.listening.keys().into_iter();
        let mut locals =
            locals.filter_map(|key| self.listening.get(key).map(|listening| &listening.local));
        if let Some(local) = locals.find(|local| local.service.name == name) {
            return Some(Rc::clone(local));
        }
        let plan = self.shared.plan();
        let service = plan.removed.iter().find(|service| service.name == name)?;
        Some(context::removed_service(Arc::clone(service), Vec::new()))
    }

    /// Registers the tunnel's server connection. Returns its key and the index of its pool. If a reload has removed the
    /// server, the connection gets a target outside the pool.
    fn take_server(&mut self, local: &LocalService, tunnel: &mut Tunnel) -> Option<(Key, usize)> {
        let pools = &local.service.pools;
        let pool = pools.iter().position(|pool| pool.pool == tunnel.pool);
        let pool = pool.unwrap_or(0);
        let mut list = pools.get(pool)?.list.iter();
        let target = list.find(|target| target.name == tunnel.name);
        let target = &target.map_or_else(|| Arc::new(self.unlisted_target(tunnel)), Arc::clone);
        let key = self.cx.upstreams.insert(Upstream {
            transport: Transport::plain(tunnel.server.try_clone().ok()?)
                .with_descriptor_count(DescriptorUse::Server),
            target: Arc::clone(target),
            port: tunnel.port,
            session: Key::NONE,
            ready: Readiness {
                readable: true,
                writable: true,
                ..Readiness::default()
            },
            input: Vec::new(),
            served: 0,
            dedicated: true,
            deadline: Deadline::default(),
            idle_limits: IdleLimits::default(),
        });
        let upstream = self.cx.upstreams.get(key)?;
        let token = token::pack(token::SERVER, key);
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
        Target::outside_pool(&tunnel.name, address, tunnel.port, self.cx.worker)
    }
}
