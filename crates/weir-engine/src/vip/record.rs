//! Reads and writes `RUNTIME_DIR/vips.json`: the addresses that were added without an engine.
//!
//! A reboot removes the addresses, so a record from another boot is ignored.

use std::collections::BTreeSet;
use std::fs;
use std::io::ErrorKind;
use std::net::IpAddr;
use std::path::Path;

use serde::{Deserialize, Serialize};
use weir_sys::{boot_id, replace_file};

use super::error::Error;

const FILE_NAME: &str = "vips.json";

#[derive(Serialize, Deserialize)]
struct Content {
    boot: String,
    addresses: BTreeSet<(String, IpAddr)>,
}

/// Reads the recorded addresses, with their interfaces. Returns none if there is no record, or it is from another boot
/// or cannot be read.
pub fn read_record(runtime_dir: &Path) -> BTreeSet<(String, IpAddr)> {
    let path = runtime_dir.join(FILE_NAME);
    let text = match weir_sys::read_owned_file(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound => return BTreeSet::new(),
        Err(error) => {
            tracing::warn!(path = %path.display(), %error, "failed to read the record of added addresses");
            return BTreeSet::new();
        }
    };
    match serde_json::from_slice::<Content>(&text) {
        Ok(content) if boot_id().is_ok_and(|boot| boot == content.boot) => content.addresses,
        Ok(_) => BTreeSet::new(),
        Err(error) => {
            tracing::warn!(path = %path.display(), %error, "failed to read the record of added addresses");
            BTreeSet::new()
        }
    }
}

/// Replaces the record, or removes it if there are no addresses.
///
/// # Errors
/// Fails if the directory cannot be written.
pub fn write(runtime_dir: &Path, addresses: &BTreeSet<(String, IpAddr)>) -> Result<(), Error> {
    if addresses.is_empty() {
        return remove_record(runtime_dir);
    }
    let path = runtime_dir.join(FILE_NAME);
    let content = Content {
        boot: boot_id()?,
        addresses: addresses.clone(),
    };
    let result = serde_json::to_vec(&content)
        .map_err(Into::into)
        .and_then(|text| replace_file(&path, &text));
    result.map_err(|source| Error::File { path, source })
}

/// Removes the record.
///
/// # Errors
/// Fails if the directory cannot be written.
pub fn remove_record(runtime_dir: &Path) -> Result<(), Error> {
    let path = runtime_dir.join(FILE_NAME);
    match fs::remove_file(&path) {
        Err(source) if source.kind() != ErrorKind::NotFound => Err(Error::File { path, source }),
        _ => Ok(()),
    }
}
