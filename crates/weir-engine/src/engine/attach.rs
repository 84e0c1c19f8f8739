//! Attaches programs to interfaces, disables GRO and LRO where needed, and keeps neighbors resolved.
//!
//! [`super::address`] manages VIPs. The state file records the changes that must be reverted, with the previous
//! settings.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use weir_dataplane::{Dataplane, Mode, TcRole};
use weir_sys::ethtool::{self, Features};

use super::Engine;
use super::attach_path::{KernelHooks, attach_path};
use crate::error::Result;

/// Maximum time that startup waits for neighbor resolution: longer than an ARP exchange, but too short for an operator
/// to notice.
pub(super) const RESOLVE_TIMEOUT: Duration = Duration::from_millis(300);
const RESOLVE_POLL_INTERVAL: Duration = Duration::from_millis(10);

impl Engine {
    /// Makes the kernel keep the next-hop neighbors of servers resolved, and records them. Returns whether any are
    /// new.
    pub(super) async fn manage_server_neighbors(&mut self) -> Result<bool> {
        let (added, has_new) = self.network.manage_neighbors().await;
        let named_neighbors = added
            .into_iter()
            .filter_map(|(device, ip)| Some((self.network.name_of(device)?.to_owned(), ip)));
        let new: Vec<_> = named_neighbors
            .filter(|entry| !self.state.undo.neighbours.contains(entry))
            .collect();
        if !new.is_empty() {
            self.state.undo.neighbours.extend(new);
            self.persist_undo()?;
        }
        Ok(has_new)
    }

    /// Waits at most `resolve_timeout` for neighbor resolution, so the first packets have a next hop.
    pub(super) async fn wait_for_neighbors(&mut self) -> Result<()> {
        let deadline = Instant::now() + self.resolve_timeout;
        while !self.network.refresh_neighbors().await? && Instant::now() < deadline {
            tokio::time::sleep(RESOLVE_POLL_INTERVAL).await;
        }
        Ok(())
    }

    /// Returns whether the packet path is attached to an interface that is up.
    pub fn is_attached(&self) -> bool {
        self.network
            .attached
            .keys()
            .any(|ifindex| self.network.is_up(*ifindex))
    }

    /// Returns the smallest MTU of the interfaces with the packet path, in bytes; `None` = it is on no interface.
    pub fn smallest_mtu(&self) -> Option<u32> {
        self.network.smallest_mtu()
    }

    /// Attaches the programs to the interfaces that [`Network::interfaces`](crate::network::Network::interfaces)
    /// returns, and detaches them from all others.
    pub(super) async fn attach(&mut self) -> Result<()> {
        let interfaces = self.network.interfaces(&self.desired)?;
        for ifindex in self
            .network
            .attached
            .keys()
            .filter(|ifindex| !interfaces.contains(ifindex))
        {
            self.plane.detach(*ifindex)?;
        }
        self.network
            .attached
            .retain(|ifindex, _| interfaces.contains(ifindex));
        let mut receive_offloads_disabled = BTreeSet::new();
        for ifindex in &interfaces {
            if !self.network.attached.contains_key(ifindex) {
                self.reject_other_director(*ifindex).await?;
            }
            let mode = self.attach_path(*ifindex)?;
            let previous = self.network.attached.insert(*ifindex, mode);
            if mode == Mode::Generic {
                receive_offloads_disabled.extend(self.network.devices_below(*ifindex));
            }
            if mode == Mode::Generic && previous != Some(mode) {
                self.warn_about_generic_xdp(*ifindex);
            }
            for role in [TcRole::Ingress, TcRole::Egress] {
                match self.plane.attach_tc(*ifindex, role) {
                    Ok(_) | Err(weir_dataplane::Error::NoProgram { .. }) => {}
                    Err(error) => return Err(error.into()),
                }
            }
        }
        self.network.set_attached(attached(&self.plane)?);
        self.restore_offloads(&receive_offloads_disabled)?;
        for ifindex in receive_offloads_disabled {
            self.disable_receive_offloads(ifindex)?;
        }
        Ok(())
    }

