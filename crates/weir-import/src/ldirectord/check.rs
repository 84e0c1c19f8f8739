//! What ldirectord asks of a real server, as a check of Weir.

use std::net::IpAddr;

use super::global::Globals;
use super::real::RealLine;
use super::service::{SERVICES, Section};
use crate::document::Entry;
use crate::note::{Notes, Place};
use crate::probe::{Probe, literal};

/// `checktype`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CheckKind {
    Negotiate,
    Connect,
    /// So many connects, then a dialogue.
    Combined,
    Ping,
    External,
    ExternalPerl,
    Off,
    On,
}

impl CheckKind {
    /// `value` holds a number, or else `word` is one of its words.
    pub(super) fn read(value: &str, word: &str) -> Option<Self> {
        if value.bytes().any(|byte| byte.is_ascii_digit()) {
            return Some(Self::Combined);
        }
        Some(match word {
            "negotiate" => Self::Negotiate,
            "connect" => Self::Connect,
            "ping" => Self::Ping,
            "external" => Self::External,
            "external-perl" => Self::ExternalPerl,
            "off" => Self::Off,
            "on" => Self::On,
            _ => return None,
        })
    }
}

/// What ldirectord takes where nothing is written.
const CHECK_TIMEOUT_S: u64 = 5;
const NEGOTIATE_TIMEOUT_S: u64 = 30;
const INTERVAL_S: u64 = 10;

/// The check of one real server; `service` is the VIP or mark and its port, as external programs are told.
#[expect(
    clippy::too_many_arguments,
    reason = "they are what ldirectord's own checks are called with"
)]
pub(super) fn check(
    of: &Section,
    line: &RealLine,
    globals: &Globals,
    quiescent: Option<(bool, Place)>,
    service: &(String, String),
    (address, port): (IpAddr, u16),
    place: Place,
    notes: &mut Notes,
) -> Option<Probe> {
    let (kind, from) = of.kind;
    let udp = of.protocol_name() == "udp";
    let mut negotiates = false;
    let mut probe = match kind {
        CheckKind::Off | CheckKind::On => {
            unused(of, notes);
            return None;
        }
        CheckKind::ExternalPerl => {
            notes.say(from, "not carried over: Weir runs no Perl; make the script a program for `checktype = external`");
            return None;
        }
        CheckKind::External => external(of, service, (address, port), from),
        CheckKind::Ping => Probe::new("ping", from),
        CheckKind::Connect if udp => Probe::new("ping", from),
        CheckKind::Connect => Probe::new("tcp", from),
        CheckKind::Negotiate | CheckKind::Combined => {
            if kind == CheckKind::Combined {
                notes.say(
                    from,
                    "each probe talks to the service: there are no connects between them",
                );
            }
            negotiates = true;
            negotiate(of, line, port, udp, place, notes)?
        }
    };
    common(&mut probe, of, globals, quiescent, negotiates, notes);
    if let Some((port, place)) = of.port.filter(|_| probe.wants_port()) {
        probe.push(Entry::new("port", port, place));
    }
    Some(probe)
}

fn unused(of: &Section, notes: &mut Notes) {
    let places = [
        &of.request,
        &of.receive,
        &of.command,
        &of.host,
        &of.method,
        &of.login,
        &of.service,
    ];
    for (_, place) in places.into_iter().flatten() {
        notes.say(*place, "not carried over: nothing is checked");
    }
}

/// Times and counts.
fn common(
    probe: &mut Probe,
    of: &Section,
    globals: &Globals,
    quiescent: Option<(bool, Place)>,
    negotiates: bool,
    notes: &mut Notes,
) {
    let own = [of.check_timeout, of.negotiate_timeout];
    let all = [globals.check_timeout, globals.negotiate_timeout];
    let (order, default) = if negotiates {
        ([own[1], own[0], all[1], all[0]], NEGOTIATE_TIMEOUT_S)
    } else {
        ([own[0], own[1], all[0], all[1]], CHECK_TIMEOUT_S)
    };
    let (timeout, place) = order
        .into_iter()
        .flatten()
        .next()
        .unwrap_or((default, of.place));
    let interval = match of.check_interval {
        Some((_, place)) if !globals.fork => {
            notes.say(
                place,
                "not carried over: ldirectord ignores it without fork=yes",
            );
            None
        }
        interval => interval,
    };
    let (interval, interval_from) = interval
        .or(globals.check_interval)
        .unwrap_or((INTERVAL_S, of.place));
    probe.time(
        "interval",
        interval.saturating_mul(1000),
        interval_from,
        notes,
    );
    probe.time("timeout", timeout.saturating_mul(1000), place, notes);
    probe.push(Entry::implied("rise", 1_u32));
    let (fall, place) = of
        .failure_count
        .or(globals.failure_count)
        .unwrap_or((1, of.place));
    probe.count("fall", fall, place, notes);
    let (quiescent, place) = quiescent.unwrap_or((false, of.place));
    let on_failure = if quiescent { "quiesce" } else { "remove" };
    probe.push(Entry::new("on_failure", on_failure, place));
    probe.push(Entry::implied("start", "up"));
}

/// The program is told the virtual service and the real server.
fn external(of: &Section, service: &(String, String), real: (IpAddr, u16), from: Place) -> Probe {
    let mut probe = Probe::new("script", from);
    let (program, place) = match &of.command {
        Some((program, place)) => (program.as_str(), *place),
        None => ("/bin/true", from),
    };
    let words = program.split_whitespace().map(str::to_owned);
    let arguments = [
        service.0.clone(),
        service.1.clone(),
        real.0.to_string(),
        real.1.to_string(),
    ];
    let command: Vec<String> = words.chain(arguments).collect();
    probe.push(Entry::new("command", command, place).essential());
    // As ldirectord itself runs.
    probe.push(Entry::implied("user", "root"));
    probe
}

