//! Tests path rewrites that restart route selection.

use weir_model::{PathRewrite, Template, TextRegex};

use super::*;
use crate::head::{self, HeadLimits};
use crate::route::TlsProperties;

fn template(text: &str) -> Template {
    Template::parse(text).expect("template is valid")
}

fn route(path: &str, action: RouteAction) -> Route {
    let mut route = Route::new(action);
    route.when.paths.push(path.to_owned());
    route
}

fn restart(path: &str, regex: Option<&str>, to: &str, restart_at: RestartAt) -> Route {
    let mut route = route(path, RouteAction::Restart(restart_at));
    route.edits.path = Some(PathRewrite {
        regex: regex.map(|regex| TextRegex::new(regex).expect("regular expression is valid")),
        to: template(to),
    });
    route
}

fn pool(path: &str) -> Route {
    route(path, RouteAction::Pool("p".to_owned()))
}

/// Returns the final path, its route, and the number of rewrites.
fn chosen_route(routes: &[Route], path: &str) -> (String, Option<usize>, usize) {
    let text = format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n");
    let head = text.as_bytes();
    let mut fields = Vec::new();
    let request = head::parse_request(head, &HeadLimits::default(), &mut fields);
    let request = request
        .expect("request is valid")
        .expect("request is complete");
    let target = RequestPath::as_received(request.path_in(head));
    let route_input = RouteInput {
        client: "192.0.2.1".parse().expect("address is valid"),
        target: &target,
        head,
        request: &request,
        fields: &fields,
        tls: TlsProperties::default(),
        secure: false,
    };
    let table = RouteTable::new(routes.to_vec());
    let (mut buffer, mut count) = (Vec::new(), 0);
    let rules = NormalizePath::default();
    let found = table.apply_restarts(&route_input, Some(&rules), &mut buffer, |_, _| count += 1);
    let target = found.expect("new path is valid").target(target, &buffer);
    let route_input = RouteInput {
        target: &target,
        ..route_input
    };
    let text = String::from_utf8_lossy(target.as_bytes()).into_owned();
    (text, table.choose(&route_input), count)
}

#[test]
fn new_path_is_compared_from_the_first_or_the_next_route() {
    let routes = |start| {
        [
            pool("/new/*"),
            restart("/old/*", None, "/new/{rest}", start),
            pool("*"),
        ]
    };
    let found = chosen_route(&routes(RestartAt::First), "/old/x?q");
    assert_eq!(found, ("/new/x?q".to_owned(), Some(0), 1));
    let found = chosen_route(&routes(RestartAt::Next), "/old/x?q");
    assert_eq!(found, ("/new/x?q".to_owned(), Some(2), 1));
}

#[test]
fn path_without_a_match_is_compared_with_the_next_route() {
    let routes = [
        restart("/a/*", Some("^/a/(b)"), "/c/{1}", RestartAt::First),
        pool("/a/*"),
        pool("/c/*"),
    ];
    assert_eq!(
        chosen_route(&routes, "/a/b"),
        ("/c/b".to_owned(), Some(2), 1)
    );
    assert_eq!(
        chosen_route(&routes, "/a/x"),
        ("/a/x".to_owned(), Some(1), 0)
    );
}

#[test]
fn number_of_rewrites_is_limited() {
    let routes = [restart("*", None, "/x{path}", RestartAt::First)];
    let (path, route, count) = chosen_route(&routes, "/");
    assert_eq!((route, count), (Some(0), MAX_RESTARTS));
    assert_eq!(path, format!("{}/", "/x".repeat(MAX_RESTARTS)));
}

#[test]
fn query_of_the_new_path_comes_before_that_of_the_request() {
    for (to, expected) in [
        ("/n?a={rest}", "/n?a=x&q=1"),
        ("/n?", "/n"),
        ("/n", "/n?q=1"),
    ] {
        let routes = [restart("/o/*", None, to, RestartAt::First), pool("/n")];
        assert_eq!(chosen_route(&routes, "/o/x?q=1").0, expected, "{to}");
    }
    let routes = [restart("/o/*", None, "/n?a={rest}", RestartAt::First)];
    assert_eq!(chosen_route(&routes, "/o/x").0, "/n?a=x");
}

#[test]
fn new_path_is_normalized() {
    let routes = [
        restart("/o/*", None, "/a/../b/{rest}", RestartAt::First),
        pool("/b/*"),
    ];
    assert_eq!(
        chosen_route(&routes, "/o/x"),
        ("/b/x".to_owned(), Some(1), 1)
    );
}

#[test]
fn large_tables_choose_the_same_routes() {
    let mut routes = vec![restart("/old/*", None, "/new/{rest}", RestartAt::Next)];
    routes.extend((0..20).map(|number| pool(&format!("/p{number}/*"))));
    routes.push(pool("/new/*"));
    assert_eq!(
        chosen_route(&routes, "/old/x"),
        ("/new/x".to_owned(), Some(21), 1)
    );
    routes.insert(0, pool("/new/*"));
    assert_eq!(
        chosen_route(&routes, "/old/x"),
        ("/new/x".to_owned(), Some(22), 1)
    );
}
