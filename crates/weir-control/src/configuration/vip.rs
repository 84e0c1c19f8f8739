//! Finds VIPs that are on no interface of this machine, or that a reload will remove from their interface.
//!
//! Such a configuration is valid, because VIPs can be routed to this machine, but it is usually a mistake.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};

use weir_model::{Desired, Source};
use weir_netlink::Netlink;

/// A VIP that is on no interface, or will be removed from its interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AbsentVip {
    /// The address.
    pub address: IpAddr,
    /// The first service that listens on the address.
    pub service: String,
    /// That service's position in the file.
    pub source: Source,
    /// Whether only proxy services listen on the address.
    pub proxied: bool,
    /// The interface to which Weir added the VIP, and from which Weir will remove it when the file becomes active.
    pub added_to: Option<String>,
}

impl AbsentVip {
    /// Returns a one-line description of the finding.
    pub fn message(&self) -> String {
        let Self {
            address, service, ..
        } = self;
        match &self.added_to {
            Some(interface) => {
                format!("{address} of service {service} will be removed from {interface}")
            }
            None => format!("no interface of this machine has {address} of service {service}"),
        }
    }

    /// Returns the cause or the consequence.
    pub const fn cause(&self) -> &'static str {
        if self.added_to.is_some() {
            "Weir added it, and will remove it because this file does not set `vip_interface`"
        } else if self.proxied {
            "connections cannot reach the service"
        } else {
            "only packets that are routed to this machine are forwarded"
        }
    }

    /// Returns how to correct the problem.
    pub fn fix(&self) -> String {
        match &self.added_to {
            Some(interface) => format!(
                "set vip_interface = \"{interface}\" in [node], \
                 or let keepalived or Pacemaker add the address after the reload"
            ),
            None => {
                "add the address, or let keepalived, Pacemaker or Weir (`[node] vip_interface`) add it".to_owned()
            }
        }
    }
}

/// Returns the VIPs of `desired` that are on no interface of this network namespace, or are on an interface only
/// because Weir has `added` them. Empty if `vip_interface` is set, because Weir then adds the VIPs. Excludes floating
/// IPs, and VIPs of layer 4 services that `[announce]` covers, because these are routed to this machine.
///
/// # Errors
/// Fails if the addresses cannot be read.
pub async fn absent_vips(
    desired: &Desired,
    added: &BTreeSet<(String, IpAddr)>,
) -> Result<Vec<AbsentVip>, weir_netlink::Error> {
    if desired.node.vip_interface.is_some() {
        return Ok(Vec::new());
    }
    let present = Netlink::open()?.addresses().await?;
    let present = present.iter().map(|address| address.ip).collect();
    Ok(absent(
        desired,
        present,
        added,
        &super::floating_ips(desired),
    ))
}

