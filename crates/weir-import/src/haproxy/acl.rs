//! Converts ACLs and conditions to route conditions.

use std::collections::HashMap;

use super::criterion::{FrontendContext, convert_criterion, predefined};
use super::line::Line;
use super::rule;
use crate::Environment;
use crate::layer7::Condition;
use crate::note::{Notes, Position};

/// The result of converting a haproxy condition to equivalent route conditions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Conversion {
    Always,
    Never,
    /// At least one of these conditions must match.
    AnyOf(Vec<Condition>),
    /// Routes do not support the condition, for this reason.
    Unsupported(String),
}

/// Why conditions cannot be combined.
const NOT_COMBINABLE: &str = "one route cannot express this combination of conditions";

/// Maximum number of routes for one rule.
const MAX_ROUTES: usize = 256;

/// The `acl` lines of a proxy.
#[derive(Debug, Default)]
pub(super) struct Acls {
    /// The lines of each ACL, by ACL name; lines with the same name are alternatives.
    by_name: HashMap<String, Vec<(Position, Vec<String>)>>,
}

impl Acls {
    pub(super) fn read(environment: &dyn Environment, lines: &[Line], notes: &mut Notes) -> Self {
        let mut acls = Self::default();
        for line in lines.iter().filter(|line| line.keyword() == "acl") {
            match line.word(1) {
                Some(name) if line.words.len() > 2 => {
                    let alternatives = acls.by_name.entry(name.to_owned()).or_default();
                    alternatives.push((line.position, expand_files(environment, &line.words[2..])));
                }
                _ => line.reject(notes, "haproxy requires a name and a criterion"),
            }
        }
        acls
    }

    /// Returns the positions of the `acl` lines that a condition uses.
    pub(super) fn positions_of(&self, words: &[String]) -> Vec<Position> {
        let mut positions = Vec::new();
        for word in words {
            let lines = self.by_name.get(word.trim_start_matches('!'));
            positions.extend(lines.into_iter().flatten().map(|(position, _)| *position));
        }
        positions
    }

    /// Returns the criterion of an ACL, or `None` if the ACL does not have exactly one line.
    pub(super) fn single_criterion(&self, name: &str) -> Option<&[String]> {
        match self.by_name.get(name)?.as_slice() {
            [(_, words)] => Some(words),
            _ => None,
        }
    }

    /// Returns the words of a condition and of the ACLs that it uses.
    pub(super) fn all_words(&self, words: &[String]) -> Vec<String> {
        let mut all = words.to_vec();
        for word in words {
            let lines = self.by_name.get(word.trim_start_matches('!'));
            all.extend(
                lines
                    .into_iter()
                    .flatten()
                    .flat_map(|(_, words)| words.clone()),
            );
        }
        all
    }

    /// Returns the position of every `acl` line.
    pub(super) fn all_positions(&self) -> impl Iterator<Item = Position> {
        self.by_name
            .values()
            .flatten()
            .map(|(position, _)| *position)
    }

    /// Converts `if …` or `unless …`. Returns `Always` if there are no words.
    pub(super) fn condition(&self, words: &[String], frontend: FrontendContext<'_>) -> Conversion {
        let Some((word, term_words)) = words.split_first() else {
            return Conversion::Always;
        };
        let conversion = match parse_terms(term_words) {
            Some(alternatives) => self.convert_any(&alternatives, frontend),
            None => Conversion::Unsupported("a term or a closing brace is missing".to_owned()),
        };
        match word.as_str() {
            "if" => conversion,
            "unless" => negate(conversion),
            other => Conversion::Unsupported(format!("expected `if` or `unless`, found `{other}`")),
        }
    }

