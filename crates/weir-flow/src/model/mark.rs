//! Handles packets from the device to which packets with a firewall mark are routed.

use core::net::Ipv6Addr;

use weir_abi::{Addr, MARK_MAC};

use super::{Model, PacketContext, Scheduler};
use crate::family::Family;

/// The contents of the source MAC address of a marked frame.
pub(super) struct FrameMark {
    pub(super) mark: u32,
    /// Index of the device on which the packet arrived; 0 = unknown.
    pub(super) origin: u32,
}

impl<S: Scheduler> Model<S> {
    /// Returns whether packets currently arrive from the device for marked packets.
    pub(super) fn is_mark_ingress(&self) -> bool {
        let exit = self.config.settings.mark_exit;
        exit != 0 && exit == self.config.ingress
    }

    /// Returns whether a frame comes from the device for marked packets and has its MAC address.
    pub(super) fn is_marked(&self, frame: &[u8]) -> bool {
        self.is_mark_ingress() && frame.get(..6) == Some(&MARK_MAC.to_le_bytes()[..6])
    }

    /// Returns the mark in a frame, if it contains one.
    pub(super) fn mark_of(&self, ctx: &PacketContext) -> Option<FrameMark> {
        let bytes: [u8; 6] = ctx.frame.get(6..12)?.try_into().ok()?;
        let [a, b, c, d, e, f] = bytes;
        self.is_mark_ingress().then_some(FrameMark {
            mark: u32::from_ne_bytes([a, b, c, d]),
            origin: u16::from_ne_bytes([e, f]).into(),
        })
    }

    /// Returns the index of the device on which a packet arrived.
    pub(super) fn origin(&self, ctx: &PacketContext) -> u32 {
        self.mark_of(ctx)
            .map_or(self.config.ingress, |mark| mark.origin)
    }

    /// Returns the service for a packet, by its mark or its destination. Returns `None` if the address is not a VIP or
    /// no service has the mark, and `Some(0)` if no service listens on the port.
    pub(super) fn service_for(&self, ctx: &PacketContext) -> Option<u32> {
        let layout = &ctx.layout;
        let Some(FrameMark { mark, .. }) = self.mark_of(ctx) else {
            return self
                .config
                .service(layout.dst, layout.dport, layout.protocol.0);
        };
        let family = if layout.family == Family::V4 { 4 } else { 6 };
        let number = Addr::from(Ipv6Addr::from(u128::from(mark)));
        self.config.listeners.get(&(number, family, 0)).copied()
    }
}
