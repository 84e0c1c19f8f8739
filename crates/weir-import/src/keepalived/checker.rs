//! Converts the checkers of a real server to checks.
//!
//! Each checker becomes one check, except that an HTTP checker becomes one per URL and an SMTP checker one per `host`.

mod http;
mod misc;
mod udp;

use std::net::IpAddr;

use super::Globals;
use super::field::{self, Located};
use super::setting::{Level, Settings};
use super::tree::Node;
use crate::document::Entry;
use crate::note::Notes;
use crate::probe::Probe;

/// The keywords that begin keepalived's checkers.
pub(super) const CHECKERS: &[&str] = &[
    "HTTP_GET",
    "SSL_GET",
    "TCP_CHECK",
    "SMTP_CHECK",
    "DNS_CHECK",
    "PING_CHECK",
    "UDP_CHECK",
    "MISC_CHECK",
    "FILE_CHECK",
    "BFD_CHECK",
];

/// keepalived's default interval and timeout.
const DEFAULT_INTERVAL_MS: u64 = 60_000;
const DEFAULT_TIMEOUT_MS: u64 = 5000;

/// The local and remote addresses of a checker's connections.
#[derive(Clone, Debug, Default)]
struct Endpoint {
    address: Located<IpAddr>,
    port: Located<u64>,
    source: Located<IpAddr>,
    interface: Located<String>,
}

/// A checker that is being parsed: the common settings, and the lines specific to its kind.
struct Checker<'a> {
    node: &'a Node,
    endpoint: Endpoint,
    settings: Settings,
    /// Lines that are not common settings; the parser of this kind of checker handles them.
    specific_lines: Vec<&'a Node>,
}

/// Returns the checks of a checker.
pub(super) fn checks(
    globals: &Globals,
    node: &Node,
    outer: &Settings,
    notes: &mut Notes,
) -> Vec<Probe> {
    let reason = match node.keyword() {
        "FILE_CHECK" => {
            "keepalived adds the file's number to the weight; a `file` check in Weir sets the weight"
        }
        "BFD_CHECK" => "Weir does not support BFD",
        _ => "",
    };
    if !reason.is_empty() {
        node.reject(notes, reason);
        return Vec::new();
    }
    let checker = Checker::read(node, outer, notes);
    let default_retries = match node.keyword() {
        "DNS_CHECK" => 3,
        "MISC_CHECK" => 0,
        _ => 1,
    };
    let probe = match node.keyword() {
        "HTTP_GET" => return http::checks("http", &checker, default_retries, notes),
        "SSL_GET" => return http::checks("https", &checker, default_retries, notes),
        "SMTP_CHECK" => return smtp_checks(&checker, default_retries, notes),
        "DNS_CHECK" => dns_check(&checker, default_retries, notes),
        "UDP_CHECK" => udp::check(&checker, default_retries, notes),
        "MISC_CHECK" => misc::check(globals, &checker, default_retries, notes),
        "PING_CHECK" => {
            checker.note_unknown_lines(notes);
            Some(checker.probe("ping", default_retries, notes))
        }
        _ => {
            checker.note_unknown_lines(notes);
            Some(checker.probe("tcp", default_retries, notes))
        }
    };
    probe.into_iter().collect()
}

impl<'a> Checker<'a> {
    fn read(node: &'a Node, outer: &Settings, notes: &mut Notes) -> Self {
        if let Some(word) = node.word(1) {
            let reason = format!(
                "\"{word}\" and any following arguments are not imported: a checker takes no arguments"
            );
            notes.remark(node.position, reason);
        }
        let mut settings = Settings::default();
        let mut endpoint = Endpoint::default();
        let mut specific_lines = Vec::new();
        let connects = node.keyword() != "MISC_CHECK";
        for inner in node.inner() {
            let is_handled = connects && endpoint.read_line(inner, notes)
                || (connects || inner.keyword() != "connect_timeout")
                    && settings.read_line(inner, Level::Checker, notes);
            if inner.keyword() == "log_all_failures" {
                if field::parse_flag(notes, inner).is_some() {
                    notes.remark(
                        inner.position,
                        "not imported: `weir status` shows every failure",
                    );
                }
            } else if !is_handled {
                specific_lines.push(inner);
            }
        }
        Self {
            node,
            endpoint,
            settings: settings.with_defaults(outer),
            specific_lines,
        }
    }

