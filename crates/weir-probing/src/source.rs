//! Selects source addresses for probes. A VIP is not used unless it is the configured source.
//!
//! A server that has the VIP on its loopback interface cannot reply to a probe from the VIP. The kernel selects an IPv4
//! source by the route, but an IPv6 source from all addresses of the interface (RFC 6724), which can be the VIP.

use std::collections::HashSet;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

use socket2::SockRef;
use weir_health::Target;

/// Returns the source address for a probe: the configured address, otherwise the route's source. If the route's source
/// is an IPv6 VIP, another address of the director is used.
///
/// # Errors
/// Returns an error if there is no route, if the route's source is an IPv4 VIP, or if it is an IPv6 VIP and no other
/// usable address can be read.
pub(crate) fn source(target: &Target, vips: &HashSet<IpAddr>) -> io::Result<IpAddr> {
    if let Some(source) = target.source {
        return Ok(source);
    }
    let routed = route_source(target)?;
    if !vips.contains(&routed) {
        return Ok(routed);
    }
    let IpAddr::V6(server) = target.address else {
        return Err(io::Error::from(io::ErrorKind::AddrNotAvailable));
    };
    let table = std::fs::read_to_string("/proc/thread-self/net/if_inet6")?;
    let alternative = longest_match(&table, server, vips).map(IpAddr::V6);
    alternative.ok_or_else(|| io::Error::from(io::ErrorKind::AddrNotAvailable))
}

fn route_source(target: &Target) -> io::Result<IpAddr> {
    let unspecified: IpAddr = if target.address.is_ipv4() {
        Ipv4Addr::UNSPECIFIED.into()
    } else {
        Ipv6Addr::UNSPECIFIED.into()
    };
    let socket = UdpSocket::bind(SocketAddr::new(unspecified, 0))?;
    if let Some(interface) = &target.interface {
        SockRef::from(&socket).bind_device(Some(interface.as_bytes()))?;
    }
    // Nothing is sent: the kernel only looks up the route.
    socket.connect(SocketAddr::new(target.address, target.port.unwrap_or(9)))?;
    Ok(socket.local_addr()?.ip())
}

/// Returns the usable address in the kernel's table that shares the longest prefix with `server`, except VIPs.
fn longest_match(table: &str, server: Ipv6Addr, vips: &HashSet<IpAddr>) -> Option<Ipv6Addr> {
    let usable_addresses = table.lines().filter_map(parse_address);
    usable_addresses
        .filter(|address| !vips.contains(&IpAddr::V6(*address)))
        .max_by_key(|address| (address.to_bits() ^ server.to_bits()).leading_zeros())
}

/// Parses a line of `/proc/net/if_inet6`: address, interface, prefix, scope, flags, name; numbers are hexadecimal.
/// Returns the address if it is usable.
fn parse_address(line: &str) -> Option<Ipv6Addr> {
    const GLOBAL: u32 = 0;
    // IFA_F_DADFAILED, IFA_F_DEPRECATED and IFA_F_TENTATIVE in linux/if_addr.h.
    const UNUSABLE: u32 = 0x08 | 0x20 | 0x40;
    let fields: Vec<&str> = line.split_whitespace().collect();
    let parse_field = |index: usize| u32::from_str_radix(fields.get(index)?, 16).ok();
    let is_usable = parse_field(3)? == GLOBAL && parse_field(4)? & UNUSABLE == 0;
    let bits = u128::from_str_radix(fields.first()?, 16).ok()?;
    is_usable.then(|| Ipv6Addr::from_bits(bits))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "\
fd71000000000000000000000000000a 02 80 00 80     eth0
fd710000000000000000000000000003 02 40 00 80     eth0
fd710000000000000000000000000015 02 40 00 a0     eth0
fd720000000000000000000000000003 03 40 00 80     eth1
fe80000000000000000000fffe000001 02 40 20 80     eth0
00000000000000000000000000000001 01 80 10 80       lo
not a line
";

    #[test]
    fn source_is_longest_match_that_is_not_a_vip() {
        let vips: HashSet<IpAddr> = ["fd71::a".parse().unwrap()].into();
        let source = |server: &str| longest_match(TABLE, server.parse().unwrap(), &vips);
        assert_eq!(source("fd71::14"), "fd71::3".parse().ok());
        assert_eq!(source("fd72::14"), "fd72::3".parse().ok());
        assert_eq!(longest_match("", "fd71::14".parse().unwrap(), &vips), None);
    }
}
