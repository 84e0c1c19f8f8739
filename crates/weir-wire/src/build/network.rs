//! IP headers of the builder, and what may follow either.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::build::ChecksumChoice;
use crate::build::link::EthernetBuilder;
use crate::build::transport::{IcmpBuilder, RawBuilder, TcpBuilder, UdpBuilder};
use crate::build::tunnel::{Encapsulation, GreBuilder, GueBuilder};
use crate::checksum::{Sum, mapped, pseudo_header_v4, pseudo_header_v6};
use crate::icmp4::Icmpv4Message;
use crate::icmp6::Icmpv6Message;
use crate::ipv4::{Ipv4Fragment, Ipv4Header};
use crate::ipv6::Ipv6Header;
use crate::ipv6::extension::{Extension, FragmentHeader};
use crate::ndp::NeighbourMessage;
use crate::octets::{put, u8_at};
use crate::options::HeaderOptions;
use crate::protocol::{EtherType, IpProtocol};

/// An IPv4 packet in the making.
#[derive(Debug, Clone)]
pub struct Ipv4Builder {
    link: Option<EthernetBuilder>,
    header: Ipv4Header,
    version: Option<u8>,
    header_words: Option<u8>,
    total_length: Option<u16>,
    checksum: ChecksumChoice,
}

impl Ipv4Builder {
    pub(crate) fn new(link: Option<EthernetBuilder>, src: Ipv4Addr, dst: Ipv4Addr) -> Self {
        Self {
            link,
            header: Ipv4Header::new(src, dst, IpProtocol::NO_NEXT_HEADER),
            version: None,
            header_words: None,
            total_length: None,
            checksum: ChecksumChoice::Right,
        }
    }

    /// Time to live; 64 unless set.
    #[must_use]
    pub const fn ttl(mut self, ttl: u8) -> Self {
        self.header.ttl = ttl;
        self
    }

    /// DSCP and ECN.
    #[must_use]
    pub const fn tos(mut self, tos: u8) -> Self {
        self.header.tos = tos;
        self
    }

    /// Identification.
    #[must_use]
    pub const fn id(mut self, id: u16) -> Self {
        self.header.id = id;
        self
    }

    /// Sets DF.
    #[must_use]
    pub const fn dont_fragment(mut self) -> Self {
        self.header.dont_fragment = true;
        self
    }

    /// Makes the packet a fragment; the offset is in bytes of the datagram and loses its last three bits. The header that
    /// is built next still stands at the front: a later fragment is made with [`Self::raw`].
    #[must_use]
    pub const fn fragment(mut self, offset_bytes: usize, more: bool) -> Self {
        self.header.fragment = Ipv4Fragment::new(offset_bytes, more);
        self
    }

    /// Options, filled to a word; bytes past the 40th are left out.
    #[must_use]
    pub fn options(mut self, options: &[u8]) -> Self {
        self.header.options = HeaderOptions::truncated(options);
        self
    }

    /// Writes another version.
    #[must_use]
    pub const fn version(mut self, version: u8) -> Self {
        self.version = Some(version & 0x0f);
        self
    }

    /// Writes another header length, in words; the header itself stays.
    #[must_use]
    pub const fn header_words(mut self, words: u8) -> Self {
        self.header_words = Some(words & 0x0f);
        self
    }

    /// Writes another total length, in bytes; the packet itself stays.
    #[must_use]
    pub const fn total_length(mut self, bytes: u16) -> Self {
        self.total_length = Some(bytes);
        self
    }

    /// Writes a wrong header checksum.
    #[must_use]
    pub const fn bad_checksum(mut self) -> Self {
        self.checksum = ChecksumChoice::Wrong;
        self
    }

    /// Goes on with an ICMP message.
    #[must_use]
    pub fn icmp4(self, message: Icmpv4Message) -> IcmpBuilder {
        IcmpBuilder::v4(self.into(), message)
    }

    fn finish(mut self, protocol: IpProtocol, payload: &[u8]) -> Vec<u8> {
        self.header.protocol = protocol;
        let mut packet = Vec::new();
        self.header.emit(payload.len(), &mut packet);
        let first = u8_at(&packet, 0);
        let version = self.version.unwrap_or(first >> 4);
        let words = self.header_words.unwrap_or(first & 0x0f);
        put(&mut packet, 0, &[version << 4 | words]);
        if let Some(bytes) = self.total_length {
            put(&mut packet, 2, &bytes.to_be_bytes());
        }
        self.checksum.fill(&mut packet, 10, Sum::new(), false);
        packet.extend(payload);
        framed(self.link.as_ref(), EtherType::IPV4, packet)
    }
}

/// An IPv6 packet in the making.
#[derive(Debug, Clone)]
pub struct Ipv6Builder {
    link: Option<EthernetBuilder>,
    header: Ipv6Header,
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

    /// Hop limit; 64 unless set.
    #[must_use]
    pub const fn hop_limit(mut self, hop_limit: u8) -> Self {
        self.header.hop_limit = hop_limit;
        self
    }