    /// Returns a check with the common settings.
    fn probe(&self, kind: &str, default_retries: u64, notes: &mut Notes) -> Probe {
        let node_position = self.node.position;
        let settings = &self.settings;
        let mut probe = Probe::new(kind, node_position);
        let (delay, position) = settings
            .delay_loop
            .unwrap_or((DEFAULT_INTERVAL_MS, node_position));
        probe.set_time("interval", delay, position, notes);
        let (timeout, position) = settings
            .connect_timeout
            .unwrap_or((DEFAULT_TIMEOUT_MS, node_position));
        probe.set_time("timeout", timeout, position, notes);
        probe.set_count("rise", 1, node_position, notes);
        let (retry, position) = settings.retry.unwrap_or((default_retries, node_position));
        probe.set_count("fall", retry.saturating_add(1), position, notes);
        self.set_retry_interval(&mut probe, retry, notes);
        let (inhibit, position) = settings.inhibit.unwrap_or((false, node_position));
        let on_failure = if inhibit { "quiesce" } else { "remove" };
        probe.push(Entry::new("on_failure", on_failure, position));
        let (alpha, position) = settings.alpha.unwrap_or((false, node_position));
        probe.push(Entry::new(
            "start",
            if alpha { "down" } else { "up" },
            position,
        ));
        let endpoint = &self.endpoint;
        if let Some((address, position)) = endpoint.address {
            probe.push(Entry::new("address", address.to_string(), position));
        }
        match endpoint.port {
            Some((_, position)) if kind == "ping" => {
                notes.remark(position, "not imported: a ping has no port");
            }
            Some((port, position)) => probe.push(Entry::new("port", port, position)),
            None => {}
        }
        if let Some((source, position)) = endpoint.source {
            probe.push(Entry::new("source", source.to_string(), position));
        }
        if let Some((interface, position)) = &endpoint.interface {
            probe.push(Entry::new("interface", interface.as_str(), *position));
        }
        probe
    }

    /// Sets the interval after a failure; without retries, adds a note that it has no effect.
    fn set_retry_interval(&self, probe: &mut Probe, retries: u64, notes: &mut Notes) {
        let default = match self.node.keyword() {
            "HTTP_GET" | "SSL_GET" => Some((3000, self.node.position)),
            // keepalived has no separate default for the interval after a failure: the interval does not change.
            "DNS_CHECK" | "MISC_CHECK" => None,
            _ => Some((1000, self.node.position)),
        };
        match (self.settings.delay_before_retry.or(default), retries) {
            (Some((delay_ms, position)), 1..) => {
                probe.set_time("interval_falling", delay_ms, position, notes)
            }
            (_, 1..) => {}
            (_, 0) => {
                if let Some((_, position)) = self.settings.delay_before_retry {
                    notes.remark(
                        position,
                        "not imported: it has no effect without `retry`, because the first failure \
                         takes the server out of service",
                    );
                }
            }
        }
    }

    /// Adds a note for each keyword that this checker does not support.
    fn note_unknown_lines(&self, notes: &mut Notes) {
        for node in &self.specific_lines {
            note_unknown_keyword(node, self.node.keyword(), notes);
        }
    }
}

fn note_unknown_keyword(node: &Node, checker: &str, notes: &mut Notes) {
    node.ignore(
        notes,
        &format!("keepalived has no such keyword in {checker}, and ignores the line"),
    );
}

