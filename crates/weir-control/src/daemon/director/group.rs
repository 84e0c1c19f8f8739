//! Executes commands from the group of directors, and publishes configurations for operators.

use serde_json::Value;
use weir_cluster::{Kind, Output, SharedKey};
use weir_model::{Secret, SecretSource};
use weir_state::HealthEvent;

use super::{Director, to_api_error};
use crate::api::{
    ApiError, Caller, FileRequest, PublishRequest, PublishResponse, ReloadResponse, Reply,
    ServerUpdate,
};
use crate::configuration::{self, Finding};
use crate::daemon::group::{GroupEvent, PendingReply};
use crate::group_configuration::{GroupConfiguration, PublishedFiles};
use crate::plane::Plane;

impl<P: Plane> Director<P> {
    /// Waits for an event from the group. Cancel-safe.
    pub(in crate::daemon) async fn wait_for_group(&self) -> GroupEvent {
        self.group.next().await
    }

    /// Handles an event from the group.
    pub(in crate::daemon) async fn handle_group(&mut self, event: GroupEvent) {
        let command = match event {
            GroupEvent::Applied(result) => return self.finish(result),
            GroupEvent::Settling => {
                let is_moving = self.is_moving_flows();
                let overdue = self.group.poll_settling(is_moving);
                return self.reply(overdue);
            }
            GroupEvent::RetrySave => return self.group.retry_save(),
            GroupEvent::Command(command) => command,
        };
        match command {
            Output::Apply {
                version,
                text,
                guard_ms,
                ..
            } => self.apply_publication(version, &text, guard_ms).await,
            Output::Stage {
                version,
                text,
                replaces,
            } => self.stage(version, &text, replaces).await,
            Output::LastChanges { changes, replaces } => {
                self.stage_servers_before(&changes, replaces).await;
            }
            Output::PreviousStaged => {
                self.group.finish_staging_previous();
                self.announce();
            }
            Output::Shared { key, value } => {
                let applied = self.apply_shared(&key, value.clone()).await;
                if let Err(error) = &applied {
                    let (pool, server) = (&key.pool, &key.server);
                    tracing::debug!(%error, pool, server, "a change from the group does not apply to this director");
                }
                self.group.record_change(key, value, applied.is_ok());
            }
            Output::Settle { revision } => self.group.await_flow_sync(revision),
            Output::Settled { key } => {
                let settled = self.group.take_settled_replies(&key);
                self.reply(settled);
            }
            Output::Published { request, result } => {
                let result = result.map_err(|error| error.to_string());
                self.group.finish_publish(request, result);
            }
            Output::Decided { held, withdrawn } => {
                self.group.set_decision(&held, &withdrawn);
                // Withdraw first, because writing the record of a large group takes time.
                self.announce();
                self.group.record_held_vips(held);
            }
            Output::Verdicts(verdicts) => {
                let events = self.group.set_verdicts(verdicts);
                self.apply_changed_verdicts(events);
            }
            Output::Save(shared) => self.group.save_shared(shared),
            // The driver executes these commands.
            Output::List
            | Output::Watch { .. }
            | Output::Grant { .. }
            | Output::Renew { .. }
            | Output::Txn { .. } => {}
        }
    }

    /// Starts applying a publication.
    async fn apply_publication(&mut self, version: u64, publication: &str, guard_ms: u64) {
        tracing::info!(version, "applying the group configuration");
        let (candidate, reply) = match self.group.apply(version, publication, guard_ms) {
            Ok(started) => started,
            Err(error) => return self.finish(Err(error)),
        };
        let request = FileRequest {
            group: Some(candidate),
            guard_ms: (guard_ms > 0).then_some(guard_ms),
            ..FileRequest::default()
        };
        self.execute_reload(&request, &Caller::this_process(), reply)
            .await;
    }

    /// Applies the states of servers whose verdicts have changed.
    fn apply_changed_verdicts(&mut self, events: Vec<HealthEvent>) {
        if let Err(error) = self.plane.apply_health(events) {
            tracing::error!(%error, "failed to apply the group's verdicts on servers");
        }
        self.notify_pool_changes();
    }

    /// Joins or leaves the group as the active configuration requires.
    pub(super) fn configure_group(&mut self) {
        let events = self.group.configure(self.configured.cluster.as_ref());
        if !events.is_empty() {
            self.apply_changed_verdicts(events);
        }
    }

    /// Reports the result of applying a group configuration. After this director has reported success, another director
    /// may stop or join, so success is reported only once the moved flows have been sent.
    fn finish(&mut self, result: Result<ReloadResponse, ApiError>) {
        if result.is_ok() && self.group.may_delay_result() && self.is_moving_flows() {
            self.group.delay_result(result);
        } else {
            self.group.finish_apply(result);
            self.remove_unused_files();
        }
    }

    /// Removes received certificate files that the active configuration does not use.
    fn remove_unused_files(&self) {
        let active = self.group.active().map(AsRef::as_ref);
        configuration::remove_unused_files(active, self.runtime_dir.path());
    }

