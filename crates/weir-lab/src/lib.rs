//! The experiments behind Weir, reproduced in network namespaces and compared with the real peers.
//!
//! An experiment is a table of *trials*: a balancing method (Weir, or a peer such as HAProxy), a set of hosts joined by
//! links of a given rate, and the requests that `ab` makes. The lab builds the hosts as namespaces, starts real servers
//! and the balancer in them, measures, and reports as a text table, as JSON and as one HTML file with charts.
//!
//! Weir is driven from outside only, through its program and configuration file, exactly as an operator would; nothing
//! here links to the data plane. The lab touches no address, rule or service of the host: everything lives in
//! namespaces whose names start with `weir-lab-`, and is removed at the end, on Ctrl-C, and after a crash by the next
//! run.
//!
//! Where to start reading: `experiment` (what is measured), `experiment::trial` (how one trial runs), `topology` (the
//! wires), `peer` (the programs), `report` (what comes out).

mod attack;
mod command;
mod error;
mod experiment;
mod interrupt;
mod latency;
mod namespace;
mod peer;
mod process;
mod progress;
mod rate;
mod report;
mod requirement;
mod sample;
mod session;
mod topology;

pub use attack::{AttackArguments, AttackReport, AttackRow, list as attacks, run as attack};
pub use command::{LabCommand, RunArguments, execute, execute_attack};
pub use error::{LabError, Result};
pub use experiment::{Experiment, RunOptions, list, run};
pub use latency::Latency;
pub use rate::Rate;
pub use report::{Failure, Panel, Report, Row, Timing};
pub use sample::{HostSeries, Series};
