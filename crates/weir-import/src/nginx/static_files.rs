//! Converts locations that serve files: `root`, `alias`, `index` and `try_files`.

use super::Context;
use super::fallback::NamedPool;
use super::location::rejects_clients;
use super::page;
use super::path::{absolute_path, try_candidates};
use super::tree::Node;
use crate::document::Entry;
use crate::layer7::Action;
use crate::note::{Notes, Position};

/// Returns the action that serves the files of a location: its own `alias`, or a `root` of any level. `text` is the
/// location's path. `fallback` receives requests for missing files.
pub(super) fn file_action(
    context: &mut Context<'_>,
    (server, node): (&Node, &Node),
    text: &str,
    levels: &[&[Node]],
    fallback: Option<&NamedPool<'_>>,
    notes: &mut Notes,
) -> Option<(Action, Position)> {
    let is_pass = |line: &Node| line.keyword().ends_with("_pass") || line.keyword() == "internal";
    if node.inner().iter().any(is_pass) || rejects_clients(node) {
        return None;
    }
    let mut find = |keyword: &str| {
        let mut levels = levels.iter();
        let line =
            levels.find_map(|nodes| nodes.iter().rev().find(|line| line.keyword() == keyword))?;
        context.used.insert(line.position);
        Some(line)
    };
    let alias = node.inner().iter().find(|line| line.keyword() == "alias");
    let Some(root) = alias.or_else(|| find("root")) else {
        // Without `root`, nginx uses a directory that contains only its default pages.
        let named_pool = fallback?;
        context.used.insert(named_pool.position);
        return Some((Action::Pool(named_pool.pool.clone()), named_pool.position));
    };
    let path = absolute_path(root.word(1)?.trim_end_matches('/'));
    if path.contains('$') {
        return None;
    }
    let path = if path.is_empty() { "/" } else { path.as_str() };
    let mut keys = vec![Entry::new("root", path, root.position).essential()];
    if alias.is_some() {
        keys.push(Entry::new("strip", text.trim_end_matches('/'), root.position).essential());
    }
    if let Some(index) = find("index") {
        let names = index_files((server, node), text, index, notes);
        keys.push(Entry::new("index", names, index.position));
    }
    if let Some(tries) = find("try_files") {
        let mut words = tries.words[1..].to_vec();
        if let Some(page) = words.last_mut().filter(|it| it.starts_with('/'))
            && !page::is_sent_as_file(server, node, page)
        {
            let reason = format!(
                "nginx passes requests for missing files to the location of {page}; Weir responds with status 404"
            );
            notes.add(tries.position, reason);
            *page = "=404".to_owned();
        }
        match try_candidates(&words, fallback.is_some()) {
            Some(candidates) => {
                keys.push(Entry::new("try", candidates, tries.position).essential());
            }
            None => tries.reject(notes, "`try` of a route's `files` cannot express it"),
        }
    }
    if let Some(named_pool) = fallback {
        context.used.insert(named_pool.position);
        keys.push(Entry::new("pool", named_pool.pool.as_str(), named_pool.position).essential());
    }
    context.used.insert(root.position);
    Some((Action::Files(keys, node.position), root.position))
}

/// Returns the names of `index` that are sent as files. `text` is the location's path.
fn index_files(
    (server, node): (&Node, &Node),
    text: &str,
    index: &Node,
    notes: &mut Notes,
) -> Vec<String> {
    let directory = match text.starts_with('/') {
        true => text.trim_end_matches('/'),
        // The path is a regular expression.
        false => "",
    };
    let names = index.words[1..].iter();
    let (names, others) = names.partition::<Vec<&String>, _>(|name| {
        page::is_sent_as_file(server, node, &format!("{directory}/{name}"))
    });
    for name in others {
        let reason =
            format!("{name} is not imported: nginx passes requests for it to a different location");
        notes.add(index.position, reason);
    }
    names.into_iter().cloned().collect()
}
