//! One client's connection, from accept to close: a sequence of requests, each with a connection to a server, or a
//! tunnel.
//!
//! [`Session::drive`] is called when either socket may have an event, and does everything that needs no waiting. A
//! session owns memory only while it is needed: for an incomplete head, for a request that may have to be sent again,
//! or for what one side does not take as fast as the other side sends.

mod admission;
mod bulk;
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

use self::state::{AuthResult, Outgoing, Phase, Request, Times, Verified, Watch};
use crate::context::{BODY_ROOM, Context, HEAD_ROOM, Local, Ready, token};
use crate::h2::Upgrade;
use crate::log::Note;
use crate::pipe::Pipe;
use crate::plan::{Millis, Mirror, RouteOptions};
use crate::slab::Key;
use crate::tls::TlsDetails;
use crate::transport::Transport;
use crate::verdict::AuthRequest;
use crate::wheel::Deadline;

/// Steps before other sessions get their turn.
const TURNS: usize = 16;
/// How long a client that has not sent a request is kept when descriptors are short.
const FIRST_MS: u64 = 1_000;
/// How long a client may still send after the end of its connection was announced.
const LINGER_MS: u64 = 2_000;

/// Result of a session's turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// It waits for an event or its deadline.
    Waits,
    /// It can continue, after other sessions had their turn.
    Again,
    /// It is finished.
    Ends,
    /// The client speaks HTTP/2.
    Http2,
}

/// Result of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    /// The next step can be taken at once.
    Continue,
    /// An event or a deadline has to come first.
    Pending,
    /// The session ends.
    Close,
    /// The client speaks HTTP/2.
    Http2,
}

/// One client's connection, or one stream of an HTTP/2 connection.
#[derive(Debug)]
pub(crate) struct Session {
    transport: Transport,
    pub(crate) ready: Ready,
    watch: Watch,
    phase: Phase,
    /// Whether a request was answered on this connection.
    served: bool,
    peer: SocketAddr,
    /// The listener's port.
    port: u16,
    pub(crate) local: Rc<Local>,
    /// The current request.
    request: Request,
    /// The connection to its server.
    server: Key,
    /// Whether a peer has accepted bytes since the flag was last cleared.
    made_progress: bool,
    /// The address to which the client connected, according to the PROXY protocol.
    pub(crate) destination: Option<SocketAddr>,
    /// Of an HTTP/2 stream: the connection's TLS.
    pub(crate) stream_tls: Option<Rc<TlsDetails>>,
    /// Of a session that sends a copy of a request: the mirror.
    mirror: Option<Arc<Mirror>>,
    /// Of a session that sends the authorization request of another one.
    auth_request: Option<Box<AuthRequest>>,
    /// The verdict about the request at the beginning of `input`, once it is known.
    auth_result: Option<Box<AuthResult>>,
    log_record: Option<Box<Note>>,
    /// Bytes from the client that are not processed yet; the first `scanned` of them contain no end of a head.
    input: Vec<u8>,
    scanned: usize,
    /// The result for the password of the request at the beginning of `input`, once it is known.
    verified: Option<Verified>,
    to_server: Outgoing,
    to_client: Outgoing,
    /// Bodies on their way through the kernel, to the server and to the client.
    up: Option<Pipe>,
    down: Option<Pipe>,
    /// How much is read from the server at once: less while the client takes less, because what it does not take is
    /// copied.
    read_size: usize,
    pub(crate) deadline: Deadline,
}

