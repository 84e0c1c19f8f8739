//! Takes the descriptors that the service manager passes, with their names (sd_listen_fds(3)).

#![allow(
    unsafe_code,
    reason = "the environment contains descriptors as numbers"
)]

use std::env;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::io::{FdFlags, fcntl_setfd};

/// SD_LISTEN_FDS_START.
const LISTEN_FDS_START: RawFd = 3;

static TAKEN: AtomicBool = AtomicBool::new(false);

/// Takes the passed descriptors with their names. Returns an empty list if called again, or if `LISTEN_PID` is not this
/// process.
pub fn inherited_files() -> Vec<(String, OwnedFd)> {
    let number = |name: &str| env::var(name).ok()?.parse::<u32>().ok();
    if number("LISTEN_PID") != Some(std::process::id()) || TAKEN.swap(true, Ordering::Relaxed) {
        return Vec::new();
    }
    let names = env::var("LISTEN_FDNAMES").unwrap_or_default();
    let names = descriptor_names(&names, number("LISTEN_FDS").unwrap_or(0));
    let files = (LISTEN_FDS_START..).zip(names).map(|(descriptor, name)| {
        // SAFETY: the service manager opened this descriptor for this process, and no other code has taken it.
        (name, unsafe { OwnedFd::from_raw_fd(descriptor) })
    });
    let files: Vec<(String, OwnedFd)> = files.collect();
    for (_, file) in &files {
        // Child processes must not inherit the descriptor. This call fails only if the number is not a descriptor; any
        // use of it then fails too.
        let _ = fcntl_setfd(file, FdFlags::CLOEXEC);
    }
    files
}

/// Returns a name for each descriptor. A descriptor without a name is called `unknown`, as systemd does.
fn descriptor_names(names: &str, count: u32) -> Vec<String> {
    let mut names: Vec<String> = match names {
        "" => Vec::new(),
        names => names.split(':').map(str::to_owned).collect(),
    };
    names.resize(count as usize, "unknown".to_owned());
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_descriptor_has_a_name() {
        assert_eq!(descriptor_names("a:b", 3), ["a", "b", "unknown"]);
        assert_eq!(descriptor_names("a:b", 1), ["a"]);
        assert_eq!(descriptor_names("a::b", 3), ["a", "", "b"]);
        assert!(descriptor_names("", 0).is_empty());
    }

    #[test]
    fn descriptors_for_another_process_are_ignored() {
        assert!(inherited_files().is_empty());
    }
}
