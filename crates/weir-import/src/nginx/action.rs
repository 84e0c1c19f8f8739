//! Converts `return`, `rewrite` and `proxy_pass` to the action of a block.

use super::Context;
use super::header::{changed_path, new_path};
use super::location::BlockRoutes;
use super::target::{find_or_write_pool, parse_url, server_host, server_tls};
use super::tree::Node;
use super::variable::{GROUP_PREFIX, ServerVariables, replace_variables};
use crate::layer7::Action;
use crate::note::{Notes, Position};

/// Returns the action of a block and its position: the first `return` or `rewrite`, otherwise `proxy_pass`.
pub(super) fn action(
    context: &mut Context<'_>,
    node: &Node,
    scheme: &str,
    path: &str,
    levels: &[&[Node]],
    routes: &mut BlockRoutes,
    notes: &mut Notes,
) -> Option<(Action, Position)> {
    let mut selected = None;
    let name = routes.name.clone();
    let variables = ServerVariables::new(scheme, &name).for_redirect(true);
    // Other `rewrite` directives become separate routes.
    let used = &context.used;
    let is_separate_route = |line: &Node| !is_whole_url(line) && used.contains(&line.position);
    let is_action = |line: &&Node| match (line.keyword(), node.keyword()) {
        ("rewrite", "if") => new_path(line).is_none(),
        ("rewrite", "server") => restart_of_server(line).is_none() && !is_separate_route(line),
        ("rewrite", _) => new_path(line).is_none() && !is_restart(line) && !is_separate_route(line),
        (keyword, _) => matches!(keyword, "return" | "proxy_pass"),
    };
    let mut lines: Vec<&Node> = node.inner().iter().filter(is_action).collect();
    lines.sort_by_key(|line| line.keyword() == "proxy_pass");
    for line in lines {
        let result = match line.keyword() {
            _ if selected.is_some() => Err("an earlier directive determines the action".to_owned()),
            "return" => convert_return(line, variables),
            "rewrite" if node.keyword() == "if" && is_restart(line) => {
                restart_of_if(node, line, levels, routes)
            }
            "rewrite" => convert_rewrite(line, variables),
            _ => convert_proxy_pass(context, line, scheme, path, levels, routes, notes),
        };
        match result {
            Ok(action) => {
                context.used.insert(line.position);
                selected = Some((action, line.position));
            }
            Err(reason) => line.reject(notes, &reason),
        }
    }
    selected
}

/// Converts `return 301 https://$host$request_uri;`.
fn convert_return(line: &Node, variables: ServerVariables<'_>) -> Result<Action, String> {
    let first = line.word(1).ok_or("it has neither a status nor a target")?;
    let text = line.word(2).unwrap_or("");
    let Ok(status) = first.parse::<u64>() else {
        let target = redirect_target(first, variables)?;
        return Ok(Action::Redirect {
            to: target,
            status: 302,
        });
    };
    if matches!(status, 301 | 302 | 303 | 307 | 308) {
        let target = redirect_target(text, variables)?;
        return Ok(Action::Redirect { to: target, status });
    }
    if status == 444 {
        return Ok(Action::Close);
    }
    if !(200..600).contains(&status) {
        return Err(format!("invalid response status {status}"));
    }
    let variables = variables.for_redirect(false);
    let body = replace_variables(text, variables)
        .ok_or("the text contains an unsupported variable or a name in braces")?;
    Ok(Action::Respond { status, body })
}

