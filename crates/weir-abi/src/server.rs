//! Defines servers in the data plane (destinations in IPVS) and their counts, next hops and devices.

use crate::mirror::{constants, numbered, structs};
use crate::{Addr, Be16};

constants! {
    /// [`Dest::tunnel_flags`]: the outer UDP or GRE checksum covers the complete payload.
    TUNNEL_CSUM: u8 = 1;
    /// [`Dest::tunnel_flags`]: GUE remote checksum offload.
    TUNNEL_REMCSUM: u8 = 2;
    /// [`Dest::flags`]: the row is in use.
    DEST_LIVE: u8 = 1;
    /// [`Dest::flags`]: the server accepts new flows.
    DEST_USABLE: u8 = 2;
    /// [`Dest::flags`]: the address is local to the director.
    DEST_LOCAL: u8 = 4;
    /// [`Dest::flags`]: UDP flows count as inactive.
    DEST_STRICT: u8 = 8;
    /// [`Dest::flags`]: nat with source translation.
    DEST_SNAT: u8 = 16;
    /// [`Dest::flags`]: the server was removed with `on_remove = "reset"`.
    DEST_RESET: u8 = 32;
    /// [`Dest::flags`]: the server was removed with `on_remove = "reschedule"`.
    DEST_RESCHEDULE: u8 = 64;
    /// [`Dest::policy`]: the server accepts flows of persistent clients: it is up and can have weight 0.
    POLICY_PERSISTENT: u8 = 1;
    /// [`Dest::policy`], with [`DEST_RESCHEDULE`]: the flow ends; only a packet that may start a flow is rescheduled.
    POLICY_EXPIRE: u8 = 2;
    /// [`Dest::policy`], with [`DEST_RESET`]: packets are dropped while the entry exists.
    POLICY_SILENT: u8 = 4;
    /// [`Dest::policy`]: the health checks of the server failed.
    POLICY_DOWN: u8 = 8;
    /// Width of a dest id in the id of a flow entry, in bits.
    DEST_BITS: u32 = 20;
    /// All dest ids are less than this number.
    DESTS_MAX: u32 = 1 << DEST_BITS;
    /// A count change updates the trees of at most this many [`Dest::sibling`] rows.
    SIBLINGS_MAX: u32 = 64;
    /// Number of next-hop rows per dest.
    HOPS_PER_DEST: u32 = 4;
    /// [`Hop`]: do not change the frame's VLAN tags.
    HOP_VLAN_KEEP: u16 = 0xffff;
    /// [`Hop::link`]: both MAC addresses are set.
    HOP_READY: u8 = 1;
    /// [`Hop::link`]: XDP may send packets on the device.
    HOP_SEND: u8 = 2;
    /// [`Hop::link`]: the destination is the director itself.
    HOP_LOCAL: u8 = 4;
    /// [`Hop::link`]: user space writes the row, and the data plane does not refresh it.
    HOP_STATIC: u8 = 8;
    /// [`Hop::link`]: redirect packets even if the device is the ingress device.
    HOP_REDIRECT: u8 = 16;
    /// Number of rows of `weir_clients`.
    CLIENT_SLOTS: u32 = 4096;
    /// [`Device::flags`]: XDP may send packets on the device.
    DEVICE_SEND: u32 = 1;
    /// [`Device::flags`]: XDP_TX on the device does not wake the receiver (veth), but a redirect does.
    DEVICE_REDIRECT: u32 = 2;
    /// Binary logarithm of the number of rows of `weir_macs`, without [`MAC_ROW_SINGLE`].
    MAC_ROWS_LOG2: u32 = 8;
    /// Number of words of a [`MacRow`].
    MAC_ROW_WORDS: u32 = 8;
    /// The address in the word that marks a device as listed: 01:00:00:00:00:00 in memory order.
    MAC_LISTED: u64 = 1;
    /// The last word of a [`MacRow`] that needs more words than it has: every address that maps to the row is accepted.
    MAC_ANY: u64 = 0xffff_ffff_ffff_ffff;
    /// The row of `weir_macs` with the addresses of the only listed device.
    MAC_ROW_SINGLE: u32 = 1 << MAC_ROWS_LOG2;
    /// Number of words that are used in [`MAC_ROW_SINGLE`].
    MAC_SINGLE_WORDS: u32 = 2;
    /// Replaces the ifindex in the words of [`MAC_ROW_SINGLE`].
    MAC_SINGLE: u64 = 0x1_0000_0000_0000;
    /// [`Meta::magic`] of a packet that XDP has balanced.
    META_MAGIC: u32 = 0x5765_6972;
    /// [`Meta::magic`] of an unmodified packet, which tc balances.
    META_UNFINISHED: u32 = 0x5765_6975;
}

