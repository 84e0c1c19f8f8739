//! Implements the state machine of one director in a group; see the crate documentation.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::IpAddr;
use std::time::Duration;

use crate::agreement::{Verdicts, find_verdicts};
use crate::context::Context;
use crate::event::{Input, LocalState, Output, PublishError, SavedState};
use crate::key::{Key, Keys};
use crate::lag::{self, Lag};
use crate::link::{Connection, Lease, Link, State};
use crate::record::MemberRecord;
use crate::rollout::Rollout;
use crate::seal::GroupKey;
use crate::serving::{self, AnnouncedVips};
use crate::settling::Settling;
use crate::shared::{SharedEntries, SharedKey, SharedStore};
use crate::staging::Staging;
use crate::step::{GroupConfig, Step};
use crate::store::{Compare, Entry, Event, Mirror, Put, Txn, TxnResult, Write, too_large_message};

/// Minimum time between a rejected registration and the next attempt.
const REGISTRATION_PAUSE: Duration = Duration::from_secs(2);
/// Part of etcd's error message for an expired lease (`ErrGRPCLeaseNotFound` in etcd's rpctypes).
const NO_LEASE: &str = "requested lease not found";
/// How long the status lists an absent member.
const ABSENT_RETENTION: Duration = Duration::from_secs(24 * 3600);
/// Maximum number of members in the status.
const MAX_KNOWN_MEMBERS: usize = 1024;

/// Maximum number of consecutive conflicts that are not newer than the last report of the watch. Above this limit, the
/// director reads the keys again.
const MAX_OUTDATED: u32 = 10;

/// Settings that do not change while the state machine runs.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Name of the group, valid according to [`crate::check_name`].
    pub group: String,
    /// Name of this member, valid according to [`crate::check_name`].
    pub member: String,
    /// A random number that identifies this director across restarts. It distinguishes two directors with the same
    /// name.
    pub identity: u64,
    /// A random number that identifies this process.
    pub instance: u64,
    /// Time to live of the lease, in whole seconds.
    pub ttl: Duration,
    /// The group key.
    pub key: Option<GroupKey>,
    /// Whether the group decides by agreement that servers are down.
    pub agreement: bool,
}

/// The purpose of a transaction.
#[derive(Clone, Debug)]
enum Purpose {
    Register,
    Serving,
    Withdraw(BTreeSet<IpAddr>),
    Rollout,
    Shared,
    Health,
}

/// A transaction whose result is pending.
#[derive(Debug)]
struct InFlight {
    number: u64,
    txn: Txn,
    purpose: Purpose,
}

/// The state machine of one director in a group.
#[derive(Debug)]
pub struct Machine {
    settings: Settings,
    keys: Keys,
    connection: Connection,
    mirror: Mirror,
    local_state: LocalState,
    rollout: Rollout,
    shared: SharedEntries,
    settling: Settling,
    has_reported_changes: bool,
    serving: AnnouncedVips,
    verdicts: Verdicts,
    /// The last decisions in an [`Output::Decided`]: the VIPs that stay announced, and those that are withdrawn.
    decided: (BTreeSet<IpAddr>, BTreeSet<IpAddr>),
    /// Present and recently absent members, with the last record of each and the time at which it was last present.
    known_members: BTreeMap<String, (MemberRecord, Duration)>,
    in_flight: Option<InFlight>,
    /// Number of the last transaction.
    transactions: u64,
    lag: Lag,
    /// Number of consecutive conflicts that were not newer than the last report of the watch.
    outdated: u32,
    /// Time at which the last transaction was started.
    last_txn_at: Duration,
    /// Keys that this process has written with a lease, and the lease ID.
    leased: BTreeMap<String, i64>,
    /// Why this director could not register as a member of the group, and when.
    refused: Option<(String, Duration)>,
    outputs: VecDeque<Output>,
}

