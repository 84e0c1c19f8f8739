//! Converts rules that limit each client's requests or connections; the result is the `limits` setting.
//!
//! The rate of requests comes from a stick table, such as `stick-table … store http_req_rate(10s)`.

use super::acl::Acls;
use super::line::Line;
use super::parse_time;
use super::rule::condition;
use super::section::Proxy;
use crate::document::Entry;
use crate::note::{Notes, Position};

/// A limit on the requests of each client.
#[derive(Clone, Debug)]
pub(super) struct Limit {
    /// Keys of `limits`.
    pub(super) keys: Vec<Entry>,
    /// Source lines; the first line rejects clients.
    pub(super) lines: Vec<Position>,
}

/// Note about a limit of a section or file that becomes a limit of each of several services.
pub(super) const PER_SERVICE: &str =
    "the limit applies to each service, not to all services together";

/// Adds the note to the limits of a frontend that becomes several services. `keys` are the keys of `limits`.
pub(super) fn note_services(proxy: &Proxy, keys: &[Entry], notes: &mut Notes) {
    if let Some(line) = proxy.last(&["maxconn"]) {
        notes.remark(line.position, PER_SERVICE);
    }
    let positions = keys
        .iter()
        .filter(|entry| matches!(entry.key, "rate" | "concurrent"))
        .filter_map(|entry| entry.item.position);
    for position in positions {
        notes.add(position, PER_SERVICE);
        notes.unmark_restriction(position);
    }
}

/// Returns the limits on each client's requests and connections. As in haproxy's manual, two rules limit the rate of
/// requests: one tracks all clients, and the other rejects clients with too many requests and has no other condition.
pub(super) fn find_limit(
    proxy: &Proxy,
    sections: &[Proxy],
    acls: &Acls,
    notes: &mut Notes,
) -> Option<Limit> {
    let requests = find_request_rate(proxy, sections, acls, notes);
    let Some((key, position)) = find_connection_limit(proxy, acls, notes) else {
        return requests;
    };
    let mut limit = requests.unwrap_or(Limit {
        keys: Vec::new(),
        lines: Vec::new(),
    });
    limit.keys.push(key);
    limit.lines.push(position);
    Some(limit)
}

/// Returns `concurrent` of `limits` and its line, for a rule that rejects clients with too many connections.
fn find_connection_limit(
    proxy: &Proxy,
    acls: &Acls,
    notes: &mut Notes,
) -> Option<(Entry, Position)> {
    let is_rejection = |line: &&Line| {
        let words = [line.keyword(), line.word(1).unwrap_or_default()];
        matches!(words, ["http-request", "deny" | "reject"])
            || matches!(words, ["tcp-request", "connection" | "content"])
                && line.word(2) == Some("reject")
    };
    let is_connection_count = |fetch: &str| {
        let name = fetch.split('(').next().unwrap_or_default();
        let counter = name
            .strip_prefix("sc")
            .and_then(|it| it.strip_suffix("_conn_cur"));
        name == "src_conn_cur" || counter.is_some_and(|it| it.len() <= 1)
    };
    let is_tracking_changed = proxy.lines.iter().any(tracks_changed_source);
    let mut rejections = proxy.lines.iter().filter(is_rejection);
    let (line, max) = rejections.find_map(|line| {
        let (fetch, max) = parse_threshold(line, acls)?;
        let is_exact = !counts_changed_source(line, &fetch) && !is_tracking_changed;
        (is_connection_count(&fetch) && is_exact).then_some((line, max))
    })?;
    notes.add(
        line.position,
        "Weir limits the requests of a client, not its connections, and rejects excess requests with status 429",
    );
    notes.unmark_restriction(line.position);
    Some((
        Entry::new("concurrent", max, line.position).essential(),
        line.position,
    ))
}

/// Returns the limit on the rate of requests.
fn find_request_rate(
    proxy: &Proxy,
    sections: &[Proxy],
    acls: &Acls,
    notes: &mut Notes,
) -> Option<Limit> {
    let rejections = proxy.lines.iter().filter(|line| {
        line.keyword() == "http-request"
            && matches!(line.word(1), Some("deny" | "reject" | "tarpit"))
    });
    for rejection in rejections {
        let Some((fetch, max)) = parse_threshold(rejection, acls) else {
            continue;
        };
        let Some((counter, table)) = counter_of(&fetch) else {
            continue;
        };
        if counts_changed_source(rejection, &fetch) {
            continue;
        }
        let Some((tracking, key, tracking_table)) = tracking_rule(proxy, counter) else {
            continue;
        };
        let table = table.or(tracking_table);
        let owner = match &table {
            Some(name) => sections.iter().find(|section| section.name == *name),
            None => Some(proxy),
        };
        let Some(client_table) = owner.and_then(|section| section.last(&["stick-table", "type"]))
        else {
            continue;
        };
        let Some((rate, is_exact)) =
            period_ms(client_table).and_then(|millis| rate_per_second(max, millis))
        else {
            continue;
        };
        if !is_exact {
            let reason = format!("Weir admits {rate} per second after the first {max} requests");
            notes.add(rejection.position, reason);
            notes.unmark_restriction(rejection.position);
        }
        let (action, _) = condition(rejection.arguments());
        let status = action.iter().position(|word| word == "deny_status");
        let status = status
            .and_then(|index| action.get(index + 1))
            .map(String::as_str);
        if status != Some("429") {
            notes.add(
                rejection.position,
                "requests above the limit get status 429, and do not count toward the rate",
            );
            notes.unmark_restriction(rejection.position);
        }
        let mut keys = vec![
            Entry::new("rate", rate, rejection.position).essential(),
            Entry::new("burst", max.min(60_000), rejection.position),
        ];
        if let Some(key) = key {
            keys.push(Entry::new("key", key, tracking.position).essential());
        }
        return Some(Limit {
            keys,
            lines: vec![rejection.position, tracking.position, client_table.position],
        });
    }
    None
}

