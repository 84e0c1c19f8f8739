//! Masks secrets in quoted source, because diagnostics appear in logs and on other users' terminals.
//!
//! The functions accept any text, because quoted text is often invalid, and recognize a secret by its key. Similar keys
//! are treated as secrets too, because a misspelled key is an error, and the diagnostic quotes its line.

use std::borrow::Cow;
use std::collections::HashMap;
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

/// Replaces each character of a secret, except line breaks, with a character of the same length in bytes, so spans stay
/// valid.
pub(crate) fn mask_secrets(text: &str) -> Cow<'_, str> {
    let mut hidden = Vec::new();
    // Cache the result for each key, because a large text repeats the same few keys many times.
    let mut seen: HashMap<&str, bool> = HashMap::new();
    let mut offset = 0;
    while let Some((key, value)) = next_pair(text, offset) {
        offset = value;
        if *seen.entry(key).or_insert_with(|| is_secret(key)) {
            offset = collect_value(text, value, &mut hidden);
        }
    }
    if hidden.is_empty() {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len());
    let mut copied = 0;
    for (start, end) in hidden {
        out.push_str(&text[copied..start]);
        out.extend(text[start..end].chars().map(filler));
        copied = end;
    }
    out.push_str(&text[copied..]);
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
    let lower_case = key.to_ascii_lowercase();
    // Header fields with credentials.
    let fields = ["authorization", "proxy-authorization", "x-api-key", "token"];
    fields.contains(&lower_case.as_str())
        // Hashes of passwords.
        || lower_case == "users"
        || lower_case.contains("secret")
        || lower_case.contains("passw")
        || nearest(key, KEYS.iter().copied()).is_some()
}

fn is_bare_key_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-_".contains(&byte)
}

/// Returns the first key at or after `start`, quoted or not, and the start of its value.
fn next_pair(text: &str, start: usize) -> Option<(&str, usize)> {
    let bytes = text.as_bytes();
    let skip = |mut offset: usize, is_skipped: &dyn Fn(u8) -> bool| {
        while bytes.get(offset).is_some_and(|byte| is_skipped(*byte)) {
            offset += 1;
        }
        offset
    };
    let is_blank = |byte: u8| b" \t".contains(&byte);
    let mut key_start = start;
    loop {
        key_start = skip(key_start, &|byte| !is_bare_key_byte(byte));
        let end = skip(key_start, &is_bare_key_byte);
        if end == key_start {
            return None;
        }
        let after_key = skip(end, &|byte| b"\"'".contains(&byte));
        let separator = skip(after_key, &is_blank);
        if after_key <= end + 1 && matches!(bytes.get(separator), Some(b'=' | b':')) {
            let is_space = |byte: u8| byte.is_ascii_whitespace();
            return Some((&text[key_start..end], skip(separator + 1, &is_space)));
        }
        key_start = end;
    }
}

/// Adds the ranges to mask in the value at `start`: a string, the strings of a list, or the rest of the line if the
/// value is not quoted. Returns the end of the value. Tables are not masked: they only name the file or variable from
/// which a secret is read.
fn collect_value(text: &str, start: usize, hidden: &mut Vec<(usize, usize)>) -> usize {
    let bytes = text.as_bytes();
    match bytes.get(start) {
        None | Some(b'{') => start,
        Some(b'"' | b'\'') => collect_string(text, start, hidden),
        Some(b'[') => {
            let (mut offset, mut table_depth) = (start + 1, 0usize);
            while let Some(byte) = bytes.get(offset) {
                match byte {
                    b']' if table_depth == 0 => return offset + 1,
                    b'{' => table_depth += 1,
                    b'}' => table_depth = table_depth.saturating_sub(1),
                    b'"' | b'\'' => {
                        let mut found = Vec::new();
                        offset = collect_string(text, offset, &mut found);
                        if table_depth == 0 {
                            hidden.extend(found);
                        }
                        continue;
                    }
                    _ => {}
                }
                offset += 1;
            }
            offset
        }
        // The value is not a string: it is an error, or a secret without quotation marks.
        Some(_) => {
            let rest = &text[start..];
            let end = rest
                .find(['\n', '\r'])
                .map_or(text.len(), |length| start + length);
            hidden.push((start, end));
            end
        }
    }
}

