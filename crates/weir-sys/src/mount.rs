//! Reports mounts of bpffs, sysfs and cgroups, and mounts bpffs.
//!
//! `ip netns exec` runs a process in a separate mount namespace, where `/sys` is a new sysfs without bpffs and cgroups.
//! This module reports the mounts, and mounts bpffs at a specified path; the caller decides whether to mount it.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, absolute};

use rustix::fs::statfs;
use rustix::io::Errno;
use rustix::mount::{MountFlags, mount};

use crate::{Error, Result};

// linux/magic.h
const BPF_FS_MAGIC: u64 = 0xcafe_4a11;
const SYSFS_MAGIC: u64 = 0x6265_6572;

/// The file system at a path where bpffs is expected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bpffs {
    /// The path is on a bpffs, where objects can be pinned.
    Mounted,
    /// The path is on a different file system.
    NotMounted {
        /// The magic number of the file system: `f_type` of statfs(2).
        magic: u64,
    },
    /// The path does not exist.
    Missing,
}

/// Returns whether `path` is on a bpffs in the calling thread's mount namespace.
///
/// # Errors
/// Fails if statfs(2) fails for a reason other than a missing path.
pub fn bpffs_at(path: impl AsRef<Path>) -> Result<Bpffs> {
    Ok(match magic_of(path.as_ref())? {
        None => Bpffs::Missing,
        Some(BPF_FS_MAGIC) => Bpffs::Mounted,
        Some(magic) => Bpffs::NotMounted { magic },
    })
}

/// Mounts a bpffs with mode 0700 on the existing directory `path`. A second call would mount a second bpffs over it:
/// call [`bpffs_at`] first.
///
/// # Errors
/// Fails if the directory is missing, or the process lacks `CAP_SYS_ADMIN`.
pub fn mount_bpffs(path: impl AsRef<Path>) -> Result<()> {
    let path = path.as_ref();
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    mount("bpf", path, "bpf", flags, Some(c"mode=0700"))
        .map_err(|error| Error::call("mount bpf", path.display().to_string(), error))
}

/// State of the calling thread's mounts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MountView {
    /// Whether `/sys` is a sysfs.
    pub sysfs: bool,
    /// Whether a cgroup file system, of version 1 or 2, is mounted on `/sys/fs/cgroup`.
    pub cgroups: bool,
    /// Whether this is the mount namespace of process 1; `None` = it cannot be read (`hidepid`, missing privileges).
    pub is_init_namespace: Option<bool>,
}

impl MountView {
    /// Reads the calling thread's mounts.
    ///
    /// # Errors
    /// Fails if statfs(2) fails for an existing path.
    pub fn current() -> Result<Self> {
        let namespace_of = |process: &str| {
            let path = format!("/proc/{process}/ns/mnt");
            fs::metadata(path)
                .ok()
                .map(|metadata| (metadata.dev(), metadata.ino()))
        };
        Ok(Self {
            sysfs: magic_of(Path::new("/sys"))? == Some(SYSFS_MAGIC),
            // Without a mount, this is a directory of the sysfs.
            cgroups: magic_of(Path::new("/sys/fs/cgroup"))?.is_some_and(|it| it != SYSFS_MAGIC),
            is_init_namespace: namespace_of("1")
                .zip(namespace_of("thread-self"))
                .map(|(init, current)| init == current),
        })
    }

    /// Returns whether the mounts look like those of `ip netns exec`: `/sys` is a new sysfs, and the mount namespace is
    /// not known to be the host's. A bpffs that is mounted in such a namespace is not visible on the host.
    pub fn resembles_ip_netns_exec(&self) -> bool {
        self.is_init_namespace != Some(true) && self.sysfs && !self.cgroups
    }
}

