//! `proxy_set_header`, `add_header`, `proxy_hide_header` and `rewrite … break`: the header and path changes of a
//! location.

use super::Context;
use super::tree::Node;
use crate::edit::{Edits, beginning_with_slash};
use crate::note::Notes;

/// Returns the changes of the levels, innermost first, for clients of `scheme`. `forwarded` = client addresses are
/// sent to servers anyway.
pub(super) fn edits(
    context: &mut Context<'_>,
    levels: &[&[Node]],
    (scheme, forwarded): (&str, bool),
    notes: &mut Notes,
) -> Edits {
    let mut edits = Edits::default();
    for line in inherited(levels, "proxy_set_header") {
        let found = match (line.word(1), line.word(2)) {
            (Some(name), Some(value)) => request(name, value, (scheme, forwarded)),
            _ => Err("the field or its value is missing"),
        };
        match found {
            Ok((name, value)) => {
                context.used.insert(line.position);
                match value.as_str() {
                    "" => edits.request.remove(name, line.position),
                    value => edits.request.set(name, value, line.position),
                }
            }
            Err(why) => line.reject(notes, why),
        }
    }
    // nginx hides the server's field and then adds its own.
    for line in inherited(levels, "proxy_hide_header") {
        match line.word(1) {
            Some(name) => {
                context.used.insert(line.position);
                edits.response.remove(name, line.position);
            }
            None => line.reject(notes, "the field is missing"),
        }
    }
    let mut added: Vec<String> = Vec::new();
    for line in inherited(levels, "add_header") {
        match added_field(line, &added) {
            Ok((name, value)) => {
                context.used.insert(line.position);
                added.push(name.to_ascii_lowercase());
                edits.response.set(name, value, line.position);
            }
            Err(why) => line.reject(notes, why),
        }
    }
    let own = levels.first().copied().unwrap_or_default();
    let mut rewrites = own.iter().filter_map(|line| Some((line, new_path(line)?)));
    if let Some((line, (regex, path))) = rewrites.next() {
        context.used.insert(line.position);
        edits.rewrite = Some((regex, path, line.position));
    }
    for (line, _) in rewrites {
        line.reject(notes, "a route rewrites the path only once");
    }
    edits
}

/// A level inherits the directives of the outer one, unless it has directives of the same kind.
fn inherited<'n>(levels: &[&'n [Node]], keyword: &str) -> Vec<&'n Node> {
    let lines_of = |level: &&'n [Node]| -> Vec<&'n Node> {
        let lines = level.iter().filter(|line| line.keyword() == keyword);
        lines.collect()
    };
    let mut levels = levels.iter().map(lines_of);
    levels.find(|lines| !lines.is_empty()).unwrap_or_default()
}

/// A field added to responses. `others` are the fields added before, in lower case.
fn added_field<'n>(line: &'n Node, others: &[String]) -> Result<(&'n str, &'n str), &'static str> {
    let (Some(name), Some(value)) = (line.word(1), line.word(2)) else {
        return Err("the field or its value is missing");
    };
    if value.contains('$') || crate::layer7::has_variable(value) {
        return Err("the value is computed, and a route's value is fixed");
    }
    let lower = name.to_ascii_lowercase();
    if others.contains(&lower) {
        return Err("a route sets a field only once");
    }
    // These are meant to be sent in addition to the server's.
    if matches!(lower.as_str(), "set-cookie" | "link" | "vary") {
        return Err("a route replaces header fields and cannot append one");
    }
    Ok((name, value))
}

/// A field sent to servers.
fn request<'n>(
    name: &'n str,
    value: &str,
    (scheme, forwarded): (&str, bool),
) -> Result<(&'n str, String), &'static str> {
    let is = |other: &str| name.eq_ignore_ascii_case(other);
    let value = value
        .replace("${scheme}", scheme)
        .replace("$scheme", scheme);
    if is("X-Forwarded-For") {
        return Err("`forwarded` does this");
    }
    if is("Host") && ["$host", "$http_host", "$host:$server_port"].contains(&value.as_str()) {
        return Err("Weir passes `Host` unchanged");
    }
    if is("Upgrade") || is("Connection") {
        return Err("Weir keeps connections open and passes upgrades by itself");
    }
    if forwarded && is("X-Real-IP") && value.contains('$') {
        return Err("`forwarded` sends the client's address to servers");
    }
    if forwarded && is("X-Forwarded-Proto") && value == scheme {
        return Err("`forwarded` does this");
    }
    if value.contains('$') || crate::layer7::has_variable(&value) {
        return Err("the value is computed, and a route's value is fixed");
    }
    Ok((name, value))
}

/// Converts `rewrite ^/api/(.*)$ /$1 break;` to an expression and a path of a route.
pub(super) fn new_path(line: &Node) -> Option<(String, String)> {
    let ["rewrite", regex, path, "break"] =
        line.words.iter().map(String::as_str).collect::<Vec<&str>>()[..]
    else {
        return None;
    };
    // A trailing `?` removes the query, and a route never does.
    if path.contains(['?', '{', '}']) {
        return None;
    }
    let mut out = String::new();
    let mut rest = path.chars();
    while let Some(one) = rest.next() {
        match one {
            '$' => {
                let digit = rest.next().filter(|digit| ('1'..='9').contains(digit))?;
                out.extend(['{', digit, '}']);
            }
            one => out.push(one),
        }
    }
    beginning_with_slash(regex, &out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn constant_header_fields_are_imported() {
        let imported = |name, value| request(name, value, ("https", false));
        let field = |name, value: &str| Ok((name, value.to_owned()));
        assert_eq!(imported("X-A", "b"), field("X-A", "b"));
        assert_eq!(imported("X-A", ""), field("X-A", ""));
        assert_eq!(
            imported("X-Forwarded-Proto", "$scheme"),
            field("X-Forwarded-Proto", "https")
        );
        assert!(imported("X-Forwarded-For", "$remote_addr").is_err());
        assert!(imported("Host", "$host").is_err());
        assert!(imported("X-A", "$request_id").is_err());
    }
}
