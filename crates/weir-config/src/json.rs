//! Parses JSON (RFC 8259) into the common tree, with spans.
//!
//! serde_json does not report the positions of values, which diagnostics need. This parser accepts the same input as
//! serde_json, except for nesting deeper than [`MAX_DEPTH`]. It stops at the first syntax error, because the meaning of
//! the remaining text is uncertain.

use std::borrow::Cow;
use std::ops::Range;

use crate::code::Code;
use crate::diagnostic::Diagnostic;
use crate::tree::{Entry, Item, Table, Value};

/// Maximum nesting of tables and lists; the schema needs six.
const MAX_DEPTH: usize = 64;

/// Parses a JSON text. Also returns a diagnostic for each duplicate key; the first value of the key is used.
pub(crate) fn read(text: &str) -> Result<(Item<'_>, Vec<Diagnostic>), Box<Diagnostic>> {
    let mut reader = Reader {
        text,
        offset: 0,
        duplicates: Vec::new(),
    };
    let item = reader.parse_value(0)?;
    reader.skip_space();
    match reader.peek() {
        None => Ok((item, reader.duplicates)),
        Some(_) => Err(reader.unexpected("the end of the file")),
    }
}

struct Reader<'t> {
    text: &'t str,
    offset: usize,
    duplicates: Vec<Diagnostic>,
}

type Read<T> = Result<T, Box<Diagnostic>>;

