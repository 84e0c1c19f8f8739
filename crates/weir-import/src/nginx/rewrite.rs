//! Converts `rewrite` of server blocks and locations to routes that precede those of the locations.

use super::Context;
use super::action::{is_whole_url, redirect_target, restart_action, restart_of_server};
use super::header::{changed_path, new_path};
use super::location::{BlockRoute, BlockRoutes};
use super::tree::Node;
use super::variable::ServerVariables;
use crate::layer7::Action;
use crate::note::Notes;

/// Adds a route for each `rewrite` of the server block that a route can express. nginx applies them in order before it
/// selects a location; after `last` or `break`, it skips the remaining rewrites. Returns whether one of the rewrites
/// redirects every request.
pub(super) fn server_rewrites(
    context: &mut Context<'_>,
    server: &Node,
    scheme: &str,
    routes: &mut BlockRoutes,
    notes: &mut Notes,
) -> bool {
    let mut redirects_all = false;
    // A rule after a `rewrite` without a flag applies to the rewritten path.
    let before_continuation = server
        .inner()
        .iter()
        .take_while(|line| !continues_with_new_path(line));
    for line in before_continuation {
        let Some((regex, action)) = parse_redirect(line, redirect_variables(scheme, routes)) else {
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
    let has_return = server.inner().iter().any(|line| line.keyword() == "return");
    let count = lines.len();
    for (index, (line, action)) in lines.into_iter().enumerate() {
        if has_return || line.word(3).is_some() && index + 1 < count {
            line.reject(
                notes,
                "nginx does not apply the later rules of the server block to the new path, but Weir would",
            );
            continue;
        }
        context.used.insert(line.position);
        routes.rewrites_paths = true;
        routes.all.push(BlockRoute {
            rank: (0, 0),
            ..BlockRoute::catch_all(line.position, action)
        });
    }
    redirects_all && !has_return
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
    let mut has_ended = false;
    for line in node.inner() {
        has_ended |=
            line.keyword() == "return" || new_path(line).is_some() || continues_with_new_path(line);
        let can_match = !has_ended && templates.iter().all(|template| template.regex.is_none());
        if let Some((regex, action)) =
            parse_redirect(line, redirect_variables(scheme, routes)).filter(|_| can_match)
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
        let Some(action) = restart_action(line, "first") else {
            continue;
        };
        if has_ended || routes.rewrites_paths {
            line.reject(
                notes,
                "an earlier rule of the location, or a rule of the server block, would apply to the new path",
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

/// Returns whether a `rewrite` changes the path and later rules apply to the new path.
fn continues_with_new_path(line: &Node) -> bool {
    changed_path(line, &[""]).is_some()
}

fn redirect_variables<'a>(scheme: &'a str, routes: &'a BlockRoutes) -> ServerVariables<'a> {
    ServerVariables::new(scheme, &routes.name).for_redirect(true)
}

/// Converts `rewrite ^/old/(.*)$ /new/$1 permanent;` to the regular expression and the action of a route. Returns
/// `None` if the line is not a redirect, or if a route cannot express the redirect.
fn parse_redirect(line: &Node, variables: ServerVariables<'_>) -> Option<(String, Action)> {
    let words: Vec<&str> = line.words.iter().map(String::as_str).collect();
    let is_url = |target: &str| {
        ["http://", "https://", "$scheme"]
            .iter()
            .any(|it| target.starts_with(it))
    };
    let (regex, target, status) = match words[..] {
        ["rewrite", regex, target, "permanent"] => (regex, target, 301),
        ["rewrite", regex, target, "redirect"] => (regex, target, 302),
        ["rewrite", regex, target] if is_url(target) => (regex, target, 302),
        // If the new path is a URL, nginx redirects even with these flags.
        ["rewrite", regex, target, "last" | "break"] if is_url(target) => (regex, target, 302),
        _ => return None,
    };
    if !target.starts_with('/') && !is_url(target) {
        return None;
    }
    // nginx adds the query of the request, unless the URL ends with `?`.
    let (target, query) = match target.strip_suffix('?') {
        Some(target) => (target, ""),
        None if target.contains('?') => (target, "&{query}"),
        None => (target, "?{query}"),
    };
    let has_path = target.contains("$request_uri") || target.contains("$uri");
    if target.matches('?').count() > 1 || has_path || target.contains("$args") {
        return None;
    }
    let target = super::group::replace_numbered_groups(target);
    let target = redirect_target(&target, variables).ok()?;
    Some((
        regex.to_owned(),
        Action::Redirect {
            to: format!("{target}{query}"),
            status,
        },
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::note::Position;

    fn converted(text: &str) -> Option<(String, String, u64)> {
        let words = text.split(' ').map(str::to_owned).collect();
        let line = Node::new(Position::FIRST, words, None);
        let variables = ServerVariables::new("https", "a.example").for_redirect(true);
        match parse_redirect(&line, variables)? {
            (regex, Action::Redirect { to, status }) => Some((regex, to, status)),
            _ => None,
        }
    }

    #[test]
    fn redirects_keep_groups_and_query() {
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
