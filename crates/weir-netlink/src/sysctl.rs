//! Reads and sets sysctls in `/proc/sys/net`, in the calling thread's network namespace.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use crate::{Error, Result};

/// A sysctl, identified by its path in `/proc/sys` (`net/ipv4/conf/lo/arp_ignore`).
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Sysctl {
    name: String,
}

impl Sysctl {
    /// Creates a handle for a sysctl, which need not exist. Components are separated by slashes, so device names can
    /// contain dots.
    ///
    /// # Errors
    /// Fails if the name does not start with `net/`, or has an empty or dot component.
    pub fn new(name: impl Into<String>) -> Result<Self> {
        let name = name.into();
        let is_plain = |part: &str| !matches!(part, "" | "." | "..");
        if name.starts_with("net/") && name.split('/').all(is_plain) {
            Ok(Self { name })
        } else {
            Err(Error::SysctlName { name })
        }
    }

    /// Creates a handle for the sysctl `key` of a device and address family (`conf/DEVICE/KEY`).
    ///
    /// # Errors
    /// Fails if the device name is invalid.
    pub fn for_device(ipv6: bool, device: &str, key: &str) -> Result<Self> {
        let family = if ipv6 { "ipv6" } else { "ipv4" };
        let name = format!("net/{family}/conf/{device}/{key}");
        if device.contains('/') {
            return Err(Error::SysctlName { name });
        }
        Self::new(name)
    }

    /// Returns the name.
    pub fn name(&self) -> &str {
        &self.name
    }

    fn path(&self) -> PathBuf {
        Path::new("/proc/sys").join(&self.name)
    }

    /// Reads the value, without the trailing newline.
    ///
    /// # Errors
    /// Fails if the sysctl does not exist or cannot be read.
    pub fn read(&self) -> Result<String> {
        let path = self.path();
        match fs::read_to_string(&path) {
            Ok(text) => Ok(text.trim_end().to_owned()),
            Err(source) => Err(Error::Sysctl { path, source }),
        }
    }

    /// Reads the value, or returns `None` if this kernel or namespace does not have the sysctl.
    ///
    /// # Errors
    /// Fails if the sysctl exists but cannot be read.
    pub fn find(&self) -> Result<Option<String>> {
        match self.read() {
            Err(Error::Sysctl { source, .. }) if source.kind() == ErrorKind::NotFound => Ok(None),
            value => value.map(Some),
        }
    }

    /// Sets the value. If the previous value was different, returns it for the caller to restore.
    ///
    /// # Errors
    /// Fails if the sysctl does not exist, is read-only (in a container), or does not accept the value.
    pub fn set(&self, value: &str) -> Result<Option<String>> {
        let previous = self.read()?;
        // The kernel separates several numbers with tabs.
        if previous.split_whitespace().eq(value.split_whitespace()) {
            return Ok(None);
        }
        let path = self.path();
        match fs::write(&path, value) {
            Ok(()) => Ok(Some(previous)),
            Err(source) => Err(Error::Sysctl { path, source }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_outside_net_is_rejected() {
        for name in [
            "",
            "net/",
            "kernel/hostname",
            "net/../kernel/x",
            "net//x",
            "/net/x",
            "net/./x",
        ] {
            assert!(Sysctl::new(name).is_err(), "{name:?}");
        }
        assert!(Sysctl::for_device(false, "../../..", "x").is_err());
        let dotted = Sysctl::for_device(true, "eth0.100", "accept_dad").unwrap();
        assert_eq!(dotted.name(), "net/ipv6/conf/eth0.100/accept_dad");
    }

    #[test]
    fn find_returns_none_for_missing_sysctl() {
        let sysctl = Sysctl::new("net/ipv4/conf/weir-none/arp_ignore").unwrap();
        assert_eq!(sysctl.find().unwrap(), None);
        assert!(sysctl.read().is_err() && sysctl.set("1").is_err());
    }

    #[test]
    fn setting_the_current_value_changes_nothing() {
        let sysctl = Sysctl::for_device(false, "lo", "arp_ignore").unwrap();
        let value = sysctl.read().unwrap();
        assert!(value.parse::<u8>().is_ok());
        assert_eq!(sysctl.set(&value).unwrap(), None);
    }
}
