//! Implements an HTTP/2 connection from a client. An HTTP/1.1 session serves each stream over a [`StreamPipe`].
//!
//! The `h2` crate does framing, header compression and flow control; the worker polls it explicitly over memory
//! buffers. A slow client causes backpressure on the server: each stream buffers at most one pipe and the client's flow
//! control window.

use std::cell::RefCell;
use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use h2::server::{self, SendResponse};
use h2::{Reason, RecvStream};
use http::Request;

use super::conn_io::ConnIo;
use super::frame_counter::FrameCounter;
use super::io_buffer::IoHandle;
use super::reset_limit::Verdict;
use super::stream::Stream;
use super::stream_pipe::{PipeState, StreamPipe};
use super::transfer::context;
use super::{Action, Actions};
use crate::context::{Context, LINGER_BATCH_MS, LocalService, Readiness, token};
use crate::plan::Detail;
use crate::plan::TimeoutsMs;
use crate::slab::Key;
use crate::socket;
use crate::tls::TlsDetails;
use crate::transport::Transport;
use crate::wheel::Deadline;

/// Receive windows of a stream and of the connection: how many bytes a client may send that no pipe has accepted yet.
const STREAM_WINDOW: u32 = 64 << 10;
const CONNECTION_WINDOW: u32 = 1 << 20;
/// Maximum number of bytes per stream that wait for the socket.
const SEND_BUFFER: usize = 64 << 10;
/// Maximum number of read and write rounds before other connections are served.
const MAX_ROUNDS: usize = 4;
/// Number of resets after which the connection is closed with ENHANCE_YOUR_CALM, as a multiple of the stream limit, and
/// number of resets per second by which the count decreases. A browser that navigates away from a page resets all of
/// its streams once.
const RESET_FACTOR: u64 = 2;
const RESET_DECAY_PER_S: u64 = 20;
/// Time for a client to react to GOAWAY, in milliseconds.
const GOAWAY_TIMEOUT_MS: u64 = 2_000;
type Connection = server::Connection<IoHandle, Bytes>;

enum State {
    H2Handshake(Box<server::Handshake<IoHandle, Bytes>>),
    Open(Box<Connection>),
    Closed,
}

impl std::fmt::Debug for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::H2Handshake(_) => "H2Handshake",
            Self::Open(_) => "Open",
            Self::Closed => "Closed",
        })
    }
}

/// An HTTP/2 connection from a client.
pub(crate) struct H2ServerConn {
    io: ConnIo,
    watched: bool,
    state: State,
    streams: Vec<Stream>,
    pub(crate) local: Rc<LocalService>,
    peer: SocketAddr,
    port: u16,
    destination: Option<SocketAddr>,
    /// Details of the client's TLS connection.
    tls: Option<Rc<TlsDetails>>,
    pub(crate) deadline: Deadline,
    /// When reading resumes after a pause.
    pub(crate) resume_deadline: Deadline,
    /// Whether the socket is registered without read events, because reading is paused.
    reading_suspended: bool,
    /// Whether the socket is registered for write events.
    send_buffer_watched: bool,
    resets: u64,
    decayed_at: u64,
    is_closing: bool,
}

impl std::fmt::Debug for H2ServerConn {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("H2ServerConn")
            .field("state", &self.state)
            .field("streams", &self.streams.len())
            .finish_non_exhaustive()
    }
}

/// The state that an HTTP/2 connection takes over from the session that accepted the client.
#[derive(Debug)]
pub(crate) struct Upgrade {
    pub(crate) transport: Transport,
    pub(crate) ready: Readiness,
    pub(crate) watched: bool,
    /// HEADERS frame for the request that was upgraded to h2c; empty = none.
    pub(crate) first_frame: Vec<u8>,
    /// Bytes that were read from the client but not processed.
    pub(crate) input: Vec<u8>,
    pub(crate) peer: SocketAddr,
    pub(crate) port: u16,
    /// The address that the client connected to, if known.
    pub(crate) destination: Option<SocketAddr>,
    pub(crate) local: Rc<LocalService>,
}

/// A new stream, for which the worker starts a session.
#[derive(Debug)]
pub(crate) struct NewStream {
    pub(crate) pipe: Rc<RefCell<StreamPipe>>,
    pub(crate) peer: SocketAddr,
    pub(crate) port: u16,
    pub(crate) destination: Option<SocketAddr>,
    pub(crate) tls: Option<Rc<TlsDetails>>,
    pub(crate) local: Rc<LocalService>,
}

