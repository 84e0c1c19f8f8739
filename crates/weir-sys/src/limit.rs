//! Process limits, and memory that the process no longer needs.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::{Error, Result};

/// Raises the soft limit of open files to the hard one: the usual 1024 are for programs that still use select(2).
///
/// # Errors
/// The soft limit may not be changed.
pub fn raise_nofile() -> Result<()> {
    let maximum = getrlimit(Resource::Nofile).maximum;
    let most = Rlimit {
        current: maximum,
        maximum,
    };
    setrlimit(Resource::Nofile, most).map_err(|e| Error::call("setrlimit", "RLIMIT_NOFILE", e))
}

/// Lifts the limit of locked memory. Kernels before 5.11 charge BPF maps to it;
/// later ones charge the memory cgroup and do not look at it.
///
/// Without the right to lift the hard limit, the soft one is raised to it.
///
/// # Errors
/// Not even the soft limit may be changed.
pub fn raise_memlock() -> Result<()> {
    let unlimited = Rlimit {
        current: None,
        maximum: None,
    };
    if setrlimit(Resource::Memlock, unlimited).is_ok() {
        return Ok(());
    }
    let maximum = getrlimit(Resource::Memlock).maximum;
    let most = Rlimit {
        current: maximum,
        maximum,
    };
    setrlimit(Resource::Memlock, most).map_err(|e| Error::call("setrlimit", "RLIMIT_MEMLOCK", e))
}

/// Gives freed memory back to the system, where the C library keeps it otherwise.
#[allow(unsafe_code, reason = "malloc_trim(3)")]
pub fn trim_heap() {
    #[cfg(target_env = "gnu")]
    // SAFETY: walks the allocator's own lists, under its own locks; any thread may call it.
    unsafe {
        libc::malloc_trim(0)
    };
}