numbered! {
    /// `enum weir_forward`: the forwarding method of a dest.
    Forward: u8 {
        /// The row is unused.
        None = 0,
        /// The destination address and port are rewritten.
        Nat = 1,
        /// Only the MAC addresses are rewritten.
        Direct = 2,
        /// The packet is encapsulated.
        Tunnel = 3,
        /// The destination address and the DSCP are rewritten; the DSCP identifies the service.
        L3dsr = 4,
        /// No packet is forwarded: the connect() hooks select the server.
        Socket = 5,
    }
}

numbered! {
    /// `enum weir_tunnel`: the encapsulation of a tunnel dest.
    Tunnel: u8 {
        /// IP in IP, with all four combinations of address families.
        Ipip = 0,
        /// Generic UDP encapsulation.
        Gue = 1,
        /// Generic routing encapsulation (RFC 2784).
        Gre = 2,
    }
}

structs! {
    /// `weir_dests`: one row per server of a service, index 0 unused.
    Dest = "weir_dest", 64 {
        /// Address of the server.
        addr: Addr,
        /// Outer source address of a tunnel, of the same family as `addr`.
        tunnel_source: Addr,
        /// Index into `weir_services`.
        service: u32,
        /// Index into `weir_live` of the counts for schedulers.
        live: u32,
        /// Port of the server; 0 = the port that the client used.
        port: Be16,
        /// [`Forward`].
        forward: u8,
        /// `DEST_*`.
        flags: u8,
        /// [`Tunnel`].
        tunnel: u8,
        /// `TUNNEL_*`.
        tunnel_flags: u8,
        /// Outer UDP destination port of GUE.
        tunnel_port: Be16,
        /// DSCP of l3dsr, from the service.
        dscp: u8,
        /// IP version of `addr`: 4 or 6.
        family: u8,
        /// `POLICY_*`.
        policy: u8,
        /// Zero.
        pad: u8,
        /// Changes when the row is reused for another server.
        generation: u32,
        /// 1 + the position in the service's list, 0 = not in the list; can be out of date during a change.
        place: u32,
        /// Next row of the same server, in another service that uses its pool; these rows form a ring. 0 = the counts
        /// are not shared.
        sibling: u32,
    }

    /// `weir_live`: flow counts, indexed by dest id. The rows after the dest rows hold the counts of servers whose pool
    /// several services share ([`Dest::live`]).
    Live = "weir_live", 64 {
        /// Number of active flows.
        active: u64,
        /// Number of inactive flows.
        inactive: u64,
        /// Total number of flows bound so far.
        total: u64,
        /// Number of new flows that were forwarded by the spread table without an entry.
        stateless: u64,
        /// 1 = the server has reached its upper threshold and is not scheduled; used in the row of [`Dest::live`].
        overloaded: u32,
        /// Number of templates of the dest.
        persistent: u32,
        /// Upper threshold: number of flows at which the server stops receiving new flows, 0 = no limit; written by
        /// user space.
        upper: u32,
        /// Lower threshold: number of flows below which the server receives new flows again; 0 = three quarters of
        /// `upper`.
        lower: u32,
        /// Number of TCP SYNs of flows that were not established, including retransmissions.
        syns: u64,
        /// Number of flows that became established.
        answered: u64,
    }

    /// `weir_traffic`, per CPU; index = dest id. Bytes are counted on the client side, from the IP header.
    Traffic = "weir_traffic", 32 {
        /// Number of packets from clients.
        packets_in: u64,
        /// Number of bytes from clients.
        bytes_in: u64,
        /// Number of packets to clients, counted only with nat.
        packets_out: u64,
        /// Number of bytes to clients, counted only with nat.
        bytes_out: u64,
    }

    /// `weir_hops`: [`HOPS_PER_DEST`] rows per dest. A writer clears `link` first and writes it last.
    Hop = "weir_hop", 32 {
        /// Bits 63-32: ifindex; bits 23-16: flags (`HOP_*`); bits 15-0: MTU (0 = unknown).
        link: u64,
        /// MAC address of the next hop: six bytes in memory order; then the VLAN tag to push in host byte order (0 =
        /// none).
        dmac: u64,
        /// MAC address of the device: six bytes in memory order; then 16 spare bits.
        smac: u64,
        /// Tick of the last refresh.
        renewed: u64,
    }

    /// `weir_clients`: next hops toward clients for replies with nat, direct-mapped by address.
    Client = "weir_client", 64 {
        /// Address of the client.
        addr: Addr,
        /// The next hop toward the client.
        hop: Hop,
        /// Zero.
        pad: [u64; 2],
    }

    /// `weir_devices`: ifindex → XDP capabilities.
    Device = "weir_device", 16 {
        /// `DEVICE_*`.
        flags: u32,
        /// Index of the device that packets are sent on: the lower device of a VLAN device, otherwise the device
        /// itself.
        port: u32,
        /// VLAN tag to push, 0 = none.
        vlan: u32,
        /// Maximum length of an IP packet in bytes.
        mtu: u32,
    }

    /// `weir_macs`: words of the MAC addresses at which this host receives frames; unordered, 0 = free.
    MacRow = "weir_mac_row", 64 {
        /// The words; see [`MacRow::word`].
        words: [u64; MAC_ROW_WORDS as usize],
    }

    /// Metadata of a packet that XDP passes to the tc ingress program.
    Meta = "weir_meta", 28 {
        /// [`META_MAGIC`] or [`META_UNFINISHED`].
        magic: u32,
        /// Egress device.
        ifindex: u32,
        /// IP version of `next_hop`: 4, 6, or 0 = route by the packet's destination.
        family: u32,
        /// Address of the next hop; an IPv4 address is in the first four bytes.
        next_hop: [u8; 16],
    }
}

