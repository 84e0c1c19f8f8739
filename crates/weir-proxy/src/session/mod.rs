//! Serves one client connection, from accept to close: a sequence of requests, or a tunnel.
//!
//! [`Session::drive`] is called when one of the sockets may have an event, and does everything that is possible without
//! waiting. A session owns buffers only while it needs them: for an incomplete head, for a request that may have to be
//! sent again, or for data that one side has not accepted yet.

mod admission;
mod bulk;
mod client_field;
mod collect;
mod connect;
mod edit;
mod encode;
mod file;
mod file_transfer;
mod forward_auth;
mod handover;
mod handshake;
mod host;
mod mirror;
mod preamble;
mod queue;
mod record;
mod reply;
mod request;
mod requested_server;
mod response;
mod retry;
mod state;
mod trace;
mod tunnel;
mod wait;

use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;

use weir_http::Exchange;
use weir_model::ProxyProtocol;
use weir_select::{RetryPolicy, Selection, key::hash_of_client};

use self::state::{
    AuthResult, OutgoingBytes, PasswordResult, Phase, Request, Times, UnlistedServer, Watch,
};
use crate::context::{
    BODY_BUFFER_BYTES, Context, HEAD_BUFFER_BYTES, LocalService, Readiness, token,
};
use crate::h2::Upgrade;
use crate::log::LogRecord;
use crate::pipe::Pipe;
use crate::plan::{Mirror, RouteOptions, Target, Targets, TimeoutsMs};
use crate::slab::Key;
use crate::tls::TlsDetails;
use crate::transport::Transport;
use crate::verdict::AuthRequest;
use crate::wheel::Deadline;

/// Maximum number of steps before other sessions run.
const MAX_STEPS: usize = 16;
/// How long a client that has not sent a request is kept when descriptors are scarce, in milliseconds.
const FIRST_REQUEST_MS: u64 = 1_000;
/// How long the client may still send after its connection was shut down, in milliseconds.
const LINGER_MS: u64 = 2_000;

/// The result of [`Session::drive`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The session waits for an event or its deadline.
    Wait,
    /// The session can continue after other sessions have run.
    Yield,
    /// The session is finished.
    End,
    /// The client uses HTTP/2.
    Http2,
}

/// The result of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    /// The next step can run immediately.
    Continue,
    /// The next step runs after an event or a deadline.
    Pending,
    /// The session ends.
    Close,
    /// The client uses HTTP/2.
    Http2,
}

/// The session of a client connection, of an HTTP/2 stream, or of a request copy without a client.
#[derive(Debug)]
pub(crate) struct Session {
    transport: Transport,
    pub(crate) ready: Readiness,
    watch: Watch,
    phase: Phase,
    /// Whether a request has been served on this connection.
    served: bool,
    /// Source address of the connection, according to the PROXY protocol if it is used.
    peer: SocketAddr,
    /// The client of the current request: `peer`, or the address that a trusted proxy sent.
    client: SocketAddr,
    /// The listener's port.
    port: u16,
    pub(crate) local: Rc<LocalService>,
    /// The current request.
    request: Request,
    /// The connection to the server of the current request.
    server: Key,
    /// Whether a peer has accepted bytes since the flag was last cleared.
    made_progress: bool,
    /// The address that the client connected to, according to the PROXY protocol.
    pub(crate) destination: Option<SocketAddr>,
    /// For an HTTP/2 stream: TLS details of its connection.
    pub(crate) stream_tls: Option<Rc<TlsDetails>>,
    /// For a session that sends a copy of a request: the mirror.
    mirror: Option<Arc<Mirror>>,
    /// For a session that sends an authorization request for another session.
    auth_request: Option<Box<AuthRequest>>,
    /// The verdict on the request at the start of `input`, once it is known.
    auth_result: Option<Box<AuthResult>>,
    log_record: Option<Box<LogRecord>>,
    /// Bytes from the client that are not processed yet. The end of the head is not within the first `scanned` bytes.
    input: Vec<u8>,
    scanned: usize,
    /// The result of verifying the password of the request at the start of `input`, once it is known.
    password_result: Option<PasswordResult>,
    to_server: OutgoingBytes,
    to_client: OutgoingBytes,
    /// Kernel pipes for body bytes to the server and to the client.
    up: Option<Pipe>,
    down: Option<Pipe>,
    /// Maximum size of the next read from the server, in bytes. Reduced while the client is slow, because bytes that
    /// the client does not accept are copied.
    read_size: usize,
    pub(crate) deadline: Deadline,
}

