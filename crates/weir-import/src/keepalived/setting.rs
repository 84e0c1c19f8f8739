//! Collects settings that a checker inherits from its real server, and a real server from its virtual server.

use super::field::{self, Located};
use super::tree::Node;
use crate::note::Notes;

/// Settings of checks; `None` = not set at this level.
#[derive(Clone, Debug, Default)]
pub(super) struct Settings {
    pub(super) delay_loop: Located<u64>,
    pub(super) connect_timeout: Located<u64>,
    pub(super) retry: Located<u64>,
    pub(super) delay_before_retry: Located<u64>,
    pub(super) alpha: Located<bool>,
    pub(super) inhibit: Located<bool>,
    pub(super) virtualhost: Located<String>,
}

/// The level of a setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Level {
    VirtualServer,
    RealServer,
    Checker,
}

impl Settings {
    /// Reads a directive. Returns whether it is one of these settings.
    pub(super) fn read_line(&mut self, node: &Node, level: Level, notes: &mut Notes) -> bool {
        match node.keyword() {
            "delay_loop" => set(
                &mut self.delay_loop,
                field::parse_seconds(notes, node, false),
            ),
            "connect_timeout" => {
                set(
                    &mut self.connect_timeout,
                    field::parse_seconds(notes, node, false),
                );
            }
            "retry" => {
                let min = u64::from(level != Level::Checker);
                set(
                    &mut self.retry,
                    field::parse_number(notes, node, min, u32::MAX.into()),
                );
            }
            "alpha" => set(&mut self.alpha, field::parse_flag(notes, node)),
            "inhibit_on_failure" if level != Level::Checker => {
                set(&mut self.inhibit, field::parse_flag(notes, node));
            }
            "virtualhost" if level != Level::Checker => {
                set(
                    &mut self.virtualhost,
                    field::parse_word(notes, node, "a name"),
                );
            }
            "delay_before_retry" => {
                set(
                    &mut self.delay_before_retry,
                    field::parse_seconds(notes, node, true),
                );
            }
            "warmup" => {
                if field::parse_seconds(notes, node, true).is_some() {
                    let reason =
                        "not imported: Weir itself spreads the first probes over the interval";
                    notes.remark(node.position, reason);
                }
            }
            _ => return false,
        }
        true
    }

    /// Returns these settings, completed with those of `outer`.
    pub(super) fn with_defaults(self, outer: &Self) -> Self {
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

    /// Adds a remark to each setting, because no check uses it.
    pub(super) fn note_unused(&self, notes: &mut Notes) {
        let positions = [
            self.delay_loop.map(|(_, position)| position),
            self.connect_timeout.map(|(_, position)| position),
            self.retry.map(|(_, position)| position),
            self.delay_before_retry.map(|(_, position)| position),
            self.alpha.map(|(_, position)| position),
            self.inhibit.map(|(_, position)| position),
            self.virtualhost.as_ref().map(|(_, position)| *position),
        ];
        for position in positions.into_iter().flatten() {
            notes.remark(position, "not imported: no check uses this setting");
        }
    }
}

fn set<T>(setting: &mut Located<T>, new: Located<T>) {
    if new.is_some() {
        *setting = new;
    }
}
