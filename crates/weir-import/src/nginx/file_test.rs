//! Converts `if (!-f $request_filename)` and similar file tests to `try_files`, which has replaced them.

use super::nested::with_inherited_lines;
use super::tree::Node;

/// The file that nginx sends for a request.
const FILE: &str = "$request_filename";

/// A condition on a file.
struct FileTest<'n> {
    node: &'n Node,
    is_negated: bool,
    /// Whether the test also accepts a directory.
    accepts_directory: bool,
    /// Text after the name of the request's file.
    suffix: String,
}

/// Returns the server block with `try_files` instead of file tests in locations where both are equivalent.
pub(super) fn with_try_files(server: &Node) -> Node {
    let mut lines = Vec::new();
    for node in server.inner() {
        let name = format!("@file-test-{}", lines.len());
        match Some(node)
            .filter(|node| node.keyword() == "location")
            .and_then(|node| convert_location(node, &name))
        {
            Some((location, named)) => {
                lines.push(location);
                lines.extend(named);
            }
            None => lines.push(node.clone()),
        }
    }
    Node {
        block: Some(lines),
        ..server.clone()
    }
}

/// Returns a location with `try_files`, and the named location for requests without a file. Returns `None` if the
/// location has no file tests or has other rules too.
fn convert_location(location: &Node, name: &str) -> Option<(Node, Option<Node>)> {
    let is_other_rule = |line: &Node| {
        matches!(
            line.keyword(),
            "return" | "rewrite" | "try_files" | "set" | "alias"
        ) || line.keyword().ends_with("_pass")
    };
    if location.inner().iter().any(is_other_rule) {
        return None;
    }
    let conditions = location.inner().iter().filter(|it| it.keyword() == "if");
    let tests: Vec<FileTest<'_>> = conditions.map(parse_test).collect::<Option<_>>()?;
    let (last, others) = tests.split_last()?;
    if !last.is_negated || !last.suffix.is_empty() {
        return None;
    }
    let mut words = vec!["try_files".to_owned()];
    for test in others {
        words.push(candidate(test)?);
    }
    words.push("$uri".to_owned());
    if last.accepts_directory {
        words.push("$uri/".to_owned());
    }
    let mut replaced: Vec<Node> = others
        .iter()
        .flat_map(|it| it.node.inner())
        .cloned()
        .collect();
    let named = match last.node.inner() {
        [pass] | [pass, _] if pass.keyword() == "proxy_pass" => {
            let rest = &last.node.inner()[1..];
            if rest.iter().any(|line| line.words != ["break"]) {
                return None;
            }
            replaced.extend(rest.iter().cloned());
            let named_words = vec!["location".to_owned(), name.to_owned()];
            let named = Node::new(last.node.position, named_words, Some(vec![pass.clone()]));
            words.push(name.to_owned());
            Some(named)
        }
        lines => {
            words.push(fallback(lines)?);
            replaced.extend(lines.iter().cloned());
            None
        }
    };
    let others = location.inner().iter().filter(|it| it.keyword() != "if");
    let mut lines: Vec<Node> = others.cloned().collect();
    let plain = Node {
        block: Some(lines.clone()),
        ..location.clone()
    };
    lines.push(Node::new(last.node.position, words, Some(replaced)));
    let location = Node {
        block: Some(lines),
        ..location.clone()
    };
    Some((
        location,
        named.map(|named| with_inherited_lines(named, &plain)),
    ))
}

/// Parses `if (!-f $request_filename)`.
fn parse_test(node: &Node) -> Option<FileTest<'_>> {
    let text = node.words.get(1..)?.join(" ");
    let text = text.strip_prefix('(')?.strip_suffix(')')?.trim();
    let (operator, file) = text.split_once(' ')?;
    let (is_negated, operator) = match operator.strip_prefix('!') {
        Some(operator) => (true, operator),
        None => (false, operator),
    };
    let accepts_directory = match operator {
        "-f" => false,
        "-e" => true,
        _ => return None,
    };
    let suffix = file.trim().strip_prefix(FILE)?;
    (!suffix.contains('$')).then(|| FileTest {
        node,
        is_negated,
        accepts_directory,
        suffix: suffix.to_owned(),
    })
}

/// Returns the argument of `try_files` for `if (-f $request_filename.html) { rewrite (.*) $1.html break; }`.
fn candidate(test: &FileTest<'_>) -> Option<String> {
    let [line] = test.node.inner() else {
        return None;
    };
    let words: Vec<&str> = line.words.iter().map(String::as_str).collect();
    let to = format!("$1{}", test.suffix);
    let is_equivalent = match words[..] {
        ["rewrite", "(.*)" | "^(.*)" | "^(.*)$", target, "break"] => target == to,
        _ => false,
    };
    let is_file = !test.is_negated && !test.accepts_directory && !test.suffix.is_empty();
    (is_file && is_equivalent).then(|| format!("$uri{}", test.suffix))
}

/// Returns the last argument of `try_files` for the lines that nginx applies if the file is missing.
fn fallback(lines: &[Node]) -> Option<String> {
    let (first, rest) = lines.split_first()?;
    if rest.iter().any(|line| line.words != ["break"]) {
        return None;
    }
    let words: Vec<&str> = first.words.iter().map(String::as_str).collect();
    match words[..] {
        ["return", "404"] => Some("=404".to_owned()),
        [
            "rewrite",
            "^" | ".*" | "^.*" | "^.*$" | "(.*)" | "^(.*)" | "^(.*)$" | "^/(.*)" | "^/(.*)$",
            page,
            "last" | "break",
        ] if page.starts_with('/') && !page.contains(['$', '?']) => Some(page.to_owned()),
        _ => None,
    }
}
