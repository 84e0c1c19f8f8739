use super::*;
use crate::EmptyEnvironment;

fn line(text: &str) -> Line {
    Line {
        position: Position::FIRST,
        words: text.split_whitespace().map(str::to_owned).collect(),
        uses_capture: false,
        follows_source_change: false,
    }
}

#[test]
fn times_with_units_are_parsed() {
    for (text, expected) in [
        ("5s", Some(5000)),
        ("30", Some(30)),
        ("7ms", Some(7)),
        ("1500us", Some(2)),
        ("2m", Some(120_000)),
        ("3h", Some(10_800_000)),
        ("1d", Some(86_400_000)),
        ("x", None),
        ("1m30s", None),
        ("1 s", None),
        ("99999999999999999999d", None),
        ("999999999999d", None),
    ] {
        assert_eq!(parse_time(text), expected, "{text}");
    }
}

/// Lines of proxy sections, each with part of the reason why it is not imported.
const UNSUPPORTED: &[(&str, &str)] = &[
    ("log global", "the frontend's `log` applies"),
    ("log-format x", "`format` is a key of `access_log`"),
    (
        "log-format-sd x",
        "`access_log` of a service has no such setting",
    ),
    (
        "error-log-format x",
        "`access_log` of a service has no such setting",
    ),
    ("log-tag x", "`access_log` of a service has no such setting"),
    ("unique-id-format x", "see `request_id` of a service"),
    ("unique-id-header x", "see `request_id` of a service"),
    ("option httplog", "the default format is used"),
    ("no tcplog", "the default format is used"),
    ("option dontlognull", "connections without a request"),
    ("option logasap", "see its `sample`"),
    ("option redispatch", "up to `limits.retries` times"),
    (
        "option http-keep-alive",
        "Weir always keeps connections alive",
    ),
    ("option contstats", "Weir has no setting for this"),
    (
        "option http-buffer-request",
        "`request_buffering` is for services",
    ),
    ("option other", "weir.toml has no equivalent"),
    ("fullconn 9", "Weir has no setting for this"),
    (
        "stats enable",
        "`weir status`, the Unix socket and /metrics",
    ),
    ("monitor-uri /x", "cannot match a literal `*` or a query"),
    ("monitor fail if x", "always responds with 200"),
    ("monitor-net x", "section with a bind"),
    ("errorfile 500 x", "only absolute file paths and fixed URLs"),
    (
        "errorloc303 500 x",
        "only absolute file paths and fixed URLs",
    ),
    ("errorfiles x", "accepts only one file per status"),
    ("http-error status 500", "accepts only one file per status"),
    ("stick-table type ip", "Weir has no client tables"),
    ("tcp-request content x", "Weir has no client tables"),
    ("compression algo x", "`compression` has no such option"),
    ("filter x", "neither filters nor a cache"),
    (
        "http-request set-header a b",
        "it never applies to a client",
    ),
    ("http-response del-header a", "it never applies to a client"),
    ("http-response x", "`remove_response_header`"),
    (
        "http-after-response set-header a b",
        "`remove_response_header`",
    ),
    ("rspadd x", "`remove_response_header`"),
    ("http-request set-src x", "the address of the connection"),
    (
        "http-request normalize-uri x",
        "only from the rules of its frontend",
    ),
    (
        "http-request x",
        "see `rewrite`, `set_header`, `remove_header`",
    ),
    ("reqrep x", "see `rewrite`, `set_header`, `remove_header`"),
    ("hash-type x", "uses a different hash function"),
    ("email-alert x", "`[notify]` has no such setting"),
    ("description x", "it has no effect on clients and servers"),
    ("retry-on x", "only from its default backend"),
    ("timeout x", "`timeouts` has no such key"),
    ("http-check x", "no check of the section uses it"),
    ("default_backend x", "the section has no bind"),
    ("unknown", "weir.toml has no equivalent"),
];

#[test]
fn unsupported_lines_of_proxy_sections_have_specific_reasons() {
    for (text, part) in UNSUPPORTED {
        let reason = unsupported_reason(&line(text));
        assert!(reason.contains(part), "{text}: {reason}");
    }
}

