//! Reads global directives, which are defaults for all virtual services.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::net::IpAddr;

use super::real::{Fallback, parse_fallback};
use super::{Rejection, first_number, note_fatal, parse_yes_no, quoted, split_directive};
use crate::Environment;
use crate::inert;
use crate::mail::Mail;
use crate::note::{Notes, Position};

/// A number and its source position, or `None` if it is not set.
pub(super) type Number = Option<(u64, Position)>;

/// Values of the global directives.
#[derive(Debug, Default)]
pub(super) struct Globals {
    pub(super) check_timeout: Number,
    pub(super) negotiate_timeout: Number,
    pub(super) check_interval: Number,
    pub(super) failure_count: Number,
    pub(super) quiescent: Option<(bool, Position)>,
    /// Whether `fork` is set: ldirectord runs a process with its own interval for each virtual service.
    pub(super) fork: bool,
    pub(super) fallback: Option<Fallback>,
    pub(super) fallback6: Option<Fallback>,
    pub(super) mail: MailLines,
    pub(super) fallback_command: Option<(String, Position)>,
    /// The `maintenancedir` path.
    pub(super) maintenance_dir: Option<(String, Position)>,
    /// Ports of `pingpong_master` servers by address. Their check results also apply to the `pingpong_slave` servers
    /// with the same addresses.
    pub(super) masters: HashMap<IpAddr, u16>,
    /// Positions of the directives that at least one virtual service uses.
    pub(super) used_lines: RefCell<HashSet<Position>>,
}

/// Note for `cleanstop`, whose default is `yes`.
pub(super) const CLEANSTOP: &str =
    "services remain in the kernel after the daemon stops; `weir clean` removes them";

/// Note for `timeout` and `connecttimeout`.
pub(super) const OLD_TIMEOUT_NAME: &str = "ldirectord rejects the file here: checktimeout replaced this directive; \
     imported as checktimeout";

/// Global and virtual service directives that have no equivalent in weir.toml, with the reasons.
pub(super) const UNSUPPORTED: &[(&str, &str)] = &[
    (
        "emailalertfreq",
        "Weir sends one email per change and does not repeat it",
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
        "it is run if the file has changed; Weir reads the file only on `weir reload`",
    ),
    (
        "logfile",
        "Weir logs to standard error; under systemd, the journal stores the log",
    ),
    (
        "execute",
        "it starts another ldirectord: import that configuration too, and merge the results",
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
    /// Reads an email setting. Returns whether the directive is an email setting.
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

    /// Returns the email alert settings for a virtual service. Its own settings take precedence over the global ones.
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
    /// Adds remarks about directives that no virtual service uses.
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
        let maintenance_dir = self.maintenance_dir.as_ref();
        let texts = command
            .into_iter()
            .chain(maintenance_dir.map(|(_, position)| *position));
        for position in numbers.chain(quiescent).chain(fallbacks).chain(texts) {
            if !self.used_lines.borrow().contains(&position) && !notes.has_note(position) {
                notes.remark(position, "not imported: no virtual service uses it");
            }
        }
    }

    /// Reads a line outside the virtual services.
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
                "not imported: this is an lvsadm label, which ldirectord rejects; it has no effect on clients",
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

    /// Parses a directive with a number. Returns `None` for any other directive.
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
            return Some(Some(format!("{name} requires a number greater than 0")));
        };
        *target = Some((number, position));
        Some(None)
    }

    /// Parses a global directive.
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
                    "checktimeout and negotiatetimeout replaced this directive".to_owned(),
                );
            }
            "quiescent" | "fork" | "autoreload" | "readdquiescent" | "cleanstop" => {
                let Some(yes) = parse_yes_no(value) else {
                    return Some(format!("{name} requires yes or no, without trailing text"));
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
                return Some("checkcount requires a number greater than 0".to_owned());
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
                self.maintenance_dir = Some((value.trim_end().to_owned(), position));
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

/// Returns whether a line is an lvsadm label: `[NAME]` above each virtual service, and `[default]` above the global
/// directives. `[vip]` and `[vlan]` are not labels: they begin sections that ldirectord does not support.
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
    (!is_valid).then(|| "supervised requires yes or no, without trailing text".to_owned())
}

/// Returns the rejection for an unknown directive, in ldirectord's words.
pub(super) fn unknown_directive(line: &str) -> Rejection {
    Some(format!("unknown command {}", line.trim()))
}

/// Returns whether a value is valid for `emailalertstatus`: `all`, `none`, or a list of ldirectord's states.
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
