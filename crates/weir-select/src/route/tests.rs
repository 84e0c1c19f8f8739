//! Tests limits and routes with parsed requests.

use weir_http::head::{self, HeadLimits};
use weir_model::{MapEntries, MapKind, Template, Underscores, ValueMap};

use super::*;

fn route(path: &str, action: RouteAction) -> Route {
    let mut route = Route::new(action);
    route.when.paths = vec![path.to_owned()];
    route
}

fn limits() -> Limits {
    Limits {
        max_body_bytes: 0,
        rate: None,
        concurrent: None,
        key: HashKey::Source,
    }
}

fn routes() -> Routes {
    let split = vec![("b".to_owned(), 3), ("c".to_owned(), 1)];
    let list = vec![
        route("/b*", RouteAction::Pool("b".to_owned())),
        route("/split*", RouteAction::Split(split.into())),
        route(
            "/gone*",
            RouteAction::Respond {
                status: 410,
                body: Template::default(),
            },
        ),
        route(
            "/old*",
            RouteAction::Redirect {
                to: Template::literal("/new"),
                status: 301,
            },
        ),
        route(
            "/keyed*",
            RouteAction::Split(weir_model::Split {
                parts: vec![("b".to_owned(), 1), ("c".to_owned(), 1)],
                by: Some(Template::literal("key")),
            }),
        ),
    ];
    Routes::new(list, &["a", "b", "c"])
}

/// Returns the decision on a request. `client` is the last byte of the client's address.
fn decide_on(
    text: &str,
    client: u8,
    limits: &Limits,
    host: HostCheck,
    random: &mut SplitMix64,
) -> (Decision, Option<Slot>) {
    let head_limits = HeadLimits {
        head: 4096,
        target: 2048,
        fields: 100,
        connect: false,
        underscores: Underscores::Keep,
    };
    let mut fields = Vec::new();
    let request = head::parse_request(text.as_bytes(), &head_limits, &mut fields)
        .expect("parse head")
        .expect("head is incomplete");
    let head = &text.as_bytes()[..request.len];
    let target = RequestPath::as_received(request.path_in(head));
    let properties = RequestProperties {
        client: ([192, 0, 2, client], 1000).into(),
        head,
        request: &request,
        fields: &fields,
        target: &target,
        received_body_bytes: 0,
        host,
        admitted: false,
        tls: TlsProperties::default(),
        secure: false,
    };
    decide(&routes(), limits, &properties, 1_000_000_000, random)
}

/// Returns the index of the route for a path.
fn chosen_route(path: &str) -> Option<usize> {
    let text = get(path);
    let mut fields = Vec::new();
    let request = head::parse_request(text.as_bytes(), &HeadLimits::default(), &mut fields);
    let request = request.unwrap().expect("head is incomplete");
    let target = RequestPath::as_received(request.path_in(text.as_bytes()));
    routes().choose(&RouteInput {
        client: [192, 0, 2, 1].into(),
        target: &target,
        head: text.as_bytes(),
        request: &request,
        fields: &fields,
        tls: TlsProperties::default(),
        secure: false,
    })
}

fn get(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: h\r\n\r\n")
}

#[test]
fn first_matching_route_applies() {
    let mut random = SplitMix64::new(1);
    for (path, expected) in [
        (
            "/",
            Decision::Forward {
                pool: 0,
                route: None,
            },
        ),
        (
            "/b/x",
            Decision::Forward {
                pool: 1,
                route: Some(0),
            },
        ),
        ("/gone", Decision::Respond { route: 2 }),
        ("/old/x", Decision::Redirect { route: 3 }),
        ("/keyed", Decision::ForwardByKey { route: 4 }),
    ] {
        let allowed = HostCheck::Allowed;
        let (decision, _) = decide_on(&get(path), 1, &limits(), allowed, &mut random);
        assert_eq!(decision, expected, "{path}");
    }
    for (path, expected) in [("/", None), ("/b/x", Some(0)), ("/gone", Some(2))] {
        assert_eq!(chosen_route(path), expected, "{path}");
    }
}

#[test]
fn split_follows_weights() {
    let mut random = SplitMix64::new(7);
    let mut count = [0; 3];
    for _ in 0..8000 {
        let allowed = HostCheck::Allowed;
        let (decision, _) = decide_on(&get("/split"), 1, &limits(), allowed, &mut random);
        match decision {
            Decision::Forward {
                pool,
                route: Some(1),
            } => count[pool] += 1,
            other => panic!("{other:?}"),
        }
    }
    // 6000 and 2000 are expected; the standard deviation is 39.
    assert!(
        count[0] == 0 && (1800..2200).contains(&count[2]),
        "{count:?}"
    );
}