/// Converts `rewrite ^ https://$host$request_uri? permanent;`, the old form of a redirect.
fn convert_rewrite(line: &Node, variables: ServerVariables<'_>) -> Result<Action, String> {
    let (Some(pattern), Some(target)) = (line.word(1), line.word(2)) else {
        return Err("nginx requires a regular expression and a replacement".to_owned());
    };
    let status = match line.word(3) {
        Some("permanent") => 301,
        _ => 302,
    };
    if line.word(3) == Some("break") {
        return Err("a route's `rewrite` cannot express the new path".to_owned());
    }
    if !is_whole_url(line) {
        return Err("a route rewrites a path only as the last step, like `break`".to_owned());
    }
    let target = target.trim_end_matches('?');
    // The captured group is the path, with or without its leading slash.
    let target = if pattern.starts_with("^/(") {
        target.replace("/$1", "$request_uri")
    } else {
        target.replace("$1", "$request_uri")
    };
    Ok(Action::Redirect {
        to: redirect_target(&target, variables)?,
        status,
    })
}

/// Returns whether a `rewrite` matches every path and its replacement is a URL.
pub(super) fn is_whole_url(line: &Node) -> bool {
    let matches_all_paths = matches!(
        line.word(1),
        Some("^" | "^/" | "^(.*)$" | "^(.*)" | "^/(.*)$" | "^/(.*)" | ".*")
    );
    let url_prefixes = ["http://", "https://", "$scheme"];
    matches_all_paths
        && line
            .word(2)
            .is_some_and(|to| url_prefixes.iter().any(|it| to.starts_with(it)))
}

/// Returns whether a `rewrite` makes nginx select another location.
fn is_restart(line: &Node) -> bool {
    restart_action(line, "first").is_some()
}

/// Converts `rewrite ^/a/(.*)$ /b/$1 last;`.
pub(super) fn restart_action(line: &Node, start: &'static str) -> Option<Action> {
    let (regex, to) = changed_path(line, &["last"])?;
    Some(Action::Restart { regex, to, start })
}

/// Converts a `rewrite` of a server block, which nginx applies before it selects a location.
pub(super) fn restart_of_server(line: &Node) -> Option<Action> {
    let (regex, to) = changed_path(line, &["last", "break", ""])?;
    Some(Action::Restart {
        regex,
        to,
        start: "next",
    })
}

/// Converts a `rewrite … last` of an `if`. `levels` has two elements if the `if` is in the server block, and more if it
/// is in a location.
fn restart_of_if(
    block: &Node,
    line: &Node,
    levels: &[&[Node]],
    routes: &mut BlockRoutes,
) -> Result<Action, String> {
    let reason = "in Weir, rules of the server block would also apply to the new path";
    if levels.len() > 2 {
        let action = restart_action(line, "first").filter(|_| !routes.rewrites_paths);
        return action.ok_or_else(|| reason.to_owned());
    }
    let server = levels.first().copied().unwrap_or_default();
    let mut later_directives = server
        .iter()
        .skip_while(|it| it.position != block.position)
        .skip(1);
    let is_rule = |it: &Node| matches!(it.keyword(), "if" | "rewrite" | "return");
    let action = restart_action(line, "next").filter(|_| !later_directives.any(is_rule));
    routes.rewrites_paths |= action.is_some();
    action.ok_or_else(|| reason.to_owned())
}

/// Converts a URL with nginx's variables.
pub(super) fn redirect_target(
    text: &str,
    variables: ServerVariables<'_>,
) -> Result<String, String> {
    if text.is_empty() {
        return Err("the target is missing".to_owned());
    }
    // `{path}` includes the query, unless the text also contains `{query}`; then `{path}` is the normalized path.
    let text = text.replace("$uri$is_args$args", "$request_uri");
    // nginx adds the host and the port of the request to a path, and clients do the same for a relative reference (RFC
    // 9110 section 10.2.2).
    replace_variables(&text, variables)
        .ok_or("the target contains an unsupported variable or a name in braces".to_owned())
}

