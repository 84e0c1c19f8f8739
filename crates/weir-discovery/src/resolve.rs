//! Resolves a name to a list of servers (RFC 1035, RFC 3596, RFC 2782).
//!
//! Queries use UDP from a port of their own with a random identifier; truncated answers are requested again over TCP.
//! Resolvers are tried in order until one answers. Names are fully qualified: there is no search list and no cache.

use std::hash::{BuildHasher, Hasher};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use simple_dns::TYPE;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UdpSocket};
use weir_model::{MAX_WEIGHT, ServersDns, ServersRecord};

use crate::answer::{Found, QueryError, query, read};

/// The file with this machine's resolvers.
const RESOLV_CONF: &str = "/etc/resolv.conf";
const PORT: u16 = 53;
/// Time limit of one resolver, and how often all are tried.
const TIMEOUT: Duration = Duration::from_secs(1);
const ROUNDS: usize = 2;
/// Largest answer: TCP has a length field of 16 bits.
const MAX_MESSAGE_BYTES: usize = 65_535;
/// Most servers of one name.
const MAX_SERVERS: usize = 4096;

/// A name's servers as a list, one per line, and their time to live.
///
/// # Errors
/// Why they are not known, in one line.
pub(crate) async fn resolve(wanted: &ServersDns) -> Result<(String, Duration), String> {
    let resolvers = match wanted.resolvers.as_slice() {
        [] => system_resolvers()?,
        own => own.to_vec(),
    };
    let mut resolver = Resolver {
        resolvers,
        ttl: None,
    };
    let mut lines: Vec<(IpAddr, Option<u16>, u32)> = Vec::new();
    if wanted.record == ServersRecord::Srv {
        for (address, port, weight) in resolver.services(&wanted.name).await? {
            lines.push((address, Some(port), weight));
        }
    } else {
        let addresses = resolver.addresses(&wanted.name, wanted.record).await?;
        lines.extend(
            addresses
                .into_iter()
                .map(|address| (address, wanted.port, 1)),
        );
    }
    lines.sort_unstable();
    lines.dedup_by_key(|line| (line.0, line.1));
    if lines.is_empty() {
        return Err(format!(
            "no {} records for {}",
            wanted.record.as_str(),
            wanted.name
        ));
    }
    if lines.len() > MAX_SERVERS {
        return Err(format!(
            "{} has more than {MAX_SERVERS} servers",
            wanted.name
        ));
    }
    let text = lines.into_iter().map(line).collect();
    Ok((text, resolver.ttl.unwrap_or_default()))
}

/// As `servers_file` has them.
fn line((address, port, weight): (IpAddr, Option<u16>, u32)) -> String {
    let address = match port {
        Some(port) => SocketAddr::new(address, port).to_string(),
        None => address.to_string(),
    };
    match weight {
        1 => format!("{address}\n"),
        _ => format!("{address} weight={weight}\n"),
    }
}

fn system_resolvers() -> Result<Vec<SocketAddr>, String> {
    let text = std::fs::read_to_string(RESOLV_CONF).map_err(|e| format!("{RESOLV_CONF}: {e}"))?;
    let address = |line: &str| {
        let mut words = line.split_whitespace();
        (words.next() == Some("nameserver")).then(|| words.next()?.parse::<IpAddr>().ok())?
    };
    let found: Vec<SocketAddr> = text
        .lines()
        .filter_map(address)
        .map(|address| SocketAddr::new(address, PORT))
        .collect();
    if found.is_empty() {
        return Err(format!("{RESOLV_CONF} names no resolver"));
    }
    Ok(found)
}

struct Resolver {
    resolvers: Vec<SocketAddr>,
    /// The shortest time to live of all answers.
    ttl: Option<Duration>,
}

impl Resolver {
    async fn addresses(
        &mut self,
        name: &str,
        record: ServersRecord,
    ) -> Result<Vec<IpAddr>, String> {
        let mut addresses = Vec::new();
        if record != ServersRecord::Aaaa {
            addresses.extend(self.query(name, TYPE::A).await?.addresses);
        }
        if record != ServersRecord::A {
            addresses.extend(self.query(name, TYPE::AAAA).await?.addresses);
        }
        Ok(addresses)
    }

