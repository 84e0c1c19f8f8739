//! Parses lines of a saved table, for `-R`.

/// Splits a line into words at whitespace, and drops every word `ipvsadm`. A line without words has no effect. `#` has
/// no special meaning.
pub fn words(line: &str) -> Vec<String> {
    line.split([' ', '\t', '\r', '\n'])
        .filter(|word| !word.is_empty() && *word != "ipvsadm")
        .map(str::to_owned)
        .collect()
}

/// Returns the message for a failure to read standard input.
pub fn read_error(error: &dyn std::fmt::Display) -> String {
    format!("ipvsadm: standard input: {error}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn program_name_is_dropped_from_lines() {
        assert_eq!(
            words("ipvsadm -A\t-t 1.2.3.4:80 \r\n"),
            ["-A", "-t", "1.2.3.4:80"]
        );
        assert!(words("  \t").is_empty());
        assert!(words("ipvsadm").is_empty());
    }

    #[test]
    fn failure_to_read_names_the_input() {
        let message = read_error(&"Input/output error");
        assert_eq!(message, "ipvsadm: standard input: Input/output error\n");
    }
}
