//! The part of a status report that `weir doctor` reads.

use weir_doctor::{Handshakes, Latency, ServerReport, ServiceReport};

use super::{Report, Server};

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
