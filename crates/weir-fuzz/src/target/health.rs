//! Fuzzes server responses to health checks.

use std::net::{IpAddr, Ipv4Addr};

use weir_health::{Reply, Target, datagram as query, dialogue};
use weir_model::{Check, DnsRecord, Http, Probe, Server};

use super::texts;

/// Identifier of the query.
const QUERY_ID: u16 = 0x0102;
/// Maximum number of messages that a check sends.
const MAX_SENT: usize = 64;

fn target_of(probe: Probe) -> Target {
    let server = Server::new("127.0.0.1:80", IpAddr::V4(Ipv4Addr::LOCALHOST), Some(80));
    Target::new(&Check::new(probe), &server, Some(80))
}

/// Passes the input to a check over TCP. The first byte selects the check; the second byte is the size of the portions.
pub(super) fn stream(input: &[u8]) {
    let [kind, portion_size, input @ ..] = input else {
        return;
    };
    let probe = match kind % 7 {
        0 => Probe::Http(Box::new(Http {
            contains: Some("Up".to_owned()),
            ..Http::default()
        })),
        1 => Probe::Smtp {
            helo: "weir.example".to_owned(),
        },
        2 => Probe::Redis,
        3 => Probe::Mysql {
            user: "weir".to_owned(),
        },
        4 => Probe::Postgres {
            user: "weir".to_owned(),
        },
        5 => Probe::Agent { send: None },
        _ => Probe::Grpc {
            service: "a.b".to_owned(),
        },
    };
    let Some(mut dialogue) = dialogue::for_target(&target_of(probe)) else {
        return;
    };
    let _ = dialogue.open();
    let mut sent = 0;
    for portion in input.chunks(usize::from(*portion_size).max(1)) {
        match dialogue.receive(portion) {
            Reply::More => {}
            Reply::Send(_) => {
                sent += 1;
                assert!(sent < MAX_SENT, "the check does not end");
            }
            Reply::Finished(outcome) => {
                assert!(outcome.note.len() < 1024, "the note is too long");
                return;
            }
        }
    }
    let outcome = dialogue.end();
    assert!(outcome.note.len() < 1024, "the note is too long");
}

/// Passes the input to checks that send one datagram.
pub(super) fn datagram(input: &[u8]) {
    let dns = |record, answer| Probe::Dns {
        name: "a.example".to_owned(),
        record,
        answer,
    };
    let probes = [
        dns(DnsRecord::A, Some(IpAddr::V4(Ipv4Addr::LOCALHOST))),
        dns(DnsRecord::Mx, None),
        Probe::Udp {
            payload: b"ping".to_vec(),
            bytes: Some(vec![Some(b'p'), None]),
        },
    ];
    for probe in probes {
        let _ = query::evaluate(&probe, QUERY_ID, input);
    }
}

pub(super) fn streams() -> Vec<Vec<u8>> {
    texts(&[
        "\x00\x09HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nUp",
        "\x00\x01HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nUp\r\n0\r\n\r\n",
        "\x01\x20220 a ESMTP\r\n250-a\r\n250 b\r\n221 c\r\n",
        "\x02\x20+PONG\r\n",
        "\x03\x20\x0a\x00\x00\x00\x0a8.0.1\x00aaaa",
        "\x04\x20R\x00\x00\x00\x08\x00\x00\x00\x00",
        "\x05\x20up 50%\n",
        "\x06\x20\x00\x00\x00\x04\x00\x00\x00\x00\x00",
    ])
}

pub(super) fn datagrams() -> Vec<Vec<u8>> {
    let mut answer = vec![1, 2, 0x81, 0x80, 0, 1, 0, 1, 0, 0, 0, 0];
    answer.extend(b"\x01a\x07example\x00\x00\x01\x00\x01");
    answer.extend(b"\xc0\x0c\x00\x01\x00\x01\x00\x00\x00\x05\x00\x04\x7f\x00\x00\x01");
    vec![answer, b"pong".to_vec()]
}
