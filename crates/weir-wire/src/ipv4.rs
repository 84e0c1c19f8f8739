//! Parses and builds IPv4 headers (RFC 791), with options as opaque bytes and fragment fields.
//!
//! A view ends at the total length, so link-layer padding is not part of the payload. Options are not interpreted.

use std::net::Ipv4Addr;

use crate::bytes::{array_at, put, require, u8_at, u16_at};
use crate::checksum::Sum;
use crate::error::{Layer, LengthField, ParseError};
use crate::options::HeaderOptions;
use crate::protocol::IpProtocol;

const DONT_FRAGMENT: u16 = 0x4000;
const MORE_FRAGMENTS: u16 = 0x2000;
const OFFSET_MASK: u16 = 0x1fff;

/// An IPv4 packet with a complete header. The payload may be truncated if an ICMP error quotes the packet.
#[derive(Debug, Clone, Copy)]
pub struct Ipv4View<'a> {
    bytes: &'a [u8],
    header_len: usize,
    complete: bool,
}

impl<'a> Ipv4View<'a> {
    /// Length of the header in bytes, without options.
    pub const MIN_HEADER_LEN: usize = 20;

    /// Checks version, header length and total length, but not the checksum.
    ///
    /// # Errors
    /// [`ParseError::TooShort`], [`ParseError::BadVersion`], [`ParseError::BadLength`].
    pub fn new(bytes: &'a [u8]) -> Result<Self, ParseError> {
        let (view, total_len) = Self::with_header(bytes)?;
        if view.complete {
            return Ok(view);
        }
        Err(ParseError::BadLength {
            layer: Layer::Ipv4,
            field: LengthField::TotalLength,
            bytes: total_len,
            min: view.header_len,
            max: bytes.len(),
        })
    }

    /// Performs the checks of [`Self::new`] for a packet that an ICMP error quotes. The packet can be truncated, so the
    /// total length can exceed the number of bytes.
    ///
    /// # Errors
    /// See [`Self::new`].
    pub fn from_quoted(bytes: &'a [u8]) -> Result<Self, ParseError> {
        Self::with_header(bytes).map(|(view, _)| view)
    }

    fn with_header(bytes: &'a [u8]) -> Result<(Self, usize), ParseError> {
        require(Layer::Ipv4, bytes, Self::MIN_HEADER_LEN)?;
        let version = u8_at(bytes, 0) >> 4;
        if version != 4 {
            return Err(ParseError::BadVersion {
                layer: Layer::Ipv4,
                version,
            });
        }
        let header_len = usize::from(u8_at(bytes, 0) & 0x0f) * 4;
        let bad_length = |field, bytes, min, max| ParseError::BadLength {
            layer: Layer::Ipv4,
            field,
            bytes,
            min,
            max,
        };
        if header_len < Self::MIN_HEADER_LEN {
            return Err(bad_length(
                LengthField::HeaderLength,
                header_len,
                Self::MIN_HEADER_LEN,
                60,
            ));
        }
        require(Layer::Ipv4, bytes, header_len)?;
        let total_len = usize::from(u16_at(bytes, 2));
        if total_len < header_len {
            return Err(bad_length(
                LengthField::TotalLength,
                total_len,
                header_len,
                bytes.len(),
            ));
        }
        let complete = total_len <= bytes.len();
        let view = Self {
            bytes: bytes.get(..total_len).unwrap_or(bytes),
            header_len,
            complete,
        };
        Ok((view, total_len))
    }

    /// Returns the source address.
    #[must_use]
    pub fn src(&self) -> Ipv4Addr {
        array_at::<4>(self.bytes, 12).into()
    }

    /// Returns the destination address.
    #[must_use]
    pub fn dst(&self) -> Ipv4Addr {
        array_at::<4>(self.bytes, 16).into()
    }

    /// Returns the protocol of the payload.
    #[must_use]
    pub fn protocol(&self) -> IpProtocol {
        IpProtocol(u8_at(self.bytes, 9))
    }

    /// Returns the length of the header in bytes, including options: 20 to 60.
    #[must_use]
    pub const fn header_len(&self) -> usize {
        self.header_len
    }

    /// Returns the total length field, in bytes.
    #[must_use]
    pub fn total_len(&self) -> usize {
        usize::from(u16_at(self.bytes, 2))
    }

    /// Returns whether the packet is complete; false only for truncated quoted packets.
    #[must_use]
    pub const fn is_complete(&self) -> bool {
        self.complete
    }

