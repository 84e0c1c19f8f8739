//! What only the owner of the daemon may put into a configuration: programs that run, files that are read or written, and who may
//! control Weir.
//!
//! The daemon has rights that most of those who may bring a configuration lack: members of `socket_group` and holders of a write
//! token. They may send a whole configuration as text. What it says under a key of [`PRIVILEGED`] must be what the active
//! configuration says; everything else is theirs to change. Taking such a key out is allowed, but for those that decide who controls the daemon: their absence
//! may admit more.
//!
//! Both texts are read as trees, before any meaning is looked for: so keys that are kept for a later build count too, and every
//! finding has its place.

use std::collections::HashMap;
use std::ops::Range;

use toml::de::DeTable;

use crate::catalog;
use crate::code::Code;
use crate::diagnostic::{Diagnostic, Lines};
use crate::json;
use crate::key::{Kind, Section};
use crate::tree::{Entry, Item, Table, Value};

/// What a key can gain for whoever sets it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Gain {
    /// A program runs. It stays what it is, where it is.
    Program,
    /// A file is read. One that the active configuration names by the same key is no gain, wherever it is named again.
    Read,
    /// A file is written; likewise.
    Write,
    /// Others may control the daemon. It stays what it is.
    Control,
}

/// The keys, by the page of their section. A test fails where a key of the catalog that could be one of them is neither here nor in
/// that test's own list.
const PRIVILEGED: &[(&str, &str, Gain)] = &[
    ("node", "admin", Gain::Control),
    ("node", "socket_group", Gain::Control),
    ("node", "socket_mode", Gain::Control),
    ("node-admin", "listen", Gain::Control),
    ("node-admin", "tokens", Gain::Control),
    ("node-admin", "hosts", Gain::Control),
    ("node-admin", "read_requires_token", Gain::Control),
    ("check", "command", Gain::Program),
    ("check", "user", Gain::Program),
    ("check", "ca", Gain::Read),
    ("check", "file", Gain::Read),
    ("pool", "notify", Gain::Program),
    ("pool", "servers_file", Gain::Read),
    ("pool-tls", "ca", Gain::Read),
    ("pool-tls", "certificate", Gain::Read),
    ("service-tls", "certificates", Gain::Read),
    ("service-tls", "client_ca", Gain::Read),
    ("error-pages", "file", Gain::Read),
    ("service", "access_log", Gain::Write),
    ("access-log", "path", Gain::Write),
    ("vrrp", "notify", Gain::Program),
    ("vrrp", "notify_master", Gain::Program),
    ("vrrp", "notify_backup", Gain::Program),
    ("vrrp", "notify_fault", Gain::Program),
    ("vrrp", "notify_stop", Gain::Program),
    ("vrrp-track", "script", Gain::Program),
    ("vrrp-track", "user", Gain::Program),
    ("vrrp-track", "file", Gain::Read),
];

fn gain(section: &Section, key: &str) -> Option<Gain> {
    // Wherever a secret is kept, the daemon reads it.
    if section.page == catalog::SECRET.page {
        return Some(Gain::Read);
    }
    let mut table = PRIVILEGED.iter();
    let found = table.find(|(page, name, _)| *page == section.page && *name == key);
    found.map(|(_, _, gain)| *gain)
}

/// What of `proposed` only the owner may bring, because `active` does not have it; in the order of the text, each with its place.
/// Both are TOML or, where they begin with `{`, JSON. `active` was accepted; of a `proposed` that is malformed this finds what
/// can be read of it.
pub fn privileged_changes(active: &str, proposed: &str) -> Vec<Diagnostic> {
    let mut had: HashMap<Identity, usize> = HashMap::new();
    let mut control: Vec<Use> = Vec::new();
    for used in uses(active) {
        *had.entry(used.identity.clone()).or_default() += 1;
        if used.gain == Gain::Control {
            control.push(used);
        }
    }
    let lines = Lines::new(proposed);
    let wanted = uses(proposed);
    control.retain(|used| !wanted.iter().any(|other| other.is_of_same_key(used)));
    let gone = control.into_iter().map(|used| Use { span: 0..0, ..used });
    let news = wanted.into_iter().filter(|used| !take(&mut had, used));
    let mut found: Vec<Diagnostic> = news
        .chain(gone)
        .map(|used| used.diagnostic(&lines))
        .collect();
    found.sort_by_key(|diagnostic| diagnostic.span.start);
    found
}

