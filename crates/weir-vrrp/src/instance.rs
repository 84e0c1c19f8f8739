//! The state machine of one virtual router (RFC 9568 section 6.4), with keepalived's additions: preemption delay,
//! tracked objects, a fault state.
//!
//! A router whose timer fires so late that another one may have become active does not continue as active. It becomes
//! backup and listens for a whole active down interval first.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::time::Duration;

use crate::packet::{Advertisement, ChecksumForm, Ignored, Received, Version};
use crate::settings::{Announcements, Config, Effect, MISSED, Tracked, TrackedState};

/// The priority of the address owner.
const OWNER: u8 = 255;
/// Minimum interval of announcements that packets of lower priority cause.
const ANNOUNCE_PAUSE: Duration = Duration::from_secs(1);

/// The state of a virtual router.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Not started.
    Init,
    /// Another one is active, or an election is in progress.
    Backup,
    /// Holds the addresses.
    Active,
    /// Cannot hold the addresses.
    Fault,
}

impl State {
    /// Its name in status documents.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Init => "init",
            Self::Backup => "backup",
            Self::Active => "active",
            Self::Fault => "fault",
        }
    }
}

/// A request to the driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Output {
    /// Send [`Instance::advertisement`] with this priority, with [`Instance::checksum`].
    Send {
        /// 0 = stops being active.
        priority: u8,
    },
    /// The state has changed: `to` Active adds the addresses, `from` Active removes them.
    Changed {
        /// The former state.
        from: State,
        /// The new state.
        to: State,
    },
    /// Announce the addresses by gratuitous ARP and unsolicited neighbour advertisements.
    Announce {
        /// Frames per address.
        repeat: u32,
    },
    /// Announce the address that packets are sent from, once. Unicast peers may have lost its MAC address while this
    /// director was not reachable, and their advertisements would wait for address resolution.
    AnnounceSource,
}

/// The state machine of one virtual router.
#[derive(Debug)]
pub struct Instance {
    config: Config,
    state: State,
    since: Duration,
    reason: String,
    /// The address of this director that packets are sent from.
    source: Option<IpAddr>,
    tracked: Vec<TrackedState>,
    /// Why an operator or the driver keeps it from being active.
    blocked: Option<&'static str>,
    /// Another member of the group is in fault.
    group_fault: Option<String>,
    /// Weights of objects that only other members of the group track.
    group_weight: i32,
    /// Why it would be active if the other members of its group were ready, too.
    wants_active: Option<String>,
    /// It has received a packet of a lower priority while active.
    asserted: bool,
    active_peer: Option<IpAddr>,
    /// Interval of the active router, which a backup of version 3 adopts.
    active_interval: Duration,
    /// Next advertisement in `Active`, end of the active down timer in `Backup`.
    timer: Option<Duration>,
    last_sent: Duration,
    preempt_at: Option<Duration>,
    /// End of the start delay.
    start_at: Option<Duration>,
    /// When an earlier process of this director sent its last advertisement as active.
    continues: Option<Duration>,
    announce_at: Option<Duration>,
    refresh_at: Option<Duration>,
    announced: Option<Duration>,
    /// When the addresses are announced once more after a packet of lower priority: Linux ignores what it receives
    /// within a second of the other router's announcement (`locktime`, arp(7)).
    assert_at: Option<Duration>,
    checksum: ChecksumForm,
    /// Packets whose list of addresses differs.
    mismatches: u64,
    outputs: VecDeque<Output>,
}

impl Instance {
    /// A virtual router that is not started.
    pub fn new(config: Config, now: Duration) -> Self {
        let (active_interval, tracked) = (
            config.interval,
            vec![TrackedState::Unknown; config.tracked.len()],
        );
        let delay = config.start_delay;
        let checksum = config.checksum;
        Self {
            config,
            state: State::Init,
            start_at: (!delay.is_zero()).then(|| now + delay),
            continues: None,
            refresh_at: None,
            since: now,
            reason: "not started".to_owned(),
            source: None,
            tracked,
            blocked: None,
            group_fault: None,
            group_weight: 0,
            wants_active: None,
            asserted: false,
            active_peer: None,
            active_interval,
            timer: None,
            last_sent: now,
            preempt_at: None,
            announce_at: None,
            announced: None,
            assert_at: None,
            checksum,
            mismatches: 0,
            outputs: VecDeque::new(),
        }
    }

