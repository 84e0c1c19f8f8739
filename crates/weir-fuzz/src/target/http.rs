//! Fuzzes data from clients and HTTP/1 servers.

use weir_http::chunk::ChunkedParser;
use weir_http::exchange::{Exchange, ResponseStep};
use weir_http::head::{self, HeadLimits};
use weir_http::rewrite::{RequestEdit, ResponseEdit, write_request};
use weir_http::{cookie, encoding, hello, preamble};
use weir_model::{Coding, ProxyHeader, Underscores};

use super::texts;

/// Parses the head and the body of a request, and writes the request for a server. The written request must have the
/// same framing.
pub(super) fn request(input: &[u8]) {
    let limits = HeadLimits::default();
    let mut fields = Vec::new();
    let Ok(Some(request)) = head::parse_request(input, &limits, &mut fields) else {
        return;
    };
    assert!(
        request.len <= input.len(),
        "the head must not be longer than the input"
    );
    let _ = encoding::negotiate(
        input,
        &fields,
        &[Coding::Gzip, Coding::Brotli, Coding::Zstd],
    );
    let edit = RequestEdit {
        set_host: None,
        client: None,
        host: b"default.example",
        version: "1.1",
        path: None,
        add: b"",
        edits: [None, None],
        fields: None,
        close: false,
    };
    let mut written_request = Vec::new();
    write_request(input, &request, &fields, &edit, &mut written_request);
    let larger_limits = HeadLimits {
        head: limits.head * 2,
        target: limits.target * 2,
        fields: limits.fields * 2,
        connect: true,
        underscores: limits.underscores,
    };
    let parsed = head::parse_request(&written_request, &larger_limits, &mut Vec::new());
    let parsed = parsed.expect("the written request is valid");
    let parsed = parsed.expect("the written head is complete");
    assert_eq!(
        parsed.len,
        written_request.len(),
        "no data must follow the written head"
    );
    assert_eq!(
        parsed.framing, request.framing,
        "the framing must not change"
    );
    let mut exchange = Exchange::new(&request, limits.underscores);
    let _ = exchange.process_client_data(&input[request.len..]);
}

/// Parses a server's response as a whole and in portions. The forwarded bytes must be the same.
pub(super) fn response(input: &[u8]) {
    let Some((&portion, input)) = input.split_first() else {
        return;
    };
    let request: &[u8] = if portion & 0x80 == 0 {
        b"GET / HTTP/1.1\r\nHost: h\r\n\r\n"
    } else {
        b"HEAD / HTTP/1.0\r\nHost: h\r\n\r\n"
    };
    let at_once = forward_response(request, input, input.len().max(1));
    let in_portions = forward_response(request, input, usize::from(portion & 0x7f).max(1));
    let (longer, shorter) = if at_once.0.len() > in_portions.0.len() {
        (&at_once.0, &in_portions.0)
    } else {
        (&in_portions.0, &at_once.0)
    };
    assert_eq!(
        at_once.1, in_portions.1,
        "the error must not depend on the size of the portions"
    );
    // The size of the portions determines how much is forwarded before an error, but not the content.
    assert!(
        longer.starts_with(shorter),
        "the forwarded bytes must not depend on the size of the portions"
    );
    assert!(
        at_once.1 || longer.len() == shorter.len(),
        "the number of forwarded bytes must not depend on the size of the portions"
    );
}

/// Returns the bytes that are forwarded to the client, and whether the response is malformed.
fn forward_response(request: &[u8], input: &[u8], portion: usize) -> (Vec<u8>, bool) {
    let limits = HeadLimits::default();
    let mut fields = Vec::new();
    let request = head::parse_request(request, &limits, &mut fields);
    let request = request.ok().flatten().expect("valid request");
    let mut exchange = Exchange::new(&request, limits.underscores);
    let _ = exchange.process_client_data(&[]);
    let edit = ResponseEdit::default();
    let (mut buffer, mut out) = (Vec::new(), Vec::new());
    for portion in input.chunks(portion) {
        buffer.extend_from_slice(portion);
        loop {
            let step =
                exchange.process_server_data(&buffer, &limits, false, &edit, &mut fields, &mut out);
            let Ok(ResponseStep {
                consumed, forward, ..
            }) = step
            else {
                return (out, true);
            };
            assert!(consumed <= buffer.len() && forward.end <= buffer.len());
            out.extend_from_slice(&buffer[forward]);
            buffer.drain(..consumed);
            if consumed == 0 || buffer.is_empty() {
                break;
            }
        }
        if exchange.response_done() {
            break;
        }
    }
    let _ = exchange.handle_server_end();
    (out, false)
}

/// Parses a chunked body as a whole and byte by byte.
pub(super) fn chunked(input: &[u8]) {
    let mut data_at_once = Vec::new();
    let at_once =
        ChunkedParser::new().scan(input, &mut |data| data_at_once.extend_from_slice(data));
    let (mut data_by_byte, mut chunks, mut consumed) = (Vec::new(), ChunkedParser::new(), 0);
    for byte in input.chunks(1) {
        match chunks.scan(byte, &mut |data| data_by_byte.extend_from_slice(data)) {
            Ok(count) => consumed += count,
            Err(_) => {
                assert!(
                    at_once.is_err(),
                    "parsing at once must fail if parsing byte by byte fails"
                );
                return;
            }
        }
    }
    assert_eq!(at_once, Ok(consumed));
    assert_eq!(data_at_once, data_by_byte);
    check_trailers(&input[..consumed]);
}