impl Machine {
    /// Creates a state machine.
    pub fn new(settings: Settings, saved: SavedState, now: Duration) -> Self {
        let applied = saved.applied.map(|it| GroupConfig {
            version: it.version,
            digest: crate::chunk::text_digest(&it.text, settings.key.as_ref()),
            text: it.text,
            guard_ms: it.guard_ms,
            mac: String::new(),
        });
        let shared = SharedEntries::new(saved.shared);
        // The daemon may have died before it applied the saved overrides, so apply them again.
        let outputs = shared.overrides().map(|(key, value)| Output::Shared {
            key: key.clone(),
            value: value.clone(),
        });
        let outputs: VecDeque<Output> = outputs.collect();
        Self {
            keys: Keys::new(&settings.group),
            settings,
            connection: Connection::new(now),
            mirror: Mirror::default(),
            local_state: LocalState::default(),
            rollout: Rollout::new(applied.unwrap_or_default(), Staging::new(saved.has_tables)),
            shared,
            settling: Settling::default(),
            has_reported_changes: false,
            serving: AnnouncedVips::new(saved.held_vips),
            verdicts: Verdicts::new(),
            decided: Default::default(),
            known_members: BTreeMap::new(),
            in_flight: None,
            transactions: 0,
            lag: Lag::default(),
            outdated: 0,
            last_txn_at: now,
            leased: BTreeMap::new(),
            refused: None,
            outputs,
        }
    }

    /// Returns the range of keys to list and watch: the first key, and the end (exclusive).
    pub fn range(&self) -> (String, String) {
        (self.keys.prefix().to_owned(), self.keys.end())
    }

    /// Handles an event.
    pub fn handle(&mut self, input: Input, now: Duration) {
        match input {
            Input::Listed { revision, entries } => self.handle_listing(revision, entries, now),
            Input::Watched { events } => {
                let newest = events.iter().map(Event::revision).max();
                for event in events {
                    self.mirror.apply(event);
                }
                self.mirror.advance(newest.unwrap_or_default());
                self.lag.record_reported(self.mirror.revision, now);
                if self.mirror.is_full() {
                    self.fail(too_large_message(), now);
                }
            }
            Input::WatchEnded {
                is_compacted: true, ..
            } => {
                if self.connection.handle_compaction(now) {
                    self.outputs.push_back(Output::List);
                }
            }
            Input::ListFailed(reason) if self.connection.state == State::Listing => {
                self.fail(reason, now);
            }
            Input::LeaseFailed(reason) if self.connection.waits_for_lease() => {
                self.fail(reason, now);
            }
            // Late results of abandoned requests are ignored.
            Input::ListFailed(_) | Input::LeaseFailed(_) => {}
            Input::WatchEnded { reason, .. } => self.fail(reason, now),
            Input::Granted { lease, ttl } => self.connection.record_lease(lease, ttl, now),
            Input::Renewed => self.connection.record_renewal(now),
            Input::LeaseEnded => {
                self.connection.lose_lease();
                self.leased.clear();
            }
            Input::Txn { number, result } => self.handle_txn_result(number, result, now),
            Input::LocalState(local_state) => {
                self.serving.set(local_state.vips.clone());
                self.local_state = *local_state;
            }
            Input::Changed { key, value } => {
                let (keys, mirror) = (&self.keys, &self.mirror);
                self.shared.change(key.clone(), value.clone(), keys, mirror);
                // An earlier value that is already on its way to the daemon must not replace the operator's value.
                self.outputs.push_back(Output::Shared { key, value });
                self.request_save();
            }
            Input::Publish {
                request,
                text,
                guard_ms,
            } => self.publish(request, &text, guard_ms, now),
            Input::Applied(result) => self.rollout.finish(result),
            Input::Staged(version) => self.rollout.staging.finish(version),
            Input::Settled(revision) => self.settling.acknowledge(revision),
        }
        self.advance(now);
    }

    /// Makes the decisions that are due at `now`. Early and repeated calls have no effect.
    pub fn handle_time(&mut self, now: Duration) {
        self.advance(now);
    }

