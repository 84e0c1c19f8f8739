//! Parses `virtual=` and its indented lines.

mod write;

use super::check::CheckKind;
use super::global::{
    CLEANSTOP, MailLines, Number, OLD_TIMEOUT_NAME, is_alert_status, note_unsupported,
    unknown_directive,
};
use super::{Rejection, first_number, note_fatal, parse_yes_no, quoted, split_directive, unquoted};
use crate::layer4::is_scheduler;
use crate::note::{Notes, Position};

/// Services that ldirectord can check, and their default ports, or 0 if there is none.
pub(super) const SERVICES: &[(&str, u16)] = &[
    ("dns", 53),
    ("ftp", 21),
    ("http", 80),
    ("https", 443),
    ("http_proxy", 3128),
    ("imap", 143),
    ("imaps", 993),
    ("ldap", 389),
    ("ldaps", 636),
    ("mysql", 3306),
    ("nntp", 119),
    ("none", 0),
    ("oracle", 1521),
    ("pgsql", 5432),
    ("pop", 110),
    ("pops", 995),
    ("radius", 1812),
    ("simpletcp", 0),
    ("sip", 5060),
    ("smtp", 25),
    ("submission", 587),
];

/// Services of a fork of ldirectord (`ldirectord-gprs` of wjesus374/ldirectord_manager).
pub(super) const FORK_SERVICES: &[&str] =
    &["gprs", "pingpong", "pingpong_master", "pingpong_slave"];

/// Identity of the service, as written: a firewall mark, or a host and a port.
#[derive(Clone, Debug)]
enum Target {
    Mark(u64),
    Address(String, String),
}

/// A value and its source line, or `None` if it is not set.
pub(super) type Text = Option<(String, Position)>;

/// A virtual service that is being parsed.
#[derive(Clone, Debug)]
pub(super) struct Section {
    pub(super) position: Position,
    ipv6: bool,
    target: Target,
    /// Protocol; `true` for UDP.
    protocol: Option<(bool, Position)>,
    scheduler: Text,
    flags: Vec<(String, Position)>,
    /// Persistence timeout, in seconds.
    persistent: Number,
    netmask: Text,
    /// One-packet scheduling.
    ops: Option<Position>,
    fallback: Text,
    real_servers: Vec<(String, Position)>,
    /// Positions of all lines of the section.
    lines: Vec<Position>,
    quiescent: Option<(bool, Position)>,
    pub(super) kind: (CheckKind, Position),
    pub(super) service: Text,
    pub(super) command: Text,
    pub(super) port: Number,
    pub(super) request: Text,
    pub(super) receive: Text,
    pub(super) method: Text,
    pub(super) host: Text,
    pub(super) login: Text,
    pub(super) passwd: Text,
    pub(super) database: Text,
    pub(super) secret: Text,
    /// Program of `fallbackcommand`.
    fallback_command: Text,
    /// The line of a `service` that ldirectord does not support.
    unknown_service: Option<Position>,
    pub(super) check_timeout: Number,
    pub(super) negotiate_timeout: Number,
    pub(super) check_interval: Number,
    pub(super) failure_count: Number,
    mail: MailLines,
}

impl Section {
    /// Creates a section from the value of `virtual=`; adds a note and returns `None` if ldirectord rejects the value.
    pub(super) fn from_header(
        (ipv6, value): (bool, &str),
        position: Position,
        notes: &mut Notes,
    ) -> Option<Self> {
        let is_bracketed = value.starts_with('[');
        if is_bracketed && !ipv6 {
            notes.remark(position, family_note("virtual6"));
        }
        let ipv6 = ipv6 || is_bracketed;
        let target = match parse_target(ipv6, value) {
            Ok(target) => target,
            Err(reason) => {
                note_fatal(notes, position, &reason);
                return None;
            }
        };
        Some(Self {
            position,
            ipv6,
            target,
            protocol: None,
            scheduler: None,
            flags: Vec::new(),
            persistent: None,
            netmask: None,
            ops: None,
            fallback: None,
            real_servers: Vec::new(),
            lines: Vec::new(),
            quiescent: None,
            kind: (CheckKind::Negotiate, position),
            service: None,
            command: None,
            port: None,
            request: None,
            receive: None,
            method: None,
            host: None,
            login: None,
            passwd: None,
            database: None,
            secret: None,
            fallback_command: None,
            unknown_service: None,
            check_timeout: None,
            negotiate_timeout: None,
            check_interval: None,
            failure_count: None,
            mail: MailLines::default(),
        })
    }

