//! Converts `if (!-f $request_filename)` and similar file tests to `try_files`, which has replaced them.

use super::nested::with_inherited_lines;
use super::tree::Node;

/// The variable with the path of the file that nginx sends for a request.
const FILE: &str = "$request_filename";

/// A condition on a file.
struct FileTest<'n> {
    node: &'n Node,
    is_negated: bool,
    /// Whether the test also accepts a directory.
    accepts_directory: bool,
    /// Text after [`FILE`].
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

/// Returns a location with `try_files`, and a named location if requests for missing files go to a pool. Returns `None`
/// if the location has no file tests, has other rules, or has no equivalent `try_files`.
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
    let mut replaced_lines: Vec<Node> = others
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
            replaced_lines.extend(rest.iter().cloned());
            let named_words = vec!["location".to_owned(), name.to_owned()];
            let named = Node::new(last.node.position, named_words, Some(vec![pass.clone()]));
            words.push(name.to_owned());
            Some(named)
        }
        lines => {
            words.push(fallback(lines)?);
            replaced_lines.extend(lines.iter().cloned());
            None
        }
    };
    let others = location.inner().iter().filter(|it| it.keyword() != "if");
    let mut lines: Vec<Node> = others.cloned().collect();
    let plain = Node {
        block: Some(lines.clone()),
        ..location.clone()
    };
    lines.push(Node::new(last.node.position, words, Some(replaced_lines)));
    let location = Node {
        block: Some(lines),
        ..location.clone()
    };
    Some((
        location,
        named.map(|named| with_inherited_lines(named, &plain)),
    ))
}

/// Parses `if (!-f $request_filename)` and similar tests.
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

#[cfg(test)]
mod tests {
    use super::*;

    use crate::EmptyEnvironment;
    use crate::note::Notes;

    fn node_text(node: &Node) -> String {
        let words = node.words.join(" ");
        match &node.block {
            Some(lines) => {
                let lines: String = lines.iter().map(|line| node_text(line) + " ").collect();
                format!("{words} {{ {lines}}}")
            }
            None => format!("{words};"),
        }
    }

    /// Converts a location with these lines. Returns the result, and the named location if there is one.
    fn converted_locations(lines: &str) -> Vec<String> {
        let mut notes = Notes::default();
        let text = format!("server {{ listen 80; location /a {{ {lines} }} }}");
        let nodes = super::super::tree::read_file(&EmptyEnvironment, &mut notes, "f", &text);
        let server = with_try_files(&nodes[0]);
        assert_eq!(server.words, ["server"]);
        assert_eq!(node_text(&server.inner()[0]), "listen 80;");
        server.inner()[1..].iter().map(node_text).collect()
    }

    const MISSING: &str = "if (!-f $request_filename)";

    #[test]
    fn file_tests_become_try_files() {
        for (lines, expected) in [
            (
                format!("{MISSING} {{ return 404; }}"),
                "$uri =404 { return 404; }",
            ),
            (
                "if (!-e $request_filename) { return 404; break; }".to_owned(),
                "$uri $uri/ =404 { return 404; break; }",
            ),
            (
                format!("{MISSING} {{ rewrite ^(.*)$ /index.php last; }}"),
                "$uri /index.php { rewrite ^(.*)$ /index.php last; }",
            ),
            (
                format!("{MISSING} {{ rewrite .* /index.php break; }}"),
                "$uri /index.php { rewrite .* /index.php break; }",
            ),
            (
                format!(
                    "if (-f $request_filename.html) {{ rewrite (.*) $1.html break; }} {MISSING} {{ return 404; }}"
                ),
                "$uri.html $uri =404 { rewrite (.*) $1.html break; return 404; }",
            ),
        ] {
            let found = converted_locations(&format!("root /srv; {lines}"));
            let expected = format!("location /a {{ root /srv; try_files {expected} }}");
            assert_eq!(found, [expected], "{lines}");
        }
    }

    #[test]
    fn requests_for_missing_files_go_to_a_named_location() {
        for (rest, replaced) in [("", ""), (" break;", "break; ")] {
            let found = converted_locations(&format!(
                "root /srv; proxy_set_header A b; {MISSING} {{ proxy_pass http://b;{rest} }}"
            ));
            let replaced = format!("{{ {replaced}}}");
            let first = format!(
                "location /a {{ root /srv; proxy_set_header A b; try_files $uri @file-test-1 {replaced} }}"
            );
            let named =
                "location @file-test-1 { root /srv; proxy_set_header A b; proxy_pass http://b; }";
            assert_eq!(found, [first.as_str(), named], "{rest}");
        }
    }

    #[test]
    fn locations_without_equivalent_try_files_are_unchanged() {
        for lines in [
            "root /srv;",
            // The location has another target.
            "if (!-f $request_filename) { return 404; } proxy_pass http://b;",
            "if (!-f $request_filename) { return 404; } return 403;",
            "if (!-f $request_filename) { return 404; } rewrite ^/a /b;",
            "if (!-f $request_filename) { return 404; } try_files $uri =404;",
            "if (!-f $request_filename) { return 404; } set $a b;",
            "if (!-f $request_filename) { return 404; } alias /srv;",
            "if (!-f $request_filename) { return 404; } fastcgi_pass b;",
            "if ($host = a) { return 403; } if (!-f $request_filename) { return 404; }",
            // The last test is for existing files, or for another file.
            "if (-f $request_filename) { return 404; }",
            "if (!-f $request_filename.html) { return 404; }",
            "if (!-f $document_root/a) { return 404; }",
            "if (!-f $request_filename$a) { return 404; }",
            "if (!-d $request_filename) { return 404; }",
            // The block does something else.
            "if (!-f $request_filename) { }",
            "if (!-f $request_filename) { return 403; }",
            "if (!-f $request_filename) { proxy_pass http://b; set $a b; }",
            "if (!-f $request_filename) { return 404; set $a b; }",
            "if (!-f $request_filename) { rewrite ^ index.php last; }",
            "if (!-f $request_filename) { rewrite ^ /index.php?a=b last; }",
            "if (!-f $request_filename) { rewrite ^(.*) /a$1 last; }",
            "if (!-f $request_filename) { rewrite ^/b /index.php last; }",
            "if (!-f $request_filename) { rewrite ^ /index.php permanent; }",
        ] {
            assert_eq!(converted_locations(lines), [unchanged(lines)], "{lines}");
        }
    }

    fn unchanged(lines: &str) -> String {
        format!("location /a {{ {lines} }}")
    }

    #[test]
    fn earlier_tests_must_append_the_tested_suffix() {
        for test in [
            "if (!-f $request_filename.html) { rewrite (.*) $1.html break; }",
            "if (-e $request_filename.html) { rewrite (.*) $1.html break; }",
            "if (-f $request_filename) { rewrite (.*) $1 break; }",
            "if (-f $request_filename.html) { rewrite (.*) $1.txt break; }",
            "if (-f $request_filename.html) { rewrite (.*) $1.html last; }",
            "if (-f $request_filename.html) { rewrite ^/(.*) $1.html break; }",
            "if (-f $request_filename.html) { break; }",
            "if (-f $request_filename.html) { rewrite (.*) $1.html break; set $a b; }",
        ] {
            let lines = format!("{test} {MISSING} {{ return 404; }}");
            assert_eq!(converted_locations(&lines), [unchanged(&lines)], "{test}");
        }
    }
}
