//! Provides typed access to a table of a known section, and reports unusable keys.
//!
//! Reported keys are unknown, not implemented, missing or of the wrong type.
//!
//! All diagnostics go to the [`Sink`] and processing continues, so one run reports all problems.

use std::cmp::Ordering;
use std::collections::HashMap;
use std::ops::{Range, RangeInclusive};
use std::sync::Arc;
use std::time::Duration;

use weir_model::{CheckAuthority, ValueMap};

use crate::catalog;
use crate::code::{Code, Severity};
use crate::diagnostic::{Diagnostic, Lines};
use crate::directive;
use crate::duration;
use crate::key::{Choices, Kind, Presence, Section, quoted_list};
use crate::size;
use crate::suggest::nearest;
use crate::tree::{Entry, Item, Table, Value};
use crate::verify::Machine;

/// Collects diagnostics and merges occurrences of the same problem.
pub(crate) struct Sink<'t> {
    pub(crate) found: Vec<Diagnostic>,
    pub(crate) lines: Lines<'t>,
    /// Reads secrets and files, and checks whether interfaces and programs exist; `None` = nothing is read.
    pub(crate) machine: Option<&'t dyn Machine>,
    /// The maps by name; `None` = a map with an error.
    pub(crate) maps: Vec<(String, Option<Arc<ValueMap>>)>,
    /// The CA files of the checks lowered so far.
    pub(crate) check_authorities: Vec<CheckAuthority>,
    /// Index in `found`, by [`Diagnostic::merge_key`].
    by_merge_key: HashMap<String, usize>,
    /// Number of different errors, and number of different warnings and notes.
    distinct: [usize; 2],
    errors: usize,
}

impl<'t> Sink<'t> {
    /// Maximum number of different errors, and of different other diagnostics: a file that is not a configuration can
    /// cause millions.
    const MAX_DISTINCT: usize = 1000;
    /// Maximum number of errors, including repeated ones. Checking then stops, to limit its duration.
    const MAX_ERRORS: usize = 100_000;

    pub(crate) fn new(text: &'t str) -> Self {
        Self {
            found: Vec::new(),
            lines: Lines::new(text),
            machine: None,
            maps: Vec::new(),
            check_authorities: Vec::new(),
            by_merge_key: HashMap::new(),
            distinct: [0; 2],
            errors: 0,
        }
    }

    /// Adds a diagnostic unless the limit [`Self::MAX_DISTINCT`] is reached. Errors have a separate limit, so warnings
    /// do not displace them.
    pub(crate) fn push(&mut self, diagnostic: Diagnostic) {
        let is_error = diagnostic.severity() == Severity::Error;
        self.errors += usize::from(is_error);
        if is_error && self.errors == Self::MAX_ERRORS + 1 {
            let max = Self::MAX_ERRORS;
            let message = format!("more than {max} errors; checking stopped");
            let note = Diagnostic::new(Code::TooManyDiagnostics, &diagnostic.span, message);
            self.found.push(note);
        }
        // Syntax errors are reported line by line.
        let merge_key = (diagnostic.code != Code::Syntax).then(|| diagnostic.merge_key());
        if let Some(index) = merge_key
            .as_ref()
            .and_then(|key| self.by_merge_key.get(key))
        {
            self.found[*index].merge(diagnostic);
            return;
        }
        let distinct = &mut self.distinct[usize::from(!is_error)];
        *distinct += 1;
        match (*distinct).cmp(&(Self::MAX_DISTINCT + 1)) {
            Ordering::Less => {
                self.by_merge_key
                    .extend(merge_key.map(|key| (key, self.found.len())));
                self.found.push(diagnostic);
            }
            Ordering::Equal => {
                let noun = if is_error {
                    "errors"
                } else {
                    "warnings and notes"
                };
                let message = format!(
                    "more than {} {noun}; further {noun} are omitted",
                    Self::MAX_DISTINCT
                );
                self.found.push(Diagnostic::new(
                    Code::TooManyDiagnostics,
                    &diagnostic.span,
                    message,
                ));
            }
            Ordering::Greater => {}
        }
    }

    /// Returns the number of errors, including omitted and repeated ones.
    pub(crate) const fn errors(&self) -> usize {
        self.errors
    }

    /// Returns whether further errors would be omitted. If so, checking can stop.
    pub(crate) const fn is_full(&self) -> bool {
        self.distinct[0] > Self::MAX_DISTINCT || self.errors > Self::MAX_ERRORS
    }
}

/// A table of a known section.
pub(crate) struct View<'a, 't> {
    section: &'static Section,
    table: &'a Table<'t>,
}

