//! Converts ldirectord's check of a real server.

mod negotiate;
mod perl;
mod radius;

use std::net::IpAddr;

use self::negotiate::negotiate;
use super::global::Globals;
use super::real::RealLine;
use super::service::Section;
use crate::document::Entry;
use crate::note::{Notes, Position};
use crate::probe::Probe;

/// The value of `checktype`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CheckKind {
    Negotiate,
    Connect,
    /// N connect checks, then one negotiate check.
    Combined,
    Ping,
    External,
    ExternalPerl,
    Off,
    On,
}

impl CheckKind {
    /// Parses a check type: a number in `value`, or the keyword `word`. Returns `None` if the type is unknown.
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

/// ldirectord's default times.
const CHECK_TIMEOUT_S: u64 = 5;
const NEGOTIATE_TIMEOUT_S: u64 = 30;
const INTERVAL_S: u64 = 10;

const PERL: &str = "/usr/bin/perl";

/// Returns the check of one real server. `service` is the VIP or mark and its port, as passed to external programs.
#[expect(
    clippy::too_many_arguments,
    reason = "each is a separate input of the conversion"
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
    let (kind, check_position) = section.kind;
    let is_udp = section.protocol_name() == "udp";
    let mut is_negotiate = false;
    let mut probe = match kind {
        CheckKind::Off | CheckKind::On => {
            note_unused(section, notes);
            return None;
        }
        CheckKind::External | CheckKind::ExternalPerl => {
            external_check(section, service, (address, port), notes)
        }
        CheckKind::Ping => Probe::new("ping", check_position),
        CheckKind::Connect if is_udp => Probe::new("ping", check_position),
        CheckKind::Connect => Probe::new("tcp", check_position),
        CheckKind::Negotiate | CheckKind::Combined => {
            if kind == CheckKind::Combined {
                notes.remark(
                    check_position,
                    "every probe is a negotiate check: there are no connect checks in between",
                );
            }
            is_negotiate = true;
            let real = (address, service.1.parse().unwrap_or(0));
            negotiate(section, line, globals, real, is_udp, position, notes)?
        }
    };
    push_common_keys(&mut probe, section, globals, quiescent, is_negotiate, notes);
    if let Some((port, position)) = section.port.filter(|_| probe.uses_server_port()) {
        probe.push(Entry::new("port", port, position));
    }
    Some(probe)
}

/// Returns the check for `maintenancedir`: a server is down while the directory contains a file named after the server
/// (`_check_real_for_maintenance`).
pub(super) fn maintenance_check(
    section: &Section,
    globals: &Globals,
    quiescent: Option<(bool, Position)>,
    notes: &mut Notes,
) -> Option<Probe> {
    const SCRIPT: &str = "cd \"$0\" || exit 0; \
                          [ ! -e \"$WEIR_ADDRESS\" ] && [ ! -e \"$WEIR_ADDRESS:$WEIR_PORT\" ]";
    let (directory, position) = globals.maintenance_dir.as_ref()?;
    let mut probe = Probe::new("script", *position);
    let command = ["/bin/sh", "-c", SCRIPT, directory].map(str::to_owned);
    probe.push(Entry::new("command", command.to_vec(), *position).essential());
    push_common_keys(&mut probe, section, globals, quiescent, false, notes);
    // The first probe that finds a file takes the server down.
    probe.entries.retain(|entry| entry.key != "fall");
    probe.push(Entry::implied("fall", 1_u32));
    let reason = "a file takes a server out of service only if it is named ADDRESS or ADDRESS:PORT; \
                  Weir does not look up host names";
    notes.remark(*position, reason);
    Some(probe)
}

/// Adds remarks about lines that only checks use, if there are no checks.
fn note_unused(section: &Section, notes: &mut Notes) {
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

/// Adds the keys that all checks have: times, counts, `on_failure` and `start`.
fn push_common_keys(
    probe: &mut Probe,
    section: &Section,
    globals: &Globals,
    quiescent: Option<(bool, Position)>,
    is_negotiate: bool,
    notes: &mut Notes,
) {
    let section_timeouts = [section.check_timeout, section.negotiate_timeout];
    let global_timeouts = [globals.check_timeout, globals.negotiate_timeout];
    let (candidates, default) = if is_negotiate {
        (
            [
                section_timeouts[1],
                section_timeouts[0],
                global_timeouts[1],
                global_timeouts[0],
            ],
            NEGOTIATE_TIMEOUT_S,
        )
    } else {
        (
            [
                section_timeouts[0],
                section_timeouts[1],
                global_timeouts[0],
                global_timeouts[1],
            ],
            CHECK_TIMEOUT_S,
        )
    };
    let (timeout, position) = candidates
        .into_iter()
        .flatten()
        .next()
        .unwrap_or((default, section.position));
    let interval = match section.check_interval {
        Some((_, position)) if !globals.fork => {
            notes.remark(
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
    probe.set_time(
        "interval",
        interval.saturating_mul(1000),
        interval_from,
        notes,
    );
    probe.set_time("timeout", timeout.saturating_mul(1000), position, notes);
    probe.push(Entry::implied("rise", 1_u32));
    let (fall, position) = section
        .failure_count
        .or(globals.failure_count)
        .unwrap_or((1, section.position));
    probe.set_count("fall", fall, position, notes);
    let (quiescent, position) = quiescent.unwrap_or((false, section.position));
    let on_failure = if quiescent { "quiesce" } else { "remove" };
    probe.push(Entry::new("on_failure", on_failure, position));
    probe.push(Entry::implied("start", "up"));
}

/// Returns the check for an external program, which gets the virtual service and the real server as arguments.
/// ldirectord runs an `external-perl` script in its own process; Weir runs it as a separate process with the same
/// arguments and exit codes.
fn external_check(
    section: &Section,
    service: &(String, String),
    real: (IpAddr, u16),
    notes: &mut Notes,
) -> Probe {
    let (kind, check_position) = section.kind;
    let mut probe = Probe::new("script", check_position);
    let (program, position) = match &section.command {
        Some((program, position)) => (program.as_str(), *position),
        None => ("/bin/true", check_position),
    };
    let mut command: Vec<String> = Vec::new();
    if kind == CheckKind::ExternalPerl {
        command.extend([PERL.to_owned(), program.to_owned()]);
        let reason = "each probe starts perl: the script's variables do not outlive a probe";
        notes.remark(check_position, reason);
    } else {
        command.extend(program.split_whitespace().map(str::to_owned));
    }
    command.extend([
        service.0.clone(),
        service.1.clone(),
        real.0.to_string(),
        real.1.to_string(),
    ]);
    probe.push(Entry::new("command", command, position).essential());
    // ldirectord runs as root.
    probe.push(Entry::implied("user", "root"));
    probe
}

#[cfg(test)]
mod tests;
