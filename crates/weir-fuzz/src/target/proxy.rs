//! What only the proxy parses: certificates and frames of HTTP/2.

use weir_proxy::fuzzing;

/// A certificate and an OCSP response, in DER.
pub(super) fn certificate(input: &[u8]) {
    fuzzing::certificate(input);
}

/// What an HTTP/2 client sends, in portions whose size the first byte says.
pub(super) fn http2(input: &[u8]) {
    if let Some((portion, input)) = input.split_first() {
        fuzzing::http2(input, usize::from(*portion).max(1));
    }
}

/// A tag, a length below 65 536 and content.
fn der(tag: u8, content: &[u8]) -> Vec<u8> {
    let length = u16::try_from(content.len())
        .unwrap_or(u16::MAX)
        .to_be_bytes();
    [&[tag, 0x82], &length[..], content].concat()
}

pub(super) fn certificates() -> Vec<Vec<u8>> {
    let time = der(0x17, b"260101000000Z");
    let name = der(
        0x30,
        &der(
            0x31,
            &der(
                0x30,
                &[der(6, &[0x55, 4, 3]), der(12, b"a.example")].concat(),
            ),
        ),
    );
    let alternative = der(
        0x30,
        &[
            der(6, &[0x55, 0x1d, 0x11]),
            der(4, &der(0x30, &der(0x82, b"b.example"))),
        ]
        .concat(),
    );
    let body = [
        der(0xa0, &der(2, &[2])),
        der(2, &[1, 2, 3]),
        der(0x30, &[]),
        der(0x30, &[]),
        der(0x30, &[time.clone(), time].concat()),
        name,
        der(0x30, &[]),
        der(0xa3, &der(0x30, &alternative)),
    ];
    let certificate = der(0x30, &der(0x30, &body.concat()));
    let response = der(0x30, &[der(10, &[0]), der(0xa0, &der(0x30, &[]))].concat());
    vec![certificate, response]
}

pub(super) fn http2_seeds() -> Vec<Vec<u8>> {
    let mut plain = b"\x20PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    plain.extend([0, 0, 0, 4, 0, 0, 0, 0, 0]);
    // GET / of http://a, from the static table.
    plain.extend([
        0, 0, 6, 1, 5, 0, 0, 0, 1, 0x82, 0x86, 0x84, 0x41, 0x01, b'a',
    ]);
    let mut reset = plain.clone();
    reset.extend([0, 0, 4, 3, 0, 0, 0, 0, 1, 0, 0, 0, 8]);
    vec![plain, reset]
}
