//! ACLs and conditions, as far as routes can say them.

use std::collections::HashMap;

use super::criterion::{criterion, predefined};
use super::line::Line;
use crate::World;
use crate::layer7::Condition;
use crate::note::{Notes, Place};

/// What a condition comes to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Meaning {
    Always,
    Never,
    /// Any of these.
    AnyOf(Vec<Condition>),
    /// A route cannot say it; why.
    Unsaid(String),
}

/// More routes than this for one rule are no help to anybody.
const MOST: usize = 64;

/// The `acl` lines of a proxy.
#[derive(Debug, Default)]
pub(super) struct Acls {
    /// Each with the lines of its name, which are alternatives.
    named: HashMap<String, Vec<(Place, Vec<String>)>>,
}

impl Acls {
    pub(super) fn read(world: &dyn World, lines: &[Line], notes: &mut Notes) -> Self {
        let mut acls = Self::default();
        for line in lines.iter().filter(|line| line.keyword() == "acl") {
            match line.word(1) {
                Some(name) if line.words.len() > 2 => {
                    let of = acls.named.entry(name.to_owned()).or_default();
                    of.push((line.place, with_files(world, &line.words[2..])));
                }
                _ => line.refuse(notes, "haproxy wants a name and a criterion"),
            }
        }
        acls
    }

    /// The lines of the ACLs that a condition names.
    pub(super) fn lines_of(&self, words: &[String]) -> Vec<Place> {
        let mut places = Vec::new();
        for word in words {
            let known = self.named.get(word.trim_start_matches('!'));
            places.extend(known.into_iter().flatten().map(|(place, _)| *place));
        }
        places
    }

    /// Every `acl` line.
    pub(super) fn all(&self) -> impl Iterator<Item = Place> {
        self.named.values().flatten().map(|(place, _)| *place)
    }

    /// What `if …` or `unless …` means to clients that come by TLS, or not; no words mean always.
    pub(super) fn condition(&self, words: &[String], tls: bool) -> Meaning {
        let Some((word, rest)) = words.split_first() else {
            return Meaning::Always;
        };
        let meaning = match terms(rest) {
            Some(alternatives) => self.any(&alternatives, tls),
            None => Meaning::Unsaid("its braces do not close".to_owned()),
        };
        match word.as_str() {
            "if" => meaning,
            "unless" => not(meaning),
            other => Meaning::Unsaid(format!("\"{other}\" is neither if nor unless")),
        }
    }

    fn any(&self, alternatives: &[Vec<Term>], tls: bool) -> Meaning {
        let mut found = Vec::new();
        let mut all = Vec::new();
        for terms in alternatives {
            all.push(self.all_of(terms, tls));
        }
        for meaning in all {
            match meaning {
                Meaning::Always => return Meaning::Always,
                Meaning::Never => {}
                Meaning::AnyOf(more) => found.extend(more),
                unsaid @ Meaning::Unsaid(_) => return unsaid,
            }
        }
        some(found)
    }

    fn all_of(&self, terms: &[Term], tls: bool) -> Meaning {
        let mut so_far = vec![Condition::default()];
        let mut said = false;
        let mut meanings = Vec::new();
        for term in terms {
            meanings.push(self.term(term, tls));
        }
        // What can never hold needs no words for the rest.
        if meanings.contains(&Meaning::Never) {
            return Meaning::Never;
        }
        for meaning in meanings {
            match meaning {
                Meaning::Always | Meaning::Never => {}
                Meaning::AnyOf(more) => {
                    said = true;
                    let pairs = so_far.iter().flat_map(|a| more.iter().map(move |b| (a, b)));
                    let both: Option<Vec<Condition>> = pairs.map(|(a, b)| a.and(b)).collect();
                    match both.filter(|both| both.len() <= MOST) {
                        Some(both) => so_far = both,
                        None => {
                            let why = "a route has one host and one path".to_owned();
                            return Meaning::Unsaid(why);
                        }
                    }
                }
                unsaid @ Meaning::Unsaid(_) => return unsaid,
            }
        }
        if said { some(so_far) } else { Meaning::Always }
    }