/// The hashes of the texts, divided by 2^32, are 0.076 ("abc"), 0.15 ("abcd"), 0.25 (the path) and 0.57 ("a").
#[test]
fn split_by_a_text_divides_the_hash_range_by_weight() {
    let path = "/variant/x/y.js";
    let hash_of_a = 0x9268_5f5e;
    for (weights, text, expected) in [
        ([25, 25, 50], "abc", 1),
        ([25, 25, 50], "abcd", 1),
        ([25, 25, 50], path, 2),
        ([25, 25, 50], "a", 3),
        ([1, 1, 8], "abc", 1),
        ([1, 1, 8], "abcd", 2),
        ([1, 1, 8], path, 3),
        ([0, 1, 1], "abc", 2),
        ([1, 1, 0], "a", 2),
        // The total is 2^32 - 1, so the first range ends at its weight.
        ([hash_of_a, 1, u32::MAX - hash_of_a - 1], "a", 2),
        ([hash_of_a + 1, 1, u32::MAX - hash_of_a - 2], "a", 1),
        // The first range is empty, and the hash of the empty text is 0.
        ([1, u32::MAX, 1], "", 2),
    ] {
        let names = ["b", "c", "d"].map(str::to_owned);
        let parts: Vec<(String, u32)> = names.into_iter().zip(weights).collect();
        let list = vec![route("/*", RouteAction::Split(parts.into()))];
        let routes = Routes::new(list, &["a", "b", "c", "d"]);
        let pool = routes.split_pool(0, text.as_bytes());
        assert_eq!(pool, expected, "{weights:?} {text}");
        assert_eq!(routes.split_pool(1, text.as_bytes()), 0, "no such route");
    }
    // The hash of this text is 2^32 - 1, which belongs to the last pool with a weight.
    let last = [0xa2, 0x41, 0xaa, 0x60];
    assert_eq!(murmur_hash(&last), u32::MAX);
    let parts = [("b", 1), ("c", 1), ("d", 0)].map(|(name, weight)| (name.to_owned(), weight));
    let list = vec![route("/*", RouteAction::Split(parts.to_vec().into()))];
    let routes = Routes::new(list, &["a", "b", "c", "d"]);
    assert_eq!(routes.split_pool(0, &last), 2);
}

#[test]
fn map_selects_the_pool_of_the_entry_or_its_default() {
    let pool_for = |default: Option<&str>, text: &str| {
        let entries = [("x", "c"), ("y", "b"), ("z", "c")];
        let entries = entries.map(|(key, pool)| (key.to_owned(), pool.to_owned()));
        let entries = MapEntries::new(MapKind::Exact, false, entries, |_| None);
        let map = ValueMap {
            default: default.map(str::to_owned),
            entries: Arc::new(entries.unwrap()),
            ..ValueMap::empty()
        };
        let list = vec![
            route("/b*", RouteAction::Pool("b".to_owned())),
            route("/*", RouteAction::Mapped(Arc::new(map))),
        ];
        let routes = Routes::new(list, &["a", "b", "c", "d"]);
        assert_eq!(routes.mapped_pool(0, text.as_bytes()), 0, "no map");
        routes.mapped_pool(1, text.as_bytes())
    };
    for (default, text, expected) in [
        (Some("d"), "x", 2),
        (Some("d"), "y", 1),
        (Some("d"), "z", 2),
        (Some("d"), "other", 3),
        (None, "y", 1),
        (None, "other", 0),
    ] {
        assert_eq!(pool_for(default, text), expected, "{default:?} {text}");
    }
}

#[test]
fn tls_properties_are_needed_only_for_conditions_on_the_tls_connection() {
    assert!(!routes().needs_tls());
    let mut by_sni = route("/*", RouteAction::Close);
    by_sni.when.tls_snis = vec![weir_model::HostPattern::Exact("b.example".to_owned())];
    assert!(Routes::new(vec![by_sni], &["a"]).needs_tls());
}

#[test]
fn restarts_are_needed_only_for_a_route_that_restarts() {
    assert!(!routes().has_restarts());
    let restart = RouteAction::Restart(weir_model::RestartAt::First);
    assert!(Routes::new(vec![route("/old*", restart)], &["a"]).has_restarts());
}

#[test]
fn files_route_uses_its_configured_fallback_pool() {
    let files = |pool: Option<&str>| {
        let files = weir_model::StaticFiles {
            pool: pool.map(str::to_owned),
            ..weir_model::StaticFiles::new("/srv")
        };
        route("/*", RouteAction::Files(Arc::new(files)))
    };
    let list = ["a", "b", "c"].map(|pool| files(Some(pool)));
    let list = list.into_iter().chain([files(None)]).collect();
    let routes = Routes::new(list, &["a", "b", "c"]);
    for (route, expected) in [
        (0, Some(0)),
        (1, Some(1)),
        (2, Some(2)),
        (3, None),
        (4, None),
    ] {
        assert_eq!(routes.fallback_pool(route), expected, "{route}");
    }
}

