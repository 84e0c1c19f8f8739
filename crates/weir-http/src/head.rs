//! Parses request and response heads strictly. Names and values are represented as ranges of the input.
//!
//! Every message that two parsers could interpret differently is rejected (RFC 9112 section 11.2): both framings at
//! once, a repeated length, a coding other than `chunked`, whitespace before a colon, folded lines, bare CR or LF.
//! Lenient parsing would make the servers vulnerable to request smuggling.

mod framing;
mod line;

use std::ops::Range;

use weir_model::{Proxy, Underscores};

use self::framing::{connection_options, framing};
use self::line::{empty_lines, parse_request_line, parse_status_line};
use crate::byte_class::{is_authority, members};
use crate::field::{Field, Name, line_end, parse_fields};
use crate::parse_error::ParseError;

/// Limits and options for parsing a head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HeadLimits {
    /// Maximum length of the head, in bytes.
    pub head: usize,
    /// Maximum length of the target, in bytes.
    pub target: usize,
    /// Maximum number of field lines.
    pub fields: usize,
    /// Whether CONNECT is accepted.
    pub connect: bool,
    /// Policy for a request's fields with `_` in their names; in responses, such fields are kept.
    pub underscores: Underscores,
}

impl Default for HeadLimits {
    fn default() -> Self {
        Self {
            head: 16 << 10,
            target: 8 << 10,
            fields: 100,
            connect: false,
            underscores: Underscores::default(),
        }
    }
}

/// A proxy service's limits; a target may take up half of the head.
impl From<&Proxy> for HeadLimits {
    fn from(proxy: &Proxy) -> Self {
        let head = proxy.limits.head as usize;
        Self {
            head,
            target: head / 2,
            fields: proxy.limits.fields as usize,
            connect: proxy.connect,
            underscores: proxy.underscores,
        }
    }
}

/// How the end of a body is determined.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Framing {
    /// The message has no body.
    None,
    /// The body has this many bytes.
    Length(u64),
    /// The body ends after the last chunk.
    Chunked,
    /// The body of a response ends when the server closes the connection.
    UntilClose,
}

/// Methods that a proxy handles specially.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Method {
    /// `GET`.
    Get,
    /// `HEAD`: the response has no body.
    Head,
    /// `POST`.
    Post,
    /// `PUT`.
    Put,
    /// `DELETE`.
    Delete,
    /// `OPTIONS`.
    Options,
    /// `TRACE`.
    Trace,
    /// `CONNECT`.
    Connect,
    /// Any other method.
    Other,
}

impl Method {
    fn from_bytes(text: &[u8]) -> Self {
        match text {
            b"GET" => Self::Get,
            b"HEAD" => Self::Head,
            b"POST" => Self::Post,
            b"PUT" => Self::Put,
            b"DELETE" => Self::Delete,
            b"OPTIONS" => Self::Options,
            b"TRACE" => Self::Trace,
            b"CONNECT" => Self::Connect,
            _ => Self::Other,
        }
    }

    /// Returns whether the method is idempotent (RFC 9110 section 9.2.2).
    pub const fn is_idempotent(self) -> bool {
        !matches!(self, Self::Post | Self::Connect | Self::Other)
    }
}

/// A request head. Offsets refer to the input that it was parsed from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// Length in bytes up to the body, including empty lines before the request line.
    pub len: usize,
    /// The method.
    pub method: Method,
    method_text: (usize, usize),
    target: (usize, usize),
    authority: Option<(usize, usize)>,
    path: (usize, usize),
    /// Whether the version is HTTP/1.0, not HTTP/1.1.
    pub http10: bool,
    /// How the end of the body is determined.
    pub framing: Framing,
    /// Whether the client requests a persistent connection.
    pub keep_alive: bool,
    /// Whether the client waits for status 100 before it sends the body.
    pub expects_continue: bool,
    /// Whether the client requests a protocol upgrade that can be forwarded: in HTTP/1.1, without a body, and not to
    /// HTTP/2.
    pub upgrade: bool,
    /// Number of fields that were removed because of a `_` in their names.
    pub removed_underscores: u16,
}

