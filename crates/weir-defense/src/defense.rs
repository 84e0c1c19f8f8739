//! Queries other machines about VIPs.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::{Duration, Instant};

use weir_netlink::{Address, Link};
use weir_sys::FrameSocket;
use weir_wire::{EtherType, MacAddr, address_claim, address_query};

use crate::conflict::Conflicts;
use crate::event::{Event, SegmentAddress};

/// Bytes of an ARP reply in an Ethernet frame: the operation.
const ARP_REPLY: &[(u32, u8)] = &[(20, 0), (21, 2)];
/// Bytes of a neighbor advertisement in an Ethernet frame: next header and type.
const NEIGHBOR_ADVERTISEMENT: &[(u32, u8)] = &[(20, 58), (54, 136)];

/// Maximum number of frames that are read from a socket per tick. Replies for all queried addresses fit.
const MAX_FRAMES: usize = 1024;
/// Number of bytes of a frame that are read: an ARP packet or neighbor advertisement fits.
const FRAME_BYTES: usize = 128;

/// The VIPs that this process owns, and the interfaces and addresses for querying other machines about them.
#[derive(Debug, Default)]
pub struct View {
    /// The VIPs that this machine has.
    pub addresses: BTreeSet<SegmentAddress>,
    /// The interfaces, by index. VIPs on other interfaces are not examined.
    pub interfaces: BTreeMap<u32, Interface>,
    /// This machine's link-layer addresses. Replies from them are not conflicts.
    pub own_macs: BTreeSet<MacAddr>,
}

impl View {
    /// Adds an interface, and the link-layer addresses of all `links`. `links` and `addresses` are those of this
    /// machine. The VIPs must have been added before.
    pub fn add_interface(&mut self, ifindex: u32, links: &[&Link], addresses: &[Address]) {
        let mac_of = |link: &&Link| Some(MacAddr::new(link.mac?.octets()));
        self.own_macs.extend(links.iter().filter_map(mac_of));
        let link = links.iter().find(|link| link.index == ifindex);
        let Some(mac) = link.filter(|link| !link.loopback).and_then(mac_of) else {
            return;
        };
        let link_local = addresses.iter().find_map(|address| match address.ip {
            IpAddr::V6(ip) if address.ifindex == ifindex && ip.is_unicast_link_local() => {
                // A solicitation from a VIP would change its entry in neighbor tables: a virtual router can have a
                // link-layer address of its own.
                let is_vip = self.addresses.iter().any(|(_, vip)| *vip == address.ip);
                (!is_vip && !address.tentative && !address.duplicate).then_some(ip)
            }
            _ => None,
        });
        self.interfaces
            .insert(ifindex, Interface { mac, link_local });
    }
}

/// The addresses of an interface that are the source of queries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interface {
    /// The interface's own link-layer address.
    pub mac: MacAddr,
    /// A link-local address. Without one, IPv6 VIPs are not examined: a solicitation from the unspecified address would
    /// be part of duplicate address detection.
    pub link_local: Option<Ipv6Addr>,
}

/// Examines VIPs for conflicts with other machines.
#[derive(Debug, Default)]
pub struct Defense {
    conflicts: Conflicts,
    /// The VIPs that the last tick queried. The replies have not been read yet.
    queried: Vec<SegmentAddress>,
    /// Listening sockets by interface and family (`true` = IPv4). They stay open, because closing a packet socket can
    /// take tens of milliseconds, which would delay the VRRP agent's advertisements.
    sockets: BTreeMap<(u32, bool), FrameSocket>,
}

impl Defense {
    /// Returns whether [`Self::tick`] has work to do.
    #[must_use]
    pub fn is_due(&self, now: Instant) -> bool {
        !self.queried.is_empty() || self.conflicts.is_due(now)
    }

    /// Reads the replies to the queries of the last tick, and sends the queries that are due. The caller runs it once
    /// per second if [`Self::is_due`], and sends the announcements. `open` opens a listening socket for an EtherType on
    /// an interface; addresses for which it fails are not examined. The socket stays open while `view` contains the
    /// interface.
    pub fn tick<E>(
        &mut self,
        view: &View,
        open: impl Fn(u32, u16) -> Result<FrameSocket, E>,
        now: Instant,
    ) -> Vec<Event> {
        self.conflicts.retain(&view.addresses);
        self.sockets
            .retain(|(ifindex, _), _| view.interfaces.contains_key(ifindex));
        // If nothing was queried, this discards the replies to other queries.
        let claims = self.read_claims(&view.own_macs);
        let mut queried = std::mem::take(&mut self.queried);
        queried.retain(|address| view.addresses.contains(address));
        let events = self.conflicts.handle_replies(&queried, &claims, now);
        let due = self.conflicts.due_queries(&view.addresses, now);
        self.query(&due, view, &open);
        events
    }

