//! Conversations of the director's own with servers that leave as a service's forward would send a client's.
//!
//! User space enters one before it connects and reads afterwards what became of it; the tc programs do the rest.

use crate::mirror::structs;
use crate::{Addr, Be16};

structs! {
    /// `weir_probes`: the director's end of the conversation.
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

    /// `weir_probes`: where it goes, and what was seen of it.
    Probe = "weir_probe", 72 {
        /// Whom the socket talks to.
        server: Addr,
        /// What the server is to see; the same family.
        vip: Addr,
        /// `Forward`, without nat.
        forward: u8,
        /// `Tunnel`.
        tunnel: u8,
        /// `TUNNEL_*`.
        tunnel_flags: u8,
        /// Mark of l3dsr.
        dscp: u8,
        /// Of GUE.
        tunnel_port: Be16,
        /// ICMP type of the last error that named the conversation; 0 = none came.
        error_type: u8,
        /// Its code.
        error_code: u8,
        /// Packets that left so.
        sent: u32,
        /// That came back from the VIP.
        answered: u32,
        /// From the VIP, but from another machine than they went to.
        stray: u32,
        /// From the server's own address, which should have turned them back to the VIP.
        unturned: u32,
        /// Device that they leave by.
        ifindex: u32,
        /// Link address that they go to.
        to_mac: [u8; 6],
        /// Link address that they come from.
        from_mac: [u8; 6],
    }
}
