//! Settings below `/proc/sys/net`, of the calling thread's network namespace.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use crate::{Error, Result};

/// One setting, by its path below `/proc/sys` (`net/ipv4/conf/lo/arp_ignore`).
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Sysctl {
    name: String,
}

impl Sysctl {
    /// Names a setting; it need not exist. Slashes separate, so that device names
    /// with dots stay whole.
    ///
    /// # Errors
    /// The name does not start with `net/`, or has an empty or dot component.
    pub fn new(name: impl Into<String>) -> Result<Self> {
        let name = name.into();
        let plain = |part: &str| !matches!(part, "" | "." | "..");
        if name.starts_with("net/") && name.split('/').all(plain) {
            Ok(Self { name })
        } else {
            Err(Error::SysctlName { name })
        }
    }

    /// The setting `key` of one device and family (`conf/DEVICE/KEY`).
    ///
    /// # Errors
    /// A device name that cannot be one.
    pub fn of_device(ipv6: bool, device: &str, key: &str) -> Result<Self> {
        let family = if ipv6 { "ipv6" } else { "ipv4" };
        let name = format!("net/{family}/conf/{device}/{key}");
        if device.contains('/') {
            return Err(Error::SysctlName { name });
        }
        Self::new(name)
    }

    /// The name that this was made of.
    pub fn name(&self) -> &str {
        &self.name
    }

    fn path(&self) -> PathBuf {
        Path::new("/proc/sys").join(&self.name)
    }

    /// The value, without the line end.
    ///
    /// # Errors
    /// The setting does not exist here or may not be read.
    pub fn read(&self) -> Result<String> {
        let path = self.path();
        match fs::read_to_string(&path) {
            Ok(text) => Ok(text.trim_end().to_owned()),
            Err(source) => Err(Error::Sysctl { path, source }),
        }
    }

    /// The value, or `None` when this kernel or namespace has no such setting.
    ///
    /// # Errors
    /// It exists and may not be read.
    pub fn find(&self) -> Result<Option<String>> {
        match self.read() {
            Err(Error::Sysctl { source, .. }) if source.kind() == ErrorKind::NotFound => Ok(None),
            value => value.map(Some),
        }
    }

    /// Sets the value; returns the former one when that differed. Writing it back
    /// is the caller's to remember.
    ///
    /// # Errors
    /// The setting does not exist, is read-only here (a container), or refuses the value.
    pub fn set(&self, value: &str) -> Result<Option<String>> {
        let former = self.read()?;
        // Settings with several numbers are shown with tabs between them.
        if former.split_whitespace().eq(value.split_whitespace()) {
            return Ok(None);
        }
        let path = self.path();
        match fs::write(&path, value) {
            Ok(()) => Ok(Some(former)),
            Err(source) => Err(Error::Sysctl { path, source }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_stay_below_net() {
        for bad in [
            "",
            "net/",
            "kernel/hostname",
            "net/../kernel/x",
            "net//x",
            "/net/x",
            "net/./x",
        ] {
            assert!(Sysctl::new(bad).is_err(), "{bad:?}");
        }
        assert!(Sysctl::of_device(false, "../../..", "x").is_err());
        let dotted = Sysctl::of_device(true, "eth0.100", "accept_dad").unwrap();
        assert_eq!(dotted.name(), "net/ipv6/conf/eth0.100/accept_dad");
    }

    #[test]
    fn absence_is_an_answer() {
        let sysctl = Sysctl::new("net/ipv4/conf/weir-none/arp_ignore").unwrap();
        assert_eq!(sysctl.find().unwrap(), None);
        assert!(sysctl.read().is_err() && sysctl.set("1").is_err());
    }

    #[test]
    fn the_loopback_has_settings() {
        let sysctl = Sysctl::of_device(false, "lo", "arp_ignore").unwrap();
        let value = sysctl.read().unwrap();
        assert!(value.parse::<u8>().is_ok());
        assert_eq!(sysctl.set(&value).unwrap(), None);
    }
}
