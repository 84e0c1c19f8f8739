//! Tests queries about a configuration, such as its managed and announced addresses.
//!
//! Other queries are about servers that a group may add, a route's timeouts, and names and bytes allowed in texts.

mod router;

use std::net::IpAddr;
use std::time::Duration;

use router::router;
use weir_model::*;

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn network(address: &str, prefix: u8) -> Network {
    Network {
        address: ip(address),
        prefix,
    }
}

fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

#[test]
fn virtual_router_manages_addresses_on_several_interfaces() {
    let router = router(Some("eth0"));
    let managed_on = |interface| -> Vec<String> {
        let managed = router.managed_on(interface);
        managed.map(|it| it.address.to_string()).collect()
    };
    assert_eq!(managed_on(None), ["192.0.2.10", "192.0.2.12"]);
    assert_eq!(managed_on(Some("eth1")), ["192.0.2.11"]);
    assert_eq!(managed_on(Some("eth2")), [""; 0]);
    for (address, interface) in [
        ("192.0.2.10", "eth0"),
        ("192.0.2.11", "eth1"),
        ("192.0.2.12", "eth0"),
    ] {
        assert_eq!(router.interface_of(ip(address)), Some(interface));
    }
}

#[test]
fn virtual_router_family_is_that_of_its_addresses_source_or_peers() {
    let is_ipv4 = |addresses: &[&str], source: Option<&str>, peers: &[&str]| {
        let router = VirtualRouter {
            addresses: addresses.iter().map(|it| network(it, 64)).collect(),
            source: source.map(ip),
            peers: peers.iter().map(|it| ip(it)).collect(),
            ..router(None)
        };
        router.is_ipv4()
    };
    assert!(is_ipv4(&["192.0.2.1"], Some("fe80::1"), &["fe80::2"]));
    assert!(!is_ipv4(&["2001:db8::1"], Some("192.0.2.1"), &[]));
    assert!(is_ipv4(&[], Some("192.0.2.1"), &["fe80::2"]));
    assert!(!is_ipv4(&[], Some("fe80::1"), &["192.0.2.2"]));
    assert!(is_ipv4(&[], None, &["192.0.2.2"]));
    assert!(!is_ipv4(&[], None, &["fe80::2"]));
    assert!(is_ipv4(&[], None, &[]));
}

#[test]
fn addresses_of_virtual_routers_are_found_by_interface() {
    let on = |interface| Desired {
        vrrp: vec![router(interface)],
        ..Desired::default()
    };
    let desired = on(Some("eth0"));
    for (address, expected) in [
        ("192.0.2.10", true),
        ("192.0.2.11", true),
        ("192.0.2.12", true),
        ("192.0.2.13", false),
        ("192.0.2.2", false),
    ] {
        assert_eq!(desired.is_vrrp_address(ip(address)), expected, "{address}");
    }
    let no_source = |_| -> bool { panic!("the interface is configured") };
    for (interface, address, expected) in [
        ("eth0", "192.0.2.10", true),
        ("eth1", "192.0.2.10", false),
        ("eth0", "192.0.2.11", false),
        ("eth1", "192.0.2.11", true),
        ("eth0", "192.0.2.13", false),
    ] {
        let found = desired.is_vrrp_address_on(interface, ip(address), no_source);
        assert_eq!(found, expected, "{address} on {interface}");
    }
    // The interface of the router is the one that has its source address.
    let desired = on(None);
    let has_source = |source| source == ip("192.0.2.2");
    let found = |address, has_source: fn(IpAddr) -> bool| {
        desired.is_vrrp_address_on("eth0", ip(address), has_source)
    };
    assert!(desired.is_vrrp_address_on("eth0", ip("192.0.2.10"), has_source));
    assert!(!found("192.0.2.10", |_| false));
    assert!(!found("192.0.2.13", |_| true));
}

