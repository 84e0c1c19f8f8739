//! The flow table's bucket, entry and cold record, and the fragment map's key and value.
//!
//! Only the packing of the two words of an entry is here; weir-flow models their meaning.

use crate::mirror::{constants, numbered, structs};
use crate::server::DEST_BITS;
use crate::{Addr, Be16};

constants! {
    /// Entries of a bucket.
    BUCKET_SLOTS: u32 = 7;
    /// Pairs of buckets in a page of buckets.
    SPILL_PAIRS: u32 = 16;
    /// Pairs of stash buckets that a home may use.
    STASH_PAIRS: u32 = 8;
    /// Buckets per element of `weir_hints`.
    HINTS: u32 = 64;
    /// Row of `weir_marks` for TCP.
    MARKS_TCP: u32 = 0;
    /// Row of `weir_marks` for UDP.
    MARKS_UDP: u32 = 1;
    /// Rows of `weir_marks`.
    MARKS_ROWS: u32 = 2;
    /// Bits of a hash that select its mark.
    MARKS_LOG2: u32 = 12;
    /// Position of the 8-bit generation in [`Entry::meta`].
    META_GENERATION_SHIFT: u32 = 56;
    /// Position of the 4-bit kind.
    META_KIND_SHIFT: u32 = 52;
    /// Position of the 4-bit state.
    META_STATE_SHIFT: u32 = 48;
    /// Position of the 8 flag bits.
    META_FLAGS_SHIFT: u32 = 40;
    /// Position of the 32-bit tick of the last packet.
    META_SEEN_SHIFT: u32 = 8;
    /// The entry is free.
    KIND_FREE: u8 = 0;
    /// Client to VIP.
    KIND_FORWARD: u8 = 1;
    /// Server to client under nat; state and counts live in the forward entry.
    KIND_REVERSE: u8 = 2;
    /// Flag, in the old table: being moved or moved to the current table.
    KIND_MOVED: u8 = 8;
    /// Persistence template; its state is [`State::None`], or [`State::Established`] after one of its TCP flows was.
    KIND_TEMPLATE: u8 = 3;
    /// Not in its home bucket.
    FLOW_AWAY: u8 = 1;
    /// Counted as active, else as inactive.
    FLOW_ACTIVE: u8 = 2;
    /// Replies bypass the director: the one-sided TCP table applies.
    FLOW_ONESIDED: u8 = 4;
    /// Flow of a template.
    FLOW_TEMPLATE: u8 = 8;
    /// Bit in [`FlowCold::proto`] of a template, so that no packet has its tuple; the rest is the protocol, 0 = all.
    PROTO_TEMPLATE: u8 = 0x80;
    /// [`FlowCold::peer`] of a flow without a peer.
    NO_PLACE: u32 = 0xffff_ffff;
    /// In a link from the current table: the entry is in the old table, which flows are moved out of.
    PLACE_OLD: u32 = 0x8000_0000;
}

numbered! {
    /// `enum weir_state`: IPVS's states in IPVS's order (include/net/ip_vs.h), then the only one of UDP.
    State: u8 {
        /// Before the first packet.
        None = 0,
        /// Both sides have sent packets.
        Established = 1,
        /// The server sent the first SYN.
        SynSent = 2,
        /// The client sent a SYN.
        SynRecv = 3,
        /// The server sent the first FIN.
        FinWait = 4,
        /// Both sides have closed.
        TimeWait = 5,
        /// Reset.
        Close = 6,
        /// The client sent the first FIN.
        CloseWait = 7,
        /// The server closed after the client.
        LastAck = 8,
        /// Not used by Weir.
        Listen = 9,
        /// Under SYN defence.
        Synack = 10,
        /// UDP.
        Udp = 11,
    }
}