impl Session {
    pub(crate) fn new(
        transport: Transport,
        peer: SocketAddr,
        port: u16,
        local: Rc<LocalService>,
    ) -> Self {
        let read_size = if transport.is_stream() {
            HEAD_BUFFER_BYTES
        } else {
            BODY_BUFFER_BYTES
        };
        Self {
            transport,
            ready: Readiness {
                readable: true,
                writable: true,
                ..Readiness::default()
            },
            watch: Watch::No,
            phase: Phase::Head,
            served: false,
            peer,
            client: peer,
            port,
            local,
            request: Request::new(Exchange::idle()),
            server: Key::NONE,
            made_progress: false,
            destination: None,
            stream_tls: None,
            mirror: None,
            auth_request: None,
            auth_result: None,
            log_record: None,
            input: Vec::new(),
            scanned: 0,
            password_result: None,
            to_server: OutgoingBytes::default(),
            to_client: OutgoingBytes::default(),
            up: None,
            down: None,
            read_size,
            deadline: Deadline::default(),
        }
    }

    /// Starts the session.
    pub(crate) fn begin(&mut self, key: Key, cx: &mut Context) -> Outcome {
        let ms = self.local.service.timeouts.request;
        self.set_deadline(key, cx, ms);
        let step = if self.expects_preamble() {
            self.phase = Phase::Preamble;
            Step::Continue
        } else {
            self.start(key, cx)
        };
        self.run(step, key, cx)
    }

    /// Continues once the client's address is known.
    fn start(&mut self, key: Key, cx: &mut Context) -> Step {
        let is_tcp = self.local.service.protocol == ProxyProtocol::Tcp;
        if is_tcp {
            self.begin_log_record(cx);
            self.request.selection = Selection::new(hash_of_client(self.client));
            self.request.times = Times::new(cx.now_us);
        }
        self.phase = match is_tcp {
            _ if self.transport.is_secure() && !self.is_stream() => Phase::Handshake,
            true if self.needs_server_name() => Phase::PeekSni,
            true => return self.connect_by_server_name(key, cx, None),
            false => Phase::Head,
        };
        Step::Continue
    }

    /// Does everything that is possible without waiting.
    pub(crate) fn drive(&mut self, key: Key, cx: &mut Context) -> Outcome {
        self.run(Step::Continue, key, cx)
    }

    fn run(&mut self, first: Step, key: Key, cx: &mut Context) -> Outcome {
        let mut step = first;
        for _ in 0..MAX_STEPS {
            if matches!(step, Step::Continue | Step::Pending) && self.is_abandoned() {
                return Outcome::End;
            }
            match step {
                Step::Continue => {}
                Step::Pending => {
                    self.watch_client(key, cx);
                    return Outcome::Wait;
                }
                Step::Close => return Outcome::End,
                Step::Http2 => return Outcome::Http2,
            }
            step = match &self.phase {
                Phase::Preamble => self.read_preamble(key, cx),
                Phase::Handshake => self.handshake(key, cx),
                Phase::PeekSni => self.peek_sni(key, cx),
                Phase::Head => self.read_head(key, cx),
                Phase::Collect => self.collect(key, cx),
                Phase::Queue(_) | Phase::Verify(..) => Step::Pending,
                Phase::File(_) => self.run_file(key, cx),
                Phase::Connect => self.handle_connect_event(key, cx),
                Phase::Exchange => self.run_exchange(key, cx),
                Phase::Tunnel(_) => self.run_tunnel(key, cx),
                Phase::Linger(_) => self.linger(key, cx),
            };
        }
        match step {
            Step::Close => Outcome::End,
            Step::Http2 => Outcome::Http2,
            Step::Continue => Outcome::Yield,
            Step::Pending => {
                self.watch_client(key, cx);
                Outcome::Wait
            }
        }
    }

