//! Converts the `mirror` directives of a location, which send copies of requests to another location's pool.

use std::collections::HashSet;

use weir_model::Mirror;

use super::split::{Split, is_internal_target};
use super::target::{find_or_write_pool, parse_url, server_host, server_tls};
use super::tree::{Node, inherited};
use super::{Context, limit};
use crate::document::{Entry, Item, Value};
use crate::note::{Notes, Position};

/// Largest body that Weir copies, in bytes.
const MAX_BODY_BYTES: u64 = 16 << 20;
/// Default of nginx's `client_max_body_size`, in bytes.
const DEFAULT_MAX_BODY_BYTES: u64 = 1 << 20;
/// Maximum number of concurrent copies; nginx has no such limit.
const MAX_CONCURRENT_COPIES: u64 = 10_000;

/// Returns the route's `mirror` entry for the `mirror` directives that apply at the innermost level.
pub(super) fn mirror(
    context: &mut Context<'_>,
    levels: &[&[Node]],
    notes: &mut Notes,
) -> Option<Entry> {
    let mut mirrors = Vec::new();
    let mut position = None;
    for line in inherited(levels, "mirror") {
        if line.word(1) == Some("off") {
            context.used.insert(line.position);
            continue;
        }
        if mirrors.len() == Mirror::MAX {
            line.reject(notes, "Weir supports at most 8 mirrors per route");
            continue;
        }
        match mirror_keys(context, line, levels, notes) {
            Ok(table) => {
                context.used.insert(line.position);
                position.get_or_insert(line.position);
                mirrors.push(Item::new(table, Some(line.position)));
            }
            Err(reason) => line.reject(notes, &reason),
        }
    }
    let mut entry = Entry::new("mirror", mirrors.len() == 1, position?);
    entry.item = match mirrors.len() {
        1 => mirrors.pop()?,
        _ => Item::new(mirrors, position),
    };
    Some(entry)
}

/// Returns the keys for a `mirror` directive.
///
/// # Errors
/// Returns the reason why the directive cannot be imported.
fn mirror_keys(
    context: &mut Context<'_>,
    line: &Node,
    levels: &[&[Node]],
    notes: &mut Notes,
) -> Result<Vec<Entry>, String> {
    let path = line.word(1).ok_or("the path is missing")?;
    let [.., server, outer] = levels else {
        return Err("the directive is outside of a server block".to_owned());
    };
    let mut targets = context.mirror_locations.iter();
    let target = targets.find(|node| path_of(node) == Some(path)).cloned();
    let target = target.ok_or("no location has this path")?;
    let target_levels: Vec<&[Node]> = vec![target.inner(), server, outer];
    let pass = target_pass(context, &target)?;
    let text = pass.word(1).unwrap_or_default();
    let split = context.splits.for_target(pass);
    let part = match &split {
        Some(split) => Some(split.only_part().ok_or(
            "`percent` accepts only one share, but `split_clients` selects several targets",
        )?),
        None => None,
    };
    let url = parse_url(part.map_or(text, |(_, url)| url))?;
    // Without `$request_uri`, nginx sends the URL path, or the mirror's path if the URL has no path.
    let mirror_path = match (text.ends_with("$request_uri"), &url.path) {
        (true, None) => None,
        (true, Some(_)) => {
            return Err(
                "`mirror` sends either the request path or a fixed path, not a combination of both"
                    .to_owned(),
            );
        }
        (false, url_path) => Some(url_path.clone().unwrap_or_else(|| path.to_owned())),
    };
    note_fields(&target_levels, levels, notes);
    let tls = match url.tls {
        true => server_tls(context, &target_levels),
        false => Vec::new(),
    };
    let host = server_host(context, &target_levels, &url, pass.position);
    let pool_ref = find_or_write_pool(context, &url, (tls, host), pass, notes)?;
    let body = max_body_bytes(context, levels, &target_levels);
    let mut table = vec![Entry::new("pool", pool_ref.pool, pass.position).essential()];
    if let (Some(split), Some((share, _))) = (&split, part) {
        table.push(percent(
            context,
            &target,
            split,
            (share, pass.position),
            notes,
        ));
    }
    table.extend([
        Entry::implied("body", body),
        Entry::implied("concurrent", MAX_CONCURRENT_COPIES),
    ]);
    table.extend(mirror_path.map(|path| Entry::new("path", path, line.position).essential()));
    Ok(table)
}

/// Returns the `proxy_pass` of a mirror's location.
///
/// # Errors
/// Returns the reason why the location cannot be the target of a mirror.
fn target_pass<'n>(context: &Context<'_>, target: &'n Node) -> Result<&'n Node, String> {
    let mut lines = target.inner().iter();
    let pass = lines
        .find(|line| line.keyword() == "proxy_pass")
        .ok_or("the mirror's location has no `proxy_pass`")?;
    let has_split = context.splits.for_target(pass).is_some();
    let text = pass.word(1).unwrap_or_default();
    let is_other_action = |line: &Node| match line.keyword() {
        // If the target is empty, nginx sends no copy anyway.
        "if" => !has_split || !returns_if_empty(line, text),
        keyword => matches!(keyword, "return" | "rewrite" | "set"),
    };
    match target.inner().iter().any(is_other_action) {
        true => Err("the mirror's location does more than proxy the copy to a server".to_owned()),
        false => Ok(pass),
    }
}

