//! Computes the desired state of a server: its VIPs and their forwarding methods. `up` adds VIPs, `down` removes them.

use std::collections::BTreeSet;
use std::net::IpAddr;

use serde::{Deserialize, Serialize};
use weir_dataplane::real_server::{Mark, Prefix, Rules, TunnelSet, TunnelVip};
use weir_model::{Forward, TunnelKind};

use crate::entry::{Entry, Role};
use crate::problem::{MAX_DSCP, Problem};
use crate::request::{PrefixArgument, TunnelArgument, UpRequest, VipArgument};

const DEFAULT_DSCP: u8 = 1;

/// All VIPs that were requested and not removed.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct DesiredState {
    /// The VIPs.
    pub entries: BTreeSet<Entry>,
    /// Client networks (address, prefix length); replies to these clients are not rewritten.
    pub except: BTreeSet<(IpAddr, u8)>,
    /// Interfaces that packets arrive on; empty = every interface with an address.
    pub interfaces: BTreeSet<String>,
}

impl DesiredState {
    /// Returns this state plus the VIPs, exceptions and interfaces of `request`.
    ///
    /// # Errors
    /// Returns all problems with the request, including conflicts with existing VIPs.
    pub fn with(&self, request: &UpRequest) -> Result<Self, Vec<Problem>> {
        let mut problems = request_problems(request);
        let role = match request.forward {
            Forward::Nat | Forward::Socket => return Err(problems),
            Forward::Direct => Role::Direct,
            Forward::Tunnel => {
                let TunnelArgument { kind: tunnel, port } = request.tunnel.unwrap_or_default();
                Role::Tunnel { tunnel, port }
            }
            Forward::L3dsr => Role::L3dsr {
                dscp: request.dscp.unwrap_or(DEFAULT_DSCP),
            },
        };
        let mut desired = self.clone();
        let entry = |vip: &VipArgument| Entry {
            vip: vip.address,
            ports: vip.ports,
            role,
        };
        desired.entries.extend(request.vips.iter().map(entry));
        desired.except.extend(
            request
                .except
                .iter()
                .map(|PrefixArgument { address, len }| (*address, *len)),
        );
        desired
            .interfaces
            .extend(request.interfaces.iter().cloned());
        problems.extend(desired.shared_dscp_problems());
        if problems.is_empty() {
            Ok(desired)
        } else {
            Err(problems)
        }
    }

    /// Returns this state without `vips`; if `vips` is empty, removes all VIPs. A VIP without ports selects all its
    /// ports. If no VIP remains, also clears `except` and `interfaces`.
    #[must_use]
    pub fn without(&self, vips: &[VipArgument]) -> Self {
        if vips.is_empty() {
            return Self::default();
        }
        let is_removed = |entry: &Entry| {
            vips.iter().any(|vip| {
                vip.address == entry.vip && (vip.ports.is_none() || vip.ports == entry.ports)
            })
        };
        let mut desired = self.clone();
        desired.entries.retain(|entry| !is_removed(entry));
        if desired.entries.is_empty() {
            Self::default()
        } else {
            desired
        }
    }

    /// Returns the VIPs that must be addresses of `lo`.
    pub(crate) fn loopback_vips(&self) -> BTreeSet<IpAddr> {
        self.entries
            .iter()
            .filter(|entry| entry.role.needs_loopback_vip())
            .map(|entry| entry.vip)
            .collect()
    }

    /// Returns a problem for each pair of VIPs whose packets have the same DSCP and port.
    fn shared_dscp_problems(&self) -> Vec<Problem> {
        let entries: Vec<&Entry> = self
            .entries
            .iter()
            .filter(|entry| matches!(entry.role, Role::L3dsr { .. }))
            .collect();
        let mut problems = Vec::new();
        for (index, first) in entries.iter().enumerate() {
            for second in entries.iter().skip(index + 1) {
                let (a, b) = (first.ports_or_all(), second.ports_or_all());
                let ports_overlap = a.0 <= b.1 && b.0 <= a.1;
                let is_same_family = first.vip.is_ipv4() == second.vip.is_ipv4();
                if first.vip != second.vip
                    && is_same_family
                    && first.role == second.role
                    && ports_overlap
                {
                    problems.push(Problem::SharedDscp {
                        first: **first,
                        second: **second,
                    });
                }
            }
        }
        problems
    }

    /// Returns the rules for the BPF programs on a host with the addresses `local`.
    pub fn rules(&self, local: &[IpAddr]) -> Rules {
        let mut rules = Rules::default();
        for entry in &self.entries {
            match entry.role {
                Role::Direct => {}
                Role::Tunnel { tunnel, port } => add_tunnel(&mut rules, entry, tunnel, port),
                Role::L3dsr { dscp } => rules.marks.push(Mark {
                    dscp,
                    vip: entry.vip,
                    ports: entry.ports_or_all(),
                }),
            }
        }
        if rules.needs_ingress() {
            rules.host_addresses = local.to_vec();
        }
        if rules.needs_egress() {
            rules.except = self
                .except
                .iter()
                .map(|(address, len)| Prefix {
                    address: *address,
                    len: *len,
                })
                .collect();
        }
        rules.sort();
        rules
    }
}

