//! Decides which VIPs are announced, based on the daemon's reports and the time. Performs no I/O.
//!
//! A VIP is announced while its services can serve, and is withdrawn immediately when they cannot. When they can serve
//! again, the VIP is announced immediately, unless it was withdrawn repeatedly: each further withdrawal doubles the
//! pause before the next announcement, so that routers do not move flows back and forth. When a node is drained, its
//! routes are first announced as a last resort, and are withdrawn after `drain_delay`.

use std::collections::{BTreeMap, HashSet};
use std::net::IpAddr;
use std::time::Duration;

use crate::message::{DaemonReport, RouteReport};

/// Time that a VIP must stay announced before its earlier withdrawals are ignored.
const STABLE_AFTER: Duration = Duration::from_secs(60);
/// The pause after the second consecutive withdrawal. Each further withdrawal doubles the pause, up to [`MAX_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const MAX_PAUSE: Duration = Duration::from_secs(60);
/// Maximum time for which a VIP that is not announced yet waits until [`crate::VipState::settling`] ends.
const MAX_SETTLING: Duration = Duration::from_secs(10);

/// The preference of an announced route.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Quality {
    /// An ordinary route.
    Normal,
    /// A route that routers should use only if no other director announces the VIP.
    LastResort,
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

/// The state name of a VIP that is not announced.
pub(crate) const WITHDRAWN: &str = State::Withdrawn.as_str();

#[derive(Clone, Debug)]
struct Vip {
    /// Whether the VIP's services can serve.
    serves: bool,
    state: State,
    /// Start of the state, on the caller's clock.
    since: Duration,
    /// Start of the state, in Unix time.
    since_unix: Duration,
    reason: String,
    /// Number of consecutive withdrawals because services could not serve.
    withdrawals: u32,
    /// The VIP is not announced before this time, because it was withdrawn repeatedly.
    paused_until: Duration,
    /// The VIP is not announced before this time, because the daemon lacks check results or the group's data.
    settling_until: Option<Duration>,
}

/// The states of all VIPs. Times are durations on the caller's clock, which never runs backwards. Unix times are only
/// displayed.
#[derive(Clone, Debug, Default)]
pub struct Decisions {
    vips: BTreeMap<IpAddr, Vip>,
    draining_since: Option<Duration>,
    withdraw_after: Duration,
    drain_delay: Duration,
    /// Time of the daemon's latest report and of the reply to it, or of the start if no report has arrived yet.
    reported_at: Duration,
    /// Whether the daemon has sent no report for `withdraw_after`.
    is_daemon_silent: bool,
}

impl Decisions {
    /// Creates the state at `now`; `announced` are the VIPs whose routes an earlier announcer has left in place.
    pub fn new(
        announced: impl IntoIterator<Item = IpAddr>,
        withdraw_after: Duration,
        (now, unix): (Duration, Duration),
    ) -> Self {
        let vips = announced.into_iter().map(|vip| {
            let inherited = Vip {
                serves: true,
                state: State::Announced,
                since: now,
                since_unix: unix,
                reason: "announced by an earlier process".to_owned(),
                withdrawals: 0,
                paused_until: now,
                settling_until: None,
            };
            (vip, inherited)
        });
        Self {
            vips: vips.collect(),
            withdraw_after,
            reported_at: now,
            ..Self::default()
        }
    }

    /// Sets when the VIPs were announced, in milliseconds of Unix time, according to the earlier announcer.
    pub(crate) fn restore_since(&mut self, since: &BTreeMap<IpAddr, u64>) {
        for (vip, since) in since {
            if let Some(vip) = self.vips.get_mut(vip) {
                vip.since_unix = Duration::from_millis(*since);
            }
        }
    }

    /// Returns when the announced VIPs were announced, in milliseconds of Unix time.
    pub(crate) fn announced_since(&self) -> BTreeMap<IpAddr, u64> {
        let vips = self.vips.iter();
        let announced = vips.filter(|(_, it)| it.state == State::Announced);
        announced
            .map(|(vip, it)| (*vip, milliseconds(it.since_unix)))
            .collect()
    }

    /// Handles a report from the daemon.
    pub(crate) fn handle_daemon_report(
        &mut self,
        daemon_report: &DaemonReport,
        (now, unix): (Duration, Duration),
    ) {
        self.withdraw_after = daemon_report.settings.withdraw_after;
        self.drain_delay = daemon_report.settings.drain_delay;
        self.reported_at = now;
        self.is_daemon_silent = false;
        self.draining_since = match (daemon_report.is_draining, self.draining_since) {
            (true, since) => since.or(Some(now)),
            (false, _) => None,
        };
        let configured: HashSet<IpAddr> = daemon_report.vips.iter().map(|it| it.vip).collect();
        self.vips.retain(|vip, _| configured.contains(vip));
        for state in &daemon_report.vips {
            let vip = self.vips.entry(state.vip).or_insert_with(|| Vip {
                serves: false,
                state: State::Withdrawn,
                since: now,
                since_unix: unix,
                reason: String::new(),
                withdrawals: 0,
                paused_until: now,
                settling_until: None,
            });
            vip.serves = state.serves;
            vip.settling_until = match state.settling {
                true => vip.settling_until.or(Some(now + MAX_SETTLING)),
                false => None,
            };
            if !state.serves {
                vip.reason.clone_from(&state.reason);
            }
        }
        self.update_states((now, unix));
    }

