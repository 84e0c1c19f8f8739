//! Implements the announcer's state: passes the routes of [`Decisions`] to the speaker, in steps, and withdraws the
//! routes of the speakers that earlier settings specified.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::path::Path;
use std::time::{Duration, SystemTime};

use tokio::time::Instant;
use weir_model::Announce;
use weir_sys::{Clock, now_ns};

use crate::decision::{Decisions, WITHDRAWN};
use crate::message::{DaemonReport, Report};
use crate::record::{PreviousRoutes, Record, Speakers};
use crate::speaker::{self, Driver, Routes};

/// Delay before a failed command is tried again.
const RETRY_DELAY: Duration = Duration::from_secs(1);
/// Delay before the withdrawal of a previous speaker's routes is tried again. It doubles with each failure up to
/// [`MAX_PREVIOUS_RETRY_DELAY`], because an attempt can delay the current speaker.
const PREVIOUS_RETRY_DELAY: Duration = Duration::from_secs(5);
const MAX_PREVIOUS_RETRY_DELAY: Duration = Duration::from_secs(300);
/// Interval of [`Driver::refresh`].
const REFRESH_INTERVAL: Duration = Duration::from_secs(15);
/// Time without a report after which routes from an earlier announcer are withdrawn, if it did not record the settings.
/// The limit is long because the daemon may still be starting.
const START_TIMEOUT: Duration = Duration::from_secs(60);
/// Number of consecutive steps without a running speaker after which a stop leaves the remaining routes: each step can
/// take a second.
const MAX_NOT_RUNNING: usize = 3;
/// Maximum time until the next call to [`Announcer::handle_timeout`].
const MAX_PAUSE: Duration = Duration::from_secs(60);

/// State of the announcer.
pub(crate) struct Announcer {
    record: Record,
    /// The settings of the daemon's latest report, or those that an earlier announcer recorded.
    settings: Option<Announce>,
    /// Whether the daemon has reported to this process.
    has_report: bool,
    decisions: Decisions,
    driver: Driver,
    previous: Vec<PreviousSpeaker>,
    /// The speaker's error, until a command succeeds.
    error: Option<String>,
    /// Why the last request was rejected. The same reason is not logged again.
    rejection_reason: Option<String>,
    retry_at: Option<Instant>,
    refresh_at: Instant,
}

/// A speaker that earlier settings specified, and that may still be announcing routes.
struct PreviousSpeaker {
    settings: Announce,
    driver: Driver,
    /// The error of the last attempt to withdraw its routes.
    error: Option<String>,
    /// Time of the next attempt; `None` = no attempt has failed.
    retry_at: Option<Instant>,
    /// Delay after the next failure.
    retry_delay: Duration,
}

impl PreviousSpeaker {
    fn new(settings: Announce, driver: Driver) -> Self {
        Self {
            settings,
            driver,
            error: None,
            retry_at: None,
            retry_delay: PREVIOUS_RETRY_DELAY,
        }
    }
}

/// Returns the time since boot, and Unix time.
fn current_times() -> (Duration, Duration) {
    let unix = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let since_boot = Duration::from_nanos(now_ns(Clock::Boottime));
    (since_boot, unix.unwrap_or_default())
}

/// Returns the time until `time`, which is zero if it has passed or is `None`.
fn time_until(time: Option<Instant>) -> Duration {
    time.map_or(Duration::ZERO, |time| time.duration_since(Instant::now()))
}

impl Announcer {
    /// Creates the state from the record of an earlier announcer.
    pub(crate) fn new(runtime_dir: &Path) -> Self {
        let record = Record::read(runtime_dir);
        let settings = record.speakers().current.clone();
        let limit = settings
            .as_ref()
            .map_or(START_TIMEOUT, |it| it.withdraw_after);
        let vips = || record.vips().iter().copied();
        let previous = record.speakers().previous.iter().cloned();
        let mut decisions = Decisions::new(vips(), limit, current_times());
        decisions.restore_since(&record.speakers().since);
        Self {
            decisions,
            driver: Driver::new(vips()),
            previous: previous
                .map(|it| PreviousSpeaker::new(it.settings, Driver::new(it.vips)))
                .collect(),
            settings,
            has_report: false,
            error: None,
            rejection_reason: None,
            retry_at: None,
            refresh_at: Instant::now() + REFRESH_INTERVAL,
            record,
        }
    }

    /// Handles a report from the daemon, and returns the reply.
    pub(crate) async fn handle_daemon_report(&mut self, daemon_report: &DaemonReport) -> Report {
        self.rejection_reason = None;
        self.has_report = true;
        if self.settings.as_ref() != Some(&daemon_report.settings) {
            self.set_settings(daemon_report.settings.clone());
        }
        self.decisions
            .handle_daemon_report(daemon_report, current_times());
        self.apply().await;
        let (now, _) = current_times();
        self.decisions.handle_reply(now);
        self.report()
    }

