use super::*;

fn at(line: usize) -> Position {
    Position::new(0, line)
}

/// A server on line 10 or later, without checks.
fn real_server(address: &str, port: u16) -> RealServer {
    RealServer {
        position: at(10),
        address: address.parse().expect("parse the address"),
        port,
        weight: Positioned::implied(1),
        max_connections: None,
        min_connections: None,
        method: None,
        probes: Vec::new(),
    }
}

/// A service on line 1 with `forward` and these servers, on port 80.
fn service(forward: Forward, real_servers: Vec<RealServer>) -> VirtualService {
    VirtualService {
        position: at(1),
        name: "s".to_owned(),
        listen: vec![("192.0.2.1:80".to_owned(), at(2))],
        port: 80,
        method: Positioned::implied(Method::plain(forward)),
        scheduler: Positioned::at("wrr".to_owned(), at(3)),
        flags: Vec::new(),
        persistent: None,
        one_packet: None,
        real_servers,
        sorry: None,
        quorum: None,
        hysteresis: None,
        lines: Vec::new(),
    }
}

fn tunnel(kind: TunnelKind, port: u16, checksum: TunnelChecksum) -> Method {
    Method {
        forward: Forward::Tunnel,
        tunnel: Some(Encapsulation {
            kind,
            port,
            checksum,
        }),
    }
}

/// Returns the tables without blank lines, and the notes.
fn render_service(spec: VirtualService) -> (String, Vec<String>) {
    let mut notes = Notes::default();
    notes.add_file("f", &"x\n".repeat(30));
    let mut writer = Writer::default();
    writer.write(spec, &mut notes);
    let text = writer.document.render().text;
    let lines = text.lines().filter(|line| !line.is_empty());
    (lines.collect::<Vec<_>>().join("\n"), notes.finish())
}

/// Asserts that the tables contain these lines in this order.
#[track_caller]
fn assert_lines(text: &str, expected: &[&str]) {
    let mut lines = text.lines().map(|line| line.trim_start_matches(' '));
    for line in expected {
        assert!(lines.any(|it| it == *line), "no {line} in\n{text}");
    }
}

#[test]
fn service_becomes_a_pool_and_a_service() {
    let (text, notes) = render_service(service(Forward::Direct, vec![real_server("10.0.0.1", 80)]));
    assert_eq!(
        text,
        "[pool.s]\nscheduler = \"wrr\"\nservers = [\n  { address = \"10.0.0.1\" },\n]\n\
         [service.s]\nlisten = [\"192.0.2.1:80\"]\nforward = \"direct\"\npool = \"s\""
    );
    assert!(notes.is_empty());
    let mut spec = service(
        tunnel(TunnelKind::Gue, 5555, TunnelChecksum::Full).forward,
        Vec::new(),
    );
    spec.method.value = tunnel(TunnelKind::Gue, 5555, TunnelChecksum::Full);
    spec.one_packet = Some(at(4));
    spec.sorry = Some(real_server("10.0.0.9", 0));
    let (text, notes) = render_service(spec);
    assert_lines(
        &text,
        &[
            "[pool.s]",
            "servers = []",
            "sorry = { address = \"10.0.0.9\" }",
            "[service.s]",
            "forward = \"tunnel\"",
            "tunnel = { type = \"gue\", port = 5555, checksum = \"full\" }",
            "one_packet = true",
        ],
    );
    assert!(notes.is_empty());
}

#[test]
fn names_of_pools_are_unique() {
    let mut writer = Writer::default();
    let mut notes = Notes::default();
    for expected in ["s", "s-2"] {
        let spec = service(Forward::Direct, vec![real_server("10.0.0.1", 80)]);
        assert_eq!(writer.write(spec, &mut notes), expected);
    }
}

