//! Checks the `Host` and `Origin` header fields of requests.
//!
//! A malicious web page in an operator's browser can send requests to this server if the attacker's DNS server resolves
//! the page's host name to this server's address (DNS rebinding). `Host` then contains that name. Therefore only
//! configured names, the address that received the request and, on loopback, `localhost` and other loopback addresses
//! are accepted. The host and port in `Origin`, if present, must match `Host`. Changes require a token in a header
//! field that pages of other origins cannot set.

use std::net::{IpAddr, SocketAddr};

use axum::http::uri::Authority;
use axum::http::{HeaderMap, Uri, Version, header};

/// Why a request's host or origin is rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HostError {
    /// `Host` is missing, repeated or invalid.
    Malformed,
    /// The name or address in `Host` is not accepted.
    Host,
    /// The host and port in `Origin` do not match `Host`: the request comes from a page with a different origin.
    Origin,
}

/// Checks that a request that was received at the address `local` is intended for this server. `names` are the
/// configured names, in lower case; a name without a port matches any port.
pub(super) fn check(
    (version, uri, headers): (Version, &Uri, &HeaderMap),
    names: &[String],
    local: SocketAddr,
) -> Result<(), HostError> {
    let mut fields = headers.get_all(header::HOST).iter();
    let host = match (fields.next(), fields.next()) {
        (Some(field), None) => Some(field.as_bytes()),
        // HTTP/1.0 does not require `Host`, and browsers do not send HTTP/1.0 requests.
        (None, _) if version == Version::HTTP_10 => None,
        _ => return Err(HostError::Malformed),
    };
    let host = host
        .map(|host| Authority::try_from(host).map_err(|_| HostError::Malformed))
        .transpose()?;
    for authority in host.iter().chain(uri.authority()) {
        if authority.as_str().contains('@') {
            return Err(HostError::Malformed);
        }
        if !is_accepted(authority, names, local) {
            return Err(HostError::Host);
        }
    }
    let origin_matches_host = |origin: &[u8]| {
        let rest = origin.strip_scheme()?;
        let host = host.as_ref()?;
        rest.eq_ignore_ascii_case(host.as_str().as_bytes())
            .then_some(())
    };
    let origins = headers.get_all(header::ORIGIN);
    if origins
        .iter()
        .all(|origin| origin_matches_host(origin.as_bytes()).is_some())
    {
        Ok(())
    } else {
        Err(HostError::Origin)
    }
}

/// Checks a request on the Unix socket. `Host`, if present, must be an address or a name without a dot; public DNS
/// servers do not resolve such names. The host and port in `Origin`, if present, must match `Host`.
pub(super) fn check_socket(headers: &HeaderMap) -> Result<(), HostError> {
    let mut fields = headers.get_all(header::HOST).iter();
    let host = match (fields.next(), fields.next()) {
        (Some(field), None) => {
            Some(Authority::try_from(field.as_bytes()).map_err(|_| HostError::Malformed)?)
        }
        (None, _) => None,
        _ => return Err(HostError::Malformed),
    };
    if let Some(host) = &host {
        let name = host.host().trim_start_matches('[').trim_end_matches(']');
        if name.contains('.') && name.parse::<IpAddr>().is_err() {
            return Err(HostError::Host);
        }
    }
    let host = host.as_ref().map(Authority::as_str);
    let mut origins = headers.get_all(header::ORIGIN).iter();
    let origin_matches_host = |origin: &[u8]| {
        origin
            .strip_scheme()
            .zip(host)
            .is_some_and(|(rest, host)| rest.eq_ignore_ascii_case(host.as_bytes()))
    };
    if origins.all(|origin| origin_matches_host(origin.as_bytes())) {
        Ok(())
    } else {
        Err(HostError::Origin)
    }
}

trait StripScheme {
    /// Returns the part after `http://` or `https://`.
    fn strip_scheme(&self) -> Option<&[u8]>;
}

impl StripScheme for [u8] {
    fn strip_scheme(&self) -> Option<&[u8]> {
        self.strip_prefix(b"https://")
            .or_else(|| self.strip_prefix(b"http://"))
    }
}

