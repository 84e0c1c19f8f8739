//! Implements `weir real-server doctor`, which reports problems that prevent this machine from serving its VIPs.
//!
//! Checks whether other programs have changed the settings made by `up`, and checks objects that `up` does not change:
//! listening sockets, ARP, firewalls, and settings that are lost at the next boot. With `fix`, makes the changes that
//! `up` would make; without it, makes no changes.

use std::net::IpAddr;
use std::path::Path;

use weir_netlink::Netlink;

use crate::apply::{Host, reconcile};
use crate::boot;
use crate::desired::DesiredState;
use crate::dropped_packet::dropped_packets;
use crate::entry::{Role, host_prefix};
use crate::error::Result;
use crate::listener;
use crate::plan::{self, ActualState, Interface, Step};
use crate::request::Options;
use crate::state::{self, State};
use crate::unmanaged_vip;
use weir_dataplane::real_server::object_id;
use weir_doctor::firewall;
use weir_doctor::manager::{self, AssignedVip};
use weir_doctor::{Diagnosis, checksum, conntrack, duplicate, gateway, source};

/// Returns the problems that are visible from this machine.
///
/// # Errors
/// Fails if the host's state cannot be read, or with `fix` a step fails.
pub async fn doctor(options: &Options, fix: bool) -> Result<Vec<Diagnosis>> {
    let checksums = checksum::Reading::new();
    let (desired, mut record) = state::read_unlocked(options)?;
    let host = Host::open(options).await?;
    let actual = host.read_state()?;
    let steps = plan::plan(&desired, &actual, &record, object_id());
    let mut findings: Vec<Diagnosis> = steps.iter().map(diagnosis).collect();
    if fix && !steps.is_empty() {
        let mut state = State::open(options)?;
        reconcile(&host, &mut state).await?;
        state.save()?;
        record = state.record;
        for diagnosis in &mut findings {
            diagnosis.fixed = true;
        }
    }
    let unmanaged_vips = unmanaged_vip::unmanaged_vips(&desired, &actual);
    let checksum_position = findings.len();
    findings.extend(misplaced_vips(&desired, &actual));
    findings.extend(unmanaged_vip::wide_prefixes(&unmanaged_vips, &actual));
    findings.extend(unmanaged_vip::unprotected(
        &unmanaged_vips,
        &actual,
        &record,
    ));
    let listeners = listener::listeners();
    let udp_ports = listener::udp_ports();
    let known_listeners = listeners.as_deref().unwrap_or_default();
    let with_tcp = listener::without_udp_services(&desired, known_listeners, &udp_ports);
    if listeners.is_some() {
        findings.extend(listener::missing_listeners(&with_tcp, known_listeners));
    }
    findings.extend(forwarding_loop(&desired, &actual));
    findings.extend(vip_problems(&desired, &actual).await?);
    if !desired.entries.is_empty() {
        findings.extend(boot::settings_lost_at_boot(
            &desired,
            &record,
            Path::new("/"),
        ));
        findings.extend(conntrack::nearly_full_table());
        let firewall = firewall::read();
        findings.extend(firewall.unreadable);
        findings.extend(dropped_packets(&with_tcp, &firewall.rules, known_listeners));
    }
    // The VIPs on `lo` may have been prepared without Weir.
    if desired.entries.is_empty() && unmanaged_vips.is_empty() {
        findings.push(
            Diagnosis::new(
                "no VIP is configured on this machine",
                "with direct, tunnel and l3dsr, a server must accept packets for the VIP without announcing the VIP",
            )
            .fix(
                "weir real-server up --forward direct --vip VIP, with `forward` and the address of the director's \
                 service",
            ),
        );
    }
    // The other checks run between the two readings.
    let bad_checksums = checksums.bad_checksums().await;
    findings.splice(checksum_position..checksum_position, bad_checksums);
    Ok(findings)
}

/// Reports VIPs that are not usable, will be removed, can become the source of the machine's own packets, or are on the
/// default gateway.
async fn vip_problems(desired: &DesiredState, actual: &ActualState) -> Result<Vec<Diagnosis>> {
    let netlink = Netlink::open()?;
    let addresses = netlink.addresses().await?;
    let vips = desired.loopback_vips();
    let interface = |index: u32| {
        actual
            .interfaces
            .iter()
            .find(|interface| interface.index == index)
    };
    let name = |index| interface(index).map(|interface| interface.name.clone());
    let is_loopback = |index| interface(index).is_some_and(|interface| interface.loopback);
    let mut findings = duplicate::unusable_vips(&vips, &addresses, name);
    let assigned: Vec<AssignedVip> = addresses
        .iter()
        .filter(|address| vips.contains(&address.ip))
        .filter_map(|address| {
            Some(AssignedVip {
                vip: address.ip,
                prefix: address.prefix,
                ifindex: address.ifindex,
                device: name(address.ifindex)?,
            })
        })
        .collect();
    findings.extend(manager::removed_vips(&assigned));
    findings.extend(source::vip_sources(&vips, &addresses, is_loopback, &netlink).await?);
    let replies_from = desired.entries.iter().map(|entry| entry.vip).collect();
    findings.extend(gateway::gateways_with_vips(&replies_from, &netlink).await?);
    Ok(findings)
}

