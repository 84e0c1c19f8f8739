//! Tests what is verified about the machine that runs a configuration, and combinations of settings.

use std::net::SocketAddr;

use weir_config::{Host, Machine, SecretValue, parse};
use weir_model::{Family, SecretSource};

use crate::{desired, messages, messages_on};

/// Other properties are unknown, because the configuration may be for a different machine.
#[test]
fn host_knows_only_its_ports_and_forwarding() {
    let host = Host {
        local_ports: Some((1024, 4999)),
        forwards: Some((true, false)),
    };
    assert_eq!(host.local_ports(), Some((1024, 4999)));
    assert_eq!(host.forwards(Family::V4), Some(true));
    assert_eq!(host.forwards(Family::V6), Some(false));
    assert_eq!(Host::default().forwards(Family::V4), None);
    let address: SocketAddr = "127.0.0.1:1".parse().expect("parse address");
    let properties = [
        host.has_group("root"),
        host.has_interface("lo"),
        host.has_address(address),
        host.has_program("/bin/sh"),
    ];
    assert_eq!(properties, [None; 4]);
    assert!(host.secret(&SecretSource::Text).is_none());
    assert!(host.variable("HOME").is_none());
    assert!(host.list_file("/etc/hosts").is_none());
}

/// A machine on which only the group `weir` exists.
struct OneGroup;

impl Machine for OneGroup {
    fn local_ports(&self) -> Option<(u16, u16)> {
        None
    }

    fn forwards(&self, _: Family) -> Option<bool> {
        None
    }

    fn has_group(&self, name: &str) -> Option<bool> {
        Some(name == "weir")
    }
}

#[test]
fn socket_group_must_exist() {
    let text = |group: &str| format!("[node]\nsocket_group = \"{group}\"\n");
    assert_eq!(messages_on(&text("weir"), &OneGroup), Vec::<String>::new());
    assert_eq!(
        messages_on(&text("none"), &OneGroup),
        ["group `none` does not exist on this machine"]
    );
}

fn with_snat(ports: &str) -> String {
    format!(
        "[pool.p]\nservers = [\"10.0.0.5\"]\ncheck = {{ kind = \"ping\" }}\n[service.s]\nlisten = [\"192.0.2.1:80\"]\n\
         forward = \"nat\"\npool = \"p\"\nsnat = {{ addresses = [\"10.0.0.1\"], ports = \"{ports}\" }}\n"
    )
}

#[test]
fn ports_of_snat_must_not_overlap_local_ports() {
    let host = Host {
        local_ports: Some((20_000, 30_000)),
        forwards: Some((true, true)),
    };
    for (ports, overlaps) in [
        ("10000-19999", false),
        ("10000-20000", true),
        ("25000-26000", true),
        ("30000-40000", true),
        ("30001-40000", false),
    ] {
        let errors = messages_on(&with_snat(ports), &host);
        let message =
            format!("the source ports {ports} overlap the director's local ports, 20000-30000");
        let expected = if overlaps { vec![message] } else { vec![] };
        assert_eq!(errors, expected, "{ports}");
    }
}

/// Returns a configuration with one service per listener.
fn with_listeners(listeners: &[&str]) -> String {
    let mut text = "[pool.p]\nservers = [\"10.0.0.5\"]\ncheck = { kind = \"ping\" }\n".to_owned();
    for (index, listen) in listeners.iter().enumerate() {
        text += &format!(
            "[service.s{index}]\nlisten = [\"{listen}\"]\nforward = \"nat\"\npool = \"p\"\n"
        );
    }
    text
}

