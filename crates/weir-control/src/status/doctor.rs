//! The problems that `weir doctor` finds in a status report.

use weir_doctor::{Diagnosis, Handshakes, Latency, ServerReport, ServiceReport};
use weir_engine_host::SyncPeerStatus;

use super::{Report, Server, VirtualRouterStatus};

impl Report {
    /// Returns the services, for the findings of `weir doctor`.
    pub fn doctor_services(&self) -> Vec<ServiceReport> {
        let services = self.services.iter().map(|service| ServiceReport {
            name: service.name.clone(),
            forward: service.forward.clone(),
            servers: service.servers.iter().map(doctor_server).collect(),
        });
        services.collect()
    }

    /// Returns the problems of flow synchronization.
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
                .fix("set `listen` in [sync] to an address of this director"),
            ];
        }
        let silent = sync.peers.iter().filter(|peer| peer.state == "silent");
        silent.map(|peer| silent_peer(&sync.listen, peer)).collect()
    }
}

impl Report {
    /// Returns the problems of the group of directors, and differences between directors.
    pub fn group_findings(&self) -> Vec<Diagnosis> {
        let Some(group) = &self.cluster else {
            return Vec::new();
        };
        let mut findings = Vec::new();
        if let Some(error) = &group.error {
            let problem = format!("[cluster]: {error}");
            let effect = "this director continues with its current state and receives no changes";
            findings.push(Diagnosis::new(&problem, effect).fix(
                "check etcd with `etcdctl endpoint health`, and check `etcd`, `ca` and `user` in [cluster]",
            ));
        }
        if let Some(error) = &group.record_error {
            let problem = format!("[cluster]: failed to save the group's state: {error}");
            let effect = "a director that restarts while etcd does not respond uses older state";
            let fix = "free space on the disk; Weir retries the write automatically";
            findings.push(Diagnosis::new(&problem, effect).fix(fix));
        }
        if let (Some(member), Some(reason)) = (&group.rollout_member, &group.rollout_reason) {
            let problem = format!(
                "the rollout of version {} was stopped by {member}: {reason}",
                group.published
            );
            let effect = "directors have different configurations";
            let fix = "correct the configuration and run `weir cluster publish` again";
            findings.push(Diagnosis::new(&problem, effect).fix(fix));
        }
        for member in &group.members {
            if let Some(since) = &member.since {
                let problem = format!("the director {} has been absent since {since}", member.name);
                let effect = "it may serve clients with an old configuration";
                let fix = "check that Weir runs there and can reach etcd";
                findings.push(Diagnosis::new(&problem, effect).fix(fix));
                continue;
            }
            for difference in &member.differences {
                let problem = format!("the director {} differs: {difference}", member.name);
                let effect = "a connection that moves to it may reach a different server";
                let fix =
                    "use the same version of Weir, secrets and configuration on all directors";
                findings.push(Diagnosis::new(&problem, effect).fix(fix));
            }
        }
        findings
    }
}

impl Report {
    /// Returns problems with configured functions that do not work on this director, and with changed files that are
    /// not in use.
    pub fn director_findings(&self) -> Vec<Diagnosis> {
        let mut findings = Vec::new();
        if let Some(error) = &self.announce_error {
            let effect = "routers have no route to this director, or an outdated one";
            let fix = "start the BGP speaker, and compare [announce] with its configuration";
            findings
                .push(Diagnosis::new(format!("failed to announce VIPs: {error}"), effect).fix(fix));
        }
        if self.drained {
            let effect = "its VIPs are withdrawn, and its virtual routers are released";
            findings
                .push(Diagnosis::new("this director is drained", effect).fix("weir node ready"));
        }
        if self.pins_are_temporary {
            let problem = "the daemon runs in a mount namespace that ends with its command, such as that of \
                 `ip netns exec`";
            let effect = "the pins end with it: after a stop or a crash, no packet of layer 4 services is forwarded";
            let fix = "stop Weir, and enter only the network namespace: nsenter --net=/run/netns/NAME weir run";
            findings.push(Diagnosis::new(problem, effect).fix(fix));
        }
        findings.extend(self.vrrp.iter().flat_map(router_findings));
        let certificates = self.certificates().map(|(_, certificate)| certificate);
        for certificate in certificates.filter(|certificate| certificate.needs_attention()) {
            let effect = "clients reject an expired certificate";
            let fix = "renew it; Weir loads changed certificate files automatically";
            findings.push(Diagnosis::new(certificate.to_sentence(), effect).fix(fix));
        }
        for (files, error) in [
            ("certificate files", &self.certificate_error),
            ("list files", &self.list_error),
        ] {
            if let Some(error) = error {
                let problem = format!("failed to load changed {files}: {error}");
                findings.push(Diagnosis::new(problem, "the previous files remain in use"));
            }
        }
        findings
    }
}

