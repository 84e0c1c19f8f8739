//! Converts HTTP/2 heads, bodies and trailers to HTTP/1.1 text and back.
//!
//! weir-http parses the text as strictly as text from an HTTP/1 client, so correctness does not depend on the `http`
//! crate's field types.

use bytes::Bytes;
use http::header::{CONTENT_LENGTH, COOKIE, HOST, TE};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, request, response};
use weir_http::chunk::ChunkedParser;
use weir_http::{Field, Framing, Name, Request, Response};

/// HTTP/1.1 body framing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Coding {
    /// No body.
    None,
    /// The body is delimited by Content-Length, or is the data of a tunnel.
    Plain,
    Chunked,
}

/// Appends a request head, and returns the framing of its body. `ended` is true if no body follows.
pub(crate) fn write_request(parts: &request::Parts, ended: bool, out: &mut Vec<u8>) -> Coding {
    out.extend_from_slice(parts.method.as_str().as_bytes());
    out.push(b' ');
    let authority = parts.uri.authority().map(|authority| authority.as_str());
    match (parts.uri.path_and_query(), authority) {
        (_, Some(authority)) if parts.method == Method::CONNECT => {
            out.extend_from_slice(authority.as_bytes());
        }
        (Some(path), _) => out.extend_from_slice(path.as_str().as_bytes()),
        (None, _) => out.push(b'/'),
    }
    out.extend_from_slice(b" HTTP/1.1\r\n");
    if let Some(authority) = authority {
        write_field("host", authority.as_bytes(), out);
    }
    let mut cookies = Vec::new();
    for (name, value) in &parts.headers {
        if name == COOKIE {
            // RFC 9113 section 8.2.3.
            if !cookies.is_empty() {
                cookies.extend_from_slice(b"; ");
            }
            cookies.extend_from_slice(value.as_bytes());
        } else if !(name == HOST && authority.is_some()) {
            write_field(name.as_str(), value.as_bytes(), out);
        }
    }
    if !cookies.is_empty() {
        write_field("cookie", &cookies, out);
    }
    let has_length = parts.headers.contains_key(CONTENT_LENGTH);
    let coding = if ended {
        let is_bodiless = matches!(parts.method, Method::GET | Method::HEAD | Method::DELETE);
        if !has_length && !is_bodiless && parts.method != Method::OPTIONS {
            write_field("content-length", b"0", out);
        }
        Coding::None
    } else {
        write_framing(has_length, out)
    };
    out.extend_from_slice(b"\r\n");
    coding
}

/// Appends a response head, and returns the framing of its body. `ended` is true if no body follows, `to_head` if the
/// request was a HEAD request.
pub(crate) fn write_response(
    parts: &response::Parts,
    ended: bool,
    to_head: bool,
    out: &mut Vec<u8>,
) -> Coding {
    let status = parts.status;
    let reason = status.canonical_reason().unwrap_or("Unknown");
    out.extend_from_slice(format!("HTTP/1.1 {} {reason}\r\n", status.as_u16()).as_bytes());
    write_fields(&parts.headers, out);
    let is_bodiless = to_head
        || status.is_informational()
        || status == StatusCode::NO_CONTENT
        || status == StatusCode::NOT_MODIFIED;
    let has_length = parts.headers.contains_key(CONTENT_LENGTH);
    let coding = if is_bodiless {
        Coding::None
    } else if ended {
        if !has_length {
            write_field("content-length", b"0", out);
        }
        Coding::None
    } else {
        write_framing(has_length, out)
    };
    out.extend_from_slice(b"\r\n");
    coding
}

/// Selects the framing of a body, and appends its field: a body without a length is chunked.
fn write_framing(has_length: bool, out: &mut Vec<u8>) -> Coding {
    if has_length {
        return Coding::Plain;
    }
    write_field("transfer-encoding", b"chunked", out);
    Coding::Chunked
}

pub(super) fn write_fields(fields: &HeaderMap, out: &mut Vec<u8>) {
    for (name, value) in fields {
        write_field(name.as_str(), value.as_bytes(), out);
    }
}

pub(super) fn write_field(name: &str, value: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b": ");
    out.extend_from_slice(value);
    out.extend_from_slice(b"\r\n");
}

/// Joins several cookie fields into one (RFC 9113 section 8.2.3).
pub(super) fn join_cookies(fields: &mut HeaderMap) {
    let all: Vec<&[u8]> = fields
        .get_all(COOKIE)
        .iter()
        .map(HeaderValue::as_bytes)
        .collect();
    if all.len() > 1
        && let Ok(joined) = HeaderValue::from_bytes(&all.join(&b"; "[..]))
    {
        fields.insert(COOKIE, joined);
    }
}