impl H2ServerConn {
    pub(crate) fn new(upgrade: Upgrade) -> Self {
        let counter = Some(FrameCounter::new());
        let tls = upgrade.transport.tls_details().map(Rc::new);
        let io = ConnIo::new(
            upgrade.transport,
            upgrade.ready,
            &upgrade.input,
            upgrade.first_frame,
            counter,
        );
        let service = &upgrade.local.service;
        let head = u32::try_from(service.head.head).unwrap_or(u32::MAX);
        let handshake = server::Builder::new()
            .max_concurrent_streams(service.max_streams)
            .initial_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .max_send_buffer_size(SEND_BUFFER)
            .max_header_list_size(head)
            .enable_connect_protocol()
            .max_concurrent_reset_streams(service.max_streams as usize)
            // A browser that navigates away from a page may reset all of its streams in one read. Resets beyond that
            // are counted.
            .max_pending_accept_reset_streams(service.max_streams as usize)
            .reset_stream_duration(Duration::from_secs(5))
            .handshake(io.handle());
        Self {
            io,
            watched: upgrade.watched,
            state: State::H2Handshake(Box::new(handshake)),
            streams: Vec::new(),
            local: upgrade.local,
            peer: upgrade.peer,
            port: upgrade.port,
            destination: upgrade.destination,
            tls,
            deadline: Deadline::default(),
            resume_deadline: Deadline::default(),
            reading_suspended: false,
            send_buffer_watched: false,
            resets: 0,
            decayed_at: 0,
            is_closing: false,
        }
    }

    pub(crate) const fn ready(&mut self) -> &mut Readiness {
        &mut self.io.ready
    }

    /// Returns whether a socket event has no effect now, because reading is paused and there is nothing to send.
    pub(crate) fn ignores_events(&self, now_ms: u64) -> bool {
        let open = !matches!(self.state, State::Closed);
        open && self.io.paused_until(now_ms).is_some() && self.io.is_flushed()
    }

    /// Registers the socket and drives the connection for the first time. Returns whether the connection stays open.
    pub(crate) fn begin(&mut self, key: Key, cx: &mut Context, actions: &mut Actions) -> bool {
        let token = token::pack(token::H2_SERVER, key);
        let transport = &self.io.transport;
        self.send_buffer_watched = self.watched || !self.io.ready.writable;
        let result = match (self.watched, self.send_buffer_watched) {
            (true, _) => transport.rewatch(&cx.epoll, token),
            (false, true) => transport.watch(&cx.epoll, token),
            (false, false) => transport.watch_reading(&cx.epoll, token),
        };
        if result.is_err() {
            return false;
        }
        let ms = self.timeouts().request;
        cx.h2_server_wheel.set(&mut self.deadline, key, cx.now + ms);
        self.drive(key, cx, actions)
    }

    /// Returns the address that the client connected to. The system call is deferred to the first stream, because many
    /// connections in a flood never open one.
    fn local_address(&mut self) -> Option<SocketAddr> {
        let transport = &self.io.transport;
        let local_address = || socket::local_address(transport.socket()?);
        self.destination = self.destination.or_else(local_address);
        self.destination
    }

    fn timeouts(&self) -> TimeoutsMs {
        self.local.service.timeouts
    }

    /// Counts the frames that were processed since the last call.
    fn count_frames(&mut self, cx: &Context) {
        let counts = self.io.take_counts();
        let details = self.local.service.details.of(cx.worker);
        for (detail, frames) in [
            (Detail::H2Headers, counts.headers),
            (Detail::H2Data, counts.data),
            (Detail::H2Settings, counts.settings),
            (Detail::H2Goaways, counts.goaways),
            (Detail::H2GoawaysSent, counts.goaways_sent),
        ] {
            if frames > 0 {
                details.of(detail).add(frames);
            }
        }
    }

    /// Reads, processes and writes in up to [`MAX_ROUNDS`] rounds without blocking. Returns whether the connection
    /// stays open.
    pub(crate) fn drive(&mut self, key: Key, cx: &mut Context, actions: &mut Actions) -> bool {
        let is_open = self.drive_rounds(key, cx, actions) && self.watch_send_buffer(key, cx);
        self.count_frames(cx);
        is_open
    }

