//! Converts `bind` lines to addresses to listen on and TLS settings.

use std::collections::HashSet;

use crate::Environment;
use crate::document::{Entry, Item, Value};
use crate::guard::CERTIFICATE_OPTIONS;
use crate::note::{Notes, Position};
use crate::tls_suite::{self, ListText};

use super::line::Line;

/// The addresses and the TLS settings of a frontend's `bind` lines.
#[derive(Debug, Default)]
pub(super) struct Binds {
    listen: Vec<Bind>,
    /// Files and directories of certificates.
    certificates: Vec<Item>,
    /// Other keys of `tls`.
    keys: Vec<Entry>,
    /// Position of the first bind that added no address, and whether it uses TLS.
    first_unusable: Option<(Position, bool)>,
}

/// Data that the binds of a file share.
pub(super) struct BindContext<'f> {
    pub(super) environment: &'f dyn Environment,
    /// Base directory for relative paths in certificate lists.
    pub(super) base: &'f str,
    /// Returns whether a frontend listens on 0.0.0.0 with this port.
    pub(super) is_ipv4_port_taken: &'f dyn Fn(&str) -> bool,
    /// Addresses that earlier sections listen on.
    pub(super) listen_addresses: &'f HashSet<String>,
    /// The lists of the `ssl-default-bind-…` lines in `global`.
    pub(super) suites: &'f Suites,
}

/// Lists of cipher suites and groups.
#[derive(Clone, Debug, Default)]
pub(super) struct Suites {
    /// Cipher suites of TLS 1.2.
    pub(super) ciphers: Option<ListText>,
    /// Cipher suites of TLS 1.3.
    pub(super) ciphersuites: Option<ListText>,
    /// Groups.
    pub(super) curves: Option<ListText>,
}

impl Suites {
    /// Stores the list of an option. Returns whether the option takes a list of suites or groups.
    pub(super) fn set(&mut self, option: &str, text: String, position: Position) -> bool {
        let list = match option {
            "ciphers" => &mut self.ciphers,
            "ciphersuites" => &mut self.ciphersuites,
            "curves" => &mut self.curves,
            _ => return false,
        };
        *list = Some((text, position));
        true
    }
}

/// An address to listen on.
#[derive(Clone, Debug)]
struct Bind {
    address: String,
    position: Position,
    tls: bool,
    /// Whether clients use the PROXY protocol.
    proxy_protocol: bool,
}

/// Maximum number of ports that are imported from one range.
const MAX_PORTS: usize = 256;

/// Certificate directory for a TLS service whose `bind` lines name no certificates.
const DEFAULT_DIRECTORY: &str = "/etc/weir/certs";

impl Binds {
    pub(super) fn is_empty(&self) -> bool {
        self.listen.is_empty()
    }

    /// Returns the addresses for one combination of TLS and the PROXY protocol; each combination becomes a service.
    pub(super) fn addresses_with(
        &self,
        tls: bool,
        proxy_protocol: bool,
    ) -> Vec<(String, Position)> {
        let has_settings = |bind: &&Bind| bind.tls == tls && bind.proxy_protocol == proxy_protocol;
        let binds = self.listen.iter().filter(has_settings);
        binds
            .map(|bind| (bind.address.clone(), bind.position))
            .collect()
    }

