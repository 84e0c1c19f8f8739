//! Parses the target of `proxy_pass`, which is a URL, an upstream or an address, and writes its pool.

use std::net::IpAddr;

use weir_model::{Part, Pool, Template, Variable, unix_socket};

use super::Context;
use super::tree::{Node, inherited};
use super::upstream::{self, keepalive};
use super::variable::{ServerVariables, replace_variables};
use crate::Environment;
use crate::document::{Entry, Item};
use crate::layer7::{self, PoolServer, endpoint, servers_dns};
use crate::note::{Notes, Position};

/// A parsed URL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Url {
    pub(super) tls: bool,
    pub(super) host: String,
    /// The path, or `None` if the URL has none.
    pub(super) path: Option<String>,
}

/// Parses `http://HOST[:PORT][/PATH]`.
pub(super) fn parse_url(text: &str) -> Result<Url, String> {
    // These suffixes append the request's path and query, which servers also receive if the URL has no path.
    let mut suffixes = ["$request_uri", "$uri$is_args$args"].into_iter();
    let text = suffixes
        .find_map(|it| text.strip_suffix(it))
        .unwrap_or(text);
    let (tls, rest) = match (text.strip_prefix("http://"), text.strip_prefix("https://")) {
        (Some(rest), _) => (false, rest),
        (_, Some(rest)) => (true, rest),
        _ => return Err("the target is not an http or https URL".to_owned()),
    };
    // The URL continues with `unix:SOCKET[:PATH]`.
    let (host, path) = match rest.strip_prefix(unix_socket::PREFIX) {
        Some(socket) => match socket.split_once(':') {
            Some((socket, path)) => (
                &rest[..unix_socket::PREFIX.len() + socket.len()],
                (!path.is_empty()).then(|| path.to_owned()),
            ),
            None => (rest, None),
        },
        None => match rest.find('/') {
            Some(offset) => (&rest[..offset], Some(rest[offset..].to_owned())),
            None => (rest, None),
        },
    };
    if text.contains('$') {
        return Err("the target is computed, but a route's pool is fixed".to_owned());
    }
    if host.is_empty() {
        return Err("the host is missing".to_owned());
    }
    Ok(Url {
        tls,
        host: host.to_owned(),
        path,
    })
}

/// Returns the address of a server: a Unix socket, or a numeric address with a port; `port` is the default.
pub(super) fn server_address(
    environment: &dyn Environment,
    text: &str,
    port: u16,
) -> Result<String, String> {
    let Some(path) = text.strip_prefix(unix_socket::PREFIX) else {
        return resolve_address(environment, text, port);
    };
    match unix_socket::path_problem(path) {
        None => Ok(text.to_owned()),
        Some(reason) => Err(reason),
    }
}

/// Returns the numeric address and the port of a host, or the reason why its port is invalid or its name cannot be
/// resolved. `port` is the default port.
pub(super) fn resolve_address(
    environment: &dyn Environment,
    text: &str,
    port: u16,
) -> Result<String, String> {
    let (host, port_text) = match text.rsplit_once(':') {
        Some((host, port)) if host.ends_with(']') || !host.contains(':') => (host, Some(port)),
        _ => (text, None),
    };
    let port = match port_text {
        None => port,
        Some(port_text) => port_text
            .parse()
            .map_err(|_| format!("invalid port {port_text}"))?,
    };
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let address: IpAddr = match host.parse() {
        Ok(address) => address,
        Err(_) if host == "localhost" => std::net::Ipv4Addr::LOCALHOST.into(),
        Err(_) => {
            let resolved_address = environment
                .address(host, false)
                .or_else(|| environment.address(host, true));
            resolved_address.ok_or_else(|| format!("the name {host} cannot be resolved"))?
        }
    };
    Ok(endpoint(address, port))
}

