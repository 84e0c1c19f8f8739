//! Parses and builds ICMPv6 messages (RFC 4443): echo, and the errors that quote a packet.
//!
//! Neighbor discovery is in [`crate::NeighborMessage`].
//!
//! For other messages, only the type, the code and the second word are kept.

use crate::bytes::{array_at, put, require, tail, u8_at};
use crate::checksum::Sum;
use crate::error::{Layer, ParseError};

/// An ICMPv6 message with its first eight bytes.
#[derive(Debug, Clone, Copy)]
pub struct Icmpv6View<'a> {
    bytes: &'a [u8],
}

impl<'a> Icmpv6View<'a> {
    /// Number of bytes before the data. Every registered message is at least this long, although the format defines
    /// only the first four bytes.
    pub const HEADER_LEN: usize = 8;
    /// Offset of the checksum.
    pub const CHECKSUM_OFFSET: usize = 2;

    /// Checks the length.
    ///
    /// # Errors
    /// [`ParseError::TooShort`].
    pub fn new(bytes: &'a [u8]) -> Result<Self, ParseError> {
        require(Layer::Icmpv6, bytes, Self::HEADER_LEN)?;
        Ok(Self { bytes })
    }

    /// Returns whether the checksum is valid with this pseudo header.
    #[must_use]
    pub fn is_checksum_valid(&self, pseudo_header: Sum) -> bool {
        pseudo_header.bytes(self.bytes).is_valid()
    }

    /// Returns the data of an echo message, or the packet that an error quotes.
    #[must_use]
    pub fn payload(&self) -> &'a [u8] {
        tail(self.bytes, Self::HEADER_LEN)
    }

    /// Returns the type, the code and the second word.
    #[must_use]
    pub fn message(&self) -> Icmpv6Message {
        let (kind, code) = (u8_at(self.bytes, 0), u8_at(self.bytes, 1));
        let rest: [u8; 4] = array_at(self.bytes, 4);
        let [a, b, c, d] = rest;
        let (id, seq) = (u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]));
        match (kind, code) {
            (128, 0) => Icmpv6Message::EchoRequest { id, seq },
            (129, 0) => Icmpv6Message::EchoReply { id, seq },
            (1, code) => Icmpv6Message::Unreachable { code },
            (2, 0) => Icmpv6Message::PacketTooBig {
                mtu: u32::from_be_bytes(rest),
            },
            (3, code) => Icmpv6Message::TimeExceeded { code },
            (4, code) => Icmpv6Message::ParameterProblem {
                code,
                pointer: u32::from_be_bytes(rest),
            },
            _ => Icmpv6Message::Other { kind, code, rest },
        }
    }
}

/// An ICMPv6 message without its data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Icmpv6Message {
    /// Type 128.
    EchoRequest {
        /// Identifier.
        id: u16,
        /// Sequence number.
        seq: u16,
    },
    /// Type 129.
    EchoReply {
        /// Identifier.
        id: u16,
        /// Sequence number.
        seq: u16,
    },
    /// Type 1: code 0 no route, 1 prohibited, 3 address, 4 port.
    Unreachable {
        /// Code.
        code: u8,
    },
    /// Type 2.
    PacketTooBig {
        /// MTU of the next hop in bytes.
        mtu: u32,
    },
    /// Type 3: code 0 in transit, 1 in reassembly.
    TimeExceeded {
        /// Code.
        code: u8,
    },
    /// Type 4.
    ParameterProblem {
        /// Code.
        code: u8,
        /// Offset of the erroneous byte in the quoted packet.
        pointer: u32,
    },
    /// Any other message, including neighbor discovery.
    Other {
        /// Type.
        kind: u8,
        /// Code.
        code: u8,
        /// The second word: bytes 4 to 7.
        rest: [u8; 4],
    },
}

impl Icmpv6Message {
    /// Port unreachable.
    pub const PORT_UNREACHABLE: Self = Self::Unreachable { code: 4 };

    /// Returns the type and the code.
    #[must_use]
    pub const fn kind_and_code(self) -> (u8, u8) {
        match self {
            Self::EchoRequest { .. } => (128, 0),
            Self::EchoReply { .. } => (129, 0),
            Self::Unreachable { code } => (1, code),
            Self::PacketTooBig { .. } => (2, 0),
            Self::TimeExceeded { code } => (3, code),
            Self::ParameterProblem { code, .. } => (4, code),
            Self::Other { kind, code, .. } => (kind, code),
        }
    }

    /// Returns whether the message is one of the four errors in RFC 4443, which quote a packet.
    #[must_use]
    pub const fn is_error(self) -> bool {
        matches!(self.kind_and_code().0, 1..=4)
    }

    /// Appends the message with its data. `pseudo_header` must have been computed with the length of the message
    /// including its data.
    pub fn emit(self, payload: &[u8], pseudo_header: Sum, out: &mut Vec<u8>) {
        let start = out.len();
        let rest = match self {
            Self::EchoRequest { id, seq } | Self::EchoReply { id, seq } => {
                ((u32::from(id) << 16) + u32::from(seq)).to_be_bytes()
            }
            Self::Unreachable { .. } | Self::TimeExceeded { .. } => [0; 4],
            Self::PacketTooBig { mtu } => mtu.to_be_bytes(),
            Self::ParameterProblem { pointer, .. } => pointer.to_be_bytes(),
            Self::Other { rest, .. } => rest,
        };
        let (kind, code) = self.kind_and_code();
        out.extend([kind, code, 0, 0]);
        out.extend(rest);
        out.extend(payload);
        let message = out.get_mut(start..).unwrap_or_default();
        let checksum = pseudo_header.bytes(message).checksum();
        put(
            message,
            Icmpv6View::CHECKSUM_OFFSET,
            &checksum.to_be_bytes(),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_round_trip() {
        for message in [
            Icmpv6Message::EchoRequest { id: 0x1234, seq: 7 },
            Icmpv6Message::EchoReply { id: 0x1234, seq: 7 },
            Icmpv6Message::PORT_UNREACHABLE,
            Icmpv6Message::PacketTooBig { mtu: 0x1_0000 },
            Icmpv6Message::TimeExceeded { code: 1 },
            Icmpv6Message::ParameterProblem {
                code: 1,
                pointer: 40,
            },
            Icmpv6Message::Other {
                kind: 135,
                code: 0,
                rest: [1, 2, 3, 4],
            },
        ] {
            let mut bytes = Vec::new();
            message.emit(b"data", Sum::new().word(5), &mut bytes);
            let view = Icmpv6View::new(&bytes).unwrap();
            assert_eq!(view.message(), message);
            assert_eq!(view.payload(), b"data");
            assert!(view.is_checksum_valid(Sum::new().word(5)));
            assert!(!view.is_checksum_valid(Sum::new().word(6)));
        }
    }

    #[test]
    fn only_messages_that_quote_a_packet_are_errors() {
        let is_error = |&kind: &u8| {
            Icmpv6Message::Other {
                kind,
                code: 0,
                rest: [0; 4],
            }
            .is_error()
        };
        assert_eq!(
            (0..=255).filter(is_error).collect::<Vec<u8>>(),
            [1, 2, 3, 4]
        );
    }

    #[test]
    fn message_of_seven_bytes_is_rejected() {
        let error = ParseError::TooShort {
            layer: Layer::Icmpv6,
            needed: 8,
            available: 7,
        };
        assert_eq!(Icmpv6View::new(&[0; 7]).err(), Some(error));
    }
}