#[test]
fn only_addresses_of_covered_services_are_announced() {
    let service = |name: &str, address: &str| {
        let mut service = Service::new(name, Forward::Direct, "p");
        service.listen = vec![Listener {
            protocol: Protocol::Tcp,
            address: ip(address),
            ports: Ports::One(80),
        }];
        service
    };
    let announced = |services: Option<Vec<&str>>| -> Vec<String> {
        let desired = Desired {
            services: vec![service("a", "192.0.2.1"), service("b", "192.0.2.2")],
            announce: Some(Announce {
                speaker: Speaker::Exabgp {
                    pipe: "/run/exabgp".into(),
                },
                withdraw_after: secs(2),
                drain_delay: Duration::ZERO,
                services: services.map(|names| names.into_iter().map(str::to_owned).collect()),
                require: RequiredServices::Any,
                communities: Vec::new(),
                drain_communities: Vec::new(),
            }),
            ..Desired::default()
        };
        let addresses = desired.announced_addresses();
        addresses.map(|address| address.to_string()).collect()
    };
    assert_eq!(announced(None), ["192.0.2.1", "192.0.2.2"]);
    assert_eq!(announced(Some(vec!["b", "c"])), ["192.0.2.2"]);
    let without = Desired {
        services: vec![service("a", "192.0.2.1")],
        ..Desired::default()
    };
    assert_eq!(without.announced_addresses().count(), 0);
}

/// Returns a director of group `g`, with a pool of a layer 4 service and a pool that no layer 4 service uses.
fn group_member(publish: Option<Publish>) -> Desired {
    Desired {
        files: vec![String::new(), "cluster/g".to_owned(), "extra".to_owned()],
        cluster: Some(Cluster {
            publish,
            ..Cluster::new("g")
        }),
        pools: vec![Pool::new("l4"), Pool::new("l7")],
        services: vec![Service::new("s", Forward::Direct, "l4")],
        ..Desired::default()
    }
}

fn publish() -> Option<Publish> {
    Some(Publish {
        servers: vec![network("10.0.0.0", 8)],
        ..Publish::default()
    })
}

#[test]
fn published_pools_accept_only_permitted_servers() {
    let reason = |desired: &Desired, file: u32, server: &str| {
        let mut pool = Pool::new("p");
        pool.source = Source {
            file,
            ..Source::default()
        };
        desired.unpublishable_reason(&pool, ip(server))
    };
    let desired = group_member(publish());
    let denied = "192.0.2.1 is not in `servers` of [cluster.publish]";
    assert_eq!(reason(&desired, 1, "192.0.2.1").as_deref(), Some(denied));
    assert_eq!(reason(&desired, 1, "10.0.0.1"), None);
    assert_eq!(reason(&desired, 0, "192.0.2.1"), None, "its own file");
    assert_eq!(reason(&desired, 2, "192.0.2.1"), None, "an included file");
    assert_eq!(reason(&desired, 9, "192.0.2.1"), None, "an unknown file");
    assert_eq!(reason(&group_member(None), 1, "192.0.2.1"), None);
    let mut other_group = desired;
    other_group.cluster.as_mut().unwrap().name = "h".to_owned();
    assert_eq!(reason(&other_group, 1, "192.0.2.1"), None);
}

#[test]
fn servers_that_other_directors_add_must_be_permitted() {
    let denied = Some("is not in `servers` of [cluster.publish]");
    let without_limits =
        Some("cannot be added to a pool of a layer 4 service without [cluster.publish]");
    let permitting = group_member(publish());
    let restricted = group_member(None);
    for (desired, pool, address, expected) in [
        (&permitting, "l4", Some("10.0.0.1"), None),
        (&permitting, "l7", Some("10.0.0.1"), None),
        (&permitting, "l4", Some("192.0.2.1"), denied),
        (&permitting, "l7", Some("192.0.2.1"), denied),
        (&permitting, "l7", None, denied),
        (&restricted, "l4", Some("10.0.0.1"), without_limits),
        (&restricted, "l7", Some("10.0.0.1"), None),
        (&restricted, "l7", None, None),
    ] {
        let reason = desired.unshareable_reason(pool, address.map(ip));
        assert_eq!(reason, expected, "{pool} {address:?}");
    }
}

