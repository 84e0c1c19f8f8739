//! Host and port names, looked up by the caller.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::Protocol;

/// Name lookups on the host.
pub trait Names {
    /// The first IPv4 address of a host name.
    fn address(&self, host: &str) -> Option<Ipv4Addr>;
    /// The first IPv6 address of a host name.
    fn address6(&self, _host: &str) -> Option<Ipv6Addr> {
        None
    }
    /// The port of a service's name.
    fn port(&self, service: &str, protocol: Protocol) -> Option<u16>;
    /// The name of an address.
    fn host(&self, address: IpAddr) -> Option<String>;
    /// The name of a port.
    fn service(&self, port: u16, protocol: Protocol) -> Option<String>;
}

/// Knows no name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Numeric;

impl Names for Numeric {
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
