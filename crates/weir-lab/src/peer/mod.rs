//! Configures, starts, waits for and stops the programs of the experiments, one module each.
//!
//! These modules do not depend on experiments. All files are in the run's directory, never in `/etc`; all state is in
//! namespaces.

pub(crate) mod ab;
pub(crate) mod haproxy;
pub(crate) mod http;
pub(crate) mod ldirectord;
pub(crate) mod nftables;
pub(crate) mod nginx;
pub(crate) mod paced;
pub(crate) mod php;
pub(crate) mod weir;
pub(crate) mod wrk;

use std::time::Duration;

/// Maximum time for a program to serve requests. Loading the BPF programs takes up to 20 seconds on a busy machine.
pub(crate) const START_LIMIT: Duration = Duration::from_secs(60);
