//! Tests every listing format, and that a saved table can be restored unchanged.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use weir_ipvsadm::{
    Columns, Command, Connection, Counters, List, ListedServer, ListedService, Listing, Names,
    NumericNames, Protocol, Table, Timeouts, format_connections, format_timeouts, parse, words,
};

const TABLE: &str = "\
-A -t 192.0.2.10:80 -s wlc
-a -t 192.0.2.10:80 -r 10.0.0.2 -g -w 3 -x 100 -y 80
-a -t 192.0.2.10:80 -r 192.168.1.1 -g -w 0
-a -t 192.0.2.10:80 -r 10.0.0.1:80 -g
-A -t 192.0.2.10:443 -s sh -p 600 -M 255.255.255.0 -b sh-port,sh-fallback
-a -t 192.0.2.10:443 -r 10.0.0.3:8443 -m -w 65535
-A -u 192.0.2.10:53 -s rr -o
-a -u 192.0.2.10:53 -r 10.0.0.4 -i --tun-type gue --tun-port 6080 --tun-remcsum
-a -u 192.0.2.10:53 -r 10.0.0.5 -i --tun-type gre --tun-csum
-a -u 192.0.2.10:53 -r 10.0.0.6 -i
-a -u 192.0.2.10:53 -r 2001:db8::6 -i --tun-type gue --tun-port 6081
-A --sctp-service 192.0.2.10:3868 -s mh -b mh-port
-A -t [2001:db8:aaaa:bbbb:cccc:dddd:eeee:1]:80 -s none -p 360 -M 64
-a -t [2001:db8:aaaa:bbbb:cccc:dddd:eeee:1]:80 -r [2001:db8:aaaa:bbbb:cccc:dddd:eeee:2]:80 -g
-A -f 7 -s wrr -b flag-1,flag-3
-a -f 7 -r 10.0.0.7:0 -g
-a -f 7 -r 10.0.0.8:8080 -m
-A -f 8 -6 -s wlc -p 30
-A -t 192.0.2.9:0 -s lc -p
";

fn table(text: &str) -> Table {
    let mut table = Table::default();
    for line in text.lines() {
        match parse("ipvsadm", &words(line), &NumericNames) {
            Ok(Command::Edit(edit)) => table.apply(&edit).unwrap(),
            other => panic!("{line}: {other:?}"),
        }
    }
    table
}

/// Returns a listing with a different number in each cell, from small numbers to ones that overflow their columns.
fn listing() -> Listing {
    let mut number = 0u64;
    let mut next = || {
        number += 1;
        10u64.pow((number % 18) as u32) + number
    };
    let mut counters = || Counters {
        connections: next(),
        packets_in: next(),
        packets_out: next(),
        bytes_in: next(),
        bytes_out: next(),
    };
    let table = table(TABLE);
    let services = table.services().iter().map(|entry| ListedService {
        service: entry.service.clone(),
        last_port: None,
        counters: counters(),
        rates: counters(),
        servers: entry
            .servers
            .iter()
            .map(|server| ListedServer {
                server: *server,
                active: u64::from(server.weight) + 1,
                inactive: u64::from(server.upper),
                persistent: 12,
                counters: counters(),
                rates: counters(),
            })
            .collect(),
    });
    Listing {
        size: 1 << 20,
        services: services.collect(),
    }
}

/// Returns the output of `ipvsadm LINE`.
fn run_listing(line: &str, names: &dyn Names) -> String {
    match parse("ipvsadm", &words(line), &NumericNames).unwrap() {
        Command::List(List::All, columns) => listing().format_all(columns, names),
        Command::List(List::Service(key), columns) => listing()
            .format_service(&key, columns, names)
            .expect("service is not listed"),
        Command::Save(columns) => listing().save(columns.numeric, names),
        other => panic!("{other:?}"),
    }
}

#[test]
fn every_listing_mode_has_numeric_output() {
    let mut all = String::new();
    for mode in [
        "-L -n",
        "-L -n --nosort",
        "-L -n --stats",
        "-L -n --stats --exact",
        "-L -n --rate",
        "-L -n --rate -X",
        "-L -n --thresholds",
        "-L -n --persistent-conn",
        "-L -n --tun-info",
        "-L -n --tun-info --thresholds --stats",
        "-L -n -t 192.0.2.10:80",
        "-L -n -f 7 --stats",
        "-S -n",
    ] {
        // Lines can end with spaces, so a bar marks the end of each line.
        let output = run_listing(mode, &NumericNames).replace('\n', "|\n");
        all += &format!("$ ipvsadm {mode}\n{output}\n");
    }
    insta::assert_snapshot!(all);
}

/// Has names for every host, some of them long, and for one port.
struct NameTable;

impl Names for NameTable {
    fn address(&self, _: &str) -> Option<Ipv4Addr> {
        None
    }

    fn port(&self, _: &str, _: Protocol) -> Option<u16> {
        None
    }

