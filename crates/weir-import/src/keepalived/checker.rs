//! Checkers of a real server, each one check of Weir; an HTTP checker with several URLs is several.

mod http;
mod misc;
mod udp;

use std::net::IpAddr;

use super::Globals;
use super::field::{self, Of};
use super::setting::{Level, Settings};
use super::tree::Node;
use crate::document::Entry;
use crate::note::Notes;
use crate::probe::Probe;

/// Every checker of keepalived.
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

/// What keepalived takes where nothing is written.
const DELAY_LOOP_MS: u64 = 60_000;
const CONNECT_TIMEOUT_MS: u64 = 5000;

/// Where a checker goes.
#[derive(Clone, Debug, Default)]
struct Aim {
    address: Of<IpAddr>,
    port: Of<u64>,
    source: Of<IpAddr>,
    interface: Of<String>,
}

/// A checker while it is read: what all of them have.
struct Checker<'a> {
    node: &'a Node,
    aim: Aim,
    settings: Settings,
    /// What is its own alone.
    rest: Vec<&'a Node>,
}

/// The checks that a checker becomes.
pub(super) fn checks(
    globals: &Globals,
    node: &Node,
    outer: &Settings,
    notes: &mut Notes,
) -> Vec<Probe> {
    let why = match node.keyword() {
        "FILE_CHECK" => {
            "the file's number is added to the weight, and a `file` check of Weir holds the weight itself"
        }
        "BFD_CHECK" => "Weir speaks no BFD",
        _ => "",
    };
    if !why.is_empty() {
        node.refuse(notes, why);
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
            checker.nothing_else(notes);
            Some(checker.probe("ping", retries, notes))
        }
        _ => {
            checker.nothing_else(notes);
            Some(checker.probe("tcp", retries, notes))
        }
    };
    probe.into_iter().collect()
}

impl<'a> Checker<'a> {
    fn read(node: &'a Node, outer: &Settings, notes: &mut Notes) -> Self {
        if let Some(word) = node.word(1) {
            let why = format!("not carried over from \"{word}\" on: a checker takes no arguments");
            notes.say(node.place, why);
        }
        let mut settings = Settings::default();
        let mut aim = Aim::default();
        let mut rest = Vec::new();
        let connects = node.keyword() != "MISC_CHECK";
        for inner in node.inner() {
            let taken = connects && aim.take(inner, notes)
                || (connects || inner.keyword() != "connect_timeout")
                    && settings.take(inner, Level::Checker, notes);
            if inner.keyword() == "log_all_failures" {
                if field::flag(notes, inner).is_some() {
                    notes.say(
                        inner.place,
                        "not carried over: `weir status` shows every failure",
                    );
                }
            } else if !taken {
                rest.push(inner);
            }
        }
        Self {
            node,
            aim,
            settings: settings.within(outer),
            rest,
        }
    }

    /// A check with what all of them have.
    fn probe(&self, kind: &str, retries: u64, notes: &mut Notes) -> Probe {
        let from = self.node.place;
        let settings = &self.settings;
        let mut probe = Probe::new(kind, from);
        let (delay, place) = settings.delay_loop.unwrap_or((DELAY_LOOP_MS, from));
        probe.time("interval", delay, place, notes);
        let (timeout, place) = settings
            .connect_timeout
            .unwrap_or((CONNECT_TIMEOUT_MS, from));
        probe.time("timeout", timeout, place, notes);
        probe.count("rise", 1, from, notes);
        let (retry, place) = settings.retry.unwrap_or((retries, from));
        probe.count("fall", retry.saturating_add(1), place, notes);
        self.pause_before_retry(&mut probe, retry, notes);
        let (inhibit, place) = settings.inhibit.unwrap_or((false, from));
        let on_failure = if inhibit { "quiesce" } else { "remove" };
        probe.push(Entry::new("on_failure", on_failure, place));
        let (alpha, place) = settings.alpha.unwrap_or((false, from));
        probe.push(Entry::new(
            "start",
            if alpha { "down" } else { "up" },
            place,
        ));
        let aim = &self.aim;
        if let Some((address, place)) = aim.address {
            probe.push(Entry::new("address", address.to_string(), place));
        }
        if let Some((port, place)) = aim.port.filter(|_| kind != "ping") {
            probe.push(Entry::new("port", port, place));
        }
        if let Some((source, place)) = aim.source {
            probe.push(Entry::new("source", source.to_string(), place));
        }
        if let Some((interface, place)) = &aim.interface {
            probe.push(Entry::new("interface", interface.as_str(), *place));
        }
        probe
    }