impl<'a, 't> View<'a, 't> {
    /// Reports unknown and missing keys; `location` is the span of the table's name.
    pub(crate) fn open(
        sink: &mut Sink<'_>,
        section: &'static Section,
        table: &'a Table<'t>,
        location: &Range<usize>,
    ) -> Self {
        for entry in &table.entries {
            if sink.is_full() {
                break;
            }
            match section.key(&entry.key) {
                None => sink.push(unknown_key(section, entry)),
                Some(key) if !key.is_implemented() => sink.push(
                    Diagnostic::new(
                        Code::NotImplemented,
                        &entry.key_span,
                        format!("`{}` is not built yet", key.name),
                    )
                    .cause(key.purpose)
                    .fix("remove it; settings that are not implemented are rejected, not ignored"),
                ),
                Some(_) => {}
            }
        }
        for key in section
            .implemented_keys()
            .filter(|key| matches!(key.presence, Presence::Required))
        {
            let is_key = |entry: &Entry<'_>| entry.key == key.name;
            let is_misspelled_key =
                |entry: &Entry<'_>| intended_key(section, &entry.key) == Some(key.name);
            // Searching for similar keys is expensive and rarely needed.
            if !table.entries.iter().any(is_key) && !table.entries.iter().any(is_misspelled_key) {
                let message = format!("`{}` is missing in {}", key.name, section.heading());
                let example = match key.name {
                    "forward" if is_for_proxy(section, table) => "forward = \"proxy\"",
                    _ => key.example,
                };
                let fix = format!("add it, for example `{example}`");
                sink.push(
                    Diagnostic::new(Code::MissingKey, location, message)
                        .cause(lower_initial(key.first_sentence()))
                        .fix(fix),
                );
            }
        }
        Self { section, table }
    }

    /// Returns the entry of a key, and the key's type.
    pub(crate) fn get(&self, name: &str) -> Option<(&'a Entry<'t>, &'static Kind)> {
        let key = self.section.key(name)?;
        let entry = self.table.entries.iter().find(|entry| entry.key == name)?;
        Some((entry, &key.kind))
    }

    /// Returns a string.
    pub(crate) fn text(
        &self,
        sink: &mut Sink<'_>,
        name: &str,
    ) -> Option<(&'a str, &'a Range<usize>)> {
        let (entry, kind) = self.get(name)?;
        text(sink, &entry.item, kind)
    }

    pub(crate) fn flag(&self, sink: &mut Sink<'_>, name: &str) -> Option<bool> {
        let (entry, kind) = self.get(name)?;
        match entry.item.value {
            Value::Bool(value) => Some(value),
            _ => {
                sink.push(wrong_type(&entry.item, kind));
                None
            }
        }
    }

    /// Returns an integer in the range of its key.
    pub(crate) fn integer(&self, sink: &mut Sink<'_>, name: &str) -> Option<u32> {
        let (entry, kind) = self.get(name)?;
        let Kind::Integer { min, max } = *kind else {
            return None;
        };
        let Value::Integer(value) = entry.item.value else {
            sink.push(wrong_type(&entry.item, kind));
            return None;
        };
        let value = value.and_then(|value| u32::try_from(value).ok());
        in_range(sink, entry, kind, value, min..=max)
    }

    /// Returns a size in bytes, in the range of its key. The size may be written with or without a unit.
    pub(crate) fn size(&self, sink: &mut Sink<'_>, name: &str) -> Option<u32> {
        let (entry, kind) = self.get(name)?;
        let Kind::Size { min, max } = *kind else {
            return None;
        };
        let bytes = match &entry.item.value {
            Value::Integer(bytes) => bytes.and_then(|bytes| u64::try_from(bytes).ok()),
            Value::Text(text) => match size::parse(text) {
                Ok(bytes) => Some(bytes),
                Err(cause) => {
                    let message = format!("`{}` is not a size", text.escape_debug());
                    let fix = "write an integer and B, KiB, MiB or GiB, as in \"64KiB\"";
                    let diagnostic = Diagnostic::new(Code::WrongType, &entry.item.span, message);
                    sink.push(diagnostic.cause(cause).fix(fix));
                    return None;
                }
            },
            _ => {
                sink.push(wrong_type(&entry.item, kind));
                return None;
            }
        };
        let bytes = bytes.and_then(|bytes| u32::try_from(bytes).ok());
        in_range(sink, entry, kind, bytes, min..=max)
    }

