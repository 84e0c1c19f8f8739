//! Repairs, logs and counts drift: changes that other programs make to Weir's kernel objects.
//!
//! The caller runs the check twice per second. It covers detached or replaced programs, map elements, VIPs that Weir
//! added, and the routing of marked packets. If the MAC address of a server's neighbor changes, a kernel event updates
//! the rows, and this module only counts the change.

use std::net::IpAddr;

use weir_dataplane::Hook;
use weir_netlink::Neighbor;

use super::Engine;
use crate::error::{Error, Result};
use crate::network::NextHopChange;

/// Groups of hooks: on an attached interface, exactly one hook in each group has a program.
const HOOKS: [&[Hook]; 3] = [
    &[
        Hook::XdpNative,
        Hook::XdpGeneric,
        Hook::Balance,
        Hook::ClsactBalance,
    ],
    &[Hook::Ingress, Hook::ClsactIngress],
    &[Hook::Egress, Hook::ClsactEgress],
];

impl Engine {
    /// Checks for drift and repairs it. A failure is logged once, and each call retries the repair.
    pub async fn repair_drift(&mut self) {
        match self.try_repair_drift().await {
            Ok(()) => self.repair_failed = false,
            Err(error) if !self.repair_failed => {
                self.repair_failed = true;
                tracing::warn!(%error, "failed to repair changes that another program made");
            }
            Err(_) => {}
        }
    }

    async fn try_repair_drift(&mut self) -> Result<()> {
        self.repair_programs().await?;
        self.repair_local_clients()?;
        self.repair_maps()?;
        self.repair_addresses().await?;
        self.repair_marks().await
    }

    async fn repair_programs(&mut self) -> Result<()> {
        for ifindex in self.plane.restore_attachments()? {
            self.log_program_repair(ifindex, "another program replaced Weir's program");
        }
        // Removed devices cause separate events.
        let interfaces: Vec<u32> = self.network.attached.keys().copied().collect();
        let attachments = self.plane.attachments()?;
        let has_hook = |ifindex: u32, hooks: &[Hook]| {
            let mut interface_attachments = attachments.iter().filter(|it| it.ifindex == ifindex);
            interface_attachments.any(|it| hooks.contains(&it.hook))
        };
        let present = interfaces
            .into_iter()
            .filter(|ifindex| self.network.name_of(*ifindex).is_some());
        let (mut lost, mut tc_complete) = (Vec::new(), true);
        for ifindex in present {
            tc_complete &= HOOKS[1..].iter().all(|hooks| has_hook(ifindex, hooks));
            if !has_hook(ifindex, HOOKS[0]) {
                lost.push(ifindex);
            }
        }
        for ifindex in &lost {
            let busy = match self.attach_path(*ifindex) {
                Ok(_) => false,
                Err(Error::Dataplane(weir_dataplane::Error::Busy { .. })) => true,
                Err(error) => return Err(error),
            };
            if busy {
                self.network.netlink().detach_xdp(*ifindex).await?;
            }
            let cause = if busy {
                "another program replaced Weir's program"
            } else {
                "Weir's program was detached"
            };
            self.log_program_repair(*ifindex, cause);
        }
        // This also attaches tc programs, and updates the rows that depend on the mode.
        if !lost.is_empty() || !tc_complete {
            self.attach().await?;
        }
        if lost.is_empty() && !tc_complete {
            self.drift.programs += 1;
            tracing::warn!("restored a tc program");
        }
        Ok(())
    }

    fn log_program_repair(&mut self, ifindex: u32, cause: &str) {
        self.drift.programs += 1;
        let interface = self.network.name_of(ifindex).unwrap_or("?");
        tracing::warn!(interface, cause, "restored a program");
    }

    fn repair_maps(&mut self) -> Result<()> {
        if !self.pending.is_empty() {
            return Ok(());
        }
        let maps = self.plane.maps();
        let elements = self.writer.repair_elements(maps, &self.rows)?;
        if elements > 0 {
            self.drift.elements += elements;
            tracing::warn!(elements, "rewrote map elements");
        }
        self.write_devices(self.plane.maps())
    }

    async fn repair_addresses(&mut self) -> Result<()> {
        let Ok(Some(_)) = self.network.vip_interface(&self.desired) else {
            return Ok(());
        };
        let added = self.state.undo.addresses.iter();
        let lost_addresses: Vec<IpAddr> = added
            .map(|(_, address)| *address)
            .filter(|address| self.network.device_with(*address).is_none())
            .filter(|address| self.desired.has_address(*address))
            .filter(|address| !self.desired.is_vrrp_address(*address))
            .collect();
        if lost_addresses.is_empty() && !self.network.has_address_change() {
            return Ok(());
        }
        self.add_vips().await?;
        self.network.clear_address_change();
        for address in lost_addresses {
            self.drift.addresses += 1;
            tracing::warn!(%address, "re-added a VIP");
        }
        Ok(())
    }

    /// Logs a change to a next hop of a server, and counts it if packets are now sent to a different MAC address.
    pub(super) fn report_next_hop(
        &mut self,
        server: IpAddr,
        neighbor: &Neighbor,
        change: NextHopChange,
    ) {
        let via = neighbor.ip;
        match change {
            NextHopChange::NewMac(mac) => {
                self.drift.neighbours += 1;
                tracing::info!(%server, %via, %mac, "the next hop's MAC address changed");
            }
            NextHopChange::Unreachable if self.network.has_other_next_hop(server, neighbor) => {
                tracing::warn!(%server, %via, "one of the server's next hops is unreachable");
            }
            NextHopChange::Unreachable => {
                tracing::warn!(%server, %via, "the server's only next hop is unreachable");
            }
        }
    }
}
