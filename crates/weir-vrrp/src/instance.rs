//! Implements the state machine of one virtual router (RFC 9568 section 6.4), with keepalived's additions.
//!
//! The additions include the start delay, the preemption delay, tracked objects, a fault state and groups.
//!
//! If an active router's timer fires so late that another router may have become active, the router becomes backup and
//! listens for a full active down interval.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::time::Duration;

use crate::loss::LossCounter;
use crate::packet::{Advertisement, ChecksumForm, DecodedPacket, IgnoreReason, Version};
use crate::settings::{Announcements, Config, MISSED_ADVERTS, TrackConfig, TrackedState};
use crate::state::{ActivePeer, IdConflict, Output, State};

/// Priority of the address owner.
const OWNER_PRIORITY: u8 = 255;
/// Minimum interval between announcements that packets with a lower priority trigger.
const ANNOUNCE_MIN_INTERVAL: Duration = Duration::from_secs(1);

/// The state machine of one virtual router.
#[derive(Debug)]
pub struct Instance {
    config: Config,
    state: State,
    since: Duration,
    reason: String,
    /// See [`Instance::is_first_election`].
    is_first_election: bool,
    /// Source address of sent packets.
    source: Option<IpAddr>,
    tracked: Vec<TrackedState>,
    /// Why an operator or the driver keeps the router from being active.
    block_reason: Option<&'static str>,
    /// The reason for the fault of another group member; `None` = no other member is in the fault state.
    group_fault: Option<String>,
    /// Sum of the weights of the objects that only other group members track.
    group_weight: i32,
    /// The reason for becoming active, if the router is waiting for the other members of its group.
    wants_active: Option<String>,
    /// Whether a packet with a lower priority was received in state `Active`.
    received_lower_priority: bool,
    active_peer: Option<ActivePeer>,
    /// The last ID conflict, and when it expires.
    id_conflict: Option<(IdConflict, Duration)>,
    /// The active router's advertisement interval, which a backup adopts in version 3.
    active_interval: Duration,
    /// In `Active`, when to send the next advertisement; in `Backup`, when the active down timer expires.
    timer: Option<Duration>,
    last_sent: Duration,
    /// The interval in the last advertisement, which determines when other routers become active.
    sent_interval: Duration,
    preempt_at: Option<Duration>,
    /// End of the start delay.
    start_at: Option<Duration>,
    /// See [`Instance::continue_from`].
    previous: Option<PreviousProcess>,
    announce_at: Option<Duration>,
    refresh_at: Option<Duration>,
    announced_at: Option<Duration>,
    /// When to announce the addresses again after a packet with a lower priority. Linux ignores an announcement that
    /// arrives within a second after another router's announcement (`locktime`, arp(7)).
    assert_at: Option<Duration>,
    checksum: ChecksumForm,
    /// Number of packets whose address list differs from the configured one.
    mismatches: u64,
    /// Whether the addresses in the last accepted advertisement differed from those of this router. Becoming active
    /// resets it.
    peer_addresses_differ: bool,
    loss: LossCounter,
    outputs: VecDeque<Output>,
}

/// The previous process of this director, in which the router was active.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PreviousProcess {
    /// When it sent its last advertisement.
    pub last_sent: Duration,
    /// Whether it has made all announcements of its takeover.
    pub is_announced: bool,
}

