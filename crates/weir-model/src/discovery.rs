//! `servers_dns` of a pool: servers that the domain name system knows.

use std::net::SocketAddr;

/// Which records are servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub enum ServersRecord {
    /// Addresses of both families.
    #[default]
    Address,
    /// IPv4 addresses.
    A,
    /// IPv6 addresses.
    Aaaa,
    /// Names, ports and weights (RFC 2782).
    Srv,
}

impl ServersRecord {
    /// Every choice.
    pub const ALL: [Self; 4] = [Self::Address, Self::A, Self::Aaaa, Self::Srv];

    /// The name in configuration.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Address => "address",
            Self::A => "A",
            Self::Aaaa => "AAAA",
            Self::Srv => "SRV",
        }
    }
}

/// See the module.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ServersDns {
    /// The name, complete; a dot at its end makes no difference.
    pub name: String,
    /// Which of its records.
    pub record: ServersRecord,
    /// The servers' port; `None` = the client's. SRV records have their own.
    pub port: Option<u16>,
    /// Whom to ask, in this order; empty = those of `/etc/resolv.conf`.
    pub resolvers: Vec<SocketAddr>,
}
