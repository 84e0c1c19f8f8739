//! Keeps the addresses of active virtual routers on their interfaces, and announces them.
//!
//! The helper adds the addresses when a virtual router becomes active. They are requested again if the request fails,
//! or if an address is missing later, for example because another program removed it or its interface was replaced.
//! They are announced after they were added, and when the link of an interface comes up or its MAC address changes.

use std::collections::HashSet;
use std::net::IpAddr;

use weir_helper::{Reply, Request};
use weir_model::VirtualRouter;
use weir_vrrp::State;
use weir_wire::MacAddr;

use super::port::Port;
use super::{Agent, Error, Purpose};
use crate::announce;
use crate::link::Network;

/// Index and MAC address of an interface.
pub(super) type Sender = (u32, MacAddr);

/// The addresses of an active virtual router.
#[derive(Debug, Default)]
pub(super) struct ActiveAddresses {
    /// Whether the helper has replied to a request for the addresses. Until then, no address is announced.
    has_reply: bool,
    /// Why the last request failed; `None` = it succeeded.
    failure: Option<String>,
    /// Addresses that are not on their interface. They are not announced.
    missing: Vec<IpAddr>,
    /// Interfaces that had a link when they were last checked.
    senders: Vec<Sender>,
    /// Frames per address of an announcement of all addresses that is due after the reply.
    pending_announcement: Option<u32>,
}

impl ActiveAddresses {
    /// Plans an announcement of all addresses.
    pub(super) const fn plan_announcement(&mut self, repeat: u32) {
        self.pending_announcement = Some(repeat);
    }

    fn take_announcement(&mut self) -> Option<u32> {
        self.pending_announcement.take_if(|_| self.has_reply)
    }

    /// Replaces the missing addresses. Returns those that are no longer missing; they must be announced, because
    /// neighbors might not have their current MAC address.
    fn set_missing(&mut self, missing: Vec<IpAddr>) -> Vec<IpAddr> {
        let mut restored = std::mem::replace(&mut self.missing, missing);
        let missing: HashSet<IpAddr> = self.missing.iter().copied().collect();
        restored.retain(|address| !missing.contains(address));
        restored
    }

    /// Replaces the interfaces that have a link. Returns whether one is new or has a different MAC address.
    fn set_senders(&mut self, senders: Vec<Sender>) -> bool {
        let is_changed = senders.iter().any(|it| !self.senders.contains(it));
        self.senders = senders;
        is_changed
    }

    /// Records that an interface has lost its link. The link may be up again when the interfaces are next read.
    pub(super) fn forget_sender(&mut self, ifindex: u32) {
        self.senders.retain(|(index, _)| *index != ifindex);
    }

    /// Handles the reply to the last request. Returns the addresses that are no longer missing.
    fn handle_reply(&mut self, failure: Option<String>, missing: Vec<IpAddr>) -> Vec<IpAddr> {
        self.has_reply = true;
        self.failure = failure;
        self.set_missing(missing)
    }

    /// Returns whether to request the addresses again. `is_retry` is true once per second. A request that failed is
    /// repeated only then, because every request can change the network.
    const fn is_request_due(&self, is_retry: bool) -> bool {
        match self.failure {
            Some(_) => is_retry,
            None => !self.missing.is_empty(),
        }
    }
}

impl Agent {
    pub(super) fn is_active(&self, index: usize) -> bool {
        let instance = self.router.instance(index);
        instance.is_some_and(|it| it.state() == State::Active)
    }

    /// Requests the addresses of an active virtual router.
    pub(super) fn add_addresses(&mut self, index: usize) -> Result<(), Error> {
        let router = self.settings[index].name.clone();
        let request = Request::Add {
            router: router.clone(),
        };
        self.request(request, Purpose::Add(router))
    }

    fn is_adding(&self, router: &str) -> bool {
        let is_add = |it: &Purpose| matches!(it, Purpose::Add(name) if name == router);
        self.pending.values().any(is_add)
    }

    /// Requests the addresses of all active virtual routers, because the configuration may have changed, or a restart
    /// of the helper may have lost requests.
    pub(super) fn add_addresses_again(&mut self) -> Result<(), Error> {
        for index in 0..self.settings.len() {
            if self.is_active(index) {
                self.check_addresses(index);
                self.add_addresses(index)?;
            }
        }
        Ok(())
    }

    /// Requests the addresses of active virtual routers if some are missing, or if the last request failed. `is_retry`
    /// must be true once per second.
    pub(super) fn restore_active(&mut self, is_retry: bool) -> Result<(), Error> {
        for index in 0..self.settings.len() {
            let router = &self.settings[index].name;
            if !self.is_active(index) || self.is_adding(router) {
                continue;
            }
            self.check_addresses(index);
            let addresses = &self.ports[index].addresses;
            if !addresses.has_reply || !addresses.is_request_due(is_retry) {
                continue;
            }
            if addresses.failure.is_none() {
                tracing::warn!(
                    router = self.settings[index].name,
                    address = %addresses.missing[0],
                    "an address of the active virtual router was removed; adding it again"
                );
            }
            self.add_addresses(index)?;
        }
        Ok(())
    }