impl Request {
    /// Returns the method as the client wrote it.
    pub fn method_in<'a>(&self, head: &'a [u8]) -> &'a [u8] {
        &head[self.method_text.0..self.method_text.1]
    }

    /// Returns the target as the client wrote it.
    pub fn target_in<'a>(&self, head: &'a [u8]) -> &'a [u8] {
        &head[self.target.0..self.target.1]
    }

    /// Returns the path and query; `*` for `OPTIONS *`; empty for CONNECT, or if an absolute target has neither.
    pub fn path_in<'a>(&self, head: &'a [u8]) -> &'a [u8] {
        &head[self.path.0..self.path.1]
    }

    /// Returns the requested host with its port: the target's authority if present, otherwise the value of `Host`.
    pub fn host_in<'a>(&self, head: &'a [u8], fields: &[Field]) -> Option<&'a [u8]> {
        if let Some((start, end)) = self.authority {
            return Some(&head[start..end]);
        }
        let host = fields.iter().find(|field| field.name == Name::Host);
        host.map(|field| field.value_in(head))
    }

    /// Returns whether the target contains the host.
    pub const fn has_authority(&self) -> bool {
        self.authority.is_some()
    }
}

/// A response head.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Response {
    /// Length in bytes up to the body.
    pub len: usize,
    /// Status code, 100 to 999.
    pub status: u16,
    /// Range from the status code to the end of the status line, including its CRLF.
    pub(crate) status_text: (usize, usize),
    /// How the end of the body is determined.
    pub framing: Framing,
    /// Whether the server allows a persistent connection.
    pub keep_alive: bool,
}

/// Parses a request head. Returns `None` while the head is incomplete.
///
/// # Errors
/// Fails if the request is malformed, ambiguous, or exceeds the limits.
pub fn parse_request(
    input: &[u8],
    limits: &HeadLimits,
    fields: &mut Vec<Field>,
) -> Result<Option<Request>, ParseError> {
    let start = empty_lines(input);
    let check_length = |len: usize| {
        if len > limits.head {
            Err(ParseError::HeadTooLarge)
        } else {
            Ok(())
        }
    };
    let Some(line) = line_end(input, start)? else {
        return check_length(input.len()).map(|()| None);
    };
    let mut request = parse_request_line(&input[..line - 2], start, limits)?;
    let Some(end) = parse_fields(input, line, limits.fields, fields)? else {
        return check_length(input.len()).map(|()| None);
    };
    check_length(end)?;
    request.len = end;
    interpret_request(input, &mut request, limits.underscores, fields)?;
    Ok(Some(request))
}

fn interpret_request(
    head: &[u8],
    request: &mut Request,
    rule: Underscores,
    fields: &mut Vec<Field>,
) -> Result<(), ParseError> {
    let mut hosts = 0;
    let mut underscores = 0;
    let mut upgrade_to = None;
    let mut expectation = None;
    for field in fields.iter_mut() {
        underscores += u16::from(field.underscore);
        match field.name {
            Name::Host => {
                hosts += 1;
                // `Host` is empty if the target has no authority (RFC 9112 section 3.2).
                let host = field.value_in(head);
                if hosts > 1 || !(host.is_empty() || is_authority(host)) {
                    return Err(ParseError::Host);
                }
                // The target's authority replaces `Host`.
                field.dropped = request.authority.is_some();
            }
            Name::Upgrade => {
                if upgrade_to.replace(field.value_in(head)).is_some() {
                    return Err(ParseError::Repeated);
                }
                field.dropped = true;
            }
            Name::Expect if expectation.replace(field.value_in(head)).is_some() => {
                return Err(ParseError::Repeated);
            }
            Name::HopByHop | Name::Connection => field.dropped = true,
            _ => {}
        }
    }
    if hosts == 0 && !request.http10 {
        return Err(ParseError::Host);
    }
    if underscores > 0 && rule != Underscores::Keep {
        if rule == Underscores::Reject {
            return Err(ParseError::Underscore);
        }
        // Remove these fields for both routes and servers: a server that treats `_` as `-` (CGI, WSGI) would mistake
        // `X_Forwarded_For` for the field that Weir writes.
        fields.retain(|field| !field.underscore);
        request.removed_underscores = underscores;
    }
    let options = connection_options(head, fields);
    request.framing = framing(head, fields, request.http10)?.unwrap_or(Framing::None);
    if request.method == Method::Connect && request.framing != Framing::None {
        // Bytes after such a request belong to the tunnel.
        return Err(ParseError::Method);
    }
    request.keep_alive = !options.close && (!request.http10 || options.keep_alive);
    match expectation {
        None => {}
        Some(value) if value.eq_ignore_ascii_case(b"100-continue") => {
            request.expects_continue = !request.http10 && request.framing != Framing::None;
        }
        Some(_) => return Err(ParseError::Expectation),
    }
    let is_supported_upgrade = upgrade_to.is_some_and(|to| {
        !members(to).any(|member| {
            member
                .get(..2)
                .is_some_and(|prefix| prefix.eq_ignore_ascii_case(b"h2"))
        })
    });
    request.upgrade = options.upgrade
        && is_supported_upgrade
        && !request.http10
        && request.framing == Framing::None;
    for field in fields.iter_mut() {
        match field.name {
            Name::Upgrade => field.dropped = !request.upgrade,
            Name::Expect => field.dropped = !request.expects_continue,
            _ => {}
        }
    }
    Ok(())
}

