//! Tests how settings are displayed in plans and in the status, and properties that depend on settings.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

use weir_model::*;

fn text(text: &str) -> String {
    text.to_owned()
}

#[test]
fn routes_are_displayed_on_one_line() {
    let pool = || Route::new(RouteAction::Pool(text("p")));
    assert_eq!(pool().to_string(), "/* -> pool p");
    let named = |name: &str, value: Option<&str>| NamedCondition {
        name: text(name),
        value: value.map(|value| ValuePattern::Exact(text(value))),
    };
    let full_route = Route {
        when: Conditions {
            hosts: vec![HostPattern::Suffix(text(".example"))],
            paths: vec![text("/a*")],
            path_regexes: vec![TextRegex::new("^/a[0-9]").unwrap()],
            methods: vec![text("GET"), text("HEAD")],
            headers: vec![named("x-a", None), named("x-b", Some("1"))],
            queries: vec![named("q", None), named("r", Some("2"))],
            cookies: vec![named("c", Some("3"))],
            sources: Some(NetworkSet::from_iter([Network {
                address: [10, 0, 0, 0].into(),
                prefix: 8,
            }])),
            ..Conditions::default()
        },
        ..Route::new(RouteAction::Split(
            vec![(text("p"), 3), (text("q"), 1)].into(),
        ))
    };
    assert_eq!(
        full_route.to_string(),
        "GET HEAD *.example/a* ~^/a[0-9] x-a x-b=1 ?q ?r=2 cookie c=3 from 10.0.0.0/8 -> split p:3 q:1"
    );
    assert_eq!(
        format!("{full_route:#}"),
        full_route.to_string(),
        "short values must not be treated as secrets"
    );
    let secret = |value: &str| {
        let fields = || vec![named("x-origin", Some(value)), named("c", Some(value))];
        let conditions = || Conditions {
            headers: fields(),
            cookies: fields(),
            ..Conditions::default()
        };
        Route {
            when: conditions(),
            not: Some(Box::new(conditions())),
            ..pool()
        }
    };
    let (first, second) = (secret("TOPSECRET-1"), secret("TOPSECRET-2"));
    assert_eq!(first.to_string().matches("TOPSECRET-1").count(), 8);
    let public = format!("{first:#}");
    assert!(!public.contains("TOPSECRET"), "{public}");
    assert!(public.starts_with("/* x-origin=#"), "{public}");
    assert_ne!(public, format!("{second:#}"));
    let regex = Route {
        when: Conditions {
            hosts: vec![HostPattern::Exact(text("h"))],
            path_regexes: vec![TextRegex::new("x$").unwrap()],
            ..Conditions::default()
        },
        ..Route::new(RouteAction::Redirect {
            to: Template::literal("/n"),
            status: 301,
        })
    };
    assert_eq!(regex.to_string(), "h~x$ -> 301 to /n");
    let response = RouteAction::Respond {
        status: 410,
        body: Template::literal("long"),
    };
    assert_eq!(Route::new(response).to_string(), "/* -> respond 410");
}

#[test]
fn admin_settings_are_displayed_on_one_line() {
    let admin = |listen: &str| Admin::new(listen.parse().unwrap());
    for (listen, shown) in [
        ("127.0.0.1:900", "127.0.0.1:900"),
        ("[::1]:900", "[::1]:900"),
        ("[::ffff:127.0.0.1]:900", "[::ffff:127.0.0.1]:900"),
        ("192.0.2.1:900", "192.0.2.1:900, token required to read"),
    ] {
        assert_eq!(admin(listen).to_string(), shown);
    }
    let mut full_admin = admin("192.0.2.1:900");
    full_admin.tls = Some(ServiceTls {
        ticket_keys: Vec::new(),
        certificates: vec![text("/c")],
        strict_sni: false,
        sni_host: SniHost::default(),
        minimum: TlsVersion::V13,
        ciphers: Vec::new(),
        groups: Vec::new(),
        client_ca: Some(text("/ca")),
        client_crl: None,
        client_auth: ClientAuth::Optional,
        source: Source::default(),
    });
    full_admin.tokens = Some(text("/t"));
    full_admin.hosts = vec![text("a"), text("b")];
    assert_eq!(
        full_admin.to_string(),
        "192.0.2.1:900 with TLS 1.3 from /c, optional client certificates, verified with /ca, tokens from /t, token \
        required to read, hosts a b"
    );
}

