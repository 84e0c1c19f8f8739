//! Derives the findings of `weir doctor` from a status report.

mod gre_checksum;
mod pool;
mod router;

use std::net::SocketAddr;

use weir_cluster::{COMMUNITIES_DIFFER, MTU_DIFFERS};
use weir_doctor::{
    ActivePeer, DaemonReport, Diagnosis, Disconnected, Handshakes, Latency, ServerReport,
    ServerWarning, ServiceReport,
};
use weir_engine_host::SyncPeerStatus;
use weir_model::Desired;

use super::{Report, Server};

impl Report {
    /// Returns the status in the form that `weir doctor` examines, without servers in pools that no request can reach.
    pub fn doctor_report(&self, desired: &Desired) -> DaemonReport {
        let services = self.services.iter().map(|service| {
            let is_reachable = |server: &&Server| {
                let pool = server.pool.as_deref().unwrap_or(&service.pool);
                pool::is_reachable(service, pool, desired)
            };
            let servers = service.servers.iter().filter(is_reachable);
            ServiceReport {
                name: service.name.clone(),
                forward: service.forward.clone(),
                servers: servers.map(doctor_server).collect(),
            }
        });
        let backups = self.vrrp.iter().map(|it| &it.router);
        let backups = backups.filter(|router| router.state == "backup");
        let active_peers = backups.filter_map(|router| {
            Some(ActivePeer {
                router: router.name.clone(),
                router_id: router.router_id,
                address: router.active_peer?,
                advertises_other_addresses: router.address_mismatches > 0,
            })
        });
        let pending_routers = self.vrrp.iter().filter(|it| it.pending.is_some());
        DaemonReport {
            services: services.collect(),
            active_peers: active_peers.collect(),
            waiting_vips: pending_routers
                .flat_map(|it| it.addresses.clone())
                .collect(),
        }
    }

    /// Returns problems with flow synchronization, except those that `disconnected` interfaces cause.
    pub fn sync_findings(&self, disconnected: &Disconnected) -> Vec<Diagnosis> {
        let Some(sync) = &self.sync else {
            return Vec::new();
        };
        if let Some(error) = &sync.error {
            let problem = format!("flows are not synchronized: {}: {error}", sync.listen);
            return vec![
                Diagnosis::new(
                    &problem,
                    "connections are lost when another director takes over the VIP",
                )
                .fix("set `listen` in [sync] to an address of this director and an unused port"),
            ];
        }
        let is_unreachable = |peer: &SyncPeerStatus| {
            let address = peer.address.parse::<SocketAddr>();
            address.is_ok_and(|address| disconnected.is_cause_for(address.ip()))
        };
        let peers = sync.peers.iter().filter(|peer| !is_unreachable(peer));
        peers
            .filter_map(|peer| peer_finding(&sync.listen, peer))
            .collect()
    }
}

impl Report {
    /// Returns problems with the group of directors, and the differences between directors.
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
            let fix =
                "correct the configuration, and publish it again with `weir cluster publish FILE`";
            findings.push(Diagnosis::new(&problem, effect).fix(fix));
        }
        for path in &group.differing_files {
            let problem = format!("[cluster]: {path} differs from the published file");
            let effect = "this director uses the published file";
            let fix = "if the file here is newer, publish the configuration again with `weir cluster publish FILE`; \
                       otherwise replace it, or remove it if this director's own file does not use it";
            findings.push(Diagnosis::new(&problem, effect).fix(fix));
        }
        for member in &group.members {
            if let Some(since) = &member.since {
                let problem = format!("the director {} has been absent since {since}", member.name);
                let effect = "it may serve clients with an old configuration";
                let fix = "check that Weir is running there and can reach etcd";
                findings.push(Diagnosis::new(&problem, effect).fix(fix));
                continue;
            }
            let differences = member.differences.iter();
            findings.extend(differences.map(|it| difference_finding(&member.name, it)));
        }
        findings
    }
}

/// Reports a difference between another director and this one.
fn difference_finding(director: &str, difference: &str) -> Diagnosis {
    let problem = format!("the director {director} differs: {difference}");
    if difference.starts_with(COMMUNITIES_DIFFER) {
        let effect =
            "routers whose policies depend on these communities prefer one of the directors";
        let fix = "use the same `communities` in [announce] on all directors, unless no policy depends on them";
        return Diagnosis::note(&problem, effect).fix(fix);
    }
    if difference.starts_with(MTU_DIFFERS) {
        let effect = "a connection may stall when it moves to the director with the smaller MTU";
        let fix = "set the same MTU on the interfaces of all directors that receive or send packets of services";
        return Diagnosis::new(&problem, effect).fix(fix);
    }
    let effect = "connections that it takes over may reach different servers";
    let fix = "use the same version of Weir, secrets and configuration on all directors";
    Diagnosis::new(&problem, effect).fix(fix)
}

