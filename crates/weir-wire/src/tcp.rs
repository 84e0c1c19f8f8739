//! Parses and builds TCP headers (RFC 9293 section 3.1). Options are opaque bytes. TCP states are in `weir-flow`.

use crate::bytes::{put, require, tail, u8_at, u16_at, u32_at};
use crate::checksum::Sum;
use crate::error::{Layer, LengthField, ParseError};
use crate::options::HeaderOptions;
use crate::protocol::TcpFlags;

/// A TCP segment with a complete header.
#[derive(Debug, Clone, Copy)]
pub struct TcpView<'a> {
    bytes: &'a [u8],
    header_len: usize,
}

impl<'a> TcpView<'a> {
    /// Length of the header in bytes, without options.
    pub const MIN_HEADER_LEN: usize = 20;
    /// Offset of the checksum.
    pub const CHECKSUM_OFFSET: usize = 16;

    /// Checks the data offset.
    ///
    /// # Errors
    /// [`ParseError::TooShort`], [`ParseError::BadLength`].
    pub fn new(bytes: &'a [u8]) -> Result<Self, ParseError> {
        require(Layer::Tcp, bytes, Self::MIN_HEADER_LEN)?;
        let header_len = usize::from(u8_at(bytes, 12) >> 4) * 4;
        if header_len < Self::MIN_HEADER_LEN || header_len > bytes.len() {
            return Err(ParseError::BadLength {
                layer: Layer::Tcp,
                field: LengthField::DataOffset,
                bytes: header_len,
                min: Self::MIN_HEADER_LEN,
                max: bytes.len().min(60),
            });
        }
        Ok(Self { bytes, header_len })
    }

    /// Returns the source port.
    #[must_use]
    pub fn src_port(&self) -> u16 {
        u16_at(self.bytes, 0)
    }

    /// Returns the destination port.
    #[must_use]
    pub fn dst_port(&self) -> u16 {
        u16_at(self.bytes, 2)
    }

    /// Returns the checksum field.
    #[must_use]
    pub fn checksum(&self) -> u16 {
        u16_at(self.bytes, Self::CHECKSUM_OFFSET)
    }

    /// Returns whether the checksum is valid with this pseudo header.
    #[must_use]
    pub fn is_checksum_valid(&self, pseudo_header: Sum) -> bool {
        pseudo_header.bytes(self.bytes).is_valid()
    }

    /// Returns the length of the header in bytes, including options: 20 to 60.
    #[must_use]
    pub const fn header_len(&self) -> usize {
        self.header_len
    }

    /// Returns the data.
    #[must_use]
    pub fn payload(&self) -> &'a [u8] {
        tail(self.bytes, self.header_len)
    }

    /// Returns a copy of the header.
    #[must_use]
    pub fn header(&self) -> TcpHeader {
        let options = self
            .bytes
            .get(Self::MIN_HEADER_LEN..self.header_len)
            .unwrap_or_default();
        TcpHeader {
            src_port: self.src_port(),
            dst_port: self.dst_port(),
            seq: u32_at(self.bytes, 4),
            ack: u32_at(self.bytes, 8),
            flags: TcpFlags(u8_at(self.bytes, 13)),
            window: u16_at(self.bytes, 14),
            urgent: u16_at(self.bytes, 18),
            options: HeaderOptions::truncated(options),
        }
    }
}

/// The TCP header fields.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct TcpHeader {
    /// Source port.
    pub src_port: u16,
    /// Destination port.
    pub dst_port: u16,
    /// Sequence number.
    pub seq: u32,
    /// Acknowledgement number.
    pub ack: u32,
    /// Control bits.
    pub flags: TcpFlags,
    /// Window, unscaled.
    pub window: u16,
    /// Urgent pointer.
    pub urgent: u16,
    /// Options.
    pub options: HeaderOptions,
}

impl TcpHeader {
    /// Returns a header with a window of 65535; all other fields are zero.
    #[must_use]
    pub const fn new(src_port: u16, dst_port: u16) -> Self {
        Self {
            src_port,
            dst_port,
            seq: 0,
            ack: 0,
            flags: TcpFlags::NONE,
            window: u16::MAX,
            urgent: 0,
            options: HeaderOptions::EMPTY,
        }
    }

    /// Appends header and data. `pseudo_header` must have been computed with the length of the segment: 20 + options +
    /// data.
    pub fn emit(&self, payload: &[u8], pseudo_header: Sum, out: &mut Vec<u8>) {
        let start = out.len();
        let words = u8::try_from(self.header_len() / 4).unwrap_or(15);
        out.extend(self.src_port.to_be_bytes());
        out.extend(self.dst_port.to_be_bytes());
        out.extend(self.seq.to_be_bytes());
        out.extend(self.ack.to_be_bytes());
        out.extend([words << 4, self.flags.0]);
        out.extend(self.window.to_be_bytes());
        out.extend([0, 0]);
        out.extend(self.urgent.to_be_bytes());
        out.extend(self.options.as_bytes());
        out.extend(payload);
        let segment = out.get_mut(start..).unwrap_or_default();
        let checksum = pseudo_header.bytes(segment).checksum();
        put(segment, TcpView::CHECKSUM_OFFSET, &checksum.to_be_bytes());
    }

    /// Returns the length of the header in bytes, including options.
    #[must_use]
    pub const fn header_len(&self) -> usize {
        TcpView::MIN_HEADER_LEN + self.options.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn segment() -> (TcpHeader, Vec<u8>) {
        let header = TcpHeader {
            seq: 0x0102_0304,
            ack: 0x0506_0708,
            flags: TcpFlags::SYN | TcpFlags::ACK,
            window: 512,
            urgent: 3,
            options: HeaderOptions::new(&[2, 4, 5, 0xb4, 1]).unwrap(),
            ..TcpHeader::new(40000, 80)
        };
        let mut bytes = Vec::new();
        header.emit(b"abc", Sum::new().word(77), &mut bytes);
        (header, bytes)
    }

    #[test]
    fn segments_round_trip() {
        let (header, bytes) = segment();
        let view = TcpView::new(&bytes).unwrap();
        assert_eq!(view.header(), header);
        assert_eq!(view.payload(), b"abc");
        assert_eq!(view.checksum(), u16::from_be_bytes([bytes[16], bytes[17]]));
        assert!(view.is_checksum_valid(Sum::new().word(77)));
        assert!(!view.is_checksum_valid(Sum::new().word(78)));
    }

    #[test]
    fn invalid_data_offset_is_rejected() {
        let (_, bytes) = segment();
        for (offset, len) in [(0x40, 16), (0xf0, 60)] {
            let mut bytes = bytes.clone();
            bytes[12] = offset;
            let error = ParseError::BadLength {
                layer: Layer::Tcp,
                field: LengthField::DataOffset,
                bytes: len,
                min: 20,
                max: bytes.len(),
            };
            assert_eq!(TcpView::new(&bytes).err(), Some(error));
        }
    }
}
