//! Converts ldirectord's checks of a real server.

use std::net::IpAddr;

use super::global::Globals;
use super::real::RealLine;
use super::service::{SERVICES, Section};
use crate::document::Entry;
use crate::note::{Notes, Position};
use crate::probe::{Probe, literal};

/// `checktype`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CheckKind {
    Negotiate,
    Connect,
    /// N connects, then one negotiate check.
    Combined,
    Ping,
    External,
    ExternalPerl,
    Off,
    On,
}

impl CheckKind {
    /// Parses a check type: `value` holds a number, or `word` is a keyword.
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

/// ldirectord's defaults.
const CHECK_TIMEOUT_S: u64 = 5;
const NEGOTIATE_TIMEOUT_S: u64 = 30;
const INTERVAL_S: u64 = 10;

/// Returns the check of one real server. `service` is the VIP or mark and its port, as passed to external programs.
#[expect(
    clippy::too_many_arguments,
    reason = "ldirectord's own checks take the same arguments"
)]
pub(super) fn check(
    section: &Section,
    line: &RealLine,
    globals: &Globals,
    quiescent: Option<(bool, Position)>,
    service: &(String, String),
    (address, port): (IpAddr, u16),
    position: Position,
    notes: &mut Notes,
) -> Option<Probe> {
    let (kind, from) = section.kind;
    let udp = section.protocol_name() == "udp";
    let mut negotiates = false;
    let mut probe = match kind {
        CheckKind::Off | CheckKind::On => {
            unused(section, notes);
            return None;
        }
        CheckKind::ExternalPerl => {
            notes.add(
                from,
                "not imported: Weir does not run Perl; make the script a program for \
                 `checktype = external`",
            );
            return None;
        }
        CheckKind::External => external(section, service, (address, port), from),
        CheckKind::Ping => Probe::new("ping", from),
        CheckKind::Connect if udp => Probe::new("ping", from),
        CheckKind::Connect => Probe::new("tcp", from),
        CheckKind::Negotiate | CheckKind::Combined => {
            if kind == CheckKind::Combined {
                notes.add(
                    from,
                    "every probe is a negotiate check: there are no connect checks in between",
                );
            }
            negotiates = true;
            negotiate(section, line, port, udp, position, notes)?
        }
    };
    common(&mut probe, section, globals, quiescent, negotiates, notes);
    if let Some((port, position)) = section.port.filter(|_| probe.uses_server_port()) {
        probe.push(Entry::new("port", port, position));
    }
    Some(probe)
}

fn unused(section: &Section, notes: &mut Notes) {
    let positions = [
        &section.request,
        &section.receive,
        &section.command,
        &section.host,
        &section.method,
        &section.login,
        &section.service,
    ];
    for (_, position) in positions.into_iter().flatten() {
        notes.remark(*position, "not imported: there is no check");
    }
}

/// Sets times and counts.
fn common(
    probe: &mut Probe,
    section: &Section,
    globals: &Globals,
    quiescent: Option<(bool, Position)>,
    negotiates: bool,
    notes: &mut Notes,
) {
    let own = [section.check_timeout, section.negotiate_timeout];
    let all = [globals.check_timeout, globals.negotiate_timeout];
    let (order, default) = if negotiates {
        ([own[1], own[0], all[1], all[0]], NEGOTIATE_TIMEOUT_S)
    } else {
        ([own[0], own[1], all[0], all[1]], CHECK_TIMEOUT_S)
    };
    let (timeout, position) = order
        .into_iter()
        .flatten()
        .next()
        .unwrap_or((default, section.position));
    let interval = match section.check_interval {
        Some((_, position)) if !globals.fork => {
            notes.add(
                position,
                "not imported: ldirectord ignores it without fork=yes",
            );
            None
        }
        interval => interval,
    };
    let (interval, interval_from) = interval
        .or(globals.check_interval)
        .unwrap_or((INTERVAL_S, section.position));
    probe.time(
        "interval",
        interval.saturating_mul(1000),
        interval_from,
        notes,
    );
    probe.time("timeout", timeout.saturating_mul(1000), position, notes);
    probe.push(Entry::implied("rise", 1_u32));
    let (fall, position) = section
        .failure_count
        .or(globals.failure_count)
        .unwrap_or((1, section.position));
    probe.count("fall", fall, position, notes);
    let (quiescent, position) = quiescent.unwrap_or((false, section.position));
    let on_failure = if quiescent { "quiesce" } else { "remove" };
    probe.push(Entry::new("on_failure", on_failure, position));
    probe.push(Entry::implied("start", "up"));
}

