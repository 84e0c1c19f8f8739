//! Converts pages: `error_page` with a file or a fixed URL, and the fallback of `try_files`.

use regex::Regex;

use super::Context;
use super::header::{added_field, file_edits};
use super::tree::{Node, inherited};
use super::variable::ServerVariables;
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
    let error_page_lines = if server_lines.is_empty() {
        lines(outer)
    } else {
        server_lines
    };
    for line in error_page_lines {
        let is_for_404 = line.words.get(1..line.words.len() - 1) == Some(&["404".to_owned()]);
        if is_for_404 && every_path_is_proxied(server) {
            context.used.insert(line.position);
            let reason = "not imported: every location proxies its requests, so nginx itself never responds with 404";
            notes.remark(line.position, reason);
            continue;
        }
        if let Some(entries) = error_redirect(&line) {
            context.used.insert(line.position);
            pages.push(Item::new(entries, Some(line.position)));
            continue;
        }
        match error_page(&line, server, outer) {
            Ok((_, file)) if context.environment.has_file(&file) == Some(false) => {
                context.used.insert(line.position);
                let reason = format!(
                    "not imported: {file} does not exist; nginx responds with its built-in page, as Weir does"
                );
                notes.remark(line.position, reason);
            }
            Ok((entries, _)) => {
                context.used.insert(line.position);
                // Clients cannot request files from an `internal` location, so its `root` is not needed.
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
            Err(reason) => line.reject(notes, reason),
        }
    }
    pages
}

/// Returns whether every path has a location with a target and no directive returns 404, so nginx itself never responds
/// with 404.
fn every_path_is_proxied(server: &Node) -> bool {
    let has_target = |node: &Node| {
        let mut lines = node.inner().iter();
        lines.any(|line| line.keyword().ends_with("_pass") || line.keyword() == "internal")
    };
    let mut locations = server.inner().iter();
    let mut has_catch_all = false;
    locations.all(|node| {
        let is_location = node.keyword() == "location";
        has_catch_all |= is_location && node.word(1) == Some("/");
        !is_location || has_target(node)
    }) && has_catch_all
        && !returns_404(server.inner())
}

fn returns_404(nodes: &[Node]) -> bool {
    let returns = |node: &Node| node.keyword() == "return" && node.word(1) == Some("404");
    nodes
        .iter()
        .any(|node| returns(node) || returns_404(node.inner()))
}

/// Returns the entries of an error page that is a redirect to a fixed URL. Excludes pages for status 497 (plain HTTP on
/// a TLS port).
fn error_redirect(line: &Node) -> Option<Vec<Entry>> {
    let (url, codes) = line.words.get(1..)?.split_last()?;
    let is_url = url.starts_with("http://") || url.starts_with("https://");
    if !is_url || url.contains(['$', '{', '}']) {
        return None;
    }
    let (codes, status) = match codes.split_last()? {
        (last, codes) if last.starts_with('=') => (codes, last[1..].parse::<u64>().ok()?),
        _ => (codes, 302),
    };
    let is_code = |code: &String| code.parse::<u16>().is_ok_and(|code| code != 497);
    if codes.is_empty() || !codes.iter().all(is_code) || !matches!(status, 302 | 303) {
        return None;
    }
    let mut entries = vec![
        Entry::new("status", codes.join(","), line.position).essential(),
        Entry::new("redirect", url.as_str(), line.position).essential(),
    ];
    if status != 302 {
        entries.push(Entry::new("redirect_status", status, line.position));
    }
    Some(entries)
}

/// Returns the entries of an error page and the path of its file.
fn error_page(
    line: &Node,
    server: &Node,
    outer: &[Node],
) -> Result<(Vec<Entry>, String), &'static str> {
    let words: Vec<&str> = line.words.iter().skip(1).map(String::as_str).collect();
    let (uri, codes) = words.split_last().ok_or("the page is missing")?;
    if !uri.starts_with('/') || uri.contains('$') {
        return Err("a service's `error_pages` accepts only files and fixed URLs");
    }
    if codes.is_empty() || codes.iter().any(|code| code.parse::<u16>().is_err()) {
        return Err("a service's `error_pages` cannot change the status code");
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
        return Err("the location of the error page does not serve a file");
    }
    if location.is_none() && is_proxied(server, uri) {
        return Err("the error page is proxied to a server");
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

/// Returns whether nginx proxies a path to a server.
fn is_proxied(server: &Node, path: &str) -> bool {
    let is_pass = |node: &Node| {
        let mut lines = node.inner().iter();
        lines.any(|line| line.keyword() == "proxy_pass")
    };
    location_of(server, path).is_some_and(is_pass)
}

/// Returns the location that handles a path, or `None` if there is none or if its path is a regular expression.
pub(super) fn location_of<'n>(server: &'n Node, path: &str) -> Option<&'n Node> {
    select_location(server, path).filter(|node| !matches!(node.word(1), Some("~" | "~*")))
}

