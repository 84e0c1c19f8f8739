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
mod error;
mod explain;
mod extent;
mod flow;
mod network;
mod overrides;
mod rows;
mod state;
mod status;
#[cfg(test)]
mod tests;
mod upkeep;
mod write;

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use weir_abi::{Cursor, SETTINGS_MIGRATING};
use weir_dataplane::{Dataplane, Maps, OpenOptions, Opened, Sizes};
use weir_model::{Desired, Indexed, MAX_WEIGHT, Node};

use self::address::Announcement;
use self::allocation::{Allocation, Facts};
use self::attach::attached;
use self::network::Network;
use self::overrides::Override;
use self::rows::{Rows, rows};
use self::state::{Memory, StateFile};
use self::write::Writer;

pub use self::clean::{Cleaned, clean};
pub use self::error::{Error, Result};

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
    desired: Indexed,
    network: Network,
    plane: Dataplane,
    writer: Writer,
    rows: Rows,
    /// Routes changed since the picture was taken, and when it was taken.
    stale: bool,
    taken: Instant,
    /// Differences of shared counts at the last upkeep.
    off: BTreeMap<u32, (u64, u64)>,
    /// Flows of a former table are yet to be moved.
    migrating: bool,
    announcements: Vec<Announcement>,
    /// When it was last asked which added addresses are needed no more.
    withdrawn: Instant,
}

impl Engine {
    /// Adopts what is pinned, or makes it, and puts `desired` into force. Must be called inside a tokio runtime, in the
    /// network namespace of the director.
    ///
    /// # Errors
    /// The configuration cannot be had, or the kernel refuses. What ran before goes on.
    pub async fn open(paths: &Paths, desired: &Desired) -> Result<Self> {
        let desired = &Indexed::from(desired.clone());
        let file = StateFile::new(&paths.runtime_dir);
        let known = file.read()?;
        let lost = known.is_none();
        let mut memory = known.unwrap_or_default();
        let mut network = Network::open()?;
        let (plane, opened) = open_plane(paths.pin_dir.clone(), sizes(&desired.node))?;
        if opened == Opened::Fresh {
            memory.allocation = Allocation::default();
        } else if lost {
            tracing::warn!("the state file is gone: rows are found again in the pinned maps");
            memory.allocation =
                adopt::rebuild(plane.maps(), desired, plane.sizes().dests, now_ms())?;
        }
        let revision = fingerprint(desired);
        if memory.fingerprint != revision {
            memory.revision += 1;
            memory.fingerprint = revision;
        }
        memory.allocation = allocate(&memory, desired, &plane)?;
        network.take(servers(desired, &memory.allocation)).await?;
        network.attached = attached(&plane)?;
        let rows = rows(
            desired,
            &memory.allocation,
            &network.surroundings(),
            plane.sizes().dests,
        )?;
        let writer = Writer::adopting(plane.maps())?;
        let mut engine = Self {
            file,
            pin_dir: paths.pin_dir.clone(),
            memory,
            desired: desired.clone(),
            network,
            plane,
            writer,
            rows,
            stale: false,
            taken: Instant::now(),
            off: BTreeMap::new(),
            migrating: opened == Opened::FlowsMigrating,
            announcements: Vec::new(),
            withdrawn: Instant::now(),
        };
        engine.settle().await?;
        Ok(engine)
    }

    /// Puts another configuration into force.
    ///
    /// # Errors
    /// The configuration cannot be had, or the kernel refuses a change: what was in force is in force again, except that a
    /// server which the refused configuration left out stands last in its pool's order of adding. [`Error::Halfway`]: the
    /// way back failed too; each service then has either configuration, whole, and applying again continues.
    pub async fn apply(&mut self, desired: &Desired) -> Result<Applied> {
        let desired = Indexed::from(desired.clone());
        let resized = sizes(&desired.node) != *self.plane.sizes();
        let replaced = if resized {
            Some(open_plane(self.pin_dir.clone(), sizes(&desired.node))?)
        } else {
            None
        };
        let plane = replaced.as_ref().map_or(&self.plane, |(plane, _)| plane);
        let allocation = allocate(&self.memory, &desired, plane)?;
        self.network.take(servers(&desired, &allocation)).await?;
        self.network.interfaces(&desired)?;
        self.network.vip_interface(&desired)?;
        let rows = rows(
            &desired,
            &allocation,
            &self.network.surroundings(),
            plane.sizes().dests,
        )?;
        if let Some((plane, opened)) = replaced {
            self.writer = Writer::adopting(plane.maps())?;
            self.plane = plane;
            self.migrating = opened == Opened::FlowsMigrating;
        }
        let print = fingerprint(&desired);
        let former = std::mem::replace(&mut self.desired, desired);
        let former_revision = (self.memory.revision, self.memory.fingerprint);
        self.memory.allocation = allocation;
        self.memory.revision += 1;
        self.memory.fingerprint = print;
        self.rows = rows;
        if let Err(cause) = self.settle().await {
            (self.memory.revision, self.memory.fingerprint) = former_revision;
            return Err(match self.put_back(former).await {
                Ok(()) => cause,
                Err(back) => Error::Halfway {
                    cause: Box::new(cause),
                    back: Box::new(back),
                },
            });
        }
        Ok(Applied {
            revision: self.memory.revision,
        })
    }

