//! Parses and builds GUE variant 0 (draft-ietf-intarea-gue) in UDP, in the layout of Linux (`include/net/gue.h`).
//!
//! One option is supported: remote checksum offload, with the private flags word. Control messages and other flags are
//! rejected, as in fou. Variant 1 is rejected too.

use crate::bytes::{put, require, tail, u8_at, u16_at, u32_at};
use crate::checksum::{Sum, checksum};
use crate::error::{Layer, LengthField, ParseError};
use crate::protocol::IpProtocol;

const FLAG_PRIVATE: u16 = 0x0001;
const PRIVATE_FLAG_REMOTE_CHECKSUM: u32 = 0x8000_0000;
const CONTROL: u8 = 0x20;

/// Remote checksum offload: the position at which the receiver completes the inner packet's checksum
/// (draft-herbert-remotecsumoff).
///
/// The sender writes the folded sum of the pseudo header, not complemented, to the field at `offset`. The receiver sums
/// from `start` to the end, and writes the complement to `offset`. Both offsets are in bytes from the end of the GUE
/// header.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct RemoteChecksum {
    /// Offset of the first summed byte: the start of the inner TCP or UDP header.
    pub start: u16,
    /// Offset of the checksum field.
    pub offset: u16,
}

impl RemoteChecksum {
    /// Writes the complete checksum to the inner packet, as the receiver does. Does nothing if the field is past the
    /// end.
    pub fn complete(self, inner: &mut [u8]) {
        let sum = checksum(tail(inner, self.start.into()));
        put(inner, self.offset.into(), &sum.to_be_bytes());
    }

    /// Replaces the checksum of a packet with the sum of the pseudo header, as the sender does.
    pub fn defer(self, inner: &mut [u8], pseudo_header: Sum) {
        put(
            inner,
            self.offset.into(),
            &pseudo_header.folded().to_be_bytes(),
        );
    }
}

/// A GUE packet with a complete header and complete options.
#[derive(Debug, Clone, Copy)]
pub struct GueView<'a> {
    bytes: &'a [u8],
}

impl<'a> GueView<'a> {
    /// Length of the header in bytes, without options.
    pub const MIN_HEADER_LEN: usize = 4;

    /// Checks variant, flags and lengths.
    ///
    /// # Errors
    /// [`ParseError::TooShort`], [`ParseError::BadVersion`], [`ParseError::UnsupportedType`] for a control message,
    /// [`ParseError::UnsupportedFlags`], [`ParseError::BadLength`] if the header is too short for its flags.
    pub fn new(bytes: &'a [u8]) -> Result<Self, ParseError> {
        require(Layer::Gue, bytes, Self::MIN_HEADER_LEN)?;
        let view = Self { bytes };
        let first = u8_at(bytes, 0);
        if first >> 6 != 0 {
            return Err(ParseError::BadVersion {
                layer: Layer::Gue,
                version: first >> 6,
            });
        }
        require(Layer::Gue, bytes, view.header_len())?;
        if first & CONTROL != 0 {
            return Err(ParseError::UnsupportedType {
                layer: Layer::Gue,
                value: u8_at(bytes, 1).into(),
            });
        }
        let (flags, private) = (view.flags(), view.private_flags());
        let unsupported = |flags| ParseError::UnsupportedFlags {
            layer: Layer::Gue,
            flags,
        };
        if flags & !FLAG_PRIVATE != 0 {
            return Err(unsupported(flags.into()));
        }
        let needed = match (flags, private) {
            (0, _) => 0,
            (_, 0) => 4,
            (_, PRIVATE_FLAG_REMOTE_CHECKSUM) => 8,
            (_, other) => return Err(unsupported(other)),
        };
        if view.header_len() < Self::MIN_HEADER_LEN + needed {
            return Err(ParseError::BadLength {
                layer: Layer::Gue,
                field: LengthField::HeaderLength,
                bytes: view.header_len(),
                min: Self::MIN_HEADER_LEN + needed,
                max: Self::MIN_HEADER_LEN + 31 * 4,
            });
        }
        Ok(view)
    }

    fn flags(&self) -> u16 {
        u16_at(self.bytes, 2)
    }

    /// Returns the private flags; zero if there are none, or if the header ends before them.
    fn private_flags(&self) -> u32 {
        if self.flags() & FLAG_PRIVATE == 0 || self.header_len() < 8 {
            0
        } else {
            u32_at(self.bytes, 4)
        }
    }

    /// Returns the length of the header in bytes, including options.
    #[must_use]
    pub fn header_len(&self) -> usize {
        Self::MIN_HEADER_LEN + usize::from(u8_at(self.bytes, 0) & 0x1f) * 4
    }

