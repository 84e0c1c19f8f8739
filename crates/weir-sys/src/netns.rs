//! Network namespaces: which one, and being in another for a while.
//!
//! A namespace is a property of a thread. Whatever opens a netlink socket,
//! attaches a program or listens does so in the namespace of the thread that
//! calls; [`NetNs::enter`] changes that until its guard goes, and
//! [`NetNs::run`] gives the work a thread of its own. Inside an async runtime
//! only the latter is right: a task may wake on another thread.

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

/// Which namespace: equal exactly for the same one, as long as it lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct NetNsId {
    /// Device of nsfs.
    pub device: u64,
    /// Inode on it, the number that `lsns` and `/proc/PID/ns/net` show.
    pub inode: u64,
}

/// A network namespace, kept alive by an open file.
#[derive(Debug)]
pub struct NetNs {
    file: File,
    path: PathBuf,
}

impl NetNs {
    /// The calling thread's.
    ///
    /// # Errors
    /// `/proc` is not mounted.
    pub fn current() -> Result<Self> {
        Self::open(THREAD_NETNS)
    }

    /// The one that `path` (`/proc/PID/ns/net`, a bind mount of it) refers to.
    ///
    /// # Errors
    /// There is no such file, or it may not be opened.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let file = File::open(path).map_err(|e| Error::file(path, e))?;
        Ok(Self {
            file,
            path: path.to_owned(),
        })
    }

    /// The one that `ip netns` calls `name`.
    ///
    /// # Errors
    /// As [`NetNs::open`]; a name with `/` in it names nothing.
    pub fn named(name: &str) -> Result<Self> {
        if name.is_empty() || name.contains('/') || name == "." || name == ".." {
            return Err(Error::file(
                Path::new(NAMED_NETNS).join(name),
                std::io::Error::from(std::io::ErrorKind::NotFound),
            ));
        }
        Self::open(Path::new(NAMED_NETNS).join(name))
    }

    /// A new one without a name; it ends with the last file, socket or thread
    /// that refers to it.
    ///
    /// # Errors
    /// The process lacks `CAP_SYS_ADMIN`, or the limit of namespaces is reached.
    pub fn create() -> Result<Self> {
        let made = thread::scope(|scope| {
            scope
                .spawn(|| {
                    // SAFETY: only the network namespace of this short-lived thread
                    // changes; the file table, which the contract is about, does not.
                    unsafe { unshare_unsafe(UnshareFlags::NEWNET) }
                        .map_err(|e| Error::call("unshare", "network namespace", e))?;
                    Self::current()
                })
                .join()
        });
        made.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }

    /// Which one this is.
    ///
    /// # Errors
    /// fstat(2) failed.
    pub fn id(&self) -> Result<NetNsId> {
        let facts = self
            .file
            .metadata()
            .map_err(|e| Error::file(&self.path, e))?;
        Ok(NetNsId {
            device: facts.dev(),
            inode: facts.ino(),
        })
    }

    /// The number that BPF's `bpf_get_netns_cookie` returns inside, unique since boot.
    ///
    /// # Errors
    /// The namespace cannot be entered, or the kernel is older than 5.14.
    pub fn cookie(&self) -> Result<u64> {
        let subject = || self.path.display().to_string();
        let socket = {
            let _inside = self.enter()?;
            socket(AddressFamily::INET, SocketType::DGRAM, None)
                .map_err(|e| Error::call("socket", subject(), e))?
        };
        let mut cookie = 0_u64;
        let mut length = size_of::<u64>() as libc::socklen_t;
        // SAFETY: the pointers are to live locals, and `length` is the size of the first.
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

    /// Moves the calling thread in until the guard is dropped, on the same thread.
    /// Guards nest; drop them in reverse order.
    ///
    /// # Errors
    /// The process lacks `CAP_SYS_ADMIN`, or the file is no network namespace.
    pub fn enter(&self) -> Result<Entered> {
        let previous = Self::current()?;
        self.move_in()?;
        Ok(Entered {
            previous,
            thread_bound: PhantomData,
        })
    }

    /// Runs `work` on a new thread inside, and returns what it returns. Threads
    /// that `work` starts (an async runtime's) are inside too.
    ///
    /// # Errors
    /// As [`NetNs::enter`].
    ///
    /// # Panics
    /// When `work` does.
    pub fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T> {
        let done = thread::scope(|scope| {
            scope
                .spawn(|| {
                    self.move_in()?;
                    Ok(work())
                })
                .join()
        });
        done.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }

    fn move_in(&self) -> Result<()> {
        move_into_link_name_space(self.file.as_fd(), Some(LinkNameSpaceType::Network))
            .map_err(|e| Error::call("setns", self.path.display().to_string(), e))
    }
}

impl AsFd for NetNs {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// The calling thread is in another network namespace; dropping this brings it back.
#[derive(Debug)]
#[must_use = "the thread leaves the namespace when this is dropped"]
pub struct Entered {
    previous: NetNs,
    /// The namespace is this thread's, so the way back is too.
    thread_bound: PhantomData<*const ()>,
}

impl Drop for Entered {
    fn drop(&mut self) {
        if let Err(error) = self.previous.move_in() {
            // Going on would configure the wrong machine's network.
            eprintln!("cannot return to the previous network namespace: {error}");
            std::process::abort();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn odd_names_are_not_paths() {
        for name in ["", ".", "..", "../../proc/self/ns/net", "a/b"] {
            assert!(NetNs::named(name).is_err(), "{name:?}");
        }
    }

    #[test]
    fn entering_and_leaving() {
        if !weir_testing::require_root() {
            return;
        }
        let home = NetNs::current().unwrap().id().unwrap();
        let other = NetNs::create().unwrap();
        assert_ne!(other.id().unwrap(), home);
        {
            let _inside = other.enter().unwrap();
            assert_eq!(NetNs::current().unwrap().id().unwrap(), other.id().unwrap());
        }
        assert_eq!(NetNs::current().unwrap().id().unwrap(), home);
        let seen = other.run(|| NetNs::current().unwrap().id().unwrap());
        assert_eq!(seen.unwrap(), other.id().unwrap());
    }

    #[test]
    fn cookies_tell_namespaces_apart() {
        if !weir_testing::require_root() {
            return;
        }
        let (one, two) = (NetNs::create().unwrap(), NetNs::create().unwrap());
        assert_eq!(one.cookie().unwrap(), one.cookie().unwrap());
        assert_ne!(one.cookie().unwrap(), two.cookie().unwrap());
    }

    #[test]
    fn file_that_is_no_namespace_is_rejected() {
        if !weir_testing::require_root() {
            return;
        }
        let error = NetNs::open("/proc/self/status").unwrap().enter();
        assert!(error.is_err());
    }
}
