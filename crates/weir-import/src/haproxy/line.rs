//! Splits the lines of haproxy.cfg into words (`src/cfgparse.c`, `parse_line`).
//!
//! Comments, quotes, backslashes and environment variables are handled. Lines that haproxy does not read are skipped,
//! and keywords of old versions are replaced with current ones.

use super::block::Blocks;
use super::scope::Scope;
use crate::Environment;
use crate::guard;
use crate::inert;
use crate::note::{Notes, Position};

/// A non-empty line.
#[derive(Clone, Debug)]
pub(super) struct Line {
    pub(super) position: Position,
    pub(super) words: Vec<String>,
    /// Whether the line uses a captured field or a variable: rules for responses have access only to these parts of a
    /// request.
    pub(super) uses_capture: bool,
    /// Whether haproxy evaluates the line after a rule that changes the client's address.
    pub(super) follows_source_change: bool,
}

impl Line {
    pub(super) fn keyword(&self) -> &str {
        self.words.first().map_or("", String::as_str)
    }

    pub(super) fn word(&self, index: usize) -> Option<&str> {
        self.words.get(index).map(String::as_str)
    }

    /// Returns the words after the keyword.
    pub(super) fn arguments(&self) -> &[String] {
        self.words.get(1..).unwrap_or_default()
    }

    /// Adds a note that the line is not imported.
    pub(super) fn reject(&self, notes: &mut Notes, reason: &str) {
        notes.add(self.position, format!("not imported: {reason}"));
    }
}

/// Returns the lines that haproxy reads, as words.
pub(super) fn read_lines(
    environment: &dyn Environment,
    notes: &mut Notes,
    name: &str,
    text: &str,
) -> Vec<Line> {
    // Some editors write a byte order mark.
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let file_index = notes.add_file(name, text);
    let mut lines = Vec::new();
    let mut scope = Scope::new(environment);
    let mut blocks = Blocks::default();
    for (line_index, source) in text.lines().enumerate() {
        let position = Position::new(file_index, line_index + 1);
        let words = match split_words(&scope, source) {
            Some(words) if words.is_empty() => continue,
            Some(words) if blocks.apply_directive(&words, &scope, position, notes) => continue,
            found => found,
        };
        if let Some(condition) = blocks.excluded_by() {
            let line = condition.line();
            let reason =
                format!("not imported: haproxy skips it because of the condition on line {line}");
            notes.remark(position, reason);
            continue;
        }
        let Some(words) = words else {
            // The words are unknown, so the line may restrict access.
            notes.mark_restriction(position);
            notes.add(
                position,
                "not imported: haproxy rejects an unterminated quote or escape",
            );
            continue;
        };
        scope.apply(&words);
        let mut words = modernize(words);
        if let Some(name) = expand_address(&scope, &mut words, position, notes) {
            notes.add(
                position,
                format!(
                    "not imported: the environment variable {name} is not set here; set it and import again"
                ),
            );
            if guard::haproxy_line_restricts_access(&words) {
                notes.mark_restriction(position);
            }
            continue;
        }
        notes.record_effect(position, inert::is_inert_haproxy_line(&words));
        if guard::haproxy_line_restricts_access(&words) {
            notes.mark_restriction(position);
        }
        lines.push(Line {
            position,
            words,
            uses_capture: false,
            follows_source_change: false,
        });
    }
    blocks.finish(notes);
    lines
}

/// Replaces keywords from before haproxy 1.5, and rules from before haproxy 2.1, with current ones.
fn modernize(words: Vec<String>) -> Vec<String> {
    let timeout_name = match words.first().map(String::as_str) {
        Some("contimeout") => "connect",
        Some("clitimeout") => "client",
        Some("srvtimeout") => "server",
        Some(_) => return super::legacy::modernize(words),
        None => return words,
    };
    let first_words = ["timeout", timeout_name].map(str::to_owned).into_iter();
    first_words.chain(words.into_iter().skip(1)).collect()
}

