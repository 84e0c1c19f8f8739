//! Tests which changes to a configuration only the owner may make.

use super::*;
use crate::card::tests::file_with;
use crate::catalog::is_condition;
use crate::{Host, parse};

/// Keys with free text that grant no privilege, such as names, patterns, and data to send; excluding route conditions.
const UNPRIVILEGED: &[(&str, &str)] = &[
    ("pool", "host"),
    ("server", "cookie"),
    // Only a file can include other files, and the included content is compared.
    ("", "include"),
    ("access-log", "format"),
    ("check", "body"),
    ("check", "headers"),
    ("check", "helo"),
    ("check", "host"),
    ("check", "method"),
    ("check", "path"),
    ("check", "payload"),
    ("check", "query"),
    ("check", "send"),
    ("check", "server_name"),
    ("check", "service"),
    ("compression", "types"),
    ("exchange", "expect"),
    ("exchange", "regex"),
    ("exchange", "send"),
    ("expect", "body"),
    ("expect", "bytes"),
    ("expect", "digest"),
    ("expect", "regex"),
    ("expect", "without"),
    ("pool-tls", "server_name"),
    ("proxy-limits", "key"),
    ("route", "body"),
    ("route", "redirect"),
    ("route", "remove_header"),
    ("route", "remove_response_header"),
    ("route", "rewrite"),
    ("route", "set_header"),
    ("route", "set_response_header"),
    ("route", "split"),
    ("route", "split_by"),
    ("response-header", "header"),
    ("response-header", "file"),
    ("route", "add_header"),
    ("route", "add_response_header"),
    ("service", "add_header"),
    ("service", "add_response_header"),
    ("service", "remove_header"),
    ("service", "remove_response_header"),
    ("notify", "mail"),
    ("notify", "mail_from"),
    ("notify", "mail_server"),
    ("notify", "webhook"),
    ("tracing", "endpoint"),
    ("tracing", "service_name"),
    ("service", "client_ip_header"),
    ("service", "request_id"),
    ("service", "set_header"),
    ("service", "set_response_header"),
    ("scheduler", "key"),
    ("servers-dns", "cookie"),
    ("servers-dns", "name"),
    ("sticky", "attributes"),
    ("sticky", "cookie"),
    ("announce", "communities"),
    ("announce", "drain_communities"),
    ("announce", "prefix_list"),
    ("sync", "listen"),
    ("vrrp", "group"),
    ("vrrp-track", "process"),
    ("basic-auth", "realm"),
    ("basic-auth", "users"),
    ("forward-auth", "copy_header"),
    ("forward-auth", "path"),
    ("forward-auth", "set_header"),
    ("files", "index"),
    ("files", "strip"),
    ("files", "try"),
    ("map", "default"),
    ("map", "entries"),
    ("map", "key"),
    ("route-limits", "key"),
    ("proxy-limits", "rate"),
    ("route-limits", "rate"),
    ("route-pool", "default"),
    ("route-mirror", "path"),
    ("error-pages", "redirect"),
    ("header-replacement", "name"),
    ("header-replacement", "regex"),
    ("header-replacement", "to"),
    ("route-rewrite", "regex"),
    ("route-rewrite", "to"),
    ("route-pool", "key"),
    ("route-pool", "map"),
];

/// Returns whether a key of this kind could contain a program, an account, a file or an access control address. The
/// match has no wildcard arm, so every new kind must be classified.
fn could_be_privileged(kind: &Kind) -> bool {
    match kind {
        Kind::Text | Kind::DescribedText(_) | Kind::SocketAddress => true,
        Kind::List(item) => could_be_privileged(item),
        Kind::Either(first, second) => could_be_privileged(first) || could_be_privileged(second),
        // The keys of these tables are classified one by one; sources of secrets are always privileged.
        Kind::Table(_) | Kind::Named(_) | Kind::Secret => false,
        Kind::Planned
        | Kind::PoolName
        | Kind::CheckName
        | Kind::StatusCodes
        | Kind::ServiceName
        | Kind::Interface
        | Kind::Address
        | Kind::Network
        | Kind::ServerAddress
        // A Unix socket is privileged wherever it is written.
        | Kind::PoolServer
        | Kind::Listener
        | Kind::PortRange
        | Kind::Flag
        | Kind::Integer { .. }
        | Kind::Factor { .. }
        | Kind::Size { .. }
        | Kind::Duration { .. }
        | Kind::OneOf(_) => false,
    }
}

