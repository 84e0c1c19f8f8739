//! One client's connection, from accept to close: requests in turn, each with a server's connection, or octets both
//! ways.
//!
//! [`Session::drive`] is called when either socket may have something to say, and does all that can be done without
//! waiting. A session owns memory only while something is under way: a head that is not all there, a request that may
//! have to be sent again, or what a side does not take as fast as the other gives.

mod bulk;
mod choice;
mod collect;
mod connect;
mod encode;
mod handover;
mod handshake;
mod host;
mod line;
mod preamble;
mod record;
mod reply;
mod request;
mod response;
mod retry;
mod tunnel;
mod wait;

use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;

use weir_http::Exchange;
use weir_model::{Coding, ProxyProtocol};
use weir_select::limit::Slot;
use weir_select::{Selection, key::hash_of_client};

use self::bulk::Bulk;
use crate::context::{BODY_ROOM, Context, HEAD_ROOM, Local, Ready, token};
use crate::encoder::Encoder;
use crate::h2::Former;
use crate::log::Note;
use crate::pipe::Pipe;
use crate::queue::Line;
use crate::slab::Key;
use crate::transport::Transport;
use crate::wheel::Deadline;

/// Turns before other connections get theirs.
const TURNS: usize = 16;
/// How long a client that has not asked yet is spared when descriptors are short.
const FIRST_MS: u64 = 1_000;
/// How long a client that was told to go may still send before it is cut off.
const LINGER_MS: u64 = 2_000;

/// What becomes of a session after a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fate {
    /// It waits for an event or its deadline.
    Stays,
    /// It could go on, and others shall have their turn.
    Again,
    /// It is over.
    Ends,
    /// The client speaks HTTP/2.
    Http2,
}

/// What a step did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Moved {
    On,
    Waits,
    Ends,
    Http2,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Waits to hear for whom the client speaks.
    Preamble,
    /// TLS with the client begins.
    Handshake,
    /// Waits for the name that a client of TLS asks a server for.
    Overhears,
    /// Waits for a request's head.
    Request,
    /// Waits for a request's content, before a server is chosen.
    Collect,
    /// Waits for a place at a server.
    Queue,
    /// Waits for a server to accept.
    Connect,
    /// A request is passed on, or its response.
    Exchange,
    /// Octets both ways.
    Tunnel,
    /// The last response is on its way; then the end.
    Farewell,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Session {
    transport: Transport,
    pub(crate) ready: Ready,
    watched: bool,
    /// It enters epoll at the worker's next tick, if it waits for a server until then.
    watched_soon: bool,
    phase: Phase,
    /// A request came before.
    served: bool,
    /// The client was told that nothing more comes.
    told_end: bool,
    /// The server was.
    server_told_end: bool,
    client_ended: bool,
    server_ended: bool,
    peer: SocketAddr,
    /// The listener's.
    port: u16,
    pub(crate) local: Rc<Local>,
    exchange: Exchange,
    server: Key,
    /// Index of the request's pool in the service.
    pool: usize,
    /// Whether `pool` is that of the current request.
    pool_selected: bool,
    /// The server of the request, its retries and its place in the queue.
    selection: Selection,
    /// Where it stands, or stood before it was called.
    line: Option<(u64, Arc<Line>)>,
    /// The route of the present request.
    route: Option<usize>,
    /// Its slot among its client's requests in progress.
    slot: Option<Slot>,
    /// Somebody took a part of what is stuck, since that was last asked.
    took: bool,
    /// Where the client connected to, as a proxy in front said.
    pub(crate) spoken_to: Option<SocketAddr>,
    /// Of a stream: the host that its client asked for in the TLS handshake.
    pub(crate) asked_host: Option<Rc<str>>,
    /// When the server was asked, in nanoseconds, where somebody wants to know.
    asked: u64,
    /// When the present request must be over.
    until: u64,
    /// How its response may be coded, and what codes it.
    accepts: Option<Coding>,
    encoder: Option<Box<Encoder>>,
    note: Option<Box<Note>>,
    /// Who ended the present exchange.
    end: [u8; 2],
    /// What came from the client and is not dealt with; this much of it was searched for a head's end.
    input: Vec<u8>,
    looked: usize,
    /// What goes to the server; this much of it is sent.
    request: Vec<u8>,
    sent: usize,
    /// What the client did not take yet; this much of it was taken.
    stuck: Vec<u8>,
    taken: usize,
    /// Bodies on their way through the kernel.
    up: Option<Pipe>,
    down: Option<Pipe>,
    bulk: Bulk,
    /// How much is read from the server at once: less while the client takes less, since what it does not take is
    /// copied.
    room: usize,
    pub(crate) deadline: Deadline,
}

