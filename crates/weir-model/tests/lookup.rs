//! Tests queries over several objects in a configuration: ports and paths of checks, services of pools, covered routes.

use std::net::IpAddr;

use weir_model::*;

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn text(text: &str) -> String {
    text.to_owned()
}

fn server(name: &str, port: Option<u16>) -> Server {
    Server::new(name, ip(name), port)
}

fn service(name: &str, forward: Forward, listen: &[(Protocol, &str, Ports)]) -> Service {
    let mut service = Service::new(name, forward, "p");
    let listeners = listen.iter().map(|(protocol, address, ports)| Listener {
        protocol: *protocol,
        address: ip(address),
        ports: *ports,
    });
    service.listen = listeners.collect();
    service
}

const VIP: &str = "192.0.2.10";

#[test]
fn check_port_falls_back_to_server_then_listener() {
    let check = |probe, port| {
        let mut check = Check::new(probe);
        check.target.port = port;
        check
    };
    for (probe, check_port, server_port, listener_port, expected) in [
        (Probe::Tcp, Some(1), Some(2), Some(3), Some(1)),
        (Probe::Tcp, None, Some(2), Some(3), Some(2)),
        (Probe::Tcp, None, None, Some(3), Some(3)),
        (Probe::Tcp, None, None, None, None),
        (Probe::Ping, Some(1), Some(2), Some(3), None),
    ] {
        let server = server("10.0.0.1", server_port);
        assert_eq!(
            check(probe, check_port).port(&server, listener_port),
            expected
        );
    }
}

#[test]
fn probe_path_uses_vip_and_port_of_forwarding_method() {
    let tcp80 = (Protocol::Tcp, VIP, Ports::One(80));
    let range = (Protocol::Tcp, VIP, Ports::Range(80, 90));
    let udp = (Protocol::Udp, VIP, Ports::One(53));
    let v6 = (Protocol::Tcp, "2001:db8::10", Ports::One(80));
    let path = |probe: Probe, port, forward, server_port, listen: &[(Protocol, &str, Ports)]| {
        let mut check = Check::new(probe);
        check.target.port = port;
        let service = service("s", forward, listen);
        let path = check.probe_path(&service, &server("10.0.0.1", server_port))?;
        assert_eq!((path.forward, path.dscp), (forward, 1));
        Some((path.vip.to_string(), path.port))
    };
    let vip_at = |port| Some((text(VIP), port));
    let dns = || Probe::Dns {
        name: text("x"),
        record: DnsRecord::A,
        answer: None,
    };
    for (found, expected) in [
        (
            path(Probe::Tcp, None, Forward::Direct, None, &[tcp80]),
            vip_at(80),
        ),
        (
            path(Probe::Tcp, None, Forward::Direct, Some(8080), &[tcp80]),
            vip_at(80),
        ),
        (
            path(Probe::Tcp, None, Forward::Nat, Some(8080), &[tcp80]),
            vip_at(8080),
        ),
        (
            path(Probe::Tcp, Some(9), Forward::Nat, Some(8080), &[tcp80]),
            vip_at(9),
        ),
        (
            path(Probe::Tcp, None, Forward::Direct, None, &[range]),
            None,
        ),
        (
            path(Probe::Tcp, Some(85), Forward::Direct, None, &[range]),
            vip_at(85),
        ),
        (
            path(Probe::Tcp, None, Forward::Direct, None, &[udp, v6, tcp80]),
            vip_at(80),
        ),
        (
            path(Probe::Tcp, None, Forward::Direct, None, &[udp, v6]),
            None,
        ),
        (
            path(dns(), None, Forward::Direct, None, &[tcp80, udp]),
            vip_at(53),
        ),
        (
            path(Probe::Ping, Some(1), Forward::Direct, None, &[tcp80]),
            None,
        ),
    ] {
        assert_eq!(found, expected);
    }
}

#[test]
fn probe_source_is_vip_for_nat_without_snat() {
    let tcp80 = (Protocol::Tcp, VIP, Ports::One(80));
    for (forward, snat, source_is_vip) in [
        (Forward::Nat, None, true),
        (Forward::Nat, Some(Snat::default()), false),
        (Forward::Direct, None, false),
    ] {
        let mut service = service("s", forward, &[tcp80]);
        service.snat = snat;
        let path = Check::new(Probe::Tcp).probe_path(&service, &server("10.0.0.1", None));
        assert_eq!(path.unwrap().source_is_vip, source_is_vip, "{forward}");
    }
}

