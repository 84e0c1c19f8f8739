//! Derives the findings about virtual routers.

use std::collections::BTreeSet;

use weir_doctor::{Diagnosis, Disconnected};
use weir_model::{Desired, VirtualRouter};
use weir_vrrp_agent::RouterStatus;

use crate::status::vrrp::has_not_started;
use crate::status::{Report, VirtualRouterStatus};

/// Reasons for ignoring advertisements that show that the directors' configurations differ, and the keys to compare.
/// Advertisements of other virtual routers on the segment are also ignored, but are not a problem.
const MISMATCHES: [(&str, &str); 6] = [
    ("authentication", "`password` or `hmac`"),
    ("version", "`version`"),
    ("interval", "`advert_interval`"),
    ("checksum", "`version` and `checksum`"),
    ("addresses", "`addresses`"),
    ("peer", "`unicast_peers`"),
];

/// How long an ignored advertisement is considered a problem; longer than most advertisement intervals.
pub(super) const MISMATCH_SECONDS: u64 = 60;

impl Report {
    /// Returns problems with virtual routers, except faults that `disconnected` interfaces cause.
    pub(super) fn router_findings(
        &self,
        desired: &Desired,
        disconnected: &Disconnected,
    ) -> Vec<Diagnosis> {
        let mut disconnected_routers = BTreeSet::new();
        let mut findings = Vec::new();
        for VirtualRouterStatus { router, .. } in &self.vrrp {
            let configured = desired.vrrp.iter().find(|it| it.name == router.name);
            if has_failed_with_link(router, configured, disconnected) {
                disconnected_routers.insert(router.name.as_str());
            }
        }
        for status in &self.vrrp {
            let router = &status.router;
            if let Some(pending) = &status.pending {
                findings.push(pending_router(&router.name, pending));
            }
            if has_not_started(status) {
                continue;
            }
            let configured = desired.vrrp.iter().find(|it| it.name == router.name);
            let leader = router.reason.split_once(" of the same group ");
            let leader = leader.map_or(router.name.as_str(), |(leader, _)| leader);
            // Draining releases all virtual routers. Resuming one would end this only for its addresses.
            let is_drained = self.drained && is_released(router);
            if !disconnected_routers.contains(leader) && !is_drained {
                findings.extend(state_finding(router));
            }
            // The configuration that the agent runs is not the one to compare with other directors.
            if status.pending.is_some() {
                continue;
            }
            findings.extend(id_conflict(router));
            findings.extend(configured.and_then(|configured| equal_priority(router, configured)));
            findings.extend(mismatches(router));
            findings.extend(address_difference(router));
        }
        findings
    }
}

/// Reports a virtual router with a change that is pending until the reload guard ends.
fn pending_router(name: &str, pending: &str) -> Diagnosis {
    let effect = "until then, this director has the virtual routers and the VIPs of the previous configuration";
    let fix =
        "wait for `weir reload` to return before Weir is started or reloaded on another director";
    Diagnosis::note(format!("the virtual router {name} {pending}"), effect).fix(fix)
}

/// Returns whether a virtual router is in the fault state because its interface, or one that it tracks, has no link.
fn has_failed_with_link(
    router: &RouterStatus,
    configured: Option<&VirtualRouter>,
    disconnected: &Disconnected,
) -> bool {
    let own = configured.and_then(|configured| configured.interface.as_ref());
    let is_own = router.interface.is_none() && own.is_some_and(|name| disconnected.contains(name));
    let tracked = router.reason.strip_prefix("interface ");
    let tracked = tracked.and_then(|reason| reason.strip_suffix(" has failed"));
    router.state == "fault"
        && !is_released(router)
        && (is_own || tracked.is_some_and(|name| disconnected.contains(name)))
}

/// Returns whether an operator has released a virtual router, or another one in its group.
fn is_released(router: &RouterStatus) -> bool {
    router.reason.contains("operator")
}

