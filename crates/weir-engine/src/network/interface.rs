//! Looks up addresses and devices in the cached view, selects the interfaces to attach to, and adds and removes VIPs.

use std::collections::BTreeSet;
use std::net::IpAddr;

use weir_defense::View;
use weir_model::{Desired, Indexed, Node};
use weir_netlink::{Change, Link, resolve};
use weir_wire::MacAddr;

use super::{DEFAULT_ROUTE_PROBES, Network};
use crate::error::{Error, Result};
use crate::vip;

impl Network {
    /// Returns the index of the device that has this address.
    pub(crate) fn device_with(&self, address: IpAddr) -> Option<u32> {
        self.address_devices.get(&address).copied()
    }

    /// Returns the prefix length of an address on a device if its former owner has handed it over.
    pub(crate) fn handed_over_prefix(&self, ifindex: u32, address: IpAddr) -> Option<u8> {
        self.handed_over.get(&(ifindex, address)).copied()
    }

    /// Returns whether a device has this IPv6 VIP, and the kernel can select it as a source.
    pub(crate) fn has_preferred(&self, ifindex: u32, address: IpAddr) -> bool {
        let mut addresses = self.state.addresses.iter();
        addresses.any(|it| (it.ifindex, it.ip) == (ifindex, address) && vip::is_preferred(it))
    }

    /// Returns whether two addresses are both in the subnet of one of this machine's addresses.
    pub(crate) fn is_same_segment(&self, first: IpAddr, second: IpAddr) -> bool {
        let mut addresses = self.state.addresses.iter();
        addresses.any(|it| {
            let network = weir_model::Network {
                address: it.ip,
                prefix: it.prefix,
            };
            network.contains(first) && network.contains(second)
        })
    }

    /// Returns whether addresses have changed since [`Self::clear_address_change`].
    pub(crate) const fn has_address_change(&self) -> bool {
        self.addresses_changed
    }

    pub(crate) const fn clear_address_change(&mut self) {
        self.addresses_changed = false;
    }

    /// Returns the index of the device with this name.
    pub(crate) fn index_of(&self, name: &str) -> Option<u32> {
        self.state
            .links
            .values()
            .find(|link| link.name == name)
            .map(|link| link.index)
    }

    /// Returns the name of a device.
    pub(crate) fn name_of(&self, ifindex: u32) -> Option<&str> {
        self.state
            .links
            .get(&ifindex)
            .map(|link| link.name.as_str())
    }

    /// Returns whether a device is up.
    pub(crate) fn is_up(&self, ifindex: u32) -> bool {
        self.state.links.get(&ifindex).is_some_and(|link| link.up)
    }

    /// Returns the MAC address of a device.
    pub(crate) fn mac_of(&self, ifindex: u32) -> Option<MacAddr> {
        let mac = self.state.links.get(&ifindex)?.mac?;
        Some(MacAddr::new(mac.octets()))
    }

    /// Adds the device to `view`, with the addresses of this machine that queries on its segment need.
    pub(crate) fn describe_segment(&self, ifindex: u32, view: &mut View) {
        let links: Vec<&Link> = self.state.links.values().collect();
        view.add_interface(ifindex, &links, &self.state.addresses);
    }

    /// Returns a device and the devices that it receives packets from: the ports of a bridge or bond, the lower devices
    /// of VLANs and macvlans.
    pub(crate) fn devices_below(&self, ifindex: u32) -> BTreeSet<u32> {
        self.state.devices_below(ifindex)
    }

    /// Returns the smallest MTU of the devices with the packet path, in bytes; `None` = there is no such device. Dummy
    /// devices are ignored: they have VIPs and receive no packets.
    pub(crate) fn smallest_mtu(&self) -> Option<u32> {
        let attached = self.attached.keys();
        let links = attached.filter_map(|ifindex| self.state.links.get(ifindex));
        let links = links.filter(|link| link.kind.as_deref() != Some("dummy"));
        links.map(|link| link.mtu).min()
    }

