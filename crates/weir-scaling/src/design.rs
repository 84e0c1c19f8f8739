//! Defines how directors select the server for a packet: without state, or with a flow table.

use serde::Serialize;

/// How directors select servers, which determines whether a connection keeps its server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Design {
    /// `hash mod N` over the usable servers, stateless: `numgen` and `jhash` of nftables.
    Modulo,
    /// A Maglev table, stateless.
    Maglev,
    /// A Maglev table; each director stores its own flows: katran, and Weir without `[sync]`.
    FlowTable,
    /// GLB: a table with two servers per row, stateless. A server forwards packets of unknown flows to the second
    /// server of the row.
    Glb,
    /// Like `FlowTable`, but directors share their flows: Weir with `[sync]`.
    Sync,
    /// Like `FlowTable`, but a server forwards packets of unknown flows to the server that the previous version of the
    /// table selects: Weir with `tunnel` and `second_hop`.
    SecondHop,
}

impl Design {
    /// All designs, in the order of the result tables.
    pub const ALL: [Self; 6] = [
        Self::Modulo,
        Self::Maglev,
        Self::FlowTable,
        Self::Glb,
        Self::Sync,
        Self::SecondHop,
    ];

    /// Returns the design's name in result tables.
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

    /// Returns whether a director stores the flows that it forwards.
    pub(crate) const fn has_flow_table(self) -> bool {
        match self {
            Self::FlowTable | Self::Sync | Self::SecondHop => true,
            Self::Modulo | Self::Maglev | Self::Glb => false,
        }
    }
}
