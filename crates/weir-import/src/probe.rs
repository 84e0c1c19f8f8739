//! Builds health checks for all importers.

use weir_model::Timing;

use crate::document::{Entry, Value};
use crate::note::{Notes, Position};
use crate::time;

/// Keys of one check. Checks with the same keys are equal.
#[derive(Clone, Debug)]
pub(crate) struct Probe {
    pub(crate) position: Position,
    pub(crate) entries: Vec<Entry>,
}

impl PartialEq for Probe {
    fn eq(&self, other: &Self) -> bool {
        self.entries == other.entries
    }
}

impl Probe {
    /// Creates a check of the given kind, or of kind `tcp` if this build does not support the kind.
    pub(crate) fn new(kind: &str, position: Position) -> Self {
        let kind = Entry::new("kind", kind, position).or("tcp");
        Self {
            position,
            entries: vec![kind],
        }
    }

    pub(crate) fn push(&mut self, entry: Entry) {
        self.entries.push(entry);
    }

    pub(crate) fn kind(&self) -> &str {
        match self.entries.first().map(|entry| &entry.item.value) {
            Some(Value::Text(kind)) => kind,
            _ => "tcp",
        }
    }

    pub(crate) fn has(&self, key: &str) -> bool {
        self.entries.iter().any(|entry| entry.key == key)
    }

    /// Returns whether the check connects to the port of the server or the service, rather than to a port of its own.
    pub(crate) fn uses_server_port(&self) -> bool {
        !self.has("port") && !matches!(self.kind(), "ping" | "script" | "file")
    }

    /// Sets a time, clamped to the allowed range of `key`, and adds a note if clamping changed the value.
    pub(crate) fn set_time(
        &mut self,
        key: &'static str,
        millis: u64,
        position: Position,
        notes: &mut Notes,
    ) {
        let (min, max) = match key {
            "timeout" => Timing::TIMEOUT,
            _ => Timing::INTERVAL,
        };
        let as_millis =
            |time: std::time::Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        let clamped = millis.clamp(as_millis(min), as_millis(max));
        if clamped != millis {
            let (original, used) = (time::format_millis(millis), time::format_millis(clamped));
            notes.add(
                position,
                format!("{key} = {original} was changed to {used}, the nearest allowed value"),
            );
        }
        self.push(Entry::new(key, time::format_millis(clamped), position));
    }

    /// Sets `rise` or `fall`, clamped to the allowed range, and adds a note if clamping changed the value.
    pub(crate) fn set_count(
        &mut self,
        key: &'static str,
        count: u64,
        position: Position,
        notes: &mut Notes,
    ) {
        let (min, max) = Timing::COUNT;
        let clamped = count.clamp(min.into(), max.into());
        if clamped != count {
            notes.add(
                position,
                format!("{key} = {count} was changed to {clamped}, the nearest allowed value"),
            );
        }
        self.push(Entry::new(key, clamped, position));
    }
}

/// Returns a regular expression that matches `text` literally.
pub(crate) fn escape_regex(text: &str) -> String {
    let escaped = |c: char| match c {
        '\\' | '.' | '^' | '$' | '*' | '+' | '?' | '(' | ')' | '[' | ']' | '{' | '}' | '|' => {
            format!("\\{c}")
        }
        c => c.to_string(),
    };
    text.chars().map(escaped).collect()
}

