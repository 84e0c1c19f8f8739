//! Finds changes to a configuration that only the owner of the daemon may make.
//!
//! These are changes to programs to run, to files to read or write, to environment variables and Unix sockets to use,
//! and to access control.
//!
//! The daemon has more privileges than most users who may upload a configuration: members of `socket_group` and holders
//! of a write token. An uploaded configuration may add or change a key of [`PRIVILEGED`] only as far as its
//! [`Privilege`] permits; everything else may change. A key of [`PRIVILEGED`] may be removed, except an access control
//! key, because its removal could grant access.
//!
//! Both texts are compared as trees before lowering, so the comparison includes keys that are not implemented, and
//! every diagnostic has a position.

mod files;

use std::collections::HashMap;
use std::ops::Range;

use crate::catalog;
use crate::code::Code;
use crate::defaults;
use crate::diagnostic::{Diagnostic, Lines};
use crate::environment;
use crate::include;
use crate::key::{Kind, Section};
use crate::tree::{Entry, Item, Table, Value};
use crate::view::Sink;
use weir_model::unix_socket;

pub use files::{FileUse, NamedFile, named_files};

/// The privilege that a key grants to the user who sets it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Privilege {
    /// Runs a program. The value must not change or move.
    Program,
    /// Reads a file. A file that the active configuration uses with the same key is allowed in any table.
    Read,
    /// Reads TLS certificates or keys; no client can read these files. The rule of `Read` applies; a published
    /// configuration may also name the files in `[cluster] files`.
    Certificates,
    /// Writes a file; the rule of `Read` applies.
    Write,
    /// Controls access to the daemon. The value must not change.
    Control,
    /// Reads an environment variable of the daemon. A variable that the active configuration uses is allowed in any
    /// address.
    Environment,
    /// Connects to a Unix socket. A socket that the active configuration uses is allowed in any pool.
    Connect,
}

/// Privileged keys, with the page of their section. A test fails if a key in the catalog that could be privileged is
/// neither here nor in the test's list of exceptions.
const PRIVILEGED: &[(&str, &str, Privilege)] = &[
    ("node", "admin", Privilege::Control),
    ("node", "socket_group", Privilege::Control),
    ("node", "socket_mode", Privilege::Control),
    ("node-admin", "listen", Privilege::Control),
    ("node-admin", "tokens", Privilege::Control),
    ("node-admin", "hosts", Privilege::Control),
    ("node-admin", "read_requires_token", Privilege::Control),
    ("check", "command", Privilege::Program),
    ("check", "user", Privilege::Program),
    ("check", "ca", Privilege::Certificates),
    ("check", "file", Privilege::Read),
    ("pool", "notify", Privilege::Program),
    ("pool", "servers_file", Privilege::Read),
    ("pool-tls", "ca", Privilege::Certificates),
    ("pool-tls", "certificate", Privilege::Certificates),
    ("service", "cgroup", Privilege::Read),
    ("service-tls", "certificates", Privilege::Certificates),
    ("service-tls", "client_ca", Privilege::Certificates),
    ("service-tls", "client_crl", Privilege::Certificates),
    ("address-file", "file", Privilege::Read),
    ("host-file", "file", Privilege::Read),
    ("basic-auth", "file", Privilege::Read),
    ("map", "file", Privilege::Read),
    ("route", "files", Privilege::Read),
    ("files", "root", Privilege::Read),
    ("error-pages", "file", Privilege::Read),
    ("service", "access_log", Privilege::Write),
    ("access-log", "path", Privilege::Write),
    ("sync", "peers", Privilege::Control),
    ("cluster", "etcd", Privilege::Control),
    ("cluster", "name", Privilege::Control),
    ("cluster", "member", Privilege::Control),
    ("cluster", "user", Privilege::Control),
    ("cluster", "files", Privilege::Control),
    ("cluster", "publish", Privilege::Control),
    ("cluster", "ca", Privilege::Read),
    ("cluster", "certificate", Privilege::Read),
    ("cluster", "key", Privilege::Read),
    ("notify", "command", Privilege::Program),
    ("notify", "user", Privilege::Program),
    ("notify", "webhook_ca", Privilege::Read),
    ("tracing", "ca", Privilege::Read),
    ("vrrp", "notify", Privilege::Program),
    ("vrrp", "notify_master", Privilege::Program),
    ("vrrp", "notify_backup", Privilege::Program),
    ("vrrp", "notify_fault", Privilege::Program),
    ("vrrp", "notify_stop", Privilege::Program),
    ("announce", "socket", Privilege::Write),
    ("announce", "include", Privilege::Write),
    ("announce", "pipe", Privilege::Write),
    ("announce", "command", Privilege::Program),
    ("vrrp", "notify_group", Privilege::Program),
    ("vrrp", "notify_user", Privilege::Program),
    ("vrrp", "notify_fifo", Privilege::Write),
    ("vrrp-track", "script", Privilege::Program),
    ("vrrp-track", "user", Privilege::Program),
    ("vrrp-track", "file", Privilege::Read),
];

