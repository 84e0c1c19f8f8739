//! Implements passive checks, which use client traffic to find servers that accept no connections.
//!
//! Such a server is an outlier if other servers in its pool accept connections.
//!
//! The input is the number of SYNs sent to a server and the number of flows that became established. The method works
//! whether or not the server's replies pass through the director, and whether the server drops SYNs or resets
//! connections. A server is ejected if three conditions are met: it has not answered any SYN for a while; another
//! server in the pool did answer (otherwise the clients or a flood may be the cause); the pool's limit for ejections is
//! not exceeded. An ejected server returns on trial. If the trial fails, the next ejection lasts twice as long.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::time::Duration;

/// Minimum number of unanswered SYNs for an ejection.
const MIN_SYNS: u64 = 3;

/// Minimum time without an answer: longer than any handshake, including one whose first packet was lost and
/// retransmitted after the initial RTO of 1 s (RFC 6298).
const MIN_SILENCE: Duration = Duration::from_millis(1500);

/// How long an answer from another server counts as evidence that clients complete handshakes.
const ANSWER_VALIDITY: Duration = Duration::from_secs(3);

/// Duration of the first ejection.
const EJECTION_TIME: Duration = Duration::from_secs(10);
/// Maximum duration of an ejection.
const MAX_EJECTION_TIME: Duration = Duration::from_secs(300);

/// Counters of a server since its map rows were created.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Sample {
    /// SYNs sent to the server, including retransmissions.
    pub syns: u64,
    /// Flows that became established.
    pub answered: u64,
}

/// An ejected server.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Ejection {
    /// When the ejection began, on the driver's clock.
    pub since: Duration,
    /// When the server returns on trial.
    pub until: Duration,
    /// Why the server was ejected.
    pub reason: String,
}

/// How many servers of a group may be ejected.
#[derive(Clone, Copy, Debug)]
pub struct EjectionLimit<'a> {
    /// Maximum number of ejected servers, including `ejected_by_others`.
    pub servers: usize,
    /// The servers of the group that are already ejected according to other counters.
    pub ejected_by_others: &'a BTreeSet<&'a str>,
}

/// A change that [`Outliers::observe`] reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EjectionChange {
    /// The server's address, as in the configuration file.
    pub server: String,
    /// The start or the end of its ejection.
    pub transition: Transition,
}

/// The start or the end of an ejection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Transition {
    /// The server was ejected.
    Ejected(Ejection),
    /// The ejection expired, and the server is on trial.
    OnTrial,
    /// The ejection ended because the server is down according to its checks, or because it is no longer in the group.
    Withdrawn,
}

#[derive(Clone, Debug, Default)]
struct Watch {
    last_sample: Sample,
    /// SYNs since the last answer.
    unanswered: u64,
    /// When the first of these SYNs was observed.
    unanswered_since: Option<Duration>,
    /// When an answer was last observed.
    answered_at: Option<Duration>,
    /// When the ejection ends; `None` = not ejected.
    ejected_until: Option<Duration>,
    /// Number of consecutive ejections.
    consecutive_ejections: u32,
}

/// State of passive checks by group. A group contains the servers of one service, or of one pool if all its services
/// share the state.
#[derive(Clone, Debug, Default)]
pub struct Outliers {
    groups: BTreeMap<String, BTreeMap<String, Watch>>,
}

