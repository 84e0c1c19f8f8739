//! What of a request its server follows from: a cookie that leads back, or a hash.

use std::net::{IpAddr, SocketAddr};

use weir_http::{CookieTouch, Field, Request, ResponseTouch, cookie};
use weir_model::{HashKey, StickyMode};

use super::Session;
use crate::plan::{Stickiness, Targets};

impl Session {
    /// Looks for the cookie of a server. What the server is to see instead is appended to `add`, as a whole line.
    pub(super) fn look_for_sign(
        &mut self,
        sticky: &Stickiness,
        head: &[u8],
        fields: &mut [Field],
        add: &mut Vec<u8>,
    ) {
        let name = sticky.kind.cookie.as_bytes();
        let cookies = fields
            .iter_mut()
            .filter(|field| field.name_in(head).eq_ignore_ascii_case(b"cookie"));
        for field in cookies {
            let value = field.value_in(head);
            let Some(place) = cookie::find(value, name) else {
                continue;
            };
            let word = &value[place.clone()];
            let tilde = word.iter().position(|octet| *octet == b'~');
            let (sign, own) = match (sticky.kind.mode, tilde) {
                (StickyMode::Prefix, Some(at)) => (&word[..at], &word[at + 1..]),
                (StickyMode::Prefix, None) => continue,
                _ => (word, &word[..0]),
            };
            self.sticks_to = sticky.signs.iter().position(|known| known == sign);
            let rest = match sticky.kind.mode {
                StickyMode::Rewrite => continue,
                StickyMode::Insert => cookie::without(value, &place),
                StickyMode::Prefix => [&value[..place.start], own, &value[place.end..]].concat(),
            };
            field.dropped = true;
            if !rest.is_empty() {
                add.extend_from_slice(b"Cookie: ");
                add.extend_from_slice(&rest);
                add.extend_from_slice(b"\r\n");
            }
        }
    }

    /// What a response's head gets so that the client comes back; `room` holds what is added.
    pub(super) fn touch<'a>(
        &self,
        targets: &'a Targets,
        room: &'a mut Vec<u8>,
    ) -> ResponseTouch<'a> {
        let Some(sticky) = &targets.sticky else {
            return ResponseTouch::default();
        };
        let Some(sign) = sticky.signs.get(self.place) else {
            return ResponseTouch::default();
        };
        let name = sticky.kind.cookie.as_bytes();
        if sticky.kind.mode != StickyMode::Insert {
            let cookie = CookieTouch {
                name,
                sign,
                prefix: sticky.kind.mode == StickyMode::Prefix,
            };
            return ResponseTouch {
                cookie: Some(cookie),
                ..ResponseTouch::default()
            };
        }
        if self.sticks_to == Some(self.place) {
            return ResponseTouch::default();
        }
        let parts: [&[u8]; 7] = [
            b"Set-Cookie: ",
            name,
            b"=",
            sign,
            b"; ",
            sticky.kind.attributes.as_bytes(),
            b"\r\n",
        ];
        parts.iter().for_each(|part| room.extend_from_slice(part));
        ResponseTouch {
            add: room,
            ..ResponseTouch::default()
        }
    }
}

/// Of a client's address.
pub(super) fn hash_of_client(client: SocketAddr) -> u64 {
    match client.ip() {
        IpAddr::V4(v4) => cookie::siphash((0, 0), &v4.octets()),
        IpAddr::V6(v6) => cookie::siphash((0, 0), &v6.octets()),
    }
}

/// Of what `key` names; of the client's address where the request has none.
pub(super) fn hash_of(
    key: &HashKey,
    client: SocketAddr,
    head: &[u8],
    request: &Request,
    fields: &[Field],
) -> u64 {
    let target = request.path_in(head);
    let path_len = target
        .iter()
        .position(|octet| *octet == b'?')
        .unwrap_or(target.len());
    let named = |name: &[u8]| {
        let mut all = fields.iter();
        all.find(|field| field.name_in(head).eq_ignore_ascii_case(name))
            .map(|field| field.value_in(head))
    };
    let part = match key {
        HashKey::Source => None,
        HashKey::Uri => Some(target),
        HashKey::Path => Some(&target[..path_len]),
        HashKey::Header(name) => named(name.as_bytes()),
        HashKey::Cookie(name) => named(b"cookie").and_then(|value| {
            let place = cookie::find(value, name.as_bytes())?;
            Some(&value[place])
        }),
        HashKey::Query(name) => cookie::parameter(cookie::query_of(target), name.as_bytes()),
    };
    part.map_or_else(
        || hash_of_client(client),
        |part| cookie::siphash((0, 0), part),
    )
}
