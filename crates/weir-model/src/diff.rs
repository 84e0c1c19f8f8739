//! The difference of two desired states: what a reload would change, in the operator's words.
//!
//! Things are the same when their names are: a pool or service renamed is one removed and one added. [`Source`] takes
//! no part, so that moving lines about changes nothing. How a change reaches the kernel is not known here.
//!
//! [`Source`]: crate::Source

mod check;
mod edit;
mod global;
mod pool;
mod proxy;
mod service;
mod tls;

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::time::Duration;

use crate::Desired;

pub use self::edit::Edit;

/// One change between two desired states.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// `[node]` differs; at least one edit.
    Node(Vec<Edit>),
    /// `[timeouts]` differs; at least one edit.
    Timeouts(Vec<Edit>),
    /// `[ipvs]` differs; at least one edit.
    Ipvs(Vec<Edit>),
    /// A pool appears with this many servers; they have no changes of their own.
    PoolAdded {
        /// Pool.
        pool: String,
        /// Number of servers.
        servers: usize,
    },
    /// A pool and its servers are gone; they have no changes of their own.
    PoolRemoved {
        /// Pool.
        pool: String,
        /// Number of servers.
        servers: usize,
    },
    /// Keys of a pool differ, other than its servers; at least one edit.
    PoolChanged {
        /// Pool.
        pool: String,
        /// What differs.
        edits: Vec<Edit>,
    },
    /// A server appears in a pool that stays.
    ServerAdded {
        /// Pool.
        pool: String,
        /// Address as in the file.
        server: String,
        /// Configured weight.
        weight: u32,
    },
    /// A server leaves a pool that stays; its flows meet `on_remove`.
    ServerRemoved {
        /// Pool.
        pool: String,
        /// Address as in the file.
        server: String,
    },
    /// Keys of a server differ; at least one edit.
    ServerChanged {
        /// Pool.
        pool: String,
        /// Address as in the file.
        server: String,
        /// What differs.
        edits: Vec<Edit>,
    },
    /// The servers that stay have another order, which schedulers read.
    ServersReordered {
        /// Pool.
        pool: String,
    },
    /// A service appears.
    ServiceAdded {
        /// Service.
        service: String,
        /// Listeners, forward and pool in one line.
        summary: String,
    },
    /// A service is gone.
    ServiceRemoved {
        /// Service.
        service: String,
        /// Listeners, forward and pool in one line.
        summary: String,
    },
    /// Keys of a service differ; at least one edit.
    ServiceChanged {
        /// Service.
        service: String,
        /// What differs.
        edits: Vec<Edit>,
    },
}

/// One line, `+` added, `-` removed, `~` changed.
impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Node(edits) => write!(f, "~ node: {}", join(edits)),
            Self::Timeouts(edits) => write!(f, "~ timeouts: {}", join(edits)),
            Self::Ipvs(edits) => write!(f, "~ ipvs: {}", join(edits)),
            Self::PoolAdded { pool, servers } => write!(f, "+ pool {pool}: {}", count(*servers)),
            Self::PoolRemoved { pool, servers } => write!(f, "- pool {pool}: {}", count(*servers)),
            Self::PoolChanged { pool, edits } => write!(f, "~ pool {pool}: {}", join(edits)),
            Self::ServerAdded {
                pool,
                server,
                weight,
            } => write!(f, "+ server {pool}/{server}: weight {weight}"),
            Self::ServerRemoved { pool, server } => write!(f, "- server {pool}/{server}"),
            Self::ServerChanged {
                pool,
                server,
                edits,
            } => write!(f, "~ server {pool}/{server}: {}", join(edits)),
            Self::ServersReordered { pool } => write!(f, "~ pool {pool}: servers in another order"),
            Self::ServiceAdded { service, summary } => write!(f, "+ service {service}: {summary}"),
            Self::ServiceRemoved { service, summary } => {
                write!(f, "- service {service}: {summary}")
            }
            Self::ServiceChanged { service, edits } => {
                write!(f, "~ service {service}: {}", join(edits))
            }
        }
    }
}

