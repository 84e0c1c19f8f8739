//! Reads, adds and removes neighbors: link-layer addresses of machines on a segment.
//!
//! The data plane cannot resolve addresses and depends on entries that remain resolved. The kernel resolves and
//! refreshes a *managed* neighbor (`NTF_EXT_MANAGED`, kernel 5.16) without traffic, even while no daemon is running.

use std::net::IpAddr;

use netlink_packet_route::neighbour::{
    NeighbourAddress, NeighbourAttribute, NeighbourExtFlags, NeighbourFlags, NeighbourMessage,
    NeighbourState as KernelState,
};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use rtnetlink::packet_core::{NLM_F_CREATE, NLM_F_REPLACE};

use crate::{Change, MacAddr, Netlink, Result};

/// State of an entry (`NUD_*` in linux/neighbour.h).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum NeighborState {
    /// The first resolution is in progress.
    Incomplete,
    /// Confirmed recently.
    Reachable,
    /// Not confirmed recently; still used, and confirmed after the next packet.
    Stale,
    /// Waiting for confirmation by traffic.
    Delay,
    /// A confirmation is requested.
    Probe,
    /// No reply was received.
    Failed,
    /// The device requires no resolution.
    NoArp,
    /// Configured manually.
    Permanent,
    /// The entry was just created.
    None,
    /// An unknown state, with its number.
    Other(u16),
}

impl NeighborState {
    fn from_kernel(state: KernelState) -> Self {
        match state {
            KernelState::Incomplete => Self::Incomplete,
            KernelState::Reachable => Self::Reachable,
            KernelState::Stale => Self::Stale,
            KernelState::Delay => Self::Delay,
            KernelState::Probe => Self::Probe,
            KernelState::Failed => Self::Failed,
            KernelState::Noarp => Self::NoArp,
            KernelState::Permanent => Self::Permanent,
            KernelState::None => Self::None,
            other => Self::Other(other.into()),
        }
    }

    /// Returns whether the kernel sends packets to the entry's address (`NUD_VALID`).
    pub const fn is_valid(self) -> bool {
        matches!(
            self,
            Self::Reachable
                | Self::Stale
                | Self::Delay
                | Self::Probe
                | Self::NoArp
                | Self::Permanent
        )
    }
}

/// An entry of the neighbor table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Neighbor {
    /// The device.
    pub ifindex: u32,
    /// The IP address.
    pub ip: IpAddr,
    /// The Ethernet address, if known. It can be outdated if the state is not valid.
    pub mac: Option<MacAddr>,
    /// The state of the entry.
    pub state: NeighborState,
    /// Whether the kernel keeps the entry resolved.
    pub managed: bool,
}

impl Neighbor {
    /// Returns the Ethernet address, if the entry is valid.
    pub fn usable_mac(&self) -> Option<MacAddr> {
        self.mac.filter(|_| self.state.is_valid())
    }

    /// Parses a message; `None` for bridge forwarding entries, proxies and other families.
    pub(crate) fn from_message(message: &NeighbourMessage) -> Option<Self> {
        if message.header.flags.contains(NeighbourFlags::Proxy) {
            return None;
        }
        let mut ip = None;
        let mut mac = None;
        let mut managed = false;
        for attribute in &message.attributes {
            match attribute {
                NeighbourAttribute::Destination(NeighbourAddress::Inet(v4)) => {
                    ip = Some((*v4).into())
                }
                NeighbourAttribute::Destination(NeighbourAddress::Inet6(v6)) => {
                    ip = Some((*v6).into())
                }
                NeighbourAttribute::LinkLayerAddress(bytes) => mac = MacAddr::from_slice(bytes),
                NeighbourAttribute::ExtFlags(flags) => {
                    managed = flags.contains(NeighbourExtFlags::Managed)
                }
                _ => {}
            }
        }
        Some(Self {
            ifindex: message.header.ifindex,
            ip: ip?,
            mac,
            state: NeighborState::from_kernel(message.header.state),
            managed,
        })
    }
}

/// The result of [`Netlink::ensure_managed`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ManageOutcome {
    /// The entry is managed now; the caller records it for [`Netlink::remove_managed`].
    Added,
    /// The entry was already managed, by another program or an earlier run.
    Present,
    /// The entry is configured manually and was not changed.
    Permanent,
}

fn entry_message(ifindex: u32, ip: IpAddr) -> NeighbourMessage {
    let mut message = NeighbourMessage::default();
    message.header.family = if ip.is_ipv4() {
        AddressFamily::Inet
    } else {
        AddressFamily::Inet6
    };
    message.header.ifindex = ifindex;
    message
        .attributes
        .push(NeighbourAttribute::Destination(ip.into()));
    message
}

