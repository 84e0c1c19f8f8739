//! Applies the desired servers to a service one change at a time, as the kernel does.

use std::collections::{HashMap, HashSet};

use weir_model::{Pool, SchedulerKind, Server};
use weir_sched::{Member, table};

use super::slot::{Key, StoredStart};
use super::{AllocationInput, DestSlot, GroupServer, PoolWeights, Removal, ServiceSlot};
use crate::number::NumberAllocator;
use crate::{Error, Result};

/// A desired server, with its effective weight.
pub(super) struct DesiredServer<'a> {
    server: &'a Server,
    sorry: bool,
    effective: u32,
    base: u32,
    failed: Option<Removal>,
    quiesced: bool,
    down: bool,
}

impl DesiredServer<'_> {
    fn key(&self) -> Key {
        (self.server.address, self.server.port, self.sorry)
    }
}

impl ServiceSlot {
    /// Adds, changes and removes servers until the servers and their weights are those of `pool`.
    pub(super) fn reconcile(
        &mut self,
        (service, pool): (&str, &Pool),
        allocation_input: &AllocationInput<'_>,
        ids: &mut NumberAllocator,
        generation: &mut u32,
    ) -> Result<()> {
        let kind = pool.l4_scheduler().kind;
        if self.scheduler != kind.as_str() {
            self.scheduler = kind.as_str().to_owned();
            let start = if kind == SchedulerKind::Wrr {
                table::wrr::start(&self.members())
            } else {
                table::rr::start()
            };
            // The generation continues: a cursor of the previous scheduler must not be valid for the new one.
            self.start = StoredStart {
                generation: self.start.generation.wrapping_add(1).max(1),
                ..start.into()
            };
        }
        let servers = desired_servers(pool, &(allocation_input.weights)(service, pool));
        self.mark_removed_except(&servers, pool.on_remove.into(), allocation_input);
        let mut indexes_by_key = self.indexes_by_key();
        for desired in &servers {
            match indexes_by_key.get(&desired.key()).copied() {
                Some(index) if self.dests[index].removed.is_none() => {
                    self.update_server(index, desired, allocation_input)
                }
                Some(index) => {
                    let dest = self.dests.remove(index);
                    indexes_by_key
                        .values_mut()
                        .for_each(|other| *other -= usize::from(*other > index));
                    self.add_server(
                        DestSlot {
                            removed: None,
                            shared: None,
                            staged: false,
                            ..dest
                        },
                        desired,
                        allocation_input,
                    );
                }
                None => {
                    let id =
                        ids.allocate(allocation_input.dest_rows)
                            .ok_or(Error::TooManyServers {
                                max: allocation_input.dest_rows - 1,
                            })?;
                    *generation = generation.wrapping_add(1).max(1);
                    self.add_server(
                        DestSlot::new(id, *generation, desired, allocation_input.now_ms),
                        desired,
                        allocation_input,
                    );
                }
            }
        }
        Ok(())
    }

    /// Adds rows for the servers that the pool has in another version of the group's configuration, and returns the
    /// sorted servers in that version's table; `None` = this table does not become the table of the second hop, or has
    /// done so already. If no rows are free, the table entries of the remaining servers have no second hop.
    pub(super) fn add_other_version(
        &mut self,
        (service, pool): (&str, &Pool),
        allocation_input: &AllocationInput<'_>,
        ids: &mut NumberAllocator,
        generation: &mut u32,
    ) -> Option<Vec<GroupServer>> {
        let Some(other) = &pool.other_version else {
            self.agreed.staged.clear();
            return None;
        };
        if !other.replaces && !self.agreed.former.is_empty() {
            return None;
        }
        let configured = other.servers.iter().map(|server| GroupServer {
            address: server.address,
            port: server.port,
            weight: server.weight,
        });
        let mut configured: Vec<GroupServer> = configured.collect();
        configured.sort_unstable();
        let is_new = configured != self.agreed.staged;
        self.agreed.staged = configured;
        // Overrides apply to both versions.
        let other_pool = Pool {
            servers: other.servers.clone(),
            other_version: None,
            sorry: None,
            ..pool.clone()
        };
        let servers = desired_servers(
            &other_pool,
            &(allocation_input.weights)(service, &other_pool),
        );
        let mut existing_keys: HashSet<Key> = self.dests.iter().map(DestSlot::key).collect();
        let mut table = Vec::new();
        for desired in servers.iter().filter(|desired| desired.base > 0) {
            table.push(GroupServer {
                address: desired.server.address,
                port: desired.server.port,
                weight: desired.base,
            });
            if existing_keys.insert(desired.key())
                && let Some(id) = ids.allocate(allocation_input.dest_rows)
            {
                *generation = generation.wrapping_add(1).max(1);
                self.last_seq += 1;
                self.dests.push(DestSlot {
                    seq: self.last_seq,
                    effective: 0,
                    base: 0,
                    removed: Some(Removal::Keep),
                    staged: true,
                    ..DestSlot::new(id, *generation, desired, allocation_input.now_ms)
                });
            }
        }
        table.sort_unstable();
        is_new.then_some(table)
    }

