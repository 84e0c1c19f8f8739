//! Converts `server` and `default-server` lines.

use weir_model::{MAX_WEIGHT, unix_socket};

use super::check::Checks;
use super::line::Line;
use super::section::Proxy;
use super::{Context, parse_time};
use crate::document::Entry;
use crate::layer7::PoolServer;
use crate::note::{Notes, Position};

/// Options of a server after its address.
#[derive(Clone, Debug, Default)]
pub(super) struct Options {
    pub(super) check: Option<Position>,
    pub(super) agent: Option<Position>,
    pub(super) agent_port: Option<(u64, Position)>,
    pub(super) agent_interval: Option<(u64, Position)>,
    pub(super) agent_send: Option<(String, Position)>,
    pub(super) interval: Option<(u64, Position)>,
    pub(super) fast_interval: Option<(u64, Position)>,
    pub(super) down_interval: Option<(u64, Position)>,
    pub(super) rise: Option<(u64, Position)>,
    pub(super) fall: Option<(u64, Position)>,
    pub(super) port: Option<(u64, Position)>,
    pub(super) address: Option<(String, Position)>,
    pub(super) check_proxy: Option<Position>,
    pub(super) check_tls: Option<Position>,
    weight: Option<(u64, Position)>,
    max_connections: Option<(u64, Position)>,
    pub(super) slow_start: Option<(u64, Position)>,
    pub(super) backup: Option<Position>,
    is_disabled: bool,
    pub(super) ssl: Option<Position>,
    /// Keys of the pool's `tls`.
    pub(super) tls: Vec<Entry>,
    pub(super) send_proxy: Option<(&'static str, Position)>,
    /// Name of the `resolvers` section.
    pub(super) resolvers: Option<(String, Position)>,
    /// Set if Weir must use HTTP/2 (`proto h2`).
    pub(super) http2: Option<Position>,
    pub(super) check_name: Option<(String, Position)>,
    /// The name that the server's certificate must have.
    verify_host: Option<String>,
    /// The server's state before the first check.
    pub(super) initial_state: Option<(&'static str, Position)>,
    /// Set if connections to the server are closed when it is down.
    pub(super) shutdown: Option<Position>,
    /// The server whose state this server shares, as `[BACKEND/]SERVER`.
    pub(super) track: Option<(String, Position)>,
    /// The value of the server's cookie.
    cookie: Option<(String, Position)>,
}

/// The common settings of a section's servers.
pub(super) struct ServerScope<'p> {
    pub(super) proxy: &'p Proxy,
    /// All sections of the file.
    pub(super) sections: &'p [Proxy],
    pub(super) checks: Checks,
    /// Options of the `default-server` lines.
    pub(super) default_options: Options,
}

impl<'p> ServerScope<'p> {
    pub(super) fn read(
        context: &mut Context<'_>,
        proxy: &'p Proxy,
        sections: &'p [Proxy],
        notes: &mut Notes,
    ) -> Self {
        let checks = Checks::read(context, proxy, notes);
        let mut default_options = Options::default();
        for line in proxy.defaults.iter().chain(&proxy.lines) {
            if line.keyword() == "default-server" {
                context.mark_used(line);
                default_options.read(&line.words[1..], line, notes);
            }
        }
        Self {
            proxy,
            sections,
            checks,
            default_options,
        }
    }

    /// Returns the server's key `cookie`; `None` if the value does not become part of `sticky`.
    pub(super) fn cookie_entry(&self, options: &Options, notes: &mut Notes) -> Option<Entry> {
        let (value, position) = options.cookie.as_ref()?;
        if !self.has_sticky_cookie(*position, notes) {
            return None;
        }
        Some(Entry::new("cookie", value.as_str(), *position))
    }

    /// Returns whether the values of servers' cookies become part of `sticky` rather than of routes. Adds a note if
    /// haproxy ignores them, or if the section's `cookie` is not imported.
    fn has_sticky_cookie(&self, position: Position, notes: &mut Notes) -> bool {
        if read_only_cookie(self.proxy).is_some() {
            return false;
        }
        let Some(line) = self
            .proxy
            .last(&["cookie"])
            .filter(|_| self.proxy.is_http())
        else {
            notes.remark(
                position,
                "cookie is not imported: haproxy ignores it in a section without `cookie`",
            );
            return false;
        };
        let mut words = line.words.iter();
        let has_mode = words.any(|word| matches!(word.as_str(), "insert" | "rewrite" | "prefix"));
        if !has_mode {
            notes.add(
                position,
                "cookie is not imported: the section's `cookie` is not imported",
            );
        }
        has_mode
    }

