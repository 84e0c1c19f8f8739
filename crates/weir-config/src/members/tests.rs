use super::*;

fn named(text: &str) -> Vec<(String, u32)> {
    let members = members(text).unwrap().into_iter();
    members
        .map(|member| (member.server.name, member.server.weight))
        .collect()
}

#[test]
fn every_form_gives_the_same_servers() {
    let wanted = [("10.0.0.5:80".to_owned(), 1), ("10.0.0.6".to_owned(), 3)];
    for text in [
        "# written by a program\n10.0.0.5:80\n\n10.0.0.6 weight=3 # big\n",
        "[\"10.0.0.5:80\", {\"address\": \"10.0.0.6\", \"weight\": 3}]",
        "{\"servers\": [\"10.0.0.5:80\", {\"address\": \"10.0.0.6\", \"weight\": 3}]}",
    ] {
        assert_eq!(named(text), wanted, "{text}");
    }
    assert!(named("").is_empty());
    assert!(named("[]").is_empty());
}

#[test]
fn limits_and_names_of_checks_are_read() {
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
fn what_is_no_list_is_refused() {
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
        "10.0.0.5 colour=3",
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

/// Every key of a server is either allowed, or refused by its name: a new one has to be decided on.
#[test]
fn every_other_key_of_a_server_is_refused_by_name() {
    for key in catalog::SERVER.keys {
        if MEMBER_KEYS.contains(&key.name) {
            continue;
        }
        let text = format!("[{{\"address\": \"10.0.0.5\", \"{}\": true}}]", key.name);
        let why = members(&text).unwrap_err().to_string();
        assert!(
            why.contains(&format!("`{}` is not allowed", key.name)),
            "{why}"
        );
        for allowed in MEMBER_KEYS {
            assert!(why.contains(&format!("`{allowed}`")), "{why}");
        }
    }
    for key in MEMBER_KEYS {
        assert!(catalog::SERVER.key(key).is_some(), "{key}");
    }
}

#[test]
fn a_check_in_a_list_is_refused() {
    for check in [
        r#"{"kind": "script", "command": ["/bin/sh", "-c", "id"], "user": "root"}"#,
        r#"[{"kind": "script", "command": "/bin/true"}]"#,
        r#"["site", {"kind": "file", "file": "/etc/shadow"}]"#,
        r#"{"kind": "tcp"}"#,
        "true",
        "null",
    ] {
        let text = format!("[{{\"address\": \"10.0.0.5\", \"check\": {check}}}]");
        let why = members(&text).unwrap_err();
        assert_eq!(why.reason, MemberReason::CheckBody, "{check}");
    }
    for line in [
        "user=root",
        "command=/bin/sh",
        "file=/etc/shadow",
        "kind=script",
    ] {
        let why = members(&format!("10.0.0.5 {line}")).unwrap_err();
        assert_eq!(why.reason, MemberReason::UnknownKey, "{line}");
    }
}

#[test]
fn errors_have_a_place_and_no_part_of_the_text() {
    let secret = "root:*:20228:0:99999:7:::";
    for (text, place) in [
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
        let why = members(&text).unwrap_err().to_string();
        assert!(why.starts_with(place), "{text}: {why}");
        for part in ["root", "*", "20228", "99999"] {
            assert!(!why.contains(part), "{text}: {why}");
        }
    }
}
