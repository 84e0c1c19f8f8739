//! Converts a request with `Upgrade: h2c` (RFC 7540 section 3.2) into the first HEADERS frame of an HTTP/2 connection.
//!
//! RFC 9113 removed this mechanism, but some clients still use it.
//!
//! The request becomes the connection's first stream. The `h2` crate does not support that, so the HEADERS frame that
//! the client would have sent is inserted after the client's SETTINGS frame.

use weir_http::{Field, Framing, Name, Request};

/// Maximum size of a header block in one frame, in bytes.
const MAX_FRAME: usize = 16 << 10;
const FRAME_HEADER_LEN: usize = 9;
/// Length of the connection preface: `PRI * HTTP/2.0`, an empty line, `SM` and an empty line.
const PREFACE_LEN: usize = 24;
const SETTINGS: u8 = 4;
const HEADERS: u8 = 1;
/// The flags END_STREAM and END_HEADERS.
const END_FLAGS: u8 = 0x5;

/// The response that accepts the upgrade.
pub(crate) const SWITCHING: &[u8] =
    b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n";

/// Returns the first stream's HEADERS frame. Returns `None` if the request does not upgrade to h2c, has a body or no
/// host, or uses HTTP/1.0, or if its fields do not fit in one frame.
pub(crate) fn first_stream(head: &[u8], request: &Request, fields: &[Field]) -> Option<Vec<u8>> {
    let has_token = |name: Name, word: &[u8]| {
        let values = fields.iter().filter(|field| field.name == name);
        let mut words = values.flat_map(|field| field.value_in(head).split(|byte| *byte == b','));
        words.any(|token| token.trim_ascii().eq_ignore_ascii_case(word))
    };
    let is_upgrade = has_token(Name::Upgrade, b"h2c")
        && has_token(Name::Connection, b"upgrade")
        && has_token(Name::Connection, b"http2-settings")
        && request.framing == Framing::None
        && !request.http10;
    if !is_upgrade {
        return None;
    }
    let mut block = Vec::new();
    write_literal(b":method", request.method_in(head), &mut block);
    write_literal(b":scheme", b"http", &mut block);
    write_literal(b":path", request.path_in(head), &mut block);
    write_literal(b":authority", request.host_in(head, fields)?, &mut block);
    let is_kept = |field: &&Field| !field.dropped && field.name != Name::Host;
    for field in fields.iter().filter(is_kept) {
        let name = field.name_in(head).to_ascii_lowercase();
        write_literal(&name, field.value_in(head), &mut block);
    }
    if block.len() > MAX_FRAME {
        return None;
    }
    let mut frame = u32::try_from(block.len()).ok()?.to_be_bytes()[1..].to_vec();
    frame.extend_from_slice(&[HEADERS, END_FLAGS, 0, 0, 0, 1]);
    frame.extend_from_slice(&block);
    Some(frame)
}

/// Appends a literal field without indexing (RFC 7541 section 6.2.2), which leaves the dynamic tables of both sides
/// unchanged.
fn write_literal(name: &[u8], value: &[u8], out: &mut Vec<u8>) {
    out.push(0);
    for text in [name, value] {
        let mut remaining = text.len();
        if remaining < 127 {
            out.push(remaining as u8);
        } else {
            out.push(127);
            remaining -= 127;
            while remaining >= 128 {
                out.push((remaining % 128) as u8 | 128);
                remaining /= 128;
            }
            out.push(remaining as u8);
        }
        out.extend_from_slice(text);
    }
}

/// Returns the length of a client's preface with its SETTINGS frame, or `None` if it is incomplete. Returns 0 if a
/// different frame follows the preface; the `h2` crate rejects it.
pub(crate) fn settings_end(input: &[u8]) -> Option<usize> {
    let frame = input.get(PREFACE_LEN..)?;
    let header = frame.get(..FRAME_HEADER_LEN)?;
    if header[3] != SETTINGS {
        return Some(0);
    }
    let length =
        usize::from(header[0]) << 16 | usize::from(header[1]) << 8 | usize::from(header[2]);
    let end = PREFACE_LEN + FRAME_HEADER_LEN + length;
    (input.len() >= end).then_some(end)
}