    /// Its settings.
    pub const fn config(&self) -> &Config {
        &self.config
    }

    /// Its state.
    pub const fn state(&self) -> State {
        self.state
    }

    /// When the state was entered.
    pub const fn since(&self) -> Duration {
        self.since
    }

    /// Why the state was entered.
    pub fn reason(&self) -> &str {
        &self.reason
    }

    /// The active router, if it is another one.
    pub const fn active_peer(&self) -> Option<IpAddr> {
        self.active_peer
    }

    /// Packets whose list of addresses differs from the configured one.
    pub const fn mismatches(&self) -> u64 {
        self.mismatches
    }

    /// Which checksum its packets have: that of the last received packet.
    pub const fn checksum(&self) -> ChecksumForm {
        self.checksum
    }

    /// The last known states of the tracked objects, in the order of the configuration.
    pub fn tracked(&self) -> impl Iterator<Item = (&Tracked, TrackedState)> {
        self.config.tracked.iter().zip(self.tracked.iter().copied())
    }

    /// The priority, with what tracked objects add to it and subtract from it. The owner's does not change.
    pub fn priority(&self) -> u8 {
        if self.config.priority == OWNER {
            return OWNER;
        }
        let own = self
            .tracked()
            .map(|(tracked, state)| tracked.effect.weight(state));
        let priority = own.fold(i32::from(self.config.priority), i32::saturating_add);
        let priority = priority.saturating_add(self.group_weight);
        u8::try_from(priority.clamp(1, 254)).unwrap_or(1)
    }

    /// The packet with `priority`, 0 to stop being active.
    pub fn advertisement(&self, priority: u8) -> Advertisement {
        Advertisement {
            version: self.config.version,
            vrid: self.config.vrid,
            priority,
            interval: self.config.interval,
            addresses: self.config.addresses.clone(),
            password: self.config.password,
        }
    }

    /// Sets the address that packets are sent from; without one the router is in fault.
    pub fn handle_source(&mut self, source: Option<IpAddr>, now: Duration) {
        self.source = source;
        self.evaluate(now);
    }

    /// An earlier process of this director was active and sent its last advertisement at `last_sent`. If the router
    /// begins before another one may have become active, it continues as active.
    pub fn continue_from(&mut self, last_sent: Duration) {
        if self.state == State::Init {
            self.continues = Some(last_sent);
            self.start_at = None;
        }
    }

    /// When the last advertisement was sent.
    pub const fn last_sent(&self) -> Duration {
        self.last_sent
    }

    /// Sets the state of a tracked object.
    pub fn handle_tracked(&mut self, index: usize, state: TrackedState, now: Duration) {
        if let Some(known) = self.tracked.get_mut(index)
            && *known != state
        {
            *known = state;
            self.evaluate(now);
        }
    }

    /// Keeps the router from being active, or permits it again.
    pub fn handle_blocked(&mut self, blocked: Option<&'static str>, now: Duration) {
        self.blocked = blocked;
        self.evaluate(now);
    }

    /// Adopts changed settings. Those that identify the router on the wire must be the same.
    pub fn handle_config(&mut self, config: Config, now: Duration) {
        let former = std::mem::replace(&mut self.config, config);
        if former.tracked != self.config.tracked {
            self.tracked = vec![TrackedState::Unknown; self.config.tracked.len()];
        }
        let interval = self.config.interval;
        if former.interval != interval {
            self.handle_interval(now);
        }
        // It may not be in a group any more.
        if self.wants_active.take().is_some() {
            self.timer = Some(now);
        }
        if self.state == State::Active {
            self.timer = self.timer.map(|timer| timer.min(now + interval));
            let refresh = self.config.announcements.refresh;
            if refresh != former.announcements.refresh {
                self.refresh_at = (!refresh.is_zero()).then(|| now + refresh);
            }
        }
    }

    /// The configured interval has changed. A backup of version 3 keeps that of the active router.
    fn handle_interval(&mut self, now: Duration) {
        if self.config.version == Version::V3 && self.active_peer.is_some() {
            return;
        }
        self.active_interval = self.config.interval;
        if self.state == State::Backup {
            self.restart_down_timer(now);
        }
    }

    /// Stops: a last advertisement if it is active, then the state is `Init`.
    pub fn stop(&mut self, now: Duration) {
        self.leave(State::Init, "stopped".to_owned(), now);
    }