/// Returns an entry of `servers_dns` for a host name, which is resolved at run time. Returns `None` if `text` is an
/// address, localhost, or invalid.
pub(super) fn dns_entry(text: &str, port: u16, position: Position) -> Option<Vec<Entry>> {
    let (host, port) = match text.split_once(':') {
        Some((host, port_text)) => (host, port_text.parse::<u16>().ok()?),
        None => (text, port),
    };
    let is_host_character = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
    let is_name = !host.is_empty()
        && host != "localhost"
        && host.bytes().all(is_host_character)
        && host.parse::<IpAddr>().is_err();
    is_name.then(|| {
        vec![
            Entry::new("name", host, position).essential(),
            Entry::new("port", u64::from(port), position).essential(),
        ]
    })
}

/// The pool of a `proxy_pass`, and its upstream's limit on idle connections.
pub(super) struct PoolRef {
    pub(super) pool: String,
    pub(super) idle_limit: Option<(u64, Position)>,
}

/// Returns the pool of a URL, and writes it if it is new. `tls` contains the keys of the pool's `tls` table, used only
/// for https; `host` is the `Host` sent to the servers instead of the client's.
pub(super) fn find_or_write_pool(
    context: &mut Context<'_>,
    url: &Url,
    (tls, host): (Vec<Entry>, Option<(String, Position)>),
    line: &Node,
    notes: &mut Notes,
) -> Result<PoolRef, String> {
    let scheme = if url.tls { "https" } else { "http" };
    let sent_host = host.as_ref().map_or("", |(host, _)| host.as_str());
    let key = format!("{scheme}://{} {sent_host}", url.host);
    let host = host.map(|(host, position)| Entry::new("host", host, position));
    let port = if url.tls { 443 } else { 80 };
    let tls = if url.tls { tls } else { Vec::new() };
    let existing = context.pools.get(&key).cloned();
    if let Some(node) = context.upstreams.get(&url.host) {
        let idle_limit = keepalive(&node);
        let pool = match existing {
            Some(pool) => pool,
            None => upstream::write(context, &node, (tls, host), 80, notes),
        };
        context.pools.insert(key, pool.clone());
        return Ok(PoolRef { pool, idle_limit });
    }
    if let Some(pool) = existing {
        return Ok(PoolRef {
            pool,
            idle_limit: None,
        });
    }
    let mut entries = Vec::new();
    let mut servers = Vec::new();
    if let Some(name) = dns_entry(&url.host, port, line.position) {
        let name = Item::new(name, Some(line.position));
        entries.extend(servers_dns(vec![name]));
    } else {
        let address = server_address(context.environment, &url.host, port)?;
        servers.push(PoolServer {
            position: line.position,
            entries: vec![Entry::new("address", address, line.position).essential()],
            probes: Vec::new(),
        });
    }
    let socket = url.host.strip_prefix(unix_socket::PREFIX);
    let socket_name = socket.and_then(|path| path.rsplit('/').next());
    let name = context.writer.names.claim(socket_name.unwrap_or(&url.host));
    if !tls.is_empty() {
        entries.push(Entry::implied("tls", tls));
    }
    entries.extend(host);
    context.writer.write_pool(layer7::Pool {
        position: line.position,
        name: name.clone(),
        entries,
        servers,
        probes: None,
        lines: Vec::new(),
    });
    context.pools.insert(key, name.clone());
    Ok(PoolRef {
        pool: name,
        idle_limit: None,
    })
}

/// Returns whether a field is `Host`, which a pool sets with its key `host`.
pub(super) const fn is_host_field(name: &str) -> bool {
    name.eq_ignore_ascii_case("Host")
}

/// Returns the `Host` sent to the servers instead of the client's, and its line: the value that `proxy_set_header Host`
/// sets, or otherwise the name in `proxy_pass`. Returns `None` if servers receive the client's `Host`, or if the value
/// is not supported.
pub(super) fn server_host(
    context: &Context<'_>,
    levels: &[&[Node]],
    url: &Url,
    position: Position,
) -> Option<(String, Position)> {
    let lines = inherited(levels, "proxy_set_header").into_iter();
    // nginx sends this name to a server on a Unix socket.
    let proxy_host = match url.host.starts_with(unix_socket::PREFIX) {
        true => "localhost",
        false => &url.host,
    };
    let Some(line) = lines
        .rev()
        .find(|line| line.word(1).is_some_and(is_host_field))
    else {
        return Some((proxy_host.to_owned(), position));
    };
    let text = match line.word(2)? {
        "$proxy_host" => Some(proxy_host.to_owned()),
        value => parse_host(context, value).ok()?,
    };
    text.map(|text| (text, line.position))
}

