//! Defines the options of an IPv4 or TCP header as opaque bytes.

use crate::error::ParseError;

/// Up to 40 bytes of options, always a multiple of four bytes.
///
/// IPv4 (RFC 791) and TCP (RFC 9293) headers both have 20 fixed bytes and a 4-bit length field in words, so both use
/// this type.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct HeaderOptions {
    bytes: [u8; Self::MAX_LEN],
    len: usize,
}

impl HeaderOptions {
    /// Maximum length in bytes, after the 20 fixed bytes of the header.
    pub const MAX_LEN: usize = 40;
    /// No options.
    pub const EMPTY: Self = Self {
        bytes: [0; Self::MAX_LEN],
        len: 0,
    };

    /// Pads the bytes to a multiple of four with End of Option List, which is zero in both protocols.
    ///
    /// # Errors
    /// [`ParseError::OptionsTooLong`] if there are more than [`Self::MAX_LEN`] bytes.
    pub fn new(options: &[u8]) -> Result<Self, ParseError> {
        let mut value = Self::EMPTY;
        let Some(target) = value.bytes.get_mut(..options.len()) else {
            return Err(ParseError::OptionsTooLong {
                bytes: options.len(),
                limit: Self::MAX_LEN,
            });
        };
        target.copy_from_slice(options);
        value.len = options.len().next_multiple_of(4);
        Ok(value)
    }

    /// Returns options with as many bytes of `options` as fit.
    pub(crate) fn truncated(options: &[u8]) -> Self {
        Self::new(options.get(..Self::MAX_LEN).unwrap_or(options)).unwrap_or(Self::EMPTY)
    }

    /// Returns the options, including padding.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or_default()
    }

    /// Returns the length in bytes, a multiple of four.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Returns whether there are no options.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }
}

impl Default for HeaderOptions {
    fn default() -> Self {
        Self::EMPTY
    }
}
