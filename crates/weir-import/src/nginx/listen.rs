//! Reads `listen` directives, and finds the server blocks that share an address.

use std::collections::HashMap;

use super::tree::Node;
use crate::Environment;
use crate::layer7::endpoint;
use crate::note::{Notes, Position};

/// One `listen` address of a server block.
#[derive(Clone, Debug)]
pub(super) struct Listen {
    pub(super) position: Position,
    pub(super) address: String,
    pub(super) tls: bool,
    pub(super) is_default: bool,
    pub(super) proxy_protocol: bool,
    pub(super) udp: bool,
}

impl Listen {
    /// Returns whether the port is 80, which clients use for plain HTTP.
    pub(super) fn is_for_plain_http(&self) -> bool {
        self.address.ends_with(":80")
    }

    /// Returns whether clients send the port in `Host`, because it is neither 80 nor 443.
    pub(super) fn has_nonstandard_port(&self) -> bool {
        let port = self.address.rsplit(':').next();
        port.is_some_and(|port| !matches!(port, "80" | "443"))
    }
}

/// Addresses and the server blocks that share them.
#[derive(Clone, Debug)]
pub(super) struct ListenGroup {
    pub(super) listen: Vec<Listen>,
    /// Indices of server blocks, in file order.
    pub(super) servers: Vec<usize>,
    /// Index of the default server block.
    pub(super) default: usize,
}

/// Returns the `listen` addresses of a server block. With `use_default`, a block without `listen` gets nginx's default
/// port, 80.
pub(super) fn read_listens(
    node: &Node,
    environment: &dyn Environment,
    use_default: bool,
    notes: &mut Notes,
) -> Vec<Listen> {
    let mut addresses = Vec::new();
    let mut has_lines = false;
    for line in node
        .inner()
        .iter()
        .filter(|line| line.keyword() == "listen")
    {
        has_lines = true;
        match parse_listen(line, environment, notes) {
            Ok(listen) => addresses.push(listen),
            Err(reason) => line.reject(notes, &reason),
        }
    }
    if !has_lines && use_default {
        notes.remark(node.position, "no listen: port 80 is used, as in nginx");
        addresses.push(Listen {
            position: node.position,
            address: "0.0.0.0:80".to_owned(),
            tls: false,
            is_default: false,
            proxy_protocol: false,
            udp: false,
        });
    }
    addresses
}

fn parse_listen(
    line: &Node,
    environment: &dyn Environment,
    notes: &mut Notes,
) -> Result<Listen, String> {
    let text = line.word(1).ok_or("the address is missing")?;
    if text.starts_with("unix:") {
        return Err("Weir cannot listen on a Unix socket".to_owned());
    }
    let address = if text.bytes().all(|byte| byte.is_ascii_digit()) {
        format!(
            "0.0.0.0:{}",
            text.parse::<u16>()
                .map_err(|_| format!("invalid port {text}"))?
        )
    } else {
        let text = match text.strip_prefix("*") {
            Some(rest) => format!("0.0.0.0{rest}"),
            None => text.to_owned(),
        };
        parse_address(&text, environment)?
    };
    let mut listen = Listen {
        position: line.position,
        address,
        tls: false,
        is_default: false,
        proxy_protocol: false,
        udp: false,
    };
    for word in line.words.iter().skip(2) {
        match word.as_str() {
            "ssl" => listen.tls = true,
            "default_server" | "default" => listen.is_default = true,
            "proxy_protocol" => listen.proxy_protocol = true,
            "udp" => listen.udp = true,
            "http2" => notes.remark(
                line.position,
                "http2 is not imported: with ALPN, Weir offers the protocols that it supports",
            ),
            other => {
                let name = other.split('=').next().unwrap_or(other);
                let is_tuning = matches!(
                    name,
                    "reuseport"
                        | "backlog"
                        | "ipv6only"
                        | "deferred"
                        | "fastopen"
                        | "rcvbuf"
                        | "sndbuf"
                        | "so_keepalive"
                );
                if is_tuning {
                    notes.remark(
                        line.position,
                        format!("{name} is not imported: `listen` has no such option"),
                    );
                    continue;
                }
                notes.add(
                    line.position,
                    format!("{name} is not imported: `listen` has no such option"),
                );
            }
        }
    }
    Ok(listen)
}