#[test]
fn probe_kinds_protocols_and_dns_record_types_are_correct() {
    for (probe, name, protocol) in [
        (Probe::Tcp, "tcp", Some(Protocol::Tcp)),
        (Probe::Http(Box::default()), "http", Some(Protocol::Tcp)),
        (Probe::Redis, "redis", Some(Protocol::Tcp)),
        (Probe::Agent { send: None }, "agent", Some(Protocol::Tcp)),
        (
            Probe::Udp {
                payload: Vec::new(),
                bytes: None,
            },
            "udp",
            Some(Protocol::Udp),
        ),
        (Probe::Ping, "ping", None),
        (Probe::File { path: text("/f") }, "file", None),
    ] {
        let actual = (probe.as_str(), probe.protocol(), probe.needs_port());
        assert_eq!(actual, (name, protocol, protocol.is_some()));
    }
    for (record, number) in [
        (DnsRecord::A, 1),
        (DnsRecord::Ns, 2),
        (DnsRecord::Soa, 6),
        (DnsRecord::Mx, 15),
        (DnsRecord::Txt, 16),
        (DnsRecord::Aaaa, 28),
    ] {
        assert_eq!(record.number(), number, "{}", record.as_str());
    }
}

/// Returns pools `p` and `q`, layer 4 services `a` and `b` that use `p`, and a proxy service that uses both pools.
fn desired() -> Desired {
    let mut proxy = Proxy::new("www", ProxyProtocol::Http, "q");
    proxy.listen = vec!["192.0.2.20:8080".parse().unwrap()];
    let split = RouteAction::Split(vec![(text("p"), 1), (text("q"), 1)].into());
    proxy.routes = vec![Route::new(split), Route::new(RouteAction::Pool(text("p")))];
    Desired {
        pools: vec![Pool::new("p"), Pool::new("q")],
        services: vec![
            service("a", Forward::Nat, &[(Protocol::Tcp, VIP, Ports::Any)]),
            service("b", Forward::Nat, &[(Protocol::Tcp, VIP, Ports::One(80))]),
        ],
        proxies: vec![proxy],
        ..Desired::default()
    }
}

#[test]
fn services_and_check_ports_are_grouped_by_pool() {
    let desired = desired();
    let services = desired.services_by_pool();
    let names: Vec<_> = services["p"].iter().map(|it| it.name.as_str()).collect();
    assert_eq!(names, ["a", "b"]);
    assert!(
        !services.contains_key("q"),
        "proxies are not layer 4 services"
    );
    let ports = desired.check_ports();
    assert_eq!((ports["p"], ports["q"]), (80, 8080));
    assert_eq!(desired.proxies[0].pools(), ["q", "p"]);
}

#[test]
fn objects_are_found_by_name() {
    let mut desired = desired();
    desired.pools[0].servers = vec![server("10.0.0.1", None), server("10.0.0.2", None)];
    assert_eq!(desired.pool("q").map(|it| it.name.as_str()), Some("q"));
    assert_eq!(desired.service("b").map(|it| it.name.as_str()), Some("b"));
    assert_eq!(desired.proxy("www").map(|it| it.name.as_str()), Some("www"));
    let second = desired.pools[0].server("10.0.0.2").unwrap();
    assert_eq!(second.address, ip("10.0.0.2"));
    assert!(desired.pool("a").is_none() && desired.service("p").is_none());
    assert!(desired.proxy("a").is_none() && desired.pools[0].server("10.0.0.3").is_none());
}

#[test]
fn server_has_its_own_checks_or_those_of_the_pool() {
    let mut pool = Pool::new("p");
    pool.checks = vec![Check::new(Probe::Tcp)];
    pool.servers = vec![server("10.0.0.1", None), server("10.0.0.2", None)];
    pool.servers[1].checks = Some(Vec::new());
    pool.sorry = Some(server("10.0.0.9", None));
    let counts = |pool: &Pool| {
        let servers = pool.servers.iter().chain(&pool.sorry);
        servers
            .map(|it| pool.checks_of(it).len())
            .collect::<Vec<_>>()
    };
    assert_eq!(counts(&pool), [1, 0, 0]);
    pool.sorry.as_mut().unwrap().checks = Some(vec![Check::new(Probe::Ping); 2]);
    assert_eq!(counts(&pool), [1, 0, 2]);
}

