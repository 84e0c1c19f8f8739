//! Implements an HTTP/2 connection to a server. It carries the requests of many sessions, each over a [`StreamPipe`].
//!
//! A session connects, writes and reads HTTP/1.1 as if it had a separate connection. If the connection fails or the
//! server accepts no more streams, the pipes close like connections, and each session applies its own retry rules.

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
use super::transfer::{self, ReceiveResult, context};
use super::{Action, Actions};
use crate::context::{Context, Readiness, token};
use crate::plan::Target;
use crate::slab::Key;
use crate::socket;
use crate::tls::{ErrorOrigin, Handshake, describe_error};
use crate::transport::Transport;
use crate::wheel::Deadline;

/// Maximum number of concurrent requests on one connection. For more requests, another connection is opened.
const MAX_STREAMS: usize = 100;
/// The stream limit that `h2` reports before the server's SETTINGS frame. No server can send this value.
const LIMIT_UNKNOWN: usize = usize::MAX - 1;
const STREAM_WINDOW: u32 = 64 << 10;
const CONNECTION_WINDOW: u32 = 1 << 20;
const SEND_BUFFER: usize = 64 << 10;
const MAX_ROUNDS: usize = 4;
/// Parser limits for heads that Weir itself has written.
const HEAD_LIMITS: HeadLimits = HeadLimits {
    connect: false,
    underscores: Underscores::Keep,
    head: 256 << 10,
    target: 256 << 10,
    fields: 4_000,
};

type H2Handshake =
    Pin<Box<dyn Future<Output = Result<(SendRequest<Bytes>, Connection), h2::Error>>>>;
type Connection = client::Connection<IoHandle, Bytes>;

enum State {
    Connecting,
    H2Handshake(H2Handshake),
    Open(SendRequest<Bytes>, Box<Connection>),
}

/// A request in progress.
struct Stream {
    pipe: Rc<RefCell<StreamPipe>>,
    phase: Phase,
}

enum Phase {
    /// The head is not complete, or the server currently accepts no more streams.
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
    /// Number of requests added to the connection so far.
    started: u32,
    target: Arc<Target>,
    port: u16,
    /// Whether the connection accepts no further streams.
    is_closing: bool,
    /// Maximum number of concurrent streams; see [`H2ClientConn::allowed_streams`].
    stream_limit: Option<usize>,
    /// Whether requests were added before the limit was known.
    has_waiting_requests: bool,
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
    /// Creates a connection over a transport that is connecting. It is closed after `idle_ms` without streams.
    pub(crate) fn new(transport: Transport, target: &Arc<Target>, port: u16, idle_ms: u64) -> Self {
        Self {
            io: ConnIo::new(transport, Readiness::default(), &[], Vec::new(), None),
            state: State::Connecting,
            streams: Vec::new(),
            started: 0,
            target: Arc::clone(target),
            port,
            is_closing: false,
            stream_limit: None,
            has_waiting_requests: false,
            idle_ms,
            deadline: Deadline::default(),
        }
    }

    pub(crate) const fn ready(&mut self) -> &mut Readiness {
        &mut self.io.ready
    }

    /// Closes the connection if its server was removed with `on_remove = "reset"`.
    pub(crate) fn close_if_removed(&self) {
        if self.target.load.closes_connections()
            && let Some(socket) = self.io.transport.socket()
        {
            socket::shut_down(socket);
        }
    }

    /// Registers the socket with epoll.
    pub(crate) fn watch(&self, epoll: &OwnedFd, token: u64) -> rustix::io::Result<()> {
        self.io.transport.watch(epoll, token)
    }

    /// Returns whether the connection is to this server and port.
    pub(crate) fn is_connected_to(&self, target: &Target, port: u16) -> bool {
        self.target.id == target.id && self.port == port
    }

    /// Returns whether the connection accepts another request. `default_limit` applies until the server has sent its
    /// limit.
    pub(crate) fn has_room(&self, default_limit: usize) -> bool {
        !self.is_closing && self.streams.len() < self.stream_limit.unwrap_or(default_limit)
    }

    /// Returns the number of concurrent streams that the server allows, at most [`MAX_STREAMS`]; `None` until its
    /// SETTINGS frame is received.
    pub(crate) const fn allowed_streams(&self) -> Option<usize> {
        self.stream_limit
    }

    /// Returns the number of requests that may wait for a new connection, given the `limit` of other
    /// connections to the server. A limit of 0 does not apply to a new connection.
    pub(crate) const fn default_limit(limit: Option<usize>) -> usize {
        match limit {
            Some(0) | None => MAX_STREAMS,
            Some(max) => max,
        }
    }

    /// Returns the state of a new stream's pipe. Requests wait until the server has sent its limit: a request that was
    /// already written could not move to another connection if this one turned out to accept no streams.
    pub(crate) const fn pipe_state(&self) -> PipeState {
        match self.stream_limit {
            Some(_) => PipeState::Open,
            None => PipeState::Connecting,
        }
    }

