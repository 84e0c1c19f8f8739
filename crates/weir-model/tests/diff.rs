//! Tests the output of `weir plan`, and that it contains all differences.

use std::net::IpAddr;
use std::time::Duration;

use proptest::prelude::*;
use weir_model::*;

fn server(name: &str, weight: u32) -> Server {
    Server {
        weight,
        ..Server::new(name, name.parse::<IpAddr>().unwrap(), None)
    }
}

fn base() -> Desired {
    let mut images = Pool::new("images");
    images.servers = vec![
        server("10.0.0.5", 1),
        server("10.0.0.6", 2),
        server("10.0.0.7", 1),
    ];
    let mut old = Pool::new("old");
    old.servers = vec![server("10.0.1.1", 1)];
    let listen = |port| Listener {
        protocol: Protocol::Tcp,
        address: "192.0.2.10".parse().unwrap(),
        ports: Ports::One(port),
    };
    let mut web = Service::new("web", Forward::Direct, "images");
    web.listen = vec![listen(80)];
    let mut legacy = Service::new("legacy", Forward::Nat, "old");
    legacy.listen = vec![listen(8080)];
    Desired {
        pools: vec![images, old],
        services: vec![web, legacy],
        ..Desired::default()
    }
}

fn lines(old: &Desired, new: &Desired) -> String {
    diff(old, new)
        .iter()
        .map(|change| format!("{change}\n"))
        .collect()
}

#[test]
fn every_change_kind_formats_as_one_line() {
    let old = base();
    let mut new = base();
    new.node.interfaces = Some(vec!["eth0".to_owned(), "eth1".to_owned()]);
    new.node.drain_timeout = Duration::from_millis(1500);
    new.node.metrics = Metrics::Full;
    new.timeouts.tcp = Duration::from_secs(3600);
    new.ipvs.expire_nodest_conn = true;
    new.ipvs.conn_reuse_mode = 3;
    new.pools[0].scheduler = Some(Scheduler::new(SchedulerKind::Rr));
    new.pools[0].on_remove = OnRemove::Reset;
    new.pools[0].servers = vec![
        server("10.0.0.7", 1),
        server("10.0.0.5", 0),
        server("10.0.0.8", 3),
    ];
    new.pools[0].servers[0].tunnel = Some(Tunnel {
        kind: TunnelKind::Gue,
        ..Tunnel::default()
    });
    new.pools[0].servers[0].max_connections = 500;
    new.pools[1] = Pool::new("fresh");
    new.services[0].forward = Forward::Nat;
    new.services[0].snat = Some(Snat::default());
    new.services[0].persistence = Some(Persistence {
        netmask: 24,
        ..Persistence::default()
    });
    new.services[0].marks = vec![Mark {
        mark: 7.try_into().unwrap(),
        family: Family::V4,
    }];
    new.services[1].name = "modern".to_owned();
    insta::assert_snapshot!(lines(&old, &new));
}

#[test]
fn source_positions_are_ignored() {
    let mut new = base();
    new.pools[0].source = Source {
        line: 9,
        column: 1,
        file: 0,
    };
    new.pools[0].servers[0].source = Source {
        line: 10,
        column: 5,
        file: 0,
    };
    new.services[0].source = Source {
        line: 20,
        column: 1,
        file: 0,
    };
    assert_eq!(diff(&base(), &new), vec![]);
}

#[test]
fn server_order_change_is_reported() {
    let mut new = base();
    new.pools[0].servers.swap(0, 2);
    assert_eq!(
        diff(&base(), &new),
        vec![Change::ServersReordered {
            pool: "images".to_owned()
        }]
    );
}

#[test]
fn removing_a_server_is_not_a_reordering() {
    let mut new = base();
    new.pools[0].servers.remove(1);
    let removed = Change::ServerRemoved {
        pool: "images".to_owned(),
        server: "10.0.0.6".to_owned(),
    };
    assert_eq!(diff(&base(), &new), vec![removed]);
}

proptest! {
    #[test]
    fn diff_is_empty_iff_servers_are_equal(
        before in prop::collection::btree_map(0u8..20, 0u32..3, 0..12),
        after in prop::collection::btree_map(0u8..20, 0u32..3, 0..12),
    ) {
        let desired = |servers: &std::collections::BTreeMap<u8, u32>| {
            let mut pool = Pool::new("p");
            pool.servers = servers.iter().map(|(n, weight)| server(&format!("10.0.0.{n}"), *weight)).collect();
            Desired { pools: vec![pool], ..Desired::default() }
        };
        let changes = diff(&desired(&before), &desired(&after));
        prop_assert_eq!(changes.is_empty(), before == after);
        let added = changes.iter().filter(|change| matches!(change, Change::ServerAdded { .. })).count();
        prop_assert_eq!(added, after.keys().filter(|n| !before.contains_key(n)).count());
    }
}

#[test]
fn tls_and_http2_changes_are_reported_for_both_sides() {
    let mut old = base();
    old.proxies = vec![Proxy::new("www", ProxyProtocol::Http, "old")];
    let mut new = old.clone();
    new.proxies[0].http2 = false;
    new.proxies[0].tls = Some(ServiceTls {
        ticket_keys: Vec::new(),
        certificates: vec!["/etc/weir/certs".to_owned()],
        strict_sni: true,
        sni_host: weir_model::SniHost::Same,
        minimum: TlsVersion::V13,
        ciphers: Vec::new(),
        groups: Vec::new(),
        client_ca: None,
        client_crl: None,
        client_auth: ClientAuth::Required,
        source: Source::default(),
    });
    new.pools[1].http2 = true;
    new.pools[1].tls = Some(ServerTls {
        verify: false,
        ..ServerTls::default()
    });
    assert_eq!(
        lines(&old, &new),
        "~ pool old: tls none -> not verified, http2 false -> true\n\
         ~ service www: tls none -> /etc/weir/certs, from version 1.3, strict_sni, sni_host same, http2 true -> false\n"
    );
    // Source positions are ignored.
    new.proxies[0].error_pages = vec![ErrorPage {
        status: vec![(500, 599)],
        response: ErrorResponse::File("/etc/weir/sorry.html".to_owned()),
        source: Source::default(),
    }];
    let mut moved = new.clone();
    moved.proxies[0].error_pages[0].source.line += 1;
    let tls = moved.proxies[0].tls.as_mut().unwrap();
    tls.source.line += 1;
    assert_eq!(lines(&new, &moved), "");
}
