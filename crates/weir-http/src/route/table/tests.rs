//! Compares the index with the reference implementation.

use proptest::prelude::*;
use weir_model::{Conditions, NamedCondition, RouteAction, TextRegex};

use super::*;
use crate::head::{self, HeadLimits};
use crate::path::RequestPath;
use crate::route::{TlsProperties, choose};

fn any_host() -> impl Strategy<Value = HostPattern> {
    prop_oneof![
        4 => "[ab](\\.c)?".prop_map(HostPattern::Exact),
        1 => Just(HostPattern::Suffix(".c".to_owned())),
        1 => Just(HostPattern::Wildcard("a*".to_owned())),
        1 => Just(HostPattern::Regex(TextRegex::ignoring_case("^B").unwrap())),
    ]
}

fn any_conditions() -> impl Strategy<Value = Conditions> {
    let paths = prop::collection::vec("/[ab*]?(/[ab*]{0,2}){0,3}", 0..3);
    let regex = "\\^?(/[ab]){0,2}(/\\[ab\\]\\+|a\\*|/b\\?|\\(a\\|b\\))?\\$?";
    let regexes =
        prop::collection::vec(regex.prop_map(|text| TextRegex::new(&text).unwrap()), 0..2);
    let named = Just(vec![NamedCondition {
        name: "x-a".to_owned(),
        value: None,
    }]);
    let headers = prop_oneof![3 => Just(Vec::new()), 1 => named];
    (
        prop::collection::vec(any_host(), 0..3),
        paths,
        regexes,
        headers,
    )
        .prop_map(|(hosts, paths, path_regexes, headers)| Conditions {
            hosts,
            paths,
            path_regexes,
            headers,
            ..Conditions::default()
        })
}

fn any_route() -> impl Strategy<Value = Route> {
    let not = prop_oneof![3 => Just(None), 1 => any_conditions().prop_map(Some)];
    (any_conditions(), not).prop_map(|(when, not)| Route {
        options: None,
        when,
        not: not.filter(|not| !not.is_empty()).map(Box::new),
        ..Route::new(RouteAction::Close)
    })
}

/// Returns the results of the table and of the reference for one request.
fn compare(
    table: &RouteTable,
    host: &str,
    path: &str,
    extra_fields: &str,
) -> (Option<usize>, Option<usize>) {
    let text = format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n{extra_fields}\r\n");
    let mut fields = Vec::new();
    let request = head::parse_request(text.as_bytes(), &HeadLimits::default(), &mut fields)
        .unwrap()
        .unwrap();
    let target = RequestPath::as_received(request.path_in(text.as_bytes()));
    let route_input = RouteInput {
        client: "192.0.2.1".parse().unwrap(),
        target: &target,
        head: text.as_bytes(),
        request: &request,
        fields: &fields,
        tls: TlsProperties::default(),
        secure: false,
    };
    (
        table.choose(&route_input),
        choose(table.routes(), &route_input),
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(120))]

    #[test]
    fn index_chooses_the_first_route_that_matches(
        routes in prop::collection::vec(any_route(), MAX_LINEAR + 1..40),
        requests in prop::collection::vec(("[abAB](\\.[cC])?", "(/[ab]{0,2}){1,9}", any::<bool>()), 1..20),
    ) {
        let table = RouteTable::new(routes);
        for (host, path, field) in requests {
            let extra_fields = if field { "X-A: 1\r\n" } else { "" };
            let (chosen, expected) = compare(&table, &host, &path, extra_fields);
            prop_assert_eq!(chosen, expected, "{} {}", host, path);
        }
    }

    /// Every path that matches begins with the fixed prefix.
    #[test]
    fn fixed_prefix_begins_every_match(
        text in "\\^(/|a|b|\\\\\\.|\\.|a\\?|b\\*|\\[ab\\]|\\(a\\)|/\\+|a\\{0,1\\}|\\||\\$){0,6}",
        path in "[/ab.]{0,6}",
    ) {
        if let Ok(regex) = TextRegex::new(&text)
            && let Some(prefix) = regex.fixed_prefix()
            && regex.matches(path.as_bytes())
        {
            prop_assert!(path.starts_with(&prefix), "{} {} {}", text, prefix, path);
        }
    }
}

#[test]
fn large_table_chooses_the_first_match() {
    let route = |number: usize| {
        let mut route = Route::new(RouteAction::Close);
        route.when.hosts = vec![HostPattern::Exact(format!("h{}.example", number % 10))];
        route.when.paths = vec![format!("/app/{number}/*")];
        route
    };
    let table = RouteTable::new((0..1000).map(route).collect());
    let (chosen, expected) = compare(&table, "H7.example:80", "/app/997/x", "");
    assert_eq!((chosen, expected), (Some(997), Some(997)));
    let index = table.index.as_ref().unwrap();
    assert_eq!(index.lists.values().map(Vec::len).max(), Some(1));
    assert_eq!(
        compare(&table, "h6.example", "/app/997/x", ""),
        (None, None)
    );
}

#[test]
fn list_keys_depend_on_host_and_path() {
    assert_eq!(hash_of_host(b"A.example"), hash_of_host(b"a.example"));
    assert_ne!(hash_of_host(b"a.example"), hash_of_host(b"b.example"));
    let hosts = [None, Some(hash_of_host(b"a")), Some(hash_of_host(b"b"))];
    let paths = [BASIS, hash_segments("/a").0, hash_segments("/b").0];
    let keys: std::collections::HashSet<u64> = hosts
        .iter()
        .flat_map(|host| paths.map(|path| key(*host, path)))
        .collect();
    assert_eq!(keys.len(), 9);
    let differs = |bit: u32| key(hosts[1], 1 << bit) != key(hosts[1], 0);
    assert!((0..u64::BITS).all(differs));
    let mut route = Route::new(RouteAction::Close);
    let exact = |host: &str| HostPattern::Exact(host.to_owned());
    route.when.hosts = vec![exact("a"), exact("b")];
    assert_eq!(host_hashes(&route), hosts[1..]);
    route.when.hosts.push(HostPattern::Suffix(".c".to_owned()));
    assert_eq!(host_hashes(&route), [None]);
}

#[test]
fn table_needs_tls_or_restarts_if_a_route_does() {
    let needs = |route: Route| {
        let table = RouteTable::new(vec![Route::new(RouteAction::Close), route]);
        (table.needs_tls(), table.has_restarts())
    };
    let plain = || Route::new(RouteAction::Close);
    assert_eq!(needs(plain()), (false, false));
    let mut tls = plain();
    tls.when.tls_versions = vec![weir_model::TlsVersion::V13];
    assert_eq!(needs(tls), (true, false));
    let restart = Route::new(RouteAction::Restart(weir_model::RestartAt::First));
    assert_eq!(needs(restart), (false, true));
}

#[test]
fn set_of_many_regular_expressions_selects_the_correct_route() {
    let route = |number: usize| {
        let mut route = Route::new(RouteAction::Close);
        route.when.path_regexes = vec![TextRegex::new(&format!("/{number}\\.(png|gif)$")).unwrap()];
        route
    };
    let table = RouteTable::new((0..1000).map(route).collect());
    assert!(table.index.as_ref().unwrap().set.is_some());
    assert_eq!(
        compare(&table, "h", "/img/997.gif", ""),
        (Some(997), Some(997))
    );
    assert_eq!(compare(&table, "h", "/img/1997.gif", ""), (None, None));
}
