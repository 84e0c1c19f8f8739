//! The content of a listing, and how its lines are assembled.

use serde::{Deserialize, Serialize};

use crate::format::{Cells, server_line, service_line, titles};
use crate::{Names, Protocol, Server, Service, ServiceKey, TableService, Timeouts, sort};

/// Columns, and the format of numbers and names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Columns {
    /// `-n`.
    pub numeric: bool,
    /// `--exact`.
    pub exact: bool,
    /// `--nosort`.
    pub nosort: bool,
    /// `--stats`; if several of these are given, the first in this order applies.
    pub stats: bool,
    /// `--rate`.
    pub rate: bool,
    /// `--thresholds`.
    pub thresholds: bool,
    /// `--persistent-conn`.
    pub persistent_conn: bool,
    /// `--tun-info`.
    pub tunnel: bool,
}

/// Totals, 64 bits each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counters {
    /// Connections.
    pub connections: u64,
    /// Packets from clients.
    pub packets_in: u64,
    /// Packets to clients, if they pass through here.
    pub packets_out: u64,
    /// Bytes from clients.
    pub bytes_in: u64,
    /// Bytes to clients, if they pass through here.
    pub bytes_out: u64,
}

/// Rates per second.
pub type Rates = Counters;

/// One server in a listing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListedServer {
    /// The server.
    pub server: Server,
    /// Active connections.
    pub active: u64,
    /// Inactive connections.
    pub inactive: u64,
    /// Persistence templates.
    pub persistent: u64,
    /// Totals.
    pub counters: Counters,
    /// Rates.
    pub rates: Rates,
}

/// One service in a listing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListedService {
    /// The service.
    pub service: Service,
    /// The last port of a range, which only services of weir.toml have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_port: Option<u16>,
    /// Totals.
    pub counters: Counters,
    /// Rates.
    pub rates: Rates,
    /// Its servers, the newest first.
    pub servers: Vec<ListedServer>,
}

/// All services, of ipvsadm and of weir.toml.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Listing {
    /// Maximum number of connections.
    pub size: u64,
    /// The services, the newest first.
    pub services: Vec<ListedService>,
}

impl Listing {
    /// `-L`: every service.
    pub fn all(&self, columns: Columns, names: &dyn Names) -> String {
        let mut text = format!("IP Virtual Server version 1.2.1 (size={})\n", self.size);
        text += &titles(columns);
        for service in self.in_order(columns.nosort) {
            service.write(&mut text, columns, names);
        }
        text
    }

    /// `-L` of one service; `None` = no such service.
    pub fn one(&self, key: &ServiceKey, columns: Columns, names: &dyn Names) -> Option<String> {
        let is =
            |service: &&ListedService| service.service.key == *key && service.last_port.is_none();
        let service = self.services.iter().find(is)?;
        let mut text = titles(columns);
        service.write(&mut text, columns, names);
        Some(text)
    }

    /// Returns whether `-L` of that service, or of all, lists a service that Weir does not balance.
    pub fn has_sctp(&self, key: Option<&ServiceKey>) -> bool {
        let mut services = self.services.iter().map(|listed| &listed.service.key);
        services
            .any(|one| key.is_none_or(|key| key == one) && one.protocol() == Some(Protocol::Sctp))
    }

    /// `-S`: the command lines that recreate the table. Port ranges and methods that ipvsadm does not support are
    /// left out.
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
        sort::sorted(&services, &|one, other| {
            sort::services(&one.service.key, &other.service.key)
        })
    }
}

impl ListedService {
    fn in_order(&self, nosort: bool) -> Vec<&ListedServer> {
        let servers: Vec<&ListedServer> = self.servers.iter().collect();
        if nosort {
            return servers;
        }
        sort::sorted(&servers, &|one, other| {
            sort::servers(&one.server.key, &other.server.key)
        })
    }

    fn write(&self, text: &mut String, columns: Columns, names: &dyn Names) {
        let protocol: Option<Protocol> = self.service.key.protocol();
        let cells = Cells::new(columns, protocol, names);
        service_line(text, self, &cells);
        for server in self.in_order(columns.nosort) {
            server_line(text, server, &cells);
        }
    }
}

/// `-L --timeout`.
pub fn timeouts(timeouts: Timeouts) -> String {
    let Timeouts {
        tcp_s,
        tcp_fin_s,
        udp_s,
    } = timeouts;
    format!("Timeout (tcp tcpfin udp): {tcp_s} {tcp_fin_s} {udp_s}\n")
}
