//! Finds routes that no request can reach, because an earlier route matches all of their requests.
//!
//! A route covers only routes with the same host, the same path or prefix, and the same regular expression. An index
//! of these avoids comparing all pairs of routes.

use std::collections::HashMap;

use weir_model::HostPattern;

use crate::code::Code;
use crate::diagnostic::Diagnostic;
use crate::lower::LoweredRoute;
use crate::view::Sink;

/// The routes of a service that precede a route.
#[derive(Default)]
pub(super) struct EarlierRoutes<'a> {
    count: usize,
    by_host: HashMap<&'a str, RouteIndex<'a>>,
    others: RouteIndex<'a>,
}

impl<'a> EarlierRoutes<'a> {
    /// Returns the first earlier route that matches every request that `route` matches.
    fn first_covering(&self, route: &LoweredRoute) -> Option<&'a LoweredRoute> {
        let routes_of_host = only_host(route).and_then(|host| self.by_host.get(host));
        let indices = routes_of_host.into_iter().chain([&self.others]);
        let found = indices.filter_map(|index| index.first_covering(route));
        let found = found.min_by_key(|(number, _)| *number);
        found.map(|(_, earlier)| earlier)
    }

    /// Adds a route, and reports it if no request can reach it.
    pub(super) fn add(&mut self, sink: &mut Sink<'_>, route: &'a LoweredRoute) {
        if !route.complete {
            return;
        }
        if let Some(earlier) = self.first_covering(route) {
            sink.push(
                Diagnostic::new(
                    Code::UnreachableRoute,
                    &route.location,
                    "no request can reach this route",
                )
                .related(
                    &earlier.location,
                    "this route matches the same requests first",
                )
                .fix("remove it, or move it up"),
            );
        }
        let index = match only_host(route) {
            Some(host) => self.by_host.entry(host).or_default(),
            None => &mut self.others,
        };
        index.add(self.count, route);
        self.count += 1;
    }
}

/// Returns the host of a route that has exactly one host, without a pattern.
fn only_host(route: &LoweredRoute) -> Option<&str> {
    let when = &route.route.when;
    match (when.hosts.as_slice(), &when.host_set) {
        ([HostPattern::Exact(host)], None) => Some(host),
        _ => None,
    }
}

/// Routes, with their numbers in file order.
type Numbered<'a> = Vec<(usize, &'a LoweredRoute)>;

/// Routes by their paths and regular expressions. Each route has at least one entry.
#[derive(Default)]
struct RouteIndex<'a> {
    /// By each path that is not in `by_prefix`, as written.
    by_path: HashMap<&'a str, Numbered<'a>>,
    /// By each path that has a single `*`, at its end; the key does not include the `*`.
    by_prefix: HashMap<&'a str, Numbered<'a>>,
    /// By each regular expression of the routes without paths.
    by_regex: HashMap<&'a str, Numbered<'a>>,
    /// Routes with neither paths nor regular expressions.
    others: Numbered<'a>,
}

impl<'a> RouteIndex<'a> {
    fn add(&mut self, number: usize, route: &'a LoweredRoute) {
        let when = &route.route.when;
        if when.paths.is_empty() && when.path_regexes.is_empty() {
            return self.others.push((number, route));
        }
        for path in &when.paths {
            let prefix = path.strip_suffix('*').filter(|it| !it.contains('*'));
            let list = match prefix {
                Some(prefix) => self.by_prefix.entry(prefix).or_default(),
                None => self.by_path.entry(path).or_default(),
            };
            list.push((number, route));
        }
        if when.paths.is_empty() {
            for regex in &when.path_regexes {
                let list = self.by_regex.entry(regex.as_str()).or_default();
                list.push((number, route));
            }
        }
    }