/// Returns the literal text that a regular expression matches, or `None` if the expression contains operators.
pub(crate) fn literal(pattern: &str) -> Option<String> {
    if pattern.is_empty() {
        return None;
    }
    let mut text = String::new();
    let mut chars = pattern.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => {
                let c = chars.next().filter(char::is_ascii_punctuation)?;
                text.push(c);
            }
            '.' | '^' | '$' | '*' | '+' | '?' | '(' | ')' | '[' | ']' | '{' | '}' | '|' => {
                return None;
            }
            c => text.push(c),
        }
    }
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn probe(kind: &str) -> Probe {
        Probe::new(kind, Position::FIRST)
    }

    #[test]
    fn checks_are_equal_if_their_keys_are() {
        let other_line = Probe::new("tcp", Position::new(0, 2));
        assert!(probe("tcp") == other_line);
        assert!(probe("tcp") != probe("ping"));
        let mut with_port = probe("tcp");
        with_port.push(Entry::implied("port", 80_u64));
        assert!(with_port != probe("tcp"));
        assert_eq!(
            (with_port.has("port"), with_port.has("send")),
            (true, false)
        );
        assert_eq!(
            (probe("udp").kind(), probe("udp").has("port")),
            ("udp", false)
        );
        let mut number = probe("http");
        number.entries[0].item.value = 1_u64.into();
        assert_eq!(number.kind(), "tcp");
    }

    #[test]
    fn checks_of_a_kind_with_a_port_use_the_port_of_the_server() {
        for (kind, expected) in [
            ("tcp", true),
            ("http", true),
            ("udp", true),
            ("ping", false),
            ("script", false),
            ("file", false),
        ] {
            let mut probe = probe(kind);
            assert_eq!(probe.uses_server_port(), expected, "{kind}");
            probe.push(Entry::implied("port", 80_u64));
            assert!(!probe.uses_server_port(), "{kind} with a port");
        }
    }

    /// Returns the value of `key` and the notes after `set`.
    fn value_and_notes(
        key: &'static str,
        set: impl Fn(&mut Probe, &mut Notes),
    ) -> (Value, Vec<String>) {
        let mut notes = Notes::default();
        notes.add_file("f", "x\n");
        let mut probe = probe("tcp");
        set(&mut probe, &mut notes);
        let entry = probe.entries.pop().expect("no entry was added");
        assert_eq!(
            (entry.key, entry.item.position),
            (key, Some(Position::FIRST))
        );
        (entry.item.value, notes.finish())
    }

    #[test]
    fn times_and_counts_are_limited_to_the_allowed_range() {
        let millis = |time: std::time::Duration| u64::try_from(time.as_millis()).expect("it fits");
        for (key, (min, max)) in [("interval", Timing::INTERVAL), ("timeout", Timing::TIMEOUT)] {
            for (value, used) in [
                (millis(min), millis(min)),
                (millis(max), millis(max)),
                (millis(min) - 1, millis(min)),
                (millis(max) + 1, millis(max)),
            ] {
                let show = time::format_millis;
                let (found, notes) = value_and_notes(key, |probe, notes| {
                    probe.set_time(key, value, Position::FIRST, notes);
                });
                assert_eq!(found, Value::Text(show(used)), "{key} {value}");
                let note = format!(
                    "line 1: x: {key} = {} was changed to {}, the nearest allowed value",
                    show(value),
                    show(used)
                );
                let expected: &[String] = if value == used { &[] } else { &[note] };
                assert_eq!(notes, expected, "{key} {value}");
            }
        }
        assert_ne!(Timing::INTERVAL, Timing::TIMEOUT);
        let (min, max) = (u64::from(Timing::COUNT.0), u64::from(Timing::COUNT.1));
        for (value, used) in [(min, min), (max, max), (min - 1, min), (max + 1, max)] {
            let (found, notes) = value_and_notes("fall", |probe, notes| {
                probe.set_count("fall", value, Position::FIRST, notes);
            });
            assert_eq!(found, Value::Integer(used));
            let note = format!(
                "line 1: x: fall = {value} was changed to {used}, the nearest allowed value"
            );
            let expected: &[String] = if value == used { &[] } else { &[note] };
            assert_eq!(notes, expected, "{value}");
        }
    }

    #[test]
    fn only_expressions_without_operators_are_literal() {
        assert_eq!(literal("All systems go"), Some("All systems go".to_owned()));
        assert_eq!(literal(r"v1\.2"), Some("v1.2".to_owned()));
        assert_eq!(literal("ok|up"), None);
        assert_eq!(literal(r"\d"), None);
        assert_eq!(literal(""), None);
        assert_eq!(literal("a\\"), None);
        let text = r"1+1 (=) [2] {x} a|b \ ^.$*?";
        assert_eq!(literal(&escape_regex(text)).as_deref(), Some(text));
    }
}
