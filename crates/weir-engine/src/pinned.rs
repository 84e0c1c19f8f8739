//! Reads the pinned data plane and the last engine's files, for commands that run while no daemon is running.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use weir_dataplane::{PinDir, PinnedPlane, open_readonly};
use weir_ipvsadm::{Connection, Listing, Timeouts};
use weir_model::{Desired, Indexed};
use weir_planner::allocation::ServiceSlot;
use weir_state::SavedServers;

use crate::error::Result;
use crate::listing::ListingInput;
use crate::paths::Paths;
use crate::state::{STATE_FILE, StateFile, Unreadable, read};
use crate::stored_state::EngineState;
use crate::vip;

/// Returns the addresses that a director has added, with their interfaces, from its runtime directory; empty if the
/// directory is unreadable.
pub fn added_vips(runtime_dir: &Path) -> BTreeSet<(String, IpAddr)> {
    let saved = StateFile::new(runtime_dir).read().ok().flatten();
    let mut added = vip::read_record(runtime_dir);
    added.extend(
        saved
            .into_iter()
            .flat_map(|saved| saved.engine.undo.addresses),
    );
    added
}

/// Adds the services created with ipvsadm, which are in the state file, to a configuration. Returns the configuration
/// unchanged if the state file is unreadable, or if a layer 4 service and an ipvsadm service have the same listener.
pub fn with_ipvsadm_services(runtime_dir: &Path, configured: Desired) -> Desired {
    let saved = StateFile::new(runtime_dir).read().ok().flatten();
    let merged = saved.map(|saved| saved.engine.origin.merged_with(configured.clone()));
    merged.and_then(Result::ok).unwrap_or(configured)
}

/// Read access to a pinned data plane while no daemon is running.
#[derive(Debug)]
pub struct PinnedEngine {
    desired: Indexed,
    state: EngineState,
    plane: PinnedPlane,
}

impl PinnedEngine {
    /// Opens the pinned data plane; `configured` is the configuration that was last active.
    ///
    /// # Errors
    /// Fails if nothing is pinned, a newer version wrote the state file, or `configured` has a listener of an ipvsadm
    /// service.
    pub fn open(paths: &Paths, configured: &Desired) -> Result<Self> {
        let plane = open_readonly(&PinDir::new(&paths.pin_dir))?;
        let saved = StateFile::new(&paths.runtime_dir).read()?;
        let state = saved.unwrap_or_default().engine;
        let desired = Indexed::from(state.origin.merged_with(configured.clone())?);
        Ok(Self {
            desired,
            state,
            plane,
        })
    }

    fn listing_input(&self) -> ListingInput<'_> {
        ListingInput {
            desired: &self.desired,
            state: &self.state,
            maps: &self.plane.maps,
            rates: None,
        }
    }

    /// Like [`crate::Engine::listing`], without rates.
    ///
    /// # Errors
    /// Fails if a map cannot be read.
    pub fn listing(&self) -> Result<Listing> {
        self.listing_input().listing()
    }

    /// Like [`crate::Engine::connections`].
    ///
    /// # Errors
    /// Fails if a map cannot be read.
    pub fn connections(&self) -> Result<Vec<Connection>> {
        self.listing_input().connections()
    }

    /// Like [`crate::Engine::timeouts`].
    pub fn timeouts(&self) -> Timeouts {
        self.listing_input().timeouts()
    }
}

/// The state file's content, for readers that do not open an engine.
#[derive(Debug)]
pub struct PersistedState {
    /// Number of configurations that have been applied.
    pub revision: u64,
    /// Allocated rows, by service.
    pub services: BTreeMap<String, ServiceSlot>,
    /// The state of servers.
    pub servers: SavedServers,
}

impl PersistedState {
    /// Returns the state file path in a runtime directory.
    pub fn path(runtime_dir: &Path) -> PathBuf {
        runtime_dir.join(STATE_FILE)
    }

    /// Reads the state file in a runtime directory; `None` = there is none.
    ///
    /// # Errors
    /// Fails if the file is unreadable.
    pub fn read(runtime_dir: &Path) -> std::result::Result<Option<Self>, Unreadable> {
        let saved = read(&Self::path(runtime_dir))?;
        Ok(saved.map(|(_, saved)| Self {
            revision: saved.engine.revision,
            services: saved.engine.allocation.services,
            servers: saved.servers,
        }))
    }
}
