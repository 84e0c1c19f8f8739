//! Decides which requests over TLS get 421: those for a host whose service requires different client certificates.
//!
//! With `sni_host = "same"`, every host other than the SNI is rejected.
//!
//! A client can choose the server name in its handshake (SNI), the address that it connects to and the host in its
//! requests independently. If two services share servers that distinguish hosts, a request through the service without
//! client authentication could reach a host of the service that requires it. The names in the services' certificates
//! determine to which service each host is assigned. HTTP/2 clients can use one connection for several hosts; after a
//! 421, they retry on a new connection (RFC 9110 section 15.5.20).

use std::collections::HashSet;
use std::net::Ipv6Addr;
use std::sync::Arc;

use weir_model::{ClientAuth, ServiceTls, SniHost};

/// Maximum length of a DNS name in bytes (RFC 1035 section 2.3.4).
const MAX_NAME: usize = 253;

/// How specifically a service's certificates match a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Coverage {
    None,
    Wildcard,
    Exact,
}

/// The names in a service's certificates, in lower case.
#[derive(Debug, Default)]
pub(crate) struct Names {
    exact: HashSet<Box<[u8]>>,
    /// Wildcard names without the star: `.example` for `*.example`.
    wildcard_suffixes: HashSet<Box<[u8]>>,
}

impl Names {
    pub(crate) fn new<'a>(names: impl Iterator<Item = &'a str>) -> Self {
        let mut result = Self::default();
        for name in names {
            let name = name.to_ascii_lowercase();
            match name.strip_prefix('*') {
                Some(suffix) => result.wildcard_suffixes.insert(suffix.as_bytes().into()),
                None => result.exact.insert(name.as_bytes().into()),
            };
        }
        result
    }

    /// Returns how specifically the names match `host`, which must be in lower case.
    fn coverage(&self, host: &[u8]) -> Coverage {
        if self.exact.contains(host) {
            return Coverage::Exact;
        }
        let dot = host.iter().position(|byte| *byte == b'.');
        match dot {
            Some(dot) if self.wildcard_suffixes.contains(&host[dot..]) => Coverage::Wildcard,
            _ => Coverage::None,
        }
    }
}

/// The rules for one service; see the module documentation.
#[derive(Debug)]
pub(crate) struct MisdirectRules {
    /// Whether every host except the SNI is rejected.
    only_sni: bool,
    /// This service's names.
    own_names: Arc<Names>,
    /// Names of the services that require different client certificates.
    protected: Vec<Arc<Names>>,
}

impl MisdirectRules {
    /// Builds the rules for a service from its TLS settings, the names in its certificates, and the other services.
    /// Returns `None` if no request is rejected.
    pub(crate) fn new<'a>(
        tls: &ServiceTls,
        own_names: &Arc<Names>,
        others: impl Iterator<Item = (&'a ServiceTls, &'a Arc<Names>)>,
    ) -> Option<Self> {
        if tls.sni_host == SniHost::Ignore {
            return None;
        }
        let is_protected = |other: &ServiceTls| {
            let equivalent = tls.client_auth == ClientAuth::Required
                && tls.client_ca == other.client_ca
                && (other.client_crl.is_none() || tls.client_crl == other.client_crl);
            other.client_ca.is_some() && other.client_auth == ClientAuth::Required && !equivalent
        };
        let protected: Vec<_> = others
            .filter(|(other, _)| is_protected(other))
            .map(|(_, names)| Arc::clone(names))
            .collect();
        let only_sni = tls.sni_host == SniHost::Same;
        (only_sni || !protected.is_empty()).then(|| Self {
            only_sni,
            own_names: Arc::clone(own_names),
            protected,
        })
    }

    /// Returns whether a request for `host` (without port) is rejected on a connection with the SNI `sni`.
    pub(crate) fn rejects(&self, host: &[u8], sni: Option<&str>) -> bool {
        let host = host.strip_suffix(b".").unwrap_or(host);
        let sni = sni.map(|name| name.strip_suffix('.').unwrap_or(name));
        if host.is_empty() {
            return false;
        }
        let is_sni = sni.is_some_and(|name| name.as_bytes().eq_ignore_ascii_case(host));
        // The SNI never contains an address (RFC 6066 section 3).
        if self.only_sni && !is_sni && (sni.is_some() || !is_address(host)) {
            return true;
        }
        let mut buffer = [0; MAX_NAME];
        let Some(lower) = buffer.get_mut(..host.len()) else {
            return false;
        };
        lower.copy_from_slice(host);
        lower.make_ascii_lowercase();
        let own_coverage = self.own_names.coverage(lower);
        // The client has verified this service's certificate for the name, even if a name of another service matches
        // better.
        if own_coverage == Coverage::Exact || (is_sni && own_coverage != Coverage::None) {
            return false;
        }
        self.protected
            .iter()
            .any(|names| names.coverage(lower) > own_coverage)
    }
}