/// Returns the location that nginx selects for a path.
fn select_location<'n>(server: &'n Node, path: &str) -> Option<&'n Node> {
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
    let prefixes = locations().filter_map(|node| match (node.word(1)?, node.word(2)) {
        ("^~", Some(prefix)) | (prefix, None) => Some((prefix, node)),
        _ => None,
    });
    let matching = prefixes.filter(|(prefix, _)| path.starts_with(prefix));
    let longest = matching.max_by_key(|(prefix, _)| prefix.len());
    let longest = longest.map(|(_, node)| node);
    if longest.is_some_and(|node| node.word(1) == Some("^~")) {
        return longest;
    }
    let may_match_path = |node: &&Node| {
        let expression = node.word(2).unwrap_or_default();
        let expression = match node.word(1) {
            Some("~") => expression.to_owned(),
            Some("~*") => format!("(?i){expression}"),
            _ => return false,
        };
        Regex::new(&expression).map_or(true, |regex| regex.is_match(path))
    };
    locations().find(may_match_path).or(longest)
}

/// Returns whether `path`, to which nginx redirects a request in `node`, is sent as a file of `node`. It is not if its
/// own location does something else, for example if it passes requests for `.php` files to FastCGI: the file is then
/// source code that clients must not receive.
pub(super) fn is_sent_as_file(server: &Node, node: &Node, path: &str) -> bool {
    let has_effect = |line: &Node| {
        line.keyword().ends_with("_pass")
            || matches!(
                line.keyword(),
                "return"
                    | "rewrite"
                    | "if"
                    | "root"
                    | "alias"
                    | "deny"
                    | "auth_basic"
                    | "auth_jwt"
                    | "auth_request"
            )
    };
    select_location(server, path).is_none_or(|selected| {
        let mut lines = selected.inner().iter();
        selected.position == node.position
            || lines.all(|line| !has_effect(line) || comes_from(line, node))
    })
}

/// Sets the fields of 404 responses with an `error_page` to those of the page's location, as in nginx.
pub(super) fn set_404_fields(
    (server, node): (&Node, &Node),
    levels: &[&[Node]],
    variables: ServerVariables<'_>,
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
    let is_pass = |node: &Node| {
        node.inner()
            .iter()
            .any(|line| line.keyword().ends_with("_pass"))
    };
    let Some(location) = location.filter(|it| it.position != node.position && !is_pass(it)) else {
        return;
    };
    let page_levels: Vec<&[Node]> = [location.inner()]
        .into_iter()
        .chain(levels[1..].iter().copied())
        .collect();
    let mut fields = Vec::new();
    for line in inherited(&page_levels, "add_header") {
        // Unsupported variables are reported for the page's location.
        if line.word(3) == Some("always")
            && let Ok((name, value)) = added_field(line, variables)
        {
            fields.push((name.to_owned(), value, line.position));
        }
    }
    for name in edits
        .response
        .replace_for("404", "200-403,405-599", &fields)
    {
        let reason = format!(
            "404 responses have the {name} field of the requested file's location, not that of the error page's \
             location"
        );
        notes.add(node.position, reason);
    }
}

/// Sets the response fields of the `try_files` fallback and of the index page to those of their own locations: nginx
/// sends these fields even if it serves the page for a different path. Adds a note if a route cannot express this.
pub(super) fn set_page_fields(
    context: &mut Context<'_>,
    (server, node): (&Node, &Node),
    levels: &[&[Node]],
    variables: ServerVariables<'_>,
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
    let mut converted_page: Option<String> = None;
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
        let is_same_page = converted_page.as_ref().is_none_or(|it| *it == page);
        let mut lines = location.inner().iter();
        let sends_file = lines.all(|line| comes_from(line, node) || affects_only_response(line));
        if has_no_fields && !has_alias && is_same_page && sends_file {
            if converted_page.is_none() {
                let page_edits = file_edits(context, &page_levels, variables, notes);
                edits.response.add_for_file(&page_edits.response, &page);
            }
            converted_page = Some(page);
            continue;
        }
        let reason = format!(
            "when {page} is served for another path, the response has the header fields of that path's location, not \
             those of {page}'s location"
        );
        return notes.add(line.position, reason);
    }
}

/// Returns whether a line of a location affects only response fields or logs, not the file that is served.
fn affects_only_response(line: &Node) -> bool {
    matches!(
        line.keyword(),
        "add_header" | "expires" | "access_log" | "error_log" | "log_not_found" | "internal"
    )
}

/// Returns whether a line comes from `node`: locations nested in `node` have copies of the lines that they inherit.
fn comes_from(line: &Node, node: &Node) -> bool {
    node.inner()
        .iter()
        .any(|inner| inner.position == line.position)
}
