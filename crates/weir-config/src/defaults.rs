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

/// Tables that are merged with their defaults key by key.
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
    let entries = defaults.map_or(&[][..], |defaults| &defaults.entries);
    let is_discriminator = |entry: &&Entry<'_>| DISCRIMINATORS.contains(&&*entry.key);
    for entry in entries
        .iter()
        .filter(is_discriminator)
        .chain(entries.iter().filter(|it| !is_discriminator(it)))
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
                    inner.entries.retain(|it| is_valid_limit(protocol, &it.key));
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

fn is_valid_limit(protocol: Option<&str>, key: &str) -> bool {
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

    use weir_model::{Check, Desired, Probe, ProxyProtocol, TunnelKind};

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
            panic!("expected two services");
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

    /// Returns the model of a configuration with one service, which must have no findings.
    #[track_caller]
    fn service(defaults: &str, forward: &str, lines: &str) -> Desired {
        let text = format!(
            "[defaults.service]\n{defaults}\n[pool.p]\nservers = [\"10.0.0.5:80\"]\ncheck = {{ kind = \"tcp\" }}\n\
             [service.s]\nlisten = [\"192.0.2.1:80\"]\nforward = \"{forward}\"\npool = \"p\"\n{lines}\n"
        );
        let parsed = parse(&text, &Host::default()).expect("parse configuration");
        assert_eq!(parsed.findings, [], "{forward}");
        parsed.desired
    }

    #[test]
    fn default_applies_only_to_services_with_this_key() {
        const DEFAULTS: &str = "tunnel = \"gre\"\nsnat = true\ndscp = 5\ncgroup = \"/sys/fs/cgroup/a\"\n\
            timeouts = { client = \"7s\" }\nhttp2 = false\nlimits = { connections = 5, rate = 9 }";
        for forward in ["nat", "direct", "tunnel", "l3dsr", "socket"] {
            let found = service(DEFAULTS, forward, "").services.remove(0);
            let is = |other| forward == other;
            assert_eq!(found.snat.is_some(), is("nat"), "{forward}");
            assert_eq!(found.dscp == 5, is("l3dsr"), "{forward}");
            assert_eq!(
                found.tunnel.kind == TunnelKind::Gre,
                is("tunnel"),
                "{forward}"
            );
            assert_eq!(found.cgroup.is_some(), is("socket"), "{forward}");
        }
        let with_layer_4 = format!("{DEFAULTS}\npersistence = true\nstrict_ipvs = true");
        for protocol in ["http", "tcp"] {
            let lines = format!("protocol = \"{protocol}\"");
            let found = service(&with_layer_4, "proxy", &lines).proxies.remove(0);
            assert_eq!(found.timeouts.client, Duration::from_secs(7));
            assert_eq!(found.limits.connections, 5);
            assert_eq!(found.http2, protocol == "tcp", "{protocol}");
            let is_limited = found.limits.per_minute == 540;
            assert_eq!(is_limited, protocol == "http", "{protocol}");
        }
    }

    #[test]
    fn only_timeouts_and_limits_are_merged_key_by_key() {
        let found = service(
            "persistence = { timeout = \"10m\", netmask = 24 }",
            "direct",
            "persistence = { timeout = \"5m\" }",
        );
        let persistence = found.services[0].persistence.expect("not set");
        assert_eq!(
            (persistence.timeout, persistence.netmask),
            (Duration::from_secs(300), 32)
        );
        let found = service(
            "limits = { connections = 5, retries = 2 }\ntimeouts = { idle = \"9s\" }",
            "proxy",
            "protocol = \"http\"\nlimits = { connections = 6 }\ntimeouts = { client = \"8s\" }",
        );
        let proxy = &found.proxies[0];
        assert_eq!((proxy.limits.connections, proxy.limits.retries), (6, 2));
        assert_eq!(proxy.timeouts.idle, Duration::from_secs(9));
        assert_eq!(proxy.timeouts.client, Duration::from_secs(8));
    }

    #[test]
    fn check_defaults_apply_to_every_check_with_the_key() {
        let text = "[defaults.check]\ninterval = \"9s\"\npath = \"/up\"\n[check.c]\nkind = \"http\"\n[pool.p]\n\
            check = [{ kind = \"http\" }, { kind = \"tcp\" }, {}, \"c\"]\nservers = [{ address = \"10.0.0.5:80\", \
            check = { kind = \"http\", path = \"/own\" } }, { address = \"10.0.0.6:80\", check = [{ kind = \
            \"https\" }] }, \"10.0.0.7:80\"]\n[service.s]\nlisten = [\"192.0.2.1:80\"]\nforward = \"nat\"\n\
            pool = \"p\"\n";
        let parsed = parse(text, &Host::default()).expect("parse configuration");
        assert_eq!(parsed.findings, []);
        let pool = &parsed.desired.pools[0];
        let describe = |check: &Check| {
            let path = match &check.probe {
                Probe::Http(http) => http.path.as_str(),
                other => other.as_str(),
            };
            (check.timing.interval.as_secs(), path.to_owned())
        };
        let describe_all = |checks: &[Check]| checks.iter().map(describe).collect::<Vec<_>>();
        let expected = |paths: &[&str]| {
            let checks = paths.iter().map(|path| (9, (*path).to_owned()));
            checks.collect::<Vec<(u64, String)>>()
        };
        assert_eq!(
            describe_all(&pool.checks),
            expected(&["/up", "tcp", "tcp", "/up"])
        );
        let checks = pool
            .servers
            .iter()
            .map(|it| it.checks.as_deref().unwrap_or_default());
        let checks: Vec<_> = checks.map(describe_all).collect();
        assert_eq!(checks, [expected(&["/own"]), expected(&["/up"]), vec![]]);
    }

    #[test]
    fn keys_of_one_table_cannot_have_a_default() {
        for (text, message) in [
            (
                "[defaults.service]\nlisten = []\n",
                "`listen` cannot have a default",
            ),
            (
                "[defaults.pool]\nservers = []\n",
                "`servers` cannot have a default",
            ),
            (
                "[defaults.pool]\nservers_file = \"/x\"\n",
                "`servers_file` cannot have a default",
            ),
            (
                "[defaults.pool]\nsorry = \"10.0.0.1\"\n",
                "`sorry` cannot have a default",
            ),
            (
                "[defaults.check]\nkin = \"tcp\"\n",
                "unknown key `kin` in [check.NAME]",
            ),
        ] {
            let found = match parse(text, &Host::default()) {
                Ok(parsed) => parsed.findings,
                Err(found) => found,
            };
            let messages: Vec<&str> = found.iter().map(|it| it.message.as_str()).collect();
            assert_eq!(messages, [message]);
        }
    }
}
