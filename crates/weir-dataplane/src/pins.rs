//! Names, creates and removes the files in the pin directory. Other modules handle the pinned objects.
//!
//! ```text
//! PIN_DIR/layout                      the layout record
//! PIN_DIR/owner                       the daemon that uses the directory
//! PIN_DIR/state-S/MAP                 maps that the programs share
//! PIN_DIR/flows-LAYOUT-BUCKETS/MAP    the flow table
//! PIN_DIR/prog-G/PROGRAM, …/MAP       one generation of programs with its private maps
//! PIN_DIR/link-IFINDEX-HOOK           attachments
//! PIN_DIR/socket/MAP, …/link-SCOPE-HOOK  maps and attachments of the cgroup programs
//! ```
//! A directory that the record does not reference is left over from an interrupted change; the next open removes it.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::error::{Context, Error, Result};
use crate::layout::LayoutRecord;

/// The device hook to which a program is attached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Hook {
    /// XDP in the driver.
    XdpNative,
    /// XDP after the driver, on socket buffers.
    XdpGeneric,
    /// tcx ingress.
    Ingress,
    /// tcx egress.
    Egress,
    /// tcx ingress, before [`Self::Ingress`]: the whole packet path on socket buffers, instead of XDP.
    Balance,
    /// clsact ingress, for kernels without tcx; the program is pinned.
    ClsactIngress,
    /// clsact egress, for kernels without tcx; the program is pinned.
    ClsactEgress,
    /// Like [`Self::Balance`], with clsact.
    ClsactBalance,
}

impl Hook {
    pub(crate) const ALL: [Self; 8] = [
        Self::XdpNative,
        Self::XdpGeneric,
        Self::Ingress,
        Self::Egress,
        Self::Balance,
        Self::ClsactIngress,
        Self::ClsactEgress,
        Self::ClsactBalance,
    ];

    /// Returns the suffix in the pin's name.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::XdpNative => "xdp",
            Self::XdpGeneric => "xdpgeneric",
            Self::Ingress => "ingress",
            Self::Egress => "egress",
            Self::ClsactIngress => "clsactingress",
            Self::ClsactEgress => "clsactegress",
            Self::Balance => "balance",
            Self::ClsactBalance => "clsactbalance",
        }
    }
}

/// A pin in the directory.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PinnedObject {
    /// Its path.
    pub path: PathBuf,
    /// Its kind.
    pub kind: PinKind,
}

/// The kind of a pin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PinKind {
    /// A directory of pins.
    Directory,
    /// The layout record, or a map.
    Map,
    /// A program.
    Program,
    /// An attachment to a device.
    Link {
        /// The device.
        ifindex: u32,
        /// Its hook.
        hook: Hook,
    },
    /// An attachment to a cgroup.
    Cgroup {
        /// Number assigned to the cgroup.
        scope: u32,
    },
    /// The name shows that Weir did not create the pin.
    Foreign,
}

/// The pin directory of one director.
#[derive(Clone, Debug)]
pub struct PinDir {
    root: PathBuf,
}

impl PinDir {
    /// Returns the pin directory at `root`, without accessing it.
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    /// Returns the directory's path.
    pub fn path(&self) -> &Path {
        &self.root
    }

    pub(crate) fn layout(&self) -> PathBuf {
        self.root.join("layout")
    }

    pub(crate) fn layout_staging(&self) -> PathBuf {
        self.root.join("layout-next")
    }

    pub(crate) fn state(&self, number: u32) -> PathBuf {
        self.root.join(format!("state-{number}"))
    }

    pub(crate) fn flows(&self, layout: u32, buckets: u32) -> PathBuf {
        self.root.join(format!("flows-{layout}-{buckets}"))
    }

    pub(crate) fn programs(&self, generation: u32) -> PathBuf {
        self.root.join(format!("prog-{generation}"))
    }

    pub(crate) fn link(&self, ifindex: u32, hook: Hook) -> PathBuf {
        self.root.join(format!("link-{ifindex}-{}", hook.name()))
    }

    pub(crate) fn sockets(&self) -> PathBuf {
        self.root.join(SOCKET_DIRECTORY)
    }

    /// Creates the directory on a bpffs. If its parent is empty and not on a bpffs, mounts a bpffs there.
    pub(crate) fn prepare(&self) -> Result<()> {
        let ancestor = self
            .root
            .ancestors()
            .find(|path| path.exists())
            .unwrap_or(Path::new("/"));
        if weir_sys::bpffs_at(ancestor)? != weir_sys::Bpffs::Mounted {
            let no_bpffs = |reason: String| Error::NoBpffs {
                path: self.root.clone(),
                reason,
            };
            let Some(parent) = self.root.parent() else {
                return Err(no_bpffs("it has no parent".to_owned()));
            };
            fs::create_dir_all(parent)
                .map_err(|error| no_bpffs(format!("{}: {error}", parent.display())))?;
            if entries(parent)?.next().is_some() {
                return Err(no_bpffs(format!("{} is not empty", parent.display())));
            }
            weir_sys::mount_bpffs(parent).map_err(|error| no_bpffs(error.to_string()))?;
        }
        fs::create_dir_all(&self.root).at(&self.root)
    }

