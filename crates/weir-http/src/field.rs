//! Parses field lines as ranges of a head, and recognizes the field names that a proxy interprets.

use std::ops::Range;

use memchr::memchr;
use weir_model::{ClientFields, FieldRule};

use crate::byte_class::{contains_underscore, is_value, trim};
use crate::parse_error::ParseError;

/// Field names that a proxy handles specially.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Name {
    /// `Host`.
    Host,
    /// `Connection`.
    Connection,
    /// `Content-Length`.
    ContentLength,
    /// `Transfer-Encoding`.
    TransferEncoding,
    /// `Keep-Alive`, `Proxy-Connection`, `TE`, `HTTP2-Settings`: hop-by-hop fields that are not interpreted.
    HopByHop,
    /// `Upgrade`.
    Upgrade,
    /// `Expect`.
    Expect,
    /// `X-Forwarded-For`.
    ForwardedFor,
    /// `Forwarded`, `X-Real-IP`, and every `X-Forwarded-…` except `-For`: accepted only from a trusted proxy.
    Forwarded,
    /// Any other field name.
    Other,
}

impl Name {
    pub(crate) fn from_bytes(name: &[u8]) -> Self {
        let is_name = |expected: &[u8]| name.eq_ignore_ascii_case(expected);
        let kind = match name.len() {
            2 if is_name(b"te") => Self::HopByHop,
            4 if is_name(b"host") => Self::Host,
            6 if is_name(b"expect") => Self::Expect,
            7 if is_name(b"upgrade") => Self::Upgrade,
            9 if is_name(b"forwarded") || is_name(b"x-real-ip") => Self::Forwarded,
            10 if is_name(b"connection") => Self::Connection,
            10 if is_name(b"keep-alive") => Self::HopByHop,
            14 if is_name(b"content-length") => Self::ContentLength,
            14 if is_name(b"http2-settings") => Self::HopByHop,
            15 if is_name(b"x-forwarded-for") => Self::ForwardedFor,
            16 if is_name(b"proxy-connection") => Self::HopByHop,
            17 if is_name(b"transfer-encoding") => Self::TransferEncoding,
            _ => Self::Other,
        };
        let prefix = name.get(..12);
        match kind {
            Self::Other if prefix.is_some_and(|p| p.eq_ignore_ascii_case(b"x-forwarded-")) => {
                Self::Forwarded
            }
            kind => kind,
        }
    }
}

/// A field line in a head.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Field {
    /// The field's name.
    pub name: Name,
    /// Offset of the field's line in the head.
    start: u32,
    name_end: u32,
    value: (u32, u32),
    /// Offset after the line's CRLF.
    end: u32,
    /// Whether the field is not forwarded.
    pub dropped: bool,
    /// Whether keys and conditions ignore the field, because it describes the client and its sender is not allowed to
    /// set it.
    pub(crate) untrusted: bool,
    /// Whether the name contains a `_`, which many servers treat like `-`.
    pub(crate) underscore: bool,
}

const fn to_usize(offset: u32) -> usize {
    offset as usize
}

impl Field {
    /// Returns the range of the line, including its CRLF.
    pub const fn line(&self) -> Range<usize> {
        to_usize(self.start)..to_usize(self.end)
    }

    /// Returns the name as the sender wrote it.
    pub fn name_in<'a>(&self, head: &'a [u8]) -> &'a [u8] {
        &head[to_usize(self.start)..to_usize(self.name_end)]
    }

    /// Returns the value without leading and trailing whitespace.
    pub fn value_in<'a>(&self, head: &'a [u8]) -> &'a [u8] {
        &head[to_usize(self.value.0)..to_usize(self.value.1)]
    }

    /// Returns the value in `head` if the field has this name, and its sender may set it.
    pub fn trusted_value<'a>(&self, name: &[u8], head: &'a [u8]) -> Option<&'a [u8]> {
        let is_match = !self.untrusted && self.name_in(head).eq_ignore_ascii_case(name);
        is_match.then(|| self.value_in(head))
    }

    /// Returns whether this is a framing field with unusual whitespace around its value, which some parsers treat as
    /// part of the value.
    pub(crate) fn is_unusual_framing(&self) -> bool {
        matches!(self.name, Name::ContentLength | Name::TransferEncoding)
            && (self.value.0 != self.name_end + 2 || self.end != self.value.1 + 2)
    }

    /// Parses the line at `range` of `head`, which ends with CRLF.
    fn parse(head: &[u8], range: Range<usize>) -> Result<Self, ParseError> {
        let text = &head[range.start..range.end - 2];
        if matches!(text.first(), Some(b' ' | b'\t')) {
            return Err(ParseError::Folded);
        }
        let colon = memchr(b':', text).ok_or(ParseError::Field)?;
        let (name, rest) = (&text[..colon], &text[colon + 1..]);
        let underscore = contains_underscore(name).ok_or(ParseError::Field)?;
        if !is_value(rest) {
            return Err(ParseError::Field);
        }
        let value = trim(rest);
        let blanks = rest
            .iter()
            .take_while(|byte| matches!(byte, b' ' | b'\t'))
            .count();
        let value_start = range.start + colon + 1 + blanks.min(rest.len());
        let narrow = |offset: usize| u32::try_from(offset).map_err(|_| ParseError::HeadTooLarge);
        Ok(Self {
            name: Name::from_bytes(name),
            start: narrow(range.start)?,
            name_end: narrow(range.start + colon)?,
            value: (narrow(value_start)?, narrow(value_start + value.len())?),
            end: narrow(range.end)?,
            dropped: false,
            untrusted: false,
            underscore,
        })
    }
}