    fn query<E>(
        &mut self,
        addresses: &BTreeSet<SegmentAddress>,
        view: &View,
        open: &impl Fn(u32, u16) -> Result<FrameSocket, E>,
    ) {
        for (ifindex, address) in addresses {
            let Some(frame) = view
                .interfaces
                .get(ifindex)
                .and_then(|interface| interface.query(*address))
            else {
                continue;
            };
            let key = (*ifindex, address.is_ipv4());
            let socket = match self.sockets.entry(key) {
                Entry::Occupied(entry) => entry.into_mut(),
                Entry::Vacant(entry) => match listen(key, open) {
                    Some(socket) => entry.insert(socket),
                    None => continue,
                },
            };
            // The interface may be down.
            if socket.send(*ifindex, &frame).is_ok() {
                self.queried.push((*ifindex, *address));
            }
        }
    }

    /// Returns the link-layer addresses that have replied, by VIP, except those of this machine.
    fn read_claims(&self, own_macs: &BTreeSet<MacAddr>) -> BTreeMap<SegmentAddress, MacAddr> {
        let mut claims = BTreeMap::new();
        let mut frame = [0; FRAME_BYTES];
        for ((ifindex, _), socket) in &self.sockets {
            for _ in 0..MAX_FRAMES {
                let Ok(Some(length)) = socket.receive_within(&mut frame, Duration::ZERO) else {
                    break;
                };
                let claim = frame.get(..length).and_then(address_claim);
                if let Some((address, mac)) = claim.filter(|(_, mac)| !own_macs.contains(mac)) {
                    claims.insert((*ifindex, address), mac);
                }
            }
        }
        claims
    }
}

/// Opens a socket that receives the replies on an interface in one family (`true` = IPv4).
fn listen<E>(
    (ifindex, is_ipv4): (u32, bool),
    open: &impl Fn(u32, u16) -> Result<FrameSocket, E>,
) -> Option<FrameSocket> {
    let (EtherType(ethertype), filter) = match is_ipv4 {
        true => (EtherType::ARP, ARP_REPLY),
        false => (EtherType::IPV6, NEIGHBOR_ADVERTISEMENT),
    };
    let socket = open(ifindex, ethertype).ok()?;
    socket
        .keep_only(filter)
        .inspect_err(|error| tracing::debug!(%error, "failed to set a filter"))
        .ok()?;
    Some(socket)
}

impl Interface {
    fn query(&self, address: IpAddr) -> Option<Vec<u8>> {
        let sender = match address {
            // A probe changes no neighbor entries.
            IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            IpAddr::V6(_) => self.link_local?.into(),
        };
        address_query(self.mac, sender, address)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries_for_ipv6_vips_are_sent_from_a_link_local_address_other_than_the_vip() {
        let address = |ip: &str| Address {
            ifindex: 2,
            ip: ip.parse().expect("parse the address"),
            prefix: 64,
            label: None,
            tentative: false,
            duplicate: false,
            destination_only: false,
            handed_over: false,
        };
        let link = Link {
            index: 2,
            name: "eth0".to_owned(),
            kind: None,
            mac: Some(weir_netlink::MacAddr([2, 0, 0, 0, 0, 1])),
            mtu: 1500,
            up: true,
            carrier: true,
            loopback: false,
            master: None,
            lower: None,
            vlan: None,
        };
        let vip = address("fe80::a1");
        let source_of = |addresses: &[Address]| {
            let mut view = View {
                addresses: [(2, vip.ip)].into(),
                ..View::default()
            };
            view.add_interface(2, &[&link], addresses);
            view.interfaces[&2].link_local.map(IpAddr::V6)
        };
        let own = address("fe80::1");
        let global = address("2001:db8::1");
        assert_eq!(
            source_of(&[global.clone(), vip.clone(), own.clone()]),
            Some(own.ip)
        );
        assert_eq!(source_of(&[global, vip.clone()]), None);
    }
}
