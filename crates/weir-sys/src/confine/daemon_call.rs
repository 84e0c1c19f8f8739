//! Restricts an unprivileged daemon to the system calls that a proxy needs (seccomp); others fail with EPERM.

use std::collections::BTreeMap;

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch,
};

use crate::{Error, Result};

/// Calls that are allowed with all arguments.
const ALLOWED: &[libc::c_long] = &[
    libc::SYS_accept,
    libc::SYS_accept4,
    libc::SYS_bind,
    libc::SYS_brk,
    libc::SYS_capget,
    libc::SYS_chdir,
    libc::SYS_clock_getres,
    libc::SYS_clock_gettime,
    libc::SYS_clock_nanosleep,
    // A separate filter makes this call fail with ENOSYS.
    libc::SYS_clone3,
    libc::SYS_close,
    libc::SYS_close_range,
    libc::SYS_connect,
    libc::SYS_copy_file_range,
    libc::SYS_dup,
    libc::SYS_dup3,
    libc::SYS_epoll_create1,
    libc::SYS_epoll_ctl,
    libc::SYS_epoll_pwait,
    libc::SYS_eventfd2,
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_faccessat,
    libc::SYS_faccessat2,
    libc::SYS_fadvise64,
    libc::SYS_fallocate,
    libc::SYS_fchdir,
    libc::SYS_fchmod,
    libc::SYS_fchmodat,
    libc::SYS_fchown,
    libc::SYS_fchownat,
    libc::SYS_fcntl,
    libc::SYS_fdatasync,
    libc::SYS_flock,
    libc::SYS_fstat,
    libc::SYS_fstatfs,
    libc::SYS_fsync,
    libc::SYS_ftruncate,
    libc::SYS_futex,
    libc::SYS_getcpu,
    libc::SYS_getcwd,
    libc::SYS_getdents64,
    libc::SYS_getegid,
    libc::SYS_geteuid,
    libc::SYS_getgid,
    libc::SYS_getgroups,
    libc::SYS_getpeername,
    libc::SYS_getpgid,
    libc::SYS_getpid,
    libc::SYS_getppid,
    libc::SYS_getpriority,
    libc::SYS_getrandom,
    libc::SYS_getresgid,
    libc::SYS_getresuid,
    libc::SYS_getrusage,
    libc::SYS_getsid,
    libc::SYS_getsockname,
    libc::SYS_getsockopt,
    libc::SYS_gettid,
    libc::SYS_gettimeofday,
    libc::SYS_getuid,
    libc::SYS_inotify_add_watch,
    libc::SYS_inotify_init1,
    libc::SYS_inotify_rm_watch,
    libc::SYS_ioctl,
    libc::SYS_kill,
    libc::SYS_linkat,
    libc::SYS_listen,
    libc::SYS_lseek,
    libc::SYS_madvise,
    libc::SYS_membarrier,
    libc::SYS_memfd_create,
    libc::SYS_mkdirat,
    libc::SYS_mlock,
    libc::SYS_mmap,
    libc::SYS_mprotect,
    libc::SYS_mremap,
    libc::SYS_munlock,
    libc::SYS_munmap,
    libc::SYS_nanosleep,
    libc::SYS_newfstatat,
    libc::SYS_openat,
    libc::SYS_openat2,
    libc::SYS_pidfd_open,
    libc::SYS_pipe2,
    libc::SYS_ppoll,
    libc::SYS_prctl,
    libc::SYS_pread64,
    libc::SYS_preadv,
    libc::SYS_preadv2,
    libc::SYS_prlimit64,
    libc::SYS_pselect6,
    libc::SYS_pwrite64,
    libc::SYS_pwritev,
    libc::SYS_pwritev2,
    libc::SYS_read,
    libc::SYS_readlinkat,
    libc::SYS_readv,
    libc::SYS_recvfrom,
    libc::SYS_recvmmsg,
    libc::SYS_recvmsg,
    libc::SYS_renameat,
    libc::SYS_renameat2,
    libc::SYS_restart_syscall,
    libc::SYS_rseq,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigpending,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigqueueinfo,
    libc::SYS_rt_sigreturn,
    libc::SYS_rt_sigsuspend,
    libc::SYS_rt_sigtimedwait,
    libc::SYS_rt_tgsigqueueinfo,
    libc::SYS_sched_get_priority_max,
    libc::SYS_sched_get_priority_min,
    libc::SYS_sched_getaffinity,
    libc::SYS_sched_getparam,
    libc::SYS_sched_getscheduler,
    libc::SYS_sched_setaffinity,
    libc::SYS_sched_yield,
    libc::SYS_sendfile,
    libc::SYS_sendmmsg,
    libc::SYS_sendmsg,
    libc::SYS_sendto,
    libc::SYS_set_robust_list,
    libc::SYS_set_tid_address,
    libc::SYS_setsockopt,
    libc::SYS_shutdown,
    libc::SYS_sigaltstack,
    libc::SYS_socketpair,
    libc::SYS_splice,
    libc::SYS_statfs,
    libc::SYS_statx,
    libc::SYS_symlinkat,
    libc::SYS_sysinfo,
    libc::SYS_tee,
    libc::SYS_tgkill,
    libc::SYS_timer_create,
    libc::SYS_timer_delete,
    libc::SYS_timer_settime,
    libc::SYS_timerfd_create,
    libc::SYS_timerfd_gettime,
    libc::SYS_timerfd_settime,
    libc::SYS_times,
    libc::SYS_umask,
    libc::SYS_uname,
    libc::SYS_unlinkat,
    libc::SYS_utimensat,
    libc::SYS_wait4,
    libc::SYS_waitid,
    libc::SYS_write,
    libc::SYS_writev,
];

