//! Routes, rules, and devices with a virtual MAC address.

use weir_model::{Accept, Network, VirtualRoute, VirtualRouter, VirtualRule};
use weir_netlink::{
    Change, InputFilter, Link, MacAddr, Netlink, PassedPorts, StaticRoute, Sysctl, TableRule,
};

use crate::Error;
use crate::record::{Extra, Record};
use crate::state::Addresses;

/// Settings of the device below: it must not answer ARP requests for the addresses of the devices above.
const BASE: [(&str, &str); 2] = [("arp_ignore", "1"), ("arp_filter", "1")];
/// IPv4 settings of the device: it accepts packets from its own machine's addresses, and its packets come back by the
/// device below.
const DEVICE_V4: [(&str, &str); 3] = [
    ("arp_ignore", "1"),
    ("accept_local", "1"),
    ("rp_filter", "0"),
];
/// IPv6 settings of the device: it generates no address.
const DEVICE_V6: [(&str, &str); 4] = [
    ("addr_gen_mode", "1"),
    ("accept_dad", "0"),
    ("accept_ra", "0"),
    ("autoconf", "0"),
];

/// The virtual MAC address (RFC 9568 section 7.3).
pub fn virtual_mac(router_id: u8, ipv6: bool) -> [u8; 6] {
    [0, 0, 0x5e, 0, if ipv6 { 2 } else { 1 }, router_id]
}

const fn is_ipv6(router: &VirtualRouter) -> bool {
    !router.is_ipv4()
}

