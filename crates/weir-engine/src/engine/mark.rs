//! Routes packets with a firewall mark through a veth pair, where XDP balances them.
//!
//! The stack's firewall sets marks after XDP. Policy routing rules therefore send marked packets to one end of a veth
//! pair, where the tc program writes the mark to the frame; XDP at the other end reads the mark
//! (`bpf/lib/firewall_mark.h`). Programs are attached before the first rule is added, and rules are removed before the
//! devices.

use std::collections::BTreeSet;

use weir_dataplane::{Hook, TcRole, XdpChoice};
use weir_netlink::Change;
use weir_planner::mark::{Key, Pair};
use weir_sys::ethtool::{Features, TX_CHECKSUM};

use super::Engine;
use crate::error::{Error, Result};
use crate::mark_routing::{MarkRouting, mac};

/// MTU of the veth pair: larger than the MTU of any Ethernet device, so every packet fits.
const MTU: u32 = 9216;
/// Base of the routing table number: "We" in ASCII. The device index is added to it.
const TABLE: u32 = 0x5765_0000;
/// Number of name pairs to try.
const NAME_PAIRS: u32 = 64;

impl Engine {
    /// Updates devices, programs and rules for the marks of services that are configured or still have flows.
    pub(super) async fn update_marks(&mut self) -> Result<()> {
        let required_marks = self.state.allocation.marks();
        let current_routing = self.state.undo.marks.as_ref();
        let is_current = current_routing.map(|routing| &routing.rules)
            == (!required_marks.is_empty()).then_some(&required_marks);
        if is_current && (required_marks.is_empty() || self.network.mark_devices.is_some()) {
            return Ok(());
        }
        if !required_marks.is_empty() {
            return self.route_marks(required_marks).await;
        }
        let Some(routing) = self.state.undo.marks.clone() else {
            return Ok(());
        };
        if let Some(pair) = self.network.mark_devices.take() {
            self.set_mark_devices();
            self.plane.detach(pair.entry)?;
            self.plane.detach(pair.exit)?;
        }
        routing.remove(self.network.netlink()).await?;
        self.state.undo.marks = None;
        self.persist_undo()
    }

    async fn route_marks(&mut self, required_marks: BTreeSet<Key>) -> Result<()> {
        let mut routing = self.ensure_mark_pair().await?;
        let netlink = self.network.netlink();
        let obsolete: BTreeSet<Key> = routing.rules.difference(&required_marks).copied().collect();
        routing.remove_rules(netlink, &obsolete).await?;
        let mut rules = Vec::new();
        for ipv6 in [false, true] {
            if required_marks.iter().any(|mark| mark.0 == ipv6) {
                let entry = self.network.mark_devices.map_or(0, |pair| pair.entry);
                netlink
                    .add_default_route(ipv6, routing.table, entry)
                    .await?;
                rules.extend(routing.family_rules(ipv6));
            }
        }
        let new_marks = required_marks.difference(&routing.rules).copied();
        rules.extend(new_marks.map(|mark| routing.rule(mark)));
        routing.rules = required_marks;
        // Persist first: after a crash, the record may name rules that do not exist, but every rule is recorded.
        self.state.undo.marks = Some(routing);
        self.persist_undo()?;
        self.network.netlink().add_rules(&rules).await?;
        Ok(())
    }

    /// Creates the devices if they are missing, attaches the programs, and returns the routing.
    async fn ensure_mark_pair(&mut self) -> Result<MarkRouting> {
        let routing = match (&self.network.mark_devices, &self.state.undo.marks) {
            (Some(_), Some(routing)) => routing.clone(),
            _ => self.create_pair().await?,
        };
        self.set_mark_devices();
        self.write_pending()?;
        let Some(pair) = self.network.mark_devices else {
            return Ok(routing);
        };
        self.plane.attach_tc(pair.entry, TcRole::Egress)?;
        // Native XDP runs before GRO, so the sender segments packets for it.
        self.plane.attach(pair.exit, XdpChoice::Native)?;
        self.plane.attach_tc(pair.exit, TcRole::Ingress)?;
        // XDP updates checksums incrementally, so they must be complete.
        let disabled = self.network.netlink().run_in_namespace(|| {
            Features::read(&routing.entry)
                .and_then(|features| features.set(&[(TX_CHECKSUM, false)]))
        })?;
        disabled?;
        for end in [pair.entry, pair.exit] {
            self.network.netlink().bring_up(end).await?;
        }
        Ok(routing)
    }

