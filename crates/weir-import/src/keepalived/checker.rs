//! Checkers of a real server. Each becomes one check, an HTTP checker one for each URL, an SMTP checker one for
//! each `host`.

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

/// All checkers of keepalived.
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
const DELAY_LOOP_MS: u64 = 60_000;
const CONNECT_TIMEOUT_MS: u64 = 5000;

/// Where a checker connects to and from.
#[derive(Clone, Debug, Default)]
struct Endpoint {
    address: Located<IpAddr>,
    port: Located<u64>,
    source: Located<IpAddr>,
    interface: Located<String>,
}

/// A checker during parsing: the settings that all checkers have.
struct Checker<'a> {
    node: &'a Node,
    endpoint: Endpoint,
    settings: Settings,
    /// The lines that not all checkers have.
    rest: Vec<&'a Node>,
}

/// Returns the checks of a checker.
pub(super) fn checks(
    globals: &Globals,
    node: &Node,
    outer: &Settings,
    notes: &mut Notes,
) -> Vec<Probe> {
    let why = match node.keyword() {
        "FILE_CHECK" => {
            "keepalived adds the file's number to the weight; a `file` check in Weir sets the weight"
        }
        "BFD_CHECK" => "Weir does not support BFD",
        _ => "",
    };
    if !why.is_empty() {
        node.reject(notes, why);
        return Vec::new();
    }
    let checker = Checker::read(node, outer, notes);
    let retries = match node.keyword() {
        "DNS_CHECK" => 3,
        "MISC_CHECK" => 0,
        _ => 1,
    };
    let probe = match node.keyword() {
        "HTTP_GET" => return http::checks("http", &checker, retries, notes),
        "SSL_GET" => return http::checks("https", &checker, retries, notes),
        "SMTP_CHECK" => return smtp(&checker, retries, notes),
        "DNS_CHECK" => dns(&checker, retries, notes),
        "UDP_CHECK" => udp::check(&checker, retries, notes),
        "MISC_CHECK" => misc::check(globals, &checker, retries, notes),
        "PING_CHECK" => {
            checker.note_unknown(notes);
            Some(checker.probe("ping", retries, notes))
        }
        _ => {
            checker.note_unknown(notes);
            Some(checker.probe("tcp", retries, notes))
        }
    };
    probe.into_iter().collect()
}

impl<'a> Checker<'a> {
    fn read(node: &'a Node, outer: &Settings, notes: &mut Notes) -> Self {
        if let Some(word) = node.word(1) {
            let why = format!(
                "arguments from \"{word}\" on are not imported: a checker takes no arguments"
            );
            notes.remark(node.position, why);
        }
        let mut settings = Settings::default();
        let mut endpoint = Endpoint::default();
        let mut rest = Vec::new();
        let connects = node.keyword() != "MISC_CHECK";
        for inner in node.inner() {
            let taken = connects && endpoint.take(inner, notes)
                || (connects || inner.keyword() != "connect_timeout")
                    && settings.take(inner, Level::Checker, notes);
            if inner.keyword() == "log_all_failures" {
                if field::flag(notes, inner).is_some() {
                    notes.remark(
                        inner.position,
                        "not imported: `weir status` shows every failure",
                    );
                }
            } else if !taken {
                rest.push(inner);
            }
        }
        Self {
            node,
            endpoint,
            settings: settings.within(outer),
            rest,
        }
    }

    /// Returns a check with the common settings.
    fn probe(&self, kind: &str, retries: u64, notes: &mut Notes) -> Probe {
        let from = self.node.position;
        let settings = &self.settings;
        let mut probe = Probe::new(kind, from);
        let (delay, position) = settings.delay_loop.unwrap_or((DELAY_LOOP_MS, from));
        probe.time("interval", delay, position, notes);
        let (timeout, position) = settings
            .connect_timeout
            .unwrap_or((CONNECT_TIMEOUT_MS, from));
        probe.time("timeout", timeout, position, notes);
        probe.count("rise", 1, from, notes);
        let (retry, position) = settings.retry.unwrap_or((retries, from));
        probe.count("fall", retry.saturating_add(1), position, notes);
        self.pause_before_retry(&mut probe, retry, notes);
        let (inhibit, position) = settings.inhibit.unwrap_or((false, from));
        let on_failure = if inhibit { "quiesce" } else { "remove" };
        probe.push(Entry::new("on_failure", on_failure, position));
        let (alpha, position) = settings.alpha.unwrap_or((false, from));
        probe.push(Entry::new(
            "start",
            if alpha { "down" } else { "up" },
            position,
        ));
        let endpoint = &self.endpoint;
        if let Some((address, position)) = endpoint.address {
            probe.push(Entry::new("address", address.to_string(), position));
        }
        if let Some((port, position)) = endpoint.port.filter(|_| kind != "ping") {
            probe.push(Entry::new("port", port, position));
        }
        if let Some((source, position)) = endpoint.source {
            probe.push(Entry::new("source", source.to_string(), position));
        }
        if let Some((interface, position)) = &endpoint.interface {
            probe.push(Entry::new("interface", interface.as_str(), *position));
        }
        probe
    }

