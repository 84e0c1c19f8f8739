//! Servers that take no connections while others of their pool do, found out by clients' packets alone.
//!
//! What is seen of a server is how many SYNs went to it and how many flows became established: that holds whether its answers
//! pass the director or not, and whether it drops SYNs or resets them. A server is ejected when SYNs went unanswered for a while
//! and none was answered, when another server of the pool was answered meanwhile (else it may be the clients, or a flood), and
//! when no more than the pool's share would be ejected. It comes back on trial; if that fails too, it stays away twice as long.

use std::collections::{BTreeMap, HashSet};
use std::time::Duration;

/// SYNs without an answer that it takes.
const NEEDED: u64 = 3;

/// And how long none may have been answered: longer than any handshake, and than one whose first packet was lost and sent again
/// after the second that RFC 6298 wants.
const AT_LEAST: Duration = Duration::from_millis(1500);

/// How long an answer of another server speaks for the clients.
const ALIVE: Duration = Duration::from_secs(3);

/// The first time away, and the longest.
const AWAY: Duration = Duration::from_secs(10);
const LONGEST: Duration = Duration::from_secs(300);

/// What was counted of a server since its rows began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sample {
    /// SYNs that went to it, repeated ones too.
    pub syns: u64,
    /// Flows that became established.
    pub answered: u64,
}

/// A server is away.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ejection {
    /// When that began, on the driver's clock.
    pub since: Duration,
    /// When it is tried again.
    pub until: Duration,
    /// What was seen.
    pub reason: String,
}

/// What an observation changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Turn {
    /// Address as in the file.
    pub server: String,
    /// `None` = it is back.
    pub ejection: Option<Ejection>,
}

#[derive(Clone, Debug, Default)]
struct Watch {
    last: Sample,
    /// SYNs since the last answer, and when the first of them was noticed.
    unanswered: u64,
    waiting: Option<Duration>,
    answered: Option<Duration>,
    ejected: Option<Duration>,
    /// Ejections in a row.
    times: u32,
}

/// Servers as their clients find them, by group: those of one service, or of one pool where the service makes no difference.
#[derive(Clone, Debug, Default)]
pub struct Outliers {
    groups: BTreeMap<String, BTreeMap<String, Watch>>,
}

impl Outliers {
    /// Takes in what was counted of those servers of a group that are meant to take connections, of which at most `share`
    /// percent may be ejected. One that was meant to and is no more, because its check failed, is ejected no longer: what
    /// its check says next counts at once.
    pub fn observe(
        &mut self,
        group: &str,
        share: u32,
        samples: &[(&str, Sample)],
        now: Duration,
    ) -> Vec<Turn> {
        let watches = self.groups.entry(group.to_owned()).or_default();
        let mut turns = Vec::new();
        let meant: HashSet<&str> = samples.iter().map(|(name, _)| *name).collect();
        watches.retain(|server, watch| {
            let stays = meant.contains(server.as_str());
            if !stays && watch.ejected.is_some() {
                turns.push(Turn {
                    server: server.clone(),
                    ejection: None,
                });
            }
            stays
        });
        for (server, sample) in samples {
            let Some(watch) = watches.get_mut(*server) else {
                let watch = Watch {
                    last: *sample,
                    ..Watch::default()
                };
                watches.insert((*server).to_owned(), watch);
                continue;
            };
            watch.count(*sample, now);
            if watch.comes_back(now) {
                turns.push(Turn {
                    server: (*server).to_owned(),
                    ejection: None,
                });
            }
        }
        let most = samples.len() as u64 * u64::from(share) / 100;
        let away = watches.values().filter(|watch| watch.ejected.is_some());
        let mut away = away.count() as u64;
        let mut answers = Answers::of(watches);
        for (server, _) in samples {
            if away >= most {
                break;
            }
            let Some(watch) = watches.get_mut(*server) else {
                continue;
            };
            if !answers.speak_against(watch, now) {
                continue;
            }
            if let Some(ejection) = watch.eject(now) {
                away += 1;
                answers = Answers::of(watches);
                turns.push(Turn {
                    server: (*server).to_owned(),
                    ejection: Some(ejection),
                });
            }
        }
        turns
    }

    /// Has a server in use again, with nothing known of it.
    pub fn forgive(&mut self, group: &str, server: &str) {
        if let Some(watches) = self.groups.get_mut(group) {
            watches.remove(server);
        }
    }

    /// Forgets all groups but these.
    pub fn keep(&mut self, stays: impl Fn(&str) -> bool) {
        self.groups.retain(|group, _| stays(group));
    }
}

/// When servers that are not ejected were last answered: the latest of all, and the latest but one.
#[derive(Clone, Copy, Debug, Default)]
struct Answers {
    latest: Option<Duration>,
    second: Option<Duration>,
}

impl Answers {
    fn of(watches: &BTreeMap<String, Watch>) -> Self {
        let mut answers = Self::default();
        for watch in watches.values().filter(|watch| watch.ejected.is_none()) {
            if watch.answered > answers.latest {
                answers.second = std::mem::replace(&mut answers.latest, watch.answered);
            } else {
                answers.second = answers.second.max(watch.answered);
            }
        }
        answers
    }

    /// Whether clients did finish handshakes elsewhere while they waited for this server: just now, or since they began to
    /// wait. The latter holds however late it is looked at, and when all clients wait for this server by now.
    fn speak_against(self, watch: &Watch, now: Duration) -> bool {
        let own = watch.ejected.is_none() && watch.answered == self.latest;
        let Some(other) = (if own { self.second } else { self.latest }) else {
            return false;
        };
        now.saturating_sub(other) <= ALIVE || watch.waiting.is_some_and(|since| other >= since)
    }
}

impl Watch {
    fn count(&mut self, sample: Sample, now: Duration) {
        // Rows that were given back and out again begin at zero.
        let grown = |now: u64, before: u64| now.checked_sub(before).unwrap_or(now);
        let syns = grown(sample.syns, self.last.syns);
        let answered = grown(sample.answered, self.last.answered);
        self.last = sample;
        if answered > 0 {
            (self.unanswered, self.waiting, self.times) = (0, None, 0);
            self.answered = Some(now);
        }
        // Of SYNs that were counted together with answers the last ones may have none.
        let syns = syns.saturating_sub(answered);
        if syns > 0 {
            self.unanswered += syns;
            self.waiting = self.waiting.or(Some(now));
        }
    }

    /// On trial from now on, if its time is up.
    fn comes_back(&mut self, now: Duration) -> bool {
        let is_over = self.ejected.is_some_and(|until| now >= until);
        if is_over {
            (self.ejected, self.unanswered, self.waiting) = (None, 0, None);
        }
        is_over
    }

    fn eject(&mut self, now: Duration) -> Option<Ejection> {
        let waited = now.saturating_sub(self.waiting?);
        if self.ejected.is_some() || self.unanswered < NEEDED || waited < AT_LEAST {
            return None;
        }
        let away = AWAY.saturating_mul(1 << self.times.min(8)).min(LONGEST);
        self.times += 1;
        self.ejected = Some(now + away);
        Some(Ejection {
            since: now,
            until: now + away,
            reason: format!("{} SYNs without an answer", self.unanswered),
        })
    }
}

#[cfg(test)]
mod tests;
