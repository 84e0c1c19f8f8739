//! Tests server lists in each format, and rejected lists.

use super::*;

fn names_and_weights(text: &str) -> Vec<(String, u32)> {
    let members = members(text).unwrap().into_iter();
    members
        .map(|member| (member.server.name, member.server.weight))
        .collect()
}

#[test]
fn all_formats_parse_to_same_servers() {
    let expected = [("10.0.0.5:80".to_owned(), 1), ("10.0.0.6".to_owned(), 3)];
    for text in [
        "# written by a program\n10.0.0.5:80\n\n10.0.0.6 weight=3 # big\n",
        "[\"10.0.0.5:80\", {\"address\": \"10.0.0.6\", \"weight\": 3}]",
        "{\"servers\": [\"10.0.0.5:80\", {\"address\": \"10.0.0.6\", \"weight\": 3}]}",
    ] {
        assert_eq!(names_and_weights(text), expected, "{text}");
    }
    assert!(names_and_weights("").is_empty());
    assert!(names_and_weights("[]").is_empty());
}

#[test]
fn limits_and_check_names_are_parsed() {
    for text in [
        "10.0.0.5 max_connections=9 min_connections=5 check=site",
        r#"[{"address": "10.0.0.5", "max_connections": 9, "min_connections": 5, "check": "site"}]"#,
        r#"[{"address": "10.0.0.5", "max_connections": 9, "min_connections": 5, "check": ["site"]}]"#,
    ] {
        let members = members(text).unwrap();
        let [member] = members.as_slice() else {
            panic!("{text}")
        };
        assert_eq!(member.checks.as_deref(), Some(&["site".to_owned()][..]));
        assert_eq!(member.server.max_connections, 9);
        assert_eq!(member.server.min_connections, 5);
        assert_eq!(member.server.checks, None);
    }
}

#[test]
fn invalid_lists_are_rejected() {
    for text in [
        "10.0.0.300",
        "10.0.0.5 weight=many",
        "10.0.0.5 weight",
        "10.0.0.5 weight=1 weight=2",
        "10.0.0.5 address=10.0.0.6",
        "10.0.0.5 weight=-1",
        "10.0.0.5 weight=65536",
        "10.0.0.5 min_connections=1",
        "10.0.0.5:0",
        "10.0.0.5 color=3",
        "10.0.0.5\n10.0.0.5",
        "[\"10.0.0.5\"",
        "[1]",
        "[{}]",
        "{\"servers\": {}}",
        "{\"servers\": [], \"servers_file\": \"/x\"}",
        "{\"servers\": [], \"check\": {\"kind\": \"script\"}}",
        "\"}]}},\"service\":{}",
        "[\"10.0.0.5\"]}},\"node\":{\"admin\":\"127.0.0.1:1\"},\"x\":{\"y\":{\"z\":[]",
    ] {
        assert!(members(text).is_err(), "{text}");
    }
}

/// Every key of a server is either allowed or rejected by name, so every new key must be classified.
#[test]
fn disallowed_server_keys_are_rejected() {
    for key in catalog::SERVER.keys {
        if MEMBER_KEYS.contains(&key.name) {
            continue;
        }
        let text = format!("[{{\"address\": \"10.0.0.5\", \"{}\": true}}]", key.name);
        let error = members(&text).unwrap_err().to_string();
        assert!(
            error.contains(&format!("`{}` is not allowed", key.name)),
            "{error}"
        );
        for allowed in MEMBER_KEYS {
            assert!(error.contains(&format!("`{allowed}`")), "{error}");
        }
    }
    for key in MEMBER_KEYS {
        assert!(catalog::SERVER.key(key).is_some(), "{key}");
    }
}

#[test]
fn inline_check_is_rejected() {
    for check in [
        r#"{"kind": "script", "command": ["/bin/sh", "-c", "id"], "user": "root"}"#,
        r#"[{"kind": "script", "command": "/bin/true"}]"#,
        r#"["site", {"kind": "file", "file": "/etc/shadow"}]"#,
        r#"{"kind": "tcp"}"#,
        "true",
        "null",
    ] {
        let text = format!("[{{\"address\": \"10.0.0.5\", \"check\": {check}}}]");
        let error = members(&text).unwrap_err();
        assert_eq!(error.reason, MemberReason::InlineCheck, "{check}");
    }
    for line in [
        "user=root",
        "command=/bin/sh",
        "file=/etc/shadow",
        "kind=script",
    ] {
        let error = members(&format!("10.0.0.5 {line}")).unwrap_err();
        assert_eq!(error.reason, MemberReason::UnknownKey, "{line}");
    }
}

