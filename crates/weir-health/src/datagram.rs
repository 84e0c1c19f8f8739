//! Builds the requests of datagram probes, and evaluates the responses.

use std::net::IpAddr;

use weir_model::{DatagramProbe, DnsRecord, Medium, Probe};

use crate::outcome::Outcome;

/// Returns the datagram to send; a DNS query, and the responses to it, contain `id`. Returns `None` if the driver
/// builds the datagram, or the probe does not use datagrams.
pub fn request(probe: &Probe, id: u16) -> Option<Vec<u8>> {
    match probe.medium() {
        Medium::Datagram(DatagramProbe::Udp { payload, .. }) => Some(payload.to_vec()),
        Medium::Datagram(DatagramProbe::Dns { name, record, .. }) => {
            Some(build_query(name, record, id))
        }
        Medium::Datagram(DatagramProbe::Ping) | Medium::Stream | Medium::Director(_) => None,
    }
}

/// Evaluates a received datagram. Returns `None` if it is not a response to this request; more datagrams may follow.
pub fn evaluate(probe: &Probe, id: u16, datagram: &[u8]) -> Option<Outcome> {
    match probe.medium() {
        Medium::Datagram(DatagramProbe::Udp { bytes, .. }) => Some(compare_bytes(bytes, datagram)),
        Medium::Datagram(DatagramProbe::Dns { record, answer, .. }) => {
            evaluate_dns(record, answer, id, datagram)
        }
        Medium::Datagram(DatagramProbe::Ping) | Medium::Stream | Medium::Director(_) => None,
    }
}

fn compare_bytes(expected: Option<&[Option<u8>]>, datagram: &[u8]) -> Outcome {
    let length = datagram.len();
    let mut expected = expected.unwrap_or_default().iter().enumerate();
    let mismatch = expected.find(|(index, byte)| match (byte, datagram.get(*index)) {
        (_, None) => true,
        (Some(byte), Some(actual)) => byte != actual,
        (None, Some(_)) => false,
    });
    match mismatch {
        None => Outcome::passed(format!("udp {length} bytes")),
        Some((index, _)) => {
            Outcome::failed(format!("udp {length} bytes, mismatch at byte {index}"))
        }
    }
}

/// Builds a query (RFC 1035 section 4.1): a header with "recursion desired", and one question.
fn build_query(name: &str, record: DnsRecord, id: u16) -> Vec<u8> {
    let mut message = id.to_be_bytes().to_vec();
    message.extend([0x01, 0x00, 0, 1, 0, 0, 0, 0, 0, 0]);
    for label in name.split('.').filter(|label| !label.is_empty()) {
        let label = &label.as_bytes()[..label.len().min(63)];
        message.push(u8::try_from(label.len()).unwrap_or(63));
        message.extend(label);
    }
    message.push(0);
    message.extend(record.number().to_be_bytes());
    message.extend([0, 1]);
    message
}

fn read_u16(message: &[u8], offset: usize) -> Option<u16> {
    let pair = message.get(offset..offset + 2)?;
    Some(u16::from_be_bytes([pair[0], pair[1]]))
}

fn evaluate_dns(
    record: DnsRecord,
    expected: Option<IpAddr>,
    id: u16,
    message: &[u8],
) -> Option<Outcome> {
    let flags = read_u16(message, 2)?;
    if read_u16(message, 0)? != id || flags & 0x8000 == 0 {
        return None;
    }
    let code = flags & 0xf;
    if code != 0 {
        let names = ["", "FORMERR", "SERVFAIL", "NXDOMAIN", "NOTIMP", "REFUSED"];
        let name = names.get(usize::from(code)).copied();
        let name = name.map_or_else(|| code.to_string(), str::to_owned);
        return Some(Outcome::failed(format!("dns {name}")));
    }
    Some(match record_data(message, record) {
        None => Outcome::failed("dns: malformed response"),
        Some(answers) if answers.is_empty() => {
            Outcome::failed(format!("dns: no {} record", record.as_str()))
        }
        Some(answers) => compare_addresses(record, expected, &answers),
    })
}

