//! Adds, reads and removes the rows of the daemon's probes in the probe map, and sends ARP requests for their VIPs.
//!
//! The daemon's socket sends the packets. The row makes the programs forward them like a client's packets, so the path
//! must lead from a configured service to one of its servers, and the source address must belong to this machine.

use std::net::{SocketAddr, UdpSocket};

use weir_abi::{Probe, ProbeKey};
use weir_engine::Engine;
use weir_model::{Desired, Forward, ProbePath};
use weir_probing::{path_entry, path_observation};

use crate::message::{ProbeForwarding, ProbeId, ProbeResult, Reply};

fn key(id: ProbeId) -> ProbeKey {
    ProbeKey {
        local: id.local.into(),
        port: id.port.into(),
        proto: id.protocol,
        ..ProbeKey::ZERO
    }
}

fn probe_row(forwarding: ProbeForwarding) -> Probe {
    Probe {
        server: forwarding.server.into(),
        vip: forwarding.vip.into(),
        forward: forwarding.forward,
        tunnel: forwarding.tunnel,
        tunnel_flags: forwarding.tunnel_flags,
        dscp: forwarding.dscp,
        tunnel_port: forwarding.tunnel_port.into(),
        ..Probe::ZERO
    }
}

/// Returns whether a service in the configuration forwards to this server along this path; false for `nat`, whose
/// probes need no row.
fn is_configured(desired: &Desired, forwarding: ProbeForwarding) -> bool {
    let requested_row = probe_row(forwarding);
    let services = desired.services.iter();
    let mut services =
        services.filter(|service| service.listen.iter().any(|it| it.address == forwarding.vip));
    services.any(|service| {
        let pool = desired.pools.iter().find(|pool| pool.name == service.pool);
        let servers = pool
            .into_iter()
            .flat_map(|pool| pool.servers.iter().chain(&pool.sorry));
        let mut servers = servers.filter(|server| server.address == forwarding.server);
        servers.any(|server| {
            let forward = server.forward_in(service);
            let path = ProbePath {
                vip: forwarding.vip,
                port: 0,
                forward,
                tunnel: server.tunnel_in(service),
                dscp: service.dscp,
                source_is_vip: false,
            };
            let has_row = forward.handles_packets() && forward != Forward::Nat;
            has_row && path_entry(server.address, &path) == requested_row
        })
    })
}

pub(crate) fn add(engine: &Engine, id: ProbeId, forwarding: ProbeForwarding) -> Reply {
    let refuse = |cause: &str| {
        let reason = format!(
            "a probe to {} for VIP {}: {cause}",
            forwarding.server, forwarding.vip
        );
        tracing::error!(reason, "refused a request from the daemon");
        Reply::Refused { reason }
    };
    if !is_configured(engine.desired(), forwarding) {
        return refuse("the path is not configured");
    }
    // With another machine's address, the row would also apply to packets that this machine forwards.
    if UdpSocket::bind(SocketAddr::new(id.local, 0)).is_err() {
        return refuse("the source address is not an address of this machine");
    }
    match engine.probe_table().set(&key(id), &probe_row(forwarding)) {
        Ok(()) => Reply::Done,
        Err(error) => Reply::Failed {
            reason: error.to_string(),
        },
    }
}

pub(crate) fn read(engine: &Engine, id: ProbeId) -> Reply {
    match engine.probe_table().get(&key(id)) {
        Ok(found) => Reply::Probe(found.map(|entry| {
            let observed = path_observation(&entry);
            ProbeResult {
                sent: observed.sent,
                answered: observed.answered,
                stray: observed.stray,
                untranslated: observed.untranslated,
                error_type: observed.error_type,
                error_code: observed.error_code,
            }
        })),
        Err(error) => Reply::Failed {
            reason: error.to_string(),
        },
    }
}

pub(crate) fn remove(engine: &Engine, id: ProbeId) -> Reply {
    match engine.probe_table().remove(&key(id)) {
        Ok(_) => Reply::Done,
        Err(error) => Reply::Failed {
            reason: error.to_string(),
        },
    }
}

/// An ARP request to the server of a probe, with the interface and MAC addresses from the probe's row.
pub(crate) struct ArpClaim {
    observed: Probe,
    id: ProbeId,
}

impl ArpClaim {
    /// Returns the request; `None` = there is no such probe.
    pub(crate) fn for_probe(engine: &Engine, id: ProbeId) -> Option<Self> {
        let observed = engine.probe_table().get(&key(id)).ok()??;
        Some(Self { observed, id })
    }

    /// Sends the request. Returns whether the server responds for the VIP. Blocks for a few tens of milliseconds at
    /// most.
    pub(crate) fn probe(&self) -> bool {
        weir_probing::claims_vip(&self.observed, self.id.local)
    }
}

#[cfg(test)]
mod tests {
    use weir_config::Host;

    use super::*;

    const TEXT: &str = r#"
[pool.p]
servers = ["10.0.0.1"]
[service.s]
listen = ["10.0.0.9:80"]
forward = "direct"
pool = "p"
[pool.q]
servers = ["10.0.0.2"]
[service.t]
listen = ["10.0.0.8:80"]
forward = "tunnel"
pool = "q"
"#;

    #[test]
    fn only_paths_from_services_to_their_servers_are_accepted() {
        let desired = weir_config::parse(TEXT, &Host::default()).unwrap().desired;
        let forwarding = |server: &str, vip: &str, forward: Forward| ProbeForwarding {
            server: server.parse().unwrap(),
            vip: vip.parse().unwrap(),
            forward: weir_flow::abi_forward(forward) as u8,
            tunnel: 0,
            tunnel_flags: 0,
            dscp: desired.services[0].dscp,
            tunnel_port: 0,
        };
        let pool = &desired.pools[0];
        let service = &desired.services[0];
        let tunnel = pool.servers[0].tunnel_in(service);
        let with_tunnel_fields = |it: ProbeForwarding| ProbeForwarding {
            tunnel: weir_flow::abi_tunnel(tunnel.kind) as u8,
            tunnel_flags: path_entry(
                it.server,
                &ProbePath {
                    vip: it.vip,
                    port: 0,
                    forward: Forward::Direct,
                    tunnel,
                    dscp: service.dscp,
                    source_is_vip: false,
                },
            )
            .tunnel_flags,
            tunnel_port: tunnel.port,
            ..it
        };
        let direct = Forward::Direct;
        assert!(is_configured(
            &desired,
            with_tunnel_fields(forwarding("10.0.0.1", "10.0.0.9", direct))
        ));
        for wrong in [
            forwarding("10.0.0.2", "10.0.0.9", direct),
            forwarding("10.0.0.1", "10.0.0.8", direct),
            forwarding("10.0.0.1", "192.0.2.1", direct),
            forwarding("10.0.0.1", "10.0.0.9", Forward::Tunnel),
            forwarding("192.0.2.9", "10.0.0.9", direct),
        ] {
            assert!(
                !is_configured(&desired, with_tunnel_fields(wrong)),
                "{wrong:?}"
            );
        }
    }
}
