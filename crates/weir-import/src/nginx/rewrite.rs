//! `rewrite` of server blocks and locations, which becomes routes before those of the locations.

use super::Context;
use super::action::{is_whole_url, redirect_target, restart, restart_of_server};
use super::header::{changed_path, new_path};
use super::location::{BlockRoute, BlockRoutes};
use super::tree::Node;
use super::variable::Clients;
use crate::layer7::Action;
use crate::note::Notes;

/// Adds a route for each `rewrite` of the server block. nginx applies them in order before it selects a location; after
/// `last` or `break`, it skips the following ones. Returns whether one of them redirects every request.
pub(super) fn server_rewrites(
    context: &mut Context<'_>,
    server: &Node,
    scheme: &str,
    routes: &mut BlockRoutes,
    notes: &mut Notes,
) -> bool {
    let mut redirects_all = false;
    // A rule after one without a flag applies to the rewritten path.
    let first = server.inner().iter().take_while(|line| !continues(line));
    for line in first {
        let Some((regex, action)) = redirect(line, clients_of(scheme, routes)) else {
            continue;
        };
        context.used.insert(line.position);
        redirects_all |= is_whole_url(line);
        routes.all.push(BlockRoute {
            regex: Some(regex),
            rank: (0, 0),
            ..BlockRoute::catch_all(line.position, action)
        });
    }
    let lines = server.inner().iter();
    let lines: Vec<(&Node, Action)> = lines
        .filter(|line| line.keyword() == "rewrite")
        .filter_map(|line| Some((line, restart_of_server(line)?)))
        .collect();
    let returns = server.inner().iter().any(|line| line.keyword() == "return");
    let count = lines.len();
    for (at, (line, action)) in lines.into_iter().enumerate() {
        if returns || line.word(3).is_some() && at + 1 < count {
            line.reject(
                notes,
                "nginx does not apply the later rules of the server block to the new path, but Weir would",
            );
            continue;
        }
        context.used.insert(line.position);
        routes.rewrites = true;
        routes.all.push(BlockRoute {
            rank: (0, 0),
            ..BlockRoute::catch_all(line.position, action)
        });
    }
    redirects_all && !returns
}

/// Adds a route for each `rewrite … last`, `permanent` or `redirect` of a location, before the location's route and
/// with its conditions.
pub(super) fn location_rewrites(
    context: &mut Context<'_>,
    node: &Node,
    scheme: &str,
    templates: &[BlockRoute],
    routes: &mut BlockRoutes,
    notes: &mut Notes,
) {
    let mut is_ended = false;
    for line in node.inner() {
        is_ended |= line.keyword() == "return" || new_path(line).is_some() || continues(line);
        let is_possible = !is_ended && templates.iter().all(|template| template.regex.is_none());
        if let Some((regex, action)) =
            redirect(line, clients_of(scheme, routes)).filter(|_| is_possible)
        {
            context.used.insert(line.position);
            for template in templates {
                routes.all.push(BlockRoute {
                    position: line.position,
                    regex: Some(regex.clone()),
                    action: action.clone(),
                    ..template.clone()
                });
            }
            continue;
        }
        let Some(action) = restart(line, "first") else {
            continue;
        };
        if is_ended || routes.rewrites {
            line.reject(
                notes,
                "an earlier rule of the location, or a rule of the server block, would apply to its path",
            );
            continue;
        }
        context.used.insert(line.position);
        for template in templates {
            routes.all.push(BlockRoute {
                position: line.position,
                action: action.clone(),
                ..template.clone()
            });
        }
    }
}

/// Returns whether a `rewrite` changes the path and the rules after it apply to the new path.
fn continues(line: &Node) -> bool {
    changed_path(line, &[""]).is_some()
}

fn clients_of<'a>(scheme: &'a str, routes: &'a BlockRoutes) -> Clients<'a> {
    Clients {
        scheme,
        name: &routes.name,
        redirect: true,
    }
}

/// Converts `rewrite ^/old/(.*)$ /new/$1 permanent;` to the expression and the action of a route; `None` = it is not a
/// redirect, or a route cannot express it.
fn redirect(line: &Node, clients: Clients<'_>) -> Option<(String, Action)> {
    let words: Vec<&str> = line.words.iter().map(String::as_str).collect();
    let is_url = |to: &str| {
        ["http://", "https://", "$scheme"]
            .iter()
            .any(|it| to.starts_with(it))
    };
    let (regex, to, status) = match words[..] {
        ["rewrite", regex, to, "permanent"] => (regex, to, 301),
        ["rewrite", regex, to, "redirect"] => (regex, to, 302),
        ["rewrite", regex, to] if is_url(to) => (regex, to, 302),
        // nginx redirects to a URL with these flags too.
        ["rewrite", regex, to, "last" | "break"] if is_url(to) => (regex, to, 302),
        _ => return None,
    };
    if !to.starts_with('/') && !is_url(to) {
        return None;
    }
    // nginx adds the query of the request, unless the URL ends with `?`.
    let (to, query) = match to.strip_suffix('?') {
        Some(to) => (to, ""),
        None if to.contains('?') => (to, "&{query}"),
        None => (to, "?{query}"),
    };
    let has_path = to.contains("$request_uri") || to.contains("$uri");
    if to.matches('?').count() > 1 || has_path || to.contains("$args") {
        return None;
    }
    let to = super::group::numbered(to);
    let to = redirect_target(&to, clients).ok()?;
    Some((
        regex.to_owned(),
        Action::Redirect {
            to: format!("{to}{query}"),
            status,
        },
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::note::Position;

    fn converted(text: &str) -> Option<(String, String, u64)> {
        let line = Node {
            position: Position::FIRST,
            words: text.split(' ').map(str::to_owned).collect(),
            block: None,
        };
        let clients = Clients {
            scheme: "https",
            name: "a.example",
            redirect: true,
        };
        match redirect(&line, clients)? {
            (regex, Action::Redirect { to, status }) => Some((regex, to, status)),
            _ => None,
        }
    }

    #[test]
    fn redirects_have_groups_and_the_query() {
        let found = |text: &str| converted(text).map(|(_, to, status)| (to, status));
        assert_eq!(
            found("rewrite ^/old/(.*)$ /new/$1 permanent"),
            Some(("/new/{1}?{query}".to_owned(), 301))
        );
        assert_eq!(
            found("rewrite ^/a$ https://b.example/c? redirect"),
            Some(("https://b.example/c".to_owned(), 302))
        );
        assert_eq!(
            found("rewrite ^/a/(.+) $scheme://b.example/$1"),
            Some(("https://b.example/{1}?{query}".to_owned(), 302))
        );
        assert_eq!(
            found("rewrite ^/(.*) http://b.example/c last"),
            Some(("http://b.example/c?{query}".to_owned(), 302))
        );
        assert_eq!(
            found("rewrite ^/(.*) http://b.example/c?d=e$1 permanent"),
            Some(("http://b.example/c?d=e{1}&{query}".to_owned(), 301))
        );
    }

    #[test]
    fn other_rewrites_are_not_redirects() {
        for text in [
            "rewrite ^/a /b last",
            "rewrite ^/a /b",
            "rewrite ^/a /b?x=1?y permanent",
            "rewrite ^/a https://b.example$request_uri permanent",
            "rewrite ^/a $geoip_country permanent",
        ] {
            assert_eq!(converted(text), None, "{text}");
        }
    }
}
