//! Checks as importers describe them.

use weir_model::Timing;

use crate::document::{Entry, Value};
use crate::note::{Notes, Place};
use crate::time;

/// Keys of one check. Two that say the same are one.
#[derive(Clone, Debug)]
pub(crate) struct Probe {
    pub(crate) from: Place,
    pub(crate) entries: Vec<Entry>,
}

impl PartialEq for Probe {
    fn eq(&self, other: &Self) -> bool {
        self.entries == other.entries
    }
}

impl Probe {
    /// A check of that kind; `tcp` if this build has no such kind.
    pub(crate) fn new(kind: &str, from: Place) -> Self {
        let kind = Entry::new("kind", kind, from).or("tcp");
        Self {
            from,
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

    /// Whether it goes to a port that the server or the service gives.
    pub(crate) fn wants_port(&self) -> bool {
        !self.has("port") && !matches!(self.kind(), "ping" | "script" | "file")
    }

    /// A time within what `key` may be; said if it had to be changed.
    pub(crate) fn time(&mut self, key: &'static str, millis: u64, from: Place, notes: &mut Notes) {
        let (min, max) = match key {
            "timeout" => Timing::TIMEOUT,
            _ => Timing::INTERVAL,
        };
        let bound = |time: std::time::Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        let within = millis.clamp(bound(min), bound(max));
        if within != millis {
            let (was, is) = (time::show(millis), time::show(within));
            notes.say(
                from,
                format!("{key} = {was} became {is}, the nearest that is taken"),
            );
        }
        self.push(Entry::new(key, time::show(within), from));
    }

    /// `rise` or `fall`, within what they may be.
    pub(crate) fn count(&mut self, key: &'static str, count: u64, from: Place, notes: &mut Notes) {
        let (min, max) = Timing::COUNT;
        let within = count.clamp(min.into(), max.into());
        if within != count {
            notes.say(
                from,
                format!("{key} = {count} became {within}, the nearest that is taken"),
            );
        }
        self.push(Entry::new(key, within, from));
    }
}

/// An expression that finds a text.
pub(crate) fn quoted(text: &str) -> String {
    let escaped = |c: char| match c {
        '\\' | '.' | '^' | '$' | '*' | '+' | '?' | '(' | ')' | '[' | ']' | '{' | '}' | '|' => {
            format!("\\{c}")
        }
        c => c.to_string(),
    };
    text.chars().map(escaped).collect()
}

/// A regular expression without anything but letters: what it finds is itself.
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
    fn only_what_finds_itself_is_literal() {
        assert_eq!(literal("All systems go"), Some("All systems go".to_owned()));
        assert_eq!(literal(r"v1\.2"), Some("v1.2".to_owned()));
        assert_eq!(literal("ok|up"), None);
        assert_eq!(literal(r"\d"), None);
        assert_eq!(literal("a\\"), None);
        let text = r"1+1 (=) [2] {x} a|b \ ^.$*?";
        assert_eq!(literal(&quoted(text)).as_deref(), Some(text));
    }
}
