//! Takes back what Weir left in the kernel, of its own directories only.

use weir_dataplane::PinDir;
use weir_netlink::{Change, Netlink};
use weir_sys::ethtool::Features;

use super::state::{StateFile, Undo};
use super::{Paths, Result};

/// What [`clean`] took back.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cleaned {
    /// Programs, maps and attachments were pinned.
    pub data_plane: bool,
    /// Addresses removed.
    pub addresses: usize,
    /// Neighbours no longer kept resolved.
    pub neighbours: usize,
    /// Interfaces whose offloads are as they were.
    pub offloads: usize,
    /// Rules for firewall marks removed.
    pub marks: usize,
}

/// Removes pins, attachments, addresses, neighbours, offload settings and the way of marked packets that are remembered in these directories. Repeating
/// it does no harm. Must run inside a tokio runtime, in the director's network namespace.
///
/// # Errors
/// Something cannot be removed; the state file then stays, so that a second try knows what is left.
pub async fn clean(paths: &Paths) -> Result<Cleaned> {
    let file = StateFile::new(&paths.runtime_dir);
    let memory = file.read()?;
    let mut cleaned = Cleaned::default();
    // Nothing is led to programs that are gone.
    if let Some(way) = memory.as_ref().and_then(|memory| memory.undo.marks.clone()) {
        cleaned.marks = way.remove(&Netlink::open()?).await?;
    }
    cleaned.data_plane = weir_dataplane::clean(&PinDir::new(&paths.pin_dir))?;
    if let Some(memory) = memory {
        undo(&memory.undo, &mut cleaned).await?;
        file.remove()?;
    }
    Ok(cleaned)
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
            cleaned.addresses += 1;
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