impl Outliers {
    /// Applies the counters of the servers in a group that should accept connections. Ejects a server only if `limit`
    /// allows it. If a server is no longer in `samples` because its check failed, its ejection ends, so the next result
    /// of the check takes effect immediately.
    pub fn observe(
        &mut self,
        group: &str,
        limit: EjectionLimit<'_>,
        samples: &[(&str, Sample)],
        now: Duration,
    ) -> Vec<EjectionChange> {
        let watches = self.groups.entry(group.to_owned()).or_default();
        let mut changes = Vec::new();
        let eligible: HashSet<&str> = samples.iter().map(|(name, _)| *name).collect();
        watches.retain(|server, watch| {
            let is_eligible = eligible.contains(server.as_str());
            if !is_eligible && watch.ejected_until.is_some() {
                changes.push(EjectionChange {
                    server: server.clone(),
                    transition: Transition::Withdrawn,
                });
            }
            is_eligible
        });
        for (server, sample) in samples {
            let Some(watch) = watches.get_mut(*server) else {
                let watch = Watch {
                    last_sample: *sample,
                    ..Watch::default()
                };
                watches.insert((*server).to_owned(), watch);
                continue;
            };
            watch.apply_sample(*sample, now);
            if watch.end_ejection(now) {
                changes.push(EjectionChange {
                    server: (*server).to_owned(),
                    transition: Transition::OnTrial,
                });
            }
        }
        let others = limit.ejected_by_others;
        let ejected_here = watches.iter().filter(|(server, watch)| {
            watch.ejected_until.is_some() && !others.contains(server.as_str())
        });
        let mut ejected_count = ejected_here.count() + others.len();
        let mut answers = LatestAnswers::from_watches(watches);
        for (server, _) in samples {
            // A server that is already ejected according to other counters does not increase the number.
            let is_additional = !others.contains(server);
            if is_additional && ejected_count >= limit.servers {
                continue;
            }
            let Some(watch) = watches.get_mut(*server) else {
                continue;
            };
            if !answers.others_answered(watch, now) {
                continue;
            }
            if let Some(ejection) = watch.eject(now) {
                ejected_count += usize::from(is_additional);
                answers = LatestAnswers::from_watches(watches);
                changes.push(EjectionChange {
                    server: (*server).to_owned(),
                    transition: Transition::Ejected(ejection),
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

    /// Removes the groups for which `keep` returns false.
    pub fn retain(&mut self, keep: impl Fn(&str) -> bool) {
        self.groups.retain(|group, _| keep(group));
    }
}

/// Times of the latest answers of the two servers that answered last, excluding ejected servers.
#[derive(Clone, Copy, Debug, Default)]
struct LatestAnswers {
    latest: Option<Duration>,
    second: Option<Duration>,
}

impl LatestAnswers {
    fn from_watches(watches: &BTreeMap<String, Watch>) -> Self {
        let mut answers = Self::default();
        for watch in watches
            .values()
            .filter(|watch| watch.ejected_until.is_none())
        {
            let earlier = answers.latest.min(watch.answered_at);
            answers.latest = answers.latest.max(watch.answered_at);
            answers.second = answers.second.max(earlier);
        }
        answers
    }

    /// Returns whether other servers answered while this server did not: recently, or since its first unanswered SYN.
    /// The second condition can be met even if observations are late or all clients are waiting for this server.
    fn others_answered(self, watch: &Watch, now: Duration) -> bool {
        // The result does not matter for an ejected server, whose time is not in `self`.
        let is_latest = watch.answered_at == self.latest;
        let Some(last_answer) = (if is_latest { self.second } else { self.latest }) else {
            return false;
        };
        now.saturating_sub(last_answer) <= ANSWER_VALIDITY
            || watch
                .unanswered_since
                .is_some_and(|since| last_answer >= since)
    }
}

impl Watch {
    /// Updates the number of unanswered SYNs from the server's counters.
    fn apply_sample(&mut self, sample: Sample, now: Duration) {
        let last_sample = std::mem::replace(&mut self.last_sample, sample);
        let (Some(syns), Some(answered)) = (
            sample.syns.checked_sub(last_sample.syns),
            sample.answered.checked_sub(last_sample.answered),
        ) else {
            // A row was reallocated, or a service of the pool was removed. The remaining counters are not new events.
            return;
        };
        if answered > 0 {
            (
                self.unanswered,
                self.unanswered_since,
                self.consecutive_ejections,
            ) = (0, None, 0);
            self.answered_at = Some(now);
        }
        // If a sample has both SYNs and answers, only the excess SYNs are unanswered.
        let syns = syns.saturating_sub(answered);
        if syns > 0 {
            self.unanswered += syns;
            self.unanswered_since = self.unanswered_since.or(Some(now));
        }
    }

    /// Ends the ejection if it has expired: the server is then on trial. Returns whether the ejection ended.
    fn end_ejection(&mut self, now: Duration) -> bool {
        let has_expired = self.ejected_until.is_some_and(|until| now >= until);
        if has_expired {
            (self.ejected_until, self.unanswered, self.unanswered_since) = (None, 0, None);
        }
        has_expired
    }

    /// Ejects the server if enough SYNs have been unanswered for long enough. Returns the ejection.
    fn eject(&mut self, now: Duration) -> Option<Ejection> {
        let waited = now.saturating_sub(self.unanswered_since?);
        if self.ejected_until.is_some() || self.unanswered < MIN_SYNS || waited < MIN_SILENCE {
            return None;
        }
        let duration = EJECTION_TIME
            .saturating_mul(1 << self.consecutive_ejections.min(8))
            .min(MAX_EJECTION_TIME);
        self.consecutive_ejections += 1;
        self.ejected_until = Some(now + duration);
        Some(Ejection {
            since: now,
            until: now + duration,
            reason: format!("{} unanswered SYNs", self.unanswered),
        })
    }
}

#[cfg(test)]
mod tests;