    fn host(&self, address: IpAddr) -> Option<String> {
        Some(match address {
            IpAddr::V4(v4) if v4.octets()[3] % 2 == 0 => "short.example".to_owned(),
            IpAddr::V4(_) => "a-rather-long-name-of-a-host.of.some.department.example".to_owned(),
            IpAddr::V6(_) => "six.example".to_owned(),
        })
    }

    fn service(&self, port: u16, protocol: Protocol) -> Option<String> {
        (port == 80 && protocol == Protocol::Tcp).then(|| "http".to_owned())
    }
}

#[test]
fn names_are_truncated_like_ipvsadm() {
    let mut all = String::new();
    for mode in ["-L", "-L --stats", "-S"] {
        let output = run_listing(mode, &NameTable).replace('\n', "|\n");
        all += &format!("$ ipvsadm {mode}\n{output}\n");
    }
    insta::assert_snapshot!(all);
}

/// Has host names that are longer than 60 bytes and resolve back to their addresses.
struct LongNames;

impl LongNames {
    const TAIL: &str =
        ".of.a.host.in.a.department.with.a.name.that.fills.more.than.sixty.bytes.example";

    /// Parses the last byte of the address, which precedes `TAIL` in the name.
    fn last_byte(host: &str) -> Option<u8> {
        host.strip_suffix(Self::TAIL)?
            .strip_prefix('n')?
            .parse()
            .ok()
    }
}

impl Names for LongNames {
    fn address(&self, host: &str) -> Option<Ipv4Addr> {
        Self::last_byte(host).map(|last| Ipv4Addr::new(192, 0, 2, last))
    }

    fn address6(&self, host: &str) -> Option<Ipv6Addr> {
        let last = u16::from(Self::last_byte(host)?);
        Some(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, last))
    }

    fn port(&self, service: &str, _: Protocol) -> Option<u16> {
        (service == "http").then_some(80)
    }

    fn host(&self, address: IpAddr) -> Option<String> {
        let last = match address {
            IpAddr::V4(v4) => v4.octets()[3],
            IpAddr::V6(v6) => v6.octets()[15],
        };
        Some(format!("n{last}{}", Self::TAIL))
    }

    fn service(&self, port: u16, _: Protocol) -> Option<String> {
        (port == 80).then(|| "http".to_owned())
    }
}

#[test]
fn table_saved_with_names_round_trips() {
    let lines = "-A -t 192.0.2.10:80 -s rr\n\
                 -a -t 192.0.2.10:80 -r 192.0.2.11:80 -g -w 70000\n\
                 -A -t [2001:db8::10]:80 -s rr\n\
                 -a -t [2001:db8::10]:80 -r [2001:db8::11]:80 -g -w 1\n";
    let saved = listing_of(&table(lines)).save(false, &LongNames);
    assert!(
        saved.contains(LongNames::TAIL) && saved.contains("]:http"),
        "{saved}"
    );
    let mut restored = Table::default();
    for line in saved.lines() {
        match parse("ipvsadm", &words(line), &LongNames) {
            Ok(Command::Edit(edit)) => restored.apply(&edit).unwrap(),
            other => panic!("{line}: {other:?}"),
        }
    }
    assert_eq!(listing_of(&restored).save(true, &NumericNames), lines);
}

/// Returns a listing in which all counters are 0.
fn listing_of(table: &Table) -> Listing {
    Listing {
        size: 0,
        services: table.services().iter().map(without_counters).collect(),
    }
}

/// Returns a listed service with all counters 0.
fn without_counters(entry: &weir_ipvsadm::TableService) -> ListedService {
    let server = |server: &weir_ipvsadm::Server| ListedServer {
        server: *server,
        active: 0,
        inactive: 0,
        persistent: 0,
        counters: Counters::default(),
        rates: Counters::default(),
    };
    ListedService {
        service: entry.service.clone(),
        last_port: None,
        counters: Counters::default(),
        rates: Counters::default(),
        servers: entry.servers.iter().map(server).collect(),
    }
}

#[test]
fn saved_table_round_trips() {
    let saved = run_listing("-S -n", &NumericNames);
    let restored = Listing {
        size: 0,
        services: table(&saved)
            .services()
            .iter()
            .map(|entry| ListedService {
                service: entry.service.clone(),
                last_port: None,
                counters: Counters::default(),
                rates: Counters::default(),
                servers: entry
                    .servers
                    .iter()
                    .map(|server| ListedServer {
                        server: *server,
                        active: 0,
                        inactive: 0,
                        persistent: 0,
                        counters: Counters::default(),
                        rates: Counters::default(),
                    })
                    .collect(),
            })
            .collect(),
    };
    assert_eq!(restored.save(true, &NumericNames), saved);
}

#[test]
fn unknown_service_is_not_listed() {
    let Ok(Command::List(List::Service(key), columns)) =
        parse("ipvsadm", &words("-L -t 192.0.2.99:80"), &NumericNames)
    else {
        panic!("not parsed as a listing of a service");
    };
    assert_eq!(listing().format_service(&key, columns, &NumericNames), None);
}