    /// Returns the first route that matches every request that `route` matches, and its number.
    fn first_covering(&self, route: &LoweredRoute) -> Option<(usize, &'a LoweredRoute)> {
        let when = &route.route.when;
        let mut lists: Vec<&Numbered<'a>> = vec![&self.others];
        // A route with paths must cover all paths of the other route, including the first one.
        if let Some(path) = when.paths.first() {
            lists.extend(self.by_path.get(path.as_str()));
            let ends = path.char_indices().map(|(end, _)| end).chain([path.len()]);
            lists.extend(ends.filter_map(|end| self.by_prefix.get(&path[..end])));
        }
        if let Some(regex) = when.path_regexes.first() {
            lists.extend(self.by_regex.get(regex.as_str()));
        }
        let found = lists.into_iter().filter_map(|list| {
            let mut list = list.iter();
            list.find(|(_, earlier)| earlier.route.covers(&route.route))
        });
        found.min_by_key(|(number, _)| *number).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the numbers of the unreachable routes of a service; `routes` are the conditions of its routes.
    fn unreachable(routes: &[&str]) -> Vec<usize> {
        let mut text = String::from(
            "[pool.a]\nservers = [\"10.0.0.5:80\"]\n[service.web]\nlisten = [\"192.0.2.1:80\"]\nforward = \
             \"proxy\"\nprotocol = \"http\"\npool = \"a\"\n",
        );
        let mut lines = Vec::new();
        for conditions in routes {
            text.push_str("[[route]]\n");
            lines.push(text.lines().count() as u64);
            text.push_str(&format!("service = \"web\"\nstatus = 403\n{conditions}\n"));
        }
        let parsed = crate::parse(&text, &crate::Host::default()).expect("valid");
        let findings = parsed.findings.iter();
        let found = findings.filter(|finding| finding.code == Code::UnreachableRoute);
        let found = found.flat_map(|it| {
            let further = it.further.iter().map(|occurrence| occurrence.span.start);
            std::iter::once(it.span.start).chain(further)
        });
        let number = |offset: usize| {
            let line = text[..offset].lines().count() as u64;
            lines
                .iter()
                .rposition(|first| *first <= line.max(1))
                .unwrap_or_default()
        };
        let mut numbers: Vec<usize> = found.map(number).collect();
        numbers.sort_unstable();
        numbers
    }

    #[test]
    fn routes_covered_by_earlier_route_are_found() {
        for (routes, expected) in [
            (
                vec!["path = \"/a*\"", "path = \"/ab*\"", "path = \"/b*\""],
                vec![1],
            ),
            (
                vec!["path = \"/a*\"", "path = \"/a\"", "path = \"/a*\""],
                vec![1, 2],
            ),
            (
                vec!["path = [\"/x\", \"/a*\"]", "path = [\"/a1\", \"/a2\"]"],
                vec![1],
            ),
            (vec!["path = \"/a*\"", "path = [\"/a1\", \"/b\"]"], vec![]),
            (
                vec![
                    "path = \"/*.png\"",
                    "path = \"/*.png\"",
                    "path = \"/x.png\"",
                ],
                vec![1],
            ),
            (
                vec![
                    "path_regex = \"^/a\"",
                    "path_regex = \"^/a\"",
                    "path = \"/a\"",
                ],
                vec![1],
            ),
            (
                vec![
                    "host = \"a.example\"\npath = \"/a*\"",
                    "path = \"/a\"",
                    "host = \"a.example\"\npath = \"/ab\"",
                ],
                vec![2],
            ),
            (
                vec!["method = \"GET\"", "method = \"GET\"\npath = \"/a\""],
                vec![1],
            ),
        ] {
            assert_eq!(unreachable(&routes), expected, "{routes:?}");
        }
    }

    #[test]
    fn first_covering_route_is_reported() {
        for (routes, expected) in [
            // The first route has no host, the second one has the same host as the third one.
            (
                [
                    "path = \"/a*\"",
                    "host = \"a.example\"\nmethod = \"GET\"\npath = \"/ab*\"",
                    "host = \"a.example\"\nmethod = \"GET\"\npath = \"/ab\"",
                ],
                0,
            ),
            (
                [
                    "path = \"/c\"",
                    "host = \"a.example\"\npath = \"/ab*\"",
                    "host = \"a.example\"\npath = \"/ab\"",
                ],
                1,
            ),
        ] {
            let mut text = String::from(
                "[pool.a]\nservers = [\"10.0.0.5:80\"]\n[service.web]\nlisten = [\"192.0.2.1:80\"]\nforward = \
                 \"proxy\"\nprotocol = \"http\"\npool = \"a\"\n",
            );
            let mut starts = Vec::new();
            for conditions in routes {
                text.push_str("[[route]]\n");
                starts.push(text.len());
                text.push_str(&format!("service = \"web\"\nstatus = 403\n{conditions}\n"));
            }
            let parsed = crate::parse(&text, &crate::Host::default()).expect("valid");
            let findings = parsed
                .findings
                .iter()
                .filter(|it| it.code == Code::UnreachableRoute);
            // Findings with the same earlier route are merged.
            let findings = findings.filter(|it| it.related[0].span.start == starts[expected]);
            let further =
                |it: &Diagnostic| it.further.iter().any(|other| other.span.start == starts[2]);
            let mut findings = findings.filter(|it| it.span.start == starts[2] || further(it));
            assert!(findings.next().is_some(), "{routes:?}");
        }
    }
}
