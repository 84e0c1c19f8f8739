//! Computes the result of `weir plan`: the changes that a reload would make, and the live flows that each affects.
//!
//! The plan consists of the differences between two desired states, as reported by [`weir_model::diff`], with flow
//! counts from the caller. The module performs no I/O, and does not describe how a change is applied to the kernel.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::IpAddr;

use serde::{Deserialize, Serialize};
use weir_model::{Change, Desired, Edit, OnRemove, diff};

/// The response to `POST /v1/plan`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// The changes in file order, then the changes to local addresses.
    pub changes: Vec<PlannedChange>,
    /// Warnings, for example about addresses that clients may be unable to reach, servers behind a router, and files.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

/// A change that a reload would make.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlannedChange {
    /// `+` (added), `-` (removed) or `~` (changed), followed by the object.
    pub change: String,
    /// Number of live flows that the change affects.
    pub flows: u64,
    /// The effect on these flows, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub effect: Option<String>,
}

/// A source of live flow counts.
pub trait LiveFlows {
    /// Returns the number of live flows of a service, or of one of its servers, by their names in the configuration
    /// file.
    fn count(&self, service: &str, server: Option<&str>) -> u64;
}

impl<F: Fn(&str, Option<&str>) -> u64> LiveFlows for F {
    fn count(&self, service: &str, server: Option<&str>) -> u64 {
        self(service, server)
    }
}

/// Compares the active state with a new one. `added` contains the VIPs that Weir has added, with their interfaces.
pub fn plan(
    old: &Desired,
    new: &Desired,
    live: &impl LiveFlows,
    added: &[(String, IpAddr)],
) -> Plan {
    let plan_change = |change: &Change| PlannedChange {
        change: change.to_string(),
        flows: affected_flows(change, old, live),
        effect: effect(change, new).map(str::to_owned),
    };
    let mut plan = Plan {
        changes: diff(old, new).iter().map(plan_change).collect(),
        warnings: Vec::new(),
    };
    report_address_changes(&mut plan, old, new, live, added);
    plan
}

/// Returns the addresses on which services listen.
fn needed_addresses(desired: &Desired) -> BTreeSet<IpAddr> {
    let listeners = desired.services.iter().flat_map(|service| &service.listen);
    let listeners = listeners.map(|listener| listener.address);
    listeners.chain(desired.proxy_addresses()).collect()
}

/// Reports VIPs that Weir has added and that the new configuration removes, moves or assigns to a virtual router. Adds
/// one change per VIP, and one warning per interface that loses VIPs on which services still listen. Omits VIPs that
/// the old configuration does not need either: they remain only until their flows end.
fn report_address_changes(
    plan: &mut Plan,
    old: &Desired,
    new: &Desired,
    live: &impl LiveFlows,
    added: &[(String, IpAddr)],
) {
    if added.is_empty() {
        return;
    }
    let (old_needed, needed) = (needed_addresses(old), needed_addresses(new));
    let new_interface = new.node.vip_interface.as_deref();
    let is_same_interface = old.node.vip_interface.as_deref() == new_interface;
    let mut lost_vips: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for (interface, vip) in added {
        let is_needed = needed.contains(vip);
        let is_vrrp = new.is_vrrp_address(*vip);
        if is_needed && !is_vrrp && new_interface == Some(interface.as_str()) {
            continue;
        }
        let is_leaving = is_same_interface && !old_needed.contains(vip);
        if is_leaving && !is_needed && !is_vrrp {
            continue;
        }
        let (mut flows, mut effect) = (0, None);
        let change = match new_interface {
            _ if new.is_vrrp_address_on(interface, *vip, |_| false) => format!(
                "~ address {vip} on {interface}: vip_interface -> vrrp, absent only while another director is active"
            ),
            _ if is_vrrp => format!(
                "~ address {vip} on {interface}: vip_interface -> vrrp, absent until the virtual router is active"
            ),
            Some(new_interface) if is_needed => {
                format!("~ address {vip}: {interface} -> {new_interface}")
            }
            Some(new_interface) if new_interface == interface => {
                flows = flows_of_address(*vip, old, live);
                effect = Some("use it".to_owned());
                format!("- address {vip} on {interface}: removed when no flow uses it")
            }
            _ => format!("- address {vip} on {interface}"),
        };
        plan.changes.push(PlannedChange {
            change,
            flows,
            effect,
        });
        if is_needed && !is_vrrp {
            lost_vips
                .entry(interface)
                .or_default()
                .push(vip.to_string());
        }
    }
    let losses = lost_vips.into_iter();
    plan.warnings = losses
        .map(|(interface, vips)| loss_warning(interface, &vips.join(", "), new_interface))
        .collect();
}

/// Returns the warning about an interface that loses VIPs on which services listen.
fn loss_warning(interface: &str, vips: &str, new_interface: Option<&str>) -> String {
    match new_interface {
        Some(new_interface) => {
            format!(
                "{interface} loses {vips}: Weir adds and announces them only on {new_interface}"
            )
        }
        None => format!(
            "{interface} loses {vips}, which services listen on: Weir adds addresses only if `[node] vip_interface` \
             is set. Clients can reach them only if another program adds them or they are routed to this machine"
        ),
    }
}