#[test]
fn errors_have_position_and_do_not_quote_text() {
    let secret = "root:*:20228:0:99999:7:::";
    for (text, location) in [
        (format!("{secret}\ndaemon:*:1::\n"), "line 1, column 1: "),
        (
            format!("10.0.0.5\n10.0.0.6 {secret}\n"),
            "line 2, column 10: ",
        ),
        (format!("10.0.0.5 {secret}=1\n"), "line 1, column 10: "),
        (format!("10.0.0.5 weight={secret}\n"), "line 1, column 10: "),
        (format!("[\n \"{secret}\"]"), "line 2, column 2: "),
        (format!("[{{\"{secret}\": 1}}]"), "line 1, column 3: "),
        (
            format!("[{{\"address\": \"{secret}\"}}]"),
            "line 1, column 14: ",
        ),
        (format!("[{secret}]"), "line 1, column 2: "),
        (format!("{{\"{secret}\": []}}"), "line 1, column 1: "),
    ] {
        let error = members(&text).unwrap_err().to_string();
        assert!(error.starts_with(location), "{text}: {error}");
        for part in ["root", "*", "20228", "99999"] {
            assert!(!error.contains(part), "{text}: {error}");
        }
    }
}

#[test]
fn error_has_a_reason_and_a_position() {
    use MemberReason::*;
    for (text, reason, line, column) in [
        ("[\"10.0.0.5\"", InvalidJson, 1, 12),
        ("{\"servers\": [], \"servers\": []}", DuplicateKey, 1, 17),
        ("{\"servers\": 1}", ExpectedList, 1, 13),
        ("{\"a\": []}", ExpectedList, 1, 1),
        ("{}", ExpectedList, 1, 1),
        ("[1]", ExpectedEntry, 1, 2),
        ("[{}]", MissingAddress, 1, 2),
        ("[{\"address\": 1}]", BadAddress, 1, 14),
        ("10.0.0.5 x", ExpectedPair, 1, 10),
        ("\n10.0.0.5:0", BadPort, 2, 1),
        ("10.0.0.5 weight=1 weight=1", DuplicateKey, 1, 19),
        ("10.0.0.5 address=10.0.0.6", DuplicateKey, 1, 10),
        ("10.0.0.5 forward=nat", NotAllowed("forward"), 1, 10),
        ("10.0.0.5 x=1", UnknownKey, 1, 10),
        ("10.0.0.5 weight=65536", BadValue("weight"), 1, 10),
        ("10.0.0.5 weight=-1", BadValue("weight"), 1, 10),
        ("10.0.0.5 backup=1", BadValue("backup"), 1, 10),
        ("10.0.0.5 cookie=a;b", BadValue("cookie"), 1, 10),
        ("10.0.0.5 min_connections=1", Thresholds, 1, 1),
        ("10.0.0.5\n10.0.0.5", DuplicateServer(1), 2, 1),
        (
            "[{\"address\": \"10.0.0.5\", \"weight\": \"1\"}]",
            BadValue("weight"),
            1,
            36,
        ),
        (
            "[{\"address\": \"10.0.0.5\", \"backup\": 1}]",
            BadValue("backup"),
            1,
            36,
        ),
        (
            "[{\"address\": \"10.0.0.5\", \"cookie\": 1}]",
            BadValue("cookie"),
            1,
            36,
        ),
        (
            "[{\"address\": \"10.0.0.5\", \"cookie\": \"\"}]",
            BadValue("cookie"),
            1,
            36,
        ),
    ] {
        let error = members(text).unwrap_err();
        assert_eq!(
            (&error.reason, error.at.line, error.at.column),
            (&reason, line, column),
            "{text}"
        );
    }
}

#[test]
fn every_key_of_an_entry_is_parsed() {
    for text in [
        "\n10.0.0.5:80 weight=65535 max_connections=5 min_connections=5 cookie=a backup=true check=c\n10.0.0.5 \
         backup=false weight=0 # end",
        "\n [{\"address\": \"10.0.0.5:80\", \"weight\": 65535, \"max_connections\": 5, \"min_connections\": 5, \
         \"cookie\": \"a\", \"backup\": true, \"check\": [\"c\"]}, {\"address\": \"10.0.0.5\", \"backup\": false, \
         \"weight\": 0}]",
    ] {
        let parsed_members = members(text).unwrap();
        let [first, second] = &parsed_members[..] else {
            panic!("{parsed_members:?}")
        };
        let server = &first.server;
        assert_eq!(
            (server.name.as_str(), server.port),
            ("10.0.0.5:80", Some(80))
        );
        assert_eq!(
            (
                server.weight,
                server.max_connections,
                server.min_connections
            ),
            (65_535, 5, 5)
        );
        assert_eq!((server.cookie.as_deref(), server.backup), (Some("a"), true));
        assert_eq!(
            (first.checks.as_deref(), first.at.line),
            (Some(&["c".to_owned()][..]), 2)
        );
        let server = &second.server;
        assert_eq!(
            (server.weight, server.backup, server.cookie.as_ref()),
            (0, false, None)
        );
        assert_eq!((server.max_connections, second.checks.as_ref()), (0, None));
    }
}

#[test]
fn reasons_are_displayed_as_text() {
    for (reason, text) in [
        (MemberReason::InvalidJson, "invalid JSON"),
        (
            MemberReason::BadValue("weight"),
            "`weight` must be an integer from 0 to 65535",
        ),
        (
            MemberReason::DuplicateServer(7),
            "duplicate server, first on line 7",
        ),
        (MemberReason::MissingAddress, "`address` is missing"),
    ] {
        assert_eq!(reason.to_string(), text);
    }
}
