//! Process limits, and memory that the process no longer needs.

use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::OnceLock;

use rustix::process::{
    DumpableBehavior, Resource, Rlimit, getrlimit, set_dumpable_behavior, setrlimit,
};

use crate::{Error, Result};

/// The limit of open files before it was raised.
static NOFILE: OnceLock<Rlimit> = OnceLock::new();

/// Raises the soft limit of open files to the hard one: the usual 1024 are for programs that still use select(2).
///
/// # Errors
/// The soft limit may not be changed.
pub fn raise_nofile() -> Result<()> {
    let found = getrlimit(Resource::Nofile);
    let maximum = found.maximum;
    NOFILE.get_or_init(|| found);
    let most = Rlimit {
        current: maximum,
        maximum,
    };
    setrlimit(Resource::Nofile, most).map_err(|e| Error::call("setrlimit", "RLIMIT_NOFILE", e))
}

/// Gives a program that this process starts the limit of open files that this process was started with: one that uses
/// select(2) cannot handle descriptors above 1023.
#[allow(unsafe_code, reason = "setrlimit(2) between fork and exec")]
pub fn restore_nofile(command: &mut Command) {
    let Some(found) = NOFILE.get().cloned() else {
        return;
    };
    let restore = move || {
        let found = Rlimit {
            current: found.current,
            maximum: found.maximum,
        };
        setrlimit(Resource::Nofile, found).map_err(Into::into)
    };
    // SAFETY: the closure makes one system call, which is async-signal-safe, and allocates nothing.
    unsafe { command.pre_exec(restore) };
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

/// Keeps this process's memory to itself (PR_SET_DUMPABLE): no core file is written, and other processes of the same
/// user can neither trace it nor read its memory. Programs that it starts are not affected.
///
/// # Errors
/// The kernel refuses.
pub fn hide_memory() -> Result<()> {
    set_dumpable_behavior(DumpableBehavior::NotDumpable)
        .map_err(|e| Error::call("prctl", "PR_SET_DUMPABLE", e))
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