    /// Converts the condition of a rule that restricts access. Omits terms that routes do not support: the rule then
    /// applies to at least the same requests.
    pub(super) fn broadened_condition(
        &self,
        words: &[String],
        frontend: FrontendContext<'_>,
    ) -> Conversion {
        let Some((word, term_words)) = words.split_first() else {
            return Conversion::Always;
        };
        let Some(alternatives) = parse_terms(term_words).filter(|_| word == "if") else {
            return Conversion::Always;
        };
        let is_supported =
            |term: &Term| !matches!(self.term(term, frontend), Conversion::Unsupported(_));
        let alternatives: Vec<Vec<Term>> = alternatives
            .into_iter()
            .map(|terms| terms.into_iter().filter(is_supported).collect())
            .collect();
        match self.convert_any(&alternatives, frontend) {
            Conversion::Unsupported(_) => Conversion::Always,
            conversion => conversion,
        }
    }

    /// Converts a line's condition, excluding requests to which one of the other lines applies.
    pub(super) fn condition_except(
        &self,
        (line, words): (&Line, &[String]),
        others: &[&Line],
        frontend: FrontendContext<'_>,
    ) -> Conversion {
        let mut conversion = self.condition(words, frontend.for_line(line));
        for other in others {
            let (_, other_words) = rule::condition(other.arguments());
            let excluded = self.condition(other_words, frontend.for_line(other));
            conversion = all_of(&[conversion, negate(excluded)]);
        }
        conversion
    }

    fn convert_any(&self, alternatives: &[Vec<Term>], frontend: FrontendContext<'_>) -> Conversion {
        let mut conditions = Vec::new();
        let conversions: Vec<Conversion> = alternatives
            .iter()
            .map(|terms| self.convert_all(terms, frontend))
            .collect();
        // If one alternative always applies, the others do not need to be supported.
        if conversions.contains(&Conversion::Always) {
            return Conversion::Always;
        }
        for conversion in conversions {
            match conversion {
                Conversion::Always | Conversion::Never => {}
                Conversion::AnyOf(more) => conditions.extend(more),
                unsupported @ Conversion::Unsupported(_) => return unsupported,
            }
        }
        any_of(conditions)
    }

    fn convert_all(&self, terms: &[Term], frontend: FrontendContext<'_>) -> Conversion {
        let conversions: Vec<Conversion> =
            terms.iter().map(|term| self.term(term, frontend)).collect();
        all_of(&conversions)
    }

    fn term(&self, term: &Term, frontend: FrontendContext<'_>) -> Conversion {
        let conversion = match &term.kind {
            TermKind::Anonymous(words) => convert_criterion(words, frontend),
            TermKind::Named(name) => match (self.by_name.get(name), predefined(name, frontend)) {
                (Some(lines), _) => {
                    let mut conditions = Vec::new();
                    let mut is_always = false;
                    for (_, words) in lines {
                        match convert_criterion(words, frontend) {
                            Conversion::Always => is_always = true,
                            Conversion::Never => {}
                            Conversion::AnyOf(more) => conditions.extend(more),
                            unsupported @ Conversion::Unsupported(_) => return unsupported,
                        }
                    }
                    if is_always {
                        Conversion::Always
                    } else {
                        any_of(conditions)
                    }
                }
                (None, Some(conversion)) => conversion,
                (None, None) => Conversion::Unsupported(format!("the ACL `{name}` is not defined")),
            },
        };
        if term.is_negated {
            negate(conversion)
        } else {
            conversion
        }
    }
}

/// Replaces `-f FILE` with the values in the file, one per line; `-f` remains if the file cannot be read.
fn expand_files(environment: &dyn Environment, words: &[String]) -> Vec<String> {
    let mut expanded = Vec::new();
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let file = match word.as_str() {
            "-f" => words
                .clone()
                .next()
                .and_then(|path| environment.read(path).ok()),
            _ => None,
        };
        match file {
            Some(text) => {
                words.next();
                let lines = text.lines().map(str::trim);
                let values = lines.filter(|line| !line.is_empty() && !line.starts_with('#'));
                expanded.extend(values.map(str::to_owned));
            }
            None => expanded.push(word.clone()),
        }
    }
    expanded
}

