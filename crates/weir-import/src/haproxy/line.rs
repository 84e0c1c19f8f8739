//! Splits haproxy.cfg into words (`src/cfgparse.c`, `parse_line`): comments, quotes, backslashes, environment
//! variables.

use super::block::Blocks;
use super::scope::Scope;
use crate::Environment;
use crate::guard;
use crate::inert;
use crate::note::{Notes, Position};

/// A line that is not empty.
#[derive(Clone, Debug)]
pub(super) struct Line {
    pub(super) position: Position,
    pub(super) words: Vec<String>,
    /// It uses what haproxy keeps of the request: rules for responses know only that of it.
    pub(super) keeps_request: bool,
}

impl Line {
    pub(super) fn keyword(&self) -> &str {
        self.words.first().map_or("", String::as_str)
    }

    pub(super) fn word(&self, at: usize) -> Option<&str> {
        self.words.get(at).map(String::as_str)
    }

    /// Returns everything after the keyword.
    pub(super) fn arguments(&self) -> &[String] {
        self.words.get(1..).unwrap_or_default()
    }

    pub(super) fn reject(&self, notes: &mut Notes, why: &str) {
        notes.add(self.position, format!("not imported: {why}"));
    }
}

pub(super) fn lines(
    environment: &dyn Environment,
    notes: &mut Notes,
    name: &str,
    text: &str,
) -> Vec<Line> {
    // Editors of other systems mark the encoding with this character.
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let file = notes.file(name, text);
    let mut lines = Vec::new();
    let mut scope = Scope::new(environment);
    let mut blocks = Blocks::default();
    for (at, raw) in text.lines().enumerate() {
        let position = Position::new(file, at + 1);
        let words = match words(&scope, raw) {
            Some(words) if words.is_empty() => continue,
            Some(words) if blocks.directive(&words, &scope, position, notes) => continue,
            found => found,
        };
        if let Some(condition) = blocks.excluded_by() {
            let line = condition.line();
            let why = format!("not imported: haproxy does not read it, because of line {line}");
            notes.remark(position, why);
            continue;
        }
        let Some(words) = words else {
            // The contents of the line are unknown.
            notes.mark_guard(position);
            notes.add(
                position,
                "not imported: haproxy rejects an unterminated quote or escape",
            );
            continue;
        };
        scope.apply(&words);
        let mut words = modern(words);
        if let Some(name) = complete_address(&scope, &mut words, position, notes) {
            notes.add(
                position,
                format!(
                    "not imported: the variable {name} is not set here; set it, and import again"
                ),
            );
            if guard::haproxy(&words) {
                notes.mark_guard(position);
            }
            continue;
        }
        notes.record_effect(position, inert::haproxy(&words));
        if guard::haproxy(&words) {
            notes.mark_guard(position);
        }
        lines.push(Line {
            position,
            words,
            keeps_request: false,
        });
    }
    blocks.finish(notes);
    lines
}

/// Replaces the names that haproxy used before version 1.5, and rules that it had before version 2.1.
fn modern(words: Vec<String>) -> Vec<String> {
    let new = match words.first().map(String::as_str) {
        Some("contimeout") => "connect",
        Some("clitimeout") => "client",
        Some("srvtimeout") => "server",
        Some(_) => return super::legacy::modern(words),
        None => return words,
    };
    let front = ["timeout", new].map(str::to_owned).into_iter();
    front.chain(words.into_iter().skip(1)).collect()
}

/// Expands variables of the address of a `bind` or `server`, which needs no quotes; those that are not set remain:
/// `listen` and `servers` expand them, too. Removes options of these lines whose values have variables that are not
/// set, and returns the first such variable of another line.
fn complete_address(
    scope: &Scope<'_>,
    words: &mut Vec<String>,
    position: Position,
    notes: &mut Notes,
) -> Option<String> {
    let at = match words.first().map(String::as_str) {
        Some("bind") => Some(1),
        Some("server") => Some(2),
        _ => None,
    };
    if let Some(word) = at.and_then(|at| words.get_mut(at)) {
        let mut chars = word.chars().peekable();
        let mut new = String::new();
        while let Some(c) = chars.next() {
            match c {
                '$' => new.push_str(&variable(scope, &mut chars)?),
                c => new.push(c),
            }
        }
        *word = new;
    }
    let unset = |word: &String| {
        let (_, rest) = word.split_once("${")?;
        Some(rest.split('}').next().unwrap_or_default().to_owned())
    };
    let options = at.map_or(0, |at| at + 1);
    loop {
        let mut others = words.iter().enumerate();
        let (found, name) = others.find_map(|(index, word)| {
            let name = unset(word).filter(|_| Some(index) != at)?;
            Some((index, name))
        })?;
        if options == 0 || found < options {
            return Some(name);
        }
        let option = (found - 1).max(options);
        if matches!(words[option].as_str(), "ca-file" | "crl-file" | "verify") {
            notes.mark_guard(position);
        }
        notes.add(
            position,
            format!(
                "{} is not imported: the variable {name} is not set here; set it, and import again",
                words[option]
            ),
        );
        words.drain(option..=found);
    }
}

/// Returns `None` for an unterminated quote or escape.
fn words(scope: &Scope<'_>, line: &str) -> Option<Vec<String>> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quote: Option<char> = None;
    let mut chars = line.chars().peekable();
    while let Some(c) = chars.next() {
        match (quote, c) {
            (Some(open), c) if c == open => quote = None,
            (Some('\''), c) => word.get_or_insert_default().push(c),
            (_, '\\') => escape(word.get_or_insert_default(), &mut chars)?,
            (Some('"'), '$') => {
                let value = variable(scope, &mut chars)?;
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

/// Decodes a backslash and the next character; other letters keep the backslash.
fn escape(word: &mut String, chars: &mut std::iter::Peekable<std::str::Chars<'_>>) -> Option<()> {
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

/// Expands `$NAME`, `${NAME}` or `${NAME-default}` after the dollar sign.
fn variable(
    scope: &Scope<'_>,
    chars: &mut std::iter::Peekable<std::str::Chars<'_>>,
) -> Option<String> {
    let mut name = String::new();
    let braces = chars.next_if_eq(&'{').is_some();
    let is_word = |c: &char| c.is_ascii_alphanumeric() || *c == '_';
    while let Some(c) = chars.next_if(is_word) {
        name.push(c);
    }
    // The program may have other variables than the importer.
    let unset = format!("${{{name}}}");
    if !braces {
        return Some(scope.variable(&name).unwrap_or(unset));
    }
    let mut rest = String::new();
    loop {
        match chars.next()? {
            '}' => break,
            c => rest.push(c),
        }
    }
    let default = rest.strip_prefix('-').map(str::to_owned);
    Some(scope.variable(&name).or(default).unwrap_or(unset))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::EmptyEnvironment;

    #[test]
    fn words_are_split_like_haproxy() {
        let cut = |line: &str| words(&Scope::new(&EmptyEnvironment), line);
        assert_eq!(
            cut("  bind *:80 # web"),
            Some(vec!["bind".into(), "*:80".into()])
        );
        assert_eq!(
            cut(r#"a "b \" c" 'd$e'"#),
            Some(vec!["a".into(), "b \" c".into(), "d$e".into()])
        );
        assert_eq!(cut(r"a\ b \#c"), Some(vec!["a b".into(), "#c".into()]));
        assert_eq!(cut(r#""${NONE-x}y""#), Some(vec!["xy".into()]));
        assert_eq!(cut("'open"), None);
    }
}
