//! Reads the virtual routers from root's record of the active configuration, or from root's file.

use std::collections::BTreeSet;
use std::fs;
use std::io::ErrorKind;
use std::net::IpAddr;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::process::geteuid;
use serde::{Deserialize, Serialize};
use weir_config::{Files, MAX_FILE_BYTES};
use weir_model::{Desired, VirtualRouter};
use weir_sys::untrusted_file::{self, Owner};

use crate::machine::{self, Environment, ThisMachine};
use crate::root_section::RootSection;
use crate::{CONFINED, Error};

/// Name of the file with the active virtual routers, for a helper that is restarted.
const RECORD: &str = "vrrp-configuration";

/// Reads and compares the files that the virtual routers come from.
#[derive(Debug)]
pub(crate) struct RouterSource {
    runtime_dir: PathBuf,
    /// Whether an unprivileged daemon writes the files. Once true, it stays true.
    is_written_by_daemon: bool,
    /// Files that may contain the active configuration; the first one that exists is used.
    active_files: Vec<PathBuf>,
    root_section: RootSection<Routers>,
}

/// The part of the active configuration that the helper needs.
#[derive(Clone, Debug)]
pub(crate) struct ActiveRouters {
    pub(crate) routers: Vec<VirtualRouter>,
    /// The addresses of virtual routers and of `vip_interface`, with their interfaces. An address of a virtual router
    /// without `interface` is not included.
    pub(crate) configured_addresses: BTreeSet<(String, IpAddr)>,
}

/// The virtual routers in root's configuration.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Routers {
    /// The routers without secrets from files, which an unprivileged daemon cannot read.
    #[serde(rename = "wanted")]
    without_secrets: Vec<VirtualRouter>,
    /// The routers with all secrets.
    #[serde(rename = "complete")]
    with_secrets: Vec<VirtualRouter>,
    /// See [`ActiveRouters::configured_addresses`].
    #[serde(default, rename = "owned")]
    configured_addresses: BTreeSet<(String, IpAddr)>,
}

impl RouterSource {
    pub(crate) fn new(runtime_dir: &Path, active_files: &[PathBuf], configuration: &Path) -> Self {
        let record = runtime_dir.join(RECORD);
        Self {
            runtime_dir: runtime_dir.to_owned(),
            is_written_by_daemon: std::env::var_os(CONFINED).is_some(),
            active_files: active_files.to_vec(),
            root_section: RootSection::new("[vrrp]", configuration, record, |text| {
                let desired = machine::parse(text, &ThisMachine)?;
                Ok(Routers {
                    without_secrets: machine::parse(text, &Environment)?.vrrp,
                    configured_addresses: configured_addresses(&desired),
                    with_secrets: desired.vrrp,
                })
            }),
        }
    }

    /// Reads the virtual routers in the active configuration.
    pub(crate) fn read(&mut self) -> Result<ActiveRouters, Error> {
        self.is_written_by_daemon |= weir_runtime_dir::owning_account(&self.runtime_dir).is_some();
        let exists = |path: &&PathBuf| match fs::symlink_metadata(path) {
            Err(error) => error.kind() != ErrorKind::NotFound,
            Ok(_) => true,
        };
        let Some(path) = self.active_files.iter().find(exists).cloned() else {
            return Ok(ActiveRouters {
                routers: Vec::new(),
                configured_addresses: BTreeSet::new(),
            });
        };
        if !self.is_written_by_daemon {
            return read_active(&path);
        }
        // The daemon could write any text, so its text is only compared with root's.
        let text = untrusted_file::read(&path, Owner::Any, MAX_FILE_BYTES);
        let text = text.map_err(|reason| Error::File {
            path: path.clone(),
            source: std::io::Error::other(reason),
        })?;
        let requested = machine::parse(&text, &Environment)
            .map_err(|reason| Error::Configuration { path, reason })?
            .vrrp;
        let accepted = self
            .root_section
            .accept(&text, |routers| routers.without_secrets == requested);
        if let Err(error) = &accepted {
            tracing::error!(reason = %error, "refused a request from the daemon");
        }
        let Routers {
            with_secrets: routers,
            configured_addresses,
            ..
        } = accepted?;
        Ok(ActiveRouters {
            routers,
            configured_addresses,
        })
    }
}

/// See [`ActiveRouters::configured_addresses`].
fn configured_addresses(desired: &Desired) -> BTreeSet<(String, IpAddr)> {
    let mut configured_addresses = BTreeSet::new();
    if let Some(interface) = &desired.node.vip_interface {
        let listeners = desired.services.iter().flat_map(|service| &service.listen);
        let vips = listeners.map(|it| it.address);
        let vips = vips.chain(desired.proxy_addresses());
        let added = vips.filter(|vip| !desired.is_vrrp_address(*vip));
        configured_addresses.extend(added.map(|vip| (interface.clone(), vip)));
    }
    for router in &desired.vrrp {
        for network in router.managed_addresses() {
            if let Some(interface) = router.interface_of(network.address) {
                configured_addresses.insert((interface.to_owned(), network.address));
            }
        }
    }
    configured_addresses
}

/// Reads a recorded configuration that a root process has written.
fn read_active(path: &Path) -> Result<ActiveRouters, Error> {
    let failed = |source| Error::File {
        path: path.to_owned(),
        source,
    };
    let text = fs::read_to_string(path).map_err(failed)?;
    if !is_trusted(path).map_err(failed)? {
        return Err(Error::Untrusted {
            path: path.to_owned(),
        });
    }
    let invalid = |reason| Error::Configuration {
        path: path.to_owned(),
        reason,
    };
    let bundle = weir_config::bundle(&text, path, &TrustedFiles);
    if let Some(error) = bundle.errors.first() {
        return Err(invalid(error.message.clone()));
    }
    let desired = machine::parse(&bundle.text, &ThisMachine).map_err(invalid)?;
    Ok(ActiveRouters {
        configured_addresses: configured_addresses(&desired),
        routers: desired.vrrp,
    })
}

/// Returns whether only root and this process's user can change the file.
fn is_trusted(path: &Path) -> std::io::Result<bool> {
    let metadata = fs::metadata(path)?;
    let is_trusted_owner = metadata.uid() == 0 || metadata.uid() == geteuid().as_raw();
    Ok(is_trusted_owner && metadata.mode() & 0o022 == 0)
}

/// Reads included files, which must be trusted like the main file: they name the programs that this process runs.
struct TrustedFiles;

impl Files for TrustedFiles {
    fn read(&self, path: &Path) -> Result<(PathBuf, String), String> {
        let read = || {
            if !is_trusted(path)? {
                return Err(std::io::Error::other("other users can change it"));
            }
            let name = path.canonicalize()?;
            Ok((name, fs::read_to_string(path)?))
        };
        read().map_err(|error| error.to_string())
    }

    fn list(&self, directory: &Path) -> Result<Vec<String>, String> {
        let entries = fs::read_dir(directory).map_err(|error| error.to_string())?;
        let files = entries.flatten().filter(|entry| entry.path().is_file());
        Ok(files
            .filter_map(|entry| entry.file_name().into_string().ok())
            .collect())
    }
}
