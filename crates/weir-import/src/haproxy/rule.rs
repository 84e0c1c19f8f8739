//! Frontend rules that routes support: pools, redirects and fixed responses.

use super::line::Line;
use crate::layer7::Action;
use crate::layer7::has_variable;

/// A rule's action and condition; `Err` = the reason why routes do not support it.
pub(super) type ParsedRule<'l> = Result<(Action, &'l [String]), String>;

/// Splits off `if …` or `unless …`.
pub(super) fn condition(words: &[String]) -> (&[String], &[String]) {
    let at = words
        .iter()
        .position(|word| word == "if" || word == "unless");
    words.split_at(at.unwrap_or(words.len()))
}

/// Parses `http-request …`; `None` = not a rule for routes.
pub(super) fn http_request<'l>(line: &'l Line) -> Option<ParsedRule<'l>> {
    let (what, condition) = condition(line.arguments());
    let rest = what.get(1..).unwrap_or_default();
    Some(match what.first().map(String::as_str)? {
        "deny" | "tarpit" | "block" => match status(rest, "deny_status", 403) {
            Some(status) => Ok((response(status, String::new()), condition)),
            None => Err("not a valid response status".to_owned()),
        },
        "redirect" => redirect(rest, condition),
        "return" => returned(rest, condition),
        _ => return None,
    })
}

/// `redirect scheme https …` and the like.
pub(super) fn redirect<'l>(words: &[String], condition: &'l [String]) -> ParsedRule<'l> {
    let (Some(kind), Some(value)) = (words.first(), words.get(1)) else {
        return Err("haproxy requires a kind of redirect and a target".to_owned());
    };
    if value.contains('{') {
        return Err("braces in a route's `redirect` are placeholders".to_owned());
    }
    let to = match kind.as_str() {
        "scheme" => format!("{value}://{{host}}{{path}}"),
        "prefix" => format!("{}{{path}}", value.trim_end_matches('/')),
        "location" => value.clone(),
        other => return Err(format!("unknown kind of redirect: {other}")),
    };
    // Replaces haproxy's variables by Weir's placeholders.
    let to = to.replace("%[hdr(host)]", "{host}");
    let to = to.replace("%[req.hdr(host)]", "{host}");
    let to = to
        .replace("%[capture.req.uri]", "{path}")
        .replace("%[path]", "{path}");
    if to.contains('%') {
        return Err("a route's `redirect` only has {host} and {path}".to_owned());
    }
    let mut rest = words[2..].iter();
    let mut code = 302;
    while let Some(word) = rest.next() {
        match word.as_str() {
            "code" => code = rest.next().and_then(|code| code.parse().ok()).unwrap_or(0),
            other => return Err(format!("a route's `redirect` has no option {other}")),
        }
    }
    if !matches!(code, 301 | 302 | 303 | 307 | 308) {
        return Err(format!("{code} is not a redirect status"));
    }
    Ok((Action::Redirect { to, status: code }, condition))
}

/// `redirect` as a separate line.
pub(super) fn redirect_line(line: &Line) -> ParsedRule<'_> {
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

fn response(status: u64, body: String) -> Action {
    Action::Respond { status, body }
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
fn returned<'l>(words: &[String], condition: &'l [String]) -> ParsedRule<'l> {
    let status = status(words, "status", 200).ok_or("not a valid response status")?;
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
                    return Err("a route responds in plain text".to_owned());
                }
            }
            "string" => body = rest.next().cloned().unwrap_or_default(),
            other => return Err(format!("a route's response has no option {other}")),
        }
    }
    if has_variable(&body) {
        return Err("a name in braces would become a variable".to_owned());
    }
    if !body.is_empty() && !typed {
        return Err("haproxy requires the content-type of a text".to_owned());
    }
    Ok((response(status, body), condition))
}