/// Returns a condition that matches if at least one of these conditions matches.
pub(super) fn any_of(conditions: Vec<Condition>) -> Conversion {
    if conditions.is_empty() {
        Conversion::Never
    } else if conditions.len() > MAX_ROUTES {
        too_many_routes()
    } else {
        Conversion::AnyOf(conditions)
    }
}

/// Returns a condition that matches if all of these conditions match.
fn all_of(conversions: &[Conversion]) -> Conversion {
    // If one condition never applies, the others do not need to be supported.
    if conversions.contains(&Conversion::Never) {
        return Conversion::Never;
    }
    let mut combined = vec![Condition::default()];
    let mut has_conditions = false;
    for conversion in conversions {
        match conversion {
            Conversion::Always | Conversion::Never => {}
            Conversion::AnyOf(more) => {
                has_conditions = true;
                let pairs = combined
                    .iter()
                    .flat_map(|a| more.iter().map(move |b| (a, b)));
                let pairs = pairs.filter(|(a, b)| !a.excludes(b));
                let combinations: Option<Vec<Condition>> = pairs.map(|(a, b)| a.and(b)).collect();
                match combinations {
                    Some(combinations) if combinations.len() > MAX_ROUTES => {
                        return too_many_routes();
                    }
                    Some(combinations) => combined = combinations,
                    None => return Conversion::Unsupported(NOT_COMBINABLE.to_owned()),
                }
            }
            unsupported @ Conversion::Unsupported(_) => return unsupported.clone(),
        }
    }
    if has_conditions {
        any_of(combined)
    } else {
        Conversion::Always
    }
}

/// Returns a condition that matches if none of these conditions matches.
fn none_of(conditions: &[Condition]) -> Conversion {
    let mut combined = vec![Condition::default()];
    for condition in conditions {
        let negated = condition.negated();
        let pairs = combined
            .iter()
            .flat_map(|a| negated.iter().map(move |b| (a, b)));
        let combinations: Option<Vec<Condition>> = pairs.map(|(a, b)| a.and(b)).collect();
        match combinations {
            Some(combinations) if combinations.len() > MAX_ROUTES => return too_many_routes(),
            Some(combinations) => combined = combinations,
            None => return Conversion::Unsupported(NOT_COMBINABLE.to_owned()),
        }
    }
    any_of(combined)
}

fn too_many_routes() -> Conversion {
    Conversion::Unsupported(format!("it requires more than {MAX_ROUTES} routes"))
}

fn negate(conversion: Conversion) -> Conversion {
    match conversion {
        Conversion::Always => Conversion::Never,
        Conversion::Never => Conversion::Always,
        Conversion::AnyOf(conditions) => none_of(&conditions),
        unsupported @ Conversion::Unsupported(_) => unsupported,
    }
}

struct Term {
    is_negated: bool,
    kind: TermKind,
}

enum TermKind {
    Named(String),
    Anonymous(Vec<String>),
}

/// Returns the alternatives of a condition, each a list of terms that must all match. Returns `None` if a closing brace
/// or a term is missing.
fn parse_terms(words: &[String]) -> Option<Vec<Vec<Term>>> {
    let mut alternatives = vec![Vec::new()];
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let mut word = word.as_str();
        let mut is_negated = false;
        loop {
            while let Some(tail) = word.strip_prefix('!') {
                is_negated = !is_negated;
                word = tail;
            }
            if !word.is_empty() {
                break;
            }
            word = words.next()?;
        }
        let kind = match word {
            "or" | "||" => {
                alternatives.push(Vec::new());
                continue;
            }
            "{" => {
                let mut inner = Vec::new();
                loop {
                    match words.next()?.as_str() {
                        "}" => break,
                        word => inner.push(word.to_owned()),
                    }
                }
                TermKind::Anonymous(inner)
            }
            name => TermKind::Named(name.to_owned()),
        };
        alternatives.last_mut()?.push(Term { is_negated, kind });
    }
    alternatives
        .iter()
        .all(|terms| !terms.is_empty())
        .then_some(alternatives)
}

#[cfg(test)]
mod tests;
