//! Fuzzes data that only the proxy parses: certificates and HTTP/2 frames.

use weir_proxy::fuzzing;

/// Parses the input as a certificate and as an OCSP response, in DER.
pub(super) fn certificate(input: &[u8]) {
    fuzzing::parse_certificate(input);
}

/// Parses an HTTP/2 client's data in portions. The first byte is the size of the portions.
pub(super) fn http2(input: &[u8]) {
    if let Some((portion, input)) = input.split_first() {
        fuzzing::parse_http2(input, usize::from(*portion).max(1));
    }
}

pub(super) fn certificates() -> Vec<Vec<u8>> {
    let certificate = include_bytes!("../../../weir-proxy/testdata/x509/san.der");
    let response = include_bytes!("../../../weir-proxy/testdata/x509/ocsp_two.der");
    vec![certificate.to_vec(), response.to_vec()]
}

pub(super) fn http2_seeds() -> Vec<Vec<u8>> {
    let mut request = b"\x20PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    request.extend([0, 0, 0, 4, 0, 0, 0, 0, 0]);
    // GET http://a/, encoded with the static table.
    request.extend([
        0, 0, 6, 1, 5, 0, 0, 0, 1, 0x82, 0x86, 0x84, 0x41, 0x01, b'a',
    ]);
    let mut reset = request.clone();
    reset.extend([0, 0, 4, 3, 0, 0, 0, 0, 1, 0, 0, 0, 8]);
    vec![request, reset]
}
