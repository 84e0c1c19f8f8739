//! HTTP/2 connection to a server. It carries the requests of many sessions as streams, each over a [`StreamPipe`].
//!
//! A session connects, writes and reads HTTP/1.1, as on a connection of its own. If the connection fails or the server
//! accepts no more streams, the pipes close like connections, and sessions retry by their own rules.

use std::cell::RefCell;
use std::future::Future;
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;

use bytes::Bytes;
use h2::client::{self, ResponseFuture, SendRequest};
use h2::{Reason, RecvStream, SendStream};
use weir_http::{HeadLimits, Method, head};
use weir_model::Underscores;

use super::conn_io::ConnIo;
use super::io_buffer::IoHandle;
use super::message::{self, Coding, Content};
use super::stream_pipe::{PipeState, StreamPipe};
use super::transfer::{self, Received, context};
use super::{Action, Actions};
use crate::context::{Context, Ready, token};
use crate::plan::Target;
use crate::slab::Key;
use crate::socket;
use crate::tls::{Handshake, Peer, describe_error};
use crate::transport::Transport;
use crate::wheel::Deadline;

/// Concurrent requests on one connection, if the server allows as many; more open another one.
const STREAMS: usize = 100;
/// The stream limit that `h2` reports before the server's SETTINGS frame; no server can send this value.
const UNSETTLED: usize = usize::MAX - 1;
const STREAM_WINDOW: u32 = 64 << 10;
const CONNECTION_WINDOW: u32 = 1 << 20;
const SEND_BUFFER: usize = 64 << 10;
const ROUNDS: usize = 4;
/// Limits for heads that Weir itself has written.
const OWN: HeadLimits = HeadLimits {
    connect: false,
    underscores: Underscores::Keep,
    head: 256 << 10,
    target: 256 << 10,
    fields: 4_000,
};

type Greeting = Pin<Box<dyn Future<Output = Result<(SendRequest<Bytes>, Connection), h2::Error>>>>;
type Connection = client::Connection<IoHandle, Bytes>;

enum State {
    Connecting,
    Greeting(Greeting),
    Open(SendRequest<Bytes>, Box<Connection>),
}

/// A request in progress.
struct Stream {
    pipe: Rc<RefCell<StreamPipe>>,
    phase: Phase,
}

enum Phase {
    /// The head is not complete, or the server accepts no more streams now.
    Head,
    Exchange {
        send: Option<(SendStream<Bytes>, Content)>,
        response: Option<ResponseFuture>,
        body: Option<(RecvStream, Coding)>,
        to_head: bool,
    },
    Closed,
}

/// An HTTP/2 connection to a server.
pub(crate) struct H2ClientConn {
    io: ConnIo,
    state: State,
    streams: Vec<Stream>,
    /// Number of streams since the connection was opened.
    started: u32,
    target: Arc<Target>,
    port: u16,
    /// It accepts no further streams.
    closing: bool,
    /// Concurrent streams; see [`H2ClientConn::allowed`].
    allowed: Option<usize>,
    /// Some requests were added before the limit was known.
    waiting: bool,
    idle_ms: u64,
    pub(crate) deadline: Deadline,
}

impl std::fmt::Debug for H2ClientConn {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("H2ClientConn")
            .field("target", &self.target.name)
            .field("streams", &self.streams.len())
            .finish_non_exhaustive()
    }
}

impl H2ClientConn {
    /// A connection over a transport that is connecting; it is closed after `idle_ms` without streams.
    pub(crate) fn new(transport: Transport, target: &Arc<Target>, port: u16, idle_ms: u64) -> Self {
        Self {
            io: ConnIo::new(transport, Ready::default(), &[], Vec::new(), None),
            state: State::Connecting,
            streams: Vec::new(),
            started: 0,
            target: Arc::clone(target),
            port,
            closing: false,
            allowed: None,
            waiting: false,
            idle_ms,
            deadline: Deadline::default(),
        }
    }

    pub(crate) const fn ready(&mut self) -> &mut Ready {
        &mut self.io.ready
    }

    /// Ends the connection if its server was removed with `on_remove = "reset"`.
    pub(crate) fn end_removed(&self) {
        if self.target.load.ends()
            && let Some(socket) = self.io.transport.socket()
        {
            socket::end(socket);
        }
    }

