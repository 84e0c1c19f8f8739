//! Builds IPv6 packets, with extension headers.

use std::net::Ipv6Addr;

use crate::build::link::EthernetBuilder;
use crate::build::network::wrap_in_frame;
use crate::build::transport::IcmpBuilder;
use crate::bytes::{put, u8_at};
use crate::icmp6::Icmpv6Message;
use crate::ipv6::Ipv6Header;
use crate::ipv6::extension::{Extension, FragmentHeader};
use crate::ndp::NeighborMessage;
use crate::protocol::{EtherType, IpProtocol};

/// An IPv6 packet under construction.
#[derive(Debug, Clone)]
pub struct Ipv6Builder {
    link: Option<EthernetBuilder>,
    pub(super) header: Ipv6Header,
    extensions: Vec<Extension>,
    version: Option<u8>,
    payload_length: Option<u16>,
}

impl Ipv6Builder {
    pub(crate) fn new(link: Option<EthernetBuilder>, src: Ipv6Addr, dst: Ipv6Addr) -> Self {
        Self {
            link,
            header: Ipv6Header::new(src, dst, IpProtocol::NO_NEXT_HEADER),
            extensions: Vec::new(),
            version: None,
            payload_length: None,
        }
    }

    /// Sets the hop limit; 64 by default.
    #[must_use]
    pub const fn hop_limit(mut self, hop_limit: u8) -> Self {
        self.header.hop_limit = hop_limit;
        self
    }

    /// Alias for [`Self::hop_limit`].
    #[must_use]
    pub const fn ttl(self, ttl: u8) -> Self {
        self.hop_limit(ttl)
    }

    /// Sets DSCP and ECN, in the traffic class.
    #[must_use]
    pub const fn tos(mut self, tos: u8) -> Self {
        self.header.traffic_class = tos;
        self
    }

    /// Sets the flow label, 20 bits.
    #[must_use]
    pub const fn flow_label(mut self, label: u32) -> Self {
        self.header.flow_label = label;
        self
    }

    /// Appends an extension header.
    #[must_use]
    pub fn extension(mut self, extension: Extension) -> Self {
        self.extensions.push(extension);
        self
    }

    /// Appends hop-by-hop options: a single PadN.
    #[must_use]
    pub fn hop_by_hop(self) -> Self {
        self.extension(Extension::HopByHop(vec![1, 4, 0, 0, 0, 0]))
    }

    /// Appends destination options: a single PadN.
    #[must_use]
    pub fn dest_opts(self) -> Self {
        self.extension(Extension::DestOpts(vec![1, 4, 0, 0, 0, 0]))
    }

    /// Appends a routing header with the experimental type 253 and this many segments left.
    #[must_use]
    pub fn routing(self, segments_left: u8) -> Self {
        self.extension(Extension::Routing(vec![253, segments_left, 0, 0, 0, 0]))
    }

    /// Appends a fragment header. The offset is in bytes, rounded down to a multiple of eight.
    #[must_use]
    pub fn fragment_header(self, id: u32, offset_bytes: u16, more: bool) -> Self {
        self.extension(Extension::Fragment(FragmentHeader {
            id,
            offset_bytes,
            more,
        }))
    }

    /// Overrides the version field.
    #[must_use]
    pub const fn version(mut self, version: u8) -> Self {
        self.version = Some(version & 0x0f);
        self
    }

    /// Overrides the payload length field, in bytes.
    #[must_use]
    pub const fn payload_length(mut self, bytes: u16) -> Self {
        self.payload_length = Some(bytes);
        self
    }

    /// Adds an ICMPv6 message.
    #[must_use]
    pub fn icmp6(self, message: Icmpv6Message) -> IcmpBuilder {
        IcmpBuilder::v6(self.into(), message)
    }

    /// Adds a neighbor discovery message and sets the required hop limit of 255.
    #[must_use]
    pub fn neighbor(self, message: &NeighborMessage) -> IcmpBuilder {
        let (message, body) = message.to_icmp();
        self.hop_limit(255).icmp6(message).payload(&body)
    }

    pub(super) fn finish(mut self, protocol: IpProtocol, payload: &[u8]) -> Vec<u8> {
        let mut chain = Vec::new();
        for (index, extension) in self.extensions.iter().enumerate() {
            let next = self
                .extensions
                .get(index + 1)
                .map_or(protocol, Extension::protocol);
            extension.emit(next, &mut chain);
        }
        self.header.next_header = self
            .extensions
            .first()
            .map_or(protocol, Extension::protocol);
        let mut packet = Vec::new();
        self.header.emit(chain.len() + payload.len(), &mut packet);
        if let Some(version) = self.version {
            let low = u8_at(&packet, 0) & 0x0f;
            put(&mut packet, 0, &[version << 4 | low]);
        }
        if let Some(bytes) = self.payload_length {
            put(&mut packet, 4, &bytes.to_be_bytes());
        }
        packet.extend(chain);
        packet.extend(payload);
        wrap_in_frame(self.link.as_ref(), EtherType::IPV6, packet)
    }
}
