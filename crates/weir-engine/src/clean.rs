//! Reverts Weir's changes to the kernel, as recorded in its own directories.

use std::collections::BTreeSet;
use std::net::IpAddr;

use weir_dataplane::{PinDir, open_readonly, pinned_sizes};
use weir_netlink::{Change, Netlink};
use weir_planner::allocation::Allocation;
use weir_sys::ethtool::Features;

use crate::error::Result;
use crate::memory::{Memory, Saved, Undo};
use crate::origin::Origin;
use crate::paths::Paths;
use crate::state::StateFile;
use crate::vip::{read_record, remove_record, write_record};

/// What [`clean`] removed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cleaned {
    /// Programs, maps and attachments were pinned.
    pub data_plane: bool,
    /// Addresses removed, by interface.
    pub addresses: Vec<(String, IpAddr)>,
    /// Neighbours no longer kept resolved.
    pub neighbours: usize,
    /// Interfaces whose offloads were restored.
    pub offloads: usize,
    /// Rules for firewall marks removed.
    pub marks: usize,
}

/// Removes pins, attachments, addresses, neighbours, offload settings and the routing of marked packets that these
/// directories record. Repeating it is harmless. Must run inside a tokio runtime, in the director's network namespace.
///
/// # Errors
/// Something cannot be removed; the state file remains, so a second attempt can continue.
pub async fn clean(paths: &Paths) -> Result<Cleaned> {
    let file = StateFile::new(&paths.runtime_dir);
    let memory = file.read()?.map(|saved| saved.memory);
    let mut cleaned = Cleaned::default();
    // Remove the rules first: packets must not be routed to detached programs.
    if let Some(routing) = memory.as_ref().and_then(|memory| memory.undo.marks.clone()) {
        cleaned.marks = routing.remove(&Netlink::open()?).await?;
    }
    cleaned.data_plane = weir_dataplane::clean(&PinDir::new(&paths.pin_dir))?;
    if let Some(memory) = memory {
        undo(&memory.undo, &mut cleaned).await?;
        file.remove()?;
    }
    let added = Undo {
        addresses: read_record(&paths.runtime_dir).into_iter().collect(),
        ..Undo::default()
    };
    undo(&added, &mut cleaned).await?;
    remove_record(&paths.runtime_dir)?;
    Ok(cleaned)
}

/// Discards the recorded changes to the network, which [`clean`] then leaves as they are: the network namespace that
/// has them is not that of the caller. Returns the addresses among them, by interface.
///
/// # Errors
/// The runtime directory cannot be read or written.
pub fn discard_changes(paths: &Paths) -> Result<BTreeSet<(String, IpAddr)>> {
    let mut file = StateFile::new(&paths.runtime_dir);
    let mut discarded = read_record(&paths.runtime_dir);
    if let Some(Saved {
        mut memory,
        servers,
    }) = file.read()?
    {
        let undo = std::mem::take(&mut memory.undo);
        discarded.extend(undo.addresses);
        file.write(&memory, &servers)?;
    }
    remove_record(&paths.runtime_dir)?;
    Ok(discarded)
}

/// Whether a director's data plane is pinned; one with an unknown format counts.
pub fn is_pinned(paths: &Paths) -> bool {
    !matches!(pinned_sizes(&PinDir::new(&paths.pin_dir)), Ok(None))
}

/// Removes a pinned data plane that is attached nowhere and serves nothing, which remains if a start is killed. Returns
/// whether there was one. The recorded state of servers is kept.
///
/// # Errors
/// As [`clean`].
pub async fn clean_unused(paths: &Paths) -> Result<bool> {
    let attached = open_readonly(&PinDir::new(&paths.pin_dir)).map(|plane| plane.attachments);
    let saved = StateFile::new(&paths.runtime_dir).read()?;
    let memory = saved.map(|saved| saved.memory);
    let made = memory
        .as_ref()
        .is_some_and(|memory| memory.origin != Origin::default());
    let local = weir_dataplane::socket::scopes(&PinDir::new(&paths.pin_dir));
    if made
        || !local.is_ok_and(|scopes| scopes.is_empty())
        || !attached.is_ok_and(|attached| attached.is_empty())
    {
        return Ok(false);
    }
    let mut kept = read_record(&paths.runtime_dir);
    kept.extend(memory.into_iter().flat_map(|memory| memory.undo.addresses));
    clean_pinned(paths, &kept).await?;
    Ok(true)
}

/// Like [`clean`], but keeps `kept`, the VIPs of proxy services, and the recorded overrides and check results.
pub(crate) async fn clean_pinned(paths: &Paths, kept: &BTreeSet<(String, IpAddr)>) -> Result<()> {
    let mut file = StateFile::new(&paths.runtime_dir);
    let mut saved = file.read()?;
    if let Some(Saved { memory, servers }) = &mut saved {
        memory.undo.addresses.retain(|entry| !kept.contains(entry));
        file.write(memory, servers)?;
    }
    write_record(&paths.runtime_dir, &BTreeSet::new())?;
    clean(paths).await?;
    write_record(&paths.runtime_dir, kept)?;
    match saved {
        Some(Saved { memory, servers }) => {
            let memory = Memory {
                allocation: Allocation::default(),
                undo: Undo::default(),
                origin: Origin::default(),
                ..memory
            };
            file.write(&memory, &servers)
        }
        None => Ok(()),
    }
}

async fn undo(undo: &Undo, cleaned: &mut Cleaned) -> Result<()> {
    if *undo == Undo::default() {
        return Ok(());
    }
    let netlink = Netlink::open()?;
    let links = netlink.links().await?;
    let index = |name: &String| {
        links
            .iter()
            .find(|link| link.name == *name)
            .map(|link| link.index)
    };
    for (name, address) in &undo.addresses {
        let prefix = if address.is_ipv4() { 32 } else { 128 };
        if let Some(index) = index(name)
            && netlink.remove_address(index, *address, prefix).await? == Change::Made
        {
            cleaned.addresses.push((name.clone(), *address));
        }
    }
    for (name, neighbour) in &undo.neighbours {
        if let Some(index) = index(name)
            && netlink.remove_managed(index, *neighbour).await? == Change::Made
        {
            cleaned.neighbours += 1;
        }
    }
    for (name, former) in &undo.offloads {
        if index(name).is_some() {
            netlink.inside(|| Features::read(name).and_then(|features| features.set(former)))??;
            cleaned.offloads += 1;
        }
    }
    Ok(())
}
