//! Connects the daemon to its group's state machine (`[cluster]`), and saves the state for times without etcd.
//!
//! The state machine runs on its own thread, so a slow etcd never delays the daemon. A [`record`] contains the group's
//! last configuration and the shared overrides. A daemon that starts without etcd uses them, even after a reboot.

mod connection;
mod local_state;
mod record;
mod settling;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::Value;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::sync::{Mutex, oneshot};
use weir_cluster::{
    AppliedConfiguration, Input, Kind, SavedState, SharedKey, SharedState, Verdicts,
};
use weir_etcd::{Driver, GroupOutput};
use weir_health::{ServerHealth, State};
use weir_model::{Cluster, Desired};
use weir_state::HealthEvent;

use crate::api::{ApiError, PublishResponse, ReloadResponse, Reply};
use crate::configuration;
use crate::group_configuration::GroupConfiguration;
use crate::status::Group as GroupStatus;

pub use record::last_group_configuration;
use record::{Record, Store};
pub(super) use record::{prepare_state_directory, state_directory};
pub(super) use settling::PendingReply;
use settling::Settling;

/// Minimum interval between updates of this director's member record. Building the record visits every server.
const MEMBER_RECORD_INTERVAL: Duration = Duration::from_secs(1);

/// Maximum time to delay the report that a configuration was applied while affected flows are sent to the `[sync]`
/// peers, and the interval between checks.
const FLOW_SYNC_TIMEOUT: Duration = Duration::from_secs(2);
const FLOW_SYNC_POLL_INTERVAL: Duration = Duration::from_millis(10);

/// An event for the daemon's main loop.
#[derive(Debug)]
pub(super) enum GroupEvent {
    /// A command from the state machine.
    Command(GroupOutput),
    /// It is time to check whether flows have been sent, or a delayed reply has timed out.
    Settling,
    /// The reload that a command started has finished.
    Applied(Result<ReloadResponse, ApiError>),
    /// It is time to retry writing the record.
    RetrySave,
}

#[derive(Debug, Default)]
struct Inbox {
    commands: Option<UnboundedReceiver<GroupOutput>>,
    applying: Option<oneshot::Receiver<Result<ReloadResponse, ApiError>>>,
    /// A delayed result, and the time at which to handle it.
    delayed_result: Option<(tokio::time::Instant, Result<ReloadResponse, ApiError>)>,
    /// Changes from the group to retry.
    retries: VecDeque<(SharedKey, Value)>,
}

/// The daemon's membership in a group. Does nothing if `[cluster]` is not configured.
#[derive(Debug)]
pub(super) struct Group {
    store: Store,
    record: Record,
    /// Whether an earlier process used this runtime directory, so that the data plane has its tables.
    has_tables: bool,
    /// Whether this process may still have to stage the previous version.
    lacks_previous_version: bool,
    config: Option<Cluster>,
    driver: Option<Driver>,
    /// Why the driver was not started.
    error: Option<String>,
    inbox: Mutex<Inbox>,
    settling: Settling,
    /// The configuration that is being applied.
    candidate: Option<Arc<GroupConfiguration>>,
    /// When the candidate's result was first delayed.
    delayed_since: Option<Instant>,
    /// The group's active configuration.
    active: Option<Arc<GroupConfiguration>>,
    local_state: weir_cluster::LocalState,
    /// VIPs that must stay announced although their services cannot serve, or about which the state machine has not
    /// decided yet.
    kept_vips: BTreeSet<IpAddr>,
    verdicts: Verdicts,
    /// Results of this director's own checks.
    health_states: BTreeMap<(String, String), ServerHealth>,
    /// Changes from the group that could not be applied.
    inapplicable_changes: BTreeMap<SharedKey, Value>,
    record_built_at: Option<Instant>,
    /// Whether the directors have secrets in common that are not compared.
    has_uncompared_secrets: bool,
    /// This director's certificate files that differ from those of the active configuration, with its version and the
    /// fingerprint of the files when they were compared.
    differing_files: (u64, u64, Vec<String>),
    /// The replies to publications, and the findings about the published configuration.
    replies: BTreeMap<u64, (Reply<PublishResponse>, String)>,
    last_request_id: u64,
}

