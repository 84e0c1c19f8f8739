//! Encapsulates IP packets: the outer headers and the tunnel header.

use std::net::IpAddr;

use crate::Packet;
use crate::build::ChecksumChoice;
use crate::build::network::IpBuilder;
use crate::bytes::tail;
use crate::checksum::{Sum, pseudo_header};
use crate::gre::{GreHeader, GreView};
use crate::gue::{GueHeader, RemoteChecksum};
use crate::ipv4::Ipv4View;
use crate::ipv6::Ipv6View;
use crate::ipv6::extension::Ipv6Chain;
use crate::protocol::{EtherType, IpProtocol};
use crate::tcp::TcpView;
use crate::udp::UdpView;

/// How the inner checksum and the outer UDP checksum of a GUE packet are computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum GueChecksum {
    /// The outer UDP checksum is zero.
    #[default]
    None,
    /// The outer UDP checksum covers the complete datagram.
    Full,
    /// The outer UDP checksum covers the complete datagram, and the receiver completes the inner checksum. Without the
    /// outer checksum, the receiver would accept a corrupted packet. Equivalent to `Full` if there is no inner checksum
    /// to complete: for protocols other than TCP and UDP, for fragments, and for UDP without a checksum.
    Remote,
}

/// The encapsulation of a tunnel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Encapsulation {
    /// IP in IP (RFC 2003, RFC 2473, RFC 4213).
    Ipip,
    /// GRE.
    Gre {
        /// Whether the packet has a GRE checksum.
        checksum: bool,
    },
    /// Generic UDP Encapsulation (GUE).
    Gue {
        /// Outer source port, for path selection.
        sport: u16,
        /// Outer destination port, [`crate::GUE_PORT`] by default.
        dport: u16,
        /// Checksum mode.
        checksum: GueChecksum,
    },
}

/// Returns `inner` encapsulated with IP in IP, for any combination of address families, with TTL 64.
#[must_use]
pub fn encap_ipip(src: IpAddr, dst: IpAddr, inner: &[u8]) -> Vec<u8> {
    Packet::ip(src, dst).encapsulate(Encapsulation::Ipip, inner)
}

/// Returns `inner` encapsulated with GRE, with TTL 64.
#[must_use]
pub fn encap_gre(src: IpAddr, dst: IpAddr, checksum: bool, inner: &[u8]) -> Vec<u8> {
    Packet::ip(src, dst).encapsulate(Encapsulation::Gre { checksum }, inner)
}

/// Returns `inner` encapsulated with GUE, with the outer ports `sport` and `dport` and TTL 64.
#[must_use]
pub fn encap_gue(
    src: IpAddr,
    dst: IpAddr,
    ports: (u16, u16),
    checksum: GueChecksum,
    inner: &[u8],
) -> Vec<u8> {
    let (sport, dport) = ports;
    Packet::ip(src, dst).encapsulate(
        Encapsulation::Gue {
            sport,
            dport,
            checksum,
        },
        inner,
    )
}

/// A GRE packet under construction.
#[derive(Debug, Clone)]
pub struct GreBuilder {
    ip: IpBuilder,
    header: GreHeader,
    inner: Vec<u8>,
    checksum: ChecksumChoice,
}

impl GreBuilder {
    pub(crate) fn new(ip: IpBuilder, inner: &[u8]) -> Self {
        let protocol = EtherType::for_ip_packet(inner).unwrap_or(EtherType::IPV4);
        let header = GreHeader {
            protocol,
            checksum: false,
        };
        Self {
            ip,
            header,
            inner: inner.to_vec(),
            checksum: ChecksumChoice::Valid,
        }
    }

    /// Adds the checksum.
    #[must_use]
    pub const fn checksum(mut self) -> Self {
        self.header.checksum = true;
        self
    }

    /// Adds an invalid checksum.
    #[must_use]
    pub const fn bad_checksum(mut self) -> Self {
        self.checksum = ChecksumChoice::Invalid;
        self.checksum()
    }

    /// Overrides the protocol type.
    #[must_use]
    pub const fn protocol(mut self, protocol: EtherType) -> Self {
        self.header.protocol = protocol;
        self
    }

