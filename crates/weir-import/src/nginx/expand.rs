//! Variables of `set`, `map` and `geo`. If their value is known, or depends on parts of the request that routes can
//! compare, directives are rewritten before they are converted.
//!
//! `set $x v` outside of `if` makes `$x` the text `v`. After `if (c) { set $x v; }` the variable has one value for
//! requests with `c` and another for the rest; an `if` that compares it becomes an `if` with the conditions of that
//! value. A directive that cannot be resolved this way keeps its variable, and is reported like any other.

use std::collections::{HashMap, HashSet};

use super::tree::Node;
use super::value_map::{Case, Maps};
use super::when::{ALWAYS, AND, negated, parts};
use crate::note::Position;

/// Maximum number of values of a variable: each becomes a route.
const CASES_MAX: usize = 64;

/// The values of the variables of `set`, each with the conditions under which the variable has it. Exactly one value of
/// a variable applies to each request. `None` = the value is unknown.
type Values = HashMap<String, Option<Vec<Case>>>;

/// Rewrites the server blocks among `nodes`. Returns the lines that are no longer needed.
pub(super) fn expand(nodes: &mut [Node], maps: &Maps) -> HashSet<Position> {
    let mut used = HashSet::new();
    for node in nodes.iter_mut().filter(|node| node.keyword() == "server") {
        let mut sets = Vec::new();
        let rewriter = Rewriter {
            maps,
            changes_path: changes_path(node),
        };
        let (inner, _) = rewriter.expand(node.inner(), &Values::new(), &mut sets);
        node.block = Some(inner);
        // The value of a variable is unknown where a directive still contains the variable.
        let names: HashSet<&str> = sets.iter().map(|(name, _)| name.as_str()).collect();
        let mut needed: HashSet<&str> = names.iter().copied().collect();
        needed.retain(|name| mentions(node.inner(), name));
        loop {
            let is_new = |name: &&&str| {
                let is_needed = |node: &&Node| needed.contains(line_name(node));
                let mut lines = set_lines(node.inner()).into_iter().filter(is_needed);
                !needed.contains(**name)
                    && lines
                        .any(|line| line.word(2).is_some_and(|it| variables(it).contains(*name)))
            };
            let Some(name) = names.iter().find(is_new).copied() else {
                break;
            };
            needed.insert(name);
        }
        let known = sets
            .iter()
            .filter(|(name, _)| !needed.contains(name.as_str()));
        used.extend(known.map(|(_, position)| *position));
    }
    used
}

/// Returns whether a directive changes the path, so that `$uri` does not have one value.
fn changes_path(node: &Node) -> bool {
    let changes = |line: &Node| line.keyword() == "rewrite" && line.word(3) != Some("permanent");
    node.inner()
        .iter()
        .any(|line| changes(line) || changes_path(line))
}

/// Returns all `set` lines of a block and of the blocks in it.
fn set_lines(nodes: &[Node]) -> Vec<&Node> {
    let own = nodes.iter().filter(|node| node.keyword() == "set");
    own.chain(nodes.iter().flat_map(|node| set_lines(node.inner())))
        .collect()
}

/// Returns whether a directive other than `set` contains a variable.
fn mentions(nodes: &[Node], name: &str) -> bool {
    nodes.iter().any(|node| {
        let is_own = node.keyword() == "set";
        let words = node.words.get(1..).unwrap_or_default();
        !is_own && words.iter().any(|word| variables(word).contains(&name))
            || mentions(node.inner(), name)
    })
}

/// Returns the names of the variables in a text.
fn variables(text: &str) -> Vec<&str> {
    let mut names = Vec::new();
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        rest = &rest[at + 1..];
        let inner = rest.strip_prefix('{').unwrap_or(rest);
        let is_end = |c: char| !c.is_ascii_alphanumeric() && c != '_';
        let end = inner.find(is_end).unwrap_or(inner.len());
        // `$` at the end of an expression is not a variable.
        if end > 0 {
            names.push(&inner[..end]);
        }
        rest = &inner[end..];
    }
    names
}

