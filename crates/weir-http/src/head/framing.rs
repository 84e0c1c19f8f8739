//! Reads framing and connection options from a head.

use super::Framing;
use crate::byte_class::members;
use crate::field::{Field, Name};
use crate::parse_error::ParseError;

/// Options in `Connection` fields.
#[derive(Debug, Default)]
pub(super) struct ConnectionOptions {
    pub(super) close: bool,
    pub(super) keep_alive: bool,
    pub(super) upgrade: bool,
}

/// Parses the `Connection` fields and drops the fields that they name. Fields that carry the framing, the host or the
/// client's address are not dropped even if an option names them, because a client must not be able to remove these
/// fields.
pub(super) fn connection_options(head: &[u8], fields: &mut [Field]) -> ConnectionOptions {
    let mut options = ConnectionOptions::default();
    for index in 0..fields.len() {
        if fields[index].name != Name::Connection {
            continue;
        }
        for member in members(fields[index].clone().value_in(head)) {
            if member.eq_ignore_ascii_case(b"close") {
                options.close = true;
            } else if member.eq_ignore_ascii_case(b"keep-alive") {
                options.keep_alive = true;
            } else if member.eq_ignore_ascii_case(b"upgrade") {
                options.upgrade = true;
            } else {
                let is_named = |field: &&mut Field| {
                    field.name == Name::Other && field.name_in(head).eq_ignore_ascii_case(member)
                };
                for field in fields.iter_mut().filter(is_named) {
                    field.dropped = true;
                }
            }
        }
    }
    options
}

/// Returns the framing that `Content-Length` or `Transfer-Encoding` defines, or `None` if neither is present.
pub(super) fn framing(
    head: &[u8],
    fields: &[Field],
    http10: bool,
) -> Result<Option<Framing>, ParseError> {
    let mut result = None;
    for field in fields {
        let (framing, error) = match field.name {
            Name::ContentLength => (
                Framing::Length(parse_length(field.value_in(head))?),
                ParseError::ContentLength,
            ),
            Name::TransferEncoding => {
                if http10 || !field.value_in(head).eq_ignore_ascii_case(b"chunked") {
                    return Err(ParseError::TransferEncoding);
                }
                (Framing::Chunked, ParseError::TransferEncoding)
            }
            _ => continue,
        };
        match result.replace(framing) {
            None => {}
            Some(Framing::Chunked) => return Err(ParseError::TransferEncoding),
            Some(_) => return Err(error),
        }
    }
    Ok(result)
}

fn parse_length(value: &[u8]) -> Result<u64, ParseError> {
    const MAX_DIGITS: usize = 18;
    let is_valid =
        !value.is_empty() && value.len() <= MAX_DIGITS && value.iter().all(u8::is_ascii_digit);
    if !is_valid {
        return Err(ParseError::ContentLength);
    }
    Ok(value
        .iter()
        .fold(0, |sum, digit| sum * 10 + u64::from(digit - b'0')))
}
