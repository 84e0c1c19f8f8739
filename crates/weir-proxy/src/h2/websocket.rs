//! Supports WebSocket over HTTP/2 (RFC 8441): translates extended CONNECT to an HTTP/1.1 upgrade, and 101 to 200.
//!
//! HTTP/2 clients send no `Sec-WebSocket-Key`, so the key is generated here, and the server's accept value is verified.

use aws_lc_rs::digest;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::header::{
    CONNECTION, CONTENT_LENGTH, HOST, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, TRANSFER_ENCODING,
    UPGRADE,
};
use http::{HeaderMap, Response, StatusCode, request};

use super::message::{write_field, write_fields};

/// The only supported `:protocol`.
pub(super) const PROTOCOL: &str = "websocket";

/// Appended to the key before hashing (RFC 6455 section 1.3).
const SALT: &[u8] = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

/// The `Sec-WebSocket-Accept` value that the server must return.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct AcceptValue(String);

/// Appends the request's HTTP/1.1 head, with a key generated from the random numbers `nonce`. Returns the accept value
/// to expect.
pub(super) fn write_request(
    parts: &request::Parts,
    nonce: [u32; 4],
    out: &mut Vec<u8>,
) -> AcceptValue {
    let key = STANDARD.encode(nonce.map(u32::to_be_bytes).concat());
    let path = parts.uri.path_and_query();
    out.extend_from_slice(b"GET ");
    out.extend_from_slice(path.map_or("/", |path| path.as_str()).as_bytes());
    out.extend_from_slice(b" HTTP/1.1\r\n");
    let mut fields = parts.headers.clone();
    if let Some(authority) = parts.uri.authority() {
        write_field("host", authority.as_str().as_bytes(), out);
        fields.remove(HOST);
    }
    for name in [CONTENT_LENGTH, TRANSFER_ENCODING, SEC_WEBSOCKET_KEY] {
        fields.remove(name);
    }
    super::message::join_cookies(&mut fields);
    write_fields(&fields, out);
    write_field("connection", b"Upgrade", out);
    write_field("upgrade", PROTOCOL.as_bytes(), out);
    write_field("sec-websocket-key", key.as_bytes(), out);
    out.extend_from_slice(b"\r\n");
    let salted = [key.as_bytes(), SALT].concat();
    let digest = digest::digest(&digest::SHA1_FOR_LEGACY_USE_ONLY, &salted);
    AcceptValue(STANDARD.encode(digest))
}

/// Translates the server's response. Returns the translated response, and whether the stream becomes a tunnel. A 2xx
/// response, or a 101 with a wrong accept value, becomes a 502.
pub(super) fn translate_response(
    mut message: Response<()>,
    accept_value: &AcceptValue,
) -> (Response<()>, bool) {
    let is_expected = |fields: &HeaderMap| {
        let accept = fields.get(SEC_WEBSOCKET_ACCEPT);
        accept.is_some_and(|value| value.as_bytes() == accept_value.0.as_bytes())
    };
    let status = message.status();
    let switches = status == StatusCode::SWITCHING_PROTOCOLS && is_expected(message.headers());
    if switches {
        *message.status_mut() = StatusCode::OK;
        for name in [SEC_WEBSOCKET_ACCEPT, CONNECTION, UPGRADE] {
            message.headers_mut().remove(name);
        }
    } else if status == StatusCode::SWITCHING_PROTOCOLS || status.is_success() {
        message = Response::new(());
        *message.status_mut() = StatusCode::BAD_GATEWAY;
    }
    (message, switches)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_and_accept_value_match_rfc_6455() {
        let request = http::Request::builder()
            .method("CONNECT")
            .uri("https://a.example/chat?x")
            .header("cookie", "a=1")
            .header("sec-websocket-version", "13")
            .header("cookie", "b=2")
            .body(())
            .unwrap();
        let (parts, ()) = request.into_parts();
        let mut out = Vec::new();
        let nonce = [b"the ", b"samp", b"le n", b"once"].map(|bytes| u32::from_be_bytes(*bytes));
        let accept_value = write_request(&parts, nonce, &mut out);
        assert_eq!(
            accept_value,
            AcceptValue("s3pPLMBiTxaQ9kYGzzhZRbK+xOo=".to_owned())
        );
        let text = String::from_utf8(out).unwrap();
        assert!(
            text.starts_with("GET /chat?x HTTP/1.1\r\nhost: a.example\r\n"),
            "{text}"
        );
        for line in [
            "cookie: a=1; b=2\r\n",
            "connection: Upgrade\r\nupgrade: websocket\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
        ] {
            assert!(text.contains(line), "{text}");
        }
    }

    #[test]
    fn only_101_with_correct_accept_value_switches() {
        let accept_value = AcceptValue("p".to_owned());
        let translate = |status: u16, accept: &str| {
            let message = Response::builder()
                .status(status)
                .header("sec-websocket-accept", accept)
                .header("x", "y")
                .body(())
                .unwrap();
            let (message, switches) = translate_response(message, &accept_value);
            (message.status().as_u16(), switches)
        };
        assert_eq!(translate(101, "p"), (200, true));
        assert_eq!(translate(101, "q"), (502, false));
        assert_eq!(translate(200, "p"), (502, false));
        assert_eq!(translate(403, "p"), (403, false));
    }
}