fn is_address(host: &[u8]) -> bool {
    let text = std::str::from_utf8(host).unwrap_or_default();
    let inner = text
        .strip_prefix('[')
        .and_then(|inner| inner.strip_suffix(']'));
    inner.map_or_else(
        || text.parse::<std::net::Ipv4Addr>().is_ok(),
        |inner| inner.parse::<Ipv6Addr>().is_ok(),
    )
}

#[cfg(test)]
mod tests {
    use weir_model::{Source, TlsVersion};

    use super::*;

    fn tls(client_ca: Option<&str>, client_auth: ClientAuth, sni_host: SniHost) -> ServiceTls {
        ServiceTls {
            certificates: Vec::new(),
            strict_sni: false,
            minimum: TlsVersion::default(),
            ciphers: Vec::new(),
            groups: Vec::new(),
            client_ca: client_ca.map(str::to_owned),
            client_crl: None,
            client_auth,
            ticket_keys: Vec::new(),
            sni_host,
            source: Source::default(),
        }
    }

    fn names(names: &[&str]) -> Arc<Names> {
        Arc::new(Names::new(names.iter().copied()))
    }

    #[test]
    fn only_hosts_of_services_with_different_client_authentication_are_rejected() {
        let open = tls(None, ClientAuth::Required, SniHost::ClientAuth);
        let protected = tls(Some("/ca"), ClientAuth::Required, SniHost::ClientAuth);
        let optional = tls(Some("/ca"), ClientAuth::Optional, SniHost::ClientAuth);
        let other = tls(Some("/other"), ClientAuth::Required, SniHost::ClientAuth);
        let off = tls(None, ClientAuth::Required, SniHost::Ignore);
        let (own_names, other_names) = (names(&["a.example"]), names(&["b.example"]));
        let rejects = |tls: &ServiceTls, other: &ServiceTls| {
            MisdirectRules::new(tls, &own_names, [(other, &other_names)].into_iter())
                .is_some_and(|rule| rule.rejects(b"b.example", Some("a.example")))
        };
        assert!(rejects(&open, &protected));
        assert!(rejects(&optional, &protected));
        assert!(rejects(&other, &protected));
        assert!(!rejects(&protected, &protected));
        assert!(!rejects(&protected, &open));
        assert!(!rejects(&open, &optional));
        assert!(!rejects(&off, &protected));
    }

    #[test]
    fn host_is_assigned_to_service_with_most_specific_name() {
        let open = tls(None, ClientAuth::Required, SniHost::ClientAuth);
        let protected = tls(Some("/ca"), ClientAuth::Required, SniHost::ClientAuth);
        let (own_names, other_names) = (
            names(&["*.example", "both.example"]),
            names(&["admin.example", "both.example", "*.inner.example"]),
        );
        let rule = MisdirectRules::new(&open, &own_names, [(&protected, &other_names)].into_iter())
            .unwrap();
        for (host, sni, rejected) in [
            ("admin.example", Some("www.example"), true),
            ("ADMIN.example.", Some("www.example"), true),
            ("admin.example", None, true),
            ("admin.example", Some("admin.example"), false),
            ("both.example", Some("www.example"), false),
            ("www.example", Some("admin.example"), false),
            ("x.inner.example", Some("x.inner.example"), true),
            ("inner.example", Some("www.example"), false),
            ("unknown.test", Some("www.example"), false),
            ("", Some("www.example"), false),
        ] {
            assert_eq!(
                rule.rejects(host.as_bytes(), sni),
                rejected,
                "{host} {sni:?}"
            );
        }
    }

    #[test]
    fn sni_host_same_rejects_every_other_name() {
        let same = tls(None, ClientAuth::Required, SniHost::Same);
        let own_names = names(&["*.example"]);
        let rule = MisdirectRules::new(&same, &own_names, std::iter::empty()).unwrap();
        for (host, sni, rejected) in [
            ("a.example", Some("a.example"), false),
            ("A.example", Some("a.example."), false),
            ("b.example", Some("a.example"), true),
            ("b.example", None, true),
            ("10.0.0.1", None, false),
            ("[::1]", None, false),
            ("10.0.0.1", Some("a.example"), true),
        ] {
            assert_eq!(
                rule.rejects(host.as_bytes(), sni),
                rejected,
                "{host} {sni:?}"
            );
        }
    }
}