    /// Handles the reply to a report. The daemon waits for the reply before it sends the next report, so the time that
    /// the speaker takes in the meantime is not silence.
    pub(crate) fn handle_reply(&mut self, now: Duration) {
        self.reported_at = self.reported_at.max(now);
    }

    /// Makes the changes that are due at `now`.
    pub fn handle_timeout(&mut self, (now, unix): (Duration, Duration)) {
        if !self.is_daemon_silent && now >= self.reported_at.saturating_add(self.withdraw_after) {
            self.is_daemon_silent = true;
        }
        self.update_states((now, unix));
    }

    /// Returns the time at which [`Self::handle_timeout`] must be called; `None` = it need not be called before the
    /// next report.
    pub fn next_deadline(&self) -> Option<Duration> {
        if self.is_daemon_silent {
            return None;
        }
        let loss_deadline = self.reported_at.saturating_add(self.withdraw_after);
        let drain_deadline = self.draining_since.map(|since| since + self.drain_delay);
        let is_draining = |vip: &&Vip| vip.state == State::Draining;
        let drain_deadline =
            drain_deadline.filter(|_| self.vips.values().any(|vip| is_draining(&vip)));
        let waiting_vips = self.vips.values();
        let waiting_vips = waiting_vips.filter(|vip| vip.serves && vip.state == State::Withdrawn);
        let announced_at = |vip: &Vip| vip.paused_until.max(vip.settling_until.unwrap_or_default());
        let waiting_vips = waiting_vips.map(announced_at);
        let waiting_vips = waiting_vips.filter(|_| self.draining_since.is_none());
        [loss_deadline]
            .into_iter()
            .chain(drain_deadline)
            .chain(waiting_vips)
            .min()
    }

    /// Returns whether the daemon has sent no report for `withdraw_after`.
    pub(crate) const fn is_daemon_silent(&self) -> bool {
        self.is_daemon_silent
    }

    /// Returns the routes to announce.
    pub fn routes(&self) -> BTreeMap<IpAddr, Quality> {
        let quality = |state| match state {
            State::Announced => Some(Quality::Normal),
            State::Draining => Some(Quality::LastResort),
            State::Withdrawn => None,
        };
        let vips = self.vips.iter();
        vips.filter_map(|(vip, it)| Some((*vip, quality(it.state)?)))
            .collect()
    }

    /// Returns the states of all VIPs, by address.
    pub fn report(&self) -> Vec<RouteReport> {
        let vips = self.vips.iter();
        vips.map(|(vip, it)| RouteReport {
            vip: *vip,
            state: it.state.as_str().to_owned(),
            since_ms: milliseconds(it.since_unix),
            reason: it.reason.clone(),
        })
        .collect()
    }

    /// Sets the state and reason of each VIP.
    fn update_states(&mut self, (now, unix): (Duration, Duration)) {
        let is_drained = self
            .draining_since
            .is_some_and(|since| now >= since + self.drain_delay);
        for vip in self.vips.values_mut() {
            let (state, reason) = if self.is_daemon_silent {
                let reason = "no report from the daemon for `withdraw_after`";
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
                    Some("waiting for check results or the group's data".to_owned()),
                )
            } else if vip.state == State::Withdrawn && now < vip.paused_until {
                let reason = format!("withdrawn {} times in a row", vip.withdrawals);
                (State::Withdrawn, Some(reason))
            } else {
                (
                    State::Announced,
                    Some("its services are available".to_owned()),
                )
            };
            if let Some(reason) = reason {
                vip.reason = reason;
            }
            if state == vip.state {
                continue;
            }
            if state == State::Withdrawn && !vip.serves && !self.is_daemon_silent {
                vip.count_withdrawal(now);
            }
            vip.state = state;
            vip.since = now;
            vip.since_unix = unix;
        }
    }
}

fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

impl Vip {
    /// Counts a withdrawal, and sets the pause before the next announcement.
    fn count_withdrawal(&mut self, now: Duration) {
        let was_stable = now.saturating_sub(self.since) >= STABLE_AFTER;
        self.withdrawals = if was_stable { 1 } else { self.withdrawals + 1 };
        let pause = match self.withdrawals.checked_sub(2) {
            None => Duration::ZERO,
            Some(further) => FIRST_PAUSE
                .saturating_mul(1 << further.min(10))
                .min(MAX_PAUSE),
        };
        self.paused_until = now + pause;
    }
}

#[cfg(test)]
mod tests;