impl Session {
    pub(crate) fn new(transport: Transport, peer: SocketAddr, port: u16, local: Rc<Local>) -> Self {
        let room = if transport.is_strand() {
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
            watched: false,
            watched_soon: false,
            phase: Phase::Request,
            served: false,
            told_end: false,
            server_told_end: false,
            client_ended: false,
            server_ended: false,
            peer,
            port,
            local,
            exchange: Exchange::idle(),
            server: Key::NONE,
            pool: 0,
            pool_selected: false,
            selection: Selection::default(),
            line: None,
            route: None,
            slot: None,
            took: false,
            spoken_to: None,
            asked_host: None,
            asked: 0,
            until: u64::MAX,
            accepts: None,
            encoder: None,
            note: None,
            end: record::WELL,
            input: Vec::new(),
            looked: 0,
            request: Vec::new(),
            sent: 0,
            stuck: Vec::new(),
            taken: 0,
            up: None,
            down: None,
            bulk: Bulk::default(),
            room,
            deadline: Deadline::default(),
        }
    }

    /// Its first turn.
    pub(crate) fn begin(&mut self, key: Key, cx: &mut Context) -> Fate {
        let ms = self.local.service.timeouts.request;
        self.wait(key, cx, ms);
        let moved = if self.is_proxied() {
            self.phase = Phase::Preamble;
            Moved::On
        } else {
            self.start(key, cx)
        };
        self.go_on(moved, key, cx)
    }

    /// Who the client is, is known.
    fn start(&mut self, key: Key, cx: &mut Context) -> Moved {
        let tcp = self.local.service.protocol == ProxyProtocol::Tcp;
        if tcp {
            self.begin_note(cx);
            self.selection = Selection::new(hash_of_client(self.peer));
        }
        self.phase = match tcp {
            _ if self.transport.is_secure() && !self.is_stream() => Phase::Handshake,
            true if self.is_routed() => Phase::Overhears,
            true => return self.connect(key, cx),
            false => Phase::Request,
        };
        Moved::On
    }

    /// Does all that can be done without waiting.
    pub(crate) fn drive(&mut self, key: Key, cx: &mut Context) -> Fate {
        self.go_on(Moved::On, key, cx)
    }

    fn go_on(&mut self, first: Moved, key: Key, cx: &mut Context) -> Fate {
        let mut moved = first;
        for _ in 0..TURNS {
            if matches!(moved, Moved::On | Moved::Waits) && self.has_left() {
                return Fate::Ends;
            }
            match moved {
                Moved::On => {}
                Moved::Waits => {
                    self.watch(key, cx);
                    return Fate::Stays;
                }
                Moved::Ends => return Fate::Ends,
                Moved::Http2 => return Fate::Http2,
            }
            moved = match self.phase {
                Phase::Preamble => self.take_preamble(key, cx),
                Phase::Handshake => self.greet(key, cx),
                Phase::Overhears => self.overhear(key, cx),
                Phase::Request => self.take_request(key, cx),
                Phase::Collect => self.collect(key, cx),
                Phase::Queue => Moved::Waits,
                Phase::Connect => self.await_server(key, cx),
                Phase::Exchange => self.pass_on(key, cx),
                Phase::Tunnel => self.carry(key, cx),
                Phase::Farewell => self.farewell(key, cx),
            };
        }
        match moved {
            Moved::Ends => Fate::Ends,
            Moved::Http2 => Fate::Http2,
            Moved::On => Fate::Again,
            Moved::Waits => {
                self.watch(key, cx);
                Fate::Stays
            }
        }
    }

    /// Whether the client of a request that is queued, or that a server works on, has gone: by a reset, or by the end
    /// of its direction where the service says so.
    fn has_left(&mut self) -> bool {
        match self.phase {
            // No response can be sent, so none is asked for.
            Phase::Request | Phase::Collect => return self.ready.broken && self.is_stream(),
            Phase::Queue | Phase::Connect | Phase::Exchange => {}
            _ => return false,
        }
        self.ready.broken
            || self.local.service.abort_on_close
                && (self.ready.ended
                    || self.exchange.request_done() && self.transport.is_closed(&mut self.ready))
    }

    /// Enters epoll when it is the client that is waited for. While a server works, only the client's end matters: that
    /// is looked for from the next tick on, so that a client that comes, gets its answer and goes costs no call for it.
    fn watch(&mut self, key: Key, cx: &mut Context) {
        let for_client = match self.phase {
            Phase::Preamble
            | Phase::Handshake
            | Phase::Overhears
            | Phase::Request
            | Phase::Collect
            | Phase::Queue
            | Phase::Tunnel
            | Phase::Farewell => true,
            Phase::Connect | Phase::Exchange => !self.exchange.request_done() || self.owes(),
        };
        if self.watched {
            return;
        }
        if for_client || self.is_stream() {
            self.watch_now(key, cx);
        } else if !self.watched_soon {
            self.watched_soon = true;
            cx.watch_soon(key);
        }
    }

