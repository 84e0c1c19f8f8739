//! Tries actions that hostile code in an unprivileged process would try.
//!
//! Only tests use it; release builds do not contain it.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::Path;
use std::process::Command;

use rustix::net::{AddressFamily, SocketType, socket};

/// Each attempt with its result.
pub type ActionResults = Vec<(&'static str, io::Result<()>)>;

/// Tries all actions. `root_process` is the ID of a root process.
pub fn try_forbidden_actions(root_process: u32) -> ActionResults {
    vec![
        ("open /etc/shadow", File::open("/etc/shadow").map(drop)),
        ("execve", execute_program()),
        ("bpf", create_map()),
        (
            "packet socket",
            socket(AddressFamily::PACKET, SocketType::RAW, None)
                .map(drop)
                .map_err(Into::into),
        ),
        (
            "MPTCP socket",
            socket(
                AddressFamily::INET,
                SocketType::STREAM,
                Some(rustix::net::ipproto::MPTCP),
            )
            .map(drop)
            .map_err(Into::into),
        ),
        ("write outside", create_file(Path::new("/tmp/weir-attempt"))),
        (
            "write /dev/shm",
            create_file(Path::new("/dev/shm/weir-attempt")),
        ),
        ("ptrace", trace(root_process)),
        (
            "become root",
            rustix::thread::set_thread_uid(rustix::process::Uid::ROOT).map_err(Into::into),
        ),
        ("new namespace", create_namespace()),
    ]
}

fn execute_program() -> io::Result<()> {
    Command::new("/bin/true").status().map(drop)
}

fn create_file(path: &Path) -> io::Result<()> {
    OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .open(path)?;
    fs::remove_file(path)
}

fn check_status(status: libc::c_long) -> io::Result<()> {
    match status {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

fn create_map() -> io::Result<()> {
    const MAP_CREATE: libc::c_long = 0;
    // The first fields of union bpf_attr for an array with one four-byte value.
    let attributes: [u32; 32] = std::array::from_fn(|index| match index {
        0 => 2,
        1 | 2 => 4,
        3 => 1,
        _ => 0,
    });
    // SAFETY: the attributes are live for the call and have the length that is passed.
    check_status(unsafe {
        libc::syscall(
            libc::SYS_bpf,
            MAP_CREATE,
            attributes.as_ptr(),
            size_of_val(&attributes),
        )
    })
}

fn trace(process: u32) -> io::Result<()> {
    // SAFETY: PTRACE_ATTACH has no memory arguments.
    check_status(unsafe { libc::ptrace(libc::PTRACE_ATTACH, process, 0, 0) })
}

fn create_namespace() -> io::Result<()> {
    // SAFETY: unshare(2) takes only flags.
    check_status(unsafe { libc::unshare(libc::CLONE_NEWUSER) }.into())
}
