//! Moves nested locations out of the locations that contain them.

use std::collections::HashSet;

use super::tree::Node;

/// Directives that a location does not inherit from the location that contains it, in addition to `*_pass`.
const NOT_INHERITED: [&str; 10] = [
    "location",
    "if",
    "return",
    "rewrite",
    "break",
    "set",
    "try_files",
    "alias",
    "limit_except",
    "stub_status",
];

/// Moves prefix and exact locations out of the locations that contain them, and copies the lines that they inherit.
/// Regular-expression locations are not moved, because their order would change.
pub(super) fn with_hoisted_locations(server: &Node) -> Node {
    let mut inner = Vec::new();
    for node in server.inner() {
        hoist_nested(node.clone(), &mut inner);
    }
    Node {
        block: Some(inner),
        ..server.clone()
    }
}

fn hoist_nested(mut node: Node, out: &mut Vec<Node>) {
    let has_alias = node.inner().iter().any(|line| line.keyword() == "alias");
    if is_prefix(&node) && !has_alias {
        let is_movable = |line: &Node| is_prefix(line) || is_exact(line);
        let lines = node.block.take().unwrap_or_default();
        let (nested, rest): (Vec<Node>, Vec<Node>) = lines.into_iter().partition(is_movable);
        node.block = Some(rest);
        for location in nested {
            hoist_nested(with_inherited_lines(location, &node), out);
        }
    }
    out.push(node);
}

/// Returns a location with the lines that it inherits.
pub(super) fn with_inherited_lines(location: Node, from: &Node) -> Node {
    let group = |line: &Node| match line.keyword() {
        // The rules of a level replace all rules of the outer level.
        "allow" | "deny" => "access".to_owned(),
        "alias" => "root".to_owned(),
        keyword => keyword.to_owned(),
    };
    let own_groups: HashSet<String> = location.inner().iter().map(group).collect();
    let is_inherited = |line: &&Node| {
        let keyword = line.keyword();
        !NOT_INHERITED.contains(&keyword)
            && !keyword.ends_with("_pass")
            && !own_groups.contains(&group(line))
    };
    let inherited = from.inner().iter().filter(is_inherited);
    let lines = inherited.chain(location.inner()).cloned().collect();
    Node {
        block: Some(lines),
        ..location
    }
}

fn is_prefix(node: &Node) -> bool {
    let path = match (node.word(1), node.word(2)) {
        (Some("^~"), path) => path,
        (path, None) => path,
        _ => None,
    };
    node.keyword() == "location" && path.is_some_and(|path| path.starts_with('/'))
}

fn is_exact(node: &Node) -> bool {
    node.keyword() == "location" && node.word(1) == Some("=") && node.word(2).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    use crate::EmptyEnvironment;
    use crate::note::Notes;

    fn format_node(node: &Node) -> String {
        let words = node.words.join(" ");
        match &node.block {
            Some(lines) => {
                let lines: String = lines.iter().map(|line| format_node(line) + " ").collect();
                format!("{words} {{ {lines}}}")
            }
            None => format!("{words};"),
        }
    }

    /// Moves the nested locations of a server block with these lines, and returns the resulting lines.
    fn hoist_locations(lines: &str) -> String {
        let mut notes = Notes::default();
        let text = format!("server {{ {lines} }}");
        let nodes = super::super::tree::read_file(&EmptyEnvironment, &mut notes, "f", &text);
        let lines = with_hoisted_locations(&nodes[0]);
        let lines: Vec<String> = lines.inner().iter().map(format_node).collect();
        lines.join(" ")
    }

    #[test]
    fn nested_locations_precede_their_outer_location() {
        for (lines, expected) in [
            (
                "location /a { location /a/b { c; } d; } e;",
                "location /a/b { d; c; } location /a { d; } e;",
            ),
            (
                "location ^~ /a { location ^~ /a/b { c; } location = /a/d { e; } }",
                "location ^~ /a/b { c; } location = /a/d { e; } location ^~ /a { }",
            ),
            (
                "location /a { f; location /a/b { location /a/b/c { d; } e; } }",
                "location /a/b/c { f; e; d; } location /a/b { f; e; } location /a { f; }",
            ),
        ] {
            assert_eq!(hoist_locations(lines), expected, "{lines}");
        }
    }

    #[test]
    fn locations_that_cannot_be_moved_remain_nested() {
        for lines in [
            r"location /a { location ~ \.b$ { c; } }",
            r"location ~ ^/a { location /a/b { c; } }",
            "location = /a { location /a/b { c; } }",
            "location @a { location /a/b { c; } }",
            "location /a { alias /b/; location /a/b { c; } }",
            "location /a { location @b { c; } }",
            "location /a { location = { c; } }",
            "location /a { if /a/b { c; } }",
            "other /a { location /a/b { c; } }",
        ] {
            assert_eq!(hoist_locations(lines), lines, "{lines}");
        }
    }

    #[test]
    fn only_inheritable_lines_of_the_outer_location_are_copied() {
        let rules = "if ($a) { b; } return 1; rewrite a b; break; set $a b; try_files a; \
                     limit_except GET { deny all; } stub_status; proxy_pass a; fastcgi_pass a;";
        let lines = format!("location /a {{ {rules} location /a/b {{ c; }} }}");
        let expected = format!("location /a/b {{ c; }} location /a {{ {rules} }}");
        assert_eq!(hoist_locations(&lines), expected);
        for (outer, inner, expected) in [
            ("allow 1; deny 2;", "c;", "allow 1; deny 2; c;"),
            ("allow 1; deny 2;", "deny 3;", "deny 3;"),
            ("allow 1; deny 2;", "allow 3;", "allow 3;"),
            ("root /x;", "alias /y;", "alias /y;"),
            ("root /x;", "root /y;", "root /y;"),
            ("a 1; b 2; a 3;", "b 4;", "a 1; a 3; b 4;"),
        ] {
            let lines = format!("location /a {{ {outer} location /a/b {{ {inner} }} }}");
            let expected = format!("location /a/b {{ {expected} }} location /a {{ {outer} }}");
            assert_eq!(hoist_locations(&lines), expected, "{lines}");
        }
    }
}
