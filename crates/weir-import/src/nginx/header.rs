//! `proxy_set_header`, `add_header`, `proxy_hide_header` and `rewrite … break`: what a location changes of heads.

use super::Context;
use super::tree::Node;
use crate::edit::{Edits, beginning_with_slash};
use crate::note::Notes;

/// What the levels, the innermost first, change for clients of `scheme`; `told` = servers are told of clients in any case.
pub(super) fn edits(
    context: &mut Context<'_>,
    levels: &[&[Node]],
    (scheme, told): (&str, bool),
    notes: &mut Notes,
) -> Edits {
    let mut edits = Edits::default();
    for line in inherited(levels, "proxy_set_header") {
        let found = match (line.word(1), line.word(2)) {
            (Some(name), Some(value)) => request(name, value, (scheme, told)),
            _ => Err("it names no field, or no value"),
        };
        match found {
            Ok((name, value)) => {
                context.used.insert(line.place);
                match value.as_str() {
                    "" => edits.request.remove(name, line.place),
                    value => edits.request.set(name, value, line.place),
                }
            }
            Err(why) => line.refuse(notes, why),
        }
    }
    // nginx hides what the server says, and adds its own then.
    for line in inherited(levels, "proxy_hide_header") {
        match line.word(1) {
            Some(name) => {
                context.used.insert(line.place);
                edits.response.remove(name, line.place);
            }
            None => line.refuse(notes, "it names no field"),
        }
    }
    let mut added: Vec<String> = Vec::new();
    for line in inherited(levels, "add_header") {
        match added_field(line, &added) {
            Ok((name, value)) => {
                context.used.insert(line.place);
                added.push(name.to_ascii_lowercase());
                edits.response.set(name, value, line.place);
            }
            Err(why) => line.refuse(notes, why),
        }
    }
    let own = levels.first().copied().unwrap_or_default();
    let mut rewrites = own.iter().filter_map(|line| Some((line, new_path(line)?)));
    if let Some((line, (regex, path))) = rewrites.next() {
        context.used.insert(line.place);
        edits.rewrite = Some((regex, path, line.place));
    }
    for (line, _) in rewrites {
        line.refuse(notes, "a route rewrites a path once");
    }
    edits
}

/// A level has what the one around it says, unless it says something of the kind itself.
fn inherited<'n>(levels: &[&'n [Node]], keyword: &str) -> Vec<&'n Node> {
    let of = |level: &&'n [Node]| -> Vec<&'n Node> {
        let lines = level.iter().filter(|line| line.keyword() == keyword);
        lines.collect()
    };
    let mut levels = levels.iter().map(of);
    levels.find(|lines| !lines.is_empty()).unwrap_or_default()
}

/// A field that clients get beside `others`, which are in small letters.
fn added_field<'n>(line: &'n Node, others: &[String]) -> Result<(&'n str, &'n str), &'static str> {
    let (Some(name), Some(value)) = (line.word(1), line.word(2)) else {
        return Err("it names no field, or no value");
    };
    if value.contains('$') {
        return Err("its value is computed, and a route's is not");
    }
    let known = name.to_ascii_lowercase();
    if others.contains(&known) {
        return Err("a route sets a field once");
    }
    // Where a server has them too, both are meant.
    if matches!(known.as_str(), "set-cookie" | "link" | "vary") {
        return Err(
            "a route puts a field in place of those of its name, and adds none beside them",
        );
    }
    Ok((name, value))
}

/// A field that servers get.
fn request<'n>(
    name: &'n str,
    value: &str,
    (scheme, told): (&str, bool),
) -> Result<(&'n str, String), &'static str> {
    let is = |other: &str| name.eq_ignore_ascii_case(other);
    let value = value
        .replace("${scheme}", scheme)
        .replace("$scheme", scheme);
    if is("X-Forwarded-For") {
        return Err("`forwarded` says it");
    }
    if is("Host") && ["$host", "$http_host", "$host:$server_port"].contains(&value.as_str()) {
        return Err("Weir passes `Host` as it came");
    }
    if is("Upgrade") || is("Connection") {
        return Err("Weir keeps connections and passes upgrades by itself");
    }
    if told && is("X-Real-IP") && value.contains('$') {
        return Err("`forwarded` tells servers of the client");
    }
    if told && is("X-Forwarded-Proto") && value == scheme {
        return Err("`forwarded` says it");
    }
    if value.contains('$') {
        return Err("its value is computed, and a route's is not");
    }
    Ok((name, value))
}

/// `rewrite ^/api/(.*)$ /$1 break;` as an expression and a path of ours.
pub(super) fn new_path(line: &Node) -> Option<(String, String)> {
    let ["rewrite", regex, path, "break"] =
        line.words.iter().map(String::as_str).collect::<Vec<&str>>()[..]
    else {
        return None;
    };
    // A `?` at its end takes the query off, which a route never does.
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
    fn fields_are_carried_where_their_values_are_known() {
        let said = |name, value| request(name, value, ("https", false));
        let field = |name, value: &str| Ok((name, value.to_owned()));
        assert_eq!(said("X-A", "b"), field("X-A", "b"));
        assert_eq!(said("X-A", ""), field("X-A", ""));
        assert_eq!(
            said("X-Forwarded-Proto", "$scheme"),
            field("X-Forwarded-Proto", "https")
        );
        assert!(said("X-Forwarded-For", "$remote_addr").is_err());
        assert!(said("Host", "$host").is_err());
        assert!(said("X-A", "$request_id").is_err());
    }
}
