//! Drives a client's HTTP/2 connection for fuzzing without sockets or sessions: bytes in, requests out.
//!
//! See [`fuzzing`](crate::fuzzing).

use std::cell::RefCell;
use std::pin::Pin;
use std::rc::Rc;
use std::task::Poll;

use bytes::Bytes;
use h2::server::{self, Connection};
use weir_http::{HeadLimits, head};

use super::field_filter::FieldFilter;
use super::frame_counter::FrameCounter;
use super::io_buffer::{IoBuffer, IoHandle};
use super::message;
use super::transfer::context;

/// Feeds the input in portions. Every resulting request must be exactly one HTTP/1.1 head: anything after the head
/// would be a smuggled request.
pub(crate) fn read_frames(input: &[u8], portion: usize) {
    let buffer = Rc::new(RefCell::new(IoBuffer::default()));
    let mut handshake = server::Builder::new()
        .max_concurrent_streams(16)
        .max_header_list_size(16 << 10)
        .enable_connect_protocol()
        .handshake::<_, Bytes>(IoHandle(Rc::clone(&buffer)));
    let mut connection = None;
    let mut counter = FrameCounter::new();
    let mut filter = FieldFilter::new();
    let mut streams = Vec::new();
    for piece in input.chunks(portion) {
        counter.count_received(piece);
        let _ = counter.check_flood(0);
        filter.pass(piece, |bytes| buffer.borrow_mut().put(bytes));
        if connection.is_none() {
            match Pin::new(&mut handshake).poll(&mut context()) {
                Poll::Pending => continue,
                Poll::Ready(Err(_)) => return,
                Poll::Ready(Ok(open)) => connection = Some(open),
            }
        }
        if connection
            .as_mut()
            .is_some_and(|open| !accept(open, &mut streams))
        {
            return;
        }
        let mut buffer = buffer.borrow_mut();
        counter.count_sent(&buffer.outbox);
        buffer.outbox.clear();
    }
}

/// Accepts new streams. Returns whether the connection stays open.
fn accept(
    connection: &mut Connection<IoHandle, Bytes>,
    streams: &mut Vec<(h2::RecvStream, server::SendResponse<Bytes>)>,
) -> bool {
    loop {
        match connection.poll_accept(&mut context()) {
            Poll::Pending => return true,
            Poll::Ready(Some(Ok((request, respond)))) => {
                let (parts, body) = request.into_parts();
                let mut text = Vec::new();
                let _ = message::write_request(&parts, body.is_end_stream(), &mut text);
                assert_single_head(&text);
                streams.push((body, respond));
            }
            Poll::Ready(Some(Err(_)) | None) => return false,
        }
    }
}

/// Panics if bytes follow the first head. Ignores invalid and incomplete text.
fn assert_single_head(text: &[u8]) {
    let limits = HeadLimits {
        head: text.len() + 1,
        target: text.len() + 1,
        fields: text.len() + 1,
        connect: true,
        underscores: weir_model::Underscores::Keep,
    };
    if let Ok(Some(request)) = head::parse_request(text, &limits, &mut Vec::new()) {
        assert_eq!(request.len, text.len(), "bytes follow the head");
    }
}