    /// Returns the inner packet.
    #[must_use]
    pub fn payload(&self) -> &'a [u8] {
        tail(self.bytes, self.header_len())
    }

    /// Returns the header as a value.
    #[must_use]
    pub fn header(&self) -> GueHeader {
        let remote = self.private_flags() == PRIVATE_FLAG_REMOTE_CHECKSUM;
        GueHeader {
            protocol: IpProtocol(u8_at(self.bytes, 1)),
            remote_checksum: remote.then(|| RemoteChecksum {
                start: u16_at(self.bytes, 8),
                offset: u16_at(self.bytes, 10),
            }),
        }
    }
}

/// The GUE header fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct GueHeader {
    /// Protocol of the inner packet.
    pub protocol: IpProtocol,
    /// Position of the checksum for remote checksum offload; `None` = not used.
    pub remote_checksum: Option<RemoteChecksum>,
}

impl GueHeader {
    /// Returns the length of the header in bytes: 4, or 12 with remote checksum offload.
    #[must_use]
    pub const fn header_len(self) -> usize {
        if self.remote_checksum.is_some() {
            12
        } else {
            GueView::MIN_HEADER_LEN
        }
    }

    /// Appends the header, without the inner packet.
    pub fn emit(self, out: &mut Vec<u8>) {
        let Some(remote) = self.remote_checksum else {
            out.extend([0, self.protocol.0, 0, 0]);
            return;
        };
        out.extend([2, self.protocol.0]);
        out.extend(FLAG_PRIVATE.to_be_bytes());
        out.extend(PRIVATE_FLAG_REMOTE_CHECKSUM.to_be_bytes());
        out.extend(remote.start.to_be_bytes());
        out.extend(remote.offset.to_be_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REMOTE: RemoteChecksum = RemoteChecksum {
        start: 20,
        offset: 36,
    };

    fn emit_to_vec(remote_checksum: Option<RemoteChecksum>) -> Vec<u8> {
        let mut bytes = Vec::new();
        GueHeader {
            protocol: IpProtocol::IPIP,
            remote_checksum,
        }
        .emit(&mut bytes);
        bytes.extend(b"inner");
        bytes
    }

    #[test]
    fn headers_round_trip() {
        for remote_checksum in [None, Some(REMOTE)] {
            let bytes = emit_to_vec(remote_checksum);
            let view = GueView::new(&bytes).unwrap();
            assert_eq!(
                view.header(),
                GueHeader {
                    protocol: IpProtocol::IPIP,
                    remote_checksum
                }
            );
            assert_eq!(view.header().header_len(), view.header_len());
            assert_eq!(view.payload(), b"inner");
        }
    }

    #[test]
    fn encoding_matches_fou() {
        assert_eq!(emit_to_vec(None)[..4], [0, 4, 0, 0]);
        assert_eq!(
            emit_to_vec(Some(REMOTE))[..12],
            [2, 4, 0, 1, 0x80, 0, 0, 0, 0, 20, 0, 36]
        );
    }

    #[test]
    fn unsupported_variants_flags_and_lengths_are_rejected() {
        let parse_error = |changes: &[(usize, u8)]| {
            let mut bytes = emit_to_vec(Some(REMOTE));
            for &(offset, value) in changes {
                bytes[offset] = value;
            }
            GueView::new(&bytes).err()
        };
        let flags = |flags| {
            Some(ParseError::UnsupportedFlags {
                layer: Layer::Gue,
                flags,
            })
        };
        let length = |bytes, min| {
            let field = LengthField::HeaderLength;
            Some(ParseError::BadLength {
                layer: Layer::Gue,
                field,
                bytes,
                min,
                max: 128,
            })
        };
        assert_eq!(parse_error(&[]), None);
        assert_eq!(
            parse_error(&[(0, 0x42)]),
            Some(ParseError::BadVersion {
                layer: Layer::Gue,
                version: 1
            })
        );
        assert_eq!(
            parse_error(&[(0, 0x22)]),
            Some(ParseError::UnsupportedType {
                layer: Layer::Gue,
                value: 4
            })
        );
        assert_eq!(parse_error(&[(3, 3)]), flags(3));
        assert_eq!(parse_error(&[(7, 1)]), flags(0x8000_0001));
        assert_eq!(parse_error(&[(0, 0)]), length(4, 8));
        assert_eq!(parse_error(&[(0, 1)]), length(8, 12));
        let short = ParseError::TooShort {
            layer: Layer::Gue,
            needed: 20,
            available: 17,
        };
        assert_eq!(parse_error(&[(0, 4)]), Some(short));
    }

    #[test]
    fn completing_a_deferred_checksum_restores_the_original() {
        let pseudo_header = Sum::new().word(0x1234).word(0xfedc);
        let mut segment = vec![7; 33];
        put(&mut segment, 16, &[0, 0]);
        let real = pseudo_header.bytes(&segment).checksum();
        put(&mut segment, 16, &real.to_be_bytes());
        let original = segment.clone();
        let remote = RemoteChecksum {
            start: 0,
            offset: 16,
        };
        remote.defer(&mut segment, pseudo_header);
        assert_ne!(segment, original);
        remote.complete(&mut segment);
        assert_eq!(segment, original);
    }
}