/// Returns whether objects that are pinned at `path` are lost when the mount namespace ends: the namespace looks like
/// that of `ip netns exec`, and `path` is on a bpffs that only this namespace has, or on none, in which case Weir
/// mounts one. The caller must be root. Returns `false` for a bpffs outside /sys if the mounts of process 1 cannot be
/// read.
///
/// # Errors
/// Fails if statfs(2) fails for an existing path, or the current directory is unknown.
pub fn pins_end_with_namespace(path: impl AsRef<Path>) -> Result<bool> {
    if !MountView::current()?.resembles_ip_netns_exec() {
        return Ok(false);
    }
    let path = path.as_ref();
    let path = absolute(path).map_err(|error| Error::file(path, error))?;
    let existing_path = path.ancestors().find_map(|path| path.canonicalize().ok());
    let existing_path = existing_path.unwrap_or_else(|| "/".into());
    if bpffs_at(&existing_path)? != Bpffs::Mounted {
        return Ok(true);
    }
    let device = |path: &Path| fs::metadata(path).map(|metadata| metadata.dev());
    let own = device(&existing_path).map_err(|error| Error::file(&existing_path, error))?;
    let on_host =
        Path::new("/proc/1/root").join(existing_path.strip_prefix("/").unwrap_or(&existing_path));
    Ok(match device(&on_host) {
        Ok(host) => host != own,
        Err(error) if error.kind() == ErrorKind::NotFound => true,
        // A new /sys has no mounts of the host, so a bpffs below it is visible only in this namespace.
        Err(_) => existing_path.starts_with("/sys"),
    })
}

fn magic_of(path: &Path) -> Result<Option<u64>> {
    match statfs(path) {
        // Magic numbers have 32 bits, but f_type may be sign-extended.
        Ok(stat) => Ok(Some(stat.f_type as u64 & 0xffff_ffff)),
        Err(Errno::NOENT | Errno::NOTDIR) => Ok(None),
        Err(error) => Err(Error::call("statfs", path.display().to_string(), error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proc_is_not_bpffs_and_missing_path_is_not_an_error() {
        assert_eq!(
            bpffs_at("/proc").unwrap(),
            Bpffs::NotMounted { magic: 0x9fa0 }
        );
        assert_eq!(bpffs_at("/nonexistent/bpf").unwrap(), Bpffs::Missing);
    }

    #[test]
    fn mounts_of_ip_netns_exec_are_recognized() {
        let view = MountView {
            sysfs: true,
            cgroups: false,
            is_init_namespace: Some(false),
        };
        assert!(view.resembles_ip_netns_exec());
        for other in [
            MountView {
                cgroups: true,
                ..view
            },
            MountView {
                is_init_namespace: Some(true),
                ..view
            },
        ] {
            assert!(!other.resembles_ip_netns_exec(), "{other:?}");
        }
    }

    /// Mounts in a separate mount namespace, so the host is not affected.
    #[test]
    #[allow(unsafe_code, reason = "unshare(2)")]
    fn mounted_bpffs_is_found() {
        use rustix::mount::{MountPropagationFlags, mount_change};
        use rustix::thread::{UnshareFlags, unshare_unsafe};

        if !weir_testing::require_root() {
            return;
        }
        let directory = std::env::temp_dir().join(format!("weir-bpffs-{}", std::process::id()));
        fs::create_dir(&directory).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                // SAFETY: no file descriptor table is unshared.
                unsafe { unshare_unsafe(UnshareFlags::NEWNS | UnshareFlags::FS) }.unwrap();
                let private = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
                mount_change("/", private).unwrap();
                assert_ne!(bpffs_at(&directory).unwrap(), Bpffs::Mounted);
                mount_bpffs(&directory).unwrap();
                assert_eq!(bpffs_at(&directory).unwrap(), Bpffs::Mounted);
                // The result is unknown if the namespace of process 1 cannot be read.
                let shared = MountView::current().unwrap().is_init_namespace;
                assert_ne!(shared, Some(true));
            });
        });
        assert_ne!(bpffs_at(&directory).unwrap(), Bpffs::Mounted);
        fs::remove_dir(&directory).unwrap();
    }
}
