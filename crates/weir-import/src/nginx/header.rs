//! Converts directives that change headers and paths to a location's header and path changes.
//!
//! Examples are `proxy_set_header`, `add_header`, `proxy_hide_header`, `proxy_redirect` and `rewrite … break`.

use super::target::{is_host_field, parse_host};
use super::tree::{Node, inherited};
use super::variable::{ServerVariables, replace_variables};
use super::{Context, auth};
use crate::document::Entry;
use crate::edit::{Edits, Replacement, with_leading_slash};
use crate::note::{Notes, Position};

/// Returns the header and path changes of a location, and other keys for its route. `levels` begin with the innermost.
pub(super) fn edits(
    context: &mut Context<'_>,
    levels: &[&[Node]],
    variables: ServerVariables<'_>,
    notes: &mut Notes,
) -> Edits {
    let mut edits = Edits::default();
    let lines = inherited(levels, "proxy_set_header");
    let rules = x_forwarded_rules(context.appends_forwarded_for, &lines);
    if !rules.is_empty() {
        edits.keys.push(Entry::implied("x_forwarded", rules));
    }
    let forward_auth = auth::forward_auth(context, levels, variables, notes);
    let forwarded_for = |line: &&Node| line.word(1).is_some_and(is_forwarded_for);
    // Weir appends to the field only once; nginx sends one field for each line.
    let appends = lines.iter().copied().filter(forwarded_for).count() == 1;
    for line in lines {
        if forward_auth.is_some() && auth::copied_field(levels, line).is_some() {
            continue;
        }
        let result = match (line.word(1), line.word(2)) {
            _ if sends_service_port(line) => {
                context.used.insert(line.position);
                continue;
            }
            (Some(name), Some("$proxy_host")) if is_host_field(name) => Ok(None),
            (Some(name), Some(value)) if is_host_field(name) => {
                parse_host(context, value).map(|_| None)
            }
            (Some(name), Some(value)) => request_field(name, value, variables, appends),
            _ => Err("the field or its value is missing"),
        };
        match result {
            Ok(None) => {
                context.used.insert(line.position);
                notes.remark(
                    line.position,
                    "Weir already does this, or a key of the service or pool configures it",
                );
            }
            Ok(Some((name, value))) => {
                context.used.insert(line.position);
                match value.as_str() {
                    "" if edits.request.is_set(name) => {}
                    "" => edits.request.remove(name, line.position),
                    value if edits.request.is_set(name) => {
                        edits.request.add(name, value, line.position);
                    }
                    value => edits.request.set(name, value, line.position),
                }
            }
            Err(reason) => line.reject(notes, reason),
        }
    }
    add_response_edits(context, &mut edits, levels, variables, notes);
    add_redirects(context, &mut edits, levels);
    let mut keys = super::route::keys(context, levels, notes);
    edits.keys.append(&mut keys);
    edits.keys.extend(forward_auth);
    let innermost = levels.first().copied().unwrap_or_default();
    // Only the first rewrite that matches is applied, as with routes.
    for (line, (regex, path)) in innermost
        .iter()
        .filter_map(|line| Some((line, new_path(line)?)))
    {
        context.used.insert(line.position);
        edits.rewrites.push((regex, path, line.position));
    }
    edits
}

/// Adds the changes of `proxy_redirect`.
fn add_redirects(context: &mut Context<'_>, edits: &mut Edits, levels: &[&[Node]]) {
    for line in inherited(levels, "proxy_redirect") {
        let replacements = match (line.word(1), line.word(2)) {
            // By default, Weir does not change these fields.
            (Some("off"), None) => Vec::new(),
            (Some(from), Some(to)) => match redirect_replacements(from, to, line.position) {
                Some(replacements) => replacements,
                None => continue,
            },
            _ => continue,
        };
        context.used.insert(line.position);
        edits.replacements.extend(replacements);
    }
}