    /// Compares the addresses of an active virtual router with those of the network. Announces addresses that are no
    /// longer missing, or all if an interface has a new link or MAC address.
    fn check_addresses(&mut self, index: usize) {
        let (settings, port) = (&self.settings[index], &mut self.ports[index]);
        if !port.addresses.has_reply {
            return;
        }
        let missing = missing_addresses(&self.network, settings, own_index(port));
        let senders = senders(&self.network, settings, port);
        let senders = senders.into_iter().map(|(_, sender)| sender).collect();
        let restored = port.addresses.set_missing(missing);
        if port.addresses.set_senders(senders) {
            let repeat = settings.announcements.repeat;
            port.addresses.plan_announcement(repeat);
        }
        self.announce(index, &restored);
    }

    pub(super) async fn handle_added(&mut self, name: &str, reply: Reply) -> Result<(), Error> {
        let index = self.settings.iter().position(|it| it.name == name);
        // The reply to an earlier request does not show that the addresses are present: they may have been removed.
        let is_last = |index: &usize| self.is_active(*index) && !self.is_adding(name);
        let Some(index) = index.filter(is_last) else {
            return Ok(());
        };
        let failure = match reply {
            Reply::Failed { reason } => Some(reason),
            _ => None,
        };
        let mut missing = Vec::new();
        if failure.is_some() {
            // Some addresses may have been added.
            self.read_network().await?;
            let (settings, port) = (&self.settings[index], &self.ports[index]);
            missing = missing_addresses(&self.network, settings, own_index(port));
        }
        let addresses = &mut self.ports[index].addresses;
        match (&addresses.failure, &failure) {
            (former, Some(reason)) if former.as_ref() != Some(reason) => {
                tracing::error!(
                    router = name,
                    reason,
                    ?missing,
                    "failed to add addresses; trying again every second"
                );
            }
            (Some(_), None) => tracing::info!(router = name, "added the addresses"),
            _ => {}
        }
        let restored = addresses.handle_reply(failure, missing);
        self.announce(index, &restored);
        Ok(())
    }

    /// Returns the present addresses of an active virtual router, with the interfaces that announce them.
    pub(super) fn present_addresses(&self, index: usize) -> Vec<(Sender, IpAddr)> {
        let (settings, port) = (&self.settings[index], &self.ports[index]);
        if !port.addresses.has_reply {
            return Vec::new();
        }
        let missing: HashSet<IpAddr> = port.addresses.missing.iter().copied().collect();
        let senders = senders(&self.network, settings, port).into_iter();
        let present = senders.flat_map(|(interface, sender)| {
            let addresses = settings.managed_on(interface).map(|it| it.address);
            addresses.map(move |address| (sender, address))
        });
        present
            .filter(|(_, address)| !missing.contains(address))
            .collect()
    }

    /// Announces all present addresses of a virtual router if such an announcement is due, and `restored` otherwise.
    pub(super) fn announce(&mut self, index: usize, restored: &[IpAddr]) {
        let (settings, port) = (&self.settings[index], &mut self.ports[index]);
        let senders = senders(&self.network, settings, port);
        let full_announcement = port.addresses.take_announcement();
        let repeat = match full_announcement {
            Some(repeat) => repeat,
            None if restored.is_empty() => return,
            None => settings.announcements.repeat,
        };
        let missing: HashSet<IpAddr> = port.addresses.missing.iter().copied().collect();
        let restored: HashSet<IpAddr> = restored.iter().copied().collect();
        let is_announced = |address: &IpAddr| {
            !missing.contains(address)
                && (full_announcement.is_some() || restored.contains(address))
        };
        for (interface, (ifindex, mac)) in &senders {
            let addresses = settings.managed_on(*interface).map(|it| it.address);
            let addresses: Vec<IpAddr> = addresses.filter(is_announced).collect();
            announce::send(&self.frames, *ifindex, *mac, &addresses, repeat);
        }
        if full_announcement.is_some() {
            let senders = senders.into_iter().map(|(_, sender)| sender).collect();
            port.addresses.set_senders(senders);
        }
    }
}

/// Returns the interfaces of a virtual router that have a link: its own (`None`) and others.
fn senders<'a>(
    network: &Network,
    router: &'a VirtualRouter,
    port: &Port,
) -> Vec<(Option<&'a str>, Sender)> {
    let own = port.link(router).map(|it| (None, it));
    let others = router.other_interfaces.iter().filter_map(|other| {
        let name = other.interface.as_str();
        Some((Some(name), network.hardware_address(name)?))
    });
    let has_link = |(_, (ifindex, _)): &(Option<&str>, Sender)| {
        let mut links = network.links.iter();
        links.any(|link| link.index == *ifindex && link.up && link.carrier)
    };
    own.into_iter().chain(others).filter(has_link).collect()
}

fn own_index(port: &Port) -> Option<u32> {
    port.attachment().map(|it| it.ifindex)
}