fn compare_addresses(record: DnsRecord, expected: Option<IpAddr>, answers: &[Vec<u8>]) -> Outcome {
    let count = answers.len();
    let Some(expected) = expected else {
        return Outcome::passed(format!("dns {count} {}", record.as_str()));
    };
    let bytes = match expected {
        IpAddr::V4(v4) => v4.octets().to_vec(),
        IpAddr::V6(v6) => v6.octets().to_vec(),
    };
    if answers.contains(&bytes) {
        Outcome::passed(format!("dns {expected}"))
    } else {
        Outcome::failed(format!(
            "dns: {expected} is not in the response (answers: {count})"
        ))
    }
}

/// Returns the data of all answer records of this type, or `None` if the message is malformed.
fn record_data(message: &[u8], record: DnsRecord) -> Option<Vec<Vec<u8>>> {
    let (questions, answers) = (read_u16(message, 4)?, read_u16(message, 6)?);
    let mut offset = 12;
    for _ in 0..questions {
        offset = skip_name(message, offset)? + 4;
    }
    let mut data_of_records = Vec::new();
    for _ in 0..answers {
        offset = skip_name(message, offset)?;
        let (kind, length) = (
            read_u16(message, offset)?,
            usize::from(read_u16(message, offset + 8)?),
        );
        let data = message.get(offset + 10..offset + 10 + length)?;
        if kind == record.number() {
            data_of_records.push(data.to_vec());
        }
        offset += 10 + length;
    }
    Some(data_of_records)
}

