//! Tests that a malformed HTTP/2 request (RFC 9113 section 8.1.1) ends only its own stream.
//!
//! Behind a CDN, the other streams on the connection are from other users.

use super::h2_reset::{
    DATA, END_HEADERS, END_STREAM, HEADERS, OK, connect_http2, fetch_quick, frame,
};
use super::*;

const PROTOCOL_ERROR: u32 = 1;
const CONTINUATION: u8 = 9;

/// HPACK blocks of `GET http://a/` and `POST http://a/`.
const GET: &[u8] = &[0x82, 0x86, 0x84, 0x41, 1, b'a'];
const POST: &[u8] = &[0x83, 0x86, 0x84, 0x41, 1, b'a'];

/// Returns a literal field in HPACK. If `with_indexing` is true, both sides add the field to the dynamic table.
fn field(with_indexing: bool, name: &[u8], value: &[u8]) -> Vec<u8> {
    let mut out = vec![if with_indexing { 0x40 } else { 0 }];
    for text in [name, value] {
        out.push(u8::try_from(text.len()).expect("too long"));
        out.extend_from_slice(text);
    }
    out
}

/// Reads until the stream has a response or ends. Returns the first byte of the response's HPACK block, or an error:
/// the code of the stream's reset, 1000 plus the code of a GOAWAY, or 2000 if the connection closed.
fn read_outcome(client: &mut TcpStream, id: u32) -> Result<u8, u32> {
    loop {
        let mut header = [0; 9];
        if client.read_exact(&mut header).is_err() {
            return Err(2_000);
        }
        let mut payload = vec![0; usize::from(header[1]) << 8 | usize::from(header[2])];
        client.read_exact(&mut payload).expect("read frame payload");
        let code = |offset: usize| {
            u32::from_be_bytes(payload[offset..offset + 4].try_into().expect("not 4 bytes"))
        };
        let is_own_stream = header[5..] == id.to_be_bytes();
        match header[3] {
            HEADERS if is_own_stream => return Ok(payload[0]),
            3 if is_own_stream => return Err(code(0)),
            7 => return Err(1_000 + code(4)),
            _ => {}
        }
    }
}