impl Netlink {
    /// Returns the neighbors of both address families.
    ///
    /// # Errors
    /// Fails if the kernel rejects the dump.
    pub async fn neighbors(&self) -> Result<Vec<Neighbor>> {
        let message = RouteNetlinkMessage::GetNeighbour(NeighbourMessage::default());
        let replies = self.dump("list neighbors", message).await?;
        Ok(replies
            .iter()
            .filter_map(|reply| match reply {
                RouteNetlinkMessage::NewNeighbour(message) => Neighbor::from_message(message),
                _ => None,
            })
            .collect())
    }

    /// Returns the entry for `ip` on a device, or `None`.
    ///
    /// # Errors
    /// Fails if the device does not exist.
    pub async fn neighbor(&self, ifindex: u32, ip: IpAddr) -> Result<Option<Neighbor>> {
        let request = format!("look up neighbor {ip} on device {ifindex}");
        let message = RouteNetlinkMessage::GetNeighbour(entry_message(ifindex, ip));
        match self.transact(&request, message, 0).await {
            Ok(replies) => Ok(replies.iter().find_map(|reply| match reply {
                RouteNetlinkMessage::NewNeighbour(message) => Neighbor::from_message(message),
                _ => None,
            })),
            Err(error) if error.has_errno(rustix::io::Errno::NOENT) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Makes the kernel resolve `ip` on a device and keep it resolved.
    ///
    /// # Errors
    /// Fails if the device does not exist or is down, or `CAP_NET_ADMIN` is missing.
    pub async fn ensure_managed(&self, ifindex: u32, ip: IpAddr) -> Result<ManageOutcome> {
        // Marking a permanent entry as managed would make it no longer permanent (`__neigh_update` in
        // net/core/neighbour.c).
        match self.neighbor(ifindex, ip).await? {
            Some(entry) if entry.state == NeighborState::Permanent => {
                return Ok(ManageOutcome::Permanent);
            }
            Some(entry) if entry.managed => return Ok(ManageOutcome::Present),
            _ => {}
        }
        let mut message = entry_message(ifindex, ip);
        let flags = NeighbourAttribute::ExtFlags(NeighbourExtFlags::Managed);
        message.attributes.push(flags);
        let request = format!("manage neighbor {ip} on device {ifindex}");
        let message = RouteNetlinkMessage::NewNeighbour(message);
        self.transact(&request, message, NLM_F_CREATE | NLM_F_REPLACE)
            .await?;
        Ok(ManageOutcome::Added)
    }

    /// Removes an entry that [`Netlink::ensure_managed`] added. An entry that is no longer managed was changed by
    /// another program and is kept. If this machine still sends packets to `ip`, the kernel resolves it again.
    ///
    /// # Errors
    /// Fails if `CAP_NET_ADMIN` is missing.
    pub async fn remove_managed(&self, ifindex: u32, ip: IpAddr) -> Result<Change> {
        let entry = match self.neighbor(ifindex, ip).await {
            Err(error) if error.has_errno(rustix::io::Errno::NODEV) => None,
            result => result?,
        };
        if !entry.is_some_and(|entry| entry.managed) {
            return Ok(Change::None);
        }
        let request = format!("remove neighbor {ip} from device {ifindex}");
        let message = RouteNetlinkMessage::DelNeighbour(entry_message(ifindex, ip));
        self.remove(&request, message).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mac_of_failed_entry_is_not_usable() {
        let ip: IpAddr = "10.0.0.7".parse().unwrap();
        let mut message = entry_message(3, ip);
        message.header.state = KernelState::Failed;
        message
            .attributes
            .push(NeighbourAttribute::LinkLayerAddress(vec![2, 0, 0, 0, 0, 7]));
        let failed = Neighbor::from_message(&message).unwrap();
        assert!(failed.mac.is_some() && failed.usable_mac().is_none() && !failed.managed);

        message.header.state = KernelState::Stale;
        let flags = NeighbourAttribute::ExtFlags(NeighbourExtFlags::Managed);
        message.attributes.push(flags);
        let stale = Neighbor::from_message(&message).unwrap();
        assert_eq!(stale.usable_mac(), Some(MacAddr([2, 0, 0, 0, 0, 7])));
        assert!(stale.managed);
    }

    #[test]
    fn proxies_and_bridge_entries_are_not_neighbors() {
        let mut proxy = entry_message(3, "10.0.0.7".parse().unwrap());
        proxy.header.flags = NeighbourFlags::Proxy;
        assert_eq!(Neighbor::from_message(&proxy), None);
        assert_eq!(Neighbor::from_message(&NeighbourMessage::default()), None);
    }
}