/// Expands variables in the address of a `bind` or `server`, which haproxy expands even without quotes. Unset variables
/// remain, because `listen` and `servers` of weir.toml expand them. Removes options of these lines whose values use
/// unset variables. Returns the first unset variable in any other line.
fn expand_address(
    scope: &Scope<'_>,
    words: &mut Vec<String>,
    position: Position,
    notes: &mut Notes,
) -> Option<String> {
    let address_index = match words.first().map(String::as_str) {
        Some("bind") => Some(1),
        Some("server") => Some(2),
        _ => None,
    };
    if let Some(word) = address_index.and_then(|address_index| words.get_mut(address_index)) {
        let mut chars = word.chars().peekable();
        let mut expanded = String::new();
        while let Some(c) = chars.next() {
            match c {
                '$' => expanded.push_str(&expand_variable(scope, &mut chars)?),
                c => expanded.push(c),
            }
        }
        *word = expanded;
    }
    let unset_variable = |word: &String| {
        let (_, rest) = word.split_once("${")?;
        Some(rest.split('}').next().unwrap_or_default().to_owned())
    };
    let options_start = address_index.map_or(0, |address_index| address_index + 1);
    loop {
        let mut indexed_words = words.iter().enumerate();
        let (word_index, name) = indexed_words.find_map(|(index, word)| {
            let name = unset_variable(word).filter(|_| Some(index) != address_index)?;
            Some((index, name))
        })?;
        if options_start == 0 || word_index < options_start {
            return Some(name);
        }
        let option = (word_index - 1).max(options_start);
        if matches!(words[option].as_str(), "ca-file" | "crl-file" | "verify") {
            notes.mark_restriction(position);
        }
        notes.add(
            position,
            format!(
                "{} is not imported: the environment variable {name} is not set here; set it and import again",
                words[option]
            ),
        );
        words.drain(option..=word_index);
    }
}

/// Splits a line into words. Returns `None` for an unterminated quote or escape.
fn split_words(scope: &Scope<'_>, line: &str) -> Option<Vec<String>> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quote: Option<char> = None;
    let mut chars = line.chars().peekable();
    while let Some(c) = chars.next() {
        match (quote, c) {
            (Some(open), c) if c == open => quote = None,
            (Some('\''), c) => word.get_or_insert_default().push(c),
            (_, '\\') => decode_escape(word.get_or_insert_default(), &mut chars)?,
            (Some('"'), '$') => {
                let value = expand_variable(scope, &mut chars)?;
                word.get_or_insert_default().push_str(&value);
            }
            (Some(_), c) => word.get_or_insert_default().push(c),
            (None, '"' | '\'') => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            (None, '#') => break,
            (None, ' ' | '\t' | '\r') => words.extend(word.take()),
            (None, c) => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word.take());
    quote.is_none().then_some(words)
}

/// Decodes the character after a backslash; unknown escapes keep the backslash.
fn decode_escape(
    word: &mut String,
    chars: &mut std::iter::Peekable<std::str::Chars<'_>>,
) -> Option<()> {
    let c = chars.next()?;
    match c {
        ' ' | '#' | '\\' | '"' | '\'' | '$' => word.push(c),
        'n' => word.push('\n'),
        'r' => word.push('\r'),
        't' => word.push('\t'),
        c => word.extend(['\\', c]),
    }
    Some(())
}

/// Expands `$NAME`, `${NAME}` or `${NAME-default}` after the dollar sign; returns `None` if the closing brace is
/// missing. Unset variables become `${NAME}`, because haproxy may run with different variables.
fn expand_variable(
    scope: &Scope<'_>,
    chars: &mut std::iter::Peekable<std::str::Chars<'_>>,
) -> Option<String> {
    let mut name = String::new();
    let has_braces = chars.next_if_eq(&'{').is_some();
    let is_word = |c: &char| c.is_ascii_alphanumeric() || *c == '_';
    while let Some(c) = chars.next_if(is_word) {
        name.push(c);
    }
    let unset = format!("${{{name}}}");
    if !has_braces {
        return Some(scope.variable(&name).unwrap_or(unset));
    }
    let mut suffix = String::new();
    loop {
        match chars.next()? {
            '}' => break,
            c => suffix.push(c),
        }
    }
    let default = suffix.strip_prefix('-').map(str::to_owned);
    Some(scope.variable(&name).or(default).unwrap_or(unset))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::EmptyEnvironment;

    #[test]
    fn words_are_split_as_in_haproxy() {
        let split = |line: &str| split_words(&Scope::new(&EmptyEnvironment), line);
        assert_eq!(
            split("  bind *:80 # web"),
            Some(vec!["bind".into(), "*:80".into()])
        );
        assert_eq!(
            split(r#"a "b \" c" 'd$e'"#),
            Some(vec!["a".into(), "b \" c".into(), "d$e".into()])
        );
        assert_eq!(split(r"a\ b \#c"), Some(vec!["a b".into(), "#c".into()]));
        assert_eq!(split(r#""${NONE-x}y""#), Some(vec!["xy".into()]));
        assert_eq!(split("'open"), None);
    }
}
