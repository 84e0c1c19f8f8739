//! Fuzzes API requests and DNS responses.

use weir_control::api::{ExplainRequest, FileRequest, ServerUpdate};
use weir_control::explain::{Packet, Request};

use super::texts;

/// Parses bodies of API requests.
pub(super) fn api(input: &[u8]) {
    let _ = serde_json::from_slice::<FileRequest>(input);
    let _ = serde_json::from_slice::<ServerUpdate>(input);
    if let Ok(explain) = serde_json::from_slice::<ExplainRequest>(input) {
        if let Some(packet) = explain.packet {
            let _ = packet.parse::<Packet>();
        }
        if let Some(request) = explain.request {
            let _ = Request::parse(&request, &explain.headers);
        }
    }
}

/// Parses a message from a resolver.
pub(super) fn dns(input: &[u8]) {
    weir_discovery::parse_dns_response(input);
}

pub(super) fn dns_responses() -> Vec<Vec<u8>> {
    let mut response = vec![1, 2, 0x81, 0x80, 0, 1, 0, 1, 0, 0, 0, 0];
    response.extend(b"\x01a\x07example\x00\x00\x21\x00\x01");
    response.extend(b"\xc0\x0c\x00\x21\x00\x01\x00\x00\x00\x05\x00\x0b");
    response.extend(b"\x00\x01\x00\x05\x1f\x90\x01b\xc0\x0e\x00");
    vec![response]
}

pub(super) fn api_bodies() -> Vec<Vec<u8>> {
    texts(&[
        r#"{"request":"GET http://a.example/b?c","headers":["A: b","Cookie: d=e"]}"#,
        r#"{"packet":"tcp 192.0.2.1:5 [2001:db8::1]:80"}"#,
        r#"{"state":"drain"}"#,
        r#"{"path":"/etc/weir/weir.toml","guard_ms":5}"#,
    ])
}
