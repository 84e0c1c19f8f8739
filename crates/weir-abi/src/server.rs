//! Servers in the data plane (IPVS's destinations), their counts, next hops and devices.

use crate::mirror::{constants, numbered, structs};
use crate::{Addr, Be16};

constants! {
    /// [`Dest::tunnel_flags`]: outer UDP or GRE checksum over everything.
    TUNNEL_CSUM: u8 = 1;
    /// [`Dest::tunnel_flags`]: GUE remote checksum offload.
    TUNNEL_REMCSUM: u8 = 2;
    /// [`Dest::flags`]: the row is in use.
    DEST_LIVE: u8 = 1;
    /// [`Dest::flags`]: takes new flows.
    DEST_USABLE: u8 = 2;
    /// [`Dest::flags`]: the address is local to the director.
    DEST_LOCAL: u8 = 4;
    /// [`Dest::flags`]: UDP flows count as inactive.
    DEST_STRICT: u8 = 8;
    /// [`Dest::flags`]: nat with source translation.
    DEST_SNAT: u8 = 16;
    /// [`Dest::flags`]: removed with `on_remove = "reset"`.
    DEST_RESET: u8 = 32;
    /// [`Dest::flags`]: removed with `on_remove = "reschedule"`.
    DEST_RESCHEDULE: u8 = 64;
    /// [`Dest::policy`]: takes flows of persistent clients: up, any weight.
    POLICY_PERSISTENT: u8 = 1;
    /// [`Dest::policy`]: with [`DEST_RESCHEDULE`]: the flow ends; only a packet that may start a flow is rescheduled.
    POLICY_EXPIRE: u8 = 2;
    /// [`Dest::policy`]: with [`DEST_RESET`]: packets are dropped while the entry lives.
    POLICY_SILENT: u8 = 4;
    /// [`Dest::policy`]: health checks failed.
    POLICY_DOWN: u8 = 8;
    /// Bits of a flow entry's id for the dest.
    DEST_BITS: u32 = 20;
    /// Dest ids are below this.
    DESTS_MAX: u32 = 1 << DEST_BITS;
    /// Maximum number of [`Dest::sibling`] rows whose trees a count change updates.
    SIBLINGS_MAX: u32 = 64;
    /// Next-hop rows per dest.
    HOPS_PER_DEST: u32 = 4;
    /// [`Hop`]: keep the frame's VLAN tags.
    HOP_VLAN_KEEP: u16 = 0xffff;
    /// [`Hop::link`]: both MAC addresses are set.
    HOP_READY: u8 = 1;
    /// [`Hop::link`]: XDP may send on the device.
    HOP_SEND: u8 = 2;
    /// [`Hop::link`]: the destination is the director itself.
    HOP_LOCAL: u8 = 4;
    /// [`Hop::link`]: filled by user space, the data plane does not renew it.
    HOP_STATIC: u8 = 8;
    /// [`Hop::link`]: redirect even to the ingress device.
    HOP_REDIRECT: u8 = 16;
    /// Rows of `weir_clients`.
    CLIENT_SLOTS: u32 = 4096;
    /// [`Device::flags`]: XDP may send there.
    DEVICE_SEND: u32 = 1;
    /// [`Device::flags`]: XDP_TX does not wake the receiver there (veth), a redirect does.
    DEVICE_REDIRECT: u32 = 2;
    /// Binary logarithm of the number of rows of `weir_macs`.
    MAC_ROWS_LOG2: u32 = 8;
    /// Words of a [`MacRow`].
    MAC_ROW_WORDS: u32 = 8;
    /// The address of the word that says that a device's addresses are listed: 01:00:00:00:00:00 in memory order.
    MAC_LISTED: u64 = 1;
    /// The last word of a [`MacRow`] that is too short: every address that belongs in the row is accepted.
    MAC_ANY: u64 = 0xffff_ffff_ffff_ffff;
    /// The row of `weir_macs` with the addresses of the only listed device.
    MAC_ROW_SINGLE: u32 = 1 << MAC_ROWS_LOG2;
    /// Words in use of that row.
    MAC_SINGLE_WORDS: u32 = 2;
    /// In the words of that row, in place of the ifindex.
    MAC_SINGLE: u64 = 0x1_0000_0000_0000;
    /// [`Meta::magic`].
    META_MAGIC: u32 = 0x5765_6972;
    /// [`Meta::magic`]: the packet is unmodified, and tc balances it.
    META_UNFINISHED: u32 = 0x5765_6975;
}

numbered! {
    /// `enum weir_forward`: the forwarding method of a dest.
    Forward: u8 {
        /// The row is unused.
        None = 0,
        /// Destination address and port are rewritten.
        Nat = 1,
        /// Only the destination MAC is rewritten.
        Direct = 2,
        /// The packet is encapsulated.
        Tunnel = 3,
        /// Only the destination address is rewritten, marked by DSCP.
        L3dsr = 4,
        /// No packet: the hooks of connect() select the server.
        Socket = 5,
    }
}

