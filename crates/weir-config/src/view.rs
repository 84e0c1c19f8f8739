//! A table seen as a section: what is unknown, unbuilt, missing or of the wrong type is reported, the rest is handed
//! out typed.
//!
//! Every finding goes to the [`Sink`] and reading goes on, so that one run reports all.

use std::cmp::Ordering;
use std::collections::HashMap;
use std::ops::{Range, RangeInclusive};
use std::time::Duration;

use crate::catalog;
use crate::code::{Code, Severity};
use crate::diagnostic::{Diagnostic, Lines};
use crate::duration;
use crate::key::{Choices, Kind, Presence, Section, words};
use crate::size;
use crate::suggest::nearest;
use crate::tree::{Entry, Item, Table, Value};
use crate::verify::Machine;

/// Collects findings, and knows the lines that spans are in. The same mistake at several places is one finding.
pub(crate) struct Sink<'t> {
    pub(crate) found: Vec<Diagnostic>,
    pub(crate) lines: Lines<'t>,
    /// What secrets are read from.
    pub(crate) machine: Option<&'t dyn Machine>,
    /// Where in `found` a mistake is, by [`Diagnostic::kind`].
    kinds: HashMap<String, usize>,
    /// Different errors, and different warnings and notes.
    different: [usize; 2],
    errors: usize,
    pushed: usize,
}

impl<'t> Sink<'t> {
    /// Findings of each severity that are kept: a text that is no configuration at all has millions.
    const MOST: usize = 1000;
    /// Errors, the same ones included, after which no more are looked for: each costs time.
    const MOST_ERRORS: usize = 100_000;

    pub(crate) fn new(text: &'t str) -> Self {
        Self {
            found: Vec::new(),
            lines: Lines::new(text),
            machine: None,
            kinds: HashMap::new(),
            different: [0; 2],
            errors: 0,
            pushed: 0,
        }
    }

    /// Keeps it, unless there are [`Self::MOST`] of its severity; warnings never crowd out errors.
    pub(crate) fn push(&mut self, diagnostic: Diagnostic) {
        let error = diagnostic.severity() == Severity::Error;
        self.pushed += 1;
        self.errors += usize::from(error);
        if error && self.errors == Self::MOST_ERRORS + 1 {
            let most = Self::MOST_ERRORS;
            let message = format!("there are more than {most} errors; the rest was not looked for");
            let note = Diagnostic::new(Code::TooMany, &diagnostic.span, message);
            self.found.push(note);
        }
        // A mistake of syntax makes its line a guess, which is told line by line.
        let kind = (diagnostic.code != Code::Syntax).then(|| diagnostic.kind());
        if let Some(same) = kind.as_ref().and_then(|kind| self.kinds.get(kind)) {
            self.found[*same].absorb(diagnostic);
            return;
        }
        let different = &mut self.different[usize::from(!error)];
        *different += 1;
        match (*different).cmp(&(Self::MOST + 1)) {
            Ordering::Less => {
                self.kinds.extend(kind.map(|kind| (kind, self.found.len())));
                self.found.push(diagnostic);
            }
            Ordering::Equal => {
                let what = if error { "errors" } else { "warnings" };
                let message = format!(
                    "there are more than {} {what}; the rest is left out",
                    Self::MOST
                );
                self.found
                    .push(Diagnostic::new(Code::TooMany, &diagnostic.span, message));
            }
            Ordering::Greater => {}
        }
    }

    /// How many findings there were, those left out and the same ones included.
    pub(crate) const fn pushed(&self) -> usize {
        self.pushed
    }

    /// How many of them were errors.
    pub(crate) const fn errors(&self) -> usize {
        self.errors
    }

    /// Whether another error would be left out, so that finding it is not worth the time.
    pub(crate) const fn is_full(&self) -> bool {
        self.different[0] > Self::MOST || self.errors > Self::MOST_ERRORS
    }
}

/// A table of a known section.
pub(crate) struct View<'a, 't> {
    section: &'static Section,
    table: &'a Table<'t>,
}

