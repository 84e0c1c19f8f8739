//! Adds missing VIPs to the director's interface, announces them, and removes unneeded VIPs.
//!
//! An address that was already present is never changed. An added address stays until the configuration, live flows and
//! open proxy connections no longer need it, or until a virtual router takes it over. Without an engine, [`crate::vip`]
//! does the same for the addresses of proxy services.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use weir_defense::View;
use weir_sys::FrameSocket;

use super::Engine;
use crate::error::Result;
use crate::vip;

/// Minimum interval between searches for addresses without flows: each search walks the flow table.
const WITHDRAW_INTERVAL: Duration = Duration::from_secs(5);

impl Engine {
    /// Adds missing VIPs to `[node] vip_interface`, if it is configured, and takes over VIPs that a virtual router has
    /// handed over.
    pub(super) async fn add_vips(&mut self) -> Result<()> {
        let (Some(name), Some(ifindex)) = (
            self.desired.node.vip_interface.clone(),
            self.network.vip_interface(&self.desired)?,
        ) else {
            return Ok(());
        };
        let is_due = |vip: &IpAddr| {
            self.network.device_with(*vip).is_none()
                || self.network.handed_over_prefix(ifindex, *vip).is_some()
        };
        let due: Vec<IpAddr> = self
            .desired
            .addresses()
            .filter(is_due)
            .filter(|vip| !self.desired.is_vrrp_address(*vip))
            .collect();
        if due.is_empty() {
            return Ok(());
        }
        let addresses = &mut self.state.undo.addresses;
        let recorded: BTreeSet<(String, IpAddr)> = addresses.iter().cloned().collect();
        let new = due.iter().map(|vip| (name.clone(), *vip));
        addresses.extend(new.filter(|entry| !recorded.contains(entry)));
        // Persist first: after a crash, the record may name an address that was not added, but every added address is
        // recorded.
        self.persist_undo()?;
        for vip in due {
            let entry = (name.clone(), vip);
            if let Some(prefix) = self.network.handed_over_prefix(ifindex, vip) {
                let netlink = self.network.netlink();
                netlink.take_over_address(ifindex, vip, prefix).await?;
                self.announcements.add(ifindex, vip);
            } else if self.network.add_address(ifindex, vip).await? {
                self.announcements.add(ifindex, vip);
            } else if !recorded.contains(&entry) {
                self.state.undo.addresses.retain(|added| *added != entry);
            }
        }
        self.refresh_network().await
    }

    /// Schedules announcements of the VIPs that are already on `[node] vip_interface` when the engine starts:
    /// neighbors may have learned a different MAC address in the meantime.
    pub(super) fn announce_present_vips(&mut self) -> Result<()> {
        let Some(ifindex) = self.network.vip_interface(&self.desired)? else {
            return Ok(());
        };
        if !vip::can_announce()? {
            return Ok(());
        }
        let vips: BTreeSet<IpAddr> = self.desired.addresses().collect();
        for vip in vips {
            if !self.desired.is_vrrp_address(vip) && self.network.device_with(vip) == Some(ifindex)
            {
                self.announcements.add(ifindex, vip);
            }
        }
        Ok(())
    }

    /// Deprecates the added IPv6 VIPs that an earlier version left usable as source addresses.
    pub(super) async fn deprecate_present_vips(&self) {
        for (name, address) in &self.state.undo.addresses {
            if let Some(ifindex) = self.network.index_of(name)
                && self.network.has_preferred(ifindex, *address)
            {
                vip::deprecate(self.network.netlink(), ifindex, *address).await;
            }
        }
    }