impl Endpoint {
    fn read_line(&mut self, node: &Node, notes: &mut Notes) -> bool {
        match node.keyword() {
            "connect_ip" => self.address = field::parse_address(notes, node),
            "connect_port" => self.port = field::parse_number(notes, node, 1, 65_535),
            "bindto" => self.source = field::parse_address(notes, node),
            "bind_if" => self.interface = field::parse_word(notes, node, "an interface"),
            "bind_port" => {
                if field::parse_number(notes, node, 1, 65_535).is_some() {
                    notes.add(
                        node.position,
                        "not imported: Weir has no setting for the source port of probes",
                    );
                }
            }
            "fwmark" => match field::parse_number(notes, node, 0, u32::MAX.into()) {
                Some((0, position)) => notes.remark(position, "this is keepalived's default"),
                Some((_, position)) => {
                    notes.add(
                        position,
                        "not imported: Weir cannot set a firewall mark on probes",
                    );
                }
                None => {}
            },
            _ => return false,
        }
        true
    }
}

fn smtp_checks(checker: &Checker<'_>, default_retries: u64, notes: &mut Notes) -> Vec<Probe> {
    let mut helo = Entry::implied("helo", "smtpchecker.keepalived.org");
    for node in &checker.specific_lines {
        match node.keyword() {
            "helo_name" => {
                if let Some((name, position)) = field::parse_word(notes, node, "a name") {
                    helo = Entry::new("helo", name, position);
                }
            }
            "host" => {}
            _ => note_unknown_keyword(node, "SMTP_CHECK", notes),
        }
    }
    let mut host_checkers = smtp_hosts(checker, notes);
    if host_checkers.is_empty() {
        host_checkers.push(Checker {
            specific_lines: Vec::new(),
            endpoint: checker.endpoint.clone(),
            settings: checker.settings.clone(),
            node: checker.node,
        });
    }
    let mut probes = Vec::new();
    for host_checker in host_checkers {
        let mut probe = host_checker.probe("smtp", default_retries, notes);
        probe.push(helo.clone());
        probes.push(probe);
    }
    probes
}

/// Returns a checker for each `host`. A host has the addresses that its checker sets before it, and the checker's
/// timeout, unless it has its own.
fn smtp_hosts<'a>(checker: &Checker<'a>, notes: &mut Notes) -> Vec<Checker<'a>> {
    let mut hosts = Vec::new();
    let mut checker_endpoint = Endpoint::default();
    for node in checker.node.inner() {
        if node.keyword() != "host" {
            checker_endpoint.read_line(node, notes);
            continue;
        }
        let mut host = Checker {
            node: checker.node,
            endpoint: checker_endpoint.clone(),
            settings: checker.settings.clone(),
            specific_lines: Vec::new(),
        };
        for inner in node.inner() {
            if inner.keyword() == "connect_timeout" {
                host.settings.read_line(inner, Level::Checker, notes);
            } else if !host.endpoint.read_line(inner, notes) {
                note_unknown_keyword(inner, "host", notes);
            }
        }
        hosts.push(host);
    }
    hosts
}

fn dns_check(checker: &Checker<'_>, default_retries: u64, notes: &mut Notes) -> Option<Probe> {
    const RECORD_TYPES: &[&str] = &[
        "A", "NS", "CNAME", "SOA", "MX", "TXT", "AAAA", "RRSIG", "DNSKEY",
    ];
    let mut record = ("SOA".to_owned(), checker.node.position);
    let mut name = (".".to_owned(), checker.node.position);
    for node in &checker.specific_lines {
        match node.keyword() {
            "type" => match node.word(1) {
                Some(word) if RECORD_TYPES.contains(&word.to_ascii_uppercase().as_str()) => {
                    record = (word.to_ascii_uppercase(), node.position);
                }
                _ => field::reject(notes, node, "a record type"),
            },
            "name" => {
                if let Some(word) = field::parse_word(notes, node, "a name") {
                    name = word;
                }
            }
            _ => note_unknown_keyword(node, "DNS_CHECK", notes),
        }
    }
    let mut probe = checker.probe("dns", default_retries, notes);
    probe.push(Entry::new("query", name.0, name.1).essential());
    probe.push(Entry::new("record", record.0, record.1).essential());
    Some(probe)
}