#[test]
fn each_listener_with_persistence_becomes_a_service_up_to_a_limit() {
    for (listeners, persistent, services) in [
        (1, true, 1),
        (3, true, 3),
        (3, false, 1),
        (MAX_SERVICES, true, MAX_SERVICES),
        (MAX_SERVICES + 1, true, 1),
    ] {
        let mut spec = service(Forward::Direct, vec![real_server("10.0.0.1", 80)]);
        spec.listen = (0..listeners)
            .map(|index| (format!("192.0.2.{}:80", index + 1), at(2)))
            .collect();
        spec.persistent = persistent.then_some(Persistence {
            position: at(5),
            seconds: 300,
            mask: None,
            ipv6: false,
        });
        let (text, _) = render_service(spec);
        assert_eq!(text.matches("[service.").count(), services, "{listeners}");
        if services == 3 {
            let tables = ["[service.s]", "[service.s-2]", "[service.s-3]"];
            assert_lines(&text, &tables);
            assert_eq!(text.matches("pool = \"s\"").count(), 3);
        }
    }
}

#[test]
fn persistence_has_a_timeout_and_a_netmask() {
    for (seconds, mask, ipv6, expected) in [
        (360, None, false, "persistence = { timeout = \"6m\" }"),
        (
            50,
            Some((24, at(6))),
            false,
            "persistence = { timeout = \"50s\", netmask = 24 }",
        ),
        (
            50,
            Some((64, at(6))),
            true,
            "persistence = { timeout = \"50s\", netmask6 = 64 }",
        ),
    ] {
        let mut spec = service(Forward::Direct, Vec::new());
        spec.persistent = Some(Persistence {
            position: at(5),
            seconds,
            mask,
            ipv6,
        });
        assert_lines(&render_service(spec).0, &["[service.s]", expected]);
    }
}

#[test]
fn flags_of_other_schedulers_are_reported_and_not_imported() {
    for (name, flags, expected, note) in [
        ("wrr", &[][..], "scheduler = \"wrr\"", None),
        (
            "sh",
            &["sh-port", "sh-fallback"],
            "scheduler = { name = \"sh\", flags = [\"sh-port\", \"sh-fallback\"] }",
            None,
        ),
        (
            "mh",
            &["sh-port", "mh-port"],
            "scheduler = { name = \"mh\", flags = [\"mh-port\"] }",
            Some("line 4: x: not imported: scheduler mh ignores flag sh-port"),
        ),
        (
            "wrr",
            &["sh-port"],
            "scheduler = \"wrr\"",
            Some("line 4: x: not imported: scheduler wrr ignores flag sh-port"),
        ),
    ] {
        let mut spec = service(Forward::Direct, Vec::new());
        spec.scheduler.value = name.to_owned();
        spec.flags = flags
            .iter()
            .map(|flag| ((*flag).to_owned(), at(4)))
            .collect();
        let (text, notes) = render_service(spec);
        assert_lines(&text, &["[pool.s]", expected]);
        assert_eq!(notes.first().map(String::as_str), note, "{name} {flags:?}");
    }
}

#[test]
fn duplicate_servers_are_removed_as_in_the_kernel() {
    let nat = Some((Method::plain(Forward::Nat), at(10)));
    let direct = Some((Method::plain(Forward::Direct), at(10)));
    for (forward, ports, methods, count) in [
        // The port is part of the address only with nat.
        (Forward::Nat, [80, 81], [None, None], 2),
        (Forward::Nat, [80, 80], [None, None], 1),
        (Forward::Nat, [80, 81], [direct, direct], 1),
        (Forward::Direct, [80, 81], [None, None], 1),
        (Forward::Direct, [80, 81], [nat, nat], 2),
        (Forward::Tunnel, [80, 81], [None, None], 1),
    ] {
        let mut servers = vec![
            real_server("10.0.0.1", ports[0]),
            real_server("10.0.0.1", ports[1]),
        ];
        for (server, method) in servers.iter_mut().zip(methods) {
            server.method = method;
        }
        servers[1].position = at(11);
        servers.push(real_server("10.0.0.2", 80));
        let (text, notes) = render_service(service(forward, servers));
        assert_eq!(
            text.matches("address = \"10.0.0.1").count(),
            count,
            "{forward:?} {ports:?} {text}"
        );
        assert_eq!(text.matches("address = \"10.0.0.2").count(), 1);
        let note = "line 11: x: not imported: duplicate server, which the kernel rejects too";
        let expected: &[&str] = if count == 1 { &[note] } else { &[] };
        assert_eq!(notes, expected, "{forward:?} {ports:?}");
    }
}

