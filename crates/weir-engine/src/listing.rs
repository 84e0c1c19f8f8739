//! Builds the data for `ipvsadm -L` from the maps: ipvsadm's services, services in the file, and connections.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use weir_abi::{KIND_FORWARD, KIND_TEMPLATE, PROTO_TEMPLATE, State};
use weir_dataplane::Maps;
use weir_flow::timeout;
use weir_ipvsadm::{
    Connection, Counters, ListedServer, ListedService, Listing, Mask, Persistence, Protocol, Rates,
    Server, ServerKey, Service, ServiceKey, TableService, Timeouts, Tunnel, TunnelKind,
    service_name,
};
use weir_model::{Indexed, Ports, TunnelChecksum};
use weir_planner::allocation::{DestSlot, ServiceSlot, configured_server};

use crate::error::Result;
use crate::ipvsadm_term::{counters_since, forward, is_from_ipvsadm, key_of_mark, protocol};
use crate::network::tick;
use crate::rate_estimate::RateEstimates;
use crate::stored_state::EngineState;
use crate::totals::{sum, totals};

/// The input of a listing.
pub(crate) struct ListingInput<'a> {
    pub(crate) desired: &'a Indexed,
    pub(crate) state: &'a EngineState,
    pub(crate) maps: &'a Maps,
    /// `None` if no daemon is running: only the daemon estimates rates.
    pub(crate) rates: Option<&'a RateEstimates>,
}

