//! Manages probes that use a service's path, if the privileged layer 4 process writes their map rows.

use std::io;
use std::net::IpAddr;

use weir_engine_host::{EngineClient, ProbeForwarding, ProbeId, Query, Reply, Request};
use weir_model::ProbePath;
use weir_probing::{PathObservation, PathPackets, RemotePaths, path_entry};

/// Map rows for path probes, which the privileged layer 4 process writes.
#[derive(Debug)]
pub(super) struct Paths(pub(super) EngineClient);

const fn probe_id(packets: PathPackets) -> ProbeId {
    ProbeId {
        local: packets.local.ip(),
        port: packets.local.port(),
        protocol: packets.protocol.number(),
    }
}

impl RemotePaths for Paths {
    fn add(&self, packets: PathPackets, server: IpAddr, path: &ProbePath) -> io::Result<()> {
        let entry = path_entry(server, path);
        let forwarding = ProbeForwarding {
            server,
            vip: path.vip,
            forward: entry.forward,
            tunnel: entry.tunnel,
            tunnel_flags: entry.tunnel_flags,
            dscp: entry.dscp,
            tunnel_port: path.tunnel.port,
        };
        let id = probe_id(packets);
        let added = self.0.request(&Request::AddProbe { id, forwarding }, &[]);
        added.map(drop).map_err(io::Error::other)
    }

    fn read(&self, packets: PathPackets) -> io::Result<Option<PathObservation>> {
        let query = Request::Read(Query::Probe(probe_id(packets)));
        match self.0.request(&query, &[]).map_err(io::Error::other)? {
            Reply::Probe(observation) => Ok(observation.map(|counters| PathObservation {
                sent: counters.sent,
                answered: counters.answered,
                stray: counters.stray,
                untranslated: counters.untranslated,
                error_type: counters.error_type,
                error_code: counters.error_code,
            })),
            _ => Err(io::Error::other("unexpected reply")),
        }
    }

    fn remove(&self, packets: PathPackets) {
        self.0.send(&Request::RemoveProbe(probe_id(packets)));
    }

    fn claims_vip(&self, packets: PathPackets) -> bool {
        let reply = self.0.request(&Request::ClaimsVip(probe_id(packets)), &[]);
        matches!(reply, Ok(Reply::Claims(true)))
    }
}
