//! Compares the rendered diagnostics of every mistake in `mistakes/` with a snapshot.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;

use weir_config::{
    Code, FileError, Host, Machine, load, parse, parse_json, render, render_file_error,
};
use weir_model::Family;

const HOST: Host = Host {
    local_ports: Some((32_768, 60_999)),
    forwards: Some((false, true)),
};

fn render_text(text: &str, name: &str) -> String {
    match parse(text, &HOST) {
        Ok(parsed) => render(&parsed.findings, text, name, false),
        Err(found) => render(&found, text, name, false),
    }
}

#[test]
#[allow(clippy::disallowed_methods, reason = "the mistakes are files")]
fn every_mistake_is_reported() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/mistakes");
    let mut names: Vec<String> = fs::read_dir(folder.as_path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    assert!(names.len() >= 45, "{} mistakes", names.len());
    for name in names {
        let text = fs::read_to_string(folder.join(&name)).unwrap();
        let output = render_text(&text, "weir.toml");
        assert!(!output.is_empty(), "{name} is valid");
        insta::assert_snapshot!(name.trim_end_matches(".toml"), output);
    }
}

#[test]
fn invalid_files_are_reported() {
    let big = vec![b'#'; (16 << 20) + 1];
    let errors = [
        load(b"[node]\n# caf\xe9\n").unwrap_err(),
        load(b"[node]\n\0\0\0").unwrap_err(),
        load(&big).unwrap_err(),
        FileError::Missing {
            path: "weir.toml".into(),
        },
        FileError::Unreadable {
            path: "weir.toml".into(),
            reason: "Permission denied (os error 13)".to_owned(),
        },
    ];
    let output: Vec<String> = errors
        .iter()
        .map(|error| render_file_error(error, "weir.toml", false))
        .collect();
    insta::assert_snapshot!(output.join("\n"));
}

#[test]
fn json_mistakes_have_positions() {
    let texts = [
        "{\n  \"node\": {\"max_flow\": 4096},\n  \"timeouts\": {\"tcp\": 900, \"tcp\": null}\n}\n",
        "{\n  \"node\": {\n    \"max_flows\": 4096,\n  }\n}\n",
        "[]\n",
    ];
    let output: Vec<String> = texts
        .iter()
        .map(|text| {
            render(
                &parse_json(text, &HOST).unwrap_err(),
                text,
                "weir.json",
                false,
            )
        })
        .collect();
    insta::assert_snapshot!(output.join("\n"));
}

#[test]
fn colors_do_not_change_text() {
    let text = "[node]\nmax_flow = 1\n";
    let errors = parse(text, &HOST).unwrap_err();
    let colored = render(&errors, text, "weir.toml", true);
    let mut plain_text = String::new();
    let mut rest = colored.as_str();
    while let Some((before, after)) = rest.split_once("\u{1b}[") {
        plain_text.push_str(before);
        rest = after.split_once('m').unwrap().1;
    }
    plain_text.push_str(rest);
    assert_ne!(colored, plain_text);
    assert_eq!(plain_text, render(&errors, text, "weir.toml", false));
}

#[test]
fn overlong_lines_are_not_quoted() {
    let text = format!("{{\"node\": {{\"max_flow\": 1}}{}}}", " ".repeat(5000));
    let output = render(
        &parse_json(&text, &HOST).unwrap_err(),
        &text,
        "weir.json",
        false,
    );
    assert!(output.contains("weir.json:1:11"), "{output}");
    assert!(output.len() < 500, "{output}");
}

#[test]
fn lines_of_at_most_2000_bytes_are_quoted() {
    let content = "{\"node\": {\"max_flow\": 1}}";
    for (length, is_quoted) in [(2000, true), (2001, false), (3000, false)] {
        let text = format!("{content}{}", " ".repeat(length - content.len()));
        let errors = parse_json(&text, &HOST).unwrap_err();
        let output = render(&errors, &text, "weir.json", false);
        assert_eq!(output.contains("\n1 | "), is_quoted, "{output}");
    }
}

#[test]
fn diagnostics_are_limited_per_severity() {
    let mut text = String::from("[node]\n");
    for n in 0..5000 {
        text.push_str(&format!("x{n} = 1\n"));
    }
    let errors = parse(&text, &HOST).unwrap_err();
    assert_eq!(errors.len(), 1001);

    let mut text = String::new();
    for n in 0..3000 {
        text.push_str(&format!("[pool.p{n}]\nservers = [\"10.0.0.5\"]\n"));
    }
    text.push_str("[timeouts]\ntcp = 5\n");
    let errors = parse(&text, &HOST).unwrap_err();
    assert_eq!(
        errors.iter().filter(|d| d.code.as_str() == "E004").count(),
        1
    );
}

/// A machine with the interface `eth0`, the address 10.0.0.2 and the program `/bin/sh`.
struct OneInterface;

