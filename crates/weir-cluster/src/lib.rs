//! Implements one director's decisions in a group without I/O: agreed health, shared state and rollouts.
//!
//! [`Machine`] is the state machine of a director. It receives etcd's responses, the local state ([`Input`]) and the
//! time, and returns requests to etcd and to the daemon ([`Output`]). It keeps a mirror of the group's keys. Decisions
//! depend only on the mirror, the local state and the time. If a response is lost, the machine therefore makes the same
//! decision again. If etcd does not respond or has lost its data, nothing is removed.
//!
//! Time is monotonic: a [`Duration`](std::time::Duration) since an origin that the driver selects. The settings contain
//! the random numbers. weir-etcd performs the I/O; tests replace it with a simulation.

#![cfg_attr(not(test), warn(clippy::wildcard_enum_match_arm))]

mod agreement;
mod chunk;
mod context;
mod event;
mod hex;
mod key;
mod lag;
mod link;
mod machine;
mod record;
mod rollout;
mod seal;
mod serving;
mod settling;
mod shared;
mod staging;
mod status;
mod step;
mod store;

pub use agreement::{HealthView, Verdicts};
pub use chunk::{CHUNK_BYTES, MAX_CHUNKS, digest};
pub use event::{AppliedConfiguration, Input, LocalState, Output, PublishError, SavedState};
pub use key::{InvalidName, Key, Keys, check_name};
pub use link::Link;
pub use machine::{Machine, Settings};
pub use record::{ApplyingMember, MemberRecord, Pointer, StoppedRollout};
pub use seal::{GroupKey, SealError};
pub use shared::{Kind, SharedKey, SharedState};
pub use status::{COMMUNITIES_DIFFER, MTU_DIFFERS, MemberStatus, RolloutState, Status};
pub use store::{Compare, Entry, Event, Put, Txn, TxnResult, Write};
