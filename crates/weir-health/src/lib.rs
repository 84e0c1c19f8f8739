//! Implements health checks without I/O: probe schedules, rise/fall states, weights and probe protocols.
//!
//! [`Monitor`] contains all active checks. It receives the configuration, the time and probe results, and returns
//! probes to run and servers whose [`ServerHealth`] changed; [`weigh()`] computes weights from the servers' health. A
//! [`Dialogue`] implements the client side of a probe's protocol as bytes to send and bytes received. The crate opens
//! no socket, reads no clock and takes its random seed as an argument: the driver in weir-probing does the I/O, and the
//! tests replace the driver with a simulation.
//!
//! Time is a [`Duration`](std::time::Duration) since a point that the driver chooses, and never goes backwards.

// Code that matches on a scheduler or a check kind must handle every new one.
#![cfg_attr(not(test), warn(clippy::wildcard_enum_match_arm))]

pub mod datagram;
pub mod dialogue;
mod history;
mod machine;
mod monitor;
mod outcome;
mod outlier;
mod random;
mod reply_watch;
mod server_health;
mod target;
mod weigh;

pub use dialogue::{Dialogue, Reply};
pub use history::History;
pub use machine::{Machine, State};
pub use monitor::{
    CheckView, Checkpoint, Lateness, Monitor, Output, ProbeCounts, ProbeId, ProbeRequest,
    SavedState, ServerView, SuspendedServers,
};
pub use outcome::{Outcome, ReportedWeight, Verdict};
pub use outlier::{Ejection, EjectionChange, EjectionLimit, Outliers, Sample, Transition};
pub use reply_watch::{Client, Finding, Key, NoReplyWarning, ReplyCounters, ReplyWatch, Silence};
pub use server_health::ServerHealth;
pub use target::Target;
pub use weigh::{Candidate, ComputedWeight, PoolMode, weigh};
