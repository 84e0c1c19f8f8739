//! Parses and builds ARP packets for IPv4 over Ethernet (RFC 826). Other hardware and protocol types are rejected.

use std::net::Ipv4Addr;

use crate::address::MacAddr;
use crate::bytes::{array_at, require, u8_at, u16_at};
use crate::error::{Layer, LengthField, ParseError};
use crate::protocol::EtherType;

/// The operation of an ARP packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ArpOperation {
    /// A request for the link-layer address of the target address.
    Request,
    /// A reply with the sender's link-layer address.
    Reply,
}

/// An ARP packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ArpPacket {
    /// Whether this is a request or a reply.
    pub operation: ArpOperation,
    /// Link-layer address of the sender.
    pub sender_mac: MacAddr,
    /// Address of the sender; unspecified in a probe (RFC 5227).
    pub sender: Ipv4Addr,
    /// Link-layer address of the target; usually zero in a request.
    pub target_mac: MacAddr,
    /// The requested address, or the address of the receiver of a reply.
    pub target: Ipv4Addr,
}

impl ArpPacket {
    /// Length of a packet in bytes.
    pub const LEN: usize = 28;
    const HARDWARE_ETHERNET: u16 = 1;

    /// Parses a packet. Padding after it is ignored.
    ///
    /// # Errors
    /// [`ParseError::TooShort`], [`ParseError::UnsupportedType`] for other hardware, protocols and operations,
    /// [`ParseError::BadLength`] for other address lengths.
    pub fn parse(bytes: &[u8]) -> Result<Self, ParseError> {
        require(Layer::Arp, bytes, Self::LEN)?;
        let unsupported = |value: u16| ParseError::UnsupportedType {
            layer: Layer::Arp,
            value: value.into(),
        };
        let (hardware, protocol) = (u16_at(bytes, 0), u16_at(bytes, 2));
        if hardware != Self::HARDWARE_ETHERNET {
            return Err(unsupported(hardware));
        }
        if EtherType(protocol) != EtherType::IPV4 {
            return Err(unsupported(protocol));
        }
        for (offset, expected) in [(4, 6), (5, 4)] {
            let length = usize::from(u8_at(bytes, offset));
            if length != expected {
                return Err(ParseError::BadLength {
                    layer: Layer::Arp,
                    field: LengthField::AddressLength,
                    bytes: length,
                    min: expected,
                    max: expected,
                });
            }
        }
        let operation = match u16_at(bytes, 6) {
            1 => ArpOperation::Request,
            2 => ArpOperation::Reply,
            other => return Err(unsupported(other)),
        };
        Ok(Self {
            operation,
            sender_mac: MacAddr::new(array_at(bytes, 8)),
            sender: array_at::<4>(bytes, 14).into(),
            target_mac: MacAddr::new(array_at(bytes, 18)),
            target: array_at::<4>(bytes, 24).into(),
        })
    }

    /// Appends the packet.
    pub fn emit(&self, out: &mut Vec<u8>) {
        let operation: u16 = match self.operation {
            ArpOperation::Request => 1,
            ArpOperation::Reply => 2,
        };
        out.extend(Self::HARDWARE_ETHERNET.to_be_bytes());
        out.extend(EtherType::IPV4.0.to_be_bytes());
        out.extend([6, 4]);
        out.extend(operation.to_be_bytes());
        out.extend(self.sender_mac.octets());
        out.extend(self.sender.octets());
        out.extend(self.target_mac.octets());
        out.extend(self.target.octets());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn emit_reply() -> (ArpPacket, Vec<u8>) {
        let packet = ArpPacket {
            operation: ArpOperation::Reply,
            sender_mac: [2, 0, 0, 0, 0, 1].into(),
            sender: Ipv4Addr::new(10, 0, 0, 1),
            target_mac: [2, 0, 0, 0, 0, 2].into(),
            target: Ipv4Addr::new(10, 0, 0, 2),
        };
        let mut bytes = Vec::new();
        packet.emit(&mut bytes);
        (packet, bytes)
    }

    #[test]
    fn replies_round_trip() {
        let (packet, bytes) = emit_reply();
        assert_eq!(bytes.len(), ArpPacket::LEN);
        assert_eq!(ArpPacket::parse(&bytes), Ok(packet));
    }

    #[test]
    fn other_hardware_protocols_lengths_and_operations_are_rejected() {
        let (_, bytes) = emit_reply();
        let unsupported = |value| ParseError::UnsupportedType {
            layer: Layer::Arp,
            value,
        };
        let length = |bytes, expected| ParseError::BadLength {
            layer: Layer::Arp,
            field: LengthField::AddressLength,
            bytes,
            min: expected,
            max: expected,
        };
        for (offset, value, error) in [
            (1, 6, unsupported(6)),
            (2, 0x86, unsupported(0x8600)),
            (4, 8, length(8, 6)),
            (5, 16, length(16, 4)),
            (7, 3, unsupported(3)),
        ] {
            let mut bytes = bytes.clone();
            bytes[offset] = value;
            assert_eq!(ArpPacket::parse(&bytes), Err(error));
        }
    }
}
