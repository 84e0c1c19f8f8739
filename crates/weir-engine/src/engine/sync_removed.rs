//! Keeps the rows of removed servers for some time, because other directors may still send those servers' flows.
//!
//! Directors remove a server one after another. A director sends a `maglev` flow only once its own table has changed,
//! because until then the other directors can compute the server. The first director to remove a server may therefore
//! not have the server's flows yet. If it freed the row immediately, it could not insert the flows that the others send
//! afterwards.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use weir_planner::allocation::{DestSlot, Removal};

/// How long the row of a removed server without flows is kept.
const RETENTION: Duration = Duration::from_secs(60);

/// The removed servers, by row and generation, with the time when each was first seen as removed.
#[derive(Debug, Default)]
pub(super) struct RemovedServers(HashMap<(u32, u32), Instant>);

fn key(dest: &DestSlot) -> (u32, u32) {
    (dest.id, dest.generation)
}

impl RemovedServers {
    /// Adopts the current list of removed servers.
    pub(super) fn update<'a>(&mut self, removed: impl Iterator<Item = &'a DestSlot>, now: Instant) {
        let previous = std::mem::take(&mut self.0);
        let since = |dest: &DestSlot| previous.get(&key(dest)).copied().unwrap_or(now);
        self.0.extend(removed.map(|dest| (key(dest), since(dest))));
    }

    /// Returns whether the row of a removed server must be kept although the server has no flows.
    pub(super) fn must_keep(&self, dest: &DestSlot, now: Instant) -> bool {
        let since = self.0.get(&key(dest));
        dest.removed == Some(Removal::Keep) && since.is_some_and(|it| now < *it + RETENTION)
    }
}
