//! Converts nginx's limits and retries of server blocks and locations to `limits` and `retry_on`.
//!
//! The directives are `limit_req`, `limit_conn`, `client_max_body_size`, `proxy_next_upstream` and
//! `proxy_next_upstream_tries`.

use std::collections::HashMap;

use super::Context;
use super::tree::Node;
use super::upstream::hash_key;
use crate::document::{Entry, Value};
use crate::note::{Notes, Position};

/// Returns the last line with a keyword in the server block, or otherwise in the enclosing block.
fn find_line<'n>(levels: [&'n [Node]; 2], keyword: &str) -> Option<&'n Node> {
    let mut levels = levels.into_iter();
    levels.find_map(|nodes| nodes.iter().rev().find(|node| node.keyword() == keyword))
}

/// Returns the keys of `limits`; `idle_limit` is the value of an upstream's `keepalive`.
pub(super) fn limits(
    context: &mut Context<'_>,
    levels: [&[Node]; 2],
    idle_limit: Option<(u64, Position)>,
    notes: &mut Notes,
) -> Vec<Entry> {
    let mut entries = Vec::new();
    if let Some((count, position)) = idle_limit {
        entries.push(Entry::new("idle_servers", count, position));
    }
    if let Some(line) = find_line(levels, "client_max_body_size") {
        entries.extend(body_limit(context, "body", line, notes));
    }
    if let Some(line) = find_line(levels, "proxy_next_upstream_tries") {
        entries.extend(retries(context, line, notes));
    }
    let lines = ["limit_req", "limit_conn"].map(|keyword| find_line(levels, keyword));
    push_client_limits(context, levels[1], lines, &mut entries, notes);
    entries
}

/// Returns the key for `client_max_body_size`. A limit of 4 GiB is reduced by one byte; a larger one becomes unlimited.
pub(super) fn body_limit(
    context: &mut Context<'_>,
    key: &'static str,
    line: &Node,
    notes: &mut Notes,
) -> Option<Entry> {
    const MAX: u64 = u32::MAX as u64;
    let Some(bytes) = line.word(1).and_then(parse_size) else {
        line.reject(notes, "nginx requires a size");
        return None;
    };
    context.used.insert(line.position);
    let bytes = match bytes {
        bytes if bytes <= MAX => bytes,
        bytes if bytes == MAX + 1 => {
            notes.remark(line.position, "Weir's largest limit is one byte less");
            MAX
        }
        _ => {
            notes.add(
                line.position,
                "imported without a limit, because Weir's largest limit is 4 GiB",
            );
            0
        }
    };
    Some(Entry::new(key, bytes, line.position))
}

/// Returns the keys of a route's `limits`, for the `limit_req` and `limit_conn` of a location. A line is not imported
/// if several locations or routes share its zone: nginx counts their requests together, but Weir counts the requests of
/// each route.
pub(super) fn route_limits(
    context: &mut Context<'_>,
    outer: &[Node],
    [requests, connections]: [Option<&Node>; 2],
    notes: &mut Notes,
) -> Vec<Entry> {
    let mut entries = Vec::new();
    let is_only_use = |line: &&Node| {
        let uses = context.zones.get(&zone_key(line));
        context.routes_per_location == 1 && uses == Some(&1)
    };
    let lines = [
        requests.filter(is_only_use),
        connections.filter(is_only_use),
    ];
    push_client_limits(context, outer, lines, &mut entries, notes);
    entries
}

