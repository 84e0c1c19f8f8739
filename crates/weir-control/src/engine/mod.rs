//! The layer 4 director: brings the data plane and the network to a configuration, and keeps them there.
//!
//! [`Engine::apply`] plans with pure functions (`allocation`, `rows`, `extent`) and only then writes (`write`): a
//! configuration that cannot be had changes nothing. What packets meet lives in pinned maps; an engine that goes away leaves
//! them as they are, and the next one adopts them (`adopt`, `state`). It refuses to run a loop, open a socket for
//! clients or read a file of configuration: the daemon above does, and calls from one task.

mod address;
mod adopt;
mod allocation;
mod attach;
mod choice;
mod clean;
mod drift;
mod error;
mod explain;
mod extent;
mod index;
pub(crate) mod journal;
mod listing;
mod mark;
mod mend;
mod network;
mod number;
mod origin;
mod overrides;
mod passive;
mod policy;
mod rate;
mod reload;
mod rows;
pub(crate) mod standing;
mod state;
mod status;
mod sum;
#[cfg(test)]
mod tests;
mod tree;
mod upkeep;
mod way;
mod write;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use weir_abi::Cursor;
use weir_dataplane::migrate::Moved;
use weir_dataplane::{Dataplane, Maps, OpenOptions, Opened, PinDir, Sizes, open_readonly};
use weir_model::{Desired, Indexed, MAX_WEIGHT, Node, Timeouts};

use weir_health::{Known, Outliers, Suspended};

use crate::check::{News, Passages, PoolTurn};
use crate::snapshot::Drift;

use self::address::Announcement;
use self::allocation::{Allocation, Facts, Former};
use self::attach::attached;
use self::journal::Record;
use self::network::{Hops, Network};
use self::origin::Origin;
use self::overrides::Override;
use self::rate::RateBook;
use self::state::{Memory, StateFile};
use self::sum::{Changes, Rows, rows};
use self::write::Writer;

pub use self::clean::{Cleaned, clean};
pub use self::error::{Error, Result};
pub use self::listing::{Pinned, is_made, with_made};
pub use self::origin::Claim;

/// Where an engine keeps what outlives it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Paths {
    /// Socket, lock and state file.
    pub runtime_dir: PathBuf,
    /// Pinned programs, maps and links.
    pub pin_dir: PathBuf,
}

/// An operator's word about a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OverrideChange {
    /// No new flows.
    Drain,
    /// No new flows and no checks.
    Maint,
    /// Takes any word back.
    Ready,
    /// Another weight than the file's.
    Weight(u32),
}

/// What a reload did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Applied {
    /// The number of the configuration in force.
    pub revision: u64,
}

/// The director.
#[derive(Debug)]
pub struct Engine {
    file: StateFile,
    pin_dir: PathBuf,
    memory: Memory,
    /// All of the configuration, ipvsadm's part included.
    desired: Indexed,
    /// The file's timeouts: `ipvsadm --set` may have put others into force.
    file_timeouts: Timeouts,
    network: Network,
    plane: Dataplane,
    writer: Writer,
    rows: Rows,
    /// Rows that are planned and may not be written yet.
    pending: Changes,
    /// Next hops of all servers may be others than what is written.
    hops_due: bool,
    /// Routes changed since the picture was taken, when it was taken, and how long that took.
    stale: bool,
    taken: Instant,
    taking: Duration,
    /// Differences of shared counts at the last upkeep.
    off: BTreeMap<u32, (u64, u64)>,
    announcements: Vec<Announcement>,
    /// When it was last asked which added addresses are needed no more.
    withdrawn: Instant,
    rate_book: RateBook,
    /// Servers as their clients find them.
    outliers: Outliers,
    /// What was mended.
    drift: Drift,
    /// Something could not be mended, and that was said.
    unmended: bool,
    /// How long new servers' neighbours are waited for before they may get packets.
    patience: Duration,
}