#[test]
fn port_range_is_listed_but_not_saved() {
    let mut listing = listing();
    listing.services.truncate(1);
    listing.services[0].last_port = Some(8999);
    let columns = Columns {
        numeric: true,
        ..Columns::default()
    };
    let output = listing.format_all(columns, &NumericNames);
    assert!(output.contains("192.0.2.9:0-8999 lc"), "{output}");
    assert_eq!(listing.save(true, &NumericNames), "");
}

#[test]
fn connections_are_listed_in_columns() {
    let endpoint = |address: &str, port| (address.parse::<IpAddr>().unwrap(), port);
    let connection =
        |protocol, state: &str, expires_s, [client, vip, server]: [(&str, u16); 3]| Connection {
            protocol,
            expires_s,
            state: state.to_owned(),
            client: endpoint(client.0, client.1),
            vip: endpoint(vip.0, vip.1),
            server: endpoint(server.0, server.1),
        };
    let rows = [
        connection(
            Some(Protocol::Tcp),
            "ESTABLISHED",
            899,
            [
                ("198.51.100.7", 40_000),
                ("192.0.2.10", 80),
                ("10.0.0.1", 80),
            ],
        ),
        connection(
            Some(Protocol::Udp),
            "UDP",
            8_000,
            [
                ("2001:db8::7", 5353),
                ("2001:db8::1", 53),
                ("2001:db8::2", 53),
            ],
        ),
        connection(
            Some(Protocol::Tcp),
            "NONE",
            60,
            [("198.51.100.0", 0), ("192.0.2.10", 80), ("10.0.0.1", 80)],
        ),
        connection(
            None,
            "ASSURED",
            5,
            [("198.51.100.7", 0), ("0.0.0.7", 0), ("10.0.0.7", 0)],
        ),
    ];
    let numeric = Columns {
        numeric: true,
        ..Columns::default()
    };
    let engines = Columns {
        persistent_conn: true,
        ..numeric
    };
    insta::assert_snapshot!(format!(
        "{}\n{}\n{}",
        format_connections(&rows, numeric, &NumericNames),
        format_connections(&rows[..1], engines, &NumericNames),
        format_connections(&rows[..1], Columns::default(), &NameTable),
    ));
}

#[test]
fn timeouts_are_listed_on_one_line() {
    let output = format_timeouts(Timeouts {
        tcp_s: 900,
        tcp_fin_s: 120,
        udp_s: 300,
    });
    assert_eq!(output, "Timeout (tcp tcpfin udp): 900 120 300\n");
}

#[test]
fn sctp_services_are_found() {
    let with_sctp = listing();
    assert!(with_sctp.has_sctp(None));
    for listed in &with_sctp.services {
        let key = &listed.service.key;
        let expected = key.protocol() == Some(Protocol::Sctp);
        assert_eq!(with_sctp.has_sctp(Some(key)), expected, "{key:?}");
    }
    let without = listing_of(&table("-A -t 192.0.2.10:80 -s wlc\n"));
    assert!(!without.has_sctp(None));
}

#[test]
fn persistence_engine_is_listed_and_saved() {
    let mut listing = listing_of(&table("-A -u 192.0.2.10:5060 -s rr -p 60\n"));
    listing.services[0].service.engine = "sip".to_owned();
    let columns = Columns {
        numeric: true,
        ..Columns::default()
    };
    let output = listing.format_all(columns, &NumericNames);
    assert!(output.contains("rr persistent 60 pe sip"), "{output}");
    let line = "-A -u 192.0.2.10:5060 -s rr -p 60 --pe sip\n";
    assert_eq!(listing.save(true, &NumericNames), line);
}

#[test]
fn servers_with_the_same_address_are_sorted_by_port() {
    let lines = "-A -t 192.0.2.10:80 -s rr\n\
                 -a -t 192.0.2.10:80 -r 10.0.0.1:81 -m -w 1\n\
                 -a -t 192.0.2.10:80 -r 10.0.0.1:80 -m -w 1\n";
    let columns = Columns {
        numeric: true,
        ..Columns::default()
    };
    let output = listing_of(&table(lines)).format_all(columns, &NumericNames);
    let position = |text: &str| output.find(text).expect("text is not listed");
    assert!(
        position("10.0.0.1:80") < position("10.0.0.1:81"),
        "{output}"
    );
}

#[test]
fn list_options_select_services_connections_timeouts_or_daemons() {
    let command = |line: &str| parse("ipvsadm", &words(line), &NumericNames).unwrap();
    let list = |line: &str| match command(line) {
        Command::List(list, _) => list,
        other => panic!("{other:?}"),
    };
    assert_eq!(list(""), List::All);
    assert_eq!(list("-L"), List::All);
    assert_eq!(list("-L -c"), List::Connections);
    assert_eq!(list("-L --timeout"), List::Timeouts);
    assert_eq!(list("-L --daemon"), List::Daemons);
    assert_eq!(command("-R"), Command::Restore);
}
