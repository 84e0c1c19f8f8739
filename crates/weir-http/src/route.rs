//! Matching of requests against routes.

use std::net::IpAddr;

use weir_model::{HostPattern, Route};

use crate::cookie;
use crate::field::Field;
use crate::head::Request;
use crate::path::RequestPath;

/// Returns the index of the first route that matches the request of `client`; `target` is its path in normal form.
pub fn choose(
    routes: &[Route],
    client: IpAddr,
    target: &RequestPath<'_>,
    head: &[u8],
    request: &Request,
    fields: &[Field],
) -> Option<usize> {
    if routes.is_empty() {
        return None;
    }
    let host = without_port(request.host_in(head, fields).unwrap_or_default());
    let path = target.path();
    routes.iter().position(|route| {
        // Every field is named, so that a new condition cannot be forgotten.
        let Route {
            host: wanted_host,
            path: wanted_path,
            path_regex,
            methods,
            headers,
            queries,
            cookies,
            sources,
            edits: _,
            action: _,
            source: _,
        } = route;
        let method = request.method_in(head);
        (methods.is_empty() || methods.iter().any(|one| one.as_bytes() == method))
            && wanted_host
                .as_ref()
                .is_none_or(|pattern| host_matches(pattern, host))
            && wanted_path
                .as_ref()
                .is_none_or(|pattern| glob(pattern.as_bytes(), path))
            && path_regex.as_ref().is_none_or(|regex| regex.fits(path))
            && headers
                .iter()
                .all(|(name, value)| has_field(head, fields, name, value))
            && queries.iter().all(|(name, value)| {
                let found = cookie::parameter(target.query(), name.as_bytes());
                found.is_some_and(|found| value_matches(value, found))
            })
            && cookies
                .iter()
                .all(|(name, value)| has_cookie(head, fields, name, value))
            && (sources.is_empty() || sources.iter().any(|network| network.contains(client)))
    })
}

fn has_field(head: &[u8], fields: &[Field], name: &str, value: &Option<String>) -> bool {
    fields.iter().any(|field| {
        field.name_in(head).eq_ignore_ascii_case(name.as_bytes())
            && value_matches(value, field.value_in(head))
    })
}

fn has_cookie(head: &[u8], fields: &[Field], name: &str, value: &Option<String>) -> bool {
    fields.iter().any(|field| {
        let text = field.value_in(head);
        field.name_in(head).eq_ignore_ascii_case(b"cookie")
            && cookie::find(text, name.as_bytes())
                .is_some_and(|range| value_matches(value, &text[range]))
    })
}

/// Whether a value equals the required one, if one is required.
fn value_matches(wanted: &Option<String>, found: &[u8]) -> bool {
    wanted
        .as_ref()
        .is_none_or(|wanted| wanted.as_bytes() == found)
}

/// The rewritten path and query for the server: `{path}`, `{rest}` and `{1}` in `to` are replaced by parts of the
/// request's path. The parts come from the normalized path: parts of the received spelling could escape the route's
/// prefix.
pub fn rewritten(to: &str, route: &Route, target: &RequestPath<'_>) -> Vec<u8> {
    let path = target.path();
    let groups = route.path_regex.as_ref().filter(|_| to.contains('{'));
    let groups = groups.and_then(|regex| regex.groups(path));
    let fixed = route
        .path
        .as_deref()
        .map_or(0, |pattern| pattern.find('*').unwrap_or(pattern.len()));
    let rest = path.get(fixed..).unwrap_or_default();
    let mut out = Vec::with_capacity(to.len() + target.as_bytes().len());
    let mut tail = to;
    while let Some((before, after)) = tail.split_once('{') {
        out.extend_from_slice(before.as_bytes());
        let (word, rest_of) = after.split_once('}').unwrap_or((after, ""));
        out.extend_from_slice(match word.parse::<usize>() {
            Ok(group) => groups
                .as_ref()
                .and_then(|groups| groups.get(group))
                .map_or(&b""[..], |found| found.as_bytes()),
            Err(_) if word == "rest" => rest,
            Err(_) => path,
        });
        tail = rest_of;
    }
    out.extend_from_slice(tail.as_bytes());
    out.extend_from_slice(target.query_part());
    out
}