    /// Returns the index of each server in `dests`.
    fn indexes_by_key(&self) -> HashMap<Key, usize> {
        let keys = self.dests.iter().map(DestSlot::key);
        keys.enumerate().map(|(index, key)| (key, index)).collect()
    }

    /// Marks all servers except these as removed.
    pub(super) fn mark_removed_except(
        &mut self,
        servers: &[DesiredServer<'_>],
        removal: Removal,
        allocation_input: &AllocationInput<'_>,
    ) {
        let desired_keys: HashSet<Key> = servers.iter().map(DesiredServer::key).collect();
        for index in 0..self.dests.len() {
            let dest = &self.dests[index];
            if dest.removed.is_some() || desired_keys.contains(&dest.key()) {
                continue;
            }
            self.change(allocation_input, |slot| {
                let dest = &mut slot.dests[index];
                dest.removed = Some(removal);
                dest.effective = 0;
                dest.since_ms = allocation_input.now_ms;
            });
        }
    }

    fn update_server(
        &mut self,
        index: usize,
        desired: &DesiredServer<'_>,
        allocation_input: &AllocationInput<'_>,
    ) {
        let dest = &mut self.dests[index];
        dest.name.clone_from(&desired.server.name);
        dest.weight = desired.server.weight;
        dest.base = desired.base;
        (dest.quiesced, dest.down) = (desired.quiesced, desired.down);
        if (dest.effective, dest.failed) == (desired.effective, desired.failed) {
            return;
        }
        self.change(allocation_input, |slot| {
            let dest = &mut slot.dests[index];
            dest.effective = desired.effective;
            dest.failed = desired.failed;
            dest.since_ms = allocation_input.now_ms;
            if desired.effective > 0 {
                dest.last_weight = desired.effective;
            }
        });
    }

    fn add_server(
        &mut self,
        dest: DestSlot,
        desired: &DesiredServer<'_>,
        allocation_input: &AllocationInput<'_>,
    ) {
        self.last_seq += 1;
        let seq = self.last_seq;
        let change = |slot: &mut Self| {
            slot.dests.push(DestSlot {
                seq,
                name: desired.server.name.clone(),
                weight: desired.server.weight,
                effective: desired.effective,
                base: desired.base,
                quiesced: desired.quiesced,
                down: desired.down,
                last_weight: desired.effective,
                failed: desired.failed,
                since_ms: allocation_input.now_ms,
                ..dest
            });
        };
        self.change(allocation_input, change);
    }

    /// Makes one change, and updates the start of the `rr` or `wrr` walk as the kernel does.
    fn change(&mut self, allocation_input: &AllocationInput<'_>, change: impl FnOnce(&mut Self)) {
        match self.scheduler.as_str() {
            "rr" => {
                // Only the previous head of the list matters.
                let head: Vec<Member> = self.listed_members().next().into_iter().collect();
                change(self);
                self.start = table::rr::next_start(
                    &self.start.into(),
                    (allocation_input.cursor)(self.row),
                    &head,
                )
                .into();
            }
            "wrr" => {
                change(self);
                let after = self.members();
                self.start = table::wrr::next_start(
                    &self.start.into(),
                    (allocation_input.cursor)(self.row),
                    &after,
                )
                .into();
            }
            _ => change(self),
        }
    }
}

impl DestSlot {
    fn new(id: u32, generation: u32, desired: &DesiredServer<'_>, now_ms: u64) -> Self {
        Self {
            id,
            generation,
            name: desired.server.name.clone(),
            address: desired.server.address,
            port: desired.server.port,
            sorry: desired.sorry,
            seq: 0,
            weight: desired.server.weight,
            effective: desired.effective,
            base: desired.base,
            quiesced: desired.quiesced,
            down: desired.down,
            last_weight: desired.effective,
            shared: None,
            removed: None,
            failed: desired.failed,
            staged: false,
            since_ms: now_ms,
        }
    }
}

fn desired_servers<'a>(pool: &'a Pool, weights: &PoolWeights) -> Vec<DesiredServer<'a>> {
    let mut servers: Vec<DesiredServer<'a>> = pool
        .servers
        .iter()
        .zip(&weights.servers)
        .map(|(server, weight)| DesiredServer {
            server,
            sorry: false,
            effective: weight.effective,
            base: weight.base,
            failed: weight.removed.then_some(pool.on_remove.into()),
            quiesced: weight.quiesced,
            down: weight.down,
        })
        .collect();
    debug_assert_eq!(servers.len(), pool.servers.len());
    let usable = servers.iter().any(|desired| desired.effective > 0);
    if let Some(server) = &pool.sorry {
        servers.push(DesiredServer {
            server,
            sorry: true,
            effective: if usable { 0 } else { weights.sorry },
            base: 0,
            failed: None,
            quiesced: false,
            down: false,
        });
    }
    servers
}
