//! Tests the conversion of saved tables into weir.toml and into the desired state of the data plane.

use std::net::IpAddr;

use weir_ipvsadm::{
    Command, Edit, Errno, Forward, Names, NumericNames, Protocol, Server, ServerKey, ServiceKey,
    Table, Timeouts, import, lower, parse, words,
};
use weir_model::{Ports, TunnelChecksum, TunnelKind};

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn edit(line: &str) -> Edit {
    match parse("ipvsadm", &words(line), &NumericNames) {
        Ok(Command::Edit(edit)) => edit,
        other => panic!("{line}: {other:?}"),
    }
}

fn table(lines: &str) -> Table {
    let mut table = Table::default();
    for line in lines.lines() {
        table.apply(&edit(line)).unwrap();
    }
    table
}

/// Returns the service and pool converted from a table's only service.
fn lower_only_service(lines: &str) -> (weir_model::Service, weir_model::Pool) {
    lower(&table(lines).services()[0]).expect("the data plane supports the service")
}

#[test]
fn imported_table_is_complete() {
    let rules = "\
-A -t 192.0.2.10:80 -s sh -b sh-port,sh-fallback -p 300 -M 255.255.255.0
-a -t 192.0.2.10:80 -r 10.0.0.1:8080 -m -w 3 -x 100 -y 50
-a -t 192.0.2.10:80 -r 10.0.0.2:80 -g -w 1
-A -u [2001:db8::10]:53 -s rr -o
-a -u [2001:db8::10]:53 -r [fd00::1]:5353 -m -w 1
-A -f 7 -s wlc
-a -f 7 -r 10.0.0.3:0 -i -w 1 --tun-type gue --tun-port 5555 --tun-csum
-a -f 7 -r 10.0.0.4:0 -i -w 1 --tun-type gre
-a -f 7 -r 10.0.0.5:0 -i -w 1
";
    let imported = import(rules, &NumericNames);
    assert_eq!(imported.notes, [""; 0]);
    assert_eq!(
        imported.toml,
        r#"[pool."tcp-192.0.2.10-80"]
scheduler = { name = "sh", flags = ["sh-port", "sh-fallback"] }
servers = [
  { address = "10.0.0.1:8080", weight = 3, max_connections = 100, min_connections = 50, forward = "nat" },
  { address = "10.0.0.2", weight = 1 },
]

[service."tcp-192.0.2.10-80"]
listen = ["tcp/192.0.2.10:80"]
forward = "direct"
pool = "tcp-192.0.2.10-80"
strict_ipvs = true
persistence = { timeout = "300s", netmask = 24, netmask6 = 128 }

[pool."udp-2001-db8--10-53"]
scheduler = "rr"
servers = [
  { address = "[fd00::1]:5353", weight = 1 },
]

[service."udp-2001-db8--10-53"]
listen = ["udp/[2001:db8::10]:53"]
forward = "nat"
pool = "udp-2001-db8--10-53"
strict_ipvs = true
one_packet = true

[pool."fwmark-7"]
scheduler = "wlc"
servers = [
  { address = "10.0.0.3", weight = 1, tunnel = { type = "gue", port = 5555, checksum = "full" } },
  { address = "10.0.0.4", weight = 1, tunnel = { type = "gre" } },
  { address = "10.0.0.5", weight = 1 },
]

[service."fwmark-7"]
listen = ["fwmark/7"]
forward = "tunnel"
pool = "fwmark-7"
strict_ipvs = true
"#
    );
}

#[test]
fn timeouts_from_several_lines_are_combined() {
    let imported = import("--set 10 0 30\n--set 0 20 0\n", &NumericNames);
    assert_eq!(
        imported.toml,
        "[timeouts]\ntcp = \"10s\"\ntcp_fin = \"20s\"\nudp = \"30s\"\n"
    );
    let imported = import("--set 0 0 30\n-A -t 192.0.2.10:80\n", &NumericNames);
    assert!(
        imported
            .toml
            .starts_with("[timeouts]\nudp = \"30s\"\n\n[pool."),
        "{}",
        imported.toml
    );
    let mut timeouts = Timeouts::default();
    for (tcp_s, tcp_fin_s, udp_s) in [(1, 2, 3), (0, 5, 0)] {
        timeouts.update(&Timeouts {
            tcp_s,
            tcp_fin_s,
            udp_s,
        });
    }
    assert_eq!(
        (timeouts.tcp_s, timeouts.tcp_fin_s, timeouts.udp_s),
        (1, 5, 3)
    );
}