    /// Restores devices, programs, routes and rules that another program removed.
    pub(super) async fn repair_marks(&mut self) -> Result<()> {
        if self.state.allocation.marks().is_empty() {
            return Ok(());
        }
        let exists = |index, name: &str| self.network.name_of(index) == Some(name);
        let recorded_pair = self.state.undo.marks.clone().zip(self.network.mark_devices);
        let existing_pair = recorded_pair.filter(|(routing, pair)| {
            exists(pair.entry, &routing.entry) && exists(pair.exit, &routing.exit)
        });
        let Some((routing, pair)) = existing_pair else {
            // If a step fails, the next check finds the pair incomplete and retries.
            self.network.mark_devices = None;
            self.update_marks().await?;
            self.log_mark_repair("the devices were recreated");
            return Ok(());
        };
        let is_complete = self.is_pair_complete(pair).await?;
        if !is_complete {
            self.ensure_mark_pair().await?;
        }
        let netlink = self.network.netlink();
        let mut routes = 0;
        for ipv6 in [false, true] {
            if routing.rules.iter().any(|mark| mark.0 == ipv6) {
                let added = netlink
                    .add_default_route(ipv6, routing.table, pair.entry)
                    .await?;
                routes += usize::from(added == Change::Made);
            }
        }
        let missing = netlink.missing_rules(&routing.all_rules()).await?;
        if !missing.is_empty() {
            netlink.add_rules(&missing).await?;
        }
        // The kernel removes a device's routes when the device goes down: restoring both counts as one repair.
        if !is_complete {
            self.log_mark_repair("devices and programs were restored");
        } else if routes + missing.len() > 0 {
            self.log_mark_repair("rules and routes were restored");
        }
        Ok(())
    }

    /// Returns whether both devices are up and have their programs.
    async fn is_pair_complete(&self, pair: Pair) -> Result<bool> {
        let attachments = self.plane.attachments()?;
        let has_hook = |ifindex, hooks: &[Hook]| {
            let mut interface_attachments = attachments.iter().filter(|it| it.ifindex == ifindex);
            interface_attachments.any(|it| hooks.contains(&it.hook))
        };
        let is_attached = has_hook(pair.entry, &[Hook::Egress, Hook::ClsactEgress])
            && has_hook(pair.exit, &[Hook::XdpNative])
            && has_hook(pair.exit, &[Hook::Ingress, Hook::ClsactIngress]);
        Ok(is_attached && self.is_pair_up(pair).await?)
    }

    async fn is_pair_up(&self, pair: Pair) -> Result<bool> {
        if self.network.is_up(pair.entry) && self.network.is_up(pair.exit) {
            return Ok(true);
        }
        // Events update the cached view, and the event for this device might not have arrived yet.
        let links = self.network.netlink().links().await?;
        let up = |index| links.iter().any(|link| link.index == index && link.up);
        Ok(up(pair.entry) && up(pair.exit))
    }

    fn log_mark_repair(&mut self, cause: &str) {
        self.drift.marks += 1;
        tracing::warn!(cause, "repaired the route for marked packets");
    }

    async fn create_pair(&mut self) -> Result<MarkRouting> {
        if let Some(previous) = self.state.undo.marks.clone() {
            previous.remove(self.network.netlink()).await?;
        }
        let netlink = self.network.netlink();
        let links = netlink.links().await?;
        let link_named = |name: &String| links.iter().find(|link| link.name == *name);
        let mut names =
            (0..NAME_PAIRS).map(|n| (format!("weir{}", 2 * n), format!("weir{}", 2 * n + 1)));
        let is_free = |(entry, exit): &(String, String)| {
            let (entry, exit) = (link_named(entry), link_named(exit));
            // Both devices may be left over from a daemon that lost its state file.
            let is_weir_pair = entry.is_some_and(|link| link.mac == Some(mac())) && exit.is_some();
            is_weir_pair || entry.is_none() && exit.is_none()
        };
        let (entry, exit) = names.find(is_free).ok_or(Error::NoInterface {
            name: "weir0".to_owned(),
        })?;
        let mut routing = MarkRouting {
            entry,
            exit,
            table: TABLE,
            rules: BTreeSet::new(),
        };
        self.state.undo.marks = Some(routing.clone());
        self.persist_undo()?;
        let netlink = self.network.netlink();
        if link_named(&routing.entry).is_none() {
            netlink
                .add_veth_pair(&routing.entry, &routing.exit, mac(), MTU)
                .await?;
        }
        self.refresh_network().await?;
        self.network.adopt_marks(Some(&routing));
        if let Some(pair) = self.network.mark_devices {
            routing.table = TABLE | pair.entry & 0xffff;
        }
        Ok(routing)
    }

    /// Writes the device indexes to the programs' settings.
    fn set_mark_devices(&mut self) {
        let pair = self.network.mark_devices;
        self.rows.settings.mark_entry = pair.map_or(0, |pair| pair.entry);
        self.rows.settings.mark_exit = pair.map_or(0, |pair| pair.exit);
    }
}
