//! Tries actions that hostile code in an unprivileged process would try. Only for tests; not in release programs.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::Path;
use std::process::Command;

use rustix::net::{AddressFamily, SocketType, socket};

/// Each attempt with its result.
pub type Attempts = Vec<(&'static str, io::Result<()>)>;

/// Tries all actions; `other` is the ID of a process of root.
pub fn attempts(other: u32) -> Attempts {
    vec![
        ("open /etc/shadow", File::open("/etc/shadow").map(drop)),
        ("execve", execute()),
        ("bpf", bpf()),
        (
            "packet socket",
            socket(AddressFamily::PACKET, SocketType::RAW, None)
                .map(drop)
                .map_err(Into::into),
        ),
        ("write outside", write(Path::new("/tmp/weir-attempt"))),
        ("write /dev/shm", write(Path::new("/dev/shm/weir-attempt"))),
        ("ptrace", trace(other)),
        (
            "become root",
            rustix::thread::set_thread_uid(rustix::process::Uid::ROOT).map_err(Into::into),
        ),
        ("new namespace", new_namespace()),
    ]
}

fn execute() -> io::Result<()> {
    Command::new("/bin/true").status().map(drop)
}

fn write(path: &Path) -> io::Result<()> {
    OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .open(path)?;
    fs::remove_file(path)
}

fn result(returned: libc::c_long) -> io::Result<()> {
    match returned {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

fn bpf() -> io::Result<()> {
    const MAP_CREATE: libc::c_long = 0;
    // The first fields of union bpf_attr for an array with one four-byte value.
    let attributes: [u32; 32] = std::array::from_fn(|at| match at {
        0 => 2,
        1 | 2 => 4,
        3 => 1,
        _ => 0,
    });
    // SAFETY: the attributes are live for the call and have the length that is passed.
    result(unsafe {
        libc::syscall(
            libc::SYS_bpf,
            MAP_CREATE,
            attributes.as_ptr(),
            size_of_val(&attributes),
        )
    })
}

fn trace(other: u32) -> io::Result<()> {
    // SAFETY: PTRACE_ATTACH has no memory arguments.
    result(unsafe { libc::ptrace(libc::PTRACE_ATTACH, other, 0, 0) })
}

fn new_namespace() -> io::Result<()> {
    // SAFETY: unshare(2) takes only flags.
    result(unsafe { libc::unshare(libc::CLONE_NEWUSER) }.into())
}