#[test]
fn has_path_checks_is_true_if_any_check_uses_path() {
    let checks_path = |change: &dyn Fn(&mut Pool, Check)| {
        let mut desired = desired();
        desired.pools[1].servers = vec![server("10.0.0.1", None)];
        desired.pools[1].sorry = Some(server("10.0.0.9", None));
        let mut check = Check::new(Probe::Tcp);
        check.target.via = Via::Path;
        change(&mut desired.pools[1], check);
        desired.has_path_checks()
    };
    assert!(!checks_path(&|_, _| ()));
    assert!(!checks_path(
        &|pool, _| pool.checks = vec![Check::new(Probe::Tcp)]
    ));
    assert!(checks_path(
        &|pool, check| pool.checks = vec![Check::new(Probe::Tcp), check]
    ));
    assert!(checks_path(
        &|pool, check| pool.servers[0].checks = Some(vec![check])
    ));
    assert!(checks_path(&|pool, check| pool
        .sorry
        .as_mut()
        .unwrap()
        .checks = Some(vec![check])));
    for (via, uses_path) in [(Via::Server, false), (Via::Path, true), (Via::Both, true)] {
        assert_eq!(via.uses_forwarding_path(), uses_path);
    }
}

#[test]
fn index_finds_addresses_and_shared_pools() {
    let indexed = Indexed::from(desired());
    for (address, is_used) in [(VIP, true), ("192.0.2.20", true), ("192.0.2.30", false)] {
        assert_eq!(indexed.has_address(ip(address)), is_used, "{address}");
    }
    let names: Vec<_> = indexed
        .services_listening_on(ip(VIP))
        .map(|it| it.name.as_str())
        .collect();
    assert_eq!(names, ["a", "b"]);
    let shared = |services: usize, strict: usize| {
        let mut desired = Desired {
            pools: vec![Pool::new("p")],
            ..Desired::default()
        };
        for number in 0..services + strict {
            let mut service = service(&number.to_string(), Forward::Nat, &[]);
            service.strict_ipvs = number >= services;
            desired.services.push(service);
        }
        Indexed::from(desired).sharing("p")
    };
    for (services, strict, expected) in [
        (0, 0, Sharing::None),
        (1, 3, Sharing::None),
        (2, 0, Sharing::Few),
        (Sharing::FEW, 1, Sharing::Few),
        (Sharing::FEW + 1, 0, Sharing::Many),
    ] {
        assert_eq!(shared(services, strict), expected, "{services} {strict}");
    }
}

#[test]
fn secrets_include_cookie_secrets_and_ticket_keys() {
    let mut desired = desired();
    let secret = |name: &str| Secret::new(SecretSource::Env(text(name)), Vec::new());
    assert_eq!(desired.secrets().count(), 0);
    desired.pools[1].sticky = Some(Sticky {
        cookie: text("c"),
        mode: StickyMode::Insert,
        secret: Some(secret("cookie")),
        attributes: None,
        private: false,
    });
    desired.proxies[0].tls = Some(ServiceTls {
        ticket_keys: vec![secret("one"), secret("two")],
        certificates: vec![text("/c")],
        strict_sni: false,
        sni_host: SniHost::default(),
        minimum: TlsVersion::default(),
        ciphers: Vec::new(),
        groups: Vec::new(),
        client_ca: None,
        client_crl: None,
        client_auth: ClientAuth::Required,
        source: Source::default(),
    });
    let names: Vec<_> = desired
        .secrets()
        .map(|it| it.source().to_string())
        .collect();
    let names: Vec<_> = names
        .iter()
        .filter_map(|it| it.strip_prefix("environment variable "))
        .collect();
    assert_eq!(names, ["cookie", "one", "two"]);
}

fn route() -> Route {
    Route::new(RouteAction::Pool(text("p")))
}

fn named_conditions(name: &str, value: Option<&str>) -> Vec<NamedCondition> {
    let value = value.map(|value| ValuePattern::Exact(text(value)));
    vec![NamedCondition {
        name: text(name),
        value,
    }]
}

fn route_if(when: Conditions) -> Route {
    Route { when, ..route() }
}

/// Routes with one condition each.
fn routes_with_one_condition() -> Vec<Route> {
    let none = Conditions::default;
    let network = Network {
        address: [10, 0, 0, 0].into(),
        prefix: 8,
    };
    let conditions = vec![
        Conditions {
            hosts: vec![HostPattern::Exact(text("h"))],
            ..none()
        },
        Conditions {
            paths: vec![text("/a")],
            ..none()
        },
        Conditions {
            path_regexes: vec![TextRegex::new("x").unwrap()],
            ..none()
        },
        Conditions {
            methods: vec![text("GET")],
            ..none()
        },
        Conditions {
            schemes: vec![Scheme::Https],
            ..none()
        },
        Conditions {
            headers: named_conditions("x", None),
            ..none()
        },
        Conditions {
            queries: named_conditions("q", None),
            ..none()
        },
        Conditions {
            cookies: named_conditions("c", None),
            ..none()
        },
        Conditions {
            sources: Some(NetworkSet::new(vec![network], Vec::new())),
            ..none()
        },
        Conditions {
            tls_versions: vec![TlsVersion::V13],
            ..none()
        },
        Conditions {
            tls_snis: vec![HostPattern::Exact(text("h"))],
            ..none()
        },
        Conditions {
            client_cert_subjects: vec![ValuePattern::Exact(text("CN=a"))],
            ..none()
        },
    ];
    conditions.into_iter().map(route_if).collect()
}

