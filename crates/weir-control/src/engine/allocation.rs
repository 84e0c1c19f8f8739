//! Who has which row: ids of services and servers that stay the same as long as their names do.
//!
//! Flow entries name a server's row, so a row is given away only after its last flow has ended; until then a removed server
//! keeps it. The order of adding (`seq`) and the start of `rr` and `wrr` walks live here too, because they depend on the
//! history of changes, one added, edited or removed server at a time, as the kernel's do. Pure: counts and cursors are
//! arguments, and nothing here knows a map.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use serde::{Deserialize, Serialize};
use weir_model::{Indexed, OnRemove, Pool, SchedulerKind, Server, Service};
use weir_sched::{Cursor, Member, Start, table};

use super::overrides::{Override, Overrides};
use super::{Error, Result};
use crate::snapshot::Totals;

/// [`Start`] as it is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct StoredStart {
    /// [`Start::generation`].
    pub(super) generation: u32,
    /// [`Start::last_seq`].
    pub(super) last_seq: u32,
    /// [`Start::pass_weight`].
    pub(super) pass_weight: u32,
    /// [`Start::max_weight`].
    pub(super) max_weight: u32,
    /// [`Start::step`].
    pub(super) step: u32,
}

impl From<Start> for StoredStart {
    fn from(start: Start) -> Self {
        let Start {
            generation,
            last_seq,
            pass_weight,
            max_weight,
            step,
        } = start;
        Self {
            generation,
            last_seq,
            pass_weight,
            max_weight,
            step,
        }
    }
}

impl From<StoredStart> for Start {
    fn from(start: StoredStart) -> Self {
        let StoredStart {
            generation,
            last_seq,
            pass_weight,
            max_weight,
            step,
        } = start;
        Self {
            generation,
            last_seq,
            pass_weight,
            max_weight,
            step,
        }
    }
}

/// What becomes of the flows of a removed server, as it is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Removal {
    /// They live on.
    Keep,
    /// They are ended.
    Reset,
    /// They choose anew.
    Reschedule,
}

impl From<OnRemove> for Removal {
    fn from(word: OnRemove) -> Self {
        match word {
            OnRemove::Keep => Self::Keep,
            OnRemove::Reset => Self::Reset,
            OnRemove::Reschedule => Self::Reschedule,
        }
    }
}

/// A server of a service: one row of the data plane.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct DestSlot {
    /// The row.
    pub(super) id: u32,
    /// Changes with each owner of the row.
    pub(super) generation: u32,
    /// As in the file.
    pub(super) name: String,
    /// Its address.
    pub(super) address: IpAddr,
    /// Its port, where the file gives one.
    pub(super) port: Option<u16>,
    /// Stands in when no other server is usable.
    pub(super) sorry: bool,
    /// Order of adding, from 1.
    pub(super) seq: u32,
    /// Configured weight.
    pub(super) weight: u32,
    /// What the scheduler uses.
    pub(super) effective: u32,
    /// The last effective weight above 0, which `mh` builds its table of.
    pub(super) last_weight: u32,
    /// Number of the row of counts shared by all services of the pool; `None` = its own counts.
    pub(super) shared: Option<u32>,
    /// Removed from the configuration.
    pub(super) removed: Option<Removal>,
    /// When its present state began, milliseconds of Unix time.
    pub(super) since_ms: u64,
}

impl DestSlot {
    fn is(&self, server: &Server, sorry: bool) -> bool {
        self.sorry == sorry && self.address == server.address && self.port == server.port
    }

    /// Whether it stands in the list of its service: a sorry server does only while it is needed.
    pub(super) fn listed(&self) -> bool {
        self.removed.is_none() && (!self.sorry || self.effective > 0)
    }
}

/// A service: one row of the data plane.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ServiceSlot {
    /// The row.
    pub(super) row: u32,
    /// Changes with each owner of the row.
    pub(super) generation: u32,
    /// Canonical name of the scheduler that `start` belongs to.
    pub(super) scheduler: String,
    /// Where walks begin that know only an older list.
    pub(super) start: StoredStart,
    /// The highest `seq` given out.
    pub(super) last_seq: u32,
    /// Servers in order of adding, removed ones with flows included.
    pub(super) dests: Vec<DestSlot>,
    /// Totals of servers whose rows were given back.
    pub(super) retired: Totals,
    /// Removed from the configuration; kept while its servers have flows.
    pub(super) removed: bool,
    /// Every address it ever had: flows to one that it lost live on.
    #[serde(default)]
    pub(super) addresses: BTreeSet<IpAddr>,
}

