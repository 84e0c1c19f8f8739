//! Reads and writes the record of the helper's changes to the host (`RUNTIME_DIR/vrrp.json`).
//!
//! It lists the addresses, routes, rules, devices, filters and FIFOs that the helper has added, and the sysctls that it
//! has changed. A record from an earlier boot is ignored, because the reboot has reverted the changes to the network.

use std::collections::{BTreeSet, HashSet};
use std::fs;
use std::io::ErrorKind;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use weir_model::{VirtualRoute, VirtualRule};
use weir_sys::{boot_id, read_owned_file, replace_file};

use crate::Error;

const FILE: &str = "vrrp.json";

/// An address that the helper has added to an interface.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct AddedAddress {
    pub(crate) router: String,
    pub(crate) interface: String,
    pub(crate) address: IpAddr,
    pub(crate) prefix: u8,
}

/// A change by the helper other than an added address.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum OtherChange {
    /// A route through an interface.
    Route {
        router: String,
        interface: String,
        route: VirtualRoute,
    },
    /// A policy routing rule.
    Rule { router: String, rule: VirtualRule },
    /// A device with a virtual MAC address, on another device.
    Device {
        router: String,
        name: String,
        base: String,
    },
    /// An nftables table that drops packets to the addresses.
    Filter { router: String, table: String },
    /// A sysctl of a base device, and its previous value.
    Sysctl {
        base: String,
        name: String,
        value: String,
    },
}

impl AddedAddress {
    /// Returns the key that identifies the address on this machine.
    fn key(&self) -> (&str, IpAddr, u8) {
        (&self.interface, self.address, self.prefix)
    }

    /// Returns a line that reports the removal of the address.
    fn removal_message(&self) -> String {
        let Self {
            interface,
            address,
            prefix,
            ..
        } = self;
        format!("{address}/{prefix} removed from {interface}")
    }
}

impl OtherChange {
    /// Returns a line that reports the reversal of the change.
    fn reversal_message(&self) -> String {
        match self {
            Self::Route {
                interface, route, ..
            } => format!("route to {} removed from {interface}", route.to),
            Self::Rule { rule, .. } => {
                format!("routing rule with priority {} removed", rule.priority)
            }
            Self::Device { name, base, .. } => format!("interface {name} removed from {base}"),
            Self::Filter { table, .. } => format!("nftables table {table} removed"),
            Self::Sysctl { name, value, .. } => format!("sysctl {name} restored to {value}"),
        }
    }

    /// Returns the virtual router of the change; `None` = several routers can share the object.
    pub(crate) fn router(&self) -> Option<&str> {
        match self {
            Self::Route { router, .. }
            | Self::Rule { router, .. }
            | Self::Device { router, .. }
            | Self::Filter { router, .. } => Some(router),
            Self::Sysctl { .. } => None,
        }
    }
}

/// All changes by the helper.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) added: BTreeSet<AddedAddress>,
    pub(crate) other_changes: Vec<OtherChange>,
    /// Paths of FIFOs that were created.
    pub(crate) fifos: BTreeSet<String>,
}

#[derive(Serialize, Deserialize)]
struct Content {
    boot: String,
    added: BTreeSet<AddedAddress>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    extra: Vec<OtherChange>,
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    fifos: BTreeSet<String>,
}

impl Record {
    pub(crate) fn is_empty(&self) -> bool {
        self.added.is_empty() && self.other_changes.is_empty() && self.fifos.is_empty()
    }

    /// Inserts addresses. The entries of their former owners are removed, so that later requests for the former owners
    /// do not remove the addresses. Scans the record only once, however many addresses are inserted.
    pub(crate) fn insert(&mut self, addresses: Vec<AddedAddress>) {
        let inserted: HashSet<_> = addresses.iter().map(AddedAddress::key).collect();
        self.added.retain(|it| !inserted.contains(&it.key()));
        self.added.extend(addresses);
    }

    /// Returns a line for each change that reports its reversal.
    pub(crate) fn reversals(&self) -> Vec<String> {
        let added = self.added.iter().map(AddedAddress::removal_message);
        let other = self.other_changes.iter().map(OtherChange::reversal_message);
        let fifos = self.fifos.iter().map(|path| format!("FIFO {path} removed"));
        added.chain(other).chain(fifos).collect()
    }
}

pub(crate) fn read(runtime_dir: &Path) -> Record {
    // An unprivileged daemon may write to the directory.
    let Ok(text) = read_owned_file(&runtime_dir.join(FILE)) else {
        return Record::default();
    };
    match serde_json::from_slice::<Content>(&text) {
        Ok(content) if boot_id().is_ok_and(|boot| boot == content.boot) => Record {
            added: content.added,
            other_changes: content.extra,
            fifos: content.fifos,
        },
        _ => Record::default(),
    }
}

pub(crate) fn write(runtime_dir: &Path, record: &Record) -> Result<(), Error> {
    let path: PathBuf = runtime_dir.join(FILE);
    let result = if record.is_empty() {
        match fs::remove_file(&path) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    } else {
        let content = Content {
            boot: boot_id()?,
            added: record.added.clone(),
            extra: record.other_changes.clone(),
            fifos: record.fifos.clone(),
        };
        serde_json::to_vec(&content)
            .map_err(Into::into)
            .and_then(|text| replace_file(&path, &text))
    };
    result.map_err(|source| Error::File { path, source })
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    #[test]
    fn inserted_addresses_replace_the_entries_of_former_owners() {
        let entries = |router: &str, prefix| {
            let address = |number: u32| AddedAddress {
                router: router.to_owned(),
                interface: "eth0".to_owned(),
                address: IpAddr::V4(Ipv4Addr::from_bits(0x0a00_0000 + number)),
                prefix,
            };
            (0..5000).map(address).collect::<Vec<_>>()
        };
        let mut record = Record::default();
        record.insert(entries("former", 24));
        record.insert(entries("former", 32));
        assert_eq!(record.added.len(), 10_000);
        record.insert(entries("next", 32));
        assert_eq!(record.added.len(), 10_000);
        let remaining = record.added.iter().filter(|it| it.router == "former");
        assert!(remaining.clone().all(|it| it.prefix == 24));
        assert_eq!(remaining.count(), 5000);
    }

    /// The previous version of Weir ignores the FIFOs, and writes none.
    #[test]
    fn record_without_fifos_has_the_format_of_the_previous_version() {
        let text = r#"{"boot":"b","added":[],"extra":[]}"#;
        let content: Content = serde_json::from_str(text).unwrap();
        assert!(content.fifos.is_empty());
        assert_eq!(
            serde_json::to_string(&content).unwrap(),
            r#"{"boot":"b","added":[]}"#
        );
    }
}
