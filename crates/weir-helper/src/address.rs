//! Adds and removes addresses, routes, rules and devices, and records the objects that it added.
//!
//! If an address of a virtual router is already on its interface, it is adopted: recorded as if it had been added. The
//! address is removed while the router is not active, because another director may have it too, and both would reply to
//! ARP requests for it.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::net::IpAddr;
use std::path::Path;
use std::time::Duration;

use weir_model::{Network, VirtualRouter};
use weir_netlink::{Address, Change, Link, Netlink, destroy_connections_of};

use crate::Error;
use crate::other_change;
use crate::record::{self, AddedAddress, OtherChange};
use crate::state::Addresses;

/// Maximum time for resetting connections before their address is removed. During this time, two directors have the
/// address.
const RESET_TIMEOUT: Duration = Duration::from_millis(100);

impl Addresses {
    /// Reads the record of an earlier helper. Unless `adopt` is true, removes the objects in it.
    pub(crate) async fn open(runtime_dir: &Path, adopt: bool) -> Result<Self, Error> {
        let mut addresses = Self {
            netlink: Netlink::open()?,
            runtime_dir: runtime_dir.to_owned(),
            record: record::read(runtime_dir),
            is_file_outdated: false,
            reported: BTreeSet::new(),
            configured_addresses: BTreeSet::new(),
        };
        if !adopt {
            addresses.remove_fifos(&|_| true);
            addresses.remove(&|_| true).await?;
        }
        Ok(addresses)
    }

    /// Adds a virtual router's missing device, filter, addresses, routes and rules. Removes addresses that the router
    /// no longer has, or had on a different interface in a previous configuration.
    pub(crate) async fn add(&mut self, router: &VirtualRouter) -> Result<(), Error> {
        let base = self.base(router).await?;
        let link = if router.virtual_mac {
            other_change::add_device(self, router, &base).await?
        } else {
            base.clone()
        };
        // Set the filter first, so no packet is accepted without it. If this fails, add the addresses anyway, because
        // the other director has released them.
        let filter_result = other_change::set_filter(self, router);
        let take_over_result = match router.virtual_mac {
            true => self.take_over(router, None, &base).await,
            false => Ok(()),
        };
        let mut addresses_result =
            take_over_result.and(self.add_addresses(router, None, &link).await);
        for other in &router.other_interfaces {
            let name = other.interface.as_str();
            let other_result = match self.link(name).await? {
                Some(link) => self.add_addresses(router, Some(name), &link).await,
                None => Err(Error::NoInterface {
                    name: format!("virtual router {}: {name}", router.name),
                }),
            };
            addresses_result = addresses_result.and(other_result);
        }
        // Remove outdated addresses last, so an address that moves to another interface is never absent.
        let removal_result = self.remove_outdated(router, &link).await;
        let other_changes_result = other_change::add(self, router, &base).await;
        let write_result = self.write_if_outdated();
        filter_result
            .and(addresses_result)
            .and(removal_result)
            .and(other_changes_result)
            .and(write_result)
    }

    /// Returns the interface of a virtual router.
    pub(crate) async fn base(&self, router: &VirtualRouter) -> Result<Link, Error> {
        let links = self.netlink.links().await?;
        let link = match (&router.interface, router.source) {
            (Some(name), _) => links.into_iter().find(|link| link.name == *name),
            (None, Some(source)) => {
                let current_addresses = self.netlink.addresses().await?;
                let holder = current_addresses
                    .iter()
                    .find(|address| address.ip == source);
                holder.and_then(|it| links.into_iter().find(|link| link.index == it.ifindex))
            }
            (None, None) => None,
        };
        link.ok_or_else(|| Error::NoInterface {
            name: match &router.interface {
                Some(name) => format!("virtual router {}: {name}", router.name),
                None => format!("virtual router {}", router.name),
            },
        })
    }

    pub(crate) async fn link(&self, name: &str) -> Result<Option<Link>, Error> {
        let links = self.netlink.links().await?;
        Ok(links.into_iter().find(|link| link.name == name))
    }

