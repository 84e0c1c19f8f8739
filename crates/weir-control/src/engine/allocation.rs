//! Who has which row: ids of services and servers that stay the same as long as their names do.
//!
//! Flow entries name a server's row, so a row is given away only after its last flow has ended; until then a removed server
//! keeps it. The order of adding (`seq`) and the start of `rr` and `wrr` walks live here too, because they depend on the
//! history of changes, one added, edited or removed server at a time, as the kernel's do. Pure: counts and cursors are
//! arguments, and nothing here knows a map.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::net::IpAddr;

use serde::{Deserialize, Serialize};
use weir_model::{Indexed, OnRemove, Pool, SchedulerKind, Server, Service};
use weir_sched::{Cursor, Member, Start, table};

use super::index::Index;
use super::mark;
use super::number::Numbers;
use super::overrides::{Override, Overrides};
use super::standing::Standings;
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
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) port: Option<u16>,
    /// Stands in when no other server is usable.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) sorry: bool,
    /// Order of adding, from 1.
    pub(super) seq: u32,
    /// Configured weight.
    pub(super) weight: u32,
    /// What the scheduler uses.
    pub(super) effective: u32,
    /// Weight 0 is the configured one, or the operator's: persistent clients may still come.
    #[serde(default)]
    pub(super) quiesced: bool,
    /// Its checks say so.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) down: bool,
    /// The last effective weight above 0, which `mh` builds its table of.
    pub(super) last_weight: u32,
    /// Number of the row of counts shared by all services of the pool; `None` = its own counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) shared: Option<u32>,
    /// Removed from the configuration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) removed: Option<Removal>,
    /// Down by a check whose failure removes: what becomes of its flows meanwhile.
    #[serde(default)]
    pub(super) failed: Option<Removal>,
    /// When its present state began, milliseconds of Unix time.
    pub(super) since_ms: u64,
}

/// What a server is known by within its service: address, port, whether it is the sorry server.
type Key = (IpAddr, Option<u16>, bool);

impl DestSlot {
    fn key(&self) -> Key {
        (self.address, self.port, self.sorry)
    }

    fn is(&self, server: &Server, sorry: bool) -> bool {
        self.key() == (server.address, server.port, sorry)
    }

    /// Whether it stands in the list of its service: a sorry server does only while it is needed.
    pub(super) fn listed(&self) -> bool {
        self.removed.is_none() && self.failed.is_none() && (!self.sorry || self.effective > 0)
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
    /// The same of its marks.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub(super) marks: BTreeSet<mark::Key>,
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
    #[serde(skip)]
    index: Index,
}

/// What a reconciling replaced: the touched services as they were.
#[derive(Debug)]
pub(super) struct Former {
    services: Vec<(String, Option<ServiceSlot>)>,
    shared_since: Vec<String>,
    shared_until: Vec<(String, u32)>,
    last_generation: u32,
}

impl Former {
    /// Whether other servers than before share counts.
    pub(super) fn sharing_changed(&self) -> bool {
        !self.shared_since.is_empty() || !self.shared_until.is_empty()
    }

    /// The services that are other than before.
    pub(super) fn changed<'a>(&'a self, now: &'a Allocation) -> impl Iterator<Item = &'a str> {
        let changed = self
            .services
            .iter()
            .filter(|(name, before)| now.services.get(name) != before.as_ref());
        changed.map(|(name, _)| name.as_str())
    }
}

/// What was given back.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Released {
    /// Rows of servers.
    pub(super) dests: Vec<u32>,
    /// Where these servers are.
    pub(super) addresses: BTreeSet<IpAddr>,
    /// Rows of services.
    pub(super) services: Vec<u32>,
    /// Names of the services that lost something, or are no more.
    pub(super) touched: Vec<String>,
    /// Rows of shared counts were given back too.
    pub(super) sharing_changed: bool,
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
    /// What checks say of servers.
    pub(super) standings: &'a Standings,
}

/// A server that a service shall have, with its effective weight.
struct Wanted<'a> {
    server: &'a Server,
    sorry: bool,
    effective: u32,
    failed: Option<Removal>,
    quiesced: bool,
    down: bool,
}

