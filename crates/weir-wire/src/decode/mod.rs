//! Whole packets into values that a test asserts on and a model decides by.
//!
//! What is malformed in the packet itself is an error. What it carries further in, a tunnel's content or the packet that an
//! ICMP error quotes, is read as far as it can be: the outer packet stands whatever is inside. Nothing is reassembled.

pub(crate) mod datagram;
pub(crate) mod describe;

use std::net::IpAddr;
use std::ops::Range;

use crate::arp::ArpPacket;
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
use crate::ndp::NeighbourMessage;
use crate::octets::u8_at;
use crate::protocol::{EtherType, IpProtocol};
use crate::tcp::TcpHeader;
use crate::tuple::FiveTuple;
use crate::udp::UdpHeader;
use crate::{GUE_PORT, Packet};

/// What the bytes alone do not tell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DecodeOptions {
    /// UDP destination ports that carry GUE; [`GUE_PORT`] by default.
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
    /// The first [`ParseError`] from the outside in.
    pub fn parse(frame: &[u8]) -> Result<Parsed, ParseError> {
        Self::parse_with(frame, &DecodeOptions::default())
    }

    /// Decodes a frame with other options.
    ///
    /// # Errors
    /// As [`Self::parse`].
    pub fn parse_with(frame: &[u8], options: &DecodeOptions) -> Result<Parsed, ParseError> {
        let view = EthernetView::new(frame)?;
        let decoder = Decoder { options };
        let at = view.header_len();
        let content = match view.ethertype() {
            EtherType::ARP => Content::Arp(ArpPacket::parse(view.payload())?),
            EtherType::IPV4 => Content::Ip(Box::new(decoder.ipv4(at, view.payload())?)),
            EtherType::IPV6 => Content::Ip(Box::new(decoder.ipv6(at, view.payload())?)),
            _ => Content::Other(at..frame.len()),
        };
        Ok(Parsed {
            ethernet: view.header(),
            content,
        })
    }

    /// Decodes an IP packet without a frame.
    ///
    /// # Errors
    /// As [`Self::parse`]; bytes that are neither version are refused as IPv4.
    pub fn parse_ip(packet: &[u8]) -> Result<Datagram, ParseError> {
        let decoder = Decoder {
            options: &DecodeOptions::default(),
        };
        match EtherType::of_ip(packet) {
            Some(EtherType::IPV4) => decoder.ipv4(0, packet),
            Some(_) => decoder.ipv6(0, packet),
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

/// A frame and what is in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parsed {
    /// Addresses, tags and type.
    pub ethernet: EthernetHeader,
    /// What it carries.
    pub content: Content,
}

/// What a frame carries.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Content {
    /// ARP.
    Arp(ArpPacket),
    /// IPv4 or IPv6.
    Ip(Box<Datagram>),
    /// Any other type: where its bytes lie in the frame.
    Other(Range<usize>),
}

/// An IP packet and what is in it. Ranges count in the bytes that were given to [`Packet::parse`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Datagram {
    /// The header.
    pub ip: IpHeader,
    /// The packet's bytes, without padding.
    pub range: Range<usize>,
    /// Whether all bytes are there that the header promises; false only where an ICMP error quotes a beginning.
    pub complete: bool,
    /// The IPv4 header's checksum; IPv6 has none.
    pub header_checksum: ChecksumState,
    /// Set when the packet is a fragment.
    pub fragment: Option<FragmentInfo>,
    /// The upper protocol.
    pub protocol: IpProtocol,
    /// What was read of it.
    pub transport: Transport,
    /// Checksum of the upper protocol; of GUE and GRE the tunnel's own.
    pub transport_checksum: ChecksumState,
    /// Data of the upper protocol: behind TCP's, UDP's, ICMP's or the tunnel's header.
    pub payload: Range<usize>,
}

/// Either family's header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum IpHeader {
    /// IPv4.
    V4(Ipv4Header),
    /// IPv6 with its extension headers.
    V6(Ipv6Header, Ipv6Chain),
}

/// Which part of a datagram a fragment is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct FragmentInfo {
    /// Identification; 16 bits for IPv4.
    pub id: u32,
    /// Offset in bytes.
    pub offset_bytes: usize,
    /// Whether parts follow.
    pub more: bool,
}

/// Whether a checksum is right.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ChecksumState {
    /// Right.
    Valid,
    /// Wrong.
    Invalid,
    /// The protocol has none, or the sender left it out.
    Absent,
    /// It covers bytes that are not here: a fragment, or a quoted beginning.
    Unknown,
}

impl From<bool> for ChecksumState {
    fn from(valid: bool) -> Self {
        if valid { Self::Valid } else { Self::Invalid }
    }
}