fn privilege(section: &Section, key: &str) -> Option<Privilege> {
    // The daemon reads every source of a secret, so each of its keys is privileged.
    if section.page == catalog::SECRET.page {
        return Some(Privilege::Read);
    }
    let mut table = PRIVILEGED.iter();
    let found = table.find(|(page, name, _)| *page == section.page && *name == key);
    found.map(|(_, _, privilege)| *privilege)
}

/// Returns the changes in `proposed` that only the owner may make, in text order, with their positions. Both texts are
/// TOML or, if they start with `{`, JSON. `active` is valid. If `proposed` is invalid, all parts that can be parsed are
/// checked.
pub fn privileged_changes(active: &str, proposed: &str) -> Vec<Diagnostic> {
    changes(active, proposed, &[])
}

/// Returns the same changes as [`privileged_changes`], but permits keys that read certificates from `files`, or from
/// files in directories among `files`.
pub(crate) fn changes(active: &str, proposed: &str, files: &[String]) -> Vec<Diagnostic> {
    let mut active_uses: HashMap<Identity, usize> = HashMap::new();
    let mut control: Vec<Use> = Vec::new();
    for active_use in uses(active) {
        *active_uses.entry(active_use.identity.clone()).or_default() += 1;
        if active_use.privilege == Privilege::Control {
            control.push(active_use);
        }
    }
    let lines = Lines::new(proposed);
    let proposed_uses = uses(proposed);
    control.retain(|used| !proposed_uses.iter().any(|other| other.has_same_key(used)));
    let removed = control.into_iter().map(|used| Use { span: 0..0, ..used });
    let added = proposed_uses
        .into_iter()
        .filter(|used| !used.reads_one_of(files) && !consume_active_use(&mut active_uses, used));
    let mut found: Vec<Diagnostic> = added
        .chain(removed)
        .map(|used| used.diagnostic(&lines))
        .collect();
    found.sort_by_key(|diagnostic| diagnostic.span.start);
    found
}

/// Returns whether the active configuration contains this use. If it runs a program, also consumes one occurrence: a
/// program that is configured twice runs twice, so each occurrence permits only one use.
fn consume_active_use(active_uses: &mut HashMap<Identity, usize>, proposed_use: &Use) -> bool {
    let Some(count) = active_uses.get_mut(&proposed_use.identity) else {
        return false;
    };
    if proposed_use.privilege != Privilege::Program {
        return true;
    }
    let is_permitted = *count > 0;
    *count = count.saturating_sub(1);
    is_permitted
}

/// Identity of a use of a privileged key.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Identity {
    page: &'static str,
    /// Empty if the position does not matter.
    location: String,
    key: &'static str,
    value: String,
}

/// A use of a privileged key.
#[derive(Debug)]
struct Use {
    identity: Identity,
    privilege: Privilege,
    span: Range<usize>,
    /// The key as written in the configuration.
    key: &'static str,
    /// Table of the key, for messages.
    location: String,
}

impl Use {
    fn has_same_key(&self, other: &Self) -> bool {
        let (this, other) = (&self.identity, &other.identity);
        (this.page, this.key, &this.location) == (other.page, other.key, &other.location)
    }

    /// Returns whether the key reads only certificates, from these files or from files in these directories. With
    /// another key, such as an error page, a client could get a private key.
    fn reads_one_of(&self, files: &[String]) -> bool {
        let is_below = |path: &str, file: &String| {
            let rest = path.strip_prefix(file.as_str());
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/') || file.ends_with('/'))
        };
        let is_allowed = |path: &str| {
            let path = path.trim_matches('"');
            !path.contains(['\\', '"'])
                && path.split('/').all(|part| part != "..")
                && files.iter().any(|file| is_below(path, file))
        };
        let value = self.identity.value.as_str();
        let value = value.trim_start_matches('[').trim_end_matches(']');
        self.privilege == Privilege::Certificates && value.split(',').all(is_allowed)
    }

