//! Sets the scheduling, account, capabilities, standard streams and name of a process, and shares files in memory.

#![allow(
    unsafe_code,
    reason = "sched_setscheduler(2) and SO_PEERGROUPS have no safe wrapper"
)]

use std::fs;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use rustix::process::{Gid, Uid};
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, set_capabilities, set_keep_capabilities,
    set_thread_groups, set_thread_res_gid, set_thread_res_uid,
};

use crate::{Error, Result};

/// Sets real-time priority (SCHED_FIFO) for the calling thread; children that it creates later are not affected.
///
/// # Errors
/// Fails if the process lacks `CAP_SYS_NICE` and its `RLIMIT_RTPRIO` is lower, or its cgroup does not allow real-time
/// scheduling.
pub fn set_real_time_priority(priority: i32) -> Result<()> {
    set_scheduler(libc::SCHED_FIFO, priority, "SCHED_FIFO")
}

/// Returns the calling thread to normal priority (SCHED_OTHER) after [`set_real_time_priority`].
///
/// # Errors
/// Not expected: a thread needs no privilege to lower its priority.
pub fn set_normal_priority() -> Result<()> {
    set_scheduler(libc::SCHED_OTHER, 0, "SCHED_OTHER")
}

fn set_scheduler(policy: i32, priority: i32, name: &'static str) -> Result<()> {
    let policy = policy | libc::SCHED_RESET_ON_FORK;
    // musl's sched_setscheduler() is a stub that always fails (ENOSYS). The kernel's struct sched_param contains only
    // the priority. SAFETY: the priority is live for the call; 0 is the calling thread.
    let status =
        unsafe { libc::syscall(libc::SYS_sched_setscheduler, 0, policy, &raw const priority) };
    if status == 0 {
        return Ok(());
    }
    let source = io::Error::last_os_error();
    Err(Error::call("sched_setscheduler", name, source))
}

/// Prevents this thread, its children and the programs that they execute from gaining privileges through setuid bits or
/// file capabilities (PR_SET_NO_NEW_PRIVS). The function must be called before other threads exist.
///
/// # Errors
/// Not expected: the call needs no privilege.
pub fn set_no_new_privs() -> Result<()> {
    let call_error = |errno| Error::call("PR_SET_NO_NEW_PRIVS", "this process", errno);
    rustix::thread::set_no_new_privs(true).map_err(call_error)
}

/// Returns the user and group IDs of an account in `/etc/passwd`.
pub fn account(name: &str) -> Option<(u32, u32)> {
    let text = fs::read_to_string("/etc/passwd").ok()?;
    let line = text
        .lines()
        .find(|line| line.split(':').next() == Some(name))?;
    let mut fields = line.split(':').skip(2).map(str::parse);
    Some((fields.next()?.ok()?, fields.next()?.ok()?))
}

/// The `PATH` for programs that run under an account.
const ACCOUNT_PATH: &str = "/usr/sbin:/usr/bin:/sbin:/bin";

/// Returns a command that runs a program as a user and group, in its own process group and in `/`. Its environment
/// contains only `PATH`, and its standard streams are `/dev/null`. If this process is not root, it cannot change the
/// account: the command then runs the program under this process's account.
pub fn command_as(program: &str, arguments: &[String], (user, group): (u32, u32)) -> Command {
    let mut command = Command::new(program);
    command
        .args(arguments)
        .env_clear()
        .env("PATH", ACCOUNT_PATH)
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .process_group(0);
    if rustix::process::geteuid().is_root() {
        command.uid(user).gid(group);
    }
    command
}

/// Returns whether this process may give a directory to another account, change to that account and drop its
/// capabilities. Root in a container can lack the capabilities for this.
pub fn may_change_account() -> bool {
    let needed_capabilities = CapabilitySet::CHOWN
        | CapabilitySet::SETGID
        | CapabilitySet::SETPCAP
        | CapabilitySet::SETUID;
    capabilities(None).is_ok_and(|sets| sets.effective.contains(needed_capabilities))
}

/// Keeps only `CAP_NET_RAW`, and changes to a different account if one is given. Also sets no_new_privs, and SIGTERM as
/// the parent-death signal. The changes apply to the calling thread and the threads that it starts, so the function
/// must be called before other threads exist.
///
/// # Errors
/// Fails if the process lacks `CAP_NET_RAW` or, if an account is given, `CAP_SETUID` or `CAP_SETGID`.
pub fn keep_net_raw(account: Option<(u32, u32)>) -> Result<()> {
    let call_error = |call: &'static str| move |errno| Error::call(call, "this process", errno);
    if let Some((user, group)) = account {
        let (user, group) = (Uid::from_raw(user), Gid::from_raw(group));
        set_keep_capabilities(true).map_err(call_error("PR_SET_KEEPCAPS"))?;
        set_thread_groups(&[]).map_err(call_error("setgroups"))?;
        set_thread_res_gid(group, group, group).map_err(call_error("setresgid"))?;
        set_thread_res_uid(user, user, user).map_err(call_error("setresuid"))?;
    }
    let sets = CapabilitySets {
        effective: CapabilitySet::NET_RAW,
        permitted: CapabilitySet::NET_RAW,
        inheritable: CapabilitySet::empty(),
    };
    set_capabilities(None, sets).map_err(call_error("capset"))?;
    // Set again, because the kernel clears the parent-death signal when the account changes (prctl(2)).
    let signal = Some(rustix::process::Signal::TERM);
    rustix::process::set_parent_process_death_signal(signal)
        .map_err(call_error("PR_SET_PDEATHSIG"))?;
    rustix::thread::set_no_new_privs(true).map_err(call_error("PR_SET_NO_NEW_PRIVS"))
}

