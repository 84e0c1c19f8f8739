//! Applies `[defaults]`: values for services, pools and checks that do not set a key themselves.
//!
//! Defaults are added to the tree before it is lowered. They keep their spans, so a diagnostic for a default shows
//! where the default is written.

use crate::catalog::{self, CheckKind};
use crate::code::Code;
use crate::diagnostic::Diagnostic;
use crate::key::Section;
use crate::lower::is_key_of_service;
use crate::tree::{Entry, Item, Table, Value};
use crate::view::{Sink, View, unknown_key};

/// Keys that cannot have a default, by section: their values are specific to one table.
const WITHOUT_DEFAULT: [(&str, &[&str]); 3] = [
    ("service", &["listen"]),
    ("pool", &["servers", "servers_file", "servers_dns", "sorry"]),
    ("check", &[]),
];

/// Tables whose keys have separate defaults.
const MERGED: [&str; 2] = ["timeouts", "limits"];

/// Returns the tree with the defaults added to the tables that do not set them; `None` without `[defaults]`.
pub(crate) fn apply<'t>(sink: &mut Sink<'_>, root: &Table<'t>) -> Option<Table<'t>> {
    let entry = root.entries.iter().find(|entry| entry.key == "defaults")?;
    let Value::Table(defaults) = &entry.item.value else {
        return None;
    };
    View::open(sink, &catalog::DEFAULTS, defaults, &entry.key_span);
    let defaults_of = |name: &str| child_table(defaults, name);
    let [service, pool, check] = ["service", "pool", "check"].map(defaults_of);
    for ((name, excluded), section) in
        WITHOUT_DEFAULT
            .iter()
            .zip([&catalog::SERVICE, &catalog::POOL, &catalog::CHECK])
    {
        if let Some(table) = defaults_of(name) {
            validate(sink, table, section, excluded);
        }
    }
    let mut root = root.clone();
    for entry in &mut root.entries {
        let Value::Table(tables) = &mut entry.item.value else {
            continue;
        };
        let tables = tables.entries.iter_mut().filter_map(table_of_entry);
        match &*entry.key {
            "service" => tables.for_each(|table| add_defaults(table, service, is_key_of_service)),
            "pool" => tables.for_each(|pool_table| {
                add_defaults(pool_table, pool, |_, _| true);
                add_to_checks_of_pool(pool_table, check);
            }),
            "check" => tables.for_each(|table| add_defaults(table, check, is_key_of_check)),
            _ => {}
        }
    }
    Some(root)
}

/// Adds defaults to the checks of a pool and of its servers.
fn add_to_checks_of_pool(pool: &mut Table<'_>, defaults: Option<&Table<'_>>) {
    if defaults.is_none() {
        return;
    }
    for entry in &mut pool.entries {
        match (&*entry.key, &mut entry.item.value) {
            ("check", value) => add_to_checks(value, defaults),
            ("servers", Value::List(servers)) => {
                for server in servers {
                    let Value::Table(server) = &mut server.value else {
                        continue;
                    };
                    let checks = server.entries.iter_mut().filter(|it| it.key == "check");
                    checks.for_each(|entry| add_to_checks(&mut entry.item.value, defaults));
                }
            }
            _ => {}
        }
    }
}

fn add_to_checks(value: &mut Value<'_>, defaults: Option<&Table<'_>>) {
    match value {
        Value::Table(table) => add_defaults(table, defaults, is_key_of_check),
        Value::List(items) => items
            .iter_mut()
            .for_each(|item| add_to_checks(&mut item.value, defaults)),
        _ => {}
    }
}

/// Returns whether the kind of a check has the key.
fn is_key_of_check(check: &Table<'_>, key: &str) -> bool {
    if !CheckKind::is_kind_specific(key) {
        return true;
    }
    let kind = check.entries.iter().find(|entry| entry.key == "kind");
    let kind = match kind.map(|entry| &entry.item.value) {
        None => Some(CheckKind::Tcp),
        Some(Value::Text(name)) => CheckKind::from_name(name),
        Some(_) => None,
    };
    kind.is_some_and(|kind| kind.allows(key))
}

