//! Opens, creates and identifies network namespaces, and runs code in them.
//!
//! A namespace is a property of a thread: sockets are opened and programs attached in the namespace of the calling
//! thread. [`NetNs::enter`] changes the namespace until its guard is dropped, and [`NetNs::run`] runs a closure on a
//! new thread. Async code must use `run`, because a task may continue on a different thread.

#![allow(
    unsafe_code,
    reason = "unshare(2) and getsockopt(SO_NETNS_COOKIE) have no safe wrapper"
)]

use std::fs::File;
use std::marker::PhantomData;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::thread;

use rustix::net::{AddressFamily, SocketType, socket};
use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space, unshare_unsafe};

use crate::{Error, Result};

const THREAD_NETNS: &str = "/proc/thread-self/ns/net";
const NAMED_NETNS: &str = "/run/netns";

/// Identifies a namespace while it exists.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct NetNsId {
    /// The device number of nsfs.
    pub device: u64,
    /// The inode number, which `lsns` and `/proc/PID/ns/net` show.
    pub inode: u64,
}

/// A network namespace, kept alive by an open file.
#[derive(Debug)]
pub struct NetNs {
    file: File,
    path: PathBuf,
}

impl NetNs {
    /// Returns the calling thread's network namespace.
    ///
    /// # Errors
    /// Fails if `/proc` is not mounted.
    pub fn current() -> Result<Self> {
        Self::open(THREAD_NETNS)
    }

    /// Opens the namespace that `path` refers to: `/proc/PID/ns/net` or a bind mount of it.
    ///
    /// # Errors
    /// Fails if the file does not exist or cannot be opened.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let file = File::open(path).map_err(|error| Error::file(path, error))?;
        Ok(Self {
            file,
            path: path.to_owned(),
        })
    }

    /// Opens the namespace that `ip netns` lists as `name`.
    ///
    /// # Errors
    /// See [`NetNs::open`]. A name that is empty, `.` or `..`, or contains `/`, is not found.
    pub fn open_named(name: &str) -> Result<Self> {
        if name.is_empty() || name.contains('/') || name == "." || name == ".." {
            return Err(Error::file(
                Path::new(NAMED_NETNS).join(name),
                std::io::Error::from(std::io::ErrorKind::NotFound),
            ));
        }
        Self::open(Path::new(NAMED_NETNS).join(name))
    }

    /// Creates a namespace without a name. The namespace exists while a file, socket or thread refers to it.
    ///
    /// # Errors
    /// Fails if the process lacks `CAP_SYS_ADMIN`, or the namespace limit is reached.
    pub fn create() -> Result<Self> {
        let created = thread::scope(|scope| {
            scope
                .spawn(|| {
                    // SAFETY: this changes only the network namespace of this short-lived thread, and not its file
                    // table.
                    unsafe { unshare_unsafe(UnshareFlags::NEWNET) }
                        .map_err(|error| Error::call("unshare", "network namespace", error))?;
                    Self::current()
                })
                .join()
        });
        created.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }

    /// Returns the namespace's identity.
    ///
    /// # Errors
    /// Fails if fstat(2) fails.
    pub fn id(&self) -> Result<NetNsId> {
        let metadata = self
            .file
            .metadata()
            .map_err(|error| Error::file(&self.path, error))?;
        Ok(NetNsId {
            device: metadata.dev(),
            inode: metadata.ino(),
        })
    }

    /// Returns the namespace's cookie; unique until the next reboot. `bpf_get_netns_cookie` returns the same value.
    ///
    /// # Errors
    /// Fails if the namespace cannot be entered, or the kernel is older than 5.14.
    pub fn cookie(&self) -> Result<u64> {
        let subject = || self.path.display().to_string();
        let socket = {
            let _inside = self.enter()?;
            socket(AddressFamily::INET, SocketType::DGRAM, None)
                .map_err(|error| Error::call("socket", subject(), error))?
        };
        let mut cookie = 0_u64;
        let mut length = size_of::<u64>() as libc::socklen_t;
        // SAFETY: the pointers point to live local variables, and `length` is the size of `cookie`.
        let status = unsafe {
            libc::getsockopt(
                socket.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_NETNS_COOKIE,
                (&raw mut cookie).cast(),
                &raw mut length,
            )
        };
        if status != 0 {
            let cause = std::io::Error::last_os_error();
            return Err(Error::call("getsockopt SO_NETNS_COOKIE", subject(), cause));
        }
        Ok(cookie)
    }

    /// Moves the calling thread into the namespace until the guard is dropped on the same thread. Nested guards must be
    /// dropped in reverse order.
    ///
    /// # Errors
    /// Fails if the process lacks `CAP_SYS_ADMIN`, or the file is not a network namespace.
    pub fn enter(&self) -> Result<NetNsGuard> {
        let previous = Self::current()?;
        self.set_current()?;
        Ok(NetNsGuard {
            previous,
            not_send: PhantomData,
        })
    }

    /// Runs `work` on a new thread in the namespace and returns its result. Threads that `work` starts, such as those
    /// of an async runtime, are in the namespace too.
    ///
    /// # Errors
    /// See [`NetNs::enter`].
    /// # Panics
    /// If `work` panics.
    pub fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T> {
        let result = thread::scope(|scope| {
            scope
                .spawn(|| {
                    self.set_current()?;
                    Ok(work())
                })
                .join()
        });
        result.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }

    fn set_current(&self) -> Result<()> {
        move_into_link_name_space(self.file.as_fd(), Some(LinkNameSpaceType::Network))
            .map_err(|error| Error::call("setns", self.path.display().to_string(), error))
    }
}