    /// Returns the cookie value of the server that `line` defines.
    pub(super) fn cookie_of(&self, line: &Line, notes: &mut Notes) -> Option<String> {
        let mut options = self.default_options.clone();
        options.read(line.words.get(3..)?, line, notes);
        options.cookie.map(|(value, _)| value)
    }
}

/// Returns the line `cookie NAME` of a section if the line has no mode: haproxy then only reads the cookie.
pub(super) fn read_only_cookie(proxy: &Proxy) -> Option<&Line> {
    let line = proxy.last(&["cookie"]).filter(|_| proxy.is_http())?;
    let words = line.words.get(2..).unwrap_or_default();
    let is_option = |word: &String| {
        matches!(
            word.as_str(),
            "indirect" | "nocache" | "httponly" | "secure"
        )
    };
    (line.word(1).is_some() && words.iter().all(is_option)).then_some(line)
}

/// Unsupported options with a value.
const UNSUPPORTED_WITH_VALUE: &[&str] = &[
    "minconn",
    "maxqueue",
    "on-marked-up",
    "source",
    "namespace",
    "crl-file",
    "agent-addr",
    "ssl-max-ver",
    "redir",
    "set-proxy-v2-tlv-fmt",
    "proxy-v2-options",
    "socks4",
    "usesrc",
    "interface",
    "hash-key",
];

/// Options that observe failures of client requests.
const OBSERVATION: &[&str] = &["observe", "error-limit", "on-error"];

/// Options with a value whose loss does not affect clients or servers.
const INERT_WITH_VALUE: &[&str] = &[
    "id",
    "init-addr",
    "resolve-prefer",
    "resolve-net",
    "resolve-opts",
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
    "guid",
    "check-alpn",
    "check-proto",
    "client-sigalgs",
    "log-bufsize",
    "shard",
    "sigalgs",
    "tcp-ut",
    "ws",
    "cc",
    "check-pool-conn-name",
    "idle-ping",
    "ktls",
    "pool-conn-name",
    "quic-cc-algo",
];

/// Options without a value whose loss does not affect clients or servers.
const INERT_WITHOUT_VALUE: &[&str] = &[
    "allow-0rtt",
    "check-reuse-pool",
    "no-check-reuse-pool",
    "no-ssl-reuse",
    "no-tfo",
    "no-tls-tickets",
    "ssl-reuse",
    "tfo",
    "tls-tickets",
    "no-renegotiate",
    "renegotiate",
];

/// Options without a value that revert another option or are not supported.
const NEGATIONS: &[&str] = &[
    "enabled",
    "no-check",
    "no-backup",
    "no-send-proxy",
    "no-ssl",
    "no-agent-check",
    "non-stick",
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
    "no-verifyhost",
    "no-check-ssl",
    "no-check-send-proxy",
    "no-send-proxy-v2",
    "no-send-proxy-v2-ssl",
    "no-send-proxy-v2-ssl-cn",
    "check-via-socks4",
    "check-sni-auto",
    "no-check-sni-auto",
    "sni-auto",
    "no-sni-auto",
];

impl Options {
    pub(super) fn read(&mut self, words: &[String], line: &Line, notes: &mut Notes) {
        let position = line.position;
        let mut words = words.iter().map(String::as_str);
        while let Some(word) = words.next() {
            if word == "cookie" {
                self.cookie = words.next().map(|value| (value.to_owned(), position));
                continue;
            }
            if word == "resolvers" {
                self.resolvers = words.next().map(|name| (name.to_owned(), position));
                continue;
            }
            if INERT_WITH_VALUE.contains(&word) || INERT_WITHOUT_VALUE.contains(&word) {
                if INERT_WITH_VALUE.contains(&word) {
                    let _ = words.next();
                }
                notes.remark(
                    position,
                    format!("{word} is not imported: a server in weir.toml has no such key"),
                );
                continue;
            }
            if OBSERVATION.contains(&word) {
                let _ = words.next();
                let reason =
                    "Weir ejects a server if requests fail only on that server; see `max_ejected`";
                notes.remark(position, format!("{word} is not imported: {reason}"));
                continue;
            }
            if UNSUPPORTED_WITH_VALUE.contains(&word) {
                let _ = words.next();
                notes.add(
                    position,
                    format!("{word} is not imported: a server in weir.toml has no such key"),
                );
                continue;
            }
            if NEGATIONS.contains(&word) {
                self.read_negation(word, position, notes);
                continue;
            }
            if self.read_flag(word, position) {
                continue;
            }
            let Some(value) = words.next() else {
                let reason = "haproxy rejects it here, or requires a value after it";
                notes.add(position, format!("{word} is not imported: {reason}"));
                continue;
            };
            if !self.read_value(word, value, position, notes) {
                notes.add(
                    position,
                    format!("{word} is not imported: a server in weir.toml has no such key"),
                );
            }
        }
        self.set_verified_name(position, notes);
    }

