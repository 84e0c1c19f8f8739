//! Reads fixed-width values in network order without panics.
//!
//! Views check a length once and then read fields. Reads past the end return zero, so a wrong offset in a view causes a
//! wrong value in a test, not a panic.

use crate::error::{Layer, ParseError};

/// Reads `N` bytes at `offset`. If any of them is past the end, all are zero.
pub(crate) fn array_at<const N: usize>(bytes: &[u8], offset: usize) -> [u8; N] {
    bytes
        .get(offset..)
        .and_then(|rest| rest.first_chunk::<N>())
        .copied()
        .unwrap_or([0; N])
}

/// Reads one byte.
pub(crate) fn u8_at(bytes: &[u8], offset: usize) -> u8 {
    bytes.get(offset).copied().unwrap_or(0)
}

/// Reads two bytes in network order.
pub(crate) fn u16_at(bytes: &[u8], offset: usize) -> u16 {
    u16::from_be_bytes(array_at(bytes, offset))
}

/// Reads four bytes in network order.
pub(crate) fn u32_at(bytes: &[u8], offset: usize) -> u32 {
    u32::from_be_bytes(array_at(bytes, offset))
}

/// Returns the bytes from `offset` to the end; empty if `offset` is past the end.
pub(crate) fn tail(bytes: &[u8], offset: usize) -> &[u8] {
    bytes.get(offset..).unwrap_or_default()
}

/// Returns [`ParseError::TooShort`] if there are fewer than `needed` bytes.
pub(crate) fn require(layer: Layer, bytes: &[u8], needed: usize) -> Result<(), ParseError> {
    if bytes.len() < needed {
        return Err(ParseError::TooShort {
            layer,
            needed,
            available: bytes.len(),
        });
    }
    Ok(())
}

/// Overwrites `value.len()` bytes at `offset`. Does nothing if any of them is past the end.
pub(crate) fn put(bytes: &mut [u8], offset: usize, value: &[u8]) {
    if let Some(target) = offset
        .checked_add(value.len())
        .and_then(|end| bytes.get_mut(offset..end))
    {
        target.copy_from_slice(value);
    }
}