impl Machine for OneInterface {
    fn local_ports(&self) -> Option<(u16, u16)> {
        None
    }

    fn forwards(&self, _: Family) -> Option<bool> {
        None
    }

    fn has_interface(&self, name: &str) -> Option<bool> {
        Some(name == "eth0")
    }

    fn has_address(&self, address: SocketAddr) -> Option<bool> {
        Some(address.ip().to_string() == "10.0.0.2")
    }

    fn has_program(&self, path: &str) -> Option<bool> {
        Some(path == "/bin/sh")
    }
}

#[test]
fn missing_interfaces_of_routers_and_missing_programs_are_notes() {
    let text = "[vrrp.a]\ninterface = \"eth1\"\nvirtual_router_id = 1\naddresses = [\"10.0.0.9/24\"]\n\
                track = [{ interface = \"eth0\" }, { script = [\"/opt/alive\"] }]\n\
                notify = [\"/bin/sh\", \"/opt/none\"]\nnotify_master = [\"/opt/tell\"]\n\
                [pool.p]\nservers = [\"10.0.0.5\"]\nnotify = \"/opt/pool\"\n\
                check = { kind = \"script\", command = [\"/opt/check\", \"x\"] }\n\
                [notify.n]\ncommand = [\"/opt/mail\"]\n\
                [service.s]\nlisten = [\"10.0.0.9:80\"]\nforward = \"nat\"\npool = \"p\"\n";
    let findings = parse(text, &OneInterface).unwrap().findings;
    insta::assert_snapshot!(render(&findings, text, "weir.toml", false));
    // The properties of a different machine are unknown.
    assert!(parse(text, &HOST).unwrap().findings.is_empty());
}

#[test]
fn server_with_a_note_stays_in_the_pool() {
    let check = "check = { kind = \"script\", command = [\"/opt/none\"] }";
    let text = format!(
        "[pool.p]\nservers = [\"10.0.0.5\", {{ address = \"10.0.0.6\", {check} }}]\nsorry = {{ address = \"10.0.0.7\", \
         {check} }}\n[pool.p.check]\nkind = \"tcp\"\n[service.s]\nlisten = [\"10.0.0.9:80\"]\nforward = \"nat\"\n\
         pool = \"p\"\n"
    );
    let parsed = parse(&text, &OneInterface).unwrap();
    let codes: Vec<&str> = parsed.findings.iter().map(|it| it.code.as_str()).collect();
    assert_eq!(codes, ["N007"]);
    let pool = &parsed.desired.pools[0];
    assert_eq!((pool.servers.len(), pool.sorry.is_some()), (2, true));
}

#[test]
fn ipv6_server_address_that_may_end_in_a_port_gets_a_note() {
    let text = |servers: &str| {
        format!(
            "[pool.p]\nservers = [{servers}]\ncheck = {{ kind = \"tcp\", port = 80 }}\n[service.s]\nlisten = \
             [\"[fd00::9]:80\"]\nforward = \"nat\"\npool = \"p\"\n"
        )
    };
    let unclear = text("\"fd00::22:80\", { address = \"fd00::23:8080\" }");
    let findings = parse(&unclear, &HOST).unwrap().findings;
    insta::assert_snapshot!(render(&findings, &unclear, "weir.toml", false));
    let clear = text(
        "\"[fd00::22]:80\", \"[fd00::22:80]\", \"fd00::22\", \"fd00::1:2\", \"fd00::1:a0\", \"fd00:0:0:1:2:3:4:80\"",
    );
    assert!(parse(&clear, &HOST).unwrap().findings.is_empty());
}

#[test]
fn unchecked_servers_of_a_pool_with_other_checks_are_counted() {
    let text = "[pool.p]\nservers = [\"10.0.0.5\", { address = \"10.0.0.6\", check = { kind = \"tcp\" } }]\n\
                [service.s]\nlisten = [\"10.0.0.9:80\"]\nforward = \"nat\"\npool = \"p\"\n";
    let findings = parse(text, &HOST).unwrap().findings;
    let messages: Vec<&str> = findings.iter().map(|it| it.message.as_str()).collect();
    assert_eq!(messages, ["1 of 2 servers of pool `p` has no check"]);
}

#[test]
fn sync_address_of_another_director_is_reported() {
    let text = |listen: &str| {
        format!(
            "[sync]\nlisten = \"{listen}:8482\"\npeers = [\"10.0.0.9:8482\"]\nkey = \"0123456789abcdef\"\n"
        )
    };
    let other_text = text("10.0.0.1");
    let findings = parse(&other_text, &OneInterface).unwrap().findings;
    insta::assert_snapshot!(render(&findings, &other_text, "weir.toml", false));
    let own_text = text("10.0.0.2");
    assert!(parse(&own_text, &OneInterface).unwrap().findings.is_empty());
}