impl Session {
    pub(crate) fn new(transport: Transport, peer: SocketAddr, port: u16, local: Rc<Local>) -> Self {
        let read_size = if transport.is_stream() {
            HEAD_ROOM
        } else {
            BODY_ROOM
        };
        Self {
            transport,
            ready: Ready {
                readable: true,
                writable: true,
                ..Ready::default()
            },
            watch: Watch::No,
            phase: Phase::Head,
            served: false,
            peer,
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
            verified: None,
            to_server: Outgoing::default(),
            to_client: Outgoing::default(),
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

    /// Continues after the client's address is known.
    fn start(&mut self, key: Key, cx: &mut Context) -> Step {
        let tcp = self.local.service.protocol == ProxyProtocol::Tcp;
        if tcp {
            self.begin_log_record(cx);
            self.request.selection = Selection::new(hash_of_client(self.peer));
            self.request.times = Times::beginning(cx.now_us);
        }
        self.phase = match tcp {
            _ if self.transport.is_secure() && !self.is_stream() => Phase::Handshake,
            true if self.needs_server_name() => Phase::PeekSni,
            true => return self.connect_by_server_name(key, cx, None),
            false => Phase::Head,
        };
        Step::Continue
    }

    /// Does everything that needs no waiting.
    pub(crate) fn drive(&mut self, key: Key, cx: &mut Context) -> Outcome {
        self.run(Step::Continue, key, cx)
    }

    fn run(&mut self, first: Step, key: Key, cx: &mut Context) -> Outcome {
        let mut step = first;
        for _ in 0..TURNS {
            if matches!(step, Step::Continue | Step::Pending) && self.is_abandoned() {
                return Outcome::Ends;
            }
            match step {
                Step::Continue => {}
                Step::Pending => {
                    self.watch_client(key, cx);
                    return Outcome::Waits;
                }
                Step::Close => return Outcome::Ends,
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
            Step::Close => Outcome::Ends,
            Step::Http2 => Outcome::Http2,
            Step::Continue => Outcome::Again,
            Step::Pending => {
                self.watch_client(key, cx);
                Outcome::Waits
            }
        }
    }

    /// Whether the client of a queued request, or of one that a server is processing, has closed its connection: by a
    /// reset, or by the end of its direction if the service is configured for that.
    fn is_abandoned(&mut self) -> bool {
        match &self.phase {
            // No response could be sent.
            Phase::Head | Phase::Collect => return self.ready.broken && self.is_stream(),
            Phase::Verify(..) | Phase::File(_) => return self.ready.broken,
            Phase::Queue(_) | Phase::Connect | Phase::Exchange => {}
            _ => return false,
        }
        self.ready.broken
            || self.local.service.abort_on_close
                && (self.ready.ended
                    || self.request.exchange.request_done()
                        && self.transport.is_closed(&mut self.ready))
    }

    /// Adds the client's socket to epoll if the session waits for the client. While a server is working, only the
    /// client's end matters: the socket is added at the next tick, so that a client that connects, is answered and
    /// leaves costs no system call for it.
    fn watch_client(&mut self, key: Key, cx: &mut Context) {
        let for_client = match &self.phase {
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
                !self.request.exchange.request_done() || self.has_unsent()
            }
        };
        if self.watch == Watch::Yes {
            return;
        }
        if for_client || self.is_stream() {
            self.watch_now(key, cx);
        } else if self.watch == Watch::No {
            self.watch = Watch::Soon;
            cx.watch_soon(key);
        }
    }

    /// Adds the client's socket to epoll.
    pub(crate) fn watch_now(&mut self, key: Key, cx: &Context) {
        if self.watch == Watch::Yes {
            return;
        }
        let added = self
            .transport
            .watch(&cx.epoll, token::of(token::CLIENT, key));
        self.watch = if added.is_ok() { Watch::Yes } else { Watch::No };
    }

    /// Whether it waits for the first byte of a request, so that closing it loses nothing.
    pub(crate) fn is_idle(&self) -> bool {
        matches!(self.phase, Phase::Head)
            && self.served
            && self.input.is_empty()
            && !self.has_unsent()
    }

    /// Since when a client that may be closed to make room for others has been idle: between two requests, or longer
    /// than a first request takes to arrive.
    pub(crate) fn idle_since(&self, now: u64) -> Option<u64> {
        let waits = matches!(self.phase, Phase::Head)
            && self.input.is_empty()
            && !self.ready.readable
            && !self.has_unsent()
            && !self.is_stream();
        let timeouts = &self.local.service.timeouts;
        let since = |ms| self.deadline.at_ms.saturating_sub(ms);
        match waits {
            true if self.served => Some(since(timeouts.idle)),
            true => Some(since(timeouts.request)).filter(|since| since + FIRST_MS <= now),
            false => None,
        }
    }

    /// What the route of the current request has in place of the service's settings.
    fn options(&self) -> Option<&RouteOptions> {
        let options = self.local.service.options.get(self.request.route?)?;
        options.as_deref()
    }

    /// Maximum size of the current request's body, in bytes; 0 = no limit, or the service's limit is checked elsewhere.
    fn body_limit(&self) -> u64 {
        let options = self.options();
        options.map_or(self.local.service.body_bytes, |options| options.body_bytes)
    }

    /// When the current request is retried.
    fn retry_policy(&self) -> &RetryPolicy {
        if let Some(mirror) = &self.mirror {
            return &mirror.retry;
        }
        let options = self.options();
        options.map_or(&self.local.service.retry, |options| &options.retry)
    }

    /// The timeouts of the current request.
    fn timeouts(&self) -> Millis {
        if let Some(mirror) = &self.mirror {
            return mirror.timeouts;
        }
        let options = self.options();
        options.map_or(self.local.service.timeouts, |options| options.timeouts)
    }

    /// How much may be read from the server at once: the unsent bytes of many streams would add up.
    const fn max_read_size(&self) -> usize {
        if self.is_stream() {
            HEAD_ROOM
        } else {
            BODY_ROOM
        }
    }

    /// Its service has a new configuration. A request in progress keeps its server connection; only the indices of pool
    /// and server change.
    pub(crate) fn apply_service(&mut self, local: &Rc<Local>) {
        if Rc::ptr_eq(&self.local, local) {
            return;
        }
        let former = self
            .local
            .service
            .pools
            .get(self.request.pool)
            .map(|pool| pool.pool.clone());
        let same = |pool: &crate::plan::Targets| Some(&pool.pool) == former.as_ref();
        let server = self
            .local
            .service
            .pools
            .get(self.request.pool)
            .zip(self.request.selection.server())
            .and_then(|(pool, server)| pool.list.get(server))
            .map(|target| target.id);
        self.request.pool = local.service.pools.iter().position(same).unwrap_or(0);
        let list = local
            .service
            .pools
            .get(self.request.pool)
            .map(|pool| &pool.list);
        let found = list.and_then(|list| list.iter().position(|target| Some(target.id) == server));
        self.request.selection.handle_new_list(found);
        self.request.route = None;
        self.request.slot = None;
        self.local = Rc::clone(local);
    }

    /// Whether the current response must be the last one.
    fn is_last(&self, cx: &Context) -> bool {
        // A client that can be handed over continues in the other process.
        let goes = cx.handing && self.transport.bare().is_some();
        cx.draining && !goes || self.local.gone
    }

    /// Whether it serves a stream of an HTTP/2 connection.
    pub(crate) const fn is_stream(&self) -> bool {
        self.transport.is_stream()
    }

    /// Converts it for an HTTP/2 connection.
    pub(crate) fn into_upgrade(self) -> Upgrade {
        Upgrade {
            destination: self.destination,
            transport: self.transport,
            ready: self.ready,
            watched: self.watch == Watch::Yes,
            first: self.to_server.bytes,
            input: self.input,
            peer: self.peer,
            port: self.port,
            local: self.local,
        }
    }

    /// Sends the end of the TLS session to a client that is closed while idle.
    pub(crate) fn part(&mut self) {
        self.transport.part();
    }

    /// Ends the session and releases everything that it holds.
    pub(crate) fn end(&mut self, cx: &mut Context) {
        self.end_auth_request(cx);
        self.record_abandoned(cx);
        self.request.slot = None;
        self.leave_queue();
        self.leave_server(cx, false);
        cx.recycle(self.to_server.take());
        cx.recycle(std::mem::take(&mut self.input));
        cx.recycle(self.to_client.take());
        cx.pipes.give(self.up.take());
        cx.pipes.give(self.down.take());
    }

    fn leave_server(&mut self, cx: &mut Context, stays: bool) {
        let key = std::mem::replace(&mut self.server, Key::NONE);
        if !key.is_none() {
            let service = &self.local.service;
            let most = service.server_requests;
            let serves = cx.upstreams.get(key).is_some_and(|upstream| {
                !upstream.dedicated && (most == 0 || upstream.served + 1 < most)
            });
            let stays = stays && serves;
            cx.release(key, stays, service.idle_servers, service.timeouts.idle);
        }
    }
}