/// Returns the maximum body size of a copy, in bytes.
fn max_body_bytes(context: &mut Context<'_>, levels: &[&[Node]], target_levels: &[&[Node]]) -> u64 {
    let mut last_value = |keyword: &str, levels: &[&[Node]]| {
        let lines = inherited(levels, keyword);
        context.used.extend(lines.iter().map(|line| line.position));
        lines
            .last()
            .and_then(|line| line.word(1))
            .map(str::to_owned)
    };
    let has_body = last_value("mirror_request_body", levels).as_deref() != Some("off")
        && last_value("proxy_pass_request_body", target_levels).as_deref() != Some("off");
    let max_body = inherited(levels, "client_max_body_size");
    let max_body = max_body
        .last()
        .and_then(|line| limit::parse_size(line.word(1)?));
    match (has_body, max_body) {
        (false, _) => 0,
        (true, Some(0)) => MAX_BODY_BYTES,
        (true, max_body) => max_body
            .unwrap_or(DEFAULT_MAX_BODY_BYTES)
            .min(MAX_BODY_BYTES),
    }
}

/// Returns `percent` for a mirror's location whose target is selected by `split_clients`. `share` is the percentage of
/// requests that are copied, in hundredths of a percent.
fn percent(
    context: &mut Context<'_>,
    target: &Node,
    split: &Split,
    (share, position): (u64, Position),
    notes: &mut Notes,
) -> Entry {
    let conditions = target.inner().iter().filter(|line| line.keyword() == "if");
    let lines =
        conditions.flat_map(|node| node.block_positions().into_iter().chain([node.position]));
    context
        .used
        .extend(lines.chain(split.lines().iter().copied()));
    for line in split.lines() {
        let reason = "the mirror's `percent` selects requests at random, not by the hash of a text";
        notes.remark(*line, reason);
    }
    let mut percent = Entry::new("percent", 0_u32, position).essential();
    percent.item.value = Value::Hundredths(share);
    percent
}

/// Returns whether a directive is `if ($variable = "") { return …; }` with a variable in this target.
fn returns_if_empty(line: &Node, target: &str) -> bool {
    let text = line.words.get(1..).unwrap_or_default().join(" ");
    let condition = text.trim_start_matches('(').trim_end_matches(')').trim();
    let variable = condition.strip_suffix('=').map(str::trim);
    let has_variable = |variable: &str| {
        let names = target.split('$').skip(1);
        let mut names = names.map(|it| it.trim_start_matches('{').trim_end_matches('}'));
        names.any(|name| Some(name) == variable.strip_prefix('$'))
    };
    let returns = |line: &Node| line.keyword() == "return";
    line.keyword() == "if"
        && variable.is_some_and(has_variable)
        && line.inner().len() == 1
        && line.inner().iter().all(returns)
}

/// Returns whether an `if` block in a mirror's location determines which requests are copied.
pub(super) fn selects_copies(context: &Context<'_>, location: &Node, block: &Node) -> bool {
    let mut lines = location.inner().iter();
    let pass = lines.find(|line| line.keyword() == "proxy_pass");
    let target = pass.and_then(|pass| pass.word(1));
    is_internal_target(context, location)
        && pass.is_some_and(|pass| context.splits.for_target(pass).is_some())
        && target.is_some_and(|target| returns_if_empty(block, target))
}

/// Returns the path of a `location` block.
pub(super) fn path_of(node: &Node) -> Option<&str> {
    match node.word(1) {
        Some("=") => node.word(2),
        path => path,
    }
}

/// Returns the locations in a server block to which `keyword` directives (`mirror`, `auth_request`) refer.
pub(super) fn target_locations(server: &Node, outer: &[Node], keyword: &str) -> Vec<Node> {
    fn collect_paths<'n>(nodes: &'n [Node], keyword: &str, target_paths: &mut HashSet<&'n str>) {
        for node in nodes {
            if node.keyword() == keyword {
                target_paths.extend(node.word(1));
            }
            collect_paths(node.inner(), keyword, target_paths);
        }
    }
    let mut target_paths = HashSet::new();
    collect_paths(server.inner(), keyword, &mut target_paths);
    collect_paths(outer, keyword, &mut target_paths);
    let is_target = |node: &&Node| {
        node.keyword() == "location"
            && path_of(node).is_some_and(|path| target_paths.contains(path))
    };
    server.inner().iter().filter(is_target).cloned().collect()
}

/// Adds a note to each `proxy_set_header` of the target if the header fields of copies differ from those of the
/// requests. Ignores `Host`, which is a pool key, and `Content-Length`.
fn note_fields(target_levels: &[&[Node]], levels: &[&[Node]], notes: &mut Notes) {
    let is_ignored = |name: &str| {
        matches!(
            name.to_ascii_lowercase().as_str(),
            "host" | "content-length"
        )
    };
    let fields = |levels: &[&[Node]]| -> Vec<Vec<String>> {
        let lines = inherited(levels, "proxy_set_header").into_iter();
        let compared = lines.filter(|line| !line.word(1).is_some_and(is_ignored));
        compared.map(|line| line.words.clone()).collect()
    };
    if fields(target_levels) != fields(levels) {
        let changed = inherited(target_levels, "proxy_set_header");
        for line in changed
            .iter()
            .filter(|line| !line.word(1).is_some_and(is_ignored))
        {
            notes.add(
                line.position,
                "not imported: copies have the same header fields as the original requests",
            );
        }
    }
}
