//! Restricts the VRRP agent to the system calls that it needs (seccomp): sockets, timers, `/proc`.

use std::collections::BTreeMap;
use std::io;

use seccompiler::{BpfProgram, SeccompAction, SeccompFilter};

use crate::{Error, Result};

/// Calls for memory, threads, time, signals, reading files, and sockets, but not for programs, mounts, namespaces, or
/// bpf(2).
const ALLOWED: &[libc::c_long] = &[
    libc::SYS_accept4,
    libc::SYS_bind,
    libc::SYS_brk,
    libc::SYS_clock_gettime,
    libc::SYS_clock_nanosleep,
    libc::SYS_clone,
    libc::SYS_clone3,
    libc::SYS_close,
    libc::SYS_connect,
    libc::SYS_dup,
    libc::SYS_dup3,
    libc::SYS_epoll_create1,
    libc::SYS_epoll_ctl,
    libc::SYS_epoll_pwait,
    libc::SYS_eventfd2,
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_fcntl,
    libc::SYS_fstat,
    libc::SYS_ftruncate,
    libc::SYS_futex,
    libc::SYS_getdents64,
    libc::SYS_getpeername,
    libc::SYS_geteuid,
    libc::SYS_getpid,
    libc::SYS_getppid,
    libc::SYS_getrandom,
    libc::SYS_getsockname,
    libc::SYS_getsockopt,
    libc::SYS_gettid,
    libc::SYS_ioctl,
    libc::SYS_lseek,
    libc::SYS_madvise,
    libc::SYS_membarrier,
    libc::SYS_mmap,
    libc::SYS_mprotect,
    libc::SYS_mremap,
    libc::SYS_munmap,
    libc::SYS_nanosleep,
    libc::SYS_newfstatat,
    libc::SYS_openat,
    libc::SYS_pipe2,
    libc::SYS_ppoll,
    libc::SYS_prctl,
    libc::SYS_pread64,
    libc::SYS_prlimit64,
    libc::SYS_pwrite64,
    libc::SYS_read,
    libc::SYS_readlinkat,
    libc::SYS_readv,
    libc::SYS_recvfrom,
    libc::SYS_recvmsg,
    libc::SYS_restart_syscall,
    libc::SYS_rseq,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_sched_getaffinity,
    libc::SYS_sched_yield,
    libc::SYS_sendmsg,
    libc::SYS_sendto,
    libc::SYS_set_robust_list,
    libc::SYS_setsockopt,
    libc::SYS_shutdown,
    libc::SYS_sigaltstack,
    libc::SYS_socket,
    libc::SYS_socketpair,
    libc::SYS_statx,
    libc::SYS_tgkill,
    libc::SYS_write,
    libc::SYS_writev,
];

/// Older calls that do not exist on other architectures.
#[cfg(target_arch = "x86_64")]
const ALLOWED_OLD: &[libc::c_long] = &[
    libc::SYS_epoll_wait,
    libc::SYS_open,
    libc::SYS_poll,
    libc::SYS_readlink,
    libc::SYS_stat,
];
#[cfg(not(target_arch = "x86_64"))]
const ALLOWED_OLD: &[libc::c_long] = &[];

/// Restricts the calling thread, and threads that it starts later, to the calls that a network service needs. Other
/// calls fail with `EPERM`, so a library that tries one of them can continue without it. The restriction cannot be
/// undone.
///
/// # Errors
/// Fails if the kernel has no seccomp, or no_new_privs is not set.
pub fn restrict_to_agent_calls() -> Result<()> {
    let call_error = |error: String| {
        let source = io::Error::other(error);
        Error::call("seccomp", "this process", source)
    };
    let arch = std::env::consts::ARCH.try_into();
    let arch = arch.map_err(|error: seccompiler::BackendError| call_error(error.to_string()))?;
    let allowed = ALLOWED.iter().chain(ALLOWED_OLD);
    let rules: BTreeMap<i64, Vec<_>> = allowed.map(|call| (*call, Vec::new())).collect();
    let denied = SeccompAction::Errno(libc::EPERM.unsigned_abs());
    let filter = SeccompFilter::new(rules, denied, SeccompAction::Allow, arch)
        .and_then(TryInto::<BpfProgram>::try_into)
        .map_err(|error| call_error(error.to_string()))?;
    seccompiler::apply_filter(&filter).map_err(|error| call_error(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_cannot_be_started_and_sockets_can_be_opened() {
        // The filter applies only to this thread.
        let confined = std::thread::spawn(|| {
            rustix::thread::set_no_new_privs(true).unwrap();
            restrict_to_agent_calls().unwrap();
            std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
            let error = rustix::fs::unlink("/tmp/weir-none").unwrap_err();
            assert_eq!(error, rustix::io::Errno::PERM);
            std::process::Command::new("/bin/true")
                .status()
                .unwrap_err();
        });
        confined.join().unwrap();
    }
}