#[test]
fn sorry_server_that_is_one_of_the_servers_is_not_imported() {
    for (forward, port, is_imported) in [
        (Forward::Nat, 80, false),
        (Forward::Nat, 81, true),
        (Forward::Direct, 81, false),
    ] {
        let mut spec = service(forward, vec![real_server("10.0.0.1", 80)]);
        spec.sorry = Some(real_server("10.0.0.1", port));
        let (text, notes) = render_service(spec);
        assert_eq!(text.contains("sorry = "), is_imported, "{forward:?} {port}");
        let note = "line 10: x: not imported: the sorry server is one of the servers";
        let expected: &[&str] = if is_imported { &[] } else { &[note] };
        assert_eq!(notes, expected, "{forward:?} {port}");
    }
}

#[test]
fn check_has_the_server_port_if_neither_address_nor_service_has_it() {
    let nat = Some((Method::plain(Forward::Nat), at(10)));
    for (forward, method, port, service_port, kind, expected) in [
        (Forward::Direct, None, 80, 80, "tcp", None),
        (Forward::Direct, None, 0, 80, "tcp", None),
        (Forward::Direct, None, 81, 80, "tcp", Some(81)),
        (Forward::Direct, None, 81, 0, "tcp", Some(81)),
        (Forward::Direct, None, 0, 0, "tcp", None),
        (Forward::Direct, None, 81, 80, "ping", None),
        (Forward::Direct, nat, 81, 80, "tcp", None),
        // With nat, the port is part of the server's address.
        (Forward::Nat, None, 81, 80, "tcp", None),
        (Forward::Nat, None, 0, 80, "tcp", None),
        (Forward::Tunnel, None, 81, 80, "tcp", Some(81)),
    ] {
        let mut server = real_server("10.0.0.1", port);
        server.method = method;
        server.probes = vec![Probe::new(kind, at(12))];
        let mut spec = service(forward, vec![server]);
        spec.port = service_port;
        set_check_ports(&mut spec);
        let entries = &spec.real_servers[0].probes[0].entries;
        let entry = entries.iter().find(|entry| entry.key == "port");
        let found = entry.map(|entry| entry.item.value.clone());
        assert_eq!(
            found,
            expected.map(Value::Integer),
            "{forward:?} {port} {service_port} {kind}"
        );
    }
}

#[test]
fn equal_checks_of_all_servers_become_the_checks_of_the_pool() {
    let probe = |kind: &str| Probe::new(kind, at(12));
    let with = |probes: &[Vec<Probe>]| {
        let servers = probes.iter().enumerate().map(|(index, probes)| {
            let mut server = real_server(&format!("10.0.0.{}", index + 1), 80);
            server.probes.clone_from(probes);
            server
        });
        render_service(service(Forward::Direct, servers.collect())).0
    };
    let text = with(&[vec![probe("tcp")], vec![probe("tcp")]]);
    assert_lines(&text, &["[pool.s.check]", "kind = \"tcp\"", "[service.s]"]);
    assert!(!text.contains("[[") && !text.contains("check ="), "{text}");
    let two = vec![probe("tcp"), probe("ping")];
    let text = with(&[two.clone(), two.clone()]);
    assert_lines(&text, &["[[pool.s.check]]", "kind = \"tcp\""]);
    assert_lines(&text, &["[[pool.s.check]]", "kind = \"ping\""]);
    let text = with(&[two, vec![probe("tcp")], Vec::new()]);
    assert_lines(
        &text,
        &[
            "[check.s-tcp]",
            "kind = \"tcp\"",
            "[check.s-ping]",
            "kind = \"ping\"",
            "[pool.s]",
            "{ address = \"10.0.0.1\", check = [\"s-tcp\", \"s-ping\"] },",
            "{ address = \"10.0.0.2\", check = [\"s-tcp\"] },",
            "{ address = \"10.0.0.3\" },",
        ],
    );
    assert_eq!(text.matches("[check.").count(), 2);
    assert!(!with(&[]).contains("check"));
    assert!(!with(&[Vec::new()]).contains("check"));
}

/// Returns the only server of a service, and the notes.
fn render_server(server: RealServer, method: Method) -> (String, Vec<String>) {
    let mut spec = service(method.forward, vec![server]);
    spec.method.value = method;
    let (text, notes) = render_service(spec);
    let mut lines = text
        .lines()
        .filter_map(|line| line.strip_prefix("  { address = "));
    let server = lines.next().and_then(|line| line.strip_suffix(" },"));
    (server.expect("no server in the output").to_owned(), notes)
}

