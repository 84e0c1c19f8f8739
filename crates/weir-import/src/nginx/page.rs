//! Pages: `error_page` with a file, which becomes `error_pages`, and the last page of `try_files`.

use regex::Regex;

use super::Context;
use super::header::{added_field, file_edits};
use super::tree::{Node, inherited};
use super::variable::Clients;
use crate::document::{Entry, Item};
use crate::edit::Edits;
use crate::note::Notes;

/// Returns the error pages of a server block.
pub(super) fn error_pages(
    context: &mut Context<'_>,
    server: &Node,
    outer: &[Node],
    notes: &mut Notes,
) -> Vec<Item> {
    let mut pages = Vec::new();
    let lines = |nodes: &'_ [Node]| -> Vec<Node> {
        let lines = nodes.iter().filter(|node| node.keyword() == "error_page");
        lines.cloned().collect()
    };
    let server_lines = lines(server.inner());
    let all = if server_lines.is_empty() {
        lines(outer)
    } else {
        server_lines
    };
    for line in all {
        let is_for_404 = line.words.get(1..line.words.len() - 1) == Some(&["404".to_owned()]);
        if is_for_404 && finds_every_path(server) {
            context.used.insert(line.position);
            let why = "not imported: every location sends requests on, so that nginx itself never responds with 404";
            notes.remark(line.position, why);
            continue;
        }
        match error_page(&line, server, outer) {
            Ok((_, file)) if context.environment.has_file(&file) == Some(false) => {
                context.used.insert(line.position);
                let why = format!(
                    "not imported: {file} does not exist; nginx responds with its built-in page, as Weir does"
                );
                notes.remark(line.position, why);
            }
            Ok((entries, _)) => {
                context.used.insert(line.position);
                // Clients get no files of an internal location, so its `root` is not needed.
                let is_page_location = |node: &&Node| {
                    node.keyword() == "location"
                        && node.words.last() == line.words.last()
                        && node.inner().iter().any(|it| it.keyword() == "internal")
                };
                if let Some(location) = server.inner().iter().find(is_page_location) {
                    let roots = location.inner().iter().filter(|it| it.keyword() == "root");
                    context.used.extend(roots.map(|it| it.position));
                }
                pages.push(Item::new(entries, Some(line.position)));
            }
            Err(why) => line.reject(notes, why),
        }
    }
    pages
}

/// Returns whether each path has a location with a target, so that nginx itself responds to no request with 404.
fn finds_every_path(server: &Node) -> bool {
    let has_target = |node: &Node| {
        let mut lines = node.inner().iter();
        lines.any(|line| line.keyword().ends_with("_pass") || line.keyword() == "internal")
    };
    let mut locations = server.inner().iter();
    let mut has_rest = false;
    locations.all(|node| {
        let is_location = node.keyword() == "location";
        has_rest |= is_location && node.word(1) == Some("/");
        !is_location || has_target(node)
    }) && has_rest
        && !returns_404(server.inner())
}

fn returns_404(nodes: &[Node]) -> bool {
    let returns = |node: &Node| node.keyword() == "return" && node.word(1) == Some("404");
    nodes
        .iter()
        .any(|node| returns(node) || returns_404(node.inner()))
}

/// Returns the keys of a page, and its file.
fn error_page(
    line: &Node,
    server: &Node,
    outer: &[Node],
) -> Result<(Vec<Entry>, String), &'static str> {
    let words: Vec<&str> = line.words.iter().skip(1).map(String::as_str).collect();
    let (uri, codes) = words.split_last().ok_or("the page is missing")?;
    if !uri.starts_with('/') || uri.contains('$') {
        return Err("`error_pages` of a service takes files");
    }
    if codes.is_empty() || codes.iter().any(|code| code.parse::<u16>().is_err()) {
        return Err("`error_pages` of a service does not change the status");
    }
    let mut inner = server.inner().iter();
    let location = inner.find(|node| {
        let is_exact = node.word(1) == Some("=") && node.word(2) == Some(uri);
        node.keyword() == "location" && (is_exact || node.word(1) == Some(uri))
    });
    let root_of = |nodes: &[Node]| {
        let node = nodes.iter().find(|node| node.keyword() == "root")?;
        Some(node.word(1)?.to_owned())
    };
    let has_action = location.is_some_and(|node| {
        let mut inner = node.inner().iter();
        inner.any(|line| {
            matches!(
                line.keyword(),
                "proxy_pass" | "return" | "rewrite" | "alias"
            )
        })
    });
    if has_action {
        return Err("the location of its page has no file");
    }
    if location.is_none() && is_proxied(server, uri) {
        return Err("nginx gets its page from a server");
    }
    let root = location
        .and_then(|node| root_of(node.inner()))
        .or_else(|| root_of(server.inner()))
        .or_else(|| root_of(outer))
        .unwrap_or_else(|| "html".to_owned());
    let root = super::path::absolute_path(&root);
    let file = format!("{}{uri}", root.trim_end_matches('/'));
    let entries = vec![
        Entry::new("status", codes.join(","), line.position).essential(),
        Entry::new("file", file.as_str(), line.position).essential(),
    ];
    Ok((entries, file))
}

/// Returns whether nginx gets a path from a server.
fn is_proxied(server: &Node, path: &str) -> bool {
    let passes = |node: &Node| {
        let mut lines = node.inner().iter();
        lines.any(|line| line.keyword() == "proxy_pass")
    };
    location_of(server, path).is_some_and(passes)
}

