//! Rules that let requests or connections pass, and rules that wait for data: Weir inspects both by itself.

use super::line::Line;
use super::rule::condition;
use super::section::Proxy;
use crate::note::Notes;

/// The stage at which haproxy evaluates a rule: a rule that lets pass ends its own stage only.
pub(super) fn stage(line: &Line) -> &str {
    match line.keyword() {
        "tcp-request" => line.word(1).unwrap_or_default(),
        keyword => keyword,
    }
}

/// Returns whether the rule lets requests pass that later rules of its stage would refuse. A rule that waits for data
/// does not: it only decides when haproxy goes on.
pub(super) fn lets_pass(line: &Line) -> bool {
    let (what, words) = condition(line.arguments());
    let what: Vec<&str> = what.iter().map(String::as_str).collect();
    match (line.keyword(), what.as_slice()) {
        ("http-request", ["allow"]) | ("tcp-request", [_, "accept"]) => !waits(words),
        _ => false,
    }
}

/// Whether a condition only waits until a part of the data is there.
fn waits(words: &[String]) -> bool {
    const DATA: [&str; 10] = [
        "req.ssl_hello_type",
        "req_ssl_hello_type",
        "req.len",
        "req_len",
        "req.ssl_sni",
        "req_ssl_sni",
        "req.proto_http",
        "rep_ssl_hello_type",
        "req.ssl_ver",
        "req_ssl_ver",
    ];
    const NAMES: [&str; 4] = ["WAIT_END", "HTTP", "REQ_CONTENT", "RDP_COOKIE"];
    let mut terms = words.iter().skip(1).map(String::as_str);
    let mut found = false;
    while let Some(word) = terms.next() {
        match word {
            "{" | "}" | "or" | "||" => {}
            word if DATA.contains(&word) => {
                found = true;
                let rest: Vec<&str> = terms.by_ref().take_while(|it| *it != "}").collect();
                let is_presence =
                    matches!(rest.as_slice(), ["1"] | ["gt", "0"] | ["-m", "found"] | []);
                if !is_presence {
                    return false;
                }
            }
            word if NAMES.contains(&word) => found = true,
            _ => return false,
        }
    }
    found
}

/// Returns whether Weir does by itself what the rule does.
pub(super) fn is_settled(line: &Line, proxy: &Proxy, notes: &mut Notes) -> bool {
    let (what, words) = condition(line.arguments());
    let what: Vec<&str> = what.iter().map(String::as_str).collect();
    let why = match (line.keyword(), what.as_slice()) {
        ("tcp-request", ["inspect-delay", ..]) => {
            "Weir waits for the server name or the request up to `timeouts.request`"
        }
        ("tcp-request", ["content", "accept"]) if waits(words) => {
            "Weir waits for the server name or the request by itself"
        }
        ("tcp-request", ["content", "reject"])
            if waits_for_not(words) || words.is_empty() && only_waits(proxy) =>
        {
            let has_default = proxy.last(&["default_backend"]).is_some() || proxy.has_servers;
            if proxy.is_http() || has_default {
                let why = "clients that send no such data reach the service's pool";
                line.reject(notes, why);
                return true;
            }
            // There is no pool for them.
            "Weir closes connections that no route matches"
        }
        ("http-request", ["wait-for-body", ..]) => {
            "`request_buffering` reads it before the server is chosen"
        }
        ("http-request", ["use-service", "prometheus-exporter"]) => "Weir has /metrics",
        _ => return false,
    };
    notes.remark(line.position, why);
    true
}

/// Whether the rules of the section that let pass only wait for data: others are refused.
fn only_waits(proxy: &Proxy) -> bool {
    let is_accept = |line: &&Line| {
        let (what, _) = condition(line.arguments());
        line.keyword() == "tcp-request" && what == ["content", "accept"]
    };
    let mut accepts = proxy.lines.iter().filter(is_accept).peekable();
    accepts.peek().is_some() && accepts.all(|line| !lets_pass(line))
}

/// `if !{ req.ssl_hello_type 1 }` or `unless { … }`.
fn waits_for_not(words: &[String]) -> bool {
    let mut positive = words.to_vec();
    match words.first().map(String::as_str) {
        Some("unless") => {}
        _ => match positive.get_mut(1) {
            Some(word) if word.starts_with('!') => *word = word.trim_start_matches('!').to_owned(),
            _ => return false,
        },
    }
    positive.retain(|word| !word.is_empty());
    waits(&positive)
}