/// Converts `proxy_redirect FROM TO`, which changes `Location` and `Refresh`. `FROM` is a prefix, or a regular
/// expression after `~` or `~*`. Returns `None` if `TO` contains braces, if a text contains variables other than
/// groups, or if Weir does not support the regular expression.
fn redirect_replacements(from: &str, to: &str, position: Position) -> Option<Vec<Replacement>> {
    if to.contains(['{', '}']) {
        return None;
    }
    let (regex, to) = match from.strip_prefix('~') {
        Some(regex) => {
            let regex = match regex.strip_prefix('*') {
                Some(regex) => format!("(?i){regex}"),
                None => regex.to_owned(),
            };
            let to = (1..=9).fold(to.to_owned(), |to, group| {
                to.replace(&format!("${group}"), &format!("{{{group}}}"))
            });
            (regex, to)
        }
        None if from.contains('$') => return None,
        None => (
            format!("^{}(.*)$", regex::escape(from)),
            format!("{to}{{1}}"),
        ),
    };
    if to.contains('$') || regex::Regex::new(&regex).is_err() {
        return None;
    }
    let replacement = |name: &str, regex, to| Replacement {
        name: name.to_owned(),
        regex,
        to,
        position,
    };
    // An expression that begins with `^` also applies to `Refresh: 5; url=http://inside/`. A new first group matches
    // the text before the URL, so the expression's ninth group cannot be used: there is no tenth group.
    let start = regex.strip_prefix('^').filter(|_| !to.contains("{9}"));
    let refresh = start.map(|rest| {
        let to = (1..=8).rev().fold(to.clone(), |to, group| {
            to.replace(&format!("{{{group}}}"), &format!("{{{}}}", group + 1))
        });
        replacement("Refresh", format!("^(.*url=){rest}"), format!("{{1}}{to}"))
    });
    let mut replacements = vec![replacement("Location", regex, to)];
    replacements.extend(refresh);
    Some(replacements)
}

/// Returns whether a line sends the port of the service that the client connected to.
fn sends_service_port(line: &Node) -> bool {
    let is_name = |name: &str| name.eq_ignore_ascii_case("X-Forwarded-Port");
    line.word(1).is_some_and(is_name) && line.word(2) == Some("$server_port")
}

/// Returns the keys of a route's `x_forwarded`, which replace those of its service. `service_appends` is true if the
/// service appends to X-Forwarded-For.
fn x_forwarded_rules(service_appends: bool, lines: &[&Node]) -> Vec<Entry> {
    let mut rules = Vec::new();
    let port = lines.iter().rev().find(|line| sends_service_port(line));
    let forwarded_for = lines
        .iter()
        .rev()
        .find(|line| line.word(1).is_some_and(is_forwarded_for));
    let has_append = forwarded_for.is_some_and(|line| line.word(2).is_some_and(is_appended));
    match (service_appends, forwarded_for) {
        (true, None) => rules.push(Entry::implied("for", "keep")),
        (true, Some(_)) if port.is_some() && has_append => {
            rules.push(Entry::implied("for", "append"));
        }
        _ => {}
    }
    rules.extend(port.map(|line| Entry::new("port", "set", line.position).essential()));
    rules
}

const fn is_forwarded_for(name: &str) -> bool {
    name.eq_ignore_ascii_case("X-Forwarded-For")
}

/// Returns whether a value of X-Forwarded-For is the received value with the client's address appended.
fn is_appended(value: &str) -> bool {
    matches!(
        value,
        "$proxy_add_x_forwarded_for" | "${proxy_add_x_forwarded_for}"
    )
}

/// Returns whether one of these lines, or a line in their blocks, appends the client's address to X-Forwarded-For.
pub(super) fn appends_forwarded_for(lines: &[Node]) -> bool {
    lines.iter().any(|line| match line.keyword() {
        "proxy_set_header" => {
            line.word(1).is_some_and(is_forwarded_for) && line.word(2).is_some_and(is_appended)
        }
        "location" | "if" | "limit_except" => appends_forwarded_for(line.inner()),
        _ => false,
    })
}

/// Returns the changes to the responses of a location that serves files, and its authentication.
pub(super) fn file_edits(
    context: &mut Context<'_>,
    levels: &[&[Node]],
    variables: ServerVariables<'_>,
    notes: &mut Notes,
) -> Edits {
    let mut edits = Edits::default();
    add_response_edits(context, &mut edits, levels, variables, notes);
    edits
        .keys
        .extend(super::route::authentication(context, levels, notes));
    edits
        .keys
        .extend(auth::forward_auth(context, levels, variables, notes));
    edits
}

