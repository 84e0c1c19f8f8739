//! Implements HTTP/2 with clients and servers: each stream is translated to HTTP/1.1 for a session.
//!
//! The workers poll the `h2` crate's connections themselves. A session does not depend on HTTP/2: its transport is a
//! stream pipe. Routes, balancing, retries and limits are therefore the same for both versions, and replacing the `h2`
//! crate would change only these files.

mod client_conn;
mod conn_io;
mod field_block;
mod field_filter;
mod frame_counter;
mod fuzz;
mod huffman;
mod io_buffer;
mod message;
mod reset_limit;
mod server_conn;
mod stream;
mod stream_pipe;
mod transfer;
mod upgrade;
mod websocket;

pub(crate) use client_conn::H2ClientConn;
pub(crate) use fuzz::read_frames;
pub(crate) use reset_limit::ResetLimit;
pub(crate) use server_conn::{H2ServerConn, NewStream, Upgrade};
pub(crate) use stream_pipe::{Owner, PipeState, StreamPipe, StreamPipeEnd, Wakeups};
pub(crate) use upgrade::{SWITCHING, first_stream};

/// An action on a session that a connection requests from the worker, which owns the sessions.
#[derive(Debug)]
pub(crate) enum Action {
    /// Start a session for a new stream, unless the stream ended in the same poll: its session would request a response
    /// that no client waits for, and no later event would end the session.
    Serve(NewStream),
    /// Continue the owner: it has bytes to read, or room to write.
    Resume(Owner),
    /// Notify the owner that its stream has ended.
    Close(Owner),
}

pub(crate) type Actions = Vec<Action>;

/// The start of the client's connection preface (RFC 9113 section 3.4), up to the end of the part that looks like a
/// request head.
pub(crate) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\n";
