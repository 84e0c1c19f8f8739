//! `[sync]`: flow synchronization with other directors.

use std::net::SocketAddr;

use crate::Secret;

/// `[sync]`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct FlowSync {
    /// Address and port to receive on, and to send from.
    pub listen: SocketAddr,
    /// The other directors, each at its `listen`. At least one, all of the family of `listen`.
    pub peers: Vec<SocketAddr>,
    /// The key that all directors share.
    pub key: Secret,
}

impl FlowSync {
    /// Smallest length of the key in bytes.
    pub const KEY_MIN: usize = 16;
}
