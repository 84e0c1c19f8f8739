//! HTTP/2 on both sides of the proxy: the `h2` crate's connections, polled by hand, translated stream by stream to the
//! HTTP/1 that sessions speak.
//!
//! A session knows nothing of it: its transport is a strand. So routes, balancing, retries, limits and whatever else is
//! done to requests is the same for both versions, and another framer would replace these files alone.

mod back;
mod block;
mod census;
mod fields;
mod flow;
mod front;
mod huffman;
mod line;
mod message;
mod replay;
mod reset;
mod strand;
mod stream;
mod upgrade;
mod websocket;
mod wire;

pub(crate) use back::Back;
pub(crate) use front::{Begun, Former, Front};
pub(crate) use replay::read_frames;
pub(crate) use reset::Resets;
pub(crate) use strand::{Bell, Owner, Strand, StrandEnd, StrandState};
pub(crate) use upgrade::{SWITCHING, first_stream};

/// What a connection wants done by the worker, who has the sessions.
#[derive(Debug)]
pub(crate) enum Errand {
    /// A stream is to be served, unless it has ended in the same turn: a session for it would ask a server for a
    /// response that no client waits for, and no later event would end that session.
    Serve(Begun),
    /// Octets came for it, or were taken from it.
    Go(Owner),
    /// Its stream is over.
    Over(Owner),
}

pub(crate) type Errands = Vec<Errand>;

/// The client's first octets where it knows beforehand that HTTP/2 is spoken (RFC 9113 section 3.4), as far as they
/// look like a head.
pub(crate) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\n";
