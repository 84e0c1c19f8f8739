//! Converts settings of a location that routes support, such as timeouts, body size, retries and compression.
//!
//! Basic authentication, mirrors and limits are converted too.

use super::server::compression;
use super::tree::Node;
use super::{Context, limit, parse_time};
use crate::document::Entry;
use crate::note::Notes;
use crate::time::format_millis;

/// Returns the keys of a location's route. `levels` are innermost first. Settings of the default server block or
/// `http` are in the table of the service, except for authentication.
pub(super) fn keys(context: &mut Context<'_>, levels: &[&[Node]], notes: &mut Notes) -> Vec<Entry> {
    const TIMES: [(&str, &str); 5] = [
        ("client_body_timeout", "client"),
        ("send_timeout", "client"),
        ("proxy_connect_timeout", "connect"),
        ("proxy_read_timeout", "server"),
        ("proxy_send_timeout", "server"),
    ];
    let mut keys = Vec::new();
    let inner = levels.split_last().map_or(levels, |(_, inner)| inner);
    // Settings of the default server block are in the table of the service.
    let lines = inner.iter().flat_map(|level| level.iter().rev());
    let lines: Vec<&Node> = lines
        .filter(|line| !context.service_lines.contains(&line.position))
        .collect();
    let find = |keyword: &str| lines.iter().copied().find(|line| line.keyword() == keyword);
    let mut times: Vec<Entry> = Vec::new();
    for (keyword, key) in TIMES {
        let Some(line) = find(keyword) else { continue };
        context.used.insert(line.position);
        if times.iter().any(|entry| entry.key == key) {
            notes.remark(
                line.position,
                format!("not imported: `timeouts.{key}` applies to both directions"),
            );
            continue;
        }
        match line
            .word(1)
            .and_then(parse_time)
            .filter(|millis| *millis > 0)
        {
            Some(millis) => times.push(Entry::new(key, format_millis(millis), line.position)),
            None => line.reject(notes, "Weir requires a valid time above 0"),
        }
    }
    if !times.is_empty() {
        keys.push(Entry::implied("timeouts", times));
    }
    if let Some(line) = find("client_max_body_size") {
        keys.extend(limit::body_limit(context, "max_body", line, notes));
    }
    if let Some(line) = find("proxy_next_upstream") {
        keys.push(limit::retry_conditions(context, line, notes));
    }
    if let Some(line) = find("proxy_next_upstream_tries") {
        keys.extend(limit::retries(context, line, notes));
    }
    keys.extend(own_compression(context, &lines, levels));
    keys.extend(authentication(context, levels, notes));
    keys.extend(super::mirror::mirror(context, levels, notes));
    let outer = levels.last().copied().unwrap_or_default();
    // In nginx, the limits of a location replace those of the outer levels; in Weir, a route's limits apply in
    // addition.
    let has_no_outer = |keyword: &str| {
        let has = |level: &&&[Node]| level.iter().any(|line| line.keyword() == keyword);
        levels.iter().filter(has).count() == 1
    };
    let limit = |keyword: &str| find(keyword).filter(|_| has_no_outer(keyword));
    let limit_lines = [limit("limit_req"), limit("limit_conn")];
    let limits = limit::route_limits(context, outer, limit_lines, notes);
    if !limits.is_empty() {
        keys.push(Entry::implied("limits", limits));
    }
    keys
}

/// Returns `compression` of a route, if one of its `own_lines` is a `gzip` directive.
fn own_compression(
    context: &mut Context<'_>,
    own_lines: &[&Node],
    levels: &[&[Node]],
) -> Option<Entry> {
    let keywords = ["gzip", "gzip_types", "gzip_min_length"];
    if !own_lines
        .iter()
        .any(|line| keywords.contains(&line.keyword()))
    {
        return None;
    }
    let (position, table) = compression(context, levels)?;
    let is_on = |line: &Node| line.keyword() == "gzip" && line.word(1) == Some("on");
    let is_on_outside = levels.iter().any(|level| level.iter().any(is_on));
    match table.is_empty() {
        true => is_on_outside.then(|| Entry::new("compression", false, position)),
        false => Some(Entry::implied("compression", table)),
    }
}

/// Returns `basic_auth` for `auth_basic` and its file, each from the innermost level that sets it.
pub(super) fn authentication(
    context: &mut Context<'_>,
    levels: &[&[Node]],
    notes: &mut Notes,
) -> Option<Entry> {
    let find = |keyword: &str| {
        let mut levels = levels.iter();
        levels.find_map(|nodes| nodes.iter().rev().find(|line| line.keyword() == keyword))
    };
    let realm = find("auth_basic")?;
    context.used.insert(realm.position);
    let file = find("auth_basic_user_file");
    context.used.extend(file.map(|line| line.position));
    if realm.word(1) == Some("off") {
        return None;
    }
    let Some((path, position)) = file.and_then(|line| Some((line.word(1)?, line.position))) else {
        let reason = "not imported: without `auth_basic_user_file`, nginx admits every client";
        notes.remark(realm.position, reason);
        return None;
    };
    let path = match path.starts_with('/') {
        true => path.to_owned(),
        false => format!("/etc/nginx/{path}"),
    };
    let table = vec![
        Entry::new("file", path, position).essential(),
        Entry::new("realm", realm.word(1).unwrap_or_default(), realm.position),
    ];
    Some(Entry::new("basic_auth", table, realm.position).essential())
}