/// Replaces a variable by its value.
fn replaced(text: &str, name: &str, value: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        out.push_str(&rest[..at]);
        let behind = &rest[at + 1..];
        let braced = behind.strip_prefix('{');
        let inner = braced.unwrap_or(behind);
        let is_end = |c: char| !c.is_ascii_alphanumeric() && c != '_';
        let end = inner.find(is_end).unwrap_or(inner.len());
        let after = match braced {
            Some(_) => inner[end..].strip_prefix('}').unwrap_or(&inner[end..]),
            None => &inner[end..],
        };
        match &inner[..end] == name {
            true => out.push_str(value),
            false => out.push_str(&rest[at..rest.len() - after.len()]),
        }
        rest = after;
    }
    out.push_str(rest);
    out
}

/// Returns the value of a variable that has only one.
fn only_value(cases: &Option<Vec<Case>>) -> Option<&str> {
    match cases.as_deref() {
        Some([case]) => Some(&case.value),
        _ => None,
    }
}

/// Rewrites the directives of a server block.
struct Rewriter<'m> {
    maps: &'m Maps,
    changes_path: bool,
}

impl Rewriter<'_> {
    /// Rewrites the directives of a block, with the values of variables at its beginning. Returns the values at its end
    /// too, and adds the lines that set variables to `sets`.
    fn expand(
        &self,
        nodes: &[Node],
        before: &Values,
        sets: &mut Vec<(String, Position)>,
    ) -> (Vec<Node>, Values) {
        let mut values = before.clone();
        let mut out: Vec<Node> = Vec::new();
        for node in nodes {
            match node.keyword() {
                "set" => {
                    self.set(node, &mut values, sets);
                    out.push(node.clone());
                }
                "if" => out.extend(self.condition(node, &mut values, sets)),
                "return" | "rewrite" => out.extend(self.directive(node, &values)),
                _ => out.push(node.clone()),
            }
        }
        // nginx evaluates all other directives after these.
        let mut all = Vec::new();
        for node in out {
            match (node.keyword(), &node.block) {
                ("set" | "if" | "return" | "rewrite", _) => all.push(node),
                ("location", Some(inner)) => {
                    let (inner, _) = self.expand(inner, &values, sets);
                    all.push(Node {
                        block: Some(inner),
                        ..node
                    });
                }
                _ => all.extend(self.directive(&node, &values)),
            }
        }
        (all, values)
    }

    /// Evaluates `set $name value`.
    fn set(&self, node: &Node, values: &mut Values, sets: &mut Vec<(String, Position)>) {
        let (Some(name), Some(value)) = (node.word(1), node.word(2)) else {
            return;
        };
        let name = name.trim_start_matches('$').to_owned();
        let cases = self.cases(value, values);
        sets.push((name.clone(), node.position));
        values.insert(name, cases);
    }

    /// Returns the values of a text; `None` = they are unknown.
    fn cases(&self, text: &str, values: &Values) -> Option<Vec<Case>> {
        let mut cases = vec![Case {
            conditions: Vec::new(),
            value: text.to_owned(),
        }];
        for name in variables(text) {
            let is_path = matches!(name, "uri" | "document_uri" | "args" | "query_string");
            if name.starts_with(|c: char| c.is_ascii_digit()) || is_path && self.changes_path {
                return None;
            }
            let of_variable = match values.get(name) {
                Some(known) => known.clone()?,
                None => match self.maps.cases(name) {
                    Some(cases) => cases,
                    None if self.maps.has(name) => return None,
                    // One of nginx's own.
                    None => continue,
                },
            };
            let mut more = Vec::new();
            for case in &cases {
                for own in &of_variable {
                    more.push(Case {
                        conditions: [case.conditions.clone(), own.conditions.clone()].concat(),
                        value: replaced(&case.value, name, &own.value),
                    });
                }
            }
            cases = more;
            if cases.len() > CASES_MAX {
                return None;
            }
        }
        Some(cases)
    }

    /// Rewrites an `if`. One that contains only `set` changes the values of variables; another becomes an `if` for each
    /// value with which its condition holds.
    fn condition(
        &self,
        node: &Node,
        values: &mut Values,
        sets: &mut Vec<(String, Position)>,
    ) -> Vec<Node> {
        let alternatives = self.alternatives(node, values);
        let is_set = |line: &Node| line.keyword() == "set";
        if node.inner().iter().all(is_set) && !node.inner().is_empty() {
            return self.conditional_set(node, alternatives, values, sets);
        }
        let (inner, _) = self.expand(node.inner(), values, sets);
        let Some(alternatives) = alternatives else {
            return vec![Node {
                block: Some(inner),
                ..node.clone()
            }];
        };
        let with = |conditions: Vec<String>| Node {
            position: node.position,
            words: vec!["if".to_owned(), text_of(&conditions)],
            block: Some(inner.clone()),
        };
        alternatives.into_iter().map(with).collect()
    }

    /// Evaluates `if (c) { set $x v; }`.
    fn conditional_set(
        &self,
        node: &Node,
        alternatives: Option<Vec<Vec<String>>>,
        values: &mut Values,
        sets: &mut Vec<(String, Position)>,
    ) -> Vec<Node> {
        let condition = match alternatives.as_deref() {
            Some([conditions]) => Some(conditions.clone()),
            _ => None,
        };
        let before = values.clone();
        let mut inside = values.clone();
        for line in node.inner() {
            self.set(line, &mut inside, sets);
            let Some(name) = line.word(1).map(|name| name.trim_start_matches('$')) else {
                continue;
            };
            let unset = || {
                Some(vec![Case {
                    conditions: Vec::new(),
                    value: String::new(),
                }])
            };
            let former = before.get(name).cloned().unwrap_or_else(unset);
            let merged = merge(condition.as_deref(), former, inside.get(name));
            values.insert(name.to_owned(), merged);
        }
        sets.push((first_name(node), node.position));
        let is_known = node
            .inner()
            .iter()
            .all(|line| values.get(line_name(line)).is_some_and(Option::is_some));
        match is_known {
            true => Vec::new(),
            false => vec![node.clone()],
        }
    }

    /// Returns the alternatives of an `if`, each a list of conditions that must all hold; `None` = it cannot be
    /// rewritten.
    fn alternatives(&self, node: &Node, values: &Values) -> Option<Vec<Vec<String>>> {
        let text = node.words.get(1..)?.join(" ");
        let text = text.strip_prefix('(')?.strip_suffix(')')?.trim().to_owned();
        let (variable, sign, wanted) = parts(&text)?;
        let name = variable.strip_prefix('$')?;
        let wanted = match variables(wanted).is_empty() {
            true => wanted.to_owned(),
            false => return None,
        };
        let holds: Box<dyn Fn(&str) -> bool> = match sign {
            None => Box::new(|value: &str| !value.is_empty() && value != "0"),
            Some("=") => Box::new(move |value: &str| value == wanted),
            Some("!=") => Box::new(move |value: &str| value != wanted),
            Some(_) if self.is_defined(name, values) => return None,
            Some(_) => return Some(vec![vec![text.clone()]]),
        };
        let Some(cases) = values.get(name) else {
            return match self.maps.has(name) {
                true => self.maps.alternatives(name, &holds),
                false => Some(vec![vec![text.clone()]]),
            };
        };
        let cases = cases.as_ref()?;
        // The value depends on the request, so it cannot be compared here.
        if cases.iter().any(|case| case.value.contains('$')) {
            return None;
        }
        let held = cases.iter().filter(|case| holds(&case.value));
        Some(held.map(|case| case.conditions.clone()).collect())
    }

    /// Returns whether the file defines the variable.
    fn is_defined(&self, name: &str, values: &Values) -> bool {
        values.contains_key(name) || self.maps.has(name)
    }

    /// Replaces the variables of a directive by their values. A `proxy_pass` with several values becomes an `if` for
    /// each.
    fn directive(&self, node: &Node, values: &Values) -> Vec<Node> {
        if node.keyword() == "proxy_pass"
            && let Some(target) = node.word(1)
            && variables(target)
                .iter()
                .any(|name| self.is_defined(name, values))
        {
            return self.target(node, target, values);
        }
        let mut node = node.clone();
        for word in node.words.iter_mut().skip(1) {
            let names: Vec<String> = variables(word).into_iter().map(str::to_owned).collect();
            for name in names {
                if let Some(value) = values.get(&name).and_then(only_value) {
                    *word = replaced(word, &name, value);
                } else if !values.contains_key(&name) && self.maps.is_table(&name) {
                    *word = replaced(word, &name, &Maps::token(&name));
                }
            }
        }
        if let Some(inner) = node.block.take() {
            let inner = inner.iter().flat_map(|line| self.directive(line, values));
            node.block = Some(inner.collect());
        }
        vec![node]
    }

    fn target(&self, node: &Node, target: &str, values: &Values) -> Vec<Node> {
        let Some(cases) = self.cases(target, values) else {
            return vec![node.clone()];
        };
        // With a variable, nginx sends the path of the URL as the whole path, instead of replacing the location's.
        let path = |url: &str| {
            let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
            rest.find('/').map(|at| rest[at..].to_owned())
        };
        if cases.iter().any(|case| path(&case.value).is_some()) {
            return vec![node.clone()];
        }
        let with = |value: &str| Node {
            words: vec!["proxy_pass".to_owned(), value.to_owned()],
            ..node.clone()
        };
        let Some((last, others)) = cases.split_last() else {
            return vec![node.clone()];
        };
        let mut nodes: Vec<Node> = others
            .iter()
            .map(|case| Node {
                position: node.position,
                words: vec!["if".to_owned(), text_of(&case.conditions)],
                block: Some(vec![with(&case.value)]),
            })
            .collect();
        nodes.push(with(&last.value));
        nodes
    }
}