    /// Adds the addresses of a virtual router to its own interface (`None`) or to a different one.
    async fn add_addresses(
        &mut self,
        router: &VirtualRouter,
        interface: Option<&str>,
        link: &Link,
    ) -> Result<(), Error> {
        self.take_over(router, interface, link).await?;
        let current_addresses = self.netlink.addresses().await?;
        for adopted in self.adopt(router, interface, link, &current_addresses) {
            tracing::warn!(
                router = router.name,
                interface = link.name,
                address = %adopted,
                "the address was already on the interface; it will be removed when this director is no longer active"
            );
        }
        let on_link = current_addresses
            .iter()
            .filter(|it| it.ifindex == link.index);
        let on_link: HashSet<IpAddr> = on_link.map(|it| it.ip).collect();
        let is_missing = |network: &&Network| !on_link.contains(&network.address);
        let missing: Vec<_> = router
            .managed_on(interface)
            .filter(is_missing)
            .copied()
            .collect();
        let entry = |network: &Network| AddedAddress {
            router: router.name.clone(),
            interface: link.name.clone(),
            address: network.address,
            prefix: network.prefix,
        };
        if missing.is_empty() {
            return Ok(());
        }
        // Record first, so a crash leaves no unrecorded address.
        self.record.insert(missing.iter().map(entry).collect());
        self.write_or_log();
        let mut first_error = None;
        for network in &missing {
            let result = self
                .netlink
                .add_address(link.index, network.address, network.prefix)
                .await;
            match result {
                Ok(Change::Made) => {}
                Ok(Change::None) => {
                    self.record.added.remove(&entry(network));
                }
                Err(error) => {
                    self.record.added.remove(&entry(network));
                    first_error.get_or_insert(error);
                }
            }
        }
        match first_error {
            Some(error) => Err(error.into()),
            None => Ok(()),
        }
    }

    /// Removes the objects of an inactive virtual router, and its addresses even if another program added them.
    pub(crate) async fn remove_inactive(&mut self, router: &VirtualRouter) -> Result<(), Error> {
        let current_addresses = self.netlink.addresses().await?;
        for (interface, link) in self.links_of(router).await? {
            for adopted in self.adopt(router, interface, &link, &current_addresses) {
                tracing::warn!(
                    router = router.name,
                    interface = link.name,
                    address = %adopted,
                    "removing an address that Weir did not add: this director is not active, and another one may have \
                     the address"
                );
            }
        }
        // Addresses that were recorded before are removed too: an earlier removal may have failed.
        if self.record.added.iter().any(|it| it.router == router.name) {
            self.remove(&|name| name == router.name).await?;
        }
        Ok(())
    }