impl Engine {
    /// Adopts what is pinned, or makes it, and puts `desired` into force. Must be called inside a tokio runtime, in the
    /// network namespace of the director.
    ///
    /// # Errors
    /// The configuration cannot be had, or the kernel refuses. What ran before goes on.
    pub async fn open(paths: &Paths, configured: &Desired) -> Result<Self> {
        let mut file = StateFile::new(&paths.runtime_dir);
        let known = file.read()?;
        let lost = known.is_none();
        let mut memory = known.unwrap_or_default();
        let mut network = Network::open()?;
        let pinned = open_readonly(&PinDir::new(&paths.pin_dir)).ok();
        let pinned = pinned.map(|plane| plane.sizes);
        let wanted = sizes(&configured.node, pinned.as_ref());
        let (plane, opened) = open_plane(paths.pin_dir.clone(), wanted)?;
        if opened == Opened::Fresh {
            memory.allocation = Allocation::default();
            memory.origin = Origin::default();
        }
        let desired = Indexed::from(memory.origin.merged(configured.clone())?);
        if opened != Opened::Fresh && lost {
            tracing::warn!("the state file is gone: rows are found again in the pinned maps");
            memory.allocation =
                adopt::rebuild(plane.maps(), &desired, plane.sizes().dests, now_ms())?;
        }
        let revision = desired.fingerprint();
        if memory.fingerprint != revision {
            memory.revision += 1;
            memory.fingerprint = revision;
        }
        let every = every_name(&memory.allocation, &desired);
        let every: Vec<&str> = every.iter().map(String::as_str).collect();
        allocate(&mut memory, &desired, &plane, &every)?;
        network
            .take(memory.allocation.addresses().collect())
            .await?;
        network.adopt_marks(memory.undo.marks.as_ref());
        network.set_attached(attached(&plane)?);
        let (rows, pending) = rows(
            &desired,
            &memory.allocation,
            &network.surroundings(memory.allocation.addresses()),
            plane.sizes().dests,
        )?;
        let writer = Writer::adopting(plane.maps())?;
        file.write(&memory)?;
        let mut engine = Self {
            file,
            pin_dir: paths.pin_dir.clone(),
            memory,
            desired,
            file_timeouts: configured.timeouts,
            network,
            plane,
            writer,
            rows,
            pending,
            hops_due: true,
            stale: false,
            taken: Instant::now(),
            taking: Duration::ZERO,
            off: BTreeMap::new(),
            announcements: Vec::new(),
            withdrawn: Instant::now(),
            rate_book: RateBook::new(),
            outliers: Outliers::default(),
            drift: Drift::default(),
            unmended: false,
            patience: attach::RESOLVING,
        };
        engine.settle().await?;
        Ok(engine)
    }

    /// Puts an operator's word about a server into force, in every service of its pool, and remembers it over restarts.
    ///
    /// # Errors
    /// No such server, a weight above [`MAX_WEIGHT`], or the kernel refuses.
    pub async fn set_override(
        &mut self,
        pool: &str,
        server: &str,
        change: OverrideChange,
    ) -> Result<()> {
        let known = self.desired.pool(pool).is_some_and(|known| {
            known
                .server(server)
                .or(known.sorry.as_ref().filter(|sorry| sorry.name == server))
                .is_some()
        });
        if !known {
            return Err(Error::NoServer {
                pool: pool.to_owned(),
                server: server.to_owned(),
            });
        }
        let word = match change {
            OverrideChange::Drain => Some(Override::Drain),
            OverrideChange::Maint => Some(Override::Maint),
            OverrideChange::Ready => None,
            OverrideChange::Weight(weight) if weight > MAX_WEIGHT => {
                return Err(Error::Weight {
                    weight,
                    most: MAX_WEIGHT,
                });
            }
            OverrideChange::Weight(weight) => Some(Override::Weight(weight)),
        };
        let former = self.memory.overrides.get(pool, server);
        if !self.memory.overrides.set(pool, server, word) {
            return Ok(());
        }
        if let Err(error) = self.pools_changed(&[pool]) {
            self.memory.overrides.set(pool, server, former);
            return Err(error);
        }
        let words = vec![(pool.to_owned(), server.to_owned(), word)];
        self.file.append(&Record {
            overrides: words,
            ..Record::default()
        })
    }

    /// Takes in what checks say of servers, and remembers it over restarts.
    ///
    /// # Errors
    /// The kernel refuses, or the state file cannot be written.
    pub fn hear(&mut self, news: Vec<News>) -> Result<()> {
        let pools: BTreeSet<String> = news.iter().map(|news| news.pool.clone()).collect();
        let record = Record {
            standings: self.memory.standings.hear(news),
            ..Record::default()
        };
        if !record.standings.is_empty() {
            self.file.append(&record)?;
        }
        let pools: Vec<&str> = pools.iter().map(String::as_str).collect();
        self.pools_changed(&pools)
    }

    /// What checks said of a server, in this run or a former one.
    pub fn known(&self, pool: &str, server: &str) -> Option<Known> {
        self.memory.standings.known(pool, server)
    }

    /// Takes what became of pools since the last time.
    pub fn take_turns(&mut self) -> Vec<PoolTurn> {
        self.memory.standings.take_turns()
    }