/// Marks the fields about the client (`X-Forwarded-…`, `X-Real-IP`, `Forwarded`) whose received values are not
/// forwarded, so keys and conditions ignore them. These are fields with a rule that removes or replaces them, and
/// fields without a rule if `removes_others` is set.
pub fn mark_untrusted(
    head: &[u8],
    fields: &mut [Field],
    rules: Option<&ClientFields>,
    removes_others: bool,
) {
    for field in fields {
        if !matches!(field.name, Name::ForwardedFor | Name::Forwarded) {
            continue;
        }
        let rule = rules.and_then(|rules| rules.rule_of(field.name_in(head)));
        field.untrusted = match rule {
            Some(FieldRule::Keep | FieldRule::Append) => false,
            Some(FieldRule::Set | FieldRule::Drop) => true,
            None => removes_others,
        };
    }
}

/// Returns the offset after the CRLF of the line that begins at `start`, or `None` while the line is incomplete.
pub(crate) fn line_end(input: &[u8], start: usize) -> Result<Option<usize>, ParseError> {
    match memchr(b'\n', &input[start..]) {
        None => Ok(None),
        Some(offset) if offset > 0 && input[start + offset - 1] == b'\r' => {
            Ok(Some(start + offset + 1))
        }
        Some(_) => Err(ParseError::LineEnd),
    }
}

/// Parses field lines from `start` to the empty line. Returns the end of the head, or `None` while it is incomplete.
pub(crate) fn parse_fields(
    input: &[u8],
    start: usize,
    max_fields: usize,
    out: &mut Vec<Field>,
) -> Result<Option<usize>, ParseError> {
    out.clear();
    let mut offset = start;
    loop {
        let Some(end) = line_end(input, offset)? else {
            return Ok(None);
        };
        if end - offset == 2 {
            return Ok(Some(end));
        }
        if out.len() == max_fields {
            return Err(ParseError::TooManyFields);
        }
        out.push(Field::parse(input, offset..end)?);
        offset = end;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_recognized_in_any_case() {
        for (name, other, expected) in [
            ("TE", "DN", Name::HopByHop),
            ("Host", "Date", Name::Host),
            ("Expect", "Cookie", Name::Expect),
            ("Upgrade", "Referer", Name::Upgrade),
            ("Forwarded", "X-Request", Name::Forwarded),
            ("X-Real-IP", "X-Real-Id", Name::Forwarded),
            ("Connection", "User-Agent", Name::Connection),
            ("Keep-Alive", "Set-Cookie", Name::HopByHop),
            ("Content-Length", "Accept-Charset", Name::ContentLength),
            ("HTTP2-Settings", "X-Request-Path", Name::HopByHop),
            ("X-Forwarded-For", "Accept-Language", Name::ForwardedFor),
            ("Proxy-Connection", "WWW-Authenticate", Name::HopByHop),
            (
                "Transfer-Encoding",
                "If-Modified-Since",
                Name::TransferEncoding,
            ),
            ("X-Forwarded-Port", "X-Forward-Header", Name::Forwarded),
        ] {
            assert_eq!(name.len(), other.len());
            for spelling in [name.to_ascii_lowercase(), name.to_ascii_uppercase()] {
                assert_eq!(Name::from_bytes(spelling.as_bytes()), expected, "{name}");
            }
            assert_eq!(Name::from_bytes(other.as_bytes()), Name::Other, "{other}");
        }
    }
}