    /// Returns whether the client of a request that is queued or being processed has disconnected: by a reset, or, with
    /// `abort_on_close`, by a half-close.
    fn is_abandoned(&mut self) -> bool {
        match &self.phase {
            // No response can be sent.
            Phase::Head | Phase::Collect => return self.ready.broken && self.is_stream(),
            Phase::Verify(..) | Phase::File(_) => return self.ready.broken,
            Phase::Queue(_) | Phase::Connect | Phase::Exchange => {}
            _ => return false,
        }
        self.ready.broken
            || self.local.service.abort_on_close
                && (self.ready.read_closed
                    || self.request.exchange.request_done()
                        && self.transport.is_closed(&mut self.ready))
    }

    /// Registers the client's socket with epoll if the session waits for the client. While a server is processing a
    /// request, only a disconnection matters. In that case, the socket is registered later
    /// ([`Context::watch_soon`]), which saves a system call if the client connects, receives a response and
    /// disconnects.
    fn watch_client(&mut self, key: Key, cx: &mut Context) {
        let waits_for_client = match &self.phase {
            Phase::Preamble
            | Phase::Handshake
            | Phase::PeekSni
            | Phase::Head
            | Phase::Collect
            | Phase::Queue(_)
            | Phase::Verify(..)
            | Phase::File(_)
            | Phase::Tunnel(_)
            | Phase::Linger(_) => true,
            Phase::Connect | Phase::Exchange => {
                !self.request.exchange.request_done() || self.has_unsent_to_client()
            }
        };
        if self.watch == Watch::Yes {
            return;
        }
        if waits_for_client || self.is_stream() {
            self.watch_now(key, cx);
        } else if self.watch == Watch::No {
            self.watch = Watch::Soon;
            cx.watch_soon(key);
        }
    }

    /// Registers the client's socket with epoll.
    pub(crate) fn watch_now(&mut self, key: Key, cx: &Context) {
        if self.watch == Watch::Yes {
            return;
        }
        let result = self
            .transport
            .watch(&cx.epoll, token::pack(token::CLIENT, key));
        self.watch = if result.is_ok() {
            Watch::Yes
        } else {
            Watch::No
        };
    }

    /// Returns whether the session waits for the first byte of another request and can therefore be closed without
    /// loss.
    pub(crate) fn is_idle(&self) -> bool {
        matches!(self.phase, Phase::Head)
            && self.served
            && self.input.is_empty()
            && !self.has_unsent_to_client()
    }

    /// Returns when the client became idle, if it may be closed to make room for others: it is between two requests, or
    /// has not sent its first request for longer than [`FIRST_REQUEST_MS`].
    pub(crate) fn idle_since(&self, now: u64) -> Option<u64> {
        let is_idle = matches!(self.phase, Phase::Head)
            && self.input.is_empty()
            && !self.ready.readable
            && !self.has_unsent_to_client()
            && !self.is_stream();
        let timeouts = &self.local.service.timeouts;
        let since = |ms| self.deadline.at_ms.saturating_sub(ms);
        match is_idle {
            true if self.served => Some(since(timeouts.idle)),
            true => Some(since(timeouts.request)).filter(|since| since + FIRST_REQUEST_MS <= now),
            false => None,
        }
    }

    /// Returns the settings of the current request's route that override the service's.
    fn options(&self) -> Option<&RouteOptions> {
        let options = self.local.service.options.get(self.request.route?)?;
        options.as_deref()
    }

    /// Returns the maximum body size of the current request, in bytes; 0 = no limit, or only the service's limit
    /// applies.
    fn body_limit(&self) -> u64 {
        let options = self.options();
        options.map_or(self.local.service.max_body_bytes, |options| {
            options.max_body_bytes
        })
    }

    /// Returns the conditions for retrying the current request.
    fn retry_policy(&self) -> &RetryPolicy {
        if let Some(mirror) = &self.mirror {
            return &mirror.retry;
        }
        let options = self.options();
        options.map_or(&self.local.service.retry, |options| &options.retry)
    }

    /// Returns the timeouts of the current request.
    fn timeouts(&self) -> TimeoutsMs {
        if let Some(mirror) = &self.mirror {
            return mirror.timeouts;
        }
        let options = self.options();
        options.map_or(self.local.service.timeouts, |options| options.timeouts)
    }

    /// Returns the maximum size of a read from the server. It is smaller for streams, because a connection can have
    /// many streams.
    const fn max_read_size(&self) -> usize {
        if self.is_stream() {
            HEAD_BUFFER_BYTES
        } else {
            BODY_BUFFER_BYTES
        }
    }

