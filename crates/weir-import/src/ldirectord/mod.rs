//! Imports ldirectord.cf, which consists of global lines without indentation and indented lines of virtual services.
//!
//! ldirectord exits at the first error. The importer adds a note for that line and continues, so one run reports all
//! errors.

mod check;
mod global;
mod real;
mod service;

use crate::layer4::Writer;
use crate::note::{Notes, Position};
use crate::validate::validate;
use crate::{Environment, Imported};

use global::Globals;
use service::Section;

/// Why ldirectord rejects a line, or `None` if it accepts the line.
type Rejection = Option<String>;

/// Adds the note for an error at which ldirectord exits.
fn note_fatal(notes: &mut Notes, position: Position, reason: &str) {
    notes.add(
        position,
        format!("not imported: ldirectord rejects the file here: {reason}"),
    );
}

/// Imports ldirectord.cf.
pub fn ldirectord(name: &str, text: &str, environment: &dyn Environment) -> Imported {
    let mut notes = Notes::default();
    let file = notes.add_file(name, text);
    let mut globals = Globals::default();
    let mut sections = Vec::new();
    // Whether ldirectord accepts the last `virtual`.
    let mut is_section_valid = false;
    let mut lines = text.split('\n').enumerate().peekable();
    while let Some((index, line)) = lines.next() {
        let position = Position::new(file, index + 1);
        let Some(header) = virtual_header(line) else {
            if let Some(section) = sections
                .last_mut()
                .filter(|_| is_section_valid && belongs_to_section(line))
            {
                read_unindented_line(section, line, position, &mut notes);
                continue;
            }
            globals.read_line(line, position, environment, &mut notes);
            continue;
        };
        let mut section = Section::from_header(header, position, &mut notes);
        while let Some((index, line)) = lines.peek() {
            if line.trim_start().starts_with('#') {
                lines.next();
                continue;
            }
            let uncommented = line.split('#').next().unwrap_or("").replace('\t', "    ");
            let Some(directive) = strip_indentation(&uncommented) else {
                break;
            };
            if let Some(section) = &mut section {
                section.read_line(directive, Position::new(file, index + 1), &mut notes);
            } else {
                notes.add(
                    Position::new(file, index + 1),
                    "not imported: its virtual service is not imported",
                );
            }
            lines.next();
        }
        is_section_valid = section.is_some();
        sections.extend(section);
    }
    let masters = sections.iter().flat_map(|it| it.masters(environment));
    globals.masters = masters.collect();
    let mut writer = Writer::default();
    let mut seen_listeners = std::collections::HashSet::new();
    for section in sections {
        section.write(
            &mut writer,
            &globals,
            &mut seen_listeners,
            environment,
            &mut notes,
        );
    }
    globals.note_unused(&mut notes);
    crate::mail::write(std::mem::take(&mut writer.mails), &mut writer.document);
    validate(writer.document, notes)
}

/// Returns whether a line outside of a section can only belong to the preceding virtual service: it is an indented
/// directive, or a directive that is not global.
fn belongs_to_section(line: &str) -> bool {
    const SECTION_DIRECTIVES: &[&str] = &[
        "real",
        "real6",
        "request",
        "receive",
        "checktype",
        "checkcommand",
        "checkport",
        "service",
        "scheduler",
        "schedflags",
        "persistent",
        "netmask",
        "protocol",
        "ops",
        "httpmethod",
        "virtualhost",
        "login",
        "passwd",
        "database",
        "secret",
    ];
    let is_indented = line.starts_with([' ', '\t']);
    split_directive(line.trim_start())
        .is_some_and(|(name, _)| is_indented || SECTION_DIRECTIVES.contains(&name))
}

/// Reads a line of a section, although ldirectord rejects it at this position.
fn read_unindented_line(section: &mut Section, line: &str, position: Position, notes: &mut Notes) {
    let uncommented = line.split('#').next().unwrap_or("");
    section.read_line(uncommented.trim(), position, notes);
    notes.remark(
        position,
        "ldirectord rejects the file here: each line of a virtual service must begin with four blanks or a tab, and no \
        empty line may precede it",
    );
}

/// Parses `virtual=…` or `virtual6=…` without indentation. Returns whether the service is IPv6, and the value.
fn virtual_header(line: &str) -> Option<(bool, &str)> {
    let rest = line.strip_prefix("virtual")?;
    let (is_ipv6, rest) = match rest.strip_prefix('6') {
        Some(rest) => (true, rest),
        None => (false, rest),
    };
    Some((is_ipv6, value_of(rest)?))
}

/// Returns the text after `=`.
fn value_of(rest: &str) -> Option<&str> {
    Some(rest.trim_start().strip_prefix('=')?.trim_start())
}

/// Returns a line of a section without its indentation of at least four blanks, or `None` if the line is empty or not
/// indented.
fn strip_indentation(line: &str) -> Option<&str> {
    let rest = line.strip_prefix("    ")?;
    let word = rest.trim_start_matches(' ');
    match (rest.is_empty(), word.is_empty()) {
        (true, _) => None,
        // ldirectord rejects a line that contains only blanks as an unknown command.
        (false, true) => Some(rest),
        (false, false) => Some(word),
    }
}

/// Splits `name = value`. Returns `None` if the line is not a directive.
fn split_directive(line: &str) -> Option<(&str, &str)> {
    let end = line
        .find(|c: char| !c.is_ascii_alphanumeric())
        .unwrap_or(line.len());
    let (name, rest) = line.split_at(end);
    Some((name, value_of(rest)?))
}

/// Returns the number in the first digits of a text, as ldirectord parses numbers.
fn first_number(text: &str) -> Option<u64> {
    let start = text.find(|c: char| c.is_ascii_digit())?;
    let rest = &text[start..];
    let end = rest
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(rest.len());
    rest[..end].parse().ok()
}

/// Returns the text between the first and the last double quote, if the text begins with a double quote.
fn quoted(text: &str) -> Option<&str> {
    let (inner, _) = text.strip_prefix('"')?.rsplit_once('"')?;
    Some(inner)
}

/// Returns the text without its quotes, if it has any.
fn unquoted(text: &str) -> &str {
    quoted(text).unwrap_or(text)
}

/// Parses `yes` or `no`.
fn parse_yes_no(text: &str) -> Option<bool> {
    match text {
        "yes" => Some(true),
        "no" => Some(false),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
