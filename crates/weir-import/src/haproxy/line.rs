//! haproxy.cfg to words (`src/cfgparse.c`, `parse_line`): comments, quotes, backslashes, variables of the environment.

use crate::World;
use crate::guard;
use crate::inert;
use crate::note::{Notes, Place};

/// A line with something on it.
#[derive(Clone, Debug)]
pub(super) struct Line {
    pub(super) place: Place,
    pub(super) words: Vec<String>,
}

impl Line {
    pub(super) fn keyword(&self) -> &str {
        self.words.first().map_or("", String::as_str)
    }

    pub(super) fn word(&self, at: usize) -> Option<&str> {
        self.words.get(at).map(String::as_str)
    }

    /// Everything behind the keyword.
    pub(super) fn arguments(&self) -> &[String] {
        self.words.get(1..).unwrap_or_default()
    }

    pub(super) fn refuse(&self, notes: &mut Notes, why: &str) {
        notes.say(self.place, format!("not carried over: {why}"));
    }
}

pub(super) fn lines(world: &dyn World, notes: &mut Notes, name: &str, text: &str) -> Vec<Line> {
    let file = notes.file(name, text);
    let mut lines = Vec::new();
    for (at, raw) in text.lines().enumerate() {
        let place = Place::new(file, at + 1);
        match words(world, raw) {
            Some(words) if words.is_empty() => {}
            Some(words) => {
                notes.weigh(place, inert::haproxy(&words));
                if guard::haproxy(&words) {
                    notes.guard(place);
                }
                lines.push(Line { place, words });
            }
            None => {
                // What it would have said is not known.
                notes.guard(place);
                notes.say(
                    place,
                    "not carried over: haproxy refuses a quote or an escape that does not end",
                );
            }
        }
    }
    lines
}

/// `None` = a quote or an escape does not end.
fn words(world: &dyn World, line: &str) -> Option<Vec<String>> {
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
                let value = variable(world, &mut chars)?;
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

/// What stands for a backslash and what follows it; another letter keeps its backslash.
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

/// `$NAME`, `${NAME}` or `${NAME-default}` behind the dollar sign.
fn variable(
    world: &dyn World,
    chars: &mut std::iter::Peekable<std::str::Chars<'_>>,
) -> Option<String> {
    let mut name = String::new();
    let braces = chars.next_if_eq(&'{').is_some();
    let is_word = |c: &char| c.is_ascii_alphanumeric() || *c == '_';
    while let Some(c) = chars.next_if(is_word) {
        name.push(c);
    }
    if !braces {
        return Some(world.variable(&name).unwrap_or_default());
    }
    let mut rest = String::new();
    loop {
        match chars.next()? {
            '}' => break,
            c => rest.push(c),
        }
    }
    let default = rest.strip_prefix('-').unwrap_or("").to_owned();
    Some(world.variable(&name).unwrap_or(default))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Alone;

    #[test]
    fn words_are_cut_as_haproxy_does() {
        let cut = |line: &str| words(&Alone, line);
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
