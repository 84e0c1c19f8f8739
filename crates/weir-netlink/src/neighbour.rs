//! Neighbours: link-layer addresses of machines on the link.
//!
//! The data plane cannot resolve; it depends on entries that stay resolved. A
//! *managed* neighbour (`NTF_EXT_MANAGED`, kernel 5.16) is resolved and renewed by
//! the kernel itself without traffic, also while no daemon runs.

use std::net::IpAddr;

use netlink_packet_route::neighbour::{
    NeighbourAddress, NeighbourAttribute, NeighbourExtFlags, NeighbourFlags, NeighbourMessage,
    NeighbourState as KernelState,
};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use rtnetlink::packet_core::{NLM_F_CREATE, NLM_F_REPLACE};

use crate::{Change, MacAddr, Netlink, Result};

/// How far the kernel trusts an entry (`NUD_*` of linux/neighbour.h).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum NeighbourState {
    /// Being resolved for the first time.
    Incomplete,
    /// Confirmed lately.
    Reachable,
    /// Known, unconfirmed; used, and confirmed with the next packet.
    Stale,
    /// Known, waiting for confirmation by traffic.
    Delay,
    /// Known, being asked again.
    Probe,
    /// Did not answer.
    Failed,
    /// Needs no resolution on this device.
    NoArp,
    /// Configured by hand.
    Permanent,
    /// Just created.
    None,
    /// A state of another number.
    Other(u16),
}

impl NeighbourState {
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

    /// Whether the kernel itself would send to the entry's address (`NUD_VALID`).
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

/// An entry of the neighbour table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Neighbour {
    /// The device whose link it is on.
    pub ifindex: u32,
    /// Its address.
    pub ip: IpAddr,
    /// Its Ethernet address, once known; it may be out of date in an invalid state.
    pub mac: Option<MacAddr>,
    /// How far it can be trusted.
    pub state: NeighbourState,
    /// The kernel keeps it resolved.
    pub managed: bool,
}

impl Neighbour {
    /// The address to send to, when the entry is valid.
    pub fn usable_mac(&self) -> Option<MacAddr> {
        self.mac.filter(|_| self.state.is_valid())
    }

    /// `None` for bridge forwarding entries, proxies and other families.
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
            state: NeighbourState::from_kernel(message.header.state),
            managed,
        })
    }
}

/// What [`Netlink::ensure_managed`] found and did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Managed {
    /// The entry is managed now; remember it for [`Netlink::remove_managed`].
    Added,
    /// It was managed before, by someone else or by an earlier run.
    Present,
    /// It is configured by hand: resolved for good, and left alone.
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
    /// All neighbours of both families.
    ///
    /// # Errors
    /// The kernel refuses the dump.
    pub async fn neighbours(&self) -> Result<Vec<Neighbour>> {
        let message = RouteNetlinkMessage::GetNeighbour(NeighbourMessage::default());
        let answers = self.dump("list neighbours", message).await?;
        Ok(answers
            .iter()
            .filter_map(|answer| match answer {
                RouteNetlinkMessage::NewNeighbour(message) => Neighbour::from_message(message),
                _ => None,
            })
            .collect())
    }

    /// The entry for `ip` on a device, or `None`.
    ///
    /// # Errors
    /// No such device.
    pub async fn neighbour(&self, ifindex: u32, ip: IpAddr) -> Result<Option<Neighbour>> {
        let request = format!("look up neighbour {ip} on device {ifindex}");
        let message = RouteNetlinkMessage::GetNeighbour(entry_message(ifindex, ip));
        match self.ask(&request, message, 0).await {
            Ok(answers) => Ok(answers.iter().find_map(|answer| match answer {
                RouteNetlinkMessage::NewNeighbour(message) => Neighbour::from_message(message),
                _ => None,
            })),
            Err(error) if error.is(rustix::io::Errno::NOENT) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Has the kernel resolve `ip` on a device now and keep it so.
    ///
    /// # Errors
    /// No such device, the device is down, or no `CAP_NET_ADMIN`.
    pub async fn ensure_managed(&self, ifindex: u32, ip: IpAddr) -> Result<Managed> {
        // Marking a permanent entry as managed would make the kernel forget that it
        // is permanent (`__neigh_update` of net/core/neighbour.c).
        match self.neighbour(ifindex, ip).await? {
            Some(entry) if entry.state == NeighbourState::Permanent => {
                return Ok(Managed::Permanent);
            }
            Some(entry) if entry.managed => return Ok(Managed::Present),
            _ => {}
        }
        let mut message = entry_message(ifindex, ip);
        let flags = NeighbourAttribute::ExtFlags(NeighbourExtFlags::Managed);
        message.attributes.push(flags);
        let request = format!("manage neighbour {ip} on device {ifindex}");
        let message = RouteNetlinkMessage::NewNeighbour(message);
        self.ask(&request, message, NLM_F_CREATE | NLM_F_REPLACE)
            .await?;
        Ok(Managed::Added)
    }

    /// Removes an entry that [`Netlink::ensure_managed`] added. One that is not
    /// managed any more belongs to someone else and stays. If the machine still
    /// talks to `ip`, the kernel resolves it again when the next packet needs it.
    ///
    /// # Errors
    /// No `CAP_NET_ADMIN`.
    pub async fn remove_managed(&self, ifindex: u32, ip: IpAddr) -> Result<Change> {
        let entry = match self.neighbour(ifindex, ip).await {
            Err(error) if error.is(rustix::io::Errno::NODEV) => None,
            found => found?,
        };
        if !entry.is_some_and(|entry| entry.managed) {
            return Ok(Change::None);
        }
        let request = format!("remove neighbour {ip} from device {ifindex}");
        let message = RouteNetlinkMessage::DelNeighbour(entry_message(ifindex, ip));
        self.remove(&request, message).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failed_entries_keep_an_unused_mac() {
        let ip: IpAddr = "10.0.0.7".parse().unwrap();
        let mut message = entry_message(3, ip);
        message.header.state = KernelState::Failed;
        message
            .attributes
            .push(NeighbourAttribute::LinkLayerAddress(vec![2, 0, 0, 0, 0, 7]));
        let failed = Neighbour::from_message(&message).unwrap();
        assert!(failed.mac.is_some() && failed.usable_mac().is_none() && !failed.managed);

        message.header.state = KernelState::Stale;
        let flags = NeighbourAttribute::ExtFlags(NeighbourExtFlags::Managed);
        message.attributes.push(flags);
        let stale = Neighbour::from_message(&message).unwrap();
        assert_eq!(stale.usable_mac(), Some(MacAddr([2, 0, 0, 0, 0, 7])));
        assert!(stale.managed);
    }

    #[test]
    fn proxies_and_bridge_entries_are_not_neighbours() {
        let mut proxy = entry_message(3, "10.0.0.7".parse().unwrap());
        proxy.header.flags = NeighbourFlags::Proxy;
        assert_eq!(Neighbour::from_message(&proxy), None);
        assert_eq!(Neighbour::from_message(&NeighbourMessage::default()), None);
    }
}
