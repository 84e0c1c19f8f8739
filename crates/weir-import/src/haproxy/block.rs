//! `.if`, `.elif`, `.else` and `.endif` (`src/cfgcond.c`): which lines haproxy reads.
//!
//! Conditions about haproxy itself are evaluated as by its newest version with all features.

use super::scope::Scope;
use crate::note::{Notes, Position};

/// The open blocks, the outermost first.
#[derive(Debug, Default)]
pub(super) struct Blocks {
    open: Vec<Block>,
}

#[derive(Debug)]
struct Block {
    /// The last `.if`, `.elif` or `.else`.
    line: Position,
    /// haproxy reads its lines, if it reads those of the outer blocks.
    is_read: bool,
    /// One of its branches was read.
    is_done: bool,
}

impl Blocks {
    /// Returns the directive that excludes the current line.
    pub(super) fn excluded_by(&self) -> Option<Position> {
        let mut blocks = self.open.iter();
        blocks.find(|block| !block.is_read).map(|block| block.line)
    }

    /// Applies a directive. Returns false if the line is none.
    pub(super) fn directive(
        &mut self,
        words: &[String],
        scope: &Scope<'_>,
        position: Position,
        notes: &mut Notes,
    ) -> bool {
        let Some((name, rest)) = words.split_first() else {
            return false;
        };
        let text = rest.join(" ");
        match name.as_str() {
            ".if" => {
                // In a block that is not read, conditions have no effect.
                let is_read =
                    self.excluded_by().is_none() && evaluate(&text, scope, position, notes);
                self.open.push(Block {
                    line: position,
                    is_read,
                    is_done: is_read,
                });
            }
            ".elif" | ".else" => {
                let outer = self.open.len().saturating_sub(1);
                let is_outer_read = self.open[..outer].iter().all(|block| block.is_read);
                let Some(block) = self.open.last_mut() else {
                    notes.add(position, "not imported: haproxy requires .if before it");
                    return true;
                };
                let is_wanted = is_outer_read && !block.is_done;
                block.line = position;
                block.is_read =
                    is_wanted && (name == ".else" || evaluate(&text, scope, position, notes));
                block.is_done |= block.is_read;
            }
            ".endif" => {
                if self.open.pop().is_none() {
                    notes.add(position, "not imported: haproxy requires .if before it");
                    return true;
                }
            }
            ".alert" if self.excluded_by().is_none() => {
                notes.add(
                    position,
                    "not imported: haproxy does not start with this line",
                );
            }
            ".alert" | ".warning" | ".notice" | ".diag" => {}
            _ => return false,
        }
        if !notes.has_note(position) {
            notes.remark(position, "not imported: it decides which lines are read");
        }
        true
    }

    /// Adds a note for each block that is not closed.
    pub(super) fn finish(self, notes: &mut Notes) {
        for block in self.open {
            notes.add(block.line, "haproxy requires .endif after it");
        }
    }
}

/// Evaluates a condition; the result is true if the condition cannot be parsed.
fn evaluate(text: &str, scope: &Scope<'_>, position: Position, notes: &mut Notes) -> bool {
    if text.is_empty() {
        return false;
    }
    if let Some((_, rest)) = text.split_once("${") {
        let name = rest.split('}').next().unwrap_or_default();
        notes.add(
            position,
            format!("the environment variable {name} is not set here and taken as empty; set it and import again"),
        );
    }
    let mut parser = Parser {
        rest: text,
        scope,
        facts: Vec::new(),
    };
    let found = parser.any().filter(|_| parser.rest.trim().is_empty());
    let Some(holds) = found else {
        notes.add(
            position,
            "the condition cannot be evaluated; the lines after it are imported",
        );
        return true;
    };
    let facts = if parser.facts.is_empty() {
        String::new()
    } else {
        format!(" ({})", parser.facts.join(", "))
    };
    notes.remark(
        position,
        format!("the condition is taken as {holds}{facts}"),
    );
    holds
}

