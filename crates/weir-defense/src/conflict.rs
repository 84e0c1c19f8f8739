//! Decides which VIPs to query, when a conflict begins and ends, and when a VIP is announced. Performs no I/O.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};
use std::ops::Bound;
use std::time::{Duration, Instant};

use weir_wire::MacAddr;

use crate::event::{Event, EventKind, SegmentAddress};

/// Interval between queries of all VIPs. Up to [`BATCH`] VIPs with a conflict are also queried in every tick.
const QUERY_INTERVAL: Duration = Duration::from_secs(10);
/// Maximum number of VIPs without a conflict that are queried per tick; more are spread over several ticks. Also the
/// maximum number of VIPs with a conflict that are queried per tick.
const BATCH: usize = 64;
/// Number of successive unanswered queries after which a conflict has ended. One is not enough: a reply can be lost.
const MAX_UNANSWERED_QUERIES: u32 = 3;
/// Minimum interval between two announcements that defend a VIP (RFC 5227 section 2.4, `DEFEND_INTERVAL`).
const DEFEND_INTERVAL: Duration = Duration::from_secs(10);
/// Upper limit of the interval, which doubles with each announcement. Frequent announcements do harm: if both machines
/// defend the address, each of them redirects the other's traffic.
const MAX_DEFEND_INTERVAL: Duration = Duration::from_secs(160);

/// A VIP for which another machine has replied.
#[derive(Debug)]
struct Conflict {
    machine: MacAddr,
    /// Successive unanswered queries.
    unanswered: u32,
    /// When the VIP may be announced next, and the current interval; `None` = the machine has replied only once, which
    /// is not a conflict: two machines briefly have the VIP during a takeover.
    defense: Option<(Instant, Duration)>,
}

/// The conflicts of all VIPs.
#[derive(Debug, Default)]
pub(crate) struct Conflicts {
    by_address: BTreeMap<SegmentAddress, Conflict>,
    /// When VIPs were last announced, if that is less than [`DEFEND_INTERVAL`] ago.
    announced: BTreeMap<SegmentAddress, Instant>,
    /// When to query all VIPs again; `None` = now.
    next_queries: Option<Instant>,
    /// The last VIP that was queried, if not all have been.
    last_queried: Option<SegmentAddress>,
}

impl Conflicts {
    /// Returns whether queries are due.
    pub(crate) fn is_due(&self, now: Instant) -> bool {
        !self.by_address.is_empty() || self.next_queries.is_none_or(|next| now >= next)
    }

    /// Forgets the VIPs that this machine no longer has.
    pub(crate) fn retain(&mut self, owned: &BTreeSet<SegmentAddress>) {
        self.by_address.retain(|address, _| owned.contains(address));
        self.announced.retain(|address, _| owned.contains(address));
    }

    /// Returns the VIPs to query now.
    pub(crate) fn due_queries(
        &mut self,
        owned: &BTreeSet<SegmentAddress>,
        now: Instant,
    ) -> BTreeSet<SegmentAddress> {
        let mut due: BTreeSet<SegmentAddress> =
            self.by_address.keys().take(BATCH).copied().collect();
        if self.next_queries.is_some_and(|next| now < next) {
            return due;
        }
        let first = (0, IpAddr::V4(Ipv4Addr::UNSPECIFIED));
        let start = self
            .last_queried
            .map_or(Bound::Included(first), Bound::Excluded);
        let batch = owned.range((start, Bound::Unbounded)).take(BATCH);
        let batch: Vec<SegmentAddress> = batch.copied().collect();
        if batch.len() < BATCH {
            self.last_queried = None;
            self.next_queries = Some(now + QUERY_INTERVAL);
        } else {
            self.last_queried = batch.last().copied();
        }
        due.extend(batch);
        due
    }

    /// Handles the replies to queries for these VIPs. Returns the changes.
    pub(crate) fn handle_replies(
        &mut self,
        queried: &[SegmentAddress],
        claims: &BTreeMap<SegmentAddress, MacAddr>,
        now: Instant,
    ) -> Vec<Event> {
        self.announced
            .retain(|_, last| now.saturating_duration_since(*last) < DEFEND_INTERVAL);
        let mut events = Vec::new();
        for address in queried {
            let change = match claims.get(address) {
                Some(machine) => self
                    .handle_claim(*address, *machine, now)
                    .map(|kind| (*machine, kind)),
                None => self
                    .handle_missing_reply(address)
                    .map(|machine| (machine, EventKind::Ended)),
            };
            let Some((machine, kind)) = change else {
                continue;
            };
            let event = Event {
                address: *address,
                machine,
                kind,
            };
            if event.must_announce() {
                self.announced.insert(*address, now);
            }
            events.push(event);
        }
        events
    }