fn negotiate(
    of: &Section,
    line: &RealLine,
    port: u16,
    udp: bool,
    place: Place,
    notes: &mut Notes,
) -> Option<Probe> {
    let by_port = SERVICES
        .iter()
        .find(|(_, known)| *known == port && port != 0 && of.protocol_name() != "fwm")
        .map_or("none", |(name, _)| *name);
    let (service, from) = match &of.service {
        Some((service, place)) => (service.as_str(), *place),
        None => (by_port, of.place),
    };
    let own = |text: &Option<String>| text.clone().map(|text| (text, place));
    let slashed = of.request.clone().map(|(request, place)| {
        let slash = if request.starts_with('/') { "" } else { "/" };
        (format!("{slash}{request}"), place)
    });
    let request = own(&line.request).or(slashed);
    let receive = own(&line.receive).or_else(|| of.receive.clone());
    let receive = receive.filter(|(text, _)| !text.is_empty());
    let why = match service {
        "http" | "https" => return Some(http(of, service, request, receive, from, notes)),
        "dns" => return dns(of, request, receive, from, notes),
        "none" => {
            notes.say(
                from,
                "nothing is asked of a service that ldirectord does not know: no check",
            );
            unused(of, notes);
            return None;
        }
        "smtp" | "submission" => return Some(simple(of, "smtp", request, receive, from, notes)),
        "mysql" | "pgsql" => {
            let kind = if service == "mysql" {
                "mysql"
            } else {
                "postgres"
            };
            let mut probe = simple(of, kind, request, receive, from, notes);
            if let Some((login, place)) = &of.login {
                probe.push(Entry::new("user", login.as_str(), *place));
            }
            return Some(probe);
        }
        other => format!("Weir speaks no {other}"),
    };
    let kind = if udp || matches!(service, "radius" | "sip") {
        "ping"
    } else {
        "tcp"
    };
    notes.say(from, format!("{why}: a {kind} check in its place"));
    Some(simple(of, kind, request, receive, from, notes))
}

/// A check that asks nothing of the request's.
fn simple(
    of: &Section,
    kind: &str,
    request: Option<(String, Place)>,
    receive: Option<(String, Place)>,
    from: Place,
    notes: &mut Notes,
) -> Probe {
    let login = of
        .login
        .clone()
        .filter(|_| !matches!(kind, "mysql" | "postgres"));
    let own = [request, receive, login];
    let places = own.iter().chain([&of.host, &of.method]).flatten();
    for (_, place) in places {
        notes.say(
            *place,
            format!("not carried over: a {kind} check has no place for it"),
        );
    }
    Probe::new(kind, from)
}

fn http(
    of: &Section,
    kind: &str,
    request: Option<(String, Place)>,
    receive: Option<(String, Place)>,
    from: Place,
    notes: &mut Notes,
) -> Probe {
    let mut probe = Probe::new(kind, from);
    if let Some((path, place)) = request {
        probe.push(Entry::new("path", path, place));
    }
    if let Some((method, place)) = &of.method {
        probe.push(Entry::new("method", method.as_str(), *place));
    }
    if let Some((host, place)) = of.host.as_ref().filter(|(host, _)| !host.is_empty()) {
        probe.push(Entry::new("host", host.as_str(), *place));
    }
    let mut expect = vec![Entry::implied("status", "200-299")];
    if let Some((pattern, place)) = receive {
        expect.push(match literal(&pattern) {
            Some(text) => Entry::new("body", text, place),
            None => Entry::new("regex", pattern, place),
        });
    }
    probe.push(Entry::new("expect", expect, from));
    if kind == "https" {
        // ldirectord looks at no certificate.
        probe.push(Entry::implied("verify", false));
    }
    if let Some((_, place)) = &of.login {
        notes.say(*place, "not carried over: checks of Weir log in nowhere");
    }
    probe
}

/// The address that an expression is written for: dots that stand for any letter are meant as dots.
fn address(pattern: &str) -> Option<IpAddr> {
    let text = pattern.strip_prefix('^').unwrap_or(pattern);
    let text = text.strip_suffix('$').unwrap_or(text);
    let plain = text.parse().ok();
    plain.or_else(|| literal(text)?.parse().ok())
}

fn dns(
    of: &Section,
    request: Option<(String, Place)>,
    receive: Option<(String, Place)>,
    from: Place,
    notes: &mut Notes,
) -> Option<Probe> {
    let name = request
        .as_ref()
        .map(|(name, place)| (name.trim_start_matches('/'), *place));
    let Some((name, place)) = name.filter(|(name, _)| !name.is_empty()) else {
        notes.say(
            from,
            "not carried over: a dns check without `request` asks for nothing",
        );
        return None;
    };
    let mut probe = Probe::new("dns", from);
    probe.push(Entry::new("query", name, place).essential());
    match receive.map(|(pattern, place)| (address(&pattern), place)) {
        Some((Some(answer), place)) => {
            let record = if answer.is_ipv6() { "AAAA" } else { "A" };
            probe.push(Entry::new("record", record, place));
            probe.push(Entry::new(
                "expect",
                vec![Entry::new("answer", answer.to_string(), place)],
                place,
            ));
        }
        Some((None, place)) => {
            notes.say(
                place,
                "not carried over: `expect` of a dns check takes an address; any answer passes",
            );
        }
        None => notes.say(
            from,
            "any answer passes; without `receive` ldirectord takes every server for down",
        ),
    }
    for (_, place) in [&of.host, &of.method, &of.login].into_iter().flatten() {
        notes.say(*place, "not carried over: a dns check has no place for it");
    }
    Some(probe)
}
