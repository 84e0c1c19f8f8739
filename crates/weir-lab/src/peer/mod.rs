//! The programs of the experiments, one module each: how to configure, start, await and undo them.
//!
//! A module here knows one program's language and nothing of experiments. All files live in the run's directory, never
//! in `/etc`; all state lives in namespaces.

pub(crate) mod ab;
pub(crate) mod haproxy;
pub(crate) mod http;
pub(crate) mod ldirectord;
pub(crate) mod nftables;
pub(crate) mod nginx;
pub(crate) mod php;
pub(crate) mod weir;
pub(crate) mod wrk;

use std::time::Duration;

/// How long a program may take until it serves.
pub(crate) const START_LIMIT: Duration = Duration::from_secs(15);
