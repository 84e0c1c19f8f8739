//! Firewall marks: packets that come from the device that marked ones are routed to.

use core::net::Ipv6Addr;

use weir_abi::{Addr, MARK_MAC};

use super::{Job, Model, Scheduler};
use crate::parse::Family;

/// What such a frame carries in place of its source.
pub(super) struct FrameMark {
    pub(super) mark: u32,
    /// The device that the packet came in by; 0 = not known.
    pub(super) origin: u32,
}

impl<S: Scheduler> Model<S> {
    /// Whether packets come from that device.
    pub(super) fn comes_marked(&self) -> bool {
        let exit = self.config.settings.mark_exit;
        exit != 0 && exit == self.config.ingress
    }

    /// Whether a frame comes from there, and has its address.
    pub(super) fn is_marked(&self, frame: &[u8]) -> bool {
        self.comes_marked() && frame.get(..6) == Some(&MARK_MAC.to_le_bytes()[..6])
    }

    /// What the frame says.
    pub(super) fn mark_of(&self, job: &Job) -> Option<FrameMark> {
        let bytes: [u8; 6] = job.frame.get(6..12)?.try_into().ok()?;
        let [a, b, c, d, e, f] = bytes;
        self.comes_marked().then_some(FrameMark {
            mark: u32::from_ne_bytes([a, b, c, d]),
            origin: u16::from_ne_bytes([e, f]).into(),
        })
    }

    /// The device that a packet came in by.
    pub(super) fn origin(&self, job: &Job) -> u32 {
        self.mark_of(job)
            .map_or(self.config.ingress, |mark| mark.origin)
    }

    /// The service for a packet, by its mark or its destination: `None` when the address is no VIP or no service has the
    /// mark, `Some(0)` when no service listens there.
    pub(super) fn service_for(&self, job: &Job) -> Option<u32> {
        let layout = &job.layout;
        let Some(FrameMark { mark, .. }) = self.mark_of(job) else {
            return self
                .config
                .service(layout.dst, layout.dport, layout.protocol.0);
        };
        let family = if layout.family == Family::V4 { 4 } else { 6 };
        let number = Addr::from(Ipv6Addr::from(u128::from(mark)));
        self.config.listeners.get(&(number, family, 0)).copied()
    }
}