/// Whether the active configuration has it. A program that is written twice runs twice; a file that is read is read.
fn take(had: &mut HashMap<Identity, usize>, used: &Use) -> bool {
    let Some(count) = had.get_mut(&used.identity) else {
        return false;
    };
    if used.gain != Gain::Program {
        return true;
    }
    let is_left = *count > 0;
    *count = count.saturating_sub(1);
    is_left
}

/// What must be the same for a use to be the same.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Identity {
    page: &'static str,
    /// Empty where any place is as good.
    place: String,
    key: &'static str,
    value: String,
}

/// A privileged key that is written.
#[derive(Debug)]
struct Use {
    identity: Identity,
    gain: Gain,
    span: Range<usize>,
    /// The key as it is written.
    key: &'static str,
    /// Where, as an operator would say it.
    place: String,
}

impl Use {
    fn is_of_same_key(&self, other: &Self) -> bool {
        let (one, other) = (&self.identity, &other.identity);
        (one.page, one.key, &one.place) == (other.page, other.key, &other.place)
    }

    fn diagnostic(&self, lines: &Lines<'_>) -> Diagnostic {
        let (key, place) = (self.key, &self.place);
        let (what, cause) = match self.gain {
            Gain::Program => (
                "would run a program that the active configuration does not run there",
                "programs run with rights of the daemon, or as an account that the configuration names",
            ),
            Gain::Read => (
                "names a file that the active configuration does not read by this key",
                "files are read with the rights of the daemon",
            ),
            Gain::Write => (
                "names a file that the active configuration does not write by this key",
                "files are written with the rights of the daemon",
            ),
            Gain::Control => (
                "is not what it is in the active configuration",
                "it decides who may control the daemon",
            ),
        };
        let message = format!("`{key}` of {place} {what}");
        let mut diagnostic = Diagnostic::new(Code::OwnerOnly, &self.span, message)
            .cause(cause)
            .fix("leave it as it is in the active configuration, or have root or the user that runs Weir reload it");
        diagnostic.at = lines.source(self.span.start);
        diagnostic
    }
}

fn uses(text: &str) -> Vec<Use> {
    let root = if text.trim_start().starts_with('{') {
        match json::read(text) {
            Ok((
                Item {
                    value: Value::Table(root),
                    ..
                },
                _,
            )) => root,
            _ => Table::default(),
        }
    } else {
        Table::from_toml(DeTable::parse_recoverable(text).0.into_inner())
    };
    let mut walk = Walk { uses: Vec::new() };
    walk.table(&catalog::ROOT, &root, "");
    walk.uses
}

struct Walk {
    uses: Vec<Use>,
}

impl Walk {
    fn table(&mut self, section: &'static Section, table: &Table<'_>, place: &str) {
        let program = section.page == catalog::CHECK.page && is_script(table);
        for entry in &table.entries {
            let Some(key) = section.key(&entry.key) else {
                continue;
            };
            let inner = join(place, key.name);
            match gain(section, key.name) {
                // A table of its own says which of its keys names the file.
                Some(Gain::Write) if matches!(entry.item.value, Value::Table(_)) => {}
                Some(Gain::Program) if section.page == catalog::CHECK.page => {}
                // All that is inside is part of it.
                Some(Gain::Control) => {
                    self.one(section, key.name, Gain::Control, entry, place);
                    continue;
                }
                Some(gain) => self.one(section, key.name, gain, entry, place),
                None => {}
            }
            self.value(&key.kind, &entry.item, &inner);
        }
        if program {
            self.script(table, place);
        }
    }

