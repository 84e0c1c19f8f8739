//! Parses the URLs of etcd members.

use std::fmt;

/// The URL of an etcd member, `http://HOST:PORT` or `https://HOST:PORT`; the default port is 2379.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct EtcdEndpoint {
    /// Whether TLS is used.
    pub tls: bool,
    /// Host name or address, without brackets.
    pub host: String,
    /// TCP port.
    pub port: u16,
}

/// The text is not the URL of an etcd member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InvalidEndpoint;

/// Default port.
const PORT: u16 = 2379;

impl EtcdEndpoint {
    /// Parses a URL without a path.
    ///
    /// # Errors
    /// Returns [`InvalidEndpoint`] if the text is not the URL of an etcd member.
    pub fn parse(text: &str) -> Result<Self, InvalidEndpoint> {
        let (scheme, rest) = text.split_once("://").ok_or(InvalidEndpoint)?;
        let tls = match scheme {
            "https" => true,
            "http" => false,
            _ => return Err(InvalidEndpoint),
        };
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        let (host, port) = match rest.strip_prefix('[') {
            Some(rest) => {
                let (host, port) = rest.split_once(']').ok_or(InvalidEndpoint)?;
                host.parse::<std::net::Ipv6Addr>()
                    .map_err(|_| InvalidEndpoint)?;
                let port = match port.strip_prefix(':') {
                    Some(port) => Some(port),
                    None if port.is_empty() => None,
                    None => return Err(InvalidEndpoint),
                };
                (host, port)
            }
            None => match rest.split_once(':') {
                Some((host, port)) => (host, Some(port)),
                None => (rest, None),
            },
        };
        let is_host_char = |c: char| c.is_ascii_alphanumeric() || "-.:_".contains(c);
        if host.is_empty() || !host.chars().all(is_host_char) {
            return Err(InvalidEndpoint);
        }
        let port = match port {
            Some(port) => port.parse().map_err(|_| InvalidEndpoint)?,
            None => PORT,
        };
        if port == 0 {
            return Err(InvalidEndpoint);
        }
        Ok(Self {
            tls,
            host: host.to_owned(),
            port,
        })
    }
}

impl EtcdEndpoint {
    /// Returns whether the member runs on this machine, which means that the host is a loopback address or `localhost`.
    pub fn is_local(&self) -> bool {
        let address = self.host.parse::<std::net::IpAddr>();
        address.map_or_else(|_| self.host == "localhost", |it| it.is_loopback())
    }
}

impl fmt::Display for EtcdEndpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.tls { "https" } else { "http" };
        let Self { host, port, .. } = self;
        match host.contains(':') {
            true => write!(f, "{scheme}://[{host}]:{port}"),
            false => write!(f, "{scheme}://{host}:{port}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_are_urls_without_a_path() {
        for (text, shown) in [
            ("http://127.0.0.1", "http://127.0.0.1:2379"),
            (
                "https://etcd-1.example:4001/",
                "https://etcd-1.example:4001",
            ),
            ("https://[2001:db8::1]", "https://[2001:db8::1]:2379"),
        ] {
            assert_eq!(EtcdEndpoint::parse(text).unwrap().to_string(), shown);
        }
        let is_local = |text| EtcdEndpoint::parse(text).unwrap().is_local();
        assert!(
            is_local("http://127.0.0.2")
                && is_local("http://[::1]:1")
                && is_local("http://localhost")
        );
        assert!(!is_local("http://10.0.0.1") && !is_local("http://localhost.example"));
        for wrong in [
            "127.0.0.1:2379",
            "ftp://a",
            "http://",
            "http://a/b",
            "http://a:0",
            "http://[::1",
            "http://a:b",
            "http://user@a",
        ] {
            assert_eq!(EtcdEndpoint::parse(wrong), Err(InvalidEndpoint), "{wrong}");
        }
    }
}