numbered! {
    /// `enum weir_tunnel`: the encapsulation of a tunnel dest.
    Tunnel: u8 {
        /// IP in IP, all four pairs of families.
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
        /// The server.
        addr: Addr,
        /// Outer source of a tunnel, family of `addr`.
        tunnel_source: Addr,
        /// Index into `weir_services`.
        service: u32,
        /// Index into `weir_live` of the counts for schedulers.
        live: u32,
        /// 0 = the port that the client used.
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
        /// l3dsr mark of the service.
        dscp: u8,
        /// 4 or 6: of `addr`.
        family: u8,
        /// `POLICY_*`.
        policy: u8,
        /// Zero.
        pad: u8,
        /// Changes when the row is reused for another server.
        generation: u32,
        /// 1 + position in its service's list, 0 = not in it; may be out of date during a change.
        place: u32,
        /// Ring of the rows of this server in the services of its pool; 0 = counts not shared.
        sibling: u32,
    }

    /// `weir_live`: flow counts. Index = dest id, or a row after the dest rows for a server of a pool.
    Live = "weir_live", 64 {
        /// Active flows.
        active: u64,
        /// Inactive flows.
        inactive: u64,
        /// Flows ever bound.
        total: u64,
        /// New flows forwarded by the spread table without an entry.
        stateless: u64,
        /// 1 = at its upper threshold, not scheduled; in the row of [`Dest::live`].
        overloaded: u32,
        /// Templates of the dest.
        persistent: u32,
        /// At this number of flows the server gets no new ones, 0 = no limit; written by user space.
        upper: u32,
        /// Below this number it gets flows again; 0 = three quarters of `upper`.
        lower: u32,
        /// TCP SYNs of flows that were not established, including retransmissions.
        syns: u64,
        /// Flows that became established.
        answered: u64,
    }

    /// `weir_traffic`, per CPU; index = dest id. Bytes of the IP packets on the client side.
    Traffic = "weir_traffic", 32 {
        /// From clients.
        packets_in: u64,
        /// From clients.
        bytes_in: u64,
        /// To clients; nat only.
        packets_out: u64,
        /// To clients; nat only.
        bytes_out: u64,
    }

    /// `weir_hops`: [`HOPS_PER_DEST`] rows per dest. A writer clears `link` first and sets it last.
    Hop = "weir_hop", 32 {
        /// ifindex:32, flags:8 at bit 16, mtu:16 (0 = unknown).
        link: u64,
        /// Six bytes in memory order, then the VLAN tag to push in host order (0 = none).
        dmac: u64,
        /// Six bytes in memory order, then 16 spare bits.
        smac: u64,
        /// Tick of the last renewal.
        renewed: u64,
    }

    /// `weir_clients`: next hops towards clients for replies under nat, direct-mapped by address.
    Client = "weir_client", 64 {
        /// The client.
        addr: Addr,
        /// Its next hop.
        hop: Hop,
        /// Zero.
        pad: [u64; 2],
    }

    /// `weir_devices`: ifindex → XDP capabilities.
    Device = "weir_device", 16 {
        /// `DEVICE_*`.
        flags: u32,
        /// ifindex to send on: the lower device of a VLAN device, else itself.
        port: u32,
        /// Tag to push, 0 = none.
        vlan: u32,
        /// Maximum length of an IP packet in bytes.
        mtu: u32,
    }

    /// `weir_macs`: words of MAC addresses to which frames are this host's; without order, 0 = free.
    MacRow = "weir_mac_row", 64 {
        /// See [`MacRow::word`].
        words: [u64; MAC_ROW_WORDS as usize],
    }

    /// Metadata of a packet that XDP passes to the tc ingress program.
    Meta = "weir_meta", 28 {
        /// [`META_MAGIC`].
        magic: u32,
        /// Egress device.
        ifindex: u32,
        /// Of `next_hop`: 4, 6, or 0 = route by the packet's destination.
        family: u32,
        /// IPv4 in the first four bytes.
        next_hop: [u8; 16],
    }
}

impl MacRow {
    /// Number of rows.
    pub const COUNT: u32 = MAC_ROW_SINGLE + 1;

    /// The word of an address on an ingress device: the address in memory order, then the low half of the ifindex.
    pub const fn word(ifindex: u32, mac: [u8; 6]) -> u64 {
        let [a, b, c, d, e, f] = mac;
        let [y, z] = (ifindex as u16).to_ne_bytes();
        u64::from_ne_bytes([a, b, c, d, e, f, y, z])
    }

    /// The word of an address in the row [`MAC_ROW_SINGLE`].
    pub const fn single(mac: [u8; 6]) -> u64 {
        Self::word(0, mac) | MAC_SINGLE
    }

    /// The word that says that the addresses of a device are listed.
    pub const fn listed(ifindex: u32) -> u64 {
        let [a, b, c, d, e, f, _, _] = MAC_LISTED.to_ne_bytes();
        Self::word(ifindex, [a, b, c, d, e, f])
    }

    /// Whether a word is one that [`Self::listed`] returns.
    pub const fn is_listed(word: u64) -> bool {
        let [a, b, c, d, e, f, _, _] = MAC_LISTED.to_ne_bytes();
        let [k, l, m, n, o, p, _, _] = word.to_ne_bytes();
        matches!(
            [a ^ k, b ^ l, c ^ m, d ^ n, e ^ o, f ^ p],
            [0, 0, 0, 0, 0, 0]
        )
    }

    /// The row of a word, as in the data plane (bpf/lib/frame_address.h).
    pub const fn index(word: u64) -> u32 {
        (word.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - MAC_ROWS_LOG2)) as u32
    }
}

/// The parts of a [`Hop`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct HopParts {
    /// Device to send on.
    pub ifindex: u32,
    /// `HOP_*`.
    pub flags: u8,
    /// Maximum length of an IP packet in bytes, 0 = unknown.
    pub mtu: u16,
    /// Next hop's MAC.
    pub dmac: [u8; 6],
    /// The device's MAC.
    pub smac: [u8; 6],
    /// VLAN tag to push: 0 = none, [`HOP_VLAN_KEEP`].
    pub vlan: u16,
    /// Tick of the last renewal.
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

    #[test]
    fn hop_round_trips_its_parts() {
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
        assert_eq!(&hop.dmac.to_ne_bytes()[..6], &parts.dmac);
    }
}
