//! The packet that rules are evaluated with: its known fields.

use std::net::IpAddr;

/// A packet's state in conntrack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tracking {
    /// The first of a connection.
    New,
    /// Of a connection of which both directions were seen.
    Established,
    /// Matches no connection that conntrack knows.
    Invalid,
    /// Not tracked.
    Untracked,
}

impl Tracking {
    /// As written in rules.
    pub(super) const fn word(self) -> &'static str {
        match self {
            Self::New => "new",
            Self::Established => "established",
            Self::Invalid => "invalid",
            Self::Untracked => "untracked",
        }
    }
}

/// A port of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Port {
    /// This one.
    Known(u16),
    /// The port of the side that opened the connection: not a privileged one.
    Ephemeral,
    /// Not known.
    Any,
}

impl Port {
    /// The lowest port that a kernel may choose (`ip_local_port_range`).
    pub(super) const FIRST_EPHEMERAL: u64 = 1024;

    const fn of(port: Option<u16>) -> Self {
        match port {
            Some(port) => Self::Known(port),
            None => Self::Any,
        }
    }
}

/// A TCP packet. `None` = any value; rules that match on it cannot be decided.
#[derive(Clone, Copy, Debug)]
pub struct Packet {
    /// IPv4 or IPv6.
    pub is_ipv4: bool,
    /// Source address.
    pub source: Option<IpAddr>,
    /// Destination address.
    pub destination: Option<IpAddr>,
    /// Source port.
    pub source_port: Port,
    /// Destination port.
    pub destination_port: Port,
    /// The flags that are set, as rules name them.
    pub flags: &'static [&'static str],
    /// Its state in conntrack.
    pub tracking: Tracking,
    /// Its firewall mark.
    pub mark: Option<u32>,
}

const SYN: &[&str] = &["syn"];
const ACK: &[&str] = &["ack"];
const SYN_ACK: &[&str] = &["syn", "ack"];

impl Packet {
    /// A packet of which only the family is known.
    pub const fn of(is_ipv4: bool) -> Self {
        Self {
            is_ipv4,
            source: None,
            destination: None,
            source_port: Port::Any,
            destination_port: Port::Any,
            flags: SYN,
            tracking: Tracking::New,
            mark: None,
        }
    }

    /// A client's first packet to `destination`.
    pub const fn syn(destination: IpAddr, port: Option<u16>) -> Self {
        Self {
            destination: Some(destination),
            source_port: Port::Ephemeral,
            destination_port: Port::of(port),
            ..Self::of(destination.is_ipv4())
        }
    }

    /// The answer of `source` to a first packet.
    pub const fn answer(source: IpAddr, port: Option<u16>) -> Self {
        Self {
            source: Some(source),
            source_port: Port::of(port),
            destination_port: Port::Ephemeral,
            flags: SYN_ACK,
            tracking: Tracking::Established,
            ..Self::of(source.is_ipv4())
        }
    }

    /// A later packet of the same connection, in the given conntrack state.
    pub const fn later(self, tracking: Tracking) -> Self {
        Self {
            flags: ACK,
            tracking,
            ..self
        }
    }
}
