//! Reads global lines, which are defaults for every virtual service.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::net::IpAddr;

use super::real::{Fallback, parse_fallback};
use super::{Rejection, first_number, note_fatal, parse_yes_no, quoted, split_directive};
use crate::Environment;
use crate::inert;
use crate::mail::Mail;
use crate::note::{Notes, Position};

/// A number and its source line, or `None` if it is not set.
pub(super) type Number = Option<(u64, Position)>;

/// Values of the global lines.
#[derive(Debug, Default)]
pub(super) struct Globals {
    pub(super) check_timeout: Number,
    pub(super) negotiate_timeout: Number,
    pub(super) check_interval: Number,
    pub(super) failure_count: Number,
    pub(super) quiescent: Option<(bool, Position)>,
    /// Whether `fork` is set: each virtual service has its own process and interval.
    pub(super) fork: bool,
    pub(super) fallback: Option<Fallback>,
    pub(super) fallback6: Option<Fallback>,
    pub(super) mail: MailLines,
    pub(super) fallback_command: Option<(String, Position)>,
    /// Path of `maintenancedir`.
    pub(super) maintenance: Option<(String, Position)>,
    /// Addresses and ports of `pingpong_master` servers, whose result applies to `pingpong_slave` servers.
    pub(super) masters: HashMap<IpAddr, u16>,
    /// Lines that at least one virtual service uses.
    pub(super) used_lines: RefCell<HashSet<Position>>,
}

/// Note about `cleanstop`, whose default is `yes`.
pub(super) const CLEANSTOP: &str =
    "services stay in the kernel when the daemon stops, until `weir clean`";

/// Note about `timeout` and `connecttimeout`.
pub(super) const OLD_TIMEOUT_NAME: &str =
    "ldirectord rejects the file here: checktimeout has replaced it; imported as checktimeout";

/// Directives of global and virtual sections without an equivalent in weir.toml, and the reasons.
pub(super) const UNSUPPORTED: &[(&str, &str)] = &[
    (
        "emailalertfreq",
        "Weir sends one email about a change and does not repeat it",
    ),
    (
        "emailalertstatus",
        "`states` in `[notify]` selects which server states are reported",
    ),
    (
        "monitorfile",
        "`weir status` shows states and their reasons",
    ),
    ("autoreload", "`weir reload` rereads the file"),
    (
        "callback",
        "it is called if the file has changed; Weir reads the file only on `weir reload`",
    ),
    (
        "logfile",
        "Weir logs to standard error; the systemd unit stores the log",
    ),
    (
        "execute",
        "it starts another ldirectord: import that file too, and merge the results",
    ),
    ("fork", "Weir always runs probes in parallel"),
    ("supervised", "`weir run` stays in the foreground"),
    (
        "readdquiescent",
        "a recovered server gets its weight back; with `slow_start`, Weir increases it gradually",
    ),
    ("checkcount", "failurecount has replaced it"),
    ("load", "ldirectord ignores it"),
    ("comment", "it has no effect in ldirectord"),
    ("servicename", "it has no effect in ldirectord"),
];

/// Email settings.
#[derive(Clone, Debug, Default)]
pub(super) struct MailLines {
    to: Option<(String, Position)>,
    from: Option<(String, Position)>,
    server: Option<(String, Position)>,
}

impl MailLines {
    /// Reads an email setting. Returns whether the line is one.
    pub(super) fn read(&mut self, name: &str, value: &str, position: Position) -> bool {
        let target = match name {
            "emailalert" => &mut self.to,
            "emailalertfrom" => &mut self.from,
            "smtp" => &mut self.server,
            _ => return false,
        };
        let text = quoted(value).unwrap_or(value).trim().trim_matches('"');
        *target = Some((text.to_owned(), position));
        true
    }

