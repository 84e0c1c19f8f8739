//! Looks up hosts, ports and groups by name, and the names of addresses, ports and users, with the resolver and in
//! `/etc`.

#![allow(unsafe_code, reason = "getnameinfo(3) has no safe wrapper")]

use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs};

const SERVICES: &str = "/etc/services";
const GROUPS: &str = "/etc/group";
const USERS: &str = "/etc/passwd";

/// Returns the first IPv4 address of a host name, in the resolver's order.
pub fn address_of(host: &str) -> Option<Ipv4Addr> {
    let addresses = (host, 0).to_socket_addrs().ok()?;
    addresses
        .filter_map(|address| match address.ip() {
            IpAddr::V4(v4) => Some(v4),
            IpAddr::V6(_) => None,
        })
        .next()
}

/// Returns the first IPv6 address of a host name, in the resolver's order.
pub fn address6_of(host: &str) -> Option<Ipv6Addr> {
    let mut addresses = (host, 0).to_socket_addrs().ok()?;
    addresses.find_map(|address| match address.ip() {
        IpAddr::V6(v6) => Some(v6),
        IpAddr::V4(_) => None,
    })
}

/// Returns the host name of an address; `None` = it has no name.
pub fn host_of(address: IpAddr) -> Option<String> {
    let (storage, length) = sockaddr(SocketAddr::new(address, 0));
    let mut name = [0u8; libc::NI_MAXHOST as usize];
    // SAFETY: `storage` contains an address of `length` bytes, `name` has the passed length, and no service name is
    // requested.
    let status = unsafe {
        libc::getnameinfo(
            (&raw const storage).cast(),
            length,
            name.as_mut_ptr().cast(),
            name.len() as libc::socklen_t,
            std::ptr::null_mut(),
            0,
            libc::NI_NAMEREQD,
        )
    };
    if status != 0 {
        return None;
    }
    let end = name.iter().position(|byte| *byte == 0)?;
    String::from_utf8(name[..end].to_vec()).ok()
}

/// Converts an address to a `sockaddr`.
fn sockaddr(address: SocketAddr) -> (libc::sockaddr_storage, libc::socklen_t) {
    // SAFETY: an all-zero sockaddr_storage is valid; its family is AF_UNSPEC.
    let mut storage: libc::sockaddr_storage = unsafe { std::mem::zeroed() };
    let length = match address {
        SocketAddr::V4(v4) => {
            let raw = libc::sockaddr_in {
                sin_family: libc::AF_INET as libc::sa_family_t,
                sin_port: v4.port().to_be(),
                sin_addr: libc::in_addr {
                    s_addr: u32::from(*v4.ip()).to_be(),
                },
                sin_zero: [0; 8],
            };
            // SAFETY: sockaddr_storage has sufficient size and alignment for every address.
            unsafe { (&raw mut storage).cast::<libc::sockaddr_in>().write(raw) };
            size_of::<libc::sockaddr_in>()
        }
        SocketAddr::V6(v6) => {
            let raw = libc::sockaddr_in6 {
                sin6_family: libc::AF_INET6 as libc::sa_family_t,
                sin6_port: v6.port().to_be(),
                sin6_flowinfo: 0,
                sin6_addr: libc::in6_addr {
                    s6_addr: v6.ip().octets(),
                },
                sin6_scope_id: 0,
            };
            // SAFETY: as above.
            unsafe { (&raw mut storage).cast::<libc::sockaddr_in6>().write(raw) };
            size_of::<libc::sockaddr_in6>()
        }
    };
    (storage, length as libc::socklen_t)
}

/// Returns the ID of a group in `/etc/group`.
pub fn group_id(name: &str) -> Option<u32> {
    let text = fs::read_to_string(GROUPS).ok()?;
    let line = text
        .lines()
        .find(|line| line.split(':').next() == Some(name))?;
    line.split(':').nth(2)?.parse().ok()
}

/// Returns the name of a user in `/etc/passwd`.
pub fn user_name(id: u32) -> Option<String> {
    let text = fs::read_to_string(USERS).ok()?;
    let id = id.to_string();
    let line = text
        .lines()
        .find(|line| line.split(':').nth(2) == Some(&id))?;
    line.split(':').next().map(str::to_owned)
}

/// Returns the port of a service name for a protocol.
pub fn port_of(service: &str, protocol: &str) -> Option<u16> {
    let text = fs::read_to_string(SERVICES).ok()?;
    parse_services(&text)
        .find(|entry| entry.protocol == protocol && entry.names.contains(&service))
        .map(|entry| entry.port)
}

/// Returns the first service name of a port for a protocol.
pub fn service_of(port: u16, protocol: &str) -> Option<String> {
    let text = fs::read_to_string(SERVICES).ok()?;
    let entry =
        parse_services(&text).find(|entry| (entry.port, entry.protocol) == (port, protocol))?;
    entry.names.first().map(|name| (*name).to_owned())
}

struct Entry<'a> {
    port: u16,
    protocol: &'a str,
    /// The official name, followed by aliases.
    names: Vec<&'a str>,
}

/// Parses the lines of services(5), and skips invalid lines.
fn parse_services(text: &str) -> impl Iterator<Item = Entry<'_>> {
    text.lines().filter_map(|line| {
        let mut words = line.split('#').next()?.split_whitespace();
        let name = words.next()?;
        let (port, protocol) = words.next()?.split_once('/')?;
        Some(Entry {
            port: port.parse().ok()?,
            protocol,
            names: std::iter::once(name).chain(words).collect(),
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_services_are_parsed() {
        let text =
            "# ports\nhttp 80/tcp www # WorldWideWeb\n\nhttp 80/udp\nbad\nworse 1\nx y/tcp\n";
        let parsed: Vec<(u16, &str, Vec<&str>)> = parse_services(text)
            .map(|entry| (entry.port, entry.protocol, entry.names))
            .collect();
        assert_eq!(
            parsed,
            [(80, "tcp", vec!["http", "www"]), (80, "udp", vec!["http"])]
        );
    }

    #[test]
    fn address_literal_is_resolved_and_unknown_name_is_not() {
        assert_eq!(address_of("127.0.0.1"), Some(Ipv4Addr::LOCALHOST));
        assert_eq!(address_of("no.such.host.invalid"), None);
    }
}
