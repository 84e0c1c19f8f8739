//! Runs experiments that reproduce field reports in network namespaces and compare Weir with other load balancers.
//!
//! An experiment is a table of *trials*. A trial has a load balancer (Weir, or a peer such as HAProxy), hosts connected
//! by links of a given rate, and an `ab` workload. The lab creates the hosts as namespaces, starts real servers and the
//! balancer in them, measures, and writes a text table, JSON and an HTML file with charts.
//!
//! The lab uses Weir as an operator does: through the program and its configuration file, not through its libraries. It
//! does not change addresses, rules or services of the host: all objects are in namespaces with the prefix `weir-lab-`.
//! The lab removes them at the end and on Ctrl-C; the next run removes the objects of a crashed run.
//!
//! Start reading at `experiment` (the experiments), `experiment::trial` (a trial), `topology` (hosts and links), `peer`
//! (the programs) and `report` (the results).

mod attack;
mod cgroup;
mod command;
mod error;
mod experiment;
mod failover;
mod frame_drop;
mod interrupt;
mod latency;
mod namespace;
mod output;
mod pacemaker;
mod peer;
mod process;
mod progress;
mod rate;
mod report;
mod requirement;
mod sample;
mod scale_out;
mod scaling;
mod session;
mod topology;

pub use attack::{AttackArguments, AttackReport, AttackRow, list as attacks, run as attack};
pub use command::{LabCommand, ReportArguments, RunArguments, execute, execute_attack};
pub use error::{LabError, Result};
pub use experiment::{Experiment, RunOptions, list, run};
pub use latency::Latency;
pub use rate::Rate;
pub use report::{Failure, Panel, Report, Row, Timing};
pub use sample::{HostSeries, Series, Shares};
