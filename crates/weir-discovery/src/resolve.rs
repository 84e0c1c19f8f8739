//! A question to the domain name system, and its answer as a list of servers (RFC 1035, RFC 3596, RFC 2782).
//!
//! Over UDP from a port of its own, with a number that cannot be guessed; what does not fit is asked again over TCP. Of
//! several resolvers the first that answers counts. Names are complete: there is no search, and no cache but the
//! caller's.

use std::hash::{BuildHasher, Hasher};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use simple_dns::TYPE;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UdpSocket};
use weir_model::{MAX_WEIGHT, ServersDns, ServersRecord};

use crate::answer::{Found, Trouble, question, read};

/// Resolvers of this machine.
const RESOLV_CONF: &str = "/etc/resolv.conf";
const PORT: u16 = 53;
/// One resolver's time to answer, and how often all are tried.
const PATIENCE: Duration = Duration::from_secs(1);
const ROUNDS: usize = 2;
/// An answer over TCP has a length of 16 bits.
const ROOM: usize = 65_535;
/// More servers than this of one name are a mistake.
const MOST: usize = 4096;

/// A name's servers as a list, a line each, and how long that may be believed.
///
/// # Errors
/// Why they are not known, in one line.
pub(crate) async fn resolve(wanted: &ServersDns) -> Result<(String, Duration), String> {
    let resolvers = match wanted.resolvers.as_slice() {
        [] => of_this_machine()?,
        own => own.to_vec(),
    };
    let mut asker = Asker {
        resolvers,
        ttl: None,
    };
    let mut lines: Vec<(IpAddr, Option<u16>, u32)> = Vec::new();
    if wanted.record == ServersRecord::Srv {
        for (address, port, weight) in asker.services(&wanted.name).await? {
            lines.push((address, Some(port), weight));
        }
    } else {
        let addresses = asker.addresses(&wanted.name, wanted.record).await?;
        lines.extend(
            addresses
                .into_iter()
                .map(|address| (address, wanted.port, 1)),
        );
    }
    lines.sort_unstable();
    lines.dedup_by_key(|line| (line.0, line.1));
    if lines.is_empty() {
        return Err(format!("{} has no such records", wanted.name));
    }
    if lines.len() > MOST {
        return Err(format!("{} has more than {MOST} servers", wanted.name));
    }
    let text = lines.into_iter().map(line).collect();
    Ok((text, asker.ttl.unwrap_or_default()))
}

/// As `servers_file` has them.
fn line((address, port, weight): (IpAddr, Option<u16>, u32)) -> String {
    let place = match port {
        Some(port) => SocketAddr::new(address, port).to_string(),
        None => address.to_string(),
    };
    match weight {
        1 => format!("{place}\n"),
        _ => format!("{place} weight={weight}\n"),
    }
}

fn of_this_machine() -> Result<Vec<SocketAddr>, String> {
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

struct Asker {
    resolvers: Vec<SocketAddr>,
    /// The shortest time to live of all answers.
    ttl: Option<Duration>,
}

impl Asker {
    async fn addresses(
        &mut self,
        name: &str,
        record: ServersRecord,
    ) -> Result<Vec<IpAddr>, String> {
        let mut addresses = Vec::new();
        if record != ServersRecord::Aaaa {
            addresses.extend(self.ask(name, TYPE::A).await?.addresses);
        }
        if record != ServersRecord::A {
            addresses.extend(self.ask(name, TYPE::AAAA).await?.addresses);
        }
        Ok(addresses)
    }

    /// Address, port and weight of each.
    async fn services(&mut self, name: &str) -> Result<Vec<(IpAddr, u16, u32)>, String> {
        let found = self.ask(name, TYPE::SRV).await?;
        let best = found.services.iter().map(|target| target.priority).min();
        let mut all = Vec::new();
        for target in &found.services {
            // "." stands for no service at all.
            if Some(target.priority) != best || target.name.is_empty() {
                continue;
            }
            let addresses = match found.along.get(&target.name) {
                Some(addresses) => addresses.clone(),
                None => self.addresses(&target.name, ServersRecord::Address).await?,
            };
            let weight = u32::from(target.weight).clamp(1, MAX_WEIGHT);
            all.extend(
                addresses
                    .into_iter()
                    .map(|address| (address, target.port, weight)),
            );
            if all.len() > MOST {
                break;
            }
        }
        Ok(all)
    }

    /// The first resolver's answer; one that does not answer, or cannot, is passed over.
    async fn ask(&mut self, name: &str, kind: TYPE) -> Result<Found, String> {
        let mut why = String::new();
        for _ in 0..ROUNDS {
            for resolver in &self.resolvers {
                let asked = exchange(*resolver, name, kind);
                match tokio::time::timeout(PATIENCE, asked).await {
                    Ok(Ok(found)) => {
                        self.ttl = self.ttl.into_iter().chain(found.ttl).min();
                        return Ok(found);
                    }
                    Ok(Err(Trouble::Final(problem))) => return Err(problem),
                    Ok(Err(Trouble::Other(problem))) => why = format!("{resolver}: {problem}"),
                    Err(_) => why = format!("{resolver} does not answer"),
                }
            }
        }
        Err(why)
    }
}

/// A number that nobody else knows.
fn mark() -> u16 {
    let random = std::hash::RandomState::new().build_hasher().finish();
    (random & u64::from(u16::MAX)) as u16
}

async fn exchange(resolver: SocketAddr, name: &str, kind: TYPE) -> Result<Found, Trouble> {
    let mark = mark();
    let question = question(name, kind, mark)?;
    let any: SocketAddr = match resolver {
        SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
        SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
    };
    let socket = UdpSocket::bind(any).await?;
    socket.connect(resolver).await?;
    socket.send(&question).await?;
    let mut room = vec![0; ROOM];
    loop {
        let length = socket.recv(&mut room).await?;
        match read(&room[..length], name, kind, mark) {
            // Somebody else's, or no message at all: the answer may still come.
            None => {}
            Some(Ok(None)) => break,
            Some(Ok(Some(found))) => return Ok(found),
            Some(Err(trouble)) => return Err(trouble),
        }
    }
    let mut stream = TcpStream::connect(resolver).await?;
    let length = u16::try_from(question.len()).unwrap_or(u16::MAX);
    stream
        .write_all(&[&length.to_be_bytes(), question.as_slice()].concat())
        .await?;
    let length = usize::from(stream.read_u16().await?);
    stream.read_exact(&mut room[..length]).await?;
    match read(&room[..length], name, kind, mark) {
        Some(Ok(Some(found))) => Ok(found),
        Some(Err(trouble)) => Err(trouble),
        _ => Err(Trouble::Other("an answer that is none".to_owned())),
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
