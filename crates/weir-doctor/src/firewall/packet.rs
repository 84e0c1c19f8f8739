//! Describes the known fields of a packet for which rules are evaluated.

use std::net::IpAddr;

/// A packet's state in conntrack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tracking {
    /// The first packet of a connection.
    New,
    /// A packet of a connection that has had packets in both directions.
    Established,
    /// The conntrack table has no connection for the packet.
    Invalid,
    /// The packet is not tracked.
    Untracked,
}

impl Tracking {
    /// Returns the state's name in rules.
    pub(super) const fn name(self) -> &'static str {
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
    /// A known port.
    Known(u16),
    /// An unknown unprivileged port of a client.
    Ephemeral,
    /// An unknown port.
    Any,
}

impl Port {
    /// The lowest port that a client's kernel is assumed to select (`ip_local_port_range`).
    pub(super) const FIRST_EPHEMERAL: u64 = 1024;

    const fn known_or_any(port: Option<u16>) -> Self {
        match port {
            Some(port) => Self::Known(port),
            None => Self::Any,
        }
    }
}

/// A TCP packet. A field that is `None` can have any value: whether it matches a rule is then unknown.
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
    /// Names of the TCP flags that are set, in the spelling of rules.
    pub flags: &'static [&'static str],
    /// State in conntrack.
    pub tracking: Tracking,
    /// Firewall mark.
    pub mark: Option<u32>,
}

const SYN: &[&str] = &["syn"];
const ACK: &[&str] = &["ack"];
const SYN_ACK: &[&str] = &["syn", "ack"];

impl Packet {
    /// Returns a SYN with unknown addresses and ports; only the address family is known.
    pub const fn any_syn(is_ipv4: bool) -> Self {
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

    /// Returns a client's first packet to `destination`.
    pub const fn syn(destination: IpAddr, port: Option<u16>) -> Self {
        Self {
            destination: Some(destination),
            source_port: Port::Ephemeral,
            destination_port: Port::known_or_any(port),
            ..Self::any_syn(destination.is_ipv4())
        }
    }

    /// Returns a server's SYN-ACK from `source`.
    pub const fn reply(source: IpAddr, port: Option<u16>) -> Self {
        Self {
            source: Some(source),
            source_port: Port::known_or_any(port),
            destination_port: Port::Ephemeral,
            flags: SYN_ACK,
            tracking: Tracking::Established,
            ..Self::any_syn(source.is_ipv4())
        }
    }

    /// Returns an ACK of the same connection, in the given conntrack state.
    pub const fn ack(self, tracking: Tracking) -> Self {
        Self {
            flags: ACK,
            tracking,
            ..self
        }
    }
}
