//! Parses and builds ICMP messages for IPv4 (RFC 792): echo, and the errors that quote a packet.
//!
//! For other messages, only the type, the code and the second word are kept. A quoted packet is kept as bytes;
//! `Packet::parse` decodes it.

use std::net::Ipv4Addr;

use crate::bytes::{array_at, put, require, tail, u8_at};
use crate::checksum::Sum;
use crate::error::{Layer, ParseError};

/// An ICMP message with its eight fixed bytes.
#[derive(Debug, Clone, Copy)]
pub struct Icmpv4View<'a> {
    bytes: &'a [u8],
}

impl<'a> Icmpv4View<'a> {
    /// Number of bytes before the data. Every registered message is at least this long.
    pub const HEADER_LEN: usize = 8;
    /// Offset of the checksum.
    pub const CHECKSUM_OFFSET: usize = 2;

    /// Checks the length.
    ///
    /// # Errors
    /// [`ParseError::TooShort`].
    pub fn new(bytes: &'a [u8]) -> Result<Self, ParseError> {
        require(Layer::Icmpv4, bytes, Self::HEADER_LEN)?;
        Ok(Self { bytes })
    }

    /// Returns whether the checksum of the message is valid.
    #[must_use]
    pub fn is_checksum_valid(&self) -> bool {
        Sum::new().bytes(self.bytes).is_valid()
    }

    /// Returns the data of an echo message, or the packet that an error quotes.
    #[must_use]
    pub fn payload(&self) -> &'a [u8] {
        tail(self.bytes, Self::HEADER_LEN)
    }

    /// Returns the type, the code and the second word.
    #[must_use]
    pub fn message(&self) -> Icmpv4Message {
        let (kind, code) = (u8_at(self.bytes, 0), u8_at(self.bytes, 1));
        let rest: [u8; 4] = array_at(self.bytes, 4);
        let [a, b, c, d] = rest;
        let (first, second) = (u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]));
        match (kind, code) {
            (0, 0) => Icmpv4Message::EchoReply {
                id: first,
                seq: second,
            },
            (8, 0) => Icmpv4Message::EchoRequest {
                id: first,
                seq: second,
            },
            (3, 4) => Icmpv4Message::FragmentationNeeded { mtu: second },
            (3, code) => Icmpv4Message::Unreachable { code },
            (5, code) => Icmpv4Message::Redirect {
                code,
                gateway: rest.into(),
            },
            (11, code) => Icmpv4Message::TimeExceeded { code },
            (12, code) => Icmpv4Message::ParameterProblem { code, pointer: a },
            _ => Icmpv4Message::Other { kind, code, rest },
        }
    }
}

/// An ICMP message without its data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Icmpv4Message {
    /// Type 8.
    EchoRequest {
        /// Identifier.
        id: u16,
        /// Sequence number.
        seq: u16,
    },
    /// Type 0.
    EchoReply {
        /// Identifier.
        id: u16,
        /// Sequence number.
        seq: u16,
    },
    /// Type 3, code 4 (RFC 1191).
    FragmentationNeeded {
        /// MTU of the next hop in bytes; 0 = the router does not report it.
        mtu: u16,
    },
    /// Type 3, other codes: 0 net, 1 host, 2 protocol, 3 port, 13 prohibited.
    Unreachable {
        /// Code.
        code: u8,
    },
    /// Type 5.
    Redirect {
        /// Code.
        code: u8,
        /// The gateway to use.
        gateway: Ipv4Addr,
    },
    /// Type 11: code 0 in transit, 1 in reassembly.
    TimeExceeded {
        /// Code.
        code: u8,
    },
    /// Type 12.
    ParameterProblem {
        /// Code.
        code: u8,
        /// Offset of the erroneous byte in the quoted packet.
        pointer: u8,
    },
    /// Any other message.
    Other {
        /// Type.
        kind: u8,
        /// Code.
        code: u8,
        /// The second word: bytes 4 to 7.
        rest: [u8; 4],
    },
}

