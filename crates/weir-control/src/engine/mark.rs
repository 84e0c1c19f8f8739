//! The way of packets that carry a firewall mark: routed to a device of Weir's, balanced by XDP at its peer.
//!
//! A mark is set by the stack's firewall, behind XDP. So rules of policy routing lead marked packets to one end of a
//! veth pair, where the tc program writes the mark into the frame; XDP at the other end takes it up
//! (`bpf/lib/firewall_mark.h`). Programs are attached before the first rule stands, and rules go before the devices do.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use weir_abi::MARK_MAC;
use weir_dataplane::{Direction, Hook, XdpChoice};
use weir_netlink::{Change, MacAddr, Netlink, Rule};
use weir_planner::mark::{Key, Pair};
use weir_sys::ethtool::{Features, TX_CHECKSUM};

use super::{Engine, Result};

/// Larger than any Ethernet's: what came in by one leaves by the pair.
const MTU: u32 = 9216;
/// The table of a pair is this and its device's number: "We".
const TABLE: u32 = 0x5765_0000;
/// As many pairs of names are tried.
const NAMES: u32 = 64;

/// What was added to the host for marked packets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct MarkRouting {
    /// The device that they are routed to.
    pub(super) entry: String,
    /// Its peer.
    pub(super) exit: String,
    /// Number of the routing table.
    pub(super) table: u32,
    /// Marks that have a rule.
    pub(super) rules: BTreeSet<Key>,
}

impl MarkRouting {
    fn rule(&self, (ipv6, mark): Key) -> Rule {
        Rule::Mark {
            ipv6,
            mark,
            table: self.table,
        }
    }

    /// What keeps packets that XDP passed on from going round, once a family has marks.
    fn family_rules(&self, ipv6: bool) -> [Rule; 2] {
        let device = self.exit.clone();
        let resume = Rule::Resume {
            ipv6,
            device: device.clone(),
        };
        [resume, Rule::Skip { ipv6, device }]
    }

    /// All rules, in the order in which they are added.
    fn all_rules(&self) -> Vec<Rule> {
        let families: BTreeSet<bool> = self.rules.iter().map(|mark| mark.0).collect();
        let family_rules = families
            .into_iter()
            .flat_map(|ipv6| self.family_rules(ipv6));
        family_rules
            .chain(self.rules.iter().map(|mark| self.rule(*mark)))
            .collect()
    }

    /// Takes the rules of some marks away; answers how many there were.
    async fn remove_rules(
        &mut self,
        netlink: &Netlink,
        marks: &BTreeSet<Key>,
    ) -> weir_netlink::Result<usize> {
        let mut removed = 0;
        for mark in marks {
            removed += usize::from(netlink.remove_rule(&self.rule(*mark)).await? == Change::Made);
            self.rules.remove(mark);
        }
        for ipv6 in [false, true] {
            let family = |marks: &BTreeSet<Key>| marks.iter().any(|mark| mark.0 == ipv6);
            if family(marks) && !family(&self.rules) {
                for rule in self.family_rules(ipv6).iter().rev() {
                    netlink.remove_rule(rule).await?;
                }
            }
        }
        Ok(removed)
    }

    /// Takes everything away; answers how many rules there were.
    ///
    /// # Errors
    /// The kernel refuses.
    pub(super) async fn remove(mut self, netlink: &Netlink) -> weir_netlink::Result<usize> {
        let rules = self.rules.clone();
        let removed = self.remove_rules(netlink, &rules).await?;
        if let Some(link) = netlink.link(&self.entry).await?
            && link.mac == Some(mac())
        {
            netlink.remove_link(link.index).await?;
        }
        Ok(removed)
    }
}

fn mac() -> MacAddr {
    let [a, b, c, d, e, f, ..] = MARK_MAC.to_le_bytes();
    MacAddr([a, b, c, d, e, f])
}