/// Removes the trailers that servers must not receive from a valid chunked body, as a whole and byte by byte.
fn check_trailers(body: &[u8]) {
    let forward = |portion: usize| {
        let (mut chunks, mut forwarded) =
            (ChunkedParser::for_request(Underscores::Drop), Vec::new());
        for portion in body.chunks(portion) {
            let result = chunks.scan_request(portion, &mut |_| {});
            let (count, forward) = result.expect("valid body");
            assert_eq!(count, portion.len());
            forwarded.extend_from_slice(&portion[..forward]);
            forwarded.extend_from_slice(&chunks.take_held_trailers());
        }
        (forwarded, chunks.is_done())
    };
    let (forwarded, is_done) = forward(body.len().max(1));
    assert_eq!(
        (forwarded.clone(), is_done),
        forward(1),
        "the forwarded body must not depend on the size of the portions"
    );
    if is_done {
        let result = ChunkedParser::for_request(Underscores::Reject).scan(&forwarded, &mut |_| {});
        assert_eq!(
            result,
            Ok(forwarded.len()),
            "the forwarded body must be valid, without trailers that servers must not receive"
        );
    }
}

/// Finds cookies and query parameters.
pub(super) fn cookie(input: &[u8]) {
    if let Some(found) = cookie::find(input, b"SRV") {
        assert!(found.end <= input.len());
        let _ = cookie::value_without(input, &found);
    }
    let _ = cookie::parameter(input, b"a");
}

/// Parses a PROXY protocol header. The bytes of a valid header alone must give the same result. Also writes a header
/// and parses it.
pub(super) fn preamble(input: &[u8]) {
    let Ok(Some(header)) = preamble::read(input) else {
        return;
    };
    assert!(header.len() <= input.len());
    assert_eq!(preamble::read(&input[..header.len()]), Ok(Some(header)));
    let address = std::net::SocketAddr::from(([192, 0, 2, 1], 1));
    let mut header_bytes = Vec::new();
    preamble::write(ProxyHeader::V2, address, address, &mut header_bytes);
    assert!(matches!(preamble::read(&header_bytes), Ok(Some(_))));
}

/// Finds the server name in a TLS ClientHello.
pub(super) fn client_hello(input: &[u8]) {
    let _ = hello::server_name(input);
}

pub(super) fn requests() -> Vec<Vec<u8>> {
    texts(&[
        "GET /a?b=c HTTP/1.1\r\nHost: h\r\nAccept-Encoding: gzip;q=0.5, br\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\nTrailer: x\r\n\r\n3;a=b\r\nabc\r\n0\r\nx: y\r\n\r\n",
        "PUT http://u.example:80/x HTTP/1.1\r\nHost: u.example:80\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\nab",
        "GET / HTTP/1.0\r\nConnection: keep-alive, x\r\nX: 1\r\nKeep-Alive: 5\r\n\r\n",
        "GET /ws HTTP/1.1\r\nHost: [::1]:80\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
        "CONNECT a.example:443 HTTP/1.1\r\nHost: a.example:443\r\n\r\n",
        "OPTIONS * HTTP/1.1\r\nHost: h\r\n\r\n",
    ])
}

pub(super) fn responses() -> Vec<Vec<u8>> {
    texts(&[
        "\x07HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc",
        "\x03HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n",
        "\x01HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\nt: u\r\n\r\n",
        "\x10HTTP/1.0 302 Found\r\nLocation: /\r\nSet-Cookie: SRV=x; Path=/\r\n\r\nuntil the end",
        "\x05HTTP/1.1 304 Not Modified\r\nETag: \"a\"\r\n\r\n",
    ])
}

pub(super) fn chunked_bodies() -> Vec<Vec<u8>> {
    texts(&[
        "4\r\nWiki\r\n6;x=\"y\"\r\npedia \r\n0\r\nA: b\r\n\r\n",
        "0\r\n\r\n",
        "ffffffff\r\n",
    ])
}

pub(super) fn cookies() -> Vec<Vec<u8>> {
    texts(&["a=b; SRV=x.1; c=\"d\"", "SRV=", "/p?a=1&b=2#c"])
}

pub(super) fn preambles() -> Vec<Vec<u8>> {
    let mut seeds = texts(&[
        "PROXY TCP4 192.0.2.1 192.0.2.2 1 65535\r\n",
        "PROXY UNKNOWN\r\n",
    ]);
    let mut version2 = b"\r\n\r\n\0\r\nQUIT\n\x21\x11\x00\x0f".to_vec();
    version2.extend([192, 0, 2, 1, 192, 0, 2, 2, 0, 1, 0, 2, 4, 0, 0]);
    seeds.push(version2);
    seeds
}

pub(super) fn hellos() -> Vec<Vec<u8>> {
    let name = b"a.example";
    let mut extension = vec![0, 0, 0, 14, 0, 12, 0, 0, 9];
    extension.extend(name);
    let mut hello = vec![3, 3];
    hello.extend([7; 32]);
    hello.extend([0, 0, 2, 0x13, 1, 1, 0]);
    hello.extend([0, u8::try_from(extension.len()).unwrap_or(0)]);
    hello.extend(extension);
    let length = u8::try_from(hello.len()).unwrap_or(0);
    let mut record = vec![22, 3, 1, 0, length + 4, 1, 0, 0, length];
    record.extend(hello);
    vec![record]
}
