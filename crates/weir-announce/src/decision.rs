//! Which VIPs are announced: without I/O, driven by facts and time.
//!
//! A VIP is announced while its services can serve, and withdrawn at once when they cannot. It returns at once too,
//! unless it was withdrawn repeatedly: then it waits for a pause that doubles each time, so that routers do not move
//! flows back and forth. A drained node's routes first become the last choice, and are withdrawn after `drain_delay`.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use crate::message::{Facts, RouteReport};

/// A VIP that stayed announced for this long has no history of withdrawals.
const STABLE: Duration = Duration::from_secs(60);
/// The pause after the second withdrawal in a row; it doubles with each further one.
const PAUSE_FIRST: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(60);
/// How long a VIP waits for the first check results of its servers.
const SETTLING_MAX: Duration = Duration::from_secs(10);

/// How a route is announced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Quality {
    /// As usual.
    Usual,
    /// Routers shall prefer every other director.
    LastChoice,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Announced,
    Draining,
    Withdrawn,
}

impl State {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Announced => "announced",
            Self::Draining => "draining",
            Self::Withdrawn => "withdrawn",
        }
    }
}

/// The state of a VIP that no router has a route to.
pub(crate) const WITHDRAWN: &str = State::Withdrawn.as_str();

#[derive(Clone, Debug)]
struct Vip {
    serves: bool,
    state: State,
    /// On the caller's clock.
    since: Duration,
    since_unix: Duration,
    reason: String,
    /// Withdrawals in a row.
    withdrawals: u32,
    /// No announcement before this.
    held_until: Duration,
    /// No announcement before this: servers have no check result yet.
    settling_until: Option<Duration>,
}

/// Decides which routes exist. Times are durations on a clock of the caller that never runs backwards; `unix` is for
/// display.
#[derive(Clone, Debug, Default)]
pub struct Decisions {
    vips: BTreeMap<IpAddr, Vip>,
    draining_since: Option<Duration>,
    withdraw_after: Duration,
    drain_delay: Duration,
    /// Latest facts; or the start, before there are any.
    facts_at: Duration,
    is_lost: bool,
}

impl Decisions {
    /// Starts at `now` with the routes that an earlier announcer left.
    pub fn new(
        announced: impl IntoIterator<Item = IpAddr>,
        withdraw_after: Duration,
        (now, unix): (Duration, Duration),
    ) -> Self {
        let vips = announced.into_iter().map(|vip| {
            let left = Vip {
                serves: true,
                state: State::Announced,
                since: now,
                since_unix: unix,
                reason: "announced by an earlier process".to_owned(),
                withdrawals: 0,
                held_until: now,
                settling_until: None,
            };
            (vip, left)
        });
        Self {
            vips: vips.collect(),
            withdraw_after,
            facts_at: now,
            ..Self::default()
        }
    }

    /// Applies the daemon's facts.
    pub(crate) fn handle_facts(&mut self, facts: &Facts, (now, unix): (Duration, Duration)) {
        self.withdraw_after = facts.settings.withdraw_after;
        self.drain_delay = facts.settings.drain_delay;
        self.facts_at = now;
        self.is_lost = false;
        self.draining_since = match (facts.is_draining, self.draining_since) {
            (true, since) => since.or(Some(now)),
            (false, _) => None,
        };
        let known = |vip: &IpAddr| facts.vips.iter().any(|fact| fact.vip == *vip);
        self.vips.retain(|vip, _| known(vip));
        for fact in &facts.vips {
            let vip = self.vips.entry(fact.vip).or_insert_with(|| Vip {
                serves: false,
                state: State::Withdrawn,
                since: now,
                since_unix: unix,
                reason: String::new(),
                withdrawals: 0,
                held_until: now,
                settling_until: None,
            });
            vip.serves = fact.serves;
            vip.settling_until = match fact.settling {
                true => vip.settling_until.or(Some(now + SETTLING_MAX)),
                false => None,
            };
            if !fact.serves {
                vip.reason.clone_from(&fact.reason);
            }
        }
        self.decide((now, unix));
    }

