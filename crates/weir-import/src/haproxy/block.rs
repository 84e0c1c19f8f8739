//! Evaluates `.if`, `.elif`, `.else` and `.endif` (`src/cfgcond.c`) to determine which lines haproxy reads.
//!
//! Conditions about haproxy itself are evaluated for the newest version with all features.

use super::scope::Scope;
use crate::note::{Notes, Position};

/// The open blocks, outermost first.
#[derive(Debug, Default)]
pub(super) struct Blocks {
    open: Vec<Block>,
}

#[derive(Debug)]
struct Block {
    /// The last `.if`, `.elif` or `.else`.
    line: Position,
    /// Whether haproxy reads the lines of the current branch, provided that it reads those of the outer blocks.
    is_read: bool,
    /// Whether a branch of the block was read.
    has_read_branch: bool,
}

impl Blocks {
    /// Returns the directive that excludes the current line, or `None` if haproxy reads the line.
    pub(super) fn excluded_by(&self) -> Option<Position> {
        let mut blocks = self.open.iter();
        blocks.find(|block| !block.is_read).map(|block| block.line)
    }

    /// Applies the line if it is a directive. Returns whether it is one.
    pub(super) fn apply_directive(
        &mut self,
        words: &[String],
        scope: &Scope<'_>,
        position: Position,
        notes: &mut Notes,
    ) -> bool {
        let Some((name, condition_words)) = words.split_first() else {
            return false;
        };
        let text = condition_words.join(" ");
        match name.as_str() {
            ".if" => {
                // Conditions within an excluded block have no effect.
                let is_read =
                    self.excluded_by().is_none() && evaluate(&text, scope, position, notes);
                self.open.push(Block {
                    line: position,
                    is_read,
                    has_read_branch: is_read,
                });
            }
            ".elif" | ".else" => {
                let outer_count = self.open.len().saturating_sub(1);
                let is_outer_read = self.open[..outer_count].iter().all(|block| block.is_read);
                let Some(block) = self.open.last_mut() else {
                    notes.add(
                        position,
                        "not imported: haproxy requires .if before this line",
                    );
                    return true;
                };
                let can_be_read = is_outer_read && !block.has_read_branch;
                block.line = position;
                block.is_read =
                    can_be_read && (name == ".else" || evaluate(&text, scope, position, notes));
                block.has_read_branch |= block.is_read;
            }
            ".endif" => {
                if self.open.pop().is_none() {
                    notes.add(
                        position,
                        "not imported: haproxy requires .if before this line",
                    );
                    return true;
                }
            }
            ".alert" if self.excluded_by().is_none() => {
                notes.add(
                    position,
                    "not imported: this line prevents haproxy from starting",
                );
            }
            ".alert" | ".warning" | ".notice" | ".diag" => {
                notes.remark(position, "not imported: it only prints a message");
            }
            _ => return false,
        }
        if !notes.has_note(position) {
            notes.remark(
                position,
                "not imported: it only determines which lines are read",
            );
        }
        true
    }

    /// Adds a note for each block that is not closed.
    pub(super) fn finish(self, notes: &mut Notes) {
        for block in self.open {
            notes.add(block.line, "haproxy requires .endif after this line");
        }
    }
}

/// Evaluates a condition. Returns false if it is empty, and true if it cannot be parsed.
fn evaluate(text: &str, scope: &Scope<'_>, position: Position, notes: &mut Notes) -> bool {
    if text.is_empty() {
        return false;
    }
    if let Some((_, remaining)) = text.split_once("${") {
        let name = remaining.split('}').next().unwrap_or_default();
        notes.add(
            position,
            format!("the environment variable {name} is not set here and is treated as empty; set it and import again"),
        );
    }
    let mut parser = Parser {
        remaining: text,
        scope,
        details: Vec::new(),
    };
    let result = parser
        .parse_or()
        .filter(|_| parser.remaining.trim().is_empty());
    let Some(holds) = result else {
        notes.add(
            position,
            "the condition cannot be evaluated; the lines after it are imported",
        );
        return true;
    };
    let details = if parser.details.is_empty() {
        String::new()
    } else {
        format!(" ({})", parser.details.join(", "))
    };
    notes.remark(
        position,
        format!("the condition is treated as {holds}{details}"),
    );
    holds
}

/// Returns whether haproxy itself sets the variable.
fn is_set_by_haproxy(name: &str) -> bool {
    name.starts_with("HAPROXY_")
}

struct Parser<'t, 's> {
    remaining: &'t str,
    scope: &'s Scope<'s>,
    /// The results of the evaluated predicates, for the note.
    details: Vec<String>,
}

impl Parser<'_, '_> {
    /// Skips blanks and `text`. Returns whether the remaining text begins with `text`.
    fn skip(&mut self, text: &str) -> bool {
        let Some(remaining) = self.remaining.trim_start().strip_prefix(text) else {
            return false;
        };
        self.remaining = remaining;
        true
    }

    /// Parses `A || B`. Returns `None` if the condition cannot be parsed.
    fn parse_or(&mut self) -> Option<bool> {
        let mut holds = self.parse_and()?;
        while self.skip("||") {
            holds |= self.parse_and()?;
        }
        Some(holds)
    }

    /// Parses `A && B`.
    fn parse_and(&mut self) -> Option<bool> {
        let mut holds = self.parse_term()?;
        while self.skip("&&") {
            holds &= self.parse_term()?;
        }
        Some(holds)
    }

    /// Parses `!A`, `(A)`, a number or a predicate.
    fn parse_term(&mut self) -> Option<bool> {
        if self.skip("!") {
            return self.parse_term().map(|holds| !holds);
        }
        if self.skip("(") {
            return self.parse_or().filter(|_| self.skip(")"));
        }
        self.remaining = self.remaining.trim_start();
        let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let end = self
            .remaining
            .find(|c| !is_name(c))
            .unwrap_or(self.remaining.len());
        let (name, remaining) = self.remaining.split_at(end);
        self.remaining = remaining;
        if let Ok(number) = name.parse::<u64>() {
            return Some(number != 0);
        }
        let inner = self.remaining.strip_prefix('(')?;
        let (arguments, remaining) = inner.split_once(')')?;
        self.remaining = remaining;
        self.evaluate_predicate(name, arguments)
    }

    fn evaluate_predicate(&mut self, name: &str, arguments: &str) -> Option<bool> {
        let without_variable = |text: &str| match text.contains("${") {
            true => String::new(),
            false => text.to_owned(),
        };
        let pair = || {
            let (first, second) = arguments.split_once(',')?;
            Some((without_variable(first), without_variable(second)))
        };
        let holds = match name {
            "defined" => self.scope.variable(arguments).is_some() || is_set_by_haproxy(arguments),
            "streq" => pair().map(|(first, second)| first == second)?,
            "strneq" => pair().map(|(first, second)| first != second)?,
            "strstr" => pair().map(|(first, second)| first.contains(&second))?,
            "feature" | "version_atleast" | "openssl_version_atleast" => true,
            "version_before" | "openssl_version_before" => false,
            _ => return None,
        };
        self.details.push(match name {
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
    fn conditions_are_parsed_and_evaluated() {
        let scope = Scope::new(&EmptyEnvironment);
        let holds = |text: &str| {
            let mut parser = Parser {
                remaining: text,
                scope: &scope,
                details: Vec::new(),
            };
            parser
                .parse_or()
                .filter(|_| parser.remaining.trim().is_empty())
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
