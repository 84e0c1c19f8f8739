//! Virtual routers in the status document, as the VRRP agent reports them.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::Path;
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};
use weir_model::Desired;
use weir_vrrp_agent::{RouterStatus, TrackedStatus};

use super::rfc3339;

/// A virtual router.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Vrrp {
    /// Its name.
    pub name: String,
    /// `init`, `backup`, `active` or `fault`.
    pub state: String,
    /// The priority, with what tracked objects change.
    pub priority: u8,
    /// When the state was entered, RFC 3339.
    pub since: String,
    /// Why.
    pub reason: String,
    /// The active director, if it is another one.
    pub active_peer: Option<IpAddr>,
    /// Protocol version.
    pub version: u8,
    /// Virtual router ID.
    pub router_id: u8,
    /// Interface, if it is usable.
    pub interface: Option<String>,
    /// Checksum of packets of version 3 over IPv4: `plain`, `pseudo-header` or `group-pseudo-header`.
    pub checksum: String,
    /// Packets sent.
    pub sent: u64,
    /// Packets received and accepted.
    pub received: u64,
    /// Packets ignored, by reason.
    pub ignored: BTreeMap<String, u64>,
    /// Accepted packets that list other addresses.
    pub address_mismatches: u64,
    /// How often it became active since the agent started.
    pub takeovers: u64,
    /// Tracked objects.
    pub tracked: Vec<TrackedStatus>,
}

impl From<RouterStatus> for Vrrp {
    fn from(status: RouterStatus) -> Self {
        let since = SystemTime::UNIX_EPOCH + Duration::from_millis(status.since_ms);
        Self {
            name: status.name,
            state: status.state,
            priority: status.priority,
            since: rfc3339(since),
            reason: status.reason,
            active_peer: status.active_peer,
            version: status.version,
            router_id: status.router_id,
            interface: status.interface,
            checksum: status.checksum,
            sent: status.sent,
            received: status.received,
            ignored: status.ignored,
            address_mismatches: status.address_mismatches,
            takeovers: status.takeovers,
            tracked: status.tracked,
        }
    }
}

/// The virtual routers of the agent; those of the configuration, in state `init`, if it does not answer.
pub(crate) fn report(runtime_dir: &Path, desired: &Desired) -> Vec<Vrrp> {
    if desired.vrrp.is_empty() {
        return Vec::new();
    }
    match weir_vrrp_agent::status(runtime_dir) {
        Ok(routers) => routers.into_iter().map(Vrrp::from).collect(),
        Err(error) => {
            let reason = format!("the VRRP agent does not respond: {error}");
            let silent = |router: &weir_model::VirtualRouter| unknown(router, &reason);
            desired.vrrp.iter().map(silent).collect()
        }
    }
}

fn unknown(router: &weir_model::VirtualRouter, reason: &str) -> Vrrp {
    Vrrp {
        name: router.name.clone(),
        state: "init".to_owned(),
        priority: router.priority,
        since: rfc3339(SystemTime::now()),
        reason: reason.to_owned(),
        active_peer: None,
        version: router.version,
        router_id: router.router_id,
        interface: None,
        checksum: "plain".to_owned(),
        sent: 0,
        received: 0,
        ignored: BTreeMap::new(),
        address_mismatches: 0,
        takeovers: 0,
        tracked: Vec::new(),
    }
}

/// The text table; empty without virtual routers.
pub fn table(routers: &[Vrrp]) -> String {
    let mut rows = vec![
        [
            "ROUTER",
            "STATE",
            "PRIORITY",
            "SINCE",
            "ACTIVE PEER",
            "REASON",
        ]
        .map(str::to_owned),
    ];
    for router in routers {
        rows.push([
            router.name.clone(),
            router.state.clone(),
            router.priority.to_string(),
            router.since.clone(),
            router
                .active_peer
                .map_or_else(|| "-".to_owned(), |peer| peer.to_string()),
            router.reason.clone(),
        ]);
    }
    let mut text = String::new();
    if routers.is_empty() {
        return text;
    }
    let width = |column: usize| rows.iter().map(|row| row[column].len()).max().unwrap_or(0);
    for row in &rows {
        let cells = (0..5).map(|column| format!("{:<1$}", row[column], width(column)));
        text.push_str(&cells.collect::<Vec<_>>().join("  "));
        text.push_str(&format!("  {}\n", row[5]));
    }
    for router in routers {
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
