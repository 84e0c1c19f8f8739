//! Decides whether a response is compressed, and selects the coding (RFC 9110 sections 12.5.3 and 8.4).
//!
//! The driver compresses; this module negotiates and writes the fields.

use weir_model::{Coding, Compression};

use crate::byte_class::trim;
use crate::field::{Field, Name};
use crate::head::Response;

/// A quality value in thousandths.
type Quality = u16;
const MAX_QUALITY: Quality = 1_000;

/// Returns the offered coding that the client prefers; among equally preferred codings, the first in `offered`. Returns
/// `None` if the client accepts none of them or prefers unencoded content.
pub fn negotiate(head: &[u8], fields: &[Field], offered: &[Coding]) -> Option<Coding> {
    let mut qualities = [None::<Quality>; Coding::ALL.len()];
    let (mut wildcard, mut identity) = (None, None);
    for field in fields {
        if field.name != Name::Other
            || !field.name_in(head).eq_ignore_ascii_case(b"accept-encoding")
        {
            continue;
        }
        for member in field.value_in(head).split(|byte| *byte == b',') {
            let (name, quality) = parse_preference(member);
            let coding_index = Coding::ALL
                .iter()
                .position(|coding| has_name(*coding, name));
            match coding_index {
                Some(index) => qualities[index] = Some(quality),
                None if name == b"*" => wildcard = Some(quality),
                None if name.eq_ignore_ascii_case(b"identity") => identity = Some(quality),
                None => {}
            }
        }
    }
    let quality_of = |coding: &Coding| qualities[*coding as usize].or(wildcard).unwrap_or(0);
    // `max_by_key` returns the last of equal elements, which is the first in the list because of `rev`.
    let best = offered
        .iter()
        .rev()
        .max_by_key(|coding| quality_of(coding))?;
    let quality = quality_of(best);
    (quality > 0 && identity.is_none_or(|identity| identity <= quality)).then_some(*best)
}

fn has_name(coding: Coding, name: &[u8]) -> bool {
    name.eq_ignore_ascii_case(coding.as_str().as_bytes())
        || (coding == Coding::Gzip && name.eq_ignore_ascii_case(b"x-gzip"))
}

/// Parses `gzip;q=0.5`. An invalid quality counts as 0: a coding is used only if it was clearly requested.
fn parse_preference(member: &[u8]) -> (&[u8], Quality) {
    let mut parts = member.split(|byte| *byte == b';');
    let name = trim(parts.next().unwrap_or_default());
    let mut quality = MAX_QUALITY;
    for part in parts {
        if let [b'q' | b'Q', b'=', value @ ..] = trim(part) {
            quality = parse_quality(value).unwrap_or(0);
        }
    }
    (name, quality)
}

/// Parses `0`, `0.5`, `1.000`: at most three decimals, at most 1.
fn parse_quality(text: &[u8]) -> Option<Quality> {
    let (integer, rest) = text.split_first()?;
    let decimals = match rest {
        [] => &[][..],
        [b'.', decimals @ ..] if decimals.len() <= 3 => decimals,
        _ => return None,
    };
    let digit = |byte: u8| byte.is_ascii_digit().then(|| Quality::from(byte - b'0'));
    let mut value = digit(*integer)?;
    for index in 0..3 {
        value = value * 10 + decimals.get(index).map_or(Some(0), |byte| digit(*byte))?;
    }
    (value <= MAX_QUALITY).then_some(value)
}

/// Returns whether the response could be compressed for at least one client. If so, the response gets
/// `Vary: Accept-Encoding`.
pub(crate) fn is_compressible(
    head: &[u8],
    response: &Response,
    fields: &[Field],
    rules: &Compression,
) -> bool {
    if response.status < 200 || matches!(response.status, 204..=206 | 304) {
        return false;
    }
    let mut has_listed_type = false;
    for field in fields {
        let value = field.value_in(head);
        if field.name == Name::ContentLength && is_short(value, rules.minimum) {
            return false;
        }
        if field.name != Name::Other {
            continue;
        }
        let name = field.name_in(head);
        let is_named = |expected: &[u8]| name.eq_ignore_ascii_case(expected);
        match name.len() {
            12 if is_named(b"content-type") => has_listed_type = has_type(value, &rules.types),
            // The server has already encoded the content, or sends fields that compression would invalidate.
            16 if is_named(b"content-encoding") && !value.eq_ignore_ascii_case(b"identity") => {
                return false;
            }
            13 if is_named(b"content-range") => return false,
            11 if is_named(b"content-md5") || is_named(b"repr-digest") => return false,
            14 if is_named(b"content-digest") => return false,
            6 if is_named(b"digest") => return false,
            13 if is_named(b"cache-control") && has_member(value, b"no-transform") => return false,
            _ => {}
        }
    }
    has_listed_type
}

