//! Expands variables of `set`, `map` and `geo` before directives that use them are converted.
//!
//! If a variable's value is known, or depends only on parts of the request that routes can compare, the directives that
//! use it are rewritten.
//!
//! `set $x v` outside of `if` makes `$x` the text `v`. After `if (c) { set $x v; }`, the variable has one value for
//! requests that meet `c` and another value for all others. An `if` that compares the variable becomes an `if` with the
//! conditions for the compared value. A directive that cannot be resolved this way keeps the variable, and is reported
//! like any unsupported directive.

use std::collections::{HashMap, HashSet};

use super::tree::Node;
use super::value_map::{Case, Maps};
use super::when::{ALWAYS, AND, negated, split_condition};
use crate::note::Position;

/// Maximum number of values that a variable can have: each becomes a route.
const MAX_CASES: usize = 64;

/// The values of the variables that `set` assigns, each with the conditions under which it applies. Exactly one value
/// of a variable applies to each request. `None` if the value is unknown.
type Values = HashMap<String, Option<Vec<Case>>>;

/// Rewrites the `server` blocks and `log_format` lines in `nodes`. Returns the positions of the `set` lines that are no
/// longer needed.
pub(super) fn expand(nodes: &mut [Node], maps: &Maps) -> HashSet<Position> {
    let mut used = HashSet::new();
    for node in nodes.iter_mut().filter(|it| it.keyword() == "log_format") {
        let rewriter = Rewriter {
            maps,
            changes_path: false,
        };
        for line in rewriter.replace_variables(node, &Values::new()) {
            *node = line;
        }
    }
    for node in nodes.iter_mut().filter(|node| node.keyword() == "server") {
        let mut sets = Vec::new();
        let rewriter = Rewriter {
            maps,
            changes_path: changes_path(node),
        };
        let (inner, _) = rewriter.expand(node.inner(), &Values::new(), &mut sets);
        node.block = Some(inner);
        // A variable is still needed if a remaining directive, or the `set` line of a needed variable, contains it.
        let names: HashSet<&str> = sets.iter().map(|(name, _)| name.as_str()).collect();
        let mut needed: HashSet<&str> = names.iter().copied().collect();
        needed.retain(|name| uses_variable(node.inner(), name));
        loop {
            let is_newly_needed = |name: &&&str| {
                let is_needed = |node: &&Node| needed.contains(assigned_variable(node));
                let mut lines = set_lines(node.inner()).into_iter().filter(is_needed);
                !needed.contains(**name)
                    && lines
                        .any(|line| line.word(2).is_some_and(|it| variables(it).contains(*name)))
            };
            let Some(name) = names.iter().find(is_newly_needed).copied() else {
                break;
            };
            needed.insert(name);
        }
        let resolved = sets
            .iter()
            .filter(|(name, _)| !needed.contains(name.as_str()));
        used.extend(resolved.map(|(_, position)| *position));
    }
    used
}

/// Returns whether a directive in the block changes the path; `$uri` then has several values.
fn changes_path(node: &Node) -> bool {
    let is_path_change =
        |line: &Node| line.keyword() == "rewrite" && line.word(3) != Some("permanent");
    node.inner()
        .iter()
        .any(|line| is_path_change(line) || changes_path(line))
}

/// Returns all `set` lines of a block and of the blocks in it.
fn set_lines(nodes: &[Node]) -> Vec<&Node> {
    let direct_lines = nodes.iter().filter(|node| node.keyword() == "set");
    direct_lines
        .chain(nodes.iter().flat_map(|node| set_lines(node.inner())))
        .collect()
}

/// Returns whether a directive other than `set` contains a variable.
fn uses_variable(nodes: &[Node], name: &str) -> bool {
    nodes.iter().any(|node| {
        let is_set = node.keyword() == "set";
        let words = node.words.get(1..).unwrap_or_default();
        !is_set && words.iter().any(|word| variables(word).contains(&name))
            || uses_variable(node.inner(), name)
    })
}

/// Returns the names of the variables in a text.
fn variables(text: &str) -> Vec<&str> {
    let mut names = Vec::new();
    let mut rest = text;
    while let Some(offset) = rest.find('$') {
        rest = &rest[offset + 1..];
        let inner = rest.strip_prefix('{').unwrap_or(rest);
        let is_end = |c: char| !c.is_ascii_alphanumeric() && c != '_';
        let end = inner.find(is_end).unwrap_or(inner.len());
        // A `$` without a name, as at the end of a regular expression, is not a variable.
        if end > 0 {
            names.push(&inner[..end]);
        }
        rest = &inner[end..];
    }
    names
}