/// Returns whether haproxy itself sets the variable.
fn is_set_by_haproxy(name: &str) -> bool {
    name.starts_with("HAPROXY_")
}

struct Parser<'t, 's> {
    rest: &'t str,
    scope: &'s Scope<'s>,
    /// What the result depends on.
    facts: Vec<String>,
}

impl Parser<'_, '_> {
    /// Skips this text. Returns false if the rest begins with something else.
    fn take(&mut self, text: &str) -> bool {
        let Some(rest) = self.rest.trim_start().strip_prefix(text) else {
            return false;
        };
        self.rest = rest;
        true
    }

    /// Parses `A || B`; `None` = the condition cannot be parsed.
    fn any(&mut self) -> Option<bool> {
        let mut holds = self.all()?;
        while self.take("||") {
            holds |= self.all()?;
        }
        Some(holds)
    }

    /// Parses `A && B`.
    fn all(&mut self) -> Option<bool> {
        let mut holds = self.term()?;
        while self.take("&&") {
            holds &= self.term()?;
        }
        Some(holds)
    }

    /// Parses `!A`, `(A)`, a number or a predicate.
    fn term(&mut self) -> Option<bool> {
        if self.take("!") {
            return self.term().map(|holds| !holds);
        }
        if self.take("(") {
            return self.any().filter(|_| self.take(")"));
        }
        self.rest = self.rest.trim_start();
        let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let end = self.rest.find(|c| !is_name(c)).unwrap_or(self.rest.len());
        let (name, rest) = self.rest.split_at(end);
        self.rest = rest;
        if let Ok(number) = name.parse::<u64>() {
            return Some(number != 0);
        }
        let inner = self.rest.strip_prefix('(')?;
        let (arguments, rest) = inner.split_once(')')?;
        self.rest = rest;
        self.predicate(name, arguments)
    }

    fn predicate(&mut self, name: &str, arguments: &str) -> Option<bool> {
        let expanded = |text: &str| match text.contains("${") {
            true => String::new(),
            false => text.to_owned(),
        };
        let pair = || {
            let (one, other) = arguments.split_once(',')?;
            Some((expanded(one), expanded(other)))
        };
        let holds = match name {
            "defined" => self.scope.variable(arguments).is_some() || is_set_by_haproxy(arguments),
            "streq" => pair().map(|(one, other)| one == other)?,
            "strneq" => pair().map(|(one, other)| one != other)?,
            "strstr" => pair().map(|(one, other)| one.contains(&other))?,
            "feature" | "version_atleast" | "openssl_version_atleast" => true,
            "version_before" | "openssl_version_before" => false,
            _ => return None,
        };
        self.facts.push(match name {
            "defined" if holds => format!("{arguments} is set"),
            "defined" => format!("{arguments} is not set here"),
            _ => format!("{name} is {holds}"),
        });
        Some(holds)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::EmptyEnvironment;

    #[test]
    fn conditions_are_evaluated() {
        let scope = Scope::new(&EmptyEnvironment);
        let holds = |text: &str| {
            let mut parser = Parser {
                rest: text,
                scope: &scope,
                facts: Vec::new(),
            };
            parser.any().filter(|_| parser.rest.trim().is_empty())
        };
        for (text, expected) in [
            ("0", Some(false)),
            ("12", Some(true)),
            ("defined(X)", Some(false)),
            ("!defined(X) && feature(OPENSSL)", Some(true)),
            ("defined(HAPROXY_MWORKER)", Some(true)),
            ("version_atleast(2.4-dev19)", Some(true)),
            ("version_before(2.4) || streq(a,a)", Some(true)),
            ("1 || 0 && 0", Some(true)),
            ("(1 || 0) && 0", Some(false)),
            ("strneq(a,b) && (streq(1,2) || strstr(abc,b))", Some(true)),
            ("streq(0, 1)", Some(false)),
            ("enabled(POLL)", None),
            ("1 1", None),
            ("streq(a", None),
            ("yes", None),
            ("(1", None),
        ] {
            assert_eq!(holds(text), expected, "{text}");
        }
    }
}