    pub(super) fn read(&mut self, line: &Line, context: &BindContext<'_>, notes: &mut Notes) {
        let Some(addresses) = line.word(1) else {
            return line.reject(notes, "haproxy requires an address");
        };
        let has_option = |option: &str| line.words.iter().skip(2).any(|word| word == option);
        let (tls, proxy_protocol) = (has_option("ssl"), has_option("accept-proxy"));
        let count_before = self.listen.len();
        for address in addresses.split(',').filter(|address| !address.is_empty()) {
            let endpoints = match parse_endpoints(address, context.environment) {
                Ok(endpoints) => endpoints,
                Err(UnusableAddress {
                    reason,
                    replacements: None,
                }) => {
                    line.reject(notes, &reason);
                    continue;
                }
                Err(UnusableAddress {
                    reason,
                    replacements,
                }) => {
                    let replacements: Vec<String> = replacements.into_iter().flatten().collect();
                    let usage = match replacements.as_slice() {
                        [first, .., last] => format!("{first} to {last} are used"),
                        names => format!("{} is used", names.concat()),
                    };
                    let reason = format!("{reason}; {usage} instead");
                    notes.add(line.position, reason);
                    replacements
                }
            };
            // Without `v6only`, haproxy's socket also accepts IPv4.
            let ipv4_ports = endpoints.iter().filter_map(|it| it.strip_prefix("[::]:"));
            let ipv4_ports = ipv4_ports
                .filter(|port| !has_option("v6only") && !(context.is_ipv4_port_taken)(port));
            let ipv4_ports: Vec<String> =
                ipv4_ports.map(|port| format!("0.0.0.0:{port}")).collect();
            for address in endpoints.into_iter().chain(ipv4_ports) {
                if context.listen_addresses.contains(&address) {
                    let reason = format!("not imported: an earlier section listens on {address}");
                    notes.add(line.position, reason);
                    continue;
                }
                if self
                    .listen
                    .iter()
                    .all(|existing| existing.address != address)
                {
                    self.listen.push(Bind {
                        address,
                        position: line.position,
                        tls,
                        proxy_protocol,
                    });
                }
            }
        }
        if self.listen.len() == count_before && self.first_unusable.is_none() {
            self.first_unusable = Some((line.position, tls));
        }
        self.read_options(line, context, notes);
    }

    /// Adds an address if there is none, so that the rules can be imported, and a certificate directory if TLS has no
    /// certificates. `free_port` returns a free port; `required` is the line of the section if it must have an address.
    pub(super) fn complete(
        &mut self,
        required: Option<Position>,
        free_port: impl FnOnce() -> u16,
        notes: &mut Notes,
    ) {
        let first_unusable = self
            .first_unusable
            .or(required.map(|section| (section, false)));
        if let Some((position, tls)) = first_unusable.filter(|_| self.listen.is_empty()) {
            let address = format!("127.0.0.1:{}", free_port());
            notes.add(
                position,
                format!(
                    "Weir cannot listen on any address of this section; the service listens on {address}, which all \
                     processes on this host can reach"
                ),
            );
            self.listen.push(Bind {
                address,
                position,
                tls,
                proxy_protocol: false,
            });
        }
        let tls_binds = self.listen.iter().find(|bind| bind.tls);
        if let Some(bind) = tls_binds.filter(|_| self.certificates.is_empty()) {
            // Without `tls`, the service would accept unencrypted connections.
            notes.add(
                bind.position,
                format!("the certificates are not imported: place them in {DEFAULT_DIRECTORY}"),
            );
            let item = Item::new(DEFAULT_DIRECTORY, Some(bind.position));
            self.certificates.push(item);
        }
    }

    /// Returns all addresses.
    pub(super) fn addresses(&self) -> impl Iterator<Item = String> {
        self.listen.iter().map(|bind| bind.address.clone())
    }

    /// Returns the keys of `tls`.
    pub(super) fn tls(&self) -> Vec<Entry> {
        let mut entry = Entry::implied("certificates", self.certificates.clone()).essential();
        if let [only] = self.certificates.as_slice() {
            entry.item = only.clone();
        }
        let certificates = std::iter::once(entry).filter(|_| !self.certificates.is_empty());
        certificates.chain(self.keys.iter().cloned()).collect()
    }

    fn add_certificate(&mut self, path: &str, position: Position) {
        let item = Item::new(path, Some(position));
        if !self.certificates.contains(&item) {
            self.certificates.push(item);
        }
    }

    /// Adds the certificates of `crt-list FILE`: one per line, optionally with options in brackets and SNI filters.
    fn read_crt_list(
        &mut self,
        file: &str,
        line: &Line,
        context: &BindContext<'_>,
        notes: &mut Notes,
    ) {
        let text = match context.environment.read(file) {
            Ok(text) => text,
            Err(reason) => {
                let reason = format!("the certificates in {file} are not imported: {reason}");
                return notes.add(line.position, reason);
            }
        };
        let lines = text.lines().map(str::trim);
        for entry in lines.filter(|entry| !entry.is_empty() && !entry.starts_with('#')) {
            let path = entry.split([' ', '\t', '[']).next().unwrap_or_default();
            self.add_certificate(&absolute_path(path, context.base), line.position);
            let options_and_filters = &entry[path.len()..];
            if options_and_filters.contains(['[', '!']) {
                let reason =
                    format!("{path} in {file}: options and negative SNI filters are not imported");
                notes.add(line.position, reason);
            } else if !options_and_filters.trim().is_empty() {
                let reason = format!(
                    "{path} in {file}: the SNI filters are not imported; the names in the certificate are used"
                );
                notes.remark(line.position, reason);
            }
        }
    }

