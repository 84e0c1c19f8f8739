//! Describes virtual routers in the status document, as reported by the VRRP agent.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};
use weir_model::Desired;
use weir_vrrp_agent::{RouterReport, RouterStatus};

use super::rfc3339;

/// A virtual router.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VirtualRouterStatus {
    /// When the router entered its state, in RFC 3339 format.
    pub since: String,
    /// The router's state, as the agent reports it.
    #[serde(flatten)]
    pub router: RouterStatus,
}

impl From<RouterReport> for VirtualRouterStatus {
    fn from(report: RouterReport) -> Self {
        let since = SystemTime::UNIX_EPOCH + Duration::from_millis(report.since_ms);
        Self {
            since: rfc3339(since),
            router: report.router,
        }
    }
}

/// Returns the virtual routers as reported by the agent. If the agent cannot be reached, returns the configured virtual
/// routers in state `init`.
pub(crate) fn report(runtime_dir: &Path, desired: &Desired) -> Vec<VirtualRouterStatus> {
    if desired.vrrp.is_empty() {
        return Vec::new();
    }
    match weir_vrrp_agent::status(runtime_dir) {
        Ok(routers) => routers.into_iter().map(VirtualRouterStatus::from).collect(),
        Err(error) => {
            let reason = format!("the VRRP agent cannot be reached: {error}");
            let silent = |router: &weir_model::VirtualRouter| unknown_router(router, &reason);
            desired.vrrp.iter().map(silent).collect()
        }
    }
}

fn unknown_router(router: &weir_model::VirtualRouter, reason: &str) -> VirtualRouterStatus {
    let router = RouterStatus {
        name: router.name.clone(),
        state: "init".to_owned(),
        priority: router.priority,
        reason: reason.to_owned(),
        active_peer: None,
        active_peer_priority: None,
        id_conflict: None,
        version: router.version,
        router_id: router.router_id,
        interface: None,
        checksum: "plain".to_owned(),
        sent: 0,
        received: 0,
        lost: 0,
        ignored: BTreeMap::new(),
        last_ignored_seconds: BTreeMap::new(),
        address_mismatches: 0,
        peer_addresses_differ: false,
        takeovers: 0,
        tracked: Vec::new(),
    };
    VirtualRouterStatus {
        since: rfc3339(SystemTime::now()),
        router,
    }
}

/// Returns the text table; empty if there are no virtual routers.
pub fn table(routers: &[VirtualRouterStatus]) -> String {
    let mut rows = vec![
        [
            "ROUTER",
            "STATE",
            "PRIORITY",
            "SINCE",
            "ACTIVE PEER",
            "LOST",
            "CHECKSUM",
            "REASON",
        ]
        .map(str::to_owned),
    ];
    for VirtualRouterStatus { since, router } in routers {
        rows.push([
            router.name.clone(),
            router.state.clone(),
            router.priority.to_string(),
            since.clone(),
            router
                .active_peer
                .map_or_else(|| "-".to_owned(), |peer| peer.to_string()),
            router.lost.to_string(),
            match router.version {
                // Version 2 has only one form.
                2 => "-".to_owned(),
                _ => router.checksum.clone(),
            },
            router.reason.clone(),
        ]);
    }
    let mut text = String::new();
    if routers.is_empty() {
        return text;
    }
    let width = |column: usize| rows.iter().map(|row| row[column].len()).max().unwrap_or(0);
    for row in &rows {
        let [cells @ .., reason] = row;
        let cells = cells.iter().enumerate();
        let cells = cells.map(|(column, cell)| format!("{cell:<0$}", width(column)));
        text.push_str(&cells.collect::<Vec<_>>().join("  "));
        text.push_str(&format!("  {reason}\n"));
    }
    for VirtualRouterStatus { router, .. } in routers {
        if let Some(conflict) = &router.id_conflict {
            text.push_str(&format!(
                "{}: {} advertises an address of this router with router ID {}, not {}\n",
                router.name, conflict.peer, conflict.router_id, router.router_id
            ));
        }
        for (reason, count) in &router.ignored {
            text.push_str(&format!(
                "{}: {count} packets ignored: {reason}\n",
                router.name
            ));
        }
        for tracked in &router.tracked {
            text.push_str(&format!(
                "{}: {} is {}\n",
                router.name, tracked.name, tracked.state
            ));
        }
    }
    text
}
