//! What a head says of its message's end and of its connection's.

use super::Framing;
use crate::field::{Field, Name};
use crate::octet::members;
use crate::refusal::Refusal;

/// What `Connection` fields say.
#[derive(Debug, Default)]
pub(super) struct Wishes {
    pub(super) close: bool,
    pub(super) keep_alive: bool,
    pub(super) upgrade: bool,
}

/// Reads the `Connection` fields, and marks what they keep to this hop. What carries framing, host or the client's address
/// stays, whatever they say: a client must not be able to take it out.
pub(super) fn wishes(head: &[u8], fields: &mut [Field]) -> Wishes {
    let mut wishes = Wishes::default();
    for at in 0..fields.len() {
        if fields[at].name != Name::Connection {
            continue;
        }
        for member in members(fields[at].clone().value_in(head)) {
            if member.eq_ignore_ascii_case(b"close") {
                wishes.close = true;
            } else if member.eq_ignore_ascii_case(b"keep-alive") {
                wishes.keep_alive = true;
            } else if member.eq_ignore_ascii_case(b"upgrade") {
                wishes.upgrade = true;
            } else {
                let nominated = |field: &&mut Field| {
                    field.name == Name::Other && field.name_in(head).eq_ignore_ascii_case(member)
                };
                for field in fields.iter_mut().filter(nominated) {
                    field.dropped = true;
                }
            }
        }
    }
    wishes
}

/// What `Content-Length` and `Transfer-Encoding` say; `None` where neither is there.
pub(super) fn framing(
    head: &[u8],
    fields: &[Field],
    http10: bool,
) -> Result<Option<Framing>, Refusal> {
    let mut found = None;
    for field in fields {
        let (framing, refusal) = match field.name {
            Name::ContentLength => (
                Framing::Length(length(field.value_in(head))?),
                Refusal::ContentLength,
            ),
            Name::TransferEncoding => {
                if http10 || !field.value_in(head).eq_ignore_ascii_case(b"chunked") {
                    return Err(Refusal::TransferEncoding);
                }
                (Framing::Chunked, Refusal::TransferEncoding)
            }
            _ => continue,
        };
        match found.replace(framing) {
            None => {}
            Some(Framing::Chunked) => return Err(Refusal::TransferEncoding),
            Some(_) => return Err(refusal),
        }
    }
    Ok(found)
}

fn length(value: &[u8]) -> Result<u64, Refusal> {
    const DIGITS_MAX: usize = 18;
    let digits =
        !value.is_empty() && value.len() <= DIGITS_MAX && value.iter().all(u8::is_ascii_digit);
    if !digits {
        return Err(Refusal::ContentLength);
    }
    Ok(value
        .iter()
        .fold(0, |sum, digit| sum * 10 + u64::from(digit - b'0')))
}
