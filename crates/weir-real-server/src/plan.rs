//! Plans the steps from the actual to the desired state of a server, without I/O.
//!
//! `up`, `down` and drift repair use the same plan. Only Weir's own changes ([`Record`]) are reverted.
//!
//! The plan suppresses ARP on `all`, because its `arp_ignore` and `arp_announce` apply to every interface, including
//! interfaces added later. A single interface that announces the VIP would interrupt the service. With `--interface`,
//! the sysctls are set on the specified interfaces only, for hosts that need the defaults on other interfaces. A
//! stricter value is kept. IPv6 needs no setting: the kernel does not reply to neighbor solicitations on one interface
//! for an address of another. Strict `rp_filter` drops a client's packet if the return route uses a different
//! interface. The loose mode (2) on the receiving interface overrides `all`, so `all` is not changed.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::IpAddr;

use serde::{Deserialize, Serialize};
use weir_dataplane::real_server::{Direction, Hook, InstalledState, Rules};

use crate::desired::DesiredState;
use crate::entry::host_prefix;
use crate::problem::Problem;

/// The actual state of the host.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ActualState {
    /// The interfaces, including `lo`.
    pub interfaces: Vec<Interface>,
    /// The relevant sysctls in `net/ipv4/conf`, by name.
    pub sysctls: BTreeMap<String, String>,
    /// The state of the BPF programs.
    pub programs: InstalledState,
}

/// An interface of the host, with its addresses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Interface {
    /// The index.
    pub index: u32,
    /// The name.
    pub name: String,
    /// Whether this is a loopback interface.
    pub loopback: bool,
    /// Whether packets have an Ethernet header, which the programs require.
    pub ethernet: bool,
    /// Addresses and prefix lengths.
    pub addresses: Vec<(IpAddr, u8)>,
}

/// Weir's changes with the previous values.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Record {
    /// Sysctls by name.
    pub sysctls: BTreeMap<String, ChangedSysctl>,
    /// Addresses added to `lo`.
    pub addresses: BTreeSet<IpAddr>,
    /// The build of the attached programs.
    pub object: Option<u64>,
}

/// The values of a sysctl before and after Weir's change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChangedSysctl {
    /// The value before the change.
    #[serde(rename = "was")]
    pub previous: String,
    /// The value that Weir set.
    pub set: String,
}

impl Record {
    /// Returns whether there is nothing to revert.
    pub fn is_empty(&self) -> bool {
        self.sysctls.is_empty() && self.addresses.is_empty() && self.object.is_none()
    }
}

/// One change to the host, or to the record of changes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Sets a sysctl.
    SetSysctl {
        /// The name.
        name: String,
        /// The current value.
        from: String,
        /// The new value.
        to: String,
    },
    /// Attaches the programs to all hooks in one step.
    AttachPrograms {
        /// The rules of the programs.
        rules: Rules,
        /// The hooks that they are attached to.
        hooks: Vec<Hook>,
    },
    /// Detaches the programs.
    DetachPrograms,
    /// Adds a VIP to `lo`.
    AddAddress {
        /// The VIP.
        vip: IpAddr,
    },
    /// Removes a VIP that Weir added.
    RemoveAddress {
        /// The VIP.
        vip: IpAddr,
    },
    /// Restores a sysctl.
    RestoreSysctl {
        /// The name.
        name: String,
        /// The value before Weir changed it.
        to: String,
    },
    /// Removes the record of a sysctl that another program changed or that no longer exists.
    ForgetSysctl {
        /// The name.
        name: String,
        /// The current value; `None` = the sysctl does not exist.
        current: Option<String>,
    },
    /// Removes the record of a VIP that another program removed.
    ForgetAddress {
        /// The VIP.
        vip: IpAddr,
    },
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::SetSysctl { name, from, to } => write!(f, "set {name} to {to} (was {from})"),
            Self::AttachPrograms { hooks, .. } => {
                let hooks: Vec<String> = hooks.iter().map(ToString::to_string).collect();
                write!(f, "attach programs to {}", hooks.join(", "))
            }
            Self::DetachPrograms => f.write_str("detach the programs"),
            Self::AddAddress { vip } => write!(f, "add {vip} to lo"),
            Self::RemoveAddress { vip } => write!(f, "remove {vip} from lo"),
            Self::RestoreSysctl { name, to } => write!(f, "restore {name} to {to}"),
            Self::ForgetSysctl {
                name,
                current: Some(current),
            } => write!(f, "keep {name} at {current}, which another program set"),
            Self::ForgetSysctl {
                name,
                current: None,
            } => {
                write!(f, "forget {name}: the interface no longer exists")
            }
            Self::ForgetAddress { vip } => {
                write!(f, "forget {vip}: another program removed it from lo")
            }
        }
    }
}