/// Returns the number of live flows of an address. Returns 0, which is not shown, if one of its services also listens
/// on other addresses, because flows are counted per service.
fn flows_of_address(vip: IpAddr, old: &Desired, live: &impl LiveFlows) -> u64 {
    let layer_4 = old.services.iter().map(|service| {
        let addresses = service.listen.iter().map(|listener| listener.address);
        (&service.name, addresses.collect::<BTreeSet<_>>())
    });
    let proxies = old.proxies.iter().map(|proxy| {
        let addresses = proxy.listen.iter().map(|listener| listener.ip());
        (&proxy.name, addresses.collect())
    });
    let mut services = layer_4.chain(proxies);
    let count = services.try_fold(0, |sum, (service, addresses)| {
        if !addresses.contains(&vip) {
            return Some(sum);
        }
        (addresses.len() == 1).then(|| sum + live.count(service, None))
    });
    count.unwrap_or_default()
}

/// Returns whether edits of a pool or a server affect only its checks and the handling of their results. Such edits do
/// not affect existing flows.
fn affect_only_health(edits: &[Edit]) -> bool {
    const HEALTH_KEYS: [&str; 9] = [
        "check",
        "require",
        "slow_start",
        "quorum",
        "quorum_hysteresis",
        "panic_threshold",
        "max_ejected",
        "max_latency",
        "notify",
    ];
    edits.iter().all(|edit| {
        let table = edit.key.split(['.', ' ']).next();
        table.is_some_and(|table| HEALTH_KEYS.contains(&table))
    })
}

fn affected_flows(change: &Change, old: &Desired, live: &impl LiveFlows) -> u64 {
    let flows_of_pool = |pool: &str, server: Option<&str>| {
        let layer_4 = old
            .services
            .iter()
            .map(|service| (&service.name, &service.pool));
        let proxies = old
            .proxies
            .iter()
            .filter(|proxy| proxy.pools().contains(&pool));
        layer_4
            .filter(|(_, service_pool)| *service_pool == pool)
            .map(|(service, _)| service)
            .chain(proxies.map(|proxy| &proxy.name))
            .map(|service| live.count(service, server))
            .sum()
    };
    match change {
        Change::Node(_)
        | Change::Announce(_)
        | Change::VirtualRouter { .. }
        | Change::Sync { .. }
        | Change::Tracing { .. }
        | Change::Cluster { .. }
        | Change::Notifier { .. } => 0,
        Change::Timeouts(_) | Change::Ipvs(_) => {
            let count = |service: &weir_model::Service| live.count(&service.name, None);
            old.services.iter().map(count).sum()
        }
        Change::PoolAdded { .. } | Change::ServerAdded { .. } | Change::ServiceAdded { .. } => 0,
        Change::PoolChanged { edits, .. } | Change::ServerChanged { edits, .. }
            if affect_only_health(edits) =>
        {
            0
        }
        Change::PoolRemoved { pool, .. }
        | Change::PoolChanged { pool, .. }
        | Change::ServersReordered { pool } => flows_of_pool(pool, None),
        Change::ServerRemoved { pool, server } | Change::ServerChanged { pool, server, .. } => {
            flows_of_pool(pool, Some(server))
        }
        Change::ServiceRemoved { service, .. } | Change::ServiceChanged { service, .. } => {
            live.count(service, None)
        }
    }
}

fn effect(change: &Change, new: &Desired) -> Option<&'static str> {
    let Change::ServerRemoved { pool, .. } = change else {
        return None;
    };
    Some(match new.pool(pool)?.on_remove {
        OnRemove::Keep => "are kept",
        OnRemove::Reset => "are reset",
        OnRemove::Reschedule => "are rescheduled",
    })
}

/// Writes one line per change, then the warnings, then the number of changes.
impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for planned in &self.changes {
            write!(f, "{}", planned.change)?;
            if planned.flows != 0 {
                let effect = planned.effect.as_deref().unwrap_or("affected");
                write!(f, "  ({} {effect})", live_flow_count(planned.flows))?;
            }
            writeln!(f)?;
        }
        for warning in &self.warnings {
            writeln!(f, "warning: {warning}")?;
        }
        match self.changes.len() {
            0 => writeln!(f, "no changes"),
            1 => writeln!(f, "1 change"),
            count => writeln!(f, "{count} changes"),
        }
    }
}

