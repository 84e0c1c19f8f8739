//! Tests texts, header edits, maps, logs and limits of proxy services and their routes.

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use weir_model::*;

fn text(text: &str) -> String {
    text.to_owned()
}

fn header(name: &str, value: Template) -> HeaderEdit {
    HeaderEdit {
        name: text(name),
        value,
        statuses: Vec::new(),
        file: None,
    }
}

fn map(entries: &[(&str, &str)], default: Option<&str>, ignore_case: bool) -> ValueMap {
    let entries = entries.iter().map(|(key, value)| (text(key), text(value)));
    ValueMap {
        name: text("m"),
        key: Template::parse("{tls_sni}").unwrap(),
        entries: Arc::new(MapEntries::new(MapKind::Exact, ignore_case, entries, |_| None).unwrap()),
        default: default.map(text),
    }
}

fn hash_of(value: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

#[test]
fn header_edits_replace_fields_regardless_of_case() {
    let edits = HeaderEdits {
        set: vec![header("X-A", Template::literal("1"))],
        add: vec![header("X-B", Template::literal("2"))],
        remove: vec![text("x-c")],
        ..HeaderEdits::default()
    };
    for (name, expected) in [("x-a", true), ("X-C", true), ("x-b", false), ("x-", false)] {
        assert_eq!(edits.replaces(name.as_bytes()), expected, "{name}");
    }
    let names: Vec<&str> = edits.fields().map(|field| field.name.as_str()).collect();
    assert_eq!(names, ["X-A", "X-B"]);

    let none = HeaderEdits::default;
    assert!(none().is_empty());
    let replacement = HeaderReplacement {
        name: text("location"),
        regex: TextRegex::new("^http:(.*)").unwrap(),
        to: Template::parse("https:{1}").unwrap(),
    };
    for edits in [
        HeaderEdits {
            set: edits.set.clone(),
            ..none()
        },
        HeaderEdits {
            add: edits.add.clone(),
            ..none()
        },
        HeaderEdits {
            remove: edits.remove.clone(),
            ..none()
        },
        HeaderEdits {
            replace: vec![replacement],
            ..none()
        },
    ] {
        assert!(!edits.is_empty(), "{edits:?}");
        let request = RouteEdits {
            request: edits.clone(),
            ..RouteEdits::default()
        };
        let response = RouteEdits {
            response: edits,
            ..RouteEdits::default()
        };
        assert!(!request.is_empty() && !response.is_empty());
    }
    assert!(RouteEdits::default().is_empty());
}

#[test]
fn replacement_applies_to_matching_values_of_its_field() {
    let replacement = HeaderReplacement {
        name: text("location"),
        regex: TextRegex::new("^http://([^/]*)(/.*)?$").unwrap(),
        to: Template::parse("https://{1}:443{2}").unwrap(),
    };
    let apply = |name: &str, value: &str| {
        let value = replacement.apply(name.as_bytes(), value.as_bytes())?;
        Some(String::from_utf8(value).unwrap())
    };
    let replaced = Some(text("https://a.example:443/x"));
    assert_eq!(apply("Location", "http://a.example/x"), replaced);
    let without_path = Some(text("https://a.example:443"));
    assert_eq!(apply("location", "http://a.example"), without_path);
    assert_eq!(apply("location", "https://a.example/x"), None);
    assert_eq!(apply("refresh", "http://a.example/x"), None);
    assert_eq!(
        replacement.to_string(),
        "location: https://{1}:443{2} if ^http://([^/]*)(/.*)?$ matches"
    );
}

#[test]
fn copied_fields_of_an_authorization_replace_those_of_the_request() {
    let auth = ForwardAuth {
        pool: text("auth"),
        path: text(ForwardAuth::PATH),
        timeout: ForwardAuth::TIMEOUT[0],
        copy: vec![(text("X-User"), text("X-Auth-User"))],
        set: Vec::new(),
    };
    assert!(auth.replaces(b"x-user"));
    assert!(!auth.replaces(b"x-auth-user"));
}

#[test]
fn burst_is_one_second_of_the_rate_unless_set() {
    for (per_minute, burst, expected) in [
        (600, 0, 10),
        (59, 0, 1),
        (60, 0, 1),
        (120, 0, 2),
        (600, 7, 7),
    ] {
        let limits = RouteLimits {
            per_minute,
            burst,
            ..RouteLimits::default()
        };
        assert_eq!(limits.burst(), expected);
        let limits = ProxyLimits {
            per_minute,
            burst,
            ..ProxyLimits::default()
        };
        assert_eq!(limits.burst(), expected);
    }
}

#[test]
fn mirrors_and_files_are_displayed_on_one_line() {
    let mut mirror = Mirror::new("shadow");
    let limits = "to pool shadow, bodies up to 65536 bytes, 100 at once";
    assert_eq!(mirror.to_string(), format!("100.00 % {limits}"));
    mirror.share = 205;
    mirror.path = Some(text("/copy"));
    assert_eq!(mirror.to_string(), format!("2.05 % {limits}, path /copy"));

    let mut files = StaticFiles::new("/srv/www");
    assert_eq!(files.to_string(), "files /srv/www");
    assert_eq!(files.attempts, ["{path}", "{path}/"]);
    files.strip = text("/static");
    files.index = vec![text("a.html"), text("b.html")];
    files.attempts = vec![text("{path}.html")];
    files.missing_status = 410;
    files.pool = Some(text("app"));
    assert_eq!(
        files.to_string(),
        "files /srv/www strip /static index a.html b.html try {path}.html else 410 else pool app"
    );
}

#[test]
fn actions_name_their_pools_maps_and_files() {
    let by_map = map(&[("a", "p1"), ("b", "p2"), ("c", "p1")], Some("p3"), false);
    let mut files = StaticFiles::new("/srv");
    files.pool = Some(text("app"));
    let mapped = RouteAction::Mapped(Arc::new(by_map));
    assert_eq!(mapped.pools(), ["p1", "p2", "p3"]);
    assert_eq!(mapped.map().map(|map| map.name.as_str()), Some("m"));
    let files = Route::new(RouteAction::Files(Arc::new(files)));
    assert_eq!(files.action.pools(), ["app"]);
    assert_eq!(files.files().map(|it| it.root.as_str()), Some("/srv"));
    let close = Route::new(RouteAction::Close);
    assert_eq!(close.action.pools(), [""; 0]);
    assert!(close.action.map().is_none() && close.files().is_none());
    for (action, shown) in [
        (mapped, "pool by map m"),
        (files.action, "files /srv else pool app"),
        (close.action, "close"),
        (
            RouteAction::Restart(RestartAt::First),
            "restart at the first route",
        ),
        (
            RouteAction::Restart(RestartAt::Next),
            "restart at the next route",
        ),
    ] {
        assert_eq!(action.to_string(), shown);
    }
}

#[test]
fn maps_are_displayed_and_compared_by_entries() {
    let one_entry = map(&[("a", "1")], None, false);
    assert_eq!(one_entry.to_string(), "m by {tls_sni}, exact, 1 entry");
    let two_entries = map(&[("a", "1"), ("b", "2")], Some("0"), true);
    assert_eq!(
        two_entries.to_string(),
        "m by {tls_sni}, exact, 2 entries, ignoring case, default 0"
    );
    assert_eq!(two_entries.value(b"B"), "2");
    assert_eq!(two_entries.value(b"c"), "0");
    assert_eq!((one_entry.value(b"a"), one_entry.value(b"A")), ("1", ""));
    assert!(!one_entry.entries.is_empty() && ValueMap::empty().entries.is_empty());
    assert_eq!(format!("{:?}", two_entries.entries), "MapEntries(2)");

    let entries = |list: &[(&str, &str)], ignore_case| map(list, None, ignore_case).entries;
    let base = || entries(&[("a", "1"), ("b", "2")], false);
    assert_eq!(base(), base());
    assert_eq!(hash_of(&base()), hash_of(&base()));
    for other in [
        entries(&[("a", "1"), ("b", "2")], true),
        entries(&[("a", "1"), ("c", "2")], false),
        entries(&[("a", "1"), ("b", "3")], false),
        entries(&[("a", "1"), ("b", "1")], false),
    ] {
        assert!(base() != other, "{:?}", other.values());
        assert_ne!(hash_of(&base()), hash_of(&other));
    }
}

#[test]
fn logs_have_targets_and_variables() {
    for (path, expected) in [
        ("-", LogTarget::Stdout),
        ("syslog", LogTarget::Syslog(AccessLog::SYSLOG)),
        ("syslog:/run/log", LogTarget::Syslog("/run/log")),
        ("journald", LogTarget::Journal(AccessLog::JOURNAL)),
        ("journald:/run/j", LogTarget::Journal("/run/j")),
        ("/var/log/a:b.log", LogTarget::File("/var/log/a:b.log")),
    ] {
        let log = AccessLog::new(path, LogFormat::Combined);
        assert_eq!(log.target(), expected, "{path}");
    }
    let template = LogFormat::Template(text("{client} {header.a} {tls_sni} {header.a} {status} {"));
    assert_eq!(template.variables(), ["header.a", "tls_sni"]);
    assert_eq!(LogFormat::Combined.variables(), [""; 0]);
    assert!(LogFormat::Json.variables().contains(&"tls_sni"));
}

#[test]
fn tls_properties_are_needed_by_conditions_templates_and_logs() {
    let with = |change: &dyn Fn(&mut Proxy)| {
        let mut proxy = Proxy::new("www", ProxyProtocol::Http, "p");
        proxy.routes = vec![Route::new(RouteAction::Pool(text("p")))];
        change(&mut proxy);
        proxy.needs_tls_properties()
    };
    let sni = || Template::parse("{tls_sni}").unwrap();
    let client = || Template::parse("{client}").unwrap();
    let log = |format: LogFormat| Some(AccessLog::new("-", format));
    assert!(!with(&|_| ()));
    assert!(!with(
        &|it| it.request_header.set = vec![header("a", client())]
    ));
    assert!(with(&|it| it.request_header.set = vec![header("a", sni())]));
    assert!(with(&|it| it.response_header.add = vec![header("a", sni())]));
    assert!(with(
        &|it| it.routes[0].edits.request.add = vec![header("a", sni())]
    ));
    assert!(with(
        &|it| it.routes[0].edits.response.set = vec![header("a", sni())]
    ));
    assert!(with(&|it| it.routes[0].action = RouteAction::Redirect {
        to: sni(),
        status: 302,
    }));
    assert!(with(&|it| it.routes[0].action = RouteAction::Respond {
        status: 200,
        body: sni(),
    }));
    assert!(with(&|it| {
        let map = map(&[], None, false);
        it.routes[0].action = RouteAction::Mapped(Arc::new(map));
    }));
    assert!(with(
        &|it| it.routes[0].when.tls_snis = vec![HostPattern::Exact(text("a"))]
    ));
    assert!(with(
        &|it| it.log_maps = vec![Arc::new(map(&[], None, false))]
    ));
    assert!(with(
        &|it| it.access_log = log(LogFormat::Template(text("{tls_version}")))
    ));
    assert!(with(&|it| it.access_log = log(LogFormat::Json)));
    assert!(!with(
        &|it| it.access_log = log(LogFormat::Template(text("{client}")))
    ));
}

#[test]
fn template_variables_are_replaced() {
    let parse = |text: &str| Template::parse(text).unwrap();
    let replaced = parse("/{path}?{query}&{path}").replacing(&Variable::Path, &Variable::Host);
    let variables: Vec<&Variable> = replaced.variables().collect();
    assert_eq!(
        variables,
        [&Variable::Host, &Variable::Query, &Variable::Host]
    );

    let existing_map = Arc::new(map(&[("a", "1")], None, false));
    let find = |name: &str| (name == "m").then(|| Arc::clone(&existing_map));
    let resolved = parse("{map.m}").with_maps(find).unwrap();
    assert!(
        resolved.variables().any(Variable::needs_tls),
        "the map's key needs them"
    );
    let unknown = parse("{client}{map.other}").with_maps(find);
    assert_eq!(unknown.unwrap_err().name, "map.other");
}

#[test]
fn host_sets_are_compared_by_files_and_hosts() {
    let set = |file: &str, host: &str| {
        HostSet::new(vec![(text(file), vec![HostPattern::Exact(text(host))])])
    };
    assert!(set("f", "a") == set("f", "a"));
    assert!(set("f", "a") != set("f", "b"));
    assert!(set("f", "a") != set("g", "a"));
    assert_eq!(hash_of(&set("f", "a")), hash_of(&set("f", "a")));
    assert_ne!(hash_of(&set("f", "a")), hash_of(&set("f", "b")));
}

#[test]
fn cipher_suites_have_the_tls_version_that_uses_them() {
    let suites = CipherSuite::ALL.into_iter();
    let is_v13 = |suite: &CipherSuite| suite.version() == TlsVersion::V13;
    let (v13, v12): (Vec<_>, Vec<_>) = suites.partition(is_v13);
    assert!(v13.iter().all(|suite| !suite.as_str().contains("_WITH_")));
    assert!(v12.iter().all(|suite| suite.as_str().contains("_WITH_")));
    assert_eq!((v13.len(), v12.len()), (3, 6));
}
