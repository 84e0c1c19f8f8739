//! Defines the totals of servers and services.

use serde::{Deserialize, Serialize};

/// Totals that survive restarts, crashes, reloads and upgrades.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Totals {
    /// Flows assigned to a server.
    pub connections: u64,
    /// Flows forwarded by hash, without a flow table entry.
    pub stateless: u64,
    /// Packets from clients.
    pub packets_in: u64,
    /// Packets to clients, if replies pass through the director (`nat`).
    pub packets_out: u64,
    /// Bytes of IP packets from clients.
    pub bytes_in: u64,
    /// Bytes of IP packets to clients, if replies pass through the director.
    pub bytes_out: u64,
}

impl Totals {
    /// Returns the sum of the two totals.
    #[must_use]
    pub const fn plus(self, other: Self) -> Self {
        Self {
            connections: self.connections.wrapping_add(other.connections),
            stateless: self.stateless.wrapping_add(other.stateless),
            packets_in: self.packets_in.wrapping_add(other.packets_in),
            packets_out: self.packets_out.wrapping_add(other.packets_out),
            bytes_in: self.bytes_in.wrapping_add(other.bytes_in),
            bytes_out: self.bytes_out.wrapping_add(other.bytes_out),
        }
    }
}