    /// Address, port and weight of each.
    async fn services(&mut self, name: &str) -> Result<Vec<(IpAddr, u16, u32)>, String> {
        let found = self.query(name, TYPE::SRV).await?;
        let best = found.services.iter().map(|target| target.priority).min();
        let mut all = Vec::new();
        for target in &found.services {
            // "." means that there is no service (RFC 2782).
            if Some(target.priority) != best || target.name.is_empty() {
                continue;
            }
            let addresses = match found.additional.get(&target.name) {
                Some(addresses) => addresses.clone(),
                None => self.addresses(&target.name, ServersRecord::Address).await?,
            };
            let weight = u32::from(target.weight).clamp(1, MAX_WEIGHT);
            all.extend(
                addresses
                    .into_iter()
                    .map(|address| (address, target.port, weight)),
            );
            if all.len() > MAX_SERVERS {
                break;
            }
        }
        Ok(all)
    }

    /// The answer of the first resolver that answers.
    async fn query(&mut self, name: &str, kind: TYPE) -> Result<Found, String> {
        let mut why = String::new();
        for _ in 0..ROUNDS {
            for resolver in &self.resolvers {
                let answer = exchange(*resolver, name, kind);
                match tokio::time::timeout(TIMEOUT, answer).await {
                    Ok(Ok(found)) => {
                        self.ttl = self.ttl.into_iter().chain(found.ttl).min();
                        return Ok(found);
                    }
                    Ok(Err(QueryError::Final(problem))) => return Err(problem),
                    Ok(Err(QueryError::Retryable(problem))) => {
                        why = format!("{resolver}: {problem}")
                    }
                    Err(_) => why = format!("{resolver} does not answer"),
                }
            }
        }
        Err(why)
    }
}

/// A random identifier.
fn random_id() -> u16 {
    let random = std::hash::RandomState::new().build_hasher().finish();
    (random & u64::from(u16::MAX)) as u16
}

async fn exchange(resolver: SocketAddr, name: &str, kind: TYPE) -> Result<Found, QueryError> {
    let id = random_id();
    let query = query(name, kind, id)?;
    let any: SocketAddr = match resolver {
        SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
        SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
    };
    let socket = UdpSocket::bind(any).await?;
    socket.connect(resolver).await?;
    socket.send(&query).await?;
    let mut buffer = vec![0; MAX_MESSAGE_BYTES];
    loop {
        let length = socket.recv(&mut buffer).await?;
        match read(&buffer[..length], name, kind, id) {
            // Not the answer to this query: it may still arrive.
            None => {}
            Some(Ok(None)) => break,
            Some(Ok(Some(found))) => return Ok(found),
            Some(Err(trouble)) => return Err(trouble),
        }
    }
    let mut stream = TcpStream::connect(resolver).await?;
    let length = u16::try_from(query.len()).unwrap_or(u16::MAX);
    stream
        .write_all(&[&length.to_be_bytes(), query.as_slice()].concat())
        .await?;
    let length = usize::from(stream.read_u16().await?);
    stream.read_exact(&mut buffer[..length]).await?;
    match read(&buffer[..length], name, kind, id) {
        Some(Ok(Some(found))) => Ok(found),
        Some(Err(trouble)) => Err(trouble),
        _ => Err(QueryError::Retryable("invalid answer".to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_those_of_servers_file() {
        let lines: String = [
            (IpAddr::from([10, 0, 0, 5]), None, 1),
            ("2001:db8::5".parse().expect("an address"), Some(80), 7),
        ]
        .map(line)
        .concat();
        assert_eq!(lines, "10.0.0.5\n[2001:db8::5]:80 weight=7\n");
        assert_eq!(weir_config::members(&lines).expect("a list").len(), 2);
    }
}
