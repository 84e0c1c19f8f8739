//! Replaces nginx's variables in texts with Weir's variables.

/// Prefix of the name of a variable that becomes a `[map.NAME]` table.
pub(super) const MAP_PREFIX: &str = "weir_map_";

/// Prefix of the name of a variable that is a group of the route's regular expression.
pub(super) const GROUP_PREFIX: &str = "weir_group_";

/// Values of the variables that are constant for a server block, and how the text is used.
#[derive(Clone, Copy, Debug)]
pub(super) struct ServerVariables<'a> {
    /// `http` or `https`.
    scheme: &'a str,
    /// The first `server_name`.
    name: &'a str,
    /// Whether the text is the target of a redirect, in which `{path}` includes the query.
    is_redirect_target: bool,
}

impl<'a> ServerVariables<'a> {
    /// Returns the values for texts other than targets of redirects.
    pub(super) const fn new(scheme: &'a str, name: &'a str) -> Self {
        Self {
            scheme,
            name,
            is_redirect_target: false,
        }
    }

    /// Returns the values for the target of a redirect, or for another text.
    pub(super) const fn for_redirect(self, is_redirect_target: bool) -> Self {
        Self {
            is_redirect_target,
            ..self
        }
    }
}

/// Replaces variables. Returns `None` if Weir has no equivalent for one of them, or if the text contains a literal name
/// in braces, which weir.toml treats as a variable.
pub(super) fn replace_variables(text: &str, variables: ServerVariables<'_>) -> Option<String> {
    if crate::layer7::has_variable(&text.replace("${", "$")) {
        return None;
    }
    let mut out = String::new();
    let mut rest = text;
    while let Some(offset) = rest.find('$') {
        out.push_str(&rest[..offset]);
        rest = &rest[offset + 1..];
        let (name, tail) = match rest.strip_prefix('{') {
            Some(inner) => inner.split_once('}')?,
            None => {
                let is_end = |c: char| !c.is_ascii_alphanumeric() && c != '_';
                rest.split_at(rest.find(is_end).unwrap_or(rest.len()))
            }
        };
        out.push_str(&weir_variable(name, variables)?);
        rest = tail;
    }
    out.push_str(rest);
    Some(out)
}

