//! Formats counts for messages.

/// Returns a count followed by a regular noun in the singular or plural, for example `1 server` or `2 servers`.
pub fn format_count(count: u64, noun: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} {noun}{plural}")
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