    /// [`Self::hop_limit`] under its IPv4 name.
    #[must_use]
    pub const fn ttl(self, ttl: u8) -> Self {
        self.hop_limit(ttl)
    }

    /// DSCP and ECN, in the traffic class.
    #[must_use]
    pub const fn tos(mut self, tos: u8) -> Self {
        self.header.traffic_class = tos;
        self
    }

    /// Flow label, 20 bits.
    #[must_use]
    pub const fn flow_label(mut self, label: u32) -> Self {
        self.header.flow_label = label;
        self
    }

    /// Appends an extension header to those added before.
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

    /// Appends a routing header of the experimental type 253 with this many segments left.
    #[must_use]
    pub fn routing(self, segments_left: u8) -> Self {
        self.extension(Extension::Routing(vec![253, segments_left, 0, 0, 0, 0]))
    }

    /// Appends a fragment header; the offset is in bytes of the fragmentable part and loses its last three bits.
    #[must_use]
    pub fn fragment_header(self, id: u32, offset_bytes: u16, more: bool) -> Self {
        self.extension(Extension::Fragment(FragmentHeader {
            id,
            offset_bytes,
            more,
        }))
    }

    /// Writes another version.
    #[must_use]
    pub const fn version(mut self, version: u8) -> Self {
        self.version = Some(version & 0x0f);
        self
    }

    /// Writes another payload length, in bytes; the packet itself stays.
    #[must_use]
    pub const fn payload_length(mut self, bytes: u16) -> Self {
        self.payload_length = Some(bytes);
        self
    }

    /// Goes on with an ICMPv6 message.
    #[must_use]
    pub fn icmp6(self, message: Icmpv6Message) -> IcmpBuilder {
        IcmpBuilder::v6(self.into(), message)
    }

    /// Goes on with a neighbour discovery message, with the hop limit of 255 that receivers insist on.
    #[must_use]
    pub fn neighbour(self, message: &NeighbourMessage) -> IcmpBuilder {
        let (message, body) = message.message();
        self.hop_limit(255).icmp6(message).payload(&body)
    }

    fn finish(mut self, protocol: IpProtocol, payload: &[u8]) -> Vec<u8> {
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
        framed(self.link.as_ref(), EtherType::IPV6, packet)
    }
}

/// An IP packet in the making, of either family.
#[derive(Debug, Clone)]
pub enum IpBuilder {
    /// IPv4.
    V4(Ipv4Builder),
    /// IPv6.
    V6(Ipv6Builder),
}

impl IpBuilder {
    pub(crate) fn new(link: Option<EthernetBuilder>, src: IpAddr, dst: IpAddr) -> Self {
        match (src, dst) {
            (IpAddr::V4(src), IpAddr::V4(dst)) => Self::V4(Ipv4Builder::new(link, src, dst)),
            (src, dst) => Self::V6(Ipv6Builder::new(link, mapped(src), mapped(dst))),
        }
    }

    /// Time to live or hop limit; 64 unless set.
    #[must_use]
    pub fn ttl(self, ttl: u8) -> Self {
        match self {
            Self::V4(ip) => Self::V4(ip.ttl(ttl)),
            Self::V6(ip) => Self::V6(ip.hop_limit(ttl)),
        }
    }

    /// DSCP and ECN.
    #[must_use]
    pub fn tos(self, tos: u8) -> Self {
        match self {
            Self::V4(ip) => Self::V4(ip.tos(tos)),
            Self::V6(ip) => Self::V6(ip.tos(tos)),
        }
    }

    /// Sets DF where there is one: IPv6 is never fragmented on the way.
    #[must_use]
    pub fn dont_fragment(self) -> Self {
        match self {
            Self::V4(ip) => Self::V4(ip.dont_fragment()),
            v6 @ Self::V6(_) => v6,
        }
    }

    /// Makes the packet a fragment, as [`Ipv4Builder::fragment`] and [`Ipv6Builder::fragment_header`] do; IPv4 takes the
    /// lower half of `id`.
    #[must_use]
    #[expect(
        clippy::cast_possible_truncation,
        reason = "the lower half is what is asked for"
    )]
    pub fn fragment(self, id: u32, offset_bytes: u16, more: bool) -> Self {
        match self {
            Self::V4(ip) => Self::V4(ip.id(id as u16).fragment(offset_bytes.into(), more)),
            Self::V6(ip) => Self::V6(ip.fragment_header(id, offset_bytes, more)),
        }
    }

    /// The packet around an IP packet.
    #[must_use]
    pub fn encapsulate(self, encapsulation: Encapsulation, inner: &[u8]) -> Vec<u8> {
        match encapsulation {
            Encapsulation::Ipip => self.ipip(inner).build(),
            Encapsulation::Gre { checksum: false } => self.gre(inner).build(),
            Encapsulation::Gre { checksum: true } => self.gre(inner).checksum().build(),
            Encapsulation::Gue {
                sport,
                dport,
                checksum,
            } => self.gue(sport, dport, inner).checksum(checksum).build(),
        }
    }

    /// The pseudo header of a payload of `length` bytes.
    pub(crate) fn pseudo_header(&self, protocol: IpProtocol, length: usize) -> Sum {
        match self {
            Self::V4(ip) => pseudo_header_v4(ip.header.src, ip.header.dst, protocol, length),
            Self::V6(ip) => pseudo_header_v6(ip.header.src, ip.header.dst, protocol, length),
        }
    }

    /// The packet, in its frame where it has one.
    pub(crate) fn finish(self, protocol: IpProtocol, payload: &[u8]) -> Vec<u8> {
        match self {
            Self::V4(ip) => ip.finish(protocol, payload),
            Self::V6(ip) => ip.finish(protocol, payload),
        }
    }
}

