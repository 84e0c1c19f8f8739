//! Formats names and strings as TOML.

use std::fmt::Write as _;

/// Formats a table header such as `[pool."a.b".check]`: names that are not bare keys (TOML 1.0, "Keys") are quoted.
pub fn header(path: &[impl AsRef<str>]) -> String {
    let parts: Vec<String> = path.iter().map(|part| key(part.as_ref())).collect();
    format!("[{}]", parts.join("."))
}

/// Formats a basic string, with quotation marks.
pub fn string(value: &str) -> String {
    let mut text = String::from("\"");
    for c in value.chars() {
        match c {
            '"' => text.push_str("\\\""),
            '\\' => text.push_str("\\\\"),
            '\n' => text.push_str("\\n"),
            '\r' => text.push_str("\\r"),
            '\t' => text.push_str("\\t"),
            c if c.is_control() => {
                let _ = write!(text, "\\u{:04X}", u32::from(c));
            }
            c => text.push(c),
        }
    }
    text.push('"');
    text
}

/// Formats a key, without quotation marks if TOML allows it.
fn key(name: &str) -> String {
    let is_bare = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    if !name.is_empty() && name.bytes().all(is_bare) {
        name.to_owned()
    } else {
        string(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn header_quotes_names_that_are_not_bare_keys() {
        assert_eq!(header(&["pool", "web-1_a"]), "[pool.web-1_a]");
        assert_eq!(
            header(&["pool", "tcp-192.0.2.10-80", "check"]),
            "[pool.\"tcp-192.0.2.10-80\".check]"
        );
        assert_eq!(header(&["service", ""]), "[service.\"\"]");
        assert_eq!(header(&["check", "a\"b"]), "[check.\"a\\\"b\"]");
    }

    #[test]
    fn control_characters_and_quotes_are_escaped() {
        assert_eq!(string("a\"\\\n\u{1}\u{7f}é"), r#""a\"\\\n\u0001\u007Fé""#);
    }
}
