//! A client's HTTP/2 connection: its streams are served as so many HTTP/1.1 sessions, each over a [`Strand`].
//!
//! Frames, header compression and flow control are the `h2` crate's, polled by hand over octets in memory. What a client does
//! not take stays with the server that sends it: of each stream no more than a strand and the client's own window are kept.

use std::cell::RefCell;
use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use h2::server::{self, SendResponse};
use h2::{Reason, RecvStream, SendStream};
use http::Request;
use weir_http::{HeadLimits, head};

use super::census::Census;
use super::flow::{self, Received, context};
use super::line::Line;
use super::message::{self, Coding, Content};
use super::strand::{Bell, Strand, StrandState};
use super::wire::WireEnd;
use super::{Errand, Errands};
use crate::context::{Context, Local, Ready, token};
use crate::plan::Millis;
use crate::slab::Key;
use crate::transport::Transport;
use crate::wheel::Deadline;

/// Streams of one client at once.
const STREAMS: u32 = 128;
/// What a client may send ahead, of a stream and of all: a window holds what no session has taken.
const STREAM_WINDOW: u32 = 64 << 10;
const CONNECTION_WINDOW: u32 = 1 << 20;
/// Octets of a stream that wait for the socket.
const SEND_BUFFER: usize = 64 << 10;
/// Rounds before others get their turn.
const ROUNDS: usize = 4;
/// Streams that a client may take back in a row before it is told to calm down, and how many are forgiven in a second:
/// a page that is left takes back all of its streams once.
const RESETS_MAX: u64 = 2 * STREAMS as u64;
const FORGIVEN: u64 = 20;
/// What a client may still send of a request that is answered: some (curl 7.88) take the stream's end for an error while they
/// send, though RFC 9113 section 8.1 has it so.
const UNWANTED_MAX: usize = 1 << 20;
/// How long a client has to understand that the connection is to end.
const LEAVE_MS: u64 = 2_000;
/// A response was judged by its session; here its head is only to be found.
const OWN: HeadLimits = HeadLimits {
    connect: false,
    head: 256 << 10,
    target: 0,
    fields: 4_000,
};

type Connection = server::Connection<WireEnd, Bytes>;

enum State {
    Greeting(Box<server::Handshake<WireEnd, Bytes>>),
    Open(Box<Connection>),
    Over,
}

impl std::fmt::Debug for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Greeting(_) => "Greeting",
            Self::Open(_) => "Open",
            Self::Over => "Over",
        })
    }
}

/// Where a response stands.
enum Reply {
    Head,
    Body(SendStream<Bytes>, Content),
    Done,
}

struct Stream {
    strand: Rc<RefCell<Strand>>,
    /// What comes; nothing more once it is over.
    body: Option<RecvStream>,
    coding: Coding,
    respond: SendResponse<Bytes>,
    reply: Reply,
    to_head: bool,
    /// Octets that came behind the answer.
    unwanted: usize,
}

/// See the module.
pub(crate) struct Front {
    line: Line,
    watched: bool,
    state: State,
    streams: Vec<Stream>,
    pub(crate) local: Rc<Local>,
    peer: SocketAddr,
    port: u16,
    pub(crate) deadline: Deadline,
    resets: u64,
    forgiven: u64,
    leaving: bool,
}

impl std::fmt::Debug for Front {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Front")
            .field("state", &self.state)
            .field("streams", &self.streams.len())
            .finish_non_exhaustive()
    }
}

/// What a session was before it turned out to speak HTTP/2.
#[derive(Debug)]
pub(crate) struct Former {
    pub(crate) transport: Transport,
    pub(crate) ready: Ready,
    pub(crate) watched: bool,
    /// The frame of a first stream that was asked for by HTTP/1.1, or nothing.
    pub(crate) first: Vec<u8>,
    /// What was read from it.
    pub(crate) input: Vec<u8>,
    pub(crate) peer: SocketAddr,
    pub(crate) port: u16,
    pub(crate) local: Rc<Local>,
}

/// What a stream is served by.
#[derive(Debug)]
pub(crate) struct Begun {
    pub(crate) strand: Rc<RefCell<Strand>>,
    pub(crate) peer: SocketAddr,
    pub(crate) port: u16,
    pub(crate) local: Rc<Local>,
}

