//! Replaces the groups of a location's regular expression, `$1` and `$name`, in the location's lines.

use std::collections::HashMap;

use super::tree::Node;
use super::variable::GROUP_PREFIX;

/// Returns a location whose lines contain tokens instead of the groups of its regular expression. Numbered groups
/// remain if the location contains a `rewrite`, because they refer to the `rewrite`'s regular expression.
pub(super) fn with_groups(node: &Node, expression: &str) -> Node {
    let (count, names) = parse_groups(expression);
    let has_rewrite = node.inner().iter().any(|line| line.keyword() == "rewrite");
    let count = if has_rewrite { 0 } else { count };
    Node {
        block: node
            .block
            .as_ref()
            .map(|lines| replace_in_lines(lines, count, &names)),
        ..node.clone()
    }
}

fn replace_in_lines(lines: &[Node], count: usize, names: &HashMap<&str, usize>) -> Vec<Node> {
    let replace_in_line = |line: &Node| {
        if line.keyword() == "rewrite" {
            return line.clone();
        }
        // Numbered groups in the block of an `if` refer to the `if`'s regular expression.
        let block_count = if line.keyword() == "if" { 0 } else { count };
        Node {
            words: line
                .words
                .iter()
                .map(|word| replace_groups(word, count, names))
                .collect(),
            block: line
                .block
                .as_ref()
                .map(|lines| replace_in_lines(lines, block_count, names)),
            ..line.clone()
        }
    };
    lines.iter().map(replace_in_line).collect()
}

/// Replaces the groups in a word with tokens: `$1` to `$count`, and named groups.
fn replace_groups(word: &str, count: usize, names: &HashMap<&str, usize>) -> String {
    let mut out = String::new();
    let mut rest = word;
    while let Some(offset) = rest.find('$') {
        out.push_str(&rest[..offset]);
        let after_dollar = &rest[offset + 1..];
        let braced = after_dollar.strip_prefix('{');
        let inner = braced.unwrap_or(after_dollar);
        let is_digit = inner.starts_with(|c: char| c.is_ascii_digit());
        let is_end = |c: char| !c.is_ascii_alphanumeric() && c != '_';
        let end = match is_digit {
            true => 1,
            false => inner.find(is_end).unwrap_or(inner.len()),
        };
        let (name, tail) = inner.split_at(end);
        let tail = match braced {
            Some(_) => tail.strip_prefix('}').unwrap_or(tail),
            None => tail,
        };
        let number = match name.parse::<usize>() {
            Ok(number) => (1..=count).contains(&number).then_some(number),
            Err(_) => names.get(name).copied(),
        };
        match number {
            Some(number) => out.push_str(&format!("${{{GROUP_PREFIX}{number}}}")),
            None => out.push_str(&rest[offset..rest.len() - tail.len()]),
        }
        rest = tail;
    }
    out.push_str(rest);
    out
}

/// Returns a word with tokens instead of `$1` to `$9`.
pub(super) fn replace_numbered_groups(word: &str) -> String {
    replace_groups(word, 9, &HashMap::new())
}

/// Returns the number of groups in a regular expression, at most 9, and the numbers of named groups.
fn parse_groups(expression: &str) -> (usize, HashMap<&str, usize>) {
    let (mut count, mut names) = (0, HashMap::new());
    let (mut is_escaped, mut in_class) = (false, false);
    for (offset, c) in expression.char_indices() {
        match c {
            _ if is_escaped => is_escaped = false,
            '\\' => is_escaped = true,
            '[' => in_class = true,
            ']' => in_class = false,
            '(' if !in_class => {
                let rest = &expression[offset + 1..];
                let after_prefix = rest.strip_prefix("?P<").or_else(|| rest.strip_prefix("?<"));
                let name = after_prefix.filter(|name| !name.starts_with(['=', '!']));
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
            let (count, names) = parse_groups(text);
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
            replace_groups("http://a/$1/${id}x$id-$2$host", 1, &names),
            "http://a/${weir_group_1}/${weir_group_1}x${weir_group_1}-$2$host"
        );
    }

    #[test]
    fn other_parentheses_are_not_groups() {
        let ten = "(a)(b)(c)(d)(e)(f)(g)(h)(i)(?<ten>j)";
        for (expression, count, names) in [
            ("[(](a)", 1, vec![]),
            ("(?<=a)(b)(?<!c)", 1, vec![]),
            ("(?<a>b)", 1, vec![("a", 1)]),
            ("(?:(?P<a>b)|(c))", 2, vec![("a", 1)]),
            (r"\((a)\)", 1, vec![]),
            (r"\\(a)", 1, vec![]),
            (r"[\](](a)", 1, vec![]),
            ("(a)(?<b>c)", 2, vec![("b", 2)]),
            ("abc", 0, vec![]),
            ("(a)(b)(c)(d)(e)(f)(g)(h)(?<nine>i)", 9, vec![("nine", 9)]),
            // A route has nine groups.
            (ten, 9, vec![]),
        ] {
            let (found_count, found) = parse_groups(expression);
            let found: Vec<(&str, usize)> = found.into_iter().collect();
            assert_eq!((found_count, found), (count, names), "{expression}");
        }
    }

    #[test]
    fn other_variables_remain() {
        let names = HashMap::from([("a_b", 2)]);
        for (word, expected) in [
            ("x$1", "x${weir_group_1}"),
            ("$12", "${weir_group_1}2"),
            ("${1}2", "${weir_group_1}2"),
            ("$3/$0", "$3/$0"),
            ("$a_b-$a", "${weir_group_2}-$a"),
            ("${a_b}c${d}e", "${weir_group_2}c${d}e"),
            ("a$", "a$"),
            ("", ""),
        ] {
            assert_eq!(replace_groups(word, 2, &names), expected, "{word}");
        }
        let all = replace_numbered_groups("$1$9$0$a");
        assert_eq!(all, "${weir_group_1}${weir_group_9}$0$a");
    }

    #[test]
    fn groups_of_other_expressions_remain() {
        let shown = |text: &str| {
            let mut notes = crate::note::Notes::default();
            let environment = crate::EmptyEnvironment;
            let nodes = super::super::tree::read_file(&environment, &mut notes, "f", text);
            let node = with_groups(&nodes[0], "^/(?<n>a)/(b)");
            let mut lines = vec![node.words.join(" ")];
            for line in node.inner() {
                lines.push(line.words.join(" "));
                lines.extend(line.inner().iter().map(|it| it.words.join(" ")));
            }
            lines
        };
        let (first, second) = ("${weir_group_1}", "${weir_group_2}");
        assert_eq!(
            shown("location ~ x$1 { set $c $1$2$n; if ($2 ~ (d)) { set $e $1$n; } }"),
            [
                "location ~ x$1".to_owned(),
                format!("set $c {first}{second}{first}"),
                format!("if ({second} ~ (d))"),
                format!("set $e $1{first}"),
            ]
        );
        assert_eq!(
            shown("location ~ x { rewrite ^/(c) /$1$n; set $d $1$n; }"),
            [
                "location ~ x",
                "rewrite ^/(c) /$1$n",
                "set $d $1${weir_group_1}"
            ]
        );
    }
}
