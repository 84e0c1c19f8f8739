//! Reads the effective capabilities of this process from `/proc/self/status`.
//!
//! Commands use the capabilities to report missing ones. The kernel still checks each later call.

use std::fs;

use crate::{Error, Result};

/// The capabilities that Weir uses (`linux/capability.h`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Capability {
    /// Binding to ports below 1024.
    NetBindService,
    /// Addresses, routes, neighbors, device features, XDP and tc.
    NetAdmin,
    /// Raw and packet sockets: ICMP checks, ARP, VRRP.
    NetRaw,
    /// Namespaces and mounts.
    SysAdmin,
    /// Raising the locked-memory limit.
    SysResource,
    /// Loading BPF programs and creating maps.
    Bpf,
}

impl Capability {
    const fn bit(self) -> u32 {
        match self {
            Self::NetBindService => 10,
            Self::NetAdmin => 12,
            Self::NetRaw => 13,
            Self::SysAdmin => 21,
            Self::SysResource => 24,
            Self::Bpf => 39,
        }
    }

    /// Returns the kernel's name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::NetBindService => "CAP_NET_BIND_SERVICE",
            Self::NetAdmin => "CAP_NET_ADMIN",
            Self::NetRaw => "CAP_NET_RAW",
            Self::SysAdmin => "CAP_SYS_ADMIN",
            Self::SysResource => "CAP_SYS_RESOURCE",
            Self::Bpf => "CAP_BPF",
        }
    }
}

/// A set of effective capabilities.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Capabilities(u64);

impl Capabilities {
    /// Returns the effective set of the calling process.
    ///
    /// # Errors
    /// Fails if `/proc` is not mounted, or the file has an unexpected format.
    pub fn effective() -> Result<Self> {
        let path = "/proc/self/status";
        let text = fs::read_to_string(path).map_err(|error| Error::file(path, error))?;
        Self::parse(&text).ok_or_else(|| Error::Format {
            subject: path.to_owned(),
            expected: "a CapEff line with a hexadecimal mask",
            found: text
                .lines()
                .find(|line| line.starts_with("CapEff"))
                .unwrap_or("")
                .to_owned(),
        })
    }

    fn parse(status: &str) -> Option<Self> {
        let mask = status
            .lines()
            .find_map(|line| line.strip_prefix("CapEff:"))?;
        u64::from_str_radix(mask.trim(), 16).ok().map(Self)
    }

    /// Returns whether `capability` is in the set. `CAP_SYS_ADMIN` includes `CAP_BPF`, as in the kernel.
    pub const fn has(self, capability: Capability) -> bool {
        let mut mask = 1_u64 << capability.bit();
        if matches!(capability, Capability::Bpf) {
            mask |= 1 << Capability::SysAdmin.bit();
        }
        self.0 & mask != 0
    }

    /// Returns the capabilities in `required` that are not in the set, in the same order.
    pub fn missing(self, required: &[Capability]) -> Vec<Capability> {
        required
            .iter()
            .copied()
            .filter(|capability| !self.has(*capability))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_effective_capabilities_are_read() {
        let status = "Name:\tx\nCapPrm:\tffffffffffffffff\nCapEff:\t0000000000001000\n";
        let set = Capabilities::parse(status).unwrap();
        assert!(set.has(Capability::NetAdmin));
        assert!(!set.has(Capability::NetRaw));
        assert_eq!(
            set.missing(&[Capability::Bpf, Capability::NetAdmin, Capability::SysAdmin]),
            [Capability::Bpf, Capability::SysAdmin]
        );
    }

    #[test]
    fn sys_admin_includes_bpf() {
        let set = Capabilities::parse("CapEff: 0000000000200000").unwrap();
        assert!(set.has(Capability::Bpf) && !set.has(Capability::NetAdmin));
    }

    #[test]
    fn text_without_a_mask_is_rejected() {
        assert_eq!(Capabilities::parse("CapEff: none"), None);
        assert_eq!(Capabilities::parse(""), None);
    }
}
