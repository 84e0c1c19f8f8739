//! Changes resource limits and memory settings of the process.

use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::OnceLock;

use rustix::process::{
    DumpableBehavior, Resource, Rlimit, getrlimit, set_dumpable_behavior, setrlimit,
};

use crate::{Error, Result};

/// The open-file limit at the start of the process.
static NOFILE: OnceLock<Rlimit> = OnceLock::new();

/// Raises the soft open-file limit to the hard limit. The usual soft limit of 1024 exists for programs that use
/// select(2).
///
/// # Errors
/// Fails if the soft limit cannot be changed.
pub fn raise_nofile() -> Result<()> {
    let initial = getrlimit(Resource::Nofile);
    let maximum = initial.maximum;
    NOFILE.get_or_init(|| initial);
    let raised = Rlimit {
        current: maximum,
        maximum,
    };
    setrlimit(Resource::Nofile, raised)
        .map_err(|error| Error::call("setrlimit", "RLIMIT_NOFILE", error))
}

/// Restores the initial open-file limit for a child process: a program that uses select(2) cannot handle descriptors
/// above 1023.
#[allow(unsafe_code, reason = "setrlimit(2) between fork and exec")]
pub fn restore_nofile(command: &mut Command) {
    let Some(initial) = NOFILE.get().cloned() else {
        return;
    };
    let restore = move || {
        let limit = Rlimit {
            current: initial.current,
            maximum: initial.maximum,
        };
        setrlimit(Resource::Nofile, limit).map_err(Into::into)
    };
    // SAFETY: the closure makes one system call, which is async-signal-safe, and does not allocate.
    unsafe { command.pre_exec(restore) };
}

/// Removes the locked-memory limit. Kernels before 5.11 account BPF maps against it; later kernels use the memory
/// cgroup instead.
///
/// If the hard limit cannot be raised, only the soft limit is raised, to the hard limit.
///
/// # Errors
/// Fails if the soft limit cannot be changed.
pub fn raise_memlock() -> Result<()> {
    let unlimited = Rlimit {
        current: None,
        maximum: None,
    };
    if setrlimit(Resource::Memlock, unlimited).is_ok() {
        return Ok(());
    }
    let maximum = getrlimit(Resource::Memlock).maximum;
    let raised = Rlimit {
        current: maximum,
        maximum,
    };
    setrlimit(Resource::Memlock, raised)
        .map_err(|error| Error::call("setrlimit", "RLIMIT_MEMLOCK", error))
}

/// Protects the memory of this process (PR_SET_DUMPABLE): no core file is written, and other processes of the same user
/// can neither trace it nor read its memory. Child processes are not affected.
///
/// # Errors
/// Fails if prctl(2) fails.
pub fn set_not_dumpable() -> Result<()> {
    set_dumpable_behavior(DumpableBehavior::NotDumpable)
        .map_err(|error| Error::call("prctl", "PR_SET_DUMPABLE", error))
}

/// Returns freed memory, which glibc keeps, to the system. Does nothing with other C libraries.
#[allow(unsafe_code, reason = "malloc_trim(3)")]
pub fn trim_heap() {
    #[cfg(target_env = "gnu")]
    // SAFETY: malloc_trim is thread-safe: it takes the allocator's locks.
    unsafe {
        libc::malloc_trim(0)
    };
}
