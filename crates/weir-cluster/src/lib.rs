//! Makes the decisions of one director of a group, without I/O.
//!
//! [`Machine`] is the state machine of a director. It receives etcd's responses and local facts ([`Input`]) and the
//! time, and returns requests to etcd and to the daemon ([`Output`]). It mirrors the group's keys. Decisions depend on
//! the mirror, local facts and the time, so they are repeated after a lost response. Nothing is ever removed because
//! etcd does not respond or has lost its data.
//!
//! Time is monotonic: a [`Duration`](std::time::Duration) since an origin that the driver selects. Random numbers are
//! settings. weir-etcd does the I/O; tests replace it with a simulation.

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