/// Returns the changes to a response that Weir generates, with this status.
pub(super) fn response_edits(
    context: &mut Context<'_>,
    levels: &[&[Node]],
    variables: ServerVariables<'_>,
    status: u64,
    notes: &mut Notes,
) -> Edits {
    let mut edits = Edits::default();
    for line in inherited(levels, "add_header") {
        if line.word(3) != Some("always") && !is_add_header_status(status) {
            context.used.insert(line.position);
            continue;
        }
        if is_length_of_empty_body(line, status) {
            context.used.insert(line.position);
            notes.remark(
                line.position,
                "not imported: a response with this status has no body and no `Content-Length` (RFC 9110 section 8.6)",
            );
            continue;
        }
        match added_field(line, variables) {
            Ok((name, value)) => {
                context.used.insert(line.position);
                // nginx sends a second field of this name, but clients use only one.
                if name.eq_ignore_ascii_case("Content-Type") {
                    edits.response.set(name, &value, line.position);
                } else {
                    edits.response.add(name, &value, line.position);
                }
            }
            Err(reason) => line.reject(notes, reason),
        }
    }
    edits
}

/// Returns whether a line adds `Content-Length: 0` to a response that has no body.
fn is_length_of_empty_body(line: &Node, status: u64) -> bool {
    let is_length = |name: &str| name.eq_ignore_ascii_case("Content-Length");
    status == 204 && line.word(1).is_some_and(is_length) && line.word(2) == Some("0")
}

/// Adds the media type (`default_type`) of the text that `return` sends.
pub(super) fn content_type(context: &mut Context<'_>, levels: &[&[Node]], edits: &mut Edits) {
    const NAME: &str = "Content-Type";
    let lines = inherited(levels, "default_type");
    let line = lines
        .last()
        .filter(|line| line.word(1) != Some("text/plain"));
    if let Some(line) = line
        && let Some(value) = line.word(1)
        && !edits.response.is_set(NAME)
    {
        context.used.insert(line.position);
        edits.response.set(NAME, value, line.position);
    }
}

/// Returns whether `add_header` without `always` applies to a status.
const fn is_add_header_status(status: u64) -> bool {
    matches!(status, 200 | 201 | 204 | 206 | 301..=304 | 307 | 308)
}

/// Adds the changes of `proxy_hide_header`, `add_header` and `expires`.
fn add_response_edits(
    context: &mut Context<'_>,
    edits: &mut Edits,
    levels: &[&[Node]],
    variables: ServerVariables<'_>,
    notes: &mut Notes,
) {
    let mut hidden: Vec<String> = Vec::new();
    // nginx hides the server's field and then adds its own.
    for line in inherited(levels, "proxy_hide_header") {
        match line.word(1) {
            Some(name) => {
                context.used.insert(line.position);
                hidden.push(name.to_ascii_lowercase());
                edits.response.remove(name, line.position);
            }
            None => line.reject(notes, "the field is missing"),
        }
    }
    for line in inherited(levels, "add_header") {
        match added_field(line, variables) {
            Ok((name, value)) => {
                context.used.insert(line.position);
                let is_always = line.word(3) == Some("always");
                let statuses = (!is_always).then_some(ADD_HEADER_STATUSES);
                if hidden.contains(&name.to_ascii_lowercase()) {
                    edits
                        .response
                        .set_for(name, &value, statuses, line.position);
                } else {
                    edits
                        .response
                        .add_for(name, &value, statuses, line.position);
                }
            }
            Err(reason) => line.reject(notes, reason),
        }
    }
    for line in inherited(levels, "expires") {
        if let Some(value) = cache_control(line) {
            context.used.insert(line.position);
            let position = line.position;
            edits
                .response
                .add_for("Cache-Control", &value, Some(ADD_HEADER_STATUSES), position);
            notes.remark(
                position,
                "imported as `Cache-Control`; Weir does not send `Expires`, which contains the same time as a date",
            );
        }
    }
}

/// Returns the value of `Cache-Control` for a line such as `expires 30d`, or `None` for `off` and for a time of day.
fn cache_control(line: &Node) -> Option<String> {
    match line.word(1)? {
        "epoch" => Some("no-cache".to_owned()),
        "max" => Some("max-age=315360000".to_owned()),
        text if text.starts_with('-') => Some("no-cache".to_owned()),
        text => Some(format!("max-age={}", expiry_ms(text)? / 1000)),
    }
}

