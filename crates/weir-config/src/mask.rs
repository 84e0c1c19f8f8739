//! Masks secrets in quoted source, because diagnostics are shown in logs and on other users' terminals.
//!
//! The functions work on any text, because quoted text is often invalid: a secret is recognized by its key. Similar
//! keys are treated as secrets too, because a misspelled key is an error, and the diagnostic quotes its line.

use std::borrow::Cow;
use std::sync::LazyLock;

use crate::catalog;
use crate::key::Kind;
use crate::suggest::nearest;

/// Names of the keys whose values are secrets.
static KEYS: LazyLock<Vec<&'static str>> = LazyLock::new(|| {
    let keys = catalog::PAGES.iter().flat_map(|section| section.keys);
    let secret = keys.filter(|key| matches!(key.kind, Kind::Secret | Kind::List(Kind::Secret)));
    secret.map(|key| key.name).collect()
});

/// Replaces each character of a secret with a character of the same length in bytes, so that spans stay valid.
pub(crate) fn masked(text: &str) -> Cow<'_, str> {
    let mut hidden = Vec::new();
    let mut from = 0;
    while let Some((key, value)) = next_pair(text, from) {
        from = value;
        if is_secret(key) {
            from = collect_value(text, value, &mut hidden);
        }
    }
    if hidden.is_empty() {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len());
    let mut done = 0;
    for (start, end) in hidden {
        out.push_str(&text[done..start]);
        out.extend(text[start..end].chars().map(filler));
        done = end;
    }
    out.push_str(&text[done..]);
    Cow::Owned(out)
}

fn filler(c: char) -> char {
    match c.len_utf8() {
        _ if c == '\n' => '\n',
        1 => '*',
        2 => '·',
        3 => '•',
        _ => '\u{1d16d}',
    }
}

fn is_secret(key: &str) -> bool {
    let lower = key.to_ascii_lowercase();
    // Header fields with credentials.
    let field = ["authorization", "proxy-authorization", "x-api-key", "token"];
    field.contains(&lower.as_str())
        // Hashes of passwords.
        || lower == "users"
        || lower.contains("secret")
        || lower.contains("passw")
        || nearest(key, KEYS.iter().copied()).is_some()
}

fn is_bare(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-_".contains(&byte)
}

/// Returns the next key after `from`, quoted or not, and the start of its value.
fn next_pair(text: &str, from: usize) -> Option<(&str, usize)> {
    let bytes = text.as_bytes();
    let skip = |mut at: usize, wanted: &dyn Fn(u8) -> bool| {
        while bytes.get(at).is_some_and(|byte| wanted(*byte)) {
            at += 1;
        }
        at
    };
    let blank = |byte: u8| b" \t".contains(&byte);
    let mut at = from;
    loop {
        at = skip(at, &|byte| !is_bare(byte));
        let end = skip(at, &is_bare);
        if end == at {
            return None;
        }
        let after_key = skip(end, &|byte| b"\"'".contains(&byte));
        let sign = skip(after_key, &blank);
        if after_key <= end + 1 && matches!(bytes.get(sign), Some(b'=' | b':')) {
            let white = |byte: u8| byte.is_ascii_whitespace();
            return Some((&text[at..end], skip(sign + 1, &white)));
        }
        at = end;
    }
}

