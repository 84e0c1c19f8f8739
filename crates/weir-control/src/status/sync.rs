//! Flow synchronization in the status document.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde::{Deserialize, Serialize};
use weir_engine_host::{SyncPeerStatus, SyncStatus};

/// `[sync]`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sync {
    /// Address and port of this director.
    pub listen: String,
    /// Why the address cannot be used; absent if it can.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Whether flows are sent: `ipvsadm --stop-daemon master` stops it.
    pub sending: bool,
    /// Whether flows of peers are inserted: `ipvsadm --stop-daemon backup` stops it.
    pub receiving: bool,
    /// The other directors, in file order.
    pub peers: Vec<SyncPeer>,
    /// Records of peers by result; results that never occurred are omitted.
    pub records: BTreeMap<String, u64>,
    /// Datagrams from addresses of no peer.
    pub unknown_senders: u64,
    /// Changes that were overwritten before they were read; they are sent some seconds later.
    pub overwritten: u64,
}

/// Another director.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SyncPeer {
    /// Its address and port.
    pub address: String,
    /// `silent`: no answer. `transfer`: it is being sent all flows. `established`: it has all flows.
    pub state: String,
    /// Age of the oldest change that it has not acknowledged; of a silent peer the time since it was heard.
    pub lag_ms: u64,
    /// Changes that wait to be sent.
    pub queued: u64,
    /// Datagrams that it did not receive; their flows were sent again.
    pub lost: u64,
    /// Records sent to it.
    pub sent: u64,
    /// Records received from it.
    pub received: u64,
    /// Changes dropped because the queue was full; all flows were sent instead.
    pub dropped: u64,
    /// How often all flows were sent.
    pub transfers: u64,
    /// Whether it has sent all of its flows.
    pub complete: bool,
    /// Datagrams ignored, by reason.
    pub ignored: BTreeMap<String, u64>,
}

impl From<SyncStatus> for Sync {
    fn from(status: SyncStatus) -> Self {
        Self {
            listen: status.listen,
            error: status.error,
            sending: status.sending,
            receiving: status.receiving,
            peers: status.peers.into_iter().map(SyncPeer::from).collect(),
            records: status.records,
            unknown_senders: status.unknown_senders,
            overwritten: status.overwritten,
        }
    }
}

impl From<SyncPeerStatus> for SyncPeer {
    fn from(peer: SyncPeerStatus) -> Self {
        Self {
            address: peer.address,
            state: peer.state,
            lag_ms: peer.lag_ms,
            queued: peer.queued,
            lost: peer.lost,
            sent: peer.sent,
            received: peer.received,
            dropped: peer.dropped,
            transfers: peer.transfers,
            complete: peer.complete,
            ignored: peer.ignored,
        }
    }
}

impl Sync {
    /// A table for people.
    pub fn table(&self) -> String {
        let mut text = String::new();
        if let Some(error) = &self.error {
            let _ = writeln!(text, "sync at {}: {error}", self.listen);
        }
        for (what, on) in [("sent", self.sending), ("received", self.receiving)] {
            if !on {
                let _ = writeln!(text, "sync: flows are not {what}: stopped by ipvsadm");
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
                    "{}: {count} datagrams ignored: {reason}",
                    peer.address
                );
            }
        }
        text
    }
}
