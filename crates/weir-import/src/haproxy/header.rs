//! `http-request` and `http-response` rules that change heads: what routes do to all of their requests.

use super::Context;
use super::acl::{Acls, Meaning};
use super::line::Line;
use super::rule::condition;
use super::section::Proxy;
use crate::edit::{Edits, beginning_with_slash};
use crate::layer7::{Action, Condition};
use crate::note::{Notes, Place};

/// A route of a frontend, and the line that it comes from.
pub(super) type Seen = (Place, Condition, Action);

/// What a proxy's rules change for clients that come by TLS, or not; `told` = servers are told of clients in any case, `seen` are the
/// proxy's routes.
pub(super) fn edits(
    context: &mut Context<'_>,
    proxy: &Proxy,
    (acls, seen): (&Acls, &[Seen]),
    (tls, told): (bool, bool),
    notes: &mut Notes,
) -> Edits {
    let mut edits = Edits::default();
    for line in proxy.lines.iter().filter(|line| is_edit(line)) {
        let (what, words) = condition(line.arguments());
        match acls.condition(words, tls) {
            Meaning::Always if seen.iter().any(|route| looks_at(route, line)) => line.refuse(
                notes,
                "rules look at what it makes of a request, and routes look at the request as it came",
            ),
            Meaning::Always => match edit(line, what, (tls, told), &mut edits) {
                Ok(()) => context.uses(line),
                Err(why) => line.refuse(notes, why),
            },
            // In the frontend's other service it may hold.
            Meaning::Never => {}
            Meaning::AnyOf(_) => line.refuse(
                notes,
                "routes change what they lead to a pool: write it in those that it is for",
            ),
            Meaning::Unsaid(why) => line.refuse(notes, &why),
        }
        for place in acls.lines_of(words) {
            context.used.insert(place);
        }
    }
    edits
}

/// Whether a route comes behind the line in haproxy, and is about what that changes of requests.
fn looks_at((place, condition, action): &Seen, line: &Line) -> bool {
    // Which backend it is is asked last of all.
    if *place < line.place && !matches!(action, Action::Pool(_)) {
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
    (tls, told): (bool, bool),
    edits: &mut Edits,
) -> Result<(), &'static str> {
    let place = line.place;
    let fields = match line.keyword() {
        "http-response" => &mut edits.response,
        _ => &mut edits.request,
    };
    match what {
        [verb, name, value] if verb == "set-header" => {
            let value = constant(value).ok_or("its value is computed, and a route's is not")?;
            let scheme = if tls { "https" } else { "http" };
            let known = name.eq_ignore_ascii_case("X-Forwarded-Proto") && value == scheme;
            if told && known {
                return Err("`forwarded` says it");
            }
            fields.set(name, &value, place);
            Ok(())
        }
        [verb, name] if verb == "del-header" => {
            fields.remove(name, place);
            Ok(())
        }
        [verb, regex, path] if verb == "replace-path" => {
            let path = groups(path).ok_or("its path is computed from more than the old one")?;
            let (regex, path) =
                beginning_with_slash(regex, &path).ok_or("its path begins with no slash")?;
            if edits.rewrite.is_some() {
                return Err("a route rewrites a path once");
            }
            edits.rewrite = Some((regex, path, place));
            Ok(())
        }
        [verb, ..] if verb == "add-header" => {
            Err("a route puts a field in place of those of its name, and adds none beside them")
        }
        _ => Err("a route cannot say it so"),
    }
}

/// A value in which nothing is computed.
fn constant(text: &str) -> Option<String> {
    let plain = text.replace("%%", "");
    (!plain.contains('%')).then(|| text.replace("%%", "%"))
}

/// `/\1` as `/{1}`.
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
    fn what_is_computed_is_told_from_what_is_not() {
        assert_eq!(constant("50%% off").as_deref(), Some("50% off"));
        assert_eq!(constant("%[src]"), None);
        assert_eq!(constant("%ci"), None);
        assert_eq!(groups(r"/v2/\1").as_deref(), Some("/v2/{1}"));
        assert_eq!(groups(r"/\0"), None);
        assert_eq!(groups(r"/%[src]"), None);
        assert_eq!(groups(r"/{1}"), None);
    }
}
