//! Starts connections to servers, and opens streams on HTTP/2 connections.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use rustix::io::Errno;

use super::{Context, Readiness, token};
use crate::descriptor::{DescriptorUse, TABLE};
use crate::h2::{H2ClientConn, Owner, StreamPipe, StreamPipeEnd};
use crate::plan::{Service, Target, TimeoutsMs};
use crate::slab::Key;
use crate::socket;
use crate::tls::{self, Channel};
use crate::transport::Transport;
use crate::wheel::Deadline;

/// A connection to a server, or a stream on an HTTP/2 connection to a server.
#[derive(Debug)]
pub(crate) struct Upstream {
    pub(crate) transport: Transport,
    pub(crate) target: Arc<Target>,
    pub(crate) port: u16,
    /// The session that uses the connection; [`Key::NONE`] while it is idle.
    pub(crate) session: Key,
    pub(crate) ready: Readiness,
    /// The start of an incomplete response head.
    pub(crate) input: Vec<u8>,
    /// Whether only its session can use the connection: a PROXY protocol header was sent over it, or it is an HTTP/2
    /// stream.
    pub(crate) dedicated: bool,
    /// Number of exchanges before the current one; for an HTTP/2 stream, 1 if its connection already existed.
    pub(crate) served: u32,
    pub(crate) deadline: Deadline,
    /// Limits for the connection while it is idle, which apply in the idle pool too.
    pub(crate) idle_limits: IdleLimits,
}

/// How long a connection may stay idle, and how many idle connections its server may have.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct IdleLimits {
    /// When the connection is closed, in milliseconds on the worker clock.
    pub(super) until: u64,
    /// Maximum number of idle connections to the server.
    pub(super) idle_max: usize,
}

impl Context {
    /// Starts a connection for `session`, which holds a slot on the server.
    pub(crate) fn open(
        &mut self,
        target: &Arc<Target>,
        port: u16,
        session: Key,
        tls: Option<&tls::TlsConnector>,
    ) -> rustix::io::Result<Key> {
        let transport = self.start_connect(target, port, tls)?;
        let key = self.upstreams.insert(Upstream {
            transport,
            target: Arc::clone(target),
            port,
            session,
            ready: Readiness::default(),
            input: Vec::new(),
            dedicated: false,
            served: 0,
            deadline: Deadline::default(),
            idle_limits: IdleLimits::default(),
        });
        let result = match self.upstreams.get(key) {
            Some(upstream) => upstream
                .transport
                .watch(&self.epoll, token::pack(token::SERVER, key)),
            None => Ok(()),
        };
        if let Err(error) = result {
            self.upstreams.remove(key);
            return Err(error);
        }
        target.counters.of(self.worker).connections.add(1);
        Ok(key)
    }

    /// Opens a stream for `session` on an HTTP/2 connection to the server. Opens a new connection if none has room.
    pub(crate) fn open_stream(
        &mut self,
        target: &Arc<Target>,
        port: u16,
        session: Key,
        tls: Option<&tls::TlsConnector>,
        service: &Service,
    ) -> rustix::io::Result<Key> {
        let existing = self.find_h2_client(target, port);
        let connection_key = match existing {
            Some(connection_key) => connection_key,
            None => self.open_h2_client(target, port, tls, &service.timeouts)?,
        };
        let Some(Some(connection)) = self.h2_clients.get_mut(connection_key) else {
            return Err(Errno::NOTCONN);
        };
        let token = token::pack(token::H2_CLIENT, connection_key);
        let pipe = StreamPipe::new(
            &self.wakeups,
            token,
            connection.is_secure(),
            connection.pipe_state(),
        );
        let pipe = Rc::new(RefCell::new(pipe));
        connection.add_request(Rc::clone(&pipe), service.max_server_requests);
        let key = self.upstreams.insert(Upstream {
            transport: Transport::stream(StreamPipeEnd(Rc::clone(&pipe))),
            target: Arc::clone(target),
            port,
            session,
            ready: Readiness {
                writable: true,
                ..Readiness::default()
            },
            input: Vec::new(),
            served: u32::from(existing.is_some()),
            dedicated: true,
            deadline: Deadline::default(),
            idle_limits: IdleLimits::default(),
        });
        pipe.borrow_mut().owner = Owner::Server(key);
        Ok(key)
    }

    /// Finds an HTTP/2 connection to the server that has room for another stream.
    fn find_h2_client(&self, target: &Target, port: u16) -> Option<Key> {
        let connection = |key: &Key| {
            let connection = self.h2_clients.get(*key).and_then(Option::as_deref);
            connection.filter(|connection| connection.is_connected_to(target, port))
        };
        let mut keys = self.h2_clients.keys();
        keys.retain(|key| connection(key).is_some());
        // A connection that has not received settings yet is assumed to allow as many streams as the others.
        let max_allowed = keys
            .iter()
            .filter_map(|key| connection(key)?.allowed_streams())
            .max();
        let default_limit = H2ClientConn::default_limit(max_allowed);
        keys.into_iter().find(|key| {
            connection(key).is_some_and(|connection| connection.has_room(default_limit))
        })
    }

    fn open_h2_client(
        &mut self,
        target: &Arc<Target>,
        port: u16,
        tls: Option<&tls::TlsConnector>,
        timeouts: &TimeoutsMs,
    ) -> rustix::io::Result<Key> {
        let transport = self.start_connect(target, port, tls)?;
        let connection = H2ClientConn::new(transport, target, port, timeouts.idle);
        let key = self.h2_clients.insert(Some(Box::new(connection)));
        let Some(Some(connection)) = self.h2_clients.get_mut(key) else {
            return Err(Errno::NOTCONN);
        };
        if let Err(error) = connection.watch(&self.epoll, token::pack(token::H2_CLIENT, key)) {
            self.h2_clients.remove(key);
            return Err(error);
        }
        self.h2_client_wheel
            .set(&mut connection.deadline, key, self.now + timeouts.connect);
        target.counters.of(self.worker).connections.add(1);
        Ok(key)
    }

    /// Starts a connection to a server.
    fn start_connect(
        &mut self,
        target: &Target,
        port: u16,
        tls: Option<&tls::TlsConnector>,
    ) -> rustix::io::Result<Transport> {
        if !self.free_descriptors(|| TABLE.has_room_for_server()) {
            return Err(Errno::MFILE);
        }
        let socket = match &target.unix {
            None => socket::connect((target.address, port).into())?,
            Some(path) => socket::connect_unix(path)?,
        };
        let transport = match tls {
            None => Transport::plain(socket),
            Some(connector) => {
                let channel = Channel::connect(&connector.config, connector.name(target.address));
                Transport::secure(socket, channel.map_err(|_| Errno::INVAL)?)
            }
        };
        Ok(transport.with_descriptor_count(DescriptorUse::Server))
    }
}
