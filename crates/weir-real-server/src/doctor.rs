//! `weir real-server doctor`: reports problems that prevent this machine from serving its VIPs.
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
use crate::plan::{self, ActualState, Step};
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
    if let Some(listeners) = &listeners {
        findings.extend(listener::missing_listeners(&desired, listeners));
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
        let listeners = listeners.unwrap_or_default();
        findings.extend(dropped_packets(&desired, &firewall.rules, &listeners));
    }
    // The VIPs on `lo` may have been prepared without Weir.
    if desired.entries.is_empty() && unmanaged_vips.is_empty() {
        findings.push(
            Diagnosis::new(
                "no VIP is configured on this machine",
                "with direct, tunnel and l3dsr a server must accept packets for the VIP without announcing it",
            )
            .fix("weir real-server up --forward direct --vip VIP"),
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
            "ARP requests from this machine have the VIP as the sender: neighbours send packets for the VIP to it"
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
                findings.push(
                    Diagnosis::new(
                        format!("the VIP {vip} is on {name}"),
                        "the kernel replies to ARP requests for an address of the receiving interface, regardless of \
                         arp_ignore",
                    )
                    .fix(format!("ip addr del {vip}/{length} dev {name}")),
                );
            } else if *length != host_prefix(vip) {
                findings.push(unmanaged_vip::wide_prefix(vip, *length, name));
            }
        }
    }
    findings
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
    let is_forwarding = std::fs::read_to_string("/proc/sys/net/ipv4/ip_forward")
        .is_ok_and(|value| value.trim() == "1");
    let missing_vips: Vec<String> = vips
        .iter()
        .filter(is_missing)
        .map(ToString::to_string)
        .collect();
    if !(has_direct_vip && is_forwarding) || missing_vips.is_empty() {
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