fn is_short(length: &[u8], minimum: u32) -> bool {
    let length = std::str::from_utf8(length).ok();
    let length: Option<u64> = length.and_then(|text| text.parse().ok());
    length.is_some_and(|length| length < u64::from(minimum))
}

/// Returns whether a media type, without its parameters, is one of `types`.
fn has_type(value: &[u8], types: &[String]) -> bool {
    let media_type = value.split(|byte| *byte == b';').next();
    let media_type = trim(media_type.unwrap_or_default());
    types
        .iter()
        .any(|listed_type| match listed_type.strip_suffix('*') {
            Some(prefix) => media_type
                .get(..prefix.len())
                .is_some_and(|part| part.eq_ignore_ascii_case(prefix.as_bytes())),
            None => media_type.eq_ignore_ascii_case(listed_type.as_bytes()),
        })
}

fn has_member(value: &[u8], name: &[u8]) -> bool {
    let mut members = value.split(|byte| *byte == b',');
    members.any(|member| trim(member).eq_ignore_ascii_case(name))
}

/// Returns whether a field describes the unencoded content. Such a field must be removed or rewritten if the content is
/// compressed.
pub(crate) fn is_content_field(head: &[u8], field: &Field) -> bool {
    let name = field.name_in(head);
    let is_named = |expected: &[u8]| name.eq_ignore_ascii_case(expected);
    match field.name {
        Name::ContentLength | Name::TransferEncoding => true,
        Name::Other => {
            is_named(b"etag")
                || is_named(b"accept-ranges")
                || is_named(b"content-encoding")
                || is_named(b"trailer")
        }
        _ => false,
    }
}

/// Appends the fields that describe content encoded with `coding`. Omits `ETag` if `remove` contains it.
pub(crate) fn write_content_fields(
    head: &[u8],
    fields: &[Field],
    coding: Coding,
    remove: &[String],
    out: &mut Vec<u8>,
) {
    let is_removed = remove.iter().any(|name| name.eq_ignore_ascii_case("etag"));
    let is_forwarded_etag = |field: &&Field| {
        let is_etag =
            field.name == Name::Other && field.name_in(head).eq_ignore_ascii_case(b"etag");
        is_etag && !is_removed
    };
    for field in fields
        .iter()
        .filter(|field| !field.dropped)
        .filter(is_forwarded_etag)
    {
        let value = field.value_in(head);
        out.extend_from_slice(b"ETag: ");
        if !value.starts_with(b"W/") {
            // The content is equivalent to the server's content but has different bytes, so the validator must be weak.
            out.extend_from_slice(b"W/");
        }
        out.extend_from_slice(value);
        out.extend_from_slice(b"\r\n");
    }
    out.extend_from_slice(b"Content-Encoding: ");
    out.extend_from_slice(coding.as_str().as_bytes());
    out.extend_from_slice(b"\r\nTransfer-Encoding: chunked\r\n");
}