fn sections() -> Vec<&'static Section> {
    std::iter::once(&catalog::ROOT)
        .chain(catalog::PAGES)
        .collect()
}

#[test]
fn every_potentially_privileged_key_is_classified() {
    for section in sections() {
        for key in section
            .keys
            .iter()
            .filter(|key| could_be_privileged(&key.kind))
        {
            let is_privileged = privilege(section, key.name).is_some();
            // Conditions are only compared with requests.
            let is_unprivileged = is_condition(section.page, key.name)
                || UNPRIVILEGED.contains(&(section.page, key.name));
            assert!(
                is_privileged != is_unprivileged,
                "`{}` of [{}]: decide whether it runs a program, names a file or an account, or changes who \
                 controls the daemon, and add it to PRIVILEGED or to UNPRIVILEGED",
                key.name,
                section.path
            );
        }
    }
    let exists = |page: &str, name: &str| {
        let has_key = |section: &&Section| section.page == page && section.key(name).is_some();
        sections().iter().any(has_key)
    };
    for (page, name, _) in PRIVILEGED {
        assert!(exists(page, name), "{page} {name}");
    }
    for (page, name) in UNPRIVILEGED {
        assert!(exists(page, name), "{page} {name}");
    }
}

fn messages(active: &str, proposed: &str) -> Vec<String> {
    for text in [active, proposed] {
        let result = if text.starts_with('{') {
            crate::parse_json(text, &Host::default())
        } else {
            parse(text, &Host::default())
        };
        assert!(result.is_ok(), "{text}: {result:?}");
    }
    let changes = privileged_changes(active, proposed);
    let format_message =
        |it: &Diagnostic| format!("{}:{}: {}", it.at.line, it.at.column, it.message);
    changes.iter().map(format_message).collect()
}

/// Returns a complete file with the example of a key, or with a changed value if `is_changed`.
fn example(page: &str, name: &str, is_changed: bool) -> String {
    let section = catalog::PAGES
        .into_iter()
        .find(|it| it.page == page)
        .unwrap();
    let example = section.key(name).unwrap().example;
    let line = match is_changed {
        false => example.to_owned(),
        true if name == "user" || name == "notify_user" || name == "socket_group" => {
            example.replacen('"', "\"x", 1)
        }
        true if name == "admin" || name == "listen" => example.replacen("0.0.1", "0.0.2", 1),
        true if page == "cluster" && ["etcd", "name", "member", "user"].contains(&name) => {
            let (key, value) = example
                .rsplit_once('"')
                .and_then(|(it, _)| it.rsplit_once('"'))
                .unwrap();
            format!("{key}\"{value}2\"{}", if name == "etcd" { "]" } else { "" })
        }
        true if name == "publish" => example.replacen("0.2.0", "0.3.0", 1),
        true if name == "peers" => example.replacen("0.0.2", "0.0.3", 1),
        true if name == "socket_mode" => example.replace("0660", "0600"),
        true if name == "hosts" => example.replace("lb1", "lb2"),
        true if name == "read_requires_token" && example.contains("true") => {
            example.replace("true", "false")
        }
        true if name == "read_requires_token" => example.replace("false", "true"),
        true => example.replacen("\"/", "\"/other/", 1),
    };
    assert_eq!(is_changed, line != example, "{example}");
    let line = match (page, name) {
        // This key requires a script.
        ("vrrp-track", "user") => format!("script = [\"/usr/local/bin/alive\"], {line}"),
        _ => line,
    };
    file_with(section, &line).replace("track = [{ file = \"/x\", script", "track = [{ script")
}

#[test]
fn new_or_changed_privileged_keys_are_rejected() {
    for (page, name, privilege) in PRIVILEGED {
        let text = example(page, name, false);
        assert_eq!(
            messages(&text, &text),
            Vec::<String>::new(),
            "{page} {name}"
        );
        // Removing a key is allowed if it grants no additional access.
        let is_control = |it: &&Use| it.privilege == Privilege::Control;
        let control_count = uses(&text).iter().filter(is_control).count();
        assert!(
            control_count > 0 || *privilege != Privilege::Control,
            "{page} {name}"
        );
        assert_eq!(messages(&text, "").len(), control_count, "{page} {name}");
        for (active, proposed) in [("", &text), (text.as_str(), &example(page, name, true))] {
            let errors = messages(active, proposed);
            let key = if *page == "check" && *privilege == Privilege::Program {
                "command"
            } else if *page == "node-admin" {
                "admin"
            } else {
                name
            };
            let names_key = |it: &String| it.contains(&format!("`{key}` of ["));
            // Add a new key, with the required keys of its section.
            let count = if active.is_empty() {
                errors.len().max(1)
            } else {
                1
            };
            assert!(
                errors.len() == count && errors.iter().any(names_key),
                "{page} {name}: {errors:?}\n{proposed}"
            );
        }
    }
}