    /// Enables write events once the socket's send buffer is full: short connections never need them. Returns false if
    /// that fails.
    fn watch_send_buffer(&mut self, key: Key, cx: &Context) -> bool {
        if self.send_buffer_watched || self.io.is_flushed() {
            return true;
        }
        let token = token::pack(token::H2_SERVER, key);
        self.send_buffer_watched = self.io.transport.rewatch(&cx.epoll, token).is_ok();
        self.send_buffer_watched
    }

    fn drive_rounds(&mut self, key: Key, cx: &mut Context, actions: &mut Actions) -> bool {
        if matches!(self.state, State::Closed) {
            return self.io.flush() && self.io.discard(&mut cx.scratch);
        }
        self.resume_reading(key, cx);
        let streams_before = self.streams.len();
        for round in 0..MAX_ROUNDS {
            if !self.io.flush() {
                return self.close(actions);
            }
            let received = self.io.receive(&mut cx.scratch, cx.now);
            if self.io.check_flood(cx.now) {
                self.close_for_abuse();
            }
            if !self.poll(key, cx, actions) {
                return self.linger(key, cx, actions);
            }
            let moved = self.pump(cx, received, actions);
            // Convert the streams' output to frames.
            if moved && !self.poll(key, cx, actions) {
                return self.linger(key, cx, actions);
            }
            if !self.io.flush() {
                return self.close(actions);
            }
            if !received && !moved {
                break;
            }
            if round + 1 == MAX_ROUNDS {
                cx.wakeups
                    .borrow_mut()
                    .push(token::pack(token::H2_SERVER, key));
            }
        }
        if let Some(resume_at) = self.io.paused_until(cx.now) {
            cx.resume_wheel
                .set(&mut self.resume_deadline, key, resume_at);
            self.suspend_reading(key, cx);
        }
        self.send_goaway_if_needed(key, cx);
        if self.streams.is_empty() && streams_before > 0 && !self.is_closing {
            let ms = self.timeouts().idle;
            cx.h2_server_wheel.set(&mut self.deadline, key, cx.now + ms);
        }
        true
    }

    /// Disables read events during a pause. If that fails, each event is ignored instead.
    fn suspend_reading(&mut self, key: Key, cx: &Context) {
        if !self.reading_suspended {
            let token = token::pack(token::H2_SERVER, key);
            let transport = &self.io.transport;
            self.reading_suspended = transport.suspend_reading(&cx.epoll, token).is_ok();
            self.send_buffer_watched |= self.reading_suspended;
        }
    }

    /// Enables read events after a pause.
    fn resume_reading(&mut self, key: Key, cx: &Context) {
        if self.reading_suspended && self.io.paused_until(cx.now).is_none() {
            let token = token::pack(token::H2_SERVER, key);
            // Data that arrived during the pause is reported immediately.
            let result = self.io.transport.rewatch(&cx.epoll, token);
            self.reading_suspended = result.is_err();
            self.send_buffer_watched |= result.is_ok();
        }
    }

    /// Handles an expired deadline. Returns whether the connection stays open.
    pub(crate) fn expire(&mut self, key: Key, cx: &mut Context, actions: &mut Actions) -> bool {
        if self.is_closing || matches!(self.state, State::H2Handshake(_)) {
            return self.close(actions);
        }
        // Drop streams whose response is done although the client has not sent the rest of the request.
        self.streams.retain(|stream| !stream.is_response_done());
        if !self.streams.is_empty() {
            // Each stream has a session with its own deadlines.
            let ms = self.timeouts().idle;
            cx.h2_server_wheel.set(&mut self.deadline, key, cx.now + ms);
            return true;
        }
        self.send_goaway(key, cx);
        self.drive(key, cx, actions)
    }

    /// Returns when the last stream ended, if the connection may be closed to make room for others.
    pub(crate) fn idle_since(&self) -> Option<u64> {
        let idle =
            matches!(self.state, State::Open(_)) && self.streams.is_empty() && !self.is_closing;
        let ms = self.timeouts().idle;
        idle.then(|| self.deadline.at_ms.saturating_sub(ms))
    }

    /// Closes an idle connection. GOAWAY reports that streams opened by the client in the meantime were not processed.
    pub(crate) fn shed(&mut self, key: Key, cx: &mut Context, actions: &mut Actions) -> bool {
        if let State::Open(connection) = &mut self.state {
            connection.abrupt_shutdown(Reason::NO_ERROR);
        }
        self.poll(key, cx, actions);
        // This does not block if the socket's buffer is full.
        self.io.flush();
        self.close(actions)
    }