impl Engine {
    /// Brings device, programs and rules in line with the marks of services that are there or whose flows live on.
    pub(super) async fn update_marks(&mut self) -> Result<()> {
        let wanted = self.memory.allocation.marks();
        let known = self.memory.undo.marks.as_ref();
        let is_current = known.map(|way| &way.rules) == (!wanted.is_empty()).then_some(&wanted);
        if is_current && (wanted.is_empty() || self.network.marks.is_some()) {
            return Ok(());
        }
        if !wanted.is_empty() {
            return self.route_marks(wanted).await;
        }
        let Some(way) = self.memory.undo.marks.clone() else {
            return Ok(());
        };
        if let Some(pair) = self.network.marks.take() {
            self.set_mark_devices();
            self.plane.detach(pair.entry)?;
            self.plane.detach(pair.exit)?;
        }
        way.remove(self.network.netlink()).await?;
        self.memory.undo.marks = None;
        self.persist_undo()
    }

    async fn route_marks(&mut self, wanted: BTreeSet<Key>) -> Result<()> {
        let mut way = self.ensure_mark_pair().await?;
        let netlink = self.network.netlink();
        let gone: BTreeSet<Key> = way.rules.difference(&wanted).copied().collect();
        way.remove_rules(netlink, &gone).await?;
        let mut rules = Vec::new();
        for ipv6 in [false, true] {
            if wanted.iter().any(|mark| mark.0 == ipv6) {
                let entry = self.network.marks.map_or(0, |pair| pair.entry);
                netlink.add_default_route(ipv6, way.table, entry).await?;
                rules.extend(way.family_rules(ipv6));
            }
        }
        let new = wanted.difference(&way.rules).copied();
        rules.extend(new.map(|mark| way.rule(mark)));
        way.rules = wanted;
        // Remembered first: a death in between leaves rules that are looked for in vain, not such as nobody knows of.
        self.memory.undo.marks = Some(way);
        self.persist_undo()?;
        self.network.netlink().add_rules(&rules).await?;
        Ok(())
    }

    /// The devices, made where they are missing, with programs that know them.
    async fn ensure_mark_pair(&mut self) -> Result<MarkRouting> {
        let way = match (&self.network.marks, &self.memory.undo.marks) {
            (Some(_), Some(way)) => way.clone(),
            _ => self.make_pair().await?,
        };
        self.set_mark_devices();
        self.write_pending()?;
        let Some(pair) = self.network.marks else {
            return Ok(way);
        };
        self.plane.attach_tc(pair.entry, Direction::Egress)?;
        // In front of the driver's own receiving, where nothing is merged: the sender cuts packets up.
        self.plane.attach(pair.exit, XdpChoice::Native)?;
        self.plane.attach_tc(pair.exit, Direction::Ingress)?;
        // XDP changes checksums by difference, so they are to be whole.
        let whole = self.network.netlink().inside(|| {
            Features::read(&way.entry).and_then(|features| features.set(&[(TX_CHECKSUM, false)]))
        })?;
        whole?;
        for end in [pair.entry, pair.exit] {
            self.network.netlink().bring_up(end).await?;
        }
        Ok(way)
    }