    /// Returns the email alerts of a virtual service; its own settings replace the global ones.
    pub(super) fn for_service(&self, service_settings: &Self, pool: String) -> Option<Mail> {
        let (to, position) = service_settings.to.as_ref().or(self.to.as_ref())?;
        let recipients = to.split([',', ' ']).filter(|it| !it.is_empty());
        let server = service_settings.server.as_ref().or(self.server.as_ref());
        Some(Mail {
            to: recipients.map(|to| (to.to_owned(), *position)).collect(),
            from: service_settings.from.clone().or_else(|| self.from.clone()),
            server: server
                .map(|(host, position)| (crate::mail::server_address(host, None), *position)),
            pools: vec![pool],
        })
    }
}

/// Returns whether a directive is unsupported, and adds a note if so.
pub(super) fn note_unsupported(notes: &mut Notes, name: &str, position: Position) -> bool {
    let entry = UNSUPPORTED.iter().find(|(keyword, _)| *keyword == name);
    if let Some((_, reason)) = entry {
        notes.record_effect(position, inert::is_inert_ldirectord_directive(name));
        notes.add(position, format!("not imported: {reason}"));
    }
    entry.is_some()
}

impl Globals {
    /// Adds remarks about lines that no virtual service uses.
    pub(super) fn note_unused(&self, notes: &mut Notes) {
        let numbers = [
            self.check_timeout,
            self.negotiate_timeout,
            self.check_interval,
            self.failure_count,
        ];
        let numbers = numbers.into_iter().flatten().map(|(_, position)| position);
        let quiescent = self.quiescent.map(|(_, position)| position);
        let fallbacks = [&self.fallback, &self.fallback6];
        let fallbacks = fallbacks
            .into_iter()
            .flatten()
            .map(|fallback| fallback.position);
        let command = self.fallback_command.as_ref();
        let command = command.map(|(_, position)| *position);
        let maintenance = self.maintenance.as_ref();
        let command = command
            .into_iter()
            .chain(maintenance.map(|(_, position)| *position));
        for position in numbers.chain(quiescent).chain(fallbacks).chain(command) {
            if !self.used_lines.borrow().contains(&position) && !notes.has_note(position) {
                notes.remark(position, "not imported: no virtual service uses it");
            }
        }
    }

    /// Reads a line outside of virtual services.
    pub(super) fn read_line(
        &mut self,
        line: &str,
        position: Position,
        environment: &dyn Environment,
        notes: &mut Notes,
    ) {
        if line.trim().is_empty() || line.trim_start().starts_with('#') {
            return;
        }
        if is_label(line) {
            notes.remark(
                position,
                "not imported: it is a label of lvsadm, which ldirectord itself rejects; it has no effect on clients",
            );
            return;
        }
        let rejection = match split_directive(line) {
            _ if line.starts_with("supervised") => read_supervised(line, position, notes),
            Some((name, value)) => self.parse_directive(name, value, position, environment, notes),
            None => unknown_directive(line),
        };
        if let Some(reason) = rejection {
            note_fatal(notes, position, &reason);
        }
    }

    /// Parses directives with a number. Returns `None` for any other directive.
    fn parse_number(
        &mut self,
        name: &str,
        number: Option<u64>,
        position: Position,
        notes: &mut Notes,
    ) -> Option<Rejection> {
        let target = match name {
            "connecttimeout" | "timeout" if number.is_some() => {
                notes.remark(position, OLD_TIMEOUT_NAME);
                &mut self.check_timeout
            }
            "checktimeout" => &mut self.check_timeout,
            "negotiatetimeout" => &mut self.negotiate_timeout,
            "checkinterval" => &mut self.check_interval,
            "failurecount" => &mut self.failure_count,
            _ => return None,
        };
        let Some(number) = number else {
            return Some(Some(format!("{name} requires a number above 0")));
        };
        *target = Some((number, position));
        Some(None)
    }

