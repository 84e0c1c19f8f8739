//! Determines the listeners of proxy services whose VIPs can move between directors.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};

use weir_model::{Desired, VirtualRouter};

/// The listeners of a configuration's proxy services. For wildcard listeners, the VIPs are those of the configured
/// virtual routers.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct ProxyListeners {
    /// Listeners whose address can be a VIP: not unspecified, loopback or multicast.
    listeners: BTreeSet<SocketAddr>,
    /// Ports of wildcard listeners (`0.0.0.0` or `::`).
    wildcard_ports: BTreeSet<u16>,
    vips: BTreeSet<IpAddr>,
}

impl ProxyListeners {
    /// Returns the listeners of a configuration.
    pub fn new(desired: &Desired) -> Self {
        let mut vips: BTreeSet<IpAddr> = desired.proxy_addresses().collect();
        let all_listeners = || desired.proxies.iter().flat_map(|proxy| &proxy.listen);
        let listeners = all_listeners().filter(|it| vips.contains(&it.ip()));
        let listeners = listeners.copied().collect();
        let wildcards = all_listeners().filter(|it| it.ip().is_unspecified());
        let wildcard_ports: BTreeSet<u16> = wildcards.map(SocketAddr::port).collect();
        if !wildcard_ports.is_empty() {
            let managed = desired
                .vrrp
                .iter()
                .flat_map(VirtualRouter::managed_addresses);
            vips.extend(managed.map(|network| network.address));
        }
        Self {
            listeners,
            wildcard_ports,
            vips,
        }
    }

    /// Returns the VIPs.
    pub(super) fn vips(&self) -> impl Iterator<Item = IpAddr> {
        self.vips.iter().copied()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.vips.is_empty()
    }

    /// Returns whether an address and port are those of a listener.
    pub(super) fn contains(&self, local: SocketAddr) -> bool {
        let is_wildcard =
            || self.wildcard_ports.contains(&local.port()) && self.vips.contains(&local.ip());
        self.listeners.contains(&local) || is_wildcard()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listeners(listen: &str) -> ProxyListeners {
        let text = format!(
            "[pool.p]\nservers = [\"10.0.0.1:80\"]\n[service.s]\nlisten = {listen}\nforward = \"proxy\"\n\
             protocol = \"http\"\npool = \"p\"\n[vrrp.v]\ninterface = \"eth0\"\nvirtual_router_id = 1\n\
             priority = 100\naddresses = [\"10.0.0.9/24\"]\n"
        );
        let desired = weir_helper::parse(&text, &weir_helper::Environment).unwrap();
        ProxyListeners::new(&desired)
    }

    #[test]
    fn wildcard_listeners_use_virtual_router_addresses() {
        let contains = |listeners: &ProxyListeners, text: &str| {
            let address: SocketAddr = text.parse().unwrap();
            listeners.contains(address)
        };
        let specific = listeners("[\"10.0.0.8:80\", \"127.0.0.1:81\"]");
        assert!(contains(&specific, "10.0.0.8:80"));
        for other in ["10.0.0.8:81", "127.0.0.1:81", "10.0.0.9:80", "10.0.0.7:80"] {
            assert!(!contains(&specific, other), "{other}");
        }
        let wildcard = listeners("[\"0.0.0.0:80\"]");
        assert!(contains(&wildcard, "10.0.0.9:80"));
        for other in ["10.0.0.9:81", "10.0.0.7:80"] {
            assert!(!contains(&wildcard, other), "{other}");
        }
        assert_eq!(wildcard.vips().count(), 1);
        assert!(listeners("[\"127.0.0.1:80\"]").is_empty());
    }
}
