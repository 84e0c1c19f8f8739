//! Makes private parsers available to weir-fuzz.

/// Parses the input as a certificate and as an OCSP response.
pub fn parse_certificate(input: &[u8]) {
    crate::tls::read_der(input);
}

/// Parses an HTTP/2 client's bytes in portions of `portion` bytes.
pub fn parse_http2(input: &[u8], portion: usize) {
    crate::h2::read_frames(input, portion);
}
