//! Connects one HTTP/2 stream of a client to a session's stream pipe, which carries the request and the response as
//! HTTP/1.1.

use std::cell::RefCell;
use std::rc::Rc;
use std::task::Poll;

use bytes::Bytes;
use h2::ext::Protocol;
use h2::server::SendResponse;
use h2::{Reason, RecvStream, SendStream};
use http::{Request, Response, StatusCode};
use weir_http::{HeadLimits, head};
use weir_model::{SplitMix64, Underscores};

use super::message::{self, Coding, Content};
use super::stream_pipe::{PipeState, StreamPipe};
use super::transfer::{self, ReceiveResult, context};
use super::websocket::{self, AcceptValue};
use super::{Action, Actions};
use crate::context::Context;

/// Maximum number of request bytes that are received and discarded after the response. Some clients (curl 7.88) report
/// an error if the stream is closed while they are still sending, although RFC 9113 section 8.1 allows it.
const MAX_DISCARDED_BYTES: usize = 1 << 20;
/// Limits for heads that the session has already validated.
const HEAD_LIMITS: HeadLimits = HeadLimits {
    connect: false,
    underscores: Underscores::Keep,
    head: 256 << 10,
    target: 0,
    fields: 4_000,
};

/// The state of a response.
enum ResponseState {
    Head,
    Body(SendStream<Bytes>, Content),
    Done,
}

/// A stream on a client's connection.
pub(super) struct Stream {
    pipe: Rc<RefCell<StreamPipe>>,
    /// Request content; `None` once it is complete.
    body: Option<RecvStream>,
    coding: Coding,
    respond: SendResponse<Bytes>,
    response_state: ResponseState,
    is_head_request: bool,
    /// For a WebSocket request: the accept value that the server must return.
    expected_accept: Option<AcceptValue>,
    /// Number of request bytes that were discarded after the response.
    discarded_bytes: usize,
}

impl Stream {
    /// Writes the request into the pipe. Returns `None` if the request was rejected.
    pub(super) fn begin(
        request: Request<RecvStream>,
        mut respond: SendResponse<Bytes>,
        mut pipe: StreamPipe,
        random: &mut SplitMix64,
    ) -> Option<Self> {
        let (parts, body) = request.into_parts();
        let ended = body.is_end_stream();
        let protocol = parts.extensions.get::<Protocol>();
        let (coding, expected_accept) = match protocol.map(Protocol::as_str) {
            None => {
                let coding = message::write_request(&parts, ended, pipe.inbound());
                (coding, None)
            }
            Some(websocket::PROTOCOL) => {
                let nonce = std::array::from_fn(|_| random.next_u32());
                let expected_accept = websocket::write_request(&parts, nonce, pipe.inbound());
                (Coding::Plain, Some(expected_accept))
            }
            Some(_) => {
                // RFC 9220 section 3 recommends 501 for an unknown `:protocol`; RFC 8441 (HTTP/2) specifies no
                // status. An error is ignored: the client has disconnected.
                let mut response = Response::new(());
                *response.status_mut() = StatusCode::NOT_IMPLEMENTED;
                let _ = respond.send_response(response, true);
                return None;
            }
        };
        pipe.inbound_ended = ended;
        Some(Self {
            pipe: Rc::new(RefCell::new(pipe)),
            body: (!ended).then_some(body),
            coding,
            respond,
            response_state: ResponseState::Head,
            is_head_request: parts.method == http::Method::HEAD,
            expected_accept,
            discarded_bytes: 0,
        })
    }

    /// Returns the pipe, for use by the session.
    pub(super) fn pipe(&self) -> Rc<RefCell<StreamPipe>> {
        Rc::clone(&self.pipe)
    }

    /// Returns whether the client reset the stream before the response was complete.
    pub(super) fn is_reset(&mut self) -> bool {
        let polled = match &mut self.response_state {
            ResponseState::Head => self.respond.poll_reset(&mut context()),
            ResponseState::Body(send, _) => send.poll_reset(&mut context()),
            ResponseState::Done => Poll::Pending,
        };
        polled.is_ready()
    }

    /// Returns whether the response is complete or was aborted.
    pub(super) fn is_response_done(&self) -> bool {
        matches!(self.response_state, ResponseState::Done)
    }

    /// Returns whether the stream can be removed: the response is done, and the request is complete or more than
    /// [`MAX_DISCARDED_BYTES`] bytes of it were discarded.
    pub(super) fn is_finished(&self) -> bool {
        self.is_response_done()
            && (self.body.is_none() || self.discarded_bytes > MAX_DISCARDED_BYTES)
    }

