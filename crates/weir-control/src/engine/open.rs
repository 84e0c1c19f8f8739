//! The beginning: what is pinned is adopted, or made.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use weir_dataplane::{Dataplane, OpenOptions, Opened, PinDir, Sizes, open_readonly};
use weir_health::Outliers;
use weir_model::{Desired, Indexed, Node};

use super::allocation::Allocation;
use super::attach::attached;
use super::network::Network;
use super::origin::Origin;
use super::rate::RateBook;
use super::state::StateFile;
use super::sum::rows;
use super::write::Writer;
use super::{Engine, Paths, Result, adopt, allocate, attach, every_name, now_ms};
use crate::snapshot::Drift;

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
}

pub(super) fn open_plane(pin_dir: PathBuf, sizes: Sizes) -> Result<(Dataplane, Opened)> {
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
pub(super) fn sizes(node: &Node, now: Option<&Sizes>) -> Sizes {
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
