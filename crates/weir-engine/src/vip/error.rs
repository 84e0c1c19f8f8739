//! Defines the errors from adding and removing VIPs.

use std::net::IpAddr;
use std::path::PathBuf;

/// The reason why an address was not added or removed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// `vip_interface` does not exist.
    #[error("interface {name} not found")]
    NoInterface {
        /// The name.
        name: String,
    },
    /// A capability is missing.
    #[error(
        "`vip_interface`: adding {address} needs CAP_NET_ADMIN: run as root, grant it (systemd: AmbientCapabilities=), \
         or add the address yourself"
    )]
    MissingCapability {
        /// The first address that is missing.
        address: IpAddr,
    },
    /// A netlink request failed.
    #[error(transparent)]
    Network(#[from] weir_netlink::Error),
    /// Another system call failed.
    #[error(transparent)]
    System(#[from] weir_sys::Error),
    /// The record cannot be written or removed.
    #[error("{path}: {source}", path = path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The kernel's error.
        source: std::io::Error,
    },
}
