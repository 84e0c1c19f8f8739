//! Resolves a DNS name to a list of servers (RFC 1035, RFC 3596, RFC 2782).
//!
//! Each query uses UDP from a new port with a random identifier. If the response is truncated, the query is repeated
//! over TCP. Resolvers are tried in order until one responds. Names are treated as fully qualified, so the search list
//! is not used. Responses are not cached.

use std::hash::{BuildHasher, Hasher};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use simple_dns::TYPE;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UdpSocket};
use weir_model::{MAX_WEIGHT, ServersDns, ServersRecord};

use crate::response::{QueryError, Records, build_query, parse_response};

/// File that lists the system's resolvers.
const RESOLV_CONF: &str = "/etc/resolv.conf";
const PORT: u16 = 53;
/// Time limit for a resolver's response.
const RESOLVER_TIMEOUT: Duration = Duration::from_secs(1);
/// Number of times that each resolver is tried.
const ROUNDS: usize = 2;
/// Maximum size of a response. The length field of a message over TCP has 16 bits.
const MAX_MESSAGE_BYTES: usize = 65_535;
/// Maximum number of servers for one name.
const MAX_SERVERS: usize = 4096;

/// Resolves a name to a list of servers, one per line. Returns the list and its TTL.
///
/// # Errors
/// Returns a one-line message if the name cannot be resolved.
pub(crate) async fn resolve(query: &ServersDns) -> Result<(String, Duration), String> {
    let resolvers = match query.resolvers.as_slice() {
        [] => system_resolvers()?,
        configured => configured.to_vec(),
    };
    let mut resolver = Resolver {
        resolvers,
        ttl: None,
    };
    let mut lines: Vec<(IpAddr, Option<u16>, u32)> = Vec::new();
    if query.record == ServersRecord::Srv {
        for (address, port, weight) in resolver.query_services(&query.name).await? {
            lines.push((address, Some(port), weight));
        }
    } else {
        let addresses = resolver.query_addresses(&query.name, query.record).await;
        let addresses = addresses.map_err(|problem| {
            if problem.starts_with(AAAA_FAILED) {
                format!("{problem}; there are A records: to query only these, set `record = \"A\"`")
            } else {
                problem
            }
        })?;
        lines.extend(
            addresses
                .into_iter()
                .map(|address| (address, query.port, query.weight)),
        );
    }
    lines.sort_unstable();
    lines.dedup_by_key(|line| (line.0, line.1));
    if lines.is_empty() {
        return Err(format!(
            "no {} records for {}",
            query.record.as_str(),
            query.name
        ));
    }
    if lines.len() > MAX_SERVERS {
        return Err(format!(
            "{} has more than {MAX_SERVERS} servers",
            query.name
        ));
    }
    let lines = lines.into_iter().enumerate();
    let text = lines
        .map(|(index, line)| format_line(line, query, index == 0))
        .collect();
    Ok((text, resolver.ttl.unwrap_or_default()))
}

/// Formats a server as a line of `servers_file`; `is_first` = the server gets the cookie that is configured for the
/// name.
fn format_line(
    (address, port, weight): (IpAddr, Option<u16>, u32),
    query: &ServersDns,
    is_first: bool,
) -> String {
    let address = match port {
        Some(port) => SocketAddr::new(address, port).to_string(),
        None => address.to_string(),
    };
    let mut line = address;
    if weight != 1 {
        line.push_str(&format!(" weight={weight}"));
    }
    if query.max_connections != 0 {
        line.push_str(&format!(" max_connections={}", query.max_connections));
    }
    if let Some(cookie) = query.cookie.as_ref().filter(|_| is_first) {
        line.push_str(&format!(" cookie={cookie}"));
    }
    if query.backup {
        line.push_str(" backup=true");
    }
    line.push('\n');
    line
}

/// Reads the resolvers from `/etc/resolv.conf`.
fn system_resolvers() -> Result<Vec<SocketAddr>, String> {
    let text = std::fs::read_to_string(RESOLV_CONF).map_err(|e| format!("{RESOLV_CONF}: {e}"))?;
    let parse_address = |line: &str| {
        let mut words = line.split_whitespace();
        (words.next() == Some("nameserver")).then(|| words.next()?.parse::<IpAddr>().ok())?
    };
    let resolvers: Vec<SocketAddr> = text
        .lines()
        .filter_map(parse_address)
        .map(|address| SocketAddr::new(address, PORT))
        .collect();
    if resolvers.is_empty() {
        return Err(format!("{RESOLV_CONF} contains no name server"));
    }
    Ok(resolvers)
}

/// Prefix of the error if the AAAA query failed after the A query returned addresses.
const AAAA_FAILED: &str = "query for AAAA: ";

/// The state of the resolution of one name.
struct Resolver {
    resolvers: Vec<SocketAddr>,
    /// The minimum TTL of all responses.
    ttl: Option<Duration>,
}

