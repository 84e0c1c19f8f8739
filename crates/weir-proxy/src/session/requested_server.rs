//! Finds the server that a request specifies, by a cookie or by its route's `server` setting.

use weir_http::{CookieEdit, Field, cookie};
use weir_model::StickyMode;

use super::Session;
use crate::plan::{Stickiness, Targets};

impl Session {
    /// Reads the cookie that identifies a server. Appends `Cookie` lines that replace the client's fields to `add`, if
    /// the cookie must be removed or shortened.
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
            let Some(span) = cookie::find(value, name) else {
                continue;
            };
            let text = &value[span.clone()];
            let tilde = text.iter().position(|byte| *byte == b'~');
            let (cookie_value, client_value) = match (sticky.kind.mode, tilde) {
                (StickyMode::Prefix, Some(index)) => (&text[..index], &text[index + 1..]),
                (StickyMode::Prefix, None) => continue,
                _ => (text, &text[..0]),
            };
            let server = sticky
                .cookie_values
                .iter()
                .position(|known| **known == *cookie_value);
            self.request.selection.set_sticky_server(server);
            let remaining = match sticky.kind.mode {
                StickyMode::Rewrite => continue,
                StickyMode::Insert => cookie::value_without(value, &span),
                StickyMode::Prefix => {
                    [&value[..span.start], client_value, &value[span.end..]].concat()
                }
            };
            field.dropped = true;
            if !remaining.is_empty() {
                add.extend_from_slice(b"Cookie: ");
                add.extend_from_slice(&remaining);
                add.extend_from_slice(b"\r\n");
            }
        }
    }

    /// Selects the server that the route names. Like HAProxy's `use-server`, the setting takes precedence over the
    /// cookie, and is ignored if the server is not usable.
    #[inline]
    pub(super) fn prefer_server(&mut self, targets: &Targets) {
        let options = self.options();
        let Some(name) = options.and_then(|options| options.server.as_deref()) else {
            return;
        };
        let index = targets.list.iter().position(|target| target.name == name);
        if index.is_some() {
            self.request.selection.set_sticky_server(index);
        }
    }

    /// Appends the cookie that identifies the request's server, or returns the change to the server's own cookie.
    pub(super) fn set_sticky_cookie<'a>(
        &self,
        targets: &'a Targets,
        head: &[u8],
        out: &mut Vec<u8>,
    ) -> Option<CookieEdit<'a>> {
        let sticky = targets.sticky.as_ref()?;
        let server = self.request.selection.server()?;
        let cookie_value = sticky.cookie_values.get(server)?;
        let name = sticky.kind.cookie.as_bytes();
        if sticky.kind.mode != StickyMode::Insert {
            return Some(CookieEdit {
                name,
                signature: cookie_value,
                prefix: sticky.kind.mode == StickyMode::Prefix,
            });
        }
        if self.request.selection.sticky_server() != Some(server) {
            let attributes = sticky.attributes.as_bytes();
            let separator: &[u8] = if attributes.is_empty() { b"" } else { b"; " };
            let parts: [&[u8]; 7] = [
                b"Set-Cookie: ",
                name,
                b"=",
                cookie_value,
                separator,
                attributes,
                b"\r\n",
            ];
            parts.iter().for_each(|part| out.extend_from_slice(part));
            if sticky.kind.private && may_be_stored(head) {
                out.extend_from_slice(b"Cache-Control: private\r\n");
            }
        }
        None
    }
}

/// Returns whether a cache may store a response: it has a lifetime or a validator, and no field forbids it (RFC 9111
/// section 3). An incomplete head is evaluated as received.
fn may_be_stored(head: &[u8]) -> bool {
    let mut has_reason = false;
    let lines = head.split(|byte| *byte == b'\n').skip(1);
    for line in lines.take_while(|line| !line.trim_ascii().is_empty()) {
        let line = String::from_utf8_lossy(line).to_ascii_lowercase();
        let (name, value) = line.split_once(':').unwrap_or((&line, ""));
        match name {
            "etag" | "last-modified" | "expires" => has_reason = true,
            "cache-control" => {
                let is_present = |directive: &&str| value.contains(*directive);
                if ["no-store", "no-cache", "private"].iter().any(is_present) {
                    return false;
                }
                has_reason |= value.contains("max-age") || value.contains("s-maxage");
            }
            _ => {}
        }
    }
    has_reason
}

#[cfg(test)]
mod tests {
    use super::may_be_stored;

    #[test]
    fn only_storable_responses_become_private() {
        let head = |fields: &str| format!("HTTP/1.1 200 OK\r\n{fields}\r\nETag: \"body\"\r\n");
        for (fields, expected) in [
            ("", false),
            ("ETag: \"a\"\r\n", true),
            ("Cache-Control: max-age=60\r\n", true),
            ("Last-Modified: x\r\nCache-Control: no-store\r\n", false),
            ("X-ETag: a\r\n", false),
        ] {
            assert_eq!(may_be_stored(head(fields).as_bytes()), expected, "{fields}");
        }
    }
}
