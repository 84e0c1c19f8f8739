//! Parses JSON (RFC 8259) into the common tree, with spans.
//!
//! serde_json does not report the positions of values, which diagnostics need. This parser accepts what serde_json
//! accepts, except nesting deeper than [`MAX_DEPTH`], and stops at the first syntax error, because the meaning of the
//! remaining text is uncertain.

use std::borrow::Cow;
use std::ops::Range;

use crate::code::Code;
use crate::diagnostic::Diagnostic;
use crate::tree::{Entry, Item, Table, Value};

/// Maximum nesting of tables and lists; the schema needs six.
const MAX_DEPTH: usize = 64;

/// Parses a JSON text. Also returns a diagnostic for each duplicate key; its first value is used.
pub(crate) fn read(text: &str) -> Result<(Item<'_>, Vec<Diagnostic>), Box<Diagnostic>> {
    let mut reader = Reader {
        text,
        at: 0,
        duplicates: Vec::new(),
    };
    let item = reader.item(0)?;
    reader.space();
    match reader.peek() {
        None => Ok((item, reader.duplicates)),
        Some(_) => Err(reader.unexpected("the end of the file")),
    }
}

struct Reader<'t> {
    text: &'t str,
    at: usize,
    duplicates: Vec<Diagnostic>,
}

type Read<T> = Result<T, Box<Diagnostic>>;

