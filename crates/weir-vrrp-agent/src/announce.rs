//! Announces addresses with gratuitous ARP and unsolicited neighbor advertisements.
//!
//! The messages are those of RFC 9568 section 6.4.2 and RFC 4861 section 7.2.6.

use std::net::IpAddr;

use weir_sys::FrameSocket;
use weir_wire::{MacAddr, announcement_frame};

/// Announces each address `repeat` times. Stops at the first error and logs it.
pub(crate) fn send(
    socket: &FrameSocket,
    ifindex: u32,
    mac: MacAddr,
    addresses: &[IpAddr],
    repeat: u32,
) {
    for _ in 0..repeat {
        for address in addresses {
            if let Err(error) = socket.send(ifindex, &announcement_frame(*address, mac)) {
                tracing::warn!(%address, %error, "failed to announce an address");
                return;
            }
        }
    }
}