/// Adds the keys for a `limit_req` and a `limit_conn`.
fn push_client_limits(
    context: &mut Context<'_>,
    outer: &[Node],
    [requests, connections]: [Option<&Node>; 2],
    entries: &mut Vec<Entry>,
    notes: &mut Notes,
) {
    let mut key = None;
    if let Some(line) = requests {
        match parse_rate(outer, line) {
            Ok((limit_key, zone, rate, burst)) => {
                context.used.extend([line.position, zone]);
                if !line.words.iter().any(|word| word == "nodelay") {
                    notes.add(
                        line.position,
                        "requests above the rate get status 429 at once; Weir does not delay them",
                    );
                }
                entries.push(Entry::new("rate", rate, line.position));
                entries.push(Entry::new("burst", burst, line.position));
                key = Some((limit_key, zone));
            }
            Err(reason) => line.reject(notes, reason),
        }
    }
    if let Some(line) = connections {
        match parse_concurrency(outer, line) {
            Ok((limit_key, ..)) if key.as_ref().is_some_and(|(other, _)| *other != limit_key) => {
                line.reject(notes, "`limits` has only one key to distinguish clients");
            }
            Ok((limit_key, zone, max)) => {
                context.used.extend([line.position, zone]);
                entries.push(Entry::new("concurrent", max, line.position));
                key = Some((limit_key, zone));
            }
            Err(reason) => line.reject(notes, reason),
        }
    }
    if let Some((key, position)) = key.filter(|(key, _)| key != "source") {
        entries.push(Entry::new("key", key, position).essential());
    }
}

/// Number of lines that use each zone, by the keyword and the name of the zone.
pub(super) type ZoneUses = HashMap<(String, Option<String>), usize>;

/// Counts the lines that use each zone, including those in blocks.
pub(super) fn count_zones(nodes: &[Node], uses: &mut ZoneUses) {
    for node in nodes {
        if matches!(node.keyword(), "limit_req" | "limit_conn") {
            *uses.entry(zone_key(node)).or_default() += 1;
        }
        count_zones(node.inner(), uses);
    }
}

fn zone_key(line: &Node) -> (String, Option<String>) {
    (line.keyword().to_owned(), zone_of(line).map(str::to_owned))
}

/// Returns the name of the zone that a line uses.
fn zone_of(line: &Node) -> Option<&str> {
    match line.keyword() {
        "limit_req" => line
            .words
            .iter()
            .find_map(|word| word.strip_prefix("zone=")),
        _ => line.word(1),
    }
}

/// Returns the line that defines a zone, and the zone's key in weir.toml.
fn find_zone<'n>(
    outer: &'n [Node],
    keyword: &str,
    name: &str,
) -> Result<(&'n Node, String), &'static str> {
    let has_name = |node: &&Node| {
        let mut words = node.words.iter();
        node.keyword() == keyword
            && words.any(|word| {
                word.strip_prefix("zone=")
                    .and_then(|zone| zone.split(':').next())
                    == Some(name)
            })
    };
    let zone = outer
        .iter()
        .find(has_name)
        .ok_or("the zone is not defined")?;
    let key = zone.word(1).and_then(hash_key).ok_or(
        "`limits.key` accepts only the source, a field, a cookie or another part of the request",
    )?;
    Ok((zone, key))
}

/// Returns the key, the zone, the rate and the burst for `limit_req zone=one burst=20`.
fn parse_rate(outer: &[Node], line: &Node) -> Result<(String, Position, Value, u64), &'static str> {
    let option = |name: &str| line.words.iter().find_map(|word| word.strip_prefix(name));
    let name = option("zone=").ok_or("the zone is missing")?;
    let (zone, key) = find_zone(outer, "limit_req_zone", name)?;
    let rate = zone
        .words
        .iter()
        .find_map(|word| word.strip_prefix("rate="));
    let per_minute = rate.and_then(|rate| match rate.split_once("r/") {
        Some((number, "s")) => number.parse::<u64>().ok()?.checked_mul(60),
        Some((number, "m")) => number.parse::<u64>().ok(),
        _ => None,
    });
    let rate = match per_minute.filter(|rate| *rate > 0) {
        Some(rate) if rate % 60 == 0 => Value::from(rate / 60),
        Some(rate) => Value::from(format!("{rate}/m")),
        None => return Err("the rate is not a number of requests per second or minute"),
    };
    let burst = option("burst=").and_then(|word| word.parse::<u64>().ok());
    Ok((key, zone.position, rate, burst.unwrap_or(0) + 1))
}