    /// Replies to a request that changed a server: with `[sync]` in a group, after the group has settled the change;
    /// otherwise immediately.
    pub(super) fn reply_when_settled(&mut self, key: SharedKey, reply: PendingReply) {
        let reply = match self.configured.sync {
            Some(_) => self.group.defer_reply(key.clone(), reply),
            None => Some(reply),
        };
        self.reply(reply.map(|reply| (key, reply)).into_iter().collect());
    }

    fn reply(&self, replies: Vec<(SharedKey, PendingReply)>) {
        for (key, reply) in replies {
            match reply {
                PendingReply::Server(reply) => {
                    let _ = reply.send(self.server_status(&key.pool, &key.server));
                }
                PendingReply::Member(reply) => {
                    let _ = reply.send(Ok(()));
                }
            }
        }
    }

    /// Applies an override or an added server from another director.
    async fn apply_shared(&mut self, key: &SharedKey, value: Value) -> Result<(), ApiError> {
        match key.kind {
            Kind::Override => {
                let update: ServerUpdate = serde_json::from_value(value).map_err(ApiError::new)?;
                let server = self.find(&key.pool, &key.server)?;
                if self.plane.active_override(&key.pool, &server) != update.0 {
                    self.update_server(&key.pool, &server, update).await?;
                }
            }
            Kind::Server => {
                let keys = match value {
                    Value::Object(keys) if keys.get("removed") != Some(&Value::Bool(true)) => {
                        Some(keys)
                    }
                    _ => None,
                };
                let (pool, server) = (&key.pool, &key.server);
                let address = weir_config::server_address(server);
                if keys.is_some()
                    && let Some(reason) = self.configured.unshareable_reason(pool, address)
                {
                    return Err(ApiError::new(format!("{server} {reason}")));
                }
                self.change_member(&key.pool, &key.server, keys).await?;
            }
        }
        Ok(())
    }

    /// Validates a configuration on this director and publishes it. If the certificate files that it refers to can be
    /// encrypted, publishes them too.
    pub(super) fn publish(&mut self, request: PublishRequest, reply: Reply<PublishResponse>) {
        let publishable = self.publishable(&request);
        // The validation has written the files of the candidate. The rollout writes them again.
        if !self.group.is_applying() {
            self.remove_unused_files();
        }
        match publishable {
            Ok((configuration, findings)) => {
                let (publication, guard_ms) =
                    (configuration.to_publication(), configuration.guard_ms);
                self.group.publish(publication, guard_ms, findings, reply);
            }
            Err(error) => drop(reply.send(Err(error))),
        }
    }

    /// Returns the configuration to publish, without its version, and warnings about certificates and other files.
    ///
    /// # Errors
    /// Fails if `[cluster]` is not configured, if the configuration is invalid on this director or conflicts with
    /// ipvsadm's services, if a certificate file that it names cannot be read, or if it would put unencrypted secrets
    /// into etcd.
    fn publishable(
        &self,
        request: &PublishRequest,
    ) -> Result<(GroupConfiguration, String), ApiError> {
        let Some(cluster) = &self.configured.cluster else {
            return Err(ApiError::new("[cluster] is not configured"));
        };
        let mut candidate = GroupConfiguration {
            group: cluster.name.clone(),
            text: request.text.clone(),
            guard_ms: request.guard_ms,
            ..GroupConfiguration::default()
        };
        let (path, directory) = (self.file.as_path(), self.runtime_dir.path());
        let read = configuration::Secrets::Read;
        let loaded = configuration::load_in_group(path, request.color, read, Some(&candidate));
        let mut loaded = loaded.map_err(to_api_error)?;
        if cluster.group_key.is_some() && !request.local_files {
            let no_files = PublishedFiles::default();
            let previous = self.group.active().map_or(&no_files, |it| &it.files);
            let read = configuration::read_published_files(loaded, previous, path);
            (loaded, candidate.files) = read.map_err(to_api_error)?;
        }
        let loaded = configuration::with_published_files(loaded, Some(&candidate), directory)
            .and_then(|loaded| configuration::with_usable_files(loaded, path))
            .map_err(to_api_error)?;
        if let Some(conflict) = self.plane.listener_conflict(&loaded.desired) {
            return Err(ApiError::new(format!("{}:{conflict}", path.display())));
        }
        let findings = loaded.found_on_host().map(Finding::render).collect();
        if cluster.group_key.is_some() {
            return Ok((candidate, findings));
        }
        let own_part = configuration::load_own(&self.file, request.color).map_err(to_api_error)?;
        let is_text = |secret: &&Secret| *secret.source() == SecretSource::Text;
        let exposed = loaded.desired.secrets().filter(is_text).count();
        if exposed > own_part.desired.secrets().filter(is_text).count() {
            return Err(ApiError::new(
                "the configuration contains secrets; configure `group_key` in [cluster], so that they are encrypted \
                 in etcd",
            ));
        }
        Ok((candidate, findings))
    }
}
