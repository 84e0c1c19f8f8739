//! Applies server lists from sources other than the configuration file.

use serde_json::{Map, Value};
use weir_cluster::{Kind, SharedKey};
use weir_model::{Desired, Forward, diff};

use super::Director;
use super::server::unknown_pool;
use crate::api::{ApiError, Reply};
use crate::daemon::group::PendingReply;
use crate::plane::{Plane, PlaneConfiguration};

impl<P: Plane> Director<P> {
    /// Waits until a server list may have changed. Cancel-safe.
    pub(crate) async fn wait_for_list_change(&self) {
        self.membership.changed().await;
    }

    /// Updates the watched directories of list files. Returns whether the set of directories has changed.
    pub(crate) fn update_list_watches(&mut self) -> bool {
        self.membership.check_directories()
    }

    /// Applies the current server lists if they have changed and are plausible.
    pub(crate) async fn apply_lists(&mut self) {
        let Some(lists) = self.membership.read_changes(&self.configured) else {
            return;
        };
        let desired = lists.added_to(&self.configured);
        let changes = diff(&self.desired, &desired);
        let plane_configuration = PlaneConfiguration {
            desired: &desired,
            configured: &self.configured,
            text: &self.text,
        };
        match self.plane.apply(plane_configuration).await {
            Ok(revision) => {
                let changes = changes.len();
                tracing::info!(revision, changes, "applied a changed server list");
                self.desired = desired;
                self.membership.commit(&self.configured, lists);
                self.configure_checks();
            }
            Err(error) => {
                tracing::error!(%error, "failed to apply a server list; the previous list remains in use");
                self.membership.reject(&lists, &error.to_string());
            }
        }
    }

    /// Adds a server with these keys to a pool, or replaces the keys of an added server; `None` removes the server.
    /// With `[sync]` in a group, the reply is delayed until the group has settled the change.
    pub(super) async fn request_member_change(
        &mut self,
        pool: &str,
        address: &str,
        keys: Option<Map<String, Value>>,
        reply: Reply<()>,
    ) {
        if let Err(error) = self.change_member(pool, address, keys.clone()).await {
            return drop(reply.send(Err(error)));
        }
        let value = match keys {
            Some(keys) => Value::Object(keys),
            None => serde_json::json!({ "removed": true }),
        };
        self.group.share(Kind::Server, pool, address, value);
        let key = SharedKey {
            kind: Kind::Server,
            pool: pool.to_owned(),
            server: address.to_owned(),
        };
        self.reply_when_settled(key, PendingReply::Member(reply));
    }

    /// Adds, changes or removes a server, as requested on this director or on another director of the group.
    pub(super) async fn change_member(
        &mut self,
        pool: &str,
        address: &str,
        keys: Option<Map<String, Value>>,
    ) -> Result<(), ApiError> {
        let Some(pool) = self.configured.pool(pool) else {
            return Err(unknown_pool(&self.configured, pool));
        };
        if let Some(keys) = &keys {
            reject_limit(&self.configured, &pool.name, keys)?;
        }
        let lists = match keys {
            Some(keys) => self
                .membership
                .with_server(&self.configured, pool, address, keys),
            None => self
                .membership
                .without_server(&self.configured, pool, address),
        };
        let lists = lists.map_err(ApiError::new)?;
        let desired = lists.added_to(&self.configured);
        // The group also reports this director's own changes.
        if desired == self.desired {
            self.membership.commit(&self.configured, lists);
            return Ok(());
        }
        let plane_configuration = PlaneConfiguration {
            desired: &desired,
            configured: &self.configured,
            text: &self.text,
        };
        self.plane
            .apply(plane_configuration)
            .await
            .map_err(ApiError::new)?;
        self.desired = desired;
        self.membership.commit(&self.configured, lists);
        self.configure_checks();
        tracing::info!(address, "added, changed or removed a server");
        Ok(())
    }
}

/// Rejects `max_connections` for a server whose selection must not depend on one director's connections, as
/// `weir check` does for the servers in the configuration.
fn reject_limit(
    configured: &Desired,
    pool: &str,
    keys: &Map<String, Value>,
) -> Result<(), ApiError> {
    let has_limit = keys
        .get("max_connections")
        .is_some_and(|limit| limit.as_u64() != Some(0));
    let mut services = configured.services.iter();
    let needs_sync = configured.cluster.is_some()
        && configured.sync.is_none()
        && services.any(|it| it.pool == pool && it.forward != Forward::Socket);
    if has_limit && needs_sync {
        return Err(ApiError::new(format!(
            "`max_connections` needs [sync] in a group of directors, because layer 4 services use the pool {pool} and \
             each director counts only its own connections; omit `max_connections`, or add [sync]"
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use weir_config::{Host, parse};

    use super::*;

    const GROUP: &str =
        "[cluster]\nname = \"edge\"\nmember = \"lb1\"\netcd = [\"http://127.0.0.1:1\"]\n";
    const POOL: &str = "[pool.web]\nservers = [\"10.0.0.5:80\"]\n";
    const MAGLEV: &str = "scheduler = \"maglev\"\n";
    const SYNC: &str = "[sync]\nlisten = \"10.0.0.1:8482\"\npeers = [\"10.0.0.2:8482\"]\nkey = \"0123456789abcdef\"\n";

    #[test]
    fn limit_of_added_server_needs_flow_synchronization_in_a_group() {
        let layer_4 =
            "[service.web]\nlisten = [\"192.0.2.1:80\"]\nforward = \"direct\"\npool = \"web\"\n";
        let proxied = layer_4.replace("\"direct\"", "\"proxy\"\nprotocol = \"tcp\"");
        let proxied = proxied.as_str();
        // The parts of the configuration, the limit, and whether it is permitted.
        for (parts, limit, is_permitted) in [
            (&[MAGLEV, GROUP, layer_4][..], 5, false),
            (&[MAGLEV, GROUP, layer_4], 0, true),
            (&[MAGLEV, GROUP, SYNC, layer_4], 5, true),
            (&[GROUP, proxied], 5, true),
            (&[MAGLEV, layer_4], 5, true),
        ] {
            let text = format!("{POOL}{}", parts.concat());
            let configured = match parse(&text, &Host::default()) {
                Ok(parsed) => parsed.desired,
                Err(found) => panic!("{text}: {found:?}"),
            };
            let keys = Map::from_iter([("max_connections".to_owned(), Value::from(limit))]);
            let result = reject_limit(&configured, "web", &keys);
            assert_eq!(result.is_ok(), is_permitted, "{text}");
            assert!(reject_limit(&configured, "web", &Map::new()).is_ok());
        }
    }
}
