//! Finds addresses on `lo` that `up` did not add and that this machine would announce to other hosts by ARP.
//!
//! Such an address is usually a VIP that was added by hand or by another program. The kernel does not reply to
//! neighbor solicitations for an IPv6 address on another interface, so only the prefix length of IPv6 addresses is
//! checked.

use std::collections::BTreeSet;
use std::net::IpAddr;

use weir_doctor::Diagnosis;

use crate::desired::DesiredState;
use crate::entry::host_prefix;
use crate::plan::{ActualState, Record, is_link_local, receiving_interfaces, sysctl_name};

/// Returns the addresses on `lo` that `up` did not add, except those that every host has.
pub(crate) fn unmanaged_vips(desired: &DesiredState, actual: &ActualState) -> BTreeSet<IpAddr> {
    let listed = desired.loopback_vips();
    let loopbacks = actual.interfaces.iter().filter(|it| it.loopback);
    let addresses = loopbacks.flat_map(|interface| &interface.addresses);
    let addresses = addresses.map(|(address, _)| *address);
    addresses
        .filter(|it| !it.is_loopback() && !is_link_local(*it) && !listed.contains(it))
        .collect()
}

/// Reports addresses of `vips` that this machine announces by ARP, or that only Weir's settings for other VIPs protect.
pub(crate) fn unprotected(
    vips: &BTreeSet<IpAddr>,
    actual: &ActualState,
    record: &Record,
) -> Vec<Diagnosis> {
    let interfaces = receiving_interfaces(&BTreeSet::new(), actual);
    let mut exposures: Vec<(&str, Exposure)> = Vec::new();
    for interface in &interfaces {
        let exposure = Exposure::of_interface(&interface.name, actual);
        if exposure != Exposure::default() {
            exposures.push((&interface.name, exposure));
        }
    }
    let mut findings = Vec::new();
    for vip in vips.iter().filter(|vip| vip.is_ipv4()) {
        let fix = format!("weir real-server up --forward direct --vip {vip}");
        if !exposures.is_empty() {
            let settings: Vec<String> = exposures
                .iter()
                .map(|(name, exposure)| exposure.describe(name))
                .collect();
            let replies_to_arp = exposures.iter().any(|(_, it)| it.arp_ignore.is_some());
            let consequence = if replies_to_arp {
                "if it is a VIP, this machine replies to ARP requests for it: clients and routers bypass the director"
            } else {
                "if it is a VIP, ARP requests from this machine have it as the sender: neighbors send packets for the \
                 VIP to this machine"
            };
            let observation = format!(
                "{vip} on lo was not added by `weir real-server up`, and is not protected: {}",
                settings.join("; ")
            );
            findings.push(Diagnosis::new(observation, consequence).fix(fix));
        } else if is_protected_by_weir(record) && is_on_link(*vip, actual) {
            findings.push(
                Diagnosis::new(
                    format!(
                        "{vip} on lo was not added by `weir real-server up`, and only the settings for other VIPs \
                         protect it"
                    ),
                    "`weir real-server down` reverts those settings, and then this machine replies to ARP requests for \
                     the VIP",
                )
                .fix(fix),
            );
        }
    }
    findings
}

/// The effective values of an interface's settings that do not protect a VIP on `lo`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Exposure {
    arp_ignore: Option<u32>,
    arp_announce: Option<u32>,
}

impl Exposure {
    fn of_interface(interface: &str, actual: &ActualState) -> Self {
        // The kernel uses the maximum of the interface's value and that of `all`.
        let effective = |key: &str| {
            let values = [interface, "all"].map(|device| {
                let value = actual.sysctls.get(&sysctl_name(device, key));
                value.and_then(|value| value.parse().ok()).unwrap_or(0)
            });
            values[0].max(values[1])
        };
        let (arp_ignore, arp_announce) = (effective("arp_ignore"), effective("arp_announce"));
        Self {
            // With 3, the kernel replies for addresses of global scope on `lo`; 4 to 7 have no meaning.
            arp_ignore: (!matches!(arp_ignore, 1 | 2 | 8)).then_some(arp_ignore),
            arp_announce: (arp_announce < 2).then_some(arp_announce),
        }
    }

    fn describe(self, interface: &str) -> String {
        let ignore = self
            .arp_ignore
            .map(|it| format!("arp_ignore is {it} instead of 1"));
        let announce = self
            .arp_announce
            .map(|it| format!("arp_announce is {it} instead of 2"));
        let settings: Vec<String> = ignore.into_iter().chain(announce).collect();
        format!("on {interface}, {}", settings.join(" and "))
    }
}

/// Reports addresses of `vips` on `lo` with the prefix length of a network.
pub(crate) fn wide_prefixes(vips: &BTreeSet<IpAddr>, actual: &ActualState) -> Vec<Diagnosis> {
    let mut findings = Vec::new();
    for interface in actual.interfaces.iter().filter(|it| it.loopback) {
        for (vip, length) in &interface.addresses {
            if vips.contains(vip) && *length != host_prefix(*vip) {
                findings.push(wide_prefix(*vip, *length, &interface.name));
            }
        }
    }
    findings
}

