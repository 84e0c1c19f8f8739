//! Defines parse errors, which contain the layer and the cause.

use std::fmt;

/// The layer of a [`ParseError`].
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

/// A length field that is inconsistent with the packet.
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

/// Why bytes could not be parsed. The error is in the received data, so retrying does not help.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ParseError {
    /// The bytes end in the header.
    #[error("{layer}: {available} bytes, but the header needs {needed}")]
    TooShort {
        /// The layer.
        layer: Layer,
        /// Length of the header in bytes.
        needed: usize,
        /// Number of available bytes.
        available: usize,
    },
    /// A length field is inconsistent with its header or with the following bytes.
    #[error("{layer}: {field} is {bytes} bytes, expected {min} to {max}")]
    BadLength {
        /// The layer.
        layer: Layer,
        /// The field.
        field: LengthField,
        /// The field's value, in bytes.
        bytes: usize,
        /// The minimum valid value, in bytes.
        min: usize,
        /// The maximum valid value, in bytes.
        max: usize,
    },
    /// The version is not supported by the layer.
    #[error("{layer}: unsupported version {version}")]
    BadVersion {
        /// The layer.
        layer: Layer,
        /// The version in the header.
        version: u8,
    },
    /// The layer does not support the type.
    #[error("{layer}: unsupported type {value:#x}")]
    UnsupportedType {
        /// The layer.
        layer: Layer,
        /// The field's value.
        value: u32,
    },
    /// The header has unsupported flags that change its layout.
    #[error("{layer}: unsupported flags {flags:#x}")]
    UnsupportedFlags {
        /// The layer.
        layer: Layer,
        /// All flags of the field.
        flags: u32,
    },
    /// There are more IPv6 extension headers than [`crate::Ipv6Chain::MAX_HEADERS`].
    #[error("ipv6: more than {limit} extension headers")]
    TooManyExtensions {
        /// The limit that was exceeded.
        limit: usize,
    },
    /// The options do not fit into a header. Only builders return this error.
    #[error("{bytes} bytes of options exceed the limit of {limit}")]
    OptionsTooLong {
        /// Length of the options, in bytes.
        bytes: usize,
        /// Maximum length, in bytes.
        limit: usize,
    },
    /// The packet must not or cannot be fragmented.
    #[error("{layer}: the packet cannot be fragmented for an MTU of {mtu} bytes")]
    NotFragmentable {
        /// The layer.
        layer: Layer,
        /// The requested MTU, in bytes of the IP packet.
        mtu: usize,
    },
}
