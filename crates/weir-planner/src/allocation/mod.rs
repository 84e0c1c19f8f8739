//! Allocates rows: a service keeps its row as long as its name stays the same, a server as long as its address and port
//! do.
//!
//! Flow entries refer to a server's row, so a removed server keeps its row as long as it has flows. The allocation also
//! stores the order in which servers were added (`seq`), and the start of `rr` and `wrr` walks. As in the kernel, both
//! depend on the history of changes: one added, edited or removed server at a time.

mod reconcile;
mod slot;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use serde::{Deserialize, Serialize};
use weir_model::{Indexed, Pool, Server, Service};
use weir_sched::Cursor;

use crate::index::Index;
use crate::mark;
use crate::number::NumberAllocator;
use crate::{Error, Result, Totals};

pub use self::slot::{
    DestSlot, GroupServer, GroupServerVersions, Removal, ServiceSlot, StoredStart,
};

/// All allocated rows.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Allocation {
    /// Service slots, by name.
    pub services: BTreeMap<String, ServiceSlot>,
    /// Shared counter rows, by `POOL SERVER PORT`.
    pub shared: BTreeMap<String, u32>,
    /// The generation that was assigned last.
    pub last_generation: u32,
    #[serde(skip)]
    index: Index,
}

/// The slots before [`Allocation::reconcile`], for [`Allocation::restore`].
#[derive(Debug)]
pub struct PreviousAllocation {
    services: Vec<(String, Option<ServiceSlot>)>,
    shared_added: Vec<String>,
    shared_removed: Vec<(String, u32)>,
    last_generation: u32,
}

impl PreviousAllocation {
    /// Returns whether the set of servers that share counters has changed.
    pub fn sharing_changed(&self) -> bool {
        !self.shared_added.is_empty() || !self.shared_removed.is_empty()
    }

    /// Returns the names of the services whose slots differ from those in `current`.
    pub fn changed<'a>(&'a self, current: &'a Allocation) -> impl Iterator<Item = &'a str> {
        let changed = self
            .services
            .iter()
            .filter(|(name, before)| current.services.get(name) != before.as_ref());
        changed.map(|(name, _)| name.as_str())
    }
}

/// The rows that were freed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FreedRows {
    /// Freed server rows.
    pub dests: Vec<u32>,
    /// Addresses of these servers.
    pub addresses: BTreeSet<IpAddr>,
    /// Freed service rows.
    pub services: Vec<u32>,
    /// Names of the services that lost servers or were freed.
    pub changed_services: Vec<String>,
    /// Whether shared counter rows were freed too.
    pub sharing_changed: bool,
}

/// Sizes and current state of the data plane, and the servers' weights.
pub struct AllocationInput<'a> {
    /// Number of service rows, including row 0.
    pub service_rows: u32,
    /// Number of server rows, including row 0.
    pub dest_rows: u32,
    /// Unix time in milliseconds.
    pub now_ms: u64,
    /// Returns the cursor of a service row.
    pub cursor: &'a dyn Fn(u32) -> Cursor,
    /// Returns the effective weights of a pool's servers in the service with this name.
    pub weights: &'a dyn Fn(&str, &Pool) -> PoolWeights,
}

/// The weights of a pool's servers in one service, after overrides, health and slow start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PoolWeights {
    /// The weights of the servers, in the order of [`Pool::servers`].
    pub servers: Vec<ServerWeight>,
    /// The weight of the sorry server while no other server is usable; 0 = the sorry server is down or not configured.
    pub sorry: u32,
}

impl PoolWeights {
    /// Returns the configured weights, without overrides and check results.
    #[must_use]
    pub fn from_config(pool: &Pool) -> Self {
        let servers = pool.servers.iter();
        Self {
            servers: servers
                .map(|server| ServerWeight {
                    effective: server.weight,
                    base: server.weight,
                    quiesced: server.weight == 0,
                    ..ServerWeight::default()
                })
                .collect(),
            sorry: pool.sorry.as_ref().map_or(0, |sorry| sorry.weight.max(1)),
        }
    }
}

/// The effective weight of a server, and why it is 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ServerWeight {
    /// The weight that the scheduler uses; 0 = no new flows.
    pub effective: u32,
    /// The weight from the configuration and the override alone. It is the same on all directors in a group.
    pub base: u32,
    /// Whether failed checks remove the server from the list; [`Pool::on_remove`] applies to its flows.
    pub removed: bool,
    /// Whether the weight is 0 because of the configuration or a weight override: persistent clients may still use the
    /// server.
    pub quiesced: bool,
    /// Whether the server is down according to its checks.
    pub down: bool,
}