/// Returns the offset after a name, which ends with its root label or a compression pointer.
fn skip_name(message: &[u8], mut offset: usize) -> Option<usize> {
    loop {
        match *message.get(offset)? {
            0 => return Some(offset + 1),
            pointer if pointer & 0xc0 == 0xc0 => return Some(offset + 2),
            length => offset += 1 + usize::from(length),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outcome::Verdict;

    fn dns_probe(answer: Option<&str>) -> Probe {
        Probe::Dns {
            name: "www.example".to_owned(),
            record: DnsRecord::A,
            answer: answer.map(|answer| answer.parse().unwrap()),
        }
    }

    /// Returns a server's response to the query: a compressed name and one address.
    fn response(id: u16, code: u8, address: [u8; 4]) -> Vec<u8> {
        let mut message = build_query("www.example", DnsRecord::A, id);
        message[2] = 0x81;
        message[3] = 0x80 | code;
        message[7] = 1;
        message.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4]);
        message.extend(address);
        message
    }

    #[test]
    fn dns_response_must_match_id_code_and_address() {
        let note_of =
            |probe: &Probe, message: &[u8]| evaluate(probe, 7, message).map(|outcome| outcome.note);
        let valid = response(7, 0, [10, 0, 0, 5]);
        assert_eq!(
            note_of(&dns_probe(None), &valid).as_deref(),
            Some("dns 1 A")
        );
        assert_eq!(
            note_of(&dns_probe(Some("10.0.0.5")), &valid).as_deref(),
            Some("dns 10.0.0.5")
        );
        assert_eq!(
            note_of(&dns_probe(Some("10.0.0.6")), &valid).as_deref(),
            Some("dns: 10.0.0.6 is not in the response (answers: 1)")
        );
        assert_eq!(
            note_of(&dns_probe(None), &response(7, 3, [0; 4])).as_deref(),
            Some("dns NXDOMAIN")
        );
        assert_eq!(
            note_of(&dns_probe(None), &response(8, 0, [0; 4])),
            None,
            "id of a different query"
        );
        assert_eq!(
            note_of(
                &dns_probe(None),
                &build_query("www.example", DnsRecord::A, 7)
            ),
            None,
            "a query is not a response"
        );
        assert_eq!(
            note_of(&dns_probe(None), &response(7, 11, [0; 4])).as_deref(),
            Some("dns 11")
        );
        let mut empty = valid.clone();
        empty[7] = 0;
        assert_eq!(
            note_of(&dns_probe(None), &empty).as_deref(),
            Some("dns: no A record")
        );
        for end in 12..valid.len() {
            let outcome = evaluate(&dns_probe(None), 7, &valid[..end]).unwrap();
            assert_eq!(outcome.verdict, Verdict::Failed, "cut at {end}");
        }
    }

    #[test]
    fn dns_query_has_one_question_and_requests_recursion() {
        let probe = |name: &str, record| Probe::Dns {
            name: name.to_owned(),
            record,
            answer: None,
        };
        let head = b"\x12\x34\x01\0\0\x01\0\0\0\0\0\0";
        for (probe, question) in [
            (
                probe("a.example", DnsRecord::A),
                &b"\x01a\x07example\0\0\x01\0\x01"[..],
            ),
            (
                probe("a.example.", DnsRecord::Aaaa),
                b"\x01a\x07example\0\0\x1c\0\x01",
            ),
            (probe(".", DnsRecord::A), b"\0\0\x01\0\x01"),
        ] {
            let query = request(&probe, 0x1234).unwrap();
            assert_eq!(query, [head, question].concat());
        }
        assert_eq!(request(&Probe::Tcp, 1), None);
        assert_eq!(evaluate(&Probe::Tcp, 1, b"x"), None);
    }

    #[test]
    fn dns_answers_of_other_types_are_skipped() {
        // A CNAME record with a target that is not a compression pointer, then the address.
        let mut message = build_query("www.example", DnsRecord::A, 7);
        (message[2], message[7]) = (0x81, 2);
        message.extend([0xc0, 12, 0, 5, 0, 1, 0, 0, 0, 60, 0, 3, 1, b'a', 0]);
        message.extend([1, b'a', 0, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4, 10, 0, 0, 5]);
        let note_of = |expected| evaluate(&dns_probe(expected), 7, &message).unwrap().note;
        assert_eq!(note_of(None), "dns 1 A");
        assert_eq!(note_of(Some("10.0.0.5")), "dns 10.0.0.5");
    }

    #[test]
    fn udp_patterns_match_prefixes_and_wildcards() {
        let udp = |bytes: Option<&[Option<u8>]>| Probe::Udp {
            payload: vec![1, 2],
            bytes: bytes.map(<[_]>::to_vec),
        };
        assert_eq!(request(&udp(None), 0), Some(vec![1, 2]));
        let verdict =
            |probe: &Probe, datagram: &[u8]| evaluate(probe, 0, datagram).unwrap().verdict;
        assert_eq!(verdict(&udp(None), b""), Verdict::Passed);
        let expected = udp(Some(&[Some(1), None, Some(3)]));
        assert_eq!(verdict(&expected, &[1, 99, 3, 4]), Verdict::Passed);
        assert_eq!(verdict(&expected, &[1, 99]), Verdict::Failed);
        assert_eq!(verdict(&expected, &[1, 99, 4]), Verdict::Failed);
        let note = |datagram: &[u8]| evaluate(&expected, 0, datagram).unwrap().note;
        assert_eq!(note(&[1, 99, 3, 4]), "udp 4 bytes");
        assert_eq!(note(&[1, 99, 4]), "udp 3 bytes, mismatch at byte 2");
    }

    #[test]
    fn ipv6_addresses_are_compared() {
        let mut message = build_query("a", DnsRecord::Aaaa, 7);
        (message[2], message[7]) = (0x81, 2);
        for last in [5, 6] {
            message.extend([0xc0, 12, 0, 28, 0, 1, 0, 0, 0, 60, 0, 16]);
            message.extend([0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, last]);
        }
        let note_of = |answer: &str| {
            let probe = Probe::Dns {
                name: "a".to_owned(),
                record: DnsRecord::Aaaa,
                answer: Some(answer.parse().unwrap()),
            };
            evaluate(&probe, 7, &message).unwrap().note
        };
        assert_eq!(note_of("fd00::6"), "dns fd00::6");
        assert_eq!(
            note_of("fd00::7"),
            "dns: fd00::7 is not in the response (answers: 2)"
        );
    }
}
