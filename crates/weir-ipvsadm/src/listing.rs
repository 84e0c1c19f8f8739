//! Defines the content of a listing and assembles its lines.

use serde::{Deserialize, Serialize};

use crate::format::{CellFormatter, append_server, append_service, header};
use crate::{Names, Protocol, Server, Service, ServiceKey, TableService, Timeouts, sort};

/// The columns of a listing, and the format of its numbers and names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Columns {
    /// Prints numbers instead of names (`-n`).
    pub numeric: bool,
    /// Prints counters without units (`--exact`).
    pub exact: bool,
    /// Keeps the order of the table (`--nosort`).
    pub nosort: bool,
    /// Prints totals (`--stats`). If several of the fields from here on are set, the first one applies.
    pub stats: bool,
    /// Prints rates (`--rate`).
    pub rate: bool,
    /// Prints thresholds (`--thresholds`).
    pub thresholds: bool,
    /// Prints numbers of persistence templates (`--persistent-conn`).
    pub persistent_conn: bool,
    /// Prints the encapsulation (`--tun-info`).
    pub tunnel: bool,
}

/// Total numbers of connections, packets and bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counters {
    /// Connections.
    pub connections: u64,
    /// Packets from clients.
    pub packets_in: u64,
    /// Packets to clients, if they pass through this host.
    pub packets_out: u64,
    /// Bytes from clients.
    pub bytes_in: u64,
    /// Bytes to clients, if they pass through this host.
    pub bytes_out: u64,
}

/// Rates per second.
pub type Rates = Counters;

/// A server in a listing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListedServer {
    /// The server.
    pub server: Server,
    /// Number of active connections.
    pub active: u64,
    /// Number of inactive connections.
    pub inactive: u64,
    /// Number of persistence templates.
    pub persistent: u64,
    /// Totals.
    pub counters: Counters,
    /// Rates.
    pub rates: Rates,
}

/// A service in a listing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListedService {
    /// The service.
    pub service: Service,
    /// The last port of a port range; only services in weir.toml can have a range.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_port: Option<u16>,
    /// Totals.
    pub counters: Counters,
    /// Rates.
    pub rates: Rates,
    /// The servers of the service, the newest first.
    pub servers: Vec<ListedServer>,
}

/// All services, from ipvsadm and from weir.toml.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Listing {
    /// Maximum number of connections.
    pub size: u64,
    /// The services, the newest first.
    pub services: Vec<ListedService>,
}

impl Listing {
    /// Formats all services (`-L`).
    pub fn format_all(&self, columns: Columns, names: &dyn Names) -> String {
        let mut text = format!("IP Virtual Server version 1.2.1 (size={})\n", self.size);
        text += &header(columns);
        for service in self.in_order(columns.nosort) {
            service.write(&mut text, columns, names);
        }
        text
    }

    /// Formats one service (`-L` with a service). Returns `None` if the service does not exist.
    pub fn format_service(
        &self,
        key: &ServiceKey,
        columns: Columns,
        names: &dyn Names,
    ) -> Option<String> {
        let matches =
            |service: &&ListedService| service.service.key == *key && service.last_port.is_none();
        let service = self.services.iter().find(matches)?;
        let mut text = header(columns);
        service.write(&mut text, columns, names);
        Some(text)
    }

    /// Returns whether the service with this key, or any service if `key` is `None`, uses SCTP, which Weir does not
    /// balance.
    pub fn has_sctp(&self, key: Option<&ServiceKey>) -> bool {
        let mut services = self.services.iter().map(|listed| &listed.service.key);
        services.any(|listed| {
            key.is_none_or(|key| key == listed) && listed.protocol() == Some(Protocol::Sctp)
        })
    }

    /// Returns the command lines that recreate the table (`-S`). Omits services with port ranges, and servers with
    /// forwarding methods that ipvsadm does not support.
    pub fn save(&self, numeric: bool, names: &dyn Names) -> String {
        let mut text = String::new();
        for listed in self.in_order(false) {
            if listed.last_port.is_none() {
                let servers = listed.in_order(false).into_iter();
                let entry = TableService {
                    service: listed.service.clone(),
                    servers: servers.map(|listed| listed.server).collect(),
                };
                entry.save(&mut text, numeric, names);
            }
        }
        text
    }

    fn in_order(&self, nosort: bool) -> Vec<&ListedService> {
        let services: Vec<&ListedService> = self.services.iter().collect();
        if nosort {
            return services;
        }
        sort::sorted(&services, &|left, right| {
            sort::compare_services(&left.service.key, &right.service.key)
        })
    }
}

impl ListedService {
    fn in_order(&self, nosort: bool) -> Vec<&ListedServer> {
        let servers: Vec<&ListedServer> = self.servers.iter().collect();
        if nosort {
            return servers;
        }
        sort::sorted(&servers, &|left, right| {
            sort::compare_servers(&left.server.key, &right.server.key)
        })
    }

    fn write(&self, text: &mut String, columns: Columns, names: &dyn Names) {
        let protocol: Option<Protocol> = self.service.key.protocol();
        let formatter = CellFormatter::new(columns, protocol, names);
        append_service(text, self, &formatter);
        for server in self.in_order(columns.nosort) {
            append_server(text, server, &formatter);
        }
    }
}

/// Returns the output of `-L --timeout`.
pub fn format_timeouts(timeouts: Timeouts) -> String {
    let Timeouts {
        tcp_s,
        tcp_fin_s,
        udp_s,
    } = timeouts;
    format!("Timeout (tcp tcpfin udp): {tcp_s} {tcp_fin_s} {udp_s}\n")
}