#[test]
fn overlapping_listener_is_reported_with_the_widest_earlier_one() {
    let no_messages: [&str; 0] = [];
    for (listeners, expected) in [
        (
            &["192.0.2.1:1-100", "192.0.2.1:101-200"][..],
            &no_messages[..],
        ),
        (&["192.0.2.1:1-100", "192.0.2.2:50-60"], &no_messages),
        (&["192.0.2.1:1-100", "udp/192.0.2.1:50-60"], &no_messages),
        (
            &["192.0.2.1:1-100", "192.0.2.1:80", "192.0.2.1:*"],
            &no_messages,
        ),
        (
            &["192.0.2.1:1-100", "192.0.2.1:100-200"],
            &["tcp/192.0.2.1:100-200 overlaps tcp/192.0.2.1:1-100"],
        ),
        (
            &["192.0.2.1:1-100", "192.0.2.1:50-100", "192.0.2.1:60-70"],
            &[
                "tcp/192.0.2.1:50-100 overlaps tcp/192.0.2.1:1-100",
                "tcp/192.0.2.1:60-70 overlaps tcp/192.0.2.1:1-100",
            ],
        ),
        (
            &["192.0.2.1:1-100", "192.0.2.1:50-200", "192.0.2.1:150-160"],
            &[
                "tcp/192.0.2.1:50-200 overlaps tcp/192.0.2.1:1-100",
                "tcp/192.0.2.1:150-160 overlaps tcp/192.0.2.1:50-200",
            ],
        ),
        (
            &["192.0.2.1:80", "192.0.2.1:80"],
            &["tcp/192.0.2.1:80 is used twice"],
        ),
    ] {
        assert_eq!(
            messages(&with_listeners(listeners)),
            expected,
            "{listeners:?}"
        );
    }
}

#[test]
fn service_that_hides_the_api_is_reported() {
    for (admin, listen, hides) in [
        ("127.0.0.1:80", "127.0.0.1:80", true),
        ("127.0.0.1:80", "127.0.0.1:1-100", true),
        ("127.0.0.1:80", "127.0.0.1:*", true),
        ("127.0.0.1:80", "127.0.0.2:80", false),
        ("127.0.0.1:80", "127.0.0.1:81", false),
        ("127.0.0.1:80", "udp/127.0.0.1:80", false),
    ] {
        let text = format!("[node]\nadmin = \"{admin}\"\n{}", with_listeners(&[listen]));
        let errors = messages(&text);
        let message = "service `s0` receives the packets for `admin`";
        assert_eq!(
            errors.iter().any(|it| it == message),
            hides,
            "{listen}: {errors:?}"
        );
    }
}

#[test]
fn one_packet_requires_udp() {
    let text = |listen: &str, lines: &str| {
        format!(
            "[pool.p]\nservers = [\"10.0.0.5\"]\ncheck = {{ kind = \"ping\" }}\n[service.s]\nlisten = [{listen}]\n\
             forward = \"nat\"\npool = \"p\"\none_packet = true\n{lines}\n"
        )
    };
    let only_tcp = "`one_packet` requires UDP, but this service only listens on TCP";
    for (listen, lines, expected) in [
        ("\"udp/192.0.2.1:53\"", "", vec![]),
        ("\"192.0.2.1:53\", \"udp/192.0.2.1:53\"", "", vec![]),
        ("\"192.0.2.1:53\"", "", vec![only_tcp]),
        ("\"192.0.2.1:53\", \"192.0.2.1:54\"", "", vec![only_tcp]),
        (
            "\"udp/192.0.2.1:53\"",
            "snat = true",
            vec!["`one_packet` and `snat` are mutually exclusive"],
        ),
    ] {
        assert_eq!(messages(&text(listen, lines)), expected, "{listen} {lines}");
    }
}

