//! Why bytes are not a packet: the layer that refused, and what it saw.

use std::fmt;

/// The layer that a [`ParseError`] speaks of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "the names are the protocols'")]
pub enum Layer {
    Ethernet,
    Vlan,
    Arp,
    Ipv4,
    Ipv6,
    Ipv6Extension,
    Tcp,
    Udp,
    Icmpv4,
    Icmpv6,
    Ndp,
    Gre,
    Gue,
}

impl fmt::Display for Layer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ethernet => "ethernet",
            Self::Vlan => "vlan",
            Self::Arp => "arp",
            Self::Ipv4 => "ipv4",
            Self::Ipv6 => "ipv6",
            Self::Ipv6Extension => "ipv6 extension header",
            Self::Tcp => "tcp",
            Self::Udp => "udp",
            Self::Icmpv4 => "icmp",
            Self::Icmpv6 => "icmpv6",
            Self::Ndp => "ndp",
            Self::Gre => "gre",
            Self::Gue => "gue",
        })
    }
}

/// The length field that contradicts the bytes around it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "the names are the fields'")]
pub enum LengthField {
    HeaderLength,
    TotalLength,
    PayloadLength,
    DataOffset,
    DatagramLength,
    OptionLength,
    AddressLength,
}

impl fmt::Display for LengthField {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::HeaderLength => "header length",
            Self::TotalLength => "total length",
            Self::PayloadLength => "payload length",
            Self::DataOffset => "data offset",
            Self::DatagramLength => "length",
            Self::OptionLength => "option length",
            Self::AddressLength => "address length",
        })
    }
}

/// Why bytes were refused. All of it is the sender's doing; none of it is retryable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ParseError {
    /// The bytes end inside the header.
    #[error("{layer}: {available} bytes, the header needs {needed}")]
    TooShort {
        /// Who was reading.
        layer: Layer,
        /// Bytes that the header takes.
        needed: usize,
        /// Bytes that were there.
        available: usize,
    },
    /// A length field contradicts its header or the bytes that follow.
    #[error("{layer}: {field} of {bytes} bytes, between {least} and {most} are possible")]
    BadLength {
        /// Who was reading.
        layer: Layer,
        /// Which field.
        field: LengthField,
        /// What it says, in bytes.
        bytes: usize,
        /// The least that it may say here.
        least: usize,
        /// The most that it may say here.
        most: usize,
    },
    /// The version is not the one that this layer speaks.
    #[error("{layer}: version {version}")]
    BadVersion {
        /// Who was reading.
        layer: Layer,
        /// What the header says.
        version: u8,
    },
    /// A type or kind for which the layer has no meaning here.
    #[error("{layer}: unsupported type {value:#x}")]
    UnsupportedType {
        /// Who was reading.
        layer: Layer,
        /// The field as it stands.
        value: u32,
    },
    /// Flags that change the layout in a way the layer does not know.
    #[error("{layer}: unsupported flags {flags:#x}")]
    UnsupportedFlags {
        /// Who was reading.
        layer: Layer,
        /// All flags of the field.
        flags: u32,
    },
    /// More IPv6 extension headers than [`crate::Ipv6Chain::MAX_HEADERS`].
    #[error("ipv6: more than {limit} extension headers")]
    TooManyExtensions {
        /// The limit that was passed.
        limit: usize,
    },
    /// Options longer than a header has room for; only from constructing, never from parsing.
    #[error("{bytes} bytes of options, {limit} fit")]
    OptionsTooLong {
        /// What was given.
        bytes: usize,
        /// What fits.
        limit: usize,
    },
    /// A packet that must not, or cannot, be cut into fragments as asked.
    #[error("{layer}: cannot be fragmented to {mtu} bytes")]
    NotFragmentable {
        /// Who refused.
        layer: Layer,
        /// The MTU that was asked for, in bytes of the IP packet.
        mtu: usize,
    },
}
