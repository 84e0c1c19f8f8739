//! Parses and builds UDP headers (RFC 768).
//!
//! A checksum of zero means that there is none; over IPv6, only tunnels may omit the checksum (RFC 6935).

use crate::bytes::{put, require, tail, u16_at};
use crate::checksum::{Sum, udp_checksum_field};
use crate::error::{Layer, LengthField, ParseError};

/// A UDP datagram with a consistent length field, or the beginning of a truncated datagram.
#[derive(Debug, Clone, Copy)]
pub struct UdpView<'a> {
    bytes: &'a [u8],
}

impl<'a> UdpView<'a> {
    /// Length of the header in bytes.
    pub const HEADER_LEN: usize = 8;
    /// Offset of the checksum.
    pub const CHECKSUM_OFFSET: usize = 6;

    /// Checks the length field. Bytes beyond this length are not part of the datagram.
    ///
    /// # Errors
    /// [`ParseError::TooShort`], [`ParseError::BadLength`].
    pub fn new(bytes: &'a [u8]) -> Result<Self, ParseError> {
        let view = Self::from_first_fragment(bytes)?;
        let length = view.length();
        match bytes.get(..length) {
            Some(bytes) if length >= Self::HEADER_LEN => Ok(Self { bytes }),
            _ => Err(ParseError::BadLength {
                layer: Layer::Udp,
                field: LengthField::DatagramLength,
                bytes: length,
                min: Self::HEADER_LEN,
                max: bytes.len(),
            }),
        }
    }

    /// Checks that the header of a truncated datagram is complete. The length field can exceed the number of bytes.
    ///
    /// # Errors
    /// [`ParseError::TooShort`].
    pub fn from_first_fragment(bytes: &'a [u8]) -> Result<Self, ParseError> {
        require(Layer::Udp, bytes, Self::HEADER_LEN)?;
        Ok(Self { bytes })
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

    /// Returns the length field, in bytes. It includes the header.
    #[must_use]
    pub fn length(&self) -> usize {
        usize::from(u16_at(self.bytes, 4))
    }

    /// Returns the checksum field; zero = no checksum.
    #[must_use]
    pub fn checksum(&self) -> u16 {
        u16_at(self.bytes, Self::CHECKSUM_OFFSET)
    }

    /// Returns whether the checksum is valid with this pseudo header; `None` if there is no checksum.
    #[must_use]
    pub fn is_checksum_valid(&self, pseudo_header: Sum) -> Option<bool> {
        (self.checksum() != 0).then(|| pseudo_header.bytes(self.bytes).is_valid())
    }

    /// Returns the data.
    #[must_use]
    pub fn payload(&self) -> &'a [u8] {
        tail(self.bytes, Self::HEADER_LEN)
    }

    /// Returns the header as a value.
    #[must_use]
    pub fn header(&self) -> UdpHeader {
        UdpHeader {
            src_port: self.src_port(),
            dst_port: self.dst_port(),
        }
    }
}

/// The UDP header fields, except length and checksum, which are computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct UdpHeader {
    /// Source port.
    pub src_port: u16,
    /// Destination port.
    pub dst_port: u16,
}

impl UdpHeader {
    /// Appends header and data. Computes the checksum with `pseudo_header`, which must have been computed with the
    /// datagram's length; `None` = no checksum. A length above 65535 is written as 65535.
    pub fn emit(&self, payload: &[u8], pseudo_header: Option<Sum>, out: &mut Vec<u8>) {
        let start = out.len();
        let length = u16::try_from(UdpView::HEADER_LEN + payload.len()).unwrap_or(u16::MAX);
        out.extend(self.src_port.to_be_bytes());
        out.extend(self.dst_port.to_be_bytes());
        out.extend(length.to_be_bytes());
        out.extend([0, 0]);
        out.extend(payload);
        if let Some(sum) = pseudo_header {
            let datagram = out.get_mut(start..).unwrap_or_default();
            let checksum = udp_checksum_field(sum.bytes(datagram).checksum());
            put(datagram, UdpView::CHECKSUM_OFFSET, &checksum.to_be_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: UdpHeader = UdpHeader {
        src_port: 5353,
        dst_port: 53,
    };

    fn datagram(pseudo_header: Option<Sum>) -> Vec<u8> {
        let mut bytes = Vec::new();
        HEADER.emit(b"abc", pseudo_header, &mut bytes);
        bytes
    }

    #[test]
    fn datagrams_round_trip_without_trailing_bytes() {
        let mut bytes = datagram(Some(Sum::new()));
        bytes.extend([0; 7]);
        let view = UdpView::new(&bytes).unwrap();
        assert_eq!(view.header(), HEADER);
        assert_eq!(view.payload(), b"abc");
        assert_eq!(view.is_checksum_valid(Sum::new()), Some(true));
        assert_eq!(view.is_checksum_valid(Sum::new().word(1)), Some(false));
    }

    #[test]
    fn missing_checksum_is_neither_valid_nor_invalid() {
        assert_eq!(
            UdpView::new(&datagram(None))
                .unwrap()
                .is_checksum_valid(Sum::new()),
            None
        );
    }

    #[test]
    fn zero_checksum_is_sent_as_all_ones() {
        // A pseudo header for which the computed checksum is zero.
        let checksum = Sum::new().bytes(&datagram(None)).checksum();
        let bytes = datagram(Some(Sum::new().word(checksum)));
        assert_eq!(UdpView::new(&bytes).unwrap().checksum(), 0xffff);
    }

    #[test]
    fn inconsistent_lengths_are_rejected_except_in_a_first_fragment() {
        for length in [7, 12] {
            let mut bytes = datagram(None);
            bytes[5] = length;
            let error = ParseError::BadLength {
                layer: Layer::Udp,
                field: LengthField::DatagramLength,
                bytes: length.into(),
                min: 8,
                max: 11,
            };
            assert_eq!(UdpView::new(&bytes).err(), Some(error));
        }
        let mut bytes = datagram(None);
        bytes[5] = 200;
        assert!(UdpView::from_first_fragment(&bytes).is_ok());
    }
}
