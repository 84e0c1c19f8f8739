//! Finds services whose GRE tunnels have checksums, on a machine that receives packets of many segments.
//!
//! The kernel cannot compute the checksum of each segment, so the data plane drops these packets.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use weir_dataplane::Mode;
use weir_engine::is_paravirtual;
use weir_model::{Attach, Desired, Server, Service, Source};
use weir_netlink::{Link, NetState, Netlink, resolve};
use weir_sys::ethtool;

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
         Weir drops such packets (drop_gso_tunnel)"
    }

    /// Returns how to correct the problem.
    pub const fn fix() -> &'static str {
        "remove `checksum` from `tunnel` here and on the servers, or use `type = \"gue\"`, which omits the checksum of \
         such packets"
    }
}

/// The interfaces of a running director with `attach = "auto"`. The director has tested which modes their drivers
/// accept, which cannot be predicted for paravirtual drivers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AttachedInterfaces {
    /// Whether an interface's packets are balanced at tc, by name.
    at_tc: BTreeMap<String, bool>,
}

impl AttachedInterfaces {
    /// Creates the value from the director's active `attach` and from the names and modes of its interfaces
    /// (`native`, `generic`, `tc`). It is empty unless `attach` is `auto`: the other values select the mode themselves.
    pub fn new<'a>(
        attach: Attach,
        interfaces: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Self {
        if attach != Attach::Auto {
            return Self::default();
        }
        let at_tc = |(name, mode): (&str, &str)| (name.to_owned(), mode == Mode::Tc.as_str());
        Self {
            at_tc: interfaces.into_iter().map(at_tc).collect(),
        }
    }
}

/// Returns whether the findings of a configuration depend on [`AttachedInterfaces`].
pub(crate) fn needs_attached_interfaces(desired: &Desired) -> bool {
    desired.node.attach == Attach::Auto && services_with_gre_checksum(desired).next().is_some()
}

/// The known properties of this machine's devices.
#[derive(Default)]
struct LocalDevices {
    state: NetState,
    attached: AttachedInterfaces,
    /// The paravirtual drivers that report no native XDP, by device.
    drivers_without_xdp: BTreeMap<u32, String>,
}

/// Returns the services whose GRE tunnels have checksums, and whose packets may consist of many segments on this
/// machine. Returns no services if routes to more than `max_servers` servers would have to be looked up.
///
/// # Errors
/// Fails if the network state cannot be read.
pub(super) async fn gre_checksums(
    desired: &Desired,
    attached: &AttachedInterfaces,
    max_servers: usize,
) -> Result<Vec<GreChecksum>, weir_netlink::Error> {
    let services: Vec<&Service> = services_with_gre_checksum(desired).collect();
    if services.is_empty() {
        return Ok(Vec::new());
    }
    let servers = services
        .iter()
        .flat_map(|service| gre_checksum_servers(desired, service));
    let mut servers: BTreeSet<IpAddr> = servers.filter_map(Server::ip).collect();
    if desired.node.interfaces.is_some() {
        servers.clear();
    }
    if servers.len() > max_servers {
        return Ok(Vec::new());
    }
    let netlink = Netlink::open()?;
    let mut local = LocalDevices {
        state: netlink.state(servers).await?,
        attached: attached.clone(),
        drivers_without_xdp: BTreeMap::new(),
    };
    let devices = services
        .iter()
        .flat_map(|service| packet_devices(desired, service, &local.state));
    let devices: BTreeSet<u32> = devices
        .flat_map(|device| local.state.devices_below(device))
        .collect();
    local.drivers_without_xdp = drivers_without_xdp(&netlink, &local.state, &devices).await;
    Ok(find(desired, &services, &local))
}

/// Returns the paravirtual drivers that report no native XDP. Kernels before 6.3 do not report XDP features, so the
/// result is empty.
async fn drivers_without_xdp(
    netlink: &Netlink,
    state: &NetState,
    devices: &BTreeSet<u32>,
) -> BTreeMap<u32, String> {
    let mut found = BTreeMap::new();
    for (device, link) in devices
        .iter()
        .filter_map(|device| state.links.get_key_value(device))
    {
        let features = netlink.xdp_features(*device).await;
        let has_no_xdp = matches!(features, Ok(Some(features)) if !features.can_run_in_driver());
        if has_no_xdp
            && let Ok(driver) = ethtool::driver(&link.name)
            && is_paravirtual(&driver)
        {
            found.insert(*device, driver);
        }
    }
    found
}

fn find(desired: &Desired, services: &[&Service], local: &LocalDevices) -> Vec<GreChecksum> {
    let found = services.iter().filter_map(|service| {
        Some(GreChecksum {
            service: service.name.clone(),
            source: service.source,
            reason: reason(desired, service, local)?,
        })
    });
    found.collect()
}