    /// Attaches the packet path to a device, in the mode that the configuration and the device allow.
    pub(super) fn attach_path(&self, ifindex: u32) -> Result<Mode> {
        let plan = self.network.plan_for(ifindex, self.desired.node.attach);
        let mut hooks = KernelHooks {
            plane: &self.plane,
            ifindex,
        };
        Ok(attach_path(plan, &mut hooks)?)
    }

    /// Warns that generic XDP forwards partial checksums as if they were complete, if packets from the device may have
    /// them.
    fn warn_about_generic_xdp(&self, ifindex: u32) {
        if let Some(device) = self.network.partial_checksum_reason(ifindex) {
            let interface = self.network.name_of(ifindex).unwrap_or("?");
            tracing::warn!(
                interface,
                device,
                "attach = \"xdp\" selects generic XDP here, which forwards partial checksums as if they were \
                 complete: connections may stall; attach = \"auto\" uses tc"
            );
        }
    }

    /// Restores the offload settings of devices that no longer run generic XDP.
    fn restore_offloads(&mut self, receive_offloads_disabled: &BTreeSet<u32>) -> Result<()> {
        let device_names: BTreeSet<&str> = receive_offloads_disabled
            .iter()
            .filter_map(|ifindex| self.network.name_of(*ifindex))
            .collect();
        let (remaining, obsolete): (Vec<_>, Vec<_>) = std::mem::take(&mut self.state.undo.offloads)
            .into_iter()
            .partition(|(name, _)| device_names.contains(name.as_str()));
        self.state.undo.offloads = remaining;
        if obsolete.is_empty() {
            return Ok(());
        }
        for (name, previous) in obsolete {
            let result = self.network.netlink().run_in_namespace(|| {
                Features::read(&name).and_then(|features| features.set(&previous))
            })?;
            if let Err(error) = result {
                // The device and its settings may be gone.
                tracing::warn!(interface = name, %error, "failed to restore the offload settings");
            }
        }
        self.persist_undo()
    }

    /// Disables the receive offloads that merge packets (GRO, LRO): generic XDP runs after merging, and a program
    /// cannot send packets that large.
    fn disable_receive_offloads(&mut self, ifindex: u32) -> Result<()> {
        let Some(name) = self.network.name_of(ifindex).map(str::to_owned) else {
            return Ok(());
        };
        let previous = self
            .network
            .netlink()
            .run_in_namespace(|| ethtool::disable_receive_offloads(&name))?;
        match previous {
            Ok(previous) if previous.is_empty() => Ok(()),
            Ok(previous) => {
                let offloads = &mut self.state.undo.offloads;
                match offloads.iter_mut().find(|(known, _)| *known == name) {
                    // Another program has re-enabled merging. The first recorded setting is the one to restore.
                    Some((_, first)) => {
                        let new = |feature: &(String, bool)| {
                            !first.iter().any(|(known, _)| *known == feature.0)
                        };
                        let more: Vec<_> = previous.into_iter().filter(new).collect();
                        first.extend(more);
                    }
                    None => offloads.push((name, previous)),
                }
                self.persist_undo()
            }
            Err(error) => {
                // The loopback device and some tunnels lack these features.
                tracing::warn!(interface = name, %error, "failed to disable receive offloads (GRO, LRO)");
                Ok(())
            }
        }
    }
}

/// Returns the interfaces that the packet path is attached to, with their modes.
pub(super) fn attached(plane: &Dataplane) -> Result<BTreeMap<u32, Mode>> {
    let attachments = plane.attachments()?;
    Ok(attachments
        .into_iter()
        .filter_map(|attachment| Some((attachment.ifindex, Mode::from_hook(attachment.hook)?)))
        .collect())
}