    /// How soon a failure is followed up; the first one decides where there are no retries.
    fn pause_before_retry(&self, probe: &mut Probe, retries: u64, notes: &mut Notes) {
        let usual = match self.node.keyword() {
            "HTTP_GET" | "SSL_GET" => Some((3000, self.node.place)),
            // At the pace of all probes.
            "DNS_CHECK" | "MISC_CHECK" => None,
            _ => Some((1000, self.node.place)),
        };
        match (self.settings.delay_before_retry.or(usual), retries) {
            (Some((pause, place)), 1..) => probe.time("interval_falling", pause, place, notes),
            (_, 1..) => {}
            (_, 0) => {
                if let Some((_, place)) = self.settings.delay_before_retry {
                    notes.say(
                        place,
                        "not carried over: without `retry` the first failure decides",
                    );
                }
            }
        }
    }

    /// Says what a checker of this kind cannot have.
    fn nothing_else(&self, notes: &mut Notes) {
        for node in &self.rest {
            unknown(node, self.node.keyword(), notes);
        }
    }
}

fn unknown(node: &Node, checker: &str, notes: &mut Notes) {
    node.refuse(
        notes,
        &format!("keepalived knows no such keyword in {checker}"),
    );
}

impl Aim {
    fn take(&mut self, node: &Node, notes: &mut Notes) -> bool {
        match node.keyword() {
            "connect_ip" => self.address = field::address(notes, node),
            "connect_port" => self.port = field::number(notes, node, 1, 65_535),
            "bindto" => self.source = field::address(notes, node),
            "bind_if" => self.interface = field::word(notes, node, "an interface"),
            "bind_port" => {
                if field::number(notes, node, 1, 65_535).is_some() {
                    notes.say(node.place, "not carried over: probes leave by any port");
                }
            }
            "fwmark" => {
                if field::number(notes, node, 0, u32::MAX.into()).is_some() {
                    notes.say(node.place, "not carried over: probes have no mark");
                }
            }
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
                if let Some((name, place)) = field::word(notes, node, "a name") {
                    helo = Entry::new("helo", name, place);
                }
            }
            "host" => {
                let mut aim = Aim::default();
                for inner in node.inner() {
                    if inner.keyword() == "connect_timeout" {
                        inner.refuse(notes, "each `host` has the timeout of its checker");
                    } else if !aim.take(inner, notes) {
                        unknown(inner, "host", notes);
                    }
                }
                hosts.push(aim);
            }
            _ => unknown(node, "SMTP_CHECK", notes),
        }
    }
    if hosts.is_empty() {
        hosts.push(checker.aim.clone());
    }
    let mut probes = Vec::new();
    for aim in hosts {
        let at = Checker {
            aim,
            settings: checker.settings.clone(),
            rest: Vec::new(),
            node: checker.node,
        };
        let mut probe = at.probe("smtp", retries, notes);
        probe.push(helo.clone());
        probes.push(probe);
    }
    probes
}

fn dns(checker: &Checker<'_>, retries: u64, notes: &mut Notes) -> Option<Probe> {
    const RECORDS: &[&str] = &[
        "A", "NS", "CNAME", "SOA", "MX", "TXT", "AAAA", "RRSIG", "DNSKEY",
    ];
    let mut record = ("SOA".to_owned(), checker.node.place);
    let mut name = (".".to_owned(), checker.node.place);
    for node in &checker.rest {
        match node.keyword() {
            "type" => match node.word(1) {
                Some(word) if RECORDS.contains(&word.to_ascii_uppercase().as_str()) => {
                    record = (word.to_ascii_uppercase(), node.place);
                }
                _ => field::refuse(notes, node, "a kind of record"),
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