impl Allocation {
    /// Allocates the rows of the services `names`; other services do not change. Returns the state for
    /// [`Self::restore`].
    ///
    /// # Errors
    /// Fails if there are more services or servers than rows, or if a service's pool does not exist. In these cases,
    /// nothing is changed.
    pub fn reconcile<'a>(
        &mut self,
        desired: &Indexed,
        names: impl IntoIterator<Item = &'a str>,
        allocation_input: &AllocationInput<'_>,
    ) -> Result<PreviousAllocation> {
        self.ensure_index();
        let mut previous = PreviousAllocation {
            services: Vec::new(),
            shared_added: Vec::new(),
            shared_removed: Vec::new(),
            last_generation: self.last_generation,
        };
        for name in names {
            let slot = self.services.get(name).cloned();
            previous.services.push((name.to_owned(), slot));
            if let Err(error) = self.reconcile_service(desired, name, allocation_input) {
                self.restore(previous);
                return Err(error);
            }
        }
        self.assign_shared_counts(desired, &mut previous);
        self.index.update(&self.services, &previous.services);
        Ok(previous)
    }

    fn reconcile_service(
        &mut self,
        desired: &Indexed,
        name: &str,
        allocation_input: &AllocationInput<'_>,
    ) -> Result<()> {
        let Some(service) = desired.service(name) else {
            if let Some(slot) = self.services.get_mut(name) {
                slot.removed = true;
                slot.mark_removed_except(&[], Removal::Keep, allocation_input);
            }
            return Ok(());
        };
        let Some(pool) = desired.pool(&service.pool) else {
            return Err(Error::NoPool {
                service: service.name.clone(),
                pool: service.pool.clone(),
            });
        };
        if !self.services.contains_key(name) {
            let row = self.index.rows.allocate(allocation_input.service_rows);
            let row = row.ok_or(Error::TooManyServices {
                max: allocation_input.service_rows - 1,
            })?;
            let slot = ServiceSlot::new(row, self.next_generation(), pool.l4_scheduler().kind);
            self.services.insert(name.to_owned(), slot);
        }
        if let Some(slot) = self.services.get_mut(name) {
            slot.removed = false;
            let addresses = service.listen.iter().map(|listener| listener.address);
            slot.addresses.extend(addresses);
            slot.marks.extend(service.marks.iter().map(mark::key));
            let generation = &mut self.last_generation;
            let ids = &mut self.index.ids;
            slot.reconcile((name, pool), allocation_input, ids, generation)?;
            if desired.uses_other_version(service, pool) {
                let other_version =
                    slot.add_other_version((name, pool), allocation_input, ids, generation);
                slot.record_group_servers(other_version);
            } else {
                slot.agreed = GroupServerVersions::default();
            }
        }
        Ok(())
    }

    /// Undoes [`Self::reconcile`]. Must be called before any of its rows is written.
    pub fn restore(&mut self, previous: PreviousAllocation) {
        for (name, slot) in previous.services.into_iter().rev() {
            match slot {
                Some(slot) => self.services.insert(name, slot),
                None => self.services.remove(&name),
            };
        }
        for key in &previous.shared_added {
            self.shared.remove(key);
        }
        self.shared.extend(previous.shared_removed);
        self.last_generation = previous.last_generation;
        self.index = Index::default();
    }

    fn next_generation(&mut self) -> u32 {
        self.last_generation = self.last_generation.wrapping_add(1).max(1);
        self.last_generation
    }

    /// Assigns a shared counter row to each server in a pool that several services use, except services with
    /// `strict_ipvs`. The row stays shared when only one service remains, because it counts existing flows.
    fn assign_shared_counts(&mut self, desired: &Indexed, previous: &mut PreviousAllocation) {
        let mut may_free = false;
        for (name, before) in &previous.services {
            let Some(slot) = self.services.get_mut(name) else {
                continue;
            };
            if let Some(service) = desired.service(name) {
                let mut users = desired
                    .services_of_pool(&service.pool)
                    .filter(|service| !service.strict_ipvs);
                let is_shared = users.nth(1).is_some();
                let live = slot.dests.iter_mut().filter(|dest| dest.removed.is_none());
                for dest in live {
                    if service.strict_ipvs {
                        dest.shared = None;
                    } else if is_shared || dest.shared.is_some() {
                        let port = dest.port.unwrap_or(0);
                        let key = format!("{} {} {port}", service.pool, dest.address);
                        let numbers = &mut self.index.shared;
                        dest.shared = match self.shared.get(&key) {
                            Some(row) => Some(*row),
                            None => numbers.allocate(u32::MAX).inspect(|row| {
                                previous.shared_added.push(key.clone());
                                self.shared.insert(key, *row);
                            }),
                        };
                    }
                }
            }
            let rows = |slot: &ServiceSlot| -> BTreeSet<u32> {
                slot.dests.iter().filter_map(|dest| dest.shared).collect()
            };
            may_free |= before
                .as_ref()
                .is_some_and(|before| !rows(before).is_subset(&rows(slot)));
        }
        if may_free {
            previous.shared_removed = self.free_unused_shared_rows();
        }
    }

    /// Frees the shared counter rows that no server uses, and returns them.
    fn free_unused_shared_rows(&mut self) -> Vec<(String, u32)> {
        let used: BTreeSet<u32> = self.dests().filter_map(|(_, dest)| dest.shared).collect();
        let (used_rows, unused_rows): (Vec<_>, Vec<_>) = std::mem::take(&mut self.shared)
            .into_iter()
            .partition(|(_, row)| used.contains(row));
        self.shared = used_rows.into_iter().collect();
        self.index.shared = NumberAllocator::new(0, self.shared.values().copied());
        unused_rows
    }

    /// Returns every service that has rows or is configured: first the removed services, then the configured services
    /// in file order.
    #[must_use]
    pub fn service_names(&self, desired: &Indexed) -> Vec<String> {
        let removed_names = self.services.keys();
        let removed_names = removed_names.filter(|name| desired.service(name).is_none());
        let configured = desired.services.iter().map(|service| &service.name);
        removed_names.chain(configured).cloned().collect()
    }

    /// Returns every server row with its service's name.
    pub fn dests(&self) -> impl Iterator<Item = (&str, &DestSlot)> {
        self.services
            .iter()
            .flat_map(|(name, slot)| slot.dests.iter().map(move |dest| (name.as_str(), dest)))
    }

    /// Returns the removed servers whose rows are not freed yet.
    pub fn removed_dests(&self) -> impl Iterator<Item = &DestSlot> {
        let names = self.index.with_removals.iter();
        let slots = names.filter_map(|name| self.services.get(name));
        let dests = slots.flat_map(|slot| &slot.dests);
        dests.filter(|dest| dest.removed.is_some())
    }

    /// Returns the rows of the servers at an address.
    pub fn rows_at(&self, address: IpAddr) -> &[u32] {
        self.index
            .ids_by_address
            .get(&address)
            .map_or(&[], Vec::as_slice)
    }

    /// Returns all service marks, and the former marks that still have flows.
    pub fn marks(&self) -> BTreeSet<mark::Key> {
        let slots = self.services.values();
        slots.flat_map(|slot| slot.marks.iter().copied()).collect()
    }

    /// Returns the addresses of all servers, in ascending order.
    pub fn addresses(&self) -> impl Iterator<Item = IpAddr> {
        self.index.ids_by_address.keys().copied()
    }

    /// Frees the rows of removed servers that have no flows, and of removed services that have no servers.
    /// `final_totals` returns a server's totals if it has no flows, otherwise `None`.
    pub fn release(&mut self, final_totals: &dyn Fn(&DestSlot) -> Option<Totals>) -> FreedRows {
        self.ensure_index();
        let mut released = FreedRows::default();
        let mut may_free_shared = false;
        for name in self.index.with_removals.clone() {
            let Some(slot) = self.services.get_mut(&name) else {
                continue;
            };
            let before = slot.dests.len();
            let other_servers: BTreeSet<u32> = match slot.removed {
                true => BTreeSet::new(),
                false => {
                    let is_used = |dest: &&DestSlot| slot.is_in_other_version(dest);
                    slot.dests
                        .iter()
                        .filter(is_used)
                        .map(|dest| dest.id)
                        .collect()
                }
            };
            let retired = &mut slot.retired;
            slot.dests.retain(|dest| {
                if other_servers.contains(&dest.id) {
                    return true;
                }
                let Some(totals) = dest.removed.and_then(|_| final_totals(dest)) else {
                    return true;
                };
                *retired = retired.plus(totals);
                released.dests.push(dest.id);
                released.addresses.insert(dest.address);
                self.index.remove(dest);
                may_free_shared |= dest.shared.is_some();
                false
            });
            let is_freed = slot.removed && slot.dests.is_empty();
            if is_freed || slot.dests.len() != before {
                released.changed_services.push(name.clone());
            }
            if !slot.removed && slot.dests.iter().all(|dest| dest.removed.is_none()) {
                self.index.with_removals.remove(&name);
            }
            if is_freed {
                released.services.push(slot.row);
                self.index.rows.free(slot.row);
                self.index.with_removals.remove(&name);
                self.services.remove(&name);
            }
        }
        released.sharing_changed = may_free_shared && !self.free_unused_shared_rows().is_empty();
        released
    }

    fn ensure_index(&mut self) {
        if !self.index.is_built {
            self.index = Index::build(&self.services, self.shared.values().copied());
        }
    }
}

/// Returns the server of a slot that only a different version of the group's configuration has.
pub(crate) fn staged_server<'a>(
    desired: &'a Indexed,
    service: &Service,
    dest: &DestSlot,
) -> Option<&'a Server> {
    let other_version = desired.pool(&service.pool)?.other_version.as_ref()?;
    let mut servers = other_version.servers.iter();
    servers.find(|server| dest.staged && dest.matches(server, false))
}

/// Returns the configured server of a slot; `None` = the server was removed from the configuration.
pub fn configured_server<'a>(
    desired: &'a Indexed,
    service: &Service,
    dest: &DestSlot,
) -> Option<&'a Server> {
    let pool = desired.pool(&service.pool)?;
    let mut servers = pool
        .servers
        .iter()
        .map(|server| (server, false))
        .chain(pool.sorry.iter().map(|server| (server, true)));
    servers
        .find(|(server, sorry)| dest.matches(server, *sorry))
        .map(|(server, _)| server)
}
