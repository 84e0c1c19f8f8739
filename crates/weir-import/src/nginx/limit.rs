//! `limit_req`, `limit_conn`, `client_max_body_size` and `proxy_next_upstream` of a server block: `limits` and `retry_on`.

use super::Context;
use super::tree::Node;
use super::upstream::hash_key;
use crate::document::Entry;
use crate::note::{Notes, Place};

/// The last line with that keyword, of the server block or of the one around it.
fn find<'n>(levels: [&'n [Node]; 2], keyword: &str) -> Option<&'n Node> {
    let mut levels = levels.into_iter();
    levels.find_map(|nodes| nodes.iter().rev().find(|node| node.keyword() == keyword))
}

/// Keys of `limits`; `idle` is `keepalive` of an upstream.
pub(super) fn limits(
    context: &mut Context<'_>,
    levels: [&[Node]; 2],
    idle: Option<(u64, Place)>,
    notes: &mut Notes,
) -> Vec<Entry> {
    let mut entries = Vec::new();
    if let Some((count, place)) = idle {
        entries.push(Entry::new("idle_servers", count, place));
    }
    if let Some(line) = find(levels, "client_max_body_size") {
        match line.word(1).and_then(size) {
            Some(octets) => {
                context.used.insert(line.place);
                entries.push(Entry::new("body", octets, line.place));
            }
            None => line.refuse(notes, "nginx wants a size"),
        }
    }
    if let Some(line) = find(levels, "proxy_next_upstream_tries") {
        let tries = line.word(1).and_then(|word| word.parse::<u64>().ok());
        match tries.filter(|tries| *tries > 0) {
            Some(tries) => {
                context.used.insert(line.place);
                entries.push(Entry::new("retries", tries - 1, line.place));
            }
            None => line.refuse(notes, "Weir tries `limits.retries` other servers at most"),
        }
    }
    let mut key = None;
    if let Some(line) = find(levels, "limit_req") {
        match rate(levels[1], line) {
            Ok((of, zone, rate, burst)) => {
                context.used.extend([line.place, zone]);
                if !line.words.iter().any(|word| word == "nodelay") {
                    notes.say(
                        line.place,
                        "what is beyond the rate is answered 429 at once, and not delayed",
                    );
                }
                entries.push(Entry::new("rate", rate, line.place));
                entries.push(Entry::new("burst", burst, line.place));
                key = Some((of, zone));
            }
            Err(why) => line.refuse(notes, why),
        }
    }
    if let Some(line) = find(levels, "limit_conn") {
        match at_once(levels[1], line) {
            Ok((of, ..)) if key.as_ref().is_some_and(|(known, _)| *known != of) => {
                line.refuse(notes, "`limits` tells clients apart by one key");
            }
            Ok((of, zone, most)) => {
                context.used.extend([line.place, zone]);
                entries.push(Entry::new("concurrent", most, line.place));
                key = Some((of, zone));
            }
            Err(why) => line.refuse(notes, why),
        }
    }
    if let Some((key, place)) = key.filter(|(key, _)| key != "source") {
        entries.push(Entry::new("key", key, place).essential());
    }
    entries
}

/// The zone of that name: by what it tells clients apart.
fn zone<'n>(
    outer: &'n [Node],
    keyword: &str,
    name: &str,
) -> Result<(&'n Node, String), &'static str> {
    let named = |node: &&Node| {
        let mut words = node.words.iter();
        node.keyword() == keyword
            && words.any(|word| {
                word.strip_prefix("zone=")
                    .and_then(|zone| zone.split(':').next())
                    == Some(name)
            })
    };
    let zone = outer.iter().find(named).ok_or("there is no such zone")?;
    let key = zone
        .word(1)
        .and_then(hash_key)
        .ok_or("`limits.key` is the source, a field, a cookie or another part of the request")?;
    Ok((zone, key))
}

/// `limit_req zone=one burst=20`: key, zone, requests a second, and at once.
fn rate(outer: &[Node], line: &Node) -> Result<(String, Place, u64, u64), &'static str> {
    let option = |name: &str| line.words.iter().find_map(|word| word.strip_prefix(name));
    let name = option("zone=").ok_or("it names no zone")?;
    let (zone, key) = zone(outer, "limit_req_zone", name)?;
    let rate = zone
        .words
        .iter()
        .find_map(|word| word.strip_prefix("rate="));
    let rate = rate.and_then(|rate| match rate.split_once("r/") {
        Some((number, "s")) => number.parse::<u64>().ok(),
        Some((number, "m")) => number
            .parse::<u64>()
            .ok()
            .filter(|n| n % 60 == 0)
            .map(|n| n / 60),
        _ => None,
    });
    let rate = rate
        .filter(|rate| *rate > 0)
        .ok_or("`limits.rate` counts whole requests a second")?;
    let burst = option("burst=").and_then(|word| word.parse::<u64>().ok());
    Ok((key, zone.place, rate, burst.unwrap_or(0) + 1))
}

/// `limit_conn perip 10`: key, zone, requests at once.
fn at_once(outer: &[Node], line: &Node) -> Result<(String, Place, u64), &'static str> {
    let name = line.word(1).ok_or("it names no zone")?;
    let (zone, key) = zone(outer, "limit_conn_zone", name)?;
    let most = line.word(2).and_then(|word| word.parse().ok());
    Ok((key, zone.place, most.ok_or("nginx wants a number")?))
}

/// `proxy_next_upstream error timeout http_503`.
pub(super) fn retry_on(
    context: &mut Context<'_>,
    levels: [&[Node]; 2],
    notes: &mut Notes,
) -> Option<Entry> {
    let line = find(levels, "proxy_next_upstream")?;
    context.used.insert(line.place);
    let mut conditions: Vec<&str> = Vec::new();
    for word in line.words.iter().skip(1) {
        let ours: &[&str] = match word.as_str() {
            "error" => &["connect", "empty"],
            "timeout" => &["timeout"],
            "invalid_header" => &["malformed"],
            "off" => &[],
            other => match other.strip_prefix("http_") {
                Some(status) => &[status],
                None => {
                    notes.say(
                        line.place,
                        format!("{other} is not carried over: only what may be repeated is"),
                    );
                    &[]
                }
            },
        };
        conditions.extend(ours);
    }
    let conditions: Vec<String> = conditions.into_iter().map(str::to_owned).collect();
    Some(Entry::new("retry_on", conditions, line.place))
}

/// `10m`, in octets.
fn size(text: &str) -> Option<u64> {
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
    fn sizes_have_units() {
        assert_eq!(size("10m"), Some(10 << 20));
        assert_eq!(size("1K"), Some(1024));
        assert_eq!(size("0"), Some(0));
        assert_eq!(size("much"), None);
    }
}