/// Returns the supplementary groups of the peer process of a connected Unix socket (SO_PEERGROUPS).
///
/// # Errors
/// Fails if the socket is not a Unix socket.
pub fn peer_groups(socket: std::os::fd::BorrowedFd<'_>) -> io::Result<Vec<u32>> {
    use std::os::fd::AsRawFd;
    let mut groups = vec![0_u32; MAX_GROUPS];
    let mut length = libc::socklen_t::try_from(size_of_val(groups.as_slice())).unwrap_or(0);
    // SAFETY: the buffer and its length are live for the call, and the length is that of the buffer in bytes.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERGROUPS,
            groups.as_mut_ptr().cast(),
            &raw mut length,
        )
    };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    groups.truncate(length as usize / size_of::<u32>());
    Ok(groups)
}

/// Maximum number of groups that a process can have (NGROUPS_MAX).
const MAX_GROUPS: usize = 65_536;

/// Sets SIGTERM as the parent-death signal of the calling process. The kernel sends it when the parent's thread that
/// created this process exits (prctl(2)). `parent` is the expected parent's PID in decimal.
///
/// # Errors
/// Fails if `parent` is not the current parent: it has exited, so the signal would not be sent.
pub fn exit_with_parent(parent: &str) -> Result<()> {
    let call_error = |source: io::Error| Error::call("PR_SET_PDEATHSIG", "this process", source);
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::TERM))
        .map_err(|errno| call_error(errno.into()))?;
    let current_parent = rustix::process::getppid().map(|pid| pid.as_raw_nonzero().to_string());
    if current_parent.as_deref() == Some(parent) {
        return Ok(());
    }
    Err(call_error(io::Error::other(
        "the parent process has exited",
    )))
}

/// Redirects standard input to `/dev/null`.
///
/// # Errors
/// Fails if `/dev/null` cannot be opened.
pub fn redirect_stdin_to_null() -> Result<()> {
    let path = "/dev/null";
    let null = fs::File::open(path).map_err(|error| Error::file(path, error))?;
    rustix::stdio::dup2_stdin(null).map_err(|errno| Error::call("dup2", path, errno))
}

/// Sets the name of the calling thread; in the main thread, this is the name of the process. The kernel truncates the
/// name to 15 bytes.
///
/// # Errors
/// Not expected: the kernel accepts every name.
pub fn set_process_name(name: &std::ffi::CStr) -> Result<()> {
    rustix::thread::set_name(name)
        .map_err(|errno| Error::call("PR_SET_NAME", "this process", errno))
}

/// Creates a file in memory (memfd) that several processes can share.
///
/// # Errors
/// Fails if the kernel rejects the request.
pub fn create_shared_file(name: &str) -> Result<std::os::fd::OwnedFd> {
    rustix::fs::memfd_create(name, rustix::fs::MemfdFlags::CLOEXEC)
        .map_err(|errno| Error::call("memfd_create", name, errno))
}

/// Reads up to 1 MiB of the shared file ([`create_shared_file`]) that is standard output.
///
/// # Errors
/// Fails if standard output is not a readable file, for example a pipe.
pub fn read_stdout_file() -> io::Result<Vec<u8>> {
    read_shared_file(rustix::stdio::stdout())
}

/// Reads up to 1 MiB of a shared file ([`create_shared_file`]).
///
/// # Errors
/// Fails if the descriptor is not that of a readable file, for example a pipe.
pub fn read_shared_file(file: impl AsFd) -> io::Result<Vec<u8>> {
    let size = rustix::fs::fstat(&file)?.st_size;
    let mut content = vec![0; usize::try_from(size).unwrap_or(0).min(MAX_SHARED_BYTES)];
    let length = rustix::io::pread(&file, &mut content, 0)?;
    content.truncate(length);
    Ok(content)
}

/// Writes a part of the shared file ([`create_shared_file`]) that is standard output, at an offset in bytes.
///
/// # Errors
/// Fails if standard output is not a writable file, for example a pipe.
pub fn write_stdout_file(offset: u64, part: &[u8]) -> io::Result<()> {
    rustix::io::pwrite(rustix::stdio::stdout(), part, offset)?;
    Ok(())
}

/// Replaces the content of the shared file ([`create_shared_file`]) that is standard output.
///
/// # Errors
/// Fails if standard output is not a writable file, for example a pipe.
pub fn replace_stdout_file(content: &[u8]) -> io::Result<()> {
    replace_shared_file(rustix::stdio::stdout(), content)
}

/// Replaces the content of a shared file ([`create_shared_file`]).
///
/// # Errors
/// Fails if the descriptor is not that of a writable file, for example a pipe.
pub fn replace_shared_file(file: impl AsFd, content: &[u8]) -> io::Result<()> {
    rustix::io::pwrite(&file, content, 0)?;
    rustix::fs::ftruncate(&file, content.len() as u64)?;
    Ok(())
}

/// Maximum number of bytes that are read from a shared file; further bytes are ignored.
const MAX_SHARED_BYTES: usize = 1 << 20;
