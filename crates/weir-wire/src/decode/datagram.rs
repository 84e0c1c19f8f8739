//! Decodes an IP packet into a [`Datagram`], with encapsulated packets up to a maximum depth.

use std::net::IpAddr;

use crate::bytes::{tail, u16_at};
use crate::checksum::{Sum, pseudo_header};
use crate::decode::{
    ChecksumState, Datagram, DecodeOptions, FragmentInfo, IpHeader, Transport, TunnelHeader,
};
use crate::error::ParseError;
use crate::gre::GreView;
use crate::gue::GueView;
use crate::icmp4::Icmpv4View;
use crate::icmp6::Icmpv6View;
use crate::ipv4::Ipv4View;
use crate::ipv6::Ipv6View;
use crate::ipv6::extension::{FragmentHeader, Ipv6Chain};
use crate::ndp::NeighborMessage;
use crate::protocol::{EtherType, IpProtocol};
use crate::tcp::TcpView;
use crate::udp::UdpView;

/// Maximum depth of encapsulated and quoted packets.
const MAX_DEPTH: usize = 4;

/// A decoder with its options.
#[derive(Clone, Copy)]
pub(crate) struct Decoder<'a> {
    pub(crate) options: &'a DecodeOptions,
}

/// The position of a packet within its outer packets.
#[derive(Clone, Copy)]
struct Position {
    /// Offset in the caller's bytes.
    offset: usize,
    /// Number of packets that enclose this packet.
    depth: usize,
    /// Whether an ICMP error quotes the packet. A quoted packet can be truncated.
    is_quoted: bool,
}

/// A transport header, the state of its checksum, and the length of the header in bytes.
type DecodedTransport = (Transport, ChecksumState, usize);

/// Input for decoding a transport header.
struct Segment<'a> {
    bytes: &'a [u8],
    protocol: IpProtocol,
    src: IpAddr,
    dst: IpAddr,
    /// Whether the segment is complete: it is neither a fragment nor truncated.
    is_complete: bool,
    position: Position,
}

impl Segment<'_> {
    /// Returns the sum of the pseudo header for `length` bytes. A UDP datagram can be shorter than the IP payload.
    fn pseudo_header(&self, length: usize) -> Sum {
        pseudo_header(self.src, self.dst, self.protocol, length)
    }
}

