//! Drops privileges permanently: account, capabilities, program execution, file access, system calls.
//!
//! The functions apply to the calling thread and to the threads that it starts, so they must be called before other
//! threads exist.

#![allow(
    unsafe_code,
    reason = "removes capabilities from the bounding set by number, including those that rustix does not know"
)]

mod agent_call;
#[cfg(debug_assertions)]
mod attempt;
mod daemon_call;

use std::path::Path;

use landlock::{
    ABI, Access, AccessFs, BitFlags, PathBeneath, PathFd, Ruleset, RulesetAttr, RulesetCreatedAttr,
    RulesetStatus,
};
use rustix::process::{Gid, Signal, Uid};
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, set_capabilities, set_no_new_privs,
    set_thread_groups, set_thread_res_gid, set_thread_res_uid,
};

use crate::{Error, Result};

pub use agent_call::restrict_to_agent_calls;
#[cfg(debug_assertions)]
pub use attempt::{ActionResults, try_forbidden_actions};
pub use daemon_call::restrict_to_daemon_calls;

/// Directories whose files an unprivileged process reads, for name resolution, accounts and kernel state. Missing
/// directories are ignored.
const SYSTEM_PATHS: &[&str] = &[
    "/etc",
    "/usr",
    "/lib",
    "/lib64",
    "/proc",
    "/sys",
    "/dev",
    "/run/systemd/resolve",
    "/run/resolvconf",
    "/run/NetworkManager",
    "/var/run/nscd",
];

fn call_error<E: Into<std::io::Error>>(call: &'static str) -> impl FnOnce(E) -> Error {
    move |error| Error::call(call, "this process", error)
}

/// Switches to an account with supplementary groups, and drops all capabilities permanently. The kernel clears the
/// parent-death signal when credentials change, so the function sets it to `parent_death_signal` again.
///
/// # Errors
/// Fails if the process lacks the capabilities `CAP_SETPCAP`, `CAP_SETUID` or `CAP_SETGID`.
pub fn become_account(
    (user, group): (u32, u32),
    groups: &[u32],
    parent_death_signal: Signal,
) -> Result<()> {
    empty_bounding_set()?;
    let (user, group) = (Uid::from_raw(user), Gid::from_raw(group));
    let groups: Vec<Gid> = groups.iter().map(|group| Gid::from_raw(*group)).collect();
    set_thread_groups(&groups).map_err(call_error("setgroups"))?;
    set_thread_res_gid(group, group, group).map_err(call_error("setresgid"))?;
    set_thread_res_uid(user, user, user).map_err(call_error("setresuid"))?;
    let none = CapabilitySet::empty();
    let sets = CapabilitySets {
        effective: none,
        permitted: none,
        inheritable: none,
    };
    set_capabilities(None, sets).map_err(call_error("capset"))?;
    set_no_new_privs(true).map_err(call_error("PR_SET_NO_NEW_PRIVS"))?;
    rustix::process::set_parent_process_death_signal(Some(parent_death_signal))
        .map_err(call_error("PR_SET_PDEATHSIG"))
}

/// Drops all capabilities permanently, in a process that a service manager started under an unprivileged account.
/// Capabilities that remain in the bounding set can only be gained by executing a privileged program, and
/// no_new_privs prevents that.
///
/// # Errors
/// Fails if the kernel rejects the change.
pub fn drop_capabilities() -> Result<()> {
    let none = CapabilitySet::empty();
    let sets = CapabilitySets {
        effective: none,
        permitted: none,
        inheritable: none,
    };
    set_capabilities(None, sets).map_err(call_error("capset"))?;
    set_no_new_privs(true).map_err(call_error("PR_SET_NO_NEW_PRIVS"))
}

/// Keeps the capabilities in `retained` that this process has, and permanently drops all others, for this process and
/// the programs that it executes.
///
/// # Errors
/// Fails if the kernel rejects the change, for example because the process lacks `CAP_SETPCAP`.
fn keep_capabilities(retained: CapabilitySet) -> Result<()> {
    limit_bounding_set(retained)?;
    let current = capabilities(None).map_err(call_error("capget"))?;
    let remaining = current.permitted & retained;
    let sets = CapabilitySets {
        effective: remaining,
        permitted: remaining,
        inheritable: CapabilitySet::empty(),
    };
    set_capabilities(None, sets).map_err(call_error("capset"))?;
    set_no_new_privs(true).map_err(call_error("PR_SET_NO_NEW_PRIVS"))
}