impl Group {
    pub(super) fn new(runtime_dir: &Path) -> Self {
        let record = Record::read(runtime_dir);
        Self {
            store: Store::new(runtime_dir),
            has_tables: Record::exists(runtime_dir),
            lacks_previous_version: true,
            active: record.configuration.clone().map(Arc::new),
            kept_vips: record.held_vips.clone(),
            record,
            config: None,
            driver: None,
            error: None,
            inbox: Mutex::default(),
            settling: Settling::default(),
            candidate: None,
            delayed_since: None,
            local_state: weir_cluster::LocalState::default(),
            verdicts: Verdicts::new(),
            health_states: BTreeMap::new(),
            inapplicable_changes: BTreeMap::new(),
            record_built_at: None,
            has_uncompared_secrets: false,
            differing_files: (0, 0, Vec::new()),
            replies: BTreeMap::new(),
            last_request_id: 0,
        }
    }

    /// Returns the group's active configuration.
    pub(super) fn active(&self) -> Option<&Arc<GroupConfiguration>> {
        self.active.as_ref()
    }

    pub(super) fn set_active(&mut self, active: Option<Arc<GroupConfiguration>>) {
        self.active = active;
        // The record depends on the configuration.
        self.record_built_at = None;
    }

    /// Applies `[cluster]`. Restarts the state machine only if the section changed or the driver is not running.
    /// Returns an event for each server that the group has considered down.
    pub(super) fn configure(&mut self, config: Option<&Cluster>) -> Vec<HealthEvent> {
        if self.config.as_ref() == config && (self.driver.is_some() || config.is_none()) {
            // The server that a pending change needs may exist now.
            let pending = std::mem::take(&mut self.inapplicable_changes).into_iter();
            self.inbox.get_mut().retries.extend(pending);
            return Vec::new();
        }
        self.stop("[cluster] has changed");
        // The next state machine reports only the verdicts that it reaches itself.
        let events = self.set_verdicts(Verdicts::new());
        self.record_built_at = None;
        self.config = config.cloned();
        self.error = None;
        match config {
            Some(config) => self.join(config),
            None => self.forget_held_vips(),
        }
        events
    }

    fn join(&mut self, config: &Cluster) {
        if self.record.group != config.name {
            self.record.group.clone_from(&config.name);
            self.record.shared = SharedState::default();
        }
        match self.start(config) {
            Ok((driver, commands)) => {
                driver.send(Input::LocalState(Box::new(self.local_state.clone())));
                self.driver = Some(driver);
                self.inbox.get_mut().commands = Some(commands);
            }
            Err(error) => {
                tracing::error!(error, "failed to join the group");
                self.error = Some(error);
                self.forget_held_vips();
            }
        }
    }

    fn start(
        &mut self,
        config: &Cluster,
    ) -> Result<(Driver, UnboundedReceiver<GroupOutput>), String> {
        if self.record.identity == 0 {
            self.record.identity = connection::random_nonzero()?;
            self.save();
        }
        let record = &self.record;
        let configuration = record.configuration.as_ref();
        let configuration =
            configuration.filter(|configuration| configuration.group == config.name);
        let settings = connection::settings(config, record.identity)?;
        let applied = configuration.map(|configuration| AppliedConfiguration {
            version: configuration.version,
            text: configuration.to_publication(),
            guard_ms: configuration.guard_ms,
        });
        Driver::start(weir_etcd::Settings {
            saved: SavedState {
                applied,
                shared: record.shared.clone(),
                held_vips: self.kept_vips.clone(),
                has_tables: std::mem::replace(&mut self.has_tables, true),
            },
            ..settings
        })
        .map_err(|error| error.to_string())
    }

    fn stop(&mut self, reason: &str) {
        if let Some(driver) = self.driver.take() {
            driver.leave();
        }
        *self.inbox.get_mut() = Inbox::default();
        for (reply, _) in std::mem::take(&mut self.replies).into_values() {
            let _ = reply.send(Err(ApiError::new(reason)));
        }
    }

    /// Leaves the group when the daemon stops, and the announcer withdraws all routes.
    pub(super) fn leave(&mut self) {
        self.stop("the daemon is stopping");
        self.forget_held_vips();
    }

    fn forget_held_vips(&mut self) {
        self.kept_vips.clear();
        self.record_held_vips(BTreeSet::new());
    }