impl Report {
    /// Returns problems with this director: functions that do not work, a drained director, temporary pins,
    /// certificates that expire soon, and changed files that are not in use. Omits problems that `disconnected`
    /// interfaces cause.
    pub fn director_findings(
        &self,
        desired: &Desired,
        disconnected: &Disconnected,
    ) -> Vec<Diagnosis> {
        let mut findings = Vec::new();
        if let Some(error) = &self.announce_error {
            let effect = "routers have no route to this director, or an outdated one";
            let fix = "start the BGP speaker, and compare [announce] with its configuration";
            findings
                .push(Diagnosis::new(format!("failed to announce VIPs: {error}"), effect).fix(fix));
        }
        if let Some(warning) = &self.announce_warning {
            let problem = format!("the BGP speaker does not work as configured: {warning}");
            let effect = "VIPs are announced, but a withdrawal takes longer";
            let fix = "correct `prefix_list` in [announce], or the speaker's configuration";
            findings.push(Diagnosis::new(problem, effect).fix(fix));
        }
        if self.drained {
            let effect = "its VIPs are withdrawn, and its virtual routers are released";
            findings
                .push(Diagnosis::new("this director is drained", effect).fix("weir node ready"));
        }
        if self.pins_are_temporary {
            let problem = "the daemon runs in a mount namespace that ends with its command, such as that of \
                 `ip netns exec`";
            let effect = "the pins are lost with it: after a stop or a crash, layer 4 services forward no packets";
            let fix = "stop Weir, and enter only the network namespace: nsenter --net=/run/netns/NAME weir run";
            findings.push(Diagnosis::new(problem, effect).fix(fix));
        }
        findings.extend(self.router_findings(desired, disconnected));
        findings.extend(self.gre_checksum_finding(desired));
        let certificates = self.certificates().map(|(_, certificate)| certificate);
        for certificate in certificates.filter(|certificate| certificate.needs_attention()) {
            let effect = "clients reject an expired certificate";
            let fix = match certificate.is_published() {
                true => {
                    "renew it, and publish the configuration again with `weir cluster publish FILE`"
                }
                false => "renew it; Weir loads changed certificate files automatically",
            };
            findings.push(Diagnosis::new(certificate.to_sentence(), effect).fix(fix));
        }
        for (files, error, correct) in [
            (
                "certificate files",
                &self.certificate_error,
                "replace the files with a certificate and its private key",
            ),
            ("list files", &self.list_error, "correct the file"),
        ] {
            if let Some(error) = error {
                let problem = format!("failed to load changed {files}: {error}");
                let fix = format!("{correct}; Weir loads changed files automatically");
                let finding = Diagnosis::new(problem, "the previous files remain in use");
                findings.push(finding.fix(fix));
            }
        }
        findings
    }
}

fn peer_finding(listen: &str, peer: &SyncPeerStatus) -> Option<Diagnosis> {
    let address = &peer.address;
    let (problem, fix) = match peer.state.as_str() {
        "silent" => {
            let start = format!(
                "start Weir there with {listen} in `peers`, and allow UDP between both ports in the firewalls"
            );
            // The datagrams may have been received long ago.
            let fix = match peer.ignored.contains_key("forged") {
                true => format!("use the same `key` on both directors; if it is the same, {start}"),
                false => start,
            };
            (format!("the [sync] peer {address} does not respond"), fix)
        }
        "unacknowledged" => (
            format!("the [sync] peer {address} does not receive this director's flows"),
            format!("allow UDP from {listen} to {address} in the firewalls"),
        ),
        _ => return None,
    };
    let effect = "connections through this director are lost when that peer takes over the VIP";
    Some(Diagnosis::new(&problem, effect).fix(&fix))
}

/// Returns whether a server is down, but the last probe of each check that is down passed.
fn is_recovering(server: &Server) -> bool {
    let down = || server.checks.iter().filter(|check| check.state == "down");
    server.state == "down"
        && down().next().is_some()
        && down().all(|check| check.results.ends_with('+'))
}

