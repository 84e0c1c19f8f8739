//! `auth_request` of a location: `forward_auth` of its route.

use std::collections::HashMap;

use super::Context;
use super::mirror::path_of;
use super::target::{host, pool, server_tls, url};
use super::tree::{Node, inherited};
use super::variable::{Clients, replace};
use crate::document::{Entry, Item};
use crate::note::Notes;

/// Returns the route's `forward_auth`; `None` = there is no `auth_request`, or it cannot be imported, with a note.
pub(super) fn forward_auth(
    context: &mut Context<'_>,
    levels: &[&[Node]],
    clients: Clients<'_>,
    notes: &mut Notes,
) -> Option<Entry> {
    let line = *inherited(levels, "auth_request").last()?;
    if line.word(1) == Some("off") {
        context.used.insert(line.position);
        return None;
    }
    match convert(context, line, levels, clients, notes) {
        Ok(entry) => {
            context.used.insert(line.position);
            Some(entry)
        }
        Err(why) => {
            line.reject(notes, &why);
            None
        }
    }
}

/// Converts an `auth_request`.
///
/// # Errors
/// Returns why it cannot be imported.
fn convert(
    context: &mut Context<'_>,
    line: &Node,
    levels: &[&[Node]],
    clients: Clients<'_>,
    notes: &mut Notes,
) -> Result<Entry, String> {
    let path = line.word(1).ok_or("the path is missing")?;
    let [.., server, outer] = levels else {
        return Err("it is outside of a server block".to_owned());
    };
    let of_path = |node: &&Node| path_of(node) == Some(path);
    let target = context.auth_locations.iter().find(of_path).cloned();
    let target = target.ok_or("no location has its path")?;
    let own: Vec<&[Node]> = vec![target.inner(), server, outer];
    let has_other = |line: &Node| matches!(line.keyword(), "if" | "return" | "rewrite" | "set");
    if target.inner().iter().any(has_other) {
        return Err("its location does more than send the request to a server".to_owned());
    }
    let mut lines = target.inner().iter();
    let pass = lines.find(|line| line.keyword() == "proxy_pass");
    let pass = pass.ok_or("its location has no `proxy_pass`")?;
    let to = url(pass.word(1).unwrap_or_default())?;
    let set = fields(&own, clients)?;
    let tls = match to.tls {
        true => server_tls(context, &own),
        false => Vec::new(),
    };
    let host = host(context, &own, &to, pass.position);
    let found = pool(context, &to, (tls, host), pass, notes)?;
    let mut table = vec![
        Entry::new("pool", found.pool, pass.position).essential(),
        Entry::new("path", to.path.as_deref().unwrap_or(path), pass.position).essential(),
    ];
    if let Some(time) = inherited(&own, "proxy_read_timeout").last()
        && let Some(millis) = time.word(1).and_then(super::time)
        && (1..=60_000).contains(&millis)
    {
        let text = crate::time::format_millis(millis);
        table.push(Entry::new("timeout", text, time.position));
    } else {
        // nginx's default.
        table.push(Entry::implied("timeout", "60s"));
    }
    let copied = copied(context, levels);
    if !copied.is_empty() {
        table.push(Entry::implied("copy_header", copied).essential());
    }
    if !set.is_empty() {
        table.push(Entry::implied("set_header", set).essential());
    }
    Ok(Entry::new("forward_auth", table, line.position).essential())
}

/// Returns the fields that the location sets, except for those that Weir sends anyway or never sends.
fn fields(own: &[&[Node]], clients: Clients<'_>) -> Result<Vec<Item>, String> {
    const LEFT_OUT: [&str; 6] = [
        "host",
        "content-length",
        "content-type",
        "connection",
        "upgrade",
        "x-forwarded-for",
    ];
    // As in redirects, `{path}` is the path as received.
    let clients = Clients {
        redirect: true,
        ..clients
    };
    let mut items = Vec::new();
    for line in inherited(own, "proxy_set_header") {
        let (Some(name), Some(value)) = (line.word(1), line.word(2)) else {
            continue;
        };
        if value.is_empty() || LEFT_OUT.contains(&name.to_ascii_lowercase().as_str()) {
            continue;
        }
        let value = replace(value, clients);
        let value = value.ok_or_else(|| {
            format!("its field {name} contains an unsupported variable or a name in braces")
        })?;
        items.push(Item::new(format!("{name}: {value}"), Some(line.position)));
    }
    Ok(items)
}

/// Returns response fields by the variables to which `auth_request_set` assigns them.
fn variables<'n>(levels: &[&'n [Node]]) -> HashMap<&'n str, (String, &'n Node)> {
    let lines = inherited(levels, "auth_request_set").into_iter();
    let pairs = lines.filter_map(|line| {
        let field = line.word(2)?.strip_prefix("$upstream_http_")?;
        Some((line.word(1)?, (field.replace('_', "-"), line)))
    });
    pairs.collect()
}

/// Returns the response field that a `proxy_set_header` copies; `None` = it has another value.
pub(super) fn copied_field(levels: &[&[Node]], line: &Node) -> Option<String> {
    let (field, _) = variables(levels).remove(line.word(2)?)?;
    Some(field)
}

/// Returns the fields that `auth_request_set` and `proxy_set_header` together copy to the server's request.
fn copied(context: &mut Context<'_>, levels: &[&[Node]]) -> Vec<Item> {
    let mut items = Vec::new();
    for line in inherited(levels, "proxy_set_header") {
        let (Some(name), Some(field)) = (line.word(1), copied_field(levels, line)) else {
            continue;
        };
        let text = match name.eq_ignore_ascii_case(&field) {
            true => name.to_owned(),
            false => format!("{name}: {field}"),
        };
        items.push(Item::new(text, Some(line.position)));
        context.used.insert(line.position);
        let set = variables(levels).into_values();
        let set = set.filter(|(known, _)| *known == field);
        context.used.extend(set.map(|(_, line)| line.position));
    }
    items
}