#[test]
fn unused_pools_and_pools_without_weight_are_reported() {
    let text = |servers: &str, pool: &str| {
        format!(
            "[pool.p]\nservers = [{servers}]\ncheck = {{ kind = \"ping\" }}\n[service.s]\nlisten = [\"192.0.2.1:80\"]\n\
             forward = \"nat\"\npool = \"{pool}\"\n"
        )
    };
    let quiesced = "{ address = \"10.0.0.5\", weight = 0 }";
    assert_eq!(
        messages(&text(quiesced, "p")),
        ["every server of pool `p` has weight 0"]
    );
    assert_eq!(
        messages(&text(&format!("{quiesced}, \"10.0.0.6\""), "p")),
        Vec::<String>::new()
    );
    let unused_pool = format!(
        "{}[pool.q]\nservers = [\"10.0.0.7\"]\n",
        text("\"10.0.0.5\"", "p")
    );
    assert_eq!(messages(&unused_pool), ["no service uses pool `q`"]);
    // Unused pools are not reported with a missing pool, because its name may be a misspelling of theirs.
    assert_eq!(
        messages(&text("\"10.0.0.5\"", "x")),
        ["pool `x` does not exist"]
    );
    let unused_pool = unused_pool.replace("pool = \"p\"", "pool = \"x\"");
    assert_eq!(messages(&unused_pool), ["pool `x` does not exist"]);
}

#[test]
fn include_is_only_allowed_in_a_file() {
    assert_eq!(
        messages("include = [\"a.toml\"]\n"),
        ["`include` is only allowed in a file"]
    );
    assert_eq!(messages("include = []\n"), Vec::<String>::new());
}

/// RFC 9568 does not define authentication; the keys have the sizes that keepalived accepts.
#[test]
fn hmac_keys_are_text_or_hexadecimal() {
    let text = |secret: &str| {
        format!(
            "[vrrp.a]\ninterface = \"eth0\"\nvirtual_router_id = 1\naddresses = [\"192.0.2.9/24\"]\nhmac = {{ keys = \
             [{{ id = 7, secret = \"{secret}\" }}] }}\n"
        )
    };
    let digits = "00017f80ff9aA5b3".repeat(4);
    let bytes = [0x00, 0x01, 0x7f, 0x80, 0xff, 0x9a, 0xa5, 0xb3].repeat(4);
    let parsed_configuration = desired(&text(&format!("hex:{digits}")));
    let hmac = parsed_configuration.vrrp[0]
        .hmac
        .as_ref()
        .expect("`hmac` is set");
    assert_eq!((hmac.keys[0].0, hmac.active), (7, 7));
    assert_eq!(hmac.keys[0].1.0, bytes);
    for length in [32, 64] {
        let secret = "x".repeat(length);
        let parsed_configuration = desired(&text(&secret));
        let hmac = parsed_configuration.vrrp[0]
            .hmac
            .as_ref()
            .expect("`hmac` is set");
        assert_eq!(hmac.keys[0].1.0, secret.as_bytes());
    }
    let not_hex = "the text after `hex:` is not a sequence of hexadecimal digit pairs";
    for (secret, message) in [
        (
            "x".repeat(31),
            "the key has 31 bytes; it must have 32 to 64",
        ),
        (
            "x".repeat(65),
            "the key has 65 bytes; it must have 32 to 64",
        ),
        (
            format!("hex:{}", &digits[..62]),
            "the key has 31 bytes; it must have 32 to 64",
        ),
        (format!("hex:{digits}0"), not_hex),
        (format!("hex:{digits}0g"), not_hex),
        (format!("hex:{digits}g0"), not_hex),
    ] {
        let errors = messages(&text(&secret));
        assert!(
            errors.iter().any(|it| it == message),
            "{secret}: {errors:?}"
        );
    }
}