#[test]
fn server_has_a_port_only_with_nat() {
    let nat = Some((Method::plain(Forward::Nat), at(11)));
    let direct = Some((Method::plain(Forward::Direct), at(11)));
    for (forward, method, address, port, expected) in [
        (Forward::Nat, None, "10.0.0.1", 80, "\"10.0.0.1:80\""),
        (Forward::Nat, None, "10.0.0.1", 0, "\"10.0.0.1\""),
        (Forward::Nat, None, "fd00::1", 80, "\"[fd00::1]:80\""),
        (Forward::Nat, None, "fd00::1", 0, "\"fd00::1\""),
        (Forward::Direct, None, "10.0.0.1", 80, "\"10.0.0.1\""),
        (Forward::Nat, nat, "10.0.0.1", 80, "\"10.0.0.1:80\""),
        (
            Forward::Nat,
            direct,
            "10.0.0.1",
            80,
            "\"10.0.0.1\", forward = \"direct\"",
        ),
        (
            Forward::Direct,
            nat,
            "10.0.0.1",
            80,
            "\"10.0.0.1:80\", forward = \"nat\"",
        ),
    ] {
        let mut server = real_server(address, port);
        server.method = method;
        let (text, _) = render_server(server, Method::plain(forward));
        assert_eq!(text, expected, "{forward:?} {method:?}");
    }
}

#[test]
fn weights_are_limited_and_the_default_is_not_written() {
    let max = u64::from(MAX_WEIGHT);
    for (weight, expected, note) in [
        (1, String::new(), None),
        (0, ", weight = 0".to_owned(), None),
        (max, format!(", weight = {max}"), None),
        (
            max + 1,
            format!(", weight = {max}"),
            Some("line 12: x: weight 65536 was changed to 65535, the maximum"),
        ),
    ] {
        let mut server = real_server("10.0.0.1", 0);
        server.weight = Positioned::at(weight, at(12));
        let (text, notes) = render_server(server, Method::plain(Forward::Direct));
        assert_eq!(text, format!("\"10.0.0.1\"{expected}"));
        assert_eq!(notes.first().map(String::as_str), note);
    }
}

#[test]
fn lower_threshold_has_no_effect_without_an_upper_one() {
    let note = "line 14: x: not imported: it has no effect without an upper threshold";
    for (max, min, expected, notes) in [
        (None, None, "", &[][..]),
        (Some(9), None, ", max_connections = 9", &[]),
        (
            Some(9),
            Some(3),
            ", max_connections = 9, min_connections = 3",
            &[],
        ),
        (Some(9), Some(0), ", max_connections = 9", &[]),
        (None, Some(3), "", &[note]),
        (Some(0), Some(3), "", &[note]),
        (Some(0), None, "", &[]),
    ] {
        let mut server = real_server("10.0.0.1", 0);
        server.max_connections = max.map(|value| (value, at(13)));
        server.min_connections = min.map(|value| (value, at(14)));
        let (text, found) = render_server(server, Method::plain(Forward::Direct));
        assert_eq!(text, format!("\"10.0.0.1\"{expected}"), "{max:?} {min:?}");
        assert_eq!(found, notes, "{max:?} {min:?}");
    }
}

#[test]
fn server_has_its_own_encapsulation_if_it_differs() {
    let gue = tunnel(TunnelKind::Gue, 5555, TunnelChecksum::None);
    let gre = tunnel(TunnelKind::Gre, 0, TunnelChecksum::Full);
    let plain = Method::plain(Forward::Tunnel);
    for (service_method, method, expected) in [
        (gue, gue, ""),
        (plain, plain, ""),
        // Without options, the kernel uses ipip, regardless of the service's encapsulation.
        (gue, plain, ", tunnel = { type = \"ipip\" }"),
        (plain, tunnel(TunnelKind::Ipip, 0, TunnelChecksum::None), ""),
        (gue, Method::plain(Forward::Nat), ", forward = \"nat\""),
        (plain, gue, ", tunnel = { type = \"gue\", port = 5555 }"),
        (
            gue,
            gre,
            ", tunnel = { type = \"gre\", checksum = \"full\" }",
        ),
        (
            Method::plain(Forward::Direct),
            gue,
            ", forward = \"tunnel\", tunnel = { type = \"gue\", port = 5555 }",
        ),
    ] {
        let mut server = real_server("10.0.0.1", 0);
        server.method = Some((method, at(11)));
        let (text, notes) = render_server(server, service_method);
        assert_eq!(text, format!("\"10.0.0.1\"{expected}"));
        assert!(notes.is_empty());
    }
}