impl Front {
    pub(crate) fn new(former: Former) -> Self {
        let census = Some(Census::new());
        let line = Line::new(
            former.transport,
            former.ready,
            &former.input,
            former.first,
            census,
        );
        let service = &former.local.service;
        let head = u32::try_from(service.head.head).unwrap_or(u32::MAX);
        let handshake = server::Builder::new()
            .max_concurrent_streams(STREAMS)
            .initial_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .max_send_buffer_size(SEND_BUFFER)
            .max_header_list_size(head)
            .max_concurrent_reset_streams(STREAMS as usize)
            .reset_stream_duration(Duration::from_secs(5))
            .handshake(line.end());
        Self {
            line,
            watched: former.watched,
            state: State::Greeting(Box::new(handshake)),
            streams: Vec::new(),
            local: former.local,
            peer: former.peer,
            port: former.port,
            deadline: Deadline::default(),
            resets: 0,
            forgiven: 0,
            leaving: false,
        }
    }

    pub(crate) const fn ready(&mut self) -> &mut Ready {
        &mut self.line.ready
    }

    /// Its first turn; whether it goes on.
    pub(crate) fn begin(&mut self, key: Key, cx: &mut Context, errands: &mut Errands) -> bool {
        let token = token::of(token::FRONT, key);
        let registered = if self.watched {
            self.line.transport.rewatch(&cx.epoll, token)
        } else {
            self.line.transport.watch(&cx.epoll, token)
        };
        if registered.is_err() {
            return false;
        }
        let ms = self.timeouts().request;
        cx.front_wheel.set(&mut self.deadline, key, cx.now + ms);
        self.drive(key, cx, errands)
    }

    fn timeouts(&self) -> Millis {
        self.local.service.timeouts
    }

    /// Does all that can be done without waiting; whether it goes on.
    pub(crate) fn drive(&mut self, key: Key, cx: &mut Context, errands: &mut Errands) -> bool {
        if matches!(self.state, State::Over) {
            return self.line.flush() && self.line.discard(&mut cx.scratch);
        }
        let before = self.streams.len();
        for round in 0..ROUNDS {
            if !self.line.flush() {
                return self.end(errands);
            }
            let came = self.line.take_in(&mut cx.scratch);
            if self.line.is_flooded(cx.now) {
                self.calm();
            }
            if !self.poll(key, cx, errands) {
                return self.farewell(key, cx, errands);
            }
            let moved = self.pump(cx, came, errands);
            // What the streams sent becomes frames.
            if moved && !self.poll(key, cx, errands) {
                return self.farewell(key, cx, errands);
            }
            if !self.line.flush() {
                return self.end(errands);
            }
            if !came && !moved {
                break;
            }
            if round + 1 == ROUNDS {
                cx.bell.borrow_mut().push(token::of(token::FRONT, key));
            }
        }
        self.leave(key, cx);
        if self.streams.is_empty() && before > 0 && !self.leaving {
            let ms = self.timeouts().idle;
            cx.front_wheel.set(&mut self.deadline, key, cx.now + ms);
        }
        true
    }

    /// Its time is over; whether it goes on all the same.
    pub(crate) fn expire(&mut self, key: Key, cx: &mut Context, errands: &mut Errands) -> bool {
        if self.leaving || matches!(self.state, State::Greeting(_)) {
            return self.end(errands);
        }
        // Who has an answer and does not send the rest either.
        self.streams.retain(|stream| !stream.is_answered());
        if !self.streams.is_empty() {
            // Each stream has a session with deadlines of its own.
            let ms = self.timeouts().idle;
            cx.front_wheel.set(&mut self.deadline, key, cx.now + ms);
            return true;
        }
        self.begin_leaving(key, cx);
        self.drive(key, cx, errands)
    }

    /// Tells the client that no further streams are taken, once its service is gone or the process ends.
    fn leave(&mut self, key: Key, cx: &mut Context) {
        if (cx.draining || self.local.gone) && !self.leaving {
            self.begin_leaving(key, cx);
            cx.bell.borrow_mut().push(token::of(token::FRONT, key));
        }
    }

    fn begin_leaving(&mut self, key: Key, cx: &mut Context) {
        self.leaving = true;
        if let State::Open(connection) = &mut self.state {
            connection.graceful_shutdown();
        }
        let ms = if self.streams.is_empty() {
            LEAVE_MS
        } else {
            self.timeouts().server.max(LEAVE_MS)
        };
        cx.front_wheel.set(&mut self.deadline, key, cx.now + ms);
    }

