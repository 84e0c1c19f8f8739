//! `error_page` with a file: `error_pages`.

use super::Context;
use super::tree::Node;
use crate::document::{Entry, Item};
use crate::note::Notes;

/// Returns the error pages of a server block, and the paths of locations that only serve them.
pub(super) fn pages(
    context: &mut Context<'_>,
    server: &Node,
    outer: &[Node],
    notes: &mut Notes,
) -> (Vec<Item>, Vec<String>) {
    let (mut pages, mut paths) = (Vec::new(), Vec::new());
    let lines = |nodes: &'_ [Node]| -> Vec<Node> {
        let lines = nodes.iter().filter(|node| node.keyword() == "error_page");
        lines.cloned().collect()
    };
    let own = lines(server.inner());
    let all = if own.is_empty() { lines(outer) } else { own };
    for line in all {
        match page(&line, server, outer) {
            Ok((_, file, _)) if context.environment.has_file(&file) == Some(false) => {
                context.used.insert(line.position);
                let why = format!(
                    "not imported: there is no {file}; nginx responds with its own page, as Weir does"
                );
                notes.remark(line.position, why);
            }
            Ok((entries, _, location)) => {
                context.used.insert(line.position);
                if let Some(location) = location {
                    context.used.extend(location.lines());
                    paths.extend(line.words.last().cloned());
                }
                pages.push(Item::new(entries, Some(line.position)));
            }
            Err(why) => line.reject(notes, why),
        }
    }
    (pages, paths)
}

/// Returns the keys of a page, its file and its location.
fn page<'n>(
    line: &Node,
    server: &'n Node,
    outer: &[Node],
) -> Result<(Vec<Entry>, String, Option<&'n Node>), &'static str> {
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
    Ok((entries, file, location))
}
