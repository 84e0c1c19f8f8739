//! Decides when changed files (certificates, lists) are loaded: when they did not change for one interval, so that a
//! pair of which one file is still being replaced is not tried too early.

use std::time::Duration;

/// Interval at which the files are compared. A change takes effect after at most three intervals.
pub(super) const INTERVAL: Duration = Duration::from_secs(2);

/// Decides when changed files are loaded, from numbers that identify their contents: those of
/// `weir_proxy::certificate_fingerprint` and `weir_proxy::file_fingerprint`.
#[derive(Debug, Default)]
pub(super) struct FileWatch {
    /// Of the files in use.
    loaded: Option<u64>,
    /// Of the last comparison.
    seen: u64,
    /// Of files that could not be used, and why.
    failed: Option<(u64, String)>,
}

impl FileWatch {
    /// Whether the files should be loaded; `now` is their number.
    pub(super) fn is_due(&mut self, now: u64) -> bool {
        let is_stable = self.seen == now;
        self.seen = now;
        let Some(loaded) = self.loaded else {
            self.loaded = Some(now);
            return false;
        };
        if loaded == now {
            self.failed = None;
            return false;
        }
        is_stable
            && self
                .failed
                .as_ref()
                .is_none_or(|(failed, _)| *failed != now)
    }

    /// The files with this number are in use.
    pub(super) fn set_loaded(&mut self, number: u64) {
        self.loaded = Some(number);
        self.failed = None;
    }

    /// The files with this number cannot be used.
    pub(super) fn set_failed(&mut self, number: u64, why: String) {
        self.failed = Some((number, why));
    }

    /// Why the files on disk are not in use.
    pub(super) fn problem(&self) -> Option<&str> {
        self.failed.as_ref().map(|(_, why)| why.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_loaded_once_they_are_stable_and_failures_are_not_repeated() {
        let mut watch = FileWatch::default();
        assert!(!watch.is_due(1));
        assert!(!watch.is_due(1));
        assert!(!watch.is_due(2));
        assert!(!watch.is_due(3));
        assert!(watch.is_due(3));
        watch.set_failed(3, "no".to_owned());
        assert!(!watch.is_due(3));
        assert_eq!(watch.problem(), Some("no"));
        assert!(!watch.is_due(4));
        assert!(watch.is_due(4));
        watch.set_loaded(4);
        assert_eq!(watch.problem(), None);
        assert!(!watch.is_due(4));
        // The former files are back.
        watch.set_failed(5, "no".to_owned());
        assert!(!watch.is_due(4));
        assert_eq!(watch.problem(), None);
    }
}
