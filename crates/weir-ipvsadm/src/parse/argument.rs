//! Parses arguments of options: addresses, ports and times.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::exit::Exit;
use crate::text::{inet_aton, parse_number};
use crate::{Names, Protocol};

/// Maximum value of persistence and other timeouts, in seconds.
const MAX_TIMEOUT_S: i64 = 31 * 86_400;

/// An address and an optional port: the argument of `-t`, `-u` or `-r`.
pub(super) struct HostPort {
    pub(super) address: IpAddr,
    pub(super) port: Option<u16>,
}

pub(super) fn parse_timeout(text: &str, min: i64) -> Result<u32, Exit> {
    parse_number(text, min, MAX_TIMEOUT_S)
        .map(|seconds| seconds as u32)
        .ok_or_else(|| Exit::fail(format!("invalid timeout value `{text}' specified")))
}

/// Parses `host[:port]` or `[v6]:port`. Brackets must be followed by a colon. An IPv4 address in brackets is accepted,
/// but the port after it is ignored. A host name in brackets is resolved to an IPv6 address, as `-S` writes it.
pub(super) fn parse_host_port(
    text: &str,
    protocol: Option<Protocol>,
    names: &dyn Names,
) -> Option<HostPort> {
    if text.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let (inside, after) = match text.strip_prefix('[') {
        Some(remaining) => {
            let (inside, after) = remaining.split_once(']')?;
            (inside, Some(after.strip_prefix(':')?))
        }
        None => (text, None),
    };
    let v6 = inside.parse::<Ipv6Addr>().ok();
    let v6 = v6.or_else(|| after.and_then(|_| names.address6(inside)));
    let (address, port) = match v6 {
        Some(v6) => (IpAddr::V6(v6), after),
        None => {
            let (host, port) = match inside.rsplit_once(':') {
                Some((host, port)) => (host, Some(port)),
                None => (inside, None),
            };
            let v4 = inet_aton(host).or_else(|| names.address(host))?;
            (IpAddr::V4(v4), port)
        }
    };
    let port = match port {
        Some(text) => Some(parse_port(text, protocol, names)?),
        None => None,
    };
    Some(HostPort { address, port })
}

fn parse_port(text: &str, protocol: Option<Protocol>, names: &dyn Names) -> Option<u16> {
    match parse_number(text, 0, 65_535) {
        Some(port) => u16::try_from(port).ok(),
        None => names.port(text, protocol?),
    }
}

/// Checks that `text` is a multicast group address.
pub(super) fn check_group(text: &str) -> Result<(), Exit> {
    let (family, is_valid) = if text.contains(':') {
        let group = text.parse::<Ipv6Addr>();
        ("IPv6", group.is_ok_and(|group| group.is_multicast()))
    } else {
        let group = text.parse::<Ipv4Addr>();
        ("IPv4", group.is_ok_and(|group| group.is_multicast()))
    };
    if is_valid {
        return Ok(());
    }
    Err(Exit::fail(format!("invalid {family} mcast-group `{text}'")))
}

/// Parses a number like atoi(3), which stops at the first character that is not a digit. Returns 0 if there is no
/// number.
pub(super) fn parse_leading_number(text: &str) -> i64 {
    let text = text.trim_start();
    let end = text
        .char_indices()
        .find(|(index, c)| !(c.is_ascii_digit() || *index == 0 && matches!(c, '+' | '-')))
        .map_or(text.len(), |(index, _)| index);
    text[..end].parse().unwrap_or(0)
}

/// Truncates a string to at most `bytes` bytes, at a character boundary.
pub(super) fn truncate(text: &str, bytes: usize) -> &str {
    &text[..text.floor_char_boundary(bytes)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leading_number_is_parsed_like_atoi() {
        for (text, expected) in [
            ("64", 64),
            (" +64x", 64),
            ("-3", -3),
            ("1-2", 1),
            ("1+2", 1),
            ("--1", 0),
            ("-", 0),
            ("x1", 0),
            ("", 0),
        ] {
            assert_eq!(parse_leading_number(text), expected, "{text:?}");
        }
    }

    #[test]
    fn strings_are_truncated_at_a_character_boundary() {
        for (text, bytes, expected) in [("abc", 2, "ab"), ("abc", 3, "abc"), ("aé", 2, "a")] {
            assert_eq!(truncate(text, bytes), expected);
        }
    }
}