/// All rows given out.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Allocation {
    /// Services by name.
    pub(super) services: BTreeMap<String, ServiceSlot>,
    /// Rows of shared counts by `POOL SERVER PORT`.
    pub(super) shared: BTreeMap<String, u32>,
    /// The last generation given out.
    pub(super) last_generation: u32,
}

/// What the data plane has room for, and what it says now.
pub(super) struct Facts<'a> {
    /// Rows of services, row 0 included.
    pub(super) services: u32,
    /// Rows of servers, row 0 included.
    pub(super) dests: u32,
    /// Milliseconds of Unix time.
    pub(super) now_ms: u64,
    /// The cursor of a service row.
    pub(super) cursor: &'a dyn Fn(u32) -> Cursor,
}

/// The lowest free numbers.
struct Free {
    used: BTreeSet<u32>,
    next: u32,
    end: u32,
}

impl Free {
    /// Rows: row 0 is nobody's.
    fn new(used: impl Iterator<Item = u32>, end: u32) -> Self {
        Self::from(1, used, end)
    }

    fn from(next: u32, used: impl Iterator<Item = u32>, end: u32) -> Self {
        Self {
            used: used.collect(),
            next,
            end,
        }
    }

    fn take(&mut self) -> Option<u32> {
        while self.used.contains(&self.next) {
            self.next += 1;
        }
        (self.next < self.end).then(|| {
            self.used.insert(self.next);
            self.next
        })
    }
}

/// A server that a service shall have, with its effective weight.
struct Wanted<'a> {
    server: &'a Server,
    sorry: bool,
    effective: u32,
}

impl Allocation {
    /// Brings the rows in line with what is desired.
    ///
    /// # Errors
    /// More services or servers than rows; then `self` is to be thrown away.
    pub(super) fn reconcile(
        &mut self,
        desired: &Indexed,
        overrides: &Overrides,
        facts: &Facts<'_>,
    ) -> Result<()> {
        for (name, slot) in &mut self.services {
            if desired.service(name).is_none() {
                slot.removed = true;
                slot.remove_unwanted(&[], Removal::Keep, facts);
            }
        }
        let mut rows = Free::new(self.services.values().map(|slot| slot.row), facts.services);
        let dests = self
            .services
            .values()
            .flat_map(|slot| slot.dests.iter().map(|dest| dest.id));
        let mut ids = Free::new(dests, facts.dests);
        for service in &desired.services {
            let Some(pool) = desired.pool(&service.pool) else {
                return Err(Error::NoPool {
                    service: service.name.clone(),
                    pool: service.pool.clone(),
                });
            };
            if !self.services.contains_key(&service.name) {
                let row = rows.take().ok_or(Error::TooMany {
                    what: "services",
                    most: facts.services - 1,
                })?;
                let slot = ServiceSlot::new(row, self.next_generation(), pool.l4_scheduler().kind);
                self.services.insert(service.name.clone(), slot);
            }
            let mut generation = self.last_generation;
            if let Some(slot) = self.services.get_mut(&service.name) {
                slot.removed = false;
                let addresses = service.listen.iter().map(|listener| listener.address);
                slot.addresses.extend(addresses);
                slot.reconcile(pool, overrides, facts, &mut ids, &mut generation)?;
            }
            self.last_generation = generation;
        }
        self.share_counts(desired);
        Ok(())
    }

    fn next_generation(&mut self) -> u32 {
        self.last_generation = self.last_generation.wrapping_add(1).max(1);
        self.last_generation
    }