    /// Where probes through a service's forward are entered.
    pub fn passages(&self) -> Passages {
        Arc::clone(&self.plane.maps().probes)
    }

    /// Servers in maintenance, by pool and address as in the file.
    pub fn suspended(&self) -> Suspended {
        self.memory.overrides.maintained()
    }

    /// Follows a change of what the servers of some pools may get, in all of their services and nowhere else.
    fn pools_changed(&mut self, pools: &[&str]) -> Result<()> {
        for pool in pools.iter().filter_map(|pool| self.desired.pool(pool)) {
            let base = self.memory.overrides.base(pool);
            self.memory.standings.settle(pool, &base);
        }
        let users = pools.iter().flat_map(|pool| self.desired.users(pool));
        let names: Vec<String> = users.map(|it| it.name.clone()).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let former = allocate(&mut self.memory, &self.desired, &self.plane, &names)?;
        self.remember(&former)?;
        self.rewrite(&names)
    }

    /// Writes down what is to be undone, before it is done.
    fn remember_undo(&mut self) -> Result<()> {
        self.file.append(&Record {
            undo: Some(self.memory.undo.clone()),
            ..Record::default()
        })
    }

    /// Writes down what a reconciling changed.
    fn remember(&mut self, former: &Former) -> Result<()> {
        let changed = former.changed(&self.memory.allocation);
        let record = Record::of(&self.memory, changed, former.sharing_changed());
        self.file.append(&record)
    }

    /// Everything that follows from rows and memory: written, attached, resolved.
    async fn settle(&mut self) -> Result<()> {
        self.withdraw_vips().await?;
        self.add_vips().await?;
        if self.keep_neighbours().await? {
            self.await_neighbours().await?;
        }
        self.write_pending()?;
        self.activate()?;
        let before = (self.network.attached.clone(), self.network.learns_clients());
        self.attach().await?;
        self.keep_marks().await?;
        self.announce()?;
        // What XDP may send depends on where it is attached, and how.
        let refreshed = self.network.refresh_drivers().await?;
        let now = (&self.network.attached, self.network.learns_clients());
        if refreshed || (&before.0, before.1) != now {
            self.hops_due = true;
            self.rewrite(&[])?;
        }
        Ok(())
    }

    /// Puts the programs in force and moves flows over, if the table has another size or layout than before.
    fn activate(&mut self) -> Result<()> {
        self.plane.activate()?;
        let Moved { moved, lost } = self.plane.migrate_flows()?;
        if moved + lost > 0 {
            tracing::info!(moved, lost, "flows moved to a new table");
        }
        Ok(())
    }

    /// Plans the rows of some services again and writes what differs.
    fn rewrite(&mut self, touched: &[&str]) -> Result<()> {
        self.replan(touched)?;
        self.write_pending()
    }

    fn replan(&mut self, touched: &[&str]) -> Result<()> {
        let around = self.network.surroundings(addresses(&self.memory, touched));
        let changes = self.rows.replan(
            &self.desired,
            &self.memory.allocation,
            &around,
            self.plane.sizes().dests,
            touched.iter().copied(),
        )?;
        self.pending.extend(changes);
        Ok(())
    }

    /// Writes what is planned. What a failure leaves out stays pending.
    fn write_pending(&mut self) -> Result<()> {
        let maps = self.plane.maps();
        self.write_devices(maps)?;
        self.writer.servers(maps, &self.rows, &self.pending)?;
        if self.hops_due {
            self.write_all_hops()?;
        } else {
            for id in &self.pending.dests {
                // The row of a removed server still says where it is.
                let address = maps.dests.get(*id)?.addr.to_ip();
                write_hops(maps, *id, &self.network.hops(address))?;
            }
        }
        self.writer
            .services(maps, &self.rows, &self.pending, Instant::now())?;
        (self.pending, self.hops_due) = (Changes::default(), false);
        Ok(())
    }

    fn write_devices(&self, maps: &Maps) -> Result<()> {
        let wanted = self.network.devices();
        let known: BTreeMap<u32, weir_abi::Device> = maps.devices.elements()?.into_iter().collect();
        for (ifindex, row) in wanted
            .iter()
            .filter(|(ifindex, row)| known.get(ifindex) != Some(row))
        {
            maps.devices.set(ifindex, row)?;
        }
        for ifindex in known.keys().filter(|ifindex| !wanted.contains_key(ifindex)) {
            maps.devices.remove(ifindex)?;
        }
        Ok(())
    }

