//! What is known to be in the store, and was not reported by the watch.
//!
//! A watch can end without notice: behind a proxy that has lost the connection, or at a member of etcd that is cut off
//! from the others while requests go to another one.

use std::time::Duration;

/// How long the watch may take to report what is in the store.
const WATCH_LAG: Duration = Duration::from_secs(10);
/// A director that writes nothing for so long writes a key again, which the watch must report.
pub(crate) const ROUTINE_WRITE: Duration = Duration::from_secs(15);

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Lag {
    /// The newest revision of a key of the group, by an answer to a transaction.
    known: i64,
    /// The newest revision that the watch has reported.
    reported: i64,
    /// When the watch last made progress, or had nothing to report.
    since: Option<Duration>,
}

impl Lag {
    /// A key of the group has this revision; the watch has reported all changes up to `reported`.
    pub(crate) fn learn(&mut self, revision: i64, reported: i64, now: Duration) {
        self.known = self.known.max(revision);
        if self.known > reported {
            self.since.get_or_insert(now);
        }
    }

    /// The watch has reported all changes up to this revision.
    pub(crate) fn reported(&mut self, revision: i64, now: Duration) {
        if self.known <= revision {
            self.since = None;
        } else if revision > self.reported {
            self.since = Some(now);
        }
        self.reported = self.reported.max(revision);
    }

    /// Whether the keys must be read again.
    pub(crate) fn is_too_long(&self, now: Duration) -> bool {
        self.since.is_some_and(|since| now >= since + WATCH_LAG)
    }
}

/// Why.
pub(crate) fn reason() -> String {
    let seconds = WATCH_LAG.as_secs();
    format!("the watch reported nothing for {seconds} s")
}