#[test]
fn exceeded_limit_is_reported_at_the_first_object_above_it() {
    let text = |limits: &str, services: usize| {
        let mut text = format!(
            "[node]\n{limits}\n[pool.p]\nservers = [\"10.0.0.5\", \"10.0.0.6\", \"10.0.0.7\"]\ncheck = {{ kind = \
             \"ping\" }}\n"
        );
        for number in 0..services {
            text += &format!(
                "[service.s{number}]\nlisten = [\"192.0.2.{number}:80\"]\nforward = \"nat\"\npool = \"p\"\n"
            );
        }
        text
    };
    assert_eq!(messages(&text("max_servers = 3", 1)), Vec::<String>::new());
    assert_eq!(messages(&text("max_services = 2", 2)), Vec::<String>::new());
    let hint = "; a server counts once for each layer 4 service that uses it";
    let above = "the first one above the limit";
    for (limits, services, message, fix, label) in [
        (
            "max_servers = 2",
            1,
            "3 servers exceed `max_servers` = 2".to_owned(),
            "raise `max_servers` in [node] to 3 or more; with 6 or more, a reload can replace all of them at once",
            above,
        ),
        (
            "max_servers = 5",
            2,
            format!("6 servers exceed `max_servers` = 5{hint}"),
            "raise `max_servers` in [node] to 6 or more; with 12 or more, a reload can replace all of them at once",
            "",
        ),
        (
            "max_servers = 3",
            2,
            format!("6 servers exceed `max_servers` = 3{hint}"),
            "raise `max_servers` in [node] to 6 or more; with 12 or more, a reload can replace all of them at once",
            "",
        ),
        (
            "max_services = 1",
            2,
            "2 services exceed `max_services` = 1".to_owned(),
            "raise `max_services` in [node] to 2 or more; with 4 or more, a reload can replace all of them at once",
            above,
        ),
    ] {
        let errors = parse(&text(limits, services), &Host::default()).expect_err("an error");
        let errors: Vec<_> = errors
            .iter()
            .map(|it| (it.message.clone(), it.fix.as_deref(), it.label.as_str()))
            .collect();
        assert_eq!(errors, [(message, Some(fix), label)], "{limits}");
    }
}

#[test]
fn debug_text_of_a_secret_does_not_contain_its_value() {
    let secret = SecretValue {
        bytes: b"hidden".to_vec(),
        exposed: Some(0o644),
    };
    assert_eq!(format!("{secret:?}"), "SecretValue { .. }");
}

/// Without the environment of the target machine, placeholders replace the variables.
#[test]
fn variables_may_be_any_part_of_an_address() {
    for (listen, server) in [
        ("${VIP}", "${SERVER}"),
        ("${VIP}:443", "${SERVER}:8443"),
        ("192.0.2.1:${PORT}", "10.0.0.5:${PORT}"),
        ("${VIP}:${PORT}", "${SERVER}:${PORT}"),
        ("tcp/${VIP}:443", "${SERVER:-10.0.0.5}:8443"),
    ] {
        let text = format!(
            "[pool.p]\nservers = [\"{server}\"]\ncheck = {{ kind = \"tcp\", port = 1 }}\n[service.s]\nlisten = \
             [\"{listen}\"]\nforward = \"nat\"\npool = \"p\"\n"
        );
        assert_eq!(messages(&text), Vec::<String>::new(), "{listen} {server}");
    }
}

/// A rejected listener is already reported, and its port may be the missing one.
#[test]
fn port_of_a_check_is_not_reported_if_a_listener_is_rejected() {
    let service = |name: &str, listen: &str, forward: &str| {
        format!("[service.{name}]\nlisten = [{listen}]\n{forward}\npool = \"p\"\n")
    };
    let pool = "[pool.p]\nservers = [\"10.0.0.5\"]\ncheck = { kind = \"tcp\" }\n";
    for forward in [
        "forward = \"nat\"",
        "forward = \"proxy\"\nprotocol = \"tcp\"",
    ] {
        let invalid_service = service("a", "\"192.0.2.1:x\"", forward);
        let other_service = service("b", "\"192.0.2.2:1\", \"192.0.2.2:2\"", forward);
        for services in [
            invalid_service.clone(),
            format!("{invalid_service}{other_service}"),
            format!("{other_service}{invalid_service}"),
        ] {
            let errors = messages(&format!("{pool}{services}"));
            assert!(
                !errors.iter().any(|it| it.contains("this check")),
                "{errors:?}"
            );
        }
        let errors = messages(&format!("{pool}{other_service}"));
        assert_eq!(errors, ["this check probes only port 1"]);
    }
    let ranges = service("a", "\"192.0.2.1:1-9\"", "forward = \"nat\"");
    let errors = messages(&format!("{pool}{ranges}"));
    assert_eq!(errors, ["this check has no port for server 10.0.0.5"]);
}
