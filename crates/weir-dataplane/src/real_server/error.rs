//! Why the real server's programs could not be put in place, read or removed.

use std::io;
use std::path::{Path, PathBuf};

use aya::maps::MapError;
use aya::programs::ProgramError;
use aya::programs::links::LinkError;

/// The result of every fallible function of this module.
pub type Result<T> = std::result::Result<T, Error>;

/// See the module.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The object could not be loaded.
    #[error("cannot load the real server's programs: {source}")]
    Load {
        /// The loader's answer.
        source: Box<aya::EbpfError>,
    },
    /// The embedded object lacks a part: a defect of the build.
    #[error("the real server's object lacks {missing}")]
    Object {
        /// Map or program.
        missing: &'static str,
    },
    /// A program could not be verified, attached or inspected.
    #[error("cannot {action} a program: {source}")]
    Program {
        /// What was tried.
        action: &'static str,
        /// The kernel's answer, with the verifier's log when it refused.
        source: Box<ProgramError>,
    },
    /// A map could not be read or written.
    #[error("map {map}: {source}")]
    Map {
        /// Which.
        map: &'static str,
        /// The kernel's answer.
        source: Box<MapError>,
    },
    /// A link could not be opened.
    #[error("{path}: {source}", path = path.display())]
    Link {
        /// The pin.
        path: PathBuf,
        /// The kernel's answer.
        source: Box<LinkError>,
    },
    /// A pin could not be made, read or removed.
    #[error("{path}: {source}", path = path.display())]
    Pin {
        /// The pin or its directory.
        path: PathBuf,
        /// The kernel's answer.
        source: io::Error,
    },
    /// There is no place for pins that outlive this process.
    #[error("{path}: {reason}", path = path.display())]
    NoBpffs {
        /// Where a bpffs is needed.
        path: PathBuf,
        /// Why there is none, and what to do.
        reason: &'static str,
    },
    /// The bpffs could not be examined or mounted.
    #[error(transparent)]
    Mount(#[from] weir_sys::Error),
    /// The number of CPUs could not be found.
    #[error("{what}: {source}")]
    Cpus {
        /// What was read.
        what: &'static str,
        /// The kernel's answer.
        source: io::Error,
    },
    /// The rules hold more than the maps take.
    #[error("{count} {what}: at most {limit}")]
    Limit {
        /// Of what.
        what: &'static str,
        /// How many there are.
        count: usize,
        /// How many may be.
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
