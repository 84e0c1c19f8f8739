//! Converts `ssl_*` of a server block to `tls` of a service.

use super::Context;
use super::action::redirect_target;
use super::location::BlockRoute;
use super::tree::{Node, inherited};
use super::variable::{GROUP_PREFIX, ServerVariables};
use crate::document::{Entry, Value};
use crate::layer7::Action;
use crate::note::{Notes, Position};
use crate::tls_suite;

/// Returns the line `ssl on`, which made every address of a server block use TLS until nginx 1.25.
pub(super) fn ssl_on_line<'n>(server: &'n [Node], outer: &'n [Node]) -> Option<&'n Node> {
    let lines = inherited(&[server, outer], "ssl");
    lines
        .last()
        .copied()
        .filter(|line| line.word(1) == Some("on"))
}

/// Returns the route for plain HTTP on port 80 of a server block with `ssl on`: nginx responds with the page of
/// `error_page 497`, or with status 400.
pub(super) fn plain_http_route(
    context: &mut Context<'_>,
    server: &Node,
    outer: &[Node],
    name: &str,
) -> BlockRoute {
    let is_page = |line: &&Node| line.words.iter().any(|word| word == "497");
    let lines = inherited(&[server.inner(), outer], "error_page");
    let redirect = lines.into_iter().find(is_page).and_then(|line| {
        let (to, rest) = line.words.split_last()?;
        let status = rest.iter().find_map(|word| word.strip_prefix('='));
        let status = status.map_or(Some(302), |code| code.parse().ok());
        let status = status.filter(|status| matches!(status, 301..=303 | 307 | 308))?;
        let variables = ServerVariables::new("http", name).for_redirect(true);
        // In a redirect, `{path}` includes the query.
        let path = format!("${{{GROUP_PREFIX}1}}");
        let to = to.replace("$uri$is_args$args", "$request_uri");
        let to = redirect_target(&to.replace("$uri", &path), variables).ok()?;
        let is_url = to.starts_with("http://") || to.starts_with("https://");
        is_url.then_some((Action::Redirect { to, status }, line.position))
    });
    let (action, position) = redirect.unwrap_or_else(|| {
        let bad_request = Action::Respond {
            status: 400,
            body: String::new(),
        };
        (bad_request, server.position)
    });
    context.used.insert(position);
    BlockRoute {
        regex: matches!(action, Action::Redirect { .. }).then(|| "^(.*)$".to_owned()),
        ..BlockRoute::catch_all(position, action)
    }
}

/// Returns `minimum` for `ssl_protocols TLSv1.2 TLSv1.3`.
pub(super) fn minimum(levels: [&[Node]; 2], notes: &mut Notes) -> Option<Entry> {
    let protocols_of = |nodes: &'_ [Node]| -> Option<(Position, Vec<String>)> {
        let node = nodes
            .iter()
            .rev()
            .find(|node| node.keyword() == "ssl_protocols")?;
        Some((node.position, node.words[1..].to_vec()))
    };
    let (position, words) = levels.into_iter().find_map(protocols_of)?;
    let is_older = |word: &String| matches!(word.as_str(), "SSLv2" | "SSLv3" | "TLSv1" | "TLSv1.1");
    if words.iter().any(is_older) {
        notes.add(position, "Weir does not support TLS versions below 1.2");
    }
    let min = match words.iter().any(|word| is_older(word) || word == "TLSv1.2") {
        true => "1.2",
        false => "1.3",
    };
    Some(Entry::new("minimum", min, position))
}

/// Returns `ciphers` and `groups` for `ssl_ciphers` and `ssl_ecdh_curve`. `minimum` is the result of [`minimum`], whose
/// line is marked as used.
pub(super) fn cipher_keys(
    find: &mut dyn FnMut(&str) -> Option<(String, Position)>,
    minimum: Option<&Entry>,
    notes: &mut Notes,
) -> Vec<Entry> {
    let requires_tls13 =
        |entry: &Entry| matches!(&entry.item.value, Value::Text(text) if text == "1.3");
    find("ssl_protocols");
    let ciphers = find("ssl_ciphers");
    let groups = find("ssl_ecdh_curve").filter(|(text, _)| text != "auto");
    tls_suite::keys(
        [ciphers.as_ref(), None],
        groups.as_ref(),
        minimum.is_some_and(requires_tls13),
        notes,
    )
}

/// Certificate directory of a service without `ssl_certificate`.
const DEFAULT_DIRECTORY: &str = "/etc/weir/certs";

