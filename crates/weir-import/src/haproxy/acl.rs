//! ACLs and conditions, and their conversion to conditions of routes.

use std::collections::HashMap;

use super::criterion::{Clients, criterion, predefined};
use super::line::Line;
use crate::Environment;
use crate::layer7::Condition;
use crate::note::{Notes, Position};

/// A condition in terms of routes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Meaning {
    Always,
    Never,
    /// Any of these.
    AnyOf(Vec<Condition>),
    /// Routes do not support the condition, for this reason.
    Unsupported(String),
}

/// Why conditions cannot be combined.
const NOT_COMBINABLE: &str = "one route cannot express all of its conditions together";

/// Maximum number of routes for one rule.
const MAX_ROUTES: usize = 256;

/// The `acl` lines of a proxy.
#[derive(Debug, Default)]
pub(super) struct Acls {
    /// The lines of each ACL by its name; they are alternatives.
    named: HashMap<String, Vec<(Position, Vec<String>)>>,
}

impl Acls {
    pub(super) fn read(environment: &dyn Environment, lines: &[Line], notes: &mut Notes) -> Self {
        let mut acls = Self::default();
        for line in lines.iter().filter(|line| line.keyword() == "acl") {
            match line.word(1) {
                Some(name) if line.words.len() > 2 => {
                    let alternatives = acls.named.entry(name.to_owned()).or_default();
                    alternatives.push((line.position, with_files(environment, &line.words[2..])));
                }
                _ => line.reject(notes, "haproxy requires a name and a criterion"),
            }
        }
        acls
    }

    /// Returns the positions of the ACLs that a condition uses.
    pub(super) fn lines_of(&self, words: &[String]) -> Vec<Position> {
        let mut positions = Vec::new();
        for word in words {
            let lines = self.named.get(word.trim_start_matches('!'));
            positions.extend(lines.into_iter().flatten().map(|(position, _)| *position));
        }
        positions
    }

    /// Returns the criterion of an ACL; `None` unless it has exactly one line.
    pub(super) fn only_line(&self, name: &str) -> Option<&[String]> {
        match self.named.get(name)?.as_slice() {
            [(_, words)] => Some(words),
            _ => None,
        }
    }

    /// Returns the words of a condition, and those of the ACLs that it uses.
    pub(super) fn text_of(&self, words: &[String]) -> Vec<String> {
        let mut all = words.to_vec();
        for word in words {
            let lines = self.named.get(word.trim_start_matches('!'));
            all.extend(
                lines
                    .into_iter()
                    .flatten()
                    .flat_map(|(_, words)| words.clone()),
            );
        }
        all
    }

    /// Returns every `acl` line.
    pub(super) fn all(&self) -> impl Iterator<Item = Position> {
        self.named.values().flatten().map(|(position, _)| *position)
    }

    /// Converts `if …` or `unless …` for these clients. Without words, the result is `Always`.
    pub(super) fn condition(&self, words: &[String], clients: Clients<'_>) -> Meaning {
        let Some((word, rest)) = words.split_first() else {
            return Meaning::Always;
        };
        let meaning = match terms(rest) {
            Some(alternatives) => self.any(&alternatives, clients),
            None => Meaning::Unsupported("the closing brace is missing".to_owned()),
        };
        match word.as_str() {
            "if" => meaning,
            "unless" => negate(meaning),
            other => Meaning::Unsupported(format!("\"{other}\" is neither if nor unless")),
        }
    }

    /// Like [`Self::condition`], for a rule that keeps clients out: terms that routes do not support are removed, so
    /// that the rule applies to at least the same requests.
    pub(super) fn at_least(&self, words: &[String], clients: Clients<'_>) -> Meaning {
        let Some((word, rest)) = words.split_first() else {
            return Meaning::Always;
        };
        let Some(alternatives) = terms(rest).filter(|_| word == "if") else {
            return Meaning::Always;
        };
        let supported = |term: &Term| !matches!(self.term(term, clients), Meaning::Unsupported(_));
        let alternatives: Vec<Vec<Term>> = alternatives
            .into_iter()
            .map(|terms| terms.into_iter().filter(supported).collect())
            .collect();
        match self.any(&alternatives, clients) {
            Meaning::Unsupported(_) => Meaning::Always,
            meaning => meaning,
        }
    }

    /// Like [`Self::condition`], except for requests to which one of the other conditions applies.
    pub(super) fn except(
        &self,
        words: &[String],
        others: &[&[String]],
        clients: Clients<'_>,
    ) -> Meaning {
        let mut meaning = self.condition(words, clients);
        for other in others {
            meaning = all_of(&[meaning, negate(self.condition(other, clients))]);
        }
        meaning
    }

