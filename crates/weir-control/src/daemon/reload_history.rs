//! Stores the last reloads for the status.

use std::collections::VecDeque;
use std::time::SystemTime;

use crate::api::{ApiError, ReloadResponse};
use crate::status::{Reload, ReloadCounts, rfc3339};

/// Maximum number of reloads to keep, and maximum number of changes in each.
const MAX_RELOADS: usize = 20;
const MAX_CHANGES: usize = 50;

/// The last reloads of this process, newest last.
#[derive(Debug, Default)]
pub(super) struct ReloadHistory {
    reloads: VecDeque<Reload>,
    counts: ReloadCounts,
}

impl ReloadHistory {
    /// Adds the result of a reload that ended at `ended_at`.
    pub(super) fn add(&mut self, result: &Result<ReloadResponse, ApiError>, ended_at: SystemTime) {
        let mut reload = Reload {
            at: rfc3339(ended_at),
            ..Reload::default()
        };
        match result {
            Ok(reloaded) => {
                self.counts.applied += 1;
                reload.revision = Some(reloaded.revision);
                reload.changes = reloaded.changes.iter().take(MAX_CHANGES).cloned().collect();
                let omitted = reloaded.changes.len().saturating_sub(MAX_CHANGES);
                if omitted > 0 {
                    reload.changes.push(format!("and {omitted} more changes"));
                }
            }
            Err(error) => {
                self.counts.refused += 1;
                reload.error = Some(error.error.clone());
            }
        }
        if self.reloads.len() == MAX_RELOADS {
            self.reloads.pop_front();
        }
        self.reloads.push_back(reload);
    }

    /// Returns the last reloads, oldest first.
    pub(super) fn all(&self) -> Vec<Reload> {
        self.reloads.iter().cloned().collect()
    }

    /// Returns the numbers of applied and rejected reloads in this process, including those that are no longer stored.
    pub(super) const fn counts(&self) -> ReloadCounts {
        self.counts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn history_keeps_the_last_reloads_and_counts_all() {
        let mut history = ReloadHistory::default();
        for revision in 1..=30 {
            let changes = vec!["~ pool p".to_owned(); 60];
            let reloaded = ReloadResponse {
                revision,
                changes,
                findings: String::new(),
            };
            history.add(&Ok(reloaded), SystemTime::UNIX_EPOCH);
        }
        history.add(&Err(ApiError::new("no")), SystemTime::UNIX_EPOCH);
        let counts = history.counts();
        assert_eq!((counts.applied, counts.refused), (30, 1));
        let all = history.all();
        assert_eq!(all.len(), MAX_RELOADS);
        assert_eq!(all[0].revision, Some(12));
        assert_eq!(all[0].changes.len(), MAX_CHANGES + 1);
        assert_eq!(all[0].changes[MAX_CHANGES], "and 10 more changes");
        assert_eq!(all[MAX_RELOADS - 1].error.as_deref(), Some("no"));
    }
}
