//! Tests the parsers of untrusted input with random bytes and mutated valid input.
//!
//! The parsers do not panic, the result for a prefix never contradicts the result for the whole input, and written
//! values are parsed back.

use std::net::{IpAddr, SocketAddr};

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use weir_http::head::{HeadLimits, parse_request};
use weir_http::preamble::{self, Preamble};
use weir_http::{cookie, encoding};
use weir_model::{Coding, ProxyHeader};

/// Returns the head of a request with `Host` and one other field.
fn head_with(name: &[u8], value: &[u8]) -> Vec<u8> {
    [
        b"GET /a HTTP/1.1\r\nHost: h\r\n" as &[u8],
        name,
        b": ",
        value,
        b"\r\n\r\n",
    ]
    .concat()
}

fn address() -> impl Strategy<Value = IpAddr> {
    prop_oneof![
        any::<[u8; 4]>().prop_map(IpAddr::from),
        any::<[u8; 16]>().prop_map(IpAddr::from)
    ]
}

/// Generates starts of PROXY protocol headers, followed by arbitrary bytes.
fn preamble_like() -> impl Strategy<Value = Vec<u8>> {
    let signature = b"\r\n\r\n\0\r\nQUIT\n";
    let prefix = select(vec![
        b"".to_vec(),
        b"PROXY ".to_vec(),
        b"PROXY TCP4 1.2.3.4 ".to_vec(),
        b"PROXY TCP6 ::1 ::1 1 ".to_vec(),
        b"PROXY UNKNOWN".to_vec(),
        signature.to_vec(),
        [&signature[..], b"\x21\x11\x00\x0c"].concat(),
        [&signature[..], b"\x21\x21\xff\xff"].concat(),
        [&signature[..], b"\x20\x00\x00\x00"].concat(),
    ]);
    (prefix, vec(any::<u8>(), 0..80)).prop_map(|(mut prefix, rest)| {
        prefix.extend(rest);
        prefix
    })
}

proptest! {
    #[test]
    fn preambles_are_parsed_completely_or_not_at_all(input in preamble_like()) {
        let complete = preamble::read(&input);
        if let Ok(Some(found)) = &complete {
            prop_assert!(found.len() <= input.len());
            // Bytes after the header do not change the result.
            prop_assert_eq!(preamble::read(&input[..found.len()]), complete);
        }
        for end in 0..input.len() {
            match preamble::read(&input[..end]) {
                Ok(Some(found)) => prop_assert_eq!(Ok(Some(found)), complete),
                Err(error) => prop_assert_eq!(Err(error), complete),
                Ok(None) => {}
            }
        }
    }

    #[test]
    fn written_preambles_are_parsed(
        source in (address(), any::<u16>()),
        port in any::<u16>(),
        version in select(vec![ProxyHeader::V1, ProxyHeader::V2]),
        rest in vec(any::<u8>(), 0..20),
    ) {
        let source = SocketAddr::from(source);
        // Both ends of a connection have the same address family.
        let destination = SocketAddr::new(source.ip(), port);
        let mut bytes = Vec::new();
        preamble::write(version, source, destination, &mut bytes);
        let len = bytes.len();
        bytes.extend(rest);
        prop_assert_eq!(
            preamble::read(&bytes),
            Ok(Some(Preamble::Client { len, source, destination }))
        );
    }

    #[test]
    fn removal_of_a_found_cookie_keeps_the_others(
        value in vec(select(b"ab=; \t\"~,".to_vec()), 0..40),
        name in vec(select(b"ab".to_vec()), 1..3),
    ) {
        let Some(range) = cookie::find(&value, &name) else { return Ok(()) };
        prop_assert!(range.end <= value.len());
        prop_assert_eq!(value[range.start - 1], b'=');
        prop_assert!(!value[range.clone()].contains(&b';'));
        let pairs = |text: &[u8]| {
            let parts = text.split(|byte| *byte == b';').map(<[u8]>::trim_ascii);
            parts.filter(|pair| !pair.is_empty()).map(<[u8]>::to_vec).collect::<Vec<_>>()
        };
        let index = value[..range.start].iter().filter(|byte| **byte == b';').count();
        let mut others: Vec<Vec<u8>> = value.split(|byte| *byte == b';').map(<[u8]>::to_vec).collect();
        others.remove(index);
        let others = pairs(&others.join(&b';'));
        prop_assert_eq!(pairs(&cookie::value_without(&value, &range)), others);
    }

    #[test]
    fn parameter_is_found_if_the_query_contains_it(
        query in vec(select(b"ab=&%+".to_vec()), 0..40),
        name in vec(select(b"ab".to_vec()), 1..3),
    ) {
        let value = cookie::parameter(&query, &name);
        let mut pairs = query.split(|byte| *byte == b'&');
        let has_name = |pair: &&[u8]| *pair == name || pair.starts_with(&[&name[..], b"="].concat());
        prop_assert_eq!(value.is_some(), pairs.any(|pair| has_name(&pair)));
    }

    /// The negotiated coding is one that the client listed or allowed with `*`.
    #[test]
    fn negotiated_coding_was_requested(
        members in vec(
            (select(vec!["gzip", "br", "zstd", "x-gzip", "identity", "*", "GZIP", "deflate", ""]), select(vec!["", ";q=0", ";q=0.000", ";q=1", ";q=0.5", ";q=x", ";Q=0.001", "; q=1.0", ";;"])),
            0..6,
        ),
    ) {
        let value: Vec<String> = members.iter().map(|(name, quality)| format!("{name}{quality}")).collect();
        let head = head_with(b"Accept-Encoding", value.join(",").as_bytes());
        let mut fields = Vec::new();
        let read = parse_request(&head, &HeadLimits::default(), &mut fields);
        prop_assert!(matches!(read, Ok(Some(_))));
        if let Some(coding) = encoding::negotiate(&head, &fields, &Coding::ALL) {
            let is_listed = members.iter().any(|(name, _)| {
                *name == "*" || name.trim_start_matches("x-").eq_ignore_ascii_case(coding.as_str())
            });
            prop_assert!(is_listed, "{coding:?} for {value:?}");
        }
    }

    #[test]
    fn arbitrary_accept_encoding_does_not_panic(value in vec(32u8..127, 0..60)) {
        let head = head_with(b"Accept-Encoding", &value);
        let mut fields = Vec::new();
        if let Ok(Some(_)) = parse_request(&head, &HeadLimits::default(), &mut fields) {
            let _ = encoding::negotiate(&head, &fields, &Coding::ALL);
        }
    }
}
