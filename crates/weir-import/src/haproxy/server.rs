//! `server` and `default-server`: an address with its options.

use weir_model::MAX_WEIGHT;

use super::check::Checks;
use super::line::Line;
use super::section::Proxy;
use super::{Context, time};
use crate::document::Entry;
use crate::layer7::{Upstream, endpoint};
use crate::note::{Notes, Place};

/// What stands behind the address.
#[derive(Clone, Debug, Default)]
pub(super) struct Options {
    pub(super) check: Option<Place>,
    pub(super) agent: Option<Place>,
    pub(super) agent_port: Option<(u64, Place)>,
    pub(super) agent_send: Option<(String, Place)>,
    pub(super) interval: Option<(u64, Place)>,
    pub(super) rising: Option<(u64, Place)>,
    pub(super) down: Option<(u64, Place)>,
    pub(super) rise: Option<(u64, Place)>,
    pub(super) fall: Option<(u64, Place)>,
    pub(super) port: Option<(u64, Place)>,
    pub(super) address: Option<(String, Place)>,
    pub(super) check_proxy: Option<Place>,
    pub(super) check_tls: Option<Place>,
    weight: Option<(u64, Place)>,
    most: Option<(u64, Place)>,
    pub(super) slow_start: Option<(u64, Place)>,
    backup: Option<Place>,
    disabled: bool,
    pub(super) ssl: Option<Place>,
    /// Keys of `tls` of the pool.
    pub(super) tls: Vec<Entry>,
    pub(super) send_proxy: Option<(&'static str, Place)>,
}

/// Options with a word behind them that has no place.
const WITH_VALUE: &[&str] = &[
    "id",
    "cookie",
    "minconn",
    "maxqueue",
    "observe",
    "error-limit",
    "on-error",
    "on-marked-down",
    "on-marked-up",
    "track",
    "resolvers",
    "init-addr",
    "resolve-prefer",
    "resolve-net",
    "resolve-opts",
    "source",
    "namespace",
    "proto",
    "pool-max-conn",
    "pool-purge-delay",
    "pool-low-conn",
    "max-reuse",
    "log-proto",
    "ciphers",
    "ciphersuites",
    "curves",
    "alpn",
    "npn",
    "crl-file",
    "verifyhost",
    "check-sni",
    "check-alpn",
    "check-proto",
    "check-via-socks4",
    "agent-addr",
    "agent-inter",
    "ssl-max-ver",
    "redir",
    "set-proxy-v2-tlv-fmt",
    "proxy-v2-options",
    "socks4",
    "tcp-ut",
    "usesrc",
    "interface",
    "ws",
    "shard",
    "guid",
    "init-state",
    "sigalgs",
    "client-sigalgs",
    "hash-key",
];

/// Options without one.
const ALONE: &[&str] = &[
    "enabled",
    "no-check",
    "no-backup",
    "no-send-proxy",
    "no-ssl",
    "no-agent-check",
    "non-stick",
    "tfo",
    "no-tfo",
    "stick",
    "no-sslv3",
    "no-tlsv10",
    "no-tlsv11",
    "no-tlsv12",
    "no-tlsv13",
    "force-sslv3",
    "force-tlsv10",
    "force-tlsv11",
    "force-tlsv12",
    "force-tlsv13",
    "ssl-reuse",
    "no-ssl-reuse",
    "tls-tickets",
    "no-tls-tickets",
    "allow-0rtt",
    "no-verifyhost",
    "check-reuse-pool",
    "no-check-reuse-pool",
    "no-check-ssl",
    "no-check-send-proxy",
    "quic-cc-algo",
];

impl Options {
    pub(super) fn read(&mut self, words: &[String], line: &Line, notes: &mut Notes) {
        let place = line.place;
        let mut words = words.iter().map(String::as_str);
        while let Some(word) = words.next() {
            if WITH_VALUE.contains(&word) {
                let _ = words.next();
                notes.say(
                    place,
                    format!("{word} is not carried over: a server of Weir has no such key"),
                );
                continue;
            }
            if ALONE.contains(&word) {
                self.alone(word, place, notes);
                continue;
            }
            if self.flag(word, place) {
                continue;
            }
            let Some(value) = words.next() else {
                notes.say(place, format!("{word} is not carried over: haproxy does not know it here, or wants a word behind it"));
                continue;
            };
            if !self.value(word, value, place, notes) {
                notes.say(
                    place,
                    format!("{word} is not carried over: a server of Weir has no such key"),
                );
            }
        }
    }