    /// Imports `verifyhost` as `server_name`: Weir verifies the name that it sends as SNI.
    fn set_verified_name(&mut self, position: Position, notes: &mut Notes) {
        let Some(host) = self.verify_host.clone() else {
            return;
        };
        let entry = Entry::new("server_name", host, position);
        let is_same_key = |existing: &&Entry| existing.key == entry.key;
        match self.tls.iter().find(is_same_key) {
            None => self.tls.push(entry),
            Some(existing) if existing.item == entry.item => {}
            Some(_) => {
                notes.mark_restriction(position);
                notes.add(
                    position,
                    "verifyhost is not imported: Weir verifies the name that it sends as SNI (`sni`)",
                );
            }
        }
    }

    /// Reads an option of [`NEGATIONS`].
    fn read_negation(&mut self, word: &str, position: Position, notes: &mut Notes) {
        match word {
            "enabled" => self.is_disabled = false,
            "no-check" => self.check = None,
            "no-backup" => self.backup = None,
            "no-ssl" => (self.ssl, self.tls) = (None, Vec::new()),
            word if word.starts_with("no-send-proxy") => self.send_proxy = None,
            "no-verifyhost" => self.verify_host = None,
            "no-sni-auto" | "no-check-sni-auto" => {}
            "no-agent-check" => self.agent = None,
            "no-check-ssl" => self.check_tls = None,
            "no-check-send-proxy" => self.check_proxy = None,
            word if word.starts_with("no-sslv") || word.starts_with("no-tlsv") => {}
            word => notes.add(
                position,
                format!("{word} is not imported: a server in weir.toml has no such key"),
            ),
        }
    }

    /// Reads a supported option without a value. Returns whether the word is such an option.
    fn read_flag(&mut self, word: &str, position: Position) -> bool {
        match word {
            "check" => self.check = Some(position),
            "agent-check" => self.agent = Some(position),
            "backup" => self.backup = Some(position),
            "disabled" => self.is_disabled = true,
            "ssl" => self.ssl = Some(position),
            "check-ssl" => self.check_tls = Some(position),
            "check-send-proxy" => self.check_proxy = Some(position),
            "send-proxy" => self.send_proxy = Some(("v1", position)),
            "send-proxy-v2" | "send-proxy-v2-ssl" | "send-proxy-v2-ssl-cn" => {
                self.send_proxy = Some(("v2", position));
            }
            _ => return false,
        }
        true
    }

    /// Reads an option with a value. Returns whether the option is supported.
    fn read_value(
        &mut self,
        word: &str,
        value: &str,
        position: Position,
        notes: &mut Notes,
    ) -> bool {
        let number = value.parse::<u64>().ok();
        let require = |number: Option<u64>, notes: &mut Notes| {
            if number.is_none() {
                notes.add(
                    position,
                    format!("{word} is not imported: haproxy rejects the value {value}"),
                );
            }
            number.map(|number| (number, position))
        };
        match word {
            "weight" => self.weight = require(number.filter(|weight| *weight <= 256), notes),
            "maxconn" => self.max_connections = require(number, notes),
            "rise" => self.rise = require(number, notes),
            "fall" => self.fall = require(number, notes),
            "port" => self.port = require(number.filter(|port| (1..65_536).contains(port)), notes),
            "agent-port" => {
                self.agent_port = require(number.filter(|port| (1..65_536).contains(port)), notes)
            }
            "slowstart" => self.slow_start = require(parse_time(value), notes),
            "inter" => self.interval = require(parse_time(value), notes),
            "fastinter" => self.fast_interval = require(parse_time(value), notes),
            "downinter" => self.down_interval = require(parse_time(value), notes),
            "addr" => self.address = Some((value.to_owned(), position)),
            "agent-inter" => self.agent_interval = require(parse_time(value), notes),
            "agent-send" => self.agent_send = Some((value.to_owned(), position)),
            "track" => self.track = Some((value.to_owned(), position)),
            "proto" if value == "h2" => self.http2 = Some(position),
            "proto" if value == "h1" => {}
            "on-marked-down" if value == "shutdown-sessions" => self.shutdown = Some(position),
            "verifyhost" => self.verify_host = Some(value.to_owned()),
            "init-state" => match value {
                "up" | "fully-up" => self.initial_state = Some(("up", position)),
                "down" | "fully-down" => self.initial_state = Some(("down", position)),
                _ => return false,
            },
            "check-sni" => self.check_name = Some((value.to_owned(), position)),
            "verify" if value == "none" => self.set_tls_key(Entry::new("verify", false, position)),
            "verify" => {}
            // This is Weir's default.
            "ca-file" if value == "@system-ca" => {}
            "ca-file" => self.set_tls_key(Entry::new("ca", value, position)),
            "crt" => self.set_tls_key(Entry::new("certificate", value, position)),
            "sni" => match value
                .strip_prefix("str(")
                .and_then(|rest| rest.strip_suffix(')'))
            {
                Some(name) => self.set_tls_key(Entry::new("server_name", name, position)),
                None => notes.add(
                    position,
                    "sni is not imported: `server_name` accepts only a fixed name",
                ),
            },
            "ssl-min-ver" => match value.strip_prefix("TLSv") {
                Some(version @ ("1.2" | "1.3")) => {
                    self.set_tls_key(Entry::new("minimum", version, position))
                }
                _ => notes.add(position, "Weir does not support TLS versions below 1.2"),
            },
            _ => return false,
        }
        true
    }