    /// Returns whether the header's checksum is valid.
    #[must_use]
    pub fn is_checksum_valid(&self) -> bool {
        Sum::new()
            .bytes(self.bytes.get(..self.header_len).unwrap_or_default())
            .is_valid()
    }

    /// Returns the bytes from the end of the header to the total length.
    #[must_use]
    pub fn payload(&self) -> &'a [u8] {
        self.bytes.get(self.header_len..).unwrap_or_default()
    }

    /// Returns the header as a value.
    #[must_use]
    pub fn header(&self) -> Ipv4Header {
        let fragment = u16_at(self.bytes, 6);
        let options = self
            .bytes
            .get(Self::MIN_HEADER_LEN..self.header_len)
            .unwrap_or_default();
        Ipv4Header {
            src: self.src(),
            dst: self.dst(),
            protocol: self.protocol(),
            ttl: u8_at(self.bytes, 8),
            tos: u8_at(self.bytes, 1),
            id: u16_at(self.bytes, 4),
            dont_fragment: fragment & DONT_FRAGMENT != 0,
            fragment: Ipv4Fragment::from_units(
                fragment & OFFSET_MASK,
                fragment & MORE_FRAGMENTS != 0,
            ),
            options: HeaderOptions::truncated(options),
        }
    }
}

/// The position of a fragment in its datagram; [`Ipv4Fragment::WHOLE`] if the packet is not a fragment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Ipv4Fragment {
    offset_units: u16,
    more: bool,
}

impl Ipv4Fragment {
    /// The packet is not a fragment.
    pub const WHOLE: Self = Self {
        offset_units: 0,
        more: false,
    };

    /// Returns the position of a fragment. `offset_bytes` is rounded down to a multiple of 8, and taken modulo 65536
    /// because the field has 13 bits. `more` is false for the last fragment.
    #[must_use]
    #[expect(clippy::cast_possible_truncation, reason = "masked to 13 bits")]
    pub const fn new(offset_bytes: usize, more: bool) -> Self {
        Self::from_units(((offset_bytes / 8) & OFFSET_MASK as usize) as u16, more)
    }

    const fn from_units(offset_units: u16, more: bool) -> Self {
        Self { offset_units, more }
    }

    /// Returns the offset in bytes, a multiple of eight up to 65528.
    #[must_use]
    pub const fn offset_bytes(self) -> usize {
        self.offset_units as usize * 8
    }

    /// Returns whether more fragments follow.
    #[must_use]
    pub const fn more(self) -> bool {
        self.more
    }

    /// Returns whether the packet is a fragment.
    #[must_use]
    pub const fn is_fragment(self) -> bool {
        self.more || self.offset_units != 0
    }
}

/// The IPv4 header fields, except lengths and checksum, which are computed.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Ipv4Header {
    /// Source address.
    pub src: Ipv4Addr,
    /// Destination address.
    pub dst: Ipv4Addr,
    /// Protocol of the payload.
    pub protocol: IpProtocol,
    /// Time to live, in hops.
    pub ttl: u8,
    /// DSCP (upper 6 bits, RFC 2474) and ECN (lower 2 bits, RFC 3168).
    pub tos: u8,
    /// Identification, the same in all fragments of a datagram.
    pub id: u16,
    /// Whether routers must not fragment the packet (DF).
    pub dont_fragment: bool,
    /// The position of the fragment in its datagram.
    pub fragment: Ipv4Fragment,
    /// Options.
    pub options: HeaderOptions,
}

impl Ipv4Header {
    /// Returns a header with TTL 64 and without options, which is not a fragment.
    #[must_use]
    pub const fn new(src: Ipv4Addr, dst: Ipv4Addr, protocol: IpProtocol) -> Self {
        Self {
            src,
            dst,
            protocol,
            ttl: 64,
            tos: 0,
            id: 0,
            dont_fragment: false,
            fragment: Ipv4Fragment::WHOLE,
            options: HeaderOptions::EMPTY,
        }
    }

    /// Returns the number of bytes that [`Self::emit`] appends.
    #[must_use]
    pub const fn header_len(&self) -> usize {
        Ipv4View::MIN_HEADER_LEN + self.options.len()
    }

