//! The cookie of a server.

use weir_http::{CookieEdit, Field, cookie};
use weir_model::StickyMode;

use super::Session;
use crate::plan::{Stickiness, Targets};

impl Session {
    /// Reads the cookie that names a server. The fields that the server receives instead are appended to `add`, as
    /// whole lines.
    pub(super) fn find_sticky_server(
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
            let tilde = word.iter().position(|byte| *byte == b'~');
            let (sign, own) = match (sticky.kind.mode, tilde) {
                (StickyMode::Prefix, Some(at)) => (&word[..at], &word[at + 1..]),
                (StickyMode::Prefix, None) => continue,
                _ => (word, &word[..0]),
            };
            let server = sticky.signs.iter().position(|known| known == sign);
            self.request.selection.set_sticky_server(server);
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

    /// The cookie that names the server.
    pub(super) fn set_sticky_cookie<'a>(
        &self,
        targets: &'a Targets,
        room: &mut Vec<u8>,
    ) -> Option<CookieEdit<'a>> {
        let sticky = targets.sticky.as_ref()?;
        let server = self.request.selection.server()?;
        let sign = sticky.signs.get(server)?;
        let name = sticky.kind.cookie.as_bytes();
        if sticky.kind.mode != StickyMode::Insert {
            return Some(CookieEdit {
                name,
                signature: sign,
                prefix: sticky.kind.mode == StickyMode::Prefix,
            });
        }
        if self.request.selection.sticky_server() != Some(server) {
            let attributes = sticky.attributes.as_bytes();
            let between: &[u8] = if attributes.is_empty() { b"" } else { b"; " };
            let parts: [&[u8]; 7] = [
                b"Set-Cookie: ",
                name,
                b"=",
                sign,
                between,
                attributes,
                b"\r\n",
            ];
            parts.iter().for_each(|part| room.extend_from_slice(part));
            if sticky.kind.private {
                room.extend_from_slice(b"Cache-Control: private\r\n");
            }
        }
        None
    }
}