    /// Returns whether the connection uses TLS.
    pub(crate) fn is_secure(&self) -> bool {
        self.io.transport.is_secure()
    }

    /// Adds a request. The connection accepts `max` requests in total; 0 = unlimited.
    pub(crate) fn add_request(&mut self, pipe: Rc<RefCell<StreamPipe>>, max: u32) {
        self.started = self.started.saturating_add(1);
        self.is_closing |= max != 0 && self.started >= max;
        self.has_waiting_requests |= self.stream_limit.is_none();
        self.streams.push(Stream {
            pipe,
            phase: Phase::Head,
        });
    }

    /// Reads, processes and writes in up to [`MAX_ROUNDS`] rounds without blocking. Returns whether the connection
    /// stays open.
    pub(crate) fn drive(&mut self, key: Key, cx: &mut Context, actions: &mut Actions) -> bool {
        let was_busy = !self.streams.is_empty();
        for round in 0..MAX_ROUNDS {
            if !self.io.flush() || !self.open() {
                return self.close(actions);
            }
            if matches!(self.state, State::Connecting) {
                break;
            }
            let has_input = self.io.receive(&mut cx.scratch, cx.now);
            if !self.poll() {
                return self.close(actions);
            }
            self.start_waiting_requests(actions);
            let moved = self.pump(cx, actions);
            if moved && !self.poll() {
                return self.close(actions);
            }
            if !self.io.flush() {
                return self.close(actions);
            }
            if !has_input && !moved {
                break;
            }
            if round + 1 == MAX_ROUNDS {
                cx.wakeups
                    .borrow_mut()
                    .push(token::pack(token::H2_CLIENT, key));
            }
        }
        self.streams
            .retain(|stream| !matches!(stream.phase, Phase::Closed));
        if self.streams.is_empty() {
            let is_unused =
                self.target.load.is_withdrawn() && !matches!(self.state, State::Connecting);
            if self.is_closing || cx.draining || is_unused || self.stream_limit == Some(0) {
                return self.close(actions);
            }
            if was_busy {
                cx.h2_client_wheel
                    .set(&mut self.deadline, key, cx.now + self.idle_ms);
            }
        }
        true
    }

    /// Handles an expired deadline. Returns whether the connection stays open.
    pub(crate) fn expire(&mut self, key: Key, cx: &mut Context, actions: &mut Actions) -> bool {
        if self.streams.is_empty() || self.stream_limit.is_none() {
            return self.close(actions);
        }
        cx.h2_client_wheel
            .set(&mut self.deadline, key, cx.now + self.idle_ms);
        true
    }

    /// Continues the TCP and TLS handshakes, and starts HTTP/2 when they are complete. Returns whether the connection
    /// stays open.
    fn open(&mut self) -> bool {
        if !matches!(self.state, State::Connecting) {
            return true;
        }
        let ConnIo {
            transport, ready, ..
        } = &mut self.io;
        if !ready.writable && !ready.read_closed {
            return true;
        }
        if ready.broken || !transport.is_connected() {
            return false;
        }
        match transport.handshake(ready) {
            Handshake::Pending => return true,
            Handshake::Failed => {
                if let Some(error) = transport.error() {
                    let server = &self.target.name;
                    let error = describe_error(error, ErrorOrigin::Server);
                    tracing::warn!(server, error, "TLS handshake with a server failed");
                }
                return false;
            }
            Handshake::Done => {}
        }
        if transport.is_secure() && transport.protocol() != Some(b"h2") {
            let server = &self.target.name;
            tracing::warn!(server, "the server does not support HTTP/2");
            return false;
        }
        let mut builder = client::Builder::new();
        builder
            .initial_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .max_send_buffer_size(SEND_BUFFER)
            .initial_max_send_streams(LIMIT_UNKNOWN)
            .enable_push(false);
        self.state = State::H2Handshake(Box::pin(builder.handshake(self.io.handle())));
        true
    }

