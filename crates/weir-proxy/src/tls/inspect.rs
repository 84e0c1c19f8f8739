//! Finds problems with a configuration's TLS files, such as certificates that expire soon or do not cover a route's
//! host.
//!
//! Also reports certificates that are unusable, not yet valid or expired, and unusable CA files and OCSP responses.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::SystemTime;

use rustls::crypto::CryptoProvider;
use rustls::crypto::aws_lc_rs::default_provider;
use weir_model::{Desired, HostPattern, Proxy, ServiceTls, Source};

use super::TlsConnector;
use super::certificate::{self, Certificate, CertificateError};
use super::expiry::{DAY_S, EXPIRY_WARNING_DAYS};
use super::server::client_verifier;
use super::verifier::server_verifier;

/// A problem with a file, an address or a limit that the configuration specifies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// Whether the daemon fails to start or reload. Otherwise the problem is a warning.
    pub fatal: bool,
    /// A one-line description.
    pub message: String,
    /// Why it is a problem: the cause or the consequence.
    pub cause: String,
    /// Advice for the operator.
    pub fix: String,
    /// Position in the configuration.
    pub source: Source,
}

/// Returns the problems with the TLS files that `desired` names, at the time `now`.
pub(crate) fn inspect(desired: &Desired, now: SystemTime) -> Vec<Problem> {
    let now = now
        .duration_since(SystemTime::UNIX_EPOCH)
        .map_or(0, |since| {
            i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
        });
    let provider = default_provider();
    let mut problems = Vec::new();
    for proxy in &desired.proxies {
        let Some(tls) = &proxy.tls else { continue };
        let certificates = check_listener(
            &format!("service {}", proxy.name),
            tls,
            &provider,
            now,
            &mut problems,
        );
        if !certificates.is_empty() {
            report_uncovered_hosts(proxy, &certificates, &mut problems);
        }
    }
    if let Some(tls) = desired
        .node
        .admin
        .as_ref()
        .and_then(|admin| admin.tls.as_ref())
    {
        check_listener("[node] admin", tls, &provider, now, &mut problems);
    }
    for pool in &desired.pools {
        if let Some(tls) = &pool.tls
            && let Err(error) = TlsConnector::new(tls, &[])
        {
            let owner = format!("pool {}", pool.name);
            problems.push(unusable_file(&owner, &error, tls.source));
        }
    }
    problems.extend(inspect_checks(desired));
    problems
}

/// Returns the problems with the CA files of health checks. A check whose CA file cannot be used cannot run, and would
/// never report a failed server.
pub fn inspect_checks(desired: &Desired) -> Vec<Problem> {
    let mut errors: BTreeMap<Option<&str>, Option<CertificateError>> = BTreeMap::new();
    let authorities = desired.check_authorities.iter();
    let problems = authorities.filter_map(|authority| {
        let ca = authority.ca.as_deref();
        let error = errors
            .entry(ca)
            .or_insert_with(|| server_verifier(ca).err());
        let error = error.as_ref()?;
        Some(unusable_file("health check", error, authority.source))
    });
    problems.collect()
}

fn unusable_file(owner: &str, error: &CertificateError, source: Source) -> Problem {
    Problem {
        fatal: true,
        message: format!("{owner}: {error}"),
        cause: "the daemon cannot start or reload with this configuration".to_owned(),
        fix: error.fix().to_owned(),
        source,
    }
}