    /// Returns the existing interfaces of a virtual router: its own (`None`) and others.
    pub(crate) async fn links_of<'a>(
        &self,
        router: &'a VirtualRouter,
    ) -> Result<Vec<(Option<&'a str>, Link)>, Error> {
        let mut links = Vec::new();
        for other in &router.other_interfaces {
            let name = other.interface.as_str();
            links.extend(self.link(name).await?.map(|link| (Some(name), link)));
        }
        match self.base(router).await {
            Err(Error::NoInterface { .. }) => {}
            base => links.push((None, base?)),
        }
        Ok(links)
    }

    /// Records the unrecorded addresses of a virtual router on its own interface (`None`) or a different one, except
    /// its source address and addresses that were handed over. Returns the addresses that were recorded.
    pub(crate) fn adopt(
        &mut self,
        router: &VirtualRouter,
        interface: Option<&str>,
        link: &Link,
        current_addresses: &[Address],
    ) -> Vec<IpAddr> {
        let on_link = || {
            current_addresses
                .iter()
                .filter(|it| it.ifindex == link.index)
        };
        let mut adoptable: HashMap<IpAddr, Vec<&Address>> = HashMap::new();
        for address in on_link().filter(|it| !it.handed_over) {
            adoptable.entry(address.ip).or_default().push(address);
        }
        let (mut entries, mut adopted, mut sources) = (Vec::new(), Vec::new(), Vec::new());
        for network in router.managed_on(interface) {
            for address in adoptable.get(&network.address).into_iter().flatten() {
                let entry = AddedAddress {
                    router: router.name.clone(),
                    interface: link.name.clone(),
                    address: address.ip,
                    prefix: address.prefix,
                };
                if self.record.added.contains(&entry) {
                    continue;
                }
                if is_source(router, address.ip, &mut on_link()) {
                    sources.push(address.ip);
                    continue;
                }
                entries.push(entry);
                adopted.push(address.ip);
            }
        }
        self.record.insert(entries);
        for address in sources {
            if !self.reported.insert((router.name.clone(), address)) {
                continue;
            }
            tracing::warn!(
                router = router.name,
                interface = link.name,
                %address,
                "the address is the interface's own and is never removed: while another director is active, both \
                 reply to ARP requests for it"
            );
        }
        if !adopted.is_empty() {
            self.write_or_log();
        }
        adopted
    }

    /// Removes the objects that were added for the affected virtual routers: rules, routes, addresses, then devices and
    /// filters.
    pub(crate) async fn remove(
        &mut self,
        is_affected: &(dyn Fn(&str) -> bool + Sync),
    ) -> Result<(), Error> {
        if self.record.is_empty() {
            return self.write_if_outdated();
        }
        let links = self.netlink.links().await?;
        let mut first_error = None;
        let is_last = |it: &OtherChange| {
            matches!(it, OtherChange::Device { .. } | OtherChange::Filter { .. })
        };
        for last in [false, true] {
            if last {
                let is_removed = |added: &AddedAddress| is_affected(&added.router);
                self.remove_addresses(&is_removed, &links, &mut first_error)
                    .await;
            }
            let to_remove: Vec<OtherChange> = self
                .record
                .other_changes
                .iter()
                .filter(|it| it.router().is_some_and(is_affected) && is_last(it) == last)
                .rev()
                .cloned()
                .collect();
            for it in to_remove {
                match other_change::remove(&self.netlink, &it, &links).await {
                    Ok(()) => self.record.other_changes.retain(|other| *other != it),
                    Err(error) => drop(first_error.get_or_insert(error)),
                }
            }
        }
        other_change::restore_sysctls(&mut self.record);
        self.write()?;
        first_error.map_or(Ok(()), Err)
    }

    /// Removes the addresses that a virtual router no longer has, or now has on a different interface. `link` is the
    /// router's own interface.
    async fn remove_outdated(&mut self, router: &VirtualRouter, link: &Link) -> Result<(), Error> {
        let router_addresses = router.addresses_with_interfaces().into_iter();
        let router_addresses: HashMap<IpAddr, &str> = router_addresses
            .map(|(network, other)| (network.address, other.unwrap_or(&link.name)))
            .collect();
        let is_current = |added: &AddedAddress| {
            router_addresses.get(&added.address) == Some(&added.interface.as_str())
        };
        let is_outdated = |added: &AddedAddress| added.router == router.name && !is_current(added);
        if !self.record.added.iter().any(is_outdated) {
            return Ok(());
        }
        self.hand_over(&is_outdated).await?;
        let links = self.netlink.links().await?;
        let mut first_error = None;
        self.remove_addresses(&is_outdated, &links, &mut first_error)
            .await;
        self.write()?;
        first_error.map_or(Ok(()), Err)
    }

    async fn remove_addresses(
        &mut self,
        is_removed: &(dyn Fn(&AddedAddress) -> bool + Sync),
        links: &[Link],
        first_error: &mut Option<Error>,
    ) {
        let entries = self.record.added.iter();
        let to_remove: Vec<AddedAddress> = entries.filter(|it| is_removed(it)).cloned().collect();
        if to_remove.is_empty() {
            return;
        }
        let secondaries = self.secondary_addresses(&to_remove, links).await;
        self.reset_connections(&to_remove, links).await;
        for entry in to_remove {
            if let Some(link) = links.iter().find(|link| link.name == entry.interface) {
                let result = self
                    .netlink
                    .remove_address(link.index, entry.address, entry.prefix)
                    .await;
                if let Err(error) = result {
                    first_error.get_or_insert(error.into());
                    continue;
                }
            }
            self.record.added.remove(&entry);
        }
        if let Err(error) = self.restore_addresses(&secondaries).await {
            first_error.get_or_insert(error);
        }
    }

    /// Resets connections of local programs that use addresses that are about to be removed. Excludes addresses that
    /// remain with a different prefix or on a different interface because they were handed over. After the removal,
    /// such a connection cannot send packets, so a client that waits for data would not notice the failover.
    async fn reset_connections(&self, removed: &[AddedAddress], links: &[Link]) {
        let current_addresses = match self.netlink.addresses().await {
            Ok(current_addresses) => current_addresses,
            Err(error) => {
                tracing::warn!(%error, "failed to read addresses; connections to removed addresses are not reset");
                return;
            }
        };
        let index_of: HashMap<&str, u32> = links
            .iter()
            .map(|link| (link.name.as_str(), link.index))
            .collect();
        let removed_keys: HashSet<(Option<u32>, IpAddr, u8)> = removed
            .iter()
            .map(|it| {
                (
                    index_of.get(it.interface.as_str()).copied(),
                    it.address,
                    it.prefix,
                )
            })
            .collect();
        let is_removed =
            |it: &&Address| removed_keys.contains(&(Some(it.ifindex), it.ip, it.prefix));
        let remaining = current_addresses.iter().filter(|it| !is_removed(it));
        let remaining: HashSet<IpAddr> = remaining.map(|it| it.ip).collect();
        let addresses = removed.iter().map(|it| it.address);
        let addresses = addresses
            .filter(|address| !remaining.contains(address))
            .collect();
        match destroy_connections_of(&addresses, RESET_TIMEOUT) {
            Ok(0) => {}
            Ok(connections) => {
                tracing::info!(
                    connections,
                    "reset the connections to the removed addresses"
                );
            }
            Err(error) => {
                tracing::warn!(%error, "failed to reset connections to removed addresses")
            }
        }
    }

    /// Returns the other addresses that have the same interface and prefix length as an IPv4 address to remove. The
    /// kernel also removes those in the same network if they were added later and `promote_secondaries` is 0
    /// (ip-sysctl).
    async fn secondary_addresses(
        &self,
        to_remove: &[AddedAddress],
        links: &[Link],
    ) -> Vec<Address> {
        let has_network = |it: &&AddedAddress| it.address.is_ipv4() && it.prefix < 32;
        let networks: Vec<(u32, &AddedAddress)> = to_remove
            .iter()
            .filter(has_network)
            .filter_map(|it| {
                let link = links.iter().find(|link| link.name == it.interface)?;
                Some((link.index, it))
            })
            .collect();
        let removed_keys: HashSet<(u32, IpAddr)> = networks
            .iter()
            .map(|(ifindex, it)| (*ifindex, it.address))
            .collect();
        let prefixes: HashSet<(u32, u8)> = networks
            .iter()
            .map(|(ifindex, it)| (*ifindex, it.prefix))
            .collect();
        if networks.is_empty() {
            return Vec::new();
        }
        let mut current_addresses = match self.netlink.addresses().await {
            Ok(current_addresses) => current_addresses,
            Err(error) => {
                tracing::warn!(%error, "failed to read addresses");
                return Vec::new();
            }
        };
        current_addresses.retain(|it| {
            prefixes.contains(&(it.ifindex, it.prefix))
                && !removed_keys.contains(&(it.ifindex, it.ip))
        });
        current_addresses
    }

    /// Adds each of these addresses again if it is missing.
    async fn restore_addresses(&self, addresses: &[Address]) -> Result<(), Error> {
        if addresses.is_empty() {
            return Ok(());
        }
        let current_addresses = self.netlink.addresses().await?;
        let key = |it: &Address| (it.ifindex, it.ip, it.prefix);
        let current_addresses: HashSet<_> = current_addresses.iter().map(key).collect();
        for address in addresses {
            if current_addresses.contains(&key(address)) {
                continue;
            }
            tracing::info!(
                address = %address.ip,
                "restored an address that the kernel removed together with the primary address of the same network"
            );
            self.netlink
                .add_address(address.ifindex, address.ip, address.prefix)
                .await?;
        }
        Ok(())
    }
}

