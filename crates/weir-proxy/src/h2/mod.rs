//! HTTP/2 on both sides of the proxy: the `h2` crate's connections, polled by hand, translated stream by stream to the
//! HTTP/1 that sessions speak.
//!
//! A session knows nothing of it: its transport is a pipe. So routes, balancing, retries, limits and whatever else is
//! done to requests is the same for both versions, and another framer would replace these files alone.

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

/// What a connection wants done by the worker, who has the sessions.
#[derive(Debug)]
pub(crate) enum Action {
    /// A stream is to be served, unless it has ended in the same turn: a session for it would ask a server for a
    /// response that no client waits for, and no later event would end that session.
    Serve(NewStream),
    /// Bytes came for it, or were taken from it.
    Resume(Owner),
    /// Its stream is over.
    Close(Owner),
}

pub(crate) type Actions = Vec<Action>;

/// The client's first bytes where it knows beforehand that HTTP/2 is spoken (RFC 9113 section 3.4), as far as they
/// look like a head.
pub(crate) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\n";
