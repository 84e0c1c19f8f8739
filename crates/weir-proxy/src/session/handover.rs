//! Converts a session to a [`HandedOverConnection`] for another process, and back.

use std::rc::Rc;
use std::sync::Arc;

use weir_model::ProxyProtocol;

use super::state::{self, DirectionState, Phase, UnlistedServer, Watch};
use super::{Outcome, Session, bulk};
use crate::context::{Context, LocalService};
use crate::descriptor::DescriptorUse;
use crate::handover::{HandedOverConnection, MAX_HANDOVER_BUFFER, Tunnel};
use crate::plan::Service;
use crate::slab::Key;
use crate::transport::Transport;

impl Session {
    /// Returns whether another process can continue the session in its current phase.
    pub(crate) fn can_be_handed_over(&self, cx: &Context) -> bool {
        if self.transport.plain_socket().is_none() {
            return false;
        }
        match self.phase {
            Phase::Head => !self.has_unsent_to_client() && self.input.len() <= MAX_HANDOVER_BUFFER,
            Phase::Tunnel(_) => {
                let upstream = cx.upstreams.get(self.server);
                let unsent_bytes = self.to_server.unsent().len() + self.to_client.unsent().len();
                upstream.is_some_and(|upstream| upstream.transport.plain_socket().is_some())
                    && unsent_bytes <= MAX_HANDOVER_BUFFER
                    && !bulk::has_content(&self.up)
                    && !bulk::has_content(&self.down)
            }
            _ => false,
        }
    }

    /// Returns whether `services` contains the session's service and, for a tunnel, its server.
    pub(crate) fn is_served_by(&self, services: &[Arc<Service>], cx: &Context) -> bool {
        let current = &self.local.service;
        let Some(service) = services.iter().find(|service| service.name == current.name) else {
            return false;
        };
        if !matches!(self.phase, Phase::Tunnel(_)) {
            return true;
        }
        let (Some(pool), Some(upstream)) = (
            current.pools.get(self.request.pool),
            cx.upstreams.get(self.server),
        ) else {
            return false;
        };
        let mut pools = service.pools.iter();
        pools.any(|candidate| {
            let mut servers = candidate.list.iter();
            candidate.pool == pool.pool && servers.any(|server| server.name == upstream.target.name)
        })
    }

    /// Converts the session for the other process. If that is not possible, returns `None`, which closes the
    /// connections.
    pub(crate) fn into_handover(mut self, cx: &mut Context) -> Option<HandedOverConnection> {
        if let Some(record) = self.log_record.take() {
            // The other process logs the exchange.
            cx.recycle_log_record(record);
        }
        cx.pipes.put_back(self.up.take());
        cx.pipes.put_back(self.down.take());
        let service = &self.local.service;
        let name = service.name.clone();
        let tunnel = match self.phase {
            Phase::Tunnel(ends) => {
                let upstream = cx.upstreams.remove(self.server)?;
                upstream.target.release_slot();
                // The other process holds the same open file description, so closing this descriptor would not remove
                // it from the epoll set.
                upstream.transport.unwatch(&cx.epoll);
                Some(Tunnel {
                    server: upstream.transport.into_plain()?,
                    pool: service.pools.get(self.request.pool)?.pool.clone(),
                    name: upstream.target.name.clone(),
                    port: upstream.port,
                    to_server: self.to_server.take_unsent(),
                    to_client: self.to_client.take_unsent(),
                    client_eof: ends.up != DirectionState::Open,
                    eof_sent_to_server: ends.up == DirectionState::Closed,
                    server_eof: ends.down != DirectionState::Open,
                    eof_sent_to_client: ends.down == DirectionState::Closed,
                })
            }
            _ => None,
        };
        if self.watch == Watch::Yes {
            self.transport.unwatch(&cx.epoll);
        }
        Some(HandedOverConnection {
            service: name,
            client: self.transport.into_plain()?,
            peer: self.peer,
            port: self.port,
            destination: self.destination,
            served: self.served,
            input: self.input,
            tunnel,
        })
    }

    /// Creates a session from a connection that another process handed over. If it has a tunnel, `server` is the
    /// tunnel's server connection and `pool` the index of its pool.
    pub(crate) fn from_handover(
        connection: HandedOverConnection,
        local: Rc<LocalService>,
        server: Key,
        pool: usize,
    ) -> Self {
        let transport =
            Transport::plain(connection.client).with_descriptor_count(DescriptorUse::Client);
        let mut session = Self::new(transport, connection.peer, connection.port, local);
        session.destination = connection.destination;
        session.served = connection.served;
        session.input = connection.input;
        if let Some(tunnel) = connection.tunnel {
            session.phase = Phase::Tunnel(state::Tunnel {
                up: DirectionState::new(tunnel.client_eof, tunnel.eof_sent_to_server),
                down: DirectionState::new(tunnel.server_eof, tunnel.eof_sent_to_client),
                ..state::Tunnel::default()
            });
            session.server = server;
            session.request.pool = pool;
            session.to_server = tunnel.to_server.into();
            session.to_client = tunnel.to_client.into();
        }
        session
    }

    /// Continues a session from another process.
    pub(crate) fn resume(&mut self, key: Key, cx: &mut Context) -> Outcome {
        if matches!(self.phase, Phase::Tunnel(_)) {
            self.begin_log_record(cx);
            let pool = self.local.service.pools.get(self.request.pool);
            let servers = pool.zip(cx.upstreams.get(self.server));
            self.request.unlisted_server = servers.map(|(pool, upstream)| {
                Box::new(UnlistedServer {
                    pool: pool.pool.clone(),
                    target: Arc::clone(&upstream.target),
                })
            });
        }
        let timeouts = self.local.service.timeouts;
        let timeout_ms = match self.phase {
            Phase::Tunnel(_) => timeouts.tunnel,
            _ if self.local.service.protocol == ProxyProtocol::Tcp => timeouts.client,
            _ if self.served && self.input.is_empty() => timeouts.idle,
            _ => timeouts.request,
        };
        self.set_deadline(key, cx, timeout_ms);
        self.drive(key, cx)
    }
}