impl Allocation {
    /// Brings the rows of some services in line with what is desired; others stay as they are. Answers the way back.
    ///
    /// # Errors
    /// More services or servers than rows; nothing has changed then.
    pub(super) fn reconcile<'a>(
        &mut self,
        desired: &Indexed,
        touched: impl IntoIterator<Item = &'a str>,
        overrides: &Overrides,
        facts: &Facts<'_>,
    ) -> Result<Former> {
        self.index();
        let mut former = Former {
            services: Vec::new(),
            shared_since: Vec::new(),
            shared_until: Vec::new(),
            last_generation: self.last_generation,
        };
        for name in touched {
            let slot = self.services.get(name).cloned();
            former.services.push((name.to_owned(), slot));
            if let Err(error) = self.reconcile_service(desired, name, overrides, facts) {
                self.restore(former);
                return Err(error);
            }
        }
        self.share_counts(desired, &mut former);
        self.index.note(&self.services, &former.services);
        Ok(former)
    }

    fn reconcile_service(
        &mut self,
        desired: &Indexed,
        name: &str,
        overrides: &Overrides,
        facts: &Facts<'_>,
    ) -> Result<()> {
        let Some(service) = desired.service(name) else {
            if let Some(slot) = self.services.get_mut(name) {
                slot.removed = true;
                slot.remove_unwanted(&[], Removal::Keep, facts);
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
            let row = self.index.rows.take(facts.services);
            let row = row.ok_or(Error::TooMany {
                what: "services",
                most: facts.services - 1,
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
            slot.reconcile(pool, overrides, facts, &mut self.index.ids, generation)?;
        }
        Ok(())
    }

    /// Takes a reconciling back, before anything of it was written.
    pub(super) fn restore(&mut self, former: Former) {
        for (name, slot) in former.services.into_iter().rev() {
            match slot {
                Some(slot) => self.services.insert(name, slot),
                None => self.services.remove(&name),
            };
        }
        for key in &former.shared_since {
            self.shared.remove(key);
        }
        self.shared.extend(former.shared_until);
        self.last_generation = former.last_generation;
        self.index = Index::default();
    }

    fn next_generation(&mut self) -> u32 {
        self.last_generation = self.last_generation.wrapping_add(1).max(1);
        self.last_generation
    }

    /// Servers of a pool that several services use are counted together too. Once shared stays shared: the counts of flows
    /// that began before are already in it.
    fn share_counts(&mut self, desired: &Indexed, former: &mut Former) {
        let mut left = false;
        for (name, before) in &former.services {
            let Some(slot) = self.services.get_mut(name) else {
                continue;
            };
            if let Some(service) = desired.service(name) {
                let mut users = desired.users(&service.pool).filter(|it| !it.strict_ipvs);
                let several = users.nth(1).is_some();
                let live = slot.dests.iter_mut().filter(|dest| dest.removed.is_none());
                for dest in live {
                    if service.strict_ipvs {
                        dest.shared = None;
                    } else if several || dest.shared.is_some() {
                        let port = dest.port.unwrap_or(0);
                        let key = format!("{} {} {port}", service.pool, dest.address);
                        let numbers = &mut self.index.shared;
                        dest.shared = match self.shared.get(&key) {
                            Some(row) => Some(*row),
                            None => numbers.take(u32::MAX).inspect(|row| {
                                former.shared_since.push(key.clone());
                                self.shared.insert(key, *row);
                            }),
                        };
                    }
                }
            }
            let rows = |slot: &ServiceSlot| -> BTreeSet<u32> {
                slot.dests.iter().filter_map(|dest| dest.shared).collect()
            };
            left |= before
                .as_ref()
                .is_some_and(|before| !rows(before).is_subset(&rows(slot)));
        }
        if left {
            former.shared_until = self.drop_unshared();
        }
    }

    /// Gives back the rows of counts that no server adds to any more, and answers which.
    fn drop_unshared(&mut self) -> Vec<(String, u32)> {
        let used: BTreeSet<u32> = self.dests().filter_map(|(_, dest)| dest.shared).collect();
        let (kept, dropped): (Vec<_>, Vec<_>) = std::mem::take(&mut self.shared)
            .into_iter()
            .partition(|(_, row)| used.contains(row));
        self.shared = kept.into_iter().collect();
        self.index.shared = Numbers::new(0, self.shared.values().copied());
        dropped
    }

    /// Every server row with its service's name.
    pub(super) fn dests(&self) -> impl Iterator<Item = (&str, &DestSlot)> {
        self.services
            .iter()
            .flat_map(|(name, slot)| slot.dests.iter().map(move |dest| (name.as_str(), dest)))
    }

    /// Rows of the servers at an address.
    pub(super) fn at(&self, address: IpAddr) -> &[u32] {
        self.index.at.get(&address).map_or(&[], Vec::as_slice)
    }

    /// Every mark that a service has, or had while flows live.
    pub(super) fn marks(&self) -> BTreeSet<mark::Key> {
        let slots = self.services.values();
        slots.flat_map(|slot| slot.marks.iter().copied()).collect()
    }

    /// Every address that a server has.
    pub(super) fn addresses(&self) -> impl Iterator<Item = IpAddr> {
        self.index.at.keys().copied()
    }

    /// Gives back the rows of removed servers for which `ended` answers their last totals, and services without any.
    pub(super) fn release(&mut self, ended: &dyn Fn(&DestSlot) -> Option<Totals>) -> Released {
        self.index();
        let mut released = Released::default();
        let mut unshared = false;
        for name in self.index.leaving.clone() {
            let Some(slot) = self.services.get_mut(&name) else {
                continue;
            };
            let retired = &mut slot.retired;
            let before = slot.dests.len();
            slot.dests.retain(|dest| {
                let Some(totals) = dest.removed.and_then(|_| ended(dest)) else {
                    return true;
                };
                *retired = retired.plus(totals);
                released.dests.push(dest.id);
                released.addresses.insert(dest.address);
                self.index.forget(dest);
                unshared |= dest.shared.is_some();
                false
            });
            let gone = slot.removed && slot.dests.is_empty();
            if gone || slot.dests.len() != before {
                released.touched.push(name.clone());
            }
            if !slot.removed && slot.dests.iter().all(|dest| dest.removed.is_none()) {
                self.index.leaving.remove(&name);
            }
            if gone {
                released.services.push(slot.row);
                self.index.rows.give(slot.row);
                self.index.leaving.remove(&name);
                self.services.remove(&name);
            }
        }
        released.sharing_changed = unshared && !self.drop_unshared().is_empty();
        released
    }

    fn index(&mut self) {
        if !self.index.known {
            self.index = Index::of(&self.services, self.shared.values().copied());
        }
    }
}

impl Wanted<'_> {
    fn key(&self) -> Key {
        (self.server.address, self.server.port, self.sorry)
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
            marks: BTreeSet::new(),
        }
    }

    fn reconcile(
        &mut self,
        pool: &Pool,
        overrides: &Overrides,
        facts: &Facts<'_>,
        ids: &mut Numbers,
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
        let wanted = wanted(pool, overrides, facts.standings);
        self.remove_unwanted(&wanted, pool.on_remove.into(), facts);
        let mut places = self.places();
        for wish in &wanted {
            match places.get(&wish.key()).copied() {
                Some(at) if self.dests[at].removed.is_none() => self.edit(at, wish, facts),
                Some(at) => {
                    let dest = self.dests.remove(at);
                    places
                        .values_mut()
                        .for_each(|place| *place -= usize::from(*place > at));
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
                    let id = ids.take(facts.dests).ok_or(Error::TooMany {
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

    /// Where each server stands.
    fn places(&self) -> HashMap<Key, usize> {
        let keys = self.dests.iter().map(DestSlot::key);
        keys.enumerate().map(|(at, key)| (key, at)).collect()
    }

    fn remove_unwanted(&mut self, wanted: &[Wanted<'_>], removal: Removal, facts: &Facts<'_>) {
        let wanted: HashSet<Key> = wanted.iter().map(Wanted::key).collect();
        for at in 0..self.dests.len() {
            let dest = &self.dests[at];
            if dest.removed.is_some() || wanted.contains(&dest.key()) {
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
        (dest.quiesced, dest.down) = (wish.quiesced, wish.down);
        if (dest.effective, dest.failed) == (wish.effective, wish.failed) {
            return;
        }
        self.change(facts, |slot| {
            let dest = &mut slot.dests[at];
            dest.effective = wish.effective;
            dest.failed = wish.failed;
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
                quiesced: wish.quiesced,
                down: wish.down,
                last_weight: wish.effective,
                failed: wish.failed,
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
                let head: Vec<Member> = self.listed().next().into_iter().collect();
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
        self.listed().collect()
    }

    fn listed(&self) -> impl Iterator<Item = Member> {
        let newest_first = self.dests.iter().rev().filter(|dest| dest.listed());
        newest_first.map(|dest| Member {
            seq: dest.seq,
            dest: dest.id,
            weight: dest.effective,
            slot: dest.id,
            usable: true,
        })
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
            quiesced: wish.quiesced,
            down: wish.down,
            last_weight: wish.effective,
            shared: None,
            removed: None,
            failed: wish.failed,
            since_ms: now_ms,
        }
    }
}

fn wanted<'a>(pool: &'a Pool, overrides: &Overrides, standings: &Standings) -> Vec<Wanted<'a>> {
    let weight = |server: &Server| {
        overrides
            .get(&pool.name, &server.name)
            .map_or(server.weight, Override::weight)
    };
    let (weighed, _) = standings.weigh(pool, &overrides.base(pool));
    let mut wanted: Vec<Wanted<'a>> = pool
        .servers
        .iter()
        .zip(weighed)
        .map(|(server, weighed)| Wanted {
            server,
            sorry: false,
            effective: weighed.effective,
            failed: weighed.remove.then_some(pool.on_remove.into()),
            down: weighed.effective == 0 && standings.is_down(&pool.name, &server.name),
            quiesced: match overrides.get(&pool.name, &server.name) {
                None | Some(Override::Weight(_)) => weight(server) == 0,
                Some(Override::Drain | Override::Maint) => false,
            },
        })
        .collect();
    let usable = wanted.iter().any(|wish| wish.effective > 0);
    if let Some(server) = &pool.sorry {
        wanted.push(Wanted {
            server,
            sorry: true,
            effective: if usable || !standings.sorry_serves(pool) {
                0
            } else {
                weight(server).max(1)
            },
            failed: None,
            quiesced: false,
            down: false,
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
