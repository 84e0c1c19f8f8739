//! Counts of servers and services over their whole life.

use serde::{Deserialize, Serialize};

/// Totals that survive restart, crash, reload and upgrade.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Totals {
    /// Flows ever bound to a server.
    pub connections: u64,
    /// Flows sent by hash without an entry.
    pub stateless: u64,
    /// From clients.
    pub packets_in: u64,
    /// To clients, where replies pass here (nat).
    pub packets_out: u64,
    /// Bytes of IP packets from clients.
    pub bytes_in: u64,
    /// Bytes of IP packets to clients, where replies pass here.
    pub bytes_out: u64,
}

impl Totals {
    /// The sum of both.
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