#[test]
fn unsupported_lines_of_global_are_reported_with_their_reason() {
    for (text, reason) in [
        (
            "log-tag x",
            "not imported: `access_log` of a service has no such setting",
        ),
        (
            "maxconn x",
            "not imported: `limits.connections` is set per service",
        ),
        ("nbthread 4", "not imported: Weir runs one worker per CPU"),
        (
            "chroot /x",
            "not imported: the systemd unit controls how the process runs",
        ),
        (
            "stats socket x",
            "not imported: `weir status`, the Unix socket and /metrics show the state",
        ),
        (
            "ssl-x y",
            "not imported: Weir uses its own TLS defaults; see a service's `tls`",
        ),
        (
            "ca-base /x",
            "not imported: Weir uses its own TLS defaults; see a service's `tls`",
        ),
        (
            "crt-base /x",
            "not imported: Weir uses its own TLS defaults; see a service's `tls`",
        ),
        (
            "tune.x 1",
            "not imported: Weir has no such tuning parameter",
        ),
        ("tune 1", "not imported: weir.toml has no equivalent"),
        (
            "setenv A b",
            "not imported: each use of a variable is replaced with its value",
        ),
    ] {
        let mut notes = Notes::default();
        notes.add_file("haproxy.cfg", text);
        reject_global(&line(text), &mut notes);
        let is_loss = !notes.losses().is_empty();
        assert_eq!(is_loss, !text.starts_with("setenv"), "{text}");
        assert_eq!(notes.finish(), [format!("line 1: {text}: {reason}")]);
    }
}

#[test]
fn lines_that_configure_unused_features_have_no_effect() {
    const ALL: UsedFeatures = UsedFeatures {
        tarpits: true,
        counters: true,
        stick: true,
        compression: true,
    };
    const NONE: UsedFeatures = UsedFeatures {
        tarpits: false,
        counters: false,
        stick: false,
        compression: false,
    };
    let counters = UsedFeatures {
        counters: true,
        ..NONE
    };
    let stick = UsedFeatures {
        stick: true,
        ..NONE
    };
    for (text, used, has_effect) in [
        ("timeout tarpit 1s", NONE, false),
        ("timeout tarpit 1s", ALL, true),
        ("timeout client 1s", NONE, true),
        ("compression type x", NONE, false),
        ("compression type x", ALL, true),
        ("compression algo gzip", NONE, true),
        ("filter compression", ALL, false),
        ("filter trace", ALL, false),
        ("filter spoe", NONE, true),
        ("stick-table type ip", NONE, false),
        ("stick-table type ip", counters, true),
        ("stick-table type ip", stick, true),
        ("http-request track-sc0 src", NONE, false),
        ("tcp-request content track-sc1 src", stick, false),
        ("http-request track-sc0 src", counters, true),
        ("http-request deny", NONE, true),
        ("stick on src", NONE, true),
    ] {
        assert_eq!(
            no_effect_reason(&line(text), &used).is_none(),
            has_effect,
            "{text} {used:?}"
        );
    }
}

#[test]
fn used_features_are_found_in_all_lines() {
    let find = |text: &str| {
        let mut notes = Notes::default();
        let text = format!("defaults\n {text}\nfrontend f\n");
        let lines = line::read_lines(&EmptyEnvironment, &mut notes, "haproxy.cfg", &text);
        let used = UsedFeatures::find(&section::read(lines, &mut notes).proxies);
        [used.tarpits, used.counters, used.stick, used.compression]
    };
    for (text, expected) in [
        ("mode http", [false; 4]),
        ("http-request tarpit", [true, false, false, false]),
        ("timeout tarpit 1s", [false; 4]),
        ("acl a sc0_conn_rate gt 1", [false, true, false, false]),
        ("acl a src_http_req_rate gt 1", [false, true, false, false]),
        ("http-request sc-inc-gpc0(0)", [false, true, false, false]),
        ("http-request x-sc-inc", [false; 4]),
        ("stick on src", [false, false, true, false]),
        ("stick-table type ip", [false; 4]),
        ("compression algo gzip", [false, false, false, true]),
        ("compression algo-res gzip", [false, false, false, true]),
        ("compression type x", [false; 4]),
        ("filter algo", [false; 4]),
    ] {
        assert_eq!(find(text), expected, "{text}");
    }
}