impl MacRow {
    /// Number of rows.
    pub const COUNT: u32 = MAC_ROW_SINGLE + 1;

    /// Returns the word of an address on an ingress device: the address in memory order, then the low half of the
    /// ifindex.
    pub const fn word(ifindex: u32, mac: [u8; 6]) -> u64 {
        let [a, b, c, d, e, f] = mac;
        let [y, z] = (ifindex as u16).to_ne_bytes();
        u64::from_ne_bytes([a, b, c, d, e, f, y, z])
    }

    /// Returns the word of an address in the row [`MAC_ROW_SINGLE`].
    pub const fn single_device_word(mac: [u8; 6]) -> u64 {
        Self::word(0, mac) | MAC_SINGLE
    }

    /// Returns the word that marks a device as listed.
    pub const fn listed_word(ifindex: u32) -> u64 {
        let [a, b, c, d, e, f, _, _] = MAC_LISTED.to_ne_bytes();
        Self::word(ifindex, [a, b, c, d, e, f])
    }

    /// Returns whether [`Self::listed_word`] returns this word for a device.
    pub const fn is_listed_word(word: u64) -> bool {
        let [a, b, c, d, e, f, _, _] = MAC_LISTED.to_ne_bytes();
        let [k, l, m, n, o, p, _, _] = word.to_ne_bytes();
        matches!(
            [a ^ k, b ^ l, c ^ m, d ^ n, e ^ o, f ^ p],
            [0, 0, 0, 0, 0, 0]
        )
    }

    /// Returns the row of a word, computed as in the data plane (bpf/lib/frame_address.h).
    pub const fn index(word: u64) -> u32 {
        (word.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - MAC_ROWS_LOG2)) as u32
    }
}

/// The fields that a [`Hop`] contains.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct HopParts {
    /// Index of the device that packets are sent on.
    pub ifindex: u32,
    /// `HOP_*`.
    pub flags: u8,
    /// Maximum length of an IP packet in bytes, 0 = unknown.
    pub mtu: u16,
    /// MAC address of the next hop.
    pub dmac: [u8; 6],
    /// MAC address of the device.
    pub smac: [u8; 6],
    /// VLAN tag to push; 0 = none; or [`HOP_VLAN_KEEP`].
    pub vlan: u16,
    /// Tick of the last refresh.
    pub renewed: u32,
}

