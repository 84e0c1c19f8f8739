//! VIPs that nobody has put on this machine: legal (they may be routed here), and most often forgotten.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;

use weir_model::{Desired, Source};
use weir_netlink::Netlink;

/// A VIP without an interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AbsentVip {
    /// The address.
    pub address: IpAddr,
    /// The first service that listens on it.
    pub service: String,
    /// Where that service is written.
    pub source: Source,
    /// Only proxy services listen on it.
    pub proxied: bool,
}

impl AbsentVip {
    /// What follows from it.
    pub const fn note(&self) -> &'static str {
        if self.proxied {
            "without it, no connection reaches the service"
        } else {
            "packets that are routed here are taken all the same"
        }
    }

    /// The warning, as those about the file look; `name` is the file's.
    pub fn render(&self, name: &Path) -> String {
        let Self {
            address, service, ..
        } = self;
        let Source { line, column } = self.source;
        let note = self.note();
        format!(
            "warning: {address} of service {service} is on no interface of this machine\n \
             --> {}:{line}:{column}\n  \
             = note: {note}\n  \
             = help: add it, or let keepalived, Pacemaker or `[node] vip_interface` do that\n\n",
            name.display()
        )
    }
}

/// The VIPs of `desired` that are on no interface of this network namespace; none where Weir itself would add them.
///
/// # Errors
/// The addresses cannot be read.
pub async fn absent_vips(desired: &Desired) -> Result<Vec<AbsentVip>, weir_netlink::Error> {
    if desired.node.vip_interface.is_some() {
        return Ok(Vec::new());
    }
    let present = Netlink::open()?.addresses().await?;
    let present = present.iter().map(|address| address.ip).collect();
    Ok(absent(desired, present))
}

/// Once for each VIP, in file order; `seen` begins with the addresses that are there.
fn absent(desired: &Desired, mut seen: BTreeSet<IpAddr>) -> Vec<AbsentVip> {
    let mut found = Vec::new();
    let needed: BTreeSet<IpAddr> = desired.proxied_addresses().collect();
    for service in &desired.services {
        for listener in &service.listen {
            if seen.insert(listener.address) {
                found.push(AbsentVip {
                    address: listener.address,
                    service: service.name.clone(),
                    source: service.source,
                    proxied: false,
                });
            }
        }
    }
    for proxy in &desired.proxies {
        let listeners = proxy.listen.iter().map(SocketAddr::ip);
        for address in listeners.filter(|ip| needed.contains(ip)) {
            if seen.insert(address) {
                found.push(AbsentVip {
                    address,
                    service: proxy.name.clone(),
                    source: proxy.source,
                    proxied: true,
                });
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_config::{Host, parse};

    #[test]
    fn each_absent_vip_is_told_once() {
        let text = "[pool.p]\nservers = [\"10.0.0.5\"]\n\n\
            [service.a]\nforward = \"nat\"\npool = \"p\"\nlisten = [\"192.0.2.1:80\", \"192.0.2.2:80\"]\n\n\
            [service.b]\nforward = \"nat\"\npool = \"p\"\nlisten = [\"192.0.2.2:81\", \"192.0.2.3:80\"]\n\n\
            [service.c]\nforward = \"proxy\"\nprotocol = \"tcp\"\npool = \"p\"\n\
            listen = [\"192.0.2.3:81\", \"192.0.2.4:80\", \"0.0.0.0:82\", \"127.0.0.1:83\"]\n";
        let desired = parse(text, &Host::default()).unwrap().desired;
        let found = absent(&desired, BTreeSet::from(["192.0.2.1".parse().unwrap()]));
        let text: String = found
            .iter()
            .map(|vip| vip.render(Path::new("weir.toml")))
            .collect();
        insta::assert_snapshot!(text);
    }
}
