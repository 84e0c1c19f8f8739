//! Addresses of devices.

use std::net::IpAddr;

use netlink_packet_route::address::{
    AddressAttribute, AddressFlags, AddressMessage, AddressScope, CacheInfo,
};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};

use crate::{Change, Netlink, Result};

/// An address on a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Address {
    /// The device.
    pub ifindex: u32,
    /// The local address.
    pub ip: IpAddr,
    /// Length of the on-link prefix, in bits.
    pub prefix: u8,
    /// IPv4 label, by default the device's name.
    pub label: Option<String>,
    /// IPv6: duplicate address detection has not finished, the address is not yet usable.
    pub tentative: bool,
    /// IPv6: duplicate address detection found another machine with it, the address is not used.
    pub duplicate: bool,
    /// Avoided as a source: IPv4 of scope `host`, IPv6 deprecated (RFC 6724 section 5, rule 3).
    pub quiet: bool,
}

impl Address {
    /// `None` for messages without a local address.
    pub(crate) fn from_message(message: &AddressMessage) -> Option<Self> {
        let mut local = None;
        let mut remote = None;
        let mut label = None;
        let mut flags = AddressFlags::empty();
        for attribute in &message.attributes {
            match attribute {
                AddressAttribute::Local(ip) => local = Some(*ip),
                // On point-to-point devices this is the peer, and Local is ours;
                // IPv6 sends this one alone when there is no peer.
                AddressAttribute::Address(ip) => remote = Some(*ip),
                AddressAttribute::Label(text) => label = Some(text.clone()),
                AddressAttribute::Flags(all) => flags = *all,
                _ => {}
            }
        }
        Some(Self {
            ifindex: message.header.index,
            ip: local.or(remote)?,
            prefix: message.header.prefix_len,
            label,
            tentative: flags.contains(AddressFlags::Tentative),
            duplicate: flags.contains(AddressFlags::Dadfailed),
            quiet: match message.header.family {
                AddressFamily::Inet6 => flags.contains(AddressFlags::Deprecated),
                _ => message.header.scope == AddressScope::Host,
            },
        })
    }
}

fn address_message(ifindex: u32, ip: IpAddr, prefix: u8) -> AddressMessage {
    let mut message = AddressMessage::default();
    message.header.index = ifindex;
    message.header.prefix_len = prefix;
    message.header.family = match ip {
        IpAddr::V4(_) => AddressFamily::Inet,
        IpAddr::V6(_) => AddressFamily::Inet6,
    };
    message.attributes = vec![AddressAttribute::Local(ip), AddressAttribute::Address(ip)];
    message
}

impl Netlink {
    /// All addresses of all devices.
    ///
    /// # Errors
    /// The kernel refuses the dump.
    pub async fn addresses(&self) -> Result<Vec<Address>> {
        let message = RouteNetlinkMessage::GetAddress(AddressMessage::default());
        let answers = self.dump("list addresses", message).await?;
        Ok(answers
            .iter()
            .filter_map(|answer| match answer {
                RouteNetlinkMessage::NewAddress(message) => Address::from_message(message),
                _ => None,
            })
            .collect())
    }

    /// Adds `ip`/`prefix` to a device, IPv6 without duplicate address detection: a
    /// VIP that moves must serve at once. [`Change::None`] when the device has it.
    /// The kernel makes the local route of an IPv6 address a moment later, which a
    /// [`crate::Watch`] reports.
    ///
    /// # Errors
    /// No such device, a prefix longer than the address, or no `CAP_NET_ADMIN`.
    pub async fn add_address(&self, ifindex: u32, ip: IpAddr, prefix: u8) -> Result<Change> {
        let mut message = address_message(ifindex, ip, prefix);
        if ip.is_loopback() {
            message.header.scope = AddressScope::Host;
        }
        if ip.is_ipv6() {
            let flags = AddressFlags::Nodad;
            message.attributes.push(AddressAttribute::Flags(flags));
        }
        let request = format!("add address {ip}/{prefix} to device {ifindex}");
        self.create(&request, RouteNetlinkMessage::NewAddress(message))
            .await
    }

