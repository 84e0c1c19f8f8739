//! `bind`: where a frontend listens, and TLS.

use crate::World;
use crate::document::Entry;
use crate::guard::CERTIFICATES;
use crate::layer7::endpoint;
use crate::note::{Notes, Place};

use super::line::Line;

/// What the binds of a frontend come to, plain ones and those with TLS apart.
#[derive(Debug, Default)]
pub(super) struct Binds {
    pub(super) plain: Vec<(String, Place)>,
    pub(super) tls: Vec<(String, Place)>,
    /// Keys of `tls`.
    pub(super) keys: Vec<Entry>,
    /// Clients speak the PROXY protocol: all of them, or an error is told.
    pub(super) proxy_protocol: Option<Place>,
}

/// Ports of one bind; more are a slip.
const MOST_PORTS: u16 = 256;

impl Binds {
    pub(super) fn read(&mut self, line: &Line, world: &dyn World, notes: &mut Notes) {
        let Some(addresses) = line.word(1) else {
            return line.refuse(notes, "haproxy wants an address");
        };
        let tls = line.words.iter().skip(2).any(|word| word == "ssl");
        for address in addresses.split(',').filter(|address| !address.is_empty()) {
            match endpoints(address, world) {
                Ok(found) => {
                    let found = found.into_iter().map(|found| (found, line.place));
                    if tls {
                        self.tls.extend(found)
                    } else {
                        self.plain.extend(found)
                    }
                }
                Err(why) => line.refuse(notes, &why),
            }
        }
        self.options(line, notes);
    }

    fn options(&mut self, line: &Line, notes: &mut Notes) {
        let mut words = line.words.iter().skip(2).map(String::as_str);
        let mut ca = false;
        while let Some(word) = words.next() {
            let mut value = || words.next().unwrap_or("").to_owned();
            match word {
                "ssl" => {}
                "crt" => {
                    let file = value();
                    self.key(
                        Entry::new("certificates", file, line.place).essential(),
                        notes,
                    );
                }
                "strict-sni" => self.key(Entry::new("strict_sni", true, line.place), notes),
                "ssl-min-ver" => match value().strip_prefix("TLSv") {
                    Some(version @ ("1.2" | "1.3")) => {
                        self.key(Entry::new("minimum", version, line.place), notes);
                    }
                    _ => notes.say(line.place, "versions of TLS below 1.2 are not spoken"),
                },
                "ca-file" => {
                    ca = true;
                    self.key(Entry::new("client_ca", value(), line.place), notes);
                }
                "verify" => match value().as_str() {
                    "optional" => {
                        self.key(Entry::new("client_auth", "optional", line.place), notes)
                    }
                    "required" if ca || line.words.iter().any(|word| word == "ca-file") => {
                        self.key(Entry::new("client_auth", "required", line.place), notes);
                    }
                    _ => {}
                },
                "accept-proxy" => self.proxy_protocol = Some(line.place),
                "alpn" | "npn" => {
                    let _ = value();
                    notes.say(line.place, "ALPN: Weir offers what it speaks");
                }
                "no-sslv3" | "no-tlsv10" | "no-tlsv11" | "v4v6" | "name" | "defer-accept"
                | "no-tls-tickets" => {
                    if word == "name" {
                        let _ = value();
                    }
                    if matches!(word, "v4v6" | "name" | "defer-accept" | "no-tls-tickets") {
                        notes.say(
                            line.place,
                            format!("{word} is not carried over: `listen` has no such word"),
                        );
                    }
                }
                "v6only" | "transparent" | "tfo" | "allow-0rtt" | "prefer-client-ciphers" => {
                    notes.say(
                        line.place,
                        format!("{word} is not carried over: `listen` has no such word"),
                    );
                }
                other => {
                    let _ = value();
                    if CERTIFICATES.contains(&other) {
                        notes.guard(line.place);
                    }
                    notes.say(
                        line.place,
                        format!("{other} is not carried over: `listen` has no such word"),
                    );
                }
            }
        }
    }

    /// The first of a kind; binds that differ would be services of their own.
    fn key(&mut self, entry: Entry, notes: &mut Notes) {
        match self.keys.iter().find(|known| known.key == entry.key) {
            None => self.keys.push(entry),
            Some(known) if known.item == entry.item => {}
            Some(_) => {
                let place = entry.item.from;
                if let Some(place) = place {
                    if matches!(entry.key, "client_ca" | "client_auth") {
                        notes.guard(place);
                    }
                    let why = format!(
                        "a second {} is not carried over: a service has one; `certificates` may be a directory",
                        entry.key
                    );
                    notes.say(place, why);
                }
            }
        }
    }
}

/// `*:80`, `:80-82`, `[::]:443`, `::1:80`, `ipv4@10.0.0.1:80`.
fn endpoints(text: &str, world: &dyn World) -> Result<Vec<String>, String> {
    let (text, family) = match text.split_once('@') {
        Some(("ipv4", rest)) => (rest, Some(false)),
        Some(("ipv6", rest)) => (rest, Some(true)),
        Some((kind, _)) => return Err(format!("Weir does not listen on {kind}@")),
        None => (text, None),
    };
    if text.starts_with('/') {
        return Err("Weir listens on no unix socket".to_owned());
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
        Err(_) => world
            .address(host, ipv6)
            .ok_or_else(|| format!("the name {host} cannot be resolved"))?,
    };
    let (first, last) = ports.split_once('-').unwrap_or((ports, ports));
    let port = |text: &str| {
        text.parse::<u16>()
            .map_err(|_| format!("{text} is no port"))
    };
    let (first, last) = (port(first)?, port(last)?);
    if first > last || last - first >= MOST_PORTS {
        return Err(format!(
            "{ports} is no range that a service can listen on port by port"
        ));
    }
    Ok((first..=last).map(|port| endpoint(address, port)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Alone;

    #[test]
    fn addresses_have_many_forms() {
        let shown = |text: &str| endpoints(text, &Alone);
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