impl<'a, 't> View<'a, 't> {
    /// Reports the keys that do not belong here, and the required ones that are not; `place` is the table's name.
    pub(crate) fn open(
        sink: &mut Sink<'_>,
        section: &'static Section,
        table: &'a Table<'t>,
        place: &Range<usize>,
    ) -> Self {
        for entry in &table.entries {
            if sink.is_full() {
                break;
            }
            match section.key(&entry.key) {
                None => sink.push(unknown_key(section, entry)),
                Some(key) if !key.is_built() => sink.push(
                    Diagnostic::new(
                        Code::NotBuilt,
                        &entry.key_span,
                        format!("`{}` is not built yet", key.name),
                    )
                    .cause(key.purpose)
                    .fix("take it out; nothing that this build lacks is accepted and ignored"),
                ),
                Some(_) => {}
            }
        }
        for key in section
            .built()
            .filter(|key| matches!(key.presence, Presence::Required))
        {
            let is = |entry: &Entry<'_>| entry.key == key.name;
            let meant = |entry: &Entry<'_>| meant(section, &entry.key) == Some(key.name);
            // Guessing costs more than the rest of the reading, and nearly always the key is there.
            if !table.entries.iter().any(is) && !table.entries.iter().any(meant) {
                let message = format!("`{}` is missing in {}", key.name, section.heading());
                let fix = format!("add it, for example `{}`", key.example);
                sink.push(
                    Diagnostic::new(Code::MissingKey, place, message)
                        .cause(key.first_sentence())
                        .fix(fix),
                );
            }
        }
        Self { section, table }
    }

    /// The entry of that key and what it should be.
    pub(crate) fn get(&self, name: &str) -> Option<(&'a Entry<'t>, &'static Kind)> {
        let key = self.section.key(name)?;
        let entry = self.table.entries.iter().find(|entry| entry.key == name)?;
        Some((entry, &key.kind))
    }

    /// Text of any kind.
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

    /// A number within the range of its key.
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

    /// Octets within the range of its key, with a unit or without.
    pub(crate) fn size(&self, sink: &mut Sink<'_>, name: &str) -> Option<u32> {
        let (entry, kind) = self.get(name)?;
        let Kind::Size { min, max } = *kind else {
            return None;
        };
        let octets = match &entry.item.value {
            Value::Integer(octets) => octets.and_then(|octets| u64::try_from(octets).ok()),
            Value::Text(text) => match size::parse(text) {
                Ok(octets) => Some(octets),
                Err(cause) => {
                    let message = format!("`{}` is no size", text.escape_debug());
                    let fix = "write a whole number and B, KiB, MiB or GiB, as in \"64KiB\"";
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
        let octets = octets.and_then(|octets| u32::try_from(octets).ok());
        in_range(sink, entry, kind, octets, min..=max)
    }

    /// A number in hundredths.
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
        let fits = (f64::from(min)..=f64::from(max)).contains(&hundredths)
            && (value * 100.0 - hundredths).abs() < 1e-6;
        if !fits {
            let message = format!("`{name}` is out of range");
            let fix = format!("write {}", kind.syntax());
            sink.push(Diagnostic::new(Code::OutOfRange, &entry.item.span, message).fix(fix));
            return None;
        }
        Some(hundredths as u32)
    }

    /// A duration within the range of its key.
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
                let message = format!("`{text}` is no duration");
                let fix = "write a whole number and ms, s, m, h or d, as in \"30s\"";
                sink.push(
                    Diagnostic::new(Code::BadDuration, span, message)
                        .cause(cause)
                        .fix(fix),
                );
                None
            }
        }
    }

    /// A duration that is counted in seconds; a part of one is reported.
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
            let message = format!("`{name}` is no whole number of seconds");
            sink.push(
                Diagnostic::new(Code::OutOfRange, &span, message)
                    .fix(format!("write \"{}s\"", value.as_secs() + 1)),
            );
        }
        value
    }

    /// The items of a list; a single value in its place is reported.
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

    /// One of the words of its key.
    pub(crate) fn choice<T: Copy>(
        &self,
        sink: &mut Sink<'_>,
        name: &str,
        all: &[T],
        as_str: fn(T) -> &'static str,
    ) -> Option<T> {
        let (entry, kind) = self.get(name)?;
        let word = word(sink, &entry.item, kind)?;
        all.iter().copied().find(|value| as_str(*value) == word)
    }
}