    fn term(&self, term: &Term, tls: bool) -> Meaning {
        let meaning = match &term.what {
            What::Anonymous(words) => criterion(words, tls),
            What::Named(name) => match (self.named.get(name), predefined(name)) {
                (Some(lines), _) => {
                    let mut found = Vec::new();
                    let mut always = false;
                    for (_, words) in lines {
                        match criterion(words, tls) {
                            Meaning::Always => always = true,
                            Meaning::Never => {}
                            Meaning::AnyOf(more) => found.extend(more),
                            unsaid @ Meaning::Unsaid(_) => return unsaid,
                        }
                    }
                    if always { Meaning::Always } else { some(found) }
                }
                (None, Some(meaning)) => meaning,
                (None, None) => Meaning::Unsaid(format!("there is no acl {name}")),
            },
        };
        if term.negated { not(meaning) } else { meaning }
    }
}

/// `-f FILE` as the values that stand in it, a line each.
fn with_files(world: &dyn World, words: &[String]) -> Vec<String> {
    let mut all = Vec::new();
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let file = match word.as_str() {
            "-f" => words.clone().next().and_then(|path| world.read(path).ok()),
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

pub(super) fn some(found: Vec<Condition>) -> Meaning {
    if found.is_empty() {
        Meaning::Never
    } else if found.len() > MOST {
        Meaning::Unsaid(format!("it would be more than {MOST} routes"))
    } else {
        Meaning::AnyOf(found)
    }
}

fn not(meaning: Meaning) -> Meaning {
    match meaning {
        Meaning::Always => Meaning::Never,
        Meaning::Never => Meaning::Always,
        Meaning::AnyOf(_) => {
            Meaning::Unsaid("routes cannot say what a request must not be".to_owned())
        }
        unsaid @ Meaning::Unsaid(_) => unsaid,
    }
}

struct Term {
    negated: bool,
    what: What,
}

enum What {
    Named(String),
    Anonymous(Vec<String>),
}

/// Alternatives of terms that must all hold; `None` = a brace does not close.
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
                What::Anonymous(inner)
            }
            name => What::Named(name.to_owned()),
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
        acls.condition(&words, tls)
    }

    #[test]
    fn conditions_become_routes_where_they_can() {
        let acls = Acls::default();
        let said = |text: &str| meaning(&acls, text, false);
        assert_eq!(said("if { ssl_fc }"), Meaning::Never);
        assert_eq!(said("unless { ssl_fc }"), Meaning::Always);
        assert_eq!(said("if !{ ssl_fc } TRUE"), Meaning::Always);
        let Meaning::AnyOf(found) = said("if { path_beg /a /b } { hdr(host) -i X.example }") else {
            panic!("said");
        };
        assert_eq!(found.len(), 2);
        assert_eq!(found[1].path.as_deref(), Some("/b*"));
        assert_eq!(found[1].host.as_deref(), Some("x.example"));
        let Meaning::AnyOf(found) = said("if { src 10.0.0.0/8 ::1 } { path_reg -i ^/a[0-9]+ }")
        else {
            panic!("said");
        };
        assert_eq!(found[0].sources, ["10.0.0.0/8", "::1"]);
        assert_eq!(found[0].regex.as_deref(), Some("(?i)^/a[0-9]+"));
        let Meaning::AnyOf(found) = said("if { path_beg -i /a.b } { req.cook(beta) yes }") else {
            panic!("said");
        };
        assert_eq!(found[0].regex.as_deref(), Some("(?i)^/a\\.b"));
        assert_eq!(found[0].cookies, ["beta=yes"]);
        assert_eq!(said("unless { path -m found }"), Meaning::Never);
        assert_eq!(said("if { method }"), Meaning::Never);
        let Meaning::AnyOf(found) = said("if { hdr(host) -m found }") else {
            panic!("said");
        };
        assert_eq!(found[0].headers, ["host"]);
        assert!(matches!(
            said("unless { ssl_fc_sni -m found }"),
            Meaning::Unsaid(_)
        ));
        assert!(matches!(
            said("if { src office.example }"),
            Meaning::Unsaid(_)
        ));
        assert!(matches!(said("if !{ path /a }"), Meaning::Unsaid(_)));
        assert!(matches!(said("if { path /a"), Meaning::Unsaid(_)));
        assert!(matches!(
            said("if { path_beg /a } { path_end .b }"),
            Meaning::Unsaid(_)
        ));
    }
}
