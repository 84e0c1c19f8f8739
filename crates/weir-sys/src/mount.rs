//! The file systems that Weir pins into and reads from.
//!
//! `ip netns exec` and service sandboxes give a process its own mounts, where
//! `/sys` is a fresh sysfs without bpffs and cgroup2. This module states what is
//! there and mounts bpffs at a given path; whether to do so is the caller's
//! decision.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::fs::statfs;
use rustix::io::Errno;
use rustix::mount::{MountFlags, mount};

use crate::{Error, Result};

// linux/magic.h
const BPF_FS_MAGIC: u64 = 0xcafe_4a11;
const SYSFS_MAGIC: u64 = 0x6265_6572;
const CGROUP2_SUPER_MAGIC: u64 = 0x6367_7270;

/// What is at a path where bpffs is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bpffs {
    /// A bpffs: objects can be pinned below it.
    Mounted,
    /// The path exists on another file system, whose magic this is.
    NotMounted {
        /// `f_type` of statfs(2).
        magic: u64,
    },
    /// Nothing of that name.
    Missing,
}

/// Whether `path` lies on a bpffs in the calling thread's mount namespace.
///
/// # Errors
/// The path cannot be examined, for a reason other than its absence.
pub fn bpffs_at(path: impl AsRef<Path>) -> Result<Bpffs> {
    Ok(match magic_of(path.as_ref())? {
        None => Bpffs::Missing,
        Some(BPF_FS_MAGIC) => Bpffs::Mounted,
        Some(magic) => Bpffs::NotMounted { magic },
    })
}

/// Mounts a bpffs, open to root only, on the existing directory `path`.
/// A second call stacks a second mount: ask [`bpffs_at`] first.
///
/// # Errors
/// The directory is missing, or the process lacks `CAP_SYS_ADMIN`.
pub fn mount_bpffs(path: impl AsRef<Path>) -> Result<()> {
    let path = path.as_ref();
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    mount("bpf", path, "bpf", flags, Some(c"mode=0700"))
        .map_err(|e| Error::call("mount bpf", path.display().to_string(), e))
}

/// Facts about the mounts that the calling thread sees.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MountView {
    /// `/sys` is a sysfs.
    pub sysfs: bool,
    /// What is at `/sys/fs/bpf`.
    pub bpffs: Bpffs,
    /// `/sys/fs/cgroup` is a cgroup2.
    pub cgroup2: bool,
    /// Whether this is the mount namespace of process 1; `None` when that may not
    /// be looked at (`hidepid`, no privilege).
    pub shared_with_init: Option<bool>,
}

impl MountView {
    /// Looks at the calling thread's mounts.
    ///
    /// # Errors
    /// A path exists and cannot be examined.
    pub fn current() -> Result<Self> {
        let namespace_of = |process: &str| {
            let path = format!("/proc/{process}/ns/mnt");
            fs::metadata(path).ok().map(|m| (m.dev(), m.ino()))
        };
        Ok(Self {
            sysfs: magic_of(Path::new("/sys"))? == Some(SYSFS_MAGIC),
            bpffs: bpffs_at("/sys/fs/bpf")?,
            cgroup2: magic_of(Path::new("/sys/fs/cgroup"))? == Some(CGROUP2_SUPER_MAGIC),
            shared_with_init: namespace_of("1")
                .zip(namespace_of("thread-self"))
                .map(|(init, own)| init == own),
        })
    }

    /// The look of `ip netns exec`: a `/sys` on which nothing is mounted, in a mount
    /// namespace that is not known to be the host's. What is pinned here is most
    /// likely invisible to the host.
    pub fn has_fresh_sys(&self) -> bool {
        self.shared_with_init != Some(true)
            && self.sysfs
            && !self.cgroup2
            && self.bpffs != Bpffs::Mounted
    }
}

fn magic_of(path: &Path) -> Result<Option<u64>> {
    match statfs(path) {
        // The kernel's magics are 32 bits wide; f_type may sign-extend them.
        Ok(facts) => Ok(Some(facts.f_type as u64 & 0xffff_ffff)),
        Err(Errno::NOENT | Errno::NOTDIR) => Ok(None),
        Err(e) => Err(Error::call("statfs", path.display().to_string(), e)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proc_is_no_bpffs_and_absence_is_no_error() {
        assert_eq!(
            bpffs_at("/proc").unwrap(),
            Bpffs::NotMounted { magic: 0x9fa0 }
        );
        assert_eq!(bpffs_at("/nonexistent/bpf").unwrap(), Bpffs::Missing);
    }

    #[test]
    fn fresh_sys_has_no_mounts() {
        let view = MountView {
            sysfs: true,
            bpffs: Bpffs::NotMounted { magic: SYSFS_MAGIC },
            cgroup2: false,
            shared_with_init: Some(false),
        };
        assert!(view.has_fresh_sys());
        for other in [
            MountView {
                bpffs: Bpffs::Mounted,
                ..view
            },
            MountView {
                cgroup2: true,
                ..view
            },
            MountView {
                shared_with_init: Some(true),
                ..view
            },
        ] {
            assert!(!other.has_fresh_sys(), "{other:?}");
        }
    }

    /// In a mount namespace of its own thread, so that the host never sees it.
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
                // Unknown where process 1 may not be looked at.
                let shared = MountView::current().unwrap().shared_with_init;
                assert_ne!(shared, Some(true));
            });
        });
        assert_ne!(bpffs_at(&directory).unwrap(), Bpffs::Mounted);
        fs::remove_dir(&directory).unwrap();
    }
}