    /// Returns the packet, with the Ethernet header if one was added.
    #[must_use]
    pub fn build(self) -> Vec<u8> {
        let mut bytes = Vec::new();
        self.header.emit(&self.inner, &mut bytes);
        if self.header.checksum {
            self.checksum
                .fill(&mut bytes, GreView::CHECKSUM_OFFSET, Sum::new(), false);
        }
        self.ip.finish(IpProtocol::GRE, &bytes)
    }
}

/// A GUE packet under construction.
#[derive(Debug, Clone)]
pub struct GueBuilder {
    ip: IpBuilder,
    sport: u16,
    dport: u16,
    inner: Vec<u8>,
    checksum: GueChecksum,
}

impl GueBuilder {
    pub(crate) fn new(ip: IpBuilder, sport: u16, dport: u16, inner: &[u8]) -> Self {
        Self {
            ip,
            sport,
            dport,
            inner: inner.to_vec(),
            checksum: GueChecksum::None,
        }
    }

    /// Sets the checksum mode; [`GueChecksum::None`] by default.
    #[must_use]
    pub const fn checksum(mut self, checksum: GueChecksum) -> Self {
        self.checksum = checksum;
        self
    }

    /// Returns the packet, with the Ethernet header if one was added.
    #[must_use]
    pub fn build(mut self) -> Vec<u8> {
        let protocol = IpProtocol::for_inner_packet(&self.inner).unwrap_or(IpProtocol::IPIP);
        let deferrable = match self.checksum {
            GueChecksum::Remote => deferrable_checksum(&self.inner),
            GueChecksum::None | GueChecksum::Full => None,
        };
        if let Some((remote, pseudo_header)) = deferrable {
            remote.defer(&mut self.inner, pseudo_header);
        }
        let mut bytes = Vec::new();
        GueHeader {
            protocol,
            remote_checksum: deferrable.map(|(remote, _)| remote),
        }
        .emit(&mut bytes);
        bytes.extend(&self.inner);
        let udp = self.ip.udp(self.sport, self.dport).payload(&bytes);
        match self.checksum {
            GueChecksum::Full | GueChecksum::Remote => udp.build(),
            GueChecksum::None => udp.zero_udp_checksum().build(),
        }
    }
}

/// Returns the offsets of the inner checksum, and the sum of its pseudo header. Returns `None` if the inner packet has
/// no checksum that the receiver can complete.
fn deferrable_checksum(inner: &[u8]) -> Option<(RemoteChecksum, Sum)> {
    let (src, dst, protocol, start, segment): (IpAddr, IpAddr, _, _, _) =
        match EtherType::for_ip_packet(inner)? {
            EtherType::IPV4 => {
                let view = Ipv4View::new(inner).ok()?;
                if view.header().fragment.is_fragment() {
                    return None;
                }
                (
                    view.src().into(),
                    view.dst().into(),
                    view.protocol(),
                    view.header_len(),
                    view.payload(),
                )
            }
            _ => {
                let view = Ipv6View::new(inner).ok()?;
                let chain = Ipv6Chain::parse(view.next_header(), view.payload()).ok()?;
                if chain
                    .fragment
                    .is_some_and(|fragment| fragment.is_fragment())
                {
                    return None;
                }
                let segment = tail(view.payload(), chain.len);
                (
                    view.src().into(),
                    view.dst().into(),
                    chain.protocol,
                    Ipv6View::HEADER_LEN + chain.len,
                    segment,
                )
            }
        };
    let field_offset = match protocol {
        IpProtocol::TCP => TcpView::new(segment)
            .ok()
            .map(|_| TcpView::CHECKSUM_OFFSET)?,
        IpProtocol::UDP => {
            let view = UdpView::new(segment).ok()?;
            (view.checksum() != 0).then_some(UdpView::CHECKSUM_OFFSET)?
        }
        _ => return None,
    };
    let remote = RemoteChecksum {
        start: u16::try_from(start).ok()?,
        offset: u16::try_from(start + field_offset).ok()?,
    };
    Some((remote, pseudo_header(src, dst, protocol, segment.len())))
}