#[test]
fn file_of_a_position_is_the_main_file_or_an_included_one() {
    let desired = group_member(None);
    let name = |desired: &Desired, file| {
        let source = Source {
            file,
            ..Source::default()
        };
        desired.file_name(source, "weir.toml").to_owned()
    };
    assert_eq!(name(&desired, 0), "weir.toml");
    assert_eq!(name(&desired, 2), "extra");
    assert_eq!(name(&Desired::default(), 0), "weir.toml");
}

#[test]
fn vip_can_move_unless_weir_keeps_it_and_no_other_director_is_known() {
    let fixed = || {
        let mut desired = Desired::default();
        desired.node.vip_interface = Some("lo".to_owned());
        desired
    };
    assert!(!fixed().can_move_vip(|| false));
    assert!(fixed().can_move_vip(|| true), "a virtual router has it");
    assert!(Desired::default().can_move_vip(|| false));
    let with_group = Desired {
        cluster: Some(Cluster::new("g")),
        ..fixed()
    };
    assert!(with_group.can_move_vip(|| false));
}

#[test]
fn route_timeouts_replace_service_timeouts() {
    let service = ProxyTimeouts {
        request: secs(1),
        idle: secs(2),
        client: secs(3),
        connect: secs(4),
        server: secs(5),
        response: Some(secs(6)),
        tunnel: secs(7),
        total: Some(secs(8)),
    };
    assert_eq!(RouteTimeouts::default().applied_to(&service), service);
    let route = RouteTimeouts {
        client: Some(secs(13)),
        connect: Some(secs(14)),
        server: Some(secs(15)),
        response: Some(secs(16)),
        tunnel: Some(secs(17)),
        total: Some(secs(18)),
    };
    let expected = ProxyTimeouts {
        request: secs(1),
        idle: secs(2),
        client: secs(13),
        connect: secs(14),
        server: secs(15),
        response: Some(secs(16)),
        tunnel: secs(17),
        total: Some(secs(18)),
    };
    assert_eq!(route.applied_to(&service), expected);
    let server_only = RouteTimeouts {
        server: Some(secs(15)),
        ..RouteTimeouts::default()
    };
    let expected = ProxyTimeouts {
        server: secs(15),
        response: None,
        ..service
    };
    assert_eq!(server_only.applied_to(&service), expected);
}

#[test]
fn detection_time_includes_all_probes_and_their_timeouts() {
    let timing = Timing {
        interval: secs(10),
        timeout: secs(3),
        fall: 4,
        ..Timing::default()
    };
    assert_eq!(timing.detection_time(), secs(10 + 3 * 10 + 4 * 3));
    let falling = Timing {
        interval_falling: Some(secs(1)),
        ..timing
    };
    assert_eq!(falling.detection_time(), secs(10 + 3 + 4 * 3));
    let once = Timing { fall: 1, ..timing };
    assert_eq!(once.detection_time(), secs(10 + 3));
}

#[test]
fn client_field_rules_are_found_by_header_name() {
    let mut fields = ClientFields::default();
    assert!(fields.is_empty());
    let rule = FieldRule::ALL[0];
    fields.set(ClientField::RealIp, Some(rule));
    assert!(!fields.is_empty());
    assert_eq!(fields.rule_of(b"x-real-ip"), Some(rule));
    assert_eq!(fields.rule_of(b"X-Forwarded-For"), None);
    assert_eq!(fields.rule_of(b"Host"), None);
    for field in ClientField::ALL {
        let mut fields = ClientFields::default();
        fields.set(field, Some(rule));
        assert_eq!(fields.rule_of(field.header().as_bytes()), Some(rule));
    }
}

#[test]
fn bytes_and_names_in_texts_are_restricted() {
    let bytes = |allowed: fn(u8) -> bool| -> String {
        let allowed = (0..=u8::MAX).filter(|byte| allowed(*byte));
        allowed.map(char::from).collect()
    };
    let letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZ";
    let lower = letters.to_lowercase();
    let host = format!("-.0123456789:{letters}[]_{lower}");
    assert_eq!(bytes(Pool::may_be_in_host), host);
    let text = format!("!\"$%&'()*+,-.0123456789:;<=>{letters}[\\]^_`{lower}|~");
    assert_eq!(bytes(Pool::may_be_in_host_text), text);

    for (name, allowed) in [
        ("status", true),
        ("client", true),
        ("header.accept", true),
        ("response.content-type", true),
        ("response.", false),
        ("1", false),
        ("rest", false),
        ("unknown", false),
    ] {
        assert_eq!(LogFormat::allows_name(name), allowed, "{name}");
    }
}