#[test]
fn lines_without_effect_are_noted_and_lost_lines_are_losses() {
    for (line, note, is_loss) in [
        ("-Z", "line 3: -Z: weir.toml contains no counters", false),
        ("-L -n", "line 3: -L -n: no effect on weir.toml", false),
        (
            "-A --sctp-service 192.0.2.10:80",
            "line 3: -A --sctp-service 192.0.2.10:80: Weir does not balance SCTP",
            true,
        ),
        (
            "-d -t 192.0.2.9:80 -r 10.0.0.1",
            "line 3: -d -t 192.0.2.9:80 -r 10.0.0.1: Service not defined",
            true,
        ),
    ] {
        let imported = import(&format!("# a comment\n\n{line}\n"), &NumericNames);
        assert_eq!(imported.notes, [note]);
        assert_eq!(imported.losses.len(), usize::from(is_loss), "{line}");
        assert_eq!(imported.toml, "", "{line}");
    }
    let invalid_import = import("-A\n", &NumericNames);
    assert_eq!(invalid_import.losses, invalid_import.notes);
    assert!(
        invalid_import.notes[0].starts_with("line 1: -A: "),
        "{:?}",
        invalid_import.notes
    );
    let rules = "-A -t 192.0.2.10:80 -s none\n-a -t 192.0.2.10:80 -r 10.0.0.1:80 -w 5\n";
    let imported = import(rules, &NumericNames);
    assert_eq!(
        imported.notes,
        ["tcp-192.0.2.10-80: no scheduler: its servers are quiesced (weight = 0)"]
    );
    assert!(imported.toml.contains("weight = 0 }"), "{}", imported.toml);
}

#[test]
fn service_listens_on_the_address_or_mark_of_its_key() {
    for (line, name, listener_names) in [
        (
            "-A -t 192.0.2.10:80",
            "ipvsadm:tcp/192.0.2.10:80",
            "tcp/192.0.2.10:80",
        ),
        (
            "-A -u 192.0.2.10:53",
            "ipvsadm:udp/192.0.2.10:53",
            "udp/192.0.2.10:53",
        ),
        (
            "-A -t [2001:db8::1]:80",
            "ipvsadm:tcp/[2001:db8::1]:80",
            "tcp/[2001:db8::1]:80",
        ),
        (
            "-A -t 192.0.2.10:0 -p",
            "ipvsadm:tcp/192.0.2.10:*",
            "tcp/192.0.2.10:*",
        ),
        ("-A -f 7", "ipvsadm:fwmark/7", "fwmark/7"),
        ("-A -f 7 -6", "ipvsadm:fwmark6/7", "fwmark6/7"),
    ] {
        let (service, pool) = lower_only_service(line);
        assert_eq!((service.name.as_str(), pool.name.as_str()), (name, name));
        assert_eq!(service.listener_names(), [listener_names]);
        assert!(service.strict_ipvs && service.pool == name);
    }
    let (any, _) = lower_only_service("-A -t 192.0.2.10:0 -p 60 -M 255.255.0.0");
    assert_eq!(any.listen[0].ports, Ports::Any);
    let persistence = any.persistence.unwrap();
    assert_eq!(
        (
            persistence.timeout.as_secs(),
            persistence.netmask,
            persistence.netmask6
        ),
        (60, 16, 128)
    );
    let (v6, _) = lower_only_service("-A -t [2001:db8::1]:80 -p 60 -M 64");
    let persistence = v6.persistence.unwrap();
    assert_eq!((persistence.netmask, persistence.netmask6), (32, 64));
    assert!(lower(&table("-A --sctp-service 192.0.2.10:80").services()[0]).is_none());
}

