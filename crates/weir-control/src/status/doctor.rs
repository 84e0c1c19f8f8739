//! The part of a status report that `weir doctor` reads.

use weir_doctor::{Diagnosis, Handshakes, Latency, ServerReport, ServiceReport};
use weir_engine_host::SyncPeerStatus;

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

impl Report {
    /// Problems of the group of directors, and how they differ.
    pub fn group_findings(&self) -> Vec<Diagnosis> {
        let Some(group) = &self.cluster else {
            return Vec::new();
        };
        let mut found = Vec::new();
        if let Some(error) = &group.error {
            let problem = format!("[cluster]: {error}");
            let effect = "this director continues with what it has; changes do not reach it";
            found.push(Diagnosis::new(&problem, effect).fix(
                "check etcd with `etcdctl endpoint health`, and `etcd`, `ca` and `user` of [cluster]",
            ));
        }
        if let (Some(member), Some(reason)) = (&group.rollout_member, &group.rollout_reason) {
            let problem = format!(
                "the rollout of version {} was stopped by {member}: {reason}",
                group.published
            );
            let effect = "directors have different configurations";
            let fix = "correct the configuration, and run `weir cluster publish` again";
            found.push(Diagnosis::new(&problem, effect).fix(fix));
        }
        for member in &group.members {
            if let Some(since) = &member.since {
                let problem = format!("the director {} is absent since {since}", member.name);
                let effect = "it may serve clients with an old configuration";
                let fix = "check that Weir runs there and reaches etcd";
                found.push(Diagnosis::new(&problem, effect).fix(fix));
                continue;
            }
            for difference in &member.differences {
                let problem = format!("the director {} differs: {difference}", member.name);
                let effect = "a connection that moves to it may get another server";
                let fix = "use the same program, secrets and configuration on all directors";
                found.push(Diagnosis::new(&problem, effect).fix(fix));
            }
        }
        found
    }
}

fn silent_peer(listen: &str, peer: &SyncPeerStatus) -> Diagnosis {
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