    /// Does the work that is due. Must be called when [`Self::pause`] has passed.
    pub(crate) async fn handle_timeout(&mut self) {
        self.decisions.handle_timeout(current_times());
        if time_until(Some(self.refresh_at)).is_zero() {
            self.refresh();
            self.refresh_at = Instant::now() + REFRESH_INTERVAL;
        }
        self.apply().await;
    }

    /// Calls [`Driver::refresh`], unless a change is still being sent. Otherwise, a slow speaker would never receive
    /// the last routes.
    fn refresh(&mut self) {
        if let Some(settings) = &self.settings
            && (self.retry_at.is_some() || !self.needs_step())
        {
            self.driver.refresh(settings);
        }
    }

    /// Changes the settings. If they specify a different speaker, the routes of the current one must be withdrawn.
    fn set_settings(&mut self, settings: Announce) {
        self.driver.resend_all();
        let old = self.settings.replace(settings.clone());
        if let Some(old) = old
            && !speaker::is_same(&old.speaker, &settings.speaker)
        {
            let is_new =
                |it: &PreviousSpeaker| speaker::is_same(&it.settings.speaker, &settings.speaker);
            // The earlier routes of a speaker that returns must not be withdrawn later.
            let mut driver = match self.previous.iter().position(is_new) {
                Some(index) => self.previous.remove(index).driver,
                None => self.driver.successor(),
            };
            driver.resend_all();
            let old_driver = std::mem::replace(&mut self.driver, driver);
            self.previous.push(PreviousSpeaker::new(old, old_driver));
            self.error = None;
            self.retry_at = None;
        }
        self.record_speakers();
    }

    /// Returns whether the daemon has sent no report for `withdraw_after` and all routes are withdrawn. Without
    /// settings, no route can be withdrawn.
    pub(crate) fn is_done(&self) -> bool {
        let is_current_done = self.error.is_none() && !self.needs_step();
        self.decisions.is_daemon_silent() && is_current_done && self.previous.is_empty()
    }

    /// Returns the time until [`Self::handle_timeout`] must be called, at most [`MAX_PAUSE`].
    pub(crate) fn pause(&self) -> Duration {
        let (now, _) = current_times();
        let deadline = self.decisions.next_deadline();
        let until_decision = deadline.map_or(MAX_PAUSE, |deadline| deadline.saturating_sub(now));
        let until_previous = self.previous.iter().map(|it| time_until(it.retry_at)).min();
        let until_step = match self.may_use_speaker() && self.needs_step() {
            true => time_until(self.retry_at),
            false => MAX_PAUSE,
        };
        MAX_PAUSE
            .min(until_decision)
            .min(until_previous.unwrap_or(MAX_PAUSE))
            .min(until_step)
            .min(time_until(Some(self.refresh_at)))
    }

    /// Returns the routes to announce; `None` = unknown. Before the first report, recorded routes may be withdrawn, but
    /// nothing else is sent, because the recorded routes and settings may be outdated.
    fn routes(&self) -> Option<Routes> {
        let routes = self.decisions.routes();
        let is_withdrawal = routes.is_empty() && self.driver.announced_vips().next().is_some();
        (self.has_report || is_withdrawal).then_some(routes)
    }

    /// Returns whether the speaker does not have the current routes.
    fn needs_step(&self) -> bool {
        let routes = self.routes().filter(|_| self.settings.is_some());
        routes.is_some_and(|routes| self.driver.needs_step(&routes))
    }

    /// Returns whether each previous speaker's routes are withdrawn, or at least one attempt to withdraw them has
    /// failed.
    fn may_use_speaker(&self) -> bool {
        self.previous.iter().all(|it| it.retry_at.is_some())
    }

    /// Sends the next step of a change: withdraws routes from a previous speaker, and then passes routes to the current
    /// one.
    async fn apply(&mut self) {
        self.withdraw_from_previous().await;
        if self.may_use_speaker() && time_until(self.retry_at).is_zero() {
            self.apply_routes().await;
        }
    }

    /// Passes the next routes to the speaker. A failed command is retried after [`RETRY_DELAY`]. Returns false if the
    /// speaker is not running.
    async fn apply_routes(&mut self) -> bool {
        let (Some(settings), Some(routes)) = (self.settings.clone(), self.routes()) else {
            return true;
        };
        // Record the VIPs before the command, because routes that are not recorded would never be withdrawn.
        let vips = self.driver.announced_vips();
        self.record
            .write_vips(vips.chain(routes.keys().copied()).collect());
        let result = match self.driver.needs_step(&routes) {
            true => self.driver.apply(&settings, &routes).await,
            false => Ok(()),
        };
        match result {
            Ok(()) => {
                if !self.driver.has_failures() && self.error.take().is_some() {
                    tracing::info!(
                        speaker = settings.speaker.as_str(),
                        "the speaker has recovered"
                    );
                }
                self.retry_at = None;
                if !self.driver.needs_step(&routes) {
                    self.record.write_vips(routes.keys().copied().collect());
                    self.record_speakers();
                }
                true
            }
            Err(error) => {
                let is_running = !error.is_not_running();
                let error = error.to_string();
                if self.error.as_ref() != Some(&error) {
                    tracing::error!(%error, "failed to announce VIPs");
                }
                self.error = Some(error);
                self.retry_at = Some(Instant::now() + RETRY_DELAY);
                is_running
            }
        }
    }