#[test]
fn servers_have_the_port_and_tunnel_that_the_kernel_would_use() {
    // Each case is a service, the options of a server with port 8080, and the resulting port.
    for (service, options, port) in [
        ("-t 192.0.2.10:80", "-m", Some(8080)),
        ("-t 192.0.2.10:80", "-g", None),
        ("-t 192.0.2.10:80", "-i", None),
        ("-f 7", "-m", Some(8080)),
        ("-f 7", "-g", None),
    ] {
        let lines = format!("-A {service}\n-a {service} -r 10.0.0.1:8080 {options}");
        let (_, pool) = lower_only_service(&lines);
        assert_eq!(pool.servers[0].port, port, "{lines}");
    }
    let persistent = lower_only_service("-A -f 7 -p\n-a -f 7 -r 10.0.0.1:8080 -m");
    assert_eq!(persistent.1.servers[0].port, None);
    let duplicates =
        lower_only_service("-A -f 7 -p\n-a -f 7 -r 10.0.0.1:1 -m\n-a -f 7 -r 10.0.0.1:2 -m");
    let ports: Vec<_> = duplicates
        .1
        .servers
        .iter()
        .map(|server| server.port)
        .collect();
    assert_eq!(ports, [Some(1), Some(2)], "the oldest first");
    let v6 =
        lower_only_service("-A -t [2001:db8::1]:80\n-a -t [2001:db8::1]:80 -r [fd00::1]:8080 -m");
    assert_eq!(v6.1.servers[0].name, "[fd00::1]:8080");
    assert_eq!(persistent.1.servers[0].name, "10.0.0.1:8080");

    let tunnel = |options: &str| {
        let lines = format!("-A -f 7\n-a -f 7 -r 10.0.0.1 -i {options}");
        let tunnel = lower_only_service(&lines).1.servers[0].tunnel.unwrap();
        (tunnel.kind, tunnel.port, tunnel.checksum)
    };
    for (options, expected) in [
        ("", (TunnelKind::Ipip, 6080, TunnelChecksum::None)),
        (
            "--tun-type gre --tun-csum",
            (TunnelKind::Gre, 6080, TunnelChecksum::Full),
        ),
        (
            "--tun-type gue --tun-port 99 --tun-remcsum",
            (TunnelKind::Gue, 99, TunnelChecksum::Remote),
        ),
    ] {
        assert_eq!(tunnel(options), expected, "{options}");
    }
    assert_eq!(
        lower_only_service("-A -f 7\n-a -f 7 -r 10.0.0.1 -g")
            .1
            .servers[0]
            .tunnel,
        None
    );
}

#[test]
fn scheduler_flags_apply_only_to_hashing_schedulers() {
    for (options, port, fallback) in [
        ("-s sh", false, false),
        ("-s sh -b sh-port", true, false),
        ("-s sh -b sh-fallback", false, true),
        ("-s mh -b mh-port,mh-fallback", true, true),
        ("-s rr -b flag-1,flag-2", false, false),
    ] {
        let (_, pool) = lower_only_service(&format!("-A -t 192.0.2.10:80 {options}"));
        let flags = pool.scheduler.unwrap().flags;
        assert_eq!((flags.port, flags.fallback), (port, fallback), "{options}");
    }
}