impl ListingInput<'_> {
    /// Returns all services except socket services, newest first: ipvsadm's services, then the services in the file in
    /// reverse order, each once per mark and listener.
    ///
    /// # Errors
    /// Fails if a map cannot be read.
    pub(crate) fn listing(&self) -> Result<Listing> {
        let origin = &self.state.origin;
        let mut services = Vec::new();
        for entry in origin.table.services() {
            services.push(self.ipvsadm_service(entry)?);
        }
        // IPVS has no equivalent of a socket service.
        let is_listed = |service: &&weir_model::Service| {
            !is_from_ipvsadm(&service.name) && service.forward.handles_packets()
        };
        for service in self.desired.services.iter().rev().filter(is_listed) {
            for mark in service.marks.iter().rev() {
                services.push(self.file_service(service, key_of_mark(mark), None)?);
            }
            for listener in service.listen.iter().rev() {
                let (port, last_port) = match listener.ports {
                    Ports::One(port) => (port, None),
                    Ports::Any => (0, None),
                    Ports::Range(first, last) => (first, Some(last)),
                };
                let key = ServiceKey::Address {
                    protocol: protocol(listener.protocol),
                    address: listener.address,
                    port,
                };
                services.push(self.file_service(service, key, last_port)?);
            }
        }
        Ok(Listing {
            size: u64::from(self.maps.flows.capacity()),
            services,
        })
    }

    fn slot(&self, name: &str) -> Option<&ServiceSlot> {
        self.state.allocation.services.get(name)
    }

    /// Lists a service that ipvsadm created.
    fn ipvsadm_service(&self, entry: &TableService) -> Result<ListedService> {
        let name = service_name(&entry.service.key);
        let slot = self.slot(&name);
        let dest = |server: &Server| {
            let mut dests = slot?.dests.iter().filter(|dest| dest.removed.is_none());
            dests.find(|dest| dest.name == weir_ipvsadm::server_name(&server.key))
        };
        let servers = entry.servers.iter();
        let listed = servers.map(|server| self.server(&name, *server, dest(server)));
        Ok(ListedService {
            service: entry.service.clone(),
            last_port: None,
            counters: self.counters(&name, slot)?,
            rates: self.rates(&name),
            servers: listed.collect::<Result<_>>()?,
        })
    }

    /// Lists a service in the file under one of its listeners or marks.
    fn file_service(
        &self,
        service: &weir_model::Service,
        key: ServiceKey,
        last_port: Option<u16>,
    ) -> Result<ListedService> {
        let slot = self.slot(&service.name);
        let scheduler = self
            .desired
            .pool(&service.pool)
            .map(|pool| pool.l4_scheduler());
        let flags = scheduler
            .map(|scheduler| scheduler.flags)
            .unwrap_or_default();
        let port = match key {
            ServiceKey::Address { port, .. } => port,
            ServiceKey::Mark { .. } => 0,
        };
        let mut servers = Vec::new();
        let dests = slot.map(|slot| slot.dests.as_slice()).unwrap_or_default();
        for dest in dests.iter().rev().filter(|dest| dest.is_listed()) {
            if let Some(server) = configured_server(self.desired, service, dest) {
                let server = server_of(service, server, dest, port);
                servers.push(self.server(&service.name, server, Some(dest))?);
            }
        }
        Ok(ListedService {
            service: Service {
                key,
                scheduler: scheduler.map_or_else(String::new, |it| it.kind.to_string()),
                flags: (u8::from(flags.fallback) * Service::FLAG_1)
                    | (u8::from(flags.port) * Service::FLAG_2),
                persistence: persistence(service, key.is_v6()),
                engine: String::new(),
                one_packet: service.one_packet,
            },
            last_port,
            counters: self.counters(&service.name, slot)?,
            rates: self.rates(&service.name),
            servers,
        })
    }

    /// Returns the first VIP of a service, or its first mark as an address.
    fn first_address(&self, name: &str) -> Option<IpAddr> {
        let service = self.desired.service(name)?;
        let address = service.listen.first().map(|listener| listener.address);
        address.or_else(|| service.marks.first().map(address_of))
    }

    fn server(
        &self,
        service: &str,
        server: Server,
        dest: Option<&DestSlot>,
    ) -> Result<ListedServer> {
        let mut listed = ListedServer {
            server,
            active: 0,
            inactive: 0,
            persistent: 0,
            counters: Counters::default(),
            rates: Rates::default(),
        };
        if let Some(dest) = dest {
            let live = self.maps.live(dest.id)?;
            (listed.active, listed.inactive) = (live.active, live.inactive);
            listed.persistent = u64::from(live.persistent);
            let zero = self.state.origin.zeroed.get(service);
            let mut zeros = zero.into_iter().flat_map(|zero| &zero.servers);
            let zero = zeros.find(|(generation, _)| *generation == dest.generation);
            listed.counters =
                counters_since(totals(self.maps, dest.id)?, zero.map(|(_, totals)| totals));
            let rates = self.rates.map(|rates| rates.for_server(dest.generation));
            listed.rates = rates.unwrap_or_default();
        }
        Ok(listed)
    }

    fn counters(&self, name: &str, slot: Option<&ServiceSlot>) -> Result<Counters> {
        let zero = self.state.origin.zeroed.get(name);
        let zero = zero.map(|zero| &zero.service);
        Ok(match slot {
            Some(slot) => counters_since(sum(self.maps, slot)?, zero),
            None => Counters::default(),
        })
    }

    fn rates(&self, name: &str) -> Rates {
        let rates = self.rates.map(|rates| rates.for_service(name));
        rates.unwrap_or_default()
    }

    /// Returns the timeouts (`-L --timeout`).
    pub(crate) fn timeouts(&self) -> Timeouts {
        let seconds = |timeout: Duration| u32::try_from(timeout.as_secs()).unwrap_or(u32::MAX);
        let timeouts = self.desired.timeouts;
        Timeouts {
            tcp_s: seconds(timeouts.tcp),
            tcp_fin_s: seconds(timeouts.tcp_fin),
            udp_s: seconds(timeouts.udp),
        }
    }

    /// Returns all flows and templates, in the order of the table's slots (`-L -c`).
    ///
    /// # Errors
    /// Fails if a map cannot be read.
    pub(crate) fn connections(&self) -> Result<Vec<Connection>> {
        let timeouts = timeout::Timeouts {
            tcp: self.desired.timeouts.tcp,
            tcp_fin: self.desired.timeouts.tcp_fin,
            udp: self.desired.timeouts.udp,
        };
        let now = tick();
        let slots = self.state.allocation.services.iter();
        let rows: HashMap<u32, &String> = slots.map(|(name, slot)| (slot.row, name)).collect();
        let mut connections = Vec::new();
        for flow in self.maps.flows.walk() {
            let meta = flow.meta();
            let state = State::ALL.iter().find(|state| **state as u8 == meta.state);
            let is_template = meta.kind == KIND_TEMPLATE;
            let Some(state) = state.filter(|_| is_template || meta.kind == KIND_FORWARD) else {
                continue;
            };
            let cold = flow.cold;
            let dest = self.maps.dests.get(flow.dest())?;
            // A template for all listeners of a service contains the service's row instead of a VIP.
            let is_whole_service = is_template && cold.proto == PROTO_TEMPLATE;
            let service_name = rows.get(&cold.service).filter(|_| is_whole_service);
            let address = service_name.and_then(|name| self.first_address(name));
            let address = address.unwrap_or_else(|| cold.dst.to_ip());
            let vip = (address, cold.dport.get());
            let lifetime = match is_template {
                true => weir_abi::ticks_to_duration(cold.ifindex),
                false => timeouts.for_state(*state),
            };
            let idle = weir_abi::ticks_to_duration(now.wrapping_sub(meta.seen));
            connections.push(Connection {
                protocol: match cold.proto & !PROTO_TEMPLATE {
                    6 => Some(Protocol::Tcp),
                    17 => Some(Protocol::Udp),
                    _ => None,
                },
                expires_s: lifetime.saturating_sub(idle).as_secs(),
                state: match (is_template, state) {
                    // ip_vs_proto.c, ip_vs_ctpl_state_name_table
                    (true, State::None) => "NONE",
                    (true, _) => "ASSURED",
                    (false, _) => state_name(*state),
                }
                .to_owned(),
                client: (cold.src.to_ip(), cold.sport.get()),
                vip,
                server: (
                    dest.addr.to_ip(),
                    match dest.port.get() {
                        0 => vip.1,
                        port => port,
                    },
                ),
            });
        }
        Ok(connections)
    }
}