const ACTIVE: &str = "[check.probe]\nkind = \"script\"\ncommand = [\"/usr/local/bin/probe\"]\nuser = \
    \"weir\"\n\n[pool.a]\nservers = [\"10.0.0.1\", { address = \"10.0.0.2\", check = { kind = \"script\", command = \
    \"/bin/two\" } }]\ncheck = \"probe\"\n\n[pool.b]\nservers = [\"10.0.0.3\"]\n\n[[pool.b.check]]\nkind = \
    \"script\"\ncommand = \"/bin/b\"\n\n[[pool.b.check]]\nkind = \"tcp\"\n\n[service.a]\nlisten = \
    [\"127.0.0.1:80\"]\nforward = \"proxy\"\nprotocol = \"http\"\npool = \"a\"\naccess_log = \
    \"/var/log/weir/a.log\"\ntls = { certificates = \"/etc/weir/certs\" }\n\n[service.b]\nlisten = \
    [\"127.0.0.1:81\"]\nforward = \"proxy\"\nprotocol = \"http\"\npool = \"b\"\n";

#[test]
fn unprivileged_settings_may_change() {
    for (old, new) in [
        ("[\"10.0.0.3\"]", "[\"10.0.0.3\", \"10.0.0.4\"]"),
        (
            "[\"10.0.0.3\"]",
            "[{ address = \"10.0.0.3\", weight = 7, check = \"probe\" }]",
        ),
        ("[pool.b]\n", "[pool.b]\nscheduler = \"rr\"\n"),
        ("kind = \"tcp\"", "kind = \"http\"\npath = \"/health\""),
        // The active configuration already reads and writes these files.
        (
            "127.0.0.1:81\"]\n",
            "127.0.0.1:81\"]\naccess_log = { path = \"/var/log/weir/a.log\" }\ntls = { certificates = \
             \"/etc/weir/certs\" }\n",
        ),
        (
            "access_log = \"/var/log/weir/a.log\"\n",
            "access_log = \"-\"\n",
        ),
        // Removing settings grants no privilege.
        ("access_log = \"/var/log/weir/a.log\"\n", ""),
        (
            "[[pool.b.check]]\nkind = \"script\"\ncommand = \"/bin/b\"\n",
            "",
        ),
        (
            "{ address = \"10.0.0.2\", check = { kind = \"script\", command = \"/bin/two\" } }",
            "\"10.0.0.2\"",
        ),
    ] {
        let proposed = ACTIVE.replacen(old, new, 1);
        assert_ne!(proposed, ACTIVE, "{old}");
        assert_eq!(
            messages(ACTIVE, &proposed),
            Vec::<String>::new(),
            "{proposed}"
        );
    }
}

#[test]
fn removing_admin_settings_is_rejected() {
    let admin = |tls: &str| {
        format!(
            "[node.admin]\nlisten = \"192.0.2.1:9000\"\ntokens = \"/etc/weir/tokens\"\ntls = {{ {tls} }}\n"
        )
    };
    let mutual = admin("certificates = \"/etc/weir/admin\", client_ca = \"/etc/weir/ca.pem\"");
    let open = admin("certificates = \"/etc/weir/admin\"");
    assert!(messages(&mutual, &mutual).is_empty());
    for proposed in [open.as_str(), ""] {
        let errors = messages(&mutual, proposed);
        assert_eq!(errors.len(), 1, "{errors:?}");
        assert!(errors[0].contains("`admin` of [node]"), "{errors:?}");
    }
}