    /// Returns a decimal number, in hundredths.
    pub(crate) fn factor(&self, sink: &mut Sink<'_>, name: &str) -> Option<u32> {
        let (entry, kind) = self.get(name)?;
        let Kind::Factor { min, max } = *kind else {
            return None;
        };
        let value = match entry.item.value {
            Value::Integer(value) => value.map_or(f64::NAN, |value| value as f64),
            Value::Float(value) => value,
            _ => {
                sink.push(wrong_type(&entry.item, kind));
                return None;
            }
        };
        let hundredths = (value * 100.0).round();
        let is_valid = (f64::from(min)..=f64::from(max)).contains(&hundredths)
            && (value * 100.0 - hundredths).abs() < 1e-6;
        if !is_valid {
            let message = format!("`{name}` is out of range");
            let fix = format!("write {}", kind.syntax());
            sink.push(Diagnostic::new(Code::OutOfRange, &entry.item.span, message).fix(fix));
            return None;
        }
        Some(hundredths as u32)
    }

    /// Returns a duration in the range of its key.
    pub(crate) fn duration(&self, sink: &mut Sink<'_>, name: &str) -> Option<Duration> {
        let (entry, kind) = self.get(name)?;
        let Kind::Duration { min, max } = *kind else {
            return None;
        };
        let (text, span) = text(sink, &entry.item, kind)?;
        match duration::parse(text) {
            Ok(value) if (min..=max).contains(&value) => Some(value),
            Ok(_) => {
                let message = format!("`{name}` is out of range");
                sink.push(
                    Diagnostic::new(Code::OutOfRange, span, message)
                        .fix(format!("write {}", kind.syntax())),
                );
                None
            }
            Err(cause) => {
                let message = format!("`{text}` is not a duration");
                let fix = "write an integer and ms, s, m, h or d, as in \"30s\"";
                sink.push(
                    Diagnostic::new(Code::BadDuration, span, message)
                        .cause(cause)
                        .fix(fix),
                );
                None
            }
        }
    }

    /// Returns a duration in whole seconds; reports fractions of a second.
    pub(crate) fn whole_seconds(
        &self,
        sink: &mut Sink<'_>,
        name: &'static str,
        default: Duration,
    ) -> Duration {
        let value = self.duration(sink, name).unwrap_or(default);
        if value.subsec_nanos() != 0 {
            let span = self
                .get(name)
                .map_or(0..0, |(entry, _)| entry.item.span.clone());
            let message = format!("`{name}` must be a whole number of seconds");
            sink.push(
                Diagnostic::new(Code::OutOfRange, &span, message)
                    .fix(format!("write \"{}s\"", value.as_secs() + 1)),
            );
        }
        value
    }

    /// Returns the items of a list; reports a value that is not a list.
    pub(crate) fn list(&self, sink: &mut Sink<'_>, name: &str) -> Option<&'a [Item<'t>]> {
        let (entry, kind) = self.get(name)?;
        match &entry.item.value {
            Value::List(items) => Some(items),
            _ => {
                sink.push(wrong_type(&entry.item, kind));
                None
            }
        }
    }

    /// Returns the value in `all` that `as_str` maps to the text.
    pub(crate) fn choice<T: Copy>(
        &self,
        sink: &mut Sink<'_>,
        name: &str,
        all: &[T],
        as_str: fn(T) -> &'static str,
    ) -> Option<T> {
        let (entry, kind) = self.get(name)?;
        let keyword = keyword(sink, &entry.item, kind)?;
        all.iter().copied().find(|value| as_str(*value) == keyword)
    }
}

/// Returns the string in an item of type `kind`.
pub(crate) fn text<'a>(
    sink: &mut Sink<'_>,
    item: &'a Item<'_>,
    kind: &Kind,
) -> Option<(&'a str, &'a Range<usize>)> {
    match &item.value {
        Value::Text(text) => Some((text, &item.span)),
        _ => {
            sink.push(wrong_type(item, kind));
            None
        }
    }
}

/// Returns the string in an item that must be one of the values of `kind`; reports a value that is unknown or not
/// implemented.
pub(crate) fn keyword<'a>(sink: &mut Sink<'_>, item: &'a Item<'_>, kind: &Kind) -> Option<&'a str> {
    let (keyword, span) = text(sink, item, kind)?;
    let choices = match kind {
        Kind::OneOf(choices)
        | Kind::Either(Kind::OneOf(choices), _)
        | Kind::Either(_, Kind::OneOf(choices)) => choices(),
        _ => Choices::default(),
    };
    if choices
        .values
        .iter()
        .chain(&choices.aliases)
        .any(|known| *known == keyword)
    {
        return Some(keyword);
    }
    sink.push(unknown_keyword(keyword, span, &choices));
    None
}

