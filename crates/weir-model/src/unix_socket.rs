//! Servers on unix sockets (unix(7)).

use std::net::{IpAddr, Ipv6Addr};

/// Prefix of the path in the configuration.
pub const PREFIX: &str = "unix:";

/// Maximum length of a path in bytes: `sun_path` without the final zero.
pub const PATH_MAX: usize = 107;

/// The discard-only prefix of RFC 6666, 100::/64: no server has an address in it.
const DISCARD_ONLY: u128 = 0x0100 << 112;

/// An address that identifies the server on the socket at `path`, where servers are identified by address: in health
/// checks, in overrides and in hashes. Nothing connects to it. It depends on the path only.
pub fn stand_in(path: &str) -> IpAddr {
    // FNV-1a with 64 bits.
    let mut hash: u64 = 0xcbf2_9ce4_8422_2325;
    for byte in path.bytes() {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    }
    IpAddr::V6(Ipv6Addr::from_bits(DISCARD_ONLY | u128::from(hash)))
}

/// Why a path cannot be that of a server; `None` = it can.
pub fn path_problem(path: &str) -> Option<String> {
    if path.starts_with('@') {
        return Some("abstract sockets are not supported".to_owned());
    }
    if !path.starts_with('/') {
        return Some("the path of the socket is not absolute".to_owned());
    }
    if path.len() > PATH_MAX {
        let length = path.len();
        return Some(format!(
            "the path has {length} bytes, and the kernel allows {PATH_MAX}"
        ));
    }
    if path.chars().any(char::is_control) {
        return Some("the path has a control character".to_owned());
    }
    let is_plain = |part: &str| !matches!(part, "" | "." | "..");
    if !path.split('/').skip(1).all(is_plain) {
        return Some("the path has an empty part, `.` or `..`".to_owned());
    }
    None
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn stand_in_is_in_the_discard_only_prefix_and_differs_by_path() {
        let paths = (0..1000).map(|number| format!("/run/app/{number}.sock"));
        let addresses: HashSet<IpAddr> = paths.map(|path| stand_in(&path)).collect();
        assert_eq!(addresses.len(), 1000);
        for address in addresses {
            let IpAddr::V6(address) = address else {
                panic!("{address}")
            };
            assert_eq!(address.segments()[..4], [0x100, 0, 0, 0]);
        }
    }

    #[test]
    fn path_must_be_absolute_plain_and_short() {
        assert_eq!(path_problem("/run/app.sock"), None);
        assert_eq!(path_problem(&format!("/{}", "a".repeat(106))), None);
        let long = format!("/{}", "a".repeat(107));
        for path in [
            "",
            "run/app.sock",
            "@app",
            "/",
            "/run/",
            "/run//app",
            "/run/./app",
            "/run/../app",
            "/run/a\nb",
            &long,
        ] {
            assert!(path_problem(path).is_some(), "{path}");
        }
    }
}