/// Appends content with its framing.
pub(crate) fn write_content(coding: Coding, content: &[u8], out: &mut Vec<u8>) {
    if content.is_empty() {
        return;
    }
    match coding {
        Coding::None => {}
        Coding::Plain => out.extend_from_slice(content),
        Coding::Chunked => {
            out.extend_from_slice(format!("{:x}\r\n", content.len()).as_bytes());
            out.extend_from_slice(content);
            out.extend_from_slice(b"\r\n");
        }
    }
}

/// Appends the end of the content.
pub(crate) fn write_end(coding: Coding, trailers: Option<&HeaderMap>, out: &mut Vec<u8>) {
    if coding == Coding::Chunked {
        out.extend_from_slice(b"0\r\n");
        if let Some(trailers) = trailers {
            write_fields(trailers, out);
        }
        out.extend_from_slice(b"\r\n");
    }
}

fn header_map(head: &[u8], fields: &[Field]) -> Option<HeaderMap> {
    let mut map = HeaderMap::with_capacity(fields.len());
    let is_forwarded = |field: &&Field| {
        !field.dropped && !matches!(field.name, Name::TransferEncoding | Name::Upgrade)
    };
    for field in fields.iter().filter(is_forwarded) {
        let name = HeaderName::from_bytes(field.name_in(head)).ok()?;
        map.append(name, HeaderValue::from_bytes(field.value_in(head)).ok()?);
    }
    Some(map)
}

/// Converts a response head to a message. Returns `None` if that is not possible.
pub(crate) fn convert_response(
    head: &[u8],
    parsed: &Response,
    fields: &[Field],
) -> Option<http::Response<()>> {
    let mut message = http::Response::new(());
    *message.status_mut() = StatusCode::from_u16(parsed.status).ok()?;
    *message.headers_mut() = header_map(head, fields)?;
    Some(message)
}

/// Converts a request head to a message. Returns `None` if that is not possible.
pub(crate) fn convert_request(
    head: &[u8],
    parsed: &Request,
    fields: &[Field],
    secure: bool,
) -> Option<http::Request<()>> {
    let mut message = http::Request::new(());
    *message.method_mut() = Method::from_bytes(parsed.method_in(head)).ok()?;
    let mut headers = header_map(head, fields)?;
    let host = headers.remove(HOST);
    let authority = host.as_ref().map_or(&b""[..], HeaderValue::as_bytes);
    *message.uri_mut() = http::Uri::builder()
        .scheme(if secure { "https" } else { "http" })
        .authority(authority)
        .path_and_query(parsed.path_in(head))
        .build()
        .ok()?;
    // Weir forwards trailers, and gRPC servers require this field.
    headers.insert(TE, HeaderValue::from_static("trailers"));
    *message.headers_mut() = headers;
    *message.version_mut() = http::Version::HTTP_2;
    Some(message)
}

/// A parser for a message's content, in text that weir-http has validated.
#[derive(Debug)]
pub(crate) enum Content {
    Done,
    Length(u64),
    Chunked {
        chunks: Box<ChunkedParser>,
        /// The text after the content: the last chunk's size line and the trailers.
        tail: Vec<u8>,
    },
    UntilEnd,
}

/// A piece of content.
#[derive(Debug, Default)]
pub(crate) struct Piece {
    pub(crate) content: Bytes,
    /// Whether the content ends with this piece; only `trailers` follow.
    pub(crate) last: bool,
    pub(crate) trailers: Option<HeaderMap>,
}

impl Content {
    pub(crate) fn new(framing: Framing) -> Self {
        match framing {
            Framing::None | Framing::Length(0) => Self::Done,
            Framing::Length(length) => Self::Length(length),
            Framing::Chunked => Self::Chunked {
                chunks: Box::default(),
                tail: Vec::new(),
            },
            Framing::UntilClose => Self::UntilEnd,
        }
    }

    pub(crate) const fn is_done(&self) -> bool {
        matches!(self, Self::Done)
    }

    /// Removes at most `max` bytes of content from `text`. `ended` is true if no more text follows. Returns `None` if
    /// no content is available now.
    pub(crate) fn take(&mut self, text: &mut Vec<u8>, max: usize, ended: bool) -> Option<Piece> {
        let piece = match self {
            Self::Done => return None,
            Self::Length(remaining) => {
                let bytes = text.len().min(max);
                let bytes = usize::try_from(*remaining).unwrap_or(bytes).min(bytes);
                if bytes == 0 {
                    return None;
                }
                *remaining -= bytes as u64;
                Piece {
                    content: cut(text, bytes),
                    last: *remaining == 0,
                    trailers: None,
                }
            }
            Self::UntilEnd => {
                let bytes = text.len().min(max);
                let last = ended && bytes == text.len();
                if bytes == 0 && !last {
                    return None;
                }
                Piece {
                    content: cut(text, bytes),
                    last,
                    trailers: None,
                }
            }
            Self::Chunked { chunks, tail } => take_chunked(chunks, tail, text, max)?,
        };
        if piece.last {
            *self = Self::Done;
        }
        Some(piece)
    }
}