pub(crate) fn unknown_keyword(keyword: &str, span: &Range<usize>, choices: &Choices) -> Diagnostic {
    let valid_values = quoted_list(&choices.values);
    if choices.planned.contains(&keyword) {
        return Diagnostic::new(
            Code::NotImplemented,
            span,
            format!("\"{keyword}\" is not built yet"),
        )
        .fix(format!("use {valid_values}"));
    }
    let all = choices
        .values
        .iter()
        .chain(&choices.aliases)
        .chain(&choices.planned)
        .copied();
    let diagnostic = Diagnostic::new(
        Code::UnknownValue,
        span,
        format!("unknown value \"{keyword}\""),
    );
    let equivalent = choices
        .known_as
        .iter()
        .find(|(other, _)| *other == keyword)
        .map(|(_, ours)| *ours);
    match equivalent.or_else(|| nearest(keyword, all)) {
        Some(near) => diagnostic
            .fix(format!("did you mean \"{near}\"?"))
            .cause(format!("expected {valid_values}")),
        None => diagnostic.fix(format!("use {valid_values}")),
    }
}

/// Returns the number if it is in range, and reports it otherwise.
fn in_range(
    sink: &mut Sink<'_>,
    entry: &Entry<'_>,
    kind: &Kind,
    value: Option<u32>,
    range: RangeInclusive<u32>,
) -> Option<u32> {
    let value = value.filter(|value| range.contains(value));
    if value.is_none() {
        let message = format!("`{}` is out of range", entry.key);
        let fix = format!("write {}", kind.syntax());
        sink.push(Diagnostic::new(Code::OutOfRange, &entry.item.span, message).fix(fix));
    }
    value
}

/// Returns the diagnostic for an item of the wrong type.
pub(crate) fn wrong_type(item: &Item<'_>, kind: &Kind) -> Diagnostic {
    let found = item.value.describe();
    let message = format!("expected {}, found {found}", kind.syntax());
    let diagnostic =
        Diagnostic::new(Code::WrongType, &item.span, message).label(format!("this is {found}"));
    match (kind, &item.value) {
        (Kind::Duration { .. }, Value::Integer(Some(number))) => diagnostic
            .cause("a number without a unit is ambiguous")
            .fix(format!("write \"{number}s\" for seconds")),
        (Kind::Integer { .. }, Value::Text(text)) if text.parse::<u32>().is_ok() => {
            diagnostic.fix(format!("remove the quotes: {text}"))
        }
        (Kind::Flag, Value::Text(text)) if matches!(text.as_ref(), "true" | "false") => {
            diagnostic.fix(format!("remove the quotes: {text}"))
        }
        (Kind::List(_), Value::Text(text)) => {
            diagnostic.fix(format!("put it in brackets: [\"{text}\"]"))
        }
        (Kind::Table(section), Value::Integer(Some(status)))
            if section.path == catalog::EXPECT.path =>
        {
            diagnostic.fix(format!("write {{ status = {status} }}"))
        }
        _ => diagnostic,
    }
}

pub(crate) fn unknown_key(section: &'static Section, entry: &Entry<'_>) -> Diagnostic {
    let key = entry.key.as_ref();
    let message = format!("unknown key `{key}` in {}", section.heading());
    let diagnostic = Diagnostic::new(Code::UnknownKey, &entry.key_span, message);
    match directive::equivalent(key) {
        Some(text) if section.path == catalog::ROUTE.path => return diagnostic.fix(text),
        Some(text) if section.path == catalog::SERVICE.path => {
            return diagnostic.fix(format!("in a [[route]], {text}"));
        }
        _ => {}
    }
    if let Some(intended_key) = intended_key(section, key) {
        return diagnostic.fix(format!("did you mean `{intended_key}`?"));
    }
    match section_with_key(section, key) {
        Some((home, name)) if name == key => {
            diagnostic.fix(format!("`{key}` belongs in {}", home.heading()))
        }
        Some((home, name)) => diagnostic.fix(format!("`{key}` is `{name}` in {}", home.heading())),
        None => {
            let valid_keys: Vec<&str> = section.implemented_keys().map(|key| key.name).collect();
            diagnostic.fix(format!("valid keys are {}", valid_keys.join(", ")))
        }
    }
}

