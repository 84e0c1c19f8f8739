//! Defines a web server to which Weir sends notifications or traces.

use std::net::Ipv6Addr;
use std::num::NonZeroU16;

/// A receiver's URL: `http://HOST[:PORT]/PATH`, or the same with `https`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct HttpReceiver {
    /// Whether TLS is used.
    pub is_secure: bool,
    /// Name or address, and the port: `hooks.example:80`.
    pub authority: String,
    /// Path and query.
    pub path: String,
    /// File with the CA certificates that verify the server; `None` = the system's CA certificates.
    pub ca: Option<String>,
}

impl HttpReceiver {
    /// Parses a URL.
    ///
    /// # Errors
    /// Returns the problem for a diagnostic.
    pub fn parse(url: &str) -> Result<Self, &'static str> {
        let (is_secure, rest) = match (url.strip_prefix("http://"), url.strip_prefix("https://")) {
            (Some(rest), _) => (false, rest),
            (None, Some(rest)) => (true, rest),
            (None, None) => return Err("the URL must begin with `http://` or `https://`"),
        };
        let is_plain = |byte: u8| byte.is_ascii_graphic();
        if !rest.bytes().all(is_plain) {
            return Err("the URL contains a space or a character that is not ASCII");
        }
        let path_start = rest.find('/').unwrap_or(rest.len());
        let (authority, path) = rest.split_at(path_start);
        if authority.is_empty() || authority.contains(['@', '?', '#']) {
            return Err("the URL has no host, or contains a user name");
        }
        let default_port = if is_secure { 443 } else { 80 };
        let (host, port) = split_port(authority).ok_or("the URL's host or port is invalid")?;
        Ok(Self {
            is_secure,
            authority: format!("{host}:{}", port.unwrap_or(default_port)),
            path: if path.is_empty() { "/" } else { path }.to_owned(),
            ca: None,
        })
    }

    /// Returns the host without the port and without brackets.
    pub fn host(&self) -> &str {
        let host = self
            .authority
            .rsplit_once(':')
            .map_or(self.authority.as_str(), |(host, _)| host);
        host.trim_start_matches('[').trim_end_matches(']')
    }
}

/// Splits `HOST[:PORT]`. An IPv6 address is in brackets.
fn split_port(authority: &str) -> Option<(&str, Option<u16>)> {
    let host_end = match authority.strip_prefix('[') {
        Some(rest) => {
            let (address, _) = rest.split_once(']')?;
            address.parse::<Ipv6Addr>().ok()?;
            address.len() + 2
        }
        None => authority.find(':').unwrap_or(authority.len()),
    };
    let (host, port) = authority.split_at(host_end);
    if host.is_empty() {
        return None;
    }
    if port.is_empty() {
        return Some((host, None));
    }
    let digits = port.strip_prefix(':')?;
    let port: NonZeroU16 = digits.parse().ok()?;
    digits
        .bytes()
        .all(|byte| byte.is_ascii_digit())
        .then_some((host, Some(port.get())))
}

/// Formats the URL.
impl std::fmt::Display for HttpReceiver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let scheme = if self.is_secure { "https" } else { "http" };
        write!(f, "{scheme}://{}{}", self.authority, self.path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_split_into_authority_and_path() {
        let parsed =
            |url| HttpReceiver::parse(url).map(|it| (it.to_string(), it.host().to_owned()));
        let expected = |url: &str, host: &str| Ok((url.to_owned(), host.to_owned()));
        assert_eq!(parsed("http://h"), expected("http://h:80/", "h"));
        assert_eq!(parsed("https://h"), expected("https://h:443/", "h"));
        assert_eq!(
            parsed("http://h:8080/a?b"),
            expected("http://h:8080/a?b", "h")
        );
        assert_eq!(
            parsed("https://[::1]:9/x"),
            expected("https://[::1]:9/x", "::1")
        );
        assert_eq!(
            parsed("http://[::1]/x"),
            expected("http://[::1]:80/x", "::1")
        );
        for invalid in ["ftp://h", "http:///x", "http://u@h/", "http://h/a b", "h"] {
            assert!(parsed(invalid).is_err(), "{invalid}");
        }
    }

    #[test]
    fn invalid_ports_and_addresses_are_rejected() {
        for authority in [
            "h:65536", "h:0", "h:", "h:+80", "h:x", "h:1:2", ":80", "::1", "[::1", "[h]",
            "[::1]80", "[::1]:",
        ] {
            let result = HttpReceiver::parse(&format!("http://{authority}/"));
            assert!(result.is_err(), "{authority}: {result:?}");
        }
    }
}