#[test]
fn route_without_conditions_matches_all_requests_and_covers_all_routes() {
    assert!(route().always_applies());
    assert!(route().covers(&route()));
    for conditional in routes_with_one_condition() {
        assert!(!conditional.always_applies(), "{conditional}");
        assert!(route().covers(&conditional), "{conditional}");
        assert!(conditional.covers(&conditional), "{conditional}");
        assert!(!conditional.covers(&route()), "{conditional}");
        let other_routes = routes_with_one_condition()
            .into_iter()
            .filter(|other| *other != conditional);
        for other in other_routes {
            assert!(!conditional.covers(&other), "{conditional} and {other}");
        }
        // A route with an additional condition matches fewer requests.
        if conditional.when.headers.is_empty() {
            let mut narrower = conditional.clone();
            narrower.when.headers = named_conditions("y", Some("1"));
            assert!(
                conditional.covers(&narrower) && !narrower.covers(&conditional),
                "{conditional}"
            );
        }
        let negated = Route {
            not: Some(Box::new(conditional.when.clone())),
            ..route()
        };
        assert!(!negated.always_applies(), "{negated}");
        assert!(
            route().covers(&negated) && !negated.covers(&route()),
            "{negated}"
        );
    }
}

#[test]
fn wider_conditions_cover_narrower_ones() {
    let none = Conditions::default;
    let hosts = |pattern| {
        route_if(Conditions {
            hosts: vec![pattern],
            ..none()
        })
    };
    let exact = |name: &str| hosts(HostPattern::Exact(text(name)));
    let suffix = |name: &str| hosts(HostPattern::Suffix(text(name)));
    let paths = |list: &[&str]| {
        route_if(Conditions {
            paths: list.iter().map(|it| text(it)).collect(),
            ..none()
        })
    };
    let path = |pattern: &str| paths(&[pattern]);
    let methods = |list: &[&str]| {
        route_if(Conditions {
            methods: list.iter().map(|it| text(it)).collect(),
            ..none()
        })
    };
    let header = |value| {
        route_if(Conditions {
            headers: named_conditions("x", value),
            ..none()
        })
    };
    let regex = |expression: &str| {
        route_if(Conditions {
            paths: vec![text("/a")],
            path_regexes: vec![TextRegex::new(expression).unwrap()],
            ..none()
        })
    };
    for (wide, narrow) in [
        (suffix(".b"), exact("a.b")),
        (suffix(".b"), suffix(".a.b")),
        (path("/a*"), path("/ab")),
        (path("/a*"), path("/ab*")),
        (path("*"), path("/ab*c*")),
        (paths(&["/a", "/b"]), path("/b")),
        (methods(&["GET", "HEAD"]), methods(&["GET"])),
        (header(None), header(Some("1"))),
        (path("/a"), regex("x")),
    ] {
        assert!(wide.covers(&narrow), "{wide} and {narrow}");
        assert!(!narrow.covers(&wide), "{narrow} and {wide}");
    }
    for (first, second) in [
        (exact("a.b"), exact("b.b")),
        (suffix(".b"), exact("a.c")),
        (suffix(".b"), suffix(".c")),
        (path("/a*"), path("/b")),
        (path("/a*c*"), path("/abc")),
        (methods(&["GET"]), methods(&["POST"])),
        (header(Some("1")), header(Some("2"))),
        (regex("x"), regex("y")),
    ] {
        assert!(
            !first.covers(&second) && !second.covers(&first),
            "{first} and {second}"
        );
    }
}

#[test]
fn tcp_routes_support_only_host_and_source_conditions() {
    assert!(route().is_valid_for_tcp());
    for conditional in routes_with_one_condition() {
        let is_supported = !conditional.when.hosts.is_empty() || conditional.when.sources.is_some();
        assert_eq!(
            conditional.is_valid_for_tcp(),
            is_supported,
            "{conditional}"
        );
    }
    let split = RouteAction::Split(vec![(text("p"), 1)].into());
    assert!(Route::new(split).is_valid_for_tcp());
    let response = RouteAction::Respond {
        status: 200,
        body: Template::default(),
    };
    assert!(!Route::new(response).is_valid_for_tcp());
    let mut edited = route();
    edited.edits.request.remove = vec![text("x")];
    assert!(!edited.is_valid_for_tcp());
}