    fn alone(&mut self, word: &str, place: Place, notes: &mut Notes) {
        match word {
            "enabled" => self.disabled = false,
            "no-check" => self.check = None,
            "no-backup" => self.backup = None,
            "no-ssl" => (self.ssl, self.tls) = (None, Vec::new()),
            "no-send-proxy" => self.send_proxy = None,
            "no-agent-check" => self.agent = None,
            "no-check-ssl" => self.check_tls = None,
            word if word.starts_with("no-sslv") || word.starts_with("no-tlsv") => {}
            word => notes.say(
                place,
                format!("{word} is not carried over: a server of Weir has no such key"),
            ),
        }
    }

    /// Options that are on by themselves.
    fn flag(&mut self, word: &str, place: Place) -> bool {
        match word {
            "check" => self.check = Some(place),
            "agent-check" => self.agent = Some(place),
            "backup" => self.backup = Some(place),
            "disabled" => self.disabled = true,
            "ssl" => self.ssl = Some(place),
            "check-ssl" => self.check_tls = Some(place),
            "check-send-proxy" => self.check_proxy = Some(place),
            "send-proxy" => self.send_proxy = Some(("v1", place)),
            "send-proxy-v2" | "send-proxy-v2-ssl" | "send-proxy-v2-ssl-cn" => {
                self.send_proxy = Some(("v2", place));
            }
            _ => return false,
        }
        true
    }

    /// Options with a word behind them.
    fn value(&mut self, word: &str, value: &str, place: Place, notes: &mut Notes) -> bool {
        let number = value.parse::<u64>().ok();
        let of = |number: Option<u64>, notes: &mut Notes| {
            if number.is_none() {
                notes.say(
                    place,
                    format!(
                        "{word} is not carried over: {value} is nothing that haproxy would take"
                    ),
                );
            }
            number.map(|number| (number, place))
        };
        match word {
            "weight" => self.weight = of(number.filter(|weight| *weight <= 256), notes),
            "maxconn" => self.most = of(number, notes),
            "rise" => self.rise = of(number, notes),
            "fall" => self.fall = of(number, notes),
            "port" => self.port = of(number.filter(|port| (1..65_536).contains(port)), notes),
            "agent-port" => {
                self.agent_port = of(number.filter(|port| (1..65_536).contains(port)), notes)
            }
            "slowstart" => self.slow_start = of(time(value), notes),
            "inter" => self.interval = of(time(value), notes),
            "fastinter" => self.rising = of(time(value), notes),
            "downinter" => self.down = of(time(value), notes),
            "addr" => self.address = Some((value.to_owned(), place)),
            "agent-send" => self.agent_send = Some((value.to_owned(), place)),
            "verify" if value == "none" => self.key(Entry::new("verify", false, place)),
            "verify" => {}
            "ca-file" => self.key(Entry::new("ca", value, place)),
            "crt" => self.key(Entry::new("certificate", value, place)),
            "sni" => match value
                .strip_prefix("str(")
                .and_then(|rest| rest.strip_suffix(')'))
            {
                Some(name) => self.key(Entry::new("server_name", name, place)),
                None => notes.say(place, "sni is not carried over: `server_name` is one name"),
            },
            "ssl-min-ver" => match value.strip_prefix("TLSv") {
                Some(version @ ("1.2" | "1.3")) => self.key(Entry::new("minimum", version, place)),
                _ => notes.say(place, "versions of TLS below 1.2 are not spoken"),
            },
            _ => return false,
        }
        true
    }

    /// Keys of the pool's `tls`, or none without `ssl`.
    pub(super) fn settle_tls(&mut self) {
        match self.ssl {
            // Without a word haproxy verifies only if it has authorities.
            Some(place) if self.tls.is_empty() => {
                self.tls = vec![Entry::new("verify", true, place)];
            }
            Some(_) => {}
            None => self.tls.clear(),
        }
    }