    fn any(&self, alternatives: &[Vec<Term>], clients: Clients<'_>) -> Meaning {
        let mut found = Vec::new();
        let mut all = Vec::new();
        for terms in alternatives {
            all.push(self.all_terms(terms, clients));
        }
        for meaning in all {
            match meaning {
                Meaning::Always => return Meaning::Always,
                Meaning::Never => {}
                Meaning::AnyOf(more) => found.extend(more),
                unsupported @ Meaning::Unsupported(_) => return unsupported,
            }
        }
        any_of(found)
    }

    fn all_terms(&self, terms: &[Term], clients: Clients<'_>) -> Meaning {
        let meanings: Vec<Meaning> = terms.iter().map(|term| self.term(term, clients)).collect();
        all_of(&meanings)
    }

    fn term(&self, term: &Term, clients: Clients<'_>) -> Meaning {
        let meaning = match &term.what {
            TermKind::Anonymous(words) => criterion(words, clients),
            TermKind::Named(name) => match (self.named.get(name), predefined(name)) {
                (Some(lines), _) => {
                    let mut found = Vec::new();
                    let mut always = false;
                    for (_, words) in lines {
                        match criterion(words, clients) {
                            Meaning::Always => always = true,
                            Meaning::Never => {}
                            Meaning::AnyOf(more) => found.extend(more),
                            unsupported @ Meaning::Unsupported(_) => return unsupported,
                        }
                    }
                    if always {
                        Meaning::Always
                    } else {
                        any_of(found)
                    }
                }
                (None, Some(meaning)) => meaning,
                (None, None) => Meaning::Unsupported(format!("no such acl: {name}")),
            },
        };
        if term.negated {
            negate(meaning)
        } else {
            meaning
        }
    }
}

/// Replaces `-f FILE` by the values in the file, one per line; `-f` remains if the file cannot be read.
fn with_files(environment: &dyn Environment, words: &[String]) -> Vec<String> {
    let mut all = Vec::new();
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
                all.extend(values.map(str::to_owned));
            }
            None => all.push(word.clone()),
        }
    }
    all
}

/// Returns the condition that any of these applies.
pub(super) fn any_of(found: Vec<Condition>) -> Meaning {
    if found.is_empty() {
        Meaning::Never
    } else if found.len() > MAX_ROUTES {
        Meaning::Unsupported(format!("it requires more than {MAX_ROUTES} routes"))
    } else {
        Meaning::AnyOf(found)
    }
}

/// Returns the condition that all of these apply.
fn all_of(meanings: &[Meaning]) -> Meaning {
    // If one of them never applies, the others do not need to be supported.
    if meanings.contains(&Meaning::Never) {
        return Meaning::Never;
    }
    let mut so_far = vec![Condition::default()];
    let mut has_conditions = false;
    for meaning in meanings {
        match meaning {
            Meaning::Always | Meaning::Never => {}
            Meaning::AnyOf(more) => {
                has_conditions = true;
                let pairs = so_far.iter().flat_map(|a| more.iter().map(move |b| (a, b)));
                let pairs = pairs.filter(|(a, b)| !a.excludes(b));
                let all: Option<Vec<Condition>> = pairs.map(|(a, b)| a.and(b)).collect();
                match all.filter(|all| all.len() <= MAX_ROUTES) {
                    Some(all) => so_far = all,
                    None => return Meaning::Unsupported(NOT_COMBINABLE.to_owned()),
                }
            }
            unsupported @ Meaning::Unsupported(_) => return unsupported.clone(),
        }
    }
    if has_conditions {
        any_of(so_far)
    } else {
        Meaning::Always
    }
}

/// Returns the condition that none of these applies.
fn none_of(conditions: &[Condition]) -> Meaning {
    let mut so_far = vec![Condition::default()];
    for condition in conditions {
        let negated = condition.negated();
        let pairs = so_far
            .iter()
            .flat_map(|a| negated.iter().map(move |b| (a, b)));
        let both: Option<Vec<Condition>> = pairs.map(|(a, b)| a.and(b)).collect();
        match both.filter(|both| both.len() <= MAX_ROUTES) {
            Some(both) => so_far = both,
            None => return Meaning::Unsupported(NOT_COMBINABLE.to_owned()),
        }
    }
    any_of(so_far)
}

fn negate(meaning: Meaning) -> Meaning {
    match meaning {
        Meaning::Always => Meaning::Never,
        Meaning::Never => Meaning::Always,
        Meaning::AnyOf(conditions) => none_of(&conditions),
        unsupported @ Meaning::Unsupported(_) => unsupported,
    }
}

struct Term {
    negated: bool,
    what: TermKind,
}

