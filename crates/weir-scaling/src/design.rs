//! How a director selects the server of a packet, with and without memory.

use serde::Serialize;

/// A way to balance that keeps, or does not keep, a connection's server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Design {
    /// `hash mod N` over the usable servers, without memory: stateless rules, `numgen`/`jhash` of nftables.
    Modulo,
    /// A Maglev table without memory.
    Maglev,
    /// A Maglev table, and each director remembers its own flows: katran, and Weir without `[sync]`.
    FlowTable,
    /// GLB: a table of two servers per row and no memory at directors. A server passes packets of flows that it does
    /// not know on to the second server of the row.
    Glb,
    /// As `FlowTable`; directors share their flows: Weir with `[sync]`.
    Sync,
    /// As `FlowTable`; a server passes packets of flows that it does not know on to the server that the previous
    /// version of the table selects: Weir with `tunnel` and `second_hop`.
    SecondHop,
}

impl Design {
    /// All, in the order of the tables.
    pub const ALL: [Self; 6] = [
        Self::Modulo,
        Self::Maglev,
        Self::FlowTable,
        Self::Glb,
        Self::Sync,
        Self::SecondHop,
    ];

    /// The name in tables.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Modulo => "hash mod N",
            Self::Maglev => "Maglev",
            Self::FlowTable => "flow table",
            Self::Glb => "GLB",
            Self::Sync => "[sync]",
            Self::SecondHop => "second hop",
        }
    }

    /// Whether a director remembers the flows that it forwards.
    pub(crate) const fn remembers(self) -> bool {
        match self {
            Self::FlowTable | Self::Sync | Self::SecondHop => true,
            Self::Modulo | Self::Maglev | Self::Glb => false,
        }
    }
}
