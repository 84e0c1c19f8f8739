//! Decides what one director of a group writes to etcd and tells its daemon, without I/O.
//!
//! [`Machine`] is the state machine of one director. It receives etcd's responses ([`Input`]), local facts and the
//! time, and returns requests to etcd and to the daemon ([`Output`]). It mirrors the group's keys. Every decision
//! depends only on the mirror and on local facts, so a lost or repeated response has no effect. Nothing is ever removed
//! because etcd does not respond or has lost its data.
//!
//! Time is a [`Duration`](std::time::Duration) since an origin that the driver selects, and is monotonic. Random bytes
//! are arguments. weir-etcd does the I/O; tests replace it with a simulation.

#![cfg_attr(not(test), warn(clippy::wildcard_enum_match_arm))]

mod agreement;
mod chunk;
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
mod status;
mod store;

pub use agreement::{HealthView, Verdicts};
pub use chunk::{CHUNK_BYTES, CHUNKS_MAX, digest};
pub use event::{Facts, Input, Output, PublishError};
pub use key::{InvalidName, Key, Keys, check_name};
pub use link::Link;
pub use machine::{Machine, Settings};
pub use record::{MemberRecord, Pointer, Stopped, Turn};
pub use seal::{GroupKey, SealError};
pub use shared::{Kind, SharedKey, SharedState};
pub use status::{MemberStatus, RolloutState, Status};
pub use store::{Compare, Entry, Event, Put, Txn, TxnResult, Write};