enum TermKind {
    Named(String),
    Anonymous(Vec<String>),
}

/// Returns the alternatives of a condition, each a list of terms that must all match; `None` = a closing brace or a
/// term is missing.
fn terms(words: &[String]) -> Option<Vec<Vec<Term>>> {
    let mut alternatives = vec![Vec::new()];
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let mut word = word.as_str();
        let mut negated = false;
        loop {
            if let Some(rest) = word.strip_prefix('!') {
                negated = !negated;
                word = rest;
            }
            if !word.is_empty() {
                break;
            }
            word = words.next()?;
        }
        let what = match word {
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
        alternatives.last_mut()?.push(Term { negated, what });
    }
    alternatives
        .iter()
        .all(|terms| !terms.is_empty())
        .then_some(alternatives)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meaning(acls: &Acls, text: &str, tls: bool) -> Meaning {
        let words: Vec<String> = text.split_whitespace().map(str::to_owned).collect();
        acls.condition(
            &words,
            Clients {
                tls,
                ..Clients::default()
            },
        )
    }

    #[test]
    fn supported_conditions_become_routes() {
        let acls = Acls::default();
        let parse = |text: &str| meaning(&acls, text, false);
        assert_eq!(parse("if { ssl_fc }"), Meaning::Never);
        assert_eq!(parse("unless { ssl_fc }"), Meaning::Always);
        assert_eq!(parse("if !{ ssl_fc } TRUE"), Meaning::Always);
        let Meaning::AnyOf(found) = parse("if { path_beg /a /b } { hdr(host) -i X.example }")
        else {
            panic!("not supported");
        };
        assert_eq!(found.len(), 2);
        assert_eq!(found[1].path.as_deref(), Some("/b*"));
        assert_eq!(found[1].host.as_deref(), Some("x.example"));
        let Meaning::AnyOf(found) = parse("if { src 10.0.0.0/8 ::1 } { path_reg -i ^/a[0-9]+ }")
        else {
            panic!("not supported");
        };
        assert_eq!(found[0].sources, ["10.0.0.0/8", "::1"]);
        assert_eq!(found[0].regex.as_deref(), Some("(?i)^/a[0-9]+"));
        let Meaning::AnyOf(found) = parse("if { path_beg -i /a.b } { req.cook(beta) yes }") else {
            panic!("not supported");
        };
        assert_eq!(found[0].regex.as_deref(), Some("(?i)^/a\\.b"));
        assert_eq!(found[0].cookies, ["beta=yes"]);
        assert_eq!(parse("unless { path -m found }"), Meaning::Never);
        assert_eq!(parse("if { method }"), Meaning::Never);
        let Meaning::AnyOf(found) = parse("if { hdr(host) -m found }") else {
            panic!("not supported");
        };
        assert_eq!(found[0].headers, ["host"]);
        assert!(matches!(
            parse("unless { ssl_fc_sni -m found }"),
            Meaning::Unsupported(_)
        ));
        assert!(matches!(
            parse("if { src office.example }"),
            Meaning::Unsupported(_)
        ));
        assert!(matches!(parse("if { path /a"), Meaning::Unsupported(_)));
        let Meaning::AnyOf(found) = parse("if { path_beg /a } { path_end .b }") else {
            panic!("not supported");
        };
        assert_eq!(found[0].path.as_deref(), Some("/a*"));
        assert_eq!(found[0].regex.as_deref(), Some("^.*\\.b$"));
        assert_eq!(parse("if { path /a } { path /b }"), Meaning::Never);
    }

    #[test]
    fn conditions_are_negated() {
        let acls = Acls::default();
        let parse = |text: &str| meaning(&acls, text, false);
        let Meaning::AnyOf(found) = parse("if !{ path /a /b } { method GET }") else {
            panic!("not supported");
        };
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].not["path"], ["/a", "/b"]);
        let Meaning::AnyOf(found) = parse("unless { path /a } { method GET }") else {
            panic!("not supported");
        };
        assert_eq!(found.len(), 2);
        assert_eq!(found[1].not["method"], ["GET"]);
        // A rule that keeps clients out applies to more requests, never to fewer.
        let words: Vec<String> = [
            "if",
            "{",
            "path",
            "/a",
            "}",
            "{",
            "src_conn_rate",
            "gt",
            "9",
            "}",
        ]
        .map(str::to_owned)
        .to_vec();
        let Meaning::AnyOf(found) = acls.at_least(&words, Clients::default()) else {
            panic!("not supported");
        };
        assert_eq!(found[0].path.as_deref(), Some("/a"));
        assert_eq!(
            acls.at_least(&words[5..], Clients::default()),
            Meaning::Always
        );
    }
}