    /// Returns the next request to etcd or to the daemon.
    pub fn poll_output(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// Returns the time at which [`Self::handle_time`] must be called.
    pub fn next_deadline(&self, now: Duration) -> Duration {
        // A coarse interval is sufficient, because decisions that depend on time are rare and not urgent.
        let tick = now + Duration::from_millis(500);
        let tick = self.serving.next_deadline().unwrap_or(tick).min(tick);
        let lease = match self.connection.lease {
            Lease::Held {
                renew,
                is_renewing: false,
                ..
            } => renew,
            Lease::Held { .. } | Lease::None | Lease::Granting => tick,
        };
        match self.connection.state {
            State::Disconnected { retry } => retry.min(tick),
            State::Listing | State::Watching { .. } => lease.min(tick),
        }
    }

    /// Replaces the mirror and starts the watch.
    fn handle_listing(&mut self, revision: i64, entries: Vec<Entry>, now: Duration) {
        if self.connection.state != State::Listing {
            return;
        }
        if !self.mirror.replace(revision, entries) {
            return self.fail(too_large_message(), now);
        }
        self.in_flight = None;
        self.lag = Lag::default();
        // The store may have been replaced, so this director must write lost keys again.
        let is_lost = |name: &String| self.mirror.get(name).is_none();
        let lost: Vec<String> = self
            .leased
            .keys()
            .filter(|it| is_lost(it))
            .cloned()
            .collect();
        for name in lost {
            self.leased.remove(&name);
        }
        self.connection.connect(now);
        self.outputs.push_back(Output::Watch {
            from: revision.saturating_add(1),
        });
        self.resume_publication(now);
    }

    /// Abandons all requests and schedules the next attempt to reach etcd.
    fn fail(&mut self, reason: String, now: Duration) {
        self.in_flight = None;
        self.lag = Lag::default();
        self.connection.fail(&reason, now);
    }

    /// Fails a publication if etcd has not responded within its time limit.
    fn expire_publication(&mut self, now: Duration) {
        let reason = self.connection.error.as_deref().unwrap_or("no response");
        if let Some((request, result)) = self.rollout.expire(now, reason) {
            self.report_published(request, result);
        }
    }

    /// Resumes a publication that an outage of etcd interrupted.
    fn resume_publication(&mut self, now: Duration) {
        let mut rollout = std::mem::take(&mut self.rollout);
        let finished = rollout.resume(&self.context(now));
        self.rollout = rollout;
        if let Some((request, result)) = finished {
            self.report_published(request, result);
        }
    }

    fn report_published(&mut self, request: u64, result: Result<u64, String>) {
        self.outputs.push_back(Output::Published {
            request,
            result: result.map_err(PublishError),
        });
    }

    /// Starts a publication, or reports why it cannot start.
    fn publish(&mut self, request: u64, text: &str, guard_ms: u64, now: Duration) {
        let result = match &self.connection.state {
            State::Watching { .. } if self.refused.is_none() => {
                let mut rollout = std::mem::take(&mut self.rollout);
                let started = rollout.publish(&self.context(now), request, text, guard_ms);
                self.rollout = rollout;
                started
            }
            State::Watching { .. } => Err("this director is not a member of the group".to_owned()),
            State::Disconnected { .. } | State::Listing => Err(match &self.connection.error {
                Some(error) => format!("etcd does not respond: {error}"),
                None => "etcd has not responded yet".to_owned(),
            }),
        };
        if let Err(reason) = result {
            self.report_published(request, Err(reason));
        }
    }

    fn handle_txn_result(&mut self, number: u64, result: TxnResult, now: Duration) {
        // A late result of an abandoned transaction must not be mistaken for the result of the current transaction.
        let is_current = |it: &mut InFlight| it.number == number;
        let Some(InFlight { txn, purpose, .. }) = self.in_flight.take_if(is_current) else {
            return;
        };
        let is_done = matches!(result, TxnResult::Done { .. });
        match result {
            TxnResult::Done { revision } => {
                self.apply_to_mirror(&txn, revision);
                if let Purpose::Shared = purpose {
                    let keys = txn
                        .writes
                        .iter()
                        .filter_map(|it| SharedKey::from_write(&self.keys, it));
                    self.settling.record_changes(keys, revision);
                    self.outputs.push_back(Output::Settle { revision });
                }
                // The watch reports no deletion if another member had already deleted the key, so only puts are
                // expected.
                if txn.writes.iter().any(|it| matches!(it, Write::Put(_))) {
                    self.lag.expect(revision, self.mirror.revision, now);
                }
            }
            TxnResult::Conflict { found, revision } => {
                let newest = found.iter().map(|entry| entry.revision).max();
                let newest = newest.unwrap_or_default();
                self.lag.expect(newest, self.mirror.revision, now);
                // A response that is older than the watch's last report could restore deleted keys.
                let is_newer = revision > self.mirror.revision;
                self.outdated = if is_newer { 0 } else { self.outdated + 1 };
                if self.outdated > MAX_OUTDATED {
                    let reason = "etcd returns revisions older than those that its watch reported";
                    return self.fail(reason.to_owned(), now);
                }
                let found = if is_newer { found } else { Vec::new() };
                for compare in txn.compares.iter().filter(|_| is_newer) {
                    if !found.iter().any(|entry| entry.key == compare.key()) {
                        self.mirror.remove_absent(compare.key(), revision);
                    }
                }
                // The response contains no value for a key of `Compare::Exists`.
                let has_value = |entry: &Entry| {
                    let compare = txn.compares.iter().find(|it| it.key() == entry.key);
                    matches!(compare, Some(Compare::Revision(..)))
                };
                let found = found.into_iter().filter(has_value);
                found.for_each(|entry| self.mirror.put(entry));
            }
            // etcd responds, so the director only needs a new lease.
            TxnResult::Unknown(reason) if reason.contains(NO_LEASE) => {
                self.connection.lose_lease();
                self.leased.clear();
                return;
            }
            TxnResult::Unknown(reason) => return self.fail(reason, now),
        }
        match purpose {
            Purpose::Register if !is_done => {
                let reason = format!(
                    "the name {} is used by another director",
                    self.settings.member
                );
                self.refused = Some((reason, now));
            }
            Purpose::Register => self.refused = None,
            Purpose::Withdraw(vips) if is_done => self.serving.withdraw(&vips),
            Purpose::Rollout => {
                let mut rollout = std::mem::take(&mut self.rollout);
                let finished = rollout.handle_txn_result(&self.context(now), &txn, is_done);
                self.rollout = rollout;
                if let Some((request, result)) = finished {
                    self.report_published(request, result);
                }
            }
            Purpose::Serving | Purpose::Withdraw(_) | Purpose::Shared | Purpose::Health => {}
        }
    }

    /// Applies a successful transaction to the mirror before the watch reports it.
    fn apply_to_mirror(&mut self, txn: &Txn, revision: i64) {
        let lease = self.connection.lease_id().unwrap_or_default();
        for write in &txn.writes {
            match write {
                Write::Put(put) => {
                    if put.leased {
                        self.leased.insert(put.key.clone(), lease);
                    }
                    self.mirror.put(Entry {
                        key: put.key.clone(),
                        value: put.value.clone(),
                        revision,
                    });
                }
                Write::Delete(key) => self.mirror.delete(key.clone(), revision),
            }
        }
    }

    /// Makes all decisions that the current state permits.
    fn advance(&mut self, now: Duration) {
        self.record_members(now);
        self.expire_publication(now);
        match self.connection.state {
            State::Disconnected { retry } => {
                if now >= retry {
                    self.connection.state = State::Listing;
                    self.outputs.push_back(Output::List);
                }
                self.report_staging(now);
            }
            // A large listing can take longer than the lease lasts.
            State::Listing => self.renew_lease(now),
            State::Watching { .. } if self.lag.is_too_long(now) => {
                self.fail(lag::error_message(), now);
            }
            State::Watching { .. } => {
                let members = self.context(now).members();
                self.adopt_shared(&members);
                let settled = self.settling.take_settled(&members).into_iter();
                self.outputs
                    .extend(settled.map(|key| Output::Settled { key }));
                self.keep_lease(now);
                while self.in_flight.is_none() && self.start_next_write(now) {}
            }
        }
        self.decide_without_etcd(now);
        self.update_decisions(now);
    }

    /// Withdraws VIPs whose withdrawal etcd has not confirmed in time; see [`serving`].
    fn decide_without_etcd(&mut self, now: Duration) {
        let view = (&self.keys, &self.mirror, self.settings.member.as_str());
        let responds = self.connection.error.is_none();
        let is_complete = self.is_mirror_complete(now);
        self.serving
            .decide_without_etcd(view, responds, is_complete, now);
    }

    /// Returns whether the mirror has the records of all members. If the store has lost its data, the members register
    /// again one by one, so the mirror must have been complete for the time to live of a lease.
    fn is_mirror_complete(&self, now: Duration) -> bool {
        let synced_for = self.connection.synced_for(now);
        synced_for.is_some_and(|duration| duration >= self.settings.ttl)
    }

    /// Records the present members, so that the status can list them after they become absent.
    fn record_members(&mut self, now: Duration) {
        if self.connection.synced_for(now).is_none() {
            return;
        }
        for (name, record) in self.context(now).members() {
            if self.known_members.len() < MAX_KNOWN_MEMBERS
                || self.known_members.contains_key(&name)
            {
                self.known_members.insert(name, (record, now));
            }
        }
        self.known_members
            .retain(|_, (_, seen)| now < *seen + ABSENT_RETENTION);
    }

    /// Adopts changes that other members made to shared entries.
    fn adopt_shared(&mut self, members: &[(String, MemberRecord)]) {
        let previously_pending = self.shared.pending();
        let (keys, key) = (&self.keys, self.settings.key.as_ref());
        // Members with different keys must not replace each other's seals.
        let mut members = members.iter();
        let store = SharedStore {
            keys,
            mirror: &self.mirror,
            key,
            members_share_key: members.all(|(name, it)| it.is_authentic(keys, name, key)),
        };
        let changes = self.shared.reconcile(&store);
        let newest = changes.iter().map(|(.., revision)| *revision).max();
        let has_changes = newest.is_some();
        for (key, value, _) in changes {
            self.outputs.push_back(Output::Shared { key, value });
        }
        if let Some(revision) = newest {
            self.outputs.push_back(Output::Settle { revision });
        }
        if has_changes || previously_pending != self.shared.pending() {
            self.request_save();
        }
    }

    /// Requests that the daemon save the shared entries. Replaces an earlier request.
    fn request_save(&mut self) {
        self.outputs
            .retain(|output| !matches!(output, Output::Save(_)));
        self.outputs.push_back(Output::Save(self.shared.state()));
    }

    /// Requests a lease, or renews the lease when its renewal is due.
    fn keep_lease(&mut self, now: Duration) {
        if self.connection.begin_grant(now) {
            self.leased.clear();
            let ttl = self.settings.ttl;
            self.outputs.push_back(Output::Grant { ttl });
        }
        self.renew_lease(now);
    }

    /// Renews the lease if its renewal is due.
    fn renew_lease(&mut self, now: Duration) {
        match &mut self.connection.lease {
            Lease::Held {
                id,
                renew,
                is_renewing,
                ..
            } if !*is_renewing && now >= *renew => {
                *is_renewing = true;
                let lease = *id;
                self.outputs.push_back(Output::Renew { lease });
            }
            Lease::Held { .. } | Lease::Granting | Lease::None => {}
        }
    }

    /// Sends [`Output::LastChanges`] once, when the daemon uses a configuration and servers have changed since its
    /// publication.
    fn report_last_changes(&mut self) {
        let current = self.mirror.revision_of(&self.keys.name(&Key::Current));
        let change = self.rollout.last_change();
        let is_due = self.local_state.stages_versions && change.version > 0;
        if !is_due || current == 0 || std::mem::replace(&mut self.has_reported_changes, true) {
            return;
        }
        let changes = self.shared.newest_since(current);
        if !changes.is_empty() {
            let replaces = self.rollout.staging.replaces(&change);
            self.outputs
                .push_back(Output::LastChanges { changes, replaces });
        }
    }

    /// Sends [`Output::PreviousStaged`] once it is due and the daemon has reported its state.
    fn report_staging(&mut self, now: Duration) {
        let disconnected_for = self.connection.disconnected_for(now);
        let mut rollout = std::mem::take(&mut self.rollout);
        if self.local_state != LocalState::default()
            && rollout.finish_staging(&self.context(now), disconnected_for)
        {
            self.outputs.push_back(Output::PreviousStaged);
        }
        self.rollout = rollout;
    }

    /// Starts the most urgent write, and asks the daemon to apply a configuration if one is due. Returns whether a
    /// transaction was started.
    fn start_next_write(&mut self, now: Duration) -> bool {
        let Some(lease) = self.connection.lease_id() else {
            return false;
        };
        let own_name = self.settings.member.clone();
        let record = self.own_record();
        let registration = self.leased_put(&Key::Member(own_name.clone()), &record);
        if self.is_due(&registration, lease) {
            return self.register(registration, now);
        }
        let serving = serving::record_put(&self.keys, &own_name, self.serving.announced_vips());
        if self.is_due(&serving, lease) {
            return self.start_txn(Txn::unconditional(serving), Purpose::Serving, now);
        }
        let withdrawal = self
            .serving
            .next_withdrawal(&self.keys, &self.mirror, &own_name);
        if let Some((vips, txn)) = withdrawal {
            return self.start_txn(txn, Purpose::Withdraw(vips), now);
        }
        let mut rollout = std::mem::take(&mut self.rollout);
        let step = rollout.next_step(&self.context(now));
        self.rollout = rollout;
        match step {
            Step::Write(txn) => return self.start_txn(txn, Purpose::Rollout, now),
            Step::Apply(GroupConfig {
                version,
                digest,
                text,
                guard_ms,
                mac: _,
            }) => self.outputs.push_back(Output::Apply {
                version,
                digest,
                text,
                guard_ms,
            }),
            Step::Stage {
                version,
                text,
                replaces,
            } => self.outputs.push_back(Output::Stage {
                version,
                text,
                replaces,
            }),
            Step::Nothing => {
                self.report_last_changes();
                self.report_staging(now);
            }
        }
        if let Some(txn) = self
            .shared
            .next_write(&self.keys, self.settings.key.as_ref())
        {
            return self.start_txn(txn, Purpose::Shared, now);
        }
        let health = self.leased_put(&Key::Health(own_name), &self.local_state.health);
        if self.is_due(&health, lease) || now >= self.last_txn_at + lag::ROUTINE_WRITE_INTERVAL {
            return self.start_txn(Txn::unconditional(health), Purpose::Health, now);
        }
        false
    }

    /// Requests a transaction. Always returns true.
    fn start_txn(&mut self, txn: Txn, purpose: Purpose, now: Duration) -> bool {
        let lease = self.connection.lease_id();
        (self.transactions, self.last_txn_at) = (self.transactions + 1, now);
        let number = self.transactions;
        self.in_flight = Some(InFlight {
            number,
            txn: txn.clone(),
            purpose,
        });
        self.outputs.push_back(Output::Txn { number, lease, txn });
        true
    }

    /// Starts a transaction that writes this member's record, unless another director or another process of this
    /// director uses the name. Returns whether a transaction was started.
    fn register(&mut self, put: Put, now: Duration) -> bool {
        if let Some((_, refused_at)) = &self.refused
            && now < *refused_at + REGISTRATION_PAUSE
        {
            return false;
        }
        let existing: Option<MemberRecord> = self.mirror.read(&put.key);
        let is_this_director = |it: &MemberRecord| it.identity == self.settings.identity;
        let is_this_process = |it: &MemberRecord| it.instance == self.settings.instance;
        // During an upgrade, the new process replaces this one in the group.
        let was_registered = self.leased.contains_key(&put.key);
        let refused = match &existing {
            Some(existing) if !is_this_director(existing) => Some("another director"),
            Some(existing)
                if was_registered && !is_this_process(existing) && self.refused.is_none() =>
            {
                Some("another process of this director")
            }
            _ => None,
        };
        if let Some(user) = refused {
            let reason = format!("the name {} is used by {user}", self.settings.member);
            self.refused = Some((reason, now));
            return false;
        }
        let revision = self.mirror.revision_of(&put.key);
        let compare = Compare::Revision(put.key.clone(), revision);
        let txn = Txn {
            compares: vec![compare],
            writes: vec![Write::Put(put)],
        };
        self.start_txn(txn, Purpose::Register, now)
    }

    /// Returns a write that attaches a value to the lease.
    fn leased_put<T: serde::Serialize>(&self, key: &Key, value: &T) -> Put {
        Put {
            key: self.keys.name(key),
            value: serde_json::to_vec(value).unwrap_or_default(),
            leased: true,
        }
    }

    /// Returns whether a leased value must be written, because the store has a different value or lease for the key.
    fn is_due(&self, put: &Put, lease: i64) -> bool {
        self.leased.get(&put.key) != Some(&lease)
            || self.mirror.get(&put.key).map(|it| &it.value) != Some(&put.value)
    }

    /// Updates the decisions that are reported only to the daemon: health verdicts, and VIPs whose services cannot
    /// serve.
    fn update_decisions(&mut self, now: Duration) {
        let agreed = match self.settings.agreement && self.is_mirror_complete(now) {
            true => find_verdicts(&self.keys, &self.mirror),
            false => Verdicts::new(),
        };
        if agreed != self.verdicts {
            self.verdicts.clone_from(&agreed);
            self.outputs.push_back(Output::Verdicts(agreed));
        }
        let decided = (self.serving.held_vips(), self.serving.withdrawn_vips());
        if decided != self.decided {
            self.decided.clone_from(&decided);
            let (held, withdrawn) = decided;
            self.outputs.push_back(Output::Decided { held, withdrawn });
        }
    }

    /// Returns the values that decisions about the rollout depend on.
    pub(crate) fn context(&self, now: Duration) -> Context<'_> {
        Context {
            keys: &self.keys,
            mirror: &self.mirror,
            own_name: &self.settings.member,
            instance: self.settings.instance,
            key: self.settings.key.as_ref(),
            now,
            synced_for: self.connection.synced_for(now).unwrap_or_default(),
            ttl: self.settings.ttl,
            applies_with_others: self.local_state.applies_with_others,
            stages_versions: self.local_state.stages_versions,
        }
    }