    /// Sets the interval after a failure. Without retries, it has no effect.
    fn pause_before_retry(&self, probe: &mut Probe, retries: u64, notes: &mut Notes) {
        let default = match self.node.keyword() {
            "HTTP_GET" | "SSL_GET" => Some((3000, self.node.position)),
            // The same interval as for all probes.
            "DNS_CHECK" | "MISC_CHECK" => None,
            _ => Some((1000, self.node.position)),
        };
        match (self.settings.delay_before_retry.or(default), retries) {
            (Some((pause, position)), 1..) => {
                probe.time("interval_falling", pause, position, notes)
            }
            (_, 1..) => {}
            (_, 0) => {
                if let Some((_, position)) = self.settings.delay_before_retry {
                    notes.remark(
                        position,
                        "not imported: it has no effect without `retry`: the first failure takes the server out of use",
                    );
                }
            }
        }
    }

    /// Adds a note for each keyword that this checker does not have.
    fn note_unknown(&self, notes: &mut Notes) {
        for node in &self.rest {
            unknown(node, self.node.keyword(), notes);
        }
    }
}

fn unknown(node: &Node, checker: &str, notes: &mut Notes) {
    node.ignore(
        notes,
        &format!("keepalived has no such keyword in {checker}, and ignores the line"),
    );
}

impl Endpoint {
    fn take(&mut self, node: &Node, notes: &mut Notes) -> bool {
        match node.keyword() {
            "connect_ip" => self.address = field::address(notes, node),
            "connect_port" => self.port = field::number(notes, node, 1, 65_535),
            "bindto" => self.source = field::address(notes, node),
            "bind_if" => self.interface = field::word(notes, node, "an interface"),
            "bind_port" => {
                if field::number(notes, node, 1, 65_535).is_some() {
                    notes.add(
                        node.position,
                        "not imported: Weir has no setting for the source port of probes",
                    );
                }
            }
            "fwmark" => match field::number(notes, node, 0, u32::MAX.into()) {
                Some((0, position)) => notes.remark(position, "it is keepalived's default"),
                Some((_, position)) => {
                    notes.add(position, "not imported: probes have no firewall mark");
                }
                None => {}
            },
            _ => return false,
        }
        true
    }
}

fn smtp(checker: &Checker<'_>, retries: u64, notes: &mut Notes) -> Vec<Probe> {
    let mut helo = Entry::implied("helo", "smtpchecker.keepalived.org");
    let mut hosts = Vec::new();
    for node in &checker.rest {
        match node.keyword() {
            "helo_name" => {
                if let Some((name, position)) = field::word(notes, node, "a name") {
                    helo = Entry::new("helo", name, position);
                }
            }
            "host" => {
                let mut endpoint = Endpoint::default();
                for inner in node.inner() {
                    if inner.keyword() == "connect_timeout" {
                        inner.reject(notes, "a `host` has the timeout of its checker");
                    } else if !endpoint.take(inner, notes) {
                        unknown(inner, "host", notes);
                    }
                }
                hosts.push(endpoint);
            }
            _ => unknown(node, "SMTP_CHECK", notes),
        }
    }
    if hosts.is_empty() {
        hosts.push(checker.endpoint.clone());
    }
    let mut probes = Vec::new();
    for endpoint in hosts {
        let host_checker = Checker {
            endpoint,
            settings: checker.settings.clone(),
            rest: Vec::new(),
            node: checker.node,
        };
        let mut probe = host_checker.probe("smtp", retries, notes);
        probe.push(helo.clone());
        probes.push(probe);
    }
    probes
}

fn dns(checker: &Checker<'_>, retries: u64, notes: &mut Notes) -> Option<Probe> {
    const RECORDS: &[&str] = &[
        "A", "NS", "CNAME", "SOA", "MX", "TXT", "AAAA", "RRSIG", "DNSKEY",
    ];
    let mut record = ("SOA".to_owned(), checker.node.position);
    let mut name = (".".to_owned(), checker.node.position);
    for node in &checker.rest {
        match node.keyword() {
            "type" => match node.word(1) {
                Some(word) if RECORDS.contains(&word.to_ascii_uppercase().as_str()) => {
                    record = (word.to_ascii_uppercase(), node.position);
                }
                _ => field::reject(notes, node, "a record type"),
            },
            "name" => {
                if let Some(word) = field::word(notes, node, "a name") {
                    name = word;
                }
            }
            _ => unknown(node, "DNS_CHECK", notes),
        }
    }
    let mut probe = checker.probe("dns", retries, notes);
    probe.push(Entry::new("query", name.0, name.1).essential());
    probe.push(Entry::new("record", record.0, record.1).essential());
    Some(probe)
}