/// Reports a virtual router that cannot become active.
fn state_finding(router: &RouterStatus) -> Option<Diagnosis> {
    let name = &router.name;
    // If the agent cannot be reached, its routers are also reported in state `init`.
    if !matches!(router.state.as_str(), "fault" | "init") {
        return None;
    }
    let problem = format!(
        "the virtual router {name} is in state {}: {}",
        router.state, router.reason
    );
    let effect = "this director does not take over its addresses";
    let finding = Diagnosis::new(problem, effect);
    Some(match is_released(router) {
        true => finding.fix(format!("weir vrrp {name} resume")),
        false => finding.fix(format!(
            "remove the cause, which `weir vrrp` shows with the tracked objects of {name}"
        )),
    })
}

/// Reports another director that advertises the addresses with a different virtual router ID.
fn id_conflict(router: &RouterStatus) -> Option<Diagnosis> {
    let conflict = router.id_conflict.as_ref()?;
    let (name, own, other) = (&router.name, router.router_id, conflict.router_id);
    let peer = conflict.peer;
    let problem = format!(
        "{peer} advertises an address of the virtual router {name} with the virtual router ID {other}; this director \
         uses {own}"
    );
    let effect = "VRRP treats the two IDs as two virtual routers: both directors are active and have the address";
    let fix = format!(
        "use the same `virtual_router_id` in {} on all directors: {own}, as here, or {other}, as on {peer}; then \
         reload",
        weir_config::header(&["vrrp", name])
    );
    Some(Diagnosis::new(problem, effect).fix(fix))
}

/// Reports that the active director has the same priority. Does not report this if preemption is off, because
/// priorities matter less then, or while tracked objects reduce this director's priority.
fn equal_priority(router: &RouterStatus, configured: &VirtualRouter) -> Option<Diagnosis> {
    let priority = router.active_peer_priority?;
    let peer = router.active_peer?;
    let is_reduced = router.priority < configured.priority;
    if priority != router.priority || is_reduced || !configured.preempt {
        return None;
    }
    let name = &router.name;
    let problem = format!(
        "the virtual router {name} has priority {priority} on this director and on the active one, {peer}"
    );
    let effect = "neither director is preferred: after a failure, the addresses stay where they are, and if both \
                  directors start at the same time, the one with the higher address becomes active";
    let fix = format!(
        "set a different `priority` in {} on each director; here it is {}; or set `preempt = false`, if the addresses \
         should stay",
        weir_config::header(&["vrrp", name]),
        configured.priority
    );
    Some(Diagnosis::new(problem, effect).fix(fix))
}

/// Reports ignored advertisements that show that the directors' configurations differ. Skips reasons for which no
/// advertisement was ignored in the last minute: the difference has been corrected, or the director has gone.
fn mismatches(router: &RouterStatus) -> Vec<Diagnosis> {
    let name = &router.name;
    let mut findings = Vec::new();
    for (reason, keys) in MISMATCHES {
        let count = router.ignored.get(reason).copied().unwrap_or(0);
        let seconds = router.last_ignored_seconds.get(reason).copied();
        if let Some(seconds) = seconds.filter(|it| *it < MISMATCH_SECONDS) {
            let problem = format!(
                "ignored advertisements for the virtual router {name} since Weir started: {count} (`{reason}`), the \
                last one {seconds} s ago"
            );
            let effect = "two directors may have the addresses at the same time";
            let fix = format!("use the same {keys} in [vrrp.{name}] on all directors");
            findings.push(Diagnosis::new(problem, effect).fix(fix));
        }
    }
    findings
}

/// Reports that the active router's addresses differ from those that this director is configured with.
fn address_difference(router: &RouterStatus) -> Option<Diagnosis> {
    let peer = router
        .active_peer
        .filter(|_| router.peer_addresses_differ)?;
    let name = &router.name;
    let problem = format!(
        "the active director {peer} has different addresses for the virtual router {name} than this director"
    );
    let effect = "addresses that only one of the two directors has are on no machine while the other one is active";
    let fix = format!("use the same `addresses` in [vrrp.{name}] on all directors");
    Some(Diagnosis::new(problem, effect).fix(fix))
}