    /// Says what servers that a name service knows cannot have each.
    pub(super) fn own_of_no_server(&self, line: &Line, notes: &mut Notes) {
        let own = [
            ("weight", self.weight.is_some()),
            ("maxconn", self.most.is_some()),
            ("backup", self.backup.is_some()),
            ("disabled", self.disabled),
        ];
        for (word, _) in own.iter().filter(|(_, said)| *said) {
            notes.say(
                line.place,
                format!("{word} is not carried over: `servers_dns` has no such key"),
            );
        }
    }

    fn key(&mut self, entry: Entry) {
        self.tls.retain(|known| known.key != entry.key);
        self.tls.push(entry);
    }
}

/// A server with its checks; `None` = it is said why not.
pub(super) fn server(
    context: &Context<'_>,
    line: &Line,
    shared: &Options,
    checks: &Checks,
    proxy: &Proxy,
    notes: &mut Notes,
) -> Option<(Upstream, Options)> {
    let (Some(_), Some(address)) = (line.word(1), line.word(2)) else {
        line.refuse(notes, "haproxy wants a name and an address");
        return None;
    };
    let mut options = shared.clone();
    options.read(&line.words[3..], line, notes);
    let address = match resolved(context, address) {
        Ok(address) => address,
        Err(why) => {
            line.refuse(notes, &why);
            return None;
        }
    };
    let mut entries = vec![Entry::new("address", address, line.place).essential()];
    let weight = if options.disabled {
        notes.remark(
            line.place,
            "it is disabled: weight = 0; `weir server POOL/ADDRESS maint` says so without the file",
        );
        Some((0, line.place))
    } else {
        options.weight
    };
    if let Some((weight, place)) = weight.filter(|(weight, _)| *weight != 1) {
        entries.push(Entry::new("weight", weight.min(MAX_WEIGHT.into()), place));
    }
    if let Some((most, place)) = options.most.filter(|(most, _)| *most > 0) {
        entries.push(Entry::new("max_connections", most, place));
    }
    if let Some(place) = options.backup {
        // Used like the others it would be another server than was meant.
        entries.push(Entry::new("backup", true, place).essential());
    }
    let probes = checks.of(context, &options, proxy, line, notes);
    options.settle_tls();
    Some((
        Upstream {
            from: line.place,
            entries,
            probes,
        },
        options,
    ))
}

/// `ADDRESS[:PORT]` in numbers; a port that is missing is the client's.
fn resolved(context: &Context<'_>, text: &str) -> Result<String, String> {
    let (text, ipv6) = match text.split_once('@') {
        Some(("ipv4", rest)) => (rest, Some(false)),
        Some(("ipv6", rest)) => (rest, Some(true)),
        Some((kind, _)) => return Err(format!("Weir has no servers at {kind}@")),
        None => (text, None),
    };
    if text.starts_with('/') {
        return Err("Weir has no servers on unix sockets".to_owned());
    }
    let (host, port) = match text.rsplit_once(':') {
        Some((host, port))
            if host.parse::<std::net::Ipv6Addr>().is_ok()
                || !host.contains(':')
                || host.ends_with(']') =>
        {
            (host, Some(port))
        }
        _ => (text, None),
    };
    let port = match port {
        None | Some("" | "0") => None,
        Some(port) if port.starts_with(['+', '-']) => {
            return Err("a port that is counted from the client's has no place".to_owned());
        }
        Some(port) => Some(
            port.parse::<u16>()
                .map_err(|_| format!("{port} is no port"))?,
        ),
    };
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let address = match host.parse() {
        Ok(address) => address,
        Err(_) => {
            let found = match ipv6 {
                Some(ipv6) => context.world.address(host, ipv6),
                None => context
                    .world
                    .address(host, false)
                    .or_else(|| context.world.address(host, true)),
            };
            found.ok_or_else(|| format!("the name {host} cannot be resolved"))?
        }
    };
    Ok(match port {
        Some(port) => endpoint(address, port),
        None => address.to_string(),
    })
}
