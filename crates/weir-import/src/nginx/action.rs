//! `return`, `rewrite` and `proxy_pass`: what a block does with a request.

use super::Context;
use super::header::new_path;
use super::location::Ways;
use super::target::{pool, url};
use super::tree::Node;
use crate::document::Entry;
use crate::layer7::Action;
use crate::note::{Notes, Place};

/// What a block does with a request: the first of `return` and `rewrite`, and only without one what `proxy_pass` says.
pub(super) fn action(
    context: &mut Context<'_>,
    node: &Node,
    scheme: &str,
    path: &str,
    levels: &[&[Node]],
    ways: &mut Ways,
    notes: &mut Notes,
) -> Option<(Action, Place)> {
    let mut decided = None;
    let leads = |line: &&Node| match line.keyword() {
        "rewrite" => new_path(line).is_none(),
        keyword => matches!(keyword, "return" | "proxy_pass"),
    };
    let mut lines: Vec<&Node> = node.inner().iter().filter(leads).collect();
    lines.sort_by_key(|line| line.keyword() == "proxy_pass");
    for line in lines {
        let found = match line.keyword() {
            _ if decided.is_some() => Err("nginx does not come so far".to_owned()),
            "return" => returned(line, scheme),
            "rewrite" => rewritten(line, scheme),
            _ => proxied(context, line, path, levels, ways, notes),
        };
        match found {
            Ok(action) => {
                context.used.insert(line.place);
                decided = Some((action, line.place));
            }
            Err(why) => line.refuse(notes, &why),
        }
    }
    decided
}

/// `return 301 https://$host$request_uri;`
fn returned(line: &Node, scheme: &str) -> Result<Action, String> {
    let first = line
        .word(1)
        .ok_or("it says neither a status nor where to")?;
    let text = line.word(2).unwrap_or("");
    let Ok(status) = first.parse::<u64>() else {
        let to = place_of(first, scheme)?;
        return Ok(Action::Redirect { to, status: 302 });
    };
    if matches!(status, 301 | 302 | 303 | 307 | 308) {
        let to = place_of(text, scheme)?;
        return Ok(Action::Redirect { to, status });
    }
    if !(200..600).contains(&status) {
        return Err(format!("{status} is no status of an answer"));
    }
    if text.contains('$') {
        return Err("an answer's text is always the same".to_owned());
    }
    Ok(Action::Answer {
        status,
        body: text.to_owned(),
    })
}

/// `rewrite ^ https://$host$request_uri? permanent;`, the old way to say it.
fn rewritten(line: &Node, scheme: &str) -> Result<Action, String> {
    let (Some(pattern), Some(to)) = (line.word(1), line.word(2)) else {
        return Err("nginx wants an expression and what to put in its place".to_owned());
    };
    let all = matches!(
        pattern,
        "^" | "^/" | "^(.*)$" | "^(.*)" | "^/(.*)$" | "^/(.*)" | ".*"
    );
    let status = match line.word(3) {
        Some("permanent") => 301,
        _ => 302,
    };
    let away = to.starts_with("http://") || to.starts_with("https://") || to.starts_with("$scheme");
    if line.word(3) == Some("break") {
        return Err("its new path is none that a route's `rewrite` has words for".to_owned());
    }
    if !all || !away {
        return Err("routes rewrite a path at the end, by `break`, and look no further".to_owned());
    }
    let to = to.trim_end_matches('?');
    // What was caught is the path, with or without its first slash.
    let to = if pattern.starts_with("^/(") {
        to.replace("/$1", "$request_uri")
    } else {
        to.replace("$1", "$request_uri")
    };
    Ok(Action::Redirect {
        to: place_of(&to, scheme)?,
        status,
    })
}

/// A URL in nginx's words, in ours.
fn place_of(text: &str, scheme: &str) -> Result<String, String> {
    if text.is_empty() {
        return Err("it says not where to".to_owned());
    }
    if text.replace("${", "").contains('{') {
        return Err("a route's `redirect` takes braces for its own words".to_owned());
    }
    let mut to = text.to_owned();
    for (theirs, ours) in [
        ("${scheme}", scheme),
        ("$scheme", scheme),
        ("$http_host", "{host}"),
        ("${host}", "{host}"),
        ("$host", "{host}"),
        ("${request_uri}", "{path}"),
        ("$request_uri", "{path}"),
    ] {
        to = to.replace(theirs, ours);
    }
    match to.contains('$') {
        true => Err("a route's `redirect` knows {host} and {path} alone".to_owned()),
        false => Ok(to),
    }
}

fn proxied(
    context: &mut Context<'_>,
    line: &Node,
    path: &str,
    levels: &[&[Node]],
    ways: &mut Ways,
    notes: &mut Notes,
) -> Result<Action, String> {
    let to = url(line.word(1).ok_or("it names no URL")?)?;
    match to.path.as_deref() {
        None => ways.passed.received = true,
        Some(to) if to == path => ways.passed.normalized = Some(line.place),
        Some(_) => {}
    }
    // The location's path is replaced by the URL's.
    let asked = match to.path.as_deref().filter(|to| *to != path) {
        None => None,
        Some(to) if path != "/" => Some(format!("{to}{{rest}}")),
        Some(to) => match to.strip_suffix('/') {
            Some(to) => Some(format!("{to}{{path}}")),
            None => return Err("a route's `rewrite` has no word for that path".to_owned()),
        },
    };
    let tls = if to.tls {
        server_tls(context, levels)
    } else {
        Vec::new()
    };
    let led = pool(context, &to, tls, line, notes)?;
    match (led.idle, ways.idle) {
        (Some((count, place)), Some((other, _))) if count != other => notes.say(
            place,
            "not carried over: `limits.idle_servers` is a service's, and has another upstream's number",
        ),
        (Some(idle), _) => ways.idle = Some(idle),
        (None, _) => {}
    }
    Ok(match asked {
        Some(path) => Action::Rewritten {
            pool: led.pool,
            path,
        },
        None => Action::Pool(led.pool),
    })
}

/// Keys of `tls` of a pool: nginx verifies only if it is told to.
fn server_tls(context: &mut Context<'_>, levels: &[&[Node]]) -> Vec<Entry> {
    let mut find = |keyword: &str| {
        let found = levels
            .iter()
            .find_map(|nodes| nodes.iter().rev().find(|node| node.keyword() == keyword));
        if let Some(node) = found {
            context.used.insert(node.place);
        }
        found.and_then(|node| Some((node.word(1)?.to_owned(), node.place)))
    };
    let mut tls = Vec::new();
    match find("proxy_ssl_verify") {
        Some((on, place)) if on == "on" => tls.push(Entry::new("verify", true, place)),
        Some((_, place)) => tls.push(Entry::new("verify", false, place)),
        None => tls.push(Entry::implied("verify", false)),
    }
    if let Some((file, place)) = find("proxy_ssl_trusted_certificate") {
        tls.push(Entry::new("ca", file, place));
    }
    if let Some((name, place)) = find("proxy_ssl_name").filter(|(name, _)| !name.contains('$')) {
        tls.push(Entry::new("server_name", name, place));
    }
    tls
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_said_in_our_words() {
        let said = |text: &str| place_of(text, "http");
        assert_eq!(
            said("https://$host$request_uri"),
            Ok("https://{host}{path}".to_owned())
        );
        assert_eq!(said("$scheme://a"), Ok("http://a".to_owned()));
        assert!(said("https://$server_name/").is_err());
    }
}
