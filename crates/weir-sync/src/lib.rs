//! Flow synchronization between directors, without I/O: time, datagrams and random bytes are arguments.
//!
//! Two directors exchange datagrams over UDP. Every datagram is encrypted and authenticated (`seal`) with a key that
//! is derived from the shared secret and from the sender's session. It contains items (`item`); a receiver skips
//! items, options and trailing bytes that it does not know, so directors of different versions understand each other.
//!
//! **Freshness.** Each side draws a challenge for each peer and announces it in its hellos. Datagrams carry the
//! receiver's challenge, so that nothing recorded before the receiver started is accepted. Within a session, sequence
//! numbers and a window detect replays; a session that was replaced is never accepted again.
//!
//! **Delivery.** A [`Session`] queues numbers of flow table entries, not records: a record is made when it is sent, and
//! is never out of date. Datagrams with flows are acknowledged. The entries of a lost one are queued again. When a peer
//! joins, returns, or its queue overflows, the whole table is sent.

#![warn(missing_docs)]

mod item;
mod record;
mod replay;
mod seal;
mod session;

pub use record::{Kind, Record, ServiceId};
pub use seal::{Key, MAX_DATAGRAM, Seed};
pub use session::{Counts, Ignored, PeerState, Session, Source, Status};

/// Decodes the items of an opened datagram; for fuzzing. Returns the number of records.
pub fn decode_items(body: &[u8]) -> usize {
    item::items(body)
        .filter(|item| matches!(item, item::Item::Flow(_)))
        .count()
}
