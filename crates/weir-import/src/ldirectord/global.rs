//! Global lines: what holds for every virtual service that says nothing else.

use std::cell::RefCell;
use std::collections::HashSet;

use super::real::{Fallback, fallback};
use super::{Refusal, digits, directive, fatal, quoted, yes_no};
use crate::World;
use crate::inert;
use crate::note::{Notes, Place};

/// A number and the line that says it.
pub(super) type Number = Option<(u64, Place)>;

/// What the global lines say.
#[derive(Debug, Default)]
pub(super) struct Globals {
    pub(super) check_timeout: Number,
    pub(super) negotiate_timeout: Number,
    pub(super) check_interval: Number,
    pub(super) failure_count: Number,
    pub(super) quiescent: Option<(bool, Place)>,
    /// Each virtual service has a process, and an interval, of its own.
    pub(super) fork: bool,
    pub(super) fallback: Option<Fallback>,
    pub(super) fallback6: Option<Fallback>,
    /// Lines that a check has something of.
    pub(super) used: RefCell<HashSet<Place>>,
}

/// Directives that both kinds of lines know and weir.toml does not.
pub(super) const ELSEWHERE: &[(&str, &str)] = &[
    ("emailalert", MAIL),
    ("emailalertfreq", MAIL),
    ("emailalertstatus", MAIL),
    ("emailalertfrom", MAIL),
    ("smtp", MAIL),
    (
        "fallbackcommand",
        "`notify` of a pool calls a program on every change of a server",
    ),
    (
        "cleanstop",
        "services stay in the kernel when the daemon ends, until `weir clean`",
    ),
    (
        "monitorfile",
        "`weir status` shows states and their reasons",
    ),
    ("autoreload", "`weir reload` reads the file again"),
    (
        "callback",
        "`notify` of a pool calls a program on every change of a server",
    ),
    ("logfile", "Weir logs to standard error; the unit keeps it"),
    (
        "execute",
        "it starts another ldirectord: import that file too, and put the two together",
    ),
    ("fork", "probes of Weir never wait for each other"),
    ("supervised", "`weir run` stays in the foreground"),
    (
        "readdquiescent",
        "a server that comes back gets its weight; `slow_start` lets it grow",
    ),
    (
        "maintenancedir",
        "`weir server POOL/ADDRESS maint` takes a server out, and keeps it out",
    ),
    (
        "checkcount",
        "ldirectord itself has dropped it for failurecount",
    ),
    ("load", "ldirectord reads it and does nothing with it"),
    ("comment", "a remark"),
    ("servicename", "a remark"),
    ("secret", "there is no RADIUS check, which it would be for"),
    ("passwd", "checks of Weir log in nowhere"),
    ("database", "checks of Weir log in nowhere"),
];

const MAIL: &str = "Weir sends no mail; `notify` of a pool calls a program";

/// Says of a line that it has no place.
pub(super) fn elsewhere(notes: &mut Notes, name: &str, place: Place) -> bool {
    let known = ELSEWHERE.iter().find(|(known, _)| *known == name);
    if let Some((_, why)) = known {
        notes.weigh(place, inert::ldirectord(name));
        notes.say(place, format!("not carried over: {why}"));
    }
    known.is_some()
}

impl Globals {
    /// Says of lines about checks that no check has anything of them.
    pub(super) fn unused(&self, notes: &mut Notes) {
        let numbers = [
            self.check_timeout,
            self.negotiate_timeout,
            self.check_interval,
            self.failure_count,
        ];
        let numbers = numbers.into_iter().flatten().map(|(_, place)| place);
        let quiescent = self.quiescent.map(|(_, place)| place);
        let fallbacks = [&self.fallback, &self.fallback6];
        let fallbacks = fallbacks.into_iter().flatten().map(|of| of.place);
        for place in numbers.chain(quiescent).chain(fallbacks) {
            if !self.used.borrow().contains(&place) && !notes.speaks_of(place) {
                notes.remark(
                    place,
                    "not carried over: no virtual service has it from here",
                );
            }
        }
    }