    /// Registers its socket.
    pub(crate) fn watch(&self, epoll: &OwnedFd, token: u64) -> rustix::io::Result<()> {
        self.io.transport.watch(epoll, token)
    }

    /// Whether it is a connection to this server and port.
    pub(crate) fn leads_to(&self, target: &Target, port: u16) -> bool {
        self.target.id == target.id && self.port == port
    }

    /// Whether it accepts another request; `usual` is the number that the server allows on other connections.
    pub(crate) fn has_room(&self, usual: usize) -> bool {
        !self.closing && self.streams.len() < self.allowed.unwrap_or(usual)
    }

    /// Concurrent streams that the server allows, at most [`STREAMS`]; `None` before its SETTINGS frame was received.
    pub(crate) const fn allowed(&self) -> Option<usize> {
        self.allowed
    }

    /// How many requests may wait for a new connection, given the limit `known` from other connections to the server. A
    /// known limit of 0 does not apply to a new connection.
    pub(crate) const fn usual(known: Option<usize>) -> usize {
        match known {
            Some(0) | None => STREAMS,
            Some(most) => most,
        }
    }

    /// State of a new stream's pipe. Requests wait until the server has sent its limit: a request that was written to a
    /// connection that accepts no streams could not be sent to another one.
    pub(crate) const fn pipe_state(&self) -> PipeState {
        match self.allowed {
            Some(_) => PipeState::Open,
            None => PipeState::Connecting,
        }
    }

    /// Whether the connection uses TLS.
    pub(crate) fn is_secure(&self) -> bool {
        self.io.transport.is_secure()
    }

    /// Adds a request. The connection accepts `most` of them in total; 0 = unlimited.
    pub(crate) fn add(&mut self, pipe: Rc<RefCell<StreamPipe>>, most: u32) {
        self.started = self.started.saturating_add(1);
        self.closing |= most != 0 && self.started >= most;
        self.waiting |= self.allowed.is_none();
        self.streams.push(Stream {
            pipe,
            phase: Phase::Head,
        });
    }

    /// Reads, processes and writes as much as possible without blocking. Returns whether the connection stays open.
    pub(crate) fn drive(&mut self, key: Key, cx: &mut Context, actions: &mut Actions) -> bool {
        let busy = !self.streams.is_empty();
        for round in 0..ROUNDS {
            if !self.io.flush() || !self.open() {
                return self.end(actions);
            }
            if matches!(self.state, State::Connecting) {
                break;
            }
            let has_input = self.io.take_in(&mut cx.scratch, cx.now);
            if !self.poll() {
                return self.end(actions);
            }
            self.admit(actions);
            let moved = self.pump(cx, actions);
            if moved && !self.poll() {
                return self.end(actions);
            }
            if !self.io.flush() {
                return self.end(actions);
            }
            if !has_input && !moved {
                break;
            }
            if round + 1 == ROUNDS {
                cx.wakeups
                    .borrow_mut()
                    .push(token::of(token::H2_CLIENT, key));
            }
        }
        self.streams
            .retain(|stream| !matches!(stream.phase, Phase::Closed));
        if self.streams.is_empty() {
            let unused =
                self.target.load.is_withdrawn() && !matches!(self.state, State::Connecting);
            if self.closing || cx.draining || unused || self.allowed == Some(0) {
                return self.end(actions);
            }
            if busy {
                cx.h2_client_wheel
                    .set(&mut self.deadline, key, cx.now + self.idle_ms);
            }
        }
        true
    }

    /// Handles an expired deadline. Returns whether the connection stays open.
    pub(crate) fn expire(&mut self, key: Key, cx: &mut Context, actions: &mut Actions) -> bool {
        if self.streams.is_empty() || self.allowed.is_none() {
            return self.end(actions);
        }
        cx.h2_client_wheel
            .set(&mut self.deadline, key, cx.now + self.idle_ms);
        true
    }

