//! Computes the difference between two desired states, in terms of the configuration.
//!
//! Objects are matched by name: renaming a pool or service removes one object and adds another. [`Source`] is ignored,
//! so that moving lines has no effect. This module does not apply changes to the kernel.
//!
//! [`Source`]: crate::Source

mod check;
mod edit;
mod failover;
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
    /// `[announce]` differs; at least one edit.
    Announce(Vec<Edit>),
    /// A virtual router is added, removed or changed.
    VirtualRouter {
        /// Name of the virtual router.
        router: String,
        /// `+`, `-` or `~`.
        sign: char,
        /// What differs; empty if it is added or removed.
        edits: Vec<Edit>,
    },
    /// A receiver of notifications is added, removed or changed.
    Notifier {
        /// Name of the receiver.
        notifier: String,
        /// `+`, `-` or `~`.
        sign: char,
    },
    /// A pool is added with its servers, which are not reported separately.
    PoolAdded {
        /// Pool.
        pool: String,
        /// Number of servers.
        servers: usize,
    },
    /// A pool and its servers are removed; the servers are not reported separately.
    PoolRemoved {
        /// Pool.
        pool: String,
        /// Number of servers.
        servers: usize,
    },
    /// A pool's settings, other than its servers, differ; at least one edit.
    PoolChanged {
        /// Pool.
        pool: String,
        /// What differs.
        edits: Vec<Edit>,
    },
    /// `[tracing]` is added, removed or differs.
    Tracing {
        /// `+`, `-` or `~`.
        sign: char,
    },
    /// `[sync]` is added, removed or differs.
    Sync {
        /// `+`, `-` or `~`.
        sign: char,
        /// What differs; empty if it is added or removed.
        edits: Vec<Edit>,
    },
    /// `[cluster]` is added, removed or differs.
    Cluster {
        /// `+`, `-` or `~`.
        sign: char,
    },
    /// A server is added to an existing pool.
    ServerAdded {
        /// Pool.
        pool: String,
        /// Address as in the file.
        server: String,
        /// Configured weight.
        weight: u32,
    },
    /// A server is removed from an existing pool; `on_remove` applies to its flows.
    ServerRemoved {
        /// Pool.
        pool: String,
        /// Address as in the file.
        server: String,
    },
    /// A server's settings differ; at least one edit.
    ServerChanged {
        /// Pool.
        pool: String,
        /// Address as in the file.
        server: String,
        /// What differs.
        edits: Vec<Edit>,
    },
    /// The order of the remaining servers differs, which affects schedulers.
    ServersReordered {
        /// Pool.
        pool: String,
    },
    /// A service is added.
    ServiceAdded {
        /// Service.
        service: String,
        /// Listeners, forwarding method and pool in one line.
        summary: String,
    },
    /// A service is removed.
    ServiceRemoved {
        /// Service.
        service: String,
        /// Listeners, forwarding method and pool in one line.
        summary: String,
    },
    /// A service's settings differ; at least one edit.
    ServiceChanged {
        /// Service.
        service: String,
        /// What differs.
        edits: Vec<Edit>,
    },
}

/// Returns how a whole table differs: `+` = added, `-` = removed, `~` = changed; `None` = no difference.
fn sign<T: PartialEq>(old: Option<&T>, new: Option<&T>) -> Option<char> {
    match (old, new) {
        (None, Some(_)) => Some('+'),
        (Some(_), None) => Some('-'),
        (old, new) => (old != new).then_some('~'),
    }
}

/// Formats the change in one line: `+` = added, `-` = removed, `~` = changed.
impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Node(edits) => write!(f, "~ node: {}", join(edits)),
            Self::Timeouts(edits) => write!(f, "~ timeouts: {}", join(edits)),
            Self::Ipvs(edits) => write!(f, "~ ipvs: {}", join(edits)),
            Self::Announce(edits) => write!(f, "~ announce: {}", join(edits)),
            Self::VirtualRouter {
                router,
                sign,
                edits,
            } => write!(f, "{sign} vrrp {router}{}", list(edits)),
            Self::Tracing { sign } => write!(f, "{sign} tracing"),
            Self::Sync { sign, edits } => write!(f, "{sign} sync{}", list(edits)),
            Self::Cluster { sign } => write!(f, "{sign} cluster"),
            Self::Notifier { notifier, sign } => write!(f, "{sign} notify {notifier}"),
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
            Self::ServersReordered { pool } => write!(f, "~ pool {pool}: servers reordered"),
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

