//! Pages: `error_page` with a file becomes `error_pages`; the last page of `try_files`.

use super::Context;
use super::tree::{Node, inherited};
use crate::document::{Entry, Item};
use crate::note::Notes;

/// Returns the error pages of a server block.
pub(super) fn pages(
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
    let own = lines(server.inner());
    let all = if own.is_empty() { lines(outer) } else { own };
    for line in all {
        match page(&line, server, outer) {
            Ok((_, file)) if context.environment.has_file(&file) == Some(false) => {
                context.used.insert(line.position);
                let why = format!(
                    "not imported: there is no {file}; nginx responds with its own page, as Weir does"
                );
                notes.remark(line.position, why);
            }
            Ok((entries, _)) => {
                context.used.insert(line.position);
                // An internal location has no files for clients.
                let of_page = |node: &&Node| {
                    node.keyword() == "location"
                        && node.words.last() == line.words.last()
                        && node.inner().iter().any(|it| it.keyword() == "internal")
                };
                if let Some(location) = server.inner().iter().find(of_page) {
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

/// Returns the keys of a page, and its file.
fn page(line: &Node, server: &Node, outer: &[Node]) -> Result<(Vec<Entry>, String), &'static str> {
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
        let exact = node.word(1) == Some("=") && node.word(2) == Some(uri);
        node.keyword() == "location" && (exact || node.word(1) == Some(uri))
    });
    let root = |nodes: &[Node]| {
        let node = nodes.iter().find(|node| node.keyword() == "root")?;
        Some(node.word(1)?.to_owned())
    };
    let leads = location.is_some_and(|node| {
        let mut inner = node.inner().iter();
        inner.any(|line| {
            matches!(
                line.keyword(),
                "proxy_pass" | "return" | "rewrite" | "alias"
            )
        })
    });
    if leads {
        return Err("its page comes from a location without a file");
    }
    if location.is_none() && is_proxied(server, uri) {
        return Err("nginx requests its page from a server");
    }
    let root = location
        .and_then(|node| root(node.inner()))
        .or_else(|| root(server.inner()))
        .or_else(|| root(outer))
        .unwrap_or_else(|| "html".to_owned());
    let root = super::path::absolute(&root);
    let file = format!("{}{uri}", root.trim_end_matches('/'));
    let entries = vec![
        Entry::new("status", codes.join(","), line.position).essential(),
        Entry::new("file", file.as_str(), line.position).essential(),
    ];
    Ok((entries, file))
}

/// Whether a path without a location of its own gets to one that has a server.
fn is_proxied(server: &Node, path: &str) -> bool {
    let mut inner = server.inner().iter();
    let is_expression = |word: &str| word.starts_with('~');
    if inner.any(|node| node.keyword() == "location" && node.word(1).is_some_and(is_expression)) {
        return false;
    }
    let prefixes = server.inner().iter().filter(|node| {
        node.keyword() == "location" && node.word(2).is_none() && node.word(1).is_some()
    });
    let matching = prefixes.filter(|node| path.starts_with(node.word(1).unwrap_or_default()));
    let longest = matching.max_by_key(|node| node.word(1).map_or(0, str::len));
    longest.is_some_and(|node| {
        let mut lines = node.inner().iter();
        lines.any(|line| line.keyword() == "proxy_pass")
    })
}

/// Notes that nginx sends the last page of `try_files`, and the index, with the fields of the page's own location.
pub(super) fn note_fields(server: &Node, node: &Node, levels: &[&[Node]], notes: &mut Notes) {
    let find = |keyword: &str| {
        let mut levels = levels.iter();
        levels.find_map(|nodes| nodes.iter().rev().find(|line| line.keyword() == keyword))
    };
    let fallback = find("try_files").and_then(|line| Some((line, line.words.last()?.clone())));
    let index = find("index").filter(|_| node.word(1) == Some("/"));
    let index = index.and_then(|line| Some((line, format!("/{}", line.word(1)?))));
    let fields = |levels: &[&[Node]]| -> Vec<Vec<String>> {
        let keywords = ["add_header", "expires"].into_iter();
        let lines = keywords.flat_map(|keyword| inherited(levels, keyword));
        lines.map(|line| line.words.clone()).collect()
    };
    for (line, page) in fallback.into_iter().chain(index) {
        let is_page = |it: &&Node| {
            it.keyword() == "location" && it.word(1) == Some("=") && it.word(2) == Some(&page)
        };
        let Some(location) = server.inner().iter().find(is_page) else {
            continue;
        };
        let own: Vec<&[Node]> = [location.inner()]
            .into_iter()
            .chain(levels[1..].iter().copied())
            .collect();
        if location.position != node.position && fields(&own) != fields(levels) {
            let why = format!(
                "in place of another path, {page} has the fields of that path's location, and not those of its own"
            );
            return notes.add(line.position, why);
        }
    }
}