    #[expect(clippy::too_many_lines, reason = "a table of options")]
    fn read_options(&mut self, line: &Line, context: &BindContext<'_>, notes: &mut Notes) {
        let mut words = line.words.iter().skip(2).map(String::as_str);
        let mut has_ca = false;
        let mut suites = context.suites.clone();
        while let Some(word) = words.next() {
            let mut value = || words.next().unwrap_or("").to_owned();
            match word {
                "ssl" => {}
                "crt" => {
                    let file = value();
                    if file.starts_with('@') {
                        notes.add(
                            line.position,
                            "not imported: no crt-store has this certificate; set the path of its file \
                             in `certificates`",
                        );
                        continue;
                    }
                    self.add_certificate(&file, line.position);
                }
                "default-crt" => {
                    // The first certificate is the default: clients get it if no certificate matches their SNI.
                    let item = Item::new(value(), Some(line.position));
                    self.certificates.retain(|existing| *existing != item);
                    self.certificates.insert(0, item);
                }
                "crt-list" => {
                    let file = value();
                    self.read_crt_list(&file, line, context, notes);
                }
                "strict-sni" => self.add_key(Entry::new("strict_sni", true, line.position), notes),
                "ssl-min-ver" => match value().strip_prefix("TLSv") {
                    Some(version @ ("1.2" | "1.3")) => {
                        self.add_key(Entry::new("minimum", version, line.position), notes);
                    }
                    _ => notes.add(
                        line.position,
                        "Weir does not support TLS versions below 1.2",
                    ),
                },
                "ca-file" => {
                    has_ca = true;
                    self.add_key(Entry::new("client_ca", value(), line.position), notes);
                }
                "verify" => match value().as_str() {
                    "optional" => {
                        self.add_key(Entry::new("client_auth", "optional", line.position), notes)
                    }
                    "required" if has_ca || line.words.iter().any(|word| word == "ca-file") => {
                        self.add_key(Entry::new("client_auth", "required", line.position), notes);
                    }
                    "required" => {
                        notes.mark_restriction(line.position);
                        notes.add(line.position, "verify is not imported: there is no ca-file");
                    }
                    _ => {}
                },
                "accept-proxy" => {}
                "alpn" | "npn" => {
                    let _ = value();
                    notes.remark(
                        line.position,
                        format!(
                            "{word} is not imported: Weir offers the protocols that it supports"
                        ),
                    );
                }
                "no-sslv3" | "no-tlsv10" | "no-tlsv11" | "v4v6" | "name" | "defer-accept"
                | "no-tls-tickets" | "expose-fd" | "tls-tickets" | "id" | "no-alpn" => {
                    if matches!(word, "name" | "id" | "expose-fd") {
                        let _ = value();
                    }
                    if !word.starts_with("no-sslv3") && !word.starts_with("no-tlsv") {
                        notes.remark(
                            line.position,
                            format!("{word} is not imported: `listen` has no such option"),
                        );
                    }
                }
                "v6only"
                | "tfo"
                | "allow-0rtt"
                | "prefer-client-ciphers"
                | "no-ca-names"
                | "no-strict-sni"
                | "quic-force-retry" => {
                    notes.remark(
                        line.position,
                        format!("{word} is not imported: `listen` has no such option"),
                    );
                }
                "no-tlsv12" | "force-tlsv13" => {
                    self.add_key(Entry::new("minimum", "1.3", line.position), notes);
                }
                "ssl-max-ver" if line.words.iter().any(|word| word == "TLSv1.3") => {
                    let _ = value();
                }
                "ciphers" | "ciphersuites" | "curves" => {
                    suites.set(word, value(), line.position);
                }
                "sigalgs" | "client-sigalgs" | "ocsp-update" | "severity-output" | "shards"
                | "proto" | "ecdhe" | "process" | "thread" | "mode" | "user" | "group" | "uid"
                | "gid" | "level" | "backlog" | "tcp-ut" | "nice" | "cc" | "mss" | "label"
                | "guid-prefix" | "idle-ping" | "nbconn" | "ktls" | "tcp-ss" | "quic-cc-algo"
                | "quic-socket" | "tls-ticket-keys" => {
                    let _ = value();
                    notes.remark(
                        line.position,
                        format!("{word} is not imported: `listen` has no such option"),
                    );
                }
                "transparent"
                | "generate-certificates"
                | "no-tlsv13"
                | "force-sslv3"
                | "force-tlsv10"
                | "force-tlsv11"
                | "force-tlsv12" => {
                    notes.add(
                        line.position,
                        format!("{word} is not imported: `listen` has no such option"),
                    );
                }
                other => {
                    let _ = value();
                    // The option limits which clients can connect.
                    if CERTIFICATE_OPTIONS.contains(&other) || other == "interface" {
                        notes.mark_restriction(line.position);
                    }
                    notes.add(
                        line.position,
                        format!("{other} is not imported: `listen` has no such option"),
                    );
                }
            }
        }
        if line.words.iter().any(|word| word == "ssl") {
            self.add_suites(&suites, notes);
        }
    }