    /// Sends GOAWAY if the service was removed or the worker is draining.
    fn send_goaway_if_needed(&mut self, key: Key, cx: &mut Context) {
        if (cx.draining || self.local.is_removed) && !self.is_closing {
            self.send_goaway(key, cx);
            cx.wakeups
                .borrow_mut()
                .push(token::pack(token::H2_SERVER, key));
        }
    }

    fn send_goaway(&mut self, key: Key, cx: &mut Context) {
        self.is_closing = true;
        if let State::Open(connection) = &mut self.state {
            connection.graceful_shutdown();
        }
        let ms = if self.streams.is_empty() {
            GOAWAY_TIMEOUT_MS
        } else {
            self.timeouts().server.max(GOAWAY_TIMEOUT_MS)
        };
        cx.h2_server_wheel.set(&mut self.deadline, key, cx.now + ms);
    }

    /// Polls the connection, which reads and writes frames, and accepts new streams. Returns whether it stays open.
    fn poll(&mut self, key: Key, cx: &mut Context, actions: &mut Actions) -> bool {
        if let State::H2Handshake(handshake) = &mut self.state {
            match Pin::new(&mut **handshake).poll(&mut context()) {
                Poll::Pending => return !self.io.is_read_closed(),
                Poll::Ready(Err(error)) => {
                    if !error.is_io() {
                        let service = &self.local.service;
                        service.detail(cx.worker, Detail::H2Errors).add(1);
                    }
                    return false;
                }
                Poll::Ready(Ok(connection)) => self.state = State::Open(Box::new(connection)),
            }
            if self.verdict_for(cx) == Verdict::Blocked {
                self.close_for_abuse();
            }
            let ms = self.timeouts().idle;
            cx.h2_server_wheel.set(&mut self.deadline, key, cx.now + ms);
        }
        loop {
            let State::Open(connection) = &mut self.state else {
                return false;
            };
            match connection.poll_accept(&mut context()) {
                Poll::Pending => return true,
                Poll::Ready(Some(Ok((request, respond)))) => {
                    self.accept(key, cx, request, respond, actions);
                }
                Poll::Ready(Some(Err(error))) => {
                    // Other errors come from the socket, or are deliberate closes by Weir.
                    if error.reason() == Some(Reason::PROTOCOL_ERROR) || error.is_library() {
                        let service = &self.local.service;
                        service.detail(cx.worker, Detail::H2Errors).add(1);
                    }
                    return false;
                }
                Poll::Ready(None) => return false,
            }
        }
    }

    fn accept(
        &mut self,
        key: Key,
        cx: &mut Context,
        request: Request<RecvStream>,
        mut respond: SendResponse<Bytes>,
        actions: &mut Actions,
    ) {
        if respond.poll_reset(&mut context()).is_ready() {
            return self.count_resets(1, cx);
        }
        match self.verdict_for(cx) {
            Verdict::Served => {}
            Verdict::Refused => {
                respond.send_reset(Reason::REFUSED_STREAM);
                let service = &self.local.service;
                service.counters.of(cx.worker).refused.add(1);
                // A refused stream costs the client as much as a reset one, but costs the service nothing.
                return self.count_connection_resets(1, cx.now);
            }
            Verdict::Blocked => return self.close_for_abuse(),
        }
        let token = token::pack(token::H2_SERVER, key);
        let secure = self.io.transport.is_secure();
        let pipe = StreamPipe::new(&cx.wakeups, token, secure, PipeState::Open);
        let Some(stream) = Stream::begin(request, respond, pipe, &mut cx.random) else {
            return;
        };
        actions.push(Action::Serve(NewStream {
            pipe: stream.pipe(),
            peer: self.peer,
            port: self.port,
            destination: self.local_address(),
            tls: self.tls.clone(),
            local: Rc::clone(&self.local),
        }));
        self.streams.push(stream);
    }

