//! Reads the host's state, and applies the steps of a plan to it.

use std::collections::BTreeMap;

use weir_dataplane::real_server::{RealServer, object_id};
use weir_netlink::{Netlink, Sysctl};

use crate::entry::host_prefix;
use crate::error::{Error, Result};
use crate::plan::{self, ActualState, ChangedSysctl, Interface, SYSCTL_KEYS, Step, sysctl_name};
use crate::request::Options;
use crate::state::State;

/// The calling thread's network namespace.
pub(crate) struct Host {
    netlink: Netlink,
    programs: RealServer,
    interfaces: Vec<Interface>,
    loopback: u32,
}

impl Host {
    pub(crate) async fn open(options: &Options) -> Result<Self> {
        let netlink = Netlink::open()?;
        let addresses = netlink.addresses().await?;
        let links = netlink.links().await?;
        let interfaces: Vec<Interface> = links
            .into_iter()
            .map(|link| Interface {
                addresses: addresses
                    .iter()
                    .filter(|address| address.ifindex == link.index)
                    .map(|address| (address.ip, address.prefix))
                    .collect(),
                index: link.index,
                name: link.name,
                loopback: link.loopback,
                ethernet: link.mac.is_some(),
            })
            .collect();
        let loopback = interfaces
            .iter()
            .find(|interface| interface.loopback)
            .ok_or(Error::NoLoopback)?
            .index;
        let names = interfaces
            .iter()
            .map(|interface| (interface.index, interface.name.clone()))
            .collect();
        Ok(Self {
            netlink,
            programs: RealServer::new(&options.pin_dir, names),
            interfaces,
            loopback,
        })
    }

    pub(crate) fn read_state(&self) -> Result<ActualState> {
        let mut sysctls = BTreeMap::new();
        let devices = self
            .interfaces
            .iter()
            .filter(|interface| !interface.loopback);
        for device in devices
            .map(|interface| interface.name.as_str())
            .chain(["all"])
        {
            for key in SYSCTL_KEYS {
                let name = sysctl_name(device, key);
                if let Some(value) = Sysctl::new(name.clone())?.find()? {
                    sysctls.insert(name, value);
                }
            }
        }
        Ok(ActualState {
            interfaces: self.interfaces.clone(),
            sysctls,
            programs: self.programs.observe()?,
        })
    }

    /// Applies one step. A change is recorded before it is made, and its record is removed after it is reverted.
    pub(crate) async fn apply(&self, step: &Step, state: &mut State) -> Result<()> {
        let record = &mut state.record;
        match step {
            Step::SetSysctl { name, from, to } => {
                let previous = record
                    .sysctls
                    .get(name)
                    .map_or_else(|| from.clone(), |changed| changed.previous.clone());
                record.sysctls.insert(
                    name.clone(),
                    ChangedSysctl {
                        previous,
                        set: to.clone(),
                    },
                );
                state.save()?;
                Sysctl::new(name.clone())?.set(to)?;
            }
            Step::AttachPrograms { rules, hooks } => {
                record.object = Some(object_id());
                state.save()?;
                self.programs.install(rules, hooks)?;
            }
            Step::DetachPrograms => {
                self.programs.remove()?;
                record.object = None;
            }
            Step::AddAddress { vip } => {
                record.addresses.insert(*vip);
                state.save()?;
                self.netlink
                    .add_destination_only_address(self.loopback, *vip, host_prefix(*vip))
                    .await?;
            }
            Step::RemoveAddress { vip } => {
                self.netlink
                    .remove_address(self.loopback, *vip, host_prefix(*vip))
                    .await?;
                record.addresses.remove(vip);
            }
            Step::RestoreSysctl { name, to } => {
                Sysctl::new(name.clone())?.set(to)?;
                record.sysctls.remove(name);
            }
            Step::ForgetSysctl { name, .. } => drop(record.sysctls.remove(name)),
            Step::ForgetAddress { vip } => drop(record.addresses.remove(vip)),
        }
        state.save()
    }
}

/// Applies the steps from the actual to the desired state, and returns them.
pub(crate) async fn reconcile(host: &Host, state: &mut State) -> Result<Vec<Step>> {
    let steps = plan::plan(
        &state.desired,
        &host.read_state()?,
        &state.record,
        object_id(),
    );
    for step in &steps {
        host.apply(step, state).await?;
    }
    Ok(steps)
}
