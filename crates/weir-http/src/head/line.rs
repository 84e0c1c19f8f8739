//! Parses request lines and status lines.

use super::{Framing, HeadLimits, Method, Request};
use crate::byte_class::{is_authority, is_target, is_token};
use crate::parse_error::ParseError;

/// Returns the length in bytes of up to two empty lines before a request line, which old clients send after a body (RFC
/// 9112 section 2.2).
pub(super) fn empty_lines(input: &[u8]) -> usize {
    /// Length of two empty lines.
    const MAX_BYTES: usize = 4;
    let mut offset = 0;
    while offset < MAX_BYTES && input[offset..].starts_with(b"\r\n") {
        offset += 2;
    }
    offset
}

/// Parses `METHOD TARGET HTTP/1.x`, which begins at `start`.
pub(super) fn parse_request_line(
    input: &[u8],
    start: usize,
    limits: &HeadLimits,
) -> Result<Request, ParseError> {
    let line = &input[start..];
    let method_len = memchr::memchr(b' ', line).ok_or(ParseError::RequestLine)?;
    let rest = &line[method_len + 1..];
    let target_len = memchr::memchr(b' ', rest).ok_or(ParseError::RequestLine)?;
    let (method_text, target) = (&line[..method_len], &rest[..target_len]);
    if !is_token(method_text) {
        return Err(ParseError::RequestLine);
    }
    if target.len() > limits.target {
        return Err(ParseError::TargetTooLong);
    }
    if !is_target(target) {
        return Err(ParseError::Target);
    }
    let http10 = parse_version(&rest[target_len + 1..], ParseError::RequestLine)?;
    let method = Method::from_bytes(method_text);
    let offset = start + method_len + 1;
    let mut request = Request {
        len: 0,
        method,
        method_text: (start, start + method_len),
        target: (offset, offset + target.len()),
        authority: None,
        path: (offset, offset + target.len()),
        http10,
        framing: Framing::None,
        keep_alive: false,
        expects_continue: false,
        upgrade: false,
        removed_underscores: 0,
    };
    match target {
        _ if method == Method::Connect => {
            if !limits.connect {
                return Err(ParseError::Method);
            }
            parse_connect_target(target, offset, &mut request)?;
        }
        [b'/', ..] => {}
        b"*" if method == Method::Options => {}
        _ => parse_absolute_target(target, offset, &mut request)?,
    }
    Ok(request)
}

/// Parses `host:port` (RFC 9112 section 3.2.3).
fn parse_connect_target(
    target: &[u8],
    offset: usize,
    request: &mut Request,
) -> Result<(), ParseError> {
    let colon = target.iter().rposition(|byte| *byte == b':');
    let has_port = colon.is_some_and(|colon| {
        let port = &target[colon + 1..];
        !port.is_empty() && port.iter().all(u8::is_ascii_digit)
    });
    if !has_port || !is_authority(target) {
        return Err(ParseError::Target);
    }
    request.authority = Some((offset, offset + target.len()));
    request.path = (offset + target.len(), offset + target.len());
    Ok(())
}

/// Parses `http[s]://host[:port][/path][?query]` (RFC 9112 section 3.2.2).
fn parse_absolute_target(
    target: &[u8],
    offset: usize,
    request: &mut Request,
) -> Result<(), ParseError> {
    let scheme = [b"http://".as_slice(), b"https://"]
        .into_iter()
        .find(|scheme| {
            target
                .get(..scheme.len())
                .is_some_and(|prefix| prefix.eq_ignore_ascii_case(scheme))
        })
        .ok_or(ParseError::Target)?;
    let rest = &target[scheme.len()..];
    let authority_len = rest
        .iter()
        .position(|byte| matches!(byte, b'/' | b'?'))
        .unwrap_or(rest.len());
    let authority = &rest[..authority_len];
    if !is_authority(authority) {
        return Err(ParseError::Target);
    }
    let host_start = offset + scheme.len();
    request.authority = Some((host_start, host_start + authority_len));
    request.path = (host_start + authority_len, offset + target.len());
    Ok(())
}

/// Returns true for HTTP/1.0, false for HTTP/1.1.
fn parse_version(text: &[u8], error: ParseError) -> Result<bool, ParseError> {
    match text {
        b"HTTP/1.1" => Ok(false),
        b"HTTP/1.0" => Ok(true),
        [b'H', b'T', b'T', b'P', b'/', major, b'.', minor]
            if major.is_ascii_digit() && minor.is_ascii_digit() =>
        {
            Err(ParseError::Version)
        }
        _ => Err(error),
    }
}

/// Parses `HTTP/1.x CODE [REASON]`. Returns whether the version is 1.0, and the code.
pub(super) fn parse_status_line(line: &[u8]) -> Result<(bool, u16), ParseError> {
    let (version_text, rest) = line.split_at_checked(8).ok_or(ParseError::StatusLine)?;
    let http10 = parse_version(version_text, ParseError::StatusLine)?;
    let [
        b' ',
        a @ b'1'..=b'9',
        b @ b'0'..=b'9',
        c @ b'0'..=b'9',
        reason @ ..,
    ] = rest
    else {
        return Err(ParseError::StatusLine);
    };
    let is_valid_reason =
        reason.is_empty() || (reason[0] == b' ' && crate::byte_class::is_value(reason));
    if !is_valid_reason {
        return Err(ParseError::StatusLine);
    }
    let digit = |byte: &u8| u16::from(byte - b'0');
    Ok((http10, digit(a) * 100 + digit(b) * 10 + digit(c)))
}