/// Keeps only the capabilities that the engine process needs: for bpf(2), the network, bpffs and namespaces, map
/// memory, and the runtime directory that it shares with the daemon.
///
/// # Errors
/// Fails if the kernel rejects the change.
pub fn keep_engine_capabilities() -> Result<()> {
    keep_capabilities(
        CapabilitySet::BPF
            | CapabilitySet::PERFMON
            | CapabilitySet::NET_ADMIN
            | CapabilitySet::NET_RAW
            | CapabilitySet::NET_BIND_SERVICE
            | CapabilitySet::SYS_ADMIN
            | CapabilitySet::SYS_RESOURCE
            | CapabilitySet::CHOWN
            | CapabilitySet::FOWNER
            | CapabilitySet::DAC_OVERRIDE
            | CapabilitySet::DAC_READ_SEARCH,
    )
}

/// Removes all capabilities from the bounding set.
fn empty_bounding_set() -> Result<()> {
    limit_bounding_set(CapabilitySet::empty())
}

/// Removes all capabilities except `retained` from the bounding set.
fn limit_bounding_set(retained: CapabilitySet) -> Result<()> {
    for number in 0..u64::BITS {
        if retained.bits() & (1 << number) != 0 {
            continue;
        }
        // SAFETY: PR_CAPBSET_DROP takes a number and no pointers.
        let result =
            unsafe { libc::prctl(libc::PR_CAPBSET_DROP, libc::c_ulong::from(number), 0, 0, 0) };
        if result != 0 {
            let error = std::io::Error::last_os_error();
            // The kernel has no capability with this or a higher number.
            if error.raw_os_error() == Some(libc::EINVAL) {
                return Ok(());
            }
            return Err(call_error("PR_CAPBSET_DROP")(error));
        }
    }
    Ok(())
}

/// Restricts the process to reading system files and files below `readable`, and to reading and writing below the
/// directories `writable` (Landlock). No file can be executed. Paths in `readable` that cannot be opened are ignored.
/// Open files are not affected. Returns whether the kernel enforces at least part of the restriction.
///
/// # Errors
/// Fails if a directory in `writable` cannot be opened, or if the kernel rejects the restriction.
pub fn restrict_files(writable: &[&Path], readable: &[&Path]) -> Result<bool> {
    let call_error = |error: &dyn std::fmt::Display| {
        let source = std::io::Error::other(error.to_string());
        let directories = writable.iter().map(|path| path.display().to_string());
        Error::call(
            "landlock",
            directories.collect::<Vec<_>>().join(", "),
            source,
        )
    };
    let abi = ABI::V5;
    let read = AccessFs::ReadFile | AccessFs::ReadDir;
    let mut ruleset = Ruleset::default()
        .handle_access(AccessFs::from_all(abi))
        .and_then(Ruleset::create)
        .map_err(|error| call_error(&error))?;
    let full: BitFlags<AccessFs> = AccessFs::from_all(abi) & !BitFlags::from(AccessFs::Execute);
    for path in writable {
        let opened = PathFd::new(path).map_err(|error| call_error(&error))?;
        ruleset = ruleset
            .add_rule(PathBeneath::new(opened, full))
            .map_err(|error| call_error(&error))?;
    }
    let system = SYSTEM_PATHS.iter().map(Path::new);
    for path in system.chain(readable.iter().copied()) {
        if let Ok(opened) = PathFd::new(path) {
            ruleset = ruleset
                .add_rule(PathBeneath::new(opened, read))
                .map_err(|error| call_error(&error))?;
        }
    }
    let status = ruleset
        .restrict_self()
        .map_err(|error| call_error(&error))?;
    Ok(status.ruleset != RulesetStatus::NotEnforced)
}
