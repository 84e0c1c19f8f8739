//! Reports IPv6 VIPs that are unusable because of duplicate address detection (RFC 4862 section 5.4).

use std::collections::BTreeSet;
use std::net::IpAddr;

use weir_netlink::Address;

use crate::Diagnosis;

/// Reports VIPs that are on a device but unusable.
pub fn unusable_vips(
    vips: &BTreeSet<IpAddr>,
    addresses: &[Address],
    name: impl Fn(u32) -> Option<String>,
) -> Vec<Diagnosis> {
    let mut findings = Vec::new();
    for address in addresses
        .iter()
        .filter(|address| vips.contains(&address.ip))
    {
        let (vip, prefix) = (address.ip, address.prefix);
        let device = name(address.ifindex).unwrap_or_else(|| address.ifindex.to_string());
        let lifetime = if prefix == 128 {
            " preferred_lft 0"
        } else {
            ""
        };
        let add_again = format!(
            "ip -6 addr del {vip}/{prefix} dev {device} && ip -6 addr add {vip}/{prefix} dev {device} nodad{lifetime}"
        );
        if address.duplicate {
            findings.push(
                Diagnosis::new(
                    format!("the VIP {vip} on {device} failed duplicate address detection"),
                    "another machine on the segment already has this address: this machine does not use it",
                )
                .fix(add_again),
            );
        } else if address.tentative {
            findings.push(
                Diagnosis::new(
                    format!("the VIP {vip} on {device} is tentative: duplicate address detection is running"),
                    "packets for it are dropped until the detection ends, and without a carrier it never ends; VIPs \
                     should be added with nodad",
                )
                .fix(add_again),
            );
        }
    }
    findings
}
