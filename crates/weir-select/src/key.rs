//! Hashes of the part of a request that identifies a client or selects a server.

use std::net::{IpAddr, SocketAddr};

use weir_http::{Field, RequestPath, cookie};
use weir_model::HashKey;

/// Hash of a client's address, without the port.
pub fn hash_of_client(client: SocketAddr) -> u64 {
    match client.ip() {
        IpAddr::V4(v4) => cookie::siphash((0, 0), &v4.octets()),
        IpAddr::V6(v6) => cookie::siphash((0, 0), &v6.octets()),
    }
}

/// Hash of what `key` names; of the client's address if the request does not contain it.
pub fn hash_of_request(
    key: &HashKey,
    client: SocketAddr,
    target: &RequestPath<'_>,
    head: &[u8],
    fields: &[Field],
) -> u64 {
    let value_of = |name: &[u8]| {
        let mut all = fields.iter();
        all.find(|field| field.name_in(head).eq_ignore_ascii_case(name))
            .map(|field| field.value_in(head))
    };
    let part = match key {
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
    part.map_or_else(
        || hash_of_client(client),
        |part| cookie::siphash((0, 0), part),
    )
}