/// What was read behind the IP header.
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
        /// The packet that an error is about, where it could be read.
        quoted: Option<Box<Datagram>>,
    },
    /// ICMPv6.
    Icmp6 {
        /// The message.
        message: Icmpv6Message,
        /// Set for neighbour discovery.
        neighbour: Option<NeighbourMessage>,
        /// The packet that an error is about, where it could be read.
        quoted: Option<Box<Datagram>>,
    },
    /// A tunnel whose content could be read.
    Tunnel {
        /// Which.
        header: TunnelHeader,
        /// The packet inside.
        inner: Box<Datagram>,
    },
    /// The ports of a TCP or UDP header that is not here in full.
    Ports {
        /// Source port.
        src_port: u16,
        /// Destination port.
        dst_port: u16,
    },
    /// Bytes that were not read: a later fragment, another protocol, a tunnel's content past the depth that is followed, or
    /// one that was refused.
    Opaque {
        /// Why a tunnel's content was refused.
        refused: Option<ParseError>,
    },
}

/// What stands between an outer and an inner packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TunnelHeader {
    /// Nothing: IP in IP.
    Ip,
    /// GRE.
    Gre(GreHeader),
    /// UDP and GUE.
    Gue(UdpHeader, GueHeader),
}

impl Parsed {
    /// The IP packet of the frame.
    #[must_use]
    pub fn ip(&self) -> Option<&Datagram> {
        match &self.content {
            Content::Ip(datagram) => Some(datagram),
            Content::Arp(_) | Content::Other(_) => None,
        }
    }

    /// [`Datagram::five_tuple`] of the frame's packet.
    #[must_use]
    pub fn five_tuple(&self) -> Option<FiveTuple> {
        self.ip()?.five_tuple()
    }

    /// [`Datagram::tcp`] of the frame's packet.
    #[must_use]
    pub fn tcp(&self) -> Option<&TcpHeader> {
        self.ip()?.tcp()
    }

    /// [`Datagram::inner`] of the frame's packet.
    #[must_use]
    pub fn inner(&self) -> Option<&Datagram> {
        self.ip()?.inner()
    }

    /// [`Datagram::quoted`] of the frame's packet.
    #[must_use]
    pub fn quoted(&self) -> Option<&Datagram> {
        self.ip()?.quoted()
    }

    /// [`Datagram::checksums_valid`] of the frame's packet; true when it has none.
    #[must_use]
    pub fn checksums_valid(&self) -> bool {
        self.ip().is_none_or(Datagram::checksums_valid)
    }
}

impl Datagram {
    /// Source address.
    #[must_use]
    pub fn src(&self) -> IpAddr {
        match &self.ip {
            IpHeader::V4(header) => header.src.into(),
            IpHeader::V6(header, _) => header.src.into(),
        }
    }

    /// Destination address.
    #[must_use]
    pub fn dst(&self) -> IpAddr {
        match &self.ip {
            IpHeader::V4(header) => header.dst.into(),
            IpHeader::V6(header, _) => header.dst.into(),
        }
    }

    /// Time to live or hop limit.
    #[must_use]
    pub const fn ttl(&self) -> u8 {
        match &self.ip {
            IpHeader::V4(header) => header.ttl,
            IpHeader::V6(header, _) => header.hop_limit,
        }
    }

    /// DSCP and ECN.
    #[must_use]
    pub const fn tos(&self) -> u8 {
        match &self.ip {
            IpHeader::V4(header) => header.tos,
            IpHeader::V6(header, _) => header.traffic_class,
        }
    }

    /// Source and destination port of TCP and UDP, GUE's included.
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

    /// What names the flow; `None` where there are no ports, as in a later fragment.
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

    /// TCP's header.
    #[must_use]
    pub const fn tcp(&self) -> Option<&TcpHeader> {
        match &self.transport {
            Transport::Tcp(header) => Some(header),
            _ => None,
        }
    }

    /// The packet in the tunnel.
    #[must_use]
    pub fn inner(&self) -> Option<&Self> {
        match &self.transport {
            Transport::Tunnel { inner, .. } => Some(inner),
            _ => None,
        }
    }

    /// The packet that an ICMP error quotes.
    #[must_use]
    pub fn quoted(&self) -> Option<&Self> {
        match &self.transport {
            Transport::Icmp4 { quoted, .. } | Transport::Icmp6 { quoted, .. } => quoted.as_deref(),
            _ => None,
        }
    }

    /// Whether no checksum is wrong, through all tunnels; quoted packets do not count, their senders' routers may have
    /// changed them.
    #[must_use]
    pub fn checksums_valid(&self) -> bool {
        self.header_checksum != ChecksumState::Invalid
            && self.transport_checksum != ChecksumState::Invalid
            && self.inner().is_none_or(Self::checksums_valid)
    }
}
