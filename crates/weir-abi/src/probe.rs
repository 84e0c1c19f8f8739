//! Defines the map entries of health probes, which reach servers by a service's forwarding method, like client packets.
//!
//! User space adds a probe before it connects, and reads the probe's counters afterwards. The tc programs translate the
//! probe's packets.

use crate::mirror::structs;
use crate::{Addr, Be16};

structs! {
    /// Key of `weir_probes`: the connection's local address and port, and its protocol.
    ProbeKey = "weir_probe_key", 24 {
        /// Address of the socket.
        local: Addr,
        /// Port of the socket.
        port: Be16,
        /// IP protocol number.
        proto: u8,
        /// Zero.
        pad: [u8; 5],
    }

    /// Value of `weir_probes`: the destination, and counters.
    Probe = "weir_probe", 72 {
        /// Remote address of the socket: the server.
        server: Addr,
        /// Destination address of the packets that the server receives, in the same address family as `server`.
        vip: Addr,
        /// A `Forward` method other than nat.
        forward: u8,
        /// `Tunnel`.
        tunnel: u8,
        /// `TUNNEL_*`.
        tunnel_flags: u8,
        /// DSCP for l3dsr.
        dscp: u8,
        /// Outer UDP destination port of GUE.
        tunnel_port: Be16,
        /// ICMP type of the last error about the connection; 0 = none.
        error_type: u8,
        /// ICMP code of this error.
        error_code: u8,
        /// Number of packets sent.
        sent: u32,
        /// Number of replies from the VIP.
        answered: u32,
        /// Number of replies from the VIP with an unexpected source MAC address.
        stray: u32,
        /// Number of replies from the server's address instead of the VIP (l3dsr).
        unturned: u32,
        /// Egress device.
        ifindex: u32,
        /// Destination MAC address.
        to_mac: [u8; 6],
        /// Source MAC address.
        from_mac: [u8; 6],
    }
}