/// Returns the key, the zone and the number of concurrent requests for `limit_conn perip 10`.
fn parse_concurrency(outer: &[Node], line: &Node) -> Result<(String, Position, u64), &'static str> {
    let name = line.word(1).ok_or("the zone is missing")?;
    let (zone, key) = find_zone(outer, "limit_conn_zone", name)?;
    let max = line.word(2).and_then(|word| word.parse().ok());
    Ok((key, zone.position, max.ok_or("nginx requires a number")?))
}

/// Converts `proxy_next_upstream_tries` to `retries`, the number of other servers to try.
pub(super) fn retries(context: &mut Context<'_>, line: &Node, notes: &mut Notes) -> Option<Entry> {
    let tries = line.word(1).and_then(|word| word.parse::<u64>().ok());
    let Some(tries) = tries.filter(|tries| *tries > 0) else {
        line.reject(
            notes,
            "`retries` always limits the number of other servers that Weir tries",
        );
        return None;
    };
    context.used.insert(line.position);
    Some(Entry::new("retries", tries - 1, line.position))
}

/// Converts `proxy_next_upstream` of a server block or of the enclosing block.
pub(super) fn retry_on(
    context: &mut Context<'_>,
    levels: [&[Node]; 2],
    notes: &mut Notes,
) -> Option<Entry> {
    let line = find_line(levels, "proxy_next_upstream")?;
    Some(retry_conditions(context, line, notes))
}

/// Converts `proxy_next_upstream error timeout http_503`.
pub(super) fn retry_conditions(context: &mut Context<'_>, line: &Node, notes: &mut Notes) -> Entry {
    context.used.insert(line.position);
    let mut conditions: Vec<&str> = Vec::new();
    for word in line.words.iter().skip(1) {
        let values: &[&str] = match word.as_str() {
            "error" => &["connect", "empty"],
            "timeout" => &["timeout"],
            "invalid_header" => &["malformed"],
            "off" => &[],
            other => match other.strip_prefix("http_") {
                Some(status) => &[status],
                None => {
                    let reason = match other {
                        "non_idempotent" => "Weir only retries requests that are safe to repeat",
                        _ => "`retry_on` has no such condition",
                    };
                    notes.add(line.position, format!("{other} is not imported: {reason}"));
                    &[]
                }
            },
        };
        conditions.extend(values);
    }
    let conditions: Vec<String> = conditions.into_iter().map(str::to_owned).collect();
    Entry::new("retry_on", conditions, line.position)
}

/// Parses a size such as `10m` and returns bytes. Returns `None` if the size is invalid or its number is 2^32 or more.
pub(super) fn parse_size(text: &str) -> Option<u64> {
    let (number, unit) = match text.strip_suffix(['k', 'K', 'm', 'M', 'g', 'G']) {
        Some(number) => (number, text.chars().last()?.to_ascii_lowercase()),
        None => (text, ' '),
    };
    let number: u64 = number.parse().ok().filter(|number| *number < 1 << 32)?;
    Some(match unit {
        'k' => number << 10,
        'm' => number << 20,
        'g' => number << 30,
        _ => number,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_with_units_are_parsed() {
        for (text, bytes) in [
            ("10m", Some(10 << 20)),
            ("3M", Some(3 << 20)),
            ("1K", Some(1024)),
            ("2k", Some(2048)),
            ("1g", Some(1 << 30)),
            ("1G", Some(1 << 30)),
            ("0", Some(0)),
            ("4294967295", Some(4_294_967_295)),
            ("4294967295k", Some(4_294_967_295 << 10)),
            ("4294967296", None),
            ("much", None),
            ("1t", None),
            ("m", None),
        ] {
            assert_eq!(parse_size(text), bytes, "{text}");
        }
    }
}