    pub(super) fn line(&mut self, line: &str, place: Place, world: &dyn World, notes: &mut Notes) {
        if line.trim().is_empty() || line.trim_start().starts_with('#') {
            return;
        }
        let refusal = match directive(line) {
            _ if line.starts_with("supervised") => supervised(line, place, notes),
            Some((name, value)) => self.directive(name, value, place, world, notes),
            None => unknown(line),
        };
        if let Some(why) = refusal {
            fatal(notes, place, &why);
        }
    }

    fn directive(
        &mut self,
        name: &str,
        value: &str,
        place: Place,
        world: &dyn World,
        notes: &mut Notes,
    ) -> Refusal {
        let number = digits(value).filter(|number| *number > 0);
        let target = match name {
            "checktimeout" => Some(&mut self.check_timeout),
            "negotiatetimeout" => Some(&mut self.negotiate_timeout),
            "checkinterval" => Some(&mut self.check_interval),
            "failurecount" => Some(&mut self.failure_count),
            _ => None,
        };
        if let Some(target) = target {
            let Some(number) = number else {
                return Some(format!("{name} wants a number above 0"));
            };
            *target = Some((number, place));
            return None;
        }
        match name {
            "connecttimeout" | "timeout" => {
                return Some(
                    "this directive gave way to checktimeout and negotiatetimeout".to_owned(),
                );
            }
            "quiescent" | "fork" | "autoreload" | "cleanstop" | "readdquiescent" => {
                let Some(yes) = yes_no(value) else {
                    return Some(format!("{name} wants yes or no, and nothing behind it"));
                };
                match name {
                    "quiescent" => self.quiescent = Some((yes, place)),
                    "fork" => self.fork = yes,
                    _ => {}
                }
            }
            "fallback" | "fallback6" => return self.fallback(name, value, place, world),
            "checkcount" if number.is_none() => {
                return Some("checkcount wants a number above 0".to_owned());
            }
            "emailalertfreq" if digits(value).is_none() => {
                return Some("emailalertfreq wants a number".to_owned());
            }
            "emailalertstatus" if !alert_status(value) => {
                return Some("there is no such status to mail about".to_owned());
            }
            "callback" | "logfile" if quoted(value).is_none() => {
                return Some(format!("{name} wants its value in quotes"));
            }
            "emailalert" | "emailalertfrom" | "fallbackcommand" | "maintenancedir" | "smtp"
                if value.is_empty() =>
            {
                return Some(format!("{name} has no value"));
            }
            "secret" | "passwd" | "database" | "load" | "comment" | "servicename"
            | "monitorfile" => {
                return unknown(name);
            }
            _ => {}
        }
        if name == "quiescent" || elsewhere(notes, name, place) {
            return None;
        }
        unknown(name)
    }

    fn fallback(&mut self, name: &str, value: &str, place: Place, world: &dyn World) -> Refusal {
        let ipv6 = name == "fallback6";
        match fallback(value, ipv6, 0, place, world) {
            Ok(found) if ipv6 => self.fallback6 = Some(found),
            Ok(found) => self.fallback = Some(found),
            Err(why) => return Some(why),
        }
        None
    }
}

fn supervised(line: &str, place: Place, notes: &mut Notes) -> Refusal {
    elsewhere(notes, "supervised", place);
    let rest = line["supervised".len()..].trim_end_matches('\r');
    let valid = match super::value(rest) {
        Some(value) => yes_no(value).is_some(),
        None => rest.trim().is_empty(),
    };
    (!valid).then(|| "supervised wants yes or no, and nothing behind it".to_owned())
}

pub(super) fn unknown(line: &str) -> Refusal {
    Some(format!("it knows no command {}", line.trim()))
}

/// `all`, `none`, or some of the daemon's states.
pub(super) fn alert_status(value: &str) -> bool {
    let words: Vec<&str> = value.split(',').map(str::trim).collect();
    let known = [
        "all",
        "none",
        "starting",
        "stopping",
        "running",
        "reloading",
    ];
    let none = words.contains(&"none");
    words
        .iter()
        .all(|word| known.contains(word) && (!none || *word == "none"))
}