/// Reports a VIP on a loopback interface with the prefix length of a network.
pub(crate) fn wide_prefix(vip: IpAddr, length: u8, interface: &str) -> Diagnosis {
    let host_length = host_prefix(vip);
    // Otherwise the kernel could select the VIP as the source of this machine's packets.
    let lifetime = if vip.is_ipv6() {
        " preferred_lft 0"
    } else {
        ""
    };
    // Only an IPv4 prefix makes every address local; an IPv6 prefix is a route to the interface.
    let consequence = match vip.is_ipv4() {
        true => {
            "this machine accepts packets and replies to ARP requests for every address in this prefix"
        }
        false => {
            "this machine routes packets for every other address in this prefix to this interface, so they are lost"
        }
    };
    Diagnosis::new(
        format!("the VIP {vip} has the prefix length {length} on {interface}"),
        consequence,
    )
    .fix(format!(
        "ip addr del {vip}/{length} dev {interface} && ip addr add {vip}/{host_length} dev {interface}{lifetime}"
    ))
}

fn is_protected_by_weir(record: &Record) -> bool {
    let mut names = record.sysctls.keys();
    names.any(|name| name.ends_with("/arp_ignore") || name.ends_with("/arp_announce"))
}

/// Returns whether an interface that other hosts can reach has a network that contains the address.
fn is_on_link(address: IpAddr, actual: &ActualState) -> bool {
    let interfaces = actual.interfaces.iter().filter(|it| !it.loopback);
    let mut networks = interfaces.flat_map(|interface| &interface.addresses);
    networks.any(|(ip, length)| match (ip, address) {
        (IpAddr::V4(ip), IpAddr::V4(address)) => {
            let mask = u32::MAX
                .checked_shl(32 - u32::from((*length).min(32)))
                .unwrap_or(0);
            *length < 32 && (ip.to_bits() ^ address.to_bits()) & mask == 0
        }
        _ => false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{ChangedSysctl, Interface};

    const VIP: &str = "10.0.0.10";

    fn actual(lo: &[(&str, u8)], sysctls: &[(&str, &str)]) -> ActualState {
        let interface = |index, name: &str, addresses: &[(&str, u8)]| Interface {
            index,
            name: name.to_owned(),
            loopback: name == "lo",
            ethernet: name != "lo",
            addresses: addresses
                .iter()
                .map(|(ip, length)| (ip.parse().unwrap(), *length))
                .collect(),
        };
        let usual = [("127.0.0.1", 8), ("::1", 128), ("169.254.7.7", 32)];
        let lo: Vec<_> = usual.iter().chain(lo).copied().collect();
        ActualState {
            interfaces: vec![
                interface(1, "lo", &lo),
                interface(2, "eth0", &[("10.0.0.5", 24), ("fe80::5", 64)]),
                interface(3, "eth1", &[("10.1.0.5", 24)]),
                interface(4, "port", &[]),
            ],
            sysctls: sysctls
                .iter()
                .map(|(name, value)| (format!("net/ipv4/conf/{name}"), (*value).to_owned()))
                .collect(),
            ..ActualState::default()
        }
    }

    fn reported(actual: &ActualState, record: &Record) -> String {
        let vips = unmanaged_vips(&DesiredState::default(), actual);
        let findings = wide_prefixes(&vips, actual)
            .into_iter()
            .chain(unprotected(&vips, actual, record));
        findings.map(|finding| finding.to_string()).collect()
    }

    #[test]
    fn addresses_that_are_announced_are_reported() {
        let addresses = [(VIP, 32), ("192.0.2.10", 32), ("2001:db8::10", 128)];
        let none = Record::default();
        insta::assert_snapshot!("default", reported(&actual(&addresses, &[]), &none));
        let vip = [(VIP, 32)];
        let partly = [("all/arp_ignore", "1"), ("eth1/arp_announce", "2")];
        insta::assert_snapshot!("announced", reported(&actual(&vip, &partly), &none));
        let wide = [(VIP, 24), ("2001:db8::10", 64)];
        let set = [("all/arp_ignore", "1"), ("all/arp_announce", "2")];
        insta::assert_snapshot!("wide", reported(&actual(&wide, &set), &none));
        let scope = [("all/arp_ignore", "3"), ("all/arp_announce", "2")];
        assert!(reported(&actual(&vip, &scope), &none).contains("arp_ignore is 3"));
    }

    #[test]
    fn protected_addresses_are_not_reported() {
        let none = Record::default();
        assert_eq!(reported(&actual(&[], &[]), &none), "");
        let each = [
            ("eth0/arp_ignore", "1"),
            ("eth1/arp_ignore", "2"),
            ("eth0/arp_announce", "2"),
            ("eth1/arp_announce", "2"),
        ];
        assert_eq!(reported(&actual(&[(VIP, 32)], &each), &none), "");
        // Weir reverts its own settings.
        let mut record = Record::default();
        record.sysctls.insert(
            "net/ipv4/conf/eth0/arp_ignore".to_owned(),
            ChangedSysctl {
                previous: "0".to_owned(),
                set: "1".to_owned(),
            },
        );
        let addresses = [(VIP, 32), ("192.0.2.10", 32)];
        insta::assert_snapshot!(
            "settings_of_weir",
            reported(&actual(&addresses, &each), &record)
        );
    }
}
