//! `http-request` and `http-response` rules that change headers: what routes do to all of their requests.

use super::Context;
use super::acl::{Acls, Meaning};
use super::line::Line;
use super::rule::condition;
use super::section::Proxy;
use crate::edit::{Edits, beginning_with_slash};
use crate::layer7::{Action, Condition};
use crate::note::{Notes, Position};

/// A route of a frontend, with its source line.
pub(super) type FrontendRoute = (Position, Condition, Action);

/// Returns the header changes of a proxy's rules for TLS clients or plain ones. `forwarded` = client addresses are
/// sent to servers anyway; `frontend_routes` are the proxy's routes.
pub(super) fn edits(
    context: &mut Context<'_>,
    proxy: &Proxy,
    (acls, frontend_routes): (&Acls, &[FrontendRoute]),
    (tls, forwarded): (bool, bool),
    notes: &mut Notes,
) -> Edits {
    let mut edits = Edits::default();
    for line in proxy.lines.iter().filter(|line| is_edit(line)) {
        let (what, words) = condition(line.arguments());
        match acls.condition(words, tls) {
            Meaning::Always if frontend_routes.iter().any(|route| is_affected_by(route, line)) => line.reject(
                notes,
                "haproxy's rules match the changed request, and routes match the request as received",
            ),
            Meaning::Always => match edit(line, what, (tls, forwarded), &mut edits) {
                Ok(()) => context.mark_used(line),
                Err(why) => line.reject(notes, why),
            },
            // It may match in the frontend's other service.
            Meaning::Never => {}
            Meaning::AnyOf(_) => line.reject(
                notes,
                "this change has a condition: write it in the routes it applies to",
            ),
            Meaning::Unsupported(why) => line.reject(notes, &why),
        }
        for position in acls.lines_of(words) {
            context.used.insert(position);
        }
    }
    edits
}

/// Returns whether haproxy evaluates the route after the line and the route matches what the line changes.
fn is_affected_by((position, condition, action): &FrontendRoute, line: &Line) -> bool {
    // haproxy selects the backend last.
    if *position < line.position && !matches!(action, Action::Pool(_)) {
        return false;
    }
    let name = line.word(2).unwrap_or("");
    let field = |header: &String| {
        let field = header.split(':').next().unwrap_or("");
        field.eq_ignore_ascii_case(name)
    };
    match (line.keyword(), line.word(1)) {
        ("http-request", Some("replace-path")) => {
            condition.path.is_some() || condition.regex.is_some()
        }
        ("http-request", _) => {
            condition.headers.iter().any(field)
                || condition.host.is_some() && name.eq_ignore_ascii_case("host")
        }
        _ => false,
    }
}

fn is_edit(line: &Line) -> bool {
    const REQUEST: [&str; 4] = ["set-header", "del-header", "add-header", "replace-path"];
    let word = line.word(1).unwrap_or("");
    match line.keyword() {
        "http-request" => REQUEST.contains(&word),
        "http-response" => REQUEST[..3].contains(&word),
        _ => false,
    }
}

fn edit(
    line: &Line,
    what: &[String],
    (tls, forwarded): (bool, bool),
    edits: &mut Edits,
) -> Result<(), &'static str> {
    let position = line.position;
    let fields = match line.keyword() {
        "http-response" => &mut edits.response,
        _ => &mut edits.request,
    };
    match what {
        [verb, name, value] if verb == "set-header" => {
            let value =
                constant(value).ok_or("the value is computed, and a route's value is fixed")?;
            let scheme = if tls { "https" } else { "http" };
            let is_scheme = name.eq_ignore_ascii_case("X-Forwarded-Proto") && value == scheme;
            if forwarded && is_scheme {
                return Err("`forwarded` does this");
            }
            fields.set(name, &value, position);
            Ok(())
        }
        [verb, name] if verb == "del-header" => {
            fields.remove(name, position);
            Ok(())
        }
        [verb, regex, path] if verb == "replace-path" => {
            let path = groups(path).ok_or("the path is computed from more than the old path")?;
            let (regex, path) =
                beginning_with_slash(regex, &path).ok_or("the path does not begin with a slash")?;
            if edits.rewrite.is_some() {
                return Err("a route rewrites the path only once");
            }
            edits.rewrite = Some((regex, path, position));
            Ok(())
        }
        [verb, ..] if verb == "add-header" => {
            Err("a route replaces header fields and cannot append one")
        }
        _ => Err("a route cannot do this"),
    }
}

/// Returns a value without variables; `None` = it is computed.
fn constant(text: &str) -> Option<String> {
    let plain = text.replace("%%", "");
    let is_computed = plain.contains('%') || crate::layer7::has_variable(text);
    (!is_computed).then(|| text.replace("%%", "%"))
}

/// Converts `/\1` to `/{1}`.
fn groups(text: &str) -> Option<String> {
    let text = constant(text)?;
    if text.contains(['{', '}']) {
        return None;
    }
    let mut out = String::new();
    let mut rest = text.chars();
    while let Some(one) = rest.next() {
        match one {
            '\\' => {
                let digit = rest.next().filter(|digit| ('1'..='9').contains(digit))?;
                out.extend(['{', digit, '}']);
            }
            one => out.push(one),
        }
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn computed_values_are_rejected() {
        assert_eq!(constant("50%% off").as_deref(), Some("50% off"));
        assert_eq!(constant("%[src]"), None);
        assert_eq!(constant("%ci"), None);
        assert_eq!(groups(r"/v2/\1").as_deref(), Some("/v2/{1}"));
        assert_eq!(groups(r"/\0"), None);
        assert_eq!(groups(r"/%[src]"), None);
        assert_eq!(groups(r"/{1}"), None);
    }
}
