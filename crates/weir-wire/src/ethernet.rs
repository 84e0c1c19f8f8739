//! Parses and builds Ethernet II frames with up to two VLAN tags (IEEE 802.1Q, 802.1ad).
//!
//! A third tag is treated as payload. 802.3 frames, which contain a length instead of a type, are treated as frames of
//! an unknown type.

use crate::address::MacAddr;
use crate::bytes::{array_at, require, tail, u16_at};
use crate::error::{Layer, ParseError};
use crate::protocol::EtherType;

/// One VLAN tag.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct VlanTag {
    /// Whether this is a service tag (S-tag, 802.1ad, 0x88a8) rather than a customer tag (C-tag, 802.1Q, 0x8100).
    pub service: bool,
    /// Tag control information: PCP (3 bits), DEI (1 bit), VID (12 bits).
    pub tci: u16,
}

impl VlanTag {
    /// Length of a tag in bytes.
    pub const LEN: usize = 4;

    /// Returns an 802.1Q tag with priority 0. Only the lower 12 bits of `vlan` are used.
    #[must_use]
    pub const fn new(vlan: u16) -> Self {
        Self {
            service: false,
            tci: vlan & 0x0fff,
        }
    }

    /// Returns an 802.1ad tag with priority 0. Only the lower 12 bits of `vlan` are used.
    #[must_use]
    pub const fn service(vlan: u16) -> Self {
        Self {
            service: true,
            tci: vlan & 0x0fff,
        }
    }

    /// Returns the VLAN ID, 0 to 4095.
    #[must_use]
    pub const fn vlan(self) -> u16 {
        self.tci & 0x0fff
    }

    /// Returns the priority, 0 to 7.
    #[must_use]
    pub const fn priority(self) -> u16 {
        self.tci >> 13
    }

    const fn ethertype(self) -> EtherType {
        if self.service {
            EtherType::SERVICE_VLAN
        } else {
            EtherType::VLAN
        }
    }
}

/// A frame with a complete header and complete tags.
#[derive(Debug, Clone, Copy)]
pub struct EthernetView<'a> {
    bytes: &'a [u8],
    tag_count: usize,
}

impl<'a> EthernetView<'a> {
    /// Length of the header in bytes, without tags.
    pub const HEADER_LEN: usize = 14;
    /// Maximum number of parsed tags.
    pub const MAX_TAGS: usize = 2;

    /// Checks the header and the tags, not the payload.
    ///
    /// # Errors
    /// [`ParseError::TooShort`] for [`Layer::Ethernet`] or [`Layer::Vlan`].
    pub fn new(bytes: &'a [u8]) -> Result<Self, ParseError> {
        require(Layer::Ethernet, bytes, Self::HEADER_LEN)?;
        let mut view = Self {
            bytes,
            tag_count: 0,
        };
        while view.tag_count < Self::MAX_TAGS && view.ethertype().is_vlan() {
            require(Layer::Vlan, bytes, view.header_len() + VlanTag::LEN)?;
            view.tag_count += 1;
        }
        Ok(view)
    }

    /// Returns the destination address.
    #[must_use]
    pub fn dst(&self) -> MacAddr {
        MacAddr::new(array_at(self.bytes, 0))
    }

    /// Returns the source address.
    #[must_use]
    pub fn src(&self) -> MacAddr {
        MacAddr::new(array_at(self.bytes, 6))
    }

    /// Returns the type of the payload, after the tags.
    #[must_use]
    pub fn ethertype(&self) -> EtherType {
        EtherType(u16_at(self.bytes, self.header_len() - 2))
    }

    /// Returns the tags, outermost first.
    pub fn tags(&self) -> impl Iterator<Item = VlanTag> + use<'a> {
        let bytes = self.bytes;
        (0..self.tag_count).map(move |index| {
            let offset = 12 + index * VlanTag::LEN;
            let service = EtherType(u16_at(bytes, offset)) == EtherType::SERVICE_VLAN;
            VlanTag {
                service,
                tci: u16_at(bytes, offset + 2),
            }
        })
    }

    /// Returns the number of bytes before the payload, including tags.
    #[must_use]
    pub fn header_len(&self) -> usize {
        Self::HEADER_LEN + self.tag_count * VlanTag::LEN
    }

    /// Returns the payload, including padding.
    #[must_use]
    pub fn payload(&self) -> &'a [u8] {
        tail(self.bytes, self.header_len())
    }

    /// Returns the header as a value.
    #[must_use]
    pub fn header(&self) -> EthernetHeader {
        EthernetHeader {
            src: self.src(),
            dst: self.dst(),
            tags: self.tags().collect(),
            ethertype: self.ethertype(),
        }
    }
}

/// Addresses, tags and type of a frame.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct EthernetHeader {
    /// Source address.
    pub src: MacAddr,
    /// Destination address.
    pub dst: MacAddr,
    /// Tags, outermost first. Tags beyond [`EthernetView::MAX_TAGS`] are written too, but parsed as payload.
    pub tags: Vec<VlanTag>,
    /// Type of the payload.
    pub ethertype: EtherType,
}

impl EthernetHeader {
    /// Appends the header.
    pub fn emit(&self, out: &mut Vec<u8>) {
        out.extend(self.dst.octets());
        out.extend(self.src.octets());
        for tag in &self.tags {
            out.extend(tag.ethertype().0.to_be_bytes());
            out.extend(tag.tci.to_be_bytes());
        }
        out.extend(self.ethertype.0.to_be_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(tags: Vec<VlanTag>) -> EthernetHeader {
        EthernetHeader {
            src: [2, 0, 0, 0, 0, 1].into(),
            dst: [2, 0, 0, 0, 0, 2].into(),
            tags,
            ethertype: EtherType::IPV4,
        }
    }

    fn emit_to_vec(header: &EthernetHeader) -> Vec<u8> {
        let mut bytes = Vec::new();
        header.emit(&mut bytes);
        bytes
    }

    #[test]
    fn headers_round_trip_with_zero_to_two_tags() {
        let tags = [
            VlanTag::service(7),
            VlanTag {
                service: false,
                tci: 0xe00a,
            },
        ];
        for count in 0..=tags.len() {
            let header = header(tags[..count].to_vec());
            let mut bytes = emit_to_vec(&header);
            assert_eq!(bytes.len(), 14 + 4 * count);
            bytes.extend(b"xyz");
            let view = EthernetView::new(&bytes).unwrap();
            assert_eq!(view.header(), header);
            assert_eq!(view.payload(), b"xyz");
        }
        assert_eq!((tags[1].vlan(), tags[1].priority()), (10, 7));
    }

    #[test]
    fn third_tag_is_payload() {
        let bytes = emit_to_vec(&header(vec![
            VlanTag::new(1),
            VlanTag::new(2),
            VlanTag::new(3),
        ]));
        let view = EthernetView::new(&bytes).unwrap();
        assert_eq!(view.ethertype(), EtherType::VLAN);
        assert_eq!(view.tags().count(), 2);
    }

    #[test]
    fn truncated_frame_is_rejected_with_its_layer() {
        let bytes = emit_to_vec(&header(vec![VlanTag::new(1)]));
        for len in 0..bytes.len() {
            let layer = if len < 14 {
                Layer::Ethernet
            } else {
                Layer::Vlan
            };
            let needed = if len < 14 { 14 } else { 18 };
            assert_eq!(
                EthernetView::new(&bytes[..len]).err(),
                Some(ParseError::TooShort {
                    layer,
                    needed,
                    available: len
                })
            );
        }
    }
}