    fn handle_claim(
        &mut self,
        address: SegmentAddress,
        machine: MacAddr,
        now: Instant,
    ) -> Option<EventKind> {
        let Some(conflict) = self.by_address.get_mut(&address) else {
            let conflict = Conflict {
                machine,
                unanswered: 0,
                defense: None,
            };
            self.by_address.insert(address, conflict);
            return None;
        };
        (conflict.machine, conflict.unanswered) = (machine, 0);
        match conflict.defense {
            None => {
                let last = self.announced.get(&address);
                let next = last.map_or(now, |last| *last) + DEFEND_INTERVAL;
                conflict.defense = Some((next, DEFEND_INTERVAL));
                let announce = last.is_none();
                Some(EventKind::Started { announce })
            }
            Some((next, _)) if now < next => None,
            Some((_, interval)) => {
                let interval = (interval * 2).min(MAX_DEFEND_INTERVAL);
                conflict.defense = Some((now + interval, interval));
                Some(EventKind::Continues)
            }
        }
    }

    /// Returns the other machine if its conflict has ended.
    fn handle_missing_reply(&mut self, address: &SegmentAddress) -> Option<MacAddr> {
        let conflict = self.by_address.get_mut(address)?;
        conflict.unanswered += 1;
        if conflict.defense.is_some() && conflict.unanswered < MAX_UNANSWERED_QUERIES {
            return None;
        }
        let ended = self.by_address.remove(address)?;
        ended.defense.map(|_| ended.machine)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OTHER: MacAddr = MacAddr::new([2, 0, 0, 0, 0, 9]);

    fn vip(last: u8) -> SegmentAddress {
        (2, IpAddr::from([192, 0, 2, last]))
    }

    /// Runs one tick per second. In the ticks in `replying`, another machine replies for the VIP. Returns the events
    /// with their ticks.
    fn simulate(ticks: u64, replying: impl Fn(u64) -> bool) -> Vec<(u64, EventKind)> {
        let (mut conflicts, start, owned) =
            (Conflicts::default(), Instant::now(), [vip(10)].into());
        let mut events_by_tick = Vec::new();
        for tick in 0..ticks {
            let now = start + Duration::from_secs(tick);
            let due: Vec<_> = conflicts.due_queries(&owned, now).into_iter().collect();
            let claims = replying(tick).then(|| (vip(10), OTHER));
            let claims = claims.into_iter().collect();
            let events = conflicts.handle_replies(&due, &claims, now);
            assert!(events.iter().all(|event| event.machine == OTHER));
            events_by_tick.extend(events.iter().map(|event| (tick, event.kind)));
        }
        events_by_tick
    }

    #[test]
    fn vip_is_announced_when_a_conflict_starts_and_ends() {
        let started = EventKind::Started { announce: true };
        let events = simulate(60, |tick| (13..25).contains(&tick));
        // Queries are due in ticks 0, 10 and 20, and from 21 in each tick until the conflict ends.
        assert_eq!(events, [(21, started), (27, EventKind::Ended)]);
        assert_eq!(simulate(60, |_| false), []);
    }

    #[test]
    fn one_reply_does_not_start_a_conflict_and_two_lost_replies_do_not_end_it() {
        assert_eq!(simulate(60, |tick| tick == 20), []);
        let events = simulate(8, |tick| tick != 4 && tick != 5);
        assert_eq!(events, [(1, EventKind::Started { announce: true })]);
    }

    #[test]
    fn defense_is_rate_limited_and_backs_off() {
        let events = simulate(2000, |_| true);
        let ticks: Vec<u64> = events.iter().map(|(tick, _)| *tick).collect();
        assert_eq!(ticks[..7], [1, 11, 31, 71, 151, 311, 471]);
        // A machine that replies intermittently: at most one defense per 10 s.
        let events = simulate(600, |tick| tick % 6 < 2);
        let defenses = events.iter().filter(|(_, kind)| {
            matches!(
                kind,
                EventKind::Started { announce: true } | EventKind::Continues
            )
        });
        let ticks: Vec<u64> = defenses.map(|(tick, _)| *tick).collect();
        assert!(ticks.len() > 10, "{ticks:?}");
        assert!(
            ticks.windows(2).all(|pair| pair[1] - pair[0] >= 10),
            "{ticks:?}"
        );
    }

    #[test]
    fn conflict_is_dropped_when_the_vip_is_removed() {
        let mut conflicts = Conflicts::default();
        let (now, owned) = (Instant::now(), [vip(10), vip(11)].into());
        let claims = [(vip(10), OTHER)].into();
        for _ in 0..2 {
            let due: Vec<_> = conflicts.due_queries(&owned, now).into_iter().collect();
            conflicts.handle_replies(&due, &claims, now);
        }
        assert!(conflicts.is_due(now));
        conflicts.retain(&[vip(11)].into());
        assert!(!conflicts.is_due(now));
        assert!(conflicts.is_due(now + QUERY_INTERVAL));
    }

    #[test]
    fn many_vips_are_queried_in_several_ticks() {
        let owned: BTreeSet<SegmentAddress> = (0..200).map(vip).collect();
        let (mut conflicts, start) = (Conflicts::default(), Instant::now());
        let mut queried = Vec::new();
        let mut sizes = Vec::new();
        for tick in 0..6 {
            let due = conflicts.due_queries(&owned, start + Duration::from_secs(tick));
            sizes.push(due.len());
            queried.extend(due);
        }
        assert_eq!(sizes, [64, 64, 64, 8, 0, 0]);
        assert_eq!(queried.into_iter().collect::<BTreeSet<_>>(), owned);
    }
}