/// Replaces a variable with its value.
fn replace_variable(text: &str, name: &str, value: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some(offset) = rest.find('$') {
        out.push_str(&rest[..offset]);
        let after_dollar = &rest[offset + 1..];
        let braced = after_dollar.strip_prefix('{');
        let inner = braced.unwrap_or(after_dollar);
        let is_end = |c: char| !c.is_ascii_alphanumeric() && c != '_';
        let end = inner.find(is_end).unwrap_or(inner.len());
        let tail = match braced {
            Some(_) => inner[end..].strip_prefix('}').unwrap_or(&inner[end..]),
            None => &inner[end..],
        };
        match &inner[..end] == name {
            true => out.push_str(value),
            false => out.push_str(&rest[offset..rest.len() - tail.len()]),
        }
        rest = tail;
    }
    out.push_str(rest);
    out
}

/// Returns the value of a variable that has exactly one value.
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
    /// Rewrites the directives of a block. `initial_values` are the values of variables at the beginning of the block.
    /// Returns the directives and the values at the end of the block, and adds the lines that set variables to `sets`.
    fn expand(
        &self,
        nodes: &[Node],
        initial_values: &Values,
        sets: &mut Vec<(String, Position)>,
    ) -> (Vec<Node>, Values) {
        let mut values = initial_values.clone();
        let mut out: Vec<Node> = Vec::new();
        for node in nodes {
            match node.keyword() {
                "set" => {
                    self.evaluate_set(node, &mut values, sets);
                    out.push(node.clone());
                }
                "if" => out.extend(self.rewrite_if(node, &mut values, sets)),
                "return" | "rewrite" => out.extend(self.replace_variables(node, &values)),
                _ => out.push(node.clone()),
            }
        }
        // nginx evaluates `set`, `if`, `return` and `rewrite` before all other directives.
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
                _ => all.extend(self.replace_variables(&node, &values)),
            }
        }
        (all, values)
    }

    /// Evaluates `set $name value`.
    fn evaluate_set(&self, node: &Node, values: &mut Values, sets: &mut Vec<(String, Position)>) {
        let (Some(name), Some(value)) = (node.word(1), node.word(2)) else {
            return;
        };
        let name = name.trim_start_matches('$').to_owned();
        let cases = self.cases(value, values);
        sets.push((name.clone(), node.position));
        values.insert(name, cases);
    }

    /// Returns the values of a text, or `None` if they are unknown.
    fn cases(&self, text: &str, values: &Values) -> Option<Vec<Case>> {
        let mut cases = vec![Case {
            conditions: Vec::new(),
            value: text.to_owned(),
        }];
        let mut seen = HashSet::new();
        for name in variables(text)
            .into_iter()
            .filter(|name| seen.insert(*name))
        {
            let is_path = matches!(name, "uri" | "document_uri" | "args" | "query_string");
            if name.starts_with(|c: char| c.is_ascii_digit()) || is_path && self.changes_path {
                return None;
            }
            let variable_cases = match values.get(name) {
                Some(cases) => cases.clone()?,
                None => match self.maps.cases(name) {
                    Some(cases) => cases,
                    None if self.maps.defines(name) => return None,
                    // The variable is predefined by nginx.
                    None => continue,
                },
            };
            let mut products = Vec::new();
            for case in &cases {
                for variable_case in &variable_cases {
                    products.push(Case {
                        conditions: [case.conditions.clone(), variable_case.conditions.clone()]
                            .concat(),
                        value: replace_variable(&case.value, name, &variable_case.value),
                    });
                }
            }
            cases = products;
            if cases.len() > MAX_CASES {
                return None;
            }
        }
        Some(cases)
    }

    /// Rewrites an `if`. An `if` that contains only `set` changes the values of variables. Any other `if` is replaced
    /// with one `if` for each value that meets its condition.
    fn rewrite_if(
        &self,
        node: &Node,
        values: &mut Values,
        sets: &mut Vec<(String, Position)>,
    ) -> Vec<Node> {
        let alternatives = self.alternatives(node, values);
        let is_set = |line: &Node| line.keyword() == "set";
        if node.inner().iter().all(is_set) && !node.inner().is_empty() {
            return self.evaluate_conditional_set(node, alternatives, values, sets);
        }
        let (inner, values_inside) = self.expand(node.inner(), values, sets);
        // If the block ends the processing of its requests, all other requests have the values from before the block.
        let ends = |line: &Node| {
            matches!(line.keyword(), "return" | "break") || line.keyword().ends_with("_pass")
        };
        if !node.inner().iter().any(ends) {
            let condition = only_alternative(alternatives.as_deref());
            let before = values.clone();
            for line in node.inner().iter().filter(|line| is_set(line)) {
                let name = assigned_variable(line);
                let merged = merge_values(
                    condition,
                    value_before(&before, name),
                    values_inside.get(name),
                );
                values.insert(name.to_owned(), merged);
            }
        }
        let Some(alternatives) = alternatives else {
            return vec![Node {
                block: Some(inner),
                ..node.clone()
            }];
        };
        let with_conditions = |conditions: Vec<String>| {
            let words = vec!["if".to_owned(), condition_text(&conditions)];
            Node::new(node.position, words, Some(inner.clone()))
        };
        alternatives.into_iter().map(with_conditions).collect()
    }

    /// Evaluates `if (c) { set $x v; }`.
    fn evaluate_conditional_set(
        &self,
        node: &Node,
        alternatives: Option<Vec<Vec<String>>>,
        values: &mut Values,
        sets: &mut Vec<(String, Position)>,
    ) -> Vec<Node> {
        let condition = only_alternative(alternatives.as_deref());
        let values_before = values.clone();
        let mut values_inside = values.clone();
        for line in node.inner() {
            self.evaluate_set(line, &mut values_inside, sets);
            let Some(name) = line.word(1).map(|name| name.trim_start_matches('$')) else {
                continue;
            };
            let previous = value_before(&values_before, name);
            let merged = merge_values(condition, previous, values_inside.get(name));
            values.insert(name.to_owned(), merged);
        }
        let is_known = node.inner().iter().all(|line| {
            values
                .get(assigned_variable(line))
                .is_some_and(Option::is_some)
        });
        match is_known {
            true => Vec::new(),
            false => vec![node.clone()],
        }
    }

    /// Returns the alternatives of an `if`, each a list of conditions that must all hold, or `None` if the `if` cannot
    /// be rewritten.
    fn alternatives(&self, node: &Node, values: &Values) -> Option<Vec<Vec<String>>> {
        let text = node.words.get(1..)?.join(" ");
        let text = text.strip_prefix('(')?.strip_suffix(')')?.trim().to_owned();
        let (variable, operator, operand) = split_condition(&text)?;
        let name = variable.strip_prefix('$')?;
        let operand = match variables(operand).is_empty() {
            true => operand.to_owned(),
            false => return None,
        };
        let holds: Box<dyn Fn(&str) -> bool> = match operator {
            None => Box::new(|value: &str| !value.is_empty() && value != "0"),
            Some("=") => Box::new(move |value: &str| value == operand),
            Some("!=") => Box::new(move |value: &str| value != operand),
            Some(_) if self.is_defined(name, values) => return None,
            Some(_) => return Some(vec![vec![text.clone()]]),
        };
        let Some(cases) = values.get(name) else {
            return match self.maps.defines(name) {
                true => self.maps.alternatives(name, &holds),
                false => Some(vec![vec![text.clone()]]),
            };
        };
        let cases = cases.as_ref()?;
        // The value depends on the request, so it cannot be compared here.
        if cases.iter().any(|case| case.value.contains('$')) {
            return None;
        }
        let matching = cases.iter().filter(|case| holds(&case.value));
        Some(matching.map(|case| case.conditions.clone()).collect())
    }

    /// Returns whether the file defines the variable.
    fn is_defined(&self, name: &str, values: &Values) -> bool {
        values.contains_key(name) || self.maps.defines(name)
    }

    /// Replaces the variables of a directive with their values. A `proxy_pass` with several values becomes an `if` for
    /// each value except the last.
    fn replace_variables(&self, node: &Node, values: &Values) -> Vec<Node> {
        if node.keyword() == "proxy_pass"
            && let Some(target) = node.word(1)
            && variables(target)
                .iter()
                .any(|name| self.is_defined(name, values))
        {
            return self.rewrite_proxy_pass(node, target, values);
        }
        let mut node = node.clone();
        for word in node.words.iter_mut().skip(1) {
            let names: Vec<String> = variables(word).into_iter().map(str::to_owned).collect();
            for name in names {
                if let Some(value) = values.get(&name).and_then(only_value) {
                    *word = replace_variable(word, &name, value);
                } else if !values.contains_key(&name) && self.maps.is_table(&name) {
                    *word = replace_variable(word, &name, &Maps::reference(&name));
                }
            }
        }
        if let Some(inner) = node.block.take() {
            let inner = inner
                .iter()
                .flat_map(|line| self.replace_variables(line, values));
            node.block = Some(inner.collect());
        }
        vec![node]
    }

    /// Rewrites a `proxy_pass` whose target contains variables: each value becomes an `if`, except for the last value,
    /// which needs no condition.
    fn rewrite_proxy_pass(&self, node: &Node, target: &str, values: &Values) -> Vec<Node> {
        let Some(cases) = self.cases(target, values) else {
            return vec![node.clone()];
        };
        // If the URL contains a variable, nginx sends the URL's path as the whole path instead of replacing the
        // location's path.
        let path_of = |url: &str| {
            let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
            rest.find('/').map(|offset| rest[offset..].to_owned())
        };
        if cases.iter().any(|case| path_of(&case.value).is_some()) {
            return vec![node.clone()];
        }
        let with_target = |value: &str| Node {
            words: vec!["proxy_pass".to_owned(), value.to_owned()],
            ..node.clone()
        };
        let Some((last, others)) = cases.split_last() else {
            return vec![node.clone()];
        };
        let mut nodes: Vec<Node> = others
            .iter()
            .map(|case| {
                let words = vec!["if".to_owned(), condition_text(&case.conditions)];
                Node::new(node.position, words, Some(vec![with_target(&case.value)]))
            })
            .collect();
        nodes.push(with_target(&last.value));
        nodes
    }
}