#[test]
fn misdirected_requests_are_rejected_before_limits_count_them() {
    let concurrent = Arc::new(ConcurrencyLimit::new(1));
    let limits = Limits {
        concurrent: Some(Arc::clone(&concurrent)),
        ..limits()
    };
    let mut random = SplitMix64::new(1);
    let mut decide_for = |host| decide_on(&get("/"), 1, &limits, host, &mut random);
    let (decision, slot) = decide_for(HostCheck::Misdirected);
    assert_eq!(decision, Decision::Reject(Rejection::new(421)));
    assert!(slot.is_none());
    let (_, first) = decide_for(HostCheck::Allowed);
    assert!(first.is_some());
    let (decision, slot) = decide_for(HostCheck::Allowed);
    assert_eq!(decision, Decision::Reject(Rejection::too_many_requests(1)));
    assert!(slot.is_none());
    drop(first);
    assert!(decide_for(HostCheck::Allowed).1.is_some());
}

#[test]
fn body_length_and_rate_are_limited() {
    let mut limits = limits();
    limits.max_body_bytes = 10;
    let mut random = SplitMix64::new(1);
    for (length, allowed) in [(0, true), (10, true), (11, false)] {
        let text = format!("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: {length}\r\n\r\n");
        let (decision, _) = decide_on(&text, 1, &limits, HostCheck::Allowed, &mut random);
        let rejected = decision == Decision::Reject(Rejection::new(413));
        assert_eq!(rejected, !allowed, "{length}");
    }
    assert!(!limits.needs_time());
    limits.rate = Some(Arc::new(RateLimit::new(1, 3)));
    assert!(limits.needs_time());
    let mut decide_for = |client| {
        let allowed = HostCheck::Allowed;
        decide_on(&get("/"), client, &limits, allowed, &mut random).0
    };
    let rejected = Decision::Reject(Rejection::too_many_requests(1));
    let answered = (0..10).filter(|_| decide_for(1) != rejected).count();
    assert_eq!(answered, 3);
    assert_ne!(decide_for(2), rejected, "another client");
}

#[test]
fn limit_key_identifies_clients() {
    let mut limits = limits();
    limits.key = HashKey::Header("x-user".to_owned());
    limits.rate = Some(Arc::new(RateLimit::new(1, 1)));
    let mut random = SplitMix64::new(1);
    let mut decide_for = |user: &str, client| {
        let text = format!("GET / HTTP/1.1\r\nHost: h\r\nX-User: {user}\r\n\r\n");
        let allowed = HostCheck::Allowed;
        let (decision, _) = decide_on(&text, client, &limits, allowed, &mut random);
        !matches!(decision, Decision::Reject(_))
    };
    assert!(decide_for("ann", 1));
    assert!(
        !decide_for("ann", 2),
        "the same user from a different address"
    );
    assert!(decide_for("bob", 1));
}

#[test]
fn server_names_select_the_pool_of_tcp_services() {
    let mut named = route("/", RouteAction::Pool("b".to_owned()));
    named.when.paths.clear();
    named.when.hosts = vec![weir_model::HostPattern::Exact("b.example".to_owned())];
    let routes = Routes::new(vec![named], &["a", "b"]);
    let mut random = SplitMix64::new(1);
    let client = "192.0.2.1".parse().unwrap();
    let mut pool = |name| routes.pool_for_connection(name, client, &mut random);
    assert_eq!(pool(Some("b.example")), Some(1));
    assert_eq!((pool(Some("a.example")), pool(None)), (Some(0), Some(0)));
    assert!(routes.needs_server_name());
}

#[test]
fn routes_of_tcp_services_close_connections_by_source() {
    let mut closing = route("/", RouteAction::Close);
    closing.when.paths.clear();
    let network = weir_model::Network {
        address: "192.0.2.0".parse().unwrap(),
        prefix: 24,
    };
    closing.not = Some(Box::new(weir_model::Conditions {
        sources: Some([network].into_iter().collect()),
        ..weir_model::Conditions::default()
    }));
    let routes = Routes::new(vec![closing], &["a"]);
    let mut random = SplitMix64::new(1);
    let mut pool = |client: &str| {
        let client = client.parse().unwrap();
        routes.pool_for_connection(None, client, &mut random)
    };
    assert_eq!(pool("192.0.2.9"), Some(0));
    assert_eq!(pool("198.51.100.9"), None);
    assert!(!routes.needs_server_name());
}

#[test]
fn routes_are_indexed_in_order() {
    let routes = routes();
    assert!(!routes.is_empty() && Routes::default().is_empty());
    let path = |index| -> Option<&str> {
        let route = routes.get(index)?;
        route.when.paths.first().map(String::as_str)
    };
    assert_eq!(
        (path(0), path(3), path(5)),
        (Some("/b*"), Some("/old*"), None)
    );
}
