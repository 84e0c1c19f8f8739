//! Defines the flow table's bucket, entry and cold record, and the fragment map's key and value.
//!
//! This module only packs and unpacks the two words of an entry; weir-flow models their meaning.

use crate::mirror::{constants, numbered, structs};
use crate::server::DEST_BITS;
use crate::{Addr, Be16};

constants! {
    /// Number of entries in a bucket.
    BUCKET_SLOTS: u32 = 7;
    /// Number of bucket pairs in a page of buckets.
    SPILL_PAIRS: u32 = 16;
    /// Number of stash bucket pairs that a home bucket can use.
    STASH_PAIRS: u32 = 8;
    /// Number of buckets per element of `weir_hints`.
    HINTS: u32 = 64;
    /// Row of `weir_marks` for TCP.
    MARKS_TCP: u32 = 0;
    /// Row of `weir_marks` for UDP.
    MARKS_UDP: u32 = 1;
    /// Number of rows in `weir_marks`.
    MARKS_ROWS: u32 = 2;
    /// Number of hash bits that select an untracked mark.
    MARKS_LOG2: u32 = 12;
    /// Position of the 8-bit generation in [`Entry::meta`].
    META_GENERATION_SHIFT: u32 = 56;
    /// Position of the 4-bit kind in [`Entry::meta`].
    META_KIND_SHIFT: u32 = 52;
    /// Position of the 4-bit state in [`Entry::meta`].
    META_STATE_SHIFT: u32 = 48;
    /// Position of the 8 flag bits in [`Entry::meta`].
    META_FLAGS_SHIFT: u32 = 40;
    /// Position of the 32-bit tick of the last packet in [`Entry::meta`].
    META_SEEN_SHIFT: u32 = 8;
    /// Kind of an entry: free.
    KIND_FREE: u8 = 0;
    /// Kind of an entry: its packets go from the client to the VIP.
    KIND_FORWARD: u8 = 1;
    /// Kind of an entry: its packets go from a nat server to the client; the forward entry holds the state and the
    /// counts.
    KIND_REVERSE: u8 = 2;
    /// Bit in the kind of an entry in the old table: set together with another kind, the entry is being moved to the
    /// current table; set alone, the entry has been moved.
    KIND_MOVED: u8 = 8;
    /// Kind of an entry: the entry is a persistence template; its state is [`State::None`], or [`State::Established`]
    /// after one of its TCP flows was established.
    KIND_TEMPLATE: u8 = 3;
    /// Flag of an entry: the entry is not in its home bucket.
    FLOW_AWAY: u8 = 1;
    /// Flag of an entry: the flow is counted as active; otherwise, it is counted as inactive.
    FLOW_ACTIVE: u8 = 2;
    /// Flag of an entry: replies bypass the director, and the one-sided TCP state table applies.
    FLOW_ONESIDED: u8 = 4;
    /// Flag of an entry: the flow belongs to a template.
    FLOW_TEMPLATE: u8 = 8;
    /// Bit in [`FlowCold::proto`], set in templates so that no packet matches their tuples; the other bits are the
    /// protocol, 0 = all.
    PROTO_TEMPLATE: u8 = 0x80;
    /// [`FlowCold::peer`] or [`FlowCold::template`] of a flow that has none.
    NO_INDEX: u32 = 0xffff_ffff;
    /// Bit in a link from the current table: the linked entry is in the old table, from which flows are being moved.
    INDEX_OLD: u32 = 0x8000_0000;
}

numbered! {
    /// `enum weir_state`: IPVS's TCP states in IPVS's order (include/net/ip_vs.h), followed by the only UDP state.
    State: u8 {
        /// Before the first packet.
        None = 0,
        /// The connection is open in both directions.
        Established = 1,
        /// The server sent the first SYN.
        SynSent = 2,
        /// The client sent a SYN.
        SynRecv = 3,
        /// The server sent the first FIN; in a one-sided flow, the client sent a FIN.
        FinWait = 4,
        /// Both sides have closed the connection.
        TimeWait = 5,
        /// The connection was reset.
        Close = 6,
        /// The client sent the first FIN.
        CloseWait = 7,
        /// The server sent a FIN after the client's FIN.
        LastAck = 8,
        /// Not used by Weir.
        Listen = 9,
        /// IPVS enters this state only with SYN defense; Weir never does.
        Synack = 10,
        /// The only state of UDP flows.
        Udp = 11,
    }
}