/// Returns the name of the variable that a `set` line sets.
fn assigned_variable(line: &Node) -> &str {
    line.word(1).unwrap_or_default().trim_start_matches('$')
}

/// Returns the conditions of the only alternative, or `None` if there are several or none.
fn only_alternative(alternatives: Option<&[Vec<String>]>) -> Option<&[String]> {
    match alternatives {
        Some([conditions]) => Some(conditions),
        _ => None,
    }
}

/// Returns the values of a variable before an `if`; a variable that is not set is empty.
fn value_before(values: &Values, name: &str) -> Option<Vec<Case>> {
    let unset = || {
        Some(vec![Case {
            conditions: Vec::new(),
            value: String::new(),
        }])
    };
    values.get(name).cloned().unwrap_or_else(unset)
}

/// Returns the values of a variable after an `if` that sets it: `inside` if the condition holds, `previous` otherwise.
fn merge_values(
    condition: Option<&[String]>,
    previous: Option<Vec<Case>>,
    inside: Option<&Option<Vec<Case>>>,
) -> Option<Vec<Case>> {
    // The negation of several conditions is not a list of conditions that must all hold.
    let [condition] = condition? else {
        return None;
    };
    let negation = negated(condition)?;
    let with_condition = |cases: &[Case], condition: &str| -> Vec<Case> {
        let extend = |case: &Case| Case {
            conditions: [case.conditions.clone(), vec![condition.to_owned()]].concat(),
            value: case.value.clone(),
        };
        cases.iter().map(extend).collect()
    };
    let inside = inside?.as_ref()?;
    let mut cases = with_condition(inside, condition);
    cases.extend(with_condition(&previous?, &negation));
    cases.retain(|case| {
        let opposite = |other: &String| {
            negated(other).is_some_and(|negation| case.conditions.contains(&negation))
        };
        !case.conditions.iter().any(opposite)
    });
    for case in &mut cases {
        let mut seen = HashSet::new();
        case.conditions.retain(|other| seen.insert(other.clone()));
    }
    (cases.len() <= MAX_CASES).then_some(cases)
}

/// Returns conditions in the form that [`parse_if`](super::when::parse_if) parses.
fn condition_text(conditions: &[String]) -> String {
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
        assert_eq!(replace_variable("$a-${a}b-$ab", "a", "x"), "x-xb-$ab");
        assert_eq!(
            replace_variable("http://$a$request_uri", "a", "u"),
            "http://u$request_uri"
        );
    }
}
