//! Reads the virtual routers from root's record of the active configuration, or from root's configuration file.

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
    /// Root's configuration file.
    configuration: PathBuf,
    root_section: RootSection<Routers>,
    /// The result of the last successful read, and the versions of the files before it.
    last_read: Option<(Vec<Option<FileVersion>>, ActiveRouters)>,
}

/// Distinguishes a file from its earlier and later versions.
#[derive(Clone, Debug, PartialEq, Eq)]
struct FileVersion {
    device: u64,
    inode: u64,
    /// When the content or an attribute was last changed: seconds and nanoseconds.
    changed_at: (i64, i64),
}

impl FileVersion {
    /// Returns the version of a file; `None` = it does not exist.
    fn of(path: &Path) -> Option<Self> {
        let metadata = fs::metadata(path).ok()?;
        Some(Self {
            device: metadata.dev(),
            inode: metadata.ino(),
            changed_at: (metadata.ctime(), metadata.ctime_nsec()),
        })
    }
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
            configuration: configuration.to_owned(),
            last_read: None,
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

    /// Returns the result of the last successful [`Self::read`] if no file has changed since. Reading a large
    /// configuration takes longer than several advertisement intervals, and a new agent cannot send an advertisement
    /// before it has the virtual routers. The daemon replaces its file at each reload, so changes to files with secrets
    /// are detected too.
    pub(crate) fn unchanged(&self) -> Option<ActiveRouters> {
        let (versions, routers) = self.last_read.as_ref()?;
        (*versions == self.versions()).then(|| routers.clone())
    }

    fn versions(&self) -> Vec<Option<FileVersion>> {
        let files = self.active_files.iter().chain([&self.configuration]);
        files.map(|path| FileVersion::of(path)).collect()
    }

    /// Reads the virtual routers in the active configuration.
    pub(crate) fn read(&mut self) -> Result<ActiveRouters, Error> {
        let versions = self.versions();
        self.last_read = None;
        let routers = self.read_files()?;
        self.last_read = Some((versions, routers.clone()));
        Ok(routers)
    }

    fn read_files(&mut self) -> Result<ActiveRouters, Error> {
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
        let requested_routers = machine::parse(&text, &Environment)
            .map_err(|reason| Error::Configuration { path, reason })?
            .vrrp;
        let result = self.root_section.accept(&text, |routers| {
            routers.without_secrets == requested_routers
        });
        if let Err(error) = &result {
            tracing::error!(reason = %error, "refused a request from the daemon");
        }
        let Routers {
            with_secrets: routers,
            configured_addresses,
            ..
        } = result?;
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
    let file_error = |source| Error::File {
        path: path.to_owned(),
        source,
    };
    let text = fs::read_to_string(path).map_err(file_error)?;
    if !is_trusted(path).map_err(file_error)? {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn read_is_repeated_only_after_a_file_has_changed() {
        let directory = std::env::temp_dir().join(format!("weir-routers-{}", std::process::id()));
        fs::create_dir_all(&directory).expect("create the directory");
        let active = directory.join("active.toml");
        let configuration = directory.join("weir.toml");
        let write = |path: &Path, addresses: &str| {
            let text = format!(
                "[vrrp.outside]\ninterface = \"eth0\"\nvirtual_router_id = 51\naddresses = [{addresses}]\n"
            );
            weir_sys::replace_file(path, text.as_bytes()).expect("write the file");
        };
        write(&active, "\"192.0.2.1/24\"");
        write(&configuration, "\"192.0.2.1/24\"");
        // This directory does not exist, so it does not belong to a daemon.
        let runtime_dir = directory.join("run");
        let mut source =
            RouterSource::new(&runtime_dir, std::slice::from_ref(&active), &configuration);
        assert!(source.unchanged().is_none(), "nothing was read yet");
        let count = |active: &ActiveRouters| -> usize {
            active.routers.iter().map(|it| it.addresses.len()).sum()
        };
        assert_eq!(count(&source.read().expect("read the files")), 1);
        assert_eq!(source.unchanged().as_ref().map(count), Some(1));
        write(&configuration, "\"192.0.2.1/24\"");
        assert!(
            source.unchanged().is_none(),
            "root's configuration file was replaced"
        );
        source.read().expect("read the files");
        write(&active, "\"192.0.2.1/24\", \"192.0.2.2/24\"");
        assert!(
            source.unchanged().is_none(),
            "the daemon's file was replaced"
        );
        assert_eq!(count(&source.read().expect("read the files")), 2);
        assert_eq!(source.unchanged().as_ref().map(count), Some(2));
        weir_sys::replace_file(&active, b"[vrrp.outside]\nno_key = 1\n").expect("write the file");
        assert!(source.read().is_err());
        assert!(
            source.unchanged().is_none(),
            "a failed read must be repeated"
        );
        fs::remove_dir_all(&directory).expect("remove the directory");
    }
}
