//! Recognizes rules that admit requests or connections, and rules that wait for data.
//!
//! Weir waits for data without a rule.

use super::line::Line;
use super::rule::condition;
use super::section::Proxy;
use crate::note::Notes;

/// Returns the stage at which haproxy evaluates a rule: a rule that admits requests ends only its own stage.
pub(super) fn stage(line: &Line) -> &str {
    match line.keyword() {
        "tcp-request" => line.word(1).unwrap_or_default(),
        keyword => keyword,
    }
}

/// Returns whether the rule admits requests that later rules of the same stage would reject. A rule that waits for data
/// does not admit requests: it only determines when haproxy continues.
pub(super) fn admits_requests(line: &Line) -> bool {
    let (action, words) = condition(line.arguments());
    let action: Vec<&str> = action.iter().map(String::as_str).collect();
    match (line.keyword(), action.as_slice()) {
        ("http-request", ["allow"]) | ("tcp-request", [_, "accept"]) => !only_waits_for_data(words),
        _ => false,
    }
}

/// Returns whether a condition only waits until a part of the data has arrived.
fn only_waits_for_data(words: &[String]) -> bool {
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
    let mut has_data_term = false;
    while let Some(word) = terms.next() {
        match word {
            "{" | "}" | "or" | "||" => {}
            word if DATA.contains(&word) => {
                has_data_term = true;
                let comparison: Vec<&str> = terms.by_ref().take_while(|it| *it != "}").collect();
                let is_presence = matches!(
                    comparison.as_slice(),
                    ["1"] | ["gt", "0"] | ["-m", "found"] | []
                );
                if !is_presence {
                    return false;
                }
            }
            word if NAMES.contains(&word) => has_data_term = true,
            _ => return false,
        }
    }
    has_data_term
}

/// Returns whether the rule, which does not admit requests, requires no route. If so, adds a note, which reports a loss
/// if Weir behaves differently.
pub(super) fn is_builtin(line: &Line, proxy: &Proxy, notes: &mut Notes) -> bool {
    let (action, words) = condition(line.arguments());
    let action: Vec<&str> = action.iter().map(String::as_str).collect();
    let reason = match (line.keyword(), action.as_slice()) {
        ("tcp-request", ["inspect-delay", ..]) => {
            "Weir waits for the server name or the request up to `timeouts.request`"
        }
        // The rule only waits for data.
        ("tcp-request", ["content", "accept"]) => {
            "Weir waits for the server name or the request automatically"
        }
        ("tcp-request", ["content", "reject"])
            if matches_missing_data(words)
                || words.is_empty() && has_only_waiting_accepts(proxy) =>
        {
            let has_default = proxy.last(&["default_backend"]).is_some() || proxy.is_backend;
            if proxy.is_http() || has_default {
                let reason = "Weir forwards connections without such data to the service's pool";
                line.reject(notes, reason);
                return true;
            }
            // The service has no pool for such clients.
            "Weir closes connections that no route matches"
        }
        ("http-request", ["wait-for-body", ..]) => {
            "with a service's `request_buffering`, Weir reads the body before it selects a server"
        }
        ("http-request", ["use-service", "prometheus-exporter"]) => {
            "Weir's /metrics exports the same data for Prometheus"
        }
        _ => return false,
    };
    notes.remark(line.position, reason);
    true
}

/// Returns whether the accepting rules of the section only wait for data. If so, other connections are rejected.
fn has_only_waiting_accepts(proxy: &Proxy) -> bool {
    let is_accept = |line: &&Line| {
        let (action, _) = condition(line.arguments());
        line.keyword() == "tcp-request" && action == ["content", "accept"]
    };
    let mut accepts = proxy.lines.iter().filter(is_accept).peekable();
    accepts.peek().is_some() && accepts.all(|line| !admits_requests(line))
}

/// Returns whether a condition is `if !{ req.ssl_hello_type 1 }` or `unless { … }`, which matches until the data has
/// arrived.
fn matches_missing_data(words: &[String]) -> bool {
    let mut positive = words.to_vec();
    match words.first().map(String::as_str) {
        Some("unless") => {}
        _ => match positive.get_mut(1) {
            Some(word) if word.starts_with('!') => *word = word.trim_start_matches('!').to_owned(),
            _ => return false,
        },
    }
    positive.retain(|word| !word.is_empty());
    only_waits_for_data(&positive)
}
