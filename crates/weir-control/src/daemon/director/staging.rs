//! Stages another version of the group's configuration in the engine, so that its servers become the second hop.
//!
//! The data plane can then insert flows to these servers that other directors send.

use std::net::SocketAddr;

use serde_json::Value;
use weir_cluster::{Kind, SharedKey};
use weir_model::{Desired, Pool, Server};

use super::Director;
use crate::api::ServerUpdate;
use crate::configuration;
use crate::group_configuration::GroupConfiguration;
use crate::plane::{Plane, PlaneConfiguration};

impl<P: Plane> Director<P> {
    /// Stages a version, and reports to the group that it is staged, even if staging failed: the rollout must continue,
    /// and the configuration's errors are reported when it is applied.
    pub(super) async fn stage(&mut self, version: u64, publication: &str, replaces: bool) {
        match self.try_stage(publication, replaces).await {
            Ok(false) => {}
            Ok(true) => {
                tracing::info!(version, "staged the servers of another version");
            }
            Err(error) => {
                tracing::warn!(
                    version,
                    error,
                    "failed to stage the servers of the group configuration"
                );
            }
        }
        self.group.finish_staging(version);
    }

    /// Stages the servers of a publication. Returns whether the staged servers have changed.
    async fn try_stage(&mut self, publication: &str, replaces: bool) -> Result<bool, String> {
        let Some(cluster) = &self.configured.cluster else {
            return Ok(false);
        };
        let (text, _) = GroupConfiguration::read_publication(publication)?;
        let other = GroupConfiguration {
            group: cluster.name.clone(),
            text,
            ..GroupConfiguration::default()
        };
        // Only servers are used, so neither secrets nor other files are read.
        let unread = configuration::Secrets::Unread;
        let loaded = configuration::load_in_group(&self.file, false, unread, Some(&other));
        let loaded = loaded.map_err(|rejected| rejected.summary)?;
        let other = self.membership.lists().added_to(&loaded.desired);
        let mut desired = self.desired.clone();
        if !desired.set_other_version(&other, replaces) {
            return Ok(false);
        }
        self.apply_staged(desired).await?;
        Ok(true)
    }

    /// Stages the servers that pools had before these changes.
    pub(super) async fn stage_servers_before(
        &mut self,
        changes: &[(SharedKey, Value)],
        replaces: bool,
    ) {
        let mut desired = self.desired.clone();
        let mut has_changed = false;
        for (key, value) in changes {
            let pool = desired.pool(&key.pool);
            if let Some(servers) = pool.and_then(|pool| servers_before(pool, key, value)) {
                has_changed |= desired.set_servers_before(&key.pool, servers, replaces);
            }
        }
        if !has_changed {
            return;
        }
        match self.apply_staged(desired).await {
            Ok(()) => tracing::info!("staged the servers from before the last change"),
            Err(error) => {
                tracing::warn!(
                    error,
                    "failed to stage the servers from before the last change"
                );
            }
        }
    }

    /// Applies the active configuration with different staged servers.
    async fn apply_staged(&mut self, desired: Desired) -> Result<(), String> {
        let mut configured = self.configured.clone();
        for (pool, staged) in configured.pools.iter_mut().zip(&desired.pools) {
            pool.other_version.clone_from(&staged.other_version);
        }
        let plane_configuration = PlaneConfiguration {
            desired: &desired,
            configured: &configured,
            text: &self.text,
        };
        let applied = self.plane.apply(plane_configuration).await;
        applied.map_err(|error| error.to_string())?;
        (self.desired, self.configured) = (desired, configured);
        Ok(())
    }
}

/// Returns the servers of a pool before a change: an override or an added server. The previous value is not stored, so
/// it is assumed: no override before a new override, drain before the end of an override, and weight 1 before the
/// removal of a server. `None` = the change has no effect on the pool.
fn servers_before(pool: &Pool, key: &SharedKey, value: &Value) -> Option<Vec<Server>> {
    let mut servers = pool.servers.clone();
    let index = servers.iter().position(|server| server.name == key.server);
    let is_removed = value.get("removed") == Some(&Value::Bool(true));
    match (key.kind, index) {
        (Kind::Override, Some(index)) => {
            let update: ServerUpdate = serde_json::from_value(value.clone()).ok()?;
            let server = &mut servers[index];
            if update.0.is_none() {
                server.weight = 0;
            }
            // Without its name, the current override does not apply.
            server.name.clear();
        }
        (Kind::Server, Some(index)) if !is_removed => {
            servers.remove(index);
        }
        (Kind::Server, None) if is_removed => {
            let (address, port) = match key.server.parse::<SocketAddr>() {
                Ok(address) => (address.ip(), Some(address.port())),
                Err(_) => (key.server.parse().ok()?, None),
            };
            servers.push(Server::new(&key.server, address, port));
        }
        (Kind::Override, None) | (Kind::Server, _) => return None,
    }
    Some(servers)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn servers_before_a_change_are_derived_from_the_change() {
        let server = |name: &str| Server {
            weight: 3,
            ..Server::new(name, name.parse().unwrap(), None)
        };
        let mut pool = Pool::new("web");
        pool.servers = vec![server("10.0.0.1"), server("10.0.0.2")];
        let before = |kind, server: &str, value: Value| {
            let key = SharedKey {
                kind,
                pool: "web".to_owned(),
                server: server.to_owned(),
            };
            let servers = servers_before(&pool, &key, &value)?;
            let servers = servers.into_iter();
            Some(servers.map(|it| (it.name, it.weight)).collect::<Vec<_>>())
        };
        let named = |name: &str, weight| (name.to_owned(), weight);
        let other = named("10.0.0.2", 3);
        for value in [json!({"state": "drain"}), json!({"weight": 1})] {
            let actual = before(Kind::Override, "10.0.0.1", value);
            assert_eq!(actual, Some(vec![named("", 3), other.clone()]));
        }
        let actual = before(Kind::Override, "10.0.0.1", json!({"state": "ready"}));
        assert_eq!(actual, Some(vec![named("", 0), other.clone()]));
        let actual = before(Kind::Server, "10.0.0.1", json!({}));
        assert_eq!(actual, Some(vec![other.clone()]));
        let removed = json!({"removed": true});
        let actual = before(Kind::Server, "10.0.0.9", removed.clone());
        let removed_server = named("10.0.0.9", 1);
        assert_eq!(
            actual,
            Some(vec![named("10.0.0.1", 3), other, removed_server])
        );
        for (kind, server, value) in [
            (Kind::Override, "10.0.0.9", json!({"state": "drain"})),
            (Kind::Override, "10.0.0.1", json!({"state": "unknown"})),
            (Kind::Server, "10.0.0.1", removed.clone()),
            (Kind::Server, "10.0.0.9", json!({})),
            (Kind::Server, "name", removed),
        ] {
            assert_eq!(before(kind, server, value), None, "{server}");
        }
    }
}