impl Resolver {
    /// Returns the addresses of a name.
    async fn query_addresses(
        &mut self,
        name: &str,
        record: ServersRecord,
    ) -> Result<Vec<IpAddr>, String> {
        let mut addresses = Vec::new();
        if record != ServersRecord::Aaaa {
            addresses.extend(self.query(name, TYPE::A).await?.addresses);
        }
        if record != ServersRecord::A {
            let records = self.query(name, TYPE::AAAA).await;
            let records = records.map_err(|problem| {
                if addresses.is_empty() {
                    problem
                } else {
                    // Some resolvers, such as dnsmasq without an upstream, refuse queries for data that they do not
                    // have.
                    format!("{AAAA_FAILED}{problem}")
                }
            })?;
            addresses.extend(records.addresses);
        }
        Ok(addresses)
    }

    /// Returns the address, port and weight of each server in the SRV records with the lowest priority value.
    async fn query_services(&mut self, name: &str) -> Result<Vec<(IpAddr, u16, u32)>, String> {
        let records = self.query(name, TYPE::SRV).await?;
        let best_priority = records.services.iter().map(|target| target.priority).min();
        let mut servers = Vec::new();
        for target in &records.services {
            // The name "." means that the service is not available (RFC 2782).
            if Some(target.priority) != best_priority || target.name.is_empty() {
                continue;
            }
            let addresses = match records.additional.get(&target.name) {
                Some(addresses) => addresses.clone(),
                None => {
                    self.query_addresses(&target.name, ServersRecord::Address)
                        .await?
                }
            };
            let weight = u32::from(target.weight).clamp(1, MAX_WEIGHT);
            servers.extend(
                addresses
                    .into_iter()
                    .map(|address| (address, target.port, weight)),
            );
            if servers.len() > MAX_SERVERS {
                break;
            }
        }
        Ok(servers)
    }

    /// Returns the records in the first usable response from a resolver.
    async fn query(&mut self, name: &str, kind: TYPE) -> Result<Records, String> {
        let mut last_error = String::new();
        for _ in 0..ROUNDS {
            for resolver in &self.resolvers {
                let response = exchange(*resolver, name, kind);
                match tokio::time::timeout(RESOLVER_TIMEOUT, response).await {
                    Ok(Ok(records)) => {
                        self.ttl = self.ttl.into_iter().chain(records.ttl).min();
                        return Ok(records);
                    }
                    Ok(Err(QueryError::Final(problem))) => return Err(problem),
                    Ok(Err(QueryError::Retryable(problem))) => {
                        last_error = format!("{resolver}: {problem}")
                    }
                    Err(_) => last_error = format!("{resolver} does not respond"),
                }
            }
        }
        Err(last_error)
    }
}

/// Returns a random identifier for a query.
fn random_id() -> u16 {
    let random = std::hash::RandomState::new().build_hasher().finish();
    (random & u64::from(u16::MAX)) as u16
}

/// Sends a query to a resolver, and returns the records in the response.
async fn exchange(resolver: SocketAddr, name: &str, kind: TYPE) -> Result<Records, QueryError> {
    let id = random_id();
    let query = build_query(name, kind, id)?;
    let local_address: SocketAddr = match resolver {
        SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
        SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
    };
    let socket = UdpSocket::bind(local_address).await?;
    socket.connect(resolver).await?;
    socket.send(&query).await?;
    let mut buffer = vec![0; MAX_MESSAGE_BYTES];
    loop {
        let length = socket.recv(&mut buffer).await?;
        match parse_response(&buffer[..length], name, kind, id) {
            // Ignore other messages, because the response may still arrive.
            None => {}
            Some(Ok(None)) => break,
            Some(Ok(Some(records))) => return Ok(records),
            Some(Err(error)) => return Err(error),
        }
    }
    let mut stream = TcpStream::connect(resolver).await?;
    let length = u16::try_from(query.len()).unwrap_or(u16::MAX);
    stream
        .write_all(&[&length.to_be_bytes(), query.as_slice()].concat())
        .await?;
    let length = usize::from(stream.read_u16().await?);
    stream.read_exact(&mut buffer[..length]).await?;
    match parse_response(&buffer[..length], name, kind, id) {
        Some(Ok(Some(records))) => Ok(records),
        Some(Err(error)) => Err(error),
        _ => Err(QueryError::Retryable("invalid response".to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_have_the_format_of_servers_file() {
        let name_only = ServersDns::new("web.example");
        let query = ServersDns {
            max_connections: 9,
            cookie: Some("a=b".to_owned()),
            backup: true,
            ..name_only.clone()
        };
        let addresses = [
            (IpAddr::from([10, 0, 0, 5]), None, 1),
            (
                "2001:db8::5".parse().expect("parse the address"),
                Some(80),
                7,
            ),
        ];
        let list = |query: &ServersDns| -> String {
            let lines = addresses.into_iter().enumerate();
            lines
                .map(|(index, line)| format_line(line, query, index == 0))
                .collect()
        };
        assert_eq!(list(&name_only), "10.0.0.5\n[2001:db8::5]:80 weight=7\n");
        let members = weir_config::members(&list(&query)).expect("parse the list");
        let keys = members.iter().map(|member| {
            let server = &member.server;
            (
                server.max_connections,
                server.cookie.as_deref(),
                server.backup,
            )
        });
        let keys: Vec<_> = keys.collect();
        assert_eq!(keys, [(9, Some("a=b"), true), (9, None, true)]);
    }
}