fn doctor_server(server: &Server) -> ServerReport {
    ServerReport {
        address: server.address.clone(),
        pool: server.pool.clone(),
        forward: server.forward.clone(),
        state: server.state.clone(),
        reason: server.reason.clone(),
        is_recovering: is_recovering(server),
        effective_weight: server.effective_weight,
        removed: server.removed,
        ejected: server
            .ejected
            .as_ref()
            .map(|ejected| ejected.reason.clone()),
        warning: server.warning.as_ref().map(|warning| ServerWarning {
            reason: warning.reason.clone(),
            last_seen_seconds: warning.last_seen_seconds,
        }),
        packets_out: server.totals.packets_out,
        handshakes: server.handshakes.map(|handshakes| Handshakes {
            syns: handshakes.syns,
            completed: handshakes.finished,
            last_syn_seconds: handshakes.last_syn_seconds,
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

    use weir_vrrp_agent::{IdConflictStatus, RouterStatus};

    use super::router::MISMATCH_SECONDS;
    use super::*;
    use crate::status::{Check, Group, GroupMember, VirtualRouterStatus};

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
            active_peer_priority: None,
            id_conflict: None,
            version: 3,
            router_id: 51,
            interface: None,
            checksum: "plain".to_owned(),
            sent: 0,
            received: 0,
            lost: 0,
            last_ignored_seconds: ignored.clone().map(|(reason, _)| (reason, 2)).collect(),
            ignored: ignored.collect::<BTreeMap<_, _>>(),
            address_mismatches: 0,
            peer_addresses_differ: false,
            takeovers: 0,
            tracked: Vec::new(),
        };
        VirtualRouterStatus {
            since: "2026-11-26T10:00:00Z".to_owned(),
            addresses: Vec::new(),
            pending: None,
            router,
        }
    }

    #[test]
    fn server_recovers_if_the_last_probe_of_each_failed_check_passed() {
        let is_recovering = |state: &str, checks: &[(&str, &str)]| {
            let mut report = Report::from(&crate::status::tests::director());
            let server = &mut report.services[0].servers[0];
            state.clone_into(&mut server.state);
            let template = server.checks[0].clone();
            let checks = checks.iter().map(|(state, results)| Check {
                state: (*state).to_owned(),
                results: (*results).to_owned(),
                ..template.clone()
            });
            server.checks = checks.collect();
            doctor_server(server).is_recovering
        };
        assert!(is_recovering("down", &[("down", "+--+")]));
        assert!(is_recovering("down", &[("up", "---"), ("down", "+--+")]));
        assert!(!is_recovering("down", &[("down", "+--+"), ("down", "---")]));
        assert!(!is_recovering("down", &[("down", "")]));
        assert!(!is_recovering("down", &[]));
        assert!(!is_recovering("up", &[("down", "+--+")]));
    }

    #[test]
    fn failing_functions_and_files_are_reported() {
        let report = Report {
            announce_error: Some("/run/bird/bird.ctl: not found".to_owned()),
            announce_warning: Some("frr: `ip prefix-list OUT` has no entries".to_owned()),
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
            .director_findings(&Desired::default(), &Disconnected::default())
            .iter()
            .map(ToString::to_string)
            .collect();
        insta::assert_snapshot!(findings.join("\n"));
    }

    #[test]
    fn differing_communities_are_reported_as_a_note() {
        let member = GroupMember {
            name: "lb2".to_owned(),
            differences: vec![
                "BGP communities none, here 65001:100".to_owned(),
                "MTU 9000, here 1500".to_owned(),
            ],
            ..GroupMember::default()
        };
        let report = Report {
            cluster: Some(Group {
                members: vec![member],
                ..Group::default()
            }),
            ..Report::default()
        };
        let findings = report.group_findings();
        let is_note: Vec<bool> = findings.iter().map(|it| it.is_note).collect();
        assert_eq!(is_note, [true, false], "{findings:?}");
    }

    #[test]
    fn routers_of_a_drained_director_are_not_reported_as_released() {
        let found = |drained| {
            let report = Report {
                drained,
                vrrp: vec![
                    router("fault", "released by an operator", &[]),
                    router("fault", "interface eth0 has failed", &[]),
                ],
                ..Report::default()
            };
            let findings = report.director_findings(&Desired::default(), &Disconnected::default());
            let findings = findings.iter().map(ToString::to_string);
            findings.collect::<Vec<_>>().join("\n")
        };
        let drained = found(true);
        assert!(drained.contains("fix:  weir node ready"), "{drained}");
        assert!(!drained.contains("resume"), "{drained}");
        assert!(drained.contains("interface eth0 has failed"), "{drained}");
        assert!(found(false).contains("fix:  weir vrrp web resume"));
    }

    /// Returns the first line and the fix of each finding about a group.
    fn findings_in_group(group: Group) -> Vec<(String, String)> {
        let report = Report {
            cluster: Some(group),
            ..Report::default()
        };
        let findings = report.group_findings();
        findings
            .into_iter()
            .map(|it| (it.observation, it.fix.unwrap_or_default()))
            .collect()
    }

    #[test]
    fn problems_of_the_group_are_reported() {
        let group = Group {
            published: 4,
            ..Group::default()
        };
        assert_eq!(findings_in_group(group.clone()), []);
        for (group, problem, fix) in [
            (
                Group {
                    error: Some("10.0.0.1:2379: no response".to_owned()),
                    ..group.clone()
                },
                "[cluster]: 10.0.0.1:2379: no response",
                "etcdctl endpoint health",
            ),
            (
                Group {
                    record_error: Some("the disk is full".to_owned()),
                    ..group.clone()
                },
                "[cluster]: failed to save the group's state: the disk is full",
                "free space",
            ),
            (
                Group {
                    differing_files: vec!["/etc/weir/a.pem".to_owned()],
                    ..group.clone()
                },
                "[cluster]: /etc/weir/a.pem differs from the published file",
                "weir cluster publish",
            ),
            (
                Group {
                    rollout_member: Some("lb2".to_owned()),
                    rollout_reason: Some("a port is used".to_owned()),
                    ..group.clone()
                },
                "the rollout of version 4 was stopped by lb2: a port is used",
                "weir cluster publish",
            ),
        ] {
            let diagnostics = findings_in_group(group);
            assert_eq!(diagnostics.len(), 1, "{diagnostics:?}");
            let (found_problem, found_fix) = &diagnostics[0];
            assert_eq!(found_problem, problem);
            assert!(found_fix.contains(fix), "{found_fix}");
        }
        // A director applies the configuration; nothing has failed.
        let running = Group {
            rollout_member: Some("lb2".to_owned()),
            ..group
        };
        assert_eq!(findings_in_group(running), []);
    }

    #[test]
    fn differences_and_absence_of_directors_are_reported() {
        let member = |name: &str, since: Option<&str>, differences: &[&str]| GroupMember {
            name: name.to_owned(),
            since: since.map(str::to_owned),
            differences: differences.iter().map(|it| (*it).to_owned()).collect(),
            ..GroupMember::default()
        };
        let secret = "secret key of [sync] differs";
        let order = "different servers, or servers in a different order";
        let group = Group {
            members: vec![
                member("lb1", None, &[]),
                member("lb2", None, &["weir 0.1.0, here 0.2.0", secret, order]),
                member(
                    "lb3",
                    None,
                    &["MTU 9000, here 1500", "[sync] is missing here"],
                ),
                // The record of an absent director is not compared.
                member(
                    "lb4",
                    Some("2026-11-26T10:00:00Z"),
                    &["MTU 9000, here 1500"],
                ),
            ],
            ..Group::default()
        };
        let diagnostics = findings_in_group(group);
        let same_configuration =
            "use the same version of Weir, secrets and configuration on all directors";
        let expected = [
            ("lb2 differs: weir 0.1.0, here 0.2.0", same_configuration),
            (
                "lb2 differs: secret key of [sync] differs",
                same_configuration,
            ),
            (
                "lb2 differs: different servers, or servers in a different order",
                same_configuration,
            ),
            (
                "lb3 differs: MTU 9000, here 1500",
                "set the same MTU on the interfaces of all directors that receive or send packets of services",
            ),
            ("lb3 differs: [sync] is missing here", same_configuration),
            (
                "lb4 has been absent since 2026-11-26T10:00:00Z",
                "check that Weir is running there and can reach etcd",
            ),
        ];
        let expected =
            expected.map(|(problem, fix)| (format!("the director {problem}"), fix.to_owned()));
        assert_eq!(diagnostics, expected);
    }

    #[test]
    fn healthy_director_has_no_findings() {
        let mut corrected = router("active", "started", &[("authentication", 3)]);
        let seconds = MISMATCH_SECONDS;
        corrected.router.last_ignored_seconds = [("authentication".to_owned(), seconds)].into();
        let report = Report {
            vrrp: vec![
                corrected,
                router("backup", "started", &[("own", 9)]),
                router("active", "no other director is active", &[("router-id", 2)]),
            ],
            ..Report::default()
        };
        let (desired, disconnected) = (Desired::default(), Disconnected::default());
        assert!(report.director_findings(&desired, &disconnected).is_empty());
    }

    fn desired(more: &str) -> Desired {
        let text = format!(
            "[vrrp.web]\ninterface = \"eth0\"\nvirtual_router_id = 51\naddresses = [\"10.0.0.10/24\"]\n{more}"
        );
        let parsed = weir_config::parse(&text, &weir_config::Host::default());
        parsed.expect("parse the configuration").desired
    }

    fn found(router: VirtualRouterStatus, more: &str) -> Vec<String> {
        let report = Report {
            vrrp: vec![router],
            ..Report::default()
        };
        let findings = report.director_findings(&desired(more), &Disconnected::default());
        findings.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn pending_router_is_reported_as_a_note() {
        let pending = "starts when the reload guard ends, in 23 s";
        let mut pending_router = router("init", pending, &[]);
        pending_router.pending = Some(pending.to_owned());
        pending_router.addresses = vec!["10.0.0.10".parse().expect("address is valid")];
        let report = Report {
            vrrp: vec![pending_router],
            ..Report::default()
        };
        let findings = report.director_findings(&desired(""), &Disconnected::default());
        assert_eq!(findings.len(), 1, "{findings:?}");
        assert!(findings[0].is_note, "{findings:?}");
        let expected = format!("the virtual router web {pending}");
        assert_eq!(findings[0].observation, expected);
        let waiting_vips = report.doctor_report(&Desired::default()).waiting_vips;
        assert_eq!(
            waiting_vips,
            report.vrrp[0].addresses.iter().copied().collect()
        );
    }

    #[test]
    fn active_directors_of_backup_routers_are_examined() {
        let with_peer = |state: &str| {
            let mut router = router(state, "started", &[]);
            router.router.active_peer = "10.0.0.3".parse().ok();
            router.router.address_mismatches = 2;
            router
        };
        let report = Report {
            vrrp: vec![
                with_peer("backup"),
                with_peer("fault"),
                router("backup", "started", &[]),
            ],
            ..Report::default()
        };
        let peer = ActivePeer {
            router: "web".to_owned(),
            router_id: 51,
            address: "10.0.0.3".parse().expect("address is valid"),
            advertises_other_addresses: true,
        };
        let doctor_report = report.doctor_report(&Desired::default());
        assert_eq!(doctor_report.active_peers, [peer]);
    }

    #[test]
    fn differing_addresses_of_the_active_director_are_reported() {
        let mut backup = router("backup", "started", &[]);
        backup.router.active_peer = "10.0.0.3".parse().ok();
        backup.router.peer_addresses_differ = true;
        let found = found(backup, "").join("\n");
        for part in [
            "the active director 10.0.0.3 has different addresses for the virtual router web",
            "use the same `addresses` in [vrrp.web] on all directors",
        ] {
            assert!(found.contains(part), "{found}");
        }
    }

    #[test]
    fn equal_priorities_are_reported() {
        let backup = |own, peer| {
            let mut backup = router("backup", "started", &[]);
            backup.router.priority = own;
            backup.router.active_peer = "10.0.0.3".parse().ok();
            backup.router.active_peer_priority = Some(peer);
            backup
        };
        insta::assert_snapshot!(found(backup(100, 100), "priority = 100\n").join("\n"));
        assert_eq!(found(backup(100, 150), ""), [""; 0], "a higher priority");
        let reduced = found(backup(90, 90), "priority = 100\n");
        assert_eq!(reduced, [""; 0], "a tracked object reduces the priority");
        let sticky = found(backup(100, 100), "preempt = false\n");
        assert_eq!(sticky, [""; 0], "no preemption");
    }

    #[test]
    fn different_ids_for_the_same_address_are_reported() {
        let mut active_router = router("active", "no other director is active", &[]);
        active_router.router.id_conflict = Some(IdConflictStatus {
            peer: "10.0.0.4".parse().expect("address is valid"),
            router_id: 52,
        });
        insta::assert_snapshot!(found(active_router, "").join("\n"));
    }
}