    /// Reads a line of the section.
    pub(super) fn read_line(&mut self, line: &str, position: Position, notes: &mut Notes) {
        self.lines.push(position);
        let rejection = match split_directive(line) {
            Some((name @ ("emailalert" | "smtp"), value)) if !unquoted(value).is_empty() => {
                self.mail.read(name, unquoted(value), position);
                None
            }
            Some((name, value)) => self
                .parse_number(name, value, position, notes)
                .or_else(|| self.parse_text(name, value, position, notes))
                .unwrap_or_else(|| self.parse_other(name, value, position, notes)),
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
        value: &str,
        position: Position,
        notes: &mut Notes,
    ) -> Option<Rejection> {
        let is_old_name = matches!(name, "connecttimeout" | "timeout");
        let target = match name {
            "checktimeout" | "connecttimeout" | "timeout" => &mut self.check_timeout,
            "negotiatetimeout" => &mut self.negotiate_timeout,
            "checkinterval" => &mut self.check_interval,
            "failurecount" => &mut self.failure_count,
            "checkport" => &mut self.port,
            "persistent" => &mut self.persistent,
            _ => return None,
        };
        let max = if name == "checkport" {
            65_535
        } else {
            u64::MAX
        };
        let number = first_number(value)
            .filter(|number| (*number > 0 || name == "persistent") && *number <= max);
        Some(match number {
            Some(number) => {
                if is_old_name {
                    notes.remark(position, OLD_TIMEOUT_NAME);
                }
                *target = Some((number, position));
                None
            }
            None => Some(match name {
                "persistent" => "persistent requires a number".to_owned(),
                "checkport" => "checkport requires a number from 1 to 65535".to_owned(),
                _ => format!("{name} requires a number greater than 0"),
            }),
        })
    }

    /// Parses directives with a text. Returns `None` for any other directive.
    fn parse_text(
        &mut self,
        name: &str,
        value: &str,
        position: Position,
        notes: &mut Notes,
    ) -> Option<Rejection> {
        let (target, must_be_quoted) = match name {
            "request" => (&mut self.request, true),
            "receive" => (&mut self.receive, true),
            "login" => (&mut self.login, true),
            "passwd" => (&mut self.passwd, true),
            "database" => (&mut self.database, true),
            "secret" => (&mut self.secret, true),
            "fallbackcommand" => (&mut self.fallback_command, false),
            "checkcommand" => (&mut self.command, false),
            "virtualhost" => (&mut self.host, false),
            _ => return None,
        };
        let text = match (quoted(value), must_be_quoted) {
            (Some(text), _) => text,
            (None, true) if is_unquoted(value) => {
                notes.remark(
                    position,
                    format!("ldirectord rejects the file here: {name} requires a value in quotes"),
                );
                value.trim_end()
            }
            (None, true) => return Some(Some(format!("{name} requires a value in quotes"))),
            (None, false) => value.trim_end(),
        };
        if text.is_empty() && name != "virtualhost" {
            return Some(Some(format!("{name} has no value")));
        }
        *target = Some((text.to_owned(), position));
        Some(None)
    }

    /// Parses all other directives.
    fn parse_other(
        &mut self,
        name: &str,
        value: &str,
        position: Position,
        notes: &mut Notes,
    ) -> Rejection {
        match name {
            "real" | "real6" => {
                if !self.matches_family(name, value, position, notes) {
                    return Some("virtual6 requires real6, and virtual requires real".to_owned());
                }
                self.real_servers.push((value.to_owned(), position));
            }
            "fallback" | "fallback6" => {
                if !self.matches_family(name, value, position, notes) {
                    return Some(
                        "virtual6 requires fallback6, and virtual requires fallback".to_owned(),
                    );
                }
                self.fallback = Some((value.to_owned(), position));
            }
            "checktype" => match CheckKind::read(value, first_word(value)) {
                Some(kind) => self.kind = (kind, position),
                None => return Some("unknown checktype".to_owned()),
            },
            "service" => {
                let word = first_word(value);
                let is_known = SERVICES.iter().any(|(service, _)| *service == word);
                if !is_known && !FORK_SERVICES.contains(&word) {
                    self.unknown_service = Some(position);
                    return None;
                }
                self.service = Some((word.to_owned(), position));
            }
            "httpmethod" => {
                let word = first_word(value).to_ascii_uppercase();
                if word != "GET" && word != "HEAD" {
                    return Some("httpmethod must be GET or HEAD".to_owned());
                }
                self.method = Some((word, position));
            }
            "scheduler" => return self.parse_scheduler(value, position, notes),
            "schedflags" => {
                let flags = value.split_whitespace().next();
                let Some(flags) = flags else {
                    return Some("schedflags has no value".to_owned());
                };
                // ldirectord passes the flags to ipvsadm through a shell, which removes the quotes.
                self.flags = flags
                    .trim_matches('"')
                    .split(',')
                    .map(|flag| (flag.to_owned(), position))
                    .collect();
            }
            "netmask" => self.netmask = Some((value.to_owned(), position)),
            "protocol" => return self.parse_protocol(first_word(value), position),
            "ops" | "quiescent" | "cleanstop" => {
                // A comment at the end of the line leaves trailing blanks; ldirectord then rejects the value.
                let Some(yes) = parse_yes_no(value) else {
                    return Some(format!("{name} requires yes or no, without trailing text"));
                };
                match name {
                    "ops" => self.ops = yes.then_some(position),
                    "quiescent" => self.quiescent = Some((yes, position)),
                    _ => notes.remark(position, CLEANSTOP),
                }
            }
            _ => return unsupported_directive(name, value, position, notes),
        }
        None
    }

    /// Returns whether `real` or `fallback` matches the service's address family. Adds a note if only the address
    /// matches, not the directive's name.
    fn matches_family(
        &self,
        name: &str,
        value: &str,
        position: Position,
        notes: &mut Notes,
    ) -> bool {
        if name.ends_with('6') == self.ipv6 {
            return true;
        }
        let address_matches = value.starts_with('[') == self.ipv6;
        if address_matches {
            let base_name = name.trim_end_matches('6');
            notes.remark(
                position,
                family_note(&format!("{base_name}{}", if self.ipv6 { "6" } else { "" })),
            );
        }
        address_matches
    }

    fn parse_scheduler(&mut self, value: &str, position: Position, notes: &mut Notes) -> Rejection {
        let is_letter = |c: char| c.is_ascii_lowercase();
        let start = value.find(is_letter).unwrap_or(value.len());
        let tail = &value[start..];
        let word = &tail[..tail.find(|c| !is_letter(c)).unwrap_or(tail.len())];
        if word.is_empty() {
            return Some("the scheduler name must contain lower-case letters".to_owned());
        }
        if is_scheduler(word) {
            self.scheduler = Some((word.to_owned(), position));
        } else {
            notes.add(
                position,
                format!("not imported: IPVS has no scheduler {word}; wrr is used instead"),
            );
        }
        None
    }

    fn parse_protocol(&mut self, word: &str, position: Position) -> Rejection {
        match (&self.target, word) {
            (Target::Mark(_), "fwm") => {}
            (Target::Mark(_), _) => {
                return Some("the protocol of a firewall mark must be fwm".to_owned());
            }
            (_, "tcp") => self.protocol = Some((false, position)),
            (_, "udp") => self.protocol = Some((true, position)),
            _ => return Some("the protocol must be tcp or udp".to_owned()),
        }
        None
    }

    /// Returns `tcp`, `udp` or `fwm`.
    pub(super) fn protocol_name(&self) -> &'static str {
        match (&self.target, self.protocol) {
            (Target::Mark(_), _) => "fwm",
            (_, Some((true, _))) => "udp",
            (_, Some((false, _))) => "tcp",
            (Target::Address(_, port), None) if port == "53" || port == "domain" => "udp",
            (Target::Address(..), None) => "tcp",
        }
    }
}

