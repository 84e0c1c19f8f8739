//! Chooses source addresses of probes: never a VIP by accident.
//!
//! A server that has the VIP on its loopback cannot answer a probe from it. The kernel chooses an IPv4 source by the
//! route, but an IPv6 one among all addresses of the interface (RFC 6724), where the VIP may well come first.

use std::collections::HashSet;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

use socket2::SockRef;
use weir_health::Target;

/// The source address of a probe: the one that its check names, else the route's, or another one of the interface where
/// that is a VIP.
///
/// # Errors
/// There is no route, or no address but VIPs.
pub(crate) fn source(target: &Target, vips: &HashSet<IpAddr>) -> io::Result<IpAddr> {
    if let Some(source) = target.source {
        return Ok(source);
    }
    let routed = by_route(target)?;
    if !vips.contains(&routed) {
        return Ok(routed);
    }
    let IpAddr::V6(server) = target.address else {
        return Err(io::Error::from(io::ErrorKind::AddrNotAvailable));
    };
    let table = std::fs::read_to_string("/proc/thread-self/net/if_inet6")?;
    let other = nearest(&table, server, vips).map(IpAddr::V6);
    other.ok_or_else(|| io::Error::from(io::ErrorKind::AddrNotAvailable))
}

fn by_route(target: &Target) -> io::Result<IpAddr> {
    let any: IpAddr = if target.address.is_ipv4() {
        Ipv4Addr::UNSPECIFIED.into()
    } else {
        Ipv6Addr::UNSPECIFIED.into()
    };
    let socket = UdpSocket::bind(SocketAddr::new(any, 0))?;
    if let Some(interface) = &target.interface {
        SockRef::from(&socket).bind_device(Some(interface.as_bytes()))?;
    }
    // Nothing is sent: the kernel only looks the route up.
    socket.connect(SocketAddr::new(target.address, target.port.unwrap_or(9)))?;
    Ok(socket.local_addr()?.ip())
}

/// The address of the kernel's table that has the longest prefix in common with `server`, VIPs and unusable ones aside.
fn nearest(table: &str, server: Ipv6Addr, vips: &HashSet<IpAddr>) -> Option<Ipv6Addr> {
    let usable = table.lines().filter_map(address);
    usable
        .filter(|address| !vips.contains(&IpAddr::V6(*address)))
        .max_by_key(|address| (address.to_bits() ^ server.to_bits()).leading_zeros())
}

/// A line of `/proc/net/if_inet6`: address, interface, prefix, scope, flags, name, numbers in hexadecimal.
fn address(line: &str) -> Option<Ipv6Addr> {
    const GLOBAL: u32 = 0;
    // IFA_F_DADFAILED, IFA_F_DEPRECATED and IFA_F_TENTATIVE of linux/if_addr.h.
    const UNUSABLE: u32 = 0x08 | 0x20 | 0x40;
    let fields: Vec<&str> = line.split_whitespace().collect();
    let number = |at: usize| u32::from_str_radix(fields.get(at)?, 16).ok();
    let usable = number(3)? == GLOBAL && number(4)? & UNUSABLE == 0;
    let bits = u128::from_str_radix(fields.first()?, 16).ok()?;
    usable.then(|| Ipv6Addr::from_bits(bits))
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
    fn source_is_the_nearest_address_that_is_not_a_vip() {
        let vips: HashSet<IpAddr> = ["fd71::a".parse().unwrap()].into();
        let of = |server: &str| nearest(TABLE, server.parse().unwrap(), &vips);
        assert_eq!(of("fd71::14"), "fd71::3".parse().ok());
        assert_eq!(of("fd72::14"), "fd72::3".parse().ok());
        assert_eq!(nearest("", "fd71::14".parse().unwrap(), &vips), None);
    }
}