/// Reasons for ignored advertisements that indicate different configurations of the directors, and the keys to compare.
/// Advertisements of other virtual routers on the segment are ignored as well, which is not a problem.
const MISMATCHES: [(&str, &str); 6] = [
    ("authentication", "`password` or `hmac`"),
    ("version", "`version`"),
    ("interval", "`advert_interval`"),
    ("checksum", "`version` and `checksum`"),
    ("addresses", "`addresses`"),
    ("peer", "`unicast_peers`"),
];

fn router_findings(VirtualRouterStatus { router, .. }: &VirtualRouterStatus) -> Vec<Diagnosis> {
    let name = &router.name;
    let mut findings = Vec::new();
    // A router whose agent does not respond is also reported in this state.
    if matches!(router.state.as_str(), "fault" | "init") {
        let problem = format!(
            "the virtual router {name} is in state {}: {}",
            router.state, router.reason
        );
        let effect = "this director does not take over its addresses";
        let finding = Diagnosis::new(problem, effect);
        findings.push(match router.reason.contains("operator") {
            true => finding.fix(format!("weir vrrp {name} resume")),
            false => finding.fix(format!(
                "remove the cause, which `weir vrrp` shows with the tracked items of {name}"
            )),
        });
    }
    for (reason, keys) in MISMATCHES {
        let count = router.ignored.get(reason).copied().unwrap_or(0);
        if count > 0 {
            let problem = format!(
                "{count} advertisements for the virtual router {name} were ignored since Weir started: {reason}"
            );
            let effect = "two directors may have the addresses at the same time";
            let fix = format!("use the same {keys} in [vrrp.{name}] on all directors");
            findings.push(Diagnosis::new(problem, effect).fix(fix));
        }
    }
    findings
}

fn silent_peer(listen: &str, peer: &SyncPeerStatus) -> Diagnosis {
    let problem = format!("the [sync] peer {} does not respond", peer.address);
    let effect = "connections through this director end when the VIP moves to that peer";
    let fix = if peer.ignored.contains_key("forged") {
        "use the same `key` on both directors".to_owned()
    } else {
        format!(
            "start Weir there with {listen} in `peers`, and allow UDP between both ports in the firewalls"
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
        ejected: server
            .ejected
            .as_ref()
            .map(|ejected| ejected.reason.clone()),
        warning: server
            .warning
            .as_ref()
            .map(|warning| warning.reason.clone()),
        handshakes: server.handshakes.map(|handshakes| Handshakes {
            syns: handshakes.syns,
            completed: handshakes.finished,
        }),
        latency: server.latency.as_ref().map(|latency| Latency {
            p50_us: latency.p50_ms.0,
            samples: latency.samples,
        }),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use weir_vrrp_agent::RouterStatus;

    use super::*;

    fn router(state: &str, reason: &str, ignored: &[(&str, u64)]) -> VirtualRouterStatus {
        let ignored = ignored
            .iter()
            .map(|(reason, count)| ((*reason).to_owned(), *count));
        let router = RouterStatus {
            name: "web".to_owned(),
            state: state.to_owned(),
            priority: 100,
            reason: reason.to_owned(),
            active_peer: None,
            version: 3,
            router_id: 51,
            interface: None,
            checksum: "plain".to_owned(),
            sent: 0,
            received: 0,
            ignored: ignored.collect::<BTreeMap<_, _>>(),
            address_mismatches: 0,
            takeovers: 0,
            tracked: Vec::new(),
        };
        VirtualRouterStatus {
            since: "2026-11-26T10:00:00Z".to_owned(),
            router,
        }
    }

    #[test]
    fn failing_functions_and_files_are_reported() {
        let report = Report {
            announce_error: Some("/run/bird/bird.ctl: not found".to_owned()),
            drained: true,
            pins_are_temporary: true,
            certificate_error: Some("/etc/weir/a.pem: no private key".to_owned()),
            vrrp: vec![
                router("fault", "released by an operator", &[]),
                router(
                    "active",
                    "started",
                    &[("own", 9), ("router-id", 9), ("authentication", 3)],
                ),
            ],
            ..Report::default()
        };
        let findings: Vec<String> = report
            .director_findings()
            .iter()
            .map(ToString::to_string)
            .collect();
        insta::assert_snapshot!(findings.join("\n"));
    }

    #[test]
    fn healthy_director_has_no_findings() {
        let report = Report {
            vrrp: vec![
                router("backup", "started", &[("own", 9)]),
                router("active", "no other director is active", &[("router-id", 2)]),
            ],
            ..Report::default()
        };
        assert!(report.director_findings().is_empty());
    }
}