    /// Applies what is due at `now`.
    pub fn handle_timeout(&mut self, (now, unix): (Duration, Duration)) {
        if !self.is_lost && now >= self.facts_at.saturating_add(self.withdraw_after) {
            self.is_lost = true;
        }
        self.decide((now, unix));
    }

    /// When [`Self::handle_timeout`] must be called next; `None` = after the next facts.
    pub fn next_deadline(&self) -> Option<Duration> {
        if self.is_lost {
            return None;
        }
        let lost = self.facts_at.saturating_add(self.withdraw_after);
        let drained = self.draining_since.map(|since| since + self.drain_delay);
        let draining = |vip: &&Vip| vip.state == State::Draining;
        let drained = drained.filter(|_| self.vips.values().any(|vip| draining(&vip)));
        let held = self.vips.values();
        let held = held.filter(|vip| vip.serves && vip.state == State::Withdrawn);
        let held = held.map(|vip| vip.held_until.max(vip.settling_until.unwrap_or_default()));
        let held = held.filter(|_| self.draining_since.is_none());
        [lost].into_iter().chain(drained).chain(held).min()
    }

    /// Whether the daemon is gone.
    pub(crate) const fn is_lost(&self) -> bool {
        self.is_lost
    }

    /// The routes to announce.
    pub fn routes(&self) -> BTreeMap<IpAddr, Quality> {
        let quality = |state| match state {
            State::Announced => Some(Quality::Usual),
            State::Draining => Some(Quality::LastChoice),
            State::Withdrawn => None,
        };
        let vips = self.vips.iter();
        vips.filter_map(|(vip, it)| Some((*vip, quality(it.state)?)))
            .collect()
    }

    /// All VIPs, by address.
    pub fn report(&self) -> Vec<RouteReport> {
        let vips = self.vips.iter();
        vips.map(|(vip, it)| RouteReport {
            vip: *vip,
            state: it.state.as_str().to_owned(),
            since_ms: u64::try_from(it.since_unix.as_millis()).unwrap_or(u64::MAX),
            reason: it.reason.clone(),
        })
        .collect()
    }

    fn decide(&mut self, (now, unix): (Duration, Duration)) {
        let is_drained = self
            .draining_since
            .is_some_and(|since| now >= since + self.drain_delay);
        for vip in self.vips.values_mut() {
            let (state, reason) = if self.is_lost {
                let reason = "the daemon has sent nothing for `withdraw_after`";
                (State::Withdrawn, Some(reason.to_owned()))
            } else if !vip.serves {
                (State::Withdrawn, None)
            } else if is_drained {
                (State::Withdrawn, Some("the node is drained".to_owned()))
            } else if self.draining_since.is_some() {
                match vip.state {
                    State::Withdrawn => (State::Withdrawn, Some("the node is drained".to_owned())),
                    _ => (
                        State::Draining,
                        Some("the node is being drained".to_owned()),
                    ),
                }
            } else if vip.state == State::Withdrawn
                && vip.settling_until.is_some_and(|until| now < until)
            {
                (
                    State::Withdrawn,
                    Some("servers are being checked".to_owned()),
                )
            } else if vip.state == State::Withdrawn && now < vip.held_until {
                let reason = format!("withdrawn {} times in a row", vip.withdrawals);
                (State::Withdrawn, Some(reason))
            } else {
                (State::Announced, Some("its services can serve".to_owned()))
            };
            if let Some(reason) = reason {
                vip.reason = reason;
            }
            if state == vip.state {
                continue;
            }
            if state == State::Withdrawn && !vip.serves && !self.is_lost {
                vip.note_withdrawal(now);
            }
            vip.state = state;
            vip.since = now;
            vip.since_unix = unix;
        }
    }
}

impl Vip {
    /// Its services stopped serving.
    fn note_withdrawal(&mut self, now: Duration) {
        let was_stable = now.saturating_sub(self.since) >= STABLE;
        self.withdrawals = if was_stable { 1 } else { self.withdrawals + 1 };
        let pause = match self.withdrawals.checked_sub(2) {
            None => Duration::ZERO,
            Some(further) => PAUSE_FIRST
                .saturating_mul(1 << further.min(10))
                .min(PAUSE_MAX),
        };
        self.held_until = now + pause;
    }
}

#[cfg(test)]
mod tests;