/// Returns the keys of a service's `tls`.
pub(super) fn keys(
    find: &mut dyn FnMut(&str) -> Option<(String, Position)>,
    default: Position,
    notes: &mut Notes,
) -> Vec<Entry> {
    let mut keys = Vec::new();
    let key = find("ssl_certificate_key");
    match find("ssl_certificate") {
        Some((file, position)) => {
            keys.push(Entry::new("certificates", file.as_str(), position).essential());
            if let Some((_, position)) = key.as_ref().filter(|(key, _)| has_default_key(&file, key))
            {
                notes.remark(
                    *position,
                    "Weir finds the key by the name of the certificate file",
                );
            }
            if let Some((key, position)) = key.filter(|(key, _)| !has_default_key(&file, key)) {
                let reason = format!(
                    "Weir reads the key from the certificate file: write the chain and {key} to {file}, or name the \
                     files NAME.crt and NAME.key"
                );
                notes.add(position, reason);
            }
        }
        None => {
            keys.push(Entry::implied("certificates", DEFAULT_DIRECTORY).essential());
            let reason = format!(
                "there is no ssl_certificate; Weir does not start until {DEFAULT_DIRECTORY} contains certificates"
            );
            notes.add(default, reason);
        }
    }
    if let Some((file, position)) = find("ssl_client_certificate") {
        // nginx's default is `off`: nginx does not request a certificate from clients.
        match find("ssl_verify_client").filter(|(word, _)| word != "off") {
            None => notes.remark(
                position,
                "it has no effect, because ssl_verify_client is off",
            ),
            Some((word, verify_position)) => {
                let auth = if word == "on" { "required" } else { "optional" };
                keys.push(Entry::new("client_ca", file, position));
                keys.push(Entry::new("client_auth", auth, verify_position));
                if word == "optional_no_ca" {
                    notes.add(
                        verify_position,
                        "client certificates of other CAs are rejected",
                    );
                }
            }
        }
    }
    keys
}

/// Returns whether Weir finds the key without a separate entry: in the certificate file, or by that file's name.
fn has_default_key(file: &str, key: &str) -> bool {
    let has_same_name =
        |file: &str, key: &str| match (file.strip_suffix(".crt"), key.strip_suffix(".key")) {
            (Some(file), Some(key)) => file == key,
            _ => false,
        };
    let is_certbot_pair = |file: &str, key: &str| {
        let file = file.strip_suffix("fullchain.pem");
        file.is_some() && file == key.strip_suffix("privkey.pem")
    };
    file == key || has_same_name(file, key) || is_certbot_pair(file, key)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_is_found_by_the_name_of_the_certificate() {
        for (file, key, expected) in [
            ("/a.pem", "/a.pem", true),
            ("/a.crt", "/a.key", true),
            ("/a.crt", "/b.key", false),
            ("/a.pem", "/a.key", false),
            ("/a.crt", "/a.pem", false),
            ("/live/a/fullchain.pem", "/live/a/privkey.pem", true),
            ("/live/a/fullchain.pem", "/live/b/privkey.pem", false),
            ("/a.pem", "/b.pem", false),
        ] {
            assert_eq!(has_default_key(file, key), expected, "{file} {key}");
        }
    }

    #[test]
    fn lowest_protocol_is_the_minimum() {
        let read = |text: &str| {
            let mut notes = Notes::default();
            let environment = crate::EmptyEnvironment;
            super::super::tree::read_file(&environment, &mut notes, "f", text)
        };
        for (inner, outer, expected, is_older) in [
            ("ssl_protocols TLSv1.2 TLSv1.3;", "", Some("1.2"), false),
            ("ssl_protocols TLSv1.3;", "", Some("1.3"), false),
            ("ssl_protocols TLSv1.1 TLSv1.3;", "", Some("1.2"), true),
            ("ssl_protocols TLSv1;", "", Some("1.2"), true),
            ("ssl_protocols SSLv2;", "", Some("1.2"), true),
            ("ssl_protocols SSLv3;", "", Some("1.2"), true),
            ("", "ssl_protocols TLSv1.3;", Some("1.3"), false),
            (
                "ssl_protocols TLSv1.2;",
                "ssl_protocols TLSv1.3;",
                Some("1.2"),
                false,
            ),
            (
                "ssl_protocols TLSv1.2; ssl_protocols TLSv1.3; x;",
                "",
                Some("1.3"),
                false,
            ),
            ("", "", None, false),
        ] {
            let mut notes = Notes::default();
            notes.add_file("f", "");
            let (inner_lines, outer_lines) = (read(inner), read(outer));
            let entry = minimum([&inner_lines, &outer_lines], &mut notes);
            let expected = expected.map(|text| ("minimum", Value::Text(text.to_owned())));
            let found = entry.map(|entry| (entry.key, entry.item.value));
            assert_eq!(found, expected, "{inner} {outer}");
            let count = notes.finish().len();
            assert_eq!(count, usize::from(is_older), "{inner} {outer}");
        }
    }
}