structs! {
    /// An entry of the flow table.
    Entry = "weir_entry", 16 {
        /// tag:44, dest:20; 0 = free. Written last when the entry is published; cleared after `meta` when it is
        /// removed.
        id: u64,
        /// generation:8 kind:4 state:4 flags:8 seen:32 spare:8, from the most significant bit.
        meta: u64,
    }

    /// `weir_flows`: a bucket of the flow table, two cache lines.
    Bucket = "weir_bucket", 128 {
        /// Lock, held while an entry is inserted or the bucket's hint is updated.
        lock: u32,
        /// Number of this home bucket's entries in each pair of stash buckets: four bits for each of [`STASH_PAIRS`]
        /// pairs.
        stashed: u32,
        /// Number of this home bucket's entries in each pair of other buckets of the page: four bits for each of
        /// [`SPILL_PAIRS`] pairs.
        spilled: u64,
        /// Entries.
        slots: [Entry; BUCKET_SLOTS as usize],
    }

    /// The bucket of flow layout 2, which is frozen. Entries and cold records are the same as in the current layout.
    Bucket2 = "weir_bucket_2", 128 {
        /// As in [`Bucket`].
        lock: u32,
        /// Number of this home bucket's entries in their second bucket.
        spilled: u32,
        /// Zero.
        pad: [u32; 2],
        /// As in [`Bucket`].
        slots: [Entry; BUCKET_SLOTS as usize],
    }

    /// `weir_hints`: [`HINTS`] buckets per element.
    Hints = "weir_hints", 64 {
        /// For each bucket, a bitmap indexed by the low three bits of a tag: a set bit means that the bucket may be the
        /// home of an entry with such a tag.
        tags: [u8; HINTS as usize],
    }

    /// `weir_marks`: one row for TCP, one for UDP.
    Marks = "weir_marks", 16384 {
        /// For each value of the top [`MARKS_LOG2`] bits of the hash, the tick until which flows without an entry can
        /// exist; 0 = none.
        until: [u32; 1 << MARKS_LOG2],
    }

    /// `weir_flows_cold`: the cold record of an entry, at the entry's index (bucket × 7 + slot).
    FlowCold = "weir_flow_cold", 64 {
        /// Source of the flow's packets in this direction.
        src: Addr,
        /// Destination of these packets.
        dst: Addr,
        /// Source port of these packets.
        sport: Be16,
        /// Destination port of these packets.
        dport: Be16,
        /// IP protocol number.
        proto: u8,
        /// Generation of the peer's entry.
        peer_generation: u8,
        /// IP version: 4 or 6.
        family: u8,
        /// Generation of the template's entry.
        template_generation: u8,
        /// With nat: entry index of the other direction, [`NO_INDEX`] = none.
        peer: u32,
        /// Entry index of the flow's template, [`NO_INDEX`] = none.
        template: u32,
        /// Tick at which the flow was created; for a template, the number of its live flows.
        created: u32,
        /// Index into `weir_services`.
        service: u32,
        /// Generation of the dest row when the flow was bound.
        dest_generation: u32,
        /// Ingress device of the flow's first packet, used for replies without a route; for a template, its timeout in
        /// ticks.
        ifindex: u32,
    }

    /// Input and output of the program `weir_move`, passed instead of a packet.
    Move = "weir_move", 16 {
        /// First bucket of the old table.
        position: u32,
        /// Number of buckets.
        count: u32,
        /// Number of flows that were moved to the current table.
        moved: u32,
        /// Number of flows that were lost because no slot was free.
        lost: u32,
    }

    /// Key of `weir_fragments`: a fragmented datagram.
    FragmentKey = "weir_fragment_key", 40 {
        /// Source of the datagram.
        src: Addr,
        /// Destination of the datagram.
        dst: Addr,
        /// Identification, in network byte order.
        id: u32,
        /// IP protocol number.
        proto: u8,
        /// Zero.
        pad: [u8; 3],
    }

    /// Value of `weir_fragments`: how the first fragment was forwarded.
    Fragment = "weir_fragment", 48 {
        /// Zero = unchanged.
        new_src: Addr,
        /// Zero = unchanged.
        new_dst: Addr,
        /// Index into `weir_dests`.
        dest: u32,
        /// Tick of the first fragment.
        tick: u32,
        /// Hash of the flow, which selects the next hop; if `reverse` is set, the flow's ingress ifindex.
        hash: u32,
        /// 1 = the datagram comes from a server.
        reverse: u8,
        /// Zero.
        pad: [u8; 3],
    }
}