    /// Parses a directive of the global lines.
    fn parse_directive(
        &mut self,
        name: &str,
        value: &str,
        position: Position,
        environment: &dyn Environment,
        notes: &mut Notes,
    ) -> Rejection {
        let number = first_number(value).filter(|number| *number > 0);
        if let Some(rejection) = self.parse_number(name, number, position, notes) {
            return rejection;
        }
        match name {
            "connecttimeout" | "timeout" => {
                return Some(
                    "checktimeout and negotiatetimeout have replaced this directive".to_owned(),
                );
            }
            "quiescent" | "fork" | "autoreload" | "readdquiescent" | "cleanstop" => {
                let Some(yes) = parse_yes_no(value) else {
                    return Some(format!("{name} requires yes or no, and nothing after it"));
                };
                match name {
                    "quiescent" => self.quiescent = Some((yes, position)),
                    "fork" => self.fork = yes,
                    "cleanstop" => {
                        notes.remark(position, CLEANSTOP);
                        return None;
                    }
                    _ => {}
                }
            }
            "fallback" | "fallback6" => {
                return self.parse_fallback(name, value, position, environment);
            }
            "checkcount" if number.is_none() => {
                return Some("checkcount requires a number above 0".to_owned());
            }
            "emailalertfreq" if first_number(value).is_none() => {
                return Some("emailalertfreq requires a number".to_owned());
            }
            "emailalertstatus" if !is_alert_status(value) => {
                return Some("unknown alert status".to_owned());
            }
            "callback" | "logfile" if quoted(value).is_none() => {
                return Some(format!("{name} requires a value in quotes"));
            }
            "emailalert" | "emailalertfrom" | "fallbackcommand" | "maintenancedir" | "smtp"
                if value.is_empty() =>
            {
                return Some(format!("{name} has no value"));
            }
            "fallbackcommand" => {
                self.fallback_command = Some((value.trim_end().to_owned(), position));
                return None;
            }
            "maintenancedir" => {
                self.maintenance = Some((value.trim_end().to_owned(), position));
                return None;
            }
            _ if self.mail.read(name, value, position) => return None,
            "secret" | "passwd" | "database" | "load" | "comment" | "servicename"
            | "monitorfile" => {
                return unknown_directive(name);
            }
            _ => {}
        }
        if name == "quiescent" || note_unsupported(notes, name, position) {
            return None;
        }
        unknown_directive(name)
    }

    fn parse_fallback(
        &mut self,
        name: &str,
        value: &str,
        position: Position,
        environment: &dyn Environment,
    ) -> Rejection {
        let ipv6 = name == "fallback6";
        match parse_fallback(value, ipv6, 0, position, environment) {
            Ok(found) if ipv6 => self.fallback6 = Some(found),
            Ok(found) => self.fallback = Some(found),
            Err(reason) => return Some(reason),
        }
        None
    }
}

/// Returns whether a line is a label `[NAME]`: lvsadm writes one above each virtual service, and `[default]` above the
/// global lines. `[vip]` and `[vlan]` begin sections with lines that ldirectord does not support.
fn is_label(line: &str) -> bool {
    let name = line.trim_end().strip_prefix('[');
    let name = name.and_then(|name| name.strip_suffix(']'));
    name.is_some_and(|name| !name.is_empty() && name != "vip" && name != "vlan")
}

fn read_supervised(line: &str, position: Position, notes: &mut Notes) -> Rejection {
    note_unsupported(notes, "supervised", position);
    let arguments = line["supervised".len()..].trim_end_matches('\r');
    let is_valid = match super::value_of(arguments) {
        Some(value) => parse_yes_no(value).is_some(),
        None => arguments.trim().is_empty(),
    };
    (!is_valid).then(|| "supervised requires yes or no, and nothing after it".to_owned())
}

/// Returns the error for an unknown directive.
pub(super) fn unknown_directive(line: &str) -> Rejection {
    Some(format!("unknown command {}", line.trim()))
}

/// Returns whether a value is valid for `emailalertstatus`: `all`, `none`, or states of the daemon.
pub(super) fn is_alert_status(value: &str) -> bool {
    let words: Vec<&str> = value.split(',').map(str::trim).collect();
    let states = [
        "all",
        "none",
        "starting",
        "stopping",
        "running",
        "reloading",
    ];
    let has_none = words.contains(&"none");
    words
        .iter()
        .all(|word| states.contains(word) && (!has_none || *word == "none"))
}
