//! Finds services whose GRE tunnels have checksums, on a machine that receives packets of many segments: the kernel
//! cannot compute the checksum of each segment, so the data plane drops these packets.

use std::collections::BTreeSet;
use std::net::IpAddr;

use weir_model::{Attach, Desired, Server, Service, Source};
use weir_netlink::{NetState, Netlink, resolve};

use crate::gre_tunnel::{gre_checksum_servers, services_with_gre_checksum};

/// A service whose GRE tunnels have checksums, and why its packets may consist of many segments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GreChecksum {
    /// The service.
    pub service: String,
    /// Position of the service.
    pub source: Source,
    /// Why its packets may consist of many segments.
    pub reason: String,
}

impl GreChecksum {
    /// Returns a one-line description of the finding.
    pub fn message(&self) -> String {
        let Self {
            service, reason, ..
        } = self;
        format!(
            "uploads through service {service} may stall, because its GRE tunnels have checksums: {reason}"
        )
    }

    /// Returns the cause.
    pub const fn cause() -> &'static str {
        "at tc, packets may consist of many segments; the kernel cannot compute the GRE checksum of each segment, so \
         Weir drops them (drop_gso_tunnel)"
    }

    /// Returns how to correct the problem.
    pub const fn fix() -> &'static str {
        "remove `checksum` from `tunnel` here and on the servers, or use `type = \"gue\"`, which omits the checksum of \
         such packets"
    }
}

/// Returns the services whose GRE tunnels have checksums, and whose packets may consist of many segments on this
/// machine.
///
/// # Errors
/// Fails if the network state cannot be read.
pub(super) async fn gre_checksums(
    desired: &Desired,
) -> Result<Vec<GreChecksum>, weir_netlink::Error> {
    let services: Vec<&Service> = services_with_gre_checksum(desired).collect();
    if services.is_empty() {
        return Ok(Vec::new());
    }
    let servers = services
        .iter()
        .flat_map(|service| gre_checksum_servers(desired, service));
    let servers: BTreeSet<IpAddr> = servers.filter_map(Server::ip).collect();
    let state = Netlink::open()?.state(servers).await?;
    Ok(find(desired, &services, &state))
}

fn find(desired: &Desired, services: &[&Service], state: &NetState) -> Vec<GreChecksum> {
    let found = services.iter().filter_map(|service| {
        Some(GreChecksum {
            service: service.name.clone(),
            source: service.source,
            reason: reason(desired, service, state)?,
        })
    });
    found.collect()
}

/// Returns why packets of a service may consist of many segments; `None` = they do not, as far as is known.
fn reason(desired: &Desired, service: &Service, state: &NetState) -> Option<String> {
    match desired.node.attach {
        Attach::Tc => return Some("`attach` is \"tc\"".to_owned()),
        // XDP receives single segments, and passes those with partial checksums to tc.
        Attach::Xdp => return None,
        Attach::Auto => {}
    }
    let devices = packet_devices(desired, service, state).into_iter();
    let below = devices.flat_map(|device| state.devices_below(device));
    let mut links = below.filter_map(|device| state.links.get(&device));
    // Dummy devices receive no packets.
    let link = links.find(|link| {
        link.is_software() && !link.loopback && link.kind.as_deref() != Some("dummy")
    })?;
    Some(format!("{} is a virtual device", link.name))
}

/// Returns the devices on which a service's packets arrive, as far as is known without the daemon: `interfaces`, or the
/// devices on the routes to the servers.
fn packet_devices(desired: &Desired, service: &Service, state: &NetState) -> BTreeSet<u32> {
    if let Some(names) = &desired.node.interfaces {
        let links = state.links.values();
        let named = links.filter(|link| names.contains(&link.name));
        return named.map(|link| link.index).collect();
    }
    let servers = gre_checksum_servers(desired, service).filter_map(Server::ip);
    let paths = servers.flat_map(|server| resolve(server, state));
    paths.map(|path| path.device).collect()
}

#[cfg(test)]
mod tests {
    use weir_config::{Host, parse};
    use weir_netlink::{Link, Lookup, NextHop, RouteKind};

    use super::*;
    use crate::configuration::Finding;

    const GRE: &str = "{ type = \"gre\", checksum = \"full\" }";

    fn desired(node: &str, tunnel: &str) -> Desired {
        let text = format!(
            "[node]\n{node}\n[pool.p]\nservers = [\"10.0.0.5\"]\n\n[service.web]\nforward = \"tunnel\"\ntunnel = \
             {tunnel}\npool = \"p\"\nlisten = [\"192.0.2.1:80\"]\n"
        );
        parse(&text, &Host::default()).unwrap().desired
    }

    /// Returns the state of a machine with `eth0`, a device of this kind, on which the server is, and `eth1`, hardware.
    fn state(kind: Option<&str>) -> NetState {
        let link = |index: u32, name: &str, kind: Option<&str>| Link {
            index,
            name: name.to_owned(),
            kind: kind.map(str::to_owned),
            mac: None,
            mtu: 1500,
            up: true,
            carrier: true,
            loopback: false,
            master: None,
            lower: None,
            vlan: None,
        };
        let lookup = Lookup {
            kind: RouteKind::Unicast,
            prefsrc: None,
            next_hops: vec![NextHop {
                ifindex: 2,
                gateway: None,
                weight: 1,
                mtu: None,
            }],
        };
        NetState {
            links: [(2, link(2, "eth0", kind)), (3, link(3, "eth1", None))].into(),
            lookups: [("10.0.0.5".parse().unwrap(), lookup)].into(),
            ..NetState::default()
        }
    }

    fn found(node: &str, tunnel: &str, kind: Option<&str>) -> Vec<GreChecksum> {
        let desired = desired(node, tunnel);
        let services: Vec<&Service> = services_with_gre_checksum(&desired).collect();
        find(&desired, &services, &state(kind))
    }

    #[test]
    fn gre_checksums_where_packets_consist_of_many_segments_are_reported() {
        let text = found("", GRE, Some("veth")).into_iter().map(|it| {
            let finding = Finding::from_gre_checksum(&it, "weir.toml");
            finding.render()
        });
        insta::assert_snapshot!(text.collect::<String>());
        let reason = |node: &str, kind: Option<&str>| {
            let found = found(node, GRE, kind);
            found.first().map(|it| it.reason.clone())
        };
        let veth = "eth0 is a virtual device";
        for (node, kind, expected) in [
            ("", None, None),
            ("attach = \"tc\"", None, Some("`attach` is \"tc\"")),
            ("attach = \"xdp\"", Some("veth"), None),
            ("interfaces = [\"eth1\"]", Some("veth"), None),
            (
                "interfaces = [\"eth0\", \"eth1\"]",
                Some("veth"),
                Some(veth),
            ),
            ("", Some("dummy"), None),
        ] {
            assert_eq!(reason(node, kind).as_deref(), expected, "{node} {kind:?}");
        }
    }

    #[test]
    fn other_tunnels_are_not_reported() {
        for tunnel in [
            "\"ipip\"",
            "\"gre\"",
            "{ type = \"gue\", checksum = \"full\" }",
        ] {
            assert_eq!(found("", tunnel, Some("veth")), [], "{tunnel}");
        }
    }
}