#[test]
fn http_only_lines_half_closed_timeouts_and_imported_defaults_are_recognized() {
    for (text, expected) in [
        ("option forwardfor", true),
        ("option httpclose", true),
        ("option tcpka", false),
        ("timeout http-request 1s", true),
        ("timeout http-keep-alive 1s", true),
        ("timeout client 1s", false),
        ("errorfile 500 x", true),
        ("cookie x", true),
        ("http-request set-header a b", true),
        // Rules that restrict access are reported.
        ("http-request deny", false),
        ("mode tcp", false),
    ] {
        assert_eq!(is_http_only(&line(text)), expected, "{text}");
    }
    for (text, expected) in [
        ("timeout client-fin 1s", true),
        ("timeout server-fin 1s", true),
        ("timeout client 1s", false),
        ("option client-fin", false),
    ] {
        assert_eq!(limits_half_closed(&line(text)), expected, "{text}");
    }
    for (text, expected) in [
        ("option forwardfor", true),
        ("option httplog", false),
        ("timeout queue 1s", true),
        ("timeout tarpit 1s", false),
        ("maxconn 9", true),
        ("default-server check", true),
        ("fullconn 9", false),
    ] {
        assert_eq!(is_imported_default(&line(text)), expected, "{text}");
    }
}

/// Imports a file; returns its losses and its other notes.
fn notes_of(text: &str) -> (Vec<String>, Vec<String>) {
    let imported = haproxy("haproxy.cfg", text, &EmptyEnvironment);
    let (losses, remarks): (Vec<String>, Vec<String>) = imported
        .notes
        .into_iter()
        .partition(|note| imported.losses.contains(note));
    (losses, remarks)
}

#[test]
fn unused_lines_are_losses_only_if_they_have_an_effect() {
    let file = |mode: &str, line: &str, defaults: &str| {
        format!(
            "defaults\n mode {mode}\n{defaults}frontend f\n bind :80\n{line} default_backend b\nbackend b\n mode \
             {mode}\n server a 10.0.0.5:80\n"
        )
    };
    for (mode, line, defaults, remark) in [
        (
            "http",
            " timeout client-fin 1s\n",
            "",
            "apply until the response ends",
        ),
        (
            "tcp",
            " errorfile 500 /x\n",
            "",
            "it has no effect in mode tcp",
        ),
        (
            "http",
            " no option contstats\n",
            "",
            "the option is off in Weir too",
        ),
        (
            "http",
            " timeout tarpit 1s\n",
            "",
            "no rule delays a response",
        ),
    ] {
        let (losses, remarks) = notes_of(&file(mode, line, defaults));
        assert!(losses.is_empty(), "{line}{defaults}: {losses:?}");
        let is_noted = remarks.iter().any(|note| note.ends_with(remark));
        assert!(is_noted, "{line}{defaults}: {remarks:?}");
    }
    for (mode, line, defaults, loss) in [
        (
            "http",
            " retry-on 503\n",
            "",
            "only from its default backend",
        ),
        (
            "http",
            " force-persist if x\n",
            "",
            "weir.toml has no equivalent",
        ),
        (
            "http",
            "",
            " timeout x 1s\n",
            "`timeouts` has no such key, or the service gets it from another pool",
        ),
    ] {
        let (losses, _) = notes_of(&file(mode, line, defaults));
        let is_noted = losses.iter().any(|note| note.ends_with(loss));
        assert!(is_noted, "{line}{defaults}: {losses:?}");
    }
}

#[test]
fn note_about_unused_acl_says_whether_a_rule_uses_it() {
    let file = |lines: &str| {
        format!(
            "frontend f\n mode http\n bind :80\n{lines} default_backend b\nbackend b\n mode http\n server a \
             10.0.0.5:80\n"
        )
    };
    for (rule, remark) in [
        (
            "http-request set-nice 5 if a",
            "no rule that uses it is imported",
        ),
        (
            "http-request set-nice 5 if !a",
            "no rule that uses it is imported",
        ),
        (
            "http-request set-nice 5 if b",
            "no rule in the section uses it",
        ),
    ] {
        let (_, remarks) = notes_of(&file(&format!(" acl a path /x\n {rule}\n")));
        let note = format!("line 4: acl a path /x: not imported: {remark}");
        assert!(remarks.contains(&note), "{rule}: {remarks:?}");
    }
}

#[test]
fn defaults_that_no_section_uses_are_not_losses() {
    const FRONTEND: &str = "frontend f\n bind :80\n redirect scheme https\n";
    const BACKEND: &str = "backend b\n server a 10.0.0.5:80\n";
    for (line, section) in [
        ("timeout check 1s", FRONTEND),
        ("timeout queue 1s", FRONTEND),
        ("cookie X", FRONTEND),
        ("option httpchk", FRONTEND),
        ("balance source", FRONTEND),
        ("default-server check", FRONTEND),
        ("option abortonclose", BACKEND),
        ("option forwardfor", BACKEND),
        ("timeout tunnel 1h", BACKEND),
        ("retry-on 503", BACKEND),
        ("retries 2", BACKEND),
        ("maxconn 9", BACKEND),
    ] {
        let (losses, remarks) = notes_of(&format!("defaults\n mode http\n {line}\n{section}"));
        assert!(losses.is_empty(), "{line}: {losses:?}");
        let note = format!("line 3: {line}: not imported: no section uses it");
        assert_eq!(remarks, [note]);
    }
}