    /// Waits for an event. Cancel-safe.
    pub(super) async fn next(&self) -> GroupEvent {
        let mut inbox = self.inbox.lock().await;
        if let Some((key, value)) = inbox.retries.pop_front() {
            return GroupEvent::Command(GroupOutput::Shared { key, value });
        }
        let Inbox {
            commands,
            applying,
            delayed_result,
            ..
        } = &mut *inbox;
        let command = async {
            match commands {
                Some(commands) => commands.recv().await,
                None => std::future::pending().await,
            }
        };
        let applied = async {
            match applying {
                Some(applying) => applying.await,
                None => std::future::pending().await,
            }
        };
        let delay_ended = async {
            match delayed_result {
                Some((until, _)) => tokio::time::sleep_until(*until).await,
                None => std::future::pending().await,
            }
        };
        let settling = async {
            match self.settling.next_poll() {
                Some(at) => tokio::time::sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        let retry_save = async {
            match self.store.retry_at() {
                Some(at) => tokio::time::sleep_until(at.into()).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = settling => GroupEvent::Settling,
            () = retry_save => GroupEvent::RetrySave,
            result = applied => {
                *applying = None;
                GroupEvent::Applied(result.unwrap_or_else(|_| Err(ApiError::stopping())))
            }
            () = delay_ended => match delayed_result.take() {
                Some((_, result)) => GroupEvent::Applied(result),
                None => std::future::pending().await,
            },
            command = command => match command {
                Some(command) => GroupEvent::Command(command),
                None => {
                    *commands = None;
                    std::future::pending().await
                }
            }
        }
    }

    /// Starts applying a publication. Returns the configuration and the sender for its result.
    ///
    /// # Errors
    /// Fails if the publication is malformed; the configuration is then not applied.
    pub(super) fn apply(
        &mut self,
        version: u64,
        publication: &str,
        guard_ms: u64,
    ) -> Result<(Arc<GroupConfiguration>, Reply<ReloadResponse>), ApiError> {
        let (text, files) =
            GroupConfiguration::read_publication(publication).map_err(ApiError::new)?;
        let candidate = Arc::new(GroupConfiguration {
            group: self.record.group.clone(),
            version,
            text,
            guard_ms,
            files,
        });
        self.candidate = Some(Arc::clone(&candidate));
        // The state machine reports again that the previous version is staged.
        self.lacks_previous_version |= self.active.is_none();
        let (reply, result) = oneshot::channel();
        self.inbox.get_mut().applying = Some(result);
        Ok((candidate, reply))
    }

    /// Returns whether a configuration is being applied, or its guard has not ended.
    pub(super) const fn is_applying(&self) -> bool {
        self.candidate.is_some()
    }

    /// Returns whether the report of success may be delayed further.
    pub(super) fn may_delay_result(&self) -> bool {
        self.delayed_since
            .is_none_or(|since| since.elapsed() < FLOW_SYNC_TIMEOUT)
    }

    /// Delays the result by [`FLOW_SYNC_POLL_INTERVAL`].
    pub(super) fn delay_result(&mut self, result: Result<ReloadResponse, ApiError>) {
        self.delayed_since.get_or_insert_with(Instant::now);
        let until = tokio::time::Instant::now() + FLOW_SYNC_POLL_INTERVAL;
        self.inbox.get_mut().delayed_result = Some((until, result));
    }

    /// Handles the result of applying the configuration. A success is saved to disk before it is reported to the group.
    /// It is reported even if saving fails, because a full disk must not prevent changes.
    pub(super) fn finish_apply(&mut self, result: Result<ReloadResponse, ApiError>) {
        self.delayed_since = None;
        let candidate = self.candidate.take();
        let result = result.map(drop).map_err(|error| error.error);
        if let (Ok(()), Some(candidate)) = (&result, candidate) {
            tracing::info!(
                version = candidate.version,
                "applied the group configuration"
            );
            self.record.configuration = Some((*candidate).clone());
            self.save();
        }
        self.send(Input::Applied(result));
    }

    /// Publishes a configuration for an operator. The text is a publication. `guard_ms` is the duration of the reload's
    /// guard in milliseconds; 0 = no guard. `findings` are added to the reply.
    pub(super) fn publish(
        &mut self,
        text: String,
        guard_ms: u64,
        findings: String,
        reply: Reply<PublishResponse>,
    ) {
        if self.driver.is_none() {
            let reason = self.error.clone();
            let reason = reason.unwrap_or_else(|| "[cluster] is not configured".to_owned());
            let _ = reply.send(Err(ApiError::new(reason)));
            return;
        }
        self.last_request_id += 1;
        let request = self.last_request_id;
        self.replies.insert(request, (reply, findings));
        self.send(Input::Publish {
            request,
            text,
            guard_ms,
        });
    }

    /// Replies to the operator who requested the publication.
    pub(super) fn finish_publish(&mut self, request: u64, result: Result<u64, String>) {
        if let Some((reply, findings)) = self.replies.remove(&request) {
            let result = result.map(|version| PublishResponse { version, findings });
            let _ = reply.send(result.map_err(ApiError::new));
        }
    }

    /// Shares an operator's change to an override or an added server with the group.
    pub(super) fn share(&self, kind: Kind, pool: &str, server: &str, value: serde_json::Value) {
        // Services created with ipvsadm are local to this host.
        if weir_engine::is_from_ipvsadm(pool) {
            return;
        }
        let key = SharedKey {
            kind,
            pool: pool.to_owned(),
            server: server.to_owned(),
        };
        self.send(Input::Changed { key, value });
    }

    /// Reports that this director has staged a version, or cannot stage it.
    pub(super) fn finish_staging(&self, version: u64) {
        self.send(Input::Staged(version));
    }

    /// Records that this process has staged the previous version, or that it needs none.
    pub(super) const fn finish_staging_previous(&mut self) {
        self.lacks_previous_version = false;
    }

    /// Returns whether this process may still have to stage the previous version. Until then, connections that move to
    /// this director might not find their servers.
    pub(super) const fn lacks_previous_version(&self) -> bool {
        self.driver.is_some() && self.lacks_previous_version
    }

    /// Starts to wait until all flows that server changes up to `revision` affect have been sent to the peers.
    pub(super) fn await_flow_sync(&mut self, revision: i64) {
        self.settling.begin(revision, tokio::time::Instant::now());
    }

    /// Acknowledges the revision if its flows have been sent or the timeout has expired. Returns the delayed replies
    /// whose timeout has expired.
    pub(super) fn poll_settling(&mut self, is_moving: bool) -> Vec<(SharedKey, PendingReply)> {
        let now = tokio::time::Instant::now();
        if let Some(revision) = self.settling.end(is_moving, now) {
            self.send(Input::Settled(revision));
        }
        self.settling.take(None, now)
    }

    /// Returns the replies that waited for `key`, and those whose timeout has expired.
    pub(super) fn take_settled_replies(
        &mut self,
        key: &SharedKey,
    ) -> Vec<(SharedKey, PendingReply)> {
        self.settling.take(Some(key), tokio::time::Instant::now())
    }

    /// Delays a reply until the group has settled the change. Returns the reply if it must be sent now, because this
    /// director is not connected to etcd, is not accepted as a member, or because the server was created with ipvsadm.
    pub(super) fn defer_reply(
        &mut self,
        key: SharedKey,
        reply: PendingReply,
    ) -> Option<PendingReply> {
        let status = self.driver.as_ref().and_then(Driver::status);
        let is_member = status.is_some_and(|(status, _)| {
            status.link == weir_cluster::Link::Connected && status.refused.is_none()
        });
        if !is_member || weir_engine::is_from_ipvsadm(&key.pool) {
            return Some(reply);
        }
        self.settling
            .defer_reply(key, reply, tokio::time::Instant::now());
        None
    }

    /// Records whether a change from another director was applied.
    pub(super) fn record_change(&mut self, key: SharedKey, value: Value, is_applied: bool) {
        if is_applied {
            self.inapplicable_changes.remove(&key);
        } else {
            self.inapplicable_changes.insert(key, value);
        }
    }

    pub(super) fn save_shared(&mut self, shared: SharedState) {
        self.record.shared = shared;
        self.save();
    }

    /// Handles the state machine's decision. VIPs about which it has not decided stay announced.
    pub(super) fn set_decision(&mut self, held: &BTreeSet<IpAddr>, withdrawn: &BTreeSet<IpAddr>) {
        self.kept_vips.retain(|vip| !withdrawn.contains(vip));
        self.kept_vips.extend(held);
    }

    /// Records the VIPs that stay announced, for a daemon that starts after a crash.
    pub(super) fn record_held_vips(&mut self, held_vips: BTreeSet<IpAddr>) {
        if self.record.held_vips != held_vips {
            self.record.held_vips = held_vips;
            self.save();
        }
    }

    /// Returns whether the VIP must stay announced although its services cannot serve.
    pub(super) fn must_announce(&self, vip: IpAddr) -> bool {
        self.driver.is_some() && self.kept_vips.contains(&vip)
    }

    /// Applies the group's verdicts to the results of this director's checks. Records the results even without a group,
    /// because `[cluster]` may be added later.
    pub(super) fn apply_verdicts(&mut self, events: Vec<HealthEvent>) -> Vec<HealthEvent> {
        for event in &events {
            let key = (event.pool.clone(), event.server.clone());
            match &event.server_health {
                Some(server_health) => self.health_states.insert(key, server_health.clone()),
                None => self.health_states.remove(&key),
            };
        }
        events
            .into_iter()
            .map(|event| self.with_verdict(event))
            .collect()
    }

    /// Replaces the verdicts. Returns an event for each server whose verdict changed.
    pub(super) fn set_verdicts(&mut self, verdicts: Verdicts) -> Vec<HealthEvent> {
        let previous = std::mem::replace(&mut self.verdicts, verdicts);
        let affected = self.health_states.iter().filter(|((pool, server), _)| {
            let name = format!("{pool}/{server}");
            previous.get(&name) != self.verdicts.get(&name)
        });
        affected
            .map(|((pool, server), server_health)| {
                self.with_verdict(HealthEvent {
                    pool: pool.clone(),
                    server: server.clone(),
                    server_health: Some(server_health.clone()),
                })
            })
            .collect()
    }

    fn with_verdict(&self, mut event: HealthEvent) -> HealthEvent {
        let verdict = self
            .verdicts
            .get(&format!("{}/{}", event.pool, event.server));
        if let (Some(reason), Some(server_health)) = (verdict, &mut event.server_health)
            && server_health.state == State::Up
        {
            server_health.state = State::Down;
            server_health.reason.clone_from(reason);
            server_health.paths.clear();
        }
        event
    }

    /// Reports the local state to the state machine if it has changed. `mtu` is the smallest MTU of the interfaces with
    /// the packet path, in bytes.
    pub(super) fn report(
        &mut self,
        desired: &Desired,
        vips: BTreeMap<IpAddr, bool>,
        mtu: Option<u32>,
    ) {
        let Some(config) = &self.config else {
            return;
        };
        let pools: BTreeSet<&str> = desired
            .pools
            .iter()
            .map(|pool| pool.name.as_str())
            .collect();
        self.health_states
            .retain(|(pool, _), _| pools.contains(pool.as_str()));
        let is_due = self
            .record_built_at
            .is_none_or(|built_at| built_at.elapsed() >= MEMBER_RECORD_INTERVAL);
        let record = match is_due {
            true => local_state::member_record(config, desired, mtu),
            false => self.local_state.record.clone(),
        };
        if is_due {
            self.record_built_at = Some(Instant::now());
            self.has_uncompared_secrets = local_state::has_uncompared_secrets(config, desired);
        }
        // Like the record, this visits every service and pool.
        let stages_versions = match is_due {
            true => desired.needs_other_version(),
            false => self.local_state.stages_versions,
        };
        let local_state = weir_cluster::LocalState {
            stages_versions,
            ..local_state::local_state(record, &self.health_states, vips, desired.sync.is_none())
        };
        if local_state == self.local_state {
            return;
        }
        // Keep announcing a VIP until the state machine has decided.
        for (vip, serves) in &local_state.vips {
            if !serves && self.local_state.vips.get(vip) == Some(&true) && self.driver.is_some() {
                self.kept_vips.insert(*vip);
            }
        }
        self.kept_vips
            .retain(|vip| local_state.vips.get(vip) == Some(&false));
        self.local_state = local_state.clone();
        self.send(Input::LocalState(Box::new(local_state)));
    }

    /// Compares this director's certificate files with those of the active configuration if either has changed.
    pub(super) fn compare_files(&mut self) {
        let Some(active) = &self.active else {
            self.differing_files = (0, 0, Vec::new());
            return;
        };
        let fingerprint = configuration::own_files_fingerprint(&active.files);
        let (version, compared, _) = self.differing_files;
        if (active.version, fingerprint) != (version, compared) {
            let differing = configuration::differing_files(&active.files);
            self.differing_files = (active.version, fingerprint, differing);
        }
    }

    /// Returns the group's status for the status document; `None` = `[cluster]` is not configured.
    pub(super) fn status(&self) -> Option<GroupStatus> {
        let config = self.config.as_ref()?;
        let status = match &self.driver {
            Some(driver) => GroupStatus::from_driver(config, driver),
            None => GroupStatus::failed(config, self.error.as_deref()),
        };
        Some(GroupStatus {
            record_error: self.store.error(),
            secrets_not_compared: self.has_uncompared_secrets,
            differing_files: self.differing_files.2.clone(),
            ..status
        })
    }

    fn send(&self, input: Input) {
        if let Some(driver) = &self.driver {
            driver.send(input);
        }
    }

    fn save(&mut self) {
        self.store.save(&mut self.record);
    }

    /// Retries writing the record. If this succeeds, also retries the changes from the group that could not be applied,
    /// because a full disk may have been the cause.
    pub(super) fn retry_save(&mut self) {
        self.store.retry_save(&self.record);
        if self.store.retry_at().is_none() {
            let failed_changes = std::mem::take(&mut self.inapplicable_changes).into_iter();
            self.inbox.get_mut().retries.extend(failed_changes);
        }
    }
}
