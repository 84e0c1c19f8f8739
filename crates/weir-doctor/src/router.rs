//! Finds out why a router does not distribute packets to VIPs across all directors (`weir doctor --router`).
//!
//! The router is a Linux machine with BIRD 2 or 3, or with FRR. The BGP paths to a VIP come from `birdc` or `vtysh`,
//! the next hops from the kernel. Only BIRD's tables `master4` and `master6`, FRR's default VRF, and the kernel's
//! route lookups for packets from this machine are examined. This module changes nothing.

mod bird;
mod cause;
mod client;
mod error;
mod frr;
mod path;
mod report;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use weir_netlink::{Netlink, NextHop, RouteKind, Sysctl};

use crate::Diagnosis;
use cause::{Cause, KernelRoute, causes};
use client::Client;
pub use error::RouterError;
use path::{RouteEntry, Speaker};
use report::Context;

/// Maximum number of VIPs that are examined. One command is run per VIP.
const MAX_VIPS: usize = 256;
/// Bits of `fib_multipath_hash_fields` for the ports of a packet.
const HASH_FIELDS_PORTS: u32 = 0x30;

/// Examines how this router distributes packets to VIPs. Without VIPs, examines all host routes (/32 and /128) for
/// which BGP has more than one path. `command` is the command line of `birdc` or `vtysh`, split at spaces; `None` =
/// whichever responds; BIRD is tried first. Returns the problems and notes.
///
/// # Errors
/// Returns an error if no speaker responds, or if the kernel's routes cannot be read.
pub async fn router(vips: &[IpAddr], command: Option<&str>) -> Result<Vec<Diagnosis>, RouterError> {
    let client = Client::connect(command).await?;
    let netlink = Netlink::open()?;
    let mut vips: Vec<IpAddr> = match vips {
        [] => client.vips().await?,
        vips => BTreeSet::from_iter(vips.iter().copied())
            .into_iter()
            .collect(),
    };
    if vips.is_empty() {
        return Ok(vec![report::nothing_found(client.speaker)]);
    }
    let omitted = vips.len().saturating_sub(MAX_VIPS);
    vips.truncate(MAX_VIPS);
    let mut vips_by_cause: BTreeMap<Cause, Vec<IpAddr>> = BTreeMap::new();
    let mut multipath_families = BTreeSet::new();
    for vip in &vips {
        let mut entry = client.route(*vip).await?;
        if client.speaker == Speaker::Frr {
            resolve_next_hops(entry.as_mut(), &netlink).await?;
        }
        let kernel = kernel_route(*vip, &netlink).await?;
        if entry.as_ref().is_some_and(|it| it.next_hop_count() > 1) {
            multipath_families.insert(vip.is_ipv6());
        }
        for cause in causes(*vip, entry.as_ref(), kernel.as_ref(), client.speaker) {
            vips_by_cause.entry(cause).or_default().push(*vip);
        }
    }
    let command = client.command_line();
    let context = Context {
        speaker: client.speaker,
        command: &command,
        as_number: client.as_number,
    };
    let mut findings: Vec<Diagnosis> = vips_by_cause
        .iter()
        .map(|(cause, vips)| report::diagnosis(cause, vips, context))
        .collect();
    for is_ipv6 in multipath_families {
        findings.extend(hash_policy(is_ipv6, &netlink));
    }
    if omitted > 0 {
        findings.push(report::omitted(vips.len(), omitted));
    }
    Ok(findings)
}

/// Returns the route that packets to a VIP follow. `None` = they are dropped or rejected.
async fn kernel_route(vip: IpAddr, netlink: &Netlink) -> Result<Option<KernelRoute>, RouterError> {
    let route = netlink.matching_route(vip).await?;
    Ok(route.map(|route| {
        let next_hops: BTreeSet<(u32, Option<IpAddr>)> = route
            .next_hops
            .iter()
            .map(|hop| (hop.ifindex, hop.gateway))
            .collect();
        KernelRoute {
            prefix: format!("{}/{}", route.destination, route.prefix),
            length: route.prefix,
            next_hops: match route.kind {
                RouteKind::Unicast => next_hops.len(),
                _ => 0,
            },
        }
    }))
}

/// Replaces the next hops of FRR's paths with the routers through which the kernel reaches them, because FRR shows only
/// BGP's next hops. For the kernel, directors behind the same router are one next hop.
async fn resolve_next_hops(
    entry: Option<&mut RouteEntry>,
    netlink: &Netlink,
) -> Result<(), RouterError> {
    for path in entry.into_iter().flat_map(|entry| &mut entry.paths) {
        let mut resolved = BTreeSet::new();
        for next_hop in &path.next_hops {
            let hops = match next_hop.parse() {
                // A link-local next hop is on-link and needs no lookup.
                Ok(IpAddr::V6(address)) if address.is_unicast_link_local() => Vec::new(),
                Ok(address) => netlink.route_get(address, None, 0).await?.next_hops,
                Err(_) => Vec::new(),
            };
            if hops.is_empty() {
                resolved.insert(next_hop.clone());
            }
            resolved.extend(hops.iter().map(|hop| describe(hop, next_hop)));
        }
        path.next_hops = resolved;
    }
    Ok(())
}

fn describe(hop: &NextHop, destination: &str) -> String {
    let router = hop
        .gateway
        .map_or(destination.to_owned(), |it| it.to_string());
    format!("{router} {}", hop.ifindex)
}

/// Reports a hash policy that ignores ports. Reports nothing if the kernel does not have the sysctl.
fn hash_policy(is_ipv6: bool, netlink: &Netlink) -> Option<Diagnosis> {
    let family = if is_ipv6 { "ipv6" } else { "ipv4" };
    let read = |key: &str| {
        let sysctl = Sysctl::new(format!("net/{family}/{key}")).ok()?;
        netlink.sysctl(&sysctl).ok()
    };
    let policy = read("fib_multipath_hash_policy")?;
    let fields = read("fib_multipath_hash_fields");
    if includes_ports(&policy, fields.as_deref()) {
        return None;
    }
    let name = format!("net.{family}.fib_multipath_hash_policy");
    Some(report::hash_policy(&name, &policy))
}

/// Returns whether the hash of a flow includes its ports: 0 = addresses, 1 = addresses and ports, 2 = like 0, or the
/// inner packet's addresses, 3 = `fields` (Documentation/networking/ip-sysctl.rst). Unknown values are assumed to
/// include them.
fn includes_ports(policy: &str, fields: Option<&str>) -> bool {
    match policy {
        "0" | "2" => false,
        "3" => {
            let fields = fields.and_then(|fields| fields.parse::<u32>().ok());
            fields.is_none_or(|fields| fields & HASH_FIELDS_PORTS != 0)
        }
        _ => true,
    }
}
