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
    /// Virtual addresses that are an interface's own and have already been reported in the log, with their virtual
    /// routers.
    pub(crate) reported: BTreeSet<(String, IpAddr)>,
    /// Whether the file does not contain the record, because the last write failed.
    pub(crate) is_file_outdated: bool,
    /// The addresses in the active configuration, with their interfaces.
    pub(crate) configured_addresses: BTreeSet<(String, IpAddr)>,
}

impl Addresses {
    /// Writes the record.
    pub(crate) fn write(&mut self) -> Result<(), Error> {
        let result = record::write(&self.runtime_dir, &self.record);
        self.is_file_outdated = result.is_err();
        result
    }

    /// Writes the record before a change. A failure, such as a full file system, must not prevent the change: the other
    /// director has released the addresses, or has them too. The next successful write includes the change. Only the
    /// first of consecutive failures is logged.
    pub(crate) fn write_or_log(&mut self) {
        let was_outdated = self.is_file_outdated;
        if let Err(error) = self.write()
            && !was_outdated
        {
            tracing::error!(%error, "failed to record a change; making it anyway");
        }
    }

    /// Writes the record if the last write failed.
    pub(crate) fn write_if_outdated(&mut self) -> Result<(), Error> {
        if self.is_file_outdated {
            self.write()
        } else {
            Ok(())
        }
    }
}
