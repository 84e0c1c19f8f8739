//! Ensures that failed health checks do not make the last member that announces a VIP withdraw it.
//!
//! Each member records the VIPs that it announces. A member whose services cannot serve withdraws a VIP only if another
//! member announces the VIP. The transaction fails if the other member's record has changed in the meantime, so only
//! one of two members that withdraw a VIP at the same time succeeds.
//!
//! If etcd does not respond within [`MAX_WAIT`], a member uses the last known records: it withdraws the VIP
//! provisionally. Its own record still contains the VIP until etcd has confirmed the withdrawal. If etcd rejects the
//! withdrawal because no other member still announces the VIP, the member announces the VIP again.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;

use crate::key::{Key, Keys};
use crate::store::{Compare, Mirror, Put, Txn, Write};

/// Maximum time for which a VIP stays announced while its withdrawal waits for etcd.
const MAX_WAIT: Duration = Duration::from_millis(100);

/// The VIPs that this member announces.
#[derive(Clone, Debug, Default)]
pub(crate) struct AnnouncedVips {
    /// The VIPs that this director may announce, and whether their services can serve.
    candidates: BTreeMap<IpAddr, bool>,
    /// The VIPs in this member's record: those that it announces, and those in `provisional`.
    announced: BTreeSet<IpAddr>,
    /// VIPs that this member has withdrawn although etcd has not confirmed the withdrawal.
    provisional: BTreeSet<IpAddr>,
    /// VIPs in `announced` whose services cannot serve and that another member announces, and the start of this state.
    waiting: BTreeMap<IpAddr, Duration>,
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
    /// `announced_before` = the VIPs that this member has announced so far although their services cannot serve.
    pub(crate) fn new(announced_before: BTreeSet<IpAddr>) -> Self {
        Self {
            announced_before,
            ..Self::default()
        }
    }

    /// Returns the VIPs that must stay announced although their services cannot serve.
    pub(crate) fn held_vips(&self) -> BTreeSet<IpAddr> {
        let unconfirmed = self.unconfirmed_vips();
        unconfirmed.difference(&self.provisional).copied().collect()
    }

    /// Returns the VIPs in this member's record whose services cannot serve.
    fn unconfirmed_vips(&self) -> BTreeSet<IpAddr> {
        let cannot_serve = |vip: &&IpAddr| self.candidates.get(vip) == Some(&false);
        self.announced
            .iter()
            .filter(cannot_serve)
            .copied()
            .collect()
    }

    /// Returns the VIPs whose services cannot serve and that are not announced.
    pub(crate) fn withdrawn_vips(&self) -> BTreeSet<IpAddr> {
        let is_announced =
            |vip: &IpAddr| self.announced.contains(vip) && !self.provisional.contains(vip);
        let candidates = self.candidates.iter();
        let withdrawn = candidates.filter(|(vip, serves)| !**serves && !is_announced(vip));
        withdrawn.map(|(vip, _)| *vip).collect()
    }