/// Returns the changes from `old` to `new`, grouped by table. Among named objects, the removed and changed ones come
/// first, in the old order; the added ones follow, in the new order.
///
/// The time is linear in the number of pools, servers and services.
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
    let edits = global::announce(old.announce.as_ref(), new.announce.as_ref());
    if !edits.is_empty() {
        changes.push(Change::Announce(edits));
    }
    pool::diff(&old.pools, &new.pools, &mut changes);
    service::diff(&old.services, &new.services, &mut changes);
    proxy::diff(&old.proxies, &new.proxies, &mut changes);
    match_by_name(
        &old.vrrp,
        &new.vrrp,
        |router| &router.name,
        |matched| {
            let (router, sign, edits) = match matched {
                NameMatch::Removed(router) => (router, '-', Vec::new()),
                NameMatch::Kept { old, new, .. } if old == new => return,
                NameMatch::Kept { old, new, .. } => (new, '~', failover::virtual_router(old, new)),
                NameMatch::Added(router) => (router, '+', Vec::new()),
            };
            let router = router.name.clone();
            changes.push(Change::VirtualRouter {
                router,
                sign,
                edits,
            });
        },
    );
    let sign = sign(old.sync.as_ref(), new.sync.as_ref());
    changes.extend(sign.map(|sign| Change::Sync {
        sign,
        edits: failover::flow_sync(old.sync.as_ref(), new.sync.as_ref()),
    }));
    let sign = self::sign(old.cluster.as_ref(), new.cluster.as_ref());
    changes.extend(sign.map(|sign| Change::Cluster { sign }));
    match_by_name(
        &old.notifiers,
        &new.notifiers,
        |notifier| &notifier.name,
        |matched| {
            let (notifier, sign) = match matched {
                NameMatch::Removed(notifier) => (notifier, '-'),
                NameMatch::Kept { old, new, .. } if old == new => return,
                NameMatch::Kept { new, .. } => (new, '~'),
                NameMatch::Added(notifier) => (notifier, '+'),
            };
            let notifier = notifier.name.clone();
            changes.push(Change::Notifier { notifier, sign });
        },
    );
    let sign = self::sign(old.tracing.as_ref(), new.tracing.as_ref());
    changes.extend(sign.map(|sign| Change::Tracing { sign }));
    changes
}

/// The result of matching two lists by name, for one object.
enum NameMatch<'a, T> {
    Removed(&'a T),
    Kept {
        old: &'a T,
        new: &'a T,
        /// Index in the new list.
        index: usize,
    },
    Added(&'a T),
}

/// Calls `each` for the objects of the old list in order, then for the added objects in order.
fn match_by_name<'a, T>(
    old: &'a [T],
    new: &'a [T],
    name: impl Fn(&T) -> &str,
    mut each: impl FnMut(NameMatch<'a, T>),
) {
    // Fast path: both lists have the same names in the same order.
    let same_names =
        old.len() == new.len() && old.iter().zip(new).all(|(old, new)| name(old) == name(new));
    if same_names {
        for (index, (old, new)) in old.iter().zip(new).enumerate() {
            each(NameMatch::Kept { old, new, index });
        }
        return;
    }
    let new_indexes: HashMap<&str, usize> = new.iter().map(&name).zip(0..).collect();
    let old_names: HashSet<&str> = old.iter().map(&name).collect();
    for object in old {
        each(match new_indexes.get(name(object)) {
            None => NameMatch::Removed(object),
            Some(&index) => NameMatch::Kept {
                old: object,
                new: &new[index],
                index,
            },
        });
    }
    for object in new
        .iter()
        .filter(|object| !old_names.contains(name(object)))
    {
        each(NameMatch::Added(object));
    }
}

/// Adds the differences between layer 4 services or between proxy services.
fn diff_services<T>(
    old: &[T],
    new: &[T],
    name: impl Fn(&T) -> &str,
    summary: impl Fn(&T) -> String,
    edits: impl Fn(&T, &T) -> Vec<Edit>,
    changes: &mut Vec<Change>,
) {
    match_by_name(old, new, &name, |matched| match matched {
        NameMatch::Removed(service) => changes.push(Change::ServiceRemoved {
            service: name(service).to_owned(),
            summary: summary(service),
        }),
        NameMatch::Kept { old, new, .. } => {
            let edits = edits(old, new);
            if !edits.is_empty() {
                changes.push(Change::ServiceChanged {
                    service: name(old).to_owned(),
                    edits,
                });
            }
        }
        NameMatch::Added(service) => changes.push(Change::ServiceAdded {
            service: name(service).to_owned(),
            summary: summary(service),
        }),
    });
}

/// Formats the edits after the name of a table; empty = none.
fn list(edits: &[Edit]) -> String {
    match edits {
        [] => String::new(),
        edits => format!(": {}", join(edits)),
    }
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

/// Formats a duration as in the configuration file.
pub(crate) fn duration(value: &Duration) -> String {
    crate::format_duration(*value)
}