fn is_accepted(authority: &Authority, names: &[String], local: SocketAddr) -> bool {
    let name = authority.host().to_ascii_lowercase();
    let port = authority.port_u16();
    let is_listed = names.iter().any(|listed_name| {
        *listed_name == name || port.is_some_and(|port| *listed_name == format!("{name}:{port}"))
    });
    if is_listed {
        return true;
    }
    // If there is no port, the default port of the scheme applies.
    let is_port_accepted =
        port.unwrap_or(80) == local.port() || port.is_none() && local.port() == 443;
    let address = name.trim_start_matches('[').trim_end_matches(']');
    let local_ip = local.ip().to_canonical();
    is_port_accepted
        && match address.parse::<IpAddr>() {
            Ok(address) => {
                let address = address.to_canonical();
                address == local_ip || address.is_loopback() && local_ip.is_loopback()
            }
            Err(_) => name == "localhost" && local_ip.is_loopback(),
        }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_request(local: &str, fields: &[(&str, &str)]) -> Result<(), HostError> {
        let mut headers = HeaderMap::new();
        for (name, value) in fields {
            let name = header::HeaderName::try_from(*name).unwrap();
            headers.append(name, value.parse().unwrap());
        }
        let names = ["lb1.example".to_owned(), "tunnel:8443".to_owned()];
        let uri = Uri::from_static("/v1/status");
        let request = (Version::HTTP_11, &uri, &headers);
        check(request, &names, local.parse().unwrap())
    }

    #[test]
    fn only_configured_and_local_host_names_are_accepted() {
        for (local, host) in [
            ("127.0.0.1:9900", "127.0.0.1:9900"),
            ("127.0.0.1:9900", "localhost:9900"),
            ("127.0.0.1:9900", "LOCALHOST:9900"),
            ("127.0.0.1:9900", "127.0.0.2:9900"),
            ("[::1]:9900", "[::1]:9900"),
            ("[::ffff:127.0.0.1]:9900", "127.0.0.1:9900"),
            ("10.0.0.1:9900", "10.0.0.1:9900"),
            ("10.0.0.1:443", "10.0.0.1"),
            ("10.0.0.1:9900", "lb1.example"),
            ("10.0.0.1:9900", "lb1.example:1"),
            ("127.0.0.1:9900", "tunnel:8443"),
        ] {
            assert_eq!(
                check_request(local, &[("host", host)]),
                Ok(()),
                "{local} {host}"
            );
        }
        for (local, host) in [
            ("127.0.0.1:9900", "evil.example"),
            ("127.0.0.1:9900", "evil.example:9900"),
            ("127.0.0.1:9900", "localhost"),
            ("127.0.0.1:9900", "localhost:80"),
            ("127.0.0.1:9900", "localhost.evil.example:9900"),
            ("127.0.0.1:9900", "127.0.0.1.evil.example:9900"),
            ("127.0.0.1:9900", "10.0.0.1:9900"),
            ("10.0.0.1:9900", "127.0.0.1:9900"),
            ("10.0.0.1:9900", "localhost:9900"),
            ("127.0.0.1:9900", "tunnel:8444"),
            ("127.0.0.1:9900", "tunnel"),
        ] {
            let result = check_request(local, &[("host", host)]);
            assert_eq!(result, Err(HostError::Host), "{local} {host}");
        }
    }

    #[test]
    fn socket_rejects_pages_of_other_origins_and_public_names() {
        let check_fields = |fields: &[(&str, &str)]| {
            let mut headers = HeaderMap::new();
            for (name, value) in fields {
                let name = header::HeaderName::try_from(*name).unwrap();
                headers.append(name, value.parse().unwrap());
            }
            check_socket(&headers)
        };
        for host in ["weir", "localhost:9900", "127.0.0.1:9900", "[::1]:9900"] {
            assert_eq!(check_fields(&[("host", host)]), Ok(()), "{host}");
            let origin = format!("http://{host}");
            assert_eq!(check_fields(&[("host", host), ("origin", &origin)]), Ok(()));
            for origin in ["http://evil.example", "null", "http://localhost:1"] {
                let result = check_fields(&[("host", host), ("origin", origin)]);
                assert_eq!(result, Err(HostError::Origin), "{host} {origin}");
            }
        }
        assert_eq!(
            check_fields(&[]),
            Ok(()),
            "a client without `Host` is not a browser"
        );
        let public = check_fields(&[("host", "evil.example:9900")]);
        assert_eq!(public, Err(HostError::Host));
        let two = [("host", "a"), ("host", "b")];
        assert_eq!(check_fields(&two), Err(HostError::Malformed));
    }

    #[test]
    fn one_host_header_and_same_origin_are_required() {
        let local = "127.0.0.1:9900";
        let host = ("host", "localhost:9900");
        assert_eq!(check_request(local, &[]), Err(HostError::Malformed));
        assert_eq!(
            check_request(local, &[host, host]),
            Err(HostError::Malformed)
        );
        let user = ("host", "evil@localhost:9900");
        assert_eq!(check_request(local, &[user]), Err(HostError::Malformed));
        let origin = |origin| check_request(local, &[host, ("origin", origin)]);
        assert_eq!(origin("http://localhost:9900"), Ok(()));
        for other in [
            "http://localhost:9901",
            "http://evil.example",
            "null",
            "localhost:9900",
        ] {
            assert_eq!(origin(other), Err(HostError::Origin), "{other}");
        }
    }
}
