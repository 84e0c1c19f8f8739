//! Plans the steps from the actual to the desired state of a server. Pure.
//!
//! One function serves `up`, `down` and the repair of drift. Only Weir's own changes ([`Memory`]) are undone.
//!
//! ARP is suppressed on `all`: its `arp_ignore` and `arp_announce` apply to every interface, including later ones; one
//! interface that announces the VIP takes its service down. With `--interface` they are set on these interfaces only,
//! for hosts that need the default elsewhere. A stricter value is kept. IPv6 needs nothing: NDP does not answer on one
//! interface for an address of another. Strict `rp_filter` drops a client's packet if the route back uses another
//! interface; loose (2) on the receiving interface overrides `all`, so `all` is not changed.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::IpAddr;

use serde::{Deserialize, Serialize};
use weir_dataplane::real_server::{Direction, Hook, Observed, Rules};

use crate::desired::Desired;
use crate::entry::host_prefix;
use crate::problem::Problem;

/// The state of the host.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Actual {
    /// The interfaces, `lo` among them.
    pub interfaces: Vec<Interface>,
    /// The relevant sysctls of `net/ipv4/conf`, by name.
    pub sysctls: BTreeMap<String, String>,
    /// The programs.
    pub programs: Observed,
}

/// An interface and its addresses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Interface {
    /// Its index.
    pub index: u32,
    /// Its name.
    pub name: String,
    /// `lo`.
    pub loopback: bool,
    /// Has an Ethernet header, which the programs expect.
    pub ethernet: bool,
    /// Address and prefix length.
    pub addresses: Vec<(IpAddr, u8)>,
}

/// Weir's changes, with the previous values.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Memory {
    /// Sysctls by name.
    pub sysctls: BTreeMap<String, Changed>,
    /// Addresses added to `lo`.
    pub addresses: BTreeSet<IpAddr>,
    /// The build whose programs are in place.
    pub object: Option<u64>,
}

/// A sysctl's values.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Changed {
    /// Before Weir.
    pub was: String,
    /// As set by Weir.
    pub set: String,
}

impl Memory {
    /// Nothing to undo.
    pub fn is_empty(&self) -> bool {
        self.sysctls.is_empty() && self.addresses.is_empty() && self.object.is_none()
    }
}

/// One change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Sets a sysctl.
    SetSysctl {
        /// Its name.
        name: String,
        /// The value found.
        from: String,
        /// The new one.
        to: String,
    },
    /// Attaches the programs, in one step.
    Programs {
        /// What they do.
        rules: Rules,
        /// Where.
        hooks: Vec<Hook>,
    },
    /// Detaches the programs.
    RemovePrograms,
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
    /// Sets a sysctl back.
    RestoreSysctl {
        /// Its name.
        name: String,
        /// The value before Weir.
        to: String,
    },
    /// Another program changed or removed it: Weir no longer restores it.
    ForgetSysctl {
        /// Its name.
        name: String,
        /// What it is now; `None` = gone.
        now: Option<String>,
    },
    /// Another program removed it.
    ForgetAddress {
        /// The VIP.
        vip: IpAddr,
    },
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::SetSysctl { name, from, to } => write!(f, "set {name} to {to} (was {from})"),
            Self::Programs { hooks, .. } => {
                let hooks: Vec<String> = hooks.iter().map(ToString::to_string).collect();
                write!(f, "run programs on {}", hooks.join(", "))
            }
            Self::RemovePrograms => f.write_str("remove the programs"),
            Self::AddAddress { vip } => write!(f, "add {vip} to lo"),
            Self::RemoveAddress { vip } => write!(f, "remove {vip} from lo"),
            Self::RestoreSysctl { name, to } => write!(f, "set {name} back to {to}"),
            Self::ForgetSysctl {
                name,
                now: Some(now),
            } => write!(f, "leave {name} at {now}: changed by others"),
            Self::ForgetSysctl { name, now: None } => {
                write!(f, "forget {name}: its interface is gone")
            }
            Self::ForgetAddress { vip } => write!(f, "forget {vip}: removed from lo by others"),
        }
    }
}

/// All reasons why `desired` cannot be applied.
pub fn problems(desired: &Desired, actual: &Actual, memory: &Memory) -> Vec<Problem> {
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
    for vip in desired.held_vips() {
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
            } else if *len != host_prefix(vip) && !memory.addresses.contains(&vip) {
                problems.push(Problem::VipPrefix { vip, len: *len });
            }
        }
    }
    let needs_programs = desired.rules(&[]).needs_ingress();
    if needs_programs && problems.is_empty() && serving(desired, actual).is_empty() {
        problems.push(Problem::NoInterfaces);
    }
    problems
}