    /// Completes the TCP and TLS handshakes and starts HTTP/2. Returns whether the connection stays open.
    fn open(&mut self) -> bool {
        if !matches!(self.state, State::Connecting) {
            return true;
        }
        let ConnIo {
            transport, ready, ..
        } = &mut self.io;
        if !ready.writable && !ready.ended {
            return true;
        }
        if ready.broken || !transport.is_connected() {
            return false;
        }
        match transport.handshake(ready) {
            Handshake::Waits => return true,
            Handshake::Failed => {
                if let Some(error) = transport.error() {
                    let server = &self.target.name;
                    let error = describe_error(error, Peer::Server);
                    tracing::warn!(server, error, "TLS handshake with a server failed");
                }
                return false;
            }
            Handshake::Done => {}
        }
        if transport.is_secure() && transport.protocol() != Some(b"h2") {
            let server = &self.target.name;
            tracing::warn!(server, "the server does not speak HTTP/2");
            return false;
        }
        let mut builder = client::Builder::new();
        builder
            .initial_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .max_send_buffer_size(SEND_BUFFER)
            .initial_max_send_streams(UNSETTLED)
            .enable_push(false);
        self.state = State::Greeting(Box::pin(builder.handshake(self.io.end())));
        true
    }

    /// Starts as many of the waiting requests as the server allows; the others are sent over another connection.
    fn admit(&mut self, actions: &mut Actions) {
        let Some(allowed) = self.allowed else {
            return;
        };
        if allowed > 0 && !std::mem::take(&mut self.waiting) {
            return;
        }
        let mut taken = 0;
        for stream in &mut self.streams {
            let pipe = &mut *stream.pipe.borrow_mut();
            // A request that h2 has not started when the server lowers its limit to 0 would wait for ever.
            let stuck = allowed == 0 && matches!(stream.phase, Phase::Head);
            let waits = pipe.state == PipeState::Connecting;
            if pipe.detached || !(waits || stuck) {
                taken += usize::from(!pipe.detached);
                continue;
            }
            if waits && taken < allowed {
                taken += 1;
                pipe.state = PipeState::Open;
                actions.push(Action::Resume(pipe.owner));
                continue;
            }
            stream.phase = Phase::Closed;
            pipe.state = PipeState::Refused;
            actions.push(Action::Close(pipe.owner));
        }
    }

    /// Polls the connection, which reads and writes frames. Returns whether it stays open.
    fn poll(&mut self) -> bool {
        if let State::Greeting(greeting) = &mut self.state {
            match greeting.as_mut().poll(&mut context()) {
                Poll::Pending => return !self.io.is_ended(),
                Poll::Ready(Err(_)) => return false,
                Poll::Ready(Ok((send, connection))) => {
                    self.state = State::Open(send, Box::new(connection));
                }
            }
        }
        let State::Open(_, connection) = &mut self.state else {
            return false;
        };
        let continues = Pin::new(&mut **connection)
            .poll(&mut context())
            .is_pending();
        self.allowed = match connection.max_concurrent_send_streams() {
            UNSETTLED => None,
            most => Some(most.min(STREAMS)),
        };
        continues
    }

    /// Moves bytes between streams and sessions. Returns whether the connection has something new to send.
    fn pump(&mut self, cx: &mut Context, actions: &mut Actions) -> bool {
        let State::Open(send, _) = &mut self.state else {
            return false;
        };
        let secure = self.io.transport.is_secure();
        let mut moved = false;
        for stream in &mut self.streams {
            let pipe = Rc::clone(&stream.pipe);
            let pipe = &mut *pipe.borrow_mut();
            if pipe.detached {
                moved |= stream.cancel();
                continue;
            }
            if matches!(stream.phase, Phase::Head) && !pipe.outbound.is_empty() {
                match send.poll_ready(&mut context()) {
                    Poll::Pending => continue,
                    Poll::Ready(Ok(())) => moved |= stream.begin(pipe, send, secure, cx),
                    // The server has sent GOAWAY. Requests that were not started use another connection.
                    Poll::Ready(Err(_)) => {
                        self.closing = true;
                        stream.phase = Phase::Closed;
                        pipe.state = PipeState::Closed;
                        actions.push(Action::Close(pipe.owner));
                        continue;
                    }
                }
            }
            moved |= stream.go_on(pipe, actions);
        }
        moved
    }