/// Returns the index of the first route for a TLS client with this server name, if any.
pub fn choose_by_sni(routes: &[Route], name: Option<&str>) -> Option<usize> {
    routes.iter().position(|route| match (&route.host, name) {
        (None, _) => true,
        (Some(pattern), Some(name)) => host_matches(pattern, name.as_bytes()),
        (Some(_), None) => false,
    })
}

/// The host of an authority, without a trailing dot.
pub fn without_port(host: &[u8]) -> &[u8] {
    let end = match host.iter().rposition(|byte| *byte == b':') {
        // The last colon of an address in brackets is inside the brackets or before the port.
        Some(colon) if !host[colon..].contains(&b']') => colon,
        _ => host.len(),
    };
    let host = &host[..end];
    host.strip_suffix(b".").unwrap_or(host)
}

fn host_matches(pattern: &HostPattern, host: &[u8]) -> bool {
    match pattern {
        HostPattern::Exact(exact) => host.eq_ignore_ascii_case(exact.as_bytes()),
        HostPattern::Suffix(rest) => {
            host.len() > rest.len()
                && host[host.len() - rest.len()..].eq_ignore_ascii_case(rest.as_bytes())
        }
    }
}

/// Whether `text` matches `pattern`, in which `*` matches any bytes. Backtracks only to the last star.
fn glob(pattern: &[u8], text: &[u8]) -> bool {
    let (mut at, mut from) = (0, 0);
    let mut last: Option<(usize, usize)> = None;
    while from < text.len() {
        if pattern.get(at) == Some(&b'*') {
            last = Some((at + 1, from));
            at += 1;
        } else if pattern.get(at) == Some(&text[from]) {
            at += 1;
            from += 1;
        } else if let Some((behind, tried)) = last {
            at = behind;
            from = tried + 1;
            last = Some((behind, from));
        } else {
            return false;
        }
    }
    pattern[at..].iter().all(|byte| *byte == b'*')
}

