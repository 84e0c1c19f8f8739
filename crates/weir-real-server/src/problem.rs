//! Defines the reasons to reject a request, each with a fix.

use std::net::IpAddr;

use weir_model::Forward;

use crate::entry::{Entry, host_prefix};

/// The maximum DSCP: it has six bits.
pub(crate) const MAX_DSCP: u8 = 63;

/// A reason to reject a request.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    /// `--vip` is missing.
    #[error("no VIP is specified: use --vip ADDRESS[:PORT[-PORT]]")]
    NoVip,
    /// The forwarding method requires no preparation of the server.
    #[error("forward {forward} requires no preparation of the server")]
    Forward {
        /// The method.
        forward: Forward,
    },
    /// The option is for a different forwarding method.
    #[error("{option} is only allowed with forward {forward}")]
    Option {
        /// The option.
        option: &'static str,
        /// The forwarding method that the option is for.
        forward: &'static str,
    },
    /// The DSCP is out of range.
    #[error(
        "dscp {dscp} is out of range: use 1 to {MAX_DSCP}, or 0 to rewrite all replies from the port"
    )]
    Dscp {
        /// The value.
        dscp: u8,
    },
    /// Two VIPs share a DSCP value and a port, so the server could not distinguish their packets.
    #[error("{first} and {second} share a port: use a different --dscp for one of them")]
    SharedDscp {
        /// The first VIP.
        first: Entry,
        /// The second VIP.
        second: Entry,
    },
    /// The interface does not exist.
    #[error("no such interface: {name:?}")]
    NoInterface {
        /// The name.
        name: String,
    },
    /// There is no interface to attach programs to.
    #[error(
        "there is no interface to attach the programs to: specify an Ethernet interface with --interface"
    )]
    NoInterfaces,
    /// The VIP is on an interface that would announce it.
    #[error(
        "{vip} is on {interface}, where the kernel replies to ARP and NDP requests for it: {}",
        removal_advice(*vip, interface, *len)
    )]
    VipOnInterface {
        /// The VIP.
        vip: IpAddr,
        /// The interface that has the VIP.
        interface: String,
        /// The prefix length on the interface.
        len: u8,
    },
    /// The host would accept every address of the prefix as its own.
    #[error("{vip}/{len} on lo covers the whole network: change its prefix length to \
    {}", if .vip.is_ipv4() { 32 } else { 128 })]
    VipPrefix {
        /// The VIP.
        vip: IpAddr,
        /// The prefix length.
        len: u8,
    },
}

/// Returns the fix. If the prefix covers more than a single address, the address may be this machine's own.
fn removal_advice(vip: IpAddr, interface: &str, len: u8) -> String {
    if len < host_prefix(vip) {
        return "if this is the server's own address, specify the VIP of the director's service instead; otherwise \
                remove it there, because VIPs of a server must be on lo"
            .to_owned();
    }
    format!(
        "remove it there (ip addr del {vip}/{len} dev {interface}), because VIPs of a server must be on lo"
    )
}
