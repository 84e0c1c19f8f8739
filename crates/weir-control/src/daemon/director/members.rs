//! Applies server lists from sources other than the configuration file.

use serde_json::{Map, Value};
use weir_cluster::{Kind, SharedKey};
use weir_model::diff;

use super::Director;
use super::server::unknown_pool;
use crate::api::{ApiError, Reply};
use crate::daemon::group::PendingReply;
use crate::plane::{Plane, WantedConfiguration};

impl<P: Plane> Director<P> {
    /// Waits until a server list may have changed. Cancel-safe.
    pub(crate) async fn wait_for_list_change(&self) {
        self.membership.changed().await;
    }

    /// Updates the watched directories of list files. Returns whether the set of directories has changed.
    pub(crate) fn retry_list_watches(&mut self) -> bool {
        self.membership.check_directories()
    }

    /// Applies the current server lists if they have changed and are plausible.
    pub(crate) async fn apply_lists(&mut self) {
        let Some(lists) = self.membership.read_changes(&self.configured) else {
            return;
        };
        let desired = lists.added_to(&self.configured);
        let changes = diff(&self.desired, &desired);
        let wanted = WantedConfiguration {
            desired: &desired,
            configured: &self.configured,
            text: &self.text,
        };
        match self.plane.apply(wanted).await {
            Ok(revision) => {
                let changes = changes.len();
                tracing::info!(revision, changes, "applied a changed server list");
                self.desired = desired;
                self.membership.commit(&self.configured, lists);
                self.configure_checks();
            }
            Err(error) => {
                tracing::error!(%error, "failed to apply a server list; the previous list stays active");
                self.membership.reject(&lists, &error.to_string());
            }
        }
    }

    /// Adds a server with these keys to a pool, or gives these keys to an added server; `None` removes the server. With
    /// `[sync]` in a group, the reply is delayed until the group has settled the change.
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
        let wanted = WantedConfiguration {
            desired: &desired,
            configured: &self.configured,
            text: &self.text,
        };
        self.plane.apply(wanted).await.map_err(ApiError::new)?;
        self.desired = desired;
        self.membership.commit(&self.configured, lists);
        self.configure_checks();
        tracing::info!(address, "added, changed or removed a server");
        Ok(())
    }
}
