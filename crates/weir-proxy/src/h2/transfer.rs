//! Moves request and response content between an HTTP/2 stream and its pipe, no faster than the receiver accepts it.

use std::task::{self, Poll, Waker};

use bytes::Bytes;
use h2::{RecvStream, SendStream};

use super::message::{self, Coding, Content};
use super::stream_pipe::StreamPipe;

/// Returns a task context with a waker that does nothing, because connections are polled explicitly.
pub(super) fn context() -> task::Context<'static> {
    task::Context::from_waker(Waker::noop())
}

/// Result of receiving content from a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ReceiveResult {
    /// Nothing was received.
    Nothing,
    /// Content was received, and more may follow.
    Some,
    /// The content is complete.
    All,
    /// The peer has reset the stream, or the connection failed.
    Broken,
}

/// Receives content from the stream into its pipe while the pipe has room.
pub(super) fn receive(
    body: &mut RecvStream,
    coding: Coding,
    pipe: &mut StreamPipe,
) -> ReceiveResult {
    let mut received = ReceiveResult::Nothing;
    while pipe.has_room() {
        match body.poll_data(&mut context()) {
            Poll::Pending => break,
            Poll::Ready(Some(Ok(data))) => {
                message::write_content(coding, &data, pipe.inbound());
                // The pipe limits the buffered bytes, so the window is released immediately. This fails for a closed
                // stream, which needs no window.
                let _ = body.flow_control().release_capacity(data.len());
                received = ReceiveResult::Some;
            }
            Poll::Ready(Some(Err(_))) => return ReceiveResult::Broken,
            Poll::Ready(None) => match body.poll_trailers(&mut context()) {
                Poll::Pending => break,
                Poll::Ready(Ok(trailers)) => {
                    message::write_end(coding, trailers.as_ref(), pipe.inbound());
                    pipe.inbound_ended = true;
                    return ReceiveResult::All;
                }
                Poll::Ready(Err(_)) => return ReceiveResult::Broken,
            },
        }
    }
    received
}

/// Receives and discards content that is no longer needed. Adds its length to `count`. Returns
/// [`ReceiveResult::Nothing`] if more content may arrive, and [`ReceiveResult::Some`] when `count` exceeds `max`.
pub(super) fn discard(body: &mut RecvStream, count: &mut usize, max: usize) -> ReceiveResult {
    while *count <= max {
        match body.poll_data(&mut context()) {
            Poll::Pending => return ReceiveResult::Nothing,
            Poll::Ready(Some(Ok(data))) => {
                *count += data.len();
                // See `receive`.
                let _ = body.flow_control().release_capacity(data.len());
            }
            Poll::Ready(Some(Err(_))) => return ReceiveResult::Broken,
            Poll::Ready(None) => return ReceiveResult::All,
        }
    }
    ReceiveResult::Some
}

/// The result of sending content from a pipe.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct SendResult {
    /// Whether anything was sent.
    pub(super) sent_any: bool,
    /// Whether the stream has no capacity: the peer's flow control window or the send buffer is used up.
    pub(super) is_stalled: bool,
    /// Whether the content has been sent completely, or cannot be sent.
    pub(super) is_finished: bool,
}

/// Sends content from the pipe to its stream.
pub(super) fn send(
    stream: &mut SendStream<Bytes>,
    content: &mut Content,
    pipe: &mut StreamPipe,
) -> SendResult {
    let mut result = SendResult::default();
    while !result.is_finished && (!pipe.outbound.is_empty() || pipe.outbound_ended) {
        stream.reserve_capacity(pipe.outbound.len().max(1));
        let room = stream.capacity();
        if room == 0 && !pipe.outbound.is_empty() {
            result.is_stalled = true;
            break;
        }
        pipe.raise_outbound_max();
        let length_before = pipe.outbound.len();
        let Some(piece) = content.take(&mut pipe.outbound, room, pipe.outbound_ended) else {
            // Chunk framing may have been consumed without content.
            if pipe.outbound.len() < length_before {
                continue;
            }
            break;
        };
        result.sent_any = true;
        let is_end = piece.last && piece.trailers.is_none();
        let mut is_sent = true;
        if !piece.content.is_empty() || is_end {
            is_sent = stream.send_data(piece.content, is_end).is_ok();
        }
        if let Some(trailers) = piece.trailers {
            is_sent &= stream.send_trailers(trailers).is_ok();
        }
        result.is_finished = piece.last || !is_sent;
    }
    result
}
