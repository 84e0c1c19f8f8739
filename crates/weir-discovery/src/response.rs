//! Builds DNS queries and parses responses (RFC 1035, RFC 3596, RFC 2782).

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use simple_dns::rdata::RData;
use simple_dns::{CLASS, Name, Packet, PacketFlag, QCLASS, QTYPE, Question, RCODE, TYPE};

/// The records in a response.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Records {
    pub(crate) addresses: Vec<IpAddr>,
    pub(crate) services: Vec<Target>,
    /// Addresses in the additional section, by name.
    pub(crate) additional: BTreeMap<String, Vec<IpAddr>>,
    /// The minimum TTL of the records; `None` = there are no records.
    pub(crate) ttl: Option<Duration>,
}

/// An SRV record.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Target {
    pub(crate) priority: u16,
    pub(crate) weight: u16,
    pub(crate) port: u16,
    pub(crate) name: String,
}

/// A query error.
#[derive(Debug, PartialEq)]
pub(crate) enum QueryError {
    /// Another resolver would return the same error.
    Final(String),
    /// Another resolver may return the records.
    Retryable(String),
}

impl From<io::Error> for QueryError {
    fn from(error: io::Error) -> Self {
        Self::Retryable(error.to_string())
    }
}

/// Builds a query with the identifier `id`.
///
/// # Errors
/// Returns an error if the name is not a valid DNS name.
pub(crate) fn build_query(name: &str, kind: TYPE, id: u16) -> Result<Vec<u8>, QueryError> {
    let build = || -> simple_dns::Result<Vec<u8>> {
        let mut packet = Packet::new_query(id);
        packet.set_flags(PacketFlag::RECURSION_DESIRED);
        let (kind, class) = (QTYPE::TYPE(kind), QCLASS::CLASS(CLASS::IN));
        packet
            .questions
            .push(Question::new(Name::new(name)?, kind, class, false));
        packet.build_bytes_vec()
    };
    build().map_err(|error| QueryError::Final(format!("{name}: {error}")))
}

/// Parses a message. Returns `None` if it is not the response to this query, and `Some(Ok(None))` if it is a truncated
/// response.
pub(crate) fn parse_response(
    message: &[u8],
    name: &str,
    kind: TYPE,
    id: u16,
) -> Option<Result<Option<Records>, QueryError>> {
    let Ok(packet) = Packet::parse(message) else {
        return is_truncated(message, id).then_some(Ok(None));
    };
    let question = packet.questions.first()?;
    let has_same_name = escape_name(&question.qname).eq_ignore_ascii_case(name);
    if packet.id() != id
        || !packet.has_flags(PacketFlag::RESPONSE)
        || !has_same_name
        || question.qtype != QTYPE::TYPE(kind)
    {
        return None;
    }
    match packet.rcode() {
        RCODE::NoError => {}
        RCODE::NameError => {
            let problem = format!("{name} does not exist (NXDOMAIN)");
            return Some(Err(QueryError::Final(problem)));
        }
        code => return Some(Err(QueryError::Retryable(rcode_message(code)))),
    }
    if packet.has_flags(PacketFlag::TRUNCATION) {
        return Some(Ok(None));
    }
    Some(Ok(Some(collect_records(&packet))))
}

/// Returns a description of a response code (RFC 1035 section 4.1.1).
fn rcode_message(code: RCODE) -> String {
    let message = match code {
        RCODE::FormatError => "the name server cannot interpret the query (FORMERR)",
        RCODE::ServerFailure => "the name server failed (SERVFAIL)",
        RCODE::NotImplemented => "the name server does not support this type of query (NOTIMP)",
        RCODE::Refused => "the name server refused the query (REFUSED)",
        _ => "the name server returned an error",
    };
    message.to_owned()
}

/// Returns whether a malformed message is a truncated response with this identifier (RFC 1035 section 4.1.1, QR and
/// TC). Some servers truncate a response in the middle of a record.
fn is_truncated(message: &[u8], id: u16) -> bool {
    const RESPONSE_TRUNCATED: u16 = 0x8200;
    let [message_id @ .., high, low] = message.first_chunk::<4>().unwrap_or(&[0; 4]);
    let flags = u16::from_be_bytes([*high, *low]);
    *message_id == id.to_be_bytes() && flags & RESPONSE_TRUNCATED == RESPONSE_TRUNCATED
}

/// Collects the records of a response.
fn collect_records(packet: &Packet<'_>) -> Records {
    let mut records = Records::default();
    for record in &packet.answers {
        let ttl = Duration::from_secs(record.ttl.into());
        records.ttl = records.ttl.into_iter().chain([ttl]).min();
        match &record.rdata {
            RData::SRV(target) => records.services.push(Target {
                priority: target.priority,
                weight: target.weight,
                port: target.port,
                name: escape_name(&target.target),
            }),
            other => records.addresses.extend(parse_address(other)),
        }
    }
    for record in &packet.additional_records {
        if let Some(address) = parse_address(&record.rdata) {
            let ttl = Duration::from_secs(record.ttl.into());
            records.ttl = records.ttl.into_iter().chain([ttl]).min();
            let addresses = records
                .additional
                .entry(escape_name(&record.name))
                .or_default();
            addresses.push(address);
        }
    }
    records
}

