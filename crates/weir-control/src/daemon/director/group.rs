//! Orders of the group of directors, and publications by operators.

use std::sync::Arc;

use serde_json::Value;
use weir_cluster::{Kind, Output, SharedKey};
use weir_model::{Secret, SecretSource};

use super::{Director, refused};
use crate::api::{
    Caller, FileRequest, PublishRequest, Published, Refusal, Reloaded, Reply, ServerOrder,
};
use crate::configuration;
use crate::daemon::group::{GroupEvent, Held};
use crate::group_configuration::GroupConfiguration;
use crate::plane::Plane;

impl<P: Plane> Director<P> {
    /// Waits for an order of the group. Cancel-safe.
    pub(in crate::daemon) async fn wait_for_group(&self) -> GroupEvent {
        self.group.next().await
    }

    /// Executes an order of the group.
    pub(in crate::daemon) async fn handle_group(&mut self, event: GroupEvent) {
        let order = match event {
            GroupEvent::Applied(result) => return self.finish(result),
            GroupEvent::Settling => {
                let is_moving = self.is_moving_flows();
                let overdue = self.group.look_at_flows(is_moving);
                return self.reply(overdue);
            }
            GroupEvent::Order(order) => order,
        };
        match order {
            Output::Apply {
                version,
                text,
                guard_ms,
                ..
            } => {
                tracing::info!(version, "applying the configuration of the group");
                let (candidate, reply) = self.group.apply(version, text);
                let request = FileRequest {
                    group: Some(candidate),
                    guard_ms: (guard_ms > 0).then_some(guard_ms),
                    ..FileRequest::default()
                };
                self.guarded_reload(&request, &Caller::this_process(), reply)
                    .await;
            }
            Output::Shared { key, value } => {
                let adopted = self.adopt(&key, value.clone()).await;
                if let Err(error) = &adopted {
                    let (pool, server) = (&key.pool, &key.server);
                    tracing::debug!(%error, pool, server, "a change from the group does not apply here");
                }
                self.group.adopted(key, value, adopted.is_ok());
            }
            Output::Settle { revision } => self.group.settle(revision),
            Output::Settled { key } => {
                let settled = self.group.settled(&key);
                self.reply(settled);
            }
            Output::Published { request, result } => {
                let result = result.map_err(|error| error.to_string());
                self.group.published_as(request, result);
            }
            Output::Held(held) => {
                self.group.set_held(held);
                self.announce();
            }
            Output::Verdicts(verdicts) => {
                let news = self.group.set_verdicts(verdicts);
                if let Err(error) = self.plane.apply_health(news) {
                    tracing::error!(%error, "failed to apply the group's view of servers");
                }
                self.notify_pool_changes();
            }
            Output::Save(shared) => self.group.keep(shared),
            // The driver executes these.
            Output::List
            | Output::Watch { .. }
            | Output::Grant { .. }
            | Output::Renew { .. }
            | Output::Txn { .. } => {}
        }
    }

    /// Reports the result of a configuration of the group. Another director may fail, or join, as soon as this one
    /// reports success.
    fn finish(&mut self, result: Result<Reloaded, Refusal>) {
        if result.is_ok() && self.group.may_wait() && self.is_moving_flows() {
            self.group.wait(result);
        } else {
            self.group.applied(result);
        }
    }

    /// Replies to an order that has changed a server, as soon as the group has settled it.
    pub(super) fn reply_when_settled(&mut self, key: SharedKey, held: Held) {
        let held = match self.configured.sync {
            Some(_) => self.group.hold(key.clone(), held),
            None => Some(held),
        };
        self.reply(held.map(|held| (key, held)).into_iter().collect());
    }

    fn reply(&self, replies: Vec<(SharedKey, Held)>) {
        for (key, held) in replies {
            match held {
                Held::Server(reply) => {
                    let _ = reply.send(self.server_now(&key.pool, &key.server));
                }
                Held::Member(reply) => {
                    let _ = reply.send(Ok(()));
                }
            }
        }
    }

    /// Adopts an override or an added server of another director.
    async fn adopt(&mut self, key: &SharedKey, value: Value) -> Result<(), Refusal> {
        match key.kind {
            Kind::Override => {
                let order: ServerOrder = serde_json::from_value(value).map_err(Refusal::new)?;
                let server = self.find(&key.pool, &key.server)?;
                if self.plane.overridden(&key.pool, &server) != order.0 {
                    self.order_server(&key.pool, &server, order).await?;
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
                    && let Some(reason) = self.configured.unshareable(pool, address)
                {
                    return Err(Refusal::new(format!("{server} {reason}")));
                }
                self.order_member(&key.pool, &key.server, keys).await?;
            }
        }
        Ok(())
    }

    /// Validates a configuration here, and publishes it.
    pub(super) fn publish(&mut self, request: PublishRequest, reply: Reply<Published>) {
        match self.publishable(&request) {
            Ok(()) => self.group.publish(request.text, request.guard_ms, reply),
            Err(refusal) => drop(reply.send(Err(refusal))),
        }
    }

    fn publishable(&self, request: &PublishRequest) -> Result<(), Refusal> {
        let Some(cluster) = &self.configured.cluster else {
            return Err(Refusal::new("[cluster] is not configured"));
        };
        let candidate = Arc::new(GroupConfiguration {
            group: cluster.name.clone(),
            version: 0,
            text: request.text.clone(),
        });
        let file = FileRequest {
            group: Some(candidate),
            color: request.color,
            ..FileRequest::default()
        };
        let (path, loaded) = self.load(&file, &Caller::this_process())?;
        if let Some(conflict) = self.plane.listener_conflict(&loaded.desired) {
            return Err(Refusal::new(format!("{}:{conflict}", path.display())));
        }
        if cluster.group_key.is_some() {
            return Ok(());
        }
        let own = configuration::load_own(&self.file, request.color).map_err(refused)?;
        let is_text = |it: &&Secret| *it.source() == SecretSource::Text;
        let exposed = loaded.desired.secrets().filter(is_text).count();
        if exposed > own.desired.secrets().filter(is_text).count() {
            return Err(Refusal::new(
                "the configuration contains secrets; configure `group_key` in [cluster], so that they are encrypted \
                 in etcd",
            ));
        }
        Ok(())
    }
}