#[test]
fn statuses_without_content_are_not_replaced() {
    for (status, expected) in [
        (199, false),
        (200, true),
        (203, true),
        (204, false),
        (205, false),
        (206, true),
        (304, false),
        (404, true),
        (599, true),
        (600, false),
    ] {
        assert_eq!(RouteEdits::may_replace(status), expected, "{status}");
    }
}

#[test]
fn tls12_supports_only_groups_without_ml_kem() {
    let names = |is_for_tls12| -> Vec<&str> {
        let groups = TlsGroup::ALL.into_iter();
        let selected = groups.filter(|group| group.is_for_tls12() == is_for_tls12);
        selected.map(TlsGroup::as_str).collect()
    };
    assert_eq!(names(true), ["X25519", "secp256r1", "secp384r1"]);
    assert_eq!(names(false), ["X25519MLKEM768", "SecP256r1MLKEM768"]);
}

#[test]
fn schedulers_that_need_a_packet_do_not_work_for_sockets() {
    let kinds = SchedulerKind::ALL.into_iter();
    let names: Vec<&str> = kinds
        .filter(|kind| !kind.works_for_sockets())
        .map(SchedulerKind::as_str)
        .collect();
    assert_eq!(names, ["ovf", "twos", "dh", "lblc", "lblcr", "hash"]);
}

#[test]
fn server_on_a_unix_socket_has_a_stand_in_address() {
    let server = Server::on_unix_socket("/run/app.sock");
    assert_eq!(server.name, "unix:/run/app.sock");
    assert_eq!(server.unix.as_deref(), Some("/run/app.sock"));
    assert_eq!(server.address, unix_socket::stand_in("/run/app.sock"));
    assert_eq!((server.port, server.weight), (Some(0), 1));
}

#[test]
fn addresses_are_skipped_only_if_client_ip_is_recursive() {
    let mut proxy = Proxy::new("p", ProxyProtocol::Http, "pool");
    proxy.trusted = vec![network("10.0.0.0", 8)];
    assert_eq!(proxy.client_ip_skipped(), [network("10.0.0.0", 8)]);
    proxy.client_ip_recursive = false;
    assert_eq!(proxy.client_ip_skipped(), []);
}

#[test]
fn only_mode_0660_admits_the_group() {
    assert!(SocketMode::Group.is_for_group());
    assert!(!SocketMode::Owner.is_for_group());
}

#[test]
fn addresses_of_virtual_routers_accept_only_service_packets_if_configured() {
    let virtual_router = |accept| VirtualRouter {
        accept,
        ..router(Some("eth0"))
    };
    for (accept, expected) in [
        (Accept::All, [true, true, true]),
        (Accept::Services(Vec::new()), [false, false, true]),
    ] {
        let indexed = Indexed::from(Desired {
            vrrp: vec![virtual_router(accept)],
            ..Desired::default()
        });
        let addresses = ["192.0.2.10", "192.0.2.11", "192.0.2.99"];
        assert_eq!(
            addresses.map(|address| indexed.accepts(ip(address))),
            expected
        );
        assert_eq!(indexed.vrrp.len(), 1);
    }
}

#[test]
fn exchange_step_waits_for_data_if_it_has_a_text_or_pattern() {
    let step = ExchangeStep::default();
    assert!(!step.expects_data());
    let expect = "220 ".to_owned();
    assert!(
        ExchangeStep {
            expect,
            ..step.clone()
        }
        .expects_data()
    );
    let regex = Pattern::new("^220").ok();
    assert!(
        ExchangeStep {
            regex,
            ..step.clone()
        }
        .expects_data()
    );
    let send = "QUIT".to_owned();
    assert!(!ExchangeStep { send, ..step }.expects_data());
}

