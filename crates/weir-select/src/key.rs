//! Hashes the part of a request that identifies a client or selects a server.

use std::net::{IpAddr, SocketAddr};

use weir_http::{Field, RequestPath, cookie};
use weir_model::HashKey;

/// Returns the hash of a client's address, without the port.
pub fn hash_of_client(client: SocketAddr) -> u64 {
    match client.ip() {
        IpAddr::V4(v4) => cookie::siphash((0, 0), &v4.octets()),
        IpAddr::V6(v6) => cookie::siphash((0, 0), &v6.octets()),
    }
}

/// Returns the hash of the part of the request that `key` specifies, or of the client's address if the request does not
/// contain this part or the client is not allowed to set it ([`weir_http::mark_untrusted`]).
pub fn hash_of_request(
    key: &HashKey,
    client: SocketAddr,
    target: &RequestPath<'_>,
    head: &[u8],
    fields: &[Field],
) -> u64 {
    let value_of = |name: &[u8]| {
        let mut fields = fields.iter();
        fields.find_map(|field| field.trusted_value(name, head))
    };
    let text = match key {
        HashKey::Source => None,
        HashKey::Uri => Some(target.as_bytes()),
        HashKey::Path => Some(target.path()),
        HashKey::Header(name) => value_of(name.as_bytes()),
        HashKey::Cookie(name) => value_of(b"cookie").and_then(|value| {
            let range = cookie::find(value, name.as_bytes())?;
            Some(&value[range])
        }),
        HashKey::Query(name) => cookie::parameter(target.query(), name.as_bytes()),
    };
    text.map_or_else(
        || hash_of_client(client),
        |text| cookie::siphash((0, 0), text),
    )
}

/// Computes MurmurHash2 with 32 bits and seed 0, as nginx does (ngx_murmurhash.c), so the same text selects the same
/// share.
pub(crate) fn murmur_hash(text: &[u8]) -> u32 {
    const M: u32 = 0x5bd1_e995;
    #[expect(
        clippy::cast_possible_truncation,
        reason = "the algorithm uses the low 32 bits of the length"
    )]
    let mut hash = text.len() as u32;
    let (words, tail) = text.as_chunks::<4>();
    for word in words {
        let mut part = u32::from_le_bytes(*word).wrapping_mul(M);
        part ^= part >> 24;
        part = part.wrapping_mul(M);
        hash = hash.wrapping_mul(M) ^ part;
    }
    if !tail.is_empty() {
        let mut word = [0; 4];
        word[..tail.len()].copy_from_slice(tail);
        hash = (hash ^ u32::from_le_bytes(word)).wrapping_mul(M);
    }
    hash ^= hash >> 13;
    hash = hash.wrapping_mul(M);
    hash ^ hash >> 15
}

#[cfg(test)]
mod tests {
    use weir_http::head::{self, HeadLimits};

    use super::*;

    fn hash(key: &HashKey, client: &str, text: &str) -> u64 {
        let mut fields = Vec::new();
        let head = text.as_bytes();
        let request = head::parse_request(head, &HeadLimits::default(), &mut fields);
        let request = request.unwrap().expect("head is complete");
        let target = RequestPath::as_received(request.path_in(head));
        hash_of_request(key, client.parse().unwrap(), &target, head, &fields)
    }

    #[test]
    fn hash_depends_only_on_the_part_that_the_key_specifies() {
        const A: &str = "192.0.2.1:1000";
        let text = "GET /a?u=1&v=2 HTTP/1.1\r\nHost: h\r\nX-User: eve\r\nCookie: s=7; t=8\r\n\r\n";
        let name = |text: &str| text.to_owned();
        // A key, the part of the request that it specifies, and a different part.
        for (key, part, other) in [
            (HashKey::Uri, "/a?u=1&v=2", "/a?u=1&v=3"),
            (HashKey::Path, "/a?", "/b?"),
            (HashKey::Header(name("x-user")), "eve", "bob"),
            (HashKey::Cookie(name("s")), "s=7", "s=9"),
            (HashKey::Query(name("u")), "u=1", "u=3"),
        ] {
            let expected = hash(&key, A, text);
            assert_eq!(
                expected,
                hash(&key, "[2001:db8::1]:2", text),
                "{key:?}: any client"
            );
            assert_ne!(
                expected,
                hash(&key, A, &text.replace(part, other)),
                "{key:?}"
            );
            let other_parts =
                "GET /a?u=1&v=2 HTTP/1.1\r\nHost: h\r\nX-User: eve\r\nCookie: s=7\r\nY: z\r\n\r\n";
            assert_eq!(expected, hash(&key, A, other_parts), "{key:?}: other parts");
        }
        assert_eq!(
            hash(&HashKey::Path, A, text),
            hash(&HashKey::Path, A, &text.replace("u=1", "u=5"))
        );
    }

    #[test]
    fn client_address_is_hashed_if_the_field_is_untrusted() {
        let key = HashKey::Header("X-Forwarded-For".to_owned());
        let hash_if = |removes_others: bool| {
            let head = b"GET / HTTP/1.1\r\nHost: h\r\nX-Forwarded-For: 198.51.100.7\r\n\r\n";
            let mut fields = Vec::new();
            let request = head::parse_request(head, &HeadLimits::default(), &mut fields);
            let request = request.unwrap().expect("head is complete");
            weir_http::mark_untrusted(head, &mut fields, None, removes_others);
            let target = RequestPath::as_received(request.path_in(head));
            hash_of_request(&key, "192.0.2.1:1".parse().unwrap(), &target, head, &fields)
        };
        let client_hash = hash_of_client("192.0.2.1:1".parse().unwrap());
        assert_eq!(hash_if(true), client_hash);
        assert_ne!(hash_if(false), client_hash);
    }

    #[test]
    fn client_address_is_hashed_if_the_part_is_missing() {
        let text = "GET / HTTP/1.1\r\nHost: h\r\n\r\n";
        let name = || "n".to_owned();
        for key in [
            HashKey::Source,
            HashKey::Header(name()),
            HashKey::Cookie(name()),
            HashKey::Query(name()),
        ] {
            let clients = [
                "192.0.2.1:1000",
                "192.0.2.2:1000",
                "[2001:db8::1]:1",
                "[2001:db8::2]:1",
            ];
            for client in clients {
                let client_hash = hash_of_client(client.parse().unwrap());
                assert_eq!(hash(&key, client, text), client_hash);
                let others = clients.iter().filter(|other| **other != client);
                assert!(
                    others
                        .into_iter()
                        .all(|other| hash_of_client(other.parse().unwrap()) != client_hash)
                );
            }
            let other_port = hash_of_client("192.0.2.1:2000".parse().unwrap());
            assert_eq!(hash(&key, "192.0.2.1:1000", text), other_port);
        }
    }

    #[test]
    fn murmur_hash_matches_nginx() {
        // Values of ngx_murmur_hash2.
        for (text, expected) in [
            ("", 0),
            ("a", 0x9268_5f5e),
            ("ab", 0x1aa1_4063),
            ("abc", 0x1357_7c9b),
            ("abcd", 0x2687_3021),
            ("10.0.0.1AAA", 0x1371_c05f),
            ("/variant/x/y.js", 0x4106_e9c8),
        ] {
            assert_eq!(murmur_hash(text.as_bytes()), expected, "{text}");
        }
    }
}