    /// Lets the connection read and write frames, and takes new streams; whether it goes on.
    fn poll(&mut self, key: Key, cx: &mut Context, errands: &mut Errands) -> bool {
        if let State::Greeting(handshake) = &mut self.state {
            match Pin::new(&mut **handshake).poll(&mut context()) {
                Poll::Pending => return !self.line.is_ended(),
                Poll::Ready(Err(_)) => return false,
                Poll::Ready(Ok(connection)) => self.state = State::Open(Box::new(connection)),
            }
            let ms = self.timeouts().idle;
            cx.front_wheel.set(&mut self.deadline, key, cx.now + ms);
        }
        loop {
            let State::Open(connection) = &mut self.state else {
                return false;
            };
            match connection.poll_accept(&mut context()) {
                Poll::Pending => return true,
                Poll::Ready(Some(Ok((request, respond)))) => {
                    self.accept(key, &cx.bell, request, respond, errands);
                }
                Poll::Ready(Some(Err(_)) | None) => return false,
            }
        }
    }

    fn accept(
        &mut self,
        key: Key,
        bell: &Bell,
        request: Request<RecvStream>,
        respond: SendResponse<Bytes>,
        errands: &mut Errands,
    ) {
        let (parts, body) = request.into_parts();
        let ended = body.is_end_stream();
        let token = token::of(token::FRONT, key);
        let secure = self.line.transport.is_secure();
        let mut strand = Strand::new(bell, token, secure, StrandState::Open);
        let coding = message::write_request(&parts, ended, strand.inward());
        strand.inward_ended = ended;
        let strand = Rc::new(RefCell::new(strand));
        errands.push(Errand::Serve(Begun {
            strand: Rc::clone(&strand),
            peer: self.peer,
            port: self.port,
            local: Rc::clone(&self.local),
        }));
        self.streams.push(Stream {
            strand,
            body: (!ended).then_some(body),
            coding,
            respond,
            reply: Reply::Head,
            to_head: parts.method == http::Method::HEAD,
            unwanted: 0,
        });
    }

    /// Moves octets between streams and their sessions; whether the connection got something to send.
    fn pump(&mut self, cx: &mut Context, came: bool, errands: &mut Errands) -> bool {
        let mut moved = false;
        let mut at = 0;
        let mut reset = 0;
        while let Some(stream) = self.streams.get_mut(at) {
            let taken_back = (came && stream.is_reset()) || !stream.pump_request(errands);
            let answered = stream.is_answered();
            reset += u64::from(taken_back && !answered);
            if !answered {
                moved |= stream.pump_reply(cx, errands);
                if stream.is_answered() {
                    stream.release(errands);
                }
            }
            if taken_back || stream.is_over() {
                self.streams.swap_remove(at).release(errands);
                moved = true;
            } else {
                at += 1;
            }
        }
        if reset > 0 {
            self.count_resets(reset, cx.now);
            moved = true;
        }
        moved
    }

    /// Opening streams and taking them back costs a client nothing, and us a server's time (CVE-2023-44487).
    fn count_resets(&mut self, count: u64, now: u64) {
        let forgiven = now.saturating_sub(self.forgiven) * FORGIVEN / 1_000;
        if forgiven > 0 {
            self.resets = self.resets.saturating_sub(forgiven);
            self.forgiven = now;
        }
        self.resets += count;
        if self.resets > RESETS_MAX {
            self.calm();
        }
    }

    /// Ends the connection of a client that asks for too much trouble.
    fn calm(&mut self) {
        if let State::Open(connection) = &mut self.state {
            connection.abrupt_shutdown(Reason::ENHANCE_YOUR_CALM);
        }
    }

    /// The connection is over. Its last frames say why, and closing with something unread would take them back.
    fn farewell(&mut self, key: Key, cx: &mut Context, errands: &mut Errands) -> bool {
        if !self.line.flush() {
            return self.end(errands);
        }
        self.end(errands);
        self.line.transport.finish();
        cx.front_wheel
            .set(&mut self.deadline, key, cx.now + LEAVE_MS);
        self.leaving = true;
        self.line.discard(&mut cx.scratch)
    }