/// Parses the time of an `expires` directive, which can be in years or months, and returns milliseconds.
pub(super) fn expiry_ms(text: &str) -> Option<u64> {
    const DAY_MS: u64 = 86_400_000;
    let units = [('y', 365 * DAY_MS), ('M', 30 * DAY_MS)];
    let unit_ms = units.into_iter().find_map(|(unit, unit_ms)| {
        let number = text.strip_suffix(unit)?;
        number.parse::<u64>().ok()?.checked_mul(unit_ms)
    });
    unit_ms.or_else(|| super::parse_time(text))
}

/// Statuses of the responses to which `add_header` without `always` applies.
const ADD_HEADER_STATUSES: &str = "200-201,204,206,301-304,307-308";

/// Returns the name and the value of a field that is added to responses.
pub(super) fn added_field<'n>(
    line: &'n Node,
    variables: ServerVariables<'_>,
) -> Result<(&'n str, String), &'static str> {
    let (Some(name), Some(value)) = (line.word(1), line.word(2)) else {
        return Err("the field or its value is missing");
    };
    let value = replace_variables(value, variables)
        .ok_or("the value contains an unsupported variable or a name in braces")?;
    Ok((name, value))
}

/// Returns the name and the value of a field that is sent to servers, or `None` if Weir sends the same field itself.
/// `appends` is true if the service's `x_forwarded` appends to X-Forwarded-For.
fn request_field<'n>(
    name: &'n str,
    value: &str,
    variables: ServerVariables<'_>,
    appends: bool,
) -> Result<Option<(&'n str, String)>, &'static str> {
    let is_named = |other: &str| name.eq_ignore_ascii_case(other);
    if appends && is_named("X-Forwarded-For") && is_appended(value) {
        return Ok(None);
    }
    // Weir keeps connections open and forwards upgrades without these lines.
    if is_named("Upgrade") || is_named("Connection") {
        return Ok(None);
    }
    let value = replace_variables(value, variables)
        .ok_or("the value contains an unsupported variable or a name in braces")?;
    Ok(Some((name, value)))
}

/// Converts `rewrite ^/api/(.*)$ /$1 break;` to a regular expression and a path of a route.
pub(super) fn new_path(line: &Node) -> Option<(String, String)> {
    changed_path(line, &["break"])
}

/// Converts a `rewrite` with one of these flags to a regular expression and a path; an empty flag means no flag.
pub(super) fn changed_path(line: &Node, flags: &[&str]) -> Option<(String, String)> {
    let words: Vec<&str> = line.words.iter().map(String::as_str).collect();
    let (regex, path, flag) = match words[..] {
        ["rewrite", regex, path] => (regex, path, ""),
        ["rewrite", regex, path, flag] => (regex, path, flag),
        _ => return None,
    };
    if !flags.contains(&flag) || path.contains(['{', '}']) || path.matches('?').count() > 1 {
        return None;
    }
    let mut out = String::new();
    let mut chars = path.chars();
    while let Some(c) = chars.next() {
        match c {
            '$' => {
                let digit = chars.next().filter(|digit| ('1'..='9').contains(digit))?;
                out.extend(['{', digit, '}']);
            }
            c => out.push(c),
        }
    }
    with_leading_slash(regex, &out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn request_fields_are_imported_with_weir_variables() {
        let variables = ServerVariables::new("https", "a");
        let imported = |name, value| request_field(name, value, variables, true);
        let field = |name, value: &str| Ok(Some((name, value.to_owned())));
        assert_eq!(imported("X-A", "b"), field("X-A", "b"));
        assert_eq!(imported("X-A", ""), field("X-A", ""));
        assert_eq!(
            imported("X-Forwarded-Proto", "$scheme"),
            field("X-Forwarded-Proto", "https")
        );
        assert_eq!(
            imported("X-Forwarded-For", "$remote_addr"),
            field("X-Forwarded-For", "{client}")
        );
        assert_eq!(imported("X-A", "$request_id"), field("X-A", "{request_id}"));
        assert!(imported("X-A", "$geoip_country").is_err());
    }
}
