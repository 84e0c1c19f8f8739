//! Resolves names for command lines and listings.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use weir_ipvsadm::{Names, Protocol};
use weir_sys::names;

/// Resolves names with the system's resolver and `/etc/services`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HostNames;

impl Names for HostNames {
    fn address(&self, host: &str) -> Option<Ipv4Addr> {
        names::address_of(host)
    }

    fn address6(&self, host: &str) -> Option<Ipv6Addr> {
        names::address6_of(host)
    }

    fn port(&self, service: &str, protocol: Protocol) -> Option<u16> {
        names::port_of(service, protocol.as_str())
    }

    fn host(&self, address: IpAddr) -> Option<String> {
        names::host_of(address)
    }

    fn service(&self, port: u16, protocol: Protocol) -> Option<String> {
        names::service_of(port, protocol.as_str())
    }
}