    /// As [`Netlink::add_address`], but never chosen as the source of what this machine begins: IPv4 in scope `host`,
    /// IPv6 deprecated from the start (RFC 4862 section 5.5.4). For a VIP on a server, whose answers name it
    /// themselves.
    ///
    /// # Errors
    /// As [`Netlink::add_address`].
    pub async fn add_quiet_address(&self, ifindex: u32, ip: IpAddr, prefix: u8) -> Result<Change> {
        let mut message = address_message(ifindex, ip, prefix);
        if ip.is_ipv4() {
            message.header.scope = AddressScope::Host;
        } else {
            let mut lifetimes = CacheInfo::default();
            lifetimes.ifa_preferred = 0;
            lifetimes.ifa_valid = u32::MAX;
            message.attributes.extend([
                AddressAttribute::Flags(AddressFlags::Nodad),
                AddressAttribute::CacheInfo(lifetimes),
            ]);
        }
        let request = format!("add address {ip}/{prefix} to device {ifindex}");
        self.create(&request, RouteNetlinkMessage::NewAddress(message))
            .await
    }

    /// Removes `ip`/`prefix` from a device. [`Change::None`] when it is not there.
    /// Removing an IPv4 address also removes its secondaries unless
    /// `promote_secondaries` is set: the kernel's rule.
    ///
    /// # Errors
    /// No `CAP_NET_ADMIN`.
    pub async fn remove_address(&self, ifindex: u32, ip: IpAddr, prefix: u8) -> Result<Change> {
        let message = address_message(ifindex, ip, prefix);
        let request = format!("remove address {ip}/{prefix} from device {ifindex}");
        self.remove(&request, RouteNetlinkMessage::DelAddress(message))
            .await
    }

    /// Whether packets for `ip` are delivered on this machine: an address of a
    /// device, or within a local route.
    ///
    /// # Errors
    /// As [`Netlink::route_get`].
    pub async fn is_local(&self, ip: IpAddr) -> Result<bool> {
        self.is_delivered_here(ip).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn point_to_point_address_is_the_local_one() {
        let ours: IpAddr = "10.0.0.1".parse().unwrap();
        let peer: IpAddr = "10.0.0.2".parse().unwrap();
        let mut message = address_message(4, peer, 32);
        message.attributes = vec![
            AddressAttribute::Address(peer),
            AddressAttribute::Local(ours),
            AddressAttribute::Label("ppp0".to_owned()),
        ];
        let address = Address::from_message(&message).unwrap();
        assert_eq!((address.ip, address.ifindex, address.prefix), (ours, 4, 32));
        assert_eq!(address.label.as_deref(), Some("ppp0"));
    }

    #[test]
    fn ipv6_alone_tentative_and_duplicate() {
        let ip: IpAddr = "2001:db8::1".parse().unwrap();
        let mut message = address_message(4, ip, 64);
        message.attributes = vec![
            AddressAttribute::Address(ip),
            AddressAttribute::Flags(AddressFlags::Tentative),
        ];
        let address = Address::from_message(&message).unwrap();
        let flags = |address: &Address| (address.tentative, address.duplicate);
        assert_eq!((address.ip, flags(&address)), (ip, (true, false)));
        let failed = AddressFlags::Tentative | AddressFlags::Dadfailed;
        message.attributes[1] = AddressAttribute::Flags(failed);
        let address = Address::from_message(&message).unwrap();
        assert_eq!((flags(&address), address.quiet), ((true, true), false));
        message.attributes[1] = AddressAttribute::Flags(AddressFlags::Deprecated);
        assert!(Address::from_message(&message).unwrap().quiet);
        message.attributes.clear();
        assert_eq!(Address::from_message(&message), None);
    }
}
