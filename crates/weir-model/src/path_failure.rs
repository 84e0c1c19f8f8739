//! Defines why probes along a service's path fail.
//!
//! The daemon reports the failure in the text of a server's reason, and `weir doctor` finds it there.

use std::fmt;
use std::net::IpAddr;
use std::time::Duration;

use crate::forward::TunnelKind;

/// Precedes the reason if the probe along the path fails, although the direct probe of the server passes.
pub const PATH_BROKEN_PREFIX: &str = "server up, path broken: ";

/// Precedes the time limit in the note of a probe without a response.
pub const NO_RESPONSE_PREFIX: &str = "no response within ";

/// How long a warning about missing replies to clients stays active after the last unanswered SYN.
pub const NO_REPLY_LIFETIME: Duration = Duration::from_mins(5);

/// Why a probe along a service's path failed. The text does not include the probe's own result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PathFailure {
    /// A machine with another MAC address replies from the VIP.
    OtherMachine(IpAddr),
    /// The server replies from its own address to packets with the service's DSCP.
    NotRestored(IpAddr),
    /// The server rejects the service's encapsulation.
    NoDecapsulation(TunnelKind),
    /// No reply from the VIP arrives: the server does not have it, or packets in one of the directions are lost.
    NoReply(IpAddr),
    /// An ICMP error reports that the VIP is unreachable.
    Unreachable(IpAddr),
    /// The server replies, but also to ARP requests for the VIP.
    ClaimsVip(IpAddr),
}

impl fmt::Display for PathFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OtherMachine(vip) => write!(f, "another machine replies from the VIP {vip}"),
            Self::NotRestored(vip) => {
                write!(
                    f,
                    "the server does not restore the VIP {vip} in marked packets"
                )
            }
            Self::NoDecapsulation(tunnel) => {
                write!(f, "no decapsulation: the server rejects {tunnel}")
            }
            Self::NoReply(vip) => write!(f, "no reply from the VIP {vip}"),
            Self::Unreachable(vip) => write!(f, "VIP {vip} unreachable"),
            Self::ClaimsVip(vip) => {
                write!(f, "the server replies to ARP requests for the VIP {vip}")
            }
        }
    }
}

impl PathFailure {
    /// Returns the failure that a reason contains; `None` = the reason is not one of these failures.
    pub fn find_in(reason: &str) -> Option<Self> {
        let tokens = reason.split([' ', ',', '(', ')']);
        let of_vip = |vip: IpAddr| {
            [
                Self::OtherMachine(vip),
                Self::NotRestored(vip),
                Self::NoReply(vip),
                Self::Unreachable(vip),
                Self::ClaimsVip(vip),
            ]
        };
        let of_vips = tokens.filter_map(|it| it.parse().ok()).flat_map(of_vip);
        let of_tunnels = TunnelKind::ALL.into_iter().map(Self::NoDecapsulation);
        of_vips
            .chain(of_tunnels)
            .find(|failure| reason.contains(&failure.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failure_is_found_in_a_reason() {
        for vip in ["10.0.0.10", "fd00::10", "fd00::"] {
            let vip: IpAddr = vip.parse().unwrap();
            for failure in [
                PathFailure::OtherMachine(vip),
                PathFailure::NotRestored(vip),
                PathFailure::NoDecapsulation(TunnelKind::Gre),
                PathFailure::NoReply(vip),
                PathFailure::Unreachable(vip),
                PathFailure::ClaimsVip(vip),
            ] {
                for reason in [
                    failure.to_string(),
                    format!("{PATH_BROKEN_PREFIX}{failure} (no response within 1s)"),
                    format!(
                        "{failure} (no response within 1s); possible causes: VIP not on lo, a firewall"
                    ),
                ] {
                    assert_eq!(PathFailure::find_in(&reason), Some(failure), "{reason}");
                }
            }
            let unreachable = PathFailure::Unreachable(vip);
            let reason = format!("{unreachable}: ICMP type 3 code 1");
            assert_eq!(PathFailure::find_in(&reason), Some(unreachable));
        }
    }

    #[test]
    fn result_of_a_probe_is_not_a_path_failure() {
        for reason in [
            "",
            "10.0.0.5:80: connection refused",
            "no response within 1s (10.0.0.5:80 for VIP 10.0.0.10)",
            "connection refused at 10.0.0.10:80",
        ] {
            assert_eq!(PathFailure::find_in(reason), None, "{reason}");
        }
    }
}
