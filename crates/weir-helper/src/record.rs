//! `RUNTIME_DIR/vrrp.json`: addresses that the helper has added. A reboot removes them, so a record of another boot is
//! ignored.

use std::collections::BTreeSet;
use std::fs;
use std::io::ErrorKind;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use weir_sys::{boot_id, replace_file};

use crate::Error;

const FILE: &str = "vrrp.json";

/// An address on an interface.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct Added {
    pub(crate) router: String,
    pub(crate) interface: String,
    pub(crate) address: IpAddr,
    pub(crate) prefix: u8,
}

#[derive(Serialize, Deserialize)]
struct Content {
    boot: String,
    added: BTreeSet<Added>,
}

pub(crate) fn read(runtime_dir: &Path) -> BTreeSet<Added> {
    let Ok(text) = fs::read(runtime_dir.join(FILE)) else {
        return BTreeSet::new();
    };
    match serde_json::from_slice::<Content>(&text) {
        Ok(content) if boot_id().is_ok_and(|boot| boot == content.boot) => content.added,
        _ => BTreeSet::new(),
    }
}

pub(crate) fn write(runtime_dir: &Path, added: &BTreeSet<Added>) -> Result<(), Error> {
    let path: PathBuf = runtime_dir.join(FILE);
    let written = if added.is_empty() {
        match fs::remove_file(&path) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    } else {
        let content = Content {
            boot: boot_id()?,
            added: added.clone(),
        };
        serde_json::to_vec(&content)
            .map_err(Into::into)
            .and_then(|text| replace_file(&path, &text))
    };
    written.map_err(|source| Error::File { path, source })
}
