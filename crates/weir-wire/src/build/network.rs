//! Builds IP headers of either family, and the headers and payloads that can follow them.

use std::net::IpAddr;

use crate::build::ipv4::Ipv4Builder;
use crate::build::ipv6::Ipv6Builder;
use crate::build::link::EthernetBuilder;
use crate::build::transport::{IcmpBuilder, RawBuilder, TcpBuilder, UdpBuilder};
use crate::build::tunnel::{Encapsulation, GreBuilder, GueBuilder};
use crate::checksum::{Sum, mapped, pseudo_header_v4, pseudo_header_v6};
use crate::icmp4::Icmpv4Message;
use crate::icmp6::Icmpv6Message;
use crate::protocol::{EtherType, IpProtocol};

/// An IP packet of either family under construction.
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

    /// Sets the time to live or hop limit; 64 by default.
    #[must_use]
    pub fn ttl(self, ttl: u8) -> Self {
        match self {
            Self::V4(ip) => Self::V4(ip.ttl(ttl)),
            Self::V6(ip) => Self::V6(ip.hop_limit(ttl)),
        }
    }

    /// Sets DSCP and ECN.
    #[must_use]
    pub fn tos(self, tos: u8) -> Self {
        match self {
            Self::V4(ip) => Self::V4(ip.tos(tos)),
            Self::V6(ip) => Self::V6(ip.tos(tos)),
        }
    }

    /// Sets DF for IPv4. IPv6 packets are never fragmented in transit.
    #[must_use]
    pub fn dont_fragment(self) -> Self {
        match self {
            Self::V4(ip) => Self::V4(ip.dont_fragment()),
            v6 @ Self::V6(_) => v6,
        }
    }

    /// Makes the packet a fragment; see [`Ipv4Builder::fragment`] and [`Ipv6Builder::fragment_header`]. IPv4 uses the
    /// lower half of `id`.
    #[must_use]
    #[expect(clippy::cast_possible_truncation, reason = "IPv4 uses the lower half")]
    pub fn fragment(self, id: u32, offset_bytes: u16, more: bool) -> Self {
        match self {
            Self::V4(ip) => Self::V4(ip.id(id as u16).fragment(offset_bytes.into(), more)),
            Self::V6(ip) => Self::V6(ip.fragment_header(id, offset_bytes, more)),
        }
    }

    /// Builds a packet that encapsulates the IP packet `inner`.
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

    /// Returns the sum of the pseudo header for a payload of `length` bytes.
    pub(crate) fn pseudo_header(&self, protocol: IpProtocol, length: usize) -> Sum {
        match self {
            Self::V4(ip) => pseudo_header_v4(ip.header.src, ip.header.dst, protocol, length),
            Self::V6(ip) => pseudo_header_v6(ip.header.src, ip.header.dst, protocol, length),
        }
    }

    /// Returns the packet, with the Ethernet header if one was added.
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

/// Returns the packet, with the Ethernet header if one was added.
pub(super) fn wrap_in_frame(
    link: Option<&EthernetBuilder>,
    ethertype: EtherType,
    packet: Vec<u8>,
) -> Vec<u8> {
    match link {
        Some(link) => link.frame(ethertype, &packet),
        None => packet,
    }
}

/// Methods that add a payload, for all three builders.
macro_rules! payloads {
    ($($builder:ty),*) => {$(
        impl $builder {
            /// Adds TCP.
            #[must_use]
            pub fn tcp(self, sport: u16, dport: u16) -> TcpBuilder {
                TcpBuilder::new(self.into(), sport, dport)
            }

            /// Adds UDP.
            #[must_use]
            pub fn udp(self, sport: u16, dport: u16) -> UdpBuilder {
                UdpBuilder::new(self.into(), sport, dport)
            }

            /// Adds an echo request for the packet's address family.
            #[must_use]
            pub fn echo_request(self, id: u16, seq: u16) -> IcmpBuilder {
                IcmpBuilder::for_family(
                    self.into(),
                    Icmpv4Message::EchoRequest { id, seq },
                    Icmpv6Message::EchoRequest { id, seq },
                )
            }

            /// Adds an echo reply for the packet's address family.
            #[must_use]
            pub fn echo_reply(self, id: u16, seq: u16) -> IcmpBuilder {
                IcmpBuilder::for_family(
                    self.into(),
                    Icmpv4Message::EchoReply { id, seq },
                    Icmpv6Message::EchoReply { id, seq },
                )
            }

            /// Adds a port unreachable error that quotes `quoted`.
            #[must_use]
            pub fn port_unreachable(self, quoted: &[u8]) -> IcmpBuilder {
                IcmpBuilder::for_family(
                    self.into(),
                    Icmpv4Message::PORT_UNREACHABLE,
                    Icmpv6Message::PORT_UNREACHABLE,
                )
                .payload(quoted)
            }

            /// Adds a "fragmentation needed" or "packet too big" error that quotes `quoted`.
            #[must_use]
            pub fn too_big(self, mtu: u16, quoted: &[u8]) -> IcmpBuilder {
                IcmpBuilder::for_family(
                    self.into(),
                    Icmpv4Message::FragmentationNeeded { mtu },
                    Icmpv6Message::PacketTooBig { mtu: mtu.into() },
                )
                .payload(quoted)
            }

            /// Adds a "time exceeded in transit" error that quotes `quoted`.
            #[must_use]
            pub fn time_exceeded(self, quoted: &[u8]) -> IcmpBuilder {
                IcmpBuilder::for_family(
                    self.into(),
                    Icmpv4Message::TimeExceeded { code: 0 },
                    Icmpv6Message::TimeExceeded { code: 0 },
                )
                .payload(quoted)
            }

            /// Adds the IP packet `inner`. Its version, IPv4 or IPv6, selects the protocol number.
            #[must_use]
            pub fn ipip(self, inner: &[u8]) -> RawBuilder {
                self.raw(IpProtocol::for_inner_packet(inner).unwrap_or(IpProtocol::IPIP), inner)
            }

            /// Adds GRE with the IP packet `inner`.
            #[must_use]
            pub fn gre(self, inner: &[u8]) -> GreBuilder {
                GreBuilder::new(self.into(), inner)
            }

            /// Adds UDP and GUE with the IP packet `inner`.
            #[must_use]
            pub fn gue(self, sport: u16, dport: u16, inner: &[u8]) -> GueBuilder {
                GueBuilder::new(self.into(), sport, dport, inner)
            }

            /// Adds arbitrary bytes as the payload, with this protocol number.
            #[must_use]
            pub fn raw(self, protocol: IpProtocol, payload: &[u8]) -> RawBuilder {
                RawBuilder::new(self.into(), protocol, payload)
            }
        }
    )*};
}

payloads!(Ipv4Builder, Ipv6Builder, IpBuilder);
