//! Hands addresses over to their new owner in a reload, so that traffic to them is not interrupted.
//!
//! Owners are virtual routers and `vip_interface`. The new owner can also be a new configuration of the same virtual
//! router.

use std::collections::HashMap;
use std::net::IpAddr;

use weir_model::VirtualRouter;
use weir_netlink::{Address, Link};

use crate::Error;
use crate::record::AddedAddress;
use crate::state::Addresses;

impl Addresses {
    /// Takes over the addresses of a virtual router that their former owner has handed over, and adopts other addresses
    /// of the router that are present. These addresses are later removed like those of an active virtual router.
    pub(crate) async fn take_over_all(&mut self, router: &VirtualRouter) -> Result<(), Error> {
        for (interface, link) in self.links_of(router).await? {
            self.take_over(router, interface, &link).await?;
            let present = self.netlink.addresses().await?;
            self.adopt(router, interface, &link, &present);
        }
        Ok(())
    }

    /// Takes over the addresses of a virtual router on an interface, its own (`None`) or another one, that their former
    /// owner has handed over.
    pub(crate) async fn take_over(
        &mut self,
        router: &VirtualRouter,
        interface: Option<&str>,
        link: &Link,
    ) -> Result<(), Error> {
        let present = self.netlink.addresses().await?;
        let on_link = present
            .iter()
            .filter(|address| address.ifindex == link.index);
        let mut handed_over: HashMap<IpAddr, &Address> = HashMap::new();
        for address in on_link.filter(|address| address.handed_over) {
            handed_over.entry(address.ip).or_insert(address);
        }
        let mut takeovers = Vec::new();
        for network in router.managed_on(interface) {
            let Some(former_address) = handed_over.get(&network.address) else {
                continue;
            };
            // An IPv4 address can have two prefixes at the same time, so it can get the configured prefix without being
            // absent.
            let prefix = match former_address.ip.is_ipv4() {
                true => network.prefix,
                false => former_address.prefix,
            };
            takeovers.push((*former_address, prefix));
        }
        if takeovers.is_empty() {
            return Ok(());
        }
        let entries = takeovers
            .iter()
            .map(|(former_address, prefix)| AddedAddress {
                router: router.name.clone(),
                interface: link.name.clone(),
                address: former_address.ip,
                prefix: *prefix,
            });
        self.record.insert(entries.collect());
        self.write_or_log();
        for (former_address, prefix) in takeovers {
            if prefix == former_address.prefix {
                self.netlink
                    .take_over_address(link.index, former_address.ip, prefix)
                    .await?;
                continue;
            }
            self.netlink
                .add_address(link.index, former_address.ip, prefix)
                .await?;
            self.netlink
                .remove_address(link.index, former_address.ip, former_address.prefix)
                .await?;
        }
        Ok(())
    }

    /// Removes the objects that were added for a virtual router that is no longer in the configuration, and hands over
    /// the addresses that have another owner.
    pub(crate) async fn retire(&mut self, router: &str) -> Result<(), Error> {
        self.hand_over(&|added| added.router == router).await?;
        self.remove(&|name| name == router).await
    }

    /// Hands over the affected addresses that the active configuration has on the same interface. The addresses that
    /// remain in the record are still to be removed.
    pub(crate) async fn hand_over(
        &mut self,
        is_affected: &(dyn Fn(&AddedAddress) -> bool + Sync),
    ) -> Result<(), Error> {
        let has_owner = |it: &&AddedAddress| {
            let entry = (it.interface.clone(), it.address);
            is_affected(it) && self.configured_addresses.contains(&entry)
        };
        let owned: Vec<AddedAddress> = self
            .record
            .added
            .iter()
            .filter(has_owner)
            .cloned()
            .collect();
        if owned.is_empty() {
            return Ok(());
        }
        let links = self.netlink.links().await?;
        for added in owned {
            let Some(link) = links.iter().find(|link| link.name == added.interface) else {
                continue;
            };
            let must_be_removed = self
                .netlink
                .hand_over_address(link.index, added.address, added.prefix)
                .await?;
            if !must_be_removed {
                self.record.added.remove(&added);
            }
            tracing::info!(
                router = added.router,
                interface = added.interface,
                address = %added.address,
                "handed the address over to its next owner"
            );
        }
        self.write_or_log();
        Ok(())
    }
}
