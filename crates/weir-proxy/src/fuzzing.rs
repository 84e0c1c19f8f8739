//! Exposes parsers to weir-fuzz that are not public otherwise.

/// Parses the input as a certificate and as an OCSP response.
pub fn certificate(input: &[u8]) {
    crate::tls::read_der(input);
}

/// Parses an HTTP/2 client's bytes in portions of `portion` bytes.
pub fn http2(input: &[u8], portion: usize) {
    crate::h2::read_frames(input, portion);
}