    /// Closes the pipe and notifies the session.
    pub(super) fn release(&self, actions: &mut Actions) {
        let pipe = &mut *self.pipe.borrow_mut();
        let was_closed = pipe.state == PipeState::Closed;
        pipe.state = PipeState::Closed;
        if !pipe.detached && !was_closed {
            actions.push(Action::Close(pipe.owner));
        }
    }

    /// Moves request content from the client to the session, or discards it if the response is done. Returns false if
    /// the client has reset the stream or the connection failed.
    pub(super) fn pump_request(&mut self, actions: &mut Actions) -> bool {
        let Some(body) = &mut self.body else {
            return true;
        };
        let pipe = &mut *self.pipe.borrow_mut();
        if matches!(self.response_state, ResponseState::Done) {
            return match transfer::discard(body, &mut self.discarded_bytes, MAX_DISCARDED_BYTES) {
                ReceiveResult::Broken => false,
                ReceiveResult::All => {
                    self.body = None;
                    true
                }
                _ => true,
            };
        }
        match transfer::receive(body, self.coding, pipe) {
            ReceiveResult::Nothing => return true,
            ReceiveResult::Some => {}
            ReceiveResult::All => self.body = None,
            ReceiveResult::Broken => return false,
        }
        actions.push(Action::Resume(pipe.owner));
        true
    }

    /// Moves the response from the session to the client. Returns whether anything was sent, including a reset.
    pub(super) fn pump_response(&mut self, cx: &mut Context, actions: &mut Actions) -> bool {
        let pipe = Rc::clone(&self.pipe);
        let pipe = &mut *pipe.borrow_mut();
        let (mut sent_any, mut stalled) = (false, false);
        while matches!(self.response_state, ResponseState::Head) && !pipe.outbound.is_empty() {
            match self.send_head(pipe, cx) {
                Some(true) => sent_any = true,
                Some(false) => break,
                None => {
                    self.reset();
                    return true;
                }
            }
        }
        if let ResponseState::Body(send, content) = &mut self.response_state {
            let sent = transfer::send(send, content, pipe);
            sent_any |= sent.sent_any;
            stalled = sent.is_stalled;
            if sent.is_finished {
                self.response_state = ResponseState::Done;
            }
        }
        if pipe.take_room_event() {
            actions.push(Action::Resume(pipe.owner));
        }
        if pipe.detached && !stalled && !self.is_response_done() {
            // The session detached before the response was complete.
            self.reset();
            sent_any = true;
        }
        sent_any
    }

    /// Resets the stream unless the response is complete.
    fn reset(&mut self) {
        self.body = None;
        match std::mem::replace(&mut self.response_state, ResponseState::Done) {
            ResponseState::Head => self.respond.send_reset(Reason::INTERNAL_ERROR),
            ResponseState::Body(mut send, _) => send.send_reset(Reason::INTERNAL_ERROR),
            ResponseState::Done => {}
        }
    }

    /// Sends an interim or final response head. Returns `Some(false)` if the head is incomplete, and `None` if it is
    /// invalid or cannot be sent.
    fn send_head(&mut self, pipe: &mut StreamPipe, cx: &mut Context) -> Option<bool> {
        let text = &pipe.outbound;
        let Some(parsed) =
            head::parse_response(text, self.is_head_request, &HEAD_LIMITS, &mut cx.fields).ok()?
        else {
            pipe.raise_outbound_max_for_head();
            return Some(false);
        };
        let message = message::convert_response(text, &parsed, &cx.fields)?;
        pipe.remove_head(parsed.len);
        if let Some(expected_accept) = self.expected_accept.as_ref()
            && (parsed.status == 101 || parsed.status >= 200)
        {
            let (message, is_upgraded) = websocket::translate_response(message, expected_accept);
            let content = match parsed.status {
                _ if is_upgraded => Content::UntilEnd,
                // `translate_response` replaced the invalid response with a 502 without content.
                101..300 => Content::Done,
                _ => Content::new(parsed.framing),
            };
            return self.send_final(message, content);
        }
        if (100..200).contains(&parsed.status) {
            self.respond.send_informational(message).ok()?;
            return Some(true);
        }
        self.send_final(message, Content::new(parsed.framing))
    }

    fn send_final(&mut self, message: Response<()>, content: Content) -> Option<bool> {
        let is_end = content.is_done();
        let send = self.respond.send_response(message, is_end).ok()?;
        self.response_state = if is_end {
            ResponseState::Done
        } else {
            ResponseState::Body(send, content)
        };
        Some(true)
    }
}
