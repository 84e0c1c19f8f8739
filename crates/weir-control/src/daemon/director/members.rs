//! Applies the servers of other lists in addition to the configuration.

use serde_json::{Map, Value};
use weir_model::diff;

use super::Director;
use crate::api::Refusal;
use crate::daemon::plane::Plane;

impl<P: Plane> Director<P> {
    /// Waits until a list of servers may have changed. Dropping the future loses nothing.
    pub async fn wait_for_list_change(&self) {
        self.membership.changed().await;
    }

    /// Whether a list can be watched that could not.
    pub fn retry_list_watches(&mut self) -> bool {
        self.membership.check_directories()
    }

    /// Brings the lists of servers into force as they are now, as far as they can be believed.
    pub async fn apply_lists(&mut self) {
        let Some(lists) = self.membership.news(&self.configured) else {
            return;
        };
        let desired = lists.added_to(&self.configured);
        let changes = diff(&self.desired, &desired);
        match self.plane.apply(&desired).await {
            Ok(revision) => {
                let changes = changes.len();
                tracing::info!(revision, changes, "a list of servers changed");
                self.desired = desired;
                self.membership.commit(&self.configured, lists);
                self.configure_checks();
            }
            Err(error) => {
                tracing::error!(%error, "a list of servers cannot be had; the last one stays");
                self.membership.reject(&lists, &error.to_string());
            }
        }
    }

    /// Adds a server to a pool or changes one that was added so, by what it shall have; takes it out when that is
    /// nothing.
    pub(super) async fn member(
        &mut self,
        pool: &str,
        address: &str,
        keys: Option<Map<String, Value>>,
    ) -> Result<(), Refusal> {
        let Some(pool) = self.configured.pool(pool) else {
            return Err(Refusal::new(format!("there is no pool {pool}")));
        };
        let lists = match keys {
            Some(keys) => self.membership.with(&self.configured, pool, address, keys),
            None => self.membership.without(&self.configured, pool, address),
        };
        let lists = lists.map_err(Refusal::new)?;
        let desired = lists.added_to(&self.configured);
        self.plane.apply(&desired).await.map_err(Refusal::new)?;
        self.desired = desired;
        self.membership.commit(&self.configured, lists);
        self.configure_checks();
        tracing::info!(address, "a server was added, changed or taken out");
        Ok(())
    }
}
