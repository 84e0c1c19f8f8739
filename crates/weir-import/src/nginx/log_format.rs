//! Converts `log_format` to an access log template.

use super::tree::Node;
use super::variable::MAP_PREFIX;
use crate::name::sanitize;

/// nginx's default format, `combined`, as a template. It is Weir's default too.
pub(super) const COMBINED: &str = "{client} - - [{date}] \"{method} {target} {version}\" {status} {bytes_out} \
                                   \"{referer}\" \"{agent}\"";

/// The properties of an HTTP service that determine the values of a format's variables.
#[derive(Clone, Copy, Debug)]
pub(super) struct HttpService<'a> {
    pub(super) has_tls: bool,
    /// `server_name`; empty if the service has several server blocks, or the name is a pattern.
    pub(super) name: &'a str,
}

/// Converts `log_format` to a template. Returns the template, and how its values differ from nginx's.
///
/// # Errors
/// Returns why the format has no equivalent.
pub(super) fn convert_format(
    line: &Node,
    service: HttpService<'_>,
) -> Result<(String, Vec<&'static str>), String> {
    let mut differences = Vec::new();
    let mut parts = line.words.get(2..).unwrap_or_default();
    if let [first, others @ ..] = parts
        && let Some(escape) = first.strip_prefix("escape=")
    {
        parts = others;
        if escape != "default" {
            differences.push("values are escaped as with `escape=default`");
        }
    }
    let mut template = String::new();
    for part in parts {
        append_part(part, service, &mut template, &mut differences)?;
    }
    Ok((template, differences))
}

/// Converts a quoted part of a format; a variable does not continue in the next part.
///
/// # Errors
/// Returns why the part has no equivalent.
fn append_part(
    part: &str,
    service: HttpService<'_>,
    template: &mut String,
    differences: &mut Vec<&'static str>,
) -> Result<(), String> {
    let mut rest = part;
    while let Some((literal, tail)) = rest.split_once('$') {
        template.push_str(check_literal(literal)?);
        let (name, tail) = match tail.strip_prefix('{') {
            Some(inner) => inner
                .split_once('}')
                .ok_or("`log_format` has no closing brace after `${`")?,
            None => {
                let is_end = |c: char| !c.is_ascii_alphanumeric() && c != '_';
                tail.split_at(tail.find(is_end).unwrap_or(tail.len()))
            }
        };
        let (value, difference) = variable(name, service).ok_or_else(|| {
            format!(
                "`format` of `access_log` has no equivalent for ${name}; `combined` is used instead"
            )
        })?;
        template.push_str(&value);
        if !difference.is_empty() && !differences.contains(&difference) {
            differences.push(difference);
        }
        rest = tail;
    }
    template.push_str(check_literal(rest)?);
    Ok(())
}

/// Checks that a literal part of a format has no opening brace, and returns it unchanged.
///
/// # Errors
/// Fails if the part contains an opening brace.
fn check_literal(text: &str) -> Result<&str, String> {
    match text.contains('{') {
        true => Err(
            "`format` of `access_log` cannot contain a literal `{`; for JSON, use `format = \"json\"`"
                .to_owned(),
        ),
        false => Ok(text),
    }
}

const MISSING: &str = "missing values are empty, not `-`";
const MILLISECONDS: &str = "times are in milliseconds";

/// Variables, their equivalents, and how the values differ.
const VARIABLES: &[(&str, &str, &str)] = &[
    ("remote_addr", "{client}", ""),
    ("remote_port", "{port}", ""),
    ("remote_user", "-", "the user is always `-`"),
    ("time_local", "{date}", ""),
    ("time_iso8601", "{time}", ""),
    ("request", "{method} {target} {version}", ""),
    ("request_method", "{method}", ""),
    ("request_uri", "{target}", ""),
    ("uri", "{path}", ""),
    ("document_uri", "{path}", ""),
    ("args", "{query}", MISSING),
    ("query_string", "{query}", MISSING),
    ("server_protocol", "{version}", ""),
    ("status", "{status}", ""),
    (
        "body_bytes_sent",
        "{bytes_out}",
        "`{bytes_out}` includes the response header",
    ),
    ("bytes_sent", "{bytes_out}", ""),
    ("request_length", "{bytes_in}", ""),
    ("http_referer", "{referer}", MISSING),
    ("http_user_agent", "{agent}", MISSING),
    ("http_host", "{host}", MISSING),
    ("host", "{host}", ""),
    ("content_type", "{header.content-type}", MISSING),
    ("content_length", "{header.content-length}", MISSING),
    ("request_time", "{total_ms}", MILLISECONDS),
    ("upstream_connect_time", "{connect_ms}", MILLISECONDS),
    ("upstream_header_time", "{response_ms}", MILLISECONDS),
    (
        "upstream_response_time",
        "{response_ms}",
        "`{response_ms}` ends at the first byte of the response, and is in milliseconds",
    ),
    ("upstream_addr", "{server}", MISSING),
    ("request_id", "{request_id}", ""),
    ("scheme", "{scheme}", ""),
    ("server_port", "{listen_port}", ""),
    ("proxy_add_x_forwarded_for", "{forwarded_for}", ""),
];

/// Variables of TLS connections, with the columns of [`VARIABLES`]. Without TLS, nginx writes `-`.
const TLS_VARIABLES: &[(&str, &str, &str)] = &[
    ("ssl_protocol", "TLSv{tls_version}", ""),
    (
        "ssl_cipher",
        "{tls_cipher}",
        "cipher suites have their IANA names",
    ),
    ("ssl_server_name", "{tls_sni}", MISSING),
    ("ssl_client_s_dn", "{client_cert_subject}", MISSING),
];

