//! Ensures that failed health checks do not make the last member that announces a VIP withdraw it.
//!
//! Each member records the VIPs that it announces. A member whose services cannot serve withdraws a VIP only if another
//! member announces the VIP. The transaction fails if the other member's record has changed in the meantime, so only
//! one of two members that withdraw a VIP at the same time succeeds. While etcd does not respond, members use the last
//! known records.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use crate::key::{Key, Keys};
use crate::store::{Compare, Mirror, Put, Txn, Write};

/// The VIPs that this member announces.
#[derive(Clone, Debug, Default)]
pub(crate) struct AnnouncedVips {
    /// The VIPs that this director may announce, and whether their services can serve.
    candidates: BTreeMap<IpAddr, bool>,
    /// The VIPs that this member announces.
    announced: BTreeSet<IpAddr>,
    /// VIPs that this member announces when it joins the group although their services cannot serve. Each is announced
    /// when it becomes a candidate.
    announced_before: BTreeSet<IpAddr>,
}

/// Returns the records of other members: the key, its revision, and the VIPs.
fn other_announcers<'a>(
    keys: &'a Keys,
    mirror: &'a Mirror,
    own_name: &'a str,
) -> impl Iterator<Item = (&'a str, i64, BTreeSet<IpAddr>)> {
    mirror.iter().filter_map(move |(name, stored)| {
        let Some(Key::Serving(member)) = keys.parse(name) else {
            return None;
        };
        let is_member = mirror
            .get(&keys.name(&Key::Member(member.clone())))
            .is_some();
        if member == own_name || !is_member {
            return None;
        }
        let vips: BTreeSet<IpAddr> = serde_json::from_slice(&stored.value).ok()?;
        Some((name, stored.revision, vips))
    })
}

impl AnnouncedVips {
    /// `announced_before` = the VIPs that this member has announced until now although their services cannot serve.
    pub(crate) fn new(announced_before: BTreeSet<IpAddr>) -> Self {
        Self {
            announced_before,
            ..Self::default()
        }
    }

    /// Returns the VIPs that must stay announced although their services cannot serve.
    pub(crate) fn held_vips(&self) -> BTreeSet<IpAddr> {
        let cannot_serve = |vip: &&IpAddr| self.candidates.get(vip) == Some(&false);
        self.announced
            .iter()
            .filter(cannot_serve)
            .copied()
            .collect()
    }

    /// Returns the other VIPs whose services cannot serve.
    pub(crate) fn withdrawn_vips(&self) -> BTreeSet<IpAddr> {
        let candidates = self.candidates.iter();
        let withdrawn =
            candidates.filter(|(vip, serves)| !**serves && !self.announced.contains(vip));
        withdrawn.map(|(vip, _)| *vip).collect()
    }

    pub(crate) fn announced_vips(&self) -> &BTreeSet<IpAddr> {
        &self.announced
    }

    /// Sets the VIPs that this director may announce. Withdraws all others, because they were removed from the
    /// configuration or the node is drained.
    pub(crate) fn set(&mut self, candidates: BTreeMap<IpAddr, bool>) {
        self.announced.retain(|vip| candidates.contains_key(vip));
        let serving = candidates.iter().filter(|(_, serves)| **serves);
        self.announced.extend(serving.map(|(vip, _)| *vip));
        let announced_before = self
            .announced_before
            .extract_if(.., |vip| candidates.contains_key(vip));
        self.announced.extend(announced_before);
        self.candidates = candidates;
    }

    /// Withdraws VIPs that another member announces according to the last known records. Used while etcd does not
    /// respond.
    pub(crate) fn withdraw_without_etcd(&mut self, keys: &Keys, mirror: &Mirror, own_name: &str) {
        for vip in self.held_vips() {
            if other_announcers(keys, mirror, own_name).any(|(_, _, vips)| vips.contains(&vip)) {
                self.announced.remove(&vip);
            }
        }
    }

