//! Servers as the data plane sees them (IPVS's destinations), their counts, next hops and devices.

use crate::mirror::{constants, numbered, structs};
use crate::{Addr, Be16};

constants! {
    /// [`Dest::tunnel_flags`]: outer UDP or GRE checksum over everything.
    TUNNEL_CSUM: u8 = 1;
    /// [`Dest::tunnel_flags`]: GUE remote checksum offload.
    TUNNEL_REMCSUM: u8 = 2;
    /// [`Dest::flags`]: the row is in use.
    DEST_LIVE: u8 = 1;
    /// [`Dest::flags`]: new flows may come.
    DEST_USABLE: u8 = 2;
    /// [`Dest::flags`]: the address is the director's own.
    DEST_LOCAL: u8 = 4;
    /// [`Dest::flags`]: UDP flows count as inactive.
    DEST_STRICT: u8 = 8;
    /// [`Dest::flags`]: nat with source translation.
    DEST_SNAT: u8 = 16;
    /// [`Dest::flags`]: removed with `on_remove = "reset"`.
    DEST_RESET: u8 = 32;
    /// [`Dest::flags`]: removed with `on_remove = "reschedule"`.
    DEST_RESCHEDULE: u8 = 64;
    /// [`Dest::policy`]: persistent clients may still come: up, weight 0 included.
    POLICY_PERSISTENT: u8 = 1;
    /// [`Dest::policy`]: with [`DEST_RESCHEDULE`]: the flow ends, and only what may begin one chooses anew.
    POLICY_EXPIRE: u8 = 2;
    /// [`Dest::policy`]: with [`DEST_RESET`]: packets are dropped while the entry lives.
    POLICY_SILENT: u8 = 4;
    /// [`Dest::policy`]: its checks say that it is down.
    POLICY_DOWN: u8 = 8;
    /// Bits of a flow entry's id that name the dest.
    DEST_BITS: u32 = 20;
    /// Dest ids are below this.
    DESTS_MAX: u32 = 1 << DEST_BITS;
    /// Rows of one ring of [`Dest::sibling`]s whose trees a change of counts brings up to date.
    SIBLINGS_MAX: u32 = 64;
    /// Next-hop rows of one dest.
    HOPS_PER_DEST: u32 = 4;
    /// [`Hop`]: leave the frame's VLAN tags as they came.
    HOP_VLAN_KEEP: u16 = 0xffff;
    /// [`Hop::link`]: both MACs are known.
    HOP_READY: u8 = 1;
    /// [`Hop::link`]: XDP may send on the device.
    HOP_SEND: u8 = 2;
    /// [`Hop::link`]: the destination is the director itself.
    HOP_LOCAL: u8 = 4;
    /// [`Hop::link`]: filled by user space, the data plane does not renew it.
    HOP_STATIC: u8 = 8;
    /// [`Hop::link`]: leave by a redirect even when the packet came from that device.
    HOP_REDIRECT: u8 = 16;
    /// Rows of `weir_clients`.
    CLIENT_SLOTS: u32 = 4096;
    /// [`Device::flags`]: XDP may send there.
    DEVICE_SEND: u32 = 1;
    /// [`Device::flags`]: XDP_TX does not wake the receiver there (veth), a redirect does.
    DEVICE_REDIRECT: u32 = 2;
    /// [`Meta::magic`].
    META_MAGIC: u32 = 0x5765_6972;
    /// [`Meta::magic`]: the packet is untouched, and tc balances it.
    META_UNFINISHED: u32 = 0x5765_6975;
}

numbered! {
    /// `enum weir_forward`: the forwarding method of a dest.
    Forward: u8 {
        /// The row is unused.
        None = 0,
        /// Destination address and port are rewritten.
        Nat = 1,
        /// Only the destination MAC is.
        Direct = 2,
        /// The packet is encapsulated.
        Tunnel = 3,
        /// Only the destination address is rewritten, marked by DSCP.
        L3dsr = 4,
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
    /// `weir_dests`: one row for a server in a service, index 0 unused.
    Dest = "weir_dest", 64 {
        /// The server.
        addr: Addr,
        /// Outer source of a tunnel, family of `addr`.
        tunnel_source: Addr,
        /// Index into `weir_services`.
        service: u32,
        /// Index into `weir_live` of the counts that schedulers read.
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
        /// Changes when the row is given to another server.
        generation: u32,
        /// 1 + its position in its service's list, 0 = not there; true but for the moment of a change.
        place: u32,
        /// Row of the same server in another service of its pool, round in a ring; 0 = its counts are its own.
        sibling: u32,
    }

    /// `weir_live`: counts that change with a flow's class. Index = dest id, or a row above the dest rows for a pool's server.
    Live = "weir_live", 64 {
        /// Flows that count as active now.
        active: u64,
        /// Flows that count as inactive now.
        inactive: u64,
        /// Flows ever bound.
        total: u64,
        /// New flows sent by the spread table without an entry.
        stateless: u64,
        /// 1 while the server is at its upper threshold: no scheduler chooses it. In the row that [`Dest::live`]
        /// names.
        overloaded: u32,
        /// Templates that lead to the dest.
        persistent: u32,
        /// At this many flows the server gets no new ones, 0 = no limit; written by user space, where `overloaded` is.
        upper: u32,
        /// And again below this many; 0 = three quarters of `upper`.
        lower: u32,
        /// TCP SYNs of flows that were not established, repeated ones too.
        syns: u64,
        /// Flows that became established: their server answered.
        answered: u64,
    }

    /// `weir_traffic`, per CPU; index = dest id. Bytes of the IP packet as the client's side sees it.
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

    /// `weir_hops`: [`HOPS_PER_DEST`] rows a dest. A writer clears `link` first and sets it last.
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
        /// How to reach it.
        hop: Hop,
        /// Zero.
        pad: [u64; 2],
    }

    /// `weir_devices`: ifindex → what XDP may do there.
    Device = "weir_device", 16 {
        /// `DEVICE_*`.
        flags: u32,
        /// ifindex to send on: the lower device of a VLAN device, else itself.
        port: u32,
        /// Tag to push, 0 = none.
        vlan: u32,
        /// Bytes of an IP packet.
        mtu: u32,
    }

    /// Metadata in front of a packet that XDP hands to the tc ingress program.
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

/// The parts of a [`Hop`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct HopParts {
    /// Device to send on.
    pub ifindex: u32,
    /// `HOP_*`.
    pub flags: u8,
    /// Bytes of an IP packet, 0 = unknown.
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
    fn a_hop_keeps_its_parts() {
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