    fn value(&mut self, kind: &'static Kind, item: &Item<'_>, place: &str) {
        match (kind, &item.value) {
            (Kind::Either(first, second), _) => {
                self.value(first, item, place);
                self.value(second, item, place);
            }
            (Kind::Secret, Value::Table(table)) => self.table(&catalog::SECRET, table, place),
            (Kind::Table(section), Value::Table(table)) => {
                self.table(section, table, &join_address(place, section, table));
            }
            (Kind::Named(section), Value::Table(tables)) => {
                for named in &tables.entries {
                    if let Value::Table(table) = &named.item.value {
                        self.table(section, table, &join(place, &named.key));
                    }
                }
            }
            (Kind::List(of), Value::List(items)) => {
                for item in items {
                    self.value(of, item, place);
                }
            }
            _ => {}
        }
    }

    fn one(
        &mut self,
        section: &'static Section,
        key: &'static str,
        gain: Gain,
        entry: &Entry<'_>,
        place: &str,
    ) {
        let value = plain(&entry.item.value);
        // Standard output is no file.
        if gain == Gain::Write && value == plain(&Value::Text("-".into())) {
            return;
        }
        let bound = matches!(gain, Gain::Program | Gain::Control);
        // `access_log = FILE` is short for a table with `path`.
        let (page, name) = match (section.page, key) {
            ("service", "access_log") => ("access-log", "path"),
            (page, key) => (page, key),
        };
        self.uses.push(Use {
            identity: Identity {
                page,
                place: if bound {
                    place.to_owned()
                } else {
                    String::new()
                },
                key: name,
                value,
            },
            gain,
            span: entry.key_span.clone(),
            key,
            place: heading(place),
        });
    }

    /// A check that runs a program is one thing: account, arguments, and how often.
    fn script(&mut self, table: &Table<'_>, place: &str) {
        let is = |entry: &&Entry<'_>| entry.key == "command";
        let Some(command) = table.entries.iter().find(is) else {
            return;
        };
        self.uses.push(Use {
            identity: Identity {
                page: catalog::CHECK.page,
                place: place.to_owned(),
                key: "command",
                value: plain_table(table),
            },
            gain: Gain::Program,
            span: command.key_span.clone(),
            key: "command",
            place: heading(place),
        });
    }
}

fn is_script(table: &Table<'_>) -> bool {
    let mut kinds = table.entries.iter().filter(|entry| entry.key == "kind");
    kinds.any(|kind| matches!(&kind.item.value, Value::Text(kind) if kind == "script"))
}

fn join(place: &str, name: &str) -> String {
    if place.is_empty() {
        name.to_owned()
    } else {
        format!("{place}.{name}")
    }
}

/// Servers in a list are identified by their addresses.
fn join_address(place: &str, section: &Section, table: &Table<'_>) -> String {
    let mut entries = table.entries.iter();
    let address = entries.find(|entry| entry.key == "address");
    match address.map(|entry| &entry.item.value) {
        Some(Value::Text(address)) if section.page == catalog::SERVER.page => {
            format!("{place}.{address}")
        }
        _ => place.to_owned(),
    }
}

fn heading(place: &str) -> String {
    format!("[{}]", place.escape_debug())
}

/// A value without its places, the same for the same value in TOML and JSON.
fn plain(value: &Value<'_>) -> String {
    match value {
        Value::Text(text) => format!("{text:?}"),
        Value::Integer(number) => format!("{number:?}"),
        Value::Float(number) => format!("{number:?}"),
        Value::Bool(value) => value.to_string(),
        Value::Datetime => "datetime".to_owned(),
        Value::Null => "null".to_owned(),
        Value::List(items) => {
            let items: Vec<String> = items.iter().map(|item| plain(&item.value)).collect();
            format!("[{}]", items.join(","))
        }
        Value::Table(table) => plain_table(table),
    }
}

fn plain_table(table: &Table<'_>) -> String {
    let pair = |entry: &Entry<'_>| format!("{:?}:{}", entry.key, plain(&entry.item.value));
    let mut pairs: Vec<String> = table.entries.iter().map(pair).collect();
    pairs.sort_unstable();
    format!("{{{}}}", pairs.join(","))
}

#[cfg(test)]
mod tests;
