//! Defines `[cluster.publish]`, which limits the services and settings that a group may publish to this director.

use std::net::{IpAddr, SocketAddr};

use crate::{Forward, Network, Ports};

/// Settings of `[cluster.publish]`. Weir reads them only from the director's own file, so a published configuration
/// cannot extend them.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Publish {
    /// Networks for VIPs and SNAT source addresses.
    pub vips: Vec<Network>,
    /// Listener port ranges, each as first and last port; empty = all ports.
    pub ports: Vec<(u16, u16)>,
    /// Listener firewall marks.
    pub marks: Vec<u32>,
    /// Server networks.
    pub servers: Vec<Network>,
    /// Layer 4 forwarding methods.
    pub forwards: Vec<Forward>,
    /// Whether proxy services are permitted.
    pub proxy: bool,
    /// Whether `[timeouts]` and `[ipvs]` are permitted.
    pub timeouts: bool,
}

impl Publish {
    /// Default of [`Self::forwards`]: all methods that forward packets.
    pub const FORWARDS: [Forward; 4] = [
        Forward::Nat,
        Forward::Direct,
        Forward::Tunnel,
        Forward::L3dsr,
    ];

    /// Returns whether an address may be a VIP.
    pub fn permits_vip(&self, address: IpAddr) -> bool {
        self.vips.iter().any(|network| network.contains(address))
    }

    /// Returns whether a listener may have these ports.
    pub fn permits_ports(&self, ports: Ports) -> bool {
        let (first, last) = ports.bounds();
        let covers = |(lowest, highest): &(u16, u16)| *lowest <= first && last <= *highest;
        self.ports.is_empty() || self.ports.iter().any(covers)
    }

    /// Returns whether a server may have an address.
    pub fn permits_server(&self, address: IpAddr) -> bool {
        self.servers.iter().any(|network| network.contains(address))
    }

    /// Returns whether a proxy service may listen on an address.
    pub fn permits_proxy(&self, address: SocketAddr) -> bool {
        self.proxy
            && self.permits_vip(address.ip())
            && self.permits_ports(Ports::One(address.port()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn default_permits_every_method_that_handles_packets() {
        let methods = Forward::ALL.into_iter().filter(|it| it.handles_packets());
        assert_eq!(Publish::FORWARDS.to_vec(), methods.collect::<Vec<_>>());
    }

    #[test]
    fn only_listed_networks_and_ports_are_permitted() {
        let network = |address: &str, prefix| Network {
            address: address.parse().unwrap(),
            prefix,
        };
        let publish = Publish {
            vips: vec![network("192.0.2.0", 24), network("2001:db8::", 32)],
            ports: vec![(80, 80), (8000, 8099)],
            servers: vec![network("10.0.0.0", 8)],
            ..Publish::default()
        };
        let address = |text: &str| text.parse::<IpAddr>().unwrap();
        assert!(publish.permits_vip(address("192.0.2.255")));
        assert!(publish.permits_vip(address("2001:db8::1")));
        assert!(!publish.permits_vip(address("192.0.3.0")));
        assert!(!publish.permits_vip(address("0.0.0.0")));
        assert!(!publish.permits_vip(address("10.0.0.1")));
        assert!(publish.permits_server(address("10.0.0.1")));
        assert!(!publish.permits_server(address("192.0.2.1")));
        for (ports, expected) in [
            (Ports::One(80), true),
            (Ports::One(81), false),
            (Ports::Range(8000, 8099), true),
            (Ports::Range(8000, 8100), false),
            (Ports::Any, false),
        ] {
            assert_eq!(publish.permits_ports(ports), expected, "{ports}");
        }
        let socket = "192.0.2.1:80".parse().unwrap();
        assert!(
            !publish.permits_proxy(socket),
            "a proxy service requires `proxy`"
        );
        let with_proxy = Publish {
            proxy: true,
            ports: Vec::new(),
            ..publish
        };
        assert!(with_proxy.permits_proxy(socket) && with_proxy.permits_ports(Ports::Any));
    }
}