/// Reports a setting that another program has changed; `up` would repair it with `step`.
fn diagnosis(step: &Step) -> Diagnosis {
    let consequence = match step {
        Step::SetSysctl { name, .. } if name.ends_with("arp_ignore") => {
            "this machine replies to ARP requests for the VIP: clients and routers bypass the director"
        }
        Step::SetSysctl { name, .. } if name.ends_with("arp_announce") => {
            "ARP requests from this machine have the VIP as the sender: neighbors send packets for the VIP to this \
             machine"
        }
        Step::SetSysctl { .. } => {
            "client packets arrive on an interface that the return route does not use, and strict rp_filter drops \
             them"
        }
        Step::AttachPrograms { .. } => {
            "marked or encapsulated packets are not translated to the VIP, or replies are not translated"
        }
        Step::AddAddress { .. } => "packets for the VIP are not local: this machine drops them",
        Step::DetachPrograms
        | Step::RemoveAddress { .. }
        | Step::RestoreSysctl { .. }
        | Step::ForgetSysctl { .. }
        | Step::ForgetAddress { .. } => "it is left over from settings that `down` has reverted",
    };
    Diagnosis::new(
        format!("changed since `weir real-server up`: Weir would {step}"),
        consequence,
    )
    .fix("weir real-server doctor --fix")
}

/// Reports VIPs on an interface other than `lo`, or with a prefix that covers more than a single address.
fn misplaced_vips(desired: &DesiredState, actual: &ActualState) -> Vec<Diagnosis> {
    let mut findings = Vec::new();
    for vip in desired.loopback_vips() {
        for interface in &actual.interfaces {
            let address = interface.addresses.iter().find(|(ip, _)| *ip == vip);
            let Some((_, length)) = address else { continue };
            let name = &interface.name;
            if !interface.loopback {
                findings.push(vip_on_interface(vip, *length, interface));
            } else if *length != host_prefix(vip) {
                findings.push(unmanaged_vip::wide_prefix(vip, *length, name));
            }
        }
    }
    findings
}

/// Reports a VIP on an interface that announces it.
fn vip_on_interface(vip: IpAddr, length: u8, interface: &Interface) -> Diagnosis {
    let name = &interface.name;
    let consequence = match vip.is_ipv4() {
        true => {
            "the kernel replies to ARP requests for an address of the receiving interface, regardless of arp_ignore"
        }
        false => "the kernel replies to neighbor solicitations for the addresses of this interface",
    };
    let mut other_addresses = interface.addresses.iter();
    let has_other = other_addresses
        .any(|(ip, _)| *ip != vip && ip.is_ipv4() == vip.is_ipv4() && !plan::is_link_local(*ip));
    let remove = format!("ip addr del {vip}/{length} dev {name}");
    // Without its own address, the machine would be unreachable.
    let fix = match has_other || length == host_prefix(vip) {
        true => remove,
        false => format!(
            "if {vip} is this machine's own address: weir real-server down --vip {vip}, then `up` with the address of \
             the director's service; otherwise: {remove}"
        ),
    };
    Diagnosis::new(format!("the VIP {vip} is on {name}"), consequence).fix(fix)
}

/// Reports a server that forwards IP packets but does not have the VIP: it sends packets for the VIP back to the
/// director.
fn forwarding_loop(desired: &DesiredState, actual: &ActualState) -> Vec<Diagnosis> {
    let has_direct_vip = desired
        .entries
        .iter()
        .any(|entry| entry.role == Role::Direct);
    let vips = desired.loopback_vips();
    let is_missing = |vip: &&IpAddr| {
        let mut interfaces = actual.interfaces.iter();
        !interfaces.any(|interface| interface.addresses.iter().any(|(ip, _)| ip == *vip))
    };
    let is_forwarding = |vip: &&IpAddr| {
        let name = match vip {
            IpAddr::V4(_) => "ipv4/ip_forward",
            IpAddr::V6(_) => "ipv6/conf/all/forwarding",
        };
        std::fs::read_to_string(format!("/proc/sys/net/{name}")).is_ok_and(|it| it.trim() != "0")
    };
    let missing_vips: Vec<String> = vips
        .iter()
        .filter(is_missing)
        .filter(is_forwarding)
        .map(ToString::to_string)
        .collect();
    if !has_direct_vip || missing_vips.is_empty() {
        return Vec::new();
    }
    vec![
        Diagnosis::new(
            format!(
                "IP forwarding is enabled, and this machine does not have {}",
                missing_vips.join(", ")
            ),
            "it forwards client packets back to the director until their TTL expires",
        )
        .fix("weir real-server doctor --fix"),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The fix of a finding must not remove the only address of an interface.
    #[test]
    fn own_address_as_vip_is_not_removed_from_its_interface() {
        let fix = |vip: &str, length, addresses: &[&str]| {
            let vip: IpAddr = vip.parse().unwrap();
            let mut on_interface = vec![(vip, length)];
            on_interface.extend(addresses.iter().map(|it| (it.parse().unwrap(), 24)));
            let interface = Interface {
                index: 2,
                name: "eth0".to_owned(),
                loopback: false,
                ethernet: true,
                addresses: on_interface,
            };
            let diagnosis = vip_on_interface(vip, length, &interface);
            assert_eq!(
                diagnosis.consequence.contains("ARP"),
                vip.is_ipv4(),
                "{diagnosis}"
            );
            diagnosis.fix.expect("a fix")
        };
        let remove = "ip addr del 10.0.0.10/24 dev eth0";
        assert_eq!(fix("10.0.0.10", 24, &["10.0.0.5", "fe80::1"]), remove);
        let own_address_fix = fix("10.0.0.10", 24, &["fe80::1"]);
        assert!(
            own_address_fix.starts_with("if 10.0.0.10 is this machine's own address: "),
            "{own_address_fix}"
        );
        assert!(own_address_fix.ends_with(remove), "{own_address_fix}");
        assert_eq!(
            fix("10.0.0.10", 32, &[]),
            "ip addr del 10.0.0.10/32 dev eth0"
        );
        let own_address_fix = fix("2001:db8::10", 64, &["fe80::1"]);
        assert!(
            own_address_fix.contains("weir real-server down --vip 2001:db8::10"),
            "{own_address_fix}"
        );
    }
}