/// Checks a listener's TLS files. Returns the usable certificates.
fn check_listener(
    owner: &str,
    tls: &ServiceTls,
    provider: &CryptoProvider,
    now: i64,
    problems: &mut Vec<Problem>,
) -> Vec<Certificate> {
    let problem = |error: &CertificateError| unusable_file(owner, error, tls.source);
    let mut certificates = Vec::new();
    match certificate::load_all(&tls.certificates, provider) {
        Err(error) => problems.push(problem(&error)),
        Ok(results) => {
            for result in results {
                match result {
                    Ok(certificate) => certificates.push(certificate),
                    Err(error) => problems.push(problem(&error)),
                }
            }
        }
    }
    if let Some(path) = &tls.client_ca {
        let provider = Arc::new(provider.clone());
        if let Err(error) = client_verifier(tls, path, provider) {
            problems.push(problem(&error));
        }
    }
    for certificate in &certificates {
        problems.extend(check_validity(certificate, now, tls.source));
        problems.extend(check_ocsp(certificate, tls.source));
    }
    certificates
}

fn check_validity(certificate: &Certificate, now: i64, source: Source) -> Option<Problem> {
    let path = certificate.path.display();
    let info = &certificate.info;
    let (message, cause, fix) = if now < info.not_before {
        (
            format!("{path}: the certificate is not valid yet"),
            "clients reject it until it is valid".to_owned(),
            "check this machine's clock and the file",
        )
    } else if now >= info.not_after {
        let days = (now - info.not_after) / DAY_S;
        (
            format!("{path}: the certificate expired {}", ago(days)),
            "clients reject it".to_owned(),
            "renew it; Weir loads the new file within 10 s",
        )
    } else {
        let days = (info.not_after - now) / DAY_S;
        if days >= EXPIRY_WARNING_DAYS {
            return None;
        }
        (
            format!("{path}: the certificate expires {}", within(days)),
            "clients will reject it after that".to_owned(),
            "renew it; Weir loads the new file within 10 s",
        )
    };
    Some(Problem {
        fatal: false,
        message,
        cause,
        fix: fix.to_owned(),
        source,
    })
}

fn check_ocsp(certificate: &Certificate, source: Source) -> Option<Problem> {
    let (path, fault) = certificate.rejected_ocsp.as_ref()?;
    Some(Problem {
        fatal: false,
        message: format!("{}: {fault}", path.display()),
        cause: "the response is not stapled, because clients would reject the connection"
            .to_owned(),
        fix: "fetch a new response and run `weir reload`, or remove the file".to_owned(),
        source,
    })
}

/// Describes when a certificate that is valid for `days` more full days expires.
fn within(days: i64) -> String {
    match days {
        0 => "within a day".to_owned(),
        1 => "in 1 day".to_owned(),
        days => format!("in {days} days"),
    }
}

fn ago(days: i64) -> String {
    match days {
        0 => "less than a day ago".to_owned(),
        1 => "1 day ago".to_owned(),
        days => format!("{days} days ago"),
    }
}

/// Reports route hosts that no certificate covers.
fn report_uncovered_hosts(
    proxy: &Proxy,
    certificates: &[Certificate],
    problems: &mut Vec<Problem>,
) {
    let covers = |name: &str, host: &str| match name.strip_prefix('*') {
        Some(suffix) => host.find('.').is_some_and(|dot| host[dot..] == *suffix),
        None => name == host,
    };
    let hosts = proxy
        .routes
        .iter()
        .flat_map(|route| route.when.hosts.iter().map(move |host| (route, host)));
    for (route, host) in hosts {
        let HostPattern::Exact(host) = host else {
            continue;
        };
        let is_covered = certificates
            .iter()
            .flat_map(|certificate| &certificate.info.names)
            .any(|name| covers(name, host));
        if !is_covered && host.parse::<std::net::IpAddr>().is_err() && !host.starts_with('[') {
            problems.push(Problem {
                fatal: false,
                message: format!("service {}: no certificate covers {host}", proxy.name),
                cause:
                    "clients that request this host receive a certificate for a different host and reject it"
                        .to_owned(),
                fix: "add a certificate for this host, or remove the route".to_owned(),
                source: route.source,
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn last_day_is_not_shown_as_zero_days() {
        assert_eq!(within(0), "within a day");
        assert_eq!(within(1), "in 1 day");
        assert_eq!(within(2), "in 2 days");
    }
}