/// The program gets the virtual service and the real server as arguments.
fn external(
    section: &Section,
    service: &(String, String),
    real: (IpAddr, u16),
    from: Position,
) -> Probe {
    let mut probe = Probe::new("script", from);
    let (program, position) = match &section.command {
        Some((program, position)) => (program.as_str(), *position),
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
    probe.push(Entry::new("command", command, position).essential());
    // ldirectord runs as root.
    probe.push(Entry::implied("user", "root"));
    probe
}

fn negotiate(
    section: &Section,
    line: &RealLine,
    port: u16,
    udp: bool,
    position: Position,
    notes: &mut Notes,
) -> Option<Probe> {
    let by_port = SERVICES
        .iter()
        .find(|(_, default_port)| {
            *default_port == port && port != 0 && section.protocol_name() != "fwm"
        })
        .map_or("none", |(name, _)| *name);
    let (service, from) = match &section.service {
        Some((service, position)) => (service.as_str(), *position),
        None => (by_port, section.position),
    };
    let own = |text: &Option<String>| text.clone().map(|text| (text, position));
    let slashed = section.request.clone().map(|(request, position)| {
        let slash = if request.starts_with('/') { "" } else { "/" };
        (format!("{slash}{request}"), position)
    });
    let request = own(&line.request).or(slashed);
    let receive = own(&line.receive).or_else(|| section.receive.clone());
    let receive = receive.filter(|(text, _)| !text.is_empty());
    let why = match service {
        "http" | "https" => return Some(http(section, service, request, receive, from, notes)),
        "dns" => return dns(section, request, receive, from, notes),
        "none" => {
            notes.remark(
                from,
                "ldirectord does not check a service it does not know: no check",
            );
            unused(section, notes);
            return None;
        }
        "smtp" | "submission" => {
            return Some(simple(section, "smtp", request, receive, from, notes));
        }
        "mysql" | "pgsql" => {
            let kind = if service == "mysql" {
                "mysql"
            } else {
                "postgres"
            };
            let mut probe = simple(section, kind, request, receive, from, notes);
            if let Some((login, position)) = &section.login {
                probe.push(Entry::new("user", login.as_str(), *position));
            }
            return Some(probe);
        }
        other => format!("Weir has no {other} check"),
    };
    let kind = if udp || matches!(service, "radius" | "sip") {
        "ping"
    } else {
        "tcp"
    };
    notes.add(from, format!("{why}: a {kind} check is used instead"));
    Some(simple(section, kind, request, receive, from, notes))
}

/// A check without request settings.
fn simple(
    section: &Section,
    kind: &str,
    request: Option<(String, Position)>,
    receive: Option<(String, Position)>,
    from: Position,
    notes: &mut Notes,
) -> Probe {
    let login = section
        .login
        .clone()
        .filter(|_| !matches!(kind, "mysql" | "postgres"));
    let own = [request, receive, login];
    let positions = own.iter().chain([&section.host, &section.method]).flatten();
    for (_, position) in positions {
        notes.add(
            *position,
            format!("not imported: a {kind} check does not use it"),
        );
    }
    Probe::new(kind, from)
}

fn http(
    section: &Section,
    kind: &str,
    request: Option<(String, Position)>,
    receive: Option<(String, Position)>,
    from: Position,
    notes: &mut Notes,
) -> Probe {
    let mut probe = Probe::new(kind, from);
    if let Some((path, position)) = request {
        probe.push(Entry::new("path", path, position));
    }
    if let Some((method, position)) = &section.method {
        probe.push(Entry::new("method", method.as_str(), *position));
    }
    if let Some((host, position)) = section.host.as_ref().filter(|(host, _)| !host.is_empty()) {
        probe.push(Entry::new("host", host.as_str(), *position));
    }
    let mut expect = vec![Entry::implied("status", "200-299")];
    if let Some((pattern, position)) = receive {
        expect.push(match literal(&pattern) {
            Some(text) => Entry::new("body", text, position),
            None => Entry::new("regex", pattern, position),
        });
    }
    probe.push(Entry::new("expect", expect, from));
    if kind == "https" {
        // ldirectord does not verify certificates.
        probe.push(Entry::implied("verify", false));
    }
    if let Some((_, position)) = &section.login {
        notes.add(*position, "not imported: checks of Weir do not log in");
    }
    probe
}

/// Returns the address that an expression matches. Unescaped dots are taken as literal dots.
fn address(pattern: &str) -> Option<IpAddr> {
    let text = pattern.strip_prefix('^').unwrap_or(pattern);
    let text = text.strip_suffix('$').unwrap_or(text);
    let plain = text.parse().ok();
    plain.or_else(|| literal(text)?.parse().ok())
}

fn dns(
    section: &Section,
    request: Option<(String, Position)>,
    receive: Option<(String, Position)>,
    from: Position,
    notes: &mut Notes,
) -> Option<Probe> {
    let name = request
        .as_ref()
        .map(|(name, position)| (name.trim_start_matches('/'), *position));
    let Some((name, position)) = name.filter(|(name, _)| !name.is_empty()) else {
        notes.add(from, "not imported: a dns check requires `request`");
        return None;
    };
    let mut probe = Probe::new("dns", from);
    probe.push(Entry::new("query", name, position).essential());
    match receive.map(|(pattern, position)| (address(&pattern), position)) {
        Some((Some(answer), position)) => {
            let record = if answer.is_ipv6() { "AAAA" } else { "A" };
            probe.push(Entry::new("record", record, position));
            probe.push(Entry::new(
                "expect",
                vec![Entry::new("answer", answer.to_string(), position)],
                position,
            ));
        }
        Some((None, position)) => {
            notes.add(
                position,
                "not imported: `expect` of a dns check takes an address; any reply passes",
            );
        }
        None => notes.add(
            from,
            "any reply passes; without `receive` ldirectord considers every server down",
        ),
    }
    for (_, position) in [&section.host, &section.method, &section.login]
        .into_iter()
        .flatten()
    {
        notes.add(*position, "not imported: a dns check does not use it");
    }
    Some(probe)
}
