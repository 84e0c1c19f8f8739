//! Ways into parsers that nothing outside this crate calls, for weir-fuzz alone.

/// Reads a certificate, and the same bytes as an OCSP response for it.
pub fn certificate(input: &[u8]) {
    crate::tls::read_der(input);
}

/// Takes an HTTP/2 client's bytes, in portions of `portion` bytes.
pub fn http2(input: &[u8], portion: usize) {
    crate::h2::read_frames(input, portion);
}
