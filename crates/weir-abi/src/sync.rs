//! Defines the map entries of flow synchronization: rings of changed flows, and batches of flows that a peer has sent.

use crate::mirror::{constants, structs};
use crate::{Addr, Be16};

constants! {
    /// Number of rings.
    SYNC_RINGS: u32 = 8;
    /// Number of slots of a ring.
    SYNC_RING_SLOTS: u32 = 16_384;
    /// Number of rows of `weir_sync_batch`.
    SYNC_BATCH: u32 = 256;
    /// [`SyncFlow::result`]: the flow did not exist on this director and was inserted.
    SYNC_INSERTED: u8 = 1;
    /// [`SyncFlow::result`]: the flow existed and was updated.
    SYNC_UPDATED: u8 = 2;
    /// [`SyncFlow::result`]: this director has received a packet of the flow more recently than the peer's record
    /// indicates.
    SYNC_OLDER: u8 = 3;
    /// [`SyncFlow::result`]: a different live flow has the same tag or reverse tuple.
    SYNC_CONFLICT: u8 = 4;
    /// [`SyncFlow::result`]: no slot is free.
    SYNC_FULL: u8 = 5;
    /// [`SyncFlow::result`]: a lock could not be acquired.
    SYNC_BUSY: u8 = 6;
    /// [`SyncFlow::result`]: the server row is no longer in use, or does not match the flow.
    SYNC_GONE: u8 = 7;
}

structs! {
    /// `weir_sync_rings`: entry indexes of flows whose state has changed.
    SyncRing = "weir_sync_ring", 131136 {
        /// Next position in the ring.
        head: u64,
        /// Zero.
        pad: [u64; 7],
        /// Low 32 bits: the entry index; high 32 bits: the low 32 bits of 1 + the position.
        slots: [u64; SYNC_RING_SLOTS as usize],
    }

    /// `weir_sync_batch`: a flow or template from a peer, with the row numbers of this director.
    SyncFlow = "weir_sync_flow", 104 {
        /// Source of the client's packets; for a template, the client's network.
        src: Addr,
        /// Destination of these packets.
        dst: Addr,
        /// With snat, the source address toward the server.
        snat: Addr,
        /// Source port.
        sport: Be16,
        /// Destination port.
        dport: Be16,
        /// Source port toward the server, 0 = without snat.
        snat_port: Be16,
        /// IP protocol number; for a template, the value in its cold record.
        proto: u8,
        /// IP version: 4 or 6.
        family: u8,
        /// `KIND_FORWARD` or `KIND_TEMPLATE`.
        kind: u8,
        /// `State`.
        state: u8,
        /// UDP: whether the flow is counted as active.
        active: u8,
        /// `SYNC_*`, written by the program.
        result: u8,
        /// Server row.
        dest: u32,
        /// Generation of the server row.
        dest_generation: u32,
        /// Service row.
        service: u32,
        /// Number of ticks since the flow's last packet.
        idle: u32,
        /// Number of ticks since the flow started.
        age: u32,
        /// For a template, its timeout in ticks.
        timeout: u32,
        /// Device toward the client, used for replies without a route; 0 = unknown.
        ifindex: u32,
        /// Index of the flow's entry, `NO_INDEX` = none; written by the program.
        entry_index: u32,
        /// Tick of the entry's last packet; written by the program.
        seen: u32,
        /// Zero.
        pad: [u32; 2],
    }
}
