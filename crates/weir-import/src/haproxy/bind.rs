//! `bind`: where a frontend listens, and TLS.

use crate::Environment;
use crate::document::Entry;
use crate::guard::CERTIFICATES;
use crate::layer7::endpoint;
use crate::note::{Notes, Position};

use super::line::Line;

/// The result of a frontend's binds, with and without TLS.
#[derive(Debug, Default)]
pub(super) struct Binds {
    listen: Vec<Bind>,
    /// Keys of `tls`.
    pub(super) keys: Vec<Entry>,
}

/// One address.
#[derive(Clone, Debug)]
struct Bind {
    address: String,
    position: Position,
    tls: bool,
    /// Clients use the PROXY protocol.
    proxy_protocol: bool,
}

/// Maximum number of ports of one bind.
const MAX_PORTS: u16 = 256;

impl Binds {
    pub(super) fn is_empty(&self) -> bool {
        self.listen.is_empty()
    }

    /// Returns the addresses with and without TLS and the PROXY protocol: each combination is a service.
    pub(super) fn of(&self, tls: bool, proxy_protocol: bool) -> Vec<(String, Position)> {
        let same = |bind: &&Bind| bind.tls == tls && bind.proxy_protocol == proxy_protocol;
        let found = self.listen.iter().filter(same);
        found
            .map(|bind| (bind.address.clone(), bind.position))
            .collect()
    }

    pub(super) fn read(&mut self, line: &Line, environment: &dyn Environment, notes: &mut Notes) {
        let Some(addresses) = line.word(1) else {
            return line.reject(notes, "haproxy requires an address");
        };
        let tls = line.words.iter().skip(2).any(|word| word == "ssl");
        let proxy_protocol = line.words.iter().skip(2).any(|word| word == "accept-proxy");
        for address in addresses.split(',').filter(|address| !address.is_empty()) {
            match endpoints(address, environment) {
                Ok(found) => {
                    self.listen.extend(found.into_iter().map(|address| Bind {
                        address,
                        position: line.position,
                        tls,
                        proxy_protocol,
                    }));
                }
                Err(why) => line.reject(notes, &why),
            }
        }
        self.options(line, notes);
    }

