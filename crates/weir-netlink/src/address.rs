//! Reads, adds and removes addresses of devices.
//!
//! One Weir process can hand over an address to another without removing the address: the former owner marks it and
//! limits its lifetime, and the next owner takes it over. If there is no next owner, the kernel removes the address.

use std::net::IpAddr;
use std::time::Duration;

use netlink_packet_route::address::{
    AddressAttribute, AddressFlags, AddressMessage, AddressProtocol, AddressScope, CacheInfo,
};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use rtnetlink::packet_core::{NLM_F_CREATE, NLM_F_REPLACE};

use crate::{Change, Netlink, Result};

/// Time within which the next owner must take over an address that was handed over.
pub const HANDOVER_TIMEOUT: Duration = Duration::from_secs(60);
/// `IFA_PROTO` of an address that was handed over. The kernel and routing daemons use other values.
const HANDED_OVER: AddressProtocol = AddressProtocol::Other(0x57);

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
    /// Whether duplicate address detection is running (IPv6). Until it ends, the address is not usable.
    pub tentative: bool,
    /// Whether another machine has the address (IPv6). If so, this machine does not use it.
    pub duplicate: bool,
    /// Whether the kernel avoids the address as a source, because it has scope `host` (IPv4) or is deprecated (IPv6,
    /// RFC 6724 section 5, rule 3).
    pub destination_only: bool,
    /// Whether the former owner has handed the address over ([`Netlink::hand_over_address`]), and no process has taken
    /// it over yet.
    pub handed_over: bool,
}

impl Address {
    /// Parses a message; `None` = it has no local address.
    pub(crate) fn from_message(message: &AddressMessage) -> Option<Self> {
        let mut local = None;
        let mut remote = None;
        let mut label = None;
        let mut flags = AddressFlags::empty();
        let mut handed_over = false;
        for attribute in &message.attributes {
            match attribute {
                AddressAttribute::Local(ip) => local = Some(*ip),
                // On point-to-point devices, this attribute is the peer's address, and Local is this device's address.
                // Without a peer, IPv6 messages contain only this attribute.
                AddressAttribute::Address(ip) => remote = Some(*ip),
                AddressAttribute::Label(text) => label = Some(text.clone()),
                AddressAttribute::Flags(value) => flags = *value,
                AddressAttribute::Protocol(value) => handed_over = *value == HANDED_OVER,
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
            destination_only: match message.header.family {
                AddressFamily::Inet6 => flags.contains(AddressFlags::Deprecated),
                _ => message.header.scope == AddressScope::Host,
            },
            handed_over,
        })
    }
}

