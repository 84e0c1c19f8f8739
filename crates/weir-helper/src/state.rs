//! Tracks the objects of virtual routers on this machine: addresses, routes, rules, devices.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::path::PathBuf;

use weir_netlink::Netlink;

use crate::Error;
use crate::record::{self, Record};

/// The addresses and other objects of virtual routers on this machine, and their record.
#[derive(Debug)]
pub(crate) struct Addresses {
    pub(crate) netlink: Netlink,
    pub(crate) runtime_dir: PathBuf,
    pub(crate) record: Record,
    /// The addresses in the active configuration, with their interfaces.
    pub(crate) configured_addresses: BTreeSet<(String, IpAddr)>,
}

impl Addresses {
    /// Writes the record.
    pub(crate) fn write(&self) -> Result<(), Error> {
        record::write(&self.runtime_dir, &self.record)
    }
}