    fn add_suites(&mut self, suites: &Suites, notes: &mut Notes) {
        let requires_tls13 = |entry: &Entry| {
            entry.key == "minimum"
                && matches!(&entry.item.value, Value::Text(text) if text == "1.3")
        };
        let tls13_only = self.keys.iter().any(requires_tls13);
        let lists = [suites.ciphers.as_ref(), suites.ciphersuites.as_ref()];
        for key in tls_suite::keys(lists, suites.curves.as_ref(), tls13_only, notes) {
            self.add_key(key, notes);
        }
    }

    /// Keeps the first value of each key, and adds a note if a later value differs.
    fn add_key(&mut self, entry: Entry, notes: &mut Notes) {
        match self.keys.iter().find(|existing| existing.key == entry.key) {
            None => self.keys.push(entry),
            Some(existing) if existing.item == entry.item => {}
            Some(_) => {
                let position = entry.item.position;
                if let Some(position) = position {
                    if matches!(entry.key, "client_ca" | "client_auth") {
                        notes.mark_restriction(position);
                    }
                    let reason = format!(
                        "a second {} is not imported: a service has only one",
                        entry.key
                    );
                    notes.add(position, reason);
                }
            }
        }
    }
}

/// Returns the port of a bind's first address, or `None` if the address is unusable.
pub(super) fn first_port(line: &Line, environment: &dyn Environment) -> Option<u16> {
    let address = line.word(1)?.split(',').next()?;
    let endpoints = parse_endpoints(address, environment).ok()?;
    endpoints.first()?.rsplit(':').next()?.parse().ok()
}

/// Returns whether one of the lines listens on 0.0.0.0 with this port.
pub(super) fn has_ipv4_wildcard<'l>(
    mut lines: impl Iterator<Item = &'l Line>,
    port: &str,
    environment: &dyn Environment,
) -> bool {
    let wildcard = format!("0.0.0.0:{port}");
    let listens = |line: &Line| {
        let mut addresses = line.word(1).unwrap_or_default().split(',');
        addresses.any(|address| {
            parse_endpoints(address, environment).is_ok_and(|found| found.contains(&wildcard))
        })
    };
    lines.any(|line| line.keyword() == "bind" && listens(line))
}

/// Returns the path, joined to `base` if it is relative. Does not change `@STORE/ALIAS`.
pub(super) fn absolute_path(path: &str, base: &str) -> String {
    match path.starts_with(['/', '@']) {
        true => path.to_owned(),
        false => format!("{}/{path}", base.trim_end_matches('/')),
    }
}

/// An address that is not imported as written, and the reason.
#[derive(Debug, PartialEq, Eq)]
struct UnusableAddress {
    reason: String,
    /// Addresses to listen on instead, so that the other lines of the section are imported.
    replacements: Option<Vec<String>>,
}

impl From<String> for UnusableAddress {
    fn from(reason: String) -> Self {
        Self {
            reason,
            replacements: None,
        }
    }
}