    /// Completes the keys of the pool's `tls`, or removes them if `ssl` is missing.
    pub(super) fn complete_tls(&mut self) {
        match self.ssl {
            // A pool without any key of `tls` does not use TLS.
            Some(position) if self.tls.is_empty() => {
                self.tls = vec![Entry::new("verify", true, position)];
            }
            Some(_) => {}
            None => self.tls.clear(),
        }
    }

    /// Returns whether the value of the server's cookie contains a character.
    pub(super) fn has_cookie_with(&self, character: char) -> bool {
        let cookie = self.cookie.as_ref();
        cookie.is_some_and(|(value, _)| value.contains(character))
    }

    /// Returns the keys of an entry of `servers_dns`. `is_service` is true if the entry's records (SRV) have weights.
    pub(super) fn dns_keys(&self, line: &Line, is_service: bool) -> Vec<Entry> {
        let mut entries = Vec::new();
        let weight = match self.is_disabled {
            true => Some((0, line.position)),
            false => self.weight.filter(|(weight, _)| *weight != 1),
        };
        if let Some((weight, position)) = weight.filter(|_| !is_service) {
            let weight = weight.min(MAX_WEIGHT.into());
            entries.push(Entry::new("weight", weight, position));
        }
        if let Some((max, position)) = self.max_connections.filter(|(max, _)| *max > 0) {
            entries.push(Entry::new("max_connections", max, position));
        }
        if let Some(position) = self.backup {
            entries.push(Entry::new("backup", true, position).essential());
        }
        entries
    }

