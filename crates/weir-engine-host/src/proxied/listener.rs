//! Determines the listeners of proxy services whose VIPs can move between directors.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};

use weir_model::{Desired, VirtualRouter};

/// The listeners of the proxy services of a configuration. For wildcard listeners, the VIPs are those of the configured
/// virtual routers.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct ProxiedListeners {
    /// Listeners whose address can be a VIP: not unspecified, loopback or multicast.
    listeners: BTreeSet<SocketAddr>,
    /// Ports of wildcard listeners (`0.0.0.0` or `::`).
    any_address_ports: BTreeSet<u16>,
    addresses: BTreeSet<IpAddr>,
}

impl ProxiedListeners {
    /// Returns the listeners of a configuration.
    pub fn new(desired: &Desired) -> Self {
        let mut addresses: BTreeSet<IpAddr> = desired.proxy_addresses().collect();
        let all = || desired.proxies.iter().flat_map(|proxy| &proxy.listen);
        let listeners = all().filter(|it| addresses.contains(&it.ip()));
        let listeners = listeners.copied().collect();
        let any_address = all().filter(|it| it.ip().is_unspecified());
        let any_address_ports: BTreeSet<u16> = any_address.map(SocketAddr::port).collect();
        if !any_address_ports.is_empty() {
            let managed = desired
                .vrrp
                .iter()
                .flat_map(VirtualRouter::managed_addresses);
            addresses.extend(managed.map(|network| network.address));
        }
        Self {
            listeners,
            any_address_ports,
            addresses,
        }
    }

    /// Returns the VIPs.
    pub(super) fn addresses(&self) -> impl Iterator<Item = IpAddr> {
        self.addresses.iter().copied()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.addresses.is_empty()
    }

    /// Returns whether an address and port are those of a listener.
    pub(super) fn contains(&self, local: SocketAddr) -> bool {
        let is_any_address = || {
            self.any_address_ports.contains(&local.port()) && self.addresses.contains(&local.ip())
        };
        self.listeners.contains(&local) || is_any_address()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listeners(listen: &str) -> ProxiedListeners {
        let text = format!(
            "[pool.p]\nservers = [\"10.0.0.1:80\"]\n[service.s]\nlisten = {listen}\nforward = \"proxy\"\n\
             protocol = \"http\"\npool = \"p\"\n[vrrp.v]\ninterface = \"eth0\"\nvirtual_router_id = 1\n\
             priority = 100\naddresses = [\"10.0.0.9/24\"]\n"
        );
        let desired = weir_helper::parse(&text, &weir_helper::Environment).unwrap();
        ProxiedListeners::new(&desired)
    }

    #[test]
    fn wildcard_listeners_use_virtual_router_addresses() {
        let contains = |listeners: &ProxiedListeners, text: &str| {
            let address: SocketAddr = text.parse().unwrap();
            listeners.contains(address)
        };
        let own = listeners("[\"10.0.0.8:80\", \"127.0.0.1:81\"]");
        assert!(contains(&own, "10.0.0.8:80"));
        for other in ["10.0.0.8:81", "127.0.0.1:81", "10.0.0.9:80", "10.0.0.7:80"] {
            assert!(!contains(&own, other), "{other}");
        }
        let any = listeners("[\"0.0.0.0:80\"]");
        assert!(contains(&any, "10.0.0.9:80"));
        for other in ["10.0.0.9:81", "10.0.0.7:80"] {
            assert!(!contains(&any, other), "{other}");
        }
        assert_eq!(any.addresses().count(), 1);
        assert!(listeners("[\"127.0.0.1:80\"]").is_empty());
    }
}