impl Decoder<'_> {
    /// Decodes an IPv4 packet at `offset` in the caller's bytes.
    pub(crate) fn decode_ipv4(self, offset: usize, bytes: &[u8]) -> Result<Datagram, ParseError> {
        self.decode_ipv4_at(
            Position {
                offset,
                depth: 0,
                is_quoted: false,
            },
            bytes,
        )
    }

    /// Decodes an IPv6 packet at `offset` in the caller's bytes.
    pub(crate) fn decode_ipv6(self, offset: usize, bytes: &[u8]) -> Result<Datagram, ParseError> {
        self.decode_ipv6_at(
            Position {
                offset,
                depth: 0,
                is_quoted: false,
            },
            bytes,
        )
    }

    fn decode_ipv4_at(self, position: Position, bytes: &[u8]) -> Result<Datagram, ParseError> {
        let view = if position.is_quoted {
            Ipv4View::from_quoted(bytes)?
        } else {
            Ipv4View::new(bytes)?
        };
        let header = view.header();
        let fragment = header.fragment.is_fragment().then(|| FragmentInfo {
            id: header.id.into(),
            offset_bytes: header.fragment.offset_bytes(),
            more: header.fragment.more(),
        });
        self.decode_datagram(
            position,
            IpHeader::V4(header),
            Body {
                payload: view.payload(),
                header_len: view.header_len(),
                protocol: view.protocol(),
                fragment,
                is_complete: view.is_complete(),
                header_checksum: view.is_checksum_valid().into(),
            },
        )
    }

    fn decode_ipv6_at(self, position: Position, bytes: &[u8]) -> Result<Datagram, ParseError> {
        let view = if position.is_quoted {
            Ipv6View::from_quoted(bytes)?
        } else {
            Ipv6View::new(bytes)?
        };
        let chain = Ipv6Chain::parse(view.next_header(), view.payload())?;
        let fragment = chain
            .fragment
            .filter(|fragment: &FragmentHeader| fragment.is_fragment());
        let body = Body {
            payload: tail(view.payload(), chain.len),
            header_len: Ipv6View::HEADER_LEN + chain.len,
            protocol: chain.protocol,
            fragment: fragment.map(|fragment| FragmentInfo {
                id: fragment.id,
                offset_bytes: fragment.offset_bytes.into(),
                more: fragment.more,
            }),
            is_complete: view.is_complete(),
            header_checksum: ChecksumState::Absent,
        };
        self.decode_datagram(position, IpHeader::V6(view.header(), chain), body)
    }

    fn decode_datagram(
        self,
        position: Position,
        ip: IpHeader,
        body: Body<'_>,
    ) -> Result<Datagram, ParseError> {
        let payload_offset = position.offset + body.header_len;
        let mut datagram = Datagram {
            ip,
            range: position.offset..payload_offset + body.payload.len(),
            complete: body.is_complete,
            header_checksum: body.header_checksum,
            fragment: body.fragment,
            protocol: body.protocol,
            transport: Transport::Opaque { error: None },
            transport_checksum: ChecksumState::Unknown,
            payload: payload_offset..payload_offset + body.payload.len(),
        };
        if body
            .fragment
            .is_some_and(|fragment| fragment.offset_bytes != 0)
        {
            return Ok(datagram);
        }
        let segment = Segment {
            bytes: body.payload,
            protocol: body.protocol,
            src: datagram.src(),
            dst: datagram.dst(),
            is_complete: body.is_complete && body.fragment.is_none(),
            position: Position {
                offset: payload_offset,
                ..position
            },
        };
        let header_len;
        (datagram.transport, datagram.transport_checksum, header_len) = if segment.is_complete {
            self.decode_complete_segment(&segment)?
        } else {
            self.decode_truncated_segment(&segment)
        };
        datagram.payload.start = (payload_offset + header_len).min(datagram.payload.end);
        Ok(datagram)
    }

    /// Decodes a complete segment. Inconsistencies are errors.
    fn decode_complete_segment(
        self,
        segment: &Segment<'_>,
    ) -> Result<DecodedTransport, ParseError> {
        let bytes = segment.bytes;
        match segment.protocol {
            IpProtocol::TCP => {
                let view = TcpView::new(bytes)?;
                let checksum = view
                    .is_checksum_valid(segment.pseudo_header(bytes.len()))
                    .into();
                Ok((Transport::Tcp(view.header()), checksum, view.header_len()))
            }
            IpProtocol::UDP => self.decode_udp(segment),
            IpProtocol::ICMP => {
                let view = Icmpv4View::new(bytes)?;
                let message = view.message();
                let quoted = self.decode_quoted(segment, message.is_error(), Self::decode_ipv4_at);
                let transport = Transport::Icmp4 { message, quoted };
                Ok((
                    transport,
                    view.is_checksum_valid().into(),
                    Icmpv4View::HEADER_LEN,
                ))
            }
            IpProtocol::ICMPV6 => {
                let view = Icmpv6View::new(bytes)?;
                let message = view.message();
                let quoted = self.decode_quoted(segment, message.is_error(), Self::decode_ipv6_at);
                let neighbor = NeighborMessage::parse(bytes).ok();
                let transport = Transport::Icmp6 {
                    message,
                    neighbor,
                    quoted,
                };
                Ok((
                    transport,
                    view.is_checksum_valid(segment.pseudo_header(bytes.len()))
                        .into(),
                    Icmpv6View::HEADER_LEN,
                ))
            }
            IpProtocol::IPIP | IpProtocol::IPV6 => {
                let (transport, _) =
                    self.decode_tunnel(segment, TunnelHeader::Ip, segment.protocol, 0, bytes);
                Ok((transport, ChecksumState::Absent, 0))
            }
            IpProtocol::GRE => Ok(self.decode_gre(segment)),
            _ => Ok((Transport::Opaque { error: None }, ChecksumState::Unknown, 0)),
        }
    }

    /// Decodes the available part of a TCP, UDP or ICMP segment that is truncated or continues in further fragments.
    fn decode_truncated_segment(self, segment: &Segment<'_>) -> DecodedTransport {
        let bytes = segment.bytes;
        let ports = || Transport::Ports {
            src_port: u16_at(bytes, 0),
            dst_port: u16_at(bytes, 2),
        };
        let (transport, header_len) = match segment.protocol {
            IpProtocol::TCP | IpProtocol::UDP if bytes.len() < 4 => {
                (Transport::Opaque { error: None }, 0)
            }
            IpProtocol::TCP => match TcpView::new(bytes) {
                Ok(view) => (Transport::Tcp(view.header()), view.header_len()),
                Err(_) => (ports(), 4),
            },
            IpProtocol::UDP => match UdpView::from_first_fragment(bytes) {
                Ok(view) => (Transport::Udp(view.header()), UdpView::HEADER_LEN),
                Err(_) => (ports(), 4),
            },
            IpProtocol::ICMP if let Ok(view) = Icmpv4View::new(bytes) => (
                Transport::Icmp4 {
                    message: view.message(),
                    quoted: None,
                },
                Icmpv4View::HEADER_LEN,
            ),
            IpProtocol::ICMPV6 if let Ok(view) = Icmpv6View::new(bytes) => {
                let message = view.message();
                (
                    Transport::Icmp6 {
                        message,
                        neighbor: None,
                        quoted: None,
                    },
                    Icmpv6View::HEADER_LEN,
                )
            }
            _ => (Transport::Opaque { error: None }, 0),
        };
        (transport, ChecksumState::Unknown, header_len)
    }

    fn decode_udp(self, segment: &Segment<'_>) -> Result<DecodedTransport, ParseError> {
        let view = UdpView::new(segment.bytes)?;
        let udp = view.header();
        let checksum = match view.is_checksum_valid(segment.pseudo_header(view.length())) {
            Some(valid) => valid.into(),
            None => ChecksumState::Absent,
        };
        let without_tunnel = (Transport::Udp(udp), checksum, UdpView::HEADER_LEN);
        if !self.options.gue_ports.contains(&udp.dst_port) {
            return Ok(without_tunnel);
        }
        let Ok(gue) = GueView::new(view.payload()) else {
            return Ok(without_tunnel);
        };
        let header = TunnelHeader::Gue(udp, gue.header());
        let header_len = UdpView::HEADER_LEN + gue.header_len();
        let (transport, is_decoded) = match gue.header().remote_checksum {
            None => self.decode_tunnel(
                segment,
                header,
                gue.header().protocol,
                header_len,
                gue.payload(),
            ),
            Some(remote) => {
                let mut inner = gue.payload().to_vec();
                remote.complete(&mut inner);
                self.decode_tunnel(segment, header, gue.header().protocol, header_len, &inner)
            }
        };
        Ok(if is_decoded {
            (transport, checksum, header_len)
        } else {
            without_tunnel
        })
    }

    fn decode_gre(self, segment: &Segment<'_>) -> DecodedTransport {
        let view = match GreView::new(segment.bytes) {
            Ok(view) => view,
            Err(error) => {
                return (
                    Transport::Opaque { error: Some(error) },
                    ChecksumState::Unknown,
                    0,
                );
            }
        };
        let checksum = view
            .is_checksum_valid()
            .map_or(ChecksumState::Absent, ChecksumState::from);
        let header = view.header();
        let protocol = match header.protocol {
            EtherType::IPV4 => IpProtocol::IPIP,
            EtherType::IPV6 => IpProtocol::IPV6,
            _ => {
                return (
                    Transport::Opaque { error: None },
                    checksum,
                    header.header_len(),
                );
            }
        };
        let (transport, _) = self.decode_tunnel(
            segment,
            TunnelHeader::Gre(header),
            protocol,
            header.header_len(),
            view.payload(),
        );
        (transport, checksum, header.header_len())
    }

    /// Decodes the packet in a tunnel. Returns the tunnel, or undecoded bytes with the error, and whether the packet
    /// was decoded.
    fn decode_tunnel(
        self,
        segment: &Segment<'_>,
        header: TunnelHeader,
        protocol: IpProtocol,
        header_len: usize,
        inner: &[u8],
    ) -> (Transport, bool) {
        let position = Position {
            offset: segment.position.offset + header_len,
            depth: segment.position.depth + 1,
            ..segment.position
        };
        let inner = match protocol {
            _ if position.depth > MAX_DEPTH => return (Transport::Opaque { error: None }, false),
            IpProtocol::IPIP => self.decode_ipv4_at(position, inner),
            IpProtocol::IPV6 => self.decode_ipv6_at(position, inner),
            _ => return (Transport::Opaque { error: None }, false),
        };
        match inner {
            Ok(inner) => (
                Transport::Tunnel {
                    header,
                    inner: Box::new(inner),
                },
                true,
            ),
            Err(error) => (Transport::Opaque { error: Some(error) }, false),
        }
    }

    fn decode_quoted(
        self,
        segment: &Segment<'_>,
        is_error: bool,
        decode: fn(Self, Position, &[u8]) -> Result<Datagram, ParseError>,
    ) -> Option<Box<Datagram>> {
        let position = Position {
            offset: segment.position.offset + Icmpv4View::HEADER_LEN,
            depth: segment.position.depth + 1,
            is_quoted: true,
        };
        if !is_error || position.depth > MAX_DEPTH {
            return None;
        }
        decode(self, position, tail(segment.bytes, Icmpv4View::HEADER_LEN))
            .ok()
            .map(Box::new)
    }
}

/// The payload of an IP header of either family.
struct Body<'a> {
    payload: &'a [u8],
    header_len: usize,
    protocol: IpProtocol,
    fragment: Option<FragmentInfo>,
    is_complete: bool,
    header_checksum: ChecksumState,
}