/// Returns all reasons why `desired` cannot be applied.
pub fn problems(desired: &DesiredState, actual: &ActualState, record: &Record) -> Vec<Problem> {
    let mut problems = Vec::new();
    for name in &desired.interfaces {
        if !actual
            .interfaces
            .iter()
            .any(|interface| interface.name == *name)
        {
            problems.push(Problem::NoInterface { name: name.clone() });
        }
    }
    for vip in desired.loopback_vips() {
        for interface in &actual.interfaces {
            let Some((_, len)) = interface
                .addresses
                .iter()
                .find(|(address, _)| *address == vip)
            else {
                continue;
            };
            if !interface.loopback {
                problems.push(Problem::VipOnInterface {
                    vip,
                    interface: interface.name.clone(),
                    len: *len,
                });
            } else if *len != host_prefix(vip) && !record.addresses.contains(&vip) {
                problems.push(Problem::VipPrefix { vip, len: *len });
            }
        }
    }
    let needs_programs = desired.rules(&[]).needs_ingress();
    if needs_programs
        && problems.is_empty()
        && receiving_interfaces(&desired.interfaces, actual).is_empty()
    {
        problems.push(Problem::NoInterfaces);
    }
    problems
}

/// Returns the steps from `actual` to `desired`. Their order ensures that no VIP is announced and that the host accepts
/// packets only after all other settings are made.
pub fn plan(
    desired: &DesiredState,
    actual: &ActualState,
    record: &Record,
    object: u64,
) -> Vec<Step> {
    let required = required_sysctls(desired, actual);
    let vips = desired.loopback_vips();
    let present_addresses: BTreeSet<IpAddr> = loopback_addresses(actual).collect();
    let mut steps = Vec::new();
    for (name, to) in &required {
        let Some(from) = actual.sysctls.get(name) else {
            continue;
        };
        if !is_sufficient(name, to, actual) {
            steps.push(Step::SetSysctl {
                name: name.clone(),
                from: from.clone(),
                to: to.clone(),
            });
        }
    }
    steps.extend(program_step(desired, actual, record, object));
    steps.extend(
        vips.difference(&present_addresses)
            .map(|vip| Step::AddAddress { vip: *vip }),
    );
    for vip in record.addresses.difference(&vips).copied() {
        steps.push(if present_addresses.contains(&vip) {
            Step::RemoveAddress { vip }
        } else {
            Step::ForgetAddress { vip }
        });
    }
    for (name, changed) in record
        .sysctls
        .iter()
        .filter(|(name, _)| !required.contains_key(*name))
    {
        steps.push(match actual.sysctls.get(name) {
            Some(current) if *current == changed.set => Step::RestoreSysctl {
                name: name.clone(),
                to: changed.previous.clone(),
            },
            current => Step::ForgetSysctl {
                name: name.clone(),
                current: current.cloned(),
            },
        });
    }
    steps
}

/// Returns the step that attaches or detaches the programs; `None` = no change is required.
fn program_step(
    desired: &DesiredState,
    actual: &ActualState,
    record: &Record,
    object: u64,
) -> Option<Step> {
    let rules = desired.rules(&local_addresses(desired, actual, record));
    let observed = &actual.programs;
    if !rules.needs_ingress() {
        let needs_removal =
            !observed.hooks.is_empty() || observed.stale > 0 || record.object.is_some();
        return needs_removal.then_some(Step::DetachPrograms);
    }
    let hooks = hooks(desired, actual, &rules);
    let is_in_place = observed.rules.as_ref() == Some(&rules)
        && observed.hooks == hooks
        && observed.stale == 0
        && record.object == Some(object);
    (!is_in_place).then_some(Step::AttachPrograms { rules, hooks })
}

