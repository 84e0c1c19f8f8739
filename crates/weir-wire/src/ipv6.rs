//! Parses and builds the fixed IPv6 header (RFC 8200). Extension headers are in [`extension`].
//!
//! Jumbograms (RFC 2675) are not supported: a payload length of zero is an empty payload.

pub(crate) mod extension;

use std::net::Ipv6Addr;

use crate::bytes::{array_at, require, tail, u8_at, u16_at, u32_at};
use crate::error::{Layer, LengthField, ParseError};
use crate::protocol::IpProtocol;

/// An IPv6 packet with a complete header. The payload may be truncated if an ICMP error quotes the packet.
#[derive(Debug, Clone, Copy)]
pub struct Ipv6View<'a> {
    bytes: &'a [u8],
    complete: bool,
}

impl<'a> Ipv6View<'a> {
    /// Length of the fixed header in bytes.
    pub const HEADER_LEN: usize = 40;

    /// Checks the version and the payload length.
    ///
    /// # Errors
    /// [`ParseError::TooShort`], [`ParseError::BadVersion`], [`ParseError::BadLength`].
    pub fn new(bytes: &'a [u8]) -> Result<Self, ParseError> {
        let view = Self::from_quoted(bytes)?;
        if view.complete {
            return Ok(view);
        }
        Err(ParseError::BadLength {
            layer: Layer::Ipv6,
            field: LengthField::PayloadLength,
            bytes: view.payload_len(),
            min: 0,
            max: bytes.len() - Self::HEADER_LEN,
        })
    }

    /// Checks the version of a packet that an ICMP error quotes. The packet can be truncated, so the payload length can
    /// exceed the number of bytes.
    ///
    /// # Errors
    /// [`ParseError::TooShort`], [`ParseError::BadVersion`].
    pub fn from_quoted(bytes: &'a [u8]) -> Result<Self, ParseError> {
        require(Layer::Ipv6, bytes, Self::HEADER_LEN)?;
        let version = u8_at(bytes, 0) >> 4;
        if version != 6 {
            return Err(ParseError::BadVersion {
                layer: Layer::Ipv6,
                version,
            });
        }
        let total_len = Self::HEADER_LEN + usize::from(u16_at(bytes, 4));
        Ok(Self {
            bytes: bytes.get(..total_len).unwrap_or(bytes),
            complete: total_len <= bytes.len(),
        })
    }

    /// Returns the source address.
    #[must_use]
    pub fn src(&self) -> Ipv6Addr {
        array_at::<16>(self.bytes, 8).into()
    }

    /// Returns the destination address.
    #[must_use]
    pub fn dst(&self) -> Ipv6Addr {
        array_at::<16>(self.bytes, 24).into()
    }

    /// Returns the next header: an extension header or the upper-layer protocol.
    #[must_use]
    pub fn next_header(&self) -> IpProtocol {
        IpProtocol(u8_at(self.bytes, 6))
    }

    /// Returns the payload length field, in bytes. It includes extension headers.
    #[must_use]
    pub fn payload_len(&self) -> usize {
        usize::from(u16_at(self.bytes, 4))
    }

    /// Returns whether the packet is complete; false only for truncated quoted packets.
    #[must_use]
    pub const fn is_complete(&self) -> bool {
        self.complete
    }

    /// Returns the extension headers and the payload.
    #[must_use]
    pub fn payload(&self) -> &'a [u8] {
        tail(self.bytes, Self::HEADER_LEN)
    }

    /// Returns the parsed header.
    #[must_use]
    pub fn header(&self) -> Ipv6Header {
        let word = u32_at(self.bytes, 0);
        Ipv6Header {
            src: self.src(),
            dst: self.dst(),
            next_header: self.next_header(),
            hop_limit: u8_at(self.bytes, 7),
            traffic_class: word.to_be_bytes()[0] << 4 | word.to_be_bytes()[1] >> 4,
            flow_label: word & Ipv6Header::FLOW_LABEL_MASK,
        }
    }
}

/// The IPv6 header fields, except the length, which is computed.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Ipv6Header {
    /// Source address.
    pub src: Ipv6Addr,
    /// Destination address.
    pub dst: Ipv6Addr,
    /// The next header.
    pub next_header: IpProtocol,
    /// Hop limit.
    pub hop_limit: u8,
    /// DSCP (upper 6 bits) and ECN (lower 2 bits).
    pub traffic_class: u8,
    /// Flow label (RFC 6437); the lower 20 bits are written.
    pub flow_label: u32,
}

impl Ipv6Header {
    const FLOW_LABEL_MASK: u32 = 0x000f_ffff;

    /// Returns a header with hop limit 64.
    #[must_use]
    pub const fn new(src: Ipv6Addr, dst: Ipv6Addr, next_header: IpProtocol) -> Self {
        Self {
            src,
            dst,
            next_header,
            hop_limit: 64,
            traffic_class: 0,
            flow_label: 0,
        }
    }

    /// Appends the header for a payload of `payload_len` bytes, extension headers included. A length above 65535 is
    /// written as 65535, which does not match the packet.
    pub fn emit(&self, payload_len: usize, out: &mut Vec<u8>) {
        let word =
            6 << 28 | u32::from(self.traffic_class) << 20 | self.flow_label & Self::FLOW_LABEL_MASK;
        out.extend(word.to_be_bytes());
        out.extend(u16::try_from(payload_len).unwrap_or(u16::MAX).to_be_bytes());
        out.extend([self.next_header.0, self.hop_limit]);
        out.extend(self.src.octets());
        out.extend(self.dst.octets());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header() -> Ipv6Header {
        Ipv6Header {
            hop_limit: 9,
            traffic_class: 0xb9,
            flow_label: 0xabcde,
            ..Ipv6Header::new(Ipv6Addr::LOCALHOST, Ipv6Addr::UNSPECIFIED, IpProtocol::TCP)
        }
    }

    fn packet(padding: usize) -> Vec<u8> {
        let mut bytes = Vec::new();
        header().emit(4, &mut bytes);
        bytes.extend([1, 2, 3, 4]);
        bytes.extend(vec![0; padding]);
        bytes
    }

    #[test]
    fn headers_round_trip() {
        let bytes = packet(3);
        let view = Ipv6View::new(&bytes).unwrap();
        assert_eq!(view.header(), header());
        assert_eq!(
            view.payload(),
            [1, 2, 3, 4],
            "padding is not part of the payload"
        );
    }

    #[test]
    fn missing_payload_is_rejected_unless_quoted() {
        let bytes = packet(0);
        let error = ParseError::BadLength {
            layer: Layer::Ipv6,
            field: LengthField::PayloadLength,
            bytes: 4,
            min: 0,
            max: 3,
        };
        assert_eq!(Ipv6View::new(&bytes[..43]).err(), Some(error));
        let quoted = Ipv6View::from_quoted(&bytes[..43]).unwrap();
        assert!(!quoted.is_complete());
        assert_eq!(quoted.payload(), [1, 2, 3]);
    }

    #[test]
    fn other_versions_are_rejected() {
        let mut bytes = packet(0);
        bytes[0] = 0x45;
        let error = ParseError::BadVersion {
            layer: Layer::Ipv6,
            version: 4,
        };
        assert_eq!(Ipv6View::new(&bytes).err(), Some(error));
    }
}