/// Returns whether a virtual router's packets have this source address: it is configured as `source`, or the router has
/// the priority of an address owner (255) and this is the interface's first address (for IPv6, link-local address).
/// Without this address, the machine may be unreachable.
fn is_source(
    router: &VirtualRouter,
    address: IpAddr,
    on_link: &mut dyn Iterator<Item = &Address>,
) -> bool {
    let is_candidate = |ip: IpAddr| match ip {
        IpAddr::V4(_) => address.is_ipv4(),
        IpAddr::V6(ip) => address.is_ipv6() && ip.is_unicast_link_local(),
    };
    match router.source {
        Some(source) => source == address,
        None => {
            router.priority == u8::MAX
                && on_link
                    .map(|it| it.ip)
                    .find(|ip| is_candidate(*ip))
                    .is_some_and(|first| first == address)
        }
    }
}

/// Removes all objects that a helper has added or adopted but not removed, and restores sysctls. Returns a line for
/// each reverted change. Must be called inside a tokio runtime, while no helper runs.
///
/// # Errors
/// Fails if an object cannot be removed, or the record cannot be written.
pub async fn revert_recorded(runtime_dir: &Path) -> Result<Vec<String>, Error> {
    let record = record::read(runtime_dir);
    if !record.is_empty() {
        Addresses::open(runtime_dir, false).await?;
    }
    Ok(record.reversals())
}

#[cfg(test)]
mod tests;