#[test]
fn health_settings_are_displayed_on_one_line() {
    assert_eq!(Health::default().to_string(), "require all");
    let health = Health {
        require: Require::Any,
        slow_start: Duration::from_secs(30),
        quorum: 3,
        quorum_hysteresis: 1,
        panic_threshold: Some(50),
        max_ejected: 20,
        max_latency: Some(Duration::from_millis(200)),
        notify: vec![text("/n"), text("password")],
    };
    assert_eq!(
        health.to_string(),
        "require any, slow_start 30s, quorum 3 ± 1, panic_threshold 50 %, max_ejected 20 %, \
         max_latency 200ms, notify /n"
    );
}

#[test]
fn listener_display_and_forwarding_properties_match_settings() {
    let listener = |protocol, address: &str, ports| Listener {
        protocol,
        address: address.parse().unwrap(),
        ports,
    };
    for (listener, shown, family, number) in [
        (
            listener(Protocol::Tcp, "192.0.2.10", Ports::One(80)),
            "tcp/192.0.2.10:80",
            Family::V4,
            6,
        ),
        (
            listener(Protocol::Udp, "2001:db8::1", Ports::Range(80, 90)),
            "udp/[2001:db8::1]:80-90",
            Family::V6,
            17,
        ),
        (
            listener(Protocol::Udp, "::ffff:192.0.2.1", Ports::Any),
            "udp/[::ffff:192.0.2.1]:*",
            Family::V6,
            17,
        ),
    ] {
        assert_eq!(listener.to_string(), shown);
        assert_eq!(
            (listener.family(), listener.protocol.number()),
            (family, number)
        );
    }
    assert_eq!(
        (Family::V4.to_string(), Family::V6.to_string()),
        (text("IPv4"), text("IPv6"))
    );
    for (forward, same_family, rewrites_port) in [
        (Forward::Nat, true, true),
        (Forward::Direct, true, false),
        (Forward::L3dsr, true, false),
        (Forward::Tunnel, false, false),
    ] {
        let actual = (forward.needs_same_family(), forward.rewrites_port());
        assert_eq!(actual, (same_family, rewrites_port), "{forward}");
    }
}

#[test]
fn service_has_family_of_its_first_listener_or_mark() {
    let mut service = Service::new("s", Forward::Nat, "p");
    assert_eq!(service.family(), None);
    service.marks = vec![Mark {
        mark: 7.try_into().unwrap(),
        family: Family::V6,
    }];
    assert_eq!(service.family(), Some(Family::V6));
    service.listen = vec![Listener {
        protocol: Protocol::Tcp,
        address: [192, 0, 2, 1].into(),
        ports: Ports::Any,
    }];
    assert_eq!(service.family(), Some(Family::V4));
    assert_eq!(service.listener_names(), ["tcp/192.0.2.1:*", "fwmark6/7"]);
}

#[test]
fn snat_and_tunnel_display_settings() {
    let snat = |addresses: &[&str]| Snat {
        addresses: addresses.iter().map(|it| it.parse().unwrap()).collect(),
        ports: (1000, 2000),
    };
    for (addresses, shown) in [
        (&[][..], "the director's addresses ports 1000-2000"),
        (&["192.0.2.1"], "192.0.2.1 ports 1000-2000"),
        (&["192.0.2.1", "::1"], "192.0.2.1, ::1 ports 1000-2000"),
    ] {
        assert_eq!(snat(addresses).to_string(), shown);
    }
    for (kind, checksum, shown) in [
        (TunnelKind::Ipip, TunnelChecksum::None, "ipip"),
        (TunnelKind::Gre, TunnelChecksum::Full, "gre checksum full"),
        (
            TunnelKind::Gue,
            TunnelChecksum::Remote,
            "gue port 6080 checksum remote",
        ),
    ] {
        let tunnel = Tunnel {
            kind,
            checksum,
            ..Tunnel::default()
        };
        assert_eq!(tunnel.to_string(), shown);
    }
}