/// What changes from `old` to `new`: node, timeouts, `[ipvs]`, pools with their servers, services; in each the removed and
/// changed in the old order, then the added in the new.
///
/// Linear in the number of pools, servers and services; empty when nothing differs.
pub fn diff(old: &Desired, new: &Desired) -> Vec<Change> {
    let mut changes = Vec::new();
    let edits = global::node(&old.node, &new.node);
    if !edits.is_empty() {
        changes.push(Change::Node(edits));
    }
    let edits = global::timeouts(&old.timeouts, &new.timeouts);
    if !edits.is_empty() {
        changes.push(Change::Timeouts(edits));
    }
    let edits = global::ipvs(&old.ipvs, &new.ipvs);
    if !edits.is_empty() {
        changes.push(Change::Ipvs(edits));
    }
    pool::diff(&old.pools, &new.pools, &mut changes);
    service::diff(&old.services, &new.services, &mut changes);
    proxy::diff(&old.proxies, &new.proxies, &mut changes);
    changes
}

/// A thing of two lists, by its name.
enum Met<'a, T> {
    Gone(&'a T),
    Stays {
        before: &'a T,
        now: &'a T,
        /// Its place in the new list.
        at: usize,
    },
    New(&'a T),
}

/// Hands out the things of the old list in its order, then the new ones in theirs.
fn meet<'a, T>(
    old: &'a [T],
    new: &'a [T],
    name: impl Fn(&T) -> &str,
    mut each: impl FnMut(Met<'a, T>),
) {
    // The same names at the same places: then none has to be looked up.
    let in_step =
        old.len() == new.len() && old.iter().zip(new).all(|(old, new)| name(old) == name(new));
    if in_step {
        for (at, (before, now)) in old.iter().zip(new).enumerate() {
            each(Met::Stays { before, now, at });
        }
        return;
    }
    let after: HashMap<&str, usize> = new.iter().map(&name).zip(0..).collect();
    let before: HashSet<&str> = old.iter().map(&name).collect();
    for thing in old {
        each(match after.get(name(thing)) {
            None => Met::Gone(thing),
            Some(&at) => Met::Stays {
                before: thing,
                now: &new[at],
                at,
            },
        });
    }
    for thing in new.iter().filter(|thing| !before.contains(name(thing))) {
        each(Met::New(thing));
    }
}

/// Differences of services of either kind, which are told alike.
fn diff_services<T>(
    old: &[T],
    new: &[T],
    name: impl Fn(&T) -> &str,
    summary: impl Fn(&T) -> String,
    edits: impl Fn(&T, &T) -> Vec<Edit>,
    changes: &mut Vec<Change>,
) {
    meet(old, new, &name, |met| match met {
        Met::Gone(service) => changes.push(Change::ServiceRemoved {
            service: name(service).to_owned(),
            summary: summary(service),
        }),
        Met::Stays { before, now, .. } => {
            let edits = edits(before, now);
            if !edits.is_empty() {
                changes.push(Change::ServiceChanged {
                    service: name(before).to_owned(),
                    edits,
                });
            }
        }
        Met::New(service) => changes.push(Change::ServiceAdded {
            service: name(service).to_owned(),
            summary: summary(service),
        }),
    });
}

fn join(edits: &[Edit]) -> String {
    edits
        .iter()
        .map(ToString::to_string)
        .collect::<Vec<_>>()
        .join(", ")
}

fn count(servers: usize) -> String {
    format!("{servers} server{}", if servers == 1 { "" } else { "s" })
}

/// The largest unit that divides it, as the configuration file takes it.
pub(crate) fn duration(value: &Duration) -> String {
    let millis = value.as_millis();
    for (unit, size) in [
        ("d", 86_400_000),
        ("h", 3_600_000),
        ("m", 60_000),
        ("s", 1000),
    ] {
        if millis != 0 && millis.is_multiple_of(size) {
            return format!("{}{unit}", millis / size);
        }
    }
    format!("{millis}ms")
}