    /// Brings a former configuration back after another one failed midway. Rows that the other one gave out are removed in
    /// the ordinary way: a packet may have bound a flow to them already.
    async fn put_back(&mut self, former: Indexed) -> Result<()> {
        self.desired = former;
        self.memory.allocation = allocate(&self.memory, &self.desired, &self.plane)?;
        self.network
            .take(servers(&self.desired, &self.memory.allocation))
            .await?;
        self.rows = rows(
            &self.desired,
            &self.memory.allocation,
            &self.network.surroundings(),
            self.plane.sizes().dests,
        )?;
        self.settle().await
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
        let mut memory = self.memory.clone();
        if !memory.overrides.set(pool, server, word) {
            return Ok(());
        }
        memory.allocation = allocate(&memory, &self.desired, &self.plane)?;
        self.memory = memory;
        self.rewrite()?;
        Ok(())
    }

    /// Everything that follows from rows and memory: written, attached, resolved, remembered.
    async fn settle(&mut self) -> Result<()> {
        self.file.write(&self.memory)?;
        self.withdraw_vips().await?;
        self.add_vips().await?;
        self.keep_neighbours().await?;
        self.await_neighbours().await?;
        self.write_all()?;
        self.activate()?;
        self.attach().await?;
        self.announce()?;
        // What XDP may send depends on where it is attached, and how.
        self.network.refresh_drivers().await?;
        self.rewrite()
    }

    /// Puts the programs in force and moves flows of another table over. Meanwhile a packet whose flow is not here yet is
    /// dropped, so that it is sent again: passed on, the host's stack would answer it with a reset.
    fn activate(&mut self) -> Result<()> {
        if !self.migrating {
            return Ok(self.plane.activate()?);
        }
        let mut settings = self.rows.settings;
        settings.flags |= SETTINGS_MIGRATING;
        self.plane.maps().set_settings(&settings)?;
        let moved = self.move_over();
        // Also after a failure: a packet that is dropped for good is worse than one that is reset.
        self.plane.maps().set_settings(&self.rows.settings)?;
        self.migrating = moved.is_err();
        moved
    }

    fn move_over(&mut self) -> Result<()> {
        self.migrate()?;
        self.plane.activate()?;
        self.migrate()
    }

    /// Plans the rows of the configuration in force again and writes what differs.
    fn rewrite(&mut self) -> Result<()> {
        let dests = self.plane.sizes().dests;
        self.rows = rows(
            &self.desired,
            &self.memory.allocation,
            &self.network.surroundings(),
            dests,
        )?;
        self.file.write(&self.memory)?;
        self.write_all()
    }

    fn write_all(&mut self) -> Result<()> {
        let maps = self.plane.maps();
        self.write_devices(maps)?;
        self.writer.servers(maps, &self.rows)?;
        self.write_hops(maps, |_| true)?;
        self.writer.services(maps, &self.rows, Instant::now())
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

    /// Writes next hops that differ, of the servers chosen and of removed ones with flows.
    fn write_hops(&self, maps: &Maps, chosen: impl Fn(IpAddr) -> bool) -> Result<()> {
        for (_, dest) in self
            .memory
            .allocation
            .dests()
            .filter(|(_, dest)| chosen(dest.address))
        {
            for (slot, hop) in (0..).zip(self.network.hops(dest.address)) {
                let present = maps.hop(dest.id, slot)?;
                if (present.link, present.dmac, present.smac) != (hop.link, hop.dmac, hop.smac) {
                    maps.set_hop(dest.id, slot, &hop)?;
                }
            }
        }
        Ok(())
    }
}

fn open_plane(pin_dir: PathBuf, sizes: Sizes) -> Result<(Dataplane, Opened)> {
    // Kernels before 5.11 count maps against it; elsewhere it does no harm, and failing shows in what follows.
    let _ = weir_sys::raise_memlock();
    Ok(Dataplane::open(&OpenOptions {
        sizes,
        ..OpenOptions::new(pin_dir)
    })?)
}

/// How much the maps hold, from the limits of the configuration. A list costs an element a server, a spread table some
/// twenty-five; what is replaced and what replaces it are there together for a moment.
fn sizes(node: &Node) -> Sizes {
    let defaults = Sizes::default();
    let services = node.max_services.saturating_add(1);
    let dests = node.max_servers.saturating_add(1).min(weir_abi::DESTS_MAX);
    Sizes {
        services,
        dests,
        pool_rows: dests,
        elements: 8_192u32
            .saturating_add(services.saturating_mul(32))
            .saturating_add(dests.saturating_mul(32)),
        flows: node.max_flows,
        vips: defaults.vips.max(services),
        listeners: defaults.listeners.max(services.saturating_mul(4)),
        ..defaults
    }
}

/// Servers whose next hops are needed: those of the configuration and removed ones that still have flows.
fn servers(desired: &Indexed, allocation: &Allocation) -> BTreeSet<IpAddr> {
    let used: BTreeSet<&str> = desired
        .services
        .iter()
        .map(|service| service.pool.as_str())
        .collect();
    let pools = desired
        .pools
        .iter()
        .filter(|pool| used.contains(pool.name.as_str()));
    let configured = pools
        .flat_map(|pool| pool.servers.iter().chain(&pool.sorry))
        .map(|server| server.address);
    configured
        .chain(allocation.dests().map(|(_, dest)| dest.address))
        .collect()
}

fn allocate(memory: &Memory, desired: &Indexed, plane: &Dataplane) -> Result<Allocation> {
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
    };
    let mut allocation = memory.allocation.clone();
    allocation.reconcile(desired, &memory.overrides, &facts)?;
    Ok(allocation)
}

fn now_ms() -> u64 {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// Tells configurations apart over restarts of the same build; another build may count one revision more.
fn fingerprint(desired: &Desired) -> u64 {
    let mut hasher = DefaultHasher::new();
    desired.hash(&mut hasher);
    hasher.finish()
}