    fn diagnostic(&self, lines: &Lines<'_>) -> Diagnostic {
        let (key, location) = (self.key, &self.location);
        let (problem, cause) = match self.privilege {
            Privilege::Program => (
                "would run a program that the active configuration does not run there",
                "programs run with the daemon's privileges, or under an account that the configuration specifies",
            ),
            Privilege::Read | Privilege::Certificates => (
                "specifies a file that the active configuration does not read with this key",
                "files are read with the daemon's privileges",
            ),
            Privilege::Write => (
                "specifies a file that the active configuration does not write with this key",
                "files are written with the daemon's privileges",
            ),
            Privilege::Environment => (
                "names an environment variable that the active configuration does not use in an address",
                "the value comes from the daemon's environment, which may contain secrets",
            ),
            Privilege::Connect => (
                "is a Unix socket that the active configuration does not use",
                "sockets are opened with the daemon's privileges",
            ),
            Privilege::Control => (
                "differs from the active configuration",
                "it controls access to the daemon",
            ),
        };
        let message = format!("`{key}` of {location} {problem}");
        let mut diagnostic = Diagnostic::new(Code::OwnerOnly, &self.span, message)
            .cause(cause)
            .fix("keep the value of the active configuration, or reload the file as root or as the user that runs \
                Weir");
        diagnostic.at = lines.source(self.span.start);
        diagnostic
    }
}

fn uses(text: &str) -> Vec<Use> {
    collect_uses(text).uses
}

fn collect_uses(text: &str) -> UseCollector {
    let root = include::any_tree(text);
    let mut collector = UseCollector::default();
    if text.contains("${") {
        collector.record_variables(&root);
    }
    // `[defaults]` may contain part of a check that runs a program.
    let root = defaults::apply(&mut Sink::new(text), &root).unwrap_or(root);
    collector.visit_table(&catalog::ROOT, &root, "");
    collector
}

#[derive(Debug, Default)]
struct UseCollector {
    uses: Vec<Use>,
    files: Vec<NamedFile>,
}

impl UseCollector {
    fn visit_table(&mut self, section: &'static Section, table: &Table<'_>, location: &str) {
        let runs_program = section.page == catalog::CHECK.page && is_script(table);
        for entry in &table.entries {
            let Some(key) = section.key(&entry.key) else {
                continue;
            };
            let inner = child_location(location, key.name);
            match privilege(section, key.name) {
                // If the value is a table, one of its keys names the file.
                Some(Privilege::Write | Privilege::Read | Privilege::Certificates)
                    if matches!(entry.item.value, Value::Table(_)) => {}
                Some(Privilege::Program) if section.page == catalog::CHECK.page => {}
                // The recorded value includes all nested keys.
                Some(Privilege::Control) => {
                    self.record(section, key.name, Privilege::Control, entry, location);
                    continue;
                }
                Some(privilege) => self.record(section, key.name, privilege, entry, location),
                None => {}
            }
            self.visit_value(&key.kind, &entry.item, &inner);
        }
        if runs_program {
            self.record_script(table, location);
        }
    }

    fn visit_value(&mut self, kind: &'static Kind, item: &Item<'_>, location: &str) {
        match (kind, &item.value) {
            (Kind::Either(first, second), _) => {
                self.visit_value(first, item, location);
                self.visit_value(second, item, location);
            }
            (Kind::Secret, Value::Table(table)) => {
                self.visit_table(&catalog::SECRET, table, location)
            }
            (Kind::Table(section), Value::Table(table)) => {
                self.visit_table(section, table, &item_location(location, section, table));
            }
            (Kind::Named(section), Value::Table(tables)) => {
                for entry in &tables.entries {
                    if let Value::Table(table) = &entry.item.value {
                        self.visit_table(section, table, &child_location(location, &entry.key));
                    }
                }
            }
            (Kind::List(item_kind), Value::List(items)) => {
                for item in items {
                    self.visit_value(item_kind, item, location);
                }
            }
            (Kind::PoolServer, Value::Text(text)) if text.starts_with(unix_socket::PREFIX) => {
                self.record_unix_server(item, location);
            }
            _ => {}
        }
    }