/// Returns why packets of a service may consist of many segments; `None` = no reason is known.
fn reason(desired: &Desired, service: &Service, local: &LocalDevices) -> Option<String> {
    match desired.node.attach {
        Attach::Tc => return Some("`attach` is \"tc\"".to_owned()),
        // XDP receives single segments, and passes those with partial checksums to tc.
        Attach::Xdp => return None,
        Attach::Auto => {}
    }
    let devices = packet_devices(desired, service, &local.state).into_iter();
    let mut reasons = devices.filter_map(|device| tc_reason(device, local));
    reasons.next()
}

/// Returns why packets of a device are balanced at tc with `attach = "auto"`; `None` = no reason is known.
fn tc_reason(device: u32, local: &LocalDevices) -> Option<String> {
    // Dummy devices receive no packets.
    let receives = |link: &&Link| !link.loopback && link.kind.as_deref() != Some("dummy");
    let link = local.state.links.get(&device).filter(receives)?;
    let at_tc = local.attached.at_tc.get(&link.name);
    if at_tc == Some(&false) {
        return None;
    }
    let below = local.state.devices_below(device).into_iter();
    let links = below.filter_map(|device| local.state.links.get(&device));
    let expected = links.filter(receives).find_map(|link| {
        if link.is_software() {
            return Some(format!("{} is a virtual device", link.name));
        }
        let driver = local.drivers_without_xdp.get(&link.index)?;
        Some(format!("{} has no native XDP ({driver})", link.name))
    });
    expected.or_else(|| {
        at_tc.map(|_| {
            format!(
                "the running director processes the packets of {} at tc",
                link.name
            )
        })
    })
}

/// Returns the devices on which a service's packets arrive, without querying the daemon: `interfaces`, or the devices
/// on the routes to the servers.
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

    /// Returns the state of a machine with two devices: `eth0`, of this kind, leads to the server; `eth1` is hardware.
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

    fn findings_on(local: &LocalDevices, node: &str, tunnel: &str) -> Vec<GreChecksum> {
        let desired = desired(node, tunnel);
        let services: Vec<&Service> = services_with_gre_checksum(&desired).collect();
        find(&desired, &services, local)
    }

    fn found(node: &str, tunnel: &str, kind: Option<&str>) -> Vec<GreChecksum> {
        let local = LocalDevices {
            state: state(kind),
            ..LocalDevices::default()
        };
        findings_on(&local, node, tunnel)
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

    /// A paravirtual driver may reject XDP. The result depends on the mode of a running director or, without
    /// one, on the features that the driver reports.
    #[test]
    fn mode_of_running_director_and_features_of_driver_are_used() {
        use Attach::{Auto, Tc, Xdp};
        let tc = Some("the running director processes the packets of eth0 at tc");
        let no_xdp = Some("eth0 has no native XDP (vmxnet3)");
        let both = "interfaces = [\"eth0\", \"eth1\"]";
        for (node, active, modes, driver, expected) in [
            ("", Auto, "eth0 tc", "", tc),
            ("", Auto, "eth0 native", "", None),
            ("", Auto, "eth0 generic", "vmxnet3", None),
            ("", Auto, "eth1 tc", "", None),
            ("", Auto, "", "vmxnet3", no_xdp),
            ("", Auto, "eth0 tc", "vmxnet3", no_xdp),
            // The mode was selected by the operator, not by the driver.
            ("", Tc, "eth0 tc", "", None),
            ("", Xdp, "eth0 generic", "vmxnet3", no_xdp),
            (both, Auto, "eth1 native,eth0 tc", "", tc),
            ("attach = \"xdp\"", Auto, "eth0 tc", "vmxnet3", None),
        ] {
            let driver = (!driver.is_empty()).then(|| (2, driver.to_owned()));
            let modes = modes.split(',').filter_map(|mode| mode.split_once(' '));
            let local = LocalDevices {
                state: state(None),
                attached: AttachedInterfaces::new(active, modes.clone()),
                drivers_without_xdp: driver.into_iter().collect(),
            };
            let diagnostics = findings_on(&local, node, GRE);
            let reason = diagnostics.first().map(|it| it.reason.as_str());
            let modes: Vec<_> = modes.collect();
            assert_eq!(reason, expected, "{node} {active:?} {modes:?}");
        }
    }

    #[test]
    fn tunnels_without_gre_checksum_are_not_reported() {
        for tunnel in [
            "\"ipip\"",
            "\"gre\"",
            "{ type = \"gue\", checksum = \"full\" }",
        ] {
            assert_eq!(found("", tunnel, Some("veth")), [], "{tunnel}");
        }
    }
}