/// Returns Weir's equivalent of a variable of a format, and how its value differs.
fn variable(name: &str, service: HttpService<'_>) -> Option<(String, &'static str)> {
    let find = |table: &'static [(&'static str, &'static str, &'static str)]| {
        let mut entries = table.iter();
        entries.find(|(known, ..)| *known == name)
    };
    if let Some((_, value, difference)) = find(VARIABLES) {
        return Some(((*value).to_owned(), *difference));
    }
    if let Some((_, value, difference)) = find(TLS_VARIABLES) {
        return Some(match service.has_tls {
            true => ((*value).to_owned(), *difference),
            false => ("-".to_owned(), ""),
        });
    }
    if name == "server_name" && !service.name.is_empty() {
        return Some((service.name.to_owned(), ""));
    }
    if let Some(map) = name.strip_prefix(MAP_PREFIX) {
        return Some((format!("{{map.{}}}", sanitize(map)), ""));
    }
    let suffix = |prefix: &str| name.strip_prefix(prefix).filter(|it| !it.is_empty());
    let field = |prefix: &str| suffix(prefix).map(|it| it.replace('_', "-"));
    let value = if let Some(field) = field("http_") {
        format!("{{header.{field}}}")
    } else if let Some(field) = field("sent_http_") {
        format!("{{response.{field}}}")
    } else {
        format!("{{cookie.{}}}", suffix("cookie_")?)
    };
    Some((value, MISSING))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::note::Position;

    /// Converts a format whose words are separated by `|`.
    fn converted(text: &str, has_tls: bool) -> Option<(String, Vec<&'static str>)> {
        let words = ["log_format", "main"].into_iter().chain(text.split('|'));
        let words = words.map(str::to_owned).collect();
        let line = Node::new(Position::FIRST, words, None);
        let service = HttpService {
            has_tls,
            name: "www.example",
        };
        convert_format(&line, service).ok()
    }

    #[test]
    fn formats_become_templates() {
        for (text, expected) in [
            ("$remote_addr:|${remote_port}x", "{client}:{port}x"),
            (
                "\"$request\" $status $bytes_sent",
                "\"{method} {target} {version}\" {status} {bytes_out}",
            ),
            (
                "$http_x_a $sent_http_x_b $cookie_c_d",
                "{header.x-a} {response.x-b} {cookie.c_d}",
            ),
            ("$server_name $weir_map_kind", "www.example {map.kind}"),
            (
                "$ssl_protocol $ssl_cipher",
                "TLSv{tls_version} {tls_cipher}",
            ),
            ("escape=default|$status", "{status}"),
        ] {
            let found = converted(text, true).map(|(template, _)| template);
            assert_eq!(found.as_deref(), Some(expected), "{text}");
        }
        let plain = converted("$ssl_protocol", false);
        assert_eq!(plain, Some(("-".to_owned(), Vec::new())));
        for text in ["$geoip_country", "{$status}", "$status ${", "$ x", "$http_"] {
            assert_eq!(converted(text, true), None, "{text}");
        }
    }

    #[test]
    fn differences_are_listed_once() {
        for (text, expected) in [
            ("$status $request", Vec::new()),
            (
                "$request_time $upstream_connect_time $remote_user",
                vec![MILLISECONDS, "the user is always `-`"],
            ),
            ("$http_referer $cookie_a", vec![MISSING]),
            (
                "escape=json|$status",
                vec!["values are escaped as with `escape=default`"],
            ),
        ] {
            let found = converted(text, true).map(|(_, differences)| differences);
            assert_eq!(found, Some(expected), "{text}");
        }
    }

    #[test]
    fn each_variable_of_a_format_has_an_equivalent() {
        for (name, value, difference) in VARIABLES.iter().chain(TLS_VARIABLES) {
            let found = converted(&format!("<${name}>"), true);
            let differences = Vec::from_iter([*difference].into_iter().filter(|it| !it.is_empty()));
            assert_eq!(found, Some((format!("<{value}>"), differences)), "{name}");
        }
        for (name, ..) in TLS_VARIABLES {
            let found = converted(&format!("${name}"), false);
            assert_eq!(found, Some(("-".to_owned(), Vec::new())), "{name}");
        }
        for name in ["http_", "sent_http_", "cookie_", "other", "server_names"] {
            assert_eq!(converted(&format!("${name}"), true), None, "{name}");
        }
    }

    #[test]
    fn parts_of_a_format_are_joined() {
        for (text, expected) in [
            ("a|b $status|c", "ab {status}c"),
            ("$status-$host_", ""),
            ("$status$host.", "{status}{host}."),
            ("x}$status", "x}{status}"),
            ("$status}", "{status}}"),
            ("$status {", ""),
            (
                "escape=none|escape=default|$status",
                "escape=default{status}",
            ),
        ] {
            let found = converted(text, true).map(|(template, _)| template);
            assert_eq!(found.unwrap_or_default(), expected, "{text}");
        }
        let words = ["log_format", "main", "$server_name"];
        let words = words.map(str::to_owned).to_vec();
        let line = Node::new(Position::FIRST, words, None);
        let service = HttpService {
            has_tls: false,
            name: "",
        };
        let error = convert_format(&line, service).err().unwrap_or_default();
        assert!(error.contains("no equivalent for $server_name"), "{error}");
    }
}