    /// Applies the service's new configuration. A request in progress keeps its server connection; only the indices of
    /// its pool and server change.
    pub(crate) fn apply_service(&mut self, local: &Rc<LocalService>) {
        if Rc::ptr_eq(&self.local, local) {
            return;
        }
        let old_pool = self.local.service.pools.get(self.request.pool);
        let server = old_pool
            .zip(self.request.selection.server())
            .and_then(|(pool, server)| pool.list.get(server));
        let pools = &local.service.pools;
        let is_same_pool = |pool: &Targets| old_pool.is_some_and(|old| old.pool == pool.pool);
        self.request.pool = pools.iter().position(is_same_pool).unwrap_or(0);
        let is_server = |target: &Arc<Target>| server.is_some_and(|server| server.id == target.id);
        let pool = pools.get(self.request.pool);
        let index = pool.and_then(|pool| pool.list.iter().position(is_server));
        if let (Some(pool), Some(server), None) = (old_pool, server, index) {
            self.request.unlisted_server = Some(Box::new(UnlistedServer {
                pool: pool.pool.clone(),
                target: Arc::clone(server),
            }));
        }
        self.request.selection.handle_new_list(index);
        self.request.route = None;
        self.request.slot = None;
        self.local = Rc::clone(local);
    }

    /// Returns the names of the request's pool and of the server that was selected last, even if a reload has removed
    /// them.
    fn pool_and_server(&self) -> (Option<&str>, Option<&Arc<Target>>) {
        let server = self.request.selection.server();
        if server.is_none()
            && let Some(unlisted) = self.request.unlisted_server.as_deref()
        {
            return (Some(&unlisted.pool), Some(&unlisted.target));
        }
        let pool = self.local.service.pools.get(self.request.pool);
        let pool = pool.filter(|_| self.request.selection.is_started());
        let server = pool.zip(server);
        (
            pool.map(|pool| pool.pool.as_str()),
            server.and_then(|(pool, server)| pool.list.get(server)),
        )
    }

    /// Returns whether the connection must be closed after the current response.
    fn is_last(&self, cx: &Context) -> bool {
        // A client that can be handed over continues in the other process.
        let continues = cx.handing_over && self.transport.plain_socket().is_some();
        cx.draining && !continues || self.local.is_removed
    }

    /// Returns whether the session serves a stream of an HTTP/2 connection.
    pub(crate) const fn is_stream(&self) -> bool {
        self.transport.is_stream()
    }

    /// Converts the session's state for an HTTP/2 connection.
    pub(crate) fn into_upgrade(self) -> Upgrade {
        Upgrade {
            destination: self.destination,
            transport: self.transport,
            ready: self.ready,
            watched: self.watch == Watch::Yes,
            first_frame: self.to_server.bytes,
            input: self.input,
            peer: self.peer,
            port: self.port,
            local: self.local,
        }
    }

    /// Sends the end of the connection to an idle client before the connection is closed; see
    /// [`Transport::notify_close`].
    pub(crate) fn notify_close(&mut self) {
        self.transport.notify_close();
    }

    /// Ends the session and releases all its resources.
    pub(crate) fn end(&mut self, cx: &mut Context) {
        self.end_auth_request(cx);
        self.record_abandoned(cx);
        self.request.slot = None;
        self.leave_queue();
        self.leave_server(cx, false);
        cx.recycle(self.to_server.take());
        cx.recycle(std::mem::take(&mut self.input));
        cx.recycle(self.to_client.take());
        cx.pipes.put_back(self.up.take());
        cx.pipes.put_back(self.down.take());
    }

    fn leave_server(&mut self, cx: &mut Context, is_reusable: bool) {
        let key = std::mem::replace(&mut self.server, Key::NONE);
        if !key.is_none() {
            let service = &self.local.service;
            let limit = service.max_server_requests;
            let accepts_more = cx.upstreams.get(key).is_some_and(|upstream| {
                !upstream.dedicated && (limit == 0 || upstream.served + 1 < limit)
            });
            let is_reusable = is_reusable && accepts_more;
            cx.release(
                key,
                is_reusable,
                service.idle_servers,
                service.timeouts.idle,
            );
        }
    }
}