    /// Writes next hops of every server, removed ones with flows included.
    fn write_all_hops(&self) -> Result<()> {
        let mut hops = self.network.hops_of_many();
        for address in self.memory.allocation.addresses() {
            let hops = hops.to(address);
            for id in self.memory.allocation.at(address) {
                write_hops(self.plane.maps(), *id, &hops)?;
            }
        }
        Ok(())
    }

    /// Writes next hops of the servers at an address; answers whether one leads to another machine than it did.
    fn write_hops_at(&self, address: IpAddr) -> Result<bool> {
        let (hops, mut moved) = (self.network.hops(address), false);
        for id in self.memory.allocation.at(address) {
            moved |= write_hops(self.plane.maps(), *id, &hops)?;
        }
        Ok(moved)
    }
}

/// Writes next hops that differ; answers whether one leads to another machine than it did.
fn write_hops(maps: &Maps, id: u32, hops: &Hops) -> Result<bool> {
    let mut moved = false;
    for (slot, hop) in (0..).zip(hops) {
        let present = maps.hop(id, slot)?;
        if (present.link, present.dmac, present.smac) != (hop.link, hop.dmac, hop.smac) {
            moved |= present.dmac != 0 && hop.dmac != 0 && present.dmac != hop.dmac;
            maps.set_hop(id, slot, hop)?;
        }
    }
    Ok(moved)
}

fn open_plane(pin_dir: PathBuf, sizes: Sizes) -> Result<(Dataplane, Opened)> {
    // Kernels before 5.11 count maps against it; elsewhere it does no harm, and failing shows in what follows.
    let _ = weir_sys::raise_memlock();
    let opened = Dataplane::open(&OpenOptions {
        sizes,
        ..OpenOptions::new(pin_dir)
    })?;
    // Loading reads the kernel's types: megabytes that nobody needs again.
    weir_sys::trim_heap();
    Ok(opened)
}

/// How much the maps hold, from the limits of the configuration; no less than `now`, whose rows may be in use. A service's header and spread table begin with 67 elements,
/// and a server costs up to ten more; what is replaced and what replaces it are there together for a moment.
fn sizes(node: &Node, now: Option<&Sizes>) -> Sizes {
    let defaults = Sizes::default();
    let (least_services, least_dests) = now.map_or((0, 0), |now| (now.services, now.dests));
    let services = node.max_services.saturating_add(1).max(least_services);
    let dests = node.max_servers.saturating_add(1).min(weir_abi::DESTS_MAX);
    let dests = dests.max(least_dests);
    Sizes {
        services,
        dests,
        pool_rows: dests,
        elements: 8_192u32
            .saturating_add(services.saturating_mul(68))
            .saturating_add(dests.saturating_mul(10)),
        flows: node.max_flows,
        vips: defaults.vips.max(services),
        listeners: defaults.listeners.max(services.saturating_mul(4)),
        ..defaults
    }
}

/// Every service that has rows or shall have some: the removed ones first, then the others in their order.
fn every_name(allocation: &Allocation, desired: &Indexed) -> Vec<String> {
    let gone = allocation.services.keys();
    let gone = gone.filter(|name| desired.service(name).is_none());
    let there = desired.services.iter().map(|service| &service.name);
    gone.chain(there).cloned().collect()
}

/// Where the servers of some services are.
fn addresses<'a>(
    memory: &'a Memory,
    touched: &'a [&'a str],
) -> impl Iterator<Item = IpAddr> + use<'a> {
    let slots = touched
        .iter()
        .filter_map(|name| memory.allocation.services.get(*name));
    slots.flat_map(|slot| slot.dests.iter().map(|dest| dest.address))
}

/// Gives rows to some services; on an error nothing has changed.
fn allocate(
    memory: &mut Memory,
    desired: &Indexed,
    plane: &Dataplane,
    touched: &[&str],
) -> Result<Former> {
    let maps = plane.maps();
    let cursor = |row: u32| {
        let Cursor {
            generation,
            seq,
            current_weight,
            ..
        } = maps.cursors.get(row).unwrap_or(Cursor::ZERO);
        weir_sched::Cursor {
            generation,
            last_seq: seq,
            pass_weight: u32::try_from(current_weight).unwrap_or(0),
        }
    };
    let sizes = plane.sizes();
    let facts = Facts {
        services: sizes.services,
        dests: sizes.dests,
        now_ms: now_ms(),
        cursor: &cursor,
        standings: &memory.standings,
    };
    let touched = touched.iter().copied();
    memory
        .allocation
        .reconcile(desired, touched, &memory.overrides, &facts)
}

fn now_ms() -> u64 {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