/// Returns a mark as an address. Like the kernel, stores the mark in the first word (ip_vs_core.c,
/// `ip_vs_sched_persist`).
fn address_of(mark: &weir_model::Mark) -> IpAddr {
    match mark.family {
        weir_model::Family::V4 => Ipv4Addr::from(mark.mark.get()).into(),
        weir_model::Family::V6 => Ipv6Addr::from(u128::from(mark.mark.get()) << 96).into(),
    }
}

fn server_of(
    service: &weir_model::Service,
    server: &weir_model::Server,
    dest: &DestSlot,
    port: u16,
) -> Server {
    let method = server.forward_in(service);
    let tunnel = server.tunnel_in(service);
    Server {
        key: ServerKey {
            address: server.address,
            port: match server.port {
                Some(own_port) if method.rewrites_port() => own_port,
                _ => port,
            },
        },
        forward: forward(method),
        weight: dest.effective,
        upper: server.max_connections,
        lower: server.min_connections,
        tunnel: Tunnel {
            kind: match tunnel.kind {
                weir_model::TunnelKind::Ipip => TunnelKind::Ipip,
                weir_model::TunnelKind::Gue => TunnelKind::Gue,
                weir_model::TunnelKind::Gre => TunnelKind::Gre,
            },
            port: tunnel.port,
            checksum: match tunnel.checksum {
                TunnelChecksum::None => 0,
                TunnelChecksum::Full => 1,
                TunnelChecksum::Remote => 2,
            },
        },
    }
}

fn persistence(service: &weir_model::Service, v6: bool) -> Option<Persistence> {
    let persistence = service.persistence?;
    Some(Persistence {
        timeout_s: u32::try_from(persistence.timeout.as_secs()).unwrap_or(u32::MAX),
        mask: match v6 {
            false => Mask::V4(
                u32::MAX
                    .checked_shl(32 - u32::from(persistence.netmask))
                    .unwrap_or(0),
            ),
            true => Mask::V6(persistence.netmask6),
        },
    })
}

const fn state_name(state: State) -> &'static str {
    match state {
        State::None => "NONE",
        State::Established => "ESTABLISHED",
        State::SynSent => "SYN_SENT",
        State::SynRecv => "SYN_RECV",
        State::FinWait => "FIN_WAIT",
        State::TimeWait => "TIME_WAIT",
        State::Close => "CLOSE",
        State::CloseWait => "CLOSE_WAIT",
        State::LastAck => "LAST_ACK",
        State::Listen => "LISTEN",
        State::Synack => "SYNACK",
        State::Udp => "UDP",
    }
}
