//! Applies the desired servers to a service one change at a time, as the kernel does.

use std::collections::{HashMap, HashSet};

use weir_model::{Pool, SchedulerKind, Server};
use weir_sched::{Member, table};

use super::slot::{Key, StoredStart};
use super::{DestSlot, Facts, PoolWeights, Removal, ServiceSlot};
use crate::number::Numbers;
use crate::{Error, Result};

/// A desired server, with its effective weight.
pub(super) struct WantedServer<'a> {
    server: &'a Server,
    sorry: bool,
    effective: u32,
    ordered: u32,
    failed: Option<Removal>,
    quiesced: bool,
    down: bool,
}

impl WantedServer<'_> {
    fn key(&self) -> Key {
        (self.server.address, self.server.port, self.sorry)
    }
}

impl ServiceSlot {
    /// Adds, changes and removes servers until they and their weights are those of `pool`.
    pub(super) fn reconcile(
        &mut self,
        (service, pool): (&str, &Pool),
        facts: &Facts<'_>,
        ids: &mut Numbers,
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
            // The generation continues: a cursor of the former scheduler must not be valid for the new one.
            self.start = StoredStart {
                generation: self.start.generation.wrapping_add(1).max(1),
                ..start.into()
            };
        }
        let wanted = wanted_servers(pool, &(facts.weights)(service, pool));
        self.remove_unwanted(&wanted, pool.on_remove.into(), facts);
        let mut indexes_by_key = self.indexes_by_key();
        for wanted_server in &wanted {
            match indexes_by_key.get(&wanted_server.key()).copied() {
                Some(index) if self.dests[index].removed.is_none() => {
                    self.update_server(index, wanted_server, facts)
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
                            ..dest
                        },
                        wanted_server,
                        facts,
                    );
                }
                None => {
                    let id = ids.allocate(facts.dests).ok_or(Error::TooManyServers {
                        max: facts.dests - 1,
                    })?;
                    *generation = generation.wrapping_add(1).max(1);
                    self.add_server(
                        DestSlot::new(id, *generation, wanted_server, facts.now_ms),
                        wanted_server,
                        facts,
                    );
                }
            }
        }
        Ok(())
    }

    /// Returns the index of each server in `dests`.
    fn indexes_by_key(&self) -> HashMap<Key, usize> {
        let keys = self.dests.iter().map(DestSlot::key);
        keys.enumerate().map(|(index, key)| (key, index)).collect()
    }

    /// Marks the servers that are not wanted as removed.
    pub(super) fn remove_unwanted(
        &mut self,
        wanted: &[WantedServer<'_>],
        removal: Removal,
        facts: &Facts<'_>,
    ) {
        let wanted: HashSet<Key> = wanted.iter().map(WantedServer::key).collect();
        for index in 0..self.dests.len() {
            let dest = &self.dests[index];
            if dest.removed.is_some() || wanted.contains(&dest.key()) {
                continue;
            }
            self.change(facts, |slot| {
                let dest = &mut slot.dests[index];
                dest.removed = Some(removal);
                dest.effective = 0;
                dest.since_ms = facts.now_ms;
            });
        }
    }

    fn update_server(&mut self, index: usize, wanted_server: &WantedServer<'_>, facts: &Facts<'_>) {
        let dest = &mut self.dests[index];
        dest.name.clone_from(&wanted_server.server.name);
        dest.weight = wanted_server.server.weight;
        dest.ordered = wanted_server.ordered;
        (dest.quiesced, dest.down) = (wanted_server.quiesced, wanted_server.down);
        if (dest.effective, dest.failed) == (wanted_server.effective, wanted_server.failed) {
            return;
        }
        self.change(facts, |slot| {
            let dest = &mut slot.dests[index];
            dest.effective = wanted_server.effective;
            dest.failed = wanted_server.failed;
            dest.since_ms = facts.now_ms;
            if wanted_server.effective > 0 {
                dest.last_weight = wanted_server.effective;
            }
        });
    }

    fn add_server(&mut self, dest: DestSlot, wanted_server: &WantedServer<'_>, facts: &Facts<'_>) {
        self.last_seq += 1;
        let seq = self.last_seq;
        let change = |slot: &mut Self| {
            slot.dests.push(DestSlot {
                seq,
                name: wanted_server.server.name.clone(),
                weight: wanted_server.server.weight,
                effective: wanted_server.effective,
                ordered: wanted_server.ordered,
                quiesced: wanted_server.quiesced,
                down: wanted_server.down,
                last_weight: wanted_server.effective,
                failed: wanted_server.failed,
                since_ms: facts.now_ms,
                ..dest
            });
        };
        self.change(facts, change);
    }

    /// Makes one change, and updates the start of the `rr` or `wrr` walk as the kernel does.
    fn change(&mut self, facts: &Facts<'_>, change: impl FnOnce(&mut Self)) {
        match self.scheduler.as_str() {
            "rr" => {
                // Only the head of the list before the change matters.
                let head: Vec<Member> = self.listed_members().next().into_iter().collect();
                change(self);
                self.start =
                    table::rr::next_start(&self.start.into(), (facts.cursor)(self.row), &head)
                        .into();
            }
            "wrr" => {
                change(self);
                let after = self.members();
                self.start =
                    table::wrr::next_start(&self.start.into(), (facts.cursor)(self.row), &after)
                        .into();
            }
            _ => change(self),
        }
    }
}

impl DestSlot {
    fn new(id: u32, generation: u32, wanted_server: &WantedServer<'_>, now_ms: u64) -> Self {
        Self {
            id,
            generation,
            name: wanted_server.server.name.clone(),
            address: wanted_server.server.address,
            port: wanted_server.server.port,
            sorry: wanted_server.sorry,
            seq: 0,
            weight: wanted_server.server.weight,
            effective: wanted_server.effective,
            ordered: wanted_server.ordered,
            quiesced: wanted_server.quiesced,
            down: wanted_server.down,
            last_weight: wanted_server.effective,
            shared: None,
            removed: None,
            failed: wanted_server.failed,
            since_ms: now_ms,
        }
    }
}

fn wanted_servers<'a>(pool: &'a Pool, weights: &PoolWeights) -> Vec<WantedServer<'a>> {
    let mut wanted: Vec<WantedServer<'a>> = pool
        .servers
        .iter()
        .zip(&weights.servers)
        .map(|(server, weight)| WantedServer {
            server,
            sorry: false,
            effective: weight.effective,
            ordered: weight.ordered,
            failed: weight.removed.then_some(pool.on_remove.into()),
            quiesced: weight.quiesced,
            down: weight.down,
        })
        .collect();
    debug_assert_eq!(wanted.len(), pool.servers.len());
    let usable = wanted
        .iter()
        .any(|wanted_server| wanted_server.effective > 0);
    if let Some(server) = &pool.sorry {
        wanted.push(WantedServer {
            server,
            sorry: true,
            effective: if usable { 0 } else { weights.sorry },
            ordered: 0,
            failed: None,
            quiesced: false,
            down: false,
        });
    }
    wanted
}