fn line_name(line: &Node) -> &str {
    line.word(1).unwrap_or_default().trim_start_matches('$')
}

fn first_name(node: &Node) -> String {
    node.inner()
        .first()
        .map_or("", |line| line_name(line))
        .to_owned()
}

/// Returns the values of a variable after an `if` that sets it: `inside` if the condition holds, `former` otherwise.
fn merge(
    condition: Option<&[String]>,
    former: Option<Vec<Case>>,
    inside: Option<&Option<Vec<Case>>>,
) -> Option<Vec<Case>> {
    // The opposite of several conditions is not one list of conditions.
    let [condition] = condition? else {
        return None;
    };
    let not = negated(condition)?;
    let with = |cases: &[Case], condition: &str| -> Vec<Case> {
        let of = |case: &Case| Case {
            conditions: [case.conditions.clone(), vec![condition.to_owned()]].concat(),
            value: case.value.clone(),
        };
        cases.iter().map(of).collect()
    };
    let inside = inside?.as_ref()?;
    let mut cases = with(inside, condition);
    cases.extend(with(&former?, &not));
    cases.retain(|case| {
        let opposite =
            |one: &String| negated(one).is_some_and(|not| case.conditions.contains(&not));
        !case.conditions.iter().any(opposite)
    });
    for case in &mut cases {
        let mut seen = HashSet::new();
        case.conditions.retain(|one| seen.insert(one.clone()));
    }
    (cases.len() <= CASES_MAX).then_some(cases)
}

/// Returns conditions in the form that [`when`](super::when::when) parses.
fn text_of(conditions: &[String]) -> String {
    match conditions {
        [] => format!("({ALWAYS})"),
        conditions => format!("({})", conditions.join(AND)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_are_found_and_replaced() {
        assert_eq!(variables("$a-${b}c$d"), ["a", "b", "d"]);
        assert_eq!(replaced("$a-${a}b-$ab", "a", "x"), "x-xb-$ab");
        assert_eq!(
            replaced("http://$a$request_uri", "a", "u"),
            "http://u$request_uri"
        );
    }
}
