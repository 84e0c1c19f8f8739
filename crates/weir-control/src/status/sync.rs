//! Describes flow synchronization in the status document.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde::{Deserialize, Serialize};
use weir_engine_host::{SyncPeerStatus, SyncStatus};

/// The state of `[sync]`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sync {
    /// Address and port that this director listens on.
    pub listen: String,
    /// Why the address cannot be used; absent if it can be used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Whether flows are sent; `ipvsadm --stop-daemon master` stops sending.
    pub sending: bool,
    /// Whether flows from peers are inserted; `ipvsadm --stop-daemon backup` stops this.
    pub receiving: bool,
    /// The other directors, in file order.
    pub peers: Vec<SyncPeerStatus>,
    /// Number of records from peers by result; results that never occurred are omitted.
    pub records: BTreeMap<String, u64>,
    /// Number of datagrams received from unknown addresses.
    pub unknown_senders: u64,
    /// Number of flow changes that were overwritten before they were read. The flows are sent some seconds later.
    pub overwritten: u64,
    /// Number of connections of this director's proxy that were sent to the peers.
    #[serde(default)]
    pub proxied_connections: u64,
    /// Number of proxied connections that are not sent because there are more than 65,536.
    #[serde(default)]
    pub excess_connections: u64,
    /// Number of segments sent after takeovers so that clients of the other director's proxy get a reset. Each client
    /// gets three.
    #[serde(default)]
    pub reset_prompts: u64,
}

impl From<SyncStatus> for Sync {
    fn from(status: SyncStatus) -> Self {
        Self {
            listen: status.listen,
            error: status.error,
            sending: status.sending,
            receiving: status.receiving,
            peers: status.peers,
            records: status.records,
            unknown_senders: status.unknown_senders,
            overwritten: status.overwritten,
            proxied_connections: status.proxied_connections,
            excess_connections: status.excess_connections,
            reset_prompts: status.reset_prompts,
        }
    }
}

impl Sync {
    /// Returns the text table.
    pub fn table(&self) -> String {
        let mut text = String::new();
        if let Some(error) = &self.error {
            let _ = writeln!(text, "sync at {}: {error}", self.listen);
        }
        for (direction, is_enabled) in [("sent", self.sending), ("received", self.receiving)] {
            if !is_enabled {
                let _ = writeln!(text, "sync: flows are not {direction}: stopped by ipvsadm");
            }
        }
        let _ = writeln!(
            text,
            "{:<24}{:<13}{:>8}{:>8}{:>8}{:>10}{:>10}",
            "SYNC PEER", "STATE", "LAG ms", "QUEUED", "LOST", "SENT", "RECEIVED"
        );
        for peer in &self.peers {
            let _ = writeln!(
                text,
                "{:<24}{:<13}{:>8}{:>8}{:>8}{:>10}{:>10}",
                peer.address,
                peer.state,
                peer.lag_ms,
                peer.queued,
                peer.lost,
                peer.sent,
                peer.received
            );
            for (reason, count) in &peer.ignored {
                let _ = writeln!(
                    text,
                    "{}: ignored datagrams: {count} ({reason})",
                    peer.address
                );
            }
        }
        text
    }
}
