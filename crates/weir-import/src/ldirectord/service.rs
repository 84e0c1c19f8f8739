//! `virtual=` and what is indented below it.

mod write;

use super::check::CheckKind;
use super::global::{Number, alert_status, elsewhere, unknown};
use super::{Refusal, bare, digits, directive, fatal, quoted, yes_no};
use crate::layer4::is_scheduler;
use crate::note::{Notes, Place};

/// Services that ldirectord can talk to, and their ports; 0 = none.
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

/// Who the service is, as it is written.
#[derive(Clone, Debug)]
enum Target {
    Mark(u64),
    Address(String, String),
}

/// A text and the line that says it.
pub(super) type Text = Option<(String, Place)>;

/// A virtual service while it is read.
#[derive(Clone, Debug)]
pub(super) struct Section {
    pub(super) place: Place,
    ipv6: bool,
    target: Target,
    protocol: Option<(bool, Place)>,
    scheduler: Text,
    flags: Vec<(String, Place)>,
    persistent: Number,
    netmask: Text,
    ops: Option<Place>,
    fallback: Text,
    reals: Vec<(String, Place)>,
    /// Every line.
    lines: Vec<Place>,
    quiescent: Option<(bool, Place)>,
    pub(super) kind: (CheckKind, Place),
    pub(super) service: Text,
    pub(super) command: Text,
    pub(super) port: Number,
    pub(super) request: Text,
    pub(super) receive: Text,
    pub(super) method: Text,
    pub(super) host: Text,
    pub(super) login: Text,
    pub(super) check_timeout: Number,
    pub(super) negotiate_timeout: Number,
    pub(super) check_interval: Number,
    pub(super) failure_count: Number,
}

impl Section {
    /// `None` = nothing that ldirectord takes.
    pub(super) fn open(
        (ipv6, value): (bool, &str),
        place: Place,
        notes: &mut Notes,
    ) -> Option<Self> {
        let target = match target(ipv6, value) {
            Ok(target) => target,
            Err(why) => {
                fatal(notes, place, &why);
                return None;
            }
        };
        Some(Self {
            place,
            ipv6,
            target,
            protocol: None,
            scheduler: None,
            flags: Vec::new(),
            persistent: None,
            netmask: None,
            ops: None,
            fallback: None,
            reals: Vec::new(),
            lines: Vec::new(),
            quiescent: None,
            kind: (CheckKind::Negotiate, place),
            service: None,
            command: None,
            port: None,
            request: None,
            receive: None,
            method: None,
            host: None,
            login: None,
            check_timeout: None,
            negotiate_timeout: None,
            check_interval: None,
            failure_count: None,
        })
    }

    pub(super) fn line(&mut self, line: &str, place: Place, notes: &mut Notes) {
        self.lines.push(place);
        let refusal = match directive(line) {
            Some((name, value)) => self
                .number(name, value, place)
                .or_else(|| self.text(name, value, place))
                .unwrap_or_else(|| self.word(name, value, place, notes)),
            None => unknown(line),
        };
        if let Some(why) = refusal {
            fatal(notes, place, &why);
        }
    }

    /// Directives with a number; `None` = it is none of them.
    fn number(&mut self, name: &str, value: &str, place: Place) -> Option<Refusal> {
        let target = match name {
            "checktimeout" => &mut self.check_timeout,
            "negotiatetimeout" => &mut self.negotiate_timeout,
            "checkinterval" => &mut self.check_interval,
            "failurecount" => &mut self.failure_count,
            "checkport" => &mut self.port,
            "persistent" => &mut self.persistent,
            _ => return None,
        };
        let most = if name == "checkport" {
            65_535
        } else {
            u64::MAX
        };
        let number =
            digits(value).filter(|number| (*number > 0 || name == "persistent") && *number <= most);
        Some(match number {
            Some(number) => {
                *target = Some((number, place));
                None
            }
            None => Some(format!("{name} wants a number above 0")),
        })
    }

    /// Directives with a text; `None` = it is none of them.
    fn text(&mut self, name: &str, value: &str, place: Place) -> Option<Refusal> {
        let (target, must_be_quoted) = match name {
            "request" => (&mut self.request, true),
            "receive" => (&mut self.receive, true),
            "login" => (&mut self.login, true),
            "checkcommand" => (&mut self.command, false),
            "virtualhost" => (&mut self.host, false),
            _ => return None,
        };
        let text = match (quoted(value), must_be_quoted) {
            (Some(text), _) => text,
            (None, true) => return Some(Some(format!("{name} wants its value in quotes"))),
            (None, false) => value.trim_end(),
        };
        if text.is_empty() && name != "virtualhost" {
            return Some(Some(format!("{name} has no value")));
        }
        *target = Some((text.to_owned(), place));
        Some(None)
    }

