//! Converts ipvsadm's table into the desired state of the data plane.
//!
//! Each entry becomes a service with the same key and its own pool, and behaves like an IPVS service. SCTP services
//! stay in the table, but their packets are not balanced.

use std::num::NonZeroU32;
use std::time::Duration;

use weir_model::{
    Family, Listener, Mark, Persistence, Pool, Ports, Scheduler, SchedulerFlags, SchedulerKind,
    Service, Tunnel, TunnelChecksum,
};

use crate::import::common_forward;
use crate::table::{NO_SCHEDULER, scheduler};
use crate::{Forward, Mask, Protocol, Server, ServiceKey, TableService};

/// Returns the name of a service and of its pool: `ipvsadm:tcp/192.0.2.10:80`, `ipvsadm:fwmark/7`.
pub fn service_name(key: &ServiceKey) -> String {
    match *key {
        ServiceKey::Mark { mark, v6 } => {
            format!("ipvsadm:fwmark{}/{mark}", if v6 { "6" } else { "" })
        }
        ServiceKey::Address {
            protocol,
            address,
            port,
        } => {
            let protocol = protocol.as_str();
            let address = match address {
                std::net::IpAddr::V4(v4) => v4.to_string(),
                std::net::IpAddr::V6(v6) => format!("[{v6}]"),
            };
            match port {
                0 => format!("ipvsadm:{protocol}/{address}:*"),
                port => format!("ipvsadm:{protocol}/{address}:{port}"),
            }
        }
    }
}

/// Returns the name of a server in its pool: address and port.
pub fn server_name(key: &crate::ServerKey) -> String {
    match key.address {
        std::net::IpAddr::V4(v4) => format!("{v4}:{}", key.port),
        std::net::IpAddr::V6(v6) => format!("[{v6}]:{}", key.port),
    }
}

/// Returns the service and its pool, or `None` if the data plane does not support the service.
pub fn lower(entry: &TableService) -> Option<(Service, Pool)> {
    let name = service_name(&entry.service.key);
    let mut service = Service::new(&name, weir_model::Forward::Direct, &name);
    match &entry.service.key {
        ServiceKey::Mark { mark, v6 } => {
            service.marks = vec![Mark {
                mark: NonZeroU32::new(*mark)?,
                family: if *v6 { Family::V6 } else { Family::V4 },
            }]
        }
        key => service.listen = vec![listener(key)?],
    }
    service.strict_ipvs = true;
    service.one_packet = entry.service.one_packet;
    service.persistence = entry.service.persistence.map(|persistence| {
        let (netmask, netmask6) = match persistence.mask {
            Mask::V4(mask) => (mask.leading_ones() as u8, 128),
            Mask::V6(length) => (32, length),
        };
        Persistence {
            timeout: Duration::from_secs(persistence.timeout_s.into()),
            netmask,
            netmask6,
        }
    });
    let mut pool = Pool::new(&name);
    pool.scheduler = Some(lower_scheduler(entry));
    // The newest server comes first in the table, but last in a pool.
    pool.servers = entry
        .servers
        .iter()
        .rev()
        .map(|server| lower_server(entry, server))
        .collect();
    service.forward = common_forward(&pool);
    Some((service, pool))
}

fn listener(key: &ServiceKey) -> Option<Listener> {
    let ServiceKey::Address {
        protocol,
        address,
        port,
    } = *key
    else {
        return None;
    };
    let protocol = match protocol {
        Protocol::Tcp => weir_model::Protocol::Tcp,
        Protocol::Udp => weir_model::Protocol::Udp,
        Protocol::Sctp => return None,
    };
    let ports = match port {
        0 => Ports::Any,
        port => Ports::One(port),
    };
    Some(Listener {
        protocol,
        address,
        ports,
    })
}

fn lower_scheduler(entry: &TableService) -> Scheduler {
    let kind = scheduler(&entry.service.scheduler).unwrap_or(SchedulerKind::Wlc);
    let is_hashing = matches!(kind, SchedulerKind::Sh | SchedulerKind::Mh);
    let flag = |bit| is_hashing && entry.service.flags & bit != 0;
    Scheduler {
        flags: SchedulerFlags {
            port: flag(crate::Service::FLAG_2),
            fallback: flag(crate::Service::FLAG_1),
            ..SchedulerFlags::default()
        },
        ..Scheduler::new(kind)
    }
}

fn lower_server(entry: &TableService, server: &Server) -> weir_model::Server {
    let key = server.key;
    let mut lowered =
        weir_model::Server::new(server_name(&key), key.address, server_port(entry, server));
    lowered.weight = match entry.service.scheduler.as_str() {
        // Without a scheduler, servers take no new connections; existing connections continue.
        NO_SCHEDULER => 0,
        _ => server.weight,
    };
    (lowered.max_connections, lowered.min_connections) = (server.upper, server.lower);
    lowered.forward = Some(match server.forward {
        Forward::Masq => weir_model::Forward::Nat,
        Forward::Route => weir_model::Forward::Direct,
        Forward::Tunnel => weir_model::Forward::Tunnel,
        Forward::L3dsr => weir_model::Forward::L3dsr,
    });
    lowered.tunnel = (server.forward == Forward::Tunnel).then_some(Tunnel {
        kind: server.tunnel.kind,
        port: match server.tunnel.port {
            0 => Tunnel::DEFAULT_PORT,
            port => port,
        },
        checksum: match server.tunnel.checksum {
            1 => TunnelChecksum::Full,
            2 => TunnelChecksum::Remote,
            _ => TunnelChecksum::None,
        },
    });
    lowered
}

/// Returns the destination port of packets to a server, or `None` for the port that the client used. Packets keep the
/// client's port without NAT, and if a persistent service has no port. A server whose address is listed twice always
/// has its configured port.
fn server_port(entry: &TableService, server: &Server) -> Option<u16> {
    let has_same_address = |other: &&Server| other.key.address == server.key.address;
    let is_unique = entry.servers.iter().filter(has_same_address).count() == 1;
    let keeps_port = match entry.service.key {
        ServiceKey::Address { port, .. } if port != 0 => server.forward != Forward::Masq,
        _ => server.forward != Forward::Masq || entry.service.persistence.is_some(),
    };
    (server.key.port != 0 && !(keeps_port && is_unique)).then_some(server.key.port)
}