    fn record(
        &mut self,
        section: &'static Section,
        key: &'static str,
        privilege: Privilege,
        entry: &Entry<'_>,
        location: &str,
    ) {
        let value = comparable_value(&entry.item.value);
        // Standard output is not a file.
        if privilege == Privilege::Write && value == comparable_value(&Value::Text("-".into())) {
            return;
        }
        self.collect_files(section, key, privilege, &entry.item.value);
        let depends_on_location = matches!(privilege, Privilege::Program | Privilege::Control);
        // `access_log = FILE` is equivalent to a table with `path`.
        let (page, name) = match (section.page, key) {
            ("service", "access_log") => ("access-log", "path"),
            // `files = DIRECTORY` is equivalent to a table with `root`.
            ("route", "files") => ("files", "root"),
            (page, key) => (page, key),
        };
        self.uses.push(Use {
            identity: Identity {
                page,
                location: if depends_on_location {
                    location.to_owned()
                } else {
                    String::new()
                },
                key: name,
                value,
            },
            privilege,
            span: entry.key_span.clone(),
            key,
            location: heading(location),
        });
    }

    /// Records the environment variables in addresses.
    fn record_variables(&mut self, root: &Table<'_>) {
        for variable in environment::variables(root) {
            self.uses.push(Use {
                identity: Identity {
                    page: "",
                    location: String::new(),
                    key: "",
                    value: variable.name,
                },
                privilege: Privilege::Environment,
                span: variable.span,
                key: variable.key,
                location: heading(&variable.location),
            });
        }
    }

    /// Records a server on a Unix socket.
    fn record_unix_server(&mut self, item: &Item<'_>, location: &str) {
        self.uses.push(Use {
            identity: Identity {
                page: catalog::SERVER.page,
                location: String::new(),
                key: "address",
                value: comparable_value(&item.value),
            },
            privilege: Privilege::Connect,
            span: item.span.clone(),
            key: "address",
            location: heading(location),
        });
    }

    /// Records a check that runs a program. The check is compared as a whole: account, arguments and timing.
    fn record_script(&mut self, table: &Table<'_>, location: &str) {
        let is_command = |entry: &&Entry<'_>| entry.key == "command";
        let Some(command) = table.entries.iter().find(is_command) else {
            return;
        };
        self.uses.push(Use {
            identity: Identity {
                page: catalog::CHECK.page,
                location: location.to_owned(),
                key: "command",
                value: comparable_table(table),
            },
            privilege: Privilege::Program,
            span: command.key_span.clone(),
            key: "command",
            location: heading(location),
        });
    }
}

fn is_script(table: &Table<'_>) -> bool {
    let mut kinds = table.entries.iter().filter(|entry| entry.key == "kind");
    kinds.any(|kind| matches!(&kind.item.value, Value::Text(kind) if kind == "script"))
}

fn child_location(location: &str, name: &str) -> String {
    if location.is_empty() {
        name.to_owned()
    } else {
        format!("{location}.{name}")
    }
}

/// Appends the address of a server to a location: servers are identified by their addresses.
fn item_location(location: &str, section: &Section, table: &Table<'_>) -> String {
    let mut entries = table.entries.iter();
    let address = entries.find(|entry| entry.key == "address");
    match address.map(|entry| &entry.item.value) {
        Some(Value::Text(address)) if section.page == catalog::SERVER.page => {
            format!("{location}.{address}")
        }
        _ => location.to_owned(),
    }
}

fn heading(location: &str) -> String {
    format!("[{}]", location.escape_debug())
}

/// Formats a value for comparison: without positions, and identically for TOML and JSON.
fn comparable_value(value: &Value<'_>) -> String {
    match value {
        Value::Text(text) => format!("{text:?}"),
        Value::Integer(number) => format!("{number:?}"),
        Value::Float(number) => format!("{number:?}"),
        Value::Bool(value) => value.to_string(),
        Value::Datetime => "datetime".to_owned(),
        Value::Null => "null".to_owned(),
        Value::List(items) => {
            let items: Vec<String> = items
                .iter()
                .map(|item| comparable_value(&item.value))
                .collect();
            format!("[{}]", items.join(","))
        }
        Value::Table(table) => comparable_table(table),
    }
}

fn comparable_table(table: &Table<'_>) -> String {
    let format_pair =
        |entry: &Entry<'_>| format!("{:?}:{}", entry.key, comparable_value(&entry.item.value));
    let mut pairs: Vec<String> = table.entries.iter().map(format_pair).collect();
    pairs.sort_unstable();
    format!("{{{}}}", pairs.join(","))
}

#[cfg(test)]
mod tests;
