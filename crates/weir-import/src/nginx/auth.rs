//! Converts `auth_request` of a location to `forward_auth` of the location's route.

use std::collections::HashMap;

use super::Context;
use super::mirror::path_of;
use super::target::{find_or_write_pool, parse_url, server_host, server_tls};
use super::tree::{Node, inherited};
use super::variable::{ServerVariables, replace_variables};
use crate::document::{Entry, Item};
use crate::note::Notes;

/// Returns the route's `forward_auth`, or `None` if there is no `auth_request`. Adds a note and returns `None` if the
/// `auth_request` cannot be imported.
pub(super) fn forward_auth(
    context: &mut Context<'_>,
    levels: &[&[Node]],
    variables: ServerVariables<'_>,
    notes: &mut Notes,
) -> Option<Entry> {
    let line = *inherited(levels, "auth_request").last()?;
    if line.word(1) == Some("off") {
        context.used.insert(line.position);
        return None;
    }
    match convert(context, line, levels, variables, notes) {
        Ok(entry) => {
            context.used.insert(line.position);
            Some(entry)
        }
        Err(reason) => {
            line.reject(notes, &reason);
            None
        }
    }
}

/// Converts an `auth_request`.
///
/// # Errors
/// Returns why the `auth_request` cannot be imported.
fn convert(
    context: &mut Context<'_>,
    line: &Node,
    levels: &[&[Node]],
    variables: ServerVariables<'_>,
    notes: &mut Notes,
) -> Result<Entry, String> {
    let path = line.word(1).ok_or("the path is missing")?;
    let [.., server, outer] = levels else {
        return Err("the directive is outside of a server block".to_owned());
    };
    let has_path = |node: &&Node| path_of(node) == Some(path);
    let target = context.auth_locations.iter().find(has_path).cloned();
    let target = target.ok_or("no location has this path")?;
    let target_levels: Vec<&[Node]> = vec![target.inner(), server, outer];
    let is_other_action =
        |line: &Node| matches!(line.keyword(), "if" | "return" | "rewrite" | "set");
    if target.inner().iter().any(is_other_action) {
        return Err(
            "the subrequest's location does more than proxy the request to a server".to_owned(),
        );
    }
    let mut lines = target.inner().iter();
    let pass = lines.find(|line| line.keyword() == "proxy_pass");
    let pass = pass.ok_or("the subrequest's location has no `proxy_pass`")?;
    let url = parse_url(pass.word(1).unwrap_or_default())?;
    let set_fields = set_fields(&target_levels, variables)?;
    let tls = match url.tls {
        true => server_tls(context, &target_levels),
        false => Vec::new(),
    };
    let host = server_host(context, &target_levels, &url, pass.position);
    let pool_ref = find_or_write_pool(context, &url, (tls, host), pass, notes)?;
    let mut table = vec![
        Entry::new("pool", pool_ref.pool, pass.position).essential(),
        Entry::new("path", url.path.as_deref().unwrap_or(path), pass.position).essential(),
    ];
    if let Some(time) = inherited(&target_levels, "proxy_read_timeout").last()
        && let Some(millis) = time.word(1).and_then(super::parse_time)
        && (1..=60_000).contains(&millis)
    {
        let text = crate::time::format_millis(millis);
        table.push(Entry::new("timeout", text, time.position));
    } else {
        // This is nginx's default.
        table.push(Entry::implied("timeout", "60s"));
    }
    let copied_fields = copied_fields(context, levels);
    if !copied_fields.is_empty() {
        table.push(Entry::implied("copy_header", copied_fields).essential());
    }
    if !set_fields.is_empty() {
        table.push(Entry::implied("set_header", set_fields).essential());
    }
    Ok(Entry::new("forward_auth", table, line.position).essential())
}

/// Returns the fields that the location sets, except for those that Weir sends anyway or never sends.
fn set_fields(
    target_levels: &[&[Node]],
    variables: ServerVariables<'_>,
) -> Result<Vec<Item>, String> {
    const SKIPPED: [&str; 6] = [
        "host",
        "content-length",
        "content-type",
        "connection",
        "upgrade",
        "x-forwarded-for",
    ];
    // `{path}` is the path as received, as in redirects.
    let variables = variables.for_redirect(true);
    let mut items = Vec::new();
    for line in inherited(target_levels, "proxy_set_header") {
        let (Some(name), Some(value)) = (line.word(1), line.word(2)) else {
            continue;
        };
        if value.is_empty() || SKIPPED.contains(&name.to_ascii_lowercase().as_str()) {
            continue;
        }
        let value = replace_variables(value, variables);
        let value = value.ok_or_else(|| {
            format!(
                "the subrequest's field {name} contains an unsupported variable or a name in braces"
            )
        })?;
        items.push(Item::new(format!("{name}: {value}"), Some(line.position)));
    }
    Ok(items)
}

/// Returns the response fields that `auth_request_set` assigns to variables, by variable.
fn fields_by_variable<'n>(levels: &[&'n [Node]]) -> HashMap<&'n str, (String, &'n Node)> {
    let lines = inherited(levels, "auth_request_set").into_iter();
    let pairs = lines.filter_map(|line| {
        let field = line.word(2)?.strip_prefix("$upstream_http_")?;
        Some((line.word(1)?, (field.replace('_', "-"), line)))
    });
    pairs.collect()
}

/// Returns the response field that a `proxy_set_header` copies, or `None` if it does not copy a field.
pub(super) fn copied_field(levels: &[&[Node]], line: &Node) -> Option<String> {
    let (field, _) = fields_by_variable(levels).remove(line.word(2)?)?;
    Some(field)
}

/// Returns the fields that `auth_request_set` and `proxy_set_header` together copy to the server's request.
fn copied_fields(context: &mut Context<'_>, levels: &[&[Node]]) -> Vec<Item> {
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
        let assignments = fields_by_variable(levels).into_values();
        let assignments = assignments.filter(|(assigned_field, _)| *assigned_field == field);
        context
            .used
            .extend(assignments.map(|(_, line)| line.position));
    }
    items
}