fn live_flow_count(count: u64) -> String {
    format!("{count} live flow{}", if count == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_config::{Host, parse};

    const BEFORE: &str = r#"
        [pool.images]
        servers = ["10.0.0.5", "10.0.0.6"]
        [service.images]
        listen = ["192.0.2.10:80"]
        forward = "direct"
        pool = "images"
        [service.old]
        listen = ["192.0.2.11:80"]
        forward = "nat"
        pool = "images"
    "#;

    const AFTER: &str = r#"
        [timeouts]
        tcp = "5m"
        [pool.images]
        on_remove = "reset"
        servers = [{ address = "10.0.0.5", weight = 3 }, "10.0.0.7"]
        [service.images]
        listen = ["192.0.2.10:80"]
        forward = "direct"
        pool = "images"
    "#;

    fn desired(text: &str) -> Desired {
        parse(text, &Host::default()).unwrap().desired
    }

    fn live(service: &str, server: Option<&str>) -> u64 {
        let per_server = if service == "images" { 10 } else { 1 };
        if server.is_some() {
            per_server
        } else {
            2 * per_server
        }
    }

    #[test]
    fn plan_shows_changes_with_their_live_flows() {
        insta::assert_snapshot!(plan(&desired(BEFORE), &desired(AFTER), &live, &[]));
    }

    #[test]
    fn plan_without_a_daemon_adds_everything() {
        let no_flows = |_: &str, _: Option<&str>| 0;
        insta::assert_snapshot!(plan(&Desired::default(), &desired(BEFORE), &no_flows, &[]));
    }

    #[test]
    fn identical_states_have_no_changes() {
        let state = desired(AFTER);
        assert_eq!(plan(&state, &state, &live, &[]).to_string(), "no changes\n");
    }

    #[test]
    fn vip_removed_from_interface_is_reported_with_warning() {
        let text = |node: &str| format!("[node]\n{node}\n{BEFORE}");
        let with_interface = |name: &str| desired(&text(&format!("vip_interface = \"{name}\"")));
        let vip = |text: &str| ("eth0".to_owned(), text.parse::<IpAddr>().unwrap());
        let added_vips = [vip("192.0.2.10"), vip("192.0.2.11")];
        let render =
            |new: &Desired| plan(&with_interface("eth0"), new, &live, &added_vips).to_string();
        assert_eq!(render(&with_interface("eth0")), "no changes\n");
        insta::assert_snapshot!("removed", render(&desired(BEFORE)));
        insta::assert_snapshot!("moved", render(&with_interface("eth1")));
        let router = "[vrrp.web]\ninterface = \"eth0\"\nvirtual_router_id = 51\n\
            addresses = [\"192.0.2.10/24\", \"192.0.2.11/24\"]";
        insta::assert_snapshot!(
            "virtual-router",
            render(&desired(&format!("{BEFORE}\n{router}")))
        );
        let mut without_service = with_interface("eth0");
        without_service.services.pop();
        insta::assert_snapshot!("unneeded", render(&without_service));
        // The address stays until its flows end, so the next reload of the same file changes nothing.
        let second_plan = plan(&without_service, &without_service, &live, &added_vips);
        assert_eq!(second_plan.to_string(), "no changes\n");
        let without_interface = plan(&without_service, &desired(BEFORE), &live, &added_vips);
        assert!(
            without_interface
                .to_string()
                .contains("- address 192.0.2.11 on eth0\n")
        );
    }

    #[test]
    fn check_change_affects_no_flows() {
        let with_check = |keys: &str, server: &str| {
            let check = format!("[pool.images.check]\nkind = \"http\"\n{keys}\n");
            desired(&format!("{BEFORE}\n{check}").replace("\"10.0.0.5\"", server))
        };
        let server = "{ address = \"10.0.0.5\", check = { kind = \"tcp\" } }";
        let before = with_check("", server);
        let after = with_check("path = \"/a\"", &server.replace("tcp", "http"));
        let plan = plan(&before, &after, &live, &[]);
        assert_eq!(plan.changes.len(), 2, "{plan}");
        assert!(
            plan.changes.iter().all(|change| change.flows == 0),
            "{plan}"
        );
    }

    #[test]
    fn changed_failover_keys_are_listed() {
        let text = |router: &str, sync: &str| {
            format!(
                "{BEFORE}\n[vrrp.web]\ninterface = \"eth0\"\naddresses = [\"192.0.2.10/24\"]\n{router}\n[sync]\n\
                 listen = \"10.0.0.1:8482\"\nkey = \"0123456789abcdef\"\n{sync}\n"
            )
        };
        let before = text("virtual_router_id = 51", "peers = [\"10.0.0.2:8482\"]");
        let after = text(
            "virtual_router_id = 52\npriority = 120\npreempt_delay = \"5s\"\npassword = \"x\"",
            "peers = [\"10.0.0.3:8483\"]",
        );
        let (old, new) = (desired(&before), desired(&after));
        let changes = weir_model::diff(&old, &new);
        let lines: Vec<String> = changes.iter().map(ToString::to_string).collect();
        assert_eq!(
            lines,
            [
                "~ vrrp web: virtual_router_id 51 -> 52, priority 100 -> 120, preempt_delay 0s -> 5s, \
                 password changed",
                "~ sync: peers 10.0.0.2:8482 -> 10.0.0.3:8483",
            ]
        );
    }
}
