//! Defines host and port name lookups, which the caller implements.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::Protocol;

/// Looks up names of hosts and ports.
pub trait Names {
    /// Returns the first IPv4 address of a host name.
    fn address(&self, host: &str) -> Option<Ipv4Addr>;
    /// Returns the first IPv6 address of a host name.
    fn address6(&self, _host: &str) -> Option<Ipv6Addr> {
        None
    }
    /// Returns the port number of a service name, from `/etc/services`.
    fn port(&self, service: &str, protocol: Protocol) -> Option<u16>;
    /// Returns the host name of an address.
    fn host(&self, address: IpAddr) -> Option<String>;
    /// Returns the service name of a port, from `/etc/services`.
    fn service(&self, port: u16, protocol: Protocol) -> Option<String>;
}

/// Does not look up names: all hosts and ports are numeric.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NumericNames;

impl Names for NumericNames {
    fn address(&self, _: &str) -> Option<Ipv4Addr> {
        None
    }

    fn port(&self, _: &str, _: Protocol) -> Option<u16> {
        None
    }

    fn host(&self, _: IpAddr) -> Option<String> {
        None
    }

    fn service(&self, _: u16, _: Protocol) -> Option<String> {
        None
    }
}