    /// Returns the VIPs of this member's record.
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
        self.provisional
            .retain(|vip| candidates.get(vip) == Some(&false));
        self.candidates = candidates;
    }

    /// Returns, for each VIP of [`Self::unconfirmed_vips`] that another member announces, such a member's record: its
    /// key and revision.
    fn find_announcers<'a>(
        &self,
        keys: &'a Keys,
        mirror: &'a Mirror,
        own_name: &'a str,
    ) -> BTreeMap<IpAddr, (&'a str, i64)> {
        let unconfirmed = self.unconfirmed_vips();
        let mut announcers = BTreeMap::new();
        // The mirror is large, and there is almost never anything to search for.
        if unconfirmed.is_empty() {
            return announcers;
        }
        for (name, revision, vips) in other_announcers(keys, mirror, own_name) {
            for vip in unconfirmed.intersection(&vips) {
                announcers.entry(*vip).or_insert((name, revision));
            }
        }
        announcers
    }

    /// Provisionally withdraws VIPs that another member announces according to the last known records: immediately if
    /// etcd does not respond, otherwise after [`MAX_WAIT`]. If `is_complete`, the records of all members are known.
    /// VIPs that no other member still announces are then announced again.
    pub(crate) fn decide_without_etcd(
        &mut self,
        (keys, mirror, own_name): (&Keys, &Mirror, &str),
        responds: bool,
        is_complete: bool,
        now: Duration,
    ) {
        let wait_max = if responds { MAX_WAIT } else { Duration::ZERO };
        let announcers = self.find_announcers(keys, mirror, own_name);
        self.waiting.retain(|vip, _| announcers.contains_key(vip));
        if is_complete {
            self.provisional.retain(|vip| announcers.contains_key(vip));
        }
        for vip in announcers.into_keys() {
            let since = *self.waiting.entry(vip).or_insert(now);
            if now >= since + wait_max {
                self.provisional.insert(vip);
            }
        }
    }

    /// Returns the time at which [`Self::decide_without_etcd`] must be called; `None` if no VIP waits for etcd.
    pub(crate) fn next_deadline(&self) -> Option<Duration> {
        let waiting = self.waiting.iter();
        let waiting = waiting.filter(|(vip, _)| !self.provisional.contains(vip));
        waiting.map(|(_, since)| *since + MAX_WAIT).min()
    }

    /// Returns the VIPs to withdraw and the transaction that withdraws them; `None` if no VIP can be withdrawn.
    pub(crate) fn next_withdrawal(
        &self,
        keys: &Keys,
        mirror: &Mirror,
        own_name: &str,
    ) -> Option<(BTreeSet<IpAddr>, Txn)> {
        let announcers = self.find_announcers(keys, mirror, own_name);
        if announcers.is_empty() {
            return None;
        }
        let withdrawn: BTreeSet<IpAddr> = announcers.keys().copied().collect();
        let compares: BTreeMap<&str, i64> = announcers.into_values().collect();
        let remaining: BTreeSet<IpAddr> = self.announced.difference(&withdrawn).copied().collect();
        let compares = compares.into_iter();
        let txn = Txn {
            compares: compares
                .map(|(name, revision)| Compare::Revision(name.to_owned(), revision))
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
        self.provisional.retain(|vip| self.announced.contains(vip));
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
            "a VIP that was never announced must not be held"
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
        let mut decide = |mirror: &Mirror, responds, is_complete, ms| {
            let now = Duration::from_millis(ms);
            let context = (&keys, mirror, "a");
            serving.set(BTreeMap::from([(vip(), true)]));
            serving.set(BTreeMap::from([(vip(), false)]));
            serving.decide_without_etcd(context, responds, is_complete, now);
            (serving.held_vips().len(), serving.withdrawn_vips().len())
        };
        assert_eq!(decide(&mirror(&[("a", 1)]), false, false, 0), (1, 0));
        assert_eq!(
            decide(&mirror(&[("a", 1), ("b", 1)]), false, false, 0),
            (0, 1)
        );
    }

    #[test]
    fn provisional_withdrawal_waits_for_etcd_and_ends_if_no_other_member_announces_the_vip() {
        let keys = Keys::new("edge");
        let (alone, both) = (mirror(&[("a", 1)]), mirror(&[("a", 1), ("b", 1)]));
        let mut serving = AnnouncedVips::default();
        serving.set(BTreeMap::from([(vip(), true)]));
        serving.set(BTreeMap::from([(vip(), false)]));
        // Whether the mirror has the record of another announcer, whether it is complete, the time in milliseconds,
        // whether the VIP is held, and the next deadline.
        for (step, (has_other, is_complete, ms, is_held, deadline)) in [
            (false, true, 0, true, None),
            // The wait begins when another announcer is known.
            (true, true, 500, true, Some(600)),
            (true, true, 599, true, Some(600)),
            (true, true, 600, false, None),
            (true, true, 700, false, None),
            // The mirror may lack the records of members that have not registered again.
            (false, false, 800, false, None),
            (false, true, 900, true, None),
            (true, true, 1000, true, Some(1100)),
        ]
        .into_iter()
        .enumerate()
        {
            let mirror = if has_other { &both } else { &alone };
            let now = Duration::from_millis(ms);
            serving.decide_without_etcd((&keys, mirror, "a"), true, is_complete, now);
            assert_eq!(!serving.held_vips().is_empty(), is_held, "step {step}");
            assert_eq!(serving.withdrawn_vips().is_empty(), is_held, "step {step}");
            let deadline = deadline.map(Duration::from_millis);
            assert_eq!(serving.next_deadline(), deadline, "step {step}");
            // The record contains the VIP until etcd has confirmed the withdrawal.
            assert!(serving.announced_vips().contains(&vip()), "step {step}");
            let withdrawal = serving.next_withdrawal(&keys, mirror, "a");
            assert_eq!(withdrawal.is_some(), has_other, "step {step}");
        }
    }

    #[test]
    fn recovered_service_ends_provisional_withdrawal() {
        let keys = Keys::new("edge");
        let mirror = mirror(&[("b", 1)]);
        let mut serving = AnnouncedVips::default();
        serving.set(BTreeMap::from([(vip(), true)]));
        serving.set(BTreeMap::from([(vip(), false)]));
        let context = (&keys, &mirror, "a");
        serving.decide_without_etcd(context, false, false, Duration::ZERO);
        assert!(serving.held_vips().is_empty());
        serving.set(BTreeMap::from([(vip(), true)]));
        // The withdrawal has succeeded in the meantime.
        serving.withdraw(&BTreeSet::from([vip()]));
        assert!(serving.announced_vips().contains(&vip()));
        serving.set(BTreeMap::from([(vip(), false)]));
        assert_eq!(serving.held_vips(), BTreeSet::from([vip()]));
    }
}