    /// Returns the interfaces to attach to: the configured interfaces, or else the interfaces, except loopback, that
    /// are up and are on the routes to servers or the default gateways, have a VIP or a server's address, or are the
    /// `vip_interface`.
    ///
    /// # Errors
    /// Fails if a configured interface does not exist.
    pub(crate) fn interfaces(&self, desired: &Indexed) -> Result<BTreeSet<u32>> {
        let Node {
            interfaces,
            vip_interface,
            ..
        } = &desired.node;
        if let Some(names) = interfaces {
            let index = |name: &String| {
                self.index_of(name)
                    .ok_or_else(|| Error::NoInterface { name: name.clone() })
            };
            return names.iter().map(index).collect();
        }
        // If all services are socket services, the data plane has no packets to process.
        if !desired.services.is_empty()
            && desired.services.iter().all(weir_planner::socket::is_socket)
        {
            return Ok(BTreeSet::new());
        }
        let default_routes = DEFAULT_ROUTE_PROBES
            .into_iter()
            .flat_map(|ip| resolve(ip, &self.state))
            .map(|route| route.ifindex);
        let mut found: BTreeSet<u32> = default_routes.chain(self.routes.ports()).collect();
        let is_vip_or_server =
            |ip: &IpAddr| desired.services_listening_on(*ip).len() > 0 || self.servers.contains(ip);
        let addresses = self
            .address_devices
            .iter()
            .filter(|(ip, _)| is_vip_or_server(ip));
        found.extend(addresses.map(|(_, ifindex)| *ifindex));
        found.extend(
            vip_interface
                .as_deref()
                .and_then(|name| self.index_of(name)),
        );
        found.retain(|ifindex| {
            self.state
                .links
                .get(ifindex)
                .is_some_and(|link| link.up && !link.loopback)
        });
        Ok(found)
    }

    /// Returns the interface that VIPs are added to; `None` = not configured.
    ///
    /// # Errors
    /// Fails if the interface does not exist.
    pub(crate) fn vip_interface(&self, desired: &Desired) -> Result<Option<u32>> {
        let Some(name) = &desired.node.vip_interface else {
            return Ok(None);
        };
        match self.index_of(name) {
            Some(ifindex) => Ok(Some(ifindex)),
            None => Err(Error::NoInterface { name: name.clone() }),
        }
    }

    /// Adds an address to a device. Returns whether the address was missing.
    ///
    /// # Errors
    /// Fails if the device does not exist, or the kernel rejects the address.
    pub(crate) async fn add_address(&self, ifindex: u32, address: IpAddr) -> Result<bool> {
        let prefix = if address.is_ipv4() { 32 } else { 128 };
        Ok(self.netlink.add_address(ifindex, address, prefix).await? == Change::Made)
    }

    /// Removes an address from a device, if the device has it.
    ///
    /// # Errors
    /// Fails if the kernel rejects the change.
    pub(crate) async fn remove_address(&self, ifindex: u32, address: IpAddr) -> Result<()> {
        vip::remove_address(&self.netlink, ifindex, address).await?;
        Ok(())
    }

    /// Hands an address over to the virtual router that manages it from now on.
    ///
    /// # Errors
    /// Fails if the kernel rejects the change.
    pub(crate) async fn hand_over_address(&self, ifindex: u32, address: IpAddr) -> Result<()> {
        let prefix = if address.is_ipv4() { 32 } else { 128 };
        self.netlink
            .hand_over_address(ifindex, address, prefix)
            .await?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use weir_dataplane::Mode;

    fn link(index: u32, kind: Option<&str>, mtu: u32) -> Link {
        Link {
            index,
            name: format!("d{index}"),
            kind: kind.map(str::to_owned),
            mac: None,
            mtu,
            up: true,
            carrier: true,
            loopback: false,
            master: None,
            lower: None,
            vlan: None,
        }
    }

    #[tokio::test]
    async fn smallest_mtu_is_that_of_devices_with_the_packet_path() {
        let mut network = Network::open().expect("open a netlink socket");
        assert_eq!(network.smallest_mtu(), None);
        let links = [
            link(1, None, 1280),
            link(2, None, 9000),
            link(3, Some("vlan"), 8000),
            link(4, Some("dummy"), 1500),
        ];
        network.state.links = links.into_iter().map(|link| (link.index, link)).collect();
        network.attached = BTreeMap::from([2, 3, 4].map(|index| (index, Mode::Native)));
        assert_eq!(network.smallest_mtu(), Some(8000));
    }
}