    /// Enters epoll, if it has not.
    pub(crate) fn watch_now(&mut self, key: Key, cx: &Context) {
        if !self.watched {
            self.watched = self
                .transport
                .watch(&cx.epoll, token::of(token::CLIENT, key))
                .is_ok();
        }
        self.watched_soon = false;
    }

    /// Whether it waits for a request that has not begun, and can end without anybody's loss.
    pub(crate) fn is_idle(&self) -> bool {
        self.phase == Phase::Request && self.served && self.input.is_empty() && !self.owes()
    }

    /// Since when a client that may be closed to make room for others has been idle: between two requests, or for
    /// longer than a first request takes to arrive.
    pub(crate) fn idle_since(&self, now: u64) -> Option<u64> {
        let waits = self.phase == Phase::Request
            && self.input.is_empty()
            && !self.ready.readable
            && !self.owes()
            && !self.is_stream();
        let timeouts = &self.local.service.timeouts;
        let since = |ms| self.deadline.at_ms.saturating_sub(ms);
        match waits {
            true if self.served => Some(since(timeouts.idle)),
            true => Some(since(timeouts.request)).filter(|since| since + FIRST_MS <= now),
            false => None,
        }
    }

    /// How much may be read from the server at once: what a stream of many does not take adds up.
    const fn widest(&self) -> usize {
        if self.is_stream() {
            HEAD_ROOM
        } else {
            BODY_ROOM
        }
    }

    /// Its service has another form now. A server that is being asked is so by its connection; only where to look for
    /// another one follows from places, which mean something else in other lists.
    pub(crate) fn adopt(&mut self, local: &Rc<Local>) {
        if Rc::ptr_eq(&self.local, local) {
            return;
        }
        let former = self
            .local
            .service
            .pools
            .get(self.pool)
            .map(|pool| pool.pool.clone());
        let same = |pool: &crate::plan::Targets| Some(&pool.pool) == former.as_ref();
        let server = self
            .local
            .service
            .pools
            .get(self.pool)
            .zip(self.selection.server())
            .and_then(|(pool, server)| pool.list.get(server))
            .map(|target| target.id);
        self.pool = local.service.pools.iter().position(same).unwrap_or(0);
        let list = local.service.pools.get(self.pool).map(|pool| &pool.list);
        let found = list.and_then(|list| list.iter().position(|target| Some(target.id) == server));
        self.selection.handle_new_list(found);
        self.route = None;
        self.slot = None;
        self.local = Rc::clone(local);
    }

    /// Whether the present response is to be the last.
    fn is_last(&self, cx: &Context) -> bool {
        // A client that can be handed to another process asks there.
        let goes = cx.handing && self.transport.bare().is_some();
        cx.draining && !goes || self.local.gone
    }

    /// Whether it serves a stream of an HTTP/2 connection, and is no client of its own.
    pub(crate) const fn is_stream(&self) -> bool {
        self.transport.is_strand()
    }

    /// What an HTTP/2 connection begins with.
    pub(crate) fn into_former(self) -> Former {
        Former {
            spoken_to: self.spoken_to,
            transport: self.transport,
            ready: self.ready,
            watched: self.watched,
            first: self.request,
            input: self.input,
            peer: self.peer,
            port: self.port,
            local: self.local,
        }
    }

    /// Tells a client that is closed while it is idle, as far as TLS has words for that.
    pub(crate) fn part(&mut self) {
        self.transport.part();
    }

    /// Gives back what it holds of others.
    pub(crate) fn end(&mut self, cx: &mut Context) {
        self.record_rest(cx);
        self.slot = None;
        self.step_out();
        self.leave_server(cx, false);
        cx.recycle(std::mem::take(&mut self.request));
        cx.recycle(std::mem::take(&mut self.input));
        cx.recycle(std::mem::take(&mut self.stuck));
        cx.pipes.give(self.up.take());
        cx.pipes.give(self.down.take());
    }

    fn leave_server(&mut self, cx: &mut Context, stays: bool) {
        let key = std::mem::replace(&mut self.server, Key::NONE);
        if !key.is_none() {
            let service = &self.local.service;
            let most = service.server_requests;
            let serves = cx.upstreams.get(key).is_some_and(|upstream| {
                !upstream.introduced && (most == 0 || upstream.served + 1 < most)
            });
            let stays = stays && serves;
            cx.release(key, stays, service.idle_servers, service.timeouts.idle);
        }
    }
}