    /// Ends all of its sessions.
    fn end(&mut self, errands: &mut Errands) -> bool {
        for stream in self.streams.drain(..) {
            stream.release(errands);
        }
        self.state = State::Over;
        self.line.transport.part();
        false
    }
}

impl Stream {
    /// Whether the client took it back.
    fn is_reset(&mut self) -> bool {
        let polled = match &mut self.reply {
            Reply::Head => self.respond.poll_reset(&mut context()),
            Reply::Body(send, _) => send.poll_reset(&mut context()),
            Reply::Done => Poll::Pending,
        };
        polled.is_ready()
    }

    /// Whether the response is complete, or cannot come.
    fn is_answered(&self) -> bool {
        matches!(self.reply, Reply::Done)
    }

    /// Whether nothing is left to be done.
    fn is_over(&self) -> bool {
        self.is_answered() && (self.body.is_none() || self.unwanted > UNWANTED_MAX)
    }

    /// Its session has nothing more to do.
    fn release(&self, errands: &mut Errands) {
        let strand = &mut *self.strand.borrow_mut();
        let over = strand.state == StrandState::Over;
        strand.state = StrandState::Over;
        if !strand.left && !over {
            errands.push(Errand::Over(strand.owner));
        }
    }

    /// From the client to the session; whether the stream stands.
    fn pump_request(&mut self, errands: &mut Errands) -> bool {
        let Some(body) = &mut self.body else {
            return true;
        };
        let strand = &mut *self.strand.borrow_mut();
        if matches!(self.reply, Reply::Done) {
            return match flow::discard(body, &mut self.unwanted, UNWANTED_MAX) {
                Received::Broken => false,
                Received::All => {
                    self.body = None;
                    true
                }
                _ => true,
            };
        }
        match flow::receive(body, self.coding, strand) {
            Received::Nothing => return true,
            Received::Some => {}
            Received::All => self.body = None,
            Received::Broken => return false,
        }
        errands.push(Errand::Go(strand.owner));
        true
    }

    /// From the session to the client; whether something went.
    fn pump_reply(&mut self, cx: &mut Context, errands: &mut Errands) -> bool {
        let strand = Rc::clone(&self.strand);
        let strand = &mut *strand.borrow_mut();
        let (mut moved, mut stalled) = (false, false);
        while matches!(self.reply, Reply::Head) && !strand.outward.is_empty() {
            match self.send_head(strand, cx) {
                Some(true) => moved = true,
                Some(false) => break,
                None => {
                    self.fail();
                    return true;
                }
            }
        }
        if let Reply::Body(send, content) = &mut self.reply {
            let sent = flow::send(send, content, strand);
            moved |= sent.moved;
            stalled = sent.stalled;
            if sent.over {
                self.reply = Reply::Done;
            }
        }
        if flow::makes_room(strand) {
            errands.push(Errand::Go(strand.owner));
        }
        if strand.left && !stalled && !self.is_answered() {
            // Its session went away, and left less than a response.
            self.fail();
            moved = true;
        }
        moved
    }

    /// Tells the client that there will be no answer, or no more of it.
    fn fail(&mut self) {
        self.body = None;
        match std::mem::replace(&mut self.reply, Reply::Done) {
            Reply::Head => self.respond.send_reset(Reason::INTERNAL_ERROR),
            Reply::Body(mut send, _) => send.send_reset(Reason::INTERNAL_ERROR),
            Reply::Done => {}
        }
    }

    /// Sends a head, interim or final. `Some(false)`: it is not all there; `None`: it cannot be sent.
    fn send_head(&mut self, strand: &mut Strand, cx: &mut Context) -> Option<bool> {
        let text = &strand.outward;
        let Some(read) = head::response(text, self.to_head, &OWN, &mut cx.fields).ok()? else {
            return Some(false);
        };
        let message = message::response(text, &read, &cx.fields)?;
        strand.outward.drain(..read.len);
        if (100..200).contains(&read.status) {
            self.respond.send_informational(message).ok()?;
            return Some(true);
        }
        let content = Content::new(read.framing);
        let ends = content.is_done();
        let send = self.respond.send_response(message, ends).ok()?;
        self.reply = if ends {
            Reply::Done
        } else {
            Reply::Body(send, content)
        };
        Some(true)
    }
}