    /// Returns this member's record.
    pub(crate) fn own_record(&self) -> MemberRecord {
        let record = MemberRecord {
            version: self.rollout.applied.version,
            digest: self.rollout.applied.digest.clone(),
            instance: self.settings.instance,
            identity: self.settings.identity,
            settled: (!self.local_state.applies_with_others)
                .then(|| self.settling.acknowledged_revision()),
            staged: self
                .local_state
                .stages_versions
                .then(|| self.rollout.staging.staged()),
            ..self.local_state.record.clone()
        };
        let Settings { member, key, .. } = &self.settings;
        record.sign(&self.keys, member, key.as_ref())
    }

    pub(crate) fn link(&self) -> Link {
        match self.connection.state {
            State::Watching { .. } => Link::Connected,
            State::Disconnected { .. } | State::Listing => Link::Disconnected {
                since: self.connection.since,
                error: self.connection.error.clone().unwrap_or_default(),
            },
        }
    }

    /// Returns the number of etcd failures. The driver switches to the next etcd member only after a failure, because a
    /// watch stays on the member on which it was opened.
    pub const fn failures(&self) -> u64 {
        self.connection.failures
    }

    pub(crate) fn refused(&self) -> Option<&str> {
        self.refused.as_ref().map(|(reason, _)| reason.as_str())
    }

    pub(crate) const fn known_members(&self) -> &BTreeMap<String, (MemberRecord, Duration)> {
        &self.known_members
    }

    pub(crate) fn pending(&self) -> usize {
        self.shared.pending()
    }

    pub(crate) fn held_vips(&self) -> BTreeSet<IpAddr> {
        self.decided.0.clone()
    }

    pub(crate) const fn verdicts(&self) -> &Verdicts {
        &self.verdicts
    }
}
