//! Builds TCP, UDP, ICMP and raw payloads.

use crate::build::ChecksumChoice;
use crate::build::network::IpBuilder;
use crate::bytes::{put, u8_at};
use crate::checksum::Sum;
use crate::icmp4::{Icmpv4Message, Icmpv4View};
use crate::icmp6::{Icmpv6Message, Icmpv6View};
use crate::options::HeaderOptions;
use crate::protocol::{IpProtocol, TcpFlags};
use crate::tcp::{TcpHeader, TcpView};
use crate::udp::{UdpHeader, UdpView};

/// A TCP segment under construction.
#[derive(Debug, Clone)]
pub struct TcpBuilder {
    ip: IpBuilder,
    header: TcpHeader,
    payload: Vec<u8>,
    data_offset: Option<u8>,
    checksum: ChecksumChoice,
}

impl TcpBuilder {
    pub(crate) fn new(ip: IpBuilder, sport: u16, dport: u16) -> Self {
        Self {
            ip,
            header: TcpHeader::new(sport, dport),
            payload: Vec::new(),
            data_offset: None,
            checksum: ChecksumChoice::Valid,
        }
    }

    /// Sets the sequence number.
    #[must_use]
    pub const fn seq(mut self, seq: u32) -> Self {
        self.header.seq = seq;
        self
    }

    /// Sets the acknowledgement number, but not the ACK flag.
    #[must_use]
    pub const fn ack_no(mut self, ack: u32) -> Self {
        self.header.ack = ack;
        self
    }

    /// Sets the control bits, replacing the previous control bits; none by default.
    #[must_use]
    pub const fn flags(mut self, flags: TcpFlags) -> Self {
        self.header.flags = flags;
        self
    }

    /// Sets the window; 65535 by default.
    #[must_use]
    pub const fn window(mut self, window: u16) -> Self {
        self.header.window = window;
        self
    }

    /// Sets the options, padded to a word. Bytes after the 40th are omitted.
    #[must_use]
    pub fn options(mut self, options: &[u8]) -> Self {
        self.header.options = HeaderOptions::truncated(options);
        self
    }

    /// Sets the data.
    #[must_use]
    pub fn payload(mut self, payload: &[u8]) -> Self {
        self.payload = payload.to_vec();
        self
    }

    /// Overrides the data offset field, in words.
    #[must_use]
    pub const fn data_offset(mut self, words: u8) -> Self {
        self.data_offset = Some(words & 0x0f);
        self
    }

    /// Writes a wrong checksum.
    #[must_use]
    pub const fn bad_checksum(mut self) -> Self {
        self.checksum = ChecksumChoice::Invalid;
        self
    }

    /// Sets the checksum field to this value.
    #[must_use]
    pub const fn checksum(mut self, value: u16) -> Self {
        self.checksum = ChecksumChoice::Value(value);
        self
    }

    /// Returns the packet, with the Ethernet header if one was added.
    #[must_use]
    pub fn build(self) -> Vec<u8> {
        let mut segment = Vec::new();
        self.header.emit(&self.payload, Sum::new(), &mut segment);
        if let Some(words) = self.data_offset {
            let low = u8_at(&segment, 12) & 0x0f;
            put(&mut segment, 12, &[words << 4 | low]);
        }
        let pseudo_header = self.ip.pseudo_header(IpProtocol::TCP, segment.len());
        self.checksum
            .fill(&mut segment, TcpView::CHECKSUM_OFFSET, pseudo_header, false);
        self.ip.finish(IpProtocol::TCP, &segment)
    }
}

/// A UDP datagram under construction.
#[derive(Debug, Clone)]
pub struct UdpBuilder {
    ip: IpBuilder,
    header: UdpHeader,
    payload: Vec<u8>,
    length: Option<u16>,
    checksum: ChecksumChoice,
}

impl UdpBuilder {
    pub(crate) fn new(ip: IpBuilder, sport: u16, dport: u16) -> Self {
        let header = UdpHeader {
            src_port: sport,
            dst_port: dport,
        };
        Self {
            ip,
            header,
            payload: Vec::new(),
            length: None,
            checksum: ChecksumChoice::Valid,
        }
    }

    /// Sets the data.
    #[must_use]
    pub fn payload(mut self, payload: &[u8]) -> Self {
        self.payload = payload.to_vec();
        self
    }

    /// Overrides the length field, in bytes.
    #[must_use]
    pub const fn length(mut self, bytes: u16) -> Self {
        self.length = Some(bytes);
        self
    }

