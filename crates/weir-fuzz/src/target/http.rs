//! Input from clients and HTTP/1 servers.

use weir_http::chunk::Chunks;
use weir_http::exchange::{Exchange, Step};
use weir_http::head::{self, HeadLimits};
use weir_http::rewrite::{RequestEdit, ResponseEdit, write_request};
use weir_http::{cookie, encoding, hello, preamble};
use weir_model::{Coding, ProxyHeader, Underscores};

use super::texts;

/// A request's head, its body, and what would be sent to a server; that must be a request again, with the same framing.
pub(super) fn request(input: &[u8]) {
    let limits = HeadLimits::default();
    let mut fields = Vec::new();
    let Ok(Some(request)) = head::request(input, &limits, &mut fields) else {
        return;
    };
    assert!(request.len <= input.len(), "a head is part of its input");
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
    let mut written = Vec::new();
    write_request(input, &request, &fields, &edit, &mut written);
    let roomy = HeadLimits {
        head: limits.head * 2,
        target: limits.target * 2,
        fields: limits.fields * 2,
        connect: true,
        underscores: limits.underscores,
    };
    let mut again = Vec::new();
    let read = head::request(&written, &roomy, &mut again);
    let read = read.expect("what is sent to a server is a request");
    let read = read.expect("what is sent to a server is a whole head");
    assert_eq!(read.len, written.len(), "nothing follows the head");
    assert_eq!(read.framing, request.framing, "servers see the same body");
    let mut exchange = Exchange::new(&request, limits.underscores);
    let _ = exchange.client_data(&input[request.len..]);
}

/// A server's bytes, whole and in portions: both must be passed on in the same way.
pub(super) fn response(input: &[u8]) {
    let Some((&portion, input)) = input.split_first() else {
        return;
    };
    let asked: &[u8] = if portion & 0x80 == 0 {
        b"GET / HTTP/1.1\r\nHost: h\r\n\r\n"
    } else {
        b"HEAD / HTTP/1.0\r\nHost: h\r\n\r\n"
    };
    let whole = answered(asked, input, input.len().max(1));
    let pieces = answered(asked, input, usize::from(portion & 0x7f).max(1));
    let (more, fewer) = if whole.0.len() > pieces.0.len() {
        (&whole.0, &pieces.0)
    } else {
        (&pieces.0, &whole.0)
    };
    assert_eq!(whole.1, pieces.1, "portions change what is malformed");
    // In front of a mistake portions decide how much has been passed on already, and never what.
    assert!(
        more.starts_with(fewer),
        "portions change what a client gets"
    );
    assert!(
        whole.1 || more.len() == fewer.len(),
        "portions change how much a client gets"
    );
}

/// What a client gets of these bytes, and whether they were malformed.
fn answered(asked: &[u8], input: &[u8], portion: usize) -> (Vec<u8>, bool) {
    let limits = HeadLimits::default();
    let mut fields = Vec::new();
    let request = head::request(asked, &limits, &mut fields);
    let request = request.ok().flatten().expect("a request of ours");
    let mut exchange = Exchange::new(&request, limits.underscores);
    let _ = exchange.client_data(&[]);
    let touch = ResponseEdit::default();
    let (mut held, mut out) = (Vec::new(), Vec::new());
    for piece in input.chunks(portion) {
        held.extend_from_slice(piece);
        loop {
            let step = exchange.server_data(&held, &limits, false, &touch, &mut fields, &mut out);
            let Ok(Step {
                consumed, forward, ..
            }) = step
            else {
                return (out, true);
            };
            assert!(consumed <= held.len() && forward.end <= held.len());
            out.extend_from_slice(&held[forward]);
            held.drain(..consumed);
            if consumed == 0 || held.is_empty() {
                break;
            }
        }
        if exchange.response_done() {
            break;
        }
    }
    let _ = exchange.server_end();
    (out, false)
}

/// A chunked body, whole and byte by byte.
pub(super) fn chunked(input: &[u8]) {
    let mut whole = Vec::new();
    let all = Chunks::new().scan(input, &mut |data| whole.extend_from_slice(data));
    let (mut bytes, mut chunks, mut taken) = (Vec::new(), Chunks::new(), 0);
    for byte in input.chunks(1) {
        match chunks.scan(byte, &mut |data| bytes.extend_from_slice(data)) {
            Ok(count) => taken += count,
            Err(_) => {
                assert!(all.is_err(), "refused in pieces only");
                return;
            }
        }
    }
    assert_eq!(all, Ok(taken));
    assert_eq!(whole, bytes);
    trailers(input, taken);
}

/// The good body of a request, without the trailers that servers must not see: whole and byte by byte.
fn trailers(input: &[u8], taken: usize) {
    let passed = |portion: usize| {
        let (mut chunks, mut passed) = (Chunks::for_request(Underscores::Drop), Vec::new());
        for piece in input[..taken].chunks(portion) {
            let scanned = chunks.scan_request(piece, &mut |_| {});
            let (count, passing) = scanned.expect("a body that was read before");
            assert_eq!(count, piece.len());
            passed.extend_from_slice(&piece[..passing]);
            passed.extend_from_slice(&chunks.take_held());
        }
        (passed, chunks.is_done())
    };
    let (whole, done) = passed(taken.max(1));
    assert_eq!(
        (whole.clone(), done),
        passed(1),
        "portions change what passes"
    );
    if done {
        let again = Chunks::for_request(Underscores::Reject).scan(&whole, &mut |_| {});
        assert_eq!(
            again,
            Ok(whole.len()),
            "what passes is a body without such trailers"
        );
    }
}

/// Cookies and query parameters.
pub(super) fn cookie(input: &[u8]) {
    if let Some(place) = cookie::find(input, b"SRV") {
        assert!(place.end <= input.len());
        let _ = cookie::value_without(input, &place);
    }
    let _ = cookie::parameter(input, b"a");
}

/// A PROXY protocol header; what was read is written, and read again.
pub(super) fn preamble(input: &[u8]) {
    let Ok(Some(found)) = preamble::read(input) else {
        return;
    };
    assert!(found.len() <= input.len());
    assert_eq!(preamble::read(&input[..found.len()]), Ok(Some(found)));
    let address = std::net::SocketAddr::from(([192, 0, 2, 1], 1));
    let mut own = Vec::new();
    preamble::write(ProxyHeader::V2, address, address, &mut own);
    assert!(matches!(preamble::read(&own), Ok(Some(_))));
}

/// A TLS ClientHello.
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
