//! A question to the domain name system, and its answer as a list of servers (RFC 1035, RFC 3596, RFC 2782).
//!
//! Over UDP from a port of its own, with a number that cannot be guessed; what does not fit is asked again over TCP. Of several
//! resolvers the first that answers counts. Names are complete: there is no search, and no cache but the caller's.

use std::collections::BTreeMap;
use std::hash::{BuildHasher, Hasher};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use simple_dns::rdata::RData;
use simple_dns::{CLASS, Name, Packet, PacketFlag, QCLASS, QTYPE, Question, RCODE, TYPE};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UdpSocket};
use weir_model::{MAX_WEIGHT, ServersDns, ServersRecord};

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

/// What one question got.
#[derive(Debug, Default, PartialEq)]
struct Found {
    addresses: Vec<IpAddr>,
    services: Vec<Target>,
    /// Addresses of targets that came along.
    along: BTreeMap<String, Vec<IpAddr>>,
    /// The shortest of all.
    ttl: Option<Duration>,
}

/// An SRV record.
#[derive(Debug, Clone, PartialEq)]
struct Target {
    priority: u16,
    weight: u16,
    port: u16,
    name: String,
}

/// A name's servers as a list, a line each, and how long that may be believed.
///
/// # Errors
/// Why they are not known, in one line.
pub(super) async fn resolve(wanted: &ServersDns) -> Result<(String, Duration), String> {
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

/// Why a question got no answer.
#[derive(Debug, PartialEq)]
enum Trouble {
    /// Another resolver would say the same.
    Final(String),
    Other(String),
}

impl From<io::Error> for Trouble {
    fn from(error: io::Error) -> Self {
        Self::Other(error.to_string())
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

fn question(name: &str, kind: TYPE, mark: u16) -> Result<Vec<u8>, Trouble> {
    let asked = || -> simple_dns::Result<Vec<u8>> {
        let mut packet = Packet::new_query(mark);
        packet.set_flags(PacketFlag::RECURSION_DESIRED);
        let (kind, class) = (QTYPE::TYPE(kind), QCLASS::CLASS(CLASS::IN));
        packet
            .questions
            .push(Question::new(Name::new(name)?, kind, class, false));
        packet.build_bytes_vec()
    };
    asked().map_err(|error| Trouble::Final(format!("{name}: {error:?}")))
}

/// What a message says; `None` = it does not answer this question, `Some(Ok(None))` = the answer did not fit.
fn read(
    message: &[u8],
    name: &str,
    kind: TYPE,
    mark: u16,
) -> Option<Result<Option<Found>, Trouble>> {
    let Ok(packet) = Packet::parse(message) else {
        return is_cut(message, mark).then_some(Ok(None));
    };
    let asked = packet.questions.first()?;
    let same = asked.qname.to_string().eq_ignore_ascii_case(name);
    if packet.id() != mark
        || !packet.has_flags(PacketFlag::RESPONSE)
        || !same
        || asked.qtype != QTYPE::TYPE(kind)
    {
        return None;
    }
    match packet.rcode() {
        RCODE::NoError => {}
        RCODE::NameError => {
            let problem = format!("{name} does not exist (NXDOMAIN)");
            return Some(Err(Trouble::Final(problem)));
        }
        other => return Some(Err(Trouble::Other(format!("{other:?}")))),
    }
    if packet.has_flags(PacketFlag::TRUNCATION) {
        return Some(Ok(None));
    }
    Some(Ok(Some(found(&packet))))
}

/// Whether a message that makes no sense says itself that it is not whole (RFC 1035 section 4.1.1, QR and TC): some servers cut in
/// the middle of a record.
fn is_cut(message: &[u8], mark: u16) -> bool {
    const ANSWER_CUT: u16 = 0x8200;
    let [id @ .., high, low] = message.first_chunk::<4>().unwrap_or(&[0; 4]);
    let flags = u16::from_be_bytes([*high, *low]);
    *id == mark.to_be_bytes() && flags & ANSWER_CUT == ANSWER_CUT
}

fn found(packet: &Packet<'_>) -> Found {
    let mut found = Found::default();
    for record in &packet.answers {
        let ttl = Duration::from_secs(record.ttl.into());
        found.ttl = found.ttl.into_iter().chain([ttl]).min();
        match &record.rdata {
            RData::SRV(target) => found.services.push(Target {
                priority: target.priority,
                weight: target.weight,
                port: target.port,
                name: target.target.to_string(),
            }),
            other => found.addresses.extend(address(other)),
        }
    }
    for record in &packet.additional_records {
        if let Some(address) = address(&record.rdata) {
            let ttl = Duration::from_secs(record.ttl.into());
            found.ttl = found.ttl.into_iter().chain([ttl]).min();
            let of = found.along.entry(record.name.to_string()).or_default();
            of.push(address);
        }
    }
    found
}

fn address(data: &RData<'_>) -> Option<IpAddr> {
    match data {
        RData::A(a) => Some(Ipv4Addr::from_bits(a.address).into()),
        RData::AAAA(aaaa) => Some(Ipv6Addr::from_bits(aaaa.address).into()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use simple_dns::ResourceRecord;
    use simple_dns::rdata::{A, SRV};

    const NAME: &str = "web.example";

    fn reply(fill: impl FnOnce(&mut Packet<'_>)) -> Vec<u8> {
        let mut packet = Packet::new_reply(7);
        let (kind, class) = (QTYPE::TYPE(TYPE::SRV), QCLASS::CLASS(CLASS::IN));
        let name = Name::new_unchecked(NAME);
        packet
            .questions
            .push(Question::new(name, kind, class, false));
        fill(&mut packet);
        packet.build_bytes_vec_compressed().expect("a message")
    }

    fn record(name: &'static str, ttl: u32, data: RData<'static>) -> ResourceRecord<'static> {
        ResourceRecord::new(Name::new_unchecked(name), CLASS::IN, ttl, data)
    }

    #[test]
    fn services_come_with_the_addresses_that_are_along() {
        let message = reply(|packet| {
            for (priority, weight, target) in [(1, 5, "a.example"), (2, 1, "b.example")] {
                let target = Name::new_unchecked(target);
                let data = SRV {
                    priority,
                    weight,
                    port: 8080,
                    target,
                };
                packet.answers.push(record(NAME, 30, RData::SRV(data)));
            }
            let address = u32::from(Ipv4Addr::new(10, 0, 0, 5));
            let along = record("a.example", 20, RData::A(A { address }));
            packet.additional_records.push(along);
        });
        let found = read(&message, "WEB.example", TYPE::SRV, 7)
            .expect("ours")
            .expect("no trouble")
            .expect("whole");
        assert_eq!(found.ttl, Some(Duration::from_secs(20)));
        assert_eq!(found.services.len(), 2);
        assert_eq!(
            (found.services[0].port, found.services[0].weight),
            (8080, 5)
        );
        assert_eq!(
            found.along[&found.services[0].name],
            [IpAddr::from([10, 0, 0, 5])]
        );
    }

    #[test]
    fn what_answers_another_question_is_no_answer() {
        let message = reply(|_| {});
        let ours = |name, kind, mark| read(&message, name, kind, mark).is_some();
        assert!(ours(NAME, TYPE::SRV, 7));
        assert!(!ours("www.example", TYPE::SRV, 7));
        assert!(!ours(NAME, TYPE::A, 7));
        assert!(!ours(NAME, TYPE::SRV, 8));
        for end in 0..message.len() {
            assert!(read(&message[..end], NAME, TYPE::SRV, 7).is_none(), "{end}");
        }
    }

    #[test]
    fn errors_are_told_from_answers_that_do_not_fit() {
        let code = |code| reply(|packet| *packet.rcode_mut() = code);
        let of = |message: &[u8]| read(message, NAME, TYPE::SRV, 7).expect("ours");
        assert!(matches!(
            of(&code(RCODE::NameError)),
            Err(Trouble::Final(_))
        ));
        assert!(matches!(
            of(&code(RCODE::ServerFailure)),
            Err(Trouble::Other(_))
        ));
        let cut = reply(|packet| packet.set_flags(PacketFlag::TRUNCATION));
        assert_eq!(of(&cut), Ok(None));
        // In the middle of a record.
        let full = reply(|packet| {
            packet.set_flags(PacketFlag::TRUNCATION);
            let address = u32::from(Ipv4Addr::new(10, 0, 0, 5));
            packet
                .answers
                .push(record(NAME, 30, RData::A(A { address })));
        });
        let half = &full[..full.len() - 2];
        assert_eq!(of(half), Ok(None));
        assert!(read(half, NAME, TYPE::SRV, 8).is_none());
    }

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