/// Returns each absent VIP once, in file order. `present` contains the addresses of all interfaces.
fn absent(
    desired: &Desired,
    present: BTreeSet<IpAddr>,
    added: &BTreeSet<(String, IpAddr)>,
    floating: &BTreeSet<IpAddr>,
) -> Vec<AbsentVip> {
    let added_to = |address: IpAddr| {
        let mut matching = added.iter().filter(|(_, vip)| *vip == address);
        matching.next().map(|(interface, _)| interface.clone())
    };
    let mut handled = present;
    handled.extend(floating);
    // A virtual router adds its addresses while it is active.
    let is_removed =
        |address: IpAddr| added_to(address).is_some() && !desired.is_vrrp_address(address);
    handled.retain(|address| !is_removed(*address));
    let mut absent_vips = Vec::new();
    let proxy_addresses: BTreeSet<IpAddr> = desired.proxy_addresses().collect();
    // A routed VIP that Weir has added is still reported, because it will be removed.
    let routed: BTreeSet<IpAddr> = desired.announced_addresses().collect();
    let is_routed = |address: IpAddr| routed.contains(&address) && added_to(address).is_none();
    let handles_packets = |service: &&weir_model::Service| service.forward.handles_packets();
    for service in desired.services.iter().filter(handles_packets) {
        for listener in &service.listen {
            if !is_routed(listener.address) && handled.insert(listener.address) {
                absent_vips.push(AbsentVip {
                    address: listener.address,
                    service: service.name.clone(),
                    source: service.source,
                    proxied: false,
                    added_to: added_to(listener.address),
                });
            }
        }
    }
    for proxy in &desired.proxies {
        let listeners = proxy.listen.iter().map(SocketAddr::ip);
        for address in listeners.filter(|ip| proxy_addresses.contains(ip)) {
            if handled.insert(address) {
                absent_vips.push(AbsentVip {
                    address,
                    service: proxy.name.clone(),
                    source: proxy.source,
                    proxied: true,
                    added_to: added_to(address),
                });
            }
        }
    }
    absent_vips
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::configuration::Finding;
    use weir_config::{Host, parse};

    #[test]
    fn vips_with_same_cause_share_one_warning() {
        let text = "[pool.p]\nservers = [\"10.0.0.5\"]\n\n\
            [service.a]\nforward = \"nat\"\npool = \"p\"\nlisten = [\"192.0.2.1:80\", \"192.0.2.2:80\"]\n\n\
            [service.b]\nforward = \"nat\"\npool = \"p\"\nlisten = [\"192.0.2.2:81\", \"192.0.2.3:80\"]\n\n\
            [service.c]\nforward = \"proxy\"\nprotocol = \"tcp\"\npool = \"p\"\n\
            listen = [\"192.0.2.3:81\", \"192.0.2.4:80\", \"0.0.0.0:82\", \"127.0.0.1:83\"]\n";
        let desired = parse(text, &Host::default()).unwrap().desired;
        let vip = |text: &str| text.parse::<IpAddr>().unwrap();
        let render_absent = |present: &[&str], added: &[&str]| -> String {
            let present = present.iter().map(|text| vip(text)).collect();
            let added = added.iter().map(|text| ("eth0".to_owned(), vip(text)));
            let found = absent(&desired, present, &added.collect(), &BTreeSet::new());
            let found = found
                .iter()
                .map(|vip| Finding::from_absent_vip(vip, "weir.toml"));
            Finding::merge_similar(found)
                .iter()
                .map(Finding::render)
                .collect()
        };
        insta::assert_snapshot!(render_absent(&["192.0.2.1"], &[]));
        let all = ["192.0.2.1", "192.0.2.2", "192.0.2.3", "192.0.2.4"];
        insta::assert_snapshot!("added", render_absent(&all, &["192.0.2.1", "192.0.2.4"]));
        assert_eq!(render_absent(&all, &[]), "");
        let floating = BTreeSet::from(all.map(vip));
        let empty = BTreeSet::new();
        assert!(absent(&desired, empty, &BTreeSet::new(), &floating).is_empty());
    }

    #[test]
    fn vip_that_moves_to_a_virtual_router_is_not_reported() {
        let service = "[pool.p]\nservers = [\"10.0.0.5\"]\n\n[service.a]\nforward = \"nat\"\npool = \"p\"\n\
            listen = [\"192.0.2.1:80\", \"192.0.2.2:80\"]\n";
        let router = "[vrrp.web]\ninterface = \"eth0\"\nvirtual_router_id = 51\naddresses = [\"192.0.2.1/24\"]\n";
        let desired = parse(&format!("{service}{router}"), &Host::default())
            .unwrap()
            .desired;
        let vips = ["192.0.2.1", "192.0.2.2"].map(|text| text.parse::<IpAddr>().unwrap());
        let added = vips.map(|vip| ("eth0".to_owned(), vip));
        let floating = BTreeSet::from([vips[0]]);
        let found = absent(
            &desired,
            BTreeSet::from(vips),
            &BTreeSet::from(added),
            &floating,
        );
        let found: Vec<IpAddr> = found.iter().map(|vip| vip.address).collect();
        assert_eq!(found, [vips[1]]);
    }

    #[test]
    fn announced_vips_of_layer_4_services_need_no_interface() {
        let text = "[pool.p]\nservers = [\"10.0.0.5:80\"]\n\n[announce]\nspeaker = \"bird\"\n\
            services = [\"a\", \"c\"]\n\n\
            [service.a]\nforward = \"nat\"\npool = \"p\"\nlisten = [\"192.0.2.1:80\", \"192.0.2.3:80\"]\n\n\
            [service.b]\nforward = \"nat\"\npool = \"p\"\nlisten = [\"192.0.2.2:80\"]\n\n\
            [service.c]\nforward = \"proxy\"\nprotocol = \"tcp\"\npool = \"p\"\nlisten = [\"192.0.2.3:81\"]\n";
        let desired = parse(text, &Host::default()).unwrap().desired;
        let empty = BTreeSet::new;
        let found = absent(&desired, empty(), &BTreeSet::new(), &empty());
        let found: Vec<_> = found
            .iter()
            .map(|vip| (vip.address.to_string(), vip.proxied))
            .collect();
        // A proxy socket receives only packets to addresses of this machine.
        let expected = [("192.0.2.2", false), ("192.0.2.3", true)];
        assert_eq!(
            found,
            expected.map(|(vip, proxied)| (vip.to_owned(), proxied))
        );
    }
}
