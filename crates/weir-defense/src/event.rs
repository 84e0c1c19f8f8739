//! Defines the events of a conflict.

use std::net::IpAddr;

use weir_wire::MacAddr;

/// An address, and the index of the interface on whose segment it is announced.
pub type SegmentAddress = (u32, IpAddr);

/// The beginning, continuation or end of a conflict.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// The VIP.
    pub address: SegmentAddress,
    /// Link-layer address of the other machine.
    pub machine: MacAddr,
    /// The kind of change.
    pub kind: EventKind,
}

/// The kind of an [`Event`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventKind {
    /// Another machine has replied twice in a row. `announce` is false if the VIP was announced less than 10 s ago.
    Started {
        /// Whether to announce the VIP once.
        announce: bool,
    },
    /// The conflict continues: announce the VIP once.
    Continues,
    /// The other machine no longer replies: announce the VIP, repeatedly if announcements can be lost.
    Ended,
}

impl Event {
    /// Returns whether the VIP must be announced.
    #[must_use]
    pub const fn must_announce(&self) -> bool {
        !matches!(self.kind, EventKind::Started { announce: false })
    }

    /// Logs the event. `interface` is the name of the VIP's interface.
    pub fn log(&self, interface: &str) {
        let (_, address) = self.address;
        let machine = self.machine;
        match self.kind {
            EventKind::Started { .. } => tracing::warn!(
                %address,
                interface,
                %machine,
                "another machine replies for a VIP of this director: `weir doctor` prints the fix; Weir defends the \
                 VIP, and announces it again when the machine stops replying"
            ),
            EventKind::Continues => {
                tracing::debug!(%address, interface, %machine, "announcing a VIP for which another machine replies");
            }
            EventKind::Ended => tracing::info!(
                %address,
                interface,
                %machine,
                "the other machine no longer replies for the VIP; announcing the VIP to its neighbors"
            ),
        }
    }
}