/// Returns a name from a response as text for messages and further queries. Bytes that are not visible characters are
/// escaped as in a zone file (RFC 1035 section 5.1), so that the author of a zone cannot send control characters to
/// terminals.
fn escape_name(name: &Name<'_>) -> String {
    let mut text = String::new();
    for (index, label) in name.get_labels().iter().enumerate() {
        if index > 0 {
            text.push('.');
        }
        for byte in label.as_ref() {
            match byte {
                b'.' | b'\\' => text.extend(['\\', char::from(*byte)]),
                byte if byte.is_ascii_graphic() => text.push(char::from(*byte)),
                byte => {
                    let _ = write!(text, "\\{byte:03}");
                }
            }
        }
    }
    text
}

/// Returns the address in an A or AAAA record.
fn parse_address(data: &RData<'_>) -> Option<IpAddr> {
    match data {
        RData::A(a) => Some(Ipv4Addr::from_bits(a.address).into()),
        RData::AAAA(aaaa) => Some(Ipv6Addr::from_bits(aaaa.address).into()),
        _ => None,
    }
}

/// Parses a message as the response to a query of each record type, for weir-fuzz.
pub(crate) fn parse_as_each_type(message: &[u8]) {
    let id = u16::from_be_bytes(*message.first_chunk().unwrap_or(&[0; 2]));
    for kind in [TYPE::A, TYPE::AAAA, TYPE::SRV] {
        let _ = parse_response(message, "a.example", kind, id);
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
        packet
            .build_bytes_vec_compressed()
            .expect("build the message")
    }

    fn record(name: &'static str, ttl: u32, data: RData<'static>) -> ResourceRecord<'static> {
        ResourceRecord::new(Name::new_unchecked(name), CLASS::IN, ttl, data)
    }

    #[test]
    fn srv_records_are_returned_with_additional_addresses() {
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
            let additional = record("a.example", 20, RData::A(A { address }));
            packet.additional_records.push(additional);
        });
        let records = parse_response(&message, "WEB.example", TYPE::SRV, 7)
            .expect("not a response to the query")
            .expect("response contains an error")
            .expect("truncated response");
        assert_eq!(records.ttl, Some(Duration::from_secs(20)));
        assert_eq!(records.services.len(), 2);
        assert_eq!(
            (records.services[0].port, records.services[0].weight),
            (8080, 5)
        );
        assert_eq!(
            records.additional[&records.services[0].name],
            [IpAddr::from([10, 0, 0, 5])]
        );
    }

    #[test]
    fn control_characters_in_target_names_are_escaped() {
        let target = Name::new_unchecked("\u{1b}]0;x\u{7}\u{9b}\r\nok.example");
        let message = reply(|packet| {
            let data = SRV {
                priority: 1,
                weight: 1,
                port: 80,
                target: target.clone(),
            };
            packet.answers.push(record(NAME, 30, RData::SRV(data)));
            let address = u32::from(Ipv4Addr::new(10, 0, 0, 5));
            let data = RData::A(A { address });
            let additional = ResourceRecord::new(target.clone(), CLASS::IN, 20, data);
            packet.additional_records.push(additional);
        });
        let records = parse_response(&message, NAME, TYPE::SRV, 7)
            .expect("not a response to the query")
            .expect("response contains an error")
            .expect("truncated response");
        let name = &records.services[0].name;
        assert_eq!(name, "\\027]0;x\\007\\194\\155\\013\\010ok.example");
        assert!(records.additional.contains_key(name));
        // A query that is built from the escaped name contains the original name.
        let mut message = build_query(name, TYPE::A, 7).expect("build the query");
        message[2] |= 0x80;
        let label = b"\x1b]0;x\x07\xc2\x9b\r\nok\x07example\0";
        assert!(message.windows(label.len()).any(|it| it == label));
        assert!(parse_response(&message, name, TYPE::A, 7).is_some());
    }

    #[test]
    fn response_to_a_different_query_is_ignored() {
        let message = reply(|_| {});
        let matches = |name, kind, id| parse_response(&message, name, kind, id).is_some();
        assert!(matches(NAME, TYPE::SRV, 7));
        assert!(!matches("www.example", TYPE::SRV, 7));
        assert!(!matches(NAME, TYPE::A, 7));
        assert!(!matches(NAME, TYPE::SRV, 8));
        for end in 0..message.len() {
            assert!(
                parse_response(&message[..end], NAME, TYPE::SRV, 7).is_none(),
                "a message of {end} bytes"
            );
        }
    }

    #[test]
    fn errors_and_truncated_responses_are_distinguished() {
        let reply_with_code = |code| reply(|packet| *packet.rcode_mut() = code);
        let parse = |message: &[u8]| {
            parse_response(message, NAME, TYPE::SRV, 7).expect("not a response to the query")
        };
        assert!(matches!(
            parse(&reply_with_code(RCODE::NameError)),
            Err(QueryError::Final(_))
        ));
        assert!(matches!(
            parse(&reply_with_code(RCODE::ServerFailure)),
            Err(QueryError::Retryable(_))
        ));
        let truncated = reply(|packet| packet.set_flags(PacketFlag::TRUNCATION));
        assert_eq!(parse(&truncated), Ok(None));
        // The response is truncated in the middle of a record.
        let full = reply(|packet| {
            packet.set_flags(PacketFlag::TRUNCATION);
            let address = u32::from(Ipv4Addr::new(10, 0, 0, 5));
            packet
                .answers
                .push(record(NAME, 30, RData::A(A { address })));
        });
        let cut = &full[..full.len() - 2];
        assert_eq!(parse(cut), Ok(None));
        assert!(parse_response(cut, NAME, TYPE::SRV, 8).is_none());
    }
}