/// Returns the fetch method of a condition that only compares a sample with a number, and the largest number that the
/// rule admits.
fn parse_threshold(line: &Line, acls: &Acls) -> Option<(String, u64)> {
    let (_, words) = condition(line.arguments());
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let inner: Vec<String> = match words.as_slice() {
        ["if", "{", inner @ .., "}"] => inner.iter().map(|word| (*word).to_owned()).collect(),
        ["if", name] => acls.single_criterion(name)?.to_vec(),
        _ => return None,
    };
    match inner.as_slice() {
        [fetch, comparison, number] => {
            let number: u64 = number.parse().ok()?;
            let max = match comparison.as_str() {
                "gt" => number,
                "ge" => number.checked_sub(1)?,
                _ => return None,
            };
            (max > 0).then(|| (fetch.clone(), max))
        }
        _ => None,
    }
}

/// Returns the counter of `sc_http_req_rate(0)` and similar methods (`None` for any counter), and the table if it is an
/// argument of the method.
fn counter_of(fetch: &str) -> Option<(Option<char>, Option<String>)> {
    let (name, arguments) = match fetch.strip_suffix(')').and_then(|it| it.split_once('(')) {
        Some((name, arguments)) => (name, arguments),
        None => (fetch, ""),
    };
    let mut arguments = arguments.split(',').filter(|word| !word.is_empty());
    match name {
        "src_http_req_rate" => Some((None, arguments.next().map(str::to_owned))),
        "sc_http_req_rate" => {
            let counter = arguments.next()?.chars().next()?;
            Some((Some(counter), arguments.next().map(str::to_owned)))
        }
        _ => {
            let counter = name.strip_prefix("sc")?.strip_suffix("_http_req_rate")?;
            let counter = counter.chars().next().filter(|_| counter.len() == 1)?;
            Some((Some(counter), arguments.next().map(str::to_owned)))
        }
    }
}

/// Returns the rule that tracks clients for a counter: its line, `key` of `limits` (`None` for the client's address),
/// and its table.
fn tracking_rule(
    proxy: &Proxy,
    counter: Option<char>,
) -> Option<(&Line, Option<String>, Option<String>)> {
    let mut lines = proxy.lines.iter();
    lines.find_map(|line| {
        let (action, words) = condition(line.arguments());
        let action: Vec<&str> = action.iter().map(String::as_str).collect();
        let arguments = match (line.keyword(), action.as_slice()) {
            ("http-request", arguments) | ("tcp-request", [_, arguments @ ..])
                if words.is_empty() =>
            {
                arguments
            }
            _ => return None,
        };
        let (verb, key, table) = match arguments {
            [verb, key] => (*verb, *key, None),
            [verb, key, "table", table] => (*verb, *key, Some((*table).to_owned())),
            _ => return None,
        };
        let tracked_counter = verb.strip_prefix("track-sc")?;
        if counter.is_some_and(|counter| tracked_counter != counter.to_string()) {
            return None;
        }
        if tracks_changed_source(line) {
            return None;
        }
        let field = key
            .strip_suffix(')')
            .and_then(|key| key.strip_prefix("hdr(").or(key.strip_prefix("req.hdr(")));
        match (key, field) {
            ("src", _) => Some((line, None, table)),
            (_, Some(field)) => Some((line, Some(format!("header:{field}")), table)),
            _ => None,
        }
    })
}

/// Returns whether a rule compares a counter of the client's address after another rule has changed the address. Weir
/// counts requests by the address of the connection.
fn counts_changed_source(line: &Line, fetch: &str) -> bool {
    line.follows_source_change && fetch.starts_with("src")
}

/// Returns whether a rule counts requests by the client's address after another rule has changed the address.
fn tracks_changed_source(line: &Line) -> bool {
    let mut words = line.words.iter();
    words.any(|word| word.starts_with("track-sc"))
        && words.next().is_some_and(|key| key.starts_with("src"))
        && line.follows_source_change
}

/// Returns the period of `http_req_rate(10s)` among the stored counters, in milliseconds.
fn period_ms(table: &Line) -> Option<u64> {
    let index = table.words.iter().position(|word| word == "store")?;
    let mut counters = table.words.get(index + 1)?.split(',');
    let text = counters.find_map(|it| it.strip_prefix("http_req_rate(")?.strip_suffix(')'))?;
    parse_time(text).filter(|millis| *millis > 0)
}

/// Returns `rate` of `limits`, in requests per second and rounded up, and whether it is exact. Returns `None` if the
/// rate is too high.
fn rate_per_second(max: u64, period_ms: u64) -> Option<(u64, bool)> {
    let per_1000_s = max.checked_mul(1000)?;
    let rate = per_1000_s.div_ceil(period_ms);
    (rate <= 60_000).then_some((rate, per_1000_s.is_multiple_of(period_ms)))
}

#[cfg(test)]
mod tests;
