//! Adds and removes routes, rules, filters, and devices with a virtual MAC address.

use weir_model::{Accept, Network, VirtualRoute, VirtualRouter, VirtualRule};
use weir_netlink::{
    AllowedPorts, Change, InputFilter, Link, MacAddr, Netlink, StaticRoute, Sysctl, TableRule,
};

use crate::Error;
use crate::record::{OtherChange, Record};
use crate::state::Addresses;

/// Sysctls of a base device, which must not reply to ARP requests for the addresses of the devices on top of it.
const BASE_SYSCTLS: [(&str, &str); 2] = [("arp_ignore", "1"), ("arp_filter", "1")];
/// IPv4 sysctls of a device with a virtual MAC address: it accepts packets from this machine's addresses.
const DEVICE_IPV4_SYSCTLS: [(&str, &str); 2] = [("arp_ignore", "1"), ("accept_local", "1")];
/// IPv6 sysctls of a device with a virtual MAC address, which must not generate addresses.
const DEVICE_IPV6_SYSCTLS: [(&str, &str); 4] = [
    ("addr_gen_mode", "1"),
    ("accept_dad", "0"),
    ("accept_ra", "0"),
    ("autoconf", "0"),
];

/// Returns the virtual MAC address of a virtual router (RFC 9568 section 7.3).
pub fn virtual_mac(router_id: u8, ipv6: bool) -> [u8; 6] {
    [0, 0, 0x5e, 0, if ipv6 { 2 } else { 1 }, router_id]
}

/// Returns the name of the device with the virtual MAC address of a virtual router.
pub fn virtual_device(router_id: u8, ipv6: bool) -> String {
    format!("vrrp{}.{router_id}", if ipv6 { "6" } else { "" })
}

const fn is_ipv6(router: &VirtualRouter) -> bool {
    !router.is_ipv4()
}

/// Returns the device with the virtual MAC address, and brings it up. Creates the device if it does not exist.
pub(crate) async fn add_device(
    addresses: &mut Addresses,
    router: &VirtualRouter,
    base: &Link,
) -> Result<Link, Error> {
    let ipv6 = is_ipv6(router);
    let name = virtual_device(router.router_id, ipv6);
    let device = OtherChange::Device {
        router: router.name.clone(),
        name: name.clone(),
        base: base.name.clone(),
    };
    let was_recorded = addresses.record.other_changes.contains(&device);
    if !was_recorded {
        addresses.record.other_changes.push(device.clone());
        addresses.write_or_log();
    }
    set_base_sysctls(addresses, &base.name)?;
    let mac = MacAddr(virtual_mac(router.router_id, ipv6));
    let created = addresses.netlink.add_macvlan(&name, base.index, mac).await;
    if !matches!(created, Ok(Change::Made)) && !was_recorded {
        // Another program created the device, or the creation failed.
        addresses.record.other_changes.retain(|it| *it != device);
        addresses.write_or_log();
    }
    let is_new = created? == Change::Made;
    if is_new {
        let reverse_path_filter = [("rp_filter", reverse_path_filter()?)];
        for (ipv6, settings) in [
            (false, &reverse_path_filter[..]),
            (false, &DEVICE_IPV4_SYSCTLS[..]),
            (true, &DEVICE_IPV6_SYSCTLS[..]),
        ] {
            for (key, value) in settings {
                let sysctl = Sysctl::for_device(ipv6, &name, key)?;
                if sysctl.find()?.is_some() {
                    sysctl.set(value)?;
                }
            }
        }
    }
    let link = addresses.netlink.link(&name).await?;
    let link = link.ok_or(Error::NoInterface { name })?;
    if !link.up {
        addresses.netlink.bring_up(link.index).await?;
    }
    Ok(link)
}

/// Returns the value of `rp_filter` for a device with a virtual MAC address. Routes to clients use the base device, so
/// a strict filter (1) would drop the clients' packets. The kernel uses the maximum of this value and that of `all`
/// (ip-sysctl.rst); therefore, if `all` is strict, the device needs a loose filter (2).
fn reverse_path_filter() -> Result<&'static str, Error> {
    let all = Sysctl::for_device(false, "all", "rp_filter")?.read()?;
    Ok(if all == "1" { "2" } else { "0" })
}

/// Changes the sysctls of a base device, after recording their previous values.
fn set_base_sysctls(addresses: &mut Addresses, base: &str) -> Result<(), Error> {
    for (key, value) in BASE_SYSCTLS {
        let sysctl = Sysctl::for_device(false, base, key)?;
        let previous = sysctl.read()?;
        if previous == value {
            continue;
        }
        let change = OtherChange::Sysctl {
            base: base.to_owned(),
            name: sysctl.name().to_owned(),
            value: previous,
        };
        // An earlier attempt may have failed after recording the change.
        if !addresses.record.other_changes.contains(&change) {
            addresses.record.other_changes.push(change);
            addresses.write_or_log();
        }
        sysctl.set(value)?;
    }
    Ok(())
}