/// Returns the addresses of a virtual router that are missing from their interfaces. `own` is the index of the virtual
/// router's interface.
fn missing_addresses(network: &Network, router: &VirtualRouter, own: Option<u32>) -> Vec<IpAddr> {
    let own = if router.virtual_mac {
        let device = weir_helper::virtual_device(router.router_id, !router.is_ipv4());
        network.index_of(&device)
    } else {
        own
    };
    let is_present = |address: IpAddr, other: Option<&str>| {
        let index = other.map_or(own, |name| network.index_of(name));
        index.is_some_and(|index| network.has(index, address))
    };
    let managed = router.addresses_with_interfaces().into_iter();
    let missing = managed.filter(|(network, other)| !is_present(network.address, *other));
    missing.map(|(network, _)| network.address).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link::tests::{self as fixture, address, ip, link};

    const VIP: &str = "10.0.0.10";
    const OTHER: &str = "10.9.0.10";
    const NONE: [IpAddr; 0] = [];

    fn router(extra: &str) -> VirtualRouter {
        fixture::router(&format!("addresses = [\"{VIP}/24\"]\n{extra}"))
    }

    #[test]
    fn address_is_missing_unless_it_is_on_its_own_interface() {
        let links = [(1, "lo"), (2, "eth0"), (3, "side"), (4, "vrrp.51")];
        let links = links.map(|(index, name)| link(index, name));
        let missing = |router: &VirtualRouter, present: &[(u32, &str)]| {
            let present = present.iter().map(|(index, ip)| address(*index, ip));
            let network = Network::new(links.to_vec(), present.collect());
            missing_addresses(&network, router, Some(2))
        };
        let plain = router("");
        assert_eq!(missing(&plain, &[(2, VIP)]), NONE);
        // A director that is also a server has the VIP on `lo`.
        assert_eq!(missing(&plain, &[(1, VIP)]), [ip(VIP)]);
        let virtual_mac = router("virtual_mac = true");
        assert_eq!(missing(&virtual_mac, &[(2, VIP)]), [ip(VIP)]);
        assert_eq!(missing(&virtual_mac, &[(4, VIP)]), NONE);
        let extra = format!(
            "excluded_addresses = [\"{OTHER}/24\"]\n\
             other_interfaces = [{{ interface = \"side\", addresses = [\"{OTHER}\"] }}]"
        );
        let other = router(&extra);
        assert_eq!(missing(&other, &[(2, VIP), (2, OTHER)]), [ip(OTHER)]);
        assert_eq!(missing(&other, &[(2, VIP), (3, OTHER)]), NONE);
        let gone = router(&extra.replace("side", "gone"));
        assert_eq!(missing(&gone, &[(2, VIP), (3, OTHER)]), [ip(OTHER)]);
    }

    #[test]
    fn failed_request_is_repeated_once_per_second() {
        let mut addresses = ActiveAddresses::default();
        addresses.plan_announcement(5);
        assert_eq!(addresses.take_announcement(), None);
        let failure = Some("no space left".to_owned());
        assert_eq!(addresses.handle_reply(failure, vec![ip(VIP)]), NONE);
        assert_eq!(addresses.take_announcement(), Some(5));
        assert!(addresses.is_request_due(true) && !addresses.is_request_due(false));
        // The request is repeated even if no address is missing: something else may have failed.
        assert_eq!(addresses.set_missing(Vec::new()), [ip(VIP)]);
        assert!(addresses.is_request_due(true) && !addresses.is_request_due(false));
        assert_eq!(addresses.handle_reply(None, Vec::new()), NONE);
        assert!(!addresses.is_request_due(true) && !addresses.is_request_due(false));
    }

    #[test]
    fn removed_address_is_requested_immediately_and_announced_when_present() {
        let mut addresses = ActiveAddresses::default();
        addresses.handle_reply(None, Vec::new());
        assert_eq!(addresses.set_missing(vec![ip(VIP), ip(OTHER)]), NONE);
        assert!(addresses.is_request_due(false));
        let failure = Some("interface not found".to_owned());
        assert_eq!(addresses.handle_reply(failure, vec![ip(OTHER)]), [ip(VIP)]);
        assert_eq!(addresses.set_missing(vec![ip(OTHER)]), NONE);
        assert_eq!(addresses.handle_reply(None, Vec::new()), [ip(OTHER)]);
    }

    #[test]
    fn new_link_and_new_mac_address_are_detected() {
        let mac = |last| MacAddr::new([2, 0, 0, 0, 0, last]);
        let mut addresses = ActiveAddresses::default();
        assert!(addresses.set_senders(vec![(2, mac(1)), (3, mac(2))]));
        assert!(!addresses.set_senders(vec![(2, mac(1)), (3, mac(2))]));
        assert!(!addresses.set_senders(vec![(2, mac(1))]));
        assert!(addresses.set_senders(vec![(2, mac(1)), (3, mac(2))]));
        assert!(addresses.set_senders(vec![(2, mac(9)), (3, mac(2))]));
        // The link was down only between two checks.
        addresses.forget_sender(3);
        assert!(addresses.set_senders(vec![(2, mac(9)), (3, mac(2))]));
    }
}