fn parse_address(text: &str, environment: &dyn Environment) -> Result<String, String> {
    if let Ok(address) = text.parse::<std::net::SocketAddr>() {
        return Ok(endpoint(address.ip(), address.port()));
    }
    super::target::resolve_address(environment, text, 80)
}

/// Groups the addresses that have the same server blocks, default server and protocols, in order of first appearance.
pub(super) fn group_by_servers(server_listens: &[Vec<Listen>]) -> Vec<ListenGroup> {
    let mut addresses: Vec<ListenGroup> = Vec::new();
    let mut by_address: HashMap<&str, usize> = HashMap::new();
    for (server, listens) in server_listens.iter().enumerate() {
        for listen in listens {
            let index = by_address.entry(&listen.address);
            let existing = addresses.get_mut(*index.or_insert(usize::MAX));
            match existing {
                Some(existing) => {
                    // The indices are in ascending order.
                    if existing.servers.last() != Some(&server) {
                        existing.servers.push(server);
                    }
                    if listen.is_default {
                        existing.default = server;
                    }
                    // `ssl` on one `listen` applies to every `listen` with this address.
                    existing.listen[0].tls |= listen.tls;
                    existing.listen[0].proxy_protocol |= listen.proxy_protocol;
                }
                None => {
                    by_address.insert(&listen.address, addresses.len());
                    addresses.push(ListenGroup {
                        listen: vec![listen.clone()],
                        servers: vec![server],
                        default: server,
                    });
                }
            }
        }
    }
    let mut groups: Vec<ListenGroup> = Vec::new();
    for address in addresses {
        let matching_group = groups.iter_mut().find(|group| {
            group.servers == address.servers
                && group.default == address.default
                && group.listen[0].tls == address.listen[0].tls
                && group.listen[0].proxy_protocol == address.listen[0].proxy_protocol
        });
        match matching_group {
            Some(group) => group.listen.extend(address.listen),
            None => groups.push(address),
        }
    }
    groups
}

#[cfg(test)]
mod tests {
    use super::*;

    use crate::EmptyEnvironment;

    fn listens(lines: &str, use_default: bool) -> (Vec<Listen>, Vec<String>) {
        let mut notes = Notes::default();
        let text = format!("server {{ {lines} }}");
        let nodes = super::super::tree::read_file(&EmptyEnvironment, &mut notes, "f", &text);
        let listens = read_listens(&nodes[0], &EmptyEnvironment, use_default, &mut notes);
        (listens, notes.finish())
    }

    /// Returns the address, and the options as letters: TLS, default, PROXY protocol and UDP.
    fn describe_listen(listen: &Listen) -> String {
        let options = [
            (listen.tls, " t"),
            (listen.is_default, " d"),
            (listen.proxy_protocol, " p"),
            (listen.udp, " u"),
        ];
        let options = options.into_iter().filter(|(is_set, _)| *is_set);
        let options: String = options.map(|(_, letter)| letter).collect();
        format!("{}{options}", listen.address)
    }

    #[test]
    fn addresses_with_options_are_read() {
        for (line, expected) in [
            ("80", "0.0.0.0:80"),
            ("*:81", "0.0.0.0:81"),
            ("*", "0.0.0.0:80"),
            ("[::]:80", "[::]:80"),
            ("[::1]", "[::1]:80"),
            ("192.0.2.1", "192.0.2.1:80"),
            ("192.0.2.1:8080", "192.0.2.1:8080"),
            ("localhost:82", "127.0.0.1:82"),
            ("443 ssl", "0.0.0.0:443 t"),
            ("80 default_server", "0.0.0.0:80 d"),
            ("80 default", "0.0.0.0:80 d"),
            ("80 proxy_protocol ssl", "0.0.0.0:80 t p"),
            ("53 udp", "0.0.0.0:53 u"),
        ] {
            let (found, notes) = listens(&format!("listen {line};"), true);
            let found: Vec<String> = found.iter().map(describe_listen).collect();
            assert_eq!(found, [expected], "{line}");
            assert!(notes.is_empty(), "{line}: {notes:?}");
        }
    }