    fn word(&mut self, name: &str, value: &str, place: Place, notes: &mut Notes) -> Refusal {
        match name {
            "real" | "real6" => {
                if (name == "real6") != self.ipv6 {
                    return Some("real6 is for virtual6, and real for virtual".to_owned());
                }
                self.reals.push((value.to_owned(), place));
            }
            "fallback" | "fallback6" => {
                if (name == "fallback6") != self.ipv6 {
                    return Some("fallback6 is for virtual6, and fallback for virtual".to_owned());
                }
                self.fallback = Some((value.to_owned(), place));
            }
            "checktype" => match CheckKind::read(value, first_word(value)) {
                Some(kind) => self.kind = (kind, place),
                None => return Some("there is no such checktype".to_owned()),
            },
            "service" => {
                let word = first_word(value);
                if !SERVICES.iter().any(|(known, _)| *known == word) {
                    return Some("it can talk to no such service".to_owned());
                }
                self.service = Some((word.to_owned(), place));
            }
            "httpmethod" => {
                let word = first_word(value).to_ascii_uppercase();
                if word != "GET" && word != "HEAD" {
                    return Some("httpmethod must be GET or HEAD".to_owned());
                }
                self.method = Some((word, place));
            }
            "scheduler" => return self.scheduler(value, place, notes),
            "schedflags" => {
                let flags = value.split_whitespace().next();
                let Some(flags) = flags else {
                    return Some("schedflags has no value".to_owned());
                };
                // It goes through a shell to ipvsadm.
                self.flags = flags
                    .trim_matches('"')
                    .split(',')
                    .map(|flag| (flag.to_owned(), place))
                    .collect();
            }
            "netmask" => self.netmask = Some((value.to_owned(), place)),
            "protocol" => return self.protocol(first_word(value), place),
            "ops" | "quiescent" | "cleanstop" => {
                // A comment behind it leaves its blanks, and they are not "yes".
                let Some(yes) = yes_no(value) else {
                    return Some(format!("{name} wants yes or no, and nothing behind it"));
                };
                match name {
                    "ops" => self.ops = yes.then_some(place),
                    "quiescent" => self.quiescent = Some((yes, place)),
                    _ => {
                        elsewhere(notes, name, place);
                    }
                }
            }
            _ => return unplaced(name, value, place, notes),
        }
        None
    }

    fn scheduler(&mut self, value: &str, place: Place, notes: &mut Notes) -> Refusal {
        let letter = |c: char| c.is_ascii_lowercase();
        let start = value.find(letter).unwrap_or(value.len());
        let rest = &value[start..];
        let word = &rest[..rest.find(|c| !letter(c)).unwrap_or(rest.len())];
        if word.is_empty() {
            return Some("a scheduler has small letters".to_owned());
        }
        if is_scheduler(word) {
            self.scheduler = Some((word.to_owned(), place));
        } else {
            notes.say(
                place,
                format!("not carried over: IPVS has no scheduler {word}; wrr in its place"),
            );
        }
        None
    }

    fn protocol(&mut self, word: &str, place: Place) -> Refusal {
        match (&self.target, word) {
            (Target::Mark(_), "fwm") => {}
            (Target::Mark(_), _) => return Some("a firewall mark has the protocol fwm".to_owned()),
            (_, "tcp") => self.protocol = Some((false, place)),
            (_, "udp") => self.protocol = Some((true, place)),
            _ => return Some("the protocol must be tcp or udp".to_owned()),
        }
        None
    }

    /// `tcp`, `udp` or `fwm`.
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

/// The first run of letters, digits, `_` and `-`.
fn first_word(value: &str) -> &str {
    let word = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    let rest = &value[value.find(word).unwrap_or(value.len())..];
    &rest[..rest.find(|c| !word(c)).unwrap_or(rest.len())]
}

/// Directives that have no place, as far as ldirectord takes them.
fn unplaced(name: &str, value: &str, place: Place, notes: &mut Notes) -> Refusal {
    match name {
        "connecttimeout" => {
            return Some("this directive gave way to negotiatetimeout".to_owned());
        }
        "passwd" | "database" | "secret" | "load" if quoted(value).is_none_or(str::is_empty) => {
            return Some(format!("{name} wants a value in quotes"));
        }
        "checkcount" if digits(value).is_none_or(|count| count == 0) => {
            return Some("checkcount wants a number above 0".to_owned());
        }
        "emailalertfreq" if digits(value).is_none() => {
            return Some("emailalertfreq wants a number".to_owned());
        }
        "emailalertstatus" if !alert_status(value) => {
            return Some("there is no such status to mail about".to_owned());
        }
        "smtp" | "emailalert" | "fallbackcommand" | "monitorfile" if bare(value).is_empty() => {
            return Some(format!("{name} has no value"));
        }
        "autoreload" | "callback" | "logfile" | "execute" | "fork" | "supervised"
        | "readdquiescent" | "maintenancedir" | "emailalertfrom" => return unknown(name),
        _ if elsewhere(notes, name, place) => {}
        _ => return unknown(name),
    }
    None
}

fn target(ipv6: bool, value: &str) -> Result<Target, String> {
    let port_of = |text: &str| {
        let is_port = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        text[..text.find(|c| !is_port(c)).unwrap_or(text.len())].to_owned()
    };
    if value.starts_with('[') {
        let (host, rest) = value.split_once("]:").unwrap_or((value, ""));
        let port = port_of(rest);
        return match (ipv6, port.is_empty()) {
            (false, _) => Err("an address of IPv6 wants virtual6".to_owned()),
            (true, false) => Ok(Target::Address(format!("{host}]"), port)),
            (true, true) => Err("the address of the virtual service is invalid".to_owned()),
        };
    }
    if let Some((host, rest)) = value.split_once(':') {
        let name = |c: char| c.is_ascii_alphanumeric() || "._+-".contains(c);
        let port = port_of(rest);
        if !host.is_empty() && host.chars().all(name) && !port.is_empty() {
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