#[test]
fn schedulers_display_flags_and_max_load() {
    let flags = |port, fallback, networks, file_order| SchedulerFlags {
        port,
        fallback,
        networks,
        file_order,
    };
    for (kind, flags, max_load_percent, shown) in [
        (SchedulerKind::Rr, SchedulerFlags::default(), None, "rr"),
        (
            SchedulerKind::Sh,
            flags(true, true, false, false),
            None,
            "sh sh-port sh-fallback",
        ),
        (
            SchedulerKind::Sh,
            flags(false, false, true, false),
            None,
            "sh over the /24",
        ),
        (
            SchedulerKind::Fo,
            flags(false, false, false, true),
            None,
            "fo in file order",
        ),
        (
            SchedulerKind::Mh,
            SchedulerFlags::default(),
            Some(105),
            "mh max_load 1.05",
        ),
    ] {
        let scheduler = Scheduler {
            flags,
            max_load_percent,
            ..Scheduler::new(kind)
        };
        assert_eq!(scheduler.to_string(), shown);
    }
    let unknown = "x".parse::<SchedulerKind>().unwrap_err();
    assert_eq!(unknown.to_string(), "unknown scheduler");
    let hashing: Vec<_> = SchedulerKind::hashing_schedulers().collect();
    assert!(hashing.contains(&SchedulerKind::Sh) && !hashing.contains(&SchedulerKind::Rr));
    for (protocol, kind) in [
        (ProxyProtocol::Http, SchedulerKind::P2c),
        (ProxyProtocol::Tcp, SchedulerKind::Wlc),
    ] {
        assert_eq!(Proxy::default_scheduler(protocol).kind, kind);
    }
}

#[test]
fn failover_reasons_are_formatted() {
    let scheduler = FailoverLoss::Scheduler(SchedulerKind::Wlc);
    for (reason, prefix) in [
        (
            FailoverLoss::Nat,
            "with `nat`, the address translation of connections is",
        ),
        (
            FailoverLoss::Persistence,
            "the servers of persistent clients are",
        ),
        (
            FailoverLoss::MaxLoad,
            "the servers selected because of `max_load` are",
        ),
        (scheduler, "the servers selected by `wlc` are"),
    ] {
        let expected = format!("{prefix} only stored on this director");
        assert_eq!(reason.to_string(), expected);
    }
}

#[test]
fn secret_debug_shows_only_source() {
    for (source, shown) in [
        (SecretSource::Text, "text"),
        (SecretSource::File(text("/s")), "file /s"),
        (SecretSource::Env(text("S")), "environment variable S"),
        (SecretSource::Credential(text("s")), "credential s"),
    ] {
        assert_eq!(source.to_string(), shown);
        let secret = Secret::new(source.clone(), b"value".to_vec());
        assert_eq!(secret.source(), &source);
        assert!(!format!("{secret:?}").contains("value"));
    }
}

fn hash_of(value: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

#[test]
fn expressions_are_compared_and_displayed_by_source_text() {
    let pattern = |text: &str| Pattern::new(text).unwrap();
    assert_eq!(pattern("a.b").to_string(), "/a.b/");
    assert_eq!(format!("{:?}", pattern("a.b")), "/a.b/");
    let path = |text: &str| TextRegex::new(text).unwrap();
    assert_eq!(format!("{:?}", path("a\"b")), "\"a\\\"b\"");
    assert!(path("a") == path("a") && path("a") != path("b"));
    assert_eq!(
        (path("a").group_count(), path("(a)(b)").group_count()),
        (0, 2)
    );
    let regex = path("^/(x+)/(y)");
    let groups = regex.groups(b"/xx/y").unwrap();
    assert_eq!((&groups[1], &groups[2]), (&b"xx"[..], &b"y"[..]));
    assert!(regex.groups(b"/y").is_none());
    assert_eq!(hash_of(&path("a")), hash_of(&path("a")));
    assert_ne!(hash_of(&path("a")), hash_of(&path("b")));
    assert_eq!(hash_of(&pattern("a")), hash_of(&pattern("a")));
    assert_ne!(hash_of(&pattern("a")), hash_of(&pattern("b")));
}

#[test]
fn retry_on_matches_conditions_and_statuses() {
    let rules = RetryOn {
        conditions: vec![RetryCondition::Timeout],
        statuses: vec![(502, 504), (500, 500)],
    };
    assert_eq!(rules.to_string(), "timeout, 502-504, 500");
    assert!(rules.has(RetryCondition::Timeout) && !rules.has(RetryCondition::Empty));
    let retried: Vec<u16> = (400..600)
        .filter(|status| rules.has_status(*status))
        .collect();
    assert_eq!(retried, [500, 502, 503, 504]);
    assert_eq!(RetryOn::default().to_string(), "connect, empty");
}
