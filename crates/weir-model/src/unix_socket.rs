//! Represents servers on Unix sockets (unix(7)).

use std::net::{IpAddr, Ipv6Addr};

/// Prefix of the path in the configuration.
pub const PREFIX: &str = "unix:";

/// Maximum length of a path, in bytes: `sun_path` without the terminating NUL.
pub const MAX_PATH_BYTES: usize = 107;

/// The discard-only prefix of RFC 6666, 100::/64. No server has an address in this prefix.
const DISCARD_ONLY: u128 = 0x0100 << 112;

/// Returns the address that identifies the server on the socket at `path` where servers are identified by address: in
/// health checks, overrides and hashes. Weir never connects to the address, which depends only on the path.
pub fn stand_in(path: &str) -> IpAddr {
    // FNV-1a with 64 bits.
    let mut hash: u64 = 0xcbf2_9ce4_8422_2325;
    for byte in path.bytes() {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    }
    IpAddr::V6(Ipv6Addr::from_bits(DISCARD_ONLY + u128::from(hash)))
}

/// Returns why a path is not valid for a server's socket; `None` if it is valid.
pub fn path_problem(path: &str) -> Option<String> {
    if path.starts_with('@') {
        return Some("abstract sockets are not supported".to_owned());
    }
    if !path.starts_with('/') {
        return Some("the path is not absolute".to_owned());
    }
    if path.len() > MAX_PATH_BYTES {
        let length = path.len();
        return Some(format!(
            "the path has {length} bytes, but the kernel allows at most {MAX_PATH_BYTES}"
        ));
    }
    if path.chars().any(char::is_control) {
        return Some("the path contains a control character".to_owned());
    }
    let is_plain = |part: &str| !matches!(part, "" | "." | "..");
    if !path.split('/').skip(1).all(is_plain) {
        return Some("the path contains an empty component, `.` or `..`".to_owned());
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

    /// Overrides and hashes refer to servers by this address, so it must not change.
    #[test]
    fn stand_in_of_known_path_does_not_change() {
        let address = stand_in("/run/app.sock").to_string();
        assert_eq!(address, "100::aa16:27ef:881e:dbbf");
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