#[test]
fn route_uses_the_pools_of_its_action_and_authorization() {
    let mut route = Route::new(RouteAction::Pool("app".to_owned()));
    assert!(route.forward_auth().is_none());
    assert_eq!(route.pools(), ["app"]);
    let auth = ForwardAuth {
        pool: "auth".to_owned(),
        path: ForwardAuth::PATH.to_owned(),
        timeout: ForwardAuth::TIMEOUT[0],
        copy: Vec::new(),
        set: Vec::new(),
    };
    let options = RouteOptions {
        forward_auth: Some(auth.clone()),
        ..RouteOptions::default()
    };
    route.options = Some(Box::new(options));
    assert_eq!(route.forward_auth(), Some(&auth));
    assert_eq!(route.pools(), ["app", "auth"]);
}

#[test]
fn forwarding_without_translation_needs_server_configuration() {
    let forwards = [
        Forward::Nat,
        Forward::Direct,
        Forward::Tunnel,
        Forward::L3dsr,
        Forward::Socket,
    ];
    let needs = forwards.map(Forward::needs_server_configuration);
    assert_eq!(needs, [false, true, true, true, false]);
}

#[test]
fn service_addresses_exclude_loopback_multicast_and_unspecified() {
    let mut proxy = Proxy::new("www", ProxyProtocol::Http, "p");
    let listen = [
        "192.0.2.1:80",
        "0.0.0.0:80",
        "127.0.0.1:80",
        "224.0.0.1:80",
        "192.0.2.2:80",
    ];
    proxy.listen = listen.iter().map(|it| it.parse().unwrap()).collect();
    let mut service = Service::new("dns", Forward::Nat, "p");
    service.listen = vec![Listener {
        protocol: Protocol::Udp,
        address: ip("192.0.2.1"),
        ports: Ports::One(53),
    }];
    let desired = Desired {
        proxies: vec![proxy],
        services: vec![service.clone()],
        pools: vec![Pool::new("p")],
        ..Desired::default()
    };
    let proxy_addresses: Vec<IpAddr> = desired.proxy_addresses().collect();
    assert_eq!(proxy_addresses, ["192.0.2.1", "192.0.2.2"].map(ip));
    assert_eq!(desired.failover_loss(&service), Some(FailoverLoss::Nat));
    let mut addresses: Vec<IpAddr> = Indexed::from(desired).addresses().collect();
    addresses.sort();
    assert_eq!(addresses, ["192.0.2.1", "192.0.2.2"].map(ip));
}

#[test]
fn ip_of_a_server_on_a_unix_socket_is_none() {
    assert_eq!(Server::on_unix_socket("/run/a.sock").ip(), None);
    let server = Server::new("a", ip("192.0.2.1"), Some(80));
    assert_eq!(server.ip(), Some(ip("192.0.2.1")));
}

#[test]
fn route_that_restarts_the_selection_covers_no_route() {
    let restart = Route::new(RouteAction::Restart(RestartAt::First));
    let other = Route::new(RouteAction::Pool("p".to_owned()));
    assert!(!restart.covers(&other) && !restart.always_applies());
    assert!(other.covers(&restart) && other.always_applies());
}

#[test]
fn communities_and_endpoints_are_parsed() {
    assert_eq!(Community::parse("65001:100"), Some(Community(65_001, 100)));
    for text in ["65001", "65536:1", "1:65536", "a:1", ":"] {
        assert_eq!(Community::parse(text), None, "{text}");
    }
    assert!(EtcdEndpoint::parse("http://[fd00::1]:2379").is_ok());
    assert!(EtcdEndpoint::parse("http://[fd00::1]").is_ok());
    assert!(EtcdEndpoint::parse("http://[fd00::1]x").is_err());
}

#[test]
fn template_variable_without_a_name_is_rejected() {
    for name in ["header.", "cookie.", "map."] {
        assert!(Template::parse(&format!("{{{name}}}")).is_err(), "{name}");
    }
    assert!(Template::parse("{header.a}{cookie.b}{map.c}").is_ok());
}