#[test]
fn global_settings_are_imported() {
    let import = |global: &str| {
        let text = format!("global\n{global}listen l\n mode http\n bind :80\n server a /a.sock\n");
        haproxy("haproxy.cfg", &text, &EmptyEnvironment)
    };
    let imported = import(" hard-stop-after 5m\n hard-stop-after 10m\n chroot /srv\n maxconn 9\n");
    assert!(
        imported
            .toml
            .starts_with("[node]\ndrain_timeout = \"10m\"\n"),
        "{}",
        imported.toml
    );
    assert_eq!(imported.toml.matches("[node]").count(), 1);
    assert!(
        imported.toml.contains("unix:/srv/a.sock"),
        "{}",
        imported.toml
    );
    assert!(
        imported.toml.contains("connections = 9"),
        "{}",
        imported.toml
    );
    let imported = import(" hard-stop-after x\n maxconn x\n");
    assert!(!imported.toml.contains("[node]"), "{}", imported.toml);
    assert_eq!(imported.losses.len(), 2, "{:?}", imported.losses);
}

#[test]
fn equal_lookups_share_a_map_and_others_get_new_names() {
    let rule = |value: &str| format!(" http-request set-header X %[{value}]\n");
    let text = format!(
        "frontend f\n mode http\n bind :80\n{}{}{}{} default_backend b\nbackend b\n mode http\n server a 10.0.0.5:80\n",
        rule("hdr(host),map(/etc/one/a.map)"),
        rule("hdr(host),map(/etc/one/a.map)"),
        rule("hdr(host),lower,map_beg(/etc/two/a.map)"),
        rule("src,map_ip(/etc/three/a.map)"),
    );
    let toml = haproxy("haproxy.cfg", &text, &EmptyEnvironment).toml;
    let tables: Vec<&str> = toml
        .split("\n\n")
        .filter(|it| it.contains("[map."))
        .collect();
    assert_eq!(
        tables,
        [
            "[map.a]\nfile = \"/etc/one/a.map\"",
            "[map.a-2]\nfile = \"/etc/two/a.map\"\nkind = \"prefix\"\nignore_case = true",
            "[map.a-2-2]\nfile = \"/etc/three/a.map\"\nkey = \"{client}\"\nkind = \"network\"",
        ]
    );
}

#[test]
fn mailers_that_no_backend_uses_are_noted() {
    let file = |alert: &str| {
        format!(
            "mailers m\n mailer a 192.0.2.1:25\nlisten l\n mode http\n bind :80\n{alert} server a 10.0.0.5:80 check\n"
        )
    };
    let note =
        "line 2: mailer a 192.0.2.1:25: not imported: no backend uses this mailer".to_owned();
    assert!(notes_of(&file("")).1.contains(&note));
    let alert =
        " email-alert mailers m\n email-alert from a@b.example\n email-alert to c@d.example\n";
    let (losses, remarks) = notes_of(&file(alert));
    assert!(
        !losses.contains(&note) && !remarks.contains(&note),
        "{losses:?} {remarks:?}"
    );
}

#[test]
fn cookies_of_more_than_32_servers_are_reported() {
    let import = |count: u32| {
        let servers: Vec<String> = (1..=count)
            .map(|number| format!(" server s{number} 10.0.0.{number}:80 cookie c{number}\n"))
            .collect();
        let text = format!(
            "frontend f\n mode http\n bind :80\n default_backend b\nbackend b\n mode http\n cookie C\n{}",
            servers.concat()
        );
        haproxy("haproxy.cfg", &text, &EmptyEnvironment)
    };
    let imported = import(32);
    assert_eq!(imported.toml.matches("cookie = [\"C=c").count(), 32);
    assert!(imported.losses.is_empty(), "{:?}", imported.losses);
    let imported = import(33);
    assert_eq!(imported.toml.matches("cookie = [\"C=c").count(), 0);
    let loss = "line 7: cookie C: not imported: each server with a cookie requires a route; the maximum is 32 servers";
    assert_eq!(imported.losses, [loss]);
}