    /// Starts, faults and recovers according to what it depends on.
    fn evaluate(&mut self, now: Duration) {
        if let Some(fault) = self.fault() {
            if self.state != State::Fault {
                self.leave(State::Fault, fault, now);
            } else {
                self.reason = fault;
            }
            return;
        }
        if let Some(waiting) = self.waiting(now) {
            self.reason = waiting;
            return;
        }
        if matches!(self.state, State::Init | State::Fault) && self.group_fault.is_none() {
            self.begin(now);
        }
    }

    /// Why it cannot be active, apart from its group.
    fn fault(&self) -> Option<String> {
        if let Some(blocked) = self.blocked {
            return Some(blocked.to_owned());
        }
        let failed = self.tracked().find(|(tracked, state)| {
            tracked.effect == Effect::Fault && *state == TrackedState::Down
        });
        if let Some((tracked, _)) = failed {
            return Some(format!("{} has failed", tracked.name));
        }
        self.source
            .is_none()
            .then(|| "the interface is down or has no source address".to_owned())
    }

    fn waiting(&self, now: Duration) -> Option<String> {
        // A link that fails and recovers does not shorten the wait.
        if !matches!(self.state, State::Init | State::Fault) || self.continues.is_some() {
            return None;
        }
        if self.start_at.is_some_and(|at| now < at) {
            return Some("waiting for the end of the start delay".to_owned());
        }
        let unknown = self
            .tracked()
            .find(|(_, state)| *state == TrackedState::Unknown);
        unknown.map(|(tracked, _)| format!("waiting for the first result of {}", tracked.name))
    }

    /// Whether the router itself, not its group, keeps it in fault. A router that was not started has no fault.
    pub(crate) fn own_fault(&self) -> bool {
        self.state == State::Fault && self.fault().is_some()
    }

    /// Another member of its group is in fault, or none is any more.
    pub(crate) fn handle_group_fault(&mut self, fault: Option<String>, now: Duration) {
        if self.group_fault == fault {
            return;
        }
        self.group_fault.clone_from(&fault);
        match fault {
            Some(reason) if !self.own_fault() && self.state != State::Init => {
                self.leave(State::Fault, reason, now);
            }
            Some(_) => {}
            None => self.evaluate(now),
        }
    }

    /// Sets the weights of objects that only other members of its group track.
    pub(crate) const fn set_group_weight(&mut self, weight: i32) {
        self.group_weight = weight;
    }

    /// Whether it is active, or would be if its group were ready.
    pub(crate) const fn is_ready(&self) -> bool {
        matches!(self.state, State::Active) || self.wants_active.is_some()
    }

    /// All members of its group are ready to be active.
    pub(crate) fn follow_active(&mut self, now: Duration) {
        if let Some(reason) = self.wants_active.take() {
            self.become_active(reason, now);
        }
    }

    /// Whether it has received a packet of a lower priority while active, since the last call.
    pub(crate) const fn take_asserted(&mut self) -> bool {
        std::mem::replace(&mut self.asserted, false)
    }

    /// Another member of its group became backup.
    pub(crate) fn follow_backup(&mut self, leader: &str, now: Duration) {
        if self.state == State::Active {
            self.yield_to_other(format!("{leader} of the same group became backup"), now);
        }
    }

    fn begin(&mut self, now: Duration) {
        self.start_at = None;
        if let Some(last_sent) = self.continues.take() {
            self.last_sent = last_sent;
            if !self.is_stalled(now) {
                let reason = "continues after a restart of the agent".to_owned();
                return self.become_active(reason, now);
            }
        }
        self.active_interval = self.config.interval;
        self.outputs.push_back(Output::AnnounceSource);
        if self.config.priority == OWNER {
            return self.take_over("owns the addresses".to_owned(), now);
        }
        let from = self.state;
        let reason = match from {
            State::Fault => "the fault is over",
            _ => "started",
        };
        self.change(State::Backup, reason.to_owned(), now);
        self.restart_down_timer(now);
    }

    fn skew(&self) -> Duration {
        let unit = match self.config.version {
            Version::V2 => Duration::from_secs(1),
            Version::V3 => self.active_interval,
        };
        unit * (256 - u32::from(self.priority())) / 256
    }

    /// Time without advertisements after which a backup becomes active.
    pub fn down_interval(&self) -> Duration {
        self.active_interval * self.config.down_adverts + self.skew()
    }

    fn restart_down_timer(&mut self, now: Duration) {
        self.wants_active = None;
        self.timer = Some(now + self.down_interval());
    }