    /// Starts as many of the waiting requests as the server allows. The others use another connection.
    fn start_waiting_requests(&mut self, actions: &mut Actions) {
        let Some(stream_limit) = self.stream_limit else {
            return;
        };
        if stream_limit > 0 && !std::mem::take(&mut self.has_waiting_requests) {
            return;
        }
        let mut used_streams = 0;
        for stream in &mut self.streams {
            let pipe = &mut *stream.pipe.borrow_mut();
            // If the server lowers its limit to 0, a request that h2 has not started would wait forever.
            let is_stuck = stream_limit == 0 && matches!(stream.phase, Phase::Head);
            let is_waiting = pipe.state == PipeState::Connecting;
            if pipe.detached || !(is_waiting || is_stuck) {
                used_streams += usize::from(!pipe.detached);
                continue;
            }
            if is_waiting && used_streams < stream_limit {
                used_streams += 1;
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
        if let State::H2Handshake(handshake) = &mut self.state {
            match handshake.as_mut().poll(&mut context()) {
                Poll::Pending => return !self.io.is_read_closed(),
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
        self.stream_limit = match connection.max_concurrent_send_streams() {
            LIMIT_UNKNOWN => None,
            max => Some(max.min(MAX_STREAMS)),
        };
        continues
    }

    /// Moves bytes between streams and sessions. Returns whether there are new frames to send.
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
                    Poll::Ready(Ok(())) => moved |= stream.send_head(pipe, send, secure, cx),
                    // The server has sent GOAWAY, or the connection has failed. Requests that were not started use
                    // another connection.
                    Poll::Ready(Err(_)) => {
                        self.is_closing = true;
                        stream.phase = Phase::Closed;
                        pipe.state = PipeState::Closed;
                        actions.push(Action::Close(pipe.owner));
                        continue;
                    }
                }
            }
            moved |= stream.transfer_content(pipe, actions);
        }
        moved
    }

    /// Closes all streams and the connection. Always returns false: the connection does not stay open.
    pub(crate) fn close(&mut self, actions: &mut Actions) -> bool {
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
        self.io.transport.notify_close();
        false
    }
}

impl Stream {
    /// Resets the stream of a session that has ended. Returns whether there are new frames to send.
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

    /// Sends the head if it is complete. Returns whether there are new frames to send.
    fn send_head(
        &mut self,
        pipe: &mut StreamPipe,
        send: &mut SendRequest<Bytes>,
        secure: bool,
        cx: &mut Context,
    ) -> bool {
        let text = &pipe.outbound;
        let parsed = match head::parse_request(text, &HEAD_LIMITS, &mut cx.fields) {
            Ok(Some(parsed)) => parsed,
            Ok(None) => {
                pipe.raise_outbound_max_for_head();
                return false;
            }
            Err(_) => {
                self.phase = Phase::Closed;
                pipe.state = PipeState::Closed;
                return false;
            }
        };
        let message = message::convert_request(text, &parsed, &cx.fields, secure);
        pipe.remove_head(parsed.len);
        let content = Content::new(parsed.framing);
        let ends = content.is_done();
        let result = message.and_then(|message| send.send_request(message, ends).ok());
        let Some((response, stream)) = result else {
            self.phase = Phase::Closed;
            pipe.state = PipeState::Closed;
            return false;
        };
        self.phase = Phase::Exchange {
            send: (!ends).then_some((stream, content)),
            response: Some(response),
            body: None,
            to_head: parsed.method == Method::Head,
        };
        true
    }

    /// Sends request content and receives the response. Returns whether there are new frames to send.
    fn transfer_content(&mut self, pipe: &mut StreamPipe, actions: &mut Actions) -> bool {
        let Phase::Exchange {
            send,
            response,
            body,
            to_head,
        } = &mut self.phase
        else {
            if pipe.state == PipeState::Closed {
                actions.push(Action::Close(pipe.owner));
            } else if pipe.take_room_event() {
                actions.push(Action::Resume(pipe.owner));
            }
            return false;
        };
        let mut moved = false;
        if let Some((stream, content)) = send {
            let sent = transfer::send(stream, content, pipe);
            moved |= sent.sent_any;
            if sent.is_finished {
                *send = None;
            }
        }
        if pipe.take_room_event() {
            actions.push(Action::Resume(pipe.owner));
        }
        let mut failed = false;
        if let Some(future) = response {
            while let Poll::Ready(Some(Ok(interim))) = future.poll_informational(&mut context()) {
                let (parts, ()) = interim.into_parts();
                message::write_response(&parts, true, true, pipe.inbound());
                actions.push(Action::Resume(pipe.owner));
            }
            match Pin::new(future).poll(&mut context()) {
                Poll::Pending => {}
                Poll::Ready(Err(_)) => failed = true,
                Poll::Ready(Ok(received)) => {
                    let (parts, content) = received.into_parts();
                    let is_end = content.is_end_stream();
                    let coding = message::write_response(&parts, is_end, *to_head, pipe.inbound());
                    pipe.inbound_ended = is_end;
                    *response = None;
                    *body = (!is_end).then_some((content, coding));
                    actions.push(Action::Resume(pipe.owner));
                }
            }
        }
        if let Some((content, coding)) = body {
            match transfer::receive(content, *coding, pipe) {
                ReceiveResult::Nothing => {}
                ReceiveResult::Broken => failed = true,
                received => {
                    moved = true;
                    if received == ReceiveResult::All {
                        *body = None;
                    }
                    actions.push(Action::Resume(pipe.owner));
                }
            }
        }
        if failed {
            self.phase = Phase::Closed;
            pipe.state = PipeState::Closed;
            actions.push(Action::Close(pipe.owner));
        } else if send.is_none() && response.is_none() && body.is_none() {
            self.phase = Phase::Closed;
        }
        moved
    }
}
