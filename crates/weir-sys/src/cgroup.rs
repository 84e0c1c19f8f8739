//! Opens directories in the cgroup2 hierarchy.

use std::fs::{self, File};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags, fstatfs, openat};
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsmount, fsopen};

use crate::{Error, Result};

// linux/magic.h
const CGROUP2_SUPER_MAGIC: u64 = 0x6367_7270;

/// An open cgroup.
#[derive(Debug)]
pub struct Cgroup {
    directory: OwnedFd,
    id: u64,
}

impl Cgroup {
    /// Opens the cgroup with this directory.
    ///
    /// # Errors
    /// Fails if the directory does not exist, or is not in a cgroup2 file system.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC;
        let directory =
            openat(CWD, path, flags, Mode::empty()).map_err(|error| Error::file(path, error))?;
        Self::from_directory(directory, &path.display().to_string())
    }

    /// Opens the root of the hierarchy. If the hierarchy is not mounted, creates a detached mount, which no process can
    /// see.
    ///
    /// # Errors
    /// Fails if the hierarchy is not mounted, and the process lacks `CAP_SYS_ADMIN`.
    pub fn root() -> Result<Self> {
        if let Some(path) = mounted_root() {
            return Self::open(path);
        }
        let call_error = |call| move |error| Error::call(call, "cgroup2", error);
        let context =
            fsopen("cgroup2", FsOpenFlags::FSOPEN_CLOEXEC).map_err(call_error("fsopen"))?;
        fsconfig_create(context.as_fd()).map_err(call_error("fsconfig"))?;
        let flags = MountAttrFlags::MOUNT_ATTR_NOSUID
            | MountAttrFlags::MOUNT_ATTR_NODEV
            | MountAttrFlags::MOUNT_ATTR_NOEXEC;
        let mount = fsmount(context.as_fd(), FsMountFlags::FSMOUNT_CLOEXEC, flags)
            .map_err(call_error("fsmount"))?;
        // The descriptor of a mount is an O_PATH descriptor, which bpf(2) does not accept.
        let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC;
        let root = openat(&mount, ".", flags, Mode::empty()).map_err(call_error("openat"))?;
        Self::from_directory(root, "cgroup2")
    }

    fn from_directory(directory: OwnedFd, subject: &str) -> Result<Self> {
        let stat = fstatfs(&directory).map_err(|error| Error::call("fstatfs", subject, error))?;
        if stat.f_type as u64 & 0xffff_ffff != CGROUP2_SUPER_MAGIC {
            return Err(Error::Format {
                subject: subject.to_owned(),
                expected: "a cgroup2 directory",
                found: "a different file system".to_owned(),
            });
        }
        let file = File::from(directory);
        // The inode number is the ID of the cgroup.
        let id = file
            .metadata()
            .map_err(|error| Error::file(Path::new(subject), error))?
            .ino();
        Ok(Self {
            directory: file.into(),
            id,
        })
    }

    /// Returns the kernel's ID of the cgroup.
    pub const fn id(&self) -> u64 {
        self.id
    }
}

impl AsFd for Cgroup {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.directory.as_fd()
    }
}

/// Returns the mount point of the root of the hierarchy.
fn mounted_root() -> Option<PathBuf> {
    mount_point(&fs::read_to_string("/proc/thread-self/mountinfo").ok()?)
}

/// Returns the mount point of the whole cgroup2 hierarchy in a `mountinfo` file (proc_pid_mountinfo(5)).
fn mount_point(table: &str) -> Option<PathBuf> {
    table.lines().find_map(|line| {
        let (mount, file_system) = line.split_once(" - ")?;
        let mut fields = mount.split(' ').skip(3);
        let (root, point) = (fields.next()?, fields.next()?);
        let is_whole = root == "/" && file_system.split(' ').next() == Some("cgroup2");
        // Escaped paths are not decoded; a different mount is used.
        (is_whole && !point.contains('\\')).then(|| PathBuf::from(point))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mount_of_the_whole_hierarchy_is_found() {
        let table = "30 23 0:26 /x /mnt rw,nosuid - cgroup2 cgroup2 rw\n\
                     31 23 0:27 / /sys/fs/cgroup/pids rw - cgroup cgroup rw,pids\n\
                     32 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw\n";
        assert_eq!(mount_point(table), Some(PathBuf::from("/sys/fs/cgroup")));
        assert_eq!(mount_point("garbage\n30 23 - cgroup2"), None);
    }

    #[test]
    fn root_is_opened_and_directory_outside_the_hierarchy_is_rejected() {
        if !weir_testing::require_root() {
            return;
        }
        assert!(Cgroup::root().unwrap().id() > 0);
        assert!(Cgroup::open("/proc").is_err());
    }
}
