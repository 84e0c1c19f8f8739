//! `-R`: lines of a saved table.

/// Splits a line at blanks and drops every word `ipvsadm`; no words = nothing to do. `#` means nothing here.
pub fn words(line: &str) -> Vec<String> {
    line.split([' ', '\t', '\r', '\n'])
        .filter(|word| !word.is_empty() && *word != "ipvsadm")
        .map(str::to_owned)
        .collect()
}

/// What is said of input that cannot be read.
pub fn read_error(error: &dyn std::fmt::Display) -> String {
    format!("ipvsadm: standard input: {error}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_its_words_without_the_tools_name() {
        assert_eq!(
            words("ipvsadm -A\t-t 1.2.3.4:80 \r\n"),
            ["-A", "-t", "1.2.3.4:80"]
        );
        assert!(words("  \t").is_empty());
        assert!(words("ipvsadm").is_empty());
    }
}
