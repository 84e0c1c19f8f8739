//! Sends gratuitous ARP and unsolicited neighbor advertisements for added VIPs.
//!
//! See RFC 5227 section 3 and RFC 4861 section 7.2.6. An announcement can be lost, so it is repeated.

use std::net::IpAddr;

use weir_defense::{Event, EventKind};
use weir_netlink::Netlink;
use weir_sys::FrameSocket;
use weir_wire::{MacAddr, announcement_frame};

/// Number of announcements per address: the maximum in RFC 4861 (`MAX_NEIGHBOR_ADVERTISEMENT`).
const ANNOUNCEMENTS: u32 = 3;

#[derive(Debug)]
struct Announcement {
    ifindex: u32,
    address: IpAddr,
    remaining: u32,
}

/// Addresses with outstanding announcements.
#[derive(Debug, Default)]
pub(crate) struct Announcements {
    due: Vec<Announcement>,
}

impl Announcements {
    /// Schedules announcements of an address on a device.
    pub(crate) fn add(&mut self, ifindex: u32, address: IpAddr) {
        self.push(ifindex, address, ANNOUNCEMENTS);
    }

    /// Schedules the announcements that a conflict with another machine requires: single ones while the conflict lasts,
    /// and the usual number after its end.
    pub(crate) fn add_for(&mut self, event: &Event) {
        let (ifindex, address) = event.address;
        match event.kind {
            EventKind::Ended => self.add(ifindex, address),
            EventKind::Started { .. } | EventKind::Continues if event.must_announce() => {
                self.push(ifindex, address, 1);
            }
            EventKind::Started { .. } | EventKind::Continues => {}
        }
    }

    fn push(&mut self, ifindex: u32, address: IpAddr, remaining: u32) {
        self.due.push(Announcement {
            ifindex,
            address,
            remaining,
        });
    }

    /// Returns whether no announcement is due.
    pub(crate) fn is_empty(&self) -> bool {
        self.due.is_empty()
    }

    /// Cancels the outstanding announcements of an address.
    pub(crate) fn cancel(&mut self, address: IpAddr) {
        self.due.retain(|it| it.address != address);
    }

    /// Sends one announcement for each due address; `mac_of` returns the MAC address of a device.
    ///
    /// # Errors
    /// Fails if a packet socket cannot be opened.
    pub(crate) fn send(
        &mut self,
        netlink: &Netlink,
        mac_of: impl Fn(u32) -> Option<MacAddr>,
    ) -> weir_netlink::Result<()> {
        if self.due.is_empty() {
            return Ok(());
        }
        let socket = netlink.run_in_namespace(FrameSocket::open)??;
        for announcement in &mut self.due {
            announcement.remaining -= 1;
            let Some(mac) = mac_of(announcement.ifindex) else {
                // Loopback and tunnel devices have no neighbors.
                announcement.remaining = 0;
                continue;
            };
            let frame = announcement_frame(announcement.address, mac);
            if let Err(error) = socket.send(announcement.ifindex, &frame) {
                let address = announcement.address;
                tracing::warn!(%address, %error, "failed to announce an address");
            }
        }
        self.due.retain(|announcement| announcement.remaining > 0);
        Ok(())
    }
}
