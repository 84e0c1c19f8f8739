//! Health without I/O: when to probe, what a result changes, what weight follows, and what probes say to servers.
//!
//! [`Monitor`] holds every check in force. It is told the configuration, the time and the results, and answers with probes to
//! run and servers whose [`Standing`] changed; [`weigh()`] makes weights of standings. A [`Dialogue`] is one probe's side of a
//! conversation, as bytes. The crate opens no socket, reads no clock and draws no random numbers but from a seed that it is
//! given: the driver in weir-control does the rest, and the tests replace it by a simulation.
//!
//! Time is a [`Duration`](std::time::Duration) since a moment that the driver chooses and keeps; it never runs backwards.

pub mod datagram;
pub mod dialogue;
mod history;
mod machine;
mod monitor;
mod outcome;
mod outlier;
mod random;
mod standing;
mod target;
mod unanswered;
mod weigh;

pub use dialogue::{Dialogue, Reply};
pub use history::History;
pub use machine::{Machine, State};
pub use monitor::{
    CheckView, Checkpoint, Known, Lateness, Monitor, Order, Output, ProbeId, ServerView, Suspended,
};
pub use outcome::{Outcome, Said, Verdict};
pub use outlier::{Ejection, Outliers, Sample, Turn};
pub use standing::Standing;
pub use target::Target;
pub use unanswered::{Client, Counted, Finding, Key, Silence, Unanswered};
pub use weigh::{Candidate, Regime, Weighed, weigh};