/// Appends `Vary: Accept-Encoding` unless the server sent it.
pub(crate) fn write_vary(head: &[u8], fields: &[Field], out: &mut Vec<u8>) {
    let is_present = fields.iter().any(|field| {
        let value = field.value_in(head);
        field.name == Name::Other
            && field.name_in(head).eq_ignore_ascii_case(b"vary")
            && (has_member(value, b"*") || has_member(value, b"accept-encoding"))
    });
    if !is_present {
        out.extend_from_slice(b"Vary: Accept-Encoding\r\n");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::head::{self, HeadLimits};

    fn negotiated_name(lines: &str) -> Option<&'static str> {
        let text = format!("GET / HTTP/1.1\r\nHost: a\r\n{lines}\r\n");
        let mut fields = Vec::new();
        head::parse_request(text.as_bytes(), &HeadLimits::default(), &mut fields)
            .unwrap()
            .unwrap();
        negotiate(text.as_bytes(), &fields, &Coding::ALL).map(Coding::as_str)
    }

    #[test]
    fn highest_quality_wins_then_list_order() {
        for (accepted, expected) in [
            ("", None),
            ("Accept-Encoding:\r\n", None),
            ("Accept-Encoding: gzip\r\n", Some("gzip")),
            ("Accept-Encoding: GZip\r\n", Some("gzip")),
            ("Accept-Encoding: x-gzip\r\n", Some("gzip")),
            ("Accept-Encoding: gzip, br, zstd\r\n", Some("zstd")),
            (
                "Accept-Encoding: gzip, br;q=0.9, zstd;q=0.8\r\n",
                Some("gzip"),
            ),
            ("Accept-Encoding: gzip;q=0.5, br;q=0.501\r\n", Some("br")),
            ("Accept-Encoding: gzip;q=0\r\n", None),
            ("Accept-Encoding: gzip;q=0.000, *\r\n", Some("zstd")),
            ("Accept-Encoding: *;q=0, br\r\n", Some("br")),
            ("Accept-Encoding: *\r\n", Some("zstd")),
            ("Accept-Encoding: identity\r\n", None),
            ("Accept-Encoding: identity;q=1, gzip;q=0.5\r\n", None),
            (
                "Accept-Encoding: identity;q=0.5, gzip;q=1\r\n",
                Some("gzip"),
            ),
            ("Accept-Encoding: identity;q=0\r\n", None),
            ("Accept-Encoding: deflate, compress\r\n", None),
            ("Accept-Language: gzip\r\n", None),
            ("Accept-Encoding: gzip;q=1.1\r\n", None),
            ("Accept-Encoding: gzip;q=x\r\n", None),
            ("Accept-Encoding: gzip;q=0.5000\r\n", None),
            ("Accept-Encoding: deflate, gzip;q=0.5\r\n", Some("gzip")),
            ("Accept-Encoding: gzip ; q=0.3 , br;Q=0.2\r\n", Some("gzip")),
            (
                "Accept-Encoding: gzip\r\nAccept-Encoding: br\r\n",
                Some("br"),
            ),
        ] {
            assert_eq!(negotiated_name(accepted), expected, "{accepted:?}");
        }
    }

    fn is_compressed(status: &str, lines: &str) -> bool {
        let text = format!("HTTP/1.1 {status}\r\n{lines}\r\n");
        let mut fields = Vec::new();
        let response =
            head::parse_response(text.as_bytes(), false, &HeadLimits::default(), &mut fields)
                .unwrap()
                .unwrap();
        let rules = Compression::default();
        is_compressible(text.as_bytes(), &response, &fields, &rules)
    }

    #[test]
    fn only_complete_unencoded_content_of_listed_types_is_compressed() {
        let html = "Content-Type: text/html; charset=utf-8\r\n";
        let html_with = |more: &str| format!("{html}{more}");
        assert!(is_compressed("200 OK", html));
        assert!(is_compressed(
            "404 Not Found",
            &html_with("Content-Length: 1024\r\n")
        ));
        assert!(is_compressed(
            "200 OK",
            &html_with("Content-Encoding: identity\r\n")
        ));
        assert!(is_compressed("200 OK", "content-type: IMAGE/SVG+xml\r\n"));
        // Fields whose names are as long as those of fields that prevent compression.
        for other in [
            "Server: identity\r\n",
            "Retry-After: 1\r\n",
            "Last-Modified: x\r\n",
            "X-Content-Hash: x\r\n",
            "X-Original-Coded: br\r\n",
            "Cache-Control: public, max-age=60\r\n",
        ] {
            assert!(is_compressed("200 OK", &html_with(other)), "{other}");
        }
        for (status, lines) in [
            ("200 OK", String::new()),
            ("200 OK", "Content-Type: image/png\r\n".to_owned()),
            ("200 OK", "X-Powered-By: text/html\r\n".to_owned()),
            ("200 OK", "Content-Type: textual/x\r\n".to_owned()),
            ("200 OK", html_with("Content-Length: 1023\r\n")),
            ("200 OK", html_with("Content-Encoding: br\r\n")),
            (
                "200 OK",
                html_with("Cache-Control: public, No-Transform\r\n"),
            ),
            ("200 OK", html_with("Content-Digest: sha-256=:x:\r\n")),
            ("200 OK", html_with("Repr-Digest: sha-256=:x:\r\n")),
            ("200 OK", html_with("Digest: sha-256=x\r\n")),
            ("200 OK", html_with("Content-MD5: x\r\n")),
            (
                "416 Range Not Satisfiable",
                html_with("Content-Range: bytes */10\r\n"),
            ),
            (
                "206 Partial Content",
                html_with("Content-Range: bytes 0-9/10\r\n"),
            ),
            ("205 Reset Content", html.to_owned()),
            // A response of several ranges has no `Content-Range` (RFC 9110 section 15.3.7.2).
            ("206 Partial Content", html.to_owned()),
            ("204 No Content", html.to_owned()),
            ("304 Not Modified", html.to_owned()),
        ] {
            assert!(!is_compressed(status, &lines), "{status} {lines:?}");
        }
    }

    #[test]
    fn vary_is_added_unless_the_server_sent_it() {
        for (lines, is_added) in [
            ("", true),
            ("Vary: Origin\r\n", true),
            ("X-Vary: Accept-Encoding\r\n", true),
            ("Vary: Origin, accept-encoding\r\n", false),
            ("vary: *\r\n", false),
        ] {
            let text = format!("HTTP/1.1 200 OK\r\n{lines}\r\n");
            let (mut fields, mut out) = (Vec::new(), Vec::new());
            head::parse_response(text.as_bytes(), false, &HeadLimits::default(), &mut fields)
                .unwrap()
                .unwrap();
            write_vary(text.as_bytes(), &fields, &mut out);
            let expected = if is_added {
                &b"Vary: Accept-Encoding\r\n"[..]
            } else {
                b""
            };
            assert_eq!(out, expected, "{lines:?}");
        }
    }
}