#[test]
fn edits_change_the_table_as_in_the_kernel() {
    let base =
        "-A -t 192.0.2.10:80 -s rr\n-A -f 7 -s wlc\n-a -f 7 -r 10.0.0.1 -g\n-a -f 7 -r 10.0.0.2 -g";
    let key = ServiceKey::Mark { mark: 7, v6: false };
    let apply_to_base = |line: &str| {
        let mut table = table(base);
        table.apply(&edit(line)).map(|()| table)
    };
    let servers = |table: &Table| {
        let servers = table.get(&key).unwrap().servers.iter();
        servers
            .map(|server| (server.key.address, server.weight))
            .collect::<Vec<_>>()
    };
    let first = table(base);
    assert!(!first.is_empty());
    assert_eq!(
        servers(&first),
        [(ip("10.0.0.2"), 1), (ip("10.0.0.1"), 1)],
        "the newest first"
    );
    let deleted = apply_to_base("-d -f 7 -r 10.0.0.1").unwrap();
    assert_eq!(servers(&deleted), [(ip("10.0.0.2"), 1)]);
    let edited = apply_to_base("-e -f 7 -r 10.0.0.1 -g -w 9").unwrap();
    assert_eq!(servers(&edited), [(ip("10.0.0.2"), 1), (ip("10.0.0.1"), 9)]);
    let edited = apply_to_base("-E -f 7 -s sh").unwrap();
    assert_eq!(edited.get(&key).unwrap().service.scheduler, "sh");
    assert_eq!(edited.get(&key).unwrap().servers.len(), 2);
    let deleted = apply_to_base("-D -f 7").unwrap();
    assert_eq!((deleted.get(&key), deleted.services().len()), (None, 1));
    assert!(apply_to_base("-C").unwrap().is_empty());
    for line in ["-Z", "-Z -f 7", "--set 1 2 3"] {
        assert_eq!(apply_to_base(line).unwrap(), first, "{line}");
    }
    for (line, errno) in [
        ("-Z -f 8", Errno::NoService),
        ("-D -f 8", Errno::NoService),
        ("-E -f 8 -s rr", Errno::NoService),
        ("-A -f 7 -s rr", Errno::Exists),
        ("-d -f 7 -r 10.0.0.9", Errno::NoEntry),
        ("-e -f 7 -r 10.0.0.9 -g", Errno::NoEntry),
        ("-e -f 8 -r 10.0.0.1 -g", Errno::NoService),
        ("-a -f 7 -r 10.0.0.1 -g", Errno::Exists),
        ("-a -f 7 -r 224.0.0.1 -g", Errno::Invalid),
        ("-a -f 7 -r 0.0.0.1 -g", Errno::Invalid),
        ("-E -f 7 -s nothing", Errno::NoEntry),
    ] {
        assert_eq!(apply_to_base(line), Err(errno), "{line}");
    }
}

#[test]
fn protocols_and_forwards_have_ipvsadm_titles_and_options() {
    for (protocol, title, name, option, number) in [
        (Protocol::Tcp, "TCP", "tcp", "-t", 6),
        (Protocol::Udp, "UDP", "udp", "-u", 17),
        (Protocol::Sctp, "SCTP", "sctp", "--sctp-service", 132),
    ] {
        let actual = (
            protocol.title(),
            protocol.as_str(),
            protocol.option(),
            protocol.number(),
        );
        assert_eq!(actual, (title, name, option, number));
    }
    for (forward, title, option) in [
        (Forward::Masq, "Masq", Some("-m")),
        (Forward::Route, "Route", Some("-g")),
        (Forward::Tunnel, "Tunnel", Some("-i")),
        (Forward::L3dsr, "L3dsr", None),
    ] {
        assert_eq!((forward.title(), forward.option()), (title, option));
    }
    let keys = [
        (edit("-A -t [2001:db8::1]:80"), true, Some(Protocol::Tcp)),
        (edit("-A -u 192.0.2.1:53"), false, Some(Protocol::Udp)),
        (edit("-A -f 7 -6"), true, None),
        (edit("-D -f 7"), false, None),
    ];
    for (edit, v6, protocol) in keys {
        let key = edit.key().unwrap();
        assert_eq!((key.is_v6(), key.protocol()), (v6, protocol));
    }
    for line in ["-C", "-Z", "--set 1 2 3"] {
        assert_eq!(edit(line).key(), None, "{line}");
    }
    assert_eq!(NumericNames.host(ip("192.0.2.1")), None);
    assert_eq!(NumericNames.service(80, Protocol::Tcp), None);
}

#[test]
fn server_with_forward_that_ipvsadm_lacks_is_converted() {
    let mut entry = table("-A -f 7\n-a -f 7 -r 10.0.0.1 -g").services()[0].clone();
    entry.servers.push(Server {
        key: ServerKey {
            address: ip("10.0.0.2"),
            port: 0,
        },
        forward: Forward::L3dsr,
        ..entry.servers[0]
    });
    let (service, pool) = lower(&entry).unwrap();
    assert_eq!(service.forward, weir_model::Forward::Direct);
    let forwards: Vec<_> = pool.servers.iter().map(|server| server.forward).collect();
    let l3dsr = weir_model::Forward::L3dsr;
    assert_eq!(forwards, [Some(l3dsr), Some(weir_model::Forward::Direct)]);
}