    /// Servers of a pool that several services use are counted together too. Once shared stays shared: the counts of flows
    /// that began before are already in it.
    fn share_counts(&mut self, desired: &Indexed) {
        let mut users: BTreeMap<&str, usize> = BTreeMap::new();
        for service in desired
            .services
            .iter()
            .filter(|service| !service.strict_ipvs)
        {
            *users.entry(&service.pool).or_default() += 1;
        }
        let mut free = Free::from(0, self.shared.values().copied(), u32::MAX);
        for service in &desired.services {
            let several = users
                .get(service.pool.as_str())
                .is_some_and(|users| *users > 1);
            let Some(slot) = self.services.get_mut(&service.name) else {
                continue;
            };
            for dest in slot.dests.iter_mut().filter(|dest| dest.removed.is_none()) {
                if service.strict_ipvs {
                    dest.shared = None;
                } else if several || dest.shared.is_some() {
                    let port = dest.port.unwrap_or(0);
                    let key = format!("{} {} {port}", service.pool, dest.address);
                    dest.shared = match self.shared.get(&key) {
                        Some(row) => Some(*row),
                        None => free.take().inspect(|row| {
                            self.shared.insert(key, *row);
                        }),
                    };
                }
            }
        }
        let used: BTreeSet<u32> = self.dests().filter_map(|(_, dest)| dest.shared).collect();
        self.shared.retain(|_, row| used.contains(row));
    }

    /// Every server row with its service's name.
    pub(super) fn dests(&self) -> impl Iterator<Item = (&str, &DestSlot)> {
        self.services
            .iter()
            .flat_map(|(name, slot)| slot.dests.iter().map(move |dest| (name.as_str(), dest)))
    }

    /// Gives back the rows of removed servers for which `ended` answers their last totals, and services without any.
    /// Answers the rows given back: of servers, of services.
    pub(super) fn release(
        &mut self,
        ended: &dyn Fn(&DestSlot) -> Option<Totals>,
    ) -> (Vec<u32>, Vec<u32>) {
        let (mut dests, mut services) = (Vec::new(), Vec::new());
        for slot in self.services.values_mut() {
            let retired = &mut slot.retired;
            slot.dests.retain(|dest| {
                let Some(totals) = dest.removed.and_then(|_| ended(dest)) else {
                    return true;
                };
                *retired = retired.plus(totals);
                dests.push(dest.id);
                false
            });
            if slot.removed && slot.dests.is_empty() {
                services.push(slot.row);
            }
        }
        self.services
            .retain(|_, slot| !(slot.removed && slot.dests.is_empty()));
        (dests, services)
    }
}

impl ServiceSlot {
    fn new(row: u32, generation: u32, kind: SchedulerKind) -> Self {
        Self {
            row,
            generation,
            scheduler: kind.as_str().to_owned(),
            start: table::rr::start().into(),
            last_seq: 0,
            dests: Vec::new(),
            retired: Totals::default(),
            removed: false,
            addresses: BTreeSet::new(),
        }
    }

    fn reconcile(
        &mut self,
        pool: &Pool,
        overrides: &Overrides,
        facts: &Facts<'_>,
        ids: &mut Free,
        generation: &mut u32,
    ) -> Result<()> {
        let kind = pool.l4_scheduler().kind;
        if self.scheduler != kind.as_str() {
            self.scheduler = kind.as_str().to_owned();
            let walk = if kind == SchedulerKind::Wrr {
                table::wrr::start(&self.members())
            } else {
                table::rr::start()
            };
            // The generation goes on counting: a cursor of the former scheduler must not be taken for one of this.
            self.start = StoredStart {
                generation: self.start.generation.wrapping_add(1).max(1),
                ..walk.into()
            };
        }
        let wanted = wanted(pool, overrides);
        self.remove_unwanted(&wanted, pool.on_remove.into(), facts);
        for wish in &wanted {
            let revived = self
                .dests
                .iter()
                .position(|dest| dest.is(wish.server, wish.sorry));
            match revived {
                Some(at) if self.dests[at].removed.is_none() => self.edit(at, wish, facts),
                Some(at) => {
                    let dest = self.dests.remove(at);
                    self.add(
                        DestSlot {
                            removed: None,
                            shared: None,
                            ..dest
                        },
                        wish,
                        facts,
                    );
                }
                None => {
                    let id = ids.take().ok_or(Error::TooMany {
                        what: "servers",
                        most: facts.dests - 1,
                    })?;
                    *generation = generation.wrapping_add(1).max(1);
                    self.add(
                        DestSlot::new(id, *generation, wish, facts.now_ms),
                        wish,
                        facts,
                    );
                }
            }
        }
        Ok(())
    }