/// The text of an item that should be `kind`.
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

/// The text of an item that should be one of the words of `kind`; unknown and unbuilt ones are reported.
pub(crate) fn word<'a>(sink: &mut Sink<'_>, item: &'a Item<'_>, kind: &Kind) -> Option<&'a str> {
    let (word, span) = text(sink, item, kind)?;
    let choices = match kind {
        Kind::OneOf(choices)
        | Kind::Either(Kind::OneOf(choices), _)
        | Kind::Either(_, Kind::OneOf(choices)) => choices(),
        _ => Choices::default(),
    };
    if choices
        .now
        .iter()
        .chain(&choices.aliases)
        .any(|known| *known == word)
    {
        return Some(word);
    }
    sink.push(unknown_word(word, span, &choices));
    None
}

fn unknown_word(word: &str, span: &Range<usize>, choices: &Choices) -> Diagnostic {
    let known = words(&choices.now);
    if choices.later.contains(&word) {
        return Diagnostic::new(Code::NotBuilt, span, format!("\"{word}\" is not built yet"))
            .fix(format!("this build has {known}"));
    }
    let all = choices
        .now
        .iter()
        .chain(&choices.aliases)
        .chain(&choices.later)
        .copied();
    let diagnostic = Diagnostic::new(
        Code::UnknownValue,
        span,
        format!("\"{word}\" is not known here"),
    );
    let same = choices
        .known_as
        .iter()
        .find(|(other, _)| *other == word)
        .map(|(_, ours)| *ours);
    match same.or_else(|| nearest(word, all)) {
        Some(near) => diagnostic
            .fix(format!("did you mean \"{near}\"?"))
            .cause(format!("it may be {known}")),
        None => diagnostic.fix(format!("write {known}")),
    }
}

/// The number, if there is one and its key allows it.
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

/// The finding that an item is of another type than its key has.
pub(crate) fn wrong_type(item: &Item<'_>, kind: &Kind) -> Diagnostic {
    let found = item.value.describe();
    let message = format!("expected {}, found {found}", kind.syntax());
    let diagnostic =
        Diagnostic::new(Code::WrongType, &item.span, message).label(format!("this is {found}"));
    match (kind, &item.value) {
        (Kind::Duration { .. }, Value::Integer(Some(number))) => diagnostic
            .cause("a number alone does not say its unit")
            .fix(format!("write \"{number}s\" for seconds")),
        (Kind::Integer { .. }, Value::Text(text)) if text.parse::<u32>().is_ok() => {
            diagnostic.fix(format!("leave the quotes out: {text}"))
        }
        (Kind::Flag, Value::Text(text)) if matches!(text.as_ref(), "true" | "false") => {
            diagnostic.fix(format!("leave the quotes out: {text}"))
        }
        (Kind::List(_), Value::Text(text)) => {
            diagnostic.fix(format!("put it in brackets: [\"{text}\"]"))
        }
        _ => diagnostic,
    }
}

fn unknown_key(section: &'static Section, entry: &Entry<'_>) -> Diagnostic {
    let key = entry.key.as_ref();
    let message = format!("`{key}` is no key of {}", section.heading());
    let diagnostic = Diagnostic::new(Code::UnknownKey, &entry.key_span, message);
    if let Some(meant) = meant(section, key) {
        return diagnostic.fix(format!("did you mean `{meant}`?"));
    }
    let home = std::iter::once(&catalog::ROOT)
        .chain(catalog::PAGES)
        .find(|other| other.key(key).is_some());
    match home {
        Some(home) => diagnostic.fix(format!("`{key}` belongs in {}", home.heading())),
        None => {
            let known: Vec<&str> = section.built().map(|key| key.name).collect();
            diagnostic.fix(format!("it may hold {}", known.join(", ")))
        }
    }
}

/// The key that the writer of an unknown one plausibly meant: another program's name for it, or a slip of the pen.
fn meant(section: &Section, key: &str) -> Option<&'static str> {
    let same = section
        .keys
        .iter()
        .find(|known| known.known_as.contains(&key))
        .map(|known| known.name);
    same.or_else(|| nearest(key, section.keys.iter().map(|known| known.name)))
}
