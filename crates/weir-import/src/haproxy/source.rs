//! Tracks rules that change the client's address, such as `http-request set-src`.
//!
//! These rules are not imported: they affect only later rules, but `client_ip_header` applies to a whole service.
//! Routes match the address of the connection, so later conditions on `src` have no equivalent.

use std::collections::HashSet;

use super::line::Line;
use super::rule::condition;
use super::section::Proxy;
use crate::note::{Notes, Position};

/// Why routes cannot express a condition on `src` after a rule that changes the address.
pub(super) const CHANGED: &str =
    "an earlier rule changes the client's address, but routes match the address of the connection";

/// The point in haproxy's order of evaluation at which a line takes effect: its stage, and its index in the section.
type Point = (u8, usize);

/// Stage of lines that haproxy evaluates after all of the frontend's rules for requests.
const LAST_STAGE: u8 = 7;

/// Records for each line whether haproxy evaluates it after a rule that changes the client's address.
pub(super) fn mark_lines(proxies: &mut [Proxy]) {
    let changing_backends: Vec<String> = proxies
        .iter()
        .filter(|proxy| proxy.is_backend && changes_source(proxy))
        .map(|proxy| proxy.name.clone())
        .collect();
    for proxy in proxies {
        // A backend's rules for requests precede its frontend's options and rules for responses.
        let mut first = changing_backends
            .iter()
            .any(|name| uses_backend(proxy, name))
            .then_some((LAST_STAGE, 0));
        first = first.into_iter().chain(change_points(proxy)).min();
        let Some(first) = first else {
            continue;
        };
        let lines = proxy.defaults.iter_mut().chain(&mut proxy.lines);
        for (index, line) in lines.enumerate() {
            line.follows_source_change = (stage(line), index) >= first;
        }
    }
}

/// Returns whether a rule or an option of the section changes the client's address.
pub(super) fn changes_source(proxy: &Proxy) -> bool {
    change_points(proxy).next().is_some()
}

/// Adds notes to the imported lines that use the changed address as a value.
pub(super) fn note_values(proxies: &[Proxy], used: &HashSet<Position>, notes: &mut Notes) {
    for proxy in proxies {
        let is_changed_by_frontend = proxy.is_backend
            && proxies
                .iter()
                .any(|other| changes_source(other) && uses_backend(other, &proxy.name));
        for line in lines_of(proxy) {
            let is_changed = line.follows_source_change || is_changed_by_frontend;
            if is_changed && used.contains(&line.position) && uses_source(line) {
                notes.add(
                    line.position,
                    "an earlier rule changes the client's address, but Weir uses the address of the connection",
                );
            }
        }
    }
}

/// Returns the points at which lines of the section change the client's address.
fn change_points(proxy: &Proxy) -> impl Iterator<Item = Point> {
    // haproxy ignores `http-request` in mode tcp.
    let has_effect =
        |(_, line): &(usize, &Line)| proxy.is_http() || line.keyword() != "http-request";
    let lines = lines_of(proxy).enumerate().filter(has_effect);
    lines.filter_map(|(index, line)| change_point(line, index))
}

/// Returns the lines in haproxy's order: rules of defaults precede those of the section.
fn lines_of(proxy: &Proxy) -> impl Iterator<Item = &Line> {
    proxy.defaults.iter().chain(&proxy.lines)
}

/// Returns whether the section can select the backend.
fn uses_backend(proxy: &Proxy, name: &str) -> bool {
    let selects = |line: &Line| {
        matches!(line.keyword(), "use_backend" | "default_backend")
            && line
                .word(1)
                .is_some_and(|word| word == name || word.contains('%'))
    };
    proxy.is_frontend && lines_of(proxy).any(selects)
}

/// Returns the first point at which the line has changed the client's address, or `None` if it does not change the
/// address. `index` is the line's index in its section.
fn change_point(line: &Line, index: usize) -> Option<Point> {
    let (action, _) = condition(line.arguments());
    let action: Vec<&str> = action.iter().map(String::as_str).collect();
    match (line.keyword(), action.as_slice()) {
        ("http-request", ["set-src", ..]) | ("tcp-request", [_, "set-src", ..]) => {
            Some((stage(line), index + 1))
        }
        // haproxy reads the header of these protocols after all rules of this stage.
        ("tcp-request", [_, "expect-proxy" | "expect-netscaler-cip", ..]) => {
            Some((stage(line) + 1, 0))
        }
        ("bind", words) if words.contains(&"accept-netscaler-cip") => Some((0, 0)),
        _ => None,
    }
}

/// Returns the stage at which haproxy evaluates the line.
fn stage(line: &Line) -> u8 {
    match (line.keyword(), line.word(1)) {
        ("tcp-request", Some("connection")) => 0,
        ("tcp-request", Some("session")) => 1,
        ("tcp-request", _) => 2,
        ("block", _) => 3,
        ("http-request", _) => 4,
        ("redirect", _) => 5,
        ("use_backend", _) => 6,
        _ => LAST_STAGE,
    }
}

/// Returns whether a line uses the client's address as a value rather than in a condition.
fn uses_source(line: &Line) -> bool {
    let (action, _) = condition(line.arguments());
    let is_source = |word: &String| {
        word == "src"
            || word.starts_with("src,")
            || ["%[src]", "%[src,", "%ci"]
                .iter()
                .any(|it| word.contains(it))
    };
    match line.keyword() {
        "acl" => false,
        "balance" => line.word(1) == Some("source"),
        "option" => matches!(line.word(1), Some("forwardfor" | "forwarded")),
        "server" | "default-server" | "server-template" => {
            action.iter().any(|word| word.starts_with("send-proxy"))
        }
        _ => action.iter().any(is_source),
    }
}

#[cfg(test)]
mod tests;
