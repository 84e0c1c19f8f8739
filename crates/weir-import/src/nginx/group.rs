//! Groups of a location's expression: `$1` and `$name` in its lines.

use std::collections::HashMap;

use super::tree::Node;
use super::variable::GROUP_PREFIX;

/// Returns a location whose lines have tokens in place of the groups of its expression. Numbered groups remain if it
/// contains a `rewrite`, whose expression sets these.
pub(super) fn with_groups(node: &Node, expression: &str) -> Node {
    let (count, names) = groups(expression);
    let rewrites = node.inner().iter().any(|line| line.keyword() == "rewrite");
    let count = if rewrites { 0 } else { count };
    Node {
        block: node
            .block
            .as_ref()
            .map(|lines| replaced(lines, count, &names)),
        ..node.clone()
    }
}

fn replaced(lines: &[Node], count: usize, names: &HashMap<&str, usize>) -> Vec<Node> {
    let each = |line: &Node| {
        if line.keyword() == "rewrite" {
            return line.clone();
        }
        // The expression of an `if` sets the groups with numbers.
        let of_block = if line.keyword() == "if" { 0 } else { count };
        Node {
            words: line
                .words
                .iter()
                .map(|word| with_tokens(word, count, names))
                .collect(),
            block: line
                .block
                .as_ref()
                .map(|lines| replaced(lines, of_block, names)),
            ..line.clone()
        }
    };
    lines.iter().map(each).collect()
}

/// Replaces the groups in a word: `count` numbered ones, and those with names.
fn with_tokens(word: &str, count: usize, names: &HashMap<&str, usize>) -> String {
    let mut out = String::new();
    let mut rest = word;
    while let Some(at) = rest.find('$') {
        out.push_str(&rest[..at]);
        let behind = &rest[at + 1..];
        let braced = behind.strip_prefix('{');
        let inner = braced.unwrap_or(behind);
        let is_digit = inner.starts_with(|c: char| c.is_ascii_digit());
        let is_end = |c: char| !c.is_ascii_alphanumeric() && c != '_';
        let end = match is_digit {
            true => 1,
            false => inner.find(is_end).unwrap_or(inner.len()),
        };
        let (name, after) = inner.split_at(end);
        let after = match braced {
            Some(_) => after.strip_prefix('}').unwrap_or(after),
            None => after,
        };
        let number = match name.parse::<usize>() {
            Ok(number) => (1..=count).contains(&number).then_some(number),
            Err(_) => names.get(name).copied(),
        };
        match number {
            Some(number) => out.push_str(&format!("${{{GROUP_PREFIX}{number}}}")),
            None => out.push_str(&rest[at..rest.len() - after.len()]),
        }
        rest = after;
    }
    out.push_str(rest);
    out
}

/// Returns a word with tokens in place of `$1` to `$9`.
pub(super) fn numbered(word: &str) -> String {
    with_tokens(word, 9, &HashMap::new())
}

/// Returns the number of groups of an expression, at most 9, and the numbers of those with names.
fn groups(expression: &str) -> (usize, HashMap<&str, usize>) {
    let (mut count, mut names) = (0, HashMap::new());
    let (mut is_escaped, mut in_class) = (false, false);
    for (at, c) in expression.char_indices() {
        match c {
            _ if is_escaped => is_escaped = false,
            '\\' => is_escaped = true,
            '[' => in_class = true,
            ']' => in_class = false,
            '(' if !in_class => {
                let rest = &expression[at + 1..];
                let named = rest.strip_prefix("?P<").or_else(|| rest.strip_prefix("?<"));
                let name = named.filter(|name| !name.starts_with(['=', '!']));
                let name = name
                    .and_then(|name| name.split_once('>'))
                    .map(|(name, _)| name);
                if name.is_none() && rest.starts_with('?') {
                    continue;
                }
                count += 1;
                if let Some(name) = name.filter(|_| count <= 9) {
                    names.insert(name, count);
                }
            }
            _ => {}
        }
    }
    (count.min(9), names)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_counted_and_named() {
        let found = |text| {
            let (count, names) = groups(text);
            let mut names: Vec<(&str, usize)> = names.into_iter().collect();
            names.sort_unstable();
            (count, names)
        };
        assert_eq!(found(r"^/a/(.*)$"), (1, vec![]));
        assert_eq!(
            found(r"^/(?:a|b)/(?<id>\d+)/([^(]*)\("),
            (2, vec![("id", 1)])
        );
        assert_eq!(
            found(r"(?i)^/(?=x)(?P<one>.)(?<two>.)"),
            (2, vec![("one", 1), ("two", 2)])
        );
    }

    #[test]
    fn variables_of_groups_become_tokens() {
        let names = HashMap::from([("id", 1)]);
        assert_eq!(
            with_tokens("http://a/$1/${id}x$id-$2$host", 1, &names),
            "http://a/${weir_group_1}/${weir_group_1}x${weir_group_1}-$2$host"
        );
    }
}
