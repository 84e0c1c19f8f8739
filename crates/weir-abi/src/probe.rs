//! Health probes that are sent to servers with a service's forwarding method, like a client's packets.
//!
//! User space adds a probe before it connects and reads its counters afterwards; the tc programs translate its packets.

use crate::mirror::structs;
use crate::{Addr, Be16};

structs! {
    /// `weir_probes`: key; the director's address and port of the connection.
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

    /// `weir_probes`: value; the destination, and counters.
    Probe = "weir_probe", 72 {
        /// Remote address of the socket: the server.
        server: Addr,
        /// Destination of the packets that the server receives; of the same address family.
        vip: Addr,
        /// `Forward`, but not nat.
        forward: u8,
        /// `Tunnel`.
        tunnel: u8,
        /// `TUNNEL_*`.
        tunnel_flags: u8,
        /// DSCP of l3dsr.
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