/// Parses a response head. Returns `None` while the head is incomplete. `to_head` is true if the request's method was
/// HEAD.
///
/// # Errors
/// Fails if the response is malformed, ambiguous, or exceeds the limits.
pub fn parse_response(
    input: &[u8],
    to_head: bool,
    limits: &HeadLimits,
    fields: &mut Vec<Field>,
) -> Result<Option<Response>, ParseError> {
    let check_length = |len: usize| {
        if len > limits.head {
            Err(ParseError::HeadTooLarge)
        } else {
            Ok(())
        }
    };
    let Some(line) = line_end(input, 0)? else {
        return check_length(input.len()).map(|()| None);
    };
    let (http10, status) = parse_status_line(&input[..line - 2])?;
    let Some(end) = parse_fields(input, line, limits.fields, fields)? else {
        return check_length(input.len()).map(|()| None);
    };
    check_length(end)?;
    let options = connection_options(input, fields);
    let switches_protocol = status == 101;
    for field in fields.iter_mut() {
        match field.name {
            Name::Connection | Name::HopByHop => field.dropped = true,
            Name::Upgrade => field.dropped = !switches_protocol && status != 426,
            _ => {}
        }
    }
    let declared_framing = framing(input, fields, http10)?;
    let has_no_body = to_head || status < 200 || status == 204 || status == 304;
    let framing = if has_no_body {
        Framing::None
    } else {
        declared_framing.unwrap_or(Framing::UntilClose)
    };
    if status < 200 || status == 204 {
        // Such responses must not have these fields (Content-Length: RFC 9110 section 8.6; Transfer-Encoding: RFC 9112
        // section 6.1).
        drop_all(fields, &[Name::ContentLength, Name::TransferEncoding]);
    }
    Ok(Some(Response {
        len: end,
        status,
        status_text: (b"HTTP/1.1 ".len(), line),
        framing,
        keep_alive: !options.close
            && (!http10 || options.keep_alive)
            && framing != Framing::UntilClose,
    }))
}

fn drop_all(fields: &mut [Field], names: &[Name]) {
    for field in fields
        .iter_mut()
        .filter(|field| names.contains(&field.name))
    {
        field.dropped = true;
    }
}

/// Returns whether the first line of a rejected head looks like a request line except for the version: the client uses
/// a different protocol and would not understand an HTTP response.
pub fn is_other_protocol(input: &[u8]) -> bool {
    let end = memchr::memchr(b'\n', input).unwrap_or(input.len());
    let line = input[..end].trim_ascii_end();
    let mut words = line.split(|byte| *byte == b' ');
    let version = words.nth(2);
    version.is_some_and(|version| !version.starts_with(b"HTTP/")) && words.next().is_none()
}

/// Searches for the end of a head without parsing the head. The first `start` bytes have already been searched; at most
/// three of them are examined again. Returns the offset after the empty line, or `None` if the head is incomplete.
///
/// # Errors
/// Fails if a line ends with a bare LF.
pub fn head_end(input: &[u8], start: usize) -> Result<Option<usize>, ParseError> {
    let mut offset = start.saturating_sub(3);
    while let Some(found) = memchr::memchr(b'\n', &input[offset..]) {
        let newline = offset + found;
        if newline == 0 || input[newline - 1] != b'\r' {
            return Err(ParseError::LineEnd);
        }
        // Empty lines before the first line do not end the head.
        let first: Range<usize> = 0..newline.saturating_sub(1);
        let only_line_endings = input[first]
            .iter()
            .all(|byte| matches!(byte, b'\r' | b'\n'));
        if newline >= 3 && &input[newline - 3..newline] == b"\r\n\r" && !only_line_endings {
            return Ok(Some(newline + 1));
        }
        offset = newline + 1;
    }
    Ok(None)
}

#[cfg(test)]
mod tests;