    #[test]
    fn other_addresses_and_options_are_reported() {
        for (line, is_read, expected) in [
            ("listen;", false, "not imported: the address is missing"),
            (
                "listen unix:/run/x;",
                false,
                "not imported: Weir cannot listen on a Unix socket",
            ),
            ("listen 65536;", false, "not imported: invalid port 65536"),
            (
                "listen other:80;",
                false,
                "not imported: the name other cannot be resolved",
            ),
            (
                "listen 80 setfib=1;",
                true,
                "setfib is not imported: `listen` has no such option",
            ),
            (
                "listen 80 backlog=9;",
                true,
                "backlog is not imported: `listen` has no such option",
            ),
            (
                "listen 80 http2;",
                true,
                "http2 is not imported: with ALPN, Weir offers the protocols that it supports",
            ),
            ("", true, "no listen: port 80 is used, as in nginx"),
        ] {
            let (found, notes) = listens(line, true);
            assert_eq!(found.len(), usize::from(is_read), "{line}");
            assert_eq!(notes, [format!("line 1: server {{ {line} }}: {expected}")]);
        }
        let (found, notes) = listens("", false);
        assert!(found.is_empty() && notes.is_empty(), "{found:?} {notes:?}");
        let (found, _) = listens("", true);
        assert_eq!(describe_listen(&found[0]), "0.0.0.0:80");
    }

    #[test]
    fn standard_ports_are_80_and_443() {
        for (port, is_plain, is_nonstandard) in [
            ("80", true, false),
            ("443", false, false),
            ("8080", false, true),
            ("180", false, true),
        ] {
            let (found, _) = listens(&format!("listen 192.0.2.1:{port};"), true);
            assert_eq!(found[0].is_for_plain_http(), is_plain, "{port}");
            assert_eq!(found[0].has_nonstandard_port(), is_nonstandard, "{port}");
        }
    }

    /// Returns the groups of server blocks, each as its addresses, its server blocks, and the default one.
    fn groups(servers: &[&str]) -> Vec<String> {
        let server_listens: Vec<Vec<Listen>> =
            servers.iter().map(|lines| listens(lines, true).0).collect();
        let describe_group = |group: ListenGroup| {
            let addresses: Vec<String> = group.listen.iter().map(describe_listen).collect();
            format!(
                "{} {:?} {}",
                addresses.join(","),
                group.servers,
                group.default
            )
        };
        group_by_servers(&server_listens)
            .into_iter()
            .map(describe_group)
            .collect()
    }

    #[test]
    fn addresses_with_the_same_blocks_and_protocols_are_grouped() {
        for (servers, expected) in [
            (
                vec!["listen 80; listen [::]:80;", "listen 80; listen [::]:80;"],
                vec!["0.0.0.0:80,[::]:80 [0, 1] 0"],
            ),
            (
                vec!["listen 80; listen 81;", "listen 80;"],
                vec!["0.0.0.0:80 [0, 1] 0", "0.0.0.0:81 [0] 0"],
            ),
            (
                vec!["listen 80;", "listen 80 default_server;"],
                vec!["0.0.0.0:80 [0, 1] 1"],
            ),
            (
                vec!["listen 80; listen 81;", "listen 80 default; listen 81;"],
                vec!["0.0.0.0:80 [0, 1] 1", "0.0.0.0:81 [0, 1] 0"],
            ),
            (vec!["listen 80; listen 80;"], vec!["0.0.0.0:80 [0] 0"]),
            (
                vec!["listen 80; listen 443 ssl; listen 444 ssl;"],
                vec!["0.0.0.0:80 [0] 0", "0.0.0.0:443 t,0.0.0.0:444 t [0] 0"],
            ),
            (
                vec!["listen 443;", "listen 443 ssl;"],
                vec!["0.0.0.0:443 t [0, 1] 0"],
            ),
            (
                vec!["listen 443 ssl;", "listen 443;"],
                vec!["0.0.0.0:443 t [0, 1] 0"],
            ),
            (
                vec!["listen 80 proxy_protocol; listen 81;"],
                vec!["0.0.0.0:80 p [0] 0", "0.0.0.0:81 [0] 0"],
            ),
            (
                vec!["listen 80;", "listen 80 proxy_protocol;"],
                vec!["0.0.0.0:80 p [0, 1] 0"],
            ),
            (
                vec!["listen 80 proxy_protocol;", "listen 80;"],
                vec!["0.0.0.0:80 p [0, 1] 0"],
            ),
        ] {
            assert_eq!(groups(&servers), expected, "{servers:?}");
        }
    }
}