impl From<Ipv4Builder> for IpBuilder {
    fn from(ip: Ipv4Builder) -> Self {
        Self::V4(ip)
    }
}

impl From<Ipv6Builder> for IpBuilder {
    fn from(ip: Ipv6Builder) -> Self {
        Self::V6(ip)
    }
}

fn framed(link: Option<&EthernetBuilder>, ethertype: EtherType, packet: Vec<u8>) -> Vec<u8> {
    match link {
        Some(link) => link.carry(ethertype, &packet),
        None => packet,
    }
}

/// What follows an IP header of any family, the same on all three builders.
macro_rules! carries {
    ($($builder:ty),*) => {$(
        impl $builder {
            /// Goes on with TCP.
            #[must_use]
            pub fn tcp(self, sport: u16, dport: u16) -> TcpBuilder {
                TcpBuilder::new(self.into(), sport, dport)
            }

            /// Goes on with UDP.
            #[must_use]
            pub fn udp(self, sport: u16, dport: u16) -> UdpBuilder {
                UdpBuilder::new(self.into(), sport, dport)
            }

            /// Goes on with an echo request of the family.
            #[must_use]
            pub fn echo_request(self, id: u16, seq: u16) -> IcmpBuilder {
                IcmpBuilder::of_family(
                    self.into(),
                    Icmpv4Message::EchoRequest { id, seq },
                    Icmpv6Message::EchoRequest { id, seq },
                )
            }

            /// Goes on with an echo reply of the family.
            #[must_use]
            pub fn echo_reply(self, id: u16, seq: u16) -> IcmpBuilder {
                IcmpBuilder::of_family(
                    self.into(),
                    Icmpv4Message::EchoReply { id, seq },
                    Icmpv6Message::EchoReply { id, seq },
                )
            }

            /// Goes on with the family's port unreachable, about the packet `quoted`.
            #[must_use]
            pub fn port_unreachable(self, quoted: &[u8]) -> IcmpBuilder {
                IcmpBuilder::of_family(
                    self.into(),
                    Icmpv4Message::PORT_UNREACHABLE,
                    Icmpv6Message::PORT_UNREACHABLE,
                )
                .payload(quoted)
            }

            /// Goes on with the family's "too big" about the packet `quoted`: fragmentation needed, or packet too big.
            #[must_use]
            pub fn too_big(self, mtu: u16, quoted: &[u8]) -> IcmpBuilder {
                IcmpBuilder::of_family(
                    self.into(),
                    Icmpv4Message::FragmentationNeeded { mtu },
                    Icmpv6Message::PacketTooBig { mtu: mtu.into() },
                )
                .payload(quoted)
            }

            /// Goes on with the family's "time exceeded in transit" about the packet `quoted`.
            #[must_use]
            pub fn time_exceeded(self, quoted: &[u8]) -> IcmpBuilder {
                IcmpBuilder::of_family(
                    self.into(),
                    Icmpv4Message::TimeExceeded { code: 0 },
                    Icmpv6Message::TimeExceeded { code: 0 },
                )
                .payload(quoted)
            }

            /// Goes on with the IP packet `inner`, by its version IPv4 or IPv6.
            #[must_use]
            pub fn ipip(self, inner: &[u8]) -> RawBuilder {
                self.raw(IpProtocol::of_inner(inner).unwrap_or(IpProtocol::IPIP), inner)
            }

            /// Goes on with GRE around the IP packet `inner`.
            #[must_use]
            pub fn gre(self, inner: &[u8]) -> GreBuilder {
                GreBuilder::new(self.into(), inner)
            }

            /// Goes on with GUE in UDP around the IP packet `inner`.
            #[must_use]
            pub fn gue(self, sport: u16, dport: u16, inner: &[u8]) -> GueBuilder {
                GueBuilder::new(self.into(), sport, dport, inner)
            }

            /// Goes on with any bytes of any protocol.
            #[must_use]
            pub fn raw(self, protocol: IpProtocol, payload: &[u8]) -> RawBuilder {
                RawBuilder::new(self.into(), protocol, payload)
            }
        }
    )*};
}

carries!(Ipv4Builder, Ipv6Builder, IpBuilder);
