//! Checks the log of a test daemon for its attempts to escape its confinement (`WEIR_TEST_ATTEMPTS`).

/// Asserts that the daemon made each attempt, that each one failed with its error, and that no attempt succeeded.
pub(crate) fn assert_attempts_failed(log: &str, attempts: &[(&str, &str)]) {
    for (attempt, error) in attempts {
        let quoted = format!("attempt=\"{attempt}\"");
        let mut lines = log.lines().filter(|line| line.contains(&quoted));
        assert!(lines.all(|line| line.contains(error)), "{attempt}: {log}");
        assert!(log.contains(&quoted), "{attempt}: {log}");
    }
    assert!(!log.contains("succeeded"), "{log}");
}
