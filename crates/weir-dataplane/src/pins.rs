//! Where things are pinned. Names only, and the file operations on them: what is behind a pin is other modules' matter.
//!
//! ```text
//! PIN_DIR/layout                      the record in force
//! PIN_DIR/state-S/MAP                 maps that the programs share
//! PIN_DIR/flows-LAYOUT-BUCKETS/MAP    the flow table
//! PIN_DIR/prog-G/PROGRAM, …/MAP       one generation of programs and the maps of its own
//! PIN_DIR/link-IFINDEX-HOOK           what is attached
//! ```
//! A directory that the record does not name is left over from an interrupted change and is removed by the next opening.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::error::{Context, Error, Result};
use crate::layout::LayoutRecord;

/// Where on a device a link of Weir's sits.
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
    /// tcx ingress, in front of [`Self::Ingress`]: the whole path on socket buffers, in place of XDP.
    Balance,
    /// clsact ingress, where the kernel has no tcx: the pin holds the program.
    ClsactIngress,
    /// clsact egress, where the kernel has no tcx: the pin holds the program.
    ClsactEgress,
    /// The same as [`Self::Balance`] by clsact.
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

    /// The end of the pin's name.
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

/// Something pinned by Weir.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Pinned {
    /// Where.
    pub path: PathBuf,
    /// What.
    pub kind: PinKind,
}

/// What a pin holds.
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
        /// Where on it.
        hook: Hook,
    },
    /// Nothing of Weir's by its name.
    Foreign,
}

/// The directory of one director.
#[derive(Clone, Debug)]
pub struct PinDir {
    root: PathBuf,
}

impl PinDir {
    /// The pin directory at `root`; nothing is touched.
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    /// Its path.
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

    /// Makes the directory on a bpffs. Where its parent is no bpffs, one is mounted there, if the parent is empty.
    pub(crate) fn prepare(&self) -> Result<()> {
        let existing = self
            .root
            .ancestors()
            .find(|path| path.exists())
            .unwrap_or(Path::new("/"));
        if weir_sys::bpffs_at(existing)? != weir_sys::Bpffs::Mounted {
            let refuse = |reason: String| Error::NoBpffs {
                path: self.root.clone(),
                reason,
            };
            let Some(parent) = self.root.parent() else {
                return Err(refuse("it has no parent".to_owned()));
            };
            fs::create_dir_all(parent)
                .map_err(|error| refuse(format!("{}: {error}", parent.display())))?;
            if entries(parent)?.next().is_some() {
                return Err(refuse(format!("{} is not empty", parent.display())));
            }
            weir_sys::mount_bpffs(parent).map_err(|error| refuse(error.to_string()))?;
        }
        fs::create_dir_all(&self.root).at(&self.root)
    }

    /// Removes what an interrupted change left: every directory that the record does not name.
    pub(crate) fn remove_leftovers(&self, record: Option<&LayoutRecord>) -> Result<()> {
        let mut keep = Vec::new();
        if let Some(record) = record {
            keep.push(self.state(record.state));
            keep.push(self.programs(record.programs));
            keep.push(self.flows(record.flow_layout, record.sizes.buckets()));
            if record.old_buckets > 0 {
                keep.push(self.flows(record.old_flow_layout, record.old_buckets));
            }
        }
        remove_file(&self.layout_staging())?;
        for path in entries(&self.root)? {
            if is_generation(&path) && !keep.contains(&path) {
                remove_tree(&path)?;
            }
        }
        Ok(())
    }

    /// The links pinned here.
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

    /// Everything below the directory, sorted by path; empty when it does not exist.
    ///
    /// # Errors
    /// A directory cannot be read.
    pub fn list(&self) -> Result<Vec<Pinned>> {
        let mut found = Vec::new();
        if !self.root.exists() {
            return Ok(found);
        }
        for path in entries(&self.root)? {
            if is_generation(&path) {
                for inner in entries(&path)? {
                    let kind = if file_name(&path).starts_with("prog-") && inner_is_program(&inner)
                    {
                        PinKind::Program
                    } else {
                        PinKind::Map
                    };
                    found.push(Pinned { path: inner, kind });
                }
                found.push(Pinned {
                    path,
                    kind: PinKind::Directory,
                });
            } else if let Some((ifindex, hook)) = parse_link(&path) {
                found.push(Pinned {
                    path,
                    kind: PinKind::Link { ifindex, hook },
                });
            } else if path == self.layout() || path == self.layout_staging() {
                found.push(Pinned {
                    path,
                    kind: PinKind::Map,
                });
            } else {
                found.push(Pinned {
                    path,
                    kind: PinKind::Foreign,
                });
            }
        }
        found.sort();
        Ok(found)
    }

    /// Unpins everything of Weir's here but links and clsact filters, the record last; then removes the directory if it is empty.
    pub(crate) fn remove_all(&self) -> Result<()> {
        for path in entries(&self.root)? {
            if is_generation(&path) {
                remove_tree(&path)?;
            }
        }
        remove_file(&self.layout_staging())?;
        remove_file(&self.layout())?;
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

fn file_name(path: &Path) -> &str {
    path.file_name().and_then(OsStr::to_str).unwrap_or_default()
}

fn is_generation(path: &Path) -> bool {
    ["state-", "flows-", "prog-"]
        .iter()
        .any(|prefix| file_name(path).starts_with(prefix))
}

/// Maps that belong to a program generation are pinned beside its programs.
fn inner_is_program(path: &Path) -> bool {
    !crate::loader::OWN_MAPS.contains(&file_name(path))
}

fn parse_link(path: &Path) -> Option<(u32, Hook)> {
    let (ifindex, hook) = file_name(path).strip_prefix("link-")?.split_once('-')?;
    let hook = Hook::ALL.into_iter().find(|known| known.name() == hook)?;
    Some((ifindex.parse().ok()?, hook))
}

fn entries(directory: &Path) -> Result<impl Iterator<Item = PathBuf>> {
    let found: io::Result<Vec<PathBuf>> = fs::read_dir(directory)
        .and_then(|entries| entries.map(|entry| Ok(entry?.path())).collect());
    Ok(found.at(directory)?.into_iter())
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
    fn every_link_name_is_read_back() {
        let pins = PinDir::new("/pins");
        for hook in Hook::ALL {
            assert_eq!(parse_link(&pins.link(7, hook)), Some((7, hook)));
        }
        assert_eq!(parse_link(Path::new("/pins/link-x-xdp")), None);
        assert_eq!(parse_link(Path::new("/pins/link-1-elsewhere")), None);
    }

    #[test]
    fn a_listing_of_nothing_is_empty() {
        assert_eq!(
            PinDir::new("/nonexistent/weir").list().ok(),
            Some(Vec::new())
        );
    }
}