    /// Removes the leftovers of an interrupted change: directories that the record does not reference.
    pub(crate) fn remove_leftovers(&self, record: Option<&LayoutRecord>) -> Result<()> {
        let mut referenced_paths = Vec::new();
        if let Some(record) = record {
            referenced_paths.push(self.state(record.state));
            referenced_paths.push(self.programs(record.programs));
            referenced_paths.push(self.flows(record.flow_layout, record.sizes.buckets()));
            if record.old_buckets > 0 {
                referenced_paths.push(self.flows(record.old_flow_layout, record.old_buckets));
            }
        }
        remove_file(&self.layout_staging())?;
        for path in entries(&self.root)? {
            if is_generation(&path) && !referenced_paths.contains(&path) {
                remove_tree(&path)?;
            }
        }
        Ok(())
    }

    /// Returns the attachments to devices that are pinned in the directory, sorted.
    pub(crate) fn links(&self) -> Result<Vec<(u32, Hook, PathBuf)>> {
        let mut links = Vec::new();
        for path in entries(&self.root)? {
            if let Some((ifindex, hook)) = parse_link(&path) {
                links.push((ifindex, hook, path));
            }
        }
        links.sort();
        Ok(links)
    }

    /// Returns all pins below the directory, sorted by path; empty if the directory does not exist.
    ///
    /// # Errors
    /// Fails if a directory cannot be read.
    pub fn list(&self) -> Result<Vec<PinnedObject>> {
        let mut objects = Vec::new();
        if !self.root.exists() {
            return Ok(objects);
        }
        for path in entries(&self.root)? {
            if is_generation(&path) {
                for inner in entries(&path)? {
                    let kind = if file_name(&path).starts_with("prog-")
                        && is_program_in_generation(&inner)
                    {
                        PinKind::Program
                    } else {
                        PinKind::Map
                    };
                    objects.push(PinnedObject { path: inner, kind });
                }
                objects.push(PinnedObject {
                    path,
                    kind: PinKind::Directory,
                });
            } else if file_name(&path) == SOCKET_DIRECTORY {
                for inner in entries(&path)? {
                    let kind = match crate::socket::parse_link(file_name(&inner)) {
                        Some((scope, _)) => PinKind::Cgroup { scope },
                        None => PinKind::Map,
                    };
                    objects.push(PinnedObject { path: inner, kind });
                }
                objects.push(PinnedObject {
                    path,
                    kind: PinKind::Directory,
                });
            } else if let Some((ifindex, hook)) = parse_link(&path) {
                objects.push(PinnedObject {
                    path,
                    kind: PinKind::Link { ifindex, hook },
                });
            } else if path == self.layout() || path == self.layout_staging() {
                objects.push(PinnedObject {
                    path,
                    kind: PinKind::Map,
                });
            } else if path != self.owner() && path != self.owner_staging() {
                objects.push(PinnedObject {
                    path,
                    kind: PinKind::Foreign,
                });
            }
        }
        objects.sort();
        Ok(objects)
    }

    /// Removes all of Weir's pins except for attachments to devices. Removes the record last, and then the directory if
    /// it is empty.
    pub(crate) fn remove_all(&self) -> Result<()> {
        for path in entries(&self.root)? {
            if is_generation(&path) {
                remove_tree(&path)?;
            }
        }
        remove_tree(&self.sockets())?;
        remove_file(&self.layout_staging())?;
        remove_file(&self.layout())?;
        remove_file(&self.owner_staging())?;
        remove_file(&self.owner())?;
        match fs::remove_dir(&self.root) {
            Ok(()) => Ok(()),
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::NotFound | io::ErrorKind::DirectoryNotEmpty
                ) =>
            {
                Ok(())
            }
            Err(error) => Err(error).at(&self.root),
        }
    }
}

/// Name of the directory for the cgroup programs.
const SOCKET_DIRECTORY: &str = "socket";

pub(crate) fn file_name(path: &Path) -> &str {
    path.file_name().and_then(OsStr::to_str).unwrap_or_default()
}

fn is_generation(path: &Path) -> bool {
    ["state-", "flows-", "prog-"]
        .iter()
        .any(|prefix| file_name(path).starts_with(prefix))
}

/// Returns whether a pin in a generation's directory is a program. The directory also contains private maps.
fn is_program_in_generation(path: &Path) -> bool {
    !crate::loader::PRIVATE_MAPS.contains(&file_name(path))
}

fn parse_link(path: &Path) -> Option<(u32, Hook)> {
    let (ifindex, hook) = file_name(path).strip_prefix("link-")?.split_once('-')?;
    let hook = Hook::ALL
        .into_iter()
        .find(|candidate| candidate.name() == hook)?;
    Some((ifindex.parse().ok()?, hook))
}

pub(crate) fn entries(directory: &Path) -> Result<impl Iterator<Item = PathBuf>> {
    let paths: io::Result<Vec<PathBuf>> = fs::read_dir(directory)
        .and_then(|entries| entries.map(|entry| Ok(entry?.path())).collect());
    Ok(paths.at(directory)?.into_iter())
}

pub(crate) fn remove_file(path: &Path) -> Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error).at(path),
        _ => Ok(()),
    }
}

pub(crate) fn remove_tree(path: &Path) -> Result<()> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error).at(path),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn link_names_round_trip() {
        let pins = PinDir::new("/pins");
        for hook in Hook::ALL {
            assert_eq!(parse_link(&pins.link(7, hook)), Some((7, hook)));
        }
        assert_eq!(parse_link(Path::new("/pins/link-x-xdp")), None);
        assert_eq!(parse_link(Path::new("/pins/link-1-elsewhere")), None);
    }

    #[test]
    fn list_of_missing_directory_is_empty() {
        assert_eq!(
            PinDir::new("/nonexistent/weir").list().ok(),
            Some(Vec::new())
        );
    }
}