    /// Withdraws the next routes from a previous speaker for which an attempt is due.
    async fn withdraw_from_previous(&mut self) {
        // A speaker without a failed attempt comes first.
        let speakers = self.previous.iter_mut().enumerate();
        let next = speakers.min_by_key(|(_, it)| it.retry_at);
        let Some((index, previous)) = next.filter(|(_, it)| time_until(it.retry_at).is_zero())
        else {
            return;
        };
        let vips: BTreeSet<IpAddr> = previous.driver.announced_vips().collect();
        let current = self.settings.as_ref().map(|it| (it, &self.driver));
        let result = previous.driver.retire(&previous.settings, current).await;
        // After a failed attempt, the current speaker may already announce the routes, and both speakers may be the
        // same program.
        if previous.retry_at.is_some() {
            let remaining = previous.driver.announced_vips().collect();
            self.driver.resend(vips.difference(&remaining).copied());
        }
        match result {
            Ok(false) => return,
            Ok(true) => {
                let speaker = previous.settings.speaker.as_str();
                tracing::info!(speaker, "withdrew the routes of the previous speaker");
                self.previous.remove(index);
                self.record_speakers();
            }
            Err(error) => {
                let speaker = previous.settings.speaker.as_str();
                let error =
                    format!("the routes of the previous speaker have not been withdrawn: {error}");
                if previous.error.as_ref() != Some(&error) {
                    tracing::error!(speaker, error, "failed to withdraw routes");
                }
                previous.error = Some(error);
                previous.retry_at = Some(Instant::now() + previous.retry_delay);
                previous.retry_delay = (previous.retry_delay * 2).min(MAX_PREVIOUS_RETRY_DELAY);
            }
        }
        // Both speakers may be the same program, or read the same file.
        self.driver.resend_all();
    }

    /// Returns the number of VIPs that speakers may be announcing.
    pub(crate) fn announced_vip_count(&self) -> usize {
        let previous = self.previous.iter();
        let previous = previous.flat_map(|it| it.driver.announced_vips());
        let vips = self.driver.announced_vips().chain(previous);
        vips.collect::<BTreeSet<_>>().len()
    }

    /// Withdraws all routes. Errors are only logged. Cancel-safe: a later call withdraws the remaining routes.
    pub(crate) async fn withdraw_all(&mut self) {
        self.decisions = Decisions::default();
        for previous in &mut self.previous {
            previous.retry_at = None;
        }
        while !self.may_use_speaker() {
            self.withdraw_from_previous().await;
        }
        let Some(settings) = &self.settings else {
            return;
        };
        // The routes that the speaker does not withdraw come last, so each route is tried once.
        let vips = self.driver.announced_vips().count();
        let mut not_running = 0;
        for _ in 0..vips.div_ceil(speaker::step_size(&settings.speaker)) {
            if self.needs_step() {
                not_running = match self.apply_routes().await {
                    true => 0,
                    false => not_running + 1,
                };
            }
            if not_running == MAX_NOT_RUNNING {
                return;
            }
        }
    }

    fn record_speakers(&mut self) {
        let previous = self.previous.iter().map(|it| PreviousRoutes {
            settings: it.settings.clone(),
            vips: it.driver.announced_vips().collect(),
        });
        self.record.write_speakers(Speakers {
            current: self.settings.clone(),
            previous: previous.collect(),
            since: self.decisions.announced_since(),
        });
    }

    /// Returns a report that rejects a request from an unprivileged daemon.
    pub(crate) fn reject(&mut self, reason: String) -> Report {
        let report = Report {
            error: Some(reason.clone()),
            ..self.report()
        };
        if self.rejection_reason.as_ref() != Some(&reason) {
            tracing::error!(reason, "refused a request from the daemon");
            self.rejection_reason = Some(reason);
        }
        report
    }

    /// Returns the states of the VIPs. A VIP that the speaker has not accepted is reported as withdrawn.
    pub(crate) fn report(&self) -> Report {
        let mut routes = self.decisions.report();
        let announced = routes.iter_mut().filter(|it| it.state != WITHDRAWN);
        for route in announced.filter(|it| !self.driver.has_accepted(it.vip)) {
            route.state = WITHDRAWN.to_owned();
            route.reason = match &self.error {
                Some(error) => format!("the speaker has not accepted the route: {error}"),
                None => "the speaker has not accepted the route yet".to_owned(),
            };
        }
        let previous_error = self.previous.iter().find_map(|it| it.error.as_ref());
        Report {
            routes,
            error: self.error.as_ref().or(previous_error).cloned(),
            warning: self.driver.warning().cloned(),
        }
    }
}

#[cfg(test)]
mod tests;