/// Returns the lifetimes of an address that is valid for `seconds`; `u32::MAX` = forever. An IPv6 address with prefix
/// 128 is deprecated (RFC 4862 section 5.5.4), as keepalived does.
fn lifetimes(ip: IpAddr, prefix: u8, seconds: u32) -> CacheInfo {
    let mut lifetimes = CacheInfo::default();
    lifetimes.ifa_valid = seconds;
    lifetimes.ifa_preferred = if ip.is_ipv6() && prefix == 128 {
        0
    } else {
        seconds
    };
    lifetimes
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
    /// Returns the addresses of all devices.
    ///
    /// # Errors
    /// Fails if the kernel rejects the dump.
    pub async fn addresses(&self) -> Result<Vec<Address>> {
        let message = RouteNetlinkMessage::GetAddress(AddressMessage::default());
        let replies = self.dump("list addresses", message).await?;
        Ok(replies
            .iter()
            .filter_map(|reply| match reply {
                RouteNetlinkMessage::NewAddress(message) => Address::from_message(message),
                _ => None,
            })
            .collect())
    }

    /// Adds `ip`/`prefix` to a device. IPv6 skips duplicate address detection, because a VIP that moves must be usable
    /// immediately. An IPv6 address with prefix 128 is deprecated from the start, because the kernel would otherwise
    /// select it as the source of this machine's own connections. Returns [`Change::None`] if the device already has
    /// the address. The kernel adds the local route of an IPv6 address asynchronously; a [`crate::Watch`] reports it.
    ///
    /// # Errors
    /// Fails if the device does not exist, the prefix is longer than the address, or `CAP_NET_ADMIN` is missing.
    pub async fn add_address(&self, ifindex: u32, ip: IpAddr, prefix: u8) -> Result<Change> {
        let mut message = address_message(ifindex, ip, prefix);
        if ip.is_loopback() {
            message.header.scope = AddressScope::Host;
        }
        if ip.is_ipv6() {
            message.attributes.extend([
                AddressAttribute::Flags(AddressFlags::Nodad),
                AddressAttribute::CacheInfo(lifetimes(ip, prefix, u32::MAX)),
            ]);
        }
        let request = format!("add address {ip}/{prefix} to device {ifindex}");
        self.create(&request, RouteNetlinkMessage::NewAddress(message))
            .await
    }

    /// Adds an address like [`Netlink::add_address`], but prevents the kernel from selecting it as the source of this
    /// machine's own connections: an IPv4 address gets scope `host`, and an IPv6 address is deprecated from the start
    /// (RFC 4862 section 5.5.4). Use this for a VIP on a server, whose replies set the source explicitly.
    ///
    /// # Errors
    /// See [`Netlink::add_address`].
    pub async fn add_destination_only_address(
        &self,
        ifindex: u32,
        ip: IpAddr,
        prefix: u8,
    ) -> Result<Change> {
        let mut message = address_message(ifindex, ip, prefix);
        if ip.is_ipv4() {
            message.header.scope = AddressScope::Host;
        } else {
            let mut lifetimes = CacheInfo::default();
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

    /// Removes `ip`/`prefix` from a device. Returns [`Change::None`] if the device does not have the address. The
    /// kernel also removes the secondary addresses of an IPv4 address, unless `promote_secondaries` is set.
    ///
    /// # Errors
    /// Fails if `CAP_NET_ADMIN` is missing.
    pub async fn remove_address(&self, ifindex: u32, ip: IpAddr, prefix: u8) -> Result<Change> {
        let message = address_message(ifindex, ip, prefix);
        let request = format!("remove address {ip}/{prefix} from device {ifindex}");
        self.remove(&request, RouteNetlinkMessage::DelAddress(message))
            .await
    }

    /// Hands over an address to its next owner: marks it, and limits its lifetime to [`HANDOVER_TIMEOUT`]. Returns
    /// whether the caller must remove `ip`/`prefix`: an IPv4 address is handed over as /32, next to an address with a
    /// shorter prefix, so that the network's other addresses do not depend on it.
    ///
    /// # Errors
    /// Fails if the device does not exist, or `CAP_NET_ADMIN` is missing.
    pub async fn hand_over_address(&self, ifindex: u32, ip: IpAddr, prefix: u8) -> Result<bool> {
        let handed_prefix = if ip.is_ipv4() { 32 } else { prefix };
        // The lifetime must not apply to the prefix's route, which other addresses need.
        let flags = AddressFlags::Nodad | AddressFlags::Noprefixroute;
        let seconds = u32::try_from(HANDOVER_TIMEOUT.as_secs()).unwrap_or(u32::MAX);
        self.replace_address(ifindex, (ip, handed_prefix), flags, seconds, HANDED_OVER)
            .await?;
        Ok(handed_prefix != prefix)
    }

    /// Takes over `ip`/`prefix`, which was handed over: removes the mark and the limit of its lifetime.
    ///
    /// # Errors
    /// See [`Netlink::hand_over_address`].
    pub async fn take_over_address(&self, ifindex: u32, ip: IpAddr, prefix: u8) -> Result<()> {
        let unmarked = AddressProtocol::Other(0);
        self.replace_address(
            ifindex,
            (ip, prefix),
            AddressFlags::Nodad,
            u32::MAX,
            unmarked,
        )
        .await
    }

    /// Adds an address, or changes the lifetime (in seconds) and the protocol of an existing address.
    async fn replace_address(
        &self,
        ifindex: u32,
        (ip, prefix): (IpAddr, u8),
        flags: AddressFlags,
        lifetime: u32,
        protocol: AddressProtocol,
    ) -> Result<()> {
        let mut message = address_message(ifindex, ip, prefix);
        message.attributes.extend([
            AddressAttribute::CacheInfo(lifetimes(ip, prefix, lifetime)),
            AddressAttribute::Protocol(protocol),
        ]);
        if ip.is_ipv6() {
            message.attributes.push(AddressAttribute::Flags(flags));
        }
        let request = format!("change address {ip}/{prefix} of device {ifindex}");
        let message = RouteNetlinkMessage::NewAddress(message);
        self.transact(&request, message, NLM_F_CREATE | NLM_F_REPLACE)
            .await
            .map(drop)
    }

    /// Returns whether packets for `ip` are delivered to this machine: it is an address of a device, or a local route
    /// covers it.
    ///
    /// # Errors
    /// See [`Netlink::route_get`].
    pub async fn is_local(&self, ip: IpAddr) -> Result<bool> {
        self.is_delivered_locally(ip).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn point_to_point_address_is_the_local_address() {
        let local: IpAddr = "10.0.0.1".parse().unwrap();
        let peer: IpAddr = "10.0.0.2".parse().unwrap();
        let mut message = address_message(4, peer, 32);
        message.attributes = vec![
            AddressAttribute::Address(peer),
            AddressAttribute::Local(local),
            AddressAttribute::Label("ppp0".to_owned()),
        ];
        let address = Address::from_message(&message).unwrap();
        assert_eq!(
            (address.ip, address.ifindex, address.prefix),
            (local, 4, 32)
        );
        assert_eq!(address.label.as_deref(), Some("ppp0"));
    }

    #[test]
    fn ipv6_address_without_peer_and_its_flags_are_parsed() {
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
        assert_eq!(
            (flags(&address), address.destination_only),
            ((true, true), false)
        );
        message.attributes[1] = AddressAttribute::Flags(AddressFlags::Deprecated);
        assert!(Address::from_message(&message).unwrap().destination_only);
        message.attributes.clear();
        assert_eq!(Address::from_message(&message), None);
    }
}