impl Bucket {
    /// Returns the number of home buckets in a table of `buckets`; the remaining buckets are the stash.
    ///
    /// A table of one page has no stash: every home bucket can use every other bucket. For larger tables, 1/32 is
    /// sufficient at 90 % load; the square root is added because the pages of small tables are unevenly loaded
    /// (docs/performance.md).
    pub const fn home_count(buckets: u32) -> u32 {
        if buckets <= 2 * SPILL_PAIRS {
            return buckets;
        }
        (buckets - buckets / 32 - buckets.isqrt()) & !1
    }
}

/// The fields that [`Entry::meta`] contains.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct EntryMeta {
    /// Changes each time the entry is reused.
    pub generation: u8,
    /// `KIND_*`.
    pub kind: u8,
    /// [`State`].
    pub state: u8,
    /// `FLOW_*`.
    pub flags: u8,
    /// Tick of the last packet.
    pub seen: u32,
}

impl EntryMeta {
    /// Packs the fields into a word.
    pub const fn pack(self) -> u64 {
        (self.generation as u64) << META_GENERATION_SHIFT
            | ((self.kind & 15) as u64) << META_KIND_SHIFT
            | ((self.state & 15) as u64) << META_STATE_SHIFT
            | (self.flags as u64) << META_FLAGS_SHIFT
            | (self.seen as u64) << META_SEEN_SHIFT
    }

    /// Unpacks a word.
    pub const fn unpack(meta: u64) -> Self {
        Self {
            generation: (meta >> META_GENERATION_SHIFT) as u8,
            kind: (meta >> META_KIND_SHIFT) as u8 & 15,
            state: (meta >> META_STATE_SHIFT) as u8 & 15,
            flags: (meta >> META_FLAGS_SHIFT) as u8,
            seen: (meta >> META_SEEN_SHIFT) as u32,
        }
    }
}

impl Entry {
    /// Packs a tag of 44 bits and a dest id into the word [`Entry::id`].
    pub const fn pack_id(tag: u64, dest: u32) -> u64 {
        tag << DEST_BITS | (dest & ((1 << DEST_BITS) - 1)) as u64
    }

    /// Returns the bit of a tag in the hint of its home bucket.
    pub const fn hint_bit(tag: u64) -> u8 {
        1 << (tag & 7)
    }

    /// Returns the tag of 44 bits.
    pub const fn tag(self) -> u64 {
        self.id >> DEST_BITS
    }

    /// Returns the index into `weir_dests`.
    pub const fn dest(self) -> u32 {
        self.id as u32 & ((1 << DEST_BITS) - 1)
    }

    /// Returns the fields of `meta`.
    pub const fn parts(self) -> EntryMeta {
        EntryMeta::unpack(self.meta)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn id_round_trips_tag_and_dest() {
        let entry = Entry {
            id: Entry::pack_id((1 << 44) - 1, 0xf_fffe),
            meta: 0,
        };
        assert_eq!((entry.tag(), entry.dest()), ((1 << 44) - 1, 0xf_fffe));
    }

    #[test]
    fn low_bits_of_a_tag_select_its_hint_bit() {
        for (tag, bit) in [(0, 1), (1, 2), (7, 0x80), (8, 1), (0xfff_ffff_fffd, 0x20)] {
            assert_eq!(Entry::hint_bit(tag), bit, "{tag:#x}");
        }
    }

    #[test]
    fn stash_is_a_small_part_of_a_large_table() {
        assert_eq!(Bucket::home_count(1), 1);
        assert_eq!(Bucket::home_count(32), 32);
        assert_eq!(Bucket::home_count(33), 26);
        assert_eq!(Bucket::home_count(149_797), 144_728);
        for buckets in 1..100_000 {
            let home_count = Bucket::home_count(buckets);
            assert!(
                home_count <= buckets && home_count * 4 >= buckets * 3,
                "{buckets}"
            );
            assert!(
                home_count == buckets || home_count.is_multiple_of(2),
                "{buckets}"
            );
        }
    }

    #[test]
    fn meta_round_trips_its_parts() {
        let parts = EntryMeta {
            generation: 0xa5,
            kind: KIND_REVERSE,
            state: 11,
            flags: 0x81,
            seen: u32::MAX,
        };
        assert_eq!(EntryMeta::unpack(parts.pack()), parts);
        assert_eq!(parts.pack() & 0xff, 0, "the spare bits stay zero");
        let entry = Entry {
            id: 0,
            meta: parts.pack(),
        };
        assert_eq!(entry.parts(), parts);
    }
}
