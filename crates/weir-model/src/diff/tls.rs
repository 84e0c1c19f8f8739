//! Computes the changes to the TLS settings for clients and for servers.

use super::edit::{Edits, or_none};
use crate::{Secret, ServerTls, ServiceTls, SniHost, TlsVersion};

/// Compares the `tls` setting of a service or of the admin listener.
pub(super) fn of_service(
    edits: Edits,
    old: Option<&ServiceTls>,
    new: Option<&ServiceTls>,
) -> Edits {
    let edits = edits.table("tls", old, new, service_summary, |edits, old, new| {
        edits
            .compare("certificates", &old.certificates, &new.certificates, |it| {
                it.join(" ")
            })
            .compare(
                "strict_sni",
                old.strict_sni,
                new.strict_sni,
                bool::to_string,
            )
            .compare("minimum", old.minimum, new.minimum, version)
            .compare("ciphers", &old.ciphers, &new.ciphers, |it| {
                or_default(it.iter().map(|it| it.as_str()))
            })
            .compare("groups", &old.groups, &new.groups, |it| {
                or_default(it.iter().map(|it| it.as_str()))
            })
            .compare("client_ca", &old.client_ca, &new.client_ca, |it| {
                or_none(it.as_ref())
            })
            .compare("client_crl", &old.client_crl, &new.client_crl, |it| {
                or_none(it.as_ref())
            })
            .compare("client_auth", old.client_auth, new.client_auth, |it| {
                it.as_str().to_owned()
            })
            .compare("sni_host", old.sni_host, new.sni_host, |it| {
                it.as_str().to_owned()
            })
    });
    edits.compare_secrets("tls.ticket_keys", &ticket_keys(old), &ticket_keys(new))
}

/// Compares the `tls` setting of a pool.
pub(super) fn of_pool(edits: Edits, old: Option<&ServerTls>, new: Option<&ServerTls>) -> Edits {
    edits.table("tls", old, new, pool_summary, |edits, old, new| {
        edits
            .compare("verify", old.verify, new.verify, bool::to_string)
            .compare("ca", &old.ca, &new.ca, |it| or_none(it.as_ref()))
            .compare("server_name", &old.server_name, &new.server_name, |it| {
                or_none(it.as_ref())
            })
            .compare("certificate", &old.certificate, &new.certificate, |it| {
                or_none(it.as_ref())
            })
            .compare("minimum", old.minimum, new.minimum, version)
    })
}

fn version(version: &TlsVersion) -> String {
    version.as_str().to_owned()
}

fn or_default<'a>(names: impl Iterator<Item = &'a str>) -> String {
    let names: Vec<&str> = names.collect();
    match names.as_slice() {
        [] => "default".to_owned(),
        names => names.join(" "),
    }
}

fn ticket_keys(tls: Option<&ServiceTls>) -> Vec<&Secret> {
    tls.iter().flat_map(|tls| &tls.ticket_keys).collect()
}

fn service_summary(tls: &ServiceTls) -> String {
    let mut text = tls.certificates_text();
    if tls.minimum != TlsVersion::default() {
        text += &format!(", from version {}", tls.minimum.as_str());
    }
    if !tls.ciphers.is_empty() {
        let ciphers = or_default(tls.ciphers.iter().map(|it| it.as_str()));
        text += &format!(", ciphers {ciphers}");
    }
    if !tls.groups.is_empty() {
        let groups = or_default(tls.groups.iter().map(|it| it.as_str()));
        text += &format!(", groups {groups}");
    }
    if tls.strict_sni {
        text += ", strict_sni";
    }
    if let Some(authorities) = &tls.client_ca {
        let auth = tls.client_auth.as_str();
        text += &format!(", {auth} client certificates, verified with {authorities}");
    }
    if tls.sni_host != SniHost::default() {
        text += &format!(", sni_host {}", tls.sni_host.as_str());
    }
    text
}

fn pool_summary(tls: &ServerTls) -> String {
    let mut text = if tls.verify {
        "verified"
    } else {
        "not verified"
    }
    .to_owned();
    if tls.minimum != TlsVersion::default() {
        text += &format!(", from version {}", tls.minimum.as_str());
    }
    let settings = [
        ("ca", &tls.ca),
        ("server_name", &tls.server_name),
        ("certificate", &tls.certificate),
    ];
    for (key, value) in settings {
        if let Some(value) = value {
            text += &format!(", {key} {value}");
        }
    }
    text
}
