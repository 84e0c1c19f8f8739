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

/// Moves locations with a path out of the locations that contain them, and copies the lines that they inherit.
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
    let own: HashSet<String> = location.inner().iter().map(group).collect();
    let is_inherited = |line: &&Node| {
        let keyword = line.keyword();
        !NOT_INHERITED.contains(&keyword)
            && !keyword.ends_with("_pass")
            && !own.contains(&group(line))
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