    fn set_tls_key(&mut self, entry: Entry) {
        self.tls.retain(|existing| existing.key != entry.key);
        self.tls.push(entry);
    }
}

/// Converts a server and its checks. Adds a note and returns `None` if the line is invalid.
pub(super) fn convert_server(
    context: &mut Context<'_>,
    line: &Line,
    scope: &ServerScope<'_>,
    notes: &mut Notes,
) -> Option<(PoolServer, Options)> {
    let (Some(_), Some(address)) = (line.word(1), line.word(2)) else {
        line.reject(notes, "haproxy requires a name and an address");
        return None;
    };
    let mut options = scope.default_options.clone();
    options.read(&line.words[3..], line, notes);
    let address = match resolve_address(context, address) {
        Ok(address) => address,
        Err(reason) => {
            line.reject(notes, &reason);
            return None;
        }
    };
    let mut entries = vec![Entry::new("address", address, line.position).essential()];
    let weight = if options.is_disabled {
        notes.remark(
            line.position,
            "disabled, so imported with weight = 0; `weir server POOL/ADDRESS maint` does this at run time",
        );
        Some((0, line.position))
    } else {
        options.weight
    };
    if let Some((weight, position)) = weight.filter(|(weight, _)| *weight != 1) {
        entries.push(Entry::new(
            "weight",
            weight.min(MAX_WEIGHT.into()),
            position,
        ));
    }
    if let Some((max, position)) = options.max_connections.filter(|(max, _)| *max > 0) {
        entries.push(Entry::new("max_connections", max, position));
    }
    if let Some(position) = options.backup {
        // Without this key, Weir would use the server as a regular server.
        entries.push(Entry::new("backup", true, position).essential());
    }
    entries.extend(scope.cookie_entry(&options, notes));
    let probes = scope.probes(context, &options, line, notes);
    options.complete_tls();
    Some((
        PoolServer {
            position: line.position,
            entries,
            probes,
        },
        options,
    ))
}

/// Converts `use-server NAME` to a route's key `server`.
pub(super) fn preferred_server(
    context: &Context<'_>,
    proxy: &Proxy,
    line: &Line,
    action: &[String],
) -> Result<Entry, String> {
    let [name] = action else {
        return Err("haproxy requires the name of a server".to_owned());
    };
    let mut lines = proxy.lines.iter();
    let server = lines.find(|it| it.keyword() == "server" && it.word(1) == Some(name));
    let Some(address) = server.and_then(|server| server.word(2)) else {
        return Err("the name is computed, or no `server` has this name".to_owned());
    };
    if is_host_name(address) {
        return Err(
            "the server is not in `servers` of its pool: its name is resolved at run time"
                .to_owned(),
        );
    }
    let address = resolve_address(context, address)?;
    Ok(Entry::new("server", address, line.position))
}

/// Returns whether an address contains a host name that must be resolved at run time.
pub(super) fn is_host_name(text: &str) -> bool {
    let text = text
        .strip_prefix("ipv4@")
        .or(text.strip_prefix("ipv6@"))
        .unwrap_or(text);
    let host = text.rsplit_once(':').map_or(text, |(host, _)| host);
    let is_host = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
    !host.is_empty()
        && host != "localhost"
        && !host.contains(':')
        && host.bytes().all(is_host)
        && host.parse::<std::net::IpAddr>().is_err()
}

/// Returns `unix:PATH`. haproxy connects after `chroot`, so its paths are relative to the directory of `chroot`.
fn unix_socket_address(context: &Context<'_>, path: &str) -> Result<String, String> {
    let path = match &context.chroot {
        Some(root) => format!(
            "{}/{}",
            root.trim_end_matches('/'),
            path.trim_start_matches('/')
        ),
        None => path.to_owned(),
    };
    match unix_socket::path_problem(&path) {
        None => Ok(format!("{}{path}", unix_socket::PREFIX)),
        Some(reason) => Err(reason),
    }
}

/// Returns `ADDRESS[:PORT]` with a numeric address or a variable, or a Unix socket. Without a port, Weir connects to
/// the port that the client used.
pub(super) fn resolve_address(context: &Context<'_>, text: &str) -> Result<String, String> {
    let (text, ipv6) = match text.split_once('@') {
        Some(("ipv4" | "tcp4", rest)) => (rest, Some(false)),
        Some(("ipv6" | "tcp6", rest)) => (rest, Some(true)),
        Some(("tcp", rest)) => (rest, None),
        Some(("unix", path)) => return unix_socket_address(context, path),
        Some((kind, _)) => return Err(format!("Weir does not support {kind}@ server addresses")),
        None => (text, None),
    };
    if text.starts_with('/') {
        return unix_socket_address(context, text);
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
            return Err("Weir does not support ports relative to the client's".to_owned());
        }
        Some(port) if port.contains("${") => Some(port.to_owned()),
        Some(port) => {
            let number = port.parse::<u16>();
            Some(
                number
                    .map_err(|_| format!("invalid port {port}"))?
                    .to_string(),
            )
        }
    };
    let host = host.trim_start_matches('[').trim_end_matches(']');
    if host.contains("${") {
        // `servers` of weir.toml expands the variable.
        return Ok(match port {
            Some(port) => format!("{host}:{port}"),
            None => host.to_owned(),
        });
    }
    let address = match host.parse() {
        Ok(address) => address,
        Err(_) => {
            let resolved_address = match ipv6 {
                _ if host == "localhost" => Some(match ipv6 {
                    Some(true) => std::net::Ipv6Addr::LOCALHOST.into(),
                    _ => std::net::Ipv4Addr::LOCALHOST.into(),
                }),
                Some(ipv6) => context.environment.address(host, ipv6),
                None => context
                    .environment
                    .address(host, false)
                    .or_else(|| context.environment.address(host, true)),
            };
            resolved_address.ok_or_else(|| format!("the name {host} cannot be resolved"))?
        }
    };
    Ok(match (port, address) {
        (Some(port), std::net::IpAddr::V6(address)) => format!("[{address}]:{port}"),
        (Some(port), address) => format!("{address}:{port}"),
        (None, address) => address.to_string(),
    })
}