    fn change(&mut self, to: State, reason: String, now: Duration) {
        let from = self.state;
        self.reason = reason;
        if from == to {
            return;
        }
        self.state = to;
        self.since = now;
        self.preempt_at = None;
        self.wants_active = None;
        if from == State::Active {
            self.announce_at = None;
            self.assert_at = None;
            self.refresh_at = None;
        }
        self.outputs.push_back(Output::Changed { from, to });
    }

    /// Becomes active, or waits for the other members of its group: one that receives advertisements would make all of
    /// them backup again (keepalived's `vrrp_sync_can_goto_master`).
    fn take_over(&mut self, reason: String, now: Duration) {
        if self.config.group.is_none() {
            return self.become_active(reason, now);
        }
        let waiting = format!("{reason}; waiting for the other members of the group");
        self.change(State::Backup, waiting, now);
        self.timer = None;
        self.wants_active = Some(reason);
    }

    fn become_active(&mut self, reason: String, now: Duration) {
        self.active_peer = None;
        self.send(now);
        self.change(State::Active, reason, now);
        self.announce(now);
        let Announcements { again, refresh, .. } = self.config.announcements;
        self.announce_at = (!again.is_zero()).then(|| now + again);
        self.refresh_at = (!refresh.is_zero()).then(|| now + refresh);
    }

    fn become_backup(&mut self, reason: String, now: Duration) {
        self.change(State::Backup, reason, now);
        self.restart_down_timer(now);
    }

    /// Stops being active because another router is. Clients may have the addresses from this one, and the other
    /// announces them again only if it notices that. After a partition it does not if its packet arrives here first, so
    /// that one more is sent (keepalived's `vrrp_higher_prio_send_advert`).
    fn yield_to_other(&mut self, reason: String, now: Duration) {
        if !self.is_stalled(now) {
            let priority = self.priority();
            self.outputs.push_back(Output::Send { priority });
        }
        self.become_backup(reason, now);
    }

    /// Stops being active, with a last advertisement, so that another router takes over at once.
    fn leave(&mut self, to: State, reason: String, now: Duration) {
        if self.state == State::Active && !self.is_stalled(now) {
            self.outputs.push_back(Output::Send { priority: 0 });
        }
        self.timer = None;
        self.active_peer = None;
        self.change(to, reason, now);
    }

    fn send(&mut self, now: Duration) {
        self.outputs.push_back(Output::Send {
            priority: self.priority(),
        });
        self.last_sent = now;
        self.timer = Some(now + self.config.interval);
    }

    fn announce(&mut self, now: Duration) {
        self.announced = Some(now);
        self.assert_at = None;
        let repeat = self.config.announcements.repeat;
        self.outputs.push_back(Output::Announce { repeat });
    }

    /// Whether this director was paused for so long that another router may have become active.
    fn is_stalled(&self, now: Duration) -> bool {
        // Not 1: the timer of an active router ends after one interval.
        let missed = self.config.down_adverts.clamp(2, MISSED);
        now >= self.last_sent + self.config.interval * missed
    }

    fn handle_stall(&mut self, now: Duration) {
        match (self.state, self.timer) {
            (State::Active, _) if self.is_stalled(now) => {
                self.active_interval = self.config.interval;
                self.become_backup("this director was paused or stalled".to_owned(), now);
            }
            (State::Backup, Some(timer)) if now >= timer + self.down_interval() => {
                self.restart_down_timer(now);
            }
            _ => {}
        }
    }

    /// Handles a packet that [`crate::decode`] accepted, with the source address it came from.
    ///
    /// # Errors
    /// Why it is ignored.
    pub fn handle_packet(
        &mut self,
        received: &Received,
        from: IpAddr,
        now: Duration,
    ) -> Result<(), Ignored> {
        let advertisement = &received.advertisement;
        if advertisement.version != self.config.version {
            return Err(Ignored::Version);
        }
        if Some(from) == self.source {
            return Err(Ignored::Own);
        }
        if advertisement.password != self.config.password {
            return Err(Ignored::Authentication);
        }
        if advertisement.version == Version::V2 && advertisement.interval != self.config.interval {
            return Err(Ignored::Interval);
        }
        if advertisement.addresses.is_empty() && !self.config.addresses.is_empty() {
            return Err(Ignored::Addresses);
        }
        self.checksum = received.checksum;
        if !same_addresses(&advertisement.addresses, &self.config.addresses) {
            self.mismatches += 1;
        }
        self.handle_stall(now);
        match self.state {
            State::Backup => self.receive_as_backup(advertisement, from, now),
            State::Active => self.receive_as_active(advertisement, from, now),
            State::Fault => self.active_peer = (advertisement.priority > 0).then_some(from),
            State::Init => {}
        }
        Ok(())
    }

