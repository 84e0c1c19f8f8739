//! The part of a status report that `weir doctor` reads.

use weir_doctor::{Diagnosis, Handshakes, Latency, ServerReport, ServiceReport};

use super::{Report, Server, SyncPeer};

impl Report {
    /// The services, for the findings of `weir doctor`.
    pub fn doctor_services(&self) -> Vec<ServiceReport> {
        let services = self.services.iter().map(|service| ServiceReport {
            name: service.name.clone(),
            forward: service.forward.clone(),
            servers: service.servers.iter().map(doctor_server).collect(),
        });
        services.collect()
    }

    /// Problems of flow synchronization.
    pub fn sync_findings(&self) -> Vec<Diagnosis> {
        let Some(sync) = &self.sync else {
            return Vec::new();
        };
        if let Some(error) = &sync.error {
            let problem = format!("flows are not synchronized: {}: {error}", sync.listen);
            return vec![
                Diagnosis::new(
                    &problem,
                    "connections end when the VIP moves to another director",
                )
                .fix("`listen` of [sync] must be an address of this director"),
            ];
        }
        let silent = sync.peers.iter().filter(|peer| peer.state == "silent");
        silent.map(|peer| silent_peer(&sync.listen, peer)).collect()
    }
}

fn silent_peer(listen: &str, peer: &SyncPeer) -> Diagnosis {
    let problem = format!("the peer {} of [sync] does not answer", peer.address);
    let effect = "connections of this director end when the VIP moves to it";
    let fix = if peer.ignored.contains_key("forged") {
        "use the same `key` on both directors".to_owned()
    } else {
        format!(
            "start Weir there with {listen} in `peers`, and permit UDP between both ports in the firewalls"
        )
    };
    Diagnosis::new(&problem, effect).fix(&fix)
}

fn doctor_server(server: &Server) -> ServerReport {
    ServerReport {
        address: server.address.clone(),
        forward: server.forward.clone(),
        state: server.state.clone(),
        reason: server.reason.clone(),
        effective_weight: server.effective_weight,
        removed: server.removed,
        ejected: server.ejected.as_ref().map(|it| it.reason.clone()),
        warning: server.warning.as_ref().map(|it| it.reason.clone()),
        handshakes: server.handshakes.map(|it| Handshakes {
            syns: it.syns,
            finished: it.finished,
        }),
        latency: server.latency.as_ref().map(|it| Latency {
            p50_us: it.p50_ms.0,
            samples: it.samples,
        }),
    }
}