/// Parses addresses such as `*:80`, `:80-82`, `[::]:443`, `::1:80`, `ipv4@10.0.0.1:80`, `${ADDRESS}:80`.
fn parse_endpoints(
    text: &str,
    environment: &dyn Environment,
) -> Result<Vec<String>, UnusableAddress> {
    let (text, family) = match text.split_once('@') {
        Some(("ipv4" | "tcp4", rest)) => (rest, Some(false)),
        Some(("ipv6" | "tcp6", rest)) => (rest, Some(true)),
        Some(("tcp", rest)) => (rest, None),
        Some((kind, _)) => return Err(format!("Weir cannot listen on {kind}@").into()),
        None => (text, None),
    };
    if text.starts_with('/') {
        return Err("Weir cannot listen on a Unix socket".to_owned().into());
    }
    let (host, ports) = text
        .rsplit_once(':')
        .ok_or_else(|| format!("{text} has no port"))?;
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let host = match (host, family) {
        ("" | "*", Some(true)) | (":", _) => "::",
        ("" | "*", _) => "0.0.0.0",
        (host, _) => host,
    };
    let with_host = |ports: &[String], host: &str| -> Vec<String> {
        let ports = ports.iter();
        match host.contains(':') && !host.contains("${") {
            true => ports.map(|port| format!("[{host}]:{port}")).collect(),
            false => ports.map(|port| format!("{host}:{port}")).collect(),
        }
    };
    let (ports, is_truncated) = parse_ports(ports)?;
    let ipv6 = family.unwrap_or_else(|| host.contains(':'));
    let endpoints = match host.parse::<std::net::IpAddr>() {
        // `listen` in weir.toml expands variables.
        _ if host.contains("${") => with_host(&ports, host),
        Ok(address) => with_host(&ports, &address.to_string()),
        Err(_) => match environment.address(host, ipv6) {
            Some(address) => with_host(&ports, &address.to_string()),
            None => {
                return Err(UnusableAddress {
                    reason: format!("the name {host} cannot be resolved"),
                    replacements: Some(with_host(&ports, "127.0.0.1")),
                });
            }
        },
    };
    match is_truncated {
        false => Ok(endpoints),
        true => Err(UnusableAddress {
            reason: format!("at most {MAX_PORTS} ports of a range are imported"),
            replacements: Some(endpoints),
        }),
    }
}

/// Returns the ports of `80`, `80-82` or `${PORT}`, at most [`MAX_PORTS`], and whether there are more.
fn parse_ports(text: &str) -> Result<(Vec<String>, bool), String> {
    if text.starts_with("${") && text.ends_with('}') {
        return Ok((vec![text.to_owned()], false));
    }
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let port = |text: &str| {
        let port = text.parse::<u16>().ok().filter(|port| *port > 0);
        port.ok_or_else(|| format!("invalid port {text}"))
    };
    let (first, last) = (port(first)?, port(last)?);
    if first > last {
        return Err(format!("invalid port range {text}"));
    }
    let ports = (first..=last).take(MAX_PORTS);
    Ok((
        ports.map(|port| port.to_string()).collect(),
        usize::from(last - first) >= MAX_PORTS,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::EmptyEnvironment;

    #[test]
    fn bind_addresses_are_parsed() {
        let parse = |text: &str| parse_endpoints(text, &EmptyEnvironment);
        assert_eq!(parse("*:80"), Ok(vec!["0.0.0.0:80".to_owned()]));
        assert_eq!(
            parse(":80-81"),
            Ok(vec!["0.0.0.0:80".to_owned(), "0.0.0.0:81".to_owned()])
        );
        assert_eq!(parse("[::]:443"), Ok(vec!["[::]:443".to_owned()]));
        assert_eq!(parse("::1:80"), Ok(vec!["[::1]:80".to_owned()]));
        assert_eq!(parse(":::80"), Ok(vec!["[::]:80".to_owned()]));
        assert_eq!(parse("tcp4@:80"), Ok(vec!["0.0.0.0:80".to_owned()]));
        assert_eq!(parse("tcp6@:80"), Ok(vec!["[::]:80".to_owned()]));
        assert_eq!(parse("${IP}:80"), Ok(vec!["${IP}:80".to_owned()]));
        for invalid in ["80", "/run/x", "abns@x", "*:", "*:0", "*:9-1", "*:http"] {
            let unusable = parse(invalid).expect_err(invalid);
            assert_eq!(unusable.replacements, None, "{invalid}");
        }
        let replacements = |text: &str| parse(text).expect_err(text).replacements.expect(text);
        assert_eq!(replacements("name:80"), ["127.0.0.1:80"]);
        assert_eq!(replacements("*:1-65535").len(), MAX_PORTS);
        assert_eq!(parse("*:80-335").expect("256 ports").len(), MAX_PORTS);
        assert_eq!(replacements("*:80-336").len(), MAX_PORTS);
    }
}
