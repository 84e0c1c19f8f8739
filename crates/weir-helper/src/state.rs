//! What the virtual routers have on this machine.

use std::path::PathBuf;

use weir_netlink::Netlink;

use crate::Error;
use crate::record::{self, Record};

/// See the module.
#[derive(Debug)]
pub(crate) struct Addresses {
    pub(crate) netlink: Netlink,
    pub(crate) runtime_dir: PathBuf,
    pub(crate) record: Record,
}

impl Addresses {
    /// Writes the record.
    pub(crate) fn write(&self) -> Result<(), Error> {
        record::write(&self.runtime_dir, &self.record)
    }
}
