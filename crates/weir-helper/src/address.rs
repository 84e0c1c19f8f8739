//! Adds and removes addresses, and remembers which ones it added.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use weir_model::VirtualRouter;
use weir_netlink::{Change, Netlink};

use crate::Error;
use crate::record::{self, Added};

/// The addresses of the virtual routers on this machine.
#[derive(Debug)]
pub(crate) struct Addresses {
    netlink: Netlink,
    runtime_dir: PathBuf,
    added: BTreeSet<Added>,
}

impl Addresses {
    /// Removes what an earlier helper left.
    pub(crate) async fn open(runtime_dir: &Path) -> Result<Self, Error> {
        let mut addresses = Self {
            netlink: Netlink::open()?,
            runtime_dir: runtime_dir.to_owned(),
            added: record::read(runtime_dir),
        };
        addresses.remove(None).await?;
        Ok(addresses)
    }

    /// Adds the missing addresses of a virtual router.
    pub(crate) async fn add(&mut self, router: &VirtualRouter) -> Result<(), Error> {
        let present = self.netlink.addresses().await?;
        let links = self.netlink.links().await?;
        let link = match (&router.interface, router.source) {
            (Some(name), _) => links.iter().find(|link| link.name == *name),
            (None, Some(source)) => {
                let holder = present.iter().find(|address| address.ip == source);
                holder.and_then(|holder| links.iter().find(|link| link.index == holder.ifindex))
            }
            (None, None) => None,
        };
        let link = link.ok_or_else(|| Error::NoInterface {
            name: router.name.clone(),
        })?;
        let is_missing = |network: &&weir_model::Network| {
            let same =
                |it: &weir_netlink::Address| it.ifindex == link.index && it.ip == network.address;
            !present.iter().any(same)
        };
        let missing: Vec<_> = router.managed().filter(is_missing).copied().collect();
        let entry = |network: &weir_model::Network| Added {
            router: router.name.clone(),
            interface: link.name.clone(),
            address: network.address,
            prefix: network.prefix,
        };
        // Recorded first: after a crash, no added address is unrecorded.
        self.added.extend(missing.iter().map(entry));
        record::write(&self.runtime_dir, &self.added)?;
        let mut first_error = None;
        for network in &missing {
            let added = self
                .netlink
                .add_address(link.index, network.address, network.prefix)
                .await;
            match added {
                Ok(Change::Made) => {}
                Ok(Change::None) => {
                    self.added.remove(&entry(network));
                }
                Err(error) => {
                    self.added.remove(&entry(network));
                    first_error.get_or_insert(error);
                }
            }
        }
        match first_error {
            Some(error) => Err(error.into()),
            None => Ok(()),
        }
    }

    /// Removes the addresses that were added for a virtual router, `None`: for all.
    pub(crate) async fn remove(&mut self, router: Option<&str>) -> Result<(), Error> {
        let concerned = |added: &&Added| router.is_none_or(|name| added.router == name);
        let leaving: Vec<Added> = self.added.iter().filter(concerned).cloned().collect();
        if leaving.is_empty() {
            return Ok(());
        }
        let links = self.netlink.links().await?;
        let mut first_error = None;
        for added in leaving {
            if let Some(link) = links.iter().find(|link| link.name == added.interface) {
                let removed = self
                    .netlink
                    .remove_address(link.index, added.address, added.prefix)
                    .await;
                if let Err(error) = removed {
                    first_error.get_or_insert(error);
                    continue;
                }
            }
            self.added.remove(&added);
        }
        record::write(&self.runtime_dir, &self.added)?;
        match first_error {
            Some(error) => Err(error.into()),
            None => Ok(()),
        }
    }
}

/// Removes all addresses that a helper has added and not removed. Returns how many there were. Must be called inside a
/// tokio runtime, while no helper runs.
///
/// # Errors
/// An address cannot be removed, or the record cannot be written.
pub async fn remove_recorded(runtime_dir: &Path) -> Result<usize, Error> {
    let count = record::read(runtime_dir).len();
    if count > 0 {
        Addresses::open(runtime_dir).await?;
    }
    Ok(count)
}
