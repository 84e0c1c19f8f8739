use crate::ldirectord::tests::{assert_rows, full_notes, import, short_notes};

/// The first line, the other lines, a text in weir.toml, and the notes.
type FileRow<'a> = (&'a str, &'a str, &'a str, &'a [&'a str]);

#[track_caller]
fn assert_files(rows: &[FileRow<'_>]) {
    for (header, lines, expected, notes) in rows {
        let text = format!("{header}\n{lines}");
        let imported = import(&text);
        let toml = &imported.toml;
        assert!(toml.contains(expected), "{text}: no {expected} in\n{toml}");
        assert_eq!(short_notes(&imported, &text), full_notes(notes), "{text}");
    }
}

const REAL: &str = "\treal=10.0.0.5:80 gate\n";
const REAL6: &str = "\treal6=[fd00::5]:80 gate\n";

#[test]
fn protocol_depends_on_the_target_and_its_port() {
    assert_files(&[
        ("virtual=192.0.2.1:80", REAL, "[\"192.0.2.1:80\"]", &[]),
        ("virtual=192.0.2.1:http", REAL, "[\"192.0.2.1:80\"]", &[]),
        (
            "virtual=192.0.2.1:53",
            "\treal=10.0.0.5:53 gate\n\tchecktype=on\n",
            "[\"udp/192.0.2.1:53\"]",
            &[],
        ),
        (
            "virtual=192.0.2.1:domain",
            "\treal=10.0.0.5:53 gate\n\tchecktype=on\n",
            "[\"udp/192.0.2.1:53\"]",
            &[],
        ),
        (
            "virtual=192.0.2.1:53",
            "\tprotocol=tcp\n\tchecktype=on\n",
            "[\"192.0.2.1:53\"]",
            &[],
        ),
        (
            "virtual=192.0.2.1:80",
            "\tprotocol=udp\n\tchecktype=on\n",
            "[\"udp/192.0.2.1:80\"]",
            &[],
        ),
        (
            "virtual=192.0.2.1:80",
            "\tprotocol=fwm\n\tchecktype=on\n",
            "",
            &["2: !the protocol must be tcp or udp"],
        ),
        (
            "virtual=7",
            "\tprotocol=fwm\n\tchecktype=on\n",
            "[\"fwmark/7\"]",
            &[],
        ),
        (
            "virtual6=7",
            "\tprotocol=fwm\n\tchecktype=on\n",
            "[\"fwmark6/7\"]",
            &[],
        ),
        (
            "virtual=7",
            "\tprotocol=tcp\n\tchecktype=on\n",
            "[\"fwmark/7\"]",
            &["2: !the protocol of a firewall mark must be fwm"],
        ),
        (
            "virtual=7",
            "\tops=yes\n\tchecktype=on\n",
            "[\"fwmark/7\"]",
            &["2: not imported: one-packet scheduling is possible only for UDP"],
        ),
    ]);
}

#[test]
fn address_family_of_a_service_applies_to_its_servers() {
    const FAMILY: &str = "ldirectord rejects the file here: the address family requires";
    let header = format!("1: {FAMILY} `virtual6`");
    let real = format!("2: {FAMILY} `real6`");
    assert_files(&[
        (
            "virtual6=[2001:db8::1]:80",
            REAL6,
            "address = \"fd00::5\"",
            &[],
        ),
        ("virtual6=web:80", REAL6, "[\"[fd00::7]:80\"]", &[]),
        (
            "virtual6=[2001:db8::1]:80",
            "\treal=[fd00::5]:80 gate\n",
            "address = \"fd00::5\"",
            &[&real],
        ),
        (
            "virtual=[2001:db8::1]:80",
            REAL6,
            "address = \"fd00::5\"",
            &[&header],
        ),
        (
            "virtual6=[2001:db8::1]:80",
            REAL,
            "servers = []",
            &["2: !virtual6 requires real6, and virtual requires real"],
        ),
    ]);
    for (netmask, expected) in [
        ("1", "netmask6 = 1"),
        ("64", "netmask6 = 64"),
        ("128", "netmask6 = 128"),
    ] {
        let lines = format!("{REAL6}\tpersistent=60\n\tnetmask={netmask}\n");
        assert_files(&[("virtual6=[2001:db8::1]:80", &lines, expected, &[])]);
    }
    for netmask in ["0", "129", "255.255.255.0"] {
        let lines = format!("{REAL6}\tpersistent=60\n\tnetmask={netmask}\n");
        let note = "4: !netmask requires a dotted mask, or an IPv6 prefix length";
        assert_files(&[(
            "virtual6=[2001:db8::1]:80",
            &lines,
            "{ timeout = \"1m\" }",
            &[note],
        )]);
    }
    assert_rows(&[
        ("netmask=255.255.255.0;persistent=60", "netmask = 24", &[]),
        (
            "netmask=24;persistent=60",
            "",
            &["3: !netmask requires a dotted mask, or an IPv6 prefix length"],
        ),
        (
            "netmask=255.255.255.0",
            "",
            &["3: not imported: it has no effect without `persistent`"],
        ),
    ]);
}

#[test]
fn rejected_services_have_notes() {
    const NOT_IMPORTED: &str = "2: not imported: its virtual service is not imported";
    assert_files(&[
        (
            "virtual=nowhere:80",
            REAL,
            "",
            &["1: !the name nowhere cannot be resolved", NOT_IMPORTED],
        ),
        (
            "virtual=192.0.2.1:nope",
            REAL,
            "",
            &["1: !nope is not a known service name", NOT_IMPORTED],
        ),
        (
            "virtual=192.0.2.1:65536",
            REAL,
            "",
            &["1: !invalid port 65536", NOT_IMPORTED],
        ),
        (
            "virtual=192.0.2.1:80",
            "\treal=10.0.0.5:80 gate\nvirtual=192.0.2.1:http\n\treal=10.0.0.6:80 gate\n",
            "address = \"10.0.0.5\"",
            &[
                "3: !duplicate virtual service",
                "4: not imported: its virtual service is not imported",
            ],
        ),
    ]);
    // The same address with a different protocol is a different service.
    let text = format!(
        "virtual=192.0.2.1:80\n{REAL}virtual=192.0.2.1:80\n{REAL}\tprotocol=udp\n\tchecktype=on\n"
    );
    assert!(import(&text).notes.is_empty());
}

#[test]
fn service_has_the_most_common_method() {
    for (methods, forward, others) in [
        (&["gate"][..], "direct", &[][..]),
        (&["masq"], "nat", &[]),
        (&["ipip"], "tunnel", &[]),
        (&["masq", "gate"], "direct", &["nat"]),
        (&["ipip", "masq"], "nat", &["tunnel"]),
        (&["gate", "ipip", "ipip"], "tunnel", &["direct"]),
        (
            &["gate", "masq", "masq", "ipip"],
            "nat",
            &["direct", "tunnel"],
        ),
    ] {
        let servers = methods.iter().enumerate();
        let servers: String = servers
            .map(|(index, method)| format!("\treal=10.0.0.{}:80 {method}\n", index + 1))
            .collect();
        let toml = import(&format!("virtual=192.0.2.1:80\n{servers}")).toml;
        assert!(
            toml.contains(&format!("\nforward = \"{forward}\"\n")),
            "{methods:?}\n{toml}"
        );
        for other in others {
            assert_eq!(
                toml.matches(&format!(", forward = \"{other}\" }}")).count(),
                1,
                "{methods:?}\n{toml}"
            );
        }
        assert_eq!(
            toml.matches(", forward = ").count(),
            others.len(),
            "{methods:?}\n{toml}"
        );
    }
}

#[test]
fn real_servers_have_weights_limits_and_ports() {
    const OFF: &str = "2: imported with weight = 0: checktype off takes the server out of service";
    assert_files(&[
        (
            "virtual=192.0.2.1:80",
            "\treal=10.0.0.5 masq\n",
            "{ address = \"10.0.0.5:80\" }",
            &[],
        ),
        (
            "virtual=192.0.2.1:80",
            "\treal=10.0.0.5:81 masq\n",
            "{ address = \"10.0.0.5:81\" }",
            &[],
        ),
        (
            "virtual=192.0.2.1:80",
            "\treal=10.0.0.5:81 masq 3 l:2 u:9\n",
            "weight = 3, max_connections = 9, min_connections = 2 }",
            &[],
        ),
        (
            "virtual=192.0.2.1:80",
            "\treal=10.0.0.5:81 masq 3\n\tchecktype=off\n",
            "{ address = \"10.0.0.5:81\", weight = 0 }",
            &[OFF],
        ),
        (
            "virtual=192.0.2.1:80",
            "\treal=10.0.0.5->10.0.0.6 gate\n",
            "{ address = \"10.0.0.5\" },\n  { address = \"10.0.0.6\" }",
            &[],
        ),
        (
            "virtual=192.0.2.1:80",
            "\treal=10.0.0.5:81 masq\n\tfallback=127.0.0.1 masq\n",
            "sorry = { address = \"127.0.0.1:80\" }",
            &[],
        ),
        (
            "virtual=192.0.2.1:80",
            "\treal=10.0.0.5:81 masq\n\tfallback=127.0.0.1:82\n",
            "sorry = { address = \"127.0.0.1\", forward = \"direct\" }",
            &[],
        ),
        (
            "virtual6=[2001:db8::1]:80",
            "\treal6=[fd00::5]:81 masq\n\tfallback6=[::1]:82 masq\n",
            "sorry = { address = \"[::1]:82\" }",
            &[],
        ),
    ]);
}

#[test]
fn global_fallback_depends_on_the_address_family() {
    let global = "fallback=10.0.0.9\nfallback6=[fd00::9]\n";
    for (service, expected) in [
        (
            "virtual=192.0.2.1:80\n\treal=10.0.0.5:80 gate\n",
            "sorry = { address = \"10.0.0.9\" }",
        ),
        (
            "virtual6=[2001:db8::1]:80\n\treal6=[fd00::5]:80 gate\n",
            "sorry = { address = \"fd00::9\" }",
        ),
    ] {
        let toml = import(&format!("{global}{service}")).toml;
        assert!(toml.contains(expected), "{toml}");
        assert_eq!(toml.matches("sorry").count(), 1);
    }
}

#[test]
fn fallback_command_gets_the_service_and_its_protocol() {
    for (header, lines, expected) in [
        ("virtual=192.0.2.1:80", "", "/x start 192.0.2.1:80 tcp ;;"),
        (
            "virtual=192.0.2.1:80",
            "\tprotocol=udp\n",
            "/x start 192.0.2.1:80 udp ;;",
        ),
        ("virtual=7", "", "/x start :0 fwm ;;"),
    ] {
        let text = format!("{header}\n{REAL}\tchecktype=ping\n\tfallbackcommand=/x\n{lines}");
        let toml = import(&text).toml;
        let (pool, _) = toml
            .split_once("[service.")
            .expect("no service in the output");
        assert!(pool.contains(expected), "{header}: {toml}");
    }
}
