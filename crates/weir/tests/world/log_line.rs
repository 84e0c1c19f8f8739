//! Checks that log lines are plain text, without debug output of Rust values.

/// Returns the first line of a log that contains debug output outside quoted text, such as `State(Drain)`,
/// `Errno { … }`, `None`, or `1.5s` for a duration.
pub(crate) fn find_debug_output(log: &str) -> Option<&str> {
    log.lines().find(|line| {
        let plain = without_quoted(line);
        plain.split(' ').any(is_debug_output)
            || plain.match_indices(" {").any(|(index, _)| {
                let word = plain[..index].rsplit([' ', '=', '(']).next().unwrap_or("");
                is_type_name(word)
            })
    })
}

/// Returns the line without its quoted parts, which may contain any text from clients and servers.
fn without_quoted(line: &str) -> String {
    line.split('"').step_by(2).collect()
}

fn is_type_name(word: &str) -> bool {
    let mut letters = word.chars();
    letters
        .next()
        .is_some_and(|first| first.is_ascii_uppercase())
        && letters.clone().any(|letter| letter.is_ascii_lowercase())
        && letters.all(|letter| letter.is_ascii_alphanumeric())
}

fn is_debug_output(word: &str) -> bool {
    let value = word.rsplit('=').next().unwrap_or(word);
    let is_variant = word
        .split_once('(')
        .is_some_and(|(name, _)| is_type_name(name.rsplit('=').next().unwrap_or(name)));
    let is_duration = word.contains('=')
        && ["ns", "µs", "ms", "s"].iter().any(|unit| {
            let number = value.strip_suffix(unit);
            number.is_some_and(|number| number.parse::<f64>().is_ok())
        });
    is_variant || is_duration || word.contains('=') && value == "None"
}

#[test]
fn debug_output_is_distinguished_from_text() {
    for line in [
        " INFO an operator's override pool=\"app\" request=State(Drain)",
        "WARN x error=Os { code: 2, kind: NotFound }",
        "WARN x since=None",
        "ERROR x pause=100ms",
        "ERROR x pause=1.5s",
        "WARN Some(3) servers",
    ] {
        assert_eq!(find_debug_output(line), Some(line));
    }
    for line in [
        "2026-11-23T06:22:23Z  INFO pool state changed pool=\"web\" from=\"up\" to=\"down\"",
        "WARN x error=No such file or directory (os error 2)",
        "WARN RLIMIT_NOFILE (1024) is low lost=3 seconds=2",
        "WARN x why=\"Some(State { a: 1 })\"",
        "INFO Weir listens address=127.0.0.1:80",
    ] {
        assert_eq!(find_debug_output(line), None);
    }
}