/// The steps from `actual` to `desired`, in an order in which no VIP is announced and no packet is accepted too early.
pub fn plan(desired: &Desired, actual: &Actual, memory: &Memory, object: u64) -> Vec<Step> {
    let wanted = sysctls(desired, actual);
    let vips = desired.held_vips();
    let present: BTreeSet<IpAddr> = loopback_addresses(actual).collect();
    let mut steps = Vec::new();
    for (name, to) in &wanted {
        let Some(from) = actual.sysctls.get(name) else {
            continue;
        };
        if !sysctl_holds(name, to, actual) {
            steps.push(Step::SetSysctl {
                name: name.clone(),
                from: from.clone(),
                to: to.clone(),
            });
        }
    }
    steps.extend(program_step(desired, actual, memory, object));
    steps.extend(
        vips.difference(&present)
            .map(|vip| Step::AddAddress { vip: *vip }),
    );
    for vip in memory.addresses.difference(&vips).copied() {
        let here = present.contains(&vip);
        steps.push(if here {
            Step::RemoveAddress { vip }
        } else {
            Step::ForgetAddress { vip }
        });
    }
    for (name, changed) in memory
        .sysctls
        .iter()
        .filter(|(name, _)| !wanted.contains_key(*name))
    {
        steps.push(match actual.sysctls.get(name) {
            Some(now) if *now == changed.set => Step::RestoreSysctl {
                name: name.clone(),
                to: changed.was.clone(),
            },
            now => Step::ForgetSysctl {
                name: name.clone(),
                now: now.cloned(),
            },
        });
    }
    steps
}

fn program_step(desired: &Desired, actual: &Actual, memory: &Memory, object: u64) -> Option<Step> {
    let rules = desired.rules(&own_addresses(desired, actual));
    let observed = &actual.programs;
    if !rules.needs_ingress() {
        let there = !observed.hooks.is_empty() || observed.stale > 0 || memory.object.is_some();
        return there.then_some(Step::RemovePrograms);
    }
    let hooks = hooks(desired, actual, &rules);
    let in_place = observed.rules.as_ref() == Some(&rules)
        && observed.hooks == hooks
        && observed.stale == 0
        && memory.object == Some(object);
    (!in_place).then_some(Step::Programs { rules, hooks })
}

fn hooks(desired: &Desired, actual: &Actual, rules: &Rules) -> Vec<Hook> {
    let mut directions = vec![Direction::Ingress];
    if rules.needs_egress() {
        directions.push(Direction::Egress);
    }
    let mut hooks: Vec<Hook> = serving(desired, actual)
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

/// The interfaces on which packets for the VIPs arrive.
fn serving<'a>(desired: &Desired, actual: &'a Actual) -> Vec<&'a Interface> {
    let chosen = |interface: &&Interface| {
        if desired.interfaces.is_empty() {
            interface
                .addresses
                .iter()
                .any(|(address, _)| !is_link_local(*address))
        } else {
            desired.interfaces.contains(&interface.name)
        }
    };
    let usable = |interface: &&Interface| interface.ethernet && !interface.loopback;
    actual
        .interfaces
        .iter()
        .filter(usable)
        .filter(chosen)
        .collect()
}

fn own_addresses(desired: &Desired, actual: &Actual) -> Vec<IpAddr> {
    let vips: BTreeSet<IpAddr> = desired.entries.iter().map(|entry| entry.vip).collect();
    let all = actual
        .interfaces
        .iter()
        .flat_map(|interface| &interface.addresses)
        .map(|(address, _)| *address);
    all.filter(|address| {
        !address.is_loopback() && !is_link_local(*address) && !vips.contains(address)
    })
    .collect()
}

fn loopback_addresses(actual: &Actual) -> impl Iterator<Item = IpAddr> {
    let loopbacks = actual
        .interfaces
        .iter()
        .filter(|interface| interface.loopback);
    loopbacks
        .flat_map(|interface| &interface.addresses)
        .map(|(address, _)| *address)
}

fn is_link_local(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => v4.is_link_local(),
        IpAddr::V6(v6) => v6.is_unicast_link_local(),
    }
}

/// The name of a sysctl of a device, or of `all`.
pub(crate) fn sysctl_name(device: &str, key: &str) -> String {
    format!("net/ipv4/conf/{device}/{key}")
}

/// The relevant settings of `net/ipv4/conf`.
pub(crate) const SYSCTL_KEYS: [&str; 3] = ["arp_ignore", "arp_announce", "rp_filter"];

fn sysctls(desired: &Desired, actual: &Actual) -> BTreeMap<String, String> {
    let mut wanted = BTreeMap::new();
    if !desired.held_vips().iter().any(IpAddr::is_ipv4) {
        return wanted;
    }
    let interfaces = serving(desired, actual);
    let arp: Vec<&str> = if desired.interfaces.is_empty() {
        vec!["all"]
    } else {
        interfaces
            .iter()
            .map(|interface| interface.name.as_str())
            .collect()
    };
    for device in arp {
        wanted.insert(sysctl_name(device, "arp_ignore"), "1".to_owned());
        wanted.insert(sysctl_name(device, "arp_announce"), "2".to_owned());
    }
    for interface in interfaces {
        wanted.insert(sysctl_name(&interface.name, "rp_filter"), "2".to_owned());
    }
    wanted
}

/// Whether the effective value, the greater of the device's and `all`'s, is sufficient.
fn sysctl_holds(name: &str, wanted: &str, actual: &Actual) -> bool {
    let number = |name: &str| {
        actual
            .sysctls
            .get(name)
            .and_then(|value| value.parse::<i64>().ok())
            .unwrap_or(0)
    };
    let key = name.rsplit('/').next().unwrap_or(name);
    let effective = number(name).max(number(&sysctl_name("all", key)));
    if key == "rp_filter" {
        return effective != 1;
    }
    effective >= wanted.parse().unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests;
