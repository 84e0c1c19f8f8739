//! ldirectord.cf, with its own two kinds of lines: global ones at the margin, and those of a virtual service, indented.
//!
//! ldirectord dies of the first mistake. The importer says which line that is and goes on, so that one run shows all.

mod check;
mod global;
mod real;
mod service;

use crate::layer4::Writer;
use crate::note::{Notes, Place};
use crate::settle::settle;
use crate::{Imported, World};

use global::Globals;
use service::Section;

/// What ldirectord would say; `None` = it takes the line.
type Refusal = Option<String>;

/// Says what ldirectord dies of.
fn fatal(notes: &mut Notes, place: Place, why: &str) {
    notes.say(
        place,
        format!("not carried over: ldirectord refuses the file here: {why}"),
    );
}

/// Reads ldirectord.cf.
pub fn ldirectord(name: &str, text: &str, world: &dyn World) -> Imported {
    let mut notes = Notes::default();
    let file = notes.file(name, text);
    let mut globals = Globals::default();
    let mut sections = Vec::new();
    let mut lines = text.split('\n').enumerate().peekable();
    while let Some((at, line)) = lines.next() {
        let place = Place::new(file, at + 1);
        let Some(header) = virtual_header(line) else {
            globals.line(line, place, world, &mut notes);
            continue;
        };
        let mut section = Section::open(header, place, &mut notes);
        while let Some((at, line)) = lines.peek() {
            if line.trim_start().starts_with('#') {
                lines.next();
                continue;
            }
            let plain = line.split('#').next().unwrap_or("").replace('\t', "    ");
            let Some(directive) = indented(&plain) else {
                break;
            };
            if let Some(section) = &mut section {
                section.line(directive, Place::new(file, at + 1), &mut notes);
            } else {
                notes.say(
                    Place::new(file, at + 1),
                    "not carried over, with its virtual service",
                );
            }
            lines.next();
        }
        sections.extend(section);
    }
    let mut writer = Writer::default();
    let mut seen = std::collections::HashSet::new();
    for section in sections {
        section.write(&mut writer, &globals, &mut seen, world, &mut notes);
    }
    globals.unused(&mut notes);
    settle(writer.document, notes)
}

/// `virtual=…` or `virtual6=…` at the margin: whether it is IPv6, and what it names.
fn virtual_header(line: &str) -> Option<(bool, &str)> {
    let rest = line.strip_prefix("virtual")?;
    let (ipv6, rest) = match rest.strip_prefix('6') {
        Some(rest) => (true, rest),
        None => (false, rest),
    };
    Some((ipv6, value(rest)?))
}

/// What stands behind `=`.
fn value(rest: &str) -> Option<&str> {
    Some(rest.trim_start().strip_prefix('=')?.trim_start())
}

/// A line of a section: four blanks and at least one character more.
fn indented(line: &str) -> Option<&str> {
    let rest = line.strip_prefix("    ")?;
    let word = rest.trim_start_matches(' ');
    match (rest.is_empty(), word.is_empty()) {
        (true, _) => None,
        // A line of blanks alone is a command that nobody knows.
        (false, true) => Some(rest),
        (false, false) => Some(word),
    }
}

/// `name = value`.
fn directive(line: &str) -> Option<(&str, &str)> {
    let end = line
        .find(|c: char| !c.is_ascii_alphanumeric())
        .unwrap_or(line.len());
    let (name, rest) = line.split_at(end);
    Some((name, value(rest)?))
}

/// The first digits of a text, as ldirectord finds numbers.
fn digits(text: &str) -> Option<u64> {
    let start = text.find(|c: char| c.is_ascii_digit())?;
    let rest = &text[start..];
    let end = rest
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(rest.len());
    rest[..end].parse().ok()
}

/// What stands between the first and the last double quote, if that is something.
fn quoted(text: &str) -> Option<&str> {
    let (inner, _) = text.strip_prefix('"')?.rsplit_once('"')?;
    Some(inner)
}

/// With or without quotes.
fn bare(text: &str) -> &str {
    quoted(text).unwrap_or(text)
}

/// `yes` or `no` and nothing else.
fn yes_no(text: &str) -> Option<bool> {
    match text {
        "yes" => Some(true),
        "no" => Some(false),
        _ => None,
    }
}