    #[expect(clippy::too_many_lines, reason = "a table of options")]
    fn options(&mut self, line: &Line, notes: &mut Notes) {
        let mut words = line.words.iter().skip(2).map(String::as_str);
        let mut ca = false;
        while let Some(word) = words.next() {
            let mut value = || words.next().unwrap_or("").to_owned();
            match word {
                "ssl" => {}
                "crt" => {
                    let file = value();
                    if file.starts_with('@') {
                        notes.add(
                            line.position,
                            "not imported: a certificate of a crt-store; name its file in `certificates`",
                        );
                        continue;
                    }
                    self.key(
                        Entry::new("certificates", file, line.position).essential(),
                        notes,
                    );
                }
                "strict-sni" => self.key(Entry::new("strict_sni", true, line.position), notes),
                "ssl-min-ver" => match value().strip_prefix("TLSv") {
                    Some(version @ ("1.2" | "1.3")) => {
                        self.key(Entry::new("minimum", version, line.position), notes);
                    }
                    _ => notes.add(line.position, "TLS versions below 1.2 are not supported"),
                },
                "ca-file" => {
                    ca = true;
                    self.key(Entry::new("client_ca", value(), line.position), notes);
                }
                "verify" => match value().as_str() {
                    "optional" => {
                        self.key(Entry::new("client_auth", "optional", line.position), notes)
                    }
                    "required" if ca || line.words.iter().any(|word| word == "ca-file") => {
                        self.key(Entry::new("client_auth", "required", line.position), notes);
                    }
                    _ => {}
                },
                "accept-proxy" => {}
                "alpn" | "npn" => {
                    let _ = value();
                    notes.remark(line.position, "ALPN: Weir offers the protocols it supports");
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
                "v6only" | "tfo" | "allow-0rtt" | "prefer-client-ciphers" => {
                    notes.remark(
                        line.position,
                        format!("{word} is not imported: `listen` has no such option"),
                    );
                }
                "no-tlsv12" => self.key(Entry::new("minimum", "1.3", line.position), notes),
                "ssl-max-ver" if line.words.iter().any(|word| word == "TLSv1.3") => {
                    let _ = value();
                }
                "sigalgs" | "client-sigalgs" | "ocsp-update" | "severity-output" | "shards"
                | "proto" | "ciphers" | "ciphersuites" | "curves" | "ecdhe" | "process"
                | "thread" | "mode" | "user" | "group" | "uid" | "gid" | "level" | "backlog"
                | "tcp-ut" | "nice" => {
                    let _ = value();
                    notes.remark(
                        line.position,
                        format!("{word} is not imported: Weir chooses it itself"),
                    );
                }
                "transparent" => {
                    notes.add(
                        line.position,
                        format!("{word} is not imported: `listen` has no such option"),
                    );
                }
                other => {
                    let _ = value();
                    if CERTIFICATES.contains(&other) {
                        notes.mark_guard(line.position);
                    }
                    notes.add(
                        line.position,
                        format!("{other} is not imported: `listen` has no such option"),
                    );
                }
            }
        }
    }

    /// Keeps the first value of a kind. Binds with different values would need separate services.
    fn key(&mut self, entry: Entry, notes: &mut Notes) {
        match self.keys.iter().find(|existing| existing.key == entry.key) {
            None => self.keys.push(entry),
            Some(existing) if existing.item == entry.item => {}
            Some(_) => {
                let position = entry.item.from;
                if let Some(position) = position {
                    if matches!(entry.key, "client_ca" | "client_auth") {
                        notes.mark_guard(position);
                    }
                    let why = format!(
                        "a second {} is not imported: a service has one; `certificates` may be a directory",
                        entry.key
                    );
                    notes.add(position, why);
                }
            }
        }
    }
}

/// `*:80`, `:80-82`, `[::]:443`, `::1:80`, `ipv4@10.0.0.1:80`.
fn endpoints(text: &str, environment: &dyn Environment) -> Result<Vec<String>, String> {
    let (text, family) = match text.split_once('@') {
        Some(("ipv4", rest)) => (rest, Some(false)),
        Some(("ipv6", rest)) => (rest, Some(true)),
        Some((kind, _)) => return Err(format!("Weir cannot listen on {kind}@")),
        None => (text, None),
    };
    if text.starts_with('/') {
        return Err("Weir cannot listen on a Unix socket".to_owned());
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
    let ipv6 = family.unwrap_or_else(|| host.contains(':'));
    let address = match host.parse() {
        Ok(address) => address,
        Err(_) => environment
            .address(host, ipv6)
            .ok_or_else(|| format!("the name {host} cannot be resolved"))?,
    };
    if ports.starts_with("${") && ports.ends_with('}') {
        return Ok(vec![match address {
            std::net::IpAddr::V4(v4) => format!("{v4}:{ports}"),
            std::net::IpAddr::V6(v6) => format!("[{v6}]:{ports}"),
        }]);
    }
    let (first, last) = ports.split_once('-').unwrap_or((ports, ports));
    let port = |text: &str| {
        text.parse::<u16>()
            .map_err(|_| format!("invalid port {text}"))
    };
    let (first, last) = (port(first)?, port(last)?);
    if first > last || last - first >= MAX_PORTS {
        return Err(format!("a service cannot listen on the port range {ports}"));
    }
    Ok((first..=last).map(|port| endpoint(address, port)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::EmptyEnvironment;

    #[test]
    fn bind_addresses_are_parsed() {
        let shown = |text: &str| endpoints(text, &EmptyEnvironment);
        assert_eq!(shown("*:80"), Ok(vec!["0.0.0.0:80".to_owned()]));
        assert_eq!(
            shown(":80-81"),
            Ok(vec!["0.0.0.0:80".to_owned(), "0.0.0.0:81".to_owned()])
        );
        assert_eq!(shown("[::]:443"), Ok(vec!["[::]:443".to_owned()]));
        assert_eq!(shown("::1:80"), Ok(vec!["[::1]:80".to_owned()]));
        assert_eq!(shown(":::80"), Ok(vec!["[::]:80".to_owned()]));
        for wrong in [
            "80",
            "/run/x",
            "abns@x",
            "*:",
            "*:9-1",
            "*:1-65535",
            "name:80",
        ] {
            assert!(shown(wrong).is_err(), "{wrong}");
        }
    }
}
