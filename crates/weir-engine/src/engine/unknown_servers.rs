//! Queues flows of servers that only other directors of the group have; see [`super::sync_unknown`].

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};

use weir_model::Server;
use weir_sync::Record;

/// Maximum number of records that wait for their servers.
const MAX_RECORDS: usize = 1 << 16;
/// Maximum number of servers that are added in one step.
const MAX_SERVERS: usize = 64;

/// A server of a pool: name of the pool, address and port.
pub(super) type PoolServer = (String, IpAddr, Option<u16>);

/// Flows of servers that this director does not have.
#[derive(Debug, Default)]
pub(super) struct UnknownServers {
    pub(super) servers: BTreeSet<PoolServer>,
    /// The records of their flows.
    pub(super) records: Vec<Record>,
}

impl UnknownServers {
    /// Queues a record and its server. Returns whether there was space.
    pub(super) fn add(&mut self, server: PoolServer, record: &Record) -> bool {
        let has_space = self.records.len() < MAX_RECORDS
            && (self.servers.len() < MAX_SERVERS || self.servers.contains(&server));
        if has_space {
            self.servers.insert(server);
            self.records.push(*record);
        }
        has_space
    }
}

/// Returns the server with weight 0.
pub(super) fn server_of((_, address, port): &PoolServer) -> Server {
    let address_text = match port {
        None => address.to_string(),
        Some(port) => SocketAddr::new(*address, *port).to_string(),
    };
    // The name differs from the former one, so an override stored for the former name does not give the server a
    // weight.
    let name = format!("{address_text} (removed)");
    Server {
        weight: 0,
        ..Server::new(name, *address, *port)
    }
}
