//! Records and removes the rules, routes and devices that Weir adds for packets with a firewall mark.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use weir_abi::MARK_MAC;
use weir_netlink::{Change, MacAddr, Netlink, Rule};
use weir_planner::mark::Key;

/// Changes to the host for marked packets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct MarkRouting {
    /// Name of the device that marked packets are routed to.
    pub(crate) entry: String,
    /// Name of its peer.
    pub(crate) exit: String,
    /// ID of the routing table.
    pub(crate) table: u32,
    /// Marks that have a rule.
    pub(crate) rules: BTreeSet<Key>,
}

impl MarkRouting {
    pub(crate) fn rule(&self, (ipv6, mark): Key) -> Rule {
        Rule::Mark {
            ipv6,
            mark,
            table: self.table,
        }
    }

    /// Returns the rules that prevent packets that XDP passes to the stack from looping. An address family needs them
    /// if it has marks.
    pub(crate) fn family_rules(&self, ipv6: bool) -> [Rule; 2] {
        let device = self.exit.clone();
        let resume = Rule::Resume {
            ipv6,
            device: device.clone(),
        };
        [resume, Rule::Skip { ipv6, device }]
    }

    /// Returns all rules, in the order in which they must be added.
    pub(crate) fn all_rules(&self) -> Vec<Rule> {
        let families: BTreeSet<bool> = self.rules.iter().map(|mark| mark.0).collect();
        let family_rules = families
            .into_iter()
            .flat_map(|ipv6| self.family_rules(ipv6));
        family_rules
            .chain(self.rules.iter().map(|mark| self.rule(*mark)))
            .collect()
    }

    /// Removes the rules of these marks, and the rules of address families that have no marks any more. Returns the
    /// number of removed mark rules.
    pub(crate) async fn remove_rules(
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
            let has_family = |marks: &BTreeSet<Key>| marks.iter().any(|mark| mark.0 == ipv6);
            if has_family(marks) && !has_family(&self.rules) {
                for rule in self.family_rules(ipv6).iter().rev() {
                    netlink.remove_rule(rule).await?;
                }
            }
        }
        Ok(removed)
    }

    /// Removes all rules and the devices. Returns the number of removed mark rules.
    ///
    /// # Errors
    /// Fails if the kernel rejects a change.
    pub(crate) async fn remove(mut self, netlink: &Netlink) -> weir_netlink::Result<usize> {
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

/// Returns the MAC address of the device that marked packets are routed to.
pub(crate) fn mac() -> MacAddr {
    let [a, b, c, d, e, f, ..] = MARK_MAC.to_le_bytes();
    MacAddr([a, b, c, d, e, f])
}