    /// Closes all streams and the connection.
    pub(crate) fn end(&mut self, actions: &mut Actions) -> bool {
        for stream in self.streams.drain(..) {
            let pipe = &mut *stream.pipe.borrow_mut();
            if pipe.state == PipeState::Refused {
                continue;
            }
            pipe.state = PipeState::Closed;
            if !pipe.detached {
                actions.push(Action::Close(pipe.owner));
            }
        }
        self.io.flush();
        self.io.transport.part();
        false
    }
}

impl Stream {
    /// Resets the stream, whose session has ended. Returns whether the connection has something new to send.
    fn cancel(&mut self) -> bool {
        let phase = std::mem::replace(&mut self.phase, Phase::Closed);
        match phase {
            Phase::Exchange {
                send: Some((mut send, _)),
                ..
            } => {
                send.send_reset(Reason::CANCEL);
                true
            }
            Phase::Exchange { .. } => true,
            Phase::Head | Phase::Closed => false,
        }
    }

    /// Sends the head if it is complete. Returns whether the connection has something new to send.
    fn begin(
        &mut self,
        pipe: &mut StreamPipe,
        send: &mut SendRequest<Bytes>,
        secure: bool,
        cx: &mut Context,
    ) -> bool {
        let text = &pipe.outbound;
        let read = match head::request(text, &OWN, &mut cx.fields) {
            Ok(Some(read)) => read,
            Ok(None) => {
                pipe.await_head();
                return false;
            }
            Err(_) => {
                self.phase = Phase::Closed;
                pipe.state = PipeState::Closed;
                return false;
            }
        };
        let message = message::request(text, &read, &cx.fields, secure);
        pipe.take_head(read.len);
        let content = Content::new(read.framing);
        let ends = content.is_done();
        let sent = message.and_then(|message| send.send_request(message, ends).ok());
        let Some((response, stream)) = sent else {
            self.phase = Phase::Closed;
            pipe.state = PipeState::Closed;
            return false;
        };
        self.phase = Phase::Exchange {
            send: (!ends).then_some((stream, content)),
            response: Some(response),
            body: None,
            to_head: read.method == Method::Head,
        };
        true
    }

    /// Sends request content and receives the response. Returns whether the connection has something new to send.
    fn go_on(&mut self, pipe: &mut StreamPipe, actions: &mut Actions) -> bool {
        let Phase::Exchange {
            send,
            response,
            body,
            to_head,
        } = &mut self.phase
        else {
            if pipe.state == PipeState::Closed {
                actions.push(Action::Close(pipe.owner));
            } else if pipe.makes_room() {
                actions.push(Action::Resume(pipe.owner));
            }
            return false;
        };
        let mut moved = false;
        if let Some((stream, content)) = send {
            let sent = transfer::send(stream, content, pipe);
            moved |= sent.moved;
            if sent.over {
                *send = None;
            }
        }
        if pipe.makes_room() {
            actions.push(Action::Resume(pipe.owner));
        }
        let mut broken = false;
        if let Some(future) = response {
            while let Poll::Ready(Some(Ok(interim))) = future.poll_informational(&mut context()) {
                let (parts, ()) = interim.into_parts();
                message::write_response(&parts, true, true, pipe.inbound());
                actions.push(Action::Resume(pipe.owner));
            }
            match Pin::new(future).poll(&mut context()) {
                Poll::Pending => {}
                Poll::Ready(Err(_)) => broken = true,
                Poll::Ready(Ok(answer)) => {
                    let (parts, content) = answer.into_parts();
                    let ended = content.is_end_stream();
                    let coding = message::write_response(&parts, ended, *to_head, pipe.inbound());
                    pipe.inbound_ended = ended;
                    *response = None;
                    *body = (!ended).then_some((content, coding));
                    actions.push(Action::Resume(pipe.owner));
                }
            }
        }
        if let Some((content, coding)) = body {
            match transfer::receive(content, *coding, pipe) {
                Received::Nothing => {}
                Received::Broken => broken = true,
                received => {
                    moved = true;
                    if received == Received::All {
                        *body = None;
                    }
                    actions.push(Action::Resume(pipe.owner));
                }
            }
        }
        if broken {
            self.phase = Phase::Closed;
            pipe.state = PipeState::Closed;
            actions.push(Action::Close(pipe.owner));
        } else if send.is_none() && response.is_none() && body.is_none() {
            self.phase = Phase::Closed;
        }
        moved
    }
}