/// Adds the ranges of the strings in the value or list at `from`, and returns the end of the value. Tables contain only
/// sources of secrets and are not masked.
fn collect_value(text: &str, from: usize, hidden: &mut Vec<(usize, usize)>) -> usize {
    let bytes = text.as_bytes();
    match bytes.get(from) {
        None | Some(b'{') => from,
        Some(b'"' | b'\'') => collect_string(text, from, hidden),
        Some(b'[') => {
            let (mut at, mut tables) = (from + 1, 0usize);
            while let Some(byte) = bytes.get(at) {
                match byte {
                    b']' if tables == 0 => return at + 1,
                    b'{' => tables += 1,
                    b'}' => tables = tables.saturating_sub(1),
                    b'"' | b'\'' => {
                        let mut found = Vec::new();
                        at = collect_string(text, at, &mut found);
                        if tables == 0 {
                            hidden.extend(found);
                        }
                        continue;
                    }
                    _ => {}
                }
                at += 1;
            }
            at
        }
        // Not a string: an error, or a secret without quotation marks.
        Some(_) => {
            let rest = &text[from..];
            let end = rest.find(['\n', '\r']).map_or(text.len(), |at| from + at);
            hidden.push((from, end));
            end
        }
    }
}

/// Adds the range inside the quotation marks at `from`, or up to the end of the line if they are not closed. Returns
/// the end of the string.
fn collect_string(text: &str, from: usize, hidden: &mut Vec<(usize, usize)>) -> usize {
    let quote = &text[from..=from];
    let triple = quote.repeat(3);
    let rest = &text[from..];
    if rest.starts_with(&triple) {
        let start = from + 3;
        let length = text[start..].find(&triple).unwrap_or(text.len() - start);
        hidden.push((start, start + length));
        return (start + length + 3).min(text.len());
    }
    let start = from + 1;
    let mut escaped = false;
    for (at, c) in text[start..].char_indices() {
        let at = start + at;
        match c {
            '\n' => {
                hidden.push((start, at));
                return at;
            }
            _ if escaped => escaped = false,
            '\\' if quote == "\"" => escaped = true,
            c if quote.starts_with(c) => {
                hidden.push((start, at));
                return at + 1;
            }
            _ => {}
        }
    }
    hidden.push((start, text.len()));
    text.len()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn secret_values_are_masked_but_sources_are_not() {
        for (text, wanted) in [
            ("secret = \"abc\"", "secret = \"***\""),
            (
                "sticky = { secret = 'abc', mode = \"insert\" }",
                "sticky = { secret = '***', mode = \"insert\" }",
            ),
            ("secert=\"abc\" # 'x'", "secert=\"***\" # 'x'"),
            (
                "secret = \"a\\\"b\" mode = \"c\"",
                "secret = \"****\" mode = \"c\"",
            ),
            (
                "secret = \"abc\nmode = \"x\"",
                "secret = \"***\nmode = \"x\"",
            ),
            (
                "secret = \"\"\"a\nbc\"\"\"\nmode",
                "secret = \"\"\"*\n**\"\"\"\nmode",
            ),
            ("secret = abc\nmode", "secret = ***\nmode"),
            (
                "secret = { file = \"/etc/x\" }",
                "secret = { file = \"/etc/x\" }",
            ),
            (
                "ticket_keys = [\"ab\", { env = \"KEY\" }, 'é'] \"x\"",
                "ticket_keys = [\"**\", { env = \"KEY\" }, '·'] \"x\"",
            ),
            (
                "{\"secret\": \"abc\", \"x\": \"y\"}",
                "{\"secret\": \"***\", \"x\": \"y\"}",
            ),
            ("db_password = \"abc\"", "db_password = \"***\""),
            (
                "headers = [\"Authorization: abc\"]\nx",
                "headers = [\"Authorization: *****\nx",
            ),
            ("cookie = \"secret\"", "cookie = \"secret\""),
            ("\"secret\" = \"abc\"", "\"secret\" = \"***\""),
        ] {
            assert_eq!(masked(text), wanted);
        }
    }

    proptest! {
        #[test]
        fn masking_preserves_offsets(text in "(secret|[a-zé]|[ =:\"'\\[\\]{},\n\\\\])*") {
            let masked = masked(&text);
            prop_assert_eq!(masked.len(), text.len());
            for (at, c) in text.char_indices() {
                prop_assert!(masked.is_char_boundary(at));
                prop_assert_eq!(c == '\n', masked.as_bytes()[at] == b'\n');
            }
        }
    }
}