fn cut(text: &mut Vec<u8>, bytes: usize) -> Bytes {
    if bytes == text.len() {
        return Bytes::from(std::mem::take(text));
    }
    let content = Bytes::copy_from_slice(&text[..bytes]);
    text.drain(..bytes);
    content
}

/// Takes the content in the first `max` bytes of chunked text. Returns `None` if they contain no content.
fn take_chunked(
    chunks: &mut ChunkedParser,
    tail: &mut Vec<u8>,
    text: &mut Vec<u8>,
    max: usize,
) -> Option<Piece> {
    let part = text.len().min(max);
    let mut content = Vec::with_capacity(part);
    let mut content_end = 0;
    let begin = text.as_ptr() as usize;
    let used_len = chunks
        .scan(&text[..part], &mut |data| {
            content.extend_from_slice(data);
            content_end = data.as_ptr() as usize - begin + data.len();
        })
        .ok()?;
    if used_len == 0 {
        return None;
    }
    if content_end > 0 {
        tail.clear();
    }
    tail.extend_from_slice(&text[content_end..used_len]);
    text.drain(..used_len);
    let last = chunks.is_done();
    if content.is_empty() && !last {
        return None;
    }
    Some(Piece {
        content: content.into(),
        last,
        trailers: if last { parse_trailers(tail) } else { None },
    })
}

/// Parses the trailers after the line of the last chunk.
fn parse_trailers(tail: &[u8]) -> Option<HeaderMap> {
    let text = tail.strip_prefix(b"\r\n").unwrap_or(tail);
    let mut map = HeaderMap::new();
    for line in text.split(|byte| *byte == b'\n').skip(1) {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let Some(colon) = line.iter().position(|byte| *byte == b':') else {
            continue;
        };
        let name = HeaderName::from_bytes(&line[..colon]);
        let value = HeaderValue::from_bytes(line[colon + 1..].trim_ascii());
        if let (Ok(name), Ok(value)) = (name, value) {
            map.append(name, value);
        }
    }
    (!map.is_empty()).then_some(map)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn request_is_written_as_http_1_1() {
        let request = http::Request::builder()
            .method("POST")
            .uri("https://a.example/x?y")
            .header("host", "other")
            .header("cookie", "a=1")
            .header("x", "1")
            .header("cookie", "b=2")
            .body(())
            .unwrap();
        let (parts, ()) = request.into_parts();
        let mut out = Vec::new();
        assert_eq!(write_request(&parts, false, &mut out), Coding::Chunked);
        assert_eq!(
            String::from_utf8(out).unwrap(),
            "POST /x?y HTTP/1.1\r\nhost: a.example\r\nx: 1\r\ncookie: a=1; b=2\r\ntransfer-encoding: chunked\r\n\r\n"
        );
    }

    proptest! {
        /// Content and trailers that were encoded as chunks are decoded correctly, for any segmentation of the input
        /// and any requested length.
        #[test]
        fn encoded_chunks_decode_to_same_content(
            parts in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..40), 0..6),
            trailer: bool,
            step in 1usize..30,
            max in 1usize..50,
        ) {
            let mut text = Vec::new();
            for part in &parts {
                write_content(Coding::Chunked, part, &mut text);
            }
            let mut map = HeaderMap::new();
            map.insert("grpc-status", HeaderValue::from_static("0"));
            write_end(Coding::Chunked, trailer.then_some(&map), &mut text);
            let mut content = Content::new(Framing::Chunked);
            let (mut received, mut last) = (Vec::new(), None);
            let mut buffer = Vec::new();
            for piece in text.chunks(step) {
                buffer.extend_from_slice(piece);
                loop {
                    let before = buffer.len();
                    let Some(piece) = content.take(&mut buffer, max, false) else {
                        if buffer.len() == before { break }
                        continue;
                    };
                    received.extend_from_slice(&piece.content);
                    if piece.last {
                        prop_assert!(last.is_none());
                        last = Some(piece.trailers);
                    }
                }
            }
            prop_assert_eq!(received, parts.concat());
            prop_assert_eq!(last, Some(trailer.then_some(map)));
            prop_assert!(buffer.is_empty() && content.is_done());
        }
    }
}
