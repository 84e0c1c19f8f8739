//! Determines the target of requests for missing files: a named location, or a page that a server sends.

use super::Context;
use super::action::action;
use super::header::{edits, file_edits};
use super::location::{BlockRoutes, note_unused_lines, rejection, rejects_clients};
use super::page;
use super::tree::{Node, inherited};
use super::variable::ServerVariables;
use crate::document::Entry;
use crate::edit::Edits;
use crate::layer7::Action;
use crate::note::{Notes, Position};

/// A location and its pool. The pool receives requests for missing files.
pub(super) struct NamedPool<'n> {
    pub(super) node: &'n Node,
    pub(super) pool: String,
    /// The path that the pool gets instead of the request's, for a page of `error_page 404`.
    pub(super) page: Option<&'n str>,
    /// The line that refers to the location.
    pub(super) position: Position,
}

/// Returns the location that `try_files … @name`, `error_page 404 = @name` or `error_page 404 /PAGE` names, for a
/// location that has no other target.
pub(super) fn named_pool<'n>(
    context: &mut Context<'_>,
    node: &Node,
    server: &'n Node,
    scheme: &str,
    levels: &[&'n [Node]],
    routes: &mut BlockRoutes,
    notes: &mut Notes,
) -> Option<NamedPool<'n>> {
    let is_pass = |line: &Node| line.keyword().ends_with("_pass");
    if node.inner().iter().any(is_pass) || rejects_clients(node) {
        return None;
    }
    let find = |keyword: &str| {
        let mut levels = levels.iter();
        levels.find_map(|nodes| nodes.iter().rev().find(|line| line.keyword() == keyword))
    };
    let line = match find("try_files") {
        Some(line) => line,
        // Only 404 is supported: Weir has no equivalent for other errors of the location.
        None => {
            let mut pages = inherited(levels, "error_page").into_iter();
            pages.find(|line| match line.words.as_slice() {
                [_, code, sign, _] if sign == "=" => code == "404",
                [_, codes @ .., page] => {
                    let are_codes = codes.iter().all(|code| code.parse::<u16>().is_ok());
                    page.starts_with('/') && are_codes && codes.iter().any(|code| code == "404")
                }
                _ => false,
            })?
        }
    };
    let name = line.words.last()?;
    let page = (line.keyword() == "error_page" && name.starts_with('/')).then_some(name);
    let named = match page {
        Some(page) => page::location_of(server, page)?,
        None if name.starts_with('@') => {
            let mut inner = server.inner().iter();
            inner.find(|it| it.keyword() == "location" && it.word(1) == Some(name))?
        }
        None => return None,
    };
    let is_proxy_pass = |line: &Node| line.keyword() == "proxy_pass";
    if page.is_some() && !named.inner().iter().any(is_proxy_pass) {
        return None;
    }
    let named_levels = [named.inner()]
        .into_iter()
        .chain(levels[1..].iter().copied());
    let named_levels: Vec<&[Node]> = named_levels.collect();
    // Conditions and other actions of the location would require separate routes.
    let is_simple =
        |line: &Node| !matches!(line.keyword(), "if" | "return" | "rewrite" | "try_files");
    if !named.inner().iter().all(is_simple) {
        return None;
    }
    let path = match page {
        Some(_) => named.words.last().map_or("/", String::as_str),
        None => "/",
    };
    match action(context, named, scheme, path, &named_levels, routes, notes)? {
        (Action::Pool(pool), _) => Some(NamedPool {
            node: named,
            pool,
            page: page.map(String::as_str),
            position: line.position,
        }),
        _ => None,
    }
}

/// Returns the changes of a route that serves files and falls back to the pool of a named location. These are the
/// changes of the named location. Adds notes if the response fields of both locations differ.
pub(super) fn edits_with_named(
    context: &mut Context<'_>,
    named: &Node,
    levels: &[&[Node]],
    variables: ServerVariables<'_>,
    notes: &mut Notes,
) -> Edits {
    context.used.insert(named.position);
    let named_levels: Vec<&[Node]> = [named.inner()]
        .into_iter()
        .chain(levels[1..].iter().copied())
        .collect();
    let fields = |levels: &[&[Node]]| -> Vec<Vec<String>> {
        let lines = inherited(levels, "add_header").into_iter();
        lines.map(|line| line.words.clone()).collect()
    };
    if fields(levels) != fields(&named_levels) {
        let lines = inherited(levels, "add_header");
        for line in lines.iter().chain(&inherited(&named_levels, "add_header")) {
            notes.add(
                line.position,
                "a route's responses with files have the same header fields as its responses from the pool: those of \
                 the named location",
            );
        }
    }
    let edits = edits(context, &named_levels, variables, notes);
    note_unused_lines(context, named, notes);
    edits
}

/// Returns the changes of a route that sends a server's page for missing files. `named` contains the location of the
/// page.
pub(super) fn edits_with_page(
    context: &mut Context<'_>,
    named: &NamedPool<'_>,
    page: &str,
    levels: &[&[Node]],
    variables: ServerVariables<'_>,
    notes: &mut Notes,
) -> Edits {
    let named_levels: Vec<&[Node]> = [named.node.inner()]
        .into_iter()
        .chain(levels[1..].iter().copied())
        .collect();
    let mut edits = edits(context, &named_levels, variables, notes);
    // Responses with status 404 do not contain fields without `always`.
    edits.response = file_edits(context, levels, variables, notes).response;
    for line in inherited(levels, "add_header")
        .iter()
        .chain(&inherited(&named_levels, "add_header"))
    {
        if line.word(3) == Some("always") {
            let reason = "responses with files and those with the `error_page` page have the header fields of the \
                          location of the files";
            notes.add(line.position, reason);
        }
    }
    edits.rewrites.clear();
    edits
        .keys
        .push(Entry::new("rewrite", format!("{page}?"), named.position).essential());
    edits
        .keys
        .push(Entry::new("response_status", 404_u64, named.position));
    edits
}

/// Returns the action for requests for missing files that are not sent to a pool.
pub(super) fn action_without_pool(action: &Action) -> Action {
    match action {
        Action::Files(keys, from) => {
            let keys = keys.iter().filter(|key| key.key != "pool");
            Action::Files(keys.cloned().collect(), *from)
        }
        _ => rejection(404),
    }
}
