//! Implements `weir clean`: reverts the changes to the host that are recorded in Weir's directories.

use std::collections::BTreeSet;
use std::net::IpAddr;

use weir_dataplane::{PinDir, open_readonly, pinned_sizes};
use weir_netlink::{Change, Netlink};
use weir_planner::allocation::Allocation;
use weir_sys::ethtool::Features;

use crate::error::Result;
use crate::origin::Origin;
use crate::paths::Paths;
use crate::state::StateFile;
use crate::stored_state::{EngineState, StoredState, Undo};
use crate::vip::{self, read_record, remove_record, write_record};

/// What [`clean`] removed or restored.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CleanSummary {
    /// Whether programs, maps and attachments were pinned.
    pub data_plane: bool,
    /// Removed addresses, with their interfaces.
    pub addresses: Vec<(String, IpAddr)>,
    /// Number of neighbors that the kernel no longer keeps resolved.
    pub neighbors: usize,
    /// Number of interfaces whose offloads were restored.
    pub offloads: usize,
    /// Number of removed firewall mark rules.
    pub mark_rules: usize,
}

/// Removes the pins, attachments, addresses, neighbors and routing of marked packets that are recorded in these
/// directories, and restores the recorded offload settings. The operation is idempotent. It must run inside a tokio
/// runtime, in the director's network namespace.
///
/// # Errors
/// Fails if another daemon uses the pin directory, the state file cannot be read, an object cannot be removed, or an
/// offload setting cannot be restored. The state file or the record of added addresses then remains, so a retry can
/// continue.
pub async fn clean(paths: &Paths) -> Result<CleanSummary> {
    let pins = PinDir::new(&paths.pin_dir);
    pins.check_owner(&paths.lock())?;
    let file = StateFile::new(&paths.runtime_dir);
    let engine = file.read()?.map(|saved| saved.engine);
    let mut cleaned = CleanSummary::default();
    // Remove the rules first: packets must not be routed to detached programs.
    if let Some(routing) = engine.as_ref().and_then(|engine| engine.undo.marks.clone()) {
        cleaned.mark_rules = routing.remove(&Netlink::open()?).await?;
    }
    cleaned.data_plane = weir_dataplane::clean(&pins)?;
    if let Some(engine) = engine {
        revert(&engine.undo, &mut cleaned).await?;
        file.remove()?;
    }
    let added = Undo {
        addresses: read_record(&paths.runtime_dir).into_iter().collect(),
        ..Undo::default()
    };
    revert(&added, &mut cleaned).await?;
    remove_record(&paths.runtime_dir)?;
    Ok(cleaned)
}

/// Discards the record of network changes that were made in a different network namespace, so [`clean`] does not revert
/// them in the caller's network namespace. Returns the discarded addresses, with their interfaces.
///
/// # Errors
/// Fails if the runtime directory cannot be read or written.
pub fn discard_changes(paths: &Paths) -> Result<BTreeSet<(String, IpAddr)>> {
    let mut file = StateFile::new(&paths.runtime_dir);
    let mut discarded = read_record(&paths.runtime_dir);
    if let Some(StoredState {
        mut engine,
        servers,
    }) = file.read()?
    {
        let undo = std::mem::take(&mut engine.undo);
        discarded.extend(undo.addresses);
        file.write(&engine, &servers)?;
    }
    remove_record(&paths.runtime_dir)?;
    Ok(discarded)
}

/// Returns whether a director's data plane is pinned, even if its format is unknown. Ignores the pins of another
/// running daemon.
pub fn is_pinned(paths: &Paths) -> bool {
    let pins = PinDir::new(&paths.pin_dir);
    !matches!(pinned_sizes(&pins), Ok(None)) && pins.check_owner(&paths.lock()).is_ok()
}

/// Returns whether a director's data plane is pinned, or addresses that a director added are recorded.
pub fn has_changes(paths: &Paths) -> bool {
    is_pinned(paths) || !read_record(&paths.runtime_dir).is_empty()
}

/// Removes a pinned data plane that is attached neither to interfaces nor to cgroups and has no ipvsadm services or
/// timeouts, for example one left by a daemon that was killed during startup. Returns whether it was removed. Keeps
/// the added VIPs and the recorded state of servers.
///
/// # Errors
/// See [`clean`].
pub async fn clean_unused(paths: &Paths) -> Result<bool> {
    let attached = open_readonly(&PinDir::new(&paths.pin_dir)).map(|plane| plane.attachments);
    let saved = StateFile::new(&paths.runtime_dir).read()?;
    let engine = saved.map(|saved| saved.engine);
    let has_ipvsadm_state = engine
        .as_ref()
        .is_some_and(|engine| engine.origin != Origin::default());
    let local = weir_dataplane::socket::scopes(&PinDir::new(&paths.pin_dir));
    if has_ipvsadm_state
        || !local.is_ok_and(|scopes| scopes.is_empty())
        || !attached.is_ok_and(|attached| attached.is_empty())
    {
        return Ok(false);
    }
    let mut kept_vips = read_record(&paths.runtime_dir);
    kept_vips.extend(engine.into_iter().flat_map(|engine| engine.undo.addresses));
    clean_pinned(paths, &kept_vips).await?;
    Ok(true)
}

/// Like [`clean`], but keeps `kept_vips`, which proxy services need, and the recorded overrides and check results.
pub(crate) async fn clean_pinned(
    paths: &Paths,
    kept_vips: &BTreeSet<(String, IpAddr)>,
) -> Result<()> {
    let mut file = StateFile::new(&paths.runtime_dir);
    let mut saved = file.read()?;
    if let Some(StoredState { engine, servers }) = &mut saved {
        engine
            .undo
            .addresses
            .retain(|entry| !kept_vips.contains(entry));
        file.write(engine, servers)?;
    }
    write_record(&paths.runtime_dir, &BTreeSet::new())?;
    clean(paths).await?;
    write_record(&paths.runtime_dir, kept_vips)?;
    match saved {
        Some(StoredState { engine, servers }) => {
            let engine = EngineState {
                allocation: Allocation::default(),
                undo: Undo::default(),
                origin: Origin::default(),
                ..engine
            };
            file.write(&engine, &servers)
        }
        None => Ok(()),
    }
}

async fn revert(undo: &Undo, cleaned: &mut CleanSummary) -> Result<()> {
    if *undo == Undo::default() {
        return Ok(());
    }
    let netlink = Netlink::open()?;
    let links = netlink.links().await?;
    let index_of = |name: &String| {
        links
            .iter()
            .find(|link| link.name == *name)
            .map(|link| link.index)
    };
    for (name, address) in &undo.addresses {
        if let Some(index) = index_of(name)
            && vip::remove_address(&netlink, index, *address).await? == Change::Made
        {
            cleaned.addresses.push((name.clone(), *address));
        }
    }
    for (name, neighbor) in &undo.neighbours {
        if let Some(index) = index_of(name)
            && netlink.remove_managed(index, *neighbor).await? == Change::Made
        {
            cleaned.neighbors += 1;
        }
    }
    for (name, previous) in &undo.offloads {
        if index_of(name).is_some() {
            netlink.run_in_namespace(|| {
                Features::read(name).and_then(|features| features.set(previous))
            })??;
            cleaned.offloads += 1;
        }
    }
    Ok(())
}
