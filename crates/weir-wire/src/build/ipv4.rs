//! Builds IPv4 packets.

use std::net::Ipv4Addr;

use crate::build::ChecksumChoice;
use crate::build::link::EthernetBuilder;
use crate::build::network::wrap_in_frame;
use crate::build::transport::IcmpBuilder;
use crate::bytes::{put, u8_at};
use crate::checksum::Sum;
use crate::icmp4::Icmpv4Message;
use crate::ipv4::{Ipv4Fragment, Ipv4Header};
use crate::options::HeaderOptions;
use crate::protocol::{EtherType, IpProtocol};

/// An IPv4 packet under construction.
#[derive(Debug, Clone)]
pub struct Ipv4Builder {
    link: Option<EthernetBuilder>,
    pub(super) header: Ipv4Header,
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
            checksum: ChecksumChoice::Valid,
        }
    }

    /// Sets the time to live; 64 by default.
    #[must_use]
    pub const fn ttl(mut self, ttl: u8) -> Self {
        self.header.ttl = ttl;
        self
    }

    /// Sets DSCP and ECN.
    #[must_use]
    pub const fn tos(mut self, tos: u8) -> Self {
        self.header.tos = tos;
        self
    }

    /// Sets the identification.
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

    /// Makes the packet a fragment. The offset is in bytes, rounded down to a multiple of eight. Transport headers are
    /// still added: use [`Self::raw`] for a later fragment.
    #[must_use]
    pub const fn fragment(mut self, offset_bytes: usize, more: bool) -> Self {
        self.header.fragment = Ipv4Fragment::new(offset_bytes, more);
        self
    }

    /// Sets the options, padded to a multiple of four bytes. Bytes after the 40th are omitted.
    #[must_use]
    pub fn options(mut self, options: &[u8]) -> Self {
        self.header.options = HeaderOptions::truncated(options);
        self
    }

    /// Overrides the version field.
    #[must_use]
    pub const fn version(mut self, version: u8) -> Self {
        self.version = Some(version & 0x0f);
        self
    }

    /// Overrides the header length field, in words.
    #[must_use]
    pub const fn header_words(mut self, words: u8) -> Self {
        self.header_words = Some(words & 0x0f);
        self
    }

    /// Overrides the total length field, in bytes.
    #[must_use]
    pub const fn total_length(mut self, bytes: u16) -> Self {
        self.total_length = Some(bytes);
        self
    }

    /// Writes a wrong header checksum.
    #[must_use]
    pub const fn bad_checksum(mut self) -> Self {
        self.checksum = ChecksumChoice::Invalid;
        self
    }

    /// Adds an ICMP message.
    #[must_use]
    pub fn icmp4(self, message: Icmpv4Message) -> IcmpBuilder {
        IcmpBuilder::v4(self.into(), message)
    }

    pub(super) fn finish(mut self, protocol: IpProtocol, payload: &[u8]) -> Vec<u8> {
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
        wrap_in_frame(self.link.as_ref(), EtherType::IPV4, packet)
    }
}
