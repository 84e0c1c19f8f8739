//! Rules of a frontend that routes can say: where a request goes, is sent, or what it is answered.

use super::line::Line;
use crate::layer7::Action;

/// What a rule does, and under which condition; `Err` = why a route cannot.
pub(super) type Rule<'l> = Result<(Action, &'l [String]), String>;

/// Splits off `if …` or `unless …`.
pub(super) fn condition(words: &[String]) -> (&[String], &[String]) {
    let at = words
        .iter()
        .position(|word| word == "if" || word == "unless");
    words.split_at(at.unwrap_or(words.len()))
}

/// `http-request …`; `None` = nothing that a route could do.
pub(super) fn http_request<'l>(line: &'l Line) -> Option<Rule<'l>> {
    let (what, condition) = condition(line.arguments());
    let rest = what.get(1..).unwrap_or_default();
    Some(match what.first().map(String::as_str)? {
        "deny" | "tarpit" | "block" => match status(rest, "deny_status", 403) {
            Some(status) => Ok((answer(status, String::new()), condition)),
            None => Err("its status is none that an answer can have".to_owned()),
        },
        "redirect" => redirect(rest, condition),
        "return" => returned(rest, condition),
        _ => return None,
    })
}

/// `redirect scheme https …` and the like.
pub(super) fn redirect<'l>(words: &[String], condition: &'l [String]) -> Rule<'l> {
    let (Some(kind), Some(value)) = (words.first(), words.get(1)) else {
        return Err("haproxy wants a kind of redirection and where to".to_owned());
    };
    if value.contains('{') {
        return Err("a route's `redirect` takes braces for its own words".to_owned());
    }
    let to = match kind.as_str() {
        "scheme" => format!("{value}://{{host}}{{path}}"),
        "prefix" => format!("{}{{path}}", value.trim_end_matches('/')),
        "location" => value.clone(),
        other => return Err(format!("there is no redirection by {other}")),
    };
    // Its own words for what a request says, in ours.
    let to = to.replace("%[hdr(host)]", "{host}");
    let to = to.replace("%[req.hdr(host)]", "{host}");
    let to = to
        .replace("%[capture.req.uri]", "{path}")
        .replace("%[path]", "{path}");
    if to.contains('%') {
        return Err("a route's `redirect` knows {host} and {path} alone".to_owned());
    }
    let mut rest = words[2..].iter();
    let mut code = 302;
    while let Some(word) = rest.next() {
        match word.as_str() {
            "code" => code = rest.next().and_then(|code| code.parse().ok()).unwrap_or(0),
            other => return Err(format!("a route's `redirect` has no {other}")),
        }
    }
    if !matches!(code, 301 | 302 | 303 | 307 | 308) {
        return Err(format!("{code} is no status of a redirection"));
    }
    Ok((Action::Redirect { to, status: code }, condition))
}

/// `redirect` as a line of its own.
pub(super) fn redirect_line(line: &Line) -> Rule<'_> {
    let (what, condition) = condition(line.arguments());
    redirect(what, condition)
}

/// `use_backend NAME if …`.
pub(super) fn use_backend(line: &Line) -> Option<(&str, &[String])> {
    let (what, condition) = condition(line.arguments());
    match what {
        [name] if !name.contains('%') => Some((name.as_str(), condition)),
        _ => None,
    }
}

fn answer(status: u64, body: String) -> Action {
    Action::Answer { status, body }
}

fn status(words: &[String], name: &str, default: u64) -> Option<u64> {
    let at = words
        .iter()
        .position(|word| word == name || word == "status");
    match at {
        None => Some(default),
        Some(at) => words
            .get(at + 1)?
            .parse()
            .ok()
            .filter(|status| (200..600).contains(status)),
    }
}

/// `return status 200 content-type text/plain string "x"`.
fn returned<'l>(words: &[String], condition: &'l [String]) -> Rule<'l> {
    let status =
        status(words, "status", 200).ok_or("its status is none that an answer can have")?;
    let (mut body, mut typed) = (String::new(), false);
    let mut rest = words.iter();
    while let Some(word) = rest.next() {
        match word.as_str() {
            "status" => {
                rest.next();
            }
            "content-type" => {
                typed = true;
                if rest
                    .next()
                    .is_some_and(|kind| !kind.starts_with("text/plain"))
                {
                    return Err("a route answers in plain text".to_owned());
                }
            }
            "string" => body = rest.next().cloned().unwrap_or_default(),
            other => return Err(format!("a route's answer has no {other}")),
        }
    }
    if !body.is_empty() && !typed {
        return Err("haproxy wants the content-type of a text".to_owned());
    }
    Ok((answer(status, body), condition))
}