/// The device with the virtual MAC address; creates it if it does not exist.
pub(crate) async fn add_device(
    addresses: &mut Addresses,
    router: &VirtualRouter,
    base: &Link,
) -> Result<Link, Error> {
    let ipv6 = is_ipv6(router);
    let name = format!("vrrp{}.{}", if ipv6 { "6" } else { "" }, router.router_id);
    let device = Extra::Device {
        router: router.name.clone(),
        name: name.clone(),
        base: base.name.clone(),
    };
    let was_recorded = addresses.record.extra.contains(&device);
    if !was_recorded {
        addresses.record.extra.push(device.clone());
        addresses.write()?;
    }
    set_base(addresses, &base.name)?;
    let mac = MacAddr(virtual_mac(router.router_id, ipv6));
    let created = addresses.netlink.add_macvlan(&name, base.index, mac).await;
    if !matches!(created, Ok(Change::Made)) && !was_recorded {
        // It belongs to another program.
        addresses.record.extra.retain(|it| *it != device);
        addresses.write()?;
    }
    let is_new = created? == Change::Made;
    if is_new {
        for (ipv6, settings) in [(false, &DEVICE_V4[..]), (true, &DEVICE_V6[..])] {
            for (key, value) in settings {
                let sysctl = Sysctl::of_device(ipv6, &name, key)?;
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

/// Settings of the device below; their former values are recorded first.
fn set_base(addresses: &mut Addresses, base: &str) -> Result<(), Error> {
    for (key, value) in BASE {
        let sysctl = Sysctl::of_device(false, base, key)?;
        let former = sysctl.read()?;
        if former == value {
            continue;
        }
        addresses.record.extra.push(Extra::Sysctl {
            base: base.to_owned(),
            name: sysctl.name().to_owned(),
            value: former,
        });
        addresses.write()?;
        sysctl.set(value)?;
    }
    Ok(())
}

/// Restores settings of devices that have no device above any more.
pub(crate) fn restore_settings(record: &mut Record) {
    let used: Vec<String> = record
        .extra
        .iter()
        .filter_map(|it| match it {
            Extra::Device { base, .. } => Some(base.clone()),
            _ => None,
        })
        .collect();
    record.extra.retain(|it| match it {
        Extra::Sysctl { base, name, value } if !used.contains(base) => {
            let restored = Sysctl::new(name.as_str()).and_then(|sysctl| sysctl.set(value));
            if let Err(error) = restored {
                // The device is gone.
                tracing::debug!(%error, "failed to restore a setting");
            }
            false
        }
        _ => true,
    });
}

/// Drops packets to the addresses as the virtual router's `accept` requires.
pub(crate) fn set_filter(addresses: &mut Addresses, router: &VirtualRouter) -> Result<(), Error> {
    let table = format!("weir_vrrp_{}", router.name);
    let filter = Extra::Filter {
        router: router.name.clone(),
        table: table.clone(),
    };
    let is_recorded = addresses.record.extra.contains(&filter);
    let ports = match &router.accept {
        // A former configuration had one.
        Accept::All if is_recorded => {
            addresses.netlink.remove_input_filter(&table)?;
            addresses.record.extra.retain(|it| *it != filter);
            return addresses.write();
        }
        Accept::All => return Ok(()),
        Accept::Services(ports) => ports,
    };
    if !is_recorded {
        addresses.record.extra.push(filter);
        addresses.write()?;
    }
    let passed = ports.iter().map(|it| PassedPorts {
        address: it.address,
        protocol: it.protocol,
        first: it.first,
        last: it.last,
    });
    let filter = InputFilter {
        table,
        addresses: router.managed().map(|it| it.address).collect(),
        passed: passed.collect(),
    };
    // Replaced even if it exists: services may have changed, and another program may have removed it.
    Ok(addresses.netlink.set_input_filter(&filter)?)
}

/// Adds the missing routes and rules of a virtual router.
pub(crate) async fn add(
    addresses: &mut Addresses,
    router: &VirtualRouter,
    base: &Link,
) -> Result<(), Error> {
    let links = addresses.netlink.links().await?;
    let routes = router.routes.iter().map(|route| Extra::Route {
        router: router.name.clone(),
        interface: route.interface.clone().unwrap_or_else(|| base.name.clone()),
        route: route.clone(),
    });
    let rules = router.rules.iter().map(|rule| Extra::Rule {
        router: router.name.clone(),
        rule: rule.clone(),
    });
    let mut first_error = None;
    for extra in routes.chain(rules) {
        if addresses.record.extra.contains(&extra) {
            continue;
        }
        addresses.record.extra.push(extra.clone());
        addresses.write()?;
        let added = match &extra {
            Extra::Route {
                interface, route, ..
            } => match static_route(route, interface, &links) {
                Some(route) => addresses
                    .netlink
                    .add_route(&route)
                    .await
                    .map_err(Into::into),
                None => Err(Error::NoInterface {
                    name: format!("route of {}", router.name),
                }),
            },
            Extra::Rule { rule, .. } => {
                let rule = table_rule(rule);
                let added = addresses.netlink.add_table_rule(&rule).await;
                added.map_err(Into::into)
            }
            Extra::Device { .. } | Extra::Filter { .. } | Extra::Sysctl { .. } => continue,
        };
        if !matches!(added, Ok(Change::Made)) {
            addresses.record.extra.retain(|it| *it != extra);
        }
        if let Err(error) = added {
            first_error.get_or_insert(error);
        }
    }
    first_error.map_or(Ok(()), Err)
}

/// Removes one of them.
pub(crate) async fn remove(netlink: &Netlink, extra: &Extra, links: &[Link]) -> Result<(), Error> {
    match extra {
        Extra::Route {
            interface, route, ..
        } => {
            // Without the device there is no route.
            if let Some(route) = static_route(route, interface, links) {
                netlink.remove_route(&route).await?;
            }
        }
        Extra::Rule { rule, .. } => drop(netlink.remove_table_rule(&table_rule(rule)).await?),
        Extra::Device { name, .. } => {
            if let Some(link) = links.iter().find(|link| link.name == *name) {
                netlink.remove_link(link.index).await?;
            }
        }
        Extra::Filter { table, .. } => drop(netlink.remove_input_filter(table)?),
        Extra::Sysctl { .. } => {}
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