impl Instance {
    /// Creates a virtual router in state `Init`.
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
            previous: None,
            refresh_at: None,
            since: now,
            reason: "not started".to_owned(),
            is_first_election: true,
            source: None,
            tracked,
            block_reason: None,
            group_fault: None,
            group_weight: 0,
            wants_active: None,
            received_lower_priority: false,
            active_peer: None,
            id_conflict: None,
            active_interval,
            timer: None,
            last_sent: now,
            sent_interval: active_interval,
            preempt_at: None,
            announce_at: None,
            announced_at: None,
            assert_at: None,
            checksum,
            mismatches: 0,
            peer_addresses_differ: false,
            loss: LossCounter::default(),
            outputs: VecDeque::new(),
        }
    }

    /// Returns the settings.
    pub const fn config(&self) -> &Config {
        &self.config
    }

    /// Returns the state.
    pub const fn state(&self) -> State {
        self.state
    }

    /// Returns when the state was entered.
    pub const fn since(&self) -> Duration {
        self.since
    }

    /// Returns whether the router, since its creation, has been neither active nor in the fault state nor stopped, and
    /// has received no advertisement from an active router.
    pub const fn is_first_election(&self) -> bool {
        self.is_first_election
    }

    /// Returns why the router entered its state, or what it is waiting for.
    pub fn reason(&self) -> &str {
        &self.reason
    }

    /// Returns the active router, if it is known and is not this router.
    pub const fn active_peer(&self) -> Option<ActivePeer> {
        self.active_peer
    }

    /// Returns the ID conflict, if the other router's last advertisement is recent: less than three of its intervals
    /// ago.
    pub fn id_conflict(&self, now: Duration) -> Option<IdConflict> {
        let (conflict, _) = self.id_conflict.filter(|(_, end)| now < *end)?;
        Some(conflict)
    }

    /// Handles an advertisement with the ID of another virtual router. Records a conflict if the advertisement lists an
    /// address of this virtual router, or removes the conflict if the sender stops being active.
    pub(crate) fn handle_other_id(
        &mut self,
        advertisement: &Advertisement,
        sender: IpAddr,
        now: Duration,
    ) {
        let own_addresses = &self.config.addresses;
        let mut advertised_addresses = advertisement.addresses.iter();
        if Some(sender) == self.source
            || !advertised_addresses.any(|address| own_addresses.contains(address))
        {
            return;
        }
        let conflict = IdConflict {
            sender,
            vrid: advertisement.vrid,
        };
        let end = now + advertisement.interval * MISSED_ADVERTS;
        self.id_conflict = (advertisement.priority > 0).then_some((conflict, end));
    }

    /// Returns the number of packets whose address list differs from the configured one.
    pub const fn mismatches(&self) -> u64 {
        self.mismatches
    }

    /// Returns whether the addresses in the last accepted advertisement differed from those that this router is
    /// configured with. Returns false after this router has become active, until it accepts an advertisement.
    pub const fn peer_addresses_differ(&self) -> bool {
        self.peer_addresses_differ
    }

    /// Returns the number of advertisements that this router has lost as a backup: those that were missing between two
    /// advertisements of the active router.
    pub const fn lost(&self) -> u64 {
        self.loss.lost()
    }

    /// Returns the checksum form of sent packets: the form of the last received packet, or the configured form.
    pub const fn checksum(&self) -> ChecksumForm {
        self.checksum
    }

    /// Returns the tracked objects and their last known states, in configuration order.
    pub fn tracked(&self) -> impl Iterator<Item = (&TrackConfig, TrackedState)> {
        self.config.tracked.iter().zip(self.tracked.iter().copied())
    }

    /// Returns the priority, including the weights of tracked objects. The address owner's priority never changes.
    pub fn priority(&self) -> u8 {
        self.priority_as(self.state)
    }

    fn priority_as(&self, state: State) -> u8 {
        if self.config.priority == OWNER_PRIORITY {
            return OWNER_PRIORITY;
        }
        let is_active = state == State::Active;
        let weights = self
            .tracked()
            .map(|(tracked, state)| tracked.effect.weight(state, is_active));
        let priority = weights.fold(i32::from(self.config.priority), i32::saturating_add);
        let priority = priority.saturating_add(self.group_weight);
        u8::try_from(priority.clamp(1, 254)).unwrap_or(1)
    }

    /// Returns an advertisement with `priority`; 0 announces that this router stops being active.
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

    /// Sets the source address of sent packets. With `None`, the router enters the fault state.
    pub fn handle_source(&mut self, source: Option<IpAddr>, now: Duration) {
        self.source = source;
        self.evaluate(now);
    }

    /// Records that the router was active in the previous process of this director, and ends the start delay; has no
    /// effect unless the state is `Init`. The router continues as active if it starts before another router can have
    /// become active. It then announces its addresses only if the previous process might not have done so.
    pub fn continue_from(&mut self, previous: PreviousProcess) {
        if self.state == State::Init {
            self.previous = Some(previous);
            self.start_at = None;
        }
    }

    /// Returns whether this router is active, or was active in the previous process and has not started yet.
    pub(crate) const fn counts_as_active(&self) -> bool {
        matches!(self.state, State::Active) || self.previous.is_some()
    }

    /// Returns when the last advertisement was sent.
    pub const fn last_sent(&self) -> Duration {
        self.last_sent
    }

    /// Sets the state of a tracked object.
    pub fn handle_tracked(&mut self, index: usize, state: TrackedState, now: Duration) {
        if let Some(current) = self.tracked.get_mut(index)
            && *current != state
        {
            *current = state;
            self.evaluate(now);
        }
    }

    /// Keeps the router from being active, for the given reason; `None` allows it again.
    pub fn handle_block(&mut self, reason: Option<&'static str>, now: Duration) {
        self.block_reason = reason;
        self.evaluate(now);
    }

    /// Replaces the settings. The name, version, ID and addresses must not change. Objects that were already tracked
    /// keep their states.
    pub fn handle_config(&mut self, config: Config, now: Duration) {
        let former = std::mem::replace(&mut self.config, config);
        let previous_state = |tracked: &TrackConfig| {
            let mut objects = former.tracked.iter().zip(&self.tracked);
            let found = objects.find(|(object, _)| object.identity == tracked.identity);
            found.map(|(_, state)| *state).unwrap_or_default()
        };
        self.tracked = self.config.tracked.iter().map(previous_state).collect();
        let interval = self.config.interval;
        if former.interval != interval {
            self.apply_interval(now);
        }
        // The router may have left its group.
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

    /// Applies a changed interval. In version 3, a backup keeps the active router's interval.
    fn apply_interval(&mut self, now: Duration) {
        if self.config.version == Version::V3 && self.active_peer.is_some() {
            return;
        }
        self.active_interval = self.config.interval;
        if self.state == State::Backup {
            self.restart_down_timer(now);
        }
    }

    /// Stops the router: requests a final advertisement if the router is active, and enters state `Init`.
    pub fn stop(&mut self, now: Duration) {
        self.leave(State::Init, "stopped".to_owned(), now);
    }

    /// Starts the router, enters state `Fault` or leaves it, depending on the current conditions.
    fn evaluate(&mut self, now: Duration) {
        if let Some(fault) = self.fault_reason() {
            if self.state != State::Fault {
                self.leave(State::Fault, fault, now);
            } else {
                self.reason = fault;
            }
            return;
        }
        if let Some(waiting) = self.wait_reason(now) {
            self.reason = waiting;
            return;
        }
        if matches!(self.state, State::Init | State::Fault) && self.group_fault.is_none() {
            self.start(now);
        }
    }

    /// Returns why the router cannot be active, regardless of its group; `None` if it can.
    fn fault_reason(&self) -> Option<String> {
        if let Some(reason) = self.block_reason {
            return Some(reason.to_owned());
        }
        let mut tracked = self.tracked();
        match tracked.find(|(tracked, state)| tracked.effect.is_fault(*state)) {
            Some((tracked, TrackedState::Number(number))) => {
                return Some(format!("{} contains {number}", tracked.name));
            }
            Some((tracked, _)) => return Some(format!("{} has failed", tracked.name)),
            None => {}
        }
        self.source
            .is_none()
            .then(|| "the interface is down or has no source address".to_owned())
    }

    /// Returns what the router is waiting for before it starts; `None` if it can start or has started.
    fn wait_reason(&self, now: Duration) -> Option<String> {
        // `Fault` is included, so that a link that fails and recovers does not shorten the start delay.
        if !matches!(self.state, State::Init | State::Fault) || self.previous.is_some() {
            return None;
        }
        if self.start_at.is_some_and(|end| now < end) {
            return Some("waiting for the start delay to end".to_owned());
        }
        let unknown = self
            .tracked()
            .find(|(_, state)| *state == TrackedState::Unknown);
        unknown.map(|(tracked, _)| format!("waiting for the first result of {}", tracked.name))
    }

    /// Returns whether the router is in the fault state for a reason of its own, not only because of its group.
    pub(crate) fn has_own_fault(&self) -> bool {
        self.state == State::Fault && self.fault_reason().is_some()
    }

    /// Sets the fault of another group member; `None` if no other member is in the fault state.
    pub(crate) fn handle_group_fault(&mut self, fault: Option<String>, now: Duration) {
        if self.group_fault == fault {
            return;
        }
        self.group_fault.clone_from(&fault);
        match fault {
            Some(reason) if !self.has_own_fault() && self.state != State::Init => {
                self.leave(State::Fault, reason, now);
            }
            Some(_) => {}
            None => self.evaluate(now),
        }
    }

    /// Sets the sum of the weights of the objects that only other group members track.
    pub(crate) const fn set_group_weight(&mut self, weight: i32) {
        self.group_weight = weight;
    }

    /// Returns whether the router is active, or would be if its group were ready.
    pub(crate) const fn is_ready(&self) -> bool {
        matches!(self.state, State::Active) || self.wants_active.is_some()
    }

    /// Becomes active if the router was waiting for its group. The caller ensures that all members of the group are
    /// ready.
    pub(crate) fn follow_active(&mut self, now: Duration) {
        if let Some(reason) = self.wants_active.take() {
            self.become_active(reason, now);
        }
    }

    /// Returns whether a packet with a lower priority was received in state `Active` since the last call.
    pub(crate) const fn take_received_lower_priority(&mut self) -> bool {
        std::mem::replace(&mut self.received_lower_priority, false)
    }

    /// Becomes backup because another member of the group became backup.
    pub(crate) fn follow_backup(&mut self, leader: &str, now: Duration) {
        if self.state == State::Active {
            self.yield_to_other(format!("{leader} of the same group became backup"), now);
        }
    }

    fn start(&mut self, now: Duration) {
        self.start_at = None;
        if let Some(previous) = self.previous.take() {
            self.last_sent = previous.last_sent;
            self.sent_interval = self.config.interval;
            if !self.is_stalled(now) {
                let reason = "continues after a restart of the agent".to_owned();
                self.enter_active(reason, now);
                if !previous.is_announced {
                    self.announce_takeover(now);
                }
                return;
            }
        }
        self.active_interval = self.config.interval;
        self.outputs.push_back(Output::AnnounceSource);
        if self.config.priority == OWNER_PRIORITY {
            return self.take_over("owns the addresses".to_owned(), now);
        }
        let from = self.state;
        let reason = match from {
            State::Fault => "recovered from a fault",
            _ => "started",
        };
        self.change_state(State::Backup, reason.to_owned(), now);
        self.restart_down_timer(now);
    }

    fn skew(&self) -> Duration {
        let unit = match self.config.version {
            Version::V2 => Duration::from_secs(1),
            Version::V3 => self.active_interval,
        };
        unit * (256 - u32::from(self.priority())) / 256
    }

    /// Returns the time without advertisements after which a backup becomes active.
    pub fn down_interval(&self) -> Duration {
        self.active_interval * self.config.down_adverts + self.skew()
    }

    fn restart_down_timer(&mut self, now: Duration) {
        self.wants_active = None;
        self.timer = Some(now + self.down_interval());
    }

    fn change_state(&mut self, to: State, reason: String, now: Duration) {
        let from = self.state;
        self.reason = reason;
        if from == to {
            return;
        }
        self.state = to;
        self.is_first_election &= matches!(to, State::Init | State::Backup);
        self.since = now;
        self.preempt_at = None;
        self.wants_active = None;
        self.loss.forget_active_router();
        if from == State::Active {
            self.announce_at = None;
            self.assert_at = None;
            self.refresh_at = None;
        }
        self.outputs.push_back(Output::Changed { from, to });
    }

    /// Becomes active, or waits for the other members of its group. Without the wait, a member that receives
    /// advertisements would make all members backup again (keepalived's `vrrp_sync_can_goto_master`).
    fn take_over(&mut self, reason: String, now: Duration) {
        if self.config.group.is_none() {
            return self.become_active(reason, now);
        }
        let waiting_reason = format!("{reason}; waiting for the other members of the group");
        self.change_state(State::Backup, waiting_reason, now);
        self.timer = None;
        self.wants_active = Some(reason);
    }

    fn become_active(&mut self, reason: String, now: Duration) {
        self.enter_active(reason, now);
        self.announce_takeover(now);
    }

    fn enter_active(&mut self, reason: String, now: Duration) {
        self.active_peer = None;
        self.peer_addresses_differ = false;
        self.send(now);
        self.change_state(State::Active, reason, now);
        let refresh = self.config.announcements.refresh;
        self.refresh_at = (!refresh.is_zero()).then(|| now + refresh);
    }

    fn announce_takeover(&mut self, now: Duration) {
        self.announce(now);
        let delay = self.config.announcements.second_announcement_delay;
        self.announce_at = (!delay.is_zero()).then(|| now + delay);
    }

    fn become_backup(&mut self, reason: String, now: Duration) {
        self.change_state(State::Backup, reason, now);
        self.restart_down_timer(now);
    }

    /// Becomes backup because another router is active. Sends a final advertisement, because clients may have cached
    /// this router's MAC address, and the other router announces the addresses again only when it receives an
    /// advertisement (keepalived's `vrrp_higher_prio_send_advert`).
    fn yield_to_other(&mut self, reason: String, now: Duration) {
        if !self.is_stalled(now) {
            let priority = self.priority();
            self.outputs.push_back(Output::Send { priority });
        }
        self.become_backup(reason, now);
    }

    /// Leaves the current state. An active router sends a final advertisement, so that another router takes over
    /// immediately.
    fn leave(&mut self, to: State, reason: String, now: Duration) {
        if self.state == State::Active && !self.is_stalled(now) {
            self.outputs.push_back(Output::Send { priority: 0 });
        }
        self.timer = None;
        self.active_peer = None;
        self.is_first_election = false;
        self.change_state(to, reason, now);
    }

    fn send(&mut self, now: Duration) {
        self.outputs.push_back(Output::Send {
            priority: self.priority_as(State::Active),
        });
        self.last_sent = now;
        self.sent_interval = self.config.interval;
        self.timer = Some(now + self.config.interval);
    }

    fn announce(&mut self, now: Duration) {
        self.announced_at = Some(now);
        self.assert_at = None;
        let repeat = self.config.announcements.repeat;
        self.outputs.push_back(Output::Announce { repeat });
    }

    /// Returns whether this director was paused so long that another router may have become active.
    fn is_stalled(&self, now: Duration) -> bool {
        // At least 2, because the timer of an active router expires only after one interval.
        let missed = self.config.down_adverts.clamp(2, MISSED_ADVERTS);
        now >= self.last_sent + self.sent_interval * missed
    }

    /// Makes an active router backup, or restarts the timer of a backup, if this director was paused.
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

    /// Handles a packet that [`crate::decode`] accepted. `sender` is its source address.
    ///
    /// # Errors
    /// Returns the reason why the packet is ignored.
    pub fn handle_packet(
        &mut self,
        received: &DecodedPacket,
        sender: IpAddr,
        now: Duration,
    ) -> Result<(), IgnoreReason> {
        let advertisement = &received.advertisement;
        if advertisement.version != self.config.version {
            return Err(IgnoreReason::Version);
        }
        if Some(sender) == self.source {
            return Err(IgnoreReason::Own);
        }
        if advertisement.password != self.config.password {
            return Err(IgnoreReason::Authentication);
        }
        if advertisement.version == Version::V2 && advertisement.interval != self.config.interval {
            return Err(IgnoreReason::Interval);
        }
        if advertisement.addresses.is_empty() && !self.config.addresses.is_empty() {
            return Err(IgnoreReason::Addresses);
        }
        self.checksum = received.checksum;
        self.peer_addresses_differ =
            !has_same_addresses(&advertisement.addresses, &self.config.addresses);
        self.mismatches += u64::from(self.peer_addresses_differ);
        self.is_first_election &= advertisement.priority == 0;
        self.handle_stall(now);
        match self.state {
            State::Backup => self.receive_as_backup(advertisement, sender, now),
            State::Active => self.receive_as_active(advertisement, sender, now),
            State::Fault => {
                let peer = active_peer(advertisement, sender);
                self.active_peer = (advertisement.priority > 0).then_some(peer);
            }
            State::Init => {}
        }
        Ok(())
    }

    fn receive_as_backup(&mut self, advertisement: &Advertisement, sender: IpAddr, now: Duration) {
        if advertisement.priority == 0 {
            if self.active_peer.is_none_or(|peer| peer.address == sender) {
                self.active_peer = None;
                self.loss.forget_active_router();
                self.wants_active = None;
                self.timer = Some(now + self.skew());
                self.reason = format!("{sender} stopped");
            }
            return;
        }
        self.loss
            .handle_advertisement(sender, advertisement.interval, now);
        let is_lower = advertisement.priority < self.priority();
        let may_preempt = self.config.preempt || self.config.priority == OWNER_PRIORITY;
        self.active_peer = Some(active_peer(advertisement, sender));
        if is_lower && may_preempt {
            let preempt_at = *self
                .preempt_at
                .get_or_insert(now + self.config.preempt_delay);
            if now >= preempt_at {
                return;
            }
        } else {
            self.preempt_at = None;
        }
        if advertisement.version == Version::V3 {
            self.active_interval = advertisement.interval;
        }
        if self.wants_active.is_some() {
            self.reason = format!("{sender} is active");
        }
        self.restart_down_timer(now);
    }

    fn receive_as_active(&mut self, advertisement: &Advertisement, sender: IpAddr, now: Duration) {
        if advertisement.priority == 0 {
            return self.send(now);
        }
        let priority = self.priority();
        let peer_wins = advertisement.priority > priority
            || (advertisement.priority == priority
                && self.source.is_none_or(|source| sender > source));
        if peer_wins {
            if advertisement.version == Version::V3 {
                self.active_interval = advertisement.interval;
            }
            let advantage = if advertisement.priority > priority {
                "a higher priority"
            } else {
                "a higher address"
            };
            self.active_peer = Some(active_peer(advertisement, sender));
            return self.yield_to_other(format!("{sender} has {advantage}"), now);
        }
        // Asserts the active state to the sender and to bridges (RFC 9568 section 6.4.3).
        self.send(now);
        self.received_lower_priority = true;
        self.assert_addresses(now);
    }

    /// Announces the addresses, because another router may have announced them.
    pub(crate) fn assert_addresses(&mut self, now: Duration) {
        if self.state != State::Active {
            return;
        }
        let due =
            |announced_at: Option<Duration>| announced_at.map(|last| last + ANNOUNCE_MIN_INTERVAL);
        if due(self.announced_at).is_none_or(|due| now >= due) {
            self.announce(now);
        }
        self.assert_at = due(self.announced_at);
    }

    /// Handles expired timers.
    pub fn handle_timeout(&mut self, now: Duration) {
        self.handle_stall(now);
        if self.announce_at.is_some_and(|due| now >= due) {
            self.announce_at = None;
            self.announce(now);
        }
        if self.assert_at.is_some_and(|due| now >= due) {
            self.announce(now);
        }
        if self.refresh_at.is_some_and(|due| now >= due) {
            let Announcements {
                refresh,
                refresh_repeat: repeat,
                ..
            } = self.config.announcements;
            self.refresh_at = Some(now + refresh);
            self.outputs.push_back(Output::Announce { repeat });
        }
        if self.start_at.is_some_and(|due| now >= due) {
            self.start_at = None;
            self.evaluate(now);
        }
        if self.timer.is_none_or(|timer| now < timer) {
            return;
        }
        match self.state {
            State::Active => self.send(now),
            State::Backup => {
                let reason = match self.active_peer.map(|peer| peer.address) {
                    Some(peer) if self.preempt_at.is_some() => {
                        format!("{peer} has a lower priority")
                    }
                    Some(peer) => format!("no advertisement from {peer}"),
                    None => "no other director is active".to_owned(),
                };
                self.take_over(reason, now);
            }
            State::Init | State::Fault => self.timer = None,
        }
    }

    /// Returns when to call [`Self::handle_timeout`] next; `None` if no timer is set.
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

    /// Returns the next request to the driver, or `None` if there is none.
    pub fn poll_output(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }
}

const fn active_peer(advertisement: &Advertisement, sender: IpAddr) -> ActivePeer {
    ActivePeer {
        address: sender,
        priority: advertisement.priority,
    }
}

fn has_same_addresses(received: &[IpAddr], configured: &[IpAddr]) -> bool {
    received.len() == configured.len()
        && configured.iter().all(|address| received.contains(address))
}

#[cfg(test)]
mod tests;