/// Returns the location of a path; `None` = there is none, or a regular expression may match the path.
pub(super) fn location_of<'n>(server: &'n Node, path: &str) -> Option<&'n Node> {
    let locations = || {
        server
            .inner()
            .iter()
            .filter(|node| node.keyword() == "location")
    };
    let is_exact = |node: &&Node| node.word(1) == Some("=") && node.word(2) == Some(path);
    if let Some(exact) = locations().find(is_exact) {
        return Some(exact);
    }
    let may_match_path = |node: &Node| {
        let expression = node.word(2).unwrap_or_default();
        let expression = match node.word(1) {
            Some("~") => expression.to_owned(),
            Some("~*") => format!("(?i){expression}"),
            _ => return false,
        };
        Regex::new(&expression).map_or(true, |regex| regex.is_match(path))
    };
    if locations().any(may_match_path) {
        return None;
    }
    let prefixes = locations().filter_map(|node| match (node.word(1)?, node.word(2)) {
        ("^~", Some(prefix)) | (prefix, None) => Some((prefix, node)),
        _ => None,
    });
    let matching = prefixes.filter(|(prefix, _)| path.starts_with(prefix));
    let longest = matching.max_by_key(|(prefix, _)| prefix.len());
    longest.map(|(_, node)| node)
}

/// Changes the fields of 404 responses with an `error_page` to those of the page's location, as in nginx.
pub(super) fn add_missing_file_fields(
    (server, node): (&Node, &Node),
    levels: &[&[Node]],
    (scheme, name): (&str, &str),
    edits: &mut Edits,
    notes: &mut Notes,
) {
    let lines = inherited(levels, "error_page").into_iter();
    let has_404 = |line: &&Node| line.words.iter().any(|word| word == "404");
    let page = lines.filter(has_404).find_map(|line| {
        let changes_status = line.words.iter().any(|word| word.starts_with('='));
        line.words
            .last()
            .filter(|page| !changes_status && page.starts_with('/'))
    });
    let location = page.and_then(|page| location_of(server, page));
    let passes = |node: &Node| {
        node.inner()
            .iter()
            .any(|line| line.keyword().ends_with("_pass"))
    };
    let Some(location) = location.filter(|it| it.position != node.position && !passes(it)) else {
        return;
    };
    let clients = Clients {
        scheme,
        name,
        redirect: false,
    };
    let page_levels: Vec<&[Node]> = [location.inner()]
        .into_iter()
        .chain(levels[1..].iter().copied())
        .collect();
    let mut fields = Vec::new();
    for line in inherited(&page_levels, "add_header") {
        // Unsupported variables are reported at the location of the page.
        if line.word(3) == Some("always")
            && let Ok((name, value)) = added_field(line, clients)
        {
            fields.push((name.to_owned(), value, line.position));
        }
    }
    for name in edits
        .response
        .replace_for("404", "200-403,405-599", &fields)
    {
        let why = format!(
            "the response for a missing file has {name} of the file's location, not of the location of its page"
        );
        notes.add(node.position, why);
    }
}

/// Gives the last page of `try_files` and the index the response fields of their own location, as nginx does when it
/// sends them for another path. Adds a note if a route cannot express it.
pub(super) fn add_page_fields(
    context: &mut Context<'_>,
    (server, node): (&Node, &Node),
    levels: &[&[Node]],
    clients: (&str, &str),
    edits: &mut Edits,
    notes: &mut Notes,
) {
    let find = |keyword: &str| {
        let mut levels = levels.iter();
        levels.find_map(|nodes| nodes.iter().rev().find(|line| line.keyword() == keyword))
    };
    let fallback = find("try_files").and_then(|line| Some((line, line.words.last()?.clone())));
    let index = (node.word(1) == Some("/")).then(|| match find("index") {
        Some(line) => (line, format!("/{}", line.word(1).unwrap_or_default())),
        None => (node, "/index.html".to_owned()),
    });
    let fields = |levels: &[&[Node]]| -> Vec<Vec<String>> {
        let keywords = ["add_header", "expires"].into_iter();
        let lines = keywords.flat_map(|keyword| inherited(levels, keyword));
        lines.map(|line| line.words.clone()).collect()
    };
    let has_alias = node.inner().iter().any(|line| line.keyword() == "alias");
    let has_no_fields = fields(levels).is_empty();
    let mut done: Option<String> = None;
    for (line, page) in fallback.into_iter().chain(index) {
        let is_page = |candidate: &&Node| {
            candidate.keyword() == "location"
                && candidate.word(1) == Some("=")
                && candidate.word(2) == Some(&page)
        };
        let Some(location) = server.inner().iter().find(is_page) else {
            continue;
        };
        let page_levels: Vec<&[Node]> = [location.inner()]
            .into_iter()
            .chain(levels[1..].iter().copied())
            .collect();
        if location.position == node.position || fields(&page_levels) == fields(levels) {
            continue;
        }
        let is_only = done.as_ref().is_none_or(|known| *known == page);
        let mut lines = location.inner().iter();
        let sends_file = lines.all(|line| is_of_node(line, node) || is_about_response(line));
        if has_no_fields && !has_alias && is_only && sends_file {
            if done.is_none() {
                let added = file_edits(context, &page_levels, clients, notes);
                edits.response.add_for_file(&added.response, &page);
            }
            done = Some(page);
            continue;
        }
        let why = format!(
            "if {page} is sent for another path, it has the fields of that path's location, not those of its own"
        );
        return notes.add(line.position, why);
    }
}

/// Returns whether a line of a location changes only fields or logs of its responses, not the file.
fn is_about_response(line: &Node) -> bool {
    matches!(
        line.keyword(),
        "add_header" | "expires" | "access_log" | "error_log" | "log_not_found" | "internal"
    )
}

/// Returns whether a line is one that a location within `node` inherits.
fn is_of_node(line: &Node, node: &Node) -> bool {
    node.inner().iter().any(|own| own.position == line.position)
}
