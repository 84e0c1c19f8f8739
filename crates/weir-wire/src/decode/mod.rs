//! Decodes complete packets into values, for tests and for the reference model.
//!
//! A malformed outer packet is an error. Errors in the content of a tunnel or in the packet that an ICMP error quotes
//! do not invalidate the outer packet. Fragments are not reassembled.

pub(crate) mod datagram;
pub(crate) mod describe;

use std::net::IpAddr;
use std::ops::Range;

use crate::arp::ArpPacket;
use crate::bytes::u8_at;
use crate::decode::datagram::Decoder;
use crate::error::{Layer, ParseError};
use crate::ethernet::{EthernetHeader, EthernetView};
use crate::gre::GreHeader;
use crate::gue::GueHeader;
use crate::icmp4::Icmpv4Message;
use crate::icmp6::Icmpv6Message;
use crate::ipv4::Ipv4Header;
use crate::ipv6::Ipv6Header;
use crate::ipv6::extension::Ipv6Chain;
use crate::ndp::NeighborMessage;
use crate::protocol::{EtherType, IpProtocol};
use crate::tcp::TcpHeader;
use crate::tuple::FiveTuple;
use crate::udp::UdpHeader;
use crate::{GUE_PORT, Packet};

/// Information that decoding requires but the packet does not contain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DecodeOptions {
    /// UDP destination ports of GUE; [`GUE_PORT`] by default.
    pub gue_ports: Vec<u16>,
}

impl Default for DecodeOptions {
    fn default() -> Self {
        Self {
            gue_ports: vec![GUE_PORT],
        }
    }
}

impl Packet {
    /// Decodes a frame.
    ///
    /// # Errors
    /// Returns the first [`ParseError`], from the outermost header inward.
    pub fn parse(frame: &[u8]) -> Result<ParsedFrame, ParseError> {
        Self::parse_with(frame, &DecodeOptions::default())
    }

    /// Decodes a frame with options.
    ///
    /// # Errors
    /// See [`Self::parse`].
    pub fn parse_with(frame: &[u8], options: &DecodeOptions) -> Result<ParsedFrame, ParseError> {
        let view = EthernetView::new(frame)?;
        let decoder = Decoder { options };
        let offset = view.header_len();
        let content = match view.ethertype() {
            EtherType::ARP => Content::Arp(ArpPacket::parse(view.payload())?),
            EtherType::IPV4 => Content::Ip(Box::new(decoder.decode_ipv4(offset, view.payload())?)),
            EtherType::IPV6 => Content::Ip(Box::new(decoder.decode_ipv6(offset, view.payload())?)),
            _ => Content::Other(offset..frame.len()),
        };
        Ok(ParsedFrame {
            ethernet: view.header(),
            content,
        })
    }

    /// Decodes an IP packet without a frame.
    ///
    /// # Errors
    /// See [`Self::parse`]. Returns an IPv4 error for bytes that are neither IPv4 nor IPv6.
    pub fn parse_ip(packet: &[u8]) -> Result<Datagram, ParseError> {
        let decoder = Decoder {
            options: &DecodeOptions::default(),
        };
        match EtherType::for_ip_packet(packet) {
            Some(EtherType::IPV4) => decoder.decode_ipv4(0, packet),
            Some(_) => decoder.decode_ipv6(0, packet),
            None if packet.is_empty() => Err(ParseError::TooShort {
                layer: Layer::Ipv4,
                needed: 20,
                available: 0,
            }),
            None => Err(ParseError::BadVersion {
                layer: Layer::Ipv4,
                version: u8_at(packet, 0) >> 4,
            }),
        }
    }
}

/// A decoded frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParsedFrame {
    /// Addresses, tags and type.
    pub ethernet: EthernetHeader,
    /// The frame's payload.
    pub content: Content,
}

/// The payload of a frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Content {
    /// ARP.
    Arp(ArpPacket),
    /// IPv4 or IPv6.
    Ip(Box<Datagram>),
    /// Any other type: the payload's range in the frame.
    Other(Range<usize>),
}