    fn remove_unwanted(&mut self, wanted: &[Wanted<'_>], removal: Removal, facts: &Facts<'_>) {
        for at in 0..self.dests.len() {
            let dest = &self.dests[at];
            if dest.removed.is_some() || wanted.iter().any(|wish| dest.is(wish.server, wish.sorry))
            {
                continue;
            }
            self.change(facts, |slot| {
                let dest = &mut slot.dests[at];
                dest.removed = Some(removal);
                dest.effective = 0;
                dest.since_ms = facts.now_ms;
            });
        }
    }

    fn edit(&mut self, at: usize, wish: &Wanted<'_>, facts: &Facts<'_>) {
        let dest = &mut self.dests[at];
        dest.name.clone_from(&wish.server.name);
        dest.weight = wish.server.weight;
        if dest.effective == wish.effective {
            return;
        }
        self.change(facts, |slot| {
            let dest = &mut slot.dests[at];
            dest.effective = wish.effective;
            dest.since_ms = facts.now_ms;
            if wish.effective > 0 {
                dest.last_weight = wish.effective;
            }
        });
    }

    fn add(&mut self, dest: DestSlot, wish: &Wanted<'_>, facts: &Facts<'_>) {
        self.last_seq += 1;
        let seq = self.last_seq;
        let change = |slot: &mut Self| {
            slot.dests.push(DestSlot {
                seq,
                name: wish.server.name.clone(),
                weight: wish.server.weight,
                effective: wish.effective,
                last_weight: wish.effective,
                since_ms: facts.now_ms,
                ..dest
            });
        };
        self.change(facts, change);
    }

    /// Makes one change and lets the walk follow it.
    fn change(&mut self, facts: &Facts<'_>, change: impl FnOnce(&mut Self)) {
        match self.scheduler.as_str() {
            "rr" => {
                // Only the head of the list before the change decides.
                let head: Vec<Member> = self.members().into_iter().take(1).collect();
                change(self);
                self.start =
                    table::rr::changed(&self.start.into(), (facts.cursor)(self.row), &head).into();
            }
            "wrr" => {
                change(self);
                let after = self.members();
                self.start =
                    table::wrr::changed(&self.start.into(), (facts.cursor)(self.row), &after)
                        .into();
            }
            _ => change(self),
        }
    }

    /// The list as the schedulers see it: the newest first.
    pub(super) fn members(&self) -> Vec<Member> {
        let mut members: Vec<Member> = self
            .dests
            .iter()
            .filter(|dest| dest.listed())
            .map(|dest| Member {
                seq: dest.seq,
                dest: dest.id,
                weight: dest.effective,
                slot: dest.id,
                usable: true,
            })
            .collect();
        members.sort_by_key(|member| std::cmp::Reverse(member.seq));
        members
    }
}

impl DestSlot {
    fn new(id: u32, generation: u32, wish: &Wanted<'_>, now_ms: u64) -> Self {
        Self {
            id,
            generation,
            name: wish.server.name.clone(),
            address: wish.server.address,
            port: wish.server.port,
            sorry: wish.sorry,
            seq: 0,
            weight: wish.server.weight,
            effective: wish.effective,
            last_weight: wish.effective,
            shared: None,
            removed: None,
            since_ms: now_ms,
        }
    }
}

fn wanted<'a>(pool: &'a Pool, overrides: &Overrides) -> Vec<Wanted<'a>> {
    let weight = |server: &Server| {
        overrides
            .get(&pool.name, &server.name)
            .map_or(server.weight, Override::weight)
    };
    let mut wanted: Vec<Wanted<'a>> = pool
        .servers
        .iter()
        .map(|server| Wanted {
            server,
            sorry: false,
            effective: weight(server),
        })
        .collect();
    let usable = wanted.iter().any(|wish| wish.effective > 0);
    if let Some(server) = &pool.sorry {
        wanted.push(Wanted {
            server,
            sorry: true,
            effective: if usable { 0 } else { weight(server).max(1) },
        });
    }
    wanted
}

/// The server of a slot in the configuration, when it is still there.
pub(super) fn configured<'a>(
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
        .find(|(server, sorry)| dest.is(server, *sorry))
        .map(|(server, _)| server)
}