    /// Removes added VIPs that belong on another interface, or that neither the configuration nor a flow needs. Hands
    /// over VIPs that a virtual router manages on the same interface.
    pub(super) async fn withdraw_vips(&mut self) -> Result<()> {
        let interface = self.desired.node.vip_interface.clone();
        let is_elsewhere = |name: &String| interface.as_ref() != Some(name);
        let mut unwanted: BTreeSet<IpAddr> = BTreeSet::new();
        for (name, address) in &self.state.undo.addresses {
            let is_vrrp = self.desired.is_vrrp_address(*address);
            if is_elsewhere(name) || is_vrrp || !self.desired.has_address(*address) {
                unwanted.insert(*address);
            }
        }
        if unwanted.is_empty() {
            return Ok(());
        }
        let unneeded = self.idle_addresses(&unwanted)?;
        self.last_withdrawal = Instant::now();
        let removable: Vec<(String, IpAddr)> = self
            .state
            .undo
            .addresses
            .iter()
            .filter(|(name, address)| {
                let is_vrrp = self.desired.is_vrrp_address(*address);
                unwanted.contains(address)
                    && (is_elsewhere(name) || is_vrrp || unneeded.contains(address))
            })
            .cloned()
            .collect();
        if removable.is_empty() {
            return Ok(());
        }
        for (name, address) in &removable {
            if let Some(ifindex) = self.network.index_of(name) {
                let has_source = |source| self.network.device_with(source) == Some(ifindex);
                match self.desired.is_vrrp_address_on(name, *address, has_source) {
                    true => self.network.hand_over_address(ifindex, *address).await?,
                    false => {
                        self.network.remove_address(ifindex, *address).await?;
                        tracing::info!(%address, interface = name, "removed a VIP that Weir had added");
                    }
                }
            }
            self.announcements.cancel(*address);
            self.state
                .undo
                .addresses
                .retain(|entry| entry != &(name.clone(), *address));
        }
        self.persist_undo()?;
        self.refresh_network().await
    }

    /// Calls [`Self::withdraw_vips`] at a limited rate.
    pub(super) async fn withdraw_vips_if_due(&mut self) -> Result<()> {
        if self.last_withdrawal.elapsed() < WITHDRAW_INTERVAL {
            return Ok(());
        }
        self.withdraw_vips().await
    }

    /// Returns the addresses that no flow and no connected socket uses.
    fn idle_addresses(&self, addresses: &BTreeSet<IpAddr>) -> Result<BTreeSet<IpAddr>> {
        let mut idle = addresses.clone();
        vip::remove_connected(self.network.netlink(), &mut idle)?;
        for flow in self.plane.maps().flows.walk() {
            if idle.is_empty() {
                break;
            }
            idle.remove(&flow.cold.dst.to_ip());
        }
        Ok(idle)
    }

    /// Schedules announcements of the VIPs on `[node] vip_interface` for which another machine replies or has stopped
    /// replying. Without the capability to send frames, does nothing.
    pub(super) fn defend_vips(&mut self) -> Result<()> {
        let now = Instant::now();
        let Some(name) = self.desired.node.vip_interface.clone() else {
            return Ok(());
        };
        if !self.defense.is_due(now) || !vip::can_announce()? {
            return Ok(());
        }
        let network = &self.network;
        let mut view = View::default();
        if let Some(ifindex) = network.index_of(&name) {
            let vips = self.desired.addresses();
            let is_owned = |vip: &IpAddr| {
                !self.desired.is_vrrp_address(*vip) && network.device_with(*vip) == Some(ifindex)
            };
            let owned = vips.filter(is_owned).map(|vip| (ifindex, vip));
            view.addresses.extend(owned);
            network.describe_segment(ifindex, &mut view);
        }
        let open = |ifindex, ethertype| {
            let netlink = network.netlink();
            let open = || FrameSocket::open_listener(ifindex, ethertype);
            Ok::<_, weir_netlink::Error>(netlink.run_in_namespace(open)??)
        };
        for event in self.defense.tick(&view, open, now) {
            event.log(&name);
            self.announcements.add_for(&event);
        }
        Ok(())
    }

    /// Sends one announcement for each due address.
    pub(super) fn announce(&mut self) -> Result<()> {
        let network = &self.network;
        let mac_of = |ifindex| network.mac_of(ifindex);
        Ok(self.announcements.send(network.netlink(), mac_of)?)
    }

    /// Returns the addresses that Weir added, with their interfaces.
    pub fn added_vips(&self) -> &[(String, IpAddr)] {
        &self.state.undo.addresses
    }
}