/// Adds the range inside the quotation marks at `start`. A string that is not closed ends at the end of the line, or of
/// the text if it has three quotation marks. Returns the end of the string.
fn collect_string(text: &str, start: usize, hidden: &mut Vec<(usize, usize)>) -> usize {
    let quote = &text[start..=start];
    let triple = quote.repeat(3);
    let rest = &text[start..];
    if rest.starts_with(&triple) {
        let content = start + 3;
        let length = text[content..]
            .find(&triple)
            .unwrap_or(text.len() - content);
        hidden.push((content, content + length));
        return (content + length + 3).min(text.len());
    }
    let content = start + 1;
    let mut is_escaped = false;
    for (index, c) in text[content..].char_indices() {
        let offset = content + index;
        match c {
            '\n' => {
                hidden.push((content, offset));
                return offset;
            }
            _ if is_escaped => is_escaped = false,
            '\\' if quote == "\"" => is_escaped = true,
            c if quote.starts_with(c) => {
                hidden.push((content, offset));
                return offset + 1;
            }
            _ => {}
        }
    }
    hidden.push((content, text.len()));
    text.len()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn secret_values_are_masked_but_sources_are_not() {
        for (text, expected) in [
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
            assert_eq!(mask_secrets(text), expected);
        }
    }

    proptest! {
        #[test]
        fn masking_preserves_offsets(text in "(secret|[a-zé]|[ =:\"'\\[\\]{},\n\\\\])*") {
            let masked = mask_secrets(&text);
            prop_assert_eq!(masked.len(), text.len());
            for (offset, c) in text.char_indices() {
                prop_assert!(masked.is_char_boundary(offset));
                prop_assert_eq!(c == '\n', masked.as_bytes()[offset] == b'\n');
            }
        }
    }

    #[test]
    fn secrets_are_recognized_by_their_keys() {
        for (key, expected) in [
            ("Authorization", true),
            ("proxy-authorization", true),
            ("X-API-Key", true),
            ("token", true),
            ("users", true),
            ("my_secret_2", true),
            ("PASSWORD", true),
            ("ticket_key", true),
            ("servers", false),
            ("listen", false),
            ("tokens_file_path", false),
        ] {
            assert_eq!(is_secret(key), expected, "{key}");
        }
    }

    #[test]
    fn only_values_of_pairs_are_masked() {
        for (text, expected) in [
            ("secret", "secret"),
            ("secret secret = 'a'", "secret secret = '*'"),
            ("secret\"\" = 'a'", "secret\"\" = 'a'"),
            ("secret \t=\n 'a'", "secret \t=\n '*'"),
            ("secret: ab\r\nx: y", "secret: **\r\nx: y"),
            ("secret = ", "secret = "),
            ("secret = [", "secret = ["),
            (
                "secret = ['a' # ]\n, {x = 'b'}, 'c'] 'd'",
                "secret = ['*' # ]\n, {x = 'b'}, 'c'] 'd'",
            ),
            (
                "secret = [{x = {y = 'a'}}, 'b'] 'c'",
                "secret = [{x = {y = 'a'}}, '*'] 'c'",
            ),
            ("secret = '''a'b'''x", "secret = '''***'''x"),
            ("secret = '''ab", "secret = '''**"),
            ("secret = \"ab", "secret = \"**"),
            ("secret = 'a\\'b'", "secret = '**'b'"),
            ("secret = \"\\\\\" b", "secret = \"**\" b"),
            ("secret = 'é€😀'", "secret = '·•\u{1d16d}'"),
        ] {
            assert_eq!(mask_secrets(text), expected, "{text}");
        }
    }
}
