//! Checks the output of the scripts for `separation` and `units`.
//!
//! Also checks a test daemon's log for its attempts to escape its confinement (`WEIR_TEST_ATTEMPTS`).

/// Asserts that a script printed the lines. The message starts with the first difference, because CI truncates logs.
pub(crate) fn assert_lines(text: &str, expected: &[&str], log: &str) {
    let lines: Vec<&str> = text.lines().collect();
    let length = lines.len().max(expected.len());
    let different = (0..length).find(|&i| lines.get(i) != expected.get(i));
    if let Some(i) = different {
        let (line, expected_line) = (lines.get(i), expected.get(i));
        panic!("line {i} is {line:?} instead of {expected_line:?} in:\n{text}\nlog:\n{log}");
    }
}

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