impl<'t> Reader<'t> {
    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.offset).copied()
    }

    fn skip_space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\r' | b'\n')) {
            self.offset += 1;
        }
    }

    /// Consumes the next byte if it equals `byte`. Returns whether it did.
    fn eat(&mut self, byte: u8) -> bool {
        let found = self.peek() == Some(byte);
        self.offset += usize::from(found);
        found
    }

    fn unexpected(&self, expected: &str) -> Box<Diagnostic> {
        let found = self
            .text
            .get(self.offset..)
            .and_then(|rest| rest.chars().next());
        let span = self.offset..self.offset + found.map_or(0, char::len_utf8);
        let found = found.map_or_else(
            || "the end of the file".to_owned(),
            |c| format!("`{}`", c.escape_debug()),
        );
        self.error(span, format!("expected {expected}, found {found}"))
    }

    fn error(&self, span: Range<usize>, message: String) -> Box<Diagnostic> {
        Box::new(Diagnostic::new(
            Code::Syntax,
            &span,
            format!("invalid JSON: {message}"),
        ))
    }

    fn parse_value(&mut self, depth: usize) -> Read<Item<'t>> {
        self.skip_space();
        let start = self.offset;
        if depth > MAX_DEPTH {
            return Err(self.error(
                start..start,
                format!("more than {MAX_DEPTH} levels of nested tables and lists"),
            ));
        }
        let value = match self.peek() {
            Some(b'{') => self.parse_table(depth)?,
            Some(b'[') => self.parse_list(depth)?,
            Some(b'"') => Value::Text(self.parse_string()?),
            Some(b'-' | b'0'..=b'9') => self.parse_number()?,
            _ => self.parse_keyword()?,
        };
        Ok(Item {
            span: start..self.offset,
            value,
        })
    }

    fn parse_keyword(&mut self) -> Read<Value<'t>> {
        let rest = &self.text[self.offset..];
        for (word, value) in [
            ("true", Value::Bool(true)),
            ("false", Value::Bool(false)),
            ("null", Value::Null),
        ] {
            if rest.starts_with(word) {
                self.offset += word.len();
                return Ok(value);
            }
        }
        Err(self.unexpected("a value"))
    }

    fn parse_table(&mut self, depth: usize) -> Read<Value<'t>> {
        self.offset += 1;
        let mut entries: Vec<Entry<'t>> = Vec::new();
        // A hash map, because a table may have very many keys.
        let mut seen = std::collections::HashMap::new();
        self.skip_space();
        if self.eat(b'}') {
            return Ok(Value::Table(Table { entries }));
        }
        loop {
            self.skip_space();
            let start = self.offset;
            if self.peek() != Some(b'"') {
                return Err(self.unexpected("a key in double quotes"));
            }
            let key = self.parse_string()?;
            let key_span = start..self.offset;
            self.skip_space();
            if !self.eat(b':') {
                return Err(self.unexpected("`:`"));
            }
            let item = self.parse_value(depth + 1)?;
            match seen.get(&key) {
                Some(first) => self.duplicates.push(
                    Diagnostic::new(
                        Code::DuplicateKey,
                        &key_span,
                        format!("duplicate key `{key}`"),
                    )
                    .label("duplicate")
                    .related(first, "first here"),
                ),
                None => {
                    seen.insert(key.clone(), key_span.clone());
                    entries.push(Entry {
                        key,
                        key_span,
                        item,
                    });
                }
            }
            self.skip_space();
            if self.eat(b'}') {
                return Ok(Value::Table(Table { entries }));
            }
            if !self.eat(b',') {
                return Err(self.unexpected("`,` or `}`"));
            }
        }
    }

    fn parse_list(&mut self, depth: usize) -> Read<Value<'t>> {
        self.offset += 1;
        let mut items = Vec::new();
        self.skip_space();
        if self.eat(b']') {
            return Ok(Value::List(items));
        }
        loop {
            items.push(self.parse_value(depth + 1)?);
            self.skip_space();
            if self.eat(b']') {
                return Ok(Value::List(items));
            }
            if !self.eat(b',') {
                return Err(self.unexpected("`,` or `]`"));
            }
        }
    }

    fn parse_string(&mut self) -> Read<Cow<'t, str>> {
        let start = self.offset;
        self.offset += 1;
        let mut owned: Option<String> = None;
        let mut copied_until = self.offset;
        loop {
            match self.peek() {
                None => {
                    return Err(
                        self.error(start..self.text.len(), "unterminated string".to_owned())
                    );
                }
                Some(b'"') => {
                    let tail = &self.text[copied_until..self.offset];
                    self.offset += 1;
                    return Ok(match owned {
                        None => Cow::Borrowed(tail),
                        Some(mut owned) => {
                            owned.push_str(tail);
                            Cow::Owned(owned)
                        }
                    });
                }
                Some(b'\\') => {
                    let text = owned.get_or_insert_default();
                    text.push_str(&self.text[copied_until..self.offset]);
                    let c = self.parse_escape()?;
                    text.push(c);
                    copied_until = self.offset;
                }
                Some(0..=0x1f) => {
                    return Err(
                        self.unexpected("an escape sequence instead of a control character")
                    );
                }
                Some(_) => self.offset += 1,
            }
        }
    }

    fn parse_escape(&mut self) -> Read<char> {
        let start = self.offset;
        self.offset += 1;
        let plain = match self.peek() {
            Some(c @ (b'"' | b'\\' | b'/')) => char::from(c),
            Some(b'b') => '\u{8}',
            Some(b'f') => '\u{c}',
            Some(b'n') => '\n',
            Some(b'r') => '\r',
            Some(b't') => '\t',
            Some(b'u') => {
                self.offset += 1;
                return self.parse_unicode_escape(start);
            }
            _ => return Err(self.unexpected("one of `\"\\/bfnrtu` after the backslash")),
        };
        self.offset += 1;
        Ok(plain)
    }

    /// Parses four hex digits after `\u`, or a UTF-16 surrogate pair.
    fn parse_unicode_escape(&mut self, start: usize) -> Read<char> {
        let first = self.parse_hex4(start)?;
        let scalar =
            if (0xd800..0xdc00).contains(&first) && self.text[self.offset..].starts_with("\\u") {
                self.offset += 2;
                let second = self.parse_hex4(start)?;
                match second.checked_sub(0xdc00) {
                    Some(low) if low < 0x400 => 0x10000 + ((first - 0xd800) << 10) + low,
                    _ => first,
                }
            } else {
                first
            };
        char::from_u32(scalar)
            .ok_or_else(|| self.error(start..self.offset, "unpaired surrogate".to_owned()))
    }

    fn parse_hex4(&mut self, start: usize) -> Read<u32> {
        let digits = self
            .text
            .get(self.offset..self.offset + 4)
            .filter(|four| four.bytes().all(|b| b.is_ascii_hexdigit()));
        match digits.and_then(|four| u32::from_str_radix(four, 16).ok()) {
            Some(value) => {
                self.offset += 4;
                Ok(value)
            }
            None => Err(self.error(start..self.offset, "`\\u` needs four hex digits".to_owned())),
        }
    }

    fn parse_number(&mut self) -> Read<Value<'t>> {
        let start = self.offset;
        self.eat(b'-');
        if !self.eat(b'0') {
            self.skip_digits()?;
        }
        let mut is_integer = true;
        if self.eat(b'.') {
            is_integer = false;
            self.skip_digits()?;
        }
        if self.eat(b'e') || self.eat(b'E') {
            is_integer = false;
            let _ = self.eat(b'+') || self.eat(b'-');
            self.skip_digits()?;
        }
        let text = &self.text[start..self.offset];
        Ok(if is_integer {
            Value::Integer(text.parse().ok())
        } else {
            Value::Float(text.parse().unwrap_or(f64::NAN))
        })
    }

    fn skip_digits(&mut self) -> Read<()> {
        let start = self.offset;
        while matches!(self.peek(), Some(b'0'..=b'9')) {
            self.offset += 1;
        }
        if self.offset == start {
            Err(self.unexpected("a digit"))
        } else {
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn accepts(text: &str) -> bool {
        read(text).is_ok()
    }

    #[test]
    fn spans_cover_keys_and_values() {
        let text = r#"{"a": [1, "x\n\u00e9\ud83d\ude00"]}"#;
        let (item, duplicates) = read(text).unwrap();
        assert!(duplicates.is_empty());
        let Value::Table(table) = item.value else {
            panic!("no table")
        };
        let entry = &table.entries[0];
        assert_eq!(&text[entry.key_span.clone()], "\"a\"");
        let Value::List(items) = &entry.item.value else {
            panic!("no list")
        };
        assert_eq!(&text[items[0].span.clone()], "1");
        assert_eq!(items[1].value, Value::Text("x\n\u{e9}\u{1f600}".into()));
    }

    #[test]
    fn escapes_and_numbers_have_their_values() {
        fn value(text: &str) -> Result<Value<'_>, Box<Diagnostic>> {
            read(text).map(|(item, _)| item.value)
        }
        for (text, expected) in [
            (r#""\"\\\/\b\f\n\r\t\u0041""#, "\"\\/\u{8}\u{c}\n\r\tA"),
            (r#""""#, ""),
        ] {
            assert_eq!(value(text).unwrap(), Value::Text(expected.into()), "{text}");
        }
        for (text, expected) in [
            ("1.5", 1.5),
            ("-2e3", -2000.0),
            ("1E+2", 100.0),
            ("25e-1", 2.5),
        ] {
            assert_eq!(value(text).unwrap(), Value::Float(expected), "{text}");
        }
        for invalid in [
            r#""\x""#,
            r#""\u12g4""#,
            "\"a\nb\"",
            "1.",
            "1e",
            "{\"a\" 1}",
            "{\"a\": 1 \"b\"}",
        ] {
            assert!(value(invalid).is_err(), "{invalid}");
        }
    }

    #[test]
    fn duplicate_key_reports_both_positions() {
        let (_, duplicates) = read(r#"{"a": 1, "a": 2}"#).unwrap();
        assert_eq!(
            (
                duplicates[0].span.clone(),
                duplicates[0].related[0].span.clone()
            ),
            (9..12, 1..4)
        );
    }

    #[test]
    fn deep_nesting_is_rejected() {
        assert!(accepts(&format!(
            "{}1{}",
            "[".repeat(MAX_DEPTH),
            "]".repeat(MAX_DEPTH)
        )));
        assert!(!accepts(&"[".repeat(100_000)));
    }

    proptest! {
        #[test]
        fn accepts_same_texts_as_serde_json(text in r#"[ -\[\]{}:,"\\untf01.eE+a]{0,12}"#) {
            prop_assert_eq!(accepts(&text), serde_json::from_str::<serde_json::Value>(&text).is_ok(), "{}", text);
        }
    }

    /// RFC 8259 section 7: characters outside the Basic Multilingual Plane are surrogate pairs.
    #[test]
    fn surrogate_pairs_are_one_character() {
        for (text, expected) in [
            (r#""\ud7ff""#, Some("\u{d7ff}")),
            (r#""\ue000""#, Some("\u{e000}")),
            (r#""\ud800\udc00""#, Some("\u{10000}")),
            (r#""\uD83D\uDE00x""#, Some("\u{1f600}x")),
            (r#""\udbff\udfff""#, Some("\u{10ffff}")),
            (r#""\ud800""#, None),
            (r#""\ud800x""#, None),
            (r#""\ud800\n""#, None),
            (r#""\ud800\u0041""#, None),
            (r#""\ud800\ue000""#, None),
            (r#""\udc00""#, None),
            (r#""\udc00\ud800""#, None),
        ] {
            let found = read(text).ok().map(|(item, _)| item.value);
            let expected = expected.map(|it| Value::Text(it.into()));
            assert_eq!(found, expected, "{text}");
        }
    }

    #[test]
    fn errors_have_positions() {
        for (text, span) in [
            ("", 0..0),
            ("{", 1..1),
            ("[1 2]", 3..4),
            ("[1,]", 3..4),
            ("{\"a\" 1}", 5..6),
            ("{\"a\": 1 \"b\"}", 8..9),
            ("{a: 1}", 1..2),
            ("[\"ab", 1..4),
            ("[\"a\\x\"]", 4..5),
            ("[\"\\u12g4\"]", 2..4),
            ("[\"\\ud800\"]", 2..8),
            ("[1.]", 3..4),
            ("[-]", 2..3),
            ("[1e+]", 4..5),
            ("{} 1", 3..4),
        ] {
            let error = read(text).unwrap_err();
            assert_eq!(error.span, span, "{text}: {}", error.message);
        }
    }

    #[test]
    fn numbers_of_64_bits_are_integers() {
        for (text, expected) in [
            ("0", Some(0)),
            ("-0", Some(0)),
            ("-7", Some(-7)),
            ("9223372036854775807", Some(i64::MAX)),
            ("9223372036854775808", None),
        ] {
            let (item, _) = read(text).unwrap();
            assert_eq!(item.value, Value::Integer(expected), "{text}");
            assert_eq!(item.span, 0..text.len());
        }
        assert!(read("01").is_err() && read("+1").is_err() && read(".5").is_err());
    }
}
