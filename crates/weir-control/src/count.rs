//! Formats counts for messages.

/// Returns `1 server`, `2 servers`: a number with the singular or plural of a regular noun.
pub fn format_count(count: u64, word: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} {word}{plural}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_one_is_singular() {
        let texts = [0, 1, 2, 11].map(|count| format_count(count, "server"));
        assert_eq!(texts, ["0 servers", "1 server", "2 servers", "11 servers"]);
    }
}
