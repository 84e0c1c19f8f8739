//! What the machine learns, and what it requests and orders.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;

use serde_json::Value;

use crate::agreement::{HealthView, Verdicts};
use crate::record::MemberRecord;
use crate::shared::{SharedKey, SharedState};
use crate::store::{Entry, Event, Txn, TxnResult};

/// What the daemon reports about this director.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// The record, without version, digest and instance.
    pub record: MemberRecord,
    /// VIPs that `[announce]` covers, and whether their services can serve.
    pub vips: BTreeMap<IpAddr, bool>,
    /// Results of this director's own checks.
    pub health: HealthView,
    /// Whether it may apply a configuration at the same time as other directors. Not with flow synchronization: a
    /// connection that moves between two directors that change their tables keeps its server only if the second one
    /// changes its table after it has received the flow.
    pub applies_with_others: bool,
}

/// What happened.
#[derive(Clone, Debug, PartialEq)]
pub enum Input {
    /// All keys of the group, at a revision of the store.
    Listed {
        /// The store's revision.
        revision: i64,
        /// The keys.
        entries: Vec<Entry>,
    },
    /// The keys could not be read.
    ListFailed(String),
    /// The watch reports changes, all up to the newest of them. The store's revision in the answer is not used: when a
    /// watch begins, it is ahead of the changes that follow.
    Watched {
        /// The changes.
        events: Vec<Event>,
    },
    /// The watch ended.
    WatchEnded {
        /// The store has removed older revisions: the keys must be read again. etcd still answers.
        is_compacted: bool,
        /// Why.
        reason: String,
    },
    /// A lease was granted.
    Granted {
        /// Its number.
        lease: i64,
        /// Its time to live.
        ttl: Duration,
    },
    /// The lease was renewed.
    Renewed,
    /// The lease has ended.
    LeaseEnded,
    /// A lease could not be granted or renewed.
    LeaseFailed(String),
    /// The result of [`Output::Txn`].
    Txn {
        /// Number of the transaction.
        number: u64,
        /// Its result.
        result: TxnResult,
    },
    /// Local facts have changed.
    Facts(Facts),
    /// An operator of this director has changed an override or an added server.
    Changed {
        /// Which.
        key: SharedKey,
        /// The new value.
        value: Value,
    },
    /// An operator publishes a configuration.
    Publish {
        /// Number of the request.
        request: u64,
        /// The configuration, validated here.
        text: String,
        /// How long each director watches it, in milliseconds.
        guard_ms: u64,
    },
    /// The result of [`Output::Apply`].
    Applied(Result<(), String>),
    /// The answer to [`Output::Settle`].
    Settled(i64),
}

/// Why a configuration was not published.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct PublishError(pub String);

/// A request to etcd, or an order to the daemon.
#[derive(Clone, Debug, PartialEq)]
pub enum Output {
    /// Read all keys of the group. A running watch ends.
    List,
    /// Watch all keys of the group from this revision on.
    Watch {
        /// The first revision.
        from: i64,
    },
    /// Ask for a lease.
    Grant {
        /// Its time to live.
        ttl: Duration,
    },
    /// Renew the lease.
    Renew {
        /// Its number.
        lease: i64,
    },
    /// Execute a transaction.
    Txn {
        /// Its number. The result of one that was abandoned has no effect.
        number: u64,
        /// The lease of its leased keys.
        lease: Option<i64>,
        /// The transaction.
        txn: Txn,
    },
    /// Apply a configuration, answered by [`Input::Applied`].
    Apply {
        /// Its version.
        version: u64,
        /// Its digest.
        digest: String,
        /// Its text.
        text: String,
        /// How long to watch it, in milliseconds.
        guard_ms: u64,
    },
    /// Another director has changed an override or an added server.
    Shared {
        /// Which.
        key: SharedKey,
        /// The new value.
        value: Value,
    },
    /// Answer with [`Input::Settled`] as soon as the peers know the flows that the changes of servers so far have
    /// moved.
    Settle {
        /// The newest revision of these changes.
        revision: i64,
    },
    /// A change of an operator of this director is settled: all directors that synchronize flows have adopted it, and
    /// their peers know the flows that it has moved.
    Settled {
        /// Which.
        key: SharedKey,
    },
    /// The end of a publication.
    Published {
        /// Number of the request.
        request: u64,
        /// The version.
        result: Result<u64, PublishError>,
    },
    /// VIPs that must stay announced although their services cannot serve.
    Held(BTreeSet<IpAddr>),
    /// Servers that are down for the group.
    Verdicts(Verdicts),
    /// The shared entries have changed and must be kept on disk.
    Save(SharedState),
}