/// Returns whether a value is not empty and contains no quotes.
fn is_unquoted(value: &str) -> bool {
    !value.trim_end().is_empty() && !value.contains('"')
}

/// Returns the note for a directive of the wrong address family.
fn family_note(name: &str) -> String {
    format!("ldirectord rejects the file here: the address family requires `{name}`")
}

/// Returns the first sequence of letters, digits, `_` and `-`; empty if there is none.
fn first_word(value: &str) -> &str {
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    let tail = &value[value.find(is_word).unwrap_or(value.len())..];
    &tail[..tail.find(|c| !is_word(c)).unwrap_or(tail.len())]
}

/// Handles directives that are not imported: adds notes if ldirectord accepts them, and rejects them otherwise.
fn unsupported_directive(
    name: &str,
    value: &str,
    position: Position,
    notes: &mut Notes,
) -> Rejection {
    match name {
        "load" if quoted(value).is_none_or(str::is_empty) => {
            return Some(format!("{name} requires a value in quotes"));
        }
        "checkcount" if first_number(value).is_none_or(|count| count == 0) => {
            return Some("checkcount requires a number greater than 0".to_owned());
        }
        "emailalertfreq" if first_number(value).is_none() => {
            return Some("emailalertfreq requires a number".to_owned());
        }
        "emailalertstatus" if !is_alert_status(value) => {
            return Some("unknown alert status".to_owned());
        }
        "smtp" | "emailalert" | "monitorfile" if unquoted(value).is_empty() => {
            return Some(format!("{name} has no value"));
        }
        "autoreload" | "callback" | "logfile" | "execute" | "fork" | "supervised"
        | "readdquiescent" | "maintenancedir" | "emailalertfrom" => return unknown_directive(name),
        _ if note_unsupported(notes, name, position) => {}
        _ => return unknown_directive(name),
    }
    None
}

fn parse_target(ipv6: bool, value: &str) -> Result<Target, String> {
    let port_of = |text: &str| {
        let is_port = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        text[..text.find(|c| !is_port(c)).unwrap_or(text.len())].to_owned()
    };
    if value.starts_with('[') {
        let (host, rest) = value.split_once("]:").unwrap_or((value, ""));
        let port = port_of(rest);
        return match (ipv6, port.is_empty()) {
            (false, _) => Err("an IPv6 address requires virtual6".to_owned()),
            (true, false) => Ok(Target::Address(format!("{host}]"), port)),
            (true, true) => Err("the address of the virtual service is invalid".to_owned()),
        };
    }
    if let Some((host, rest)) = value.split_once(':') {
        let is_host_character = |c: char| c.is_ascii_alphanumeric() || "._+-".contains(c);
        let port = port_of(rest);
        if !host.is_empty() && host.chars().all(is_host_character) && !port.is_empty() {
            return Ok(Target::Address(host.to_owned(), port));
        }
    }
    let end = value
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(value.len());
    match value[..end].parse() {
        Ok(mark) => Ok(Target::Mark(mark)),
        Err(_) => Err("the address of the virtual service is invalid".to_owned()),
    }
}

#[cfg(test)]
mod tests;
