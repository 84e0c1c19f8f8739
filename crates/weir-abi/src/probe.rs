//! Health probes that are sent to servers by a service's forwarding method, like a client's packets.
//!
//! User space adds a probe before it connects and reads its counters afterwards; the tc programs translate its packets.

use crate::mirror::structs;
use crate::{Addr, Be16};

structs! {
    /// `weir_probes`: the director's end of the connection.
    ProbeKey = "weir_probe_key", 24 {
        /// Address of the socket.
        local: Addr,
        /// Its port.
        port: Be16,
        /// IP protocol number.
        proto: u8,
        /// Zero.
        pad: [u8; 5],
    }

    /// `weir_probes`: the destination, and counters.
    Probe = "weir_probe", 72 {
        /// Remote address of the socket.
        server: Addr,
        /// Destination that the server sees; the same family.
        vip: Addr,
        /// `Forward`, without nat.
        forward: u8,
        /// `Tunnel`.
        tunnel: u8,
        /// `TUNNEL_*`.
        tunnel_flags: u8,
        /// DSCP mark of l3dsr.
        dscp: u8,
        /// Of GUE.
        tunnel_port: Be16,
        /// ICMP type of the last error about the connection; 0 = none.
        error_type: u8,
        /// Its code.
        error_code: u8,
        /// Packets sent.
        sent: u32,
        /// Replies from the VIP.
        answered: u32,
        /// Replies from the VIP, but from another MAC address.
        stray: u32,
        /// Replies from the server's address instead of the VIP (l3dsr).
        unturned: u32,
        /// Egress device.
        ifindex: u32,
        /// Destination MAC address.
        to_mac: [u8; 6],
        /// Source MAC address.
        from_mac: [u8; 6],
    }
}
