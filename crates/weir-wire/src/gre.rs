//! Parses and builds GRE packets (RFC 2784) with the optional checksum.
//!
//! Packets with keys or sequence numbers (RFC 2890) or routing (RFC 1701) are rejected.

use crate::bytes::{put, require, tail, u16_at};
use crate::checksum::Sum;
use crate::error::{Layer, ParseError};
use crate::protocol::EtherType;

const CHECKSUM_PRESENT: u16 = 0x8000;
const VERSION_MASK: u16 = 0x0007;

/// A GRE packet with a complete header.
#[derive(Debug, Clone, Copy)]
pub struct GreView<'a> {
    bytes: &'a [u8],
}

impl<'a> GreView<'a> {
    /// Offset of the checksum, if present.
    pub const CHECKSUM_OFFSET: usize = 4;

    /// Checks flags, version and length. Bits 6 to 12 are ignored.
    ///
    /// # Errors
    /// [`ParseError::TooShort`], [`ParseError::BadVersion`], [`ParseError::UnsupportedFlags`].
    pub fn new(bytes: &'a [u8]) -> Result<Self, ParseError> {
        require(Layer::Gre, bytes, 4)?;
        let flags = u16_at(bytes, 0);
        if flags & VERSION_MASK != 0 {
            let [_, version] = (flags & VERSION_MASK).to_be_bytes();
            return Err(ParseError::BadVersion {
                layer: Layer::Gre,
                version,
            });
        }
        // Bits 1 to 5: routing, key, sequence number, strict source route, and the first bit of recursion control (RFC
        // 1701). A receiver that does not implement RFC 1701 must discard the packet (RFC 2784 section 2.3).
        if flags & 0x7c00 != 0 {
            return Err(ParseError::UnsupportedFlags {
                layer: Layer::Gre,
                flags: flags.into(),
            });
        }
        let view = Self { bytes };
        require(Layer::Gre, bytes, view.header().header_len())?;
        Ok(view)
    }

    /// Returns whether the checksum is valid; `None` if there is no checksum.
    #[must_use]
    pub fn is_checksum_valid(&self) -> Option<bool> {
        self.header()
            .checksum
            .then(|| Sum::new().bytes(self.bytes).is_valid())
    }

    /// Returns the inner packet.
    #[must_use]
    pub fn payload(&self) -> &'a [u8] {
        tail(self.bytes, self.header().header_len())
    }

    /// Returns the header as a value.
    #[must_use]
    pub fn header(&self) -> GreHeader {
        GreHeader {
            protocol: EtherType(u16_at(self.bytes, 2)),
            checksum: u16_at(self.bytes, 0) & CHECKSUM_PRESENT != 0,
        }
    }
}

/// The GRE header fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct GreHeader {
    /// Type of the inner packet.
    pub protocol: EtherType,
    /// Whether there is a checksum, which covers header and payload.
    pub checksum: bool,
}

impl GreHeader {
    /// Returns the length of the header in bytes: 4, or 8 with the checksum.
    #[must_use]
    pub const fn header_len(self) -> usize {
        if self.checksum { 8 } else { 4 }
    }

    /// Appends header and payload.
    pub fn emit(self, payload: &[u8], out: &mut Vec<u8>) {
        let start = out.len();
        let flags = if self.checksum { CHECKSUM_PRESENT } else { 0 };
        out.extend(flags.to_be_bytes());
        out.extend(self.protocol.0.to_be_bytes());
        if self.checksum {
            out.extend([0; 4]);
        }
        out.extend(payload);
        if self.checksum {
            let packet = out.get_mut(start..).unwrap_or_default();
            let checksum = Sum::new().bytes(packet).checksum();
            put(packet, GreView::CHECKSUM_OFFSET, &checksum.to_be_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn emit_to_vec(checksum: bool) -> Vec<u8> {
        let mut bytes = Vec::new();
        GreHeader {
            protocol: EtherType::IPV6,
            checksum,
        }
        .emit(b"inner", &mut bytes);
        bytes
    }

    #[test]
    fn packets_round_trip_with_and_without_checksum() {
        for (checksum, len, valid) in [(false, 4, None), (true, 8, Some(true))] {
            let bytes = emit_to_vec(checksum);
            let view = GreView::new(&bytes).unwrap();
            assert_eq!(
                view.header(),
                GreHeader {
                    protocol: EtherType::IPV6,
                    checksum
                }
            );
            assert_eq!(view.header().header_len(), len);
            assert_eq!(view.payload(), b"inner");
            assert_eq!(view.is_checksum_valid(), valid);
        }
        let mut bytes = emit_to_vec(true);
        bytes[10] ^= 4;
        assert_eq!(
            GreView::new(&bytes).unwrap().is_checksum_valid(),
            Some(false)
        );
    }

    #[test]
    fn key_sequence_number_and_version_1_are_rejected() {
        for (offset, bit, error) in [
            (
                0,
                0x20,
                ParseError::UnsupportedFlags {
                    layer: Layer::Gre,
                    flags: 0x2000,
                },
            ),
            (
                0,
                0x10,
                ParseError::UnsupportedFlags {
                    layer: Layer::Gre,
                    flags: 0x1000,
                },
            ),
            (
                0,
                0x04,
                ParseError::UnsupportedFlags {
                    layer: Layer::Gre,
                    flags: 0x0400,
                },
            ),
            (
                1,
                0x01,
                ParseError::BadVersion {
                    layer: Layer::Gre,
                    version: 1,
                },
            ),
        ] {
            let mut bytes = emit_to_vec(false);
            bytes[offset] |= bit;
            assert_eq!(GreView::new(&bytes).err(), Some(error));
        }
    }

    #[test]
    fn truncated_checksum_is_rejected() {
        let error = ParseError::TooShort {
            layer: Layer::Gre,
            needed: 8,
            available: 6,
        };
        assert_eq!(GreView::new(&emit_to_vec(true)[..6]).err(), Some(error));
    }
}