    fn receive_as_backup(&mut self, advertisement: &Advertisement, from: IpAddr, now: Duration) {
        if advertisement.priority == 0 {
            if self.active_peer == Some(from) || self.active_peer.is_none() {
                self.active_peer = None;
                self.wants_active = None;
                self.timer = Some(now + self.skew());
                self.reason = format!("{from} stopped");
            }
            return;
        }
        let is_lower = advertisement.priority < self.priority();
        let preempts = self.config.preempt || self.config.priority == OWNER;
        self.active_peer = Some(from);
        if is_lower && preempts {
            let at = *self
                .preempt_at
                .get_or_insert(now + self.config.preempt_delay);
            if now >= at {
                return;
            }
        } else {
            self.preempt_at = None;
        }
        if advertisement.version == Version::V3 {
            self.active_interval = advertisement.interval;
        }
        if self.wants_active.is_some() {
            self.reason = format!("{from} is active");
        }
        self.restart_down_timer(now);
    }

    fn receive_as_active(&mut self, advertisement: &Advertisement, from: IpAddr, now: Duration) {
        if advertisement.priority == 0 {
            return self.send(now);
        }
        let own = self.priority();
        let wins = advertisement.priority > own
            || (advertisement.priority == own && self.source.is_none_or(|source| from > source));
        if wins {
            if advertisement.version == Version::V3 {
                self.active_interval = advertisement.interval;
            }
            let what = if advertisement.priority > own {
                "a higher priority"
            } else {
                "a higher address"
            };
            self.active_peer = Some(from);
            return self.yield_to_other(format!("{from} has {what}"), now);
        }
        // Asserts the active state to the sender and to bridges (RFC 9568 section 6.4.3).
        self.send(now);
        self.asserted = true;
        self.assert_addresses(now);
    }

    /// Announces the addresses, because another router may have announced them.
    pub(crate) fn assert_addresses(&mut self, now: Duration) {
        if self.state != State::Active {
            return;
        }
        let due = |announced: Option<Duration>| announced.map(|last| last + ANNOUNCE_PAUSE);
        if due(self.announced).is_none_or(|due| now >= due) {
            self.announce(now);
        }
        self.assert_at = due(self.announced);
    }

    /// Handles the timers that have ended.
    pub fn handle_timeout(&mut self, now: Duration) {
        self.handle_stall(now);
        if self.announce_at.is_some_and(|at| now >= at) {
            self.announce_at = None;
            self.announce(now);
        }
        if self.assert_at.is_some_and(|at| now >= at) {
            self.announce(now);
        }
        if self.refresh_at.is_some_and(|at| now >= at) {
            let Announcements {
                refresh,
                refresh_repeat: repeat,
                ..
            } = self.config.announcements;
            self.refresh_at = Some(now + refresh);
            self.outputs.push_back(Output::Announce { repeat });
        }
        if self.start_at.is_some_and(|at| now >= at) {
            self.start_at = None;
            self.evaluate(now);
        }
        if self.timer.is_none_or(|timer| now < timer) {
            return;
        }
        match self.state {
            State::Active => self.send(now),
            State::Backup => {
                let reason = match self.active_peer {
                    Some(peer) if self.preempt_at.is_some() => {
                        format!("{peer} has a lower priority")
                    }
                    Some(peer) => format!("no advertisement of {peer}"),
                    None => "no other director is active".to_owned(),
                };
                self.take_over(reason, now);
            }
            State::Init | State::Fault => self.timer = None,
        }
    }

    /// When [`Self::handle_timeout`] is due.
    pub fn next_deadline(&self) -> Option<Duration> {
        let deadlines = [
            self.timer,
            self.announce_at,
            self.assert_at,
            self.refresh_at,
            self.start_at,
        ];
        deadlines.into_iter().flatten().min()
    }

    /// The next request to the driver.
    pub fn poll_output(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }
}

fn same_addresses(received: &[IpAddr], configured: &[IpAddr]) -> bool {
    received.len() == configured.len()
        && configured.iter().all(|address| received.contains(address))
}

#[cfg(test)]
mod tests;