/// A decoded IP packet. Ranges refer to the bytes that were passed to [`Packet::parse`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Datagram {
    /// The IP header.
    pub ip: IpHeader,
    /// The packet's bytes, without padding.
    pub range: Range<usize>,
    /// Whether the packet is complete; false only for truncated packets that ICMP errors quote.
    pub complete: bool,
    /// Validity of the IPv4 header checksum; IPv6 has no header checksum.
    pub header_checksum: ChecksumState,
    /// Position of the fragment; `None` = the packet is not a fragment.
    pub fragment: Option<FragmentInfo>,
    /// The upper-layer protocol.
    pub protocol: IpProtocol,
    /// The decoded upper-layer header.
    pub transport: Transport,
    /// Validity of the upper-layer checksum; for GUE and GRE, validity of the tunnel's checksum.
    pub transport_checksum: ChecksumState,
    /// Range of the upper-layer payload: after the TCP, UDP, ICMP or tunnel header.
    pub payload: Range<usize>,
}

/// The IP header, of either family.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum IpHeader {
    /// IPv4.
    V4(Ipv4Header),
    /// IPv6 with its extension headers.
    V6(Ipv6Header, Ipv6Chain),
}

/// The position of a fragment in its datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct FragmentInfo {
    /// Identification; 16 bits for IPv4.
    pub id: u32,
    /// Offset in bytes.
    pub offset_bytes: usize,
    /// Whether more fragments follow.
    pub more: bool,
}

/// Validity of a checksum.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ChecksumState {
    /// Valid.
    Valid,
    /// Invalid.
    Invalid,
    /// The protocol has no checksum, or the sender omitted it.
    Absent,
    /// Not verified: a fragment, a truncated quote, or a protocol that is not decoded.
    Unknown,
}

impl From<bool> for ChecksumState {
    fn from(valid: bool) -> Self {
        if valid { Self::Valid } else { Self::Invalid }
    }
}

/// The decoded upper-layer header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Transport {
    /// TCP.
    Tcp(TcpHeader),
    /// UDP.
    Udp(UdpHeader),
    /// ICMP for IPv4.
    Icmp4 {
        /// The message.
        message: Icmpv4Message,
        /// The quoted packet of an error, if it could be decoded.
        quoted: Option<Box<Datagram>>,
    },
    /// ICMPv6.
    Icmp6 {
        /// The message.
        message: Icmpv6Message,
        /// The neighbor discovery message; `None` for other messages, and if it is malformed or truncated.
        neighbor: Option<NeighborMessage>,
        /// The quoted packet of an error, if it could be decoded.
        quoted: Option<Box<Datagram>>,
    },
    /// A tunnel with decoded content.
    Tunnel {
        /// The encapsulation.
        header: TunnelHeader,
        /// The inner packet.
        inner: Box<Datagram>,
    },
    /// The ports of a truncated TCP or UDP header.
    Ports {
        /// Source port.
        src_port: u16,
        /// Destination port.
        dst_port: u16,
    },
    /// Bytes that were not decoded: a later fragment, a truncated header, an unsupported protocol, or a tunnel that is
    /// malformed or beyond the maximum depth.
    Opaque {
        /// The error in a tunnel's header or content.
        error: Option<ParseError>,
    },
}

/// The encapsulation between the outer and the inner packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TunnelHeader {
    /// IP in IP, without a header of its own.
    Ip,
    /// GRE.
    Gre(GreHeader),
    /// UDP and GUE.
    Gue(UdpHeader, GueHeader),
}

impl ParsedFrame {
    /// Returns the IP packet in the frame, if there is one.
    #[must_use]
    pub fn ip(&self) -> Option<&Datagram> {
        match &self.content {
            Content::Ip(datagram) => Some(datagram),
            Content::Arp(_) | Content::Other(_) => None,
        }
    }

    /// Returns [`Datagram::five_tuple`] of the frame's packet.
    #[must_use]
    pub fn five_tuple(&self) -> Option<FiveTuple> {
        self.ip()?.five_tuple()
    }

    /// Returns [`Datagram::tcp`] of the frame's packet.
    #[must_use]
    pub fn tcp(&self) -> Option<&TcpHeader> {
        self.ip()?.tcp()
    }

