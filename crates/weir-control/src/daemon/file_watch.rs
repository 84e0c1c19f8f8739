//! Decides when changed files (certificates, lists) are loaded: after they have been unchanged for one interval.
//!
//! A certificate and a key that are replaced within one interval are therefore loaded together.

use std::time::Duration;

/// Interval at which the files are checked. They are loaded at most two intervals after their last change.
pub(super) const INTERVAL: Duration = Duration::from_secs(2);

/// The fingerprints of a set of files (`weir_proxy::certificate_fingerprint`, `weir_proxy::file_fingerprint`), which
/// determine when changed files are loaded.
#[derive(Debug, Default)]
pub(super) struct FileWatch {
    /// Fingerprint of the files in use.
    loaded: Option<u64>,
    /// Fingerprint at the last check.
    last_compared: u64,
    /// Fingerprint of the files that could not be used, and the reason.
    failed: Option<(u64, String)>,
}

impl FileWatch {
    /// Compares the files with their state at the last check, and returns whether to load them. `current` is their
    /// current fingerprint.
    pub(super) fn poll(&mut self, current: u64) -> bool {
        let is_stable = self.last_compared == current;
        self.last_compared = current;
        let Some(loaded) = self.loaded else {
            self.loaded = Some(current);
            return false;
        };
        if loaded == current {
            self.failed = None;
            return false;
        }
        is_stable
            && self
                .failed
                .as_ref()
                .is_none_or(|(failed, _)| *failed != current)
    }

    /// Records that the files with this fingerprint are in use.
    pub(super) fn set_loaded(&mut self, fingerprint: u64) {
        self.loaded = Some(fingerprint);
        self.failed = None;
    }

    /// Records that the files with this fingerprint cannot be used, and why.
    pub(super) fn set_failed(&mut self, fingerprint: u64, reason: String) {
        self.failed = Some((fingerprint, reason));
    }

    /// Returns why the files on disk cannot be used; `None` = they are in use or not loaded yet.
    pub(super) fn problem(&self) -> Option<&str> {
        self.failed.as_ref().map(|(_, reason)| reason.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_loaded_once_stable_and_failed_files_are_not_retried() {
        let mut watch = FileWatch::default();
        assert!(!watch.poll(1));
        assert!(!watch.poll(1));
        assert!(!watch.poll(2));
        assert!(!watch.poll(3));
        assert!(watch.poll(3));
        watch.set_failed(3, "no".to_owned());
        assert!(!watch.poll(3));
        assert_eq!(watch.problem(), Some("no"));
        assert!(!watch.poll(4));
        assert!(watch.poll(4));
        watch.set_loaded(4);
        assert_eq!(watch.problem(), None);
        assert!(!watch.poll(4));
        // The previous files were restored.
        watch.set_failed(5, "no".to_owned());
        assert!(!watch.poll(4));
        assert_eq!(watch.problem(), None);
    }
}
