//! Passive checks: finds servers that accept no connections while others of their pool do, from client traffic alone.
//!
//! The input is the number of SYNs sent to a server and the number of flows that became established. This works whether
//! or not the server's replies pass the director, and whether it drops SYNs or resets them. A server is ejected when
//! SYNs went unanswered for a while and none was answered, another server of the pool answered meanwhile (otherwise the
//! clients or a flood may be the cause), and the ejection stays within the pool's share. An ejected server returns on
//! trial; if the trial fails, the next ejection lasts twice as long.

use std::collections::{BTreeMap, HashSet};
use std::time::Duration;

/// Unanswered SYNs needed for an ejection.
const NEEDED: u64 = 3;

/// How long none of them may have been answered: longer than any handshake, including one whose first packet was lost
/// and retransmitted after the initial RTO of 1 s (RFC 6298).
const AT_LEAST: Duration = Duration::from_millis(1500);

/// How long an answer of another server proves that clients complete handshakes.
const ALIVE: Duration = Duration::from_secs(3);

/// Duration of the first ejection, and the maximum.
const EJECTION_TIME: Duration = Duration::from_secs(10);
const LONGEST: Duration = Duration::from_secs(300);

/// Counters of a server since its rows were created.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Sample {
    /// SYNs sent to it, including retransmissions.
    pub syns: u64,
    /// Flows that became established.
    pub answered: u64,
}

/// An ejected server.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Ejection {
    /// When the ejection began, on the driver's clock.
    pub since: Duration,
    /// When it returns on trial.
    pub until: Duration,
    /// Why it was ejected.
    pub reason: String,
}

/// A change that [`Outliers::observe`] reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EjectionChange {
    /// Address as in the file.
    pub server: String,
    /// `None` = the ejection ended.
    pub ejection: Option<Ejection>,
}

#[derive(Clone, Debug, Default)]
struct Watch {
    last: Sample,
    /// SYNs since the last answer, and when the first of them was observed.
    unanswered: u64,
    waiting: Option<Duration>,
    answered: Option<Duration>,
    ejected: Option<Duration>,
    /// Ejections in a row.
    times: u32,
}

/// Passive check state by group: the servers of one service, or of one pool if the service makes no difference.
#[derive(Clone, Debug, Default)]
pub struct Outliers {
    groups: BTreeMap<String, BTreeMap<String, Watch>>,
}

impl Outliers {
    /// Applies the counters of the servers of a group that should accept connections; at most `share` percent of them
    /// may be ejected. A server that is no longer in `samples`, because its check failed, is no longer ejected either:
    /// the next result of its check takes effect immediately.
    pub fn observe(
        &mut self,
        group: &str,
        share: u32,
        samples: &[(&str, Sample)],
        now: Duration,
    ) -> Vec<EjectionChange> {
        let watches = self.groups.entry(group.to_owned()).or_default();
        let mut changes = Vec::new();
        let eligible: HashSet<&str> = samples.iter().map(|(name, _)| *name).collect();
        watches.retain(|server, watch| {
            let stays = eligible.contains(server.as_str());
            if !stays && watch.ejected.is_some() {
                changes.push(EjectionChange {
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
            if watch.end_ejection(now) {
                changes.push(EjectionChange {
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
            if !answers.implicate(watch, now) {
                continue;
            }
            if let Some(ejection) = watch.eject(now) {
                away += 1;
                answers = Answers::of(watches);
                changes.push(EjectionChange {
                    server: (*server).to_owned(),
                    ejection: Some(ejection),
                });
            }
        }
        changes
    }

    /// Ends a server's ejection and discards its history.
    pub fn reset(&mut self, group: &str, server: &str) {
        if let Some(watches) = self.groups.get_mut(group) {
            watches.remove(server);
        }
    }

    /// Discards the groups for which `stays` returns false.
    pub fn retain(&mut self, stays: impl Fn(&str) -> bool) {
        self.groups.retain(|group, _| stays(group));
    }
}

/// When servers that are not ejected last answered: the latest time, and the second latest.
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

    /// Whether clients completed handshakes with other servers while this one did not answer: recently, or since the
    /// first unanswered SYN. The latter also holds if observations are late or all clients now wait for this server.
    fn implicate(self, watch: &Watch, now: Duration) -> bool {
        let own = watch.ejected.is_none() && watch.answered == self.latest;
        let Some(other) = (if own { self.second } else { self.latest }) else {
            return false;
        };
        now.saturating_sub(other) <= ALIVE || watch.waiting.is_some_and(|since| other >= since)
    }
}

impl Watch {
    fn count(&mut self, sample: Sample, now: Duration) {
        // Counters restart at zero when rows are reallocated.
        let grown = |now: u64, before: u64| now.checked_sub(before).unwrap_or(now);
        let syns = grown(sample.syns, self.last.syns);
        let answered = grown(sample.answered, self.last.answered);
        self.last = sample;
        if answered > 0 {
            (self.unanswered, self.waiting, self.times) = (0, None, 0);
            self.answered = Some(now);
        }
        // Of SYNs in the same sample as answers, only the excess is unanswered.
        let syns = syns.saturating_sub(answered);
        if syns > 0 {
            self.unanswered += syns;
            self.waiting = self.waiting.or(Some(now));
        }
    }

    /// Ends the ejection if it expired; the server is then on trial.
    fn end_ejection(&mut self, now: Duration) -> bool {
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
        let away = EJECTION_TIME
            .saturating_mul(1 << self.times.min(8))
            .min(LONGEST);
        self.times += 1;
        self.ejected = Some(now + away);
        Some(Ejection {
            since: now,
            until: now + away,
            reason: format!("{} unanswered SYNs", self.unanswered),
        })
    }
}

#[cfg(test)]
mod tests;
