//! Builds Ethernet frames: addresses, tags and payload.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::address::MacAddr;
use crate::arp::ArpPacket;
use crate::build::fragment::fragment;
use crate::build::ipv4::Ipv4Builder;
use crate::build::ipv6::Ipv6Builder;
use crate::build::network::IpBuilder;
use crate::error::ParseError;
use crate::ethernet::{EthernetHeader, VlanTag};
use crate::protocol::EtherType;

/// A frame under construction.
#[derive(Debug, Clone)]
pub struct EthernetBuilder {
    src: MacAddr,
    dst: MacAddr,
    tags: Vec<VlanTag>,
    ethertype: Option<EtherType>,
    padding: usize,
}

impl EthernetBuilder {
    pub(crate) const fn new(src: MacAddr, dst: MacAddr) -> Self {
        Self {
            src,
            dst,
            tags: Vec::new(),
            ethertype: None,
            padding: 0,
        }
    }

    /// Adds an 802.1Q tag after the existing tags.
    #[must_use]
    pub fn vlan(self, vlan: u16) -> Self {
        self.tag(VlanTag::new(vlan))
    }

    /// Adds an 802.1ad tag after the existing tags.
    #[must_use]
    pub fn service_vlan(self, vlan: u16) -> Self {
        self.tag(VlanTag::service(vlan))
    }

    /// Adds a C-tag or S-tag with any tag control information after the existing tags.
    #[must_use]
    pub fn tag(mut self, tag: VlanTag) -> Self {
        self.tags.push(tag);
        self
    }

    /// Overrides the EtherType.
    #[must_use]
    pub const fn ethertype(mut self, ethertype: EtherType) -> Self {
        self.ethertype = Some(ethertype);
        self
    }

    /// Pads the frame with this number of zero bytes, as on links with a minimum frame length.
    #[must_use]
    pub const fn padding(mut self, bytes: usize) -> Self {
        self.padding = bytes;
        self
    }

    /// Adds an IPv4 header.
    #[must_use]
    pub fn ipv4(self, src: Ipv4Addr, dst: Ipv4Addr) -> Ipv4Builder {
        Ipv4Builder::new(Some(self), src, dst)
    }

    /// Adds an IPv6 header.
    #[must_use]
    pub fn ipv6(self, src: Ipv6Addr, dst: Ipv6Addr) -> Ipv6Builder {
        Ipv6Builder::new(Some(self), src, dst)
    }

    /// Adds an IP header for the family of the addresses. If the families differ, the IPv4 address is used as an
    /// IPv4-mapped IPv6 address.
    #[must_use]
    pub fn ip(self, src: IpAddr, dst: IpAddr) -> IpBuilder {
        IpBuilder::new(Some(self), src, dst)
    }

    /// Returns the frame with an ARP packet.
    #[must_use]
    pub fn arp(&self, packet: &ArpPacket) -> Vec<u8> {
        let mut bytes = Vec::new();
        packet.emit(&mut bytes);
        self.frame(EtherType::ARP, &bytes)
    }

    /// Returns the frame with an IP packet. The IP version determines the EtherType; bytes that are not an IP packet
    /// get the EtherType of IPv4.
    #[must_use]
    pub fn ip_packet(&self, packet: &[u8]) -> Vec<u8> {
        self.frame(
            EtherType::for_ip_packet(packet).unwrap_or(EtherType::IPV4),
            packet,
        )
    }

    /// Returns frames with the fragments of an IP packet; see [`fragment`].
    ///
    /// # Errors
    /// See [`fragment`].
    pub fn fragments(
        &self,
        packet: &[u8],
        mtu: usize,
        id: u32,
    ) -> Result<Vec<Vec<u8>>, ParseError> {
        Ok(fragment(packet, mtu, id)?
            .iter()
            .map(|part| self.ip_packet(part))
            .collect())
    }

    /// Returns the frame with this payload. An EtherType set with [`Self::ethertype`] takes precedence over
    /// `ethertype`.
    #[must_use]
    pub fn frame(&self, ethertype: EtherType, payload: &[u8]) -> Vec<u8> {
        let ethertype = self.ethertype.unwrap_or(ethertype);
        let header = EthernetHeader {
            src: self.src,
            dst: self.dst,
            tags: self.tags.clone(),
            ethertype,
        };
        let mut frame = Vec::new();
        header.emit(&mut frame);
        frame.extend(payload);
        frame.resize(frame.len() + self.padding, 0);
        frame
    }
}