/// Restores the sysctls of base devices that no recorded device uses.
pub(crate) fn restore_sysctls(record: &mut Record) {
    let base_devices: Vec<String> = record
        .other_changes
        .iter()
        .filter_map(|it| match it {
            OtherChange::Device { base, .. } => Some(base.clone()),
            _ => None,
        })
        .collect();
    record.other_changes.retain(|it| match it {
        OtherChange::Sysctl { base, name, value } if !base_devices.contains(base) => {
            let restored = Sysctl::new(name.as_str()).and_then(|sysctl| sysctl.set(value));
            if let Err(error) = restored {
                // The base device may no longer exist.
                tracing::debug!(%error, "failed to restore a sysctl");
            }
            false
        }
        _ => true,
    });
}

/// Drops packets to the router's addresses as its `accept` requires.
pub(crate) fn set_filter(addresses: &mut Addresses, router: &VirtualRouter) -> Result<(), Error> {
    let table = format!("weir_vrrp_{}", router.name);
    let filter = OtherChange::Filter {
        router: router.name.clone(),
        table: table.clone(),
    };
    let is_recorded = addresses.record.other_changes.contains(&filter);
    let ports = match &router.accept {
        // A previous configuration required a filter.
        Accept::All if is_recorded => {
            addresses.netlink.remove_input_filter(&table)?;
            addresses.record.other_changes.retain(|it| *it != filter);
            return addresses.write();
        }
        Accept::All => return Ok(()),
        Accept::Services(ports) => ports,
    };
    if !is_recorded {
        addresses.record.other_changes.push(filter);
        addresses.write_or_log();
    }
    let allowed_ports = ports.iter().map(|it| AllowedPorts {
        address: it.address,
        protocol: it.protocol,
        first: it.first,
        last: it.last,
    });
    let filter = InputFilter {
        table,
        addresses: router.managed_addresses().map(|it| it.address).collect(),
        allowed_ports: allowed_ports.collect(),
    };
    // Replace the filter even if it exists: services may have changed, and another program may have removed it.
    Ok(addresses.netlink.set_input_filter(&filter)?)
}

/// Adds the missing routes and rules of a virtual router.
pub(crate) async fn add(
    addresses: &mut Addresses,
    router: &VirtualRouter,
    base: &Link,
) -> Result<(), Error> {
    let links = addresses.netlink.links().await?;
    let routes = router.routes.iter().map(|route| OtherChange::Route {
        router: router.name.clone(),
        interface: route.interface.clone().unwrap_or_else(|| base.name.clone()),
        route: route.clone(),
    });
    let rules = router.rules.iter().map(|rule| OtherChange::Rule {
        router: router.name.clone(),
        rule: rule.clone(),
    });
    let mut first_error = None;
    for change in routes.chain(rules) {
        if addresses.record.other_changes.contains(&change) {
            continue;
        }
        addresses.record.other_changes.push(change.clone());
        addresses.write_or_log();
        let added = match &change {
            OtherChange::Route {
                interface, route, ..
            } => match static_route(route, interface, &links) {
                Some(route) => addresses
                    .netlink
                    .add_route(&route)
                    .await
                    .map_err(Into::into),
                None => Err(Error::NoInterface {
                    name: format!("route of virtual router {}: {interface}", router.name),
                }),
            },
            OtherChange::Rule { rule, .. } => {
                let rule = table_rule(rule);
                let added = addresses.netlink.add_table_rule(&rule).await;
                added.map_err(Into::into)
            }
            OtherChange::Device { .. }
            | OtherChange::Filter { .. }
            | OtherChange::Sysctl { .. } => continue,
        };
        if !matches!(added, Ok(Change::Made)) {
            addresses.record.other_changes.retain(|it| *it != change);
        }
        if let Err(error) = added {
            first_error.get_or_insert(error);
        }
    }
    first_error.map_or(Ok(()), Err)
}

/// Removes a recorded route, rule, device or filter; sysctls are restored separately.
pub(crate) async fn remove(
    netlink: &Netlink,
    change: &OtherChange,
    links: &[Link],
) -> Result<(), Error> {
    match change {
        OtherChange::Route {
            interface, route, ..
        } => {
            // Without the interface, the kernel has already removed the route.
            if let Some(route) = static_route(route, interface, links) {
                netlink.remove_route(&route).await?;
            }
        }
        OtherChange::Rule { rule, .. } => drop(netlink.remove_table_rule(&table_rule(rule)).await?),
        OtherChange::Device { name, .. } => {
            if let Some(link) = links.iter().find(|link| link.name == *name) {
                netlink.remove_link(link.index).await?;
            }
        }
        OtherChange::Filter { table, .. } => drop(netlink.remove_input_filter(table)?),
        OtherChange::Sysctl { .. } => {}
    }
    Ok(())
}

fn static_route(route: &VirtualRoute, interface: &str, links: &[Link]) -> Option<StaticRoute> {
    Some(StaticRoute {
        to: (route.to.address, route.to.prefix),
        via: route.via,
        ifindex: links.iter().find(|link| link.name == interface)?.index,
        source: route.source,
        table: route.table,
        metric: route.metric,
    })
}

fn table_rule(rule: &VirtualRule) -> TableRule {
    let pair = |it: &Network| (it.address, it.prefix);
    TableRule {
        from: rule.from.as_ref().map(pair),
        to: rule.to.as_ref().map(pair),
        device: rule.interface.clone(),
        mark: rule.mark,
        table: rule.table,
        priority: rule.priority,
    }
}