/// Older calls that do not exist on other architectures.
#[cfg(target_arch = "x86_64")]
const ALLOWED_OLD: &[libc::c_long] = &[
    libc::SYS_access,
    libc::SYS_arch_prctl,
    libc::SYS_chmod,
    libc::SYS_chown,
    libc::SYS_dup2,
    libc::SYS_epoll_create,
    libc::SYS_epoll_wait,
    libc::SYS_eventfd,
    libc::SYS_getdents,
    libc::SYS_inotify_init,
    libc::SYS_lchown,
    libc::SYS_link,
    libc::SYS_lstat,
    libc::SYS_mkdir,
    libc::SYS_open,
    libc::SYS_pipe,
    libc::SYS_poll,
    libc::SYS_readlink,
    libc::SYS_rename,
    libc::SYS_rmdir,
    libc::SYS_select,
    libc::SYS_stat,
    libc::SYS_symlink,
    libc::SYS_time,
    libc::SYS_unlink,
];
#[cfg(not(target_arch = "x86_64"))]
const ALLOWED_OLD: &[libc::c_long] = &[];

/// Flags of clone(2) that create a namespace.
const NAMESPACES: u64 = (libc::CLONE_NEWNS
    | libc::CLONE_NEWCGROUP
    | libc::CLONE_NEWUTS
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUSER
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWNET) as u64;

/// Mask of the socket type, without its flags.
const SOCKET_TYPE_MASK: u64 = 0xf;

/// Restricts the calling thread, and the threads that it starts, to the system calls that a proxy needs. The threads
/// cannot start a program, trace another process, or create a namespace, mount, packet socket or BPF object.
///
/// # Errors
/// Fails if the kernel has no seccomp, or no_new_privs is not set.
pub fn restrict_to_daemon_calls() -> Result<()> {
    let call_error =
        |error: String| Error::call("seccomp", "this process", std::io::Error::other(error));
    for filter in filters().map_err(|error| call_error(error.to_string()))? {
        seccompiler::apply_filter(&filter).map_err(|error| call_error(error.to_string()))?;
    }
    Ok(())
}

fn filters() -> std::result::Result<[BpfProgram; 2], seccompiler::BackendError> {
    let machine = TargetArch::try_from(std::env::consts::ARCH)?;
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> = BTreeMap::new();
    for number in ALLOWED.iter().chain(ALLOWED_OLD) {
        rules.insert(*number, Vec::new());
    }
    rules.insert(libc::SYS_socket, socket_rules()?);
    let same_namespaces = condition(0, SeccompCmpOp::MaskedEq(NAMESPACES), 0)?;
    rules.insert(
        libc::SYS_clone,
        vec![SeccompRule::new(vec![same_namespaces])?],
    );
    let denied = SeccompAction::Errno(libc::EPERM.cast_unsigned());
    let allowed = SeccompFilter::new(rules, denied, SeccompAction::Allow, machine)?;
    // The flags of clone3 are in memory, which a filter cannot read. If clone3 fails with ENOSYS, the C library uses
    // clone.
    let clone3_rule = BTreeMap::from([(libc::SYS_clone3, Vec::new())]);
    let not_implemented = SeccompAction::Errno(libc::ENOSYS.cast_unsigned());
    let without_clone3 =
        SeccompFilter::new(clone3_rule, SeccompAction::Allow, not_implemented, machine)?;
    // The second filter forbids seccomp(2), so it must be installed last.
    Ok([without_clone3.try_into()?, allowed.try_into()?])
}

/// Returns rules that allow Unix, TCP and UDP sockets, and netlink for routes and socket lists.
fn socket_rules() -> std::result::Result<Vec<SeccompRule>, seccompiler::BackendError> {
    let family = |family: libc::c_int| condition(0, SeccompCmpOp::Eq, family);
    let mut rules = vec![SeccompRule::new(vec![family(libc::AF_UNIX)?])?];
    let transports = [
        (libc::SOCK_STREAM, libc::IPPROTO_TCP),
        (libc::SOCK_DGRAM, libc::IPPROTO_UDP),
    ];
    for inet in [libc::AF_INET, libc::AF_INET6] {
        for (kind, protocol) in transports {
            for protocol in [0, protocol] {
                rules.push(SeccompRule::new(vec![
                    family(inet)?,
                    condition(1, SeccompCmpOp::MaskedEq(SOCKET_TYPE_MASK), kind)?,
                    condition(2, SeccompCmpOp::Eq, protocol)?,
                ])?);
            }
        }
    }
    for protocol in [libc::NETLINK_ROUTE, libc::NETLINK_SOCK_DIAG] {
        let protocol = condition(2, SeccompCmpOp::Eq, protocol)?;
        rules.push(SeccompRule::new(vec![family(libc::AF_NETLINK)?, protocol])?);
    }
    Ok(rules)
}

fn condition(
    argument: u8,
    comparison: SeccompCmpOp,
    value: libc::c_int,
) -> std::result::Result<SeccompCondition, seccompiler::BackendError> {
    let value = u64::from(value.cast_unsigned());
    SeccompCondition::new(argument, SeccompCmpArgLen::Dword, comparison, value)
}
