//! Defines the model's configuration: the rows that user space writes to the maps.

use std::collections::HashMap;

use weir_abi::{Addr, Dest, Device, Filter, HopParts, Settings, VIP_ECHO, VIP_SNAT};

/// Persistence of a service's clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Persistence {
    /// Timeout in ticks.
    pub ticks: u32,
    /// Prefix length for IPv4 clients.
    pub prefix4: u8,
    /// Prefix length for IPv6 clients.
    pub prefix6: u8,
    /// `TEMPLATE_*`.
    pub scope: u8,
}

/// A service: its row, and the spread table for flows without an entry.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServiceRow {
    /// `SERVICE_*`.
    pub flags: u32,
    /// Whether the service has an extent; false = the service has never had a server.
    pub has_extent: bool,
    /// Whether the scheduler selects a flow's server from `spread`.
    pub hashed: bool,
    /// Persistence; `None` = every flow is scheduled.
    pub persistence: Option<Persistence>,
    /// Indices of servers by flow hash; empty = no usable server.
    pub spread: Vec<u32>,
    /// SNAT source addresses.
    pub snat_addresses: Vec<Addr>,
    /// First and last SNAT source port, inclusive.
    pub snat_ports: (u16, u16),
}

/// A port range on a VIP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortRange {
    /// First port, inclusive.
    pub first: u16,
    /// Last port, inclusive.
    pub last: u16,
    /// IP protocol number.
    pub protocol: u8,
    /// Index of the range's service.
    pub service: u32,
}

/// A VIP, with the services for ports without an exact listener.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VipRow {
    /// `VIP_*`.
    pub flags: u32,
    /// Index of the service for all other TCP ports; 0 = none.
    pub any_tcp: u32,
    /// Index of the service for all other UDP ports; 0 = none.
    pub any_udp: u32,
    /// Port ranges, disjoint per protocol.
    pub ranges: Vec<PortRange>,
}

/// The contents of the data plane's maps, except for flows and counters.
#[derive(Clone, Debug)]
pub struct Config {
    /// The flow table's secret key.
    pub secret: [u64; 2],
    /// Initial number of buckets in the flow table; see [`super::Model::resize`].
    pub buckets: u32,
    /// Timeouts, budgets, flags.
    pub settings: Settings,
    /// The address filter.
    pub filter: Box<Filter>,
    /// VIPs by address.
    pub vips: HashMap<Addr, VipRow>,
    /// Exact listeners: address, port, protocol.
    pub listeners: HashMap<(Addr, u16, u8), u32>,
    /// Services by index.
    pub services: HashMap<u32, ServiceRow>,
    /// Servers by index.
    pub dests: HashMap<u32, Dest>,
    /// Next hops by server and slot.
    pub hops: HashMap<(u32, u32), HopParts>,
    /// Device capabilities, by interface index.
    pub devices: HashMap<u32, Device>,
    /// Index of the device on which packets arrive.
    pub ingress: u32,
}

impl Config {
    /// Returns a configuration without services, with a flow table of `buckets` buckets.
    #[must_use]
    pub fn new(secret: [u64; 2], buckets: u32) -> Self {
        Self {
            secret,
            buckets,
            settings: Settings::default(),
            filter: Box::new(Filter::ZERO),
            vips: HashMap::new(),
            listeners: HashMap::new(),
            services: HashMap::new(),
            dests: HashMap::new(),
            hops: HashMap::new(),
            devices: HashMap::new(),
            ingress: 1,
        }
    }

    /// Returns whether an address is used only as an SNAT source address.
    #[must_use]
    pub(crate) fn is_only_snat_source(&self, addr: Addr) -> bool {
        let vip = self.vips.get(&addr);
        vip.is_some_and(|vip| vip.flags & (VIP_ECHO | VIP_SNAT) == VIP_SNAT)
    }

    /// Returns the service for a packet to this address: by exact port, then by port range, then the service for any
    /// port. Returns `None` if the address is not a VIP, and `Some(0)` if no service listens on the port.
    #[must_use]
    pub fn service(&self, addr: Addr, port: u16, protocol: u8) -> Option<u32> {
        if let Some(service) = self.listeners.get(&(addr, port, protocol)) {
            return Some(*service);
        }
        let vip = self.vips.get(&addr)?;
        let range = vip
            .ranges
            .iter()
            .find(|range| range.protocol == protocol && (range.first..=range.last).contains(&port));
        Some(match range {
            Some(range) => range.service,
            None if protocol == 6 => vip.any_tcp,
            None => vip.any_udp,
        })
    }
}