fn weir_variable(name: &str, variables: ServerVariables<'_>) -> Option<String> {
    Some(match name {
        "scheme" => variables.scheme.to_owned(),
        "https" if variables.scheme == "https" => "on".to_owned(),
        "https" => String::new(),
        "host" => "{host}".to_owned(),
        "http_host" if variables.is_redirect_target => "{host}".to_owned(),
        "remote_addr" | "realip_remote_addr" => "{client}".to_owned(),
        "remote_port" => "{client_port}".to_owned(),
        "server_port" => "{listen_port}".to_owned(),
        "proxy_add_x_forwarded_for" => "{forwarded_for}".to_owned(),
        "request_id" => "{request_id}".to_owned(),
        "request_method" => "{method}".to_owned(),
        "args" | "query_string" => "{query}".to_owned(),
        "uri" | "document_uri" => "{path}".to_owned(),
        "request_uri" if variables.is_redirect_target => "{path}".to_owned(),
        "request_uri" => "{path}?{query}".to_owned(),
        name if name.starts_with(MAP_PREFIX) => {
            format!(
                "{{map.{}}}",
                crate::name::sanitize(&name[MAP_PREFIX.len()..])
            )
        }
        name if name.starts_with(GROUP_PREFIX) => format!("{{{}}}", &name[GROUP_PREFIX.len()..]),
        "ssl_server_name" => "{tls_sni}".to_owned(),
        "ssl_client_s_dn" => "{client_cert_subject}".to_owned(),
        "upstream_addr" => "{server}".to_owned(),
        "server_name" if !variables.name.is_empty() => variables.name.to_owned(),
        _ => {
            if let Some(field) = name.strip_prefix("http_") {
                format!("{{header.{}}}", field.replace('_', "-"))
            } else {
                format!("{{cookie.{}}}", name.strip_prefix("cookie_")?)
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_are_replaced() {
        let variables = ServerVariables::new("https", "www.example");
        let replace = |text: &str| replace_variables(text, variables);
        assert_eq!(
            replace("$scheme://${host}/a").as_deref(),
            Some("https://{host}/a")
        );
        assert_eq!(
            replace("$remote_addr:$remote_port $server_port").as_deref(),
            Some("{client}:{client_port} {listen_port}")
        );
        assert_eq!(
            replace("$http_x_a, $cookie_b").as_deref(),
            Some("{header.x-a}, {cookie.b}")
        );
        assert_eq!(replace("$server_name").as_deref(), Some("www.example"));
        assert_eq!(replace("$geoip_country"), None);
        assert_eq!(replace("{client}"), None);
    }

    /// Variables of nginx, and their equivalents in a text and in a redirect, in a server block with TLS.
    const VARIABLES: [(&str, &str, &str); 22] = [
        ("$scheme", "https", "https"),
        ("$https", "on", "on"),
        ("$host", "{host}", "{host}"),
        ("$http_host", "{header.host}", "{host}"),
        ("$remote_addr", "{client}", "{client}"),
        ("$realip_remote_addr", "{client}", "{client}"),
        ("$remote_port", "{client_port}", "{client_port}"),
        ("$server_port", "{listen_port}", "{listen_port}"),
        (
            "$proxy_add_x_forwarded_for",
            "{forwarded_for}",
            "{forwarded_for}",
        ),
        ("$request_id", "{request_id}", "{request_id}"),
        ("$request_method", "{method}", "{method}"),
        ("$args", "{query}", "{query}"),
        ("$query_string", "{query}", "{query}"),
        ("$uri", "{path}", "{path}"),
        ("$document_uri", "{path}", "{path}"),
        ("$request_uri", "{path}?{query}", "{path}"),
        ("$weir_map_a", "{map.a}", "{map.a}"),
        ("${weir_group_2}", "{2}", "{2}"),
        ("$ssl_server_name", "{tls_sni}", "{tls_sni}"),
        (
            "$ssl_client_s_dn",
            "{client_cert_subject}",
            "{client_cert_subject}",
        ),
        ("$upstream_addr", "{server}", "{server}"),
        ("a$host_b", "", ""),
    ];

    #[test]
    fn equivalents_depend_on_the_use_in_a_redirect() {
        let variables = ServerVariables::new("https", "www.example");
        let in_redirect = variables.for_redirect(true);
        for (text, expected, redirect) in VARIABLES {
            let replace = |variables| replace_variables(text, variables).unwrap_or_default();
            assert_eq!(replace(variables), expected, "{text}");
            assert_eq!(replace(in_redirect), redirect, "redirect to {text}");
            let in_text = replace(in_redirect.for_redirect(false));
            assert_eq!(in_text, expected, "{text} not in a redirect");
        }
    }

    #[test]
    fn text_around_variables_is_unchanged() {
        let variables = ServerVariables::new("http", "");
        for (text, expected) in [
            ("[$https]", Some("[]")),
            ("$host_", None),
            ("$host-$host", Some("{host}-{host}")),
            ("${host}x$uri/", Some("{host}x{path}/")),
            ("plain", Some("plain")),
            ("", Some("")),
            ("${host", None),
            ("$server_name", None),
            ("$", None),
            ("$cookie_A_b", Some("{cookie.A_b}")),
            ("{client}$host", None),
            // A quantifier in a regular expression is not a variable.
            ("a{2,}$host", Some("a{2,}{host}")),
            // `${host}` is a variable of nginx, but `{client}` is literal text.
            ("{client}${host}", None),
        ] {
            let result = replace_variables(text, variables);
            assert_eq!(result.as_deref(), expected, "{text}");
        }
    }
}