#[test]
fn missing_interface_is_reported_at_its_name() {
    let text = "[node]\ninterfaces = [\"eth0\", \"enp3s0\", \"a/b\"]\nvip_interface = \"eth9\"\n";
    let errors = parse(text, &OneInterface).unwrap_err();
    insta::assert_snapshot!(render(&errors, text, "weir.toml", false));
}

/// Returns a pool of two thousand servers, one per line, starting at the third line.
fn servers(entry: impl Fn(usize) -> String) -> String {
    let servers: Vec<String> = (0..2000).map(|n| format!("  {},\n", entry(n))).collect();
    format!("[pool.web]\nservers = [\n{}]\n", servers.concat())
}

fn address(n: usize) -> String {
    format!("10.0.{}.{}", n / 250, n % 250 + 1)
}

#[test]
fn repeated_mistakes_are_merged() {
    let service = |listen: &str, forward: &str| {
        format!("[service.web]\nlisten = [\"{listen}\"]\nforward = \"{forward}\"\npool = \"web\"\n")
    };
    let v4 = service("192.0.2.10:80", "direct");
    let plain_servers = servers(|n| format!("\"{}\"", address(n)));
    let check = "check = { kind = \"tcp\" }\n";
    let files = [
        (
            "family",
            plain_servers.clone() + check + &service("[2001:db8::10]:80", "nat"),
        ),
        (
            "names",
            servers(|n| format!("\"web{n}.internal:8080\"")) + &v4,
        ),
        (
            "prefixes",
            servers(|n| format!("\"{}/32\"", address(n))) + &v4,
        ),
        (
            "ports",
            servers(|n| format!("\"{}:81\"", address(n))) + check + &v4,
        ),
        (
            "keys",
            servers(|n| format!("{{ address = \"{}\", wieght = 2 }}", address(n))) + &v4,
        ),
        (
            "twice",
            servers(|n| format!("\"{}\"", address(n / 2))) + check + &v4,
        ),
    ];
    for (name, text) in files {
        let findings = match parse(&text, &HOST) {
            Ok(parsed) => parsed.findings,
            Err(findings) => findings,
        };
        let [diagnostic] = findings.as_slice() else {
            panic!("{name}: {} findings", findings.len());
        };
        let further = if name == "twice" { 999 } else { 1999 };
        assert_eq!(
            (diagnostic.further_count, diagnostic.further.len()),
            (further, further),
            "{name}"
        );
        insta::assert_snapshot!(name, render(&findings, &text, "weir.toml", false));
    }
}

#[test]
fn merged_mistakes_are_reported_at_first_occurrence() {
    let text = "[timeouts]\ntcp = 5\n[pool.b]\nwieght = 1\nservers = [\"10.0.0.1\"]\n[pool.a]\nwieght = 1\nservers \
        = [\"10.0.0.1\"]\n";
    let errors = parse(text, &HOST).unwrap_err();
    insta::assert_snapshot!(render(&errors, text, "weir.toml", false));
}

/// Columns must not be counted from the start of the line for each server: with this file, that would take minutes.
#[test]
fn servers_on_one_line_have_correct_columns() {
    let list: Vec<String> = (0..20_000)
        .map(|n| format!("{{ address = \"10.9.{}.{}:80\" }}", n / 250, n % 250))
        .collect();
    let text = format!("[pool.p]\nservers = [{}, \"10.9.0.7\"]\n", list.join(", "));
    let parsed = parse(&text, &HOST).expect("a valid configuration");
    let pool = &parsed.desired.pools[0];
    assert_eq!(pool.servers.len(), 20_001);
    let duplicate = text.replace("\"10.9.0.7\"", "\"10.9.0.7:80\"");
    let errors = parse(&duplicate, &HOST).expect_err("a server occurs twice");
    let diagnostic = errors.iter().find(|it| it.code == Code::DuplicateEntry);
    let source = &diagnostic.expect("it is reported").at;
    let line = duplicate.lines().nth(1).expect("the list");
    let column = line.rfind("\"10.9").expect("the last server") + 1;
    assert_eq!(
        (source.line, source.column as usize),
        (2, column),
        "{errors:?}"
    );
}

/// The count of addresses in an advertisement is one byte.
#[test]
fn advertisement_lists_at_most_255_addresses() {
    let file = |count: usize| {
        let addresses = (0..count).map(|n| format!("\"10.9.{}.{}\"", n / 250, n % 250 + 1));
        let addresses: Vec<String> = addresses.collect();
        format!(
            "[vrrp.web]\ninterface = \"eth0\"\nvirtual_router_id = 51\naddresses = [{}]\n",
            addresses.join(", ")
        )
    };
    assert!(parse(&file(255), &HOST).is_ok());
    let found = render_text(&file(256), "weir.toml");
    let message = "too many addresses: 256; an advertisement lists at most 255";
    assert!(found.contains(message), "{found}");
    assert!(found.contains("excluded_addresses"), "{found}");
}