impl AsFd for NetNs {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// Guard of a thread that has entered a network namespace. Dropping it returns the thread to the previous namespace.
#[derive(Debug)]
#[must_use = "the thread leaves the namespace when this is dropped"]
pub struct NetNsGuard {
    previous: NetNs,
    /// The guard must be dropped on the thread that created it.
    not_send: PhantomData<*const ()>,
}

impl Drop for NetNsGuard {
    fn drop(&mut self) {
        if let Err(error) = self.previous.set_current() {
            // Continuing could change the wrong namespace.
            eprintln!("failed to return to the previous network namespace: {error}");
            std::process::abort();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_must_not_be_a_path() {
        for name in ["", ".", "..", "../../proc/self/ns/net", "a/b"] {
            assert!(NetNs::open_named(name).is_err(), "{name:?}");
        }
    }

    #[test]
    fn thread_enters_and_leaves_namespace() {
        if !weir_testing::require_root() {
            return;
        }
        let initial = NetNs::current().unwrap().id().unwrap();
        let other_namespace = NetNs::create().unwrap();
        assert_ne!(other_namespace.id().unwrap(), initial);
        {
            let _inside = other_namespace.enter().unwrap();
            assert_eq!(
                NetNs::current().unwrap().id().unwrap(),
                other_namespace.id().unwrap()
            );
        }
        assert_eq!(NetNs::current().unwrap().id().unwrap(), initial);
        let inside = other_namespace.run(|| NetNs::current().unwrap().id().unwrap());
        assert_eq!(inside.unwrap(), other_namespace.id().unwrap());
    }

    #[test]
    fn cookies_identify_namespaces() {
        if !weir_testing::require_root() {
            return;
        }
        let (first, second) = (NetNs::create().unwrap(), NetNs::create().unwrap());
        assert_eq!(first.cookie().unwrap(), first.cookie().unwrap());
        assert_ne!(first.cookie().unwrap(), second.cookie().unwrap());
    }

    #[test]
    fn file_that_is_not_a_namespace_is_rejected() {
        if !weir_testing::require_root() {
            return;
        }
        let error = NetNs::open("/proc/self/status").unwrap().enter();
        assert!(error.is_err());
    }
}