fn add_defaults(
    table: &mut Table<'_>,
    defaults: Option<&Table<'_>>,
    is_valid: fn(&Table<'_>, &str) -> bool,
) {
    // The keys that determine which other keys are valid are added first.
    const DISCRIMINATORS: [&str; 3] = ["kind", "forward", "protocol"];
    let all = defaults.map_or(&[][..], |defaults| &defaults.entries);
    let is_discriminator = |entry: &&Entry<'_>| DISCRIMINATORS.contains(&&*entry.key);
    for entry in all
        .iter()
        .filter(is_discriminator)
        .chain(all.iter().filter(|it| !is_discriminator(it)))
    {
        if !is_valid(table, &entry.key) {
            continue;
        }
        let existing = table.entries.iter_mut().find(|it| it.key == entry.key);
        match (existing.map(|it| &mut it.item.value), &entry.item.value) {
            (None, _) => {
                let mut copy = to_owned_entry(entry);
                if let Value::Table(inner) = &mut copy.item.value
                    && entry.key == "limits"
                {
                    let protocol = protocol(table);
                    inner.entries.retain(|it| is_limit(protocol, &it.key));
                }
                table.entries.push(copy);
            }
            (Some(Value::Table(existing)), Value::Table(inner))
                if MERGED.contains(&&*entry.key) =>
            {
                for default in &inner.entries {
                    if !existing.entries.iter().any(|it| it.key == default.key) {
                        existing.entries.push(to_owned_entry(default));
                    }
                }
            }
            (Some(_), _) => {}
        }
    }
}

fn protocol<'a>(service: &'a Table<'_>) -> Option<&'a str> {
    let entry = service
        .entries
        .iter()
        .find(|entry| entry.key == "protocol")?;
    match &entry.item.value {
        Value::Text(text) => Some(text),
        _ => None,
    }
}

fn is_limit(protocol: Option<&str>, key: &str) -> bool {
    protocol != Some("tcp") || !crate::lower::HTTP_LIMITS.contains(&key)
}

fn to_owned_entry(entry: &Entry<'_>) -> Entry<'static> {
    let copy = Table {
        entries: vec![entry.clone()],
    };
    let mut entries = copy.into_owned().entries;
    entries.swap_remove(0)
}

fn validate(sink: &mut Sink<'_>, table: &Table<'_>, section: &'static Section, excluded: &[&str]) {
    for entry in &table.entries {
        if excluded.contains(&&*entry.key) {
            let message = format!("`{}` cannot have a default", entry.key);
            sink.push(
                Diagnostic::new(Code::NoEffect, &entry.key_span, message)
                    .cause("it is specific to one service or pool")
                    .fix(format!("move it to {}", section.heading())),
            );
        } else if section.key(&entry.key).is_none() {
            sink.push(unknown_key(section, entry));
        }
    }
}

fn child_table<'a, 't>(parent: &'a Table<'t>, name: &str) -> Option<&'a Table<'t>> {
    let entry = parent.entries.iter().find(|entry| entry.key == name)?;
    table_of_item(&entry.item)
}

fn table_of_item<'a, 't>(item: &'a Item<'t>) -> Option<&'a Table<'t>> {
    match &item.value {
        Value::Table(table) => Some(table),
        _ => None,
    }
}

fn table_of_entry<'a, 't>(entry: &'a mut Entry<'t>) -> Option<&'a mut Table<'t>> {
    match &mut entry.item.value {
        Value::Table(table) => Some(table),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use weir_model::ProxyProtocol;

    use crate::{Code, Host, parse};

    const TEXT: &str = r#"
[defaults.service]
timeouts = { server = "30s", client = "7s" }
limits = { connections = 5, rate = 9 }
forwarded = false
[defaults.pool]
no_server = "drop"
[defaults.check]
interval = "9s"
path = "/up"
[pool.web]
servers = ["10.0.0.5"]
check = { kind = "http", interval = "3s" }
[pool.db]
servers = ["10.0.0.6:1"]
no_server = "reject"
check = { kind = "tcp" }
[service.web]
listen = ["0.0.0.0:80"]
forward = "proxy"
protocol = "http"
pool = "web"
timeouts = { client = "8s" }
[service.db]
listen = ["0.0.0.0:81"]
forward = "proxy"
protocol = "tcp"
pool = "db"
[service.l4]
listen = ["192.0.2.1:80"]
forward = "nat"
pool = "web"
"#;

    #[test]
    fn explicit_values_override_defaults_and_invalid_keys_are_skipped() {
        let desired = parse(TEXT, &Host::default()).unwrap().desired;
        let [web, db] = &desired.proxies[..] else {
            panic!("two services");
        };
        assert_eq!(web.timeouts.server, Duration::from_secs(30));
        assert_eq!(web.timeouts.client, Duration::from_secs(8));
        assert_eq!(web.limits.per_minute, 9 * 60);
        assert_eq!(db.protocol, ProxyProtocol::Tcp);
        assert_eq!((db.limits.connections, db.limits.per_minute), (5, 0));
        let pools: Vec<&str> = desired
            .pools
            .iter()
            .map(|it| it.no_server.as_str())
            .collect();
        assert_eq!(pools, ["drop", "reject"]);
    }

    #[test]
    fn unknown_keys_and_listen_in_defaults_are_reported() {
        let text =
            "[defaults.service]\nlisten = [\"192.0.2.1:80\"]\n[defaults.pool]\nschedule = \"rr\"\n";
        let found = parse(text, &Host::default()).unwrap_err();
        let codes: Vec<Code> = found.iter().map(|it| it.code).collect();
        assert_eq!(codes, [Code::NoEffect, Code::UnknownKey]);
    }
}
