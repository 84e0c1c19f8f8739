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

    #[test]
    fn only_expressions_without_operators_are_literal() {
        assert_eq!(literal("All systems go"), Some("All systems go".to_owned()));
        assert_eq!(literal(r"v1\.2"), Some("v1.2".to_owned()));
        assert_eq!(literal("ok|up"), None);
        assert_eq!(literal(r"\d"), None);
        assert_eq!(literal("a\\"), None);
        let text = r"1+1 (=) [2] {x} a|b \ ^.$*?";
        assert_eq!(literal(&escape_regex(text)).as_deref(), Some(text));
    }
}