#[test]
fn quorum_above_one_is_imported() {
    let no_sorry = "line 6: x: the quorum has no effect without a sorry server: the remaining servers are still used";
    let limited = "line 6: x: quorum 1000001 was changed to 1000000, the maximum";
    for (quorum, hysteresis, has_sorry, expected, notes) in [
        (Some(1), Some(0), true, &[][..], &[][..]),
        (Some(0), None, true, &[], &[]),
        (
            Some(2),
            Some(1),
            true,
            &["quorum = 2", "quorum_hysteresis = 1"],
            &[],
        ),
        (Some(2), None, false, &["quorum = 2"], &[no_sorry]),
        (Some(1), None, false, &[], &[]),
        (Some(1_000_000), None, true, &["quorum = 1000000"], &[]),
        (
            Some(1_000_001),
            None,
            true,
            &["quorum = 1000000"],
            &[limited],
        ),
        (
            None,
            Some(1_000_001),
            true,
            &["quorum_hysteresis = 1000000"],
            &[],
        ),
    ] {
        let mut spec = service(Forward::Direct, Vec::new());
        spec.quorum = quorum.map(|value| (value, at(6)));
        spec.hysteresis = hysteresis.map(|value| (value, at(7)));
        spec.sorry = has_sorry.then(|| real_server("10.0.0.9", 0));
        let (text, found) = render_service(spec);
        let keys: Vec<&str> = text
            .lines()
            .filter(|line| line.starts_with("quorum"))
            .collect();
        assert_eq!(keys, expected, "{quorum:?} {hysteresis:?}");
        assert_eq!(found, notes, "{quorum:?}");
    }
}

#[test]
fn listeners_have_a_protocol_and_brackets() {
    for (protocol, address, port, expected, name) in [
        ("tcp", "192.0.2.1", 80, "192.0.2.1:80", "192.0.2.1:80"),
        ("tcp", "192.0.2.1", 0, "192.0.2.1:*", "192.0.2.1-any"),
        (
            "udp",
            "192.0.2.1",
            53,
            "udp/192.0.2.1:53",
            "udp/192.0.2.1:53",
        ),
        (
            "udp",
            "192.0.2.1",
            0,
            "udp/192.0.2.1:*",
            "udp/192.0.2.1-any",
        ),
        ("tcp", "fd00::1", 80, "[fd00::1]:80", "[fd00::1]:80"),
        ("tcp", "fd00::1", 0, "[fd00::1]:*", "[fd00::1]-any"),
    ] {
        let text = listener(protocol, address.parse().expect("parse the address"), port);
        assert_eq!(text, expected);
        assert_eq!(service_name(&text), name);
    }
    assert_eq!(mark_listener(7, false), "fwmark/7");
    assert_eq!(mark_listener(7, true), "fwmark6/7");
}

#[test]
fn only_contiguous_nonzero_masks_have_a_length() {
    for (text, expected) in [
        ("255.255.255.255", Some(32)),
        ("255.255.255.0", Some(24)),
        ("255.255.254.0", Some(23)),
        ("128.0.0.0", Some(1)),
        ("0.0.0.0", None),
        ("255.0.255.0", None),
        ("0.0.0.255", None),
        ("24", None),
        ("", None),
    ] {
        assert_eq!(mask_length(text), expected, "{text}");
    }
}

#[test]
fn only_ipvs_schedulers_are_accepted() {
    for (name, expected) in [
        ("wrr", true),
        ("mh", true),
        ("p2c", false),
        ("WRR", false),
        ("", false),
    ] {
        assert_eq!(is_scheduler(name), expected, "{name}");
    }
}