/// Splits a URL whose path contains capture groups of the location's regular expression. nginx sends such a path
/// unchanged, with the query only if the URL ends with `$is_args$args`. Returns `None` if the URL contains no group.
fn computed_path<'t>(
    text: &'t str,
    variables: ServerVariables<'_>,
) -> Result<Option<(&'t str, String)>, String> {
    if !text.contains(GROUP_PREFIX) {
        return Ok(None);
    }
    let reason = "the target is computed, but a route's pool is fixed";
    let host = text.find("://").map(|start| start + 3).ok_or(reason)?;
    let path = text[host..].find('/').ok_or(reason)? + host;
    if text[..path].contains('$') {
        return Err(reason.to_owned());
    }
    let (path_text, has_query) = match text[path..].strip_suffix("$is_args$args") {
        Some(path_text) => (path_text, true),
        None => (&text[path..], false),
    };
    if path_text.contains('?') {
        return Err("Weir adds the query of the request to that of the new path".to_owned());
    }
    let mut new_path = replace_variables(path_text, variables)
        .ok_or("the path contains an unsupported variable or a name in braces")?;
    if !has_query {
        new_path.push('?');
    }
    Ok(Some((&text[..path], new_path)))
}

fn convert_proxy_pass(
    context: &mut Context<'_>,
    line: &Node,
    scheme: &str,
    path: &str,
    levels: &[&[Node]],
    routes: &mut BlockRoutes,
    notes: &mut Notes,
) -> Result<Action, String> {
    if let Some(split) = context.splits.for_target(line) {
        return split.action(context, line, levels, notes);
    }
    let text = line.word(1).ok_or("the URL is missing")?;
    let variables = ServerVariables::new(scheme, &routes.name);
    let computed = computed_path(text, variables)?;
    let url = parse_url(computed.as_ref().map_or(text, |(text, _)| text))?;
    match url.path.as_deref() {
        None if computed.is_some() => {}
        None => routes.path_use.sends_received_path = true,
        Some(url_path) if url_path == path && path == "/" => {
            routes.path_use.sends_normalized_path = Some(line.position);
        }
        Some(_) => {}
    }
    // The path of the URL replaces the path of the location.
    let is_whole = |url_path: &&str| *url_path == path && path == "/";
    let rewritten_path = match url.path.as_deref().filter(|url_path| !is_whole(url_path)) {
        None => None,
        Some(url_path) if path != "/" => Some(format!("{url_path}{{rest}}")),
        Some(url_path) => match url_path.strip_suffix('/') {
            Some(prefix) => Some(format!("{prefix}{{path}}")),
            None => return Err("a route's `rewrite` cannot express the new path".to_owned()),
        },
    };
    let tls = if url.tls {
        server_tls(context, levels)
    } else {
        Vec::new()
    };
    let host = server_host(context, levels, &url, line.position);
    let pool_ref = find_or_write_pool(context, &url, (tls, host), line, notes)?;
    match (pool_ref.idle_limit, routes.idle_limit) {
        (Some((count, position)), Some((other, _))) if count != other => notes.add(
            position,
            "not imported: `limits.idle_servers` is set per service, and another upstream of the service \
             has a different number",
        ),
        (Some(idle_limit), _) => routes.idle_limit = Some(idle_limit),
        (None, _) => {}
    }
    Ok(match computed.map(|(_, path)| path).or(rewritten_path) {
        Some(path) => Action::PoolWithPath {
            pool: pool_ref.pool,
            path,
        },
        None => Action::Pool(pool_ref.pool),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn redirect_targets_are_translated() {
        let variables = ServerVariables::new("http", "www.example").for_redirect(true);
        let target = |text: &str| redirect_target(text, variables);
        assert_eq!(
            target("https://$host$request_uri"),
            Ok("https://{host}{path}".to_owned())
        );
        assert_eq!(target("$scheme://a"), Ok("http://a".to_owned()));
        assert_eq!(
            target("/a/$uri"),
            Ok("/a/{path}".to_owned()),
            "clients resolve a relative reference"
        );
        assert_eq!(
            target("https://$server_name/"),
            Ok("https://www.example/".to_owned())
        );
        assert!(target("https://$geoip_country/").is_err());
    }
}
