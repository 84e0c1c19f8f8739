//! The engine's changes to the host's network: neighbours kept resolved, VIPs added, programs attached, merging stopped.
//!
//! Each change that is to be undone is remembered in the state file with what was there before.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::{Duration, Instant};

use weir_dataplane::{Dataplane, Direction, XdpChoice, XdpMode};
use weir_sys::ethtool;

use super::{Engine, Error, Result};

/// How long opening waits for the servers' neighbours to answer: longer than an ARP exchange, no longer than an operator
/// notices.
const RESOLVING: Duration = Duration::from_millis(300);
const RESOLVING_STEP: Duration = Duration::from_millis(10);

impl Engine {
    /// Has the servers' neighbours resolved and remembers which.
    pub(super) async fn keep_neighbours(&mut self) -> Result<()> {
        let added = self.network.manage_neighbours().await;
        let named = added
            .into_iter()
            .filter_map(|(device, ip)| Some((self.network.name_of(device)?.to_owned(), ip)));
        let new: Vec<_> = named
            .filter(|entry| !self.memory.undo.neighbours.contains(entry))
            .collect();
        if !new.is_empty() {
            self.memory.undo.neighbours.extend(new);
            self.file.write(&self.memory)?;
        }
        Ok(())
    }

    /// Waits a moment for the neighbours' answers, so that the first packets find them.
    pub(super) async fn await_neighbours(&mut self) -> Result<()> {
        let deadline = Instant::now() + RESOLVING;
        while !self.network.look_at_neighbours().await? && Instant::now() < deadline {
            tokio::time::sleep(RESOLVING_STEP).await;
        }
        Ok(())
    }

    /// Adds the VIPs that are missing, where the configuration wants that.
    pub(super) async fn add_vips(&mut self) -> Result<()> {
        let Some(name) = self.desired.node.vip_interface.clone() else {
            return Ok(());
        };
        let Some(ifindex) = self.network.index_of(&name) else {
            return Err(Error::NoInterface { name });
        };
        let vips: BTreeSet<IpAddr> = self
            .desired
            .services
            .iter()
            .flat_map(|service| &service.listen)
            .map(|listener| listener.address)
            .collect();
        let missing = vips
            .into_iter()
            .filter(|vip| self.network.holder(*vip).is_none());
        let missing: Vec<IpAddr> = missing.collect();
        for vip in missing {
            let entry = (name.clone(), vip);
            if self.network.add_address(ifindex, vip).await?
                && !self.memory.undo.addresses.contains(&entry)
            {
                self.memory.undo.addresses.push(entry);
                self.file.write(&self.memory)?;
            }
        }
        self.network.retake().await
    }

    /// Attaches to the interfaces of the configuration; takes off those that are none of them any more.
    pub(super) async fn attach(&mut self) -> Result<()> {
        let wanted = self.network.interfaces(&self.desired)?;
        for ifindex in self
            .network
            .attached
            .keys()
            .filter(|ifindex| !wanted.contains(ifindex))
        {
            self.plane.detach(*ifindex)?;
        }
        for ifindex in &wanted {
            let mode = self
                .plane
                .attach(*ifindex, XdpChoice::Best)?;
            if mode == XdpMode::Generic {
                self.stop_merging(*ifindex)?;
            }
            for direction in [Direction::Ingress, Direction::Egress] {
                match self.plane.attach_tc(*ifindex, direction) {
                    Ok(_) | Err(weir_dataplane::Error::NoProgram { .. }) => {}
                    Err(error) => return Err(error.into()),
                }
            }
        }
        self.network.attached = attached(&self.plane)?;
        Ok(())
    }

    /// Merged packets are larger than a program may send on: a generic program comes after merging.
    fn stop_merging(&mut self, ifindex: u32) -> Result<()> {
        let Some(name) = self.network.name_of(ifindex).map(str::to_owned) else {
            return Ok(());
        };
        let former = self
            .network
            .netlink()
            .inside(|| ethtool::stop_merging(&name))?;
        match former {
            Ok(former) if former.is_empty() => Ok(()),
            Ok(former) => {
                self.memory.undo.offloads.push((name, former));
                self.file.write(&self.memory)
            }
            Err(error) => {
                // The loopback and some tunnels have no such features.
                tracing::warn!(interface = name, %error, "merging of received packets stays as it is");
                Ok(())
            }
        }
    }
}

/// Where XDP runs.
pub(super) fn attached(plane: &Dataplane) -> Result<BTreeMap<u32, XdpMode>> {
    let mode = |hook| match hook {
        weir_dataplane::Hook::XdpNative => Some(XdpMode::Native),
        weir_dataplane::Hook::XdpGeneric => Some(XdpMode::Generic),
        _ => None,
    };
    let there = plane.attachments()?;
    Ok(there
        .into_iter()
        .filter_map(|attachment| Some((attachment.ifindex, mode(attachment.hook)?)))
        .collect())
}
