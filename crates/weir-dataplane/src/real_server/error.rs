//! Defines the errors of installing, reading or removing the real server's programs.

use std::io;
use std::path::{Path, PathBuf};

use aya::maps::MapError;
use aya::programs::ProgramError;
use aya::programs::links::LinkError;

/// The result of every fallible function of this module.
pub type Result<T> = std::result::Result<T, Error>;

/// Why the real server's programs cannot be installed, read or removed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The object cannot be loaded.
    #[error("failed to load the real server's programs: {source}")]
    Load {
        /// The loader's error.
        source: Box<aya::EbpfError>,
    },
    /// The embedded object is incomplete, which is a bug in the build.
    #[error("the real server's object lacks {missing}")]
    Object {
        /// Name of the missing map or program.
        missing: &'static str,
    },
    /// A program cannot be verified, attached or inspected.
    #[error("failed to {action} a program: {source}")]
    Program {
        /// The operation, as a verb, such as "attach".
        action: &'static str,
        /// The kernel's error, with the verifier's log.
        source: Box<ProgramError>,
    },
    /// A map cannot be read or written.
    #[error("map {map}: {source}")]
    Map {
        /// Its name.
        map: &'static str,
        /// The kernel's error.
        source: Box<MapError>,
    },
    /// A link cannot be opened, inspected or prepared for pinning.
    #[error("{path}: {source}", path = path.display())]
    Link {
        /// The pin.
        path: PathBuf,
        /// The kernel's error.
        source: Box<LinkError>,
    },
    /// A pin cannot be created, read or removed.
    #[error("{path}: {source}", path = path.display())]
    Pin {
        /// The pin or its directory.
        path: PathBuf,
        /// The kernel's error.
        source: io::Error,
    },
    /// There is no bpffs for pins, which must outlive this process.
    #[error("{path}: {reason}", path = path.display())]
    NoBpffs {
        /// The path that must be on a bpffs.
        path: PathBuf,
        /// The cause and its fix.
        reason: &'static str,
    },
    /// The bpffs cannot be examined or mounted.
    #[error(transparent)]
    Mount(#[from] weir_sys::Error),
    /// The number of CPUs cannot be determined.
    #[error("{subject}: {source}")]
    Cpus {
        /// The file or value that was read.
        subject: &'static str,
        /// The kernel's error.
        source: io::Error,
    },
    /// The rules exceed the size of a map.
    #[error("too many {subject}: {count}, the maximum is {limit}")]
    Limit {
        /// The kind of rules.
        subject: &'static str,
        /// Their number.
        count: usize,
        /// The maximum.
        limit: usize,
    },
}

impl Error {
    pub(super) fn load(source: aya::EbpfError) -> Self {
        Self::Load {
            source: Box::new(source),
        }
    }

    pub(super) fn program(action: &'static str, source: ProgramError) -> Self {
        Self::Program {
            action,
            source: Box::new(source),
        }
    }

    pub(super) fn map(map: &'static str, source: MapError) -> Self {
        Self::Map {
            map,
            source: Box::new(source),
        }
    }

    pub(super) fn link(path: &Path, source: LinkError) -> Self {
        Self::Link {
            path: path.to_owned(),
            source: Box::new(source),
        }
    }

    pub(super) fn pin(path: &Path, source: io::Error) -> Self {
        Self::Pin {
            path: path.to_owned(),
            source,
        }
    }
}