/// Returns the section that has a key with this name, or a key that has this name in another program. Also returns the
/// key's name in the section. Sections that the operator probably means are searched first: routes for a service,
/// services for a pool (a service's header may be mistyped), then the tables of the section's own keys.
fn section_with_key(
    section: &'static Section,
    key: &str,
) -> Option<(&'static Section, &'static str)> {
    let near = match section.path {
        path if path == catalog::SERVICE.path => Some(&catalog::ROUTE),
        path if path == catalog::POOL.path => Some(&catalog::SERVICE),
        _ => None,
    };
    let near: Vec<_> = near
        .into_iter()
        .chain(
            section
                .implemented_keys()
                .filter_map(|known| known.kind.table()),
        )
        .collect();
    let has_key = |section: &&'static Section| {
        let found = section.key(key)?;
        Some((*section, found.name))
    };
    let has_equivalent = |section: &&'static Section| {
        let found = section
            .implemented_keys()
            .find(|known| known.known_as.contains(&key))?;
        Some((*section, found.name))
    };
    let common = [
        &catalog::SERVICE,
        &catalog::POOL,
        &catalog::ROUTE,
        &catalog::CHECK,
        &catalog::NODE,
        &catalog::ROOT,
    ];
    let all = || common.iter().chain(&catalog::PAGES);
    // A limit of the service can have a different name in a route.
    let limit = (section.path == catalog::SERVICE.path)
        .then(|| has_equivalent(&&catalog::PROXY_LIMITS))
        .flatten();
    limit
        .or_else(|| near.iter().find_map(has_key))
        .or_else(|| near.iter().rev().find_map(has_equivalent))
        .or_else(|| all().find_map(has_key))
        .or_else(|| all().find_map(has_equivalent))
}

/// Returns the text with a lower-case initial, unless its first word is an abbreviation, such as "VIPs".
fn lower_initial(text: &str) -> String {
    let mut chars = text.chars();
    match (chars.next(), chars.next()) {
        (Some(first), Some(second)) if second.is_lowercase() || second == ' ' => {
            first.to_lowercase().chain(text.chars().skip(1)).collect()
        }
        _ => text.to_owned(),
    }
}

/// Returns whether a table has `protocol`, which only proxy services have, or another program's name for that key.
fn is_for_proxy(section: &Section, table: &Table<'_>) -> bool {
    let is_protocol = |entry: &Entry<'_>| {
        entry.key == "protocol" || intended_key(section, &entry.key) == Some("protocol")
    };
    section.path == catalog::SERVICE.path && table.entries.iter().any(is_protocol)
}

/// Returns the key that was probably intended: the key that has this name in another program, or a similar key.
fn intended_key(section: &Section, key: &str) -> Option<&'static str> {
    let equivalent = section
        .keys
        .iter()
        .find(|known| known.known_as.contains(&key))
        .map(|known| known.name);
    equivalent.or_else(|| nearest(key, section.keys.iter().map(|known| known.name)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a diagnostic at an offset.
    fn found(code: Code, offset: usize, message: &str) -> Diagnostic {
        Diagnostic::new(code, &(offset..offset + 1), message)
    }

    #[test]
    fn different_errors_are_limited_separately_from_warnings() {
        let mut sink = Sink::new("");
        for number in 0..2 * Sink::MAX_DISTINCT {
            sink.push(found(Code::NoEffect, number, &number.to_string()));
        }
        // The last diagnostic reports that others are omitted.
        assert_eq!(sink.found.len(), Sink::MAX_DISTINCT + 1);
        assert_eq!((sink.errors(), sink.is_full()), (0, false));
        for number in 0..Sink::MAX_DISTINCT {
            sink.push(found(Code::BadText, number, &number.to_string()));
        }
        assert_eq!(sink.found.len(), 2 * Sink::MAX_DISTINCT + 1);
        assert!(!sink.is_full());
        for number in 0..2 {
            sink.push(found(Code::BadText, number, &format!("further {number}")));
            assert_eq!(sink.found.len(), 2 * Sink::MAX_DISTINCT + 2);
            assert!(sink.is_full());
        }
        assert_eq!(sink.errors(), Sink::MAX_DISTINCT + 2);
    }

    #[test]
    fn checking_stops_after_too_many_repeated_errors() {
        let mut sink = Sink::new("");
        for offset in 0..Sink::MAX_ERRORS {
            sink.push(found(Code::BadText, offset, "same"));
        }
        assert_eq!((sink.found.len(), sink.is_full()), (1, false));
        for offset in 0..2 {
            sink.push(found(Code::BadText, Sink::MAX_ERRORS + offset, "same"));
            assert!(sink.is_full());
            assert_eq!(sink.found.len(), 2);
        }
        let last = &sink.found[1];
        assert_eq!(last.code, Code::TooManyDiagnostics);
        assert_eq!(last.message, "more than 100000 errors; checking stopped");
    }

    #[test]
    fn syntax_errors_are_not_merged() {
        let mut sink = Sink::new("");
        for offset in 0..3 {
            sink.push(found(Code::Syntax, offset, "same"));
        }
        assert_eq!(sink.found.len(), 3);
    }
}