    /// Moves bytes between streams and sessions. Returns whether there are new frames to send.
    fn pump(&mut self, cx: &mut Context, received: bool, actions: &mut Actions) -> bool {
        let mut moved = false;
        let mut index = 0;
        let mut reset_count = 0;
        while let Some(stream) = self.streams.get_mut(index) {
            let was_reset = (received && stream.is_reset()) || !stream.pump_request(actions);
            let was_response_done = stream.is_response_done();
            reset_count += u64::from(was_reset && !was_response_done);
            if !was_response_done {
                moved |= stream.pump_response(cx, actions);
                if stream.is_response_done() {
                    stream.release(actions);
                }
            }
            if was_reset || stream.is_finished() {
                self.streams.swap_remove(index).release(actions);
                moved = true;
            } else {
                index += 1;
            }
        }
        // Counts resets caused by client errors, including those of streams that were never accepted here
        // (CVE-2025-8671).
        reset_count += self.io.take_client_error_resets();
        if reset_count > 0 {
            self.count_resets(reset_count, cx);
            moved = true;
        }
        moved
    }

    /// Returns whether the peer is a trusted proxy, which forwards the resets of many clients.
    fn is_trusted(&self) -> bool {
        let trusted = &self.local.service.trusted;
        trusted
            .iter()
            .any(|network| network.contains(self.peer.ip()))
    }

    fn verdict_for(&self, cx: &Context) -> Verdict {
        match &self.local.service.reset_limit {
            Some(resets) if resets.is_alert(cx.now) => {
                resets.verdict_for(self.peer.ip(), self.is_trusted(), cx.now)
            }
            _ => Verdict::Served,
        }
    }

    /// Counts resets: opening and resetting streams is cheap for a client and expensive for servers (CVE-2023-44487).
    fn count_resets(&mut self, count: u64, cx: &Context) {
        let service = &self.local.service;
        service.counters.of(cx.worker).resets.add(count);
        let exceeds_limit = service
            .reset_limit
            .as_ref()
            .is_some_and(|resets| resets.count(self.peer.ip(), self.is_trusted(), count, cx.now));
        if exceeds_limit {
            self.close_for_abuse();
        }
        self.count_connection_resets(count, cx.now);
    }

    /// Counts resets on this connection.
    fn count_connection_resets(&mut self, count: u64, now: u64) {
        let decay = now.saturating_sub(self.decayed_at) * RESET_DECAY_PER_S / 1_000;
        if decay > 0 {
            self.resets = self.resets.saturating_sub(decay);
            self.decayed_at = now;
        }
        self.resets += count;
        if self.resets > RESET_FACTOR * u64::from(self.local.service.max_streams) {
            self.close_for_abuse();
        }
    }

    /// Closes the connection with ENHANCE_YOUR_CALM.
    fn close_for_abuse(&mut self) {
        if let State::Open(connection) = &mut self.state {
            connection.abrupt_shutdown(Reason::ENHANCE_YOUR_CALM);
        }
    }

    /// Sends the last frames, and then discards input until the client closes the connection. Closing it with unread
    /// input would reset it and discard these frames. Returns whether the connection stays open.
    fn linger(&mut self, key: Key, cx: &mut Context, actions: &mut Actions) -> bool {
        let is_usable = self.io.flush_and_finish();
        self.close(actions);
        if !is_usable {
            return false;
        }
        cx.h2_server_wheel
            .set(&mut self.deadline, key, cx.now + GOAWAY_TIMEOUT_MS);
        self.is_closing = true;
        let is_open = self.io.discard(&mut cx.scratch);
        if is_open && self.io.is_flushed() && cx.has_room_for_lingering() {
            // Most clients close immediately. Checking for this at the worker's next wake-up, whatever its cause, saves
            // one wake-up per connection when clients open connections only to violate the protocol.
            self.io.transport.unwatch(&cx.epoll);
            cx.lingering.push((key, cx.now + LINGER_BATCH_MS));
        }
        is_open
    }

    /// Continues to linger. From the time `until` (milliseconds on the worker clock), the socket is registered with
    /// epoll again. Returns whether the connection stays open.
    pub(crate) fn continue_linger(&mut self, key: Key, until: u64, cx: &mut Context) -> bool {
        self.io.ready.readable = true;
        if !self.io.discard(&mut cx.scratch) {
            return false;
        }
        if cx.now < until {
            cx.lingering.push((key, until));
            return true;
        }
        let token = token::pack(token::H2_SERVER, key);
        self.send_buffer_watched = self.io.transport.watch(&cx.epoll, token).is_ok();
        self.send_buffer_watched
    }

    /// Closes all streams and the connection. Always returns false: the connection does not stay open.
    pub(crate) fn close(&mut self, actions: &mut Actions) -> bool {
        for stream in self.streams.drain(..) {
            stream.release(actions);
        }
        self.state = State::Closed;
        self.io.transport.notify_close();
        false
    }
}