    /// Puts back what somebody took of the way of marked packets: devices, programs, routes, rules.
    pub(super) async fn repair_marks(&mut self) -> Result<()> {
        if self.memory.allocation.marks().is_empty() {
            return Ok(());
        }
        let there = |index, name: &str| self.network.name_of(index) == Some(name);
        let known = self.memory.undo.marks.clone().zip(self.network.marks);
        let whole = known
            .filter(|(way, pair)| there(pair.entry, &way.entry) && there(pair.exit, &way.exit));
        let Some((way, pair)) = whole else {
            // What fails half-way is found so again, and tried again.
            self.network.marks = None;
            self.update_marks().await?;
            self.log_mark_repair("its devices were made anew");
            return Ok(());
        };
        let works = self.pair_works(pair).await?;
        if !works {
            self.ensure_mark_pair().await?;
        }
        let netlink = self.network.netlink();
        let mut routes = 0;
        for ipv6 in [false, true] {
            if way.rules.iter().any(|mark| mark.0 == ipv6) {
                let added = netlink
                    .add_default_route(ipv6, way.table, pair.entry)
                    .await?;
                routes += usize::from(added == Change::Made);
            }
        }
        let missing = netlink.missing_rules(&way.all_rules()).await?;
        if !missing.is_empty() {
            netlink.add_rules(&missing).await?;
        }
        // Routes go with a device that goes down: that is one thing.
        if !works {
            self.log_mark_repair("its devices were put into operation again");
        } else if routes + missing.len() > 0 {
            self.log_mark_repair("its rules and routes were added again");
        }
        Ok(())
    }

    /// Both devices are up, and have their programs.
    async fn pair_works(&self, pair: Pair) -> Result<bool> {
        let there = self.plane.attachments()?;
        let has = |ifindex, hooks: &[Hook]| {
            let mut at = there.iter().filter(|it| it.ifindex == ifindex);
            at.any(|it| hooks.contains(&it.hook))
        };
        let attached = has(pair.entry, &[Hook::Egress, Hook::ClsactEgress])
            && has(pair.exit, &[Hook::XdpNative])
            && has(pair.exit, &[Hook::Ingress, Hook::ClsactIngress]);
        Ok(attached && self.pair_is_up(pair).await?)
    }

    async fn pair_is_up(&self, pair: Pair) -> Result<bool> {
        if self.network.is_up(pair.entry) && self.network.is_up(pair.exit) {
            return Ok(true);
        }
        // The picture follows events, and the one that tells may be on its way.
        let links = self.network.netlink().links().await?;
        let up = |index| links.iter().any(|link| link.index == index && link.up);
        Ok(up(pair.entry) && up(pair.exit))
    }

    fn log_mark_repair(&mut self, cause: &str) {
        self.drift.marks += 1;
        tracing::warn!(cause, "the way of marked packets was repaired");
    }

    async fn make_pair(&mut self) -> Result<MarkRouting> {
        if let Some(former) = self.memory.undo.marks.clone() {
            former.remove(self.network.netlink()).await?;
        }
        let netlink = self.network.netlink();
        let links = netlink.links().await?;
        let named = |name: &String| links.iter().find(|link| link.name == *name);
        let mut names =
            (0..NAMES).map(|n| (format!("weir{}", 2 * n), format!("weir{}", 2 * n + 1)));
        let free = |(entry, exit): &(String, String)| {
            let (entry, exit) = (named(entry), named(exit));
            // Left by a daemon whose memory is gone.
            let ours = entry.is_some_and(|link| link.mac == Some(mac())) && exit.is_some();
            ours || entry.is_none() && exit.is_none()
        };
        let (entry, exit) = names.find(free).ok_or(super::Error::NoInterface {
            name: "weir0".to_owned(),
        })?;
        let mut way = MarkRouting {
            entry,
            exit,
            table: TABLE,
            rules: BTreeSet::new(),
        };
        self.memory.undo.marks = Some(way.clone());
        self.persist_undo()?;
        let netlink = self.network.netlink();
        if named(&way.entry).is_none() {
            netlink.add_pair(&way.entry, &way.exit, mac(), MTU).await?;
        }
        self.refresh_network().await?;
        self.network.adopt_marks(Some(&way));
        if let Some(pair) = self.network.marks {
            way.table = TABLE | pair.entry & 0xffff;
        }
        Ok(way)
    }

    /// Has programs know the devices.
    fn set_mark_devices(&mut self) {
        let pair = self.network.marks;
        self.rows.settings.mark_entry = pair.map_or(0, |pair| pair.entry);
        self.rows.settings.mark_exit = pair.map_or(0, |pair| pair.exit);
    }
}