fn hooks(desired: &DesiredState, actual: &ActualState, rules: &Rules) -> Vec<Hook> {
    let mut directions = vec![Direction::Ingress];
    if rules.needs_egress() {
        directions.push(Direction::Egress);
    }
    let mut hooks: Vec<Hook> = receiving_interfaces(&desired.interfaces, actual)
        .into_iter()
        .flat_map(|interface| {
            directions.iter().map(|direction| Hook {
                ifindex: interface.index,
                interface: interface.name.clone(),
                direction: *direction,
            })
        })
        .collect();
    hooks.sort();
    hooks
}

/// Returns the interfaces that packets for the VIPs arrive on: the selected ones, or those that other hosts can reach.
pub(crate) fn receiving_interfaces<'a>(
    selected: &BTreeSet<String>,
    actual: &'a ActualState,
) -> Vec<&'a Interface> {
    let is_selected = |interface: &&Interface| {
        if selected.is_empty() {
            interface
                .addresses
                .iter()
                .any(|(address, _)| !is_link_local(*address))
        } else {
            selected.contains(&interface.name)
        }
    };
    let is_usable = |interface: &&Interface| interface.ethernet && !interface.loopback;
    actual
        .interfaces
        .iter()
        .filter(is_usable)
        .filter(is_selected)
        .collect()
}

/// Returns the host's own addresses that other hosts can reach. Omits the VIPs, and the addresses that Weir added to
/// `lo`: those that are no longer VIPs are removed after the programs are attached.
fn local_addresses(desired: &DesiredState, actual: &ActualState, record: &Record) -> Vec<IpAddr> {
    let vips: BTreeSet<IpAddr> = desired.entries.iter().map(|entry| entry.vip).collect();
    let mut local = Vec::new();
    for interface in &actual.interfaces {
        let addresses = interface.addresses.iter().map(|(address, _)| *address);
        local.extend(addresses.filter(|address| {
            let is_added = interface.loopback && record.addresses.contains(address);
            let is_reachable = !address.is_loopback() && !is_link_local(*address);
            is_reachable && !is_added && !vips.contains(address)
        }));
    }
    local
}

fn loopback_addresses(actual: &ActualState) -> impl Iterator<Item = IpAddr> {
    let loopbacks = actual
        .interfaces
        .iter()
        .filter(|interface| interface.loopback);
    loopbacks
        .flat_map(|interface| &interface.addresses)
        .map(|(address, _)| *address)
}

pub(crate) fn is_link_local(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => v4.is_link_local(),
        IpAddr::V6(v6) => v6.is_unicast_link_local(),
    }
}

/// Returns the name of a sysctl for a device or for `all`.
pub(crate) fn sysctl_name(device: &str, key: &str) -> String {
    format!("net/ipv4/conf/{device}/{key}")
}

/// The relevant keys in `net/ipv4/conf`.
pub(crate) const SYSCTL_KEYS: [&str; 3] = ["arp_ignore", "arp_announce", "rp_filter"];

fn required_sysctls(desired: &DesiredState, actual: &ActualState) -> BTreeMap<String, String> {
    let mut required = BTreeMap::new();
    if !desired.loopback_vips().iter().any(IpAddr::is_ipv4) {
        return required;
    }
    let interfaces = receiving_interfaces(&desired.interfaces, actual);
    let arp_devices: Vec<&str> = if desired.interfaces.is_empty() {
        vec!["all"]
    } else {
        interfaces
            .iter()
            .map(|interface| interface.name.as_str())
            .collect()
    };
    for device in arp_devices {
        required.insert(sysctl_name(device, "arp_ignore"), "1".to_owned());
        required.insert(sysctl_name(device, "arp_announce"), "2".to_owned());
    }
    for interface in interfaces {
        required.insert(sysctl_name(&interface.name, "rp_filter"), "2".to_owned());
    }
    required
}

/// Returns whether the effective value, which is the maximum of the values of the device and of `all`, is sufficient.
fn is_sufficient(name: &str, required: &str, actual: &ActualState) -> bool {
    let read_number = |name: &str| {
        actual
            .sysctls
            .get(name)
            .and_then(|value| value.parse::<i64>().ok())
            .unwrap_or(0)
    };
    let key = name.rsplit('/').next().unwrap_or(name);
    let effective = read_number(name).max(read_number(&sysctl_name("all", key)));
    if key == "rp_filter" {
        return effective != 1;
    }
    effective >= required.parse().unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests;