    /// Appends the header for a payload of `payload_len` bytes. A total above 65535 is written as 65535, which does not
    /// match the packet.
    pub fn emit(&self, payload_len: usize, out: &mut Vec<u8>) {
        let start = out.len();
        let words = u8::try_from(self.header_len() / 4).unwrap_or(15);
        let total_len = u16::try_from(self.header_len() + payload_len).unwrap_or(u16::MAX);
        let mut fragment = self.fragment.offset_units;
        if self.dont_fragment {
            fragment |= DONT_FRAGMENT;
        }
        if self.fragment.more {
            fragment |= MORE_FRAGMENTS;
        }
        out.extend([0x40 | words, self.tos]);
        out.extend(total_len.to_be_bytes());
        out.extend(self.id.to_be_bytes());
        out.extend(fragment.to_be_bytes());
        out.extend([self.ttl, self.protocol.0, 0, 0]);
        out.extend(self.src.octets());
        out.extend(self.dst.octets());
        out.extend(self.options.as_bytes());
        let header = out.get_mut(start..).unwrap_or_default();
        rewrite_checksum(header);
    }
}

/// Computes and writes the checksum of an IPv4 header. The bytes must contain only the header.
pub(crate) fn rewrite_checksum(header: &mut [u8]) {
    put(header, 10, &[0, 0]);
    let checksum = Sum::new().bytes(header).checksum();
    put(header, 10, &checksum.to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header() -> Ipv4Header {
        Ipv4Header {
            ttl: 3,
            tos: 0xb9,
            id: 0x1234,
            dont_fragment: true,
            fragment: Ipv4Fragment::new(1480, true),
            options: HeaderOptions::new(&[7, 7, 4, 0, 0, 0, 0]).unwrap(),
            ..Ipv4Header::new(
                [192, 0, 2, 1].into(),
                [198, 51, 100, 2].into(),
                IpProtocol::UDP,
            )
        }
    }

    fn packet(padding: usize) -> Vec<u8> {
        let mut bytes = Vec::new();
        header().emit(8, &mut bytes);
        bytes.extend([9; 8]);
        bytes.extend(vec![0; padding]);
        bytes
    }

    #[test]
    fn headers_round_trip() {
        let bytes = packet(5);
        let view = Ipv4View::new(&bytes).unwrap();
        assert_eq!(view.header(), header());
        assert_eq!((view.header_len(), view.total_len()), (28, 36));
        assert_eq!(
            view.payload(),
            [9; 8],
            "padding must not be part of the payload"
        );
        assert!(view.is_checksum_valid());
    }

    #[test]
    fn packet_can_consist_of_its_header() {
        let mut bytes = Vec::new();
        header().emit(0, &mut bytes);
        let view = Ipv4View::new(&bytes).unwrap();
        assert_eq!((view.header_len(), view.total_len()), (28, 28));
        assert_eq!(view.payload(), []);
    }

    #[test]
    fn changed_bit_invalidates_the_checksum() {
        let mut bytes = packet(0);
        bytes[8] ^= 1;
        assert!(!Ipv4View::new(&bytes).unwrap().is_checksum_valid());
    }

    #[test]
    fn inconsistent_lengths_are_rejected() {
        let parse_error = |offset: usize, value: u8| {
            let mut bytes = packet(0);
            bytes[offset] = value;
            Ipv4View::new(&bytes).err()
        };
        let bad_length = |field, bytes, min, max| {
            Some(ParseError::BadLength {
                layer: Layer::Ipv4,
                field,
                bytes,
                min,
                max,
            })
        };
        assert_eq!(
            parse_error(0, 0x67),
            Some(ParseError::BadVersion {
                layer: Layer::Ipv4,
                version: 6
            })
        );
        assert_eq!(
            parse_error(0, 0x44),
            bad_length(LengthField::HeaderLength, 16, 20, 60)
        );
        let short = ParseError::TooShort {
            layer: Layer::Ipv4,
            needed: 60,
            available: 36,
        };
        assert_eq!(parse_error(0, 0x4f), Some(short));
        assert_eq!(
            parse_error(3, 27),
            bad_length(LengthField::TotalLength, 27, 28, 36)
        );
        assert_eq!(
            parse_error(3, 37),
            bad_length(LengthField::TotalLength, 37, 28, 36)
        );
    }

    #[test]
    fn quoted_packet_may_be_truncated_after_its_header() {
        let bytes = packet(0);
        let view = Ipv4View::from_quoted(&bytes[..30]).unwrap();
        assert!(!view.is_complete());
        assert_eq!(view.payload(), [9; 2]);
        assert!(Ipv4View::from_quoted(&bytes[..27]).is_err());
    }
}
