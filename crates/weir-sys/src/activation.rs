//! Sockets that a service manager held for this process: sd_listen_fds(3), with the descriptor store's names.

#![allow(unsafe_code, reason = "descriptors come as numbers in the environment")]

use std::env;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::io::{FdFlags, fcntl_setfd};

/// SD_LISTEN_FDS_START.
const FIRST: RawFd = 3;

static TAKEN: AtomicBool = AtomicBool::new(false);

/// Takes them, once in a process's life; each with its name. None unless `LISTEN_PID` names this process.
pub fn inherited_files() -> Vec<(String, OwnedFd)> {
    let number = |name: &str| env::var(name).ok()?.parse::<u32>().ok();
    if number("LISTEN_PID") != Some(std::process::id()) || TAKEN.swap(true, Ordering::Relaxed) {
        return Vec::new();
    }
    let names = env::var("LISTEN_FDNAMES").unwrap_or_default();
    let names = named(&names, number("LISTEN_FDS").unwrap_or(0));
    let files = (FIRST..).zip(names).map(|(descriptor, name)| {
        // SAFETY: the service manager opened these for this process, and no other code has taken them.
        (name, unsafe { OwnedFd::from_raw_fd(descriptor) })
    });
    let files: Vec<(String, OwnedFd)> = files.collect();
    for (_, file) in &files {
        // Children must not have them; one that cannot be marked is no descriptor and fails where it is used.
        let _ = fcntl_setfd(file, FdFlags::CLOEXEC);
    }
    files
}

/// One name a descriptor; those without a name of their own are called as systemd calls them.
fn named(names: &str, count: u32) -> Vec<String> {
    let all = names.split(':').filter(|name| !name.is_empty());
    let mut named: Vec<String> = all.map(str::to_owned).collect();
    named.resize(count as usize, "unknown".to_owned());
    named
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_descriptor_has_a_name() {
        assert_eq!(named("a:b", 3), ["a", "b", "unknown"]);
        assert_eq!(named("a:b", 1), ["a"]);
        assert!(named("", 0).is_empty());
    }

    #[test]
    fn sockets_for_another_process_are_ignored() {
        assert!(inherited_files().is_empty());
    }
}
