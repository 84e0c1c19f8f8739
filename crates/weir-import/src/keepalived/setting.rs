//! What a checker has from its real server, and that from its virtual server, unless it says otherwise.

use super::field::{self, Of};
use super::tree::Node;
use crate::note::Notes;

/// Times and counts of checks.
#[derive(Clone, Debug, Default)]
pub(super) struct Settings {
    pub(super) delay_loop: Of<u64>,
    pub(super) connect_timeout: Of<u64>,
    pub(super) retry: Of<u64>,
    pub(super) delay_before_retry: Of<u64>,
    pub(super) alpha: Of<bool>,
    pub(super) inhibit: Of<bool>,
    pub(super) virtualhost: Of<String>,
}

/// Where a setting stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Level {
    Virtual,
    Real,
    Checker,
}

impl Settings {
    /// Takes the directive if it is one of these.
    pub(super) fn take(&mut self, node: &Node, level: Level, notes: &mut Notes) -> bool {
        match node.keyword() {
            "delay_loop" => replace(&mut self.delay_loop, field::timer(notes, node, false)),
            "connect_timeout" => {
                replace(&mut self.connect_timeout, field::timer(notes, node, false));
            }
            "retry" => {
                let least = u64::from(level != Level::Checker);
                replace(
                    &mut self.retry,
                    field::number(notes, node, least, u32::MAX.into()),
                );
            }
            "alpha" => replace(&mut self.alpha, field::flag(notes, node)),
            "inhibit_on_failure" if level != Level::Checker => {
                replace(&mut self.inhibit, field::flag(notes, node));
            }
            "virtualhost" if level != Level::Checker => {
                replace(&mut self.virtualhost, field::word(notes, node, "a name"));
            }
            "delay_before_retry" => {
                replace(
                    &mut self.delay_before_retry,
                    field::timer(notes, node, true),
                );
            }
            "warmup" => {
                if field::timer(notes, node, true).is_some() {
                    let why =
                        "not carried over: Weir spreads first probes over the interval itself";
                    notes.say(node.place, why);
                }
            }
            _ => return false,
        }
        true
    }

    /// These, and from `outer` what is missing.
    pub(super) fn within(self, outer: &Self) -> Self {
        Self {
            delay_loop: self.delay_loop.or(outer.delay_loop),
            connect_timeout: self.connect_timeout.or(outer.connect_timeout),
            retry: self.retry.or(outer.retry),
            delay_before_retry: self.delay_before_retry.or(outer.delay_before_retry),
            alpha: self.alpha.or(outer.alpha),
            inhibit: self.inhibit.or(outer.inhibit),
            virtualhost: self.virtualhost.or_else(|| outer.virtualhost.clone()),
        }
    }

    /// Says that nothing is checked.
    pub(super) fn unused(&self, notes: &mut Notes) {
        let places = [
            self.delay_loop.map(|(_, place)| place),
            self.connect_timeout.map(|(_, place)| place),
            self.retry.map(|(_, place)| place),
            self.delay_before_retry.map(|(_, place)| place),
            self.alpha.map(|(_, place)| place),
            self.inhibit.map(|(_, place)| place),
            self.virtualhost.as_ref().map(|(_, place)| *place),
        ];
        for place in places.into_iter().flatten() {
            notes.say(
                place,
                "not carried over: there is no check that it could be for",
            );
        }
    }
}

fn replace<T>(setting: &mut Of<T>, new: Of<T>) {
    if new.is_some() {
        *setting = new;
    }
}