impl<'t> Reader<'t> {
    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\r' | b'\n')) {
            self.at += 1;
        }
    }

    /// Consumes the next byte if it equals `byte`.
    fn eat(&mut self, byte: u8) -> bool {
        let there = self.peek() == Some(byte);
        self.at += usize::from(there);
        there
    }

    fn unexpected(&self, expected: &str) -> Box<Diagnostic> {
        let found = self
            .text
            .get(self.at..)
            .and_then(|rest| rest.chars().next());
        let span = self.at..self.at + found.map_or(0, char::len_utf8);
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
            format!("not JSON: {message}"),
        ))
    }

    fn item(&mut self, depth: usize) -> Read<Item<'t>> {
        self.space();
        let start = self.at;
        if depth > MAX_DEPTH {
            return Err(self.error(
                start..start,
                format!("more than {MAX_DEPTH} levels of nested tables and lists"),
            ));
        }
        let value = match self.peek() {
            Some(b'{') => self.table(depth)?,
            Some(b'[') => self.list(depth)?,
            Some(b'"') => Value::Text(self.string()?),
            Some(b'-' | b'0'..=b'9') => self.number()?,
            _ => self.word()?,
        };
        Ok(Item {
            span: start..self.at,
            value,
        })
    }

    fn word(&mut self) -> Read<Value<'t>> {
        let rest = &self.text[self.at..];
        for (word, value) in [
            ("true", Value::Bool(true)),
            ("false", Value::Bool(false)),
            ("null", Value::Null),
        ] {
            if rest.starts_with(word) {
                self.at += word.len();
                return Ok(value);
            }
        }
        Err(self.unexpected("a value"))
    }

    fn table(&mut self, depth: usize) -> Read<Value<'t>> {
        self.at += 1;
        let mut entries: Vec<Entry<'t>> = Vec::new();
        // A hash map, because a table may have very many keys.
        let mut seen = std::collections::HashMap::new();
        self.space();
        if self.eat(b'}') {
            return Ok(Value::Table(Table { entries }));
        }
        loop {
            self.space();
            let start = self.at;
            if self.peek() != Some(b'"') {
                return Err(self.unexpected("a key in double quotes"));
            }
            let key = self.string()?;
            let key_span = start..self.at;
            self.space();
            if !self.eat(b':') {
                return Err(self.unexpected("`:`"));
            }
            let item = self.item(depth + 1)?;
            match seen.get(&key) {
                Some(first) => self.duplicates.push(
                    Diagnostic::new(
                        Code::DuplicateKey,
                        &key_span,
                        format!("duplicate key `{key}`"),
                    )
                    .label("duplicate")
                    .also(first, "first here"),
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
            self.space();
            if self.eat(b'}') {
                return Ok(Value::Table(Table { entries }));
            }
            if !self.eat(b',') {
                return Err(self.unexpected("`,` or `}`"));
            }
        }
    }

    fn list(&mut self, depth: usize) -> Read<Value<'t>> {
        self.at += 1;
        let mut items = Vec::new();
        self.space();
        if self.eat(b']') {
            return Ok(Value::List(items));
        }
        loop {
            items.push(self.item(depth + 1)?);
            self.space();
            if self.eat(b']') {
                return Ok(Value::List(items));
            }
            if !self.eat(b',') {
                return Err(self.unexpected("`,` or `]`"));
            }
        }
    }

    fn string(&mut self) -> Read<Cow<'t, str>> {
        let start = self.at;
        self.at += 1;
        let mut owned: Option<String> = None;
        let mut copied = self.at;
        loop {
            match self.peek() {
                None => {
                    return Err(
                        self.error(start..self.text.len(), "unterminated string".to_owned())
                    );
                }
                Some(b'"') => {
                    let tail = &self.text[copied..self.at];
                    self.at += 1;
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
                    text.push_str(&self.text[copied..self.at]);
                    let c = self.escape()?;
                    text.push(c);
                    copied = self.at;
                }
                Some(0..=0x1f) => {
                    return Err(
                        self.unexpected("an escape sequence instead of a control character")
                    );
                }
                Some(_) => self.at += 1,
            }
        }
    }

    fn escape(&mut self) -> Read<char> {
        let start = self.at;
        self.at += 1;
        let plain = match self.peek() {
            Some(c @ (b'"' | b'\\' | b'/')) => char::from(c),
            Some(b'b') => '\u{8}',
            Some(b'f') => '\u{c}',
            Some(b'n') => '\n',
            Some(b'r') => '\r',
            Some(b't') => '\t',
            Some(b'u') => {
                self.at += 1;
                return self.unicode(start);
            }
            _ => return Err(self.unexpected("one of `\"\\/bfnrtu` after the backslash")),
        };
        self.at += 1;
        Ok(plain)
    }

    /// Parses four hex digits after `\u`, or a UTF-16 surrogate pair.
    fn unicode(&mut self, start: usize) -> Read<char> {
        let first = self.hex4(start)?;
        let scalar = if (0xd800..0xdc00).contains(&first) && self.text[self.at..].starts_with("\\u")
        {
            self.at += 2;
            let second = self.hex4(start)?;
            match second.checked_sub(0xdc00) {
                Some(low) if low < 0x400 => 0x10000 + ((first - 0xd800) << 10) + low,
                _ => first,
            }
        } else {
            first
        };
        char::from_u32(scalar)
            .ok_or_else(|| self.error(start..self.at, "unpaired surrogate".to_owned()))
    }

    fn hex4(&mut self, start: usize) -> Read<u32> {
        let digits = self
            .text
            .get(self.at..self.at + 4)
            .filter(|four| four.bytes().all(|b| b.is_ascii_hexdigit()));
        match digits.and_then(|four| u32::from_str_radix(four, 16).ok()) {
            Some(value) => {
                self.at += 4;
                Ok(value)
            }
            None => Err(self.error(start..self.at, "`\\u` needs four hex digits".to_owned())),
        }
    }

    fn number(&mut self) -> Read<Value<'t>> {
        let start = self.at;
        self.eat(b'-');
        if !self.eat(b'0') {
            self.digits()?;
        }
        let mut whole = true;
        if self.eat(b'.') {
            whole = false;
            self.digits()?;
        }
        if self.eat(b'e') || self.eat(b'E') {
            whole = false;
            let _ = self.eat(b'+') || self.eat(b'-');
            self.digits()?;
        }
        let text = &self.text[start..self.at];
        Ok(if whole {
            Value::Integer(text.parse().ok())
        } else {
            Value::Float(text.parse().unwrap_or(f64::NAN))
        })
    }

    fn digits(&mut self) -> Read<()> {
        let start = self.at;
        while matches!(self.peek(), Some(b'0'..=b'9')) {
            self.at += 1;
        }
        if self.at == start {
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
        for wrong in [
            r#""\x""#,
            r#""\u12g4""#,
            "\"a\nb\"",
            "1.",
            "1e",
            "{\"a\" 1}",
            "{\"a\": 1 \"b\"}",
        ] {
            assert!(value(wrong).is_err(), "{wrong}");
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
}
