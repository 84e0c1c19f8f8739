//! Defines a pool's `servers_dns` setting: servers discovered through DNS.

use std::net::SocketAddr;

named_enum! {
    /// DNS record type.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
    pub enum ServersRecord {
        /// Addresses of both families.
        #[default]
        Address = "address",
        /// IPv4 addresses.
        A = "A",
        /// IPv6 addresses.
        Aaaa = "AAAA",
        /// Names, ports and weights (RFC 2782).
        Srv = "SRV",
    }
}

/// DNS discovery of a pool's servers.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ServersDns {
    /// Fully qualified name; a trailing dot is optional.
    pub name: String,
    /// Record type.
    pub record: ServersRecord,
    /// Server port; `None` = the port that the client used. Not used with SRV records, which contain ports.
    pub port: Option<u16>,
    /// DNS servers, tried in order; empty = the ones in `/etc/resolv.conf`.
    pub resolvers: Vec<SocketAddr>,
    /// Weight of each server. Not used with SRV records, which contain weights.
    pub weight: u32,
    /// Maximum number of connections to each server; 0 = no limit.
    pub max_connections: u32,
    /// Value of the pool's `sticky` cookie for the first address; `None` = a keyed hash of each server's name.
    pub cookie: Option<String>,
    /// Whether the servers are used only if no other server is available.
    pub backup: bool,
}

impl ServersDns {
    /// Creates an entry for the addresses of a name, with defaults for all other keys.
    pub fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            record: ServersRecord::Address,
            port: None,
            resolvers: Vec::new(),
            weight: 1,
            max_connections: 0,
            cookie: None,
            backup: false,
        }
    }
}