    /// Returns [`Datagram::inner`] of the frame's packet.
    #[must_use]
    pub fn inner(&self) -> Option<&Datagram> {
        self.ip()?.inner()
    }

    /// Returns [`Datagram::quoted`] of the frame's packet.
    #[must_use]
    pub fn quoted(&self) -> Option<&Datagram> {
        self.ip()?.quoted()
    }

    /// Returns [`Datagram::has_valid_checksums`] of the frame's packet, or true if the frame contains no IP packet.
    #[must_use]
    pub fn has_valid_checksums(&self) -> bool {
        self.ip().is_none_or(Datagram::has_valid_checksums)
    }
}

impl Datagram {
    /// Returns the source address.
    #[must_use]
    pub fn src(&self) -> IpAddr {
        match &self.ip {
            IpHeader::V4(header) => header.src.into(),
            IpHeader::V6(header, _) => header.src.into(),
        }
    }

    /// Returns the destination address.
    #[must_use]
    pub fn dst(&self) -> IpAddr {
        match &self.ip {
            IpHeader::V4(header) => header.dst.into(),
            IpHeader::V6(header, _) => header.dst.into(),
        }
    }

    /// Returns the time to live or hop limit.
    #[must_use]
    pub const fn ttl(&self) -> u8 {
        match &self.ip {
            IpHeader::V4(header) => header.ttl,
            IpHeader::V6(header, _) => header.hop_limit,
        }
    }

    /// Returns the DSCP and ECN bits.
    #[must_use]
    pub const fn tos(&self) -> u8 {
        match &self.ip {
            IpHeader::V4(header) => header.tos,
            IpHeader::V6(header, _) => header.traffic_class,
        }
    }

    /// Returns the source and destination port of TCP and UDP, including the outer ports of GUE.
    #[must_use]
    pub const fn ports(&self) -> Option<(u16, u16)> {
        match &self.transport {
            Transport::Tcp(tcp) => Some((tcp.src_port, tcp.dst_port)),
            Transport::Udp(udp)
            | Transport::Tunnel {
                header: TunnelHeader::Gue(udp, _),
                ..
            } => Some((udp.src_port, udp.dst_port)),
            Transport::Ports { src_port, dst_port } => Some((*src_port, *dst_port)),
            Transport::Icmp4 { .. }
            | Transport::Icmp6 { .. }
            | Transport::Tunnel { .. }
            | Transport::Opaque { .. } => None,
        }
    }

    /// Returns the five-tuple, or `None` if there are no ports, for example in a later fragment.
    #[must_use]
    pub fn five_tuple(&self) -> Option<FiveTuple> {
        let (sport, dport) = self.ports()?;
        Some(FiveTuple {
            src: self.src(),
            dst: self.dst(),
            sport,
            dport,
            protocol: self.protocol,
        })
    }

    /// Returns the TCP header, if there is one.
    #[must_use]
    pub const fn tcp(&self) -> Option<&TcpHeader> {
        match &self.transport {
            Transport::Tcp(header) => Some(header),
            _ => None,
        }
    }

    /// Returns the packet in the tunnel, if there is one.
    #[must_use]
    pub fn inner(&self) -> Option<&Self> {
        match &self.transport {
            Transport::Tunnel { inner, .. } => Some(inner),
            _ => None,
        }
    }

    /// Returns the packet that an ICMP error quotes, if it was decoded.
    #[must_use]
    pub fn quoted(&self) -> Option<&Self> {
        match &self.transport {
            Transport::Icmp4 { quoted, .. } | Transport::Icmp6 { quoted, .. } => quoted.as_deref(),
            _ => None,
        }
    }

    /// Returns whether no checksum is invalid, including checksums in tunnels. Quoted packets are ignored, because
    /// routers may have changed them.
    #[must_use]
    pub fn has_valid_checksums(&self) -> bool {
        self.header_checksum != ChecksumState::Invalid
            && self.transport_checksum != ChecksumState::Invalid
            && self.inner().is_none_or(Self::has_valid_checksums)
    }
}
