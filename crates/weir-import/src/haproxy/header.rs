//! `http-request` and `http-response` rules that change headers: what routes do to all of their requests.

use super::Context;
use super::acl::{Acls, Meaning};
use super::line::Line;
use super::rule::{self, condition};
use super::section::Proxy;
use crate::edit::{Edits, beginning_with_slash};
use crate::layer7::{Action, Condition};
use crate::note::{Notes, Position};

/// A route of a frontend, with its source line.
pub(super) type FrontendRoute = (Position, Condition, Action);

/// Returns the header changes of a proxy's rules for TLS clients or plain ones. `forwarded` = the service adds the
/// client's address; `frontend_routes` are the proxy's routes.
pub(super) fn edits(
    context: &mut Context<'_>,
    proxy: &Proxy,
    (acls, frontend_routes): (&Acls, &[FrontendRoute]),
    (tls, forwarded, listen): (bool, bool, &[String]),
    notes: &mut Notes,
) -> Edits {
    let mut edits = Edits::default();
    if let Some(line) = proxy.option("forwarded") {
        standard(context, line, listen, &mut edits, notes);
    }
    if let Some(line) = proxy.option("forwardfor").filter(|_| !forwarded) {
        context.mark_used(line);
        edits
            .request
            .add("X-Forwarded-For", "{client}", line.position);
    }
    let host = super::backend::fixed_host(proxy).map(|(line, _)| line.position);
    let host = host.filter(|_| proxy.has_servers);
    let edits_of = |line: &&Line| is_edit(line) && Some(line.position) != host;
    for line in proxy.lines.iter().filter(edits_of) {
        let (what, words) = condition(line.arguments());
        match acls.condition(words, tls) {
            Meaning::Always if frontend_routes.iter().any(|route| is_affected_by(route, line)) => line.reject(
                notes,
                "haproxy's rules match the changed request, and routes match the request as received",
            ),
            Meaning::Always => match edit(line, &with_port(what, listen), &mut edits) {
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

/// `option forwarded` without further words. Addresses of IPv6 clients have quotes and brackets, which a text cannot
/// add to only these.
fn standard(
    context: &mut Context<'_>,
    line: &Line,
    listen: &[String],
    edits: &mut Edits,
    notes: &mut Notes,
) {
    context.mark_used(line);
    if line.words.len() > 2 {
        line.reject(notes, "`add_header` cannot write these elements");
    } else if listen.iter().any(|address| address.starts_with('[')) {
        line.reject(
            notes,
            "the format differs for IPv6 clients; see `forwarded`",
        );
    } else {
        // The name of the scheme is that of the service.
        let scheme = "proto={scheme};for={client}";
        edits.request.add("Forwarded", scheme, line.position);
    }
}

/// Replaces the port of the service, if all of its listeners have the same.
fn with_port(words: &[String], listen: &[String]) -> Vec<String> {
    let ports = listen.iter().map(|address| address.rsplit(':').next());
    let mut ports: Vec<Option<&str>> = ports.collect();
    ports.dedup();
    let [Some(port)] = ports[..] else {
        return words.to_vec();
    };
    let words = words.iter();
    words
        .map(|word| word.replace("%[dst_port]", port).replace("%fp", port))
        .collect()
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
        ("http-request", Some("replace-path" | "set-path")) => {
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
    const REQUEST: [&str; 5] = [
        "set-header",
        "del-header",
        "add-header",
        "replace-path",
        "set-path",
    ];
    let word = line.word(1).unwrap_or("");
    match line.keyword() {
        "http-request" => REQUEST.contains(&word),
        "http-response" => REQUEST[..3].contains(&word),
        _ => false,
    }
}

fn edit(line: &Line, what: &[String], edits: &mut Edits) -> Result<(), &'static str> {
    let position = line.position;
    let fields = match line.keyword() {
        "http-response" => &mut edits.response,
        _ => &mut edits.request,
    };
    match what {
        [verb, name, value] if verb == "set-header" => {
            let value = computed(value).ok_or(COMPUTED)?;
            fields.set(name, &value, position);
            Ok(())
        }
        [verb, name, value] if verb == "add-header" => {
            let value = computed(value).ok_or(COMPUTED)?;
            fields.add(name, &value, position);
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
            if !edits.rewrites.is_empty() {
                return Err("a route rewrites the path only once");
            }
            edits.rewrites.push((regex, path, position));
            Ok(())
        }
        [verb, path] if verb == "set-path" => {
            let (regex, path) =
                new_path(path).ok_or("the path is computed from more than the old path")?;
            if !edits.rewrites.is_empty() {
                return Err("a route rewrites the path only once");
            }
            edits.rewrites.push((regex, path, position));
            Ok(())
        }
        _ => Err("a route cannot do this"),
    }
}

const COMPUTED: &str = "the value is computed by something that Weir has no variable for";

/// Returns a value with Weir's variables; `None` = there is none for one of haproxy's.
fn computed(text: &str) -> Option<String> {
    if crate::layer7::has_variable(text) {
        return None;
    }
    rule::variables(text)
}

/// `%[path,regsub(^/api/,/)]`, or a prefix before `%[path]`: an expression and the new path.
fn new_path(text: &str) -> Option<(String, String)> {
    if let Some(prefix) = text.strip_suffix("%[path]") {
        let prefix = constant(prefix)?;
        return Some(("^/(.*)$".to_owned(), format!("{prefix}/{{1}}")));
    }
    let inner = text.strip_prefix("%[path,regsub(")?.strip_suffix(")]")?;
    let mut parts = inner.split(',');
    let (regex, to, flags) = (parts.next()?, parts.next()?, parts.next());
    let (regex, to) = (
        regex.trim_matches(['"', '\'']),
        to.trim_matches(['"', '\'']),
    );
    if flags.is_some() || !regex.starts_with('^') || regex.contains(['(', '$']) {
        return None;
    }
    let to = groups(to)?;
    to.starts_with('/')
        .then(|| (format!("{regex}(.*)$"), format!("{to}{{1}}")))
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
