//! Defines the inputs and outputs of the state machine.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;

use serde_json::Value;

use crate::agreement::{HealthView, Verdicts};
use crate::record::MemberRecord;
use crate::shared::{SharedKey, SharedState};
use crate::store::{Entry, Event, Txn, TxnResult};

/// The daemon's report about this director.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LocalState {
    /// This member's record. The state machine sets the version, digest, instance, identity, `settled` and `staged`.
    pub record: MemberRecord,
    /// VIPs that `[announce]` includes, and whether their services can serve.
    pub vips: BTreeMap<IpAddr, bool>,
    /// Results of this director's own checks.
    pub health: HealthView,
    /// Whether this director may apply a configuration at the same time as others. False with flow synchronization: a
    /// connection that moves to another director keeps its server only if that director received the flow before it
    /// changed its table.
    pub applies_with_others: bool,
    /// Whether a service has a second hop (GUE) or synchronized flows, so that other versions of the configuration must
    /// be staged.
    pub stages_versions: bool,
}

/// A configuration of the group that this director has applied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AppliedConfiguration {
    /// Version.
    pub version: u64,
    /// Text.
    pub text: String,
    /// How long each director guards the configuration, in milliseconds; 0 = no guard.
    pub guard_ms: u64,
}

/// The state that a director keeps on disk while no state machine runs.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SavedState {
    /// The group's last configuration.
    pub applied: Option<AppliedConfiguration>,
    /// The shared entries.
    pub shared: SharedState,
    /// The VIPs in the last [`Output::Decided`] that had to stay announced.
    pub held_vips: BTreeSet<IpAddr>,
    /// Whether the data plane still has the tables of an earlier process on this director.
    pub has_tables: bool,
}

/// An event for the state machine.
#[derive(Clone, Debug, PartialEq)]
pub enum Input {
    /// All keys of the group at one revision of the store.
    Listed {
        /// Revision of the store.
        revision: i64,
        /// The keys and their values.
        entries: Vec<Entry>,
    },
    /// The keys could not be read.
    ListFailed(String),
    /// The watch has reported all changes up to the newest one in `events`. The store revision in the response is
    /// ignored, because at the start of a watch it is ahead of the reported changes.
    Watched {
        /// The changes.
        events: Vec<Event>,
    },
    /// The watch ended.
    WatchEnded {
        /// Whether the store has compacted the next revision, so that the keys must be read again even though etcd
        /// responds.
        is_compacted: bool,
        /// Why the watch ended.
        reason: String,
    },
    /// A lease was granted.
    Granted {
        /// Lease ID.
        lease: i64,
        /// Time to live.
        ttl: Duration,
    },
    /// The lease was renewed.
    Renewed,
    /// The lease has expired.
    LeaseEnded,
    /// A lease could not be granted or renewed.
    LeaseFailed(String),
    /// The result of [`Output::Txn`].
    Txn {
        /// Transaction number.
        number: u64,
        /// The result.
        result: TxnResult,
    },
    /// The local state has changed.
    LocalState(Box<LocalState>),
    /// An operator of this director has changed an override or an added server.
    Changed {
        /// The changed entry.
        key: SharedKey,
        /// The new value.
        value: Value,
    },
    /// An operator publishes a configuration.
    Publish {
        /// Number of the request.
        request: u64,
        /// The configuration, which this director has validated.
        text: String,
        /// How long each director guards the configuration, in milliseconds; 0 = no guard.
        guard_ms: u64,
    },
    /// The result of [`Output::Apply`].
    Applied(Result<(), String>),
    /// The response to [`Output::Stage`], with the same version, even if the configuration cannot be staged.
    Staged(u64),
    /// The response to [`Output::Settle`], with the same revision.
    Settled(i64),
}

/// The reason why a configuration was not published, in one line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct PublishError(pub String);

/// A request to etcd or the daemon.
#[derive(Clone, Debug, PartialEq)]
pub enum Output {
    /// Read all keys of the group, and stop the current watch.
    List,
    /// Watch all keys of the group, starting at a revision.
    Watch {
        /// First revision to report.
        from: i64,
    },
    /// Request a lease.
    Grant {
        /// Time to live.
        ttl: Duration,
    },
    /// Renew the lease.
    Renew {
        /// Lease ID.
        lease: i64,
    },
    /// Execute a transaction.
    Txn {
        /// Transaction number. The result of an abandoned transaction is ignored.
        number: u64,
        /// ID of the lease that leased keys are attached to.
        lease: Option<i64>,
        /// The transaction.
        txn: Txn,
    },
    /// Apply a configuration and report the result with [`Input::Applied`].
    Apply {
        /// Version of the configuration.
        version: u64,
        /// Digest of the configuration.
        digest: String,
        /// Text of the configuration.
        text: String,
        /// How long to guard the configuration, in milliseconds; 0 = no guard.
        guard_ms: u64,
    },
    /// Use a different version's servers for the second hop, and respond with [`Input::Staged`].
    Stage {
        /// Version of the configuration.
        version: u64,
        /// Text of the configuration.
        text: String,
        /// Whether this version's table replaces the table before the last change. If false, it is used only if the
        /// daemon does not know that table.
        replaces: bool,
    },
    /// Use the tables before these changes for the second hop: the newest change to the servers of each pool since the
    /// configuration was published. Sent once.
    LastChanges {
        /// The changed entries with their current values.
        changes: Vec<(SharedKey, Value)>,
        /// See [`Output::Stage`].
        replaces: bool,
    },
    /// The state machine has requested every [`Output::Stage`] and [`Output::LastChanges`] that a director needs after
    /// its start, or proceeds without them because etcd does not respond. Sent once, and again after the
    /// [`Output::Apply`] for the first configuration of a director that had none.
    PreviousStaged,
    /// Another director has changed an override or an added server. Also confirms [`Input::Changed`], because the
    /// daemon may apply an earlier value after the operator's change.
    Shared {
        /// The changed entry.
        key: SharedKey,
        /// The new value.
        value: Value,
    },
    /// Respond with [`Input::Settled`] when the peers have received the flows moved by server changes up to this
    /// revision.
    Settle {
        /// The revision of the newest change.
        revision: i64,
    },
    /// A change by an operator of this director is settled: all directors with flow synchronization have applied it,
    /// and their peers have received the flows that it moved.
    Settled {
        /// The changed entry.
        key: SharedKey,
    },
    /// The result of a publication.
    Published {
        /// Number of the request.
        request: u64,
        /// The published version, or the reason why the publication failed.
        result: Result<u64, PublishError>,
    },
    /// The decisions about the VIPs whose services cannot serve according to the last [`Input::LocalState`].
    Decided {
        /// VIPs that must stay announced, because no other director announces them.
        held: BTreeSet<IpAddr>,
        /// All other VIPs, which must be withdrawn.
        withdrawn: BTreeSet<IpAddr>,
    },
    /// Servers that the group considers down.
    Verdicts(Verdicts),
    /// The shared entries have changed and must be saved to disk.
    Save(SharedState),
}