    /// Omits the checksum (zero).
    #[must_use]
    pub const fn zero_udp_checksum(self) -> Self {
        self.checksum(0)
    }

    /// Writes a wrong checksum.
    #[must_use]
    pub const fn bad_checksum(mut self) -> Self {
        self.checksum = ChecksumChoice::Invalid;
        self
    }

    /// Sets the checksum field to this value.
    #[must_use]
    pub const fn checksum(mut self, value: u16) -> Self {
        self.checksum = ChecksumChoice::Value(value);
        self
    }

    /// Returns the packet, with the Ethernet header if one was added.
    #[must_use]
    pub fn build(self) -> Vec<u8> {
        let mut datagram = Vec::new();
        self.header.emit(&self.payload, None, &mut datagram);
        if let Some(bytes) = self.length {
            put(&mut datagram, 4, &bytes.to_be_bytes());
        }
        let pseudo_header = self.ip.pseudo_header(IpProtocol::UDP, datagram.len());
        self.checksum
            .fill(&mut datagram, UdpView::CHECKSUM_OFFSET, pseudo_header, true);
        self.ip.finish(IpProtocol::UDP, &datagram)
    }
}

/// An ICMP message of either family.
#[derive(Debug, Clone, Copy)]
enum IcmpMessage {
    V4(Icmpv4Message),
    V6(Icmpv6Message),
}

/// An ICMP or ICMPv6 message under construction.
#[derive(Debug, Clone)]
pub struct IcmpBuilder {
    ip: IpBuilder,
    message: IcmpMessage,
    payload: Vec<u8>,
    checksum: ChecksumChoice,
}

impl IcmpBuilder {
    fn new(ip: IpBuilder, message: IcmpMessage) -> Self {
        Self {
            ip,
            message,
            payload: Vec::new(),
            checksum: ChecksumChoice::Valid,
        }
    }

    pub(crate) fn v4(ip: IpBuilder, message: Icmpv4Message) -> Self {
        Self::new(ip, IcmpMessage::V4(message))
    }

    pub(crate) fn v6(ip: IpBuilder, message: Icmpv6Message) -> Self {
        Self::new(ip, IcmpMessage::V6(message))
    }

    pub(crate) fn for_family(ip: IpBuilder, v4: Icmpv4Message, v6: Icmpv6Message) -> Self {
        match ip {
            IpBuilder::V4(_) => Self::v4(ip, v4),
            IpBuilder::V6(_) => Self::v6(ip, v6),
        }
    }

    /// Sets the data of an echo message, or the packet that an error quotes.
    #[must_use]
    pub fn payload(mut self, payload: &[u8]) -> Self {
        self.payload = payload.to_vec();
        self
    }

    /// Writes a wrong checksum.
    #[must_use]
    pub const fn bad_checksum(mut self) -> Self {
        self.checksum = ChecksumChoice::Invalid;
        self
    }

    /// Returns the packet, with the Ethernet header if one was added.
    #[must_use]
    pub fn build(self) -> Vec<u8> {
        let mut bytes = Vec::new();
        let (protocol, offset, pseudo_header) = match self.message {
            IcmpMessage::V4(message) => {
                message.emit(&self.payload, &mut bytes);
                (IpProtocol::ICMP, Icmpv4View::CHECKSUM_OFFSET, Sum::new())
            }
            IcmpMessage::V6(message) => {
                message.emit(&self.payload, Sum::new(), &mut bytes);
                let pseudo_header = self.ip.pseudo_header(IpProtocol::ICMPV6, bytes.len());
                (
                    IpProtocol::ICMPV6,
                    Icmpv6View::CHECKSUM_OFFSET,
                    pseudo_header,
                )
            }
        };
        self.checksum.fill(&mut bytes, offset, pseudo_header, false);
        self.ip.finish(protocol, &bytes)
    }
}

/// Raw bytes after an IP header, for other protocols, later fragments and encapsulated packets.
#[derive(Debug, Clone)]
pub struct RawBuilder {
    ip: IpBuilder,
    protocol: IpProtocol,
    payload: Vec<u8>,
}

impl RawBuilder {
    pub(crate) fn new(ip: IpBuilder, protocol: IpProtocol, payload: &[u8]) -> Self {
        Self {
            ip,
            protocol,
            payload: payload.to_vec(),
        }
    }

    /// Returns the packet, with the Ethernet header if one was added.
    #[must_use]
    pub fn build(self) -> Vec<u8> {
        self.ip.finish(self.protocol, &self.payload)
    }
}