    /// Returns the VIPs to withdraw and the transaction that withdraws them; `None` if no VIP can be withdrawn.
    pub(crate) fn next_withdrawal(
        &self,
        keys: &Keys,
        mirror: &Mirror,
        own_name: &str,
    ) -> Option<(BTreeSet<IpAddr>, Txn)> {
        let held = self.held_vips();
        let (mut withdrawn, mut compares) = (BTreeSet::new(), BTreeMap::new());
        for vip in held {
            let mut announcers = other_announcers(keys, mirror, own_name);
            if let Some((name, revision, _)) = announcers.find(|(_, _, vips)| vips.contains(&vip)) {
                withdrawn.insert(vip);
                compares.insert(name.to_owned(), revision);
            }
        }
        if withdrawn.is_empty() {
            return None;
        }
        let remaining: BTreeSet<IpAddr> = self.announced.difference(&withdrawn).copied().collect();
        let compares = compares.into_iter();
        let txn = Txn {
            compares: compares
                .map(|(name, revision)| Compare::Revision(name, revision))
                .collect(),
            writes: vec![Write::Put(record_put(keys, own_name, &remaining))],
        };
        Some((withdrawn, txn))
    }

    /// Withdraws VIPs after the transaction has succeeded.
    pub(crate) fn withdraw(&mut self, vips: &BTreeSet<IpAddr>) {
        // A service may have recovered in the meantime.
        let candidates = &self.candidates;
        self.announced
            .retain(|vip| !vips.contains(vip) || candidates.get(vip) == Some(&true));
    }
}

/// Returns a write that records the VIPs that a member announces.
pub(crate) fn record_put(keys: &Keys, own_name: &str, vips: &BTreeSet<IpAddr>) -> Put {
    Put {
        key: keys.name(&Key::Serving(own_name.to_owned())),
        value: serde_json::to_vec(vips).unwrap_or_default(),
        leased: true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Entry;

    fn vip() -> IpAddr {
        "192.0.2.10".parse().unwrap()
    }

    fn mirror(announcers: &[(&str, i64)]) -> Mirror {
        let keys = Keys::new("edge");
        let mut entries = Vec::new();
        for (member, revision) in announcers {
            let put = record_put(&keys, member, &BTreeSet::from([vip()]));
            entries.push(Entry {
                key: put.key,
                value: put.value,
                revision: *revision,
            });
            entries.push(Entry {
                key: keys.name(&Key::Member((*member).to_owned())),
                value: b"{}".to_vec(),
                revision: 1,
            });
        }
        let mut mirror = Mirror::default();
        mirror.replace(9, entries);
        mirror
    }

    #[test]
    fn vip_is_withdrawn_only_if_another_member_announces_it() {
        let keys = Keys::new("edge");
        let mut serving = AnnouncedVips::default();
        serving.set(BTreeMap::from([(vip(), false)]));
        assert!(
            serving.held_vips().is_empty(),
            "a VIP that was never announced is not held"
        );
        serving.set(BTreeMap::from([(vip(), true)]));
        serving.set(BTreeMap::from([(vip(), false)]));
        assert_eq!(serving.held_vips(), BTreeSet::from([vip()]));
        assert_eq!(
            serving.next_withdrawal(&keys, &mirror(&[("a", 1)]), "a"),
            None
        );
        let two_announcers = mirror(&[("a", 1), ("b", 7)]);
        let (vips, txn) = serving
            .next_withdrawal(&keys, &two_announcers, "a")
            .unwrap();
        let name = keys.name(&Key::Serving("b".to_owned()));
        assert_eq!(txn.compares, [Compare::Revision(name, 7)]);
        serving.withdraw(&vips);
        assert!(serving.held_vips().is_empty() && serving.announced_vips().is_empty());
    }

    #[test]
    fn last_known_announcers_decide_without_etcd() {
        let keys = Keys::new("edge");
        let mut serving = AnnouncedVips::default();
        serving.set(BTreeMap::from([(vip(), true)]));
        serving.set(BTreeMap::from([(vip(), false)]));
        serving.withdraw_without_etcd(&keys, &mirror(&[("a", 1)]), "a");
        assert_eq!(serving.held_vips().len(), 1);
        serving.withdraw_without_etcd(&keys, &mirror(&[("a", 1), ("b", 1)]), "a");
        assert!(serving.held_vips().is_empty());
    }
}
