//! The flow table's bucket, entry and cold record, and the fragment map's key and value.
//!
//! Only the packing of the two words of an entry is here; what they mean for a packet is weir-flow's matter.

use crate::mirror::{constants, numbered, structs};
use crate::server::DEST_BITS;
use crate::{Addr, Be16};

constants! {
    /// Entries of a bucket.
    BUCKET_SLOTS: u32 = 7;
    /// Pairs of buckets in a page of buckets.
    SPILL_PAIRS: u32 = 16;
    /// Pairs of buckets of the stash that a home may use.
    STASH_PAIRS: u32 = 8;
    /// Buckets of one element of `weir_hints`.
    HINTS: u32 = 64;
    /// Row of `weir_marks` for TCP.
    MARKS_TCP: u32 = 0;
    /// Row of `weir_marks` for UDP.
    MARKS_UDP: u32 = 1;
    /// Rows of `weir_marks`.
    MARKS_ROWS: u32 = 2;
    /// Bits of a hash that choose its mark.
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
    /// With one of the others, in the old table: on its way to the table in force, or there.
    KIND_MOVED: u8 = 8;
    /// A persistent client's choice; its state is [`State::None`], [`State::Established`] once a TCP flow by it was.
    KIND_TEMPLATE: u8 = 3;
    /// Lies in another bucket than its home.
    FLOW_AWAY: u8 = 1;
    /// Counted as active, else as inactive.
    FLOW_ACTIVE: u8 = 2;
    /// Replies do not pass here: the one-sided TCP table applies.
    FLOW_ONESIDED: u8 = 4;
    /// Came by a template.
    FLOW_TEMPLATE: u8 = 8;
    /// Bit of a template's [`FlowCold::proto`], so that no packet has its tuple; the rest is the protocol, 0 = all.
    PROTO_TEMPLATE: u8 = 0x80;
    /// [`FlowCold::peer`] of a flow without a peer.
    NO_PLACE: u32 = 0xffff_ffff;
    /// In a link out of the table in force: the place is one of the table that flows are moved out of.
    PLACE_OLD: u32 = 0x8000_0000;
}

numbered! {
    /// `enum weir_state`: IPVS's states in IPVS's order (include/net/ip_vs.h), then UDP's only one.
    State: u8 {
        /// Before the first packet.
        None = 0,
        /// Both sides have spoken.
        Established = 1,
        /// The server's SYN came first.
        SynSent = 2,
        /// The client's SYN was seen.
        SynRecv = 3,
        /// The server closes first.
        FinWait = 4,
        /// Both closed.
        TimeWait = 5,
        /// Reset.
        Close = 6,
        /// The client closes first.
        CloseWait = 7,
        /// The server closed after the client.
        LastAck = 8,
        /// Never entered by a flow of Weir's.
        Listen = 9,
        /// Under SYN defence.
        Synack = 10,
        /// UDP.
        Udp = 11,
    }
}

structs! {
    /// One place of the flow table.
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
        /// Entries at home here that lie in the stash: four bits for each of [`STASH_PAIRS`] pairs.
        stashed: u32,
        /// Those that lie in another bucket of the page: four bits for each of [`SPILL_PAIRS`] pairs.
        spilled: u64,
        /// The places.
        slots: [Entry; BUCKET_SLOTS as usize],
    }

    /// [`Bucket`] in flow layout 2, frozen. Entries and cold records were as they are.
    Bucket2 = "weir_bucket_2", 128 {
        /// As in [`Bucket`].
        lock: u32,
        /// Entries of flows at home here that lie in their second bucket.
        spilled: u32,
        /// Zero.
        pad: [u32; 2],
        /// As in [`Bucket`].
        slots: [Entry; BUCKET_SLOTS as usize],
    }

    /// `weir_hints`: [`HINTS`] buckets an element.
    Hints = "weir_hints", 64 {
        /// A bit for every value of the low three bits of a tag: whether a flow with such a tag may be at home there.
        tags: [u8; HINTS as usize],
    }

    /// `weir_marks`: one row for TCP, one for UDP.
    Marks = "weir_marks", 16384 {
        /// By the top [`MARKS_LOG2`] bits of a hash: tick until which such flows may exist without an entry, 0 = none.
        until: [u32; 1 << MARKS_LOG2],
    }

    /// `weir_flows_cold`: same index as the place (bucket × 7 + slot).
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
        /// Generation of the peer's place.
        peer_generation: u8,
        /// 4 or 6.
        family: u8,
        /// Generation of the template's place.
        template_generation: u8,
        /// nat: place of the other direction, [`NO_PLACE`] = none.
        peer: u32,
        /// Place of the template that the flow came by, [`NO_PLACE`] = none.
        template: u32,
        /// Tick of creation; of a template: number of flows that came by it and live.
        created: u32,
        /// Index into `weir_services`.
        service: u32,
        /// Of the dest row when the flow was bound.
        dest_generation: u32,
        /// Device that its first packet came in on: the way back when the kernel tells no route. Of a template: its timeout
        /// in ticks.
        ifindex: u32,
    }

    /// What the program `weir_move` is told in place of a packet, and what it answers there.
    Move = "weir_move", 16 {
        /// First bucket of the old table.
        position: u32,
        /// How many.
        count: u32,
        /// Flows that are in the table in force now.
        moved: u32,
        /// Flows that found no place there.
        lost: u32,
    }

    /// `weir_fragments`: key.
    FragmentKey = "weir_fragment_key", 40 {
        /// Source of the datagram.
        src: Addr,
        /// Destination of the datagram.
        dst: Addr,
        /// Identification, as it lies in the packet.
        id: u32,
        /// IP protocol number.
        proto: u8,
        /// Zero.
        pad: [u8; 3],
    }

    /// `weir_fragments`: where the first fragment went.
    Fragment = "weir_fragment", 48 {
        /// Zero = unchanged.
        new_src: Addr,
        /// Zero = unchanged.
        new_dst: Addr,
        /// Index into `weir_dests`.
        dest: u32,
        /// When it came.
        tick: u32,
        /// Of the flow: the same next hop for every fragment.
        hash: u32,
        /// 1 = from a server.
        reverse: u8,
        /// Zero.
        pad: [u8; 3],
    }
}

impl Bucket {
    /// Of a table of so many buckets, how many are home to hashes; the others, behind them, are the stash.
    ///
    /// A table of one page has none: every home reaches every bucket. Beyond that a part of 1/32 serves a large table at 90 % of
    /// its places with room to spare, and the root the uneven pages of a small one (docs/performance.md).
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
    /// Changes each time the place is taken.
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
    /// The word.
    pub const fn pack(self) -> u64 {
        (self.generation as u64) << META_GENERATION_SHIFT
            | ((self.kind & 15) as u64) << META_KIND_SHIFT
            | ((self.state & 15) as u64) << META_STATE_SHIFT
            | (self.flags as u64) << META_FLAGS_SHIFT
            | (self.seen as u64) << META_SEEN_SHIFT
    }

    /// The parts of a word.
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
    /// An id of its parts; `tag` has 44 bits.
    pub const fn pack_id(tag: u64, dest: u32) -> u64 {
        tag << DEST_BITS | (dest & ((1 << DEST_BITS) - 1)) as u64
    }

    /// The bit of a tag in its home bucket's hint.
    pub const fn hint_bit(tag: u64) -> u8 {
        1 << (tag & 7)
    }

    /// The fingerprint, 44 bits.
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
    fn an_id_keeps_tag_and_dest() {
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
    fn meta_keeps_its_parts() {
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