structs! {
    /// An entry of the flow table.
    Entry = "weir_entry", 16 {
        /// tag:44, dest:20; 0 = free. Published last, cleared first.
        id: u64,
        /// generation:8 kind:4 state:4 flags:8 seen:32 spare:8, from the top.
        meta: u64,
    }

    /// `weir_flows`: two cache lines.
    Bucket = "weir_bucket", 128 {
        /// Held while an entry is inserted.
        lock: u32,
        /// Counts of this home's entries in the stash: four bits for each of [`STASH_PAIRS`] pairs.
        stashed: u32,
        /// In other buckets of the page: four bits for each of [`SPILL_PAIRS`] pairs.
        spilled: u64,
        /// The entries.
        slots: [Entry; BUCKET_SLOTS as usize],
    }

    /// The bucket of flow layout 2, frozen. Entries and cold records are the same.
    Bucket2 = "weir_bucket_2", 128 {
        /// As in [`Bucket`].
        lock: u32,
        /// Number of this home's entries in their second bucket.
        spilled: u32,
        /// Zero.
        pad: [u32; 2],
        /// As in [`Bucket`].
        slots: [Entry; BUCKET_SLOTS as usize],
    }

    /// `weir_hints`: [`HINTS`] buckets per element.
    Hints = "weir_hints", 64 {
        /// Per bucket a bitmap over the low three bits of a tag: whether the bucket may be home to such a tag.
        tags: [u8; HINTS as usize],
    }

    /// `weir_marks`: one row for TCP, one for UDP.
    Marks = "weir_marks", 16384 {
        /// By the top [`MARKS_LOG2`] bits of the hash: tick until which flows without an entry may exist, 0 = none.
        until: [u32; 1 << MARKS_LOG2],
    }

    /// `weir_flows_cold`: same index as the entry (bucket × 7 + slot).
    FlowCold = "weir_flow_cold", 64 {
        /// Source of the flow's packets in this direction.
        src: Addr,
        /// Their destination.
        dst: Addr,
        /// Their source port.
        sport: Be16,
        /// Their destination port.
        dport: Be16,
        /// IP protocol number.
        proto: u8,
        /// Generation of the peer.
        peer_generation: u8,
        /// 4 or 6.
        family: u8,
        /// Generation of the template.
        template_generation: u8,
        /// nat: entry index of the other direction, [`NO_PLACE`] = none.
        peer: u32,
        /// Entry index of the flow's template, [`NO_PLACE`] = none.
        template: u32,
        /// Tick of creation; of a template: number of its live flows.
        created: u32,
        /// Index into `weir_services`.
        service: u32,
        /// Of the dest row when the flow was bound.
        dest_generation: u32,
        /// Ingress device of its first packet, used for replies without a route. Of a template: its timeout in ticks.
        ifindex: u32,
    }

    /// Input and output of the program `weir_move`, in place of the packet.
    Move = "weir_move", 16 {
        /// First bucket of the old table.
        position: u32,
        /// Number of buckets.
        count: u32,
        /// Flows moved to the current table.
        moved: u32,
        /// Flows lost for lack of a free slot.
        lost: u32,
    }

    /// `weir_fragments`: key.
    FragmentKey = "weir_fragment_key", 40 {
        /// Source of the datagram.
        src: Addr,
        /// Destination of the datagram.
        dst: Addr,
        /// Identification, in network order.
        id: u32,
        /// IP protocol number.
        proto: u8,
        /// Zero.
        pad: [u8; 3],
    }

    /// `weir_fragments`: where the first fragment was forwarded.
    Fragment = "weir_fragment", 48 {
        /// Zero = unchanged.
        new_src: Addr,
        /// Zero = unchanged.
        new_dst: Addr,
        /// Index into `weir_dests`.
        dest: u32,
        /// Tick of the first fragment.
        tick: u32,
        /// Of the flow, selects the next hop; with `reverse`: the flow's ingress ifindex.
        hash: u32,
        /// 1 = from a server.
        reverse: u8,
        /// Zero.
        pad: [u8; 3],
    }
}

impl Bucket {
    /// Number of home buckets in a table of `buckets`; the others, after them, are the stash.
    ///
    /// A table of one page has no stash: every home can use every bucket. For larger tables 1/32 is sufficient at 90 %
    /// load; the square root is for the uneven pages of small tables (docs/performance.md).
    pub const fn homes(buckets: u32) -> u32 {
        if buckets <= 2 * SPILL_PAIRS {
            return buckets;
        }
        (buckets - buckets / 32 - buckets.isqrt()) & !1
    }
}

/// The parts of [`Entry::meta`].
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
    /// Packs the parts into a word.
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
    /// Packs an id; `tag` has 44 bits.
    pub const fn pack_id(tag: u64, dest: u32) -> u64 {
        tag << DEST_BITS | (dest & ((1 << DEST_BITS) - 1)) as u64
    }

    /// The bit of a tag in its home bucket's hint.
    pub const fn hint_bit(tag: u64) -> u8 {
        1 << (tag & 7)
    }

    /// The tag, 44 bits.
    pub const fn tag(self) -> u64 {
        self.id >> DEST_BITS
    }

    /// Index into `weir_dests`.
    pub const fn dest(self) -> u32 {
        self.id as u32 & ((1 << DEST_BITS) - 1)
    }

    /// The parts of `meta`.
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
    fn stash_is_a_small_part_of_a_large_table() {
        assert_eq!(Bucket::homes(1), 1);
        assert_eq!(Bucket::homes(32), 32);
        assert_eq!(Bucket::homes(33), 26);
        assert_eq!(Bucket::homes(149_797), 144_728);
        for buckets in 1..100_000 {
            let homes = Bucket::homes(buckets);
            assert!(homes <= buckets && homes * 4 >= buckets * 3, "{buckets}");
            assert!(homes == buckets || homes.is_multiple_of(2), "{buckets}");
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
    }
}