impl From<HopParts> for Hop {
    fn from(parts: HopParts) -> Self {
        let mac = |mac: [u8; 6], tail: u16| {
            let [a, b, c, d, e, f] = mac;
            let [y, z] = tail.to_ne_bytes();
            u64::from_ne_bytes([a, b, c, d, e, f, y, z])
        };
        Self {
            link: u64::from(parts.ifindex) << 32
                | u64::from(parts.flags) << 16
                | u64::from(parts.mtu),
            dmac: mac(parts.dmac, parts.vlan),
            smac: mac(parts.smac, 0),
            renewed: u64::from(parts.renewed),
        }
    }
}

impl From<Hop> for HopParts {
    fn from(hop: Hop) -> Self {
        let [a, b, c, d, e, f, y, z] = hop.dmac.to_ne_bytes();
        let [g, h, i, j, k, l, _, _] = hop.smac.to_ne_bytes();
        Self {
            ifindex: (hop.link >> 32) as u32,
            flags: (hop.link >> 16) as u8,
            mtu: hop.link as u16,
            dmac: [a, b, c, d, e, f],
            smac: [g, h, i, j, k, l],
            vlan: u16::from_ne_bytes([y, z]),
            renewed: hop.renewed as u32,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];

    #[test]
    fn mac_word_has_the_address_and_the_low_half_of_the_ifindex() {
        let word = MacRow::word(0x1_0203, MAC).to_ne_bytes();
        assert_eq!(word[..6], MAC);
        assert_eq!(word[6..], 0x0203_u16.to_ne_bytes());
        let single_word = MacRow::single_device_word(MAC);
        assert_eq!(single_word.to_ne_bytes()[..6], MAC);
        assert_eq!(single_word, MacRow::word(0, MAC) | MAC_SINGLE);
        assert_ne!(single_word, MacRow::word(0, MAC));
    }

    #[test]
    fn word_of_a_listed_device_differs_from_all_addresses() {
        for ifindex in [1, 7, 0xffff] {
            let listed = MacRow::listed_word(ifindex);
            assert!(MacRow::is_listed_word(listed), "{ifindex}");
            let bytes = listed.to_ne_bytes();
            assert_eq!(bytes[6..], (ifindex as u16).to_ne_bytes());
            for index in 0..6 {
                let mut other_bytes = bytes;
                other_bytes[index] ^= 0x40;
                assert!(
                    !MacRow::is_listed_word(u64::from_ne_bytes(other_bytes)),
                    "{index}"
                );
            }
        }
        assert!(!MacRow::is_listed_word(MacRow::word(1, MAC)));
        assert!(!MacRow::is_listed_word(0), "a free word");
    }

    /// The data plane computes the same row. The values were computed with an independent implementation.
    #[test]
    #[cfg(target_endian = "little")]
    fn row_of_a_mac_word_is_the_same_as_in_the_data_plane() {
        assert_eq!(MacRow::index(MacRow::word(3, MAC)), 251);
        let other_mac = [0xfe, 1, 2, 3, 4, 5];
        assert_eq!(MacRow::index(MacRow::word(0x1_0005, other_mac)), 48);
        assert!(MacRow::index(u64::MAX) < MAC_ROW_SINGLE);
        assert_eq!(MacRow::COUNT, MAC_ROW_SINGLE + 1);
    }

    #[test]
    fn hop_parts_round_trip() {
        let parts = HopParts {
            ifindex: 0x8000_0001,
            flags: HOP_READY | HOP_STATIC,
            mtu: 1500,
            dmac: [2, 0, 0, 0, 0, 1],
            smac: [2, 0, 0, 0, 0, 2],
            vlan: 100,
            renewed: 7,
        };
        let hop = Hop::from(parts);
        assert_eq!(HopParts::from(hop), parts);
        let flags = u64::from(HOP_READY | HOP_STATIC);
        assert_eq!(hop.link, 0x8000_0001_0000_05dc | flags << 16);
        assert_eq!(hop.smac.to_ne_bytes(), [2, 0, 0, 0, 0, 2, 0, 0]);
        assert_eq!(hop.renewed, 7);
        assert_eq!(&hop.dmac.to_ne_bytes()[..6], &parts.dmac);
    }
}
