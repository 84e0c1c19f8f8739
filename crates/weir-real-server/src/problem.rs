//! Reasons to reject a request, each with the fix.

use std::net::IpAddr;

use weir_model::Forward;

use crate::entry::{Entry, host_prefix};

/// The largest DSCP, six bits.
pub(crate) const MAX_DSCP: u8 = 63;

/// A reason to reject a request.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    /// No `--vip`.
    #[error("no VIP: name one by --vip ADDRESS[:PORT[-PORT]]")]
    NoVip,
    /// This forward is handled by the director alone.
    #[error("a server needs no preparation for forward {forward}")]
    Forward {
        /// The method.
        forward: Forward,
    },
    /// An option of another forward.
    #[error("{option} belongs to forward {belongs_to}")]
    Option {
        /// The option.
        option: &'static str,
        /// The forward that it belongs to.
        belongs_to: &'static str,
    },
    /// Not a DSCP.
    #[error("dscp {dscp}: 1 to {MAX_DSCP}, or 0 for rewriting all replies from the port")]
    Dscp {
        /// The value.
        dscp: u8,
    },
    /// Two VIPs cannot share a mark and a port: a packet could not be assigned to one of them.
    #[error("{first} and {second} have a port in common: give one of them another --dscp")]
    SharedMark {
        /// One.
        first: Entry,
        /// The other.
        second: Entry,
    },
    /// No such interface.
    #[error("no interface is called {name:?}")]
    NoInterface {
        /// The name.
        name: String,
    },
    /// Nothing to attach to.
    #[error("no interface has an address: name one by --interface")]
    NoInterfaces,
    /// The VIP would be announced.
    #[error(
        "{vip} is on {interface}, where the kernel answers ARP and NDP for it: {}",
        off_interface(*vip, interface, *len)
    )]
    VipOnInterface {
        /// The VIP.
        vip: IpAddr,
        /// Where it is.
        interface: String,
        /// Its prefix's length there.
        len: u8,
    },
    /// The host would accept every address of the prefix as its own.
    #[error("{vip}/{len} is on lo, which covers the whole network: a server has it as \
     /{}", if .vip.is_ipv4() { 32 } else { 128 })]
    VipPrefix {
        /// The VIP.
        vip: IpAddr,
        /// Its prefix's length.
        len: u8,
    },
}

/// The fix. A VIP usually has a prefix of full length; with a shorter one it may be this machine's own address.
fn off_interface(vip: IpAddr, interface: &str, len: u8) -> String {
    if len < host_prefix(vip) {
        return format!(
            "if /{len} is this server's own network, name the VIP of the director's service instead; else remove it \
             there, a server has VIPs on lo"
        );
    }
    format!("remove it there (ip addr del {vip}/{len} dev {interface}), a server has VIPs on lo")
}