/// `Location` of a redirect: `{host}` and `{path}` are replaced by the request's as received; `host` is used if the
/// client sent none.
pub fn location(
    to: &str,
    head: &[u8],
    request: &Request,
    fields: &[Field],
    host: &[u8],
) -> Vec<u8> {
    let mut out = Vec::with_capacity(to.len() + 64);
    let mut rest = to;
    while let Some(open) = rest.find('{') {
        out.extend_from_slice(&rest.as_bytes()[..open]);
        let tail = &rest[open..];
        rest = if let Some(after) = tail.strip_prefix("{host}") {
            out.extend_from_slice(without_port(request.host_in(head, fields).unwrap_or(host)));
            after
        } else if let Some(after) = tail.strip_prefix("{path}") {
            let path = request.path_in(head);
            let path = path.strip_prefix(b"/").unwrap_or(path);
            // A reference that begins with two slashes names a host (RFC 3986 section 4.2), and browsers read `\` as
            // `/`.
            let named = |byte: &&u8| out.is_empty() && matches!(byte, b'/' | b'\\');
            let more = path.iter().take_while(named).count();
            out.push(b'/');
            out.extend_from_slice(&path[more..]);
            after
        } else {
            out.push(b'{');
            &tail[1..]
        };
    }
    out.extend_from_slice(rest.as_bytes());
    out
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use weir_model::{Network, PathRegex, RouteAction};

    use super::*;
    use crate::head::{self, HeadLimits};

    fn route(host: Option<HostPattern>, path: Option<&str>) -> Route {
        Route {
            host,
            path: path.map(str::to_owned),
            ..Route::new(RouteAction::Pool("p".to_owned()))
        }
    }

    fn chosen(routes: &[Route], text: &str) -> Option<usize> {
        let mut fields = Vec::new();
        let request = head::request(text.as_bytes(), &HeadLimits::default(), &mut fields)
            .unwrap()
            .unwrap();
        let client = "192.0.2.1".parse().unwrap();
        let target = RequestPath::received(request.path_in(text.as_bytes()));
        choose(routes, client, &target, text.as_bytes(), &request, &fields)
    }

    fn get(host: &str, target: &str) -> String {
        format!("GET {target} HTTP/1.1\r\nHost: {host}\r\nAccept: text/html\r\n\r\n")
    }

    #[test]
    fn first_matching_route_is_chosen() {
        let exact = || Some(HostPattern::Exact("a.example".to_owned()));
        let below = || Some(HostPattern::Suffix(".example".to_owned()));
        let routes = [
            route(exact(), Some("/img/*")),
            route(below(), None),
            route(None, Some("/status")),
        ];
        assert_eq!(
            chosen(&routes, &get("A.Example:8080", "/img/x?y=/z")),
            Some(0)
        );
        assert_eq!(chosen(&routes, &get("a.example.", "/img/")), Some(0));
        assert_eq!(chosen(&routes, &get("a.example", "/im")), Some(1));
        assert_eq!(chosen(&routes, &get("b.c.example", "/")), Some(1));
        assert_eq!(chosen(&routes, &get("example", "/status?x")), Some(2));
        assert_eq!(chosen(&routes, &get("notexample", "/status/")), None);
        assert_eq!(
            chosen(
                &routes,
                "GET http://a.example/img/1 HTTP/1.1\r\nHost: other\r\n\r\n"
            ),
            Some(0)
        );
        assert_eq!(
            chosen(&routes, &get("[2001:db8::1]:80", "/status")),
            Some(2)
        );
    }

    #[test]
    fn server_name_selects_a_route_by_host() {
        let exact = Some(HostPattern::Exact("a.example".to_owned()));
        let below = Some(HostPattern::Suffix(".example".to_owned()));
        let mut routes = vec![route(exact, None), route(below, None)];
        for (name, expected) in [
            (Some("a.example"), Some(0)),
            (Some("A.EXAMPLE"), Some(0)),
            (Some("b.example"), Some(1)),
            (Some("b.test"), None),
            (None, None),
        ] {
            assert_eq!(choose_by_sni(&routes, name), expected, "{name:?}");
        }
        routes.push(route(None, None));
        assert_eq!(choose_by_sni(&routes, Some("b.test")), Some(2));
        assert_eq!(choose_by_sni(&routes, None), Some(2));
    }

    #[test]
    fn methods_and_fields_are_matched() {
        let mut wanted = route(None, None);
        wanted.methods = vec!["GET".to_owned(), "HEAD".to_owned()];
        wanted.headers = vec![
            ("accept".to_owned(), Some("text/html".to_owned())),
            ("host".to_owned(), None),
        ];
        assert_eq!(
            chosen(std::slice::from_ref(&wanted), &get("a", "/")),
            Some(0)
        );
        wanted.headers[0].1 = Some("text".to_owned());
        assert_eq!(chosen(std::slice::from_ref(&wanted), &get("a", "/")), None);
        wanted.headers.clear();
        wanted.methods = vec!["POST".to_owned()];
        assert_eq!(chosen(&[wanted], &get("a", "/")), None);
    }

    #[test]
    fn query_cookies_and_source_are_matched() {
        let text = "GET /x?v=2&w HTTP/1.1\r\nHost: a\r\nCookie: a=1; beta=yes\r\n\r\n";
        let pair = |name: &str, value: Option<&str>| (name.to_owned(), value.map(str::to_owned));
        let fits = |change: &dyn Fn(&mut Route)| {
            let mut one = route(None, None);
            change(&mut one);
            chosen(std::slice::from_ref(&one), text).is_some()
        };
        assert!(fits(
            &|one| one.queries = vec![pair("v", Some("2")), pair("w", None)]
        ));
        assert!(!fits(&|one| one.queries = vec![pair("v", Some("1"))]));
        assert!(!fits(&|one| one.queries = vec![pair("x", None)]));
        assert!(fits(
            &|one| one.cookies = vec![pair("beta", Some("yes")), pair("a", None)]
        ));
        assert!(!fits(&|one| one.cookies = vec![pair("beta", Some("no"))]));
        let network = |address: &str| Network {
            address: address.parse().unwrap(),
            prefix: 24,
        };
        assert!(fits(
            &|one| one.sources = vec![network("10.0.0.0"), network("192.0.2.0")]
        ));
        assert!(!fits(&|one| one.sources = vec![network("10.0.0.0")]));
    }

    #[test]
    fn rewritten_path_keeps_the_query() {
        let path = |to: &str, pattern: Option<&str>, target: &str| {
            let route = route(None, pattern);
            let target = RequestPath::received(target.as_bytes());
            String::from_utf8(rewritten(to, &route, &target)).unwrap()
        };
        assert_eq!(
            path("/{rest}", Some("/api/*"), "/api/v1/x?y=/z"),
            "/v1/x?y=/z"
        );
        assert_eq!(path("/new{path}", None, "/a?b"), "/new/a?b");
        assert_eq!(path("/", Some("/*"), "/a"), "/");
        assert_eq!(path("/{rest}", Some("/only"), "/only?q"), "/?q");
        let mut by_regex = route(None, None);
        by_regex.path_regex = Some(PathRegex::new("^/u/([0-9]+)(/.*)?$").unwrap());
        let path = |target: &str| {
            let target = RequestPath::received(target.as_bytes());
            String::from_utf8(rewritten("/user{2}/{1}", &by_regex, &target)).unwrap()
        };
        assert_eq!(path("/u/7/x?q=/u/8"), "/user/x/7?q=/u/8");
        assert_eq!(path("/u/7"), "/user/7");
    }

    #[test]
    fn redirect_contains_host_and_path() {
        let text = get("a.example:8080", "/x?y=1");
        let mut fields = Vec::new();
        let request = head::request(text.as_bytes(), &HeadLimits::default(), &mut fields)
            .unwrap()
            .unwrap();
        let to = location(
            "https://{host}{path}#{x}{",
            text.as_bytes(),
            &request,
            &fields,
            b"",
        );
        assert_eq!(to, b"https://a.example/x?y=1#{x}{");
        let text = b"GET /x HTTP/1.0\r\n\r\n";
        let request = head::request(text, &HeadLimits::default(), &mut fields)
            .unwrap()
            .unwrap();
        let to = location(
            "https://{host}{path}",
            text,
            &request,
            &fields,
            b"192.0.2.1:80",
        );
        assert_eq!(to, b"https://192.0.2.1/x");
        for target in ["//evil.example/", "/\\evil.example/", "/\\//evil.example/"] {
            let text = get("a", target);
            let request = head::request(text.as_bytes(), &HeadLimits::default(), &mut fields);
            let request = request.unwrap().unwrap();
            let to = |to: &str| location(to, text.as_bytes(), &request, &fields, b"");
            assert_eq!(to("{path}"), b"/evil.example/", "must not name a host");
            assert_eq!(
                to("https://a{path}"),
                format!("https://a{target}").as_bytes()
            );
        }
    }

    proptest! {
        /// Compared with the definition: a star matches nothing, or one byte and the rest again.
        #[test]
        fn glob_matches_its_definition(pattern in "[ab*]{0,6}", text in "[ab]{0,8}") {
            fn slow(pattern: &[u8], text: &[u8]) -> bool {
                match pattern {
                    [] => text.is_empty(),
                    [b'*', rest @ ..] => slow(rest, text) || (!text.is_empty() && slow(pattern, &text[1..])),
                    [byte, rest @ ..] => text.first() == Some(byte) && slow(rest, &text[1..]),
                }
            }
            prop_assert_eq!(glob(pattern.as_bytes(), text.as_bytes()), slow(pattern.as_bytes(), text.as_bytes()));
        }
    }
}
