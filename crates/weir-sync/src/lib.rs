//! Implements flow synchronization between directors without I/O: time, datagrams and random bytes are arguments.
//!
//! Two directors exchange datagrams over UDP. Every datagram is encrypted and authenticated (`seal`) with a key derived
//! from the shared secret and the sender's session. A datagram contains items (`item`). A receiver skips unknown items,
//! options and trailing bytes, so directors of different versions are compatible.
//!
//! **Freshness.** Each side generates a challenge for each peer and sends it in its hellos. Datagrams carry the
//! receiver's challenge, so the receiver rejects those that were recorded before it started. Within a session, sequence
//! numbers and a window detect replays; a session that has been replaced is never accepted again.
//!
//! **Delivery.** A [`Session`] queues indexes of flow table entries, not records: a record is built when it is sent, so
//! it is never out of date. Datagrams with flows are acknowledged. The entries of a lost datagram are queued again.
//! When a peer joins or returns, or its queue overflows, the whole table is sent.
//!
//! **Proxied connections.** A director also sends the list of the connections that its proxy holds (`connection`), but
//! only to peers whose hellos contain this feature: a previous version would not acknowledge these datagrams.

#![warn(missing_docs)]

mod connection;
mod item;
#[cfg(test)]
mod previous_build;
mod record;
mod replay;
mod seal;
mod session;

pub use connection::{Change, Connection, ConnectionTable, MAX_CONNECTIONS};
pub use record::{Kind, Record, ServiceId};
pub use seal::{Key, MAX_DATAGRAM, Seed};
pub use session::{Counts, IgnoreReason, PeerState, Session, Source, Status};

/// Decodes the items in a decrypted datagram, for fuzzing. Returns the number of records.
pub fn decode_items(body: &[u8]) -> usize {
    item::items(body)
        .filter(|item| matches!(item, item::Item::Flow(_)))
        .count()
}