#[test]
fn malformed_field_ends_only_its_stream() {
    let origin = Origin::start("o");
    let proxy = Proxy::start("http", &[origin.address()], "");
    let get = |field: Vec<u8>| [GET, &field].concat();
    // `x: a\rb`, Huffman-coded.
    let coded = vec![0, 0x81, 0xf3, 0x86, 0x1f, 0xff, 0xff, 0xff, 0xb1, 0xff];
    let cases: Vec<(&str, Vec<u8>)> = vec![
        ("CR LF in a value", get(field(false, b"x-a", b"b\r\nc: d"))),
        ("LF in a value", get(field(true, b"x-a", b"b\nc"))),
        ("NUL in a value", get(field(true, b"x-a", b"\0"))),
        ("CR in a Huffman-coded value", get(coded)),
        ("upper case", get(field(true, b"X-A", b"b"))),
        ("a space in a name", get(field(true, b"x a", b"b"))),
        ("a colon in a name", get(field(false, b"x:a", b"b"))),
        ("connection", get(field(false, b"connection", b"close"))),
        (
            "transfer-encoding",
            get(field(false, b"transfer-encoding", b"chunked")),
        ),
        ("te", get(field(false, b"te", b"gzip"))),
        ("an unknown pseudo field", get(field(true, b":x", b"b"))),
        ("a status", get(field(true, b":status", b"20"))),
        ("a pseudo field twice", get(vec![0x84])),
        (
            "a pseudo field after a regular field",
            [&GET[..3], &field(false, b"x", b"y"), &GET[3..]].concat(),
        ),
        ("no method", GET[1..].to_vec()),
        (
            "a method with a space",
            [&GET[1..], &field(true, b":method", b"G T")].concat(),
        ),
        (
            "a path that is not ASCII",
            [&GET[..2], &field(true, b":path", b"/\xff"), &GET[3..]].concat(),
        ),
    ];
    let mut failures = Vec::new();
    for (name, block) in cases {
        let mut client = connect_http2(proxy.listen);
        assert_eq!(fetch_quick(&mut client, 1), Ok(OK));
        let whole_frame = frame(HEADERS, END_STREAM | END_HEADERS, 3, &block);
        let first = frame(HEADERS, END_STREAM, 5, &block[..4]);
        let second = frame(CONTINUATION, END_HEADERS, 5, &block[4..]);
        for (id, frames) in [(3, vec![whole_frame]), (5, vec![first, second])] {
            for frame in frames {
                let _ = client.write_all(&frame);
            }
            let outcome = read_outcome(&mut client, id);
            if outcome != Err(PROTOCOL_ERROR) {
                failures.push(format!("{name}, stream {id}: {outcome:?}"));
                break;
            }
        }
        // The dynamic tables of both sides must still agree: the second request refers to a field that the first one
        // adds.
        let added = [GET, &field(true, b"x-kept", b"1")].concat();
        for (id, block) in [(7, added), (9, [GET, &[0xbf]].concat())] {
            let _ = client.write_all(&frame(HEADERS, END_STREAM | END_HEADERS, id, &block));
            let outcome = read_outcome(&mut client, id);
            if outcome != Ok(OK) {
                failures.push(format!("{name}, then stream {id}: {outcome:?}"));
                break;
            }
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn malformed_field_in_dynamic_table_ends_each_stream_that_uses_it() {
    let origin = Origin::start("o");
    let proxy = Proxy::start("http", &[origin.address()], "");
    let mut client = connect_http2(proxy.listen);
    for (id, bad_field) in [(1, field(true, b"x-a", b"b\nc")), (3, vec![0xbf])] {
        let block = [GET, &bad_field].concat();
        let request = frame(HEADERS, END_STREAM | END_HEADERS, id, &block);
        client.write_all(&request).expect("write");
        assert_eq!(read_outcome(&mut client, id), Err(PROTOCOL_ERROR));
    }
    assert_eq!(fetch_quick(&mut client, 5), Ok(OK));
}

#[test]
fn pseudo_fields_in_trailers_end_their_stream() {
    let origin = Origin::start("o");
    let proxy = Proxy::start("http", &[origin.address()], "");
    let mut client = connect_http2(proxy.listen);
    let mut send_with_trailers = |id, trailers: &[u8]| {
        let frames = [
            frame(HEADERS, END_HEADERS, id, POST),
            frame(DATA, 0, id, b"x"),
            frame(HEADERS, END_STREAM | END_HEADERS, id, trailers),
        ];
        client.write_all(&frames.concat()).expect("write");
        read_outcome(&mut client, id)
    };
    assert_eq!(send_with_trailers(1, &field(false, b"x-sum", b"1")), Ok(OK));
    assert_eq!(
        send_with_trailers(3, &field(false, b":path", b"/")),
        Err(PROTOCOL_ERROR)
    );
    assert_eq!(send_with_trailers(5, &[0x84]), Err(PROTOCOL_ERROR));
    assert_eq!(send_with_trailers(7, &field(false, b"x-sum", b"1")), Ok(OK));
}

#[test]
fn path_with_fragment_is_rejected() {
    let origin = Origin::start("o");
    let proxy = Proxy::start("http", &[origin.address()], "");
    let mut client = connect_http2(proxy.listen);
    for (id, path) in [(1, &b"/c#x"[..]), (3, b"/#"), (5, b"/c?d#x")] {
        let block = [&GET[..2], &field(true, b":path", path), &GET[3..]].concat();
        let text = frame(HEADERS, END_STREAM | END_HEADERS, id, &block);
        client.write_all(&text).expect("write");
        assert_eq!(
            read_outcome(&mut client, id),
            Err(PROTOCOL_ERROR),
            "{path:?}"
        );
    }
    assert_eq!(fetch_quick(&mut client, 7), Ok(OK));
}