#[test]
fn moved_or_changed_programs_are_rejected() {
    let script = "[[pool.b.check]]\nkind = \"script\"\ncommand = \"/bin/b\"\n";
    for (old, new, location) in [
        ("user = \"weir\"", "user = \"root\"", "[check.probe]"),
        ("user = \"weir\"\n", "", "[check.probe]"),
        (
            "user = \"weir\"\n",
            "user = \"weir\"\ninterval = \"50ms\"\n",
            "[check.probe]",
        ),
        (
            "/usr/local/bin/probe\"]",
            "/usr/local/bin/probe\", \"-x\"]",
            "[check.probe]",
        ),
        (
            "[check.probe]",
            "[check.other]\nkind = \"script\"\ncommand = [\"/usr/local/bin/probe\"]\nuser = \"weir\"\n[check.probe]",
            "[check.other]",
        ),
        (
            "command = \"/bin/two\"",
            "command = \"/bin/two\", user = \"root\"",
            "[pool.a.servers.10.0.0.2.check]",
        ),
        (
            "[\"10.0.0.3\"]",
            "[{ address = \"10.0.0.3\", check = { kind = \"script\", command = \"/bin/b\" } }]",
            "[pool.b.servers.10.0.0.3.check]",
        ),
        (
            "[pool.b]\n",
            "[pool.b]\nsorry = { address = \"10.0.0.9\", check = { kind = \"script\", command = \"/bin/b\" } }\n",
            "[pool.b.sorry.10.0.0.9.check]",
        ),
        (script, &format!("{script}{script}"), "[pool.b.check]"),
        (
            "kind = \"tcp\"",
            "kind = \"script\"\ncommand = \"/bin/sh\"",
            "[pool.b.check]",
        ),
    ] {
        let proposed = ACTIVE.replacen(old, new, 1);
        assert_ne!(proposed, ACTIVE, "{old}");
        let errors = messages(ACTIVE, &proposed);
        let [message] = errors.as_slice() else {
            panic!("{errors:?}\n{proposed}")
        };
        assert!(
            message.contains(&format!("`command` of {location} ")),
            "{message}"
        );
    }
}

#[test]
fn changed_file_is_rejected_with_position() {
    let proposed = ACTIVE.replace("/etc/weir/certs", "/root/certs");
    let errors = messages(ACTIVE, &proposed);
    let line = 1 + ACTIVE
        .lines()
        .position(|line| line.contains("certs"))
        .unwrap();
    let expected = format!(
        "{line}:9: `certificates` of [service.a.tls] specifies a file that the active configuration does not read \
         with this key"
    );
    assert_eq!(errors, [expected]);
    // The same path with a different key is rejected: clients would receive the file.
    let proposed = ACTIVE.replace(
        "pool = \"b\"\n",
        "pool = \"b\"\nerror_pages = [{ status = 404, file = \"/etc/weir/certs\" }]\n",
    );
    assert_eq!(messages(ACTIVE, &proposed).len(), 1);
}

#[test]
fn new_secret_sources_are_rejected() {
    let configuration = |secret: &str| {
        format!(
            "[pool.p]\nservers = [\"10.0.0.1\"]\nsticky = {{ cookie = \"c\", secret = {secret} }}\n"
        )
    };
    let active_configuration = configuration("{ file = \"/etc/weir/key\" }");
    for secret in ["{ file = \"/etc/weir/key\" }", "\"text\""] {
        assert_eq!(
            messages(&active_configuration, &configuration(secret)),
            Vec::<String>::new()
        );
    }
    for (secret, key) in [
        (
            "{ file = \"/root/key\" }",
            "`file` of [pool.p.sticky.secret]",
        ),
        ("{ env = \"KEY\" }", "`env` of [pool.p.sticky.secret]"),
        (
            "{ credential = \"key\" }",
            "`credential` of [pool.p.sticky.secret]",
        ),
    ] {
        let errors = messages(&active_configuration, &configuration(secret));
        assert!(errors.len() == 1 && errors[0].contains(key), "{errors:?}");
    }
}

#[test]
fn toml_and_json_compare_equal() {
    let toml = "[pool.p]\nservers = [\"10.0.0.1\"]\nnotify = [\"/bin/tell\", \"x\"]\ncheck = { kind = \"script\", \
        command = \"/bin/c\" }\n";
    let json = r#"{"pool": {"p": {"check": {"command": "/bin/c", "kind": "script"}, "servers": ["10.0.0.1"], "notify": ["/bin/tell", "x"]}}}"#;
    assert_eq!(messages(toml, json), Vec::<String>::new());
    assert_eq!(messages(json, toml), Vec::<String>::new());
    let other_json = json.replace("/bin/c", "/bin/d");
    assert_eq!(messages(toml, &other_json).len(), 1);
}