impl Icmpv4Message {
    /// Port unreachable.
    pub const PORT_UNREACHABLE: Self = Self::Unreachable { code: 3 };

    /// Returns the type and the code.
    #[must_use]
    pub const fn kind_and_code(self) -> (u8, u8) {
        match self {
            Self::EchoReply { .. } => (0, 0),
            Self::EchoRequest { .. } => (8, 0),
            Self::FragmentationNeeded { .. } => (3, 4),
            Self::Unreachable { code } => (3, code),
            Self::Redirect { code, .. } => (5, code),
            Self::TimeExceeded { code } => (11, code),
            Self::ParameterProblem { code, .. } => (12, code),
            Self::Other { kind, code, .. } => (kind, code),
        }
    }

    /// Returns whether the message is an error that quotes a packet.
    #[must_use]
    pub const fn is_error(self) -> bool {
        matches!(self.kind_and_code().0, 3 | 4 | 5 | 11 | 12)
    }

    /// Appends the message with its data.
    pub fn emit(self, payload: &[u8], out: &mut Vec<u8>) {
        let start = out.len();
        let pair = |a: u16, b: u16| {
            let ([a, b], [c, d]) = (a.to_be_bytes(), b.to_be_bytes());
            [a, b, c, d]
        };
        let rest = match self {
            Self::EchoRequest { id, seq } | Self::EchoReply { id, seq } => pair(id, seq),
            Self::FragmentationNeeded { mtu } => pair(0, mtu),
            Self::Unreachable { .. } | Self::TimeExceeded { .. } => [0; 4],
            Self::Redirect { gateway, .. } => gateway.octets(),
            Self::ParameterProblem { pointer, .. } => [pointer, 0, 0, 0],
            Self::Other { rest, .. } => rest,
        };
        let (kind, code) = self.kind_and_code();
        out.extend([kind, code, 0, 0]);
        out.extend(rest);
        out.extend(payload);
        let message = out.get_mut(start..).unwrap_or_default();
        let checksum = Sum::new().bytes(message).checksum();
        put(
            message,
            Icmpv4View::CHECKSUM_OFFSET,
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
            Icmpv4Message::EchoRequest { id: 0x1234, seq: 7 },
            Icmpv4Message::EchoReply { id: 0x1234, seq: 7 },
            Icmpv4Message::FragmentationNeeded { mtu: 1400 },
            Icmpv4Message::PORT_UNREACHABLE,
            Icmpv4Message::Redirect {
                code: 1,
                gateway: Ipv4Addr::new(10, 0, 0, 1),
            },
            Icmpv4Message::TimeExceeded { code: 1 },
            Icmpv4Message::ParameterProblem {
                code: 0,
                pointer: 9,
            },
            Icmpv4Message::Other {
                kind: 13,
                code: 0,
                rest: [1, 2, 3, 4],
            },
        ] {
            let mut bytes = Vec::new();
            message.emit(b"data", &mut bytes);
            let view = Icmpv4View::new(&bytes).unwrap();
            assert_eq!(view.message(), message);
            assert_eq!(view.payload(), b"data");
            assert!(view.is_checksum_valid());
            bytes[9] ^= 1;
            assert!(!Icmpv4View::new(&bytes).unwrap().is_checksum_valid());
        }
    }

    #[test]
    fn only_messages_that_quote_a_packet_are_errors() {
        let is_error = |&kind: &u8| {
            Icmpv4Message::Other {
                kind,
                code: 0,
                rest: [0; 4],
            }
            .is_error()
        };
        assert_eq!(
            (0..=255).filter(is_error).collect::<Vec<u8>>(),
            [3, 4, 5, 11, 12]
        );
    }

    #[test]
    fn message_of_seven_bytes_is_rejected() {
        let error = ParseError::TooShort {
            layer: Layer::Icmpv4,
            needed: 8,
            available: 7,
        };
        assert_eq!(Icmpv4View::new(&[0; 7]).err(), Some(error));
    }
}