/// Converts a value of `Host` to a pool's `host`. Returns `None` if servers receive the client's `Host`, or the reason
/// why the value is not supported.
pub(super) fn parse_host(
    context: &Context<'_>,
    value: &str,
) -> Result<Option<String>, &'static str> {
    if value == "$http_host" || value == "$host" && !context.has_nonstandard_port {
        return Ok(None);
    }
    let variables = ServerVariables::new("", &context.server_name);
    let unsupported = "the value contains an unsupported variable or a name in braces";
    let text = replace_variables(value, variables).ok_or(unsupported)?;
    let parsed = Template::parse(&text).map_err(|_| unsupported)?;
    for part in parsed.parts() {
        match part {
            Part::Text(text) if text.bytes().all(Pool::may_be_in_host_text) => {}
            Part::Text(_) => {
                return Err("the value contains characters that a pool's `host` does not support");
            }
            Part::Variable(Variable::Server | Variable::Group(_) | Variable::Rest) => {
                return Err("the value contains a variable that a pool's `host` does not support");
            }
            Part::Variable(_) => {}
        }
    }
    if text.is_empty() {
        return Err("the value is empty");
    }
    Ok(Some(text))
}

/// Returns the keys of a pool's `tls`. By default, nginx does not verify certificates.
pub(super) fn server_tls(context: &mut Context<'_>, levels: &[&[Node]]) -> Vec<Entry> {
    let mut find = |keyword: &str| {
        let directive = levels
            .iter()
            .find_map(|nodes| nodes.iter().rev().find(|node| node.keyword() == keyword));
        if let Some(node) = directive {
            context.used.insert(node.position);
        }
        directive.and_then(|node| Some((node.word(1)?.to_owned(), node.position)))
    };
    let mut tls = Vec::new();
    match find("proxy_ssl_verify") {
        Some((value, position)) if value == "on" => tls.push(Entry::new("verify", true, position)),
        Some((_, position)) => tls.push(Entry::new("verify", false, position)),
        None => tls.push(Entry::implied("verify", false)),
    }
    if let Some((file, position)) = find("proxy_ssl_trusted_certificate") {
        tls.push(Entry::new("ca", file, position));
    }
    if let Some((name, position)) = find("proxy_ssl_name").filter(|(name, _)| !name.contains('$')) {
        tls.push(Entry::new("server_name", name, position));
    }
    tls
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_parsed() {
        let read = |text: &str| parse_url(text).map(|url| (url.tls, url.host, url.path));
        assert_eq!(read("http://a"), Ok((false, "a".into(), None)));
        assert_eq!(
            read("https://a:8443/x"),
            Ok((true, "a:8443".into(), Some("/x".into())))
        );
        let socket = "unix:/run/x".to_owned();
        assert_eq!(
            read("http://unix:/run/x"),
            Ok((false, socket.clone(), None))
        );
        assert_eq!(
            read("http://unix:/run/x:/y"),
            Ok((false, socket, Some("/y".into())))
        );
        for invalid in ["a", "http://", "http://$host"] {
            assert!(parse_url(invalid).is_err(), "{invalid}");
        }
    }

    use crate::EmptyEnvironment;

    /// An environment that resolves `four` to an IPv4 address, `six` to an IPv6 address, and `both` to both.
    struct Names;

    impl Environment for Names {
        fn read(&self, path: &str) -> Result<String, String> {
            EmptyEnvironment.read(path)
        }

        fn glob(&self, _: &str) -> Vec<String> {
            Vec::new()
        }

        fn address(&self, host: &str, ipv6: bool) -> Option<IpAddr> {
            let text = match (host, ipv6) {
                ("four" | "both", false) => "10.0.0.4",
                ("six" | "both", true) => "2001:db8::6",
                _ => return None,
            };
            text.parse().ok()
        }

        fn port(&self, _: &str, _: &str) -> Option<u16> {
            None
        }

        fn host_name(&self) -> String {
            String::new()
        }

        fn variable(&self, _: &str) -> Option<String> {
            None
        }
    }

    #[test]
    fn server_addresses_are_resolved_and_get_a_default_port() {
        for (text, expected) in [
            ("10.0.0.5", Some("10.0.0.5:80")),
            ("10.0.0.5:8080", Some("10.0.0.5:8080")),
            ("::1", Some("[::1]:80")),
            ("[::1]", Some("[::1]:80")),
            ("[::1]:8080", Some("[::1]:8080")),
            ("localhost", Some("127.0.0.1:80")),
            ("localhost:8080", Some("127.0.0.1:8080")),
            ("four", Some("10.0.0.4:80")),
            ("both:8080", Some("10.0.0.4:8080")),
            ("six", Some("[2001:db8::6]:80")),
            ("other", None),
            ("10.0.0.5:x", None),
            ("10.0.0.5:65536", None),
            ("unix:/run/x", Some("unix:/run/x")),
            ("unix:run/x", None),
            ("unix:", None),
        ] {
            let found = server_address(&Names, text, 80);
            assert_eq!(found.ok().as_deref(), expected, "{text}");
        }
        let error = |text| server_address(&Names, text, 80).err().unwrap_or_default();
        assert_eq!(error("other"), "the name other cannot be resolved");
        assert_eq!(error("four:x"), "invalid port x");
    }

    #[test]
    fn only_host_names_become_dns_entries() {
        for (text, expected) in [
            ("a.example", Some(("a.example", 80))),
            ("a-b_c.example:8080", Some(("a-b_c.example", 8080))),
            ("10.0.0.5", None),
            ("localhost", None),
            ("localhost:8080", None),
            ("::1", None),
            ("[::1]:80", None),
            ("a.example:x", None),
            ("a.example:65536", None),
            ("a$b", None),
            ("", None),
            (":80", None),
        ] {
            let entries = dns_entry(text, 80, Position::FIRST);
            let expected = expected.map(|(name, port): (&str, u64)| {
                vec![
                    ("name", crate::document::Value::from(name)),
                    ("port", crate::document::Value::from(port)),
                ]
            });
            let found = entries.map(|entries| {
                let pairs = entries
                    .into_iter()
                    .map(|entry| (entry.key, entry.item.value));
                pairs.collect::<Vec<_>>()
            });
            assert_eq!(found, expected, "{text}");
        }
    }

    #[test]
    fn suffixes_paths_and_invalid_urls_are_recognized() {
        let read = |text: &str| parse_url(text).map(|url| (url.tls, url.host, url.path));
        let host = || "a".to_owned();
        for text in ["http://a$request_uri", "http://a$uri$is_args$args"] {
            assert_eq!(read(text), Ok((false, host(), None)), "{text}");
        }
        let path = |path: &str| Ok((true, host(), Some(path.to_owned())));
        assert_eq!(read("https://a/"), path("/"));
        assert_eq!(read("https://a/b/c?d"), path("/b/c?d"));
        assert_eq!(read("https://a/b$request_uri"), path("/b"));
        let socket = || "unix:/run/x".to_owned();
        assert_eq!(read("https://unix:/run/x:"), Ok((true, socket(), None)));
        for (text, reason) in [
            ("a", "the target is not an http or https URL"),
            ("ftp://a", "the target is not an http or https URL"),
            ("http://", "the host is missing"),
            ("http:///a", "the host is missing"),
            (
                "http://a/$b",
                "the target is computed, but a route's pool is fixed",
            ),
            (
                "http://$a",
                "the target is computed, but a route's pool is fixed",
            ),
        ] {
            assert_eq!(read(text), Err(reason.to_owned()), "{text}");
        }
    }
}