#[test]
fn default_program_in_new_check_is_rejected() {
    let active_configuration =
        "[defaults.check]\ncommand = \"/bin/x\"\n[pool.a]\ncheck = { kind = \"script\" }\n";
    assert_eq!(
        privileged_changes(active_configuration, active_configuration),
        []
    );
    let proposed = format!("{active_configuration}[pool.b]\ncheck = {{ kind = \"script\" }}\n");
    let changes = privileged_changes(active_configuration, &proposed);
    assert_eq!(changes.len(), 1, "{changes:?}");
}

#[test]
fn only_owner_may_add_unix_socket_servers() {
    let pool = |servers: &str| format!("[pool.p]\nservers = [{servers}]\n");
    let active_configuration = pool("\"unix:/run/a.sock\"");
    let other_pool =
        "[pool.p]\nservers = [\"10.0.0.5\"]\nsorry = { address = \"unix:/run/b.sock\" }\n";
    for proposed in [
        pool("\"unix:/run/a.sock\", \"unix:/run/weir/weir.sock\""),
        pool("{ address = \"unix:/run/weir/weir.sock\" }"),
        other_pool.to_owned(),
        "{\"pool\": {\"p\": {\"servers\": [\"unix:/run/b.sock\"]}}}".to_owned(),
    ] {
        let changes = privileged_changes(&active_configuration, &proposed);
        assert_eq!(changes.len(), 1, "{proposed}: {changes:?}");
        assert_eq!(changes[0].code, Code::OwnerOnly);
        assert!(
            changes[0].message.contains("is a Unix socket"),
            "{changes:?}"
        );
    }
    let same_socket = active_configuration.clone()
        + "[pool.q]\nservers = [{ address = \"unix:/run/a.sock\", weight = 2 }]\n";
    assert_eq!(privileged_changes(&active_configuration, &same_socket), []);
}

#[test]
fn new_environment_variables_in_addresses_are_rejected() {
    let active_configuration = "[pool.p]\nservers = [\"10.0.0.1:${PORT:-80}\"]\n";
    let same_variable = "[pool.q]\nservers = [{ address = \"10.0.0.2:${PORT}\" }]\n";
    assert_eq!(privileged_changes(active_configuration, same_variable), []);
    let listen = "forward = \"proxy\"\nprotocol = \"tcp\"\npool = \"p\"\n";
    for proposed in [
        "[pool.p]\nservers = [\"${WEIR_COOKIE_SECRET}\"]\n".to_owned(),
        "[pool.p]\nservers = [{ address = \"${PORT}${SECRET:-1}\" }]\n".to_owned(),
        "{\"pool\": {\"p\": {\"servers\": [\"${SECRET}\"]}}}".to_owned(),
        format!("{active_configuration}[service.s]\nlisten = [\"0.0.0.0:${{SECRET}}\"]\n{listen}"),
    ] {
        let changes = privileged_changes(active_configuration, &proposed);
        assert_eq!(changes.len(), 1, "{proposed}: {changes:?}");
        assert_eq!(changes[0].code, Code::OwnerOnly);
        assert!(
            changes[0].message.contains("an environment variable"),
            "{changes:?}"
        );
    }
}

#[test]
fn message_names_the_table_of_a_key() {
    for (proposed, name) in [
        (
            "[pool.p]\ncheck = [{ kind = \"https\", address = \"10.0.0.9\", ca = \"/x\" }]\n",
            "`ca` of [pool.p.check] ",
        ),
        (
            "[pool.p]\nservers = [{ address = \"10.0.0.5\", check = { kind = \"https\", ca = \"/x\" } }]\n",
            "`ca` of [pool.p.servers.10.0.0.5.check] ",
        ),
        (
            "[pool.p]\nservers_file = \"/x\"\n",
            "`servers_file` of [pool.p] ",
        ),
        (
            "[service.s]\naccess_log = { path = \"/x\" }\n",
            "`path` of [service.s.access_log] ",
        ),
    ] {
        let changes = privileged_changes("", proposed);
        assert_eq!(changes.len(), 1, "{changes:?}");
        assert!(changes[0].message.starts_with(name), "{changes:?}");
    }
    // Standard output is not a file.
    let changes = privileged_changes("", "[service.s]\naccess_log = \"-\"\n");
    assert_eq!(changes, []);
}