fn add_tunnel(rules: &mut Rules, entry: &Entry, tunnel: TunnelKind, port: u16) {
    let tunnels = match tunnel {
        TunnelKind::Ipip => TunnelSet::IPIP,
        TunnelKind::Gue => TunnelSet::GUE,
        TunnelKind::Gre => TunnelSet::GRE,
    };
    if tunnel == TunnelKind::Gue {
        rules.gue_ports.push(port);
    }
    match rules.tunnels.iter_mut().find(|vip| vip.vip == entry.vip) {
        Some(vip) => {
            vip.tunnels = vip.tunnels.with(tunnels);
            vip.ports.push(entry.ports_or_all());
        }
        None => rules.tunnels.push(TunnelVip {
            vip: entry.vip,
            tunnels,
            ports: vec![entry.ports_or_all()],
        }),
    }
}

fn request_problems(request: &UpRequest) -> Vec<Problem> {
    let mut problems = Vec::new();
    let forward = request.forward;
    if matches!(forward, Forward::Nat | Forward::Socket) {
        problems.push(Problem::Forward { forward });
    }
    if request.vips.is_empty() {
        problems.push(Problem::NoVip);
    }
    if request.tunnel.is_some() && forward != Forward::Tunnel {
        problems.push(Problem::Option {
            option: "--tunnel",
            forward: "tunnel",
        });
    }
    if request.dscp.is_some() && forward != Forward::L3dsr {
        problems.push(Problem::Option {
            option: "--dscp",
            forward: "l3dsr",
        });
    }
    if let Some(dscp) = request.dscp.filter(|dscp| *dscp > MAX_DSCP) {
        problems.push(Problem::Dscp { dscp });
    }
    if !request.except.is_empty() && (forward, request.dscp) != (Forward::L3dsr, Some(0)) {
        problems.push(Problem::Option {
            option: "--except",
            forward: "l3dsr with --dscp 0",
        });
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(forward: Forward, vips: &[&str]) -> UpRequest {
        UpRequest {
            forward,
            vips: vips.iter().map(|vip| vip.parse().unwrap()).collect(),
            tunnel: None,
            dscp: None,
            except: Vec::new(),
            interfaces: Vec::new(),
        }
    }

    #[test]
    fn repeated_request_changes_nothing() {
        let request = request(Forward::Direct, &["192.0.2.10", "2001:db8::10"]);
        let once = DesiredState::default().with(&request).unwrap();
        assert_eq!(once.with(&request).unwrap(), once);
        assert_eq!(once.entries.len(), 2);
    }

    #[test]
    fn all_problems_of_a_request_are_returned() {
        let mut invalid_request = request(Forward::Direct, &[]);
        invalid_request.tunnel = Some("gre".parse().unwrap());
        invalid_request.dscp = Some(64);
        invalid_request.except = vec!["10.0.0.0/8".parse().unwrap()];
        let problems = DesiredState::default().with(&invalid_request).unwrap_err();
        let texts: Vec<String> = problems.iter().map(ToString::to_string).collect();
        insta::assert_snapshot!(texts.join("\n"));
    }

    #[test]
    fn two_vips_share_a_dscp_only_on_different_ports() {
        let first = DesiredState::default()
            .with(&request(Forward::L3dsr, &["192.0.2.10:80"]))
            .unwrap();
        first
            .with(&request(
                Forward::L3dsr,
                &["192.0.2.11:443", "[2001:db8::10]:80"],
            ))
            .unwrap();
        let problems = first
            .with(&request(Forward::L3dsr, &["192.0.2.11"]))
            .unwrap_err();
        assert!(
            matches!(problems.as_slice(), [Problem::SharedDscp { .. }]),
            "{problems:?}"
        );
        let mut other_dscp = request(Forward::L3dsr, &["192.0.2.11"]);
        other_dscp.dscp = Some(2);
        first.with(&other_dscp).unwrap();
    }

    #[test]
    fn vip_without_ports_removes_all_its_ports() {
        let state = DesiredState::default()
            .with(&request(
                Forward::Tunnel,
                &["192.0.2.10:80", "192.0.2.10:443", "192.0.2.11:80"],
            ))
            .unwrap();
        let remaining = |vip: &str| state.without(&[vip.parse().unwrap()]).entries.len();
        assert_eq!(
            (
                remaining("192.0.2.10"),
                remaining("192.0.2.10:80"),
                remaining("192.0.2.10:81")
            ),
            (1, 2, 3)
        );
        assert_eq!(state.without(&[]), DesiredState::default());
    }

    #[test]
    fn dscp_0_needs_no_vip_on_loopback() {
        let mut dscp_0_request = request(Forward::L3dsr, &["192.0.2.10:80"]);
        dscp_0_request.dscp = Some(0);
        dscp_0_request.except = vec!["10.0.0.0/8".parse().unwrap()];
        let desired = DesiredState::default().with(&dscp_0_request).unwrap();
        assert!(desired.loopback_vips().is_empty());
        let rules = desired.rules(&["10.0.0.5".parse().unwrap()]);
        assert!(rules.needs_ingress() && rules.needs_egress());
        assert_eq!(rules.except.len(), 1);
    }

    #[test]
    fn state_round_trips_through_json() {
        let mut tunnel = request(Forward::Tunnel, &["[2001:db8::10]:80-90"]);
        tunnel.tunnel = Some("gue:7000".parse().unwrap());
        let desired = DesiredState::default()
            .with(&tunnel)
            .unwrap()
            .with(&request(Forward::Direct, &["192.0.2.10"]))
            .unwrap();
        let text = serde_json::to_string_pretty(&desired).unwrap();
        assert_eq!(
            serde_json::from_str::<DesiredState>(&text).unwrap(),
            desired
        );
        insta::assert_snapshot!(text);
    }
}
