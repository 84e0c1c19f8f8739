//! `servers_dns` of a pool: servers discovered through DNS.

use std::net::SocketAddr;

/// DNS record type.
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

/// DNS discovery of a pool.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ServersDns {
    /// Fully qualified name; a trailing dot is optional.
    pub name: String,
    /// Record type.
    pub record: ServersRecord,
    /// Port of the servers; `None` = the client's port. Not used with SRV records, which contain ports.
    pub port: Option<u16>,
    /// DNS servers, tried in order; empty = those of `/etc/resolv.conf`.
    pub resolvers: Vec<SocketAddr>,
}
