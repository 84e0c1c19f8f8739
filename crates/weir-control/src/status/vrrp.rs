//! Describes virtual routers in the status document, as reported by the VRRP agent.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::path::Path;
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};
use weir_model::VirtualRouter;
use weir_netlink::HANDOVER_TIMEOUT;
use weir_vrrp_agent::{RouterReport, RouterStatus};

use super::rfc3339;

/// Time that a virtual router may take to start after the reload guard has ended.
const START_TIME: Duration = Duration::from_secs(10);

/// A virtual router.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VirtualRouterStatus {
    /// When the router entered its state, in RFC 3339 format.
    pub since: String,
    /// The addresses that the router manages; absent if the daemon does not respond.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub addresses: Vec<IpAddr>,
    /// The change to the router that takes effect when the reload guard ends, and the remaining time; absent if there
    /// is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pending: Option<String>,
    /// The router's state, as the agent reports it.
    #[serde(flatten)]
    pub router: RouterStatus,
}

impl From<RouterReport> for VirtualRouterStatus {
    fn from(report: RouterReport) -> Self {
        let since = SystemTime::UNIX_EPOCH + Duration::from_millis(report.since_ms);
        Self {
            since: rfc3339(since),
            addresses: Vec::new(),
            pending: None,
            router: report.router,
        }
    }
}

/// The virtual routers while a guarded reload is observed. They change when the guard ends: until then, the recorded
/// configuration, which the agent runs, is the previous one.
#[derive(Debug)]
pub(crate) struct Guarded<'a> {
    /// The virtual routers of the previous configuration, which the agent runs until the guard ends.
    pub(crate) previous: &'a [VirtualRouter],
    /// Time until the guard ends.
    pub(crate) remaining: Duration,
}

/// Returns the virtual routers as reported by the agent. If the agent cannot be reached, returns the configured virtual
/// routers in state `init`. `guarded` is set while a guarded reload is observed; routers that will start when the guard
/// ends are included.
pub(crate) fn report(
    runtime_dir: &Path,
    configured: &[VirtualRouter],
    guarded: Option<&Guarded<'_>>,
) -> Vec<VirtualRouterStatus> {
    let running = guarded.map_or(configured, |guarded| guarded.previous);
    let mut routers = match running.is_empty() {
        true => Vec::new(),
        false => reported(runtime_dir, running),
    };
    for status in &mut routers {
        let found = running.iter().find(|it| it.name == status.router.name);
        status.addresses = found.map(addresses).unwrap_or_default();
    }
    if let Some(guarded) = guarded {
        add_pending(&mut routers, configured, guarded);
    }
    routers
}

/// Returns the routers as reported by the agent, or those in `running` in state `init`.
fn reported(runtime_dir: &Path, running: &[VirtualRouter]) -> Vec<VirtualRouterStatus> {
    match weir_vrrp_agent::status(runtime_dir) {
        Ok(routers) => routers.into_iter().map(VirtualRouterStatus::from).collect(),
        Err(error) => {
            let reason = format!("the VRRP agent cannot be reached: {error}");
            let to_status = |router: &VirtualRouter| unknown_router(router, &reason);
            running.iter().map(to_status).collect()
        }
    }
}

fn addresses(router: &VirtualRouter) -> Vec<IpAddr> {
    router.managed_addresses().map(|it| it.address).collect()
}

/// Describes the changes that are pending until the guard ends.
fn add_pending(
    routers: &mut Vec<VirtualRouterStatus>,
    configured: &[VirtualRouter],
    guarded: &Guarded<'_>,
) {
    // Round up: at 0 s, the guard has ended.
    let seconds = guarded.remaining.as_millis().div_ceil(1000);
    let when = |verb: &str| format!("{verb} when the reload guard ends, in {seconds} s");
    for previous in guarded.previous {
        let verb = match configured.iter().find(|it| it.name == previous.name) {
            None => "stops",
            Some(new) if new != previous => "changes",
            Some(_) => continue,
        };
        let mut statuses = routers.iter_mut();
        if let Some(status) = statuses.find(|it| it.router.name == previous.name) {
            status.pending = Some(when(verb));
        }
    }
    let previous_names: BTreeSet<&str> =
        guarded.previous.iter().map(|it| it.name.as_str()).collect();
    let is_new = |router: &&VirtualRouter| !previous_names.contains(router.name.as_str());
    routers.extend(configured.iter().filter(is_new).map(|router| {
        let pending = when("starts");
        VirtualRouterStatus {
            pending: Some(pending.clone()),
            ..unknown_router(router, &pending)
        }
    }));
}

/// Returns a warning if virtual routers change at the end of a guard, but the VIPs that they take over from
/// `vip_interface` would be removed earlier.
pub fn handover_warning(routers: &[VirtualRouterStatus], guard: Duration) -> Option<String> {
    let has_pending = routers.iter().any(|it| it.pending.is_some());
    (has_pending && guard + START_TIME > HANDOVER_TIMEOUT).then(|| {
        format!(
            "a VIP that moves from `vip_interface` to a virtual router is removed after {} s, even if the guard has \
             not ended; to end the guard earlier, run `weir reload` with the same file",
            HANDOVER_TIMEOUT.as_secs()
        )
    })
}

/// Returns whether a virtual router will start only when the guard ends.
pub(in crate::status) fn has_not_started(status: &VirtualRouterStatus) -> bool {
    status.pending.as_ref() == Some(&status.router.reason)
}

fn unknown_router(settings: &VirtualRouter, reason: &str) -> VirtualRouterStatus {
    let router = RouterStatus {
        name: settings.name.clone(),
        state: "init".to_owned(),
        priority: settings.priority,
        reason: reason.to_owned(),
        active_peer: None,
        active_peer_priority: None,
        id_conflict: None,
        version: settings.version,
        router_id: settings.router_id,
        interface: None,
        checksum: "plain".to_owned(),
        sent: 0,
        received: 0,
        lost: 0,
        ignored: BTreeMap::new(),
        last_ignored_seconds: BTreeMap::new(),
        address_mismatches: 0,
        peer_addresses_differ: false,
        takeovers: 0,
        tracked: Vec::new(),
    };
    VirtualRouterStatus {
        since: rfc3339(SystemTime::now()),
        addresses: addresses(settings),
        pending: None,
        router,
    }
}

/// Returns the text table; empty if there are no virtual routers.
pub fn table(routers: &[VirtualRouterStatus]) -> String {
    let mut rows = vec![
        [
            "ROUTER",
            "STATE",
            "PRIORITY",
            "SINCE",
            "ACTIVE PEER",
            "LOST",
            "CHECKSUM",
            "REASON",
        ]
        .map(str::to_owned),
    ];
    for VirtualRouterStatus { since, router, .. } in routers {
        rows.push([
            router.name.clone(),
            router.state.clone(),
            router.priority.to_string(),
            since.clone(),
            router
                .active_peer
                .map_or_else(|| "-".to_owned(), |peer| peer.to_string()),
            router.lost.to_string(),
            match router.version {
                // Version 2 has only one form.
                2 => "-".to_owned(),
                _ => router.checksum.clone(),
            },
            router.reason.clone(),
        ]);
    }
    let mut text = String::new();
    if routers.is_empty() {
        return text;
    }
    let width = |column: usize| rows.iter().map(|row| row[column].len()).max().unwrap_or(0);
    for row in &rows {
        let [cells @ .., reason] = row;
        let cells = cells.iter().enumerate();
        let cells = cells.map(|(column, cell)| format!("{cell:<0$}", width(column)));
        text.push_str(&cells.collect::<Vec<_>>().join("  "));
        text.push_str(&format!("  {reason}\n"));
    }
    for status in routers {
        let router = &status.router;
        if let Some(pending) = status.pending.as_ref().filter(|_| !has_not_started(status)) {
            text.push_str(&format!("{}: {pending}\n", router.name));
        }
        if let Some(conflict) = &router.id_conflict {
            text.push_str(&format!(
                "{}: {} advertises an address of this router with virtual router ID {}, not {}\n",
                router.name, conflict.peer, conflict.router_id, router.router_id
            ));
        }
        for (reason, count) in &router.ignored {
            text.push_str(&format!(
                "{}: ignored packets: {count} ({reason})\n",
                router.name
            ));
        }
        for tracked in &router.tracked {
            text.push_str(&format!(
                "{}: {} is {}\n",
                router.name, tracked.name, tracked.state
            ));
        }
    }
    text
}

/// Returns the location of a service's VIPs that virtual routers manage, such as `on 10.0.0.2` if another director has
/// them. If the VIPs have different locations, lists each VIP with its location. `vip` is the state of the first VIP,
/// which is returned if no virtual router has a known location for the VIPs. `listeners` are the service's listeners,
/// such as `tcp/192.0.2.10:80`.
pub(super) fn vip_text(vip: &str, listeners: &[String], routers: &[VirtualRouterStatus]) -> String {
    let vips: BTreeSet<IpAddr> = listeners.iter().filter_map(|it| address(it)).collect();
    let first = listeners.first().and_then(|it| address(it));
    let mut locations = Vec::new();
    for address in vips {
        let started_routers = routers.iter().filter(|it| !has_not_started(it));
        let mut responsible = started_routers.filter(|it| it.addresses.contains(&address));
        match responsible.next().map(|it| &it.router) {
            Some(router) if router.state == "active" => {
                locations.push((address, "local".to_owned()))
            }
            Some(router) if router.state == "backup" && router.active_peer.is_some() => {
                let peer = router.active_peer.map(|peer| peer.to_string());
                locations.push((address, format!("on {}", peer.unwrap_or_default())));
            }
            _ if Some(address) == first => locations.push((address, vip.to_owned())),
            Some(router) if router.state != "init" => {
                locations.push((address, "absent".to_owned()))
            }
            // The router's state is unknown, for example because the VRRP agent cannot be reached.
            _ => {}
        }
    }
    let is_same = locations.windows(2).all(|pair| pair[0].1 == pair[1].1);
    match locations.as_slice() {
        [] => vip.to_owned(),
        [(_, location), ..] if is_same => location.clone(),
        _ => {
            let texts = locations
                .iter()
                .map(|(vip, location)| format!("{vip} {location}"));
            texts.collect::<Vec<_>>().join(", ")
        }
    }
}

/// Returns the address of a listener; `None` for firewall marks.
fn address(listener: &str) -> Option<IpAddr> {
    let (_, socket) = listener.split_once('/')?;
    let (address, _) = socket.rsplit_once(':')?;
    address.trim_matches(['[', ']']).parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn routers(text: &str) -> Vec<VirtualRouter> {
        let parsed = weir_config::parse(text, &weir_config::Host::default());
        parsed.expect("parse the configuration").desired.vrrp
    }

    fn router(name: &str, id: u8, address: &str) -> String {
        format!(
            "[vrrp.{name}]\ninterface = \"eth0\"\nvirtual_router_id = {id}\naddresses = [\"{address}/24\"]\n"
        )
    }

    /// Returns the router's state as the agent would report it.
    fn router_in(settings: &VirtualRouter, state: &str, peer: Option<&str>) -> VirtualRouterStatus {
        let mut status = unknown_router(settings, "started");
        state.clone_into(&mut status.router.state);
        status.router.active_peer = peer.map(|peer| peer.parse().expect("parse the address"));
        status
    }

    #[test]
    fn pending_changes_are_described() {
        let (same, changed, stopped) = (
            router("same", 1, "10.0.0.10"),
            router("changed", 2, "10.0.0.11"),
            router("stopped", 3, "10.0.0.12"),
        );
        let previous = routers(&format!("{same}{changed}{stopped}"));
        let changed = changed.replace("10.0.0.11", "10.0.0.13");
        let new = routers(&format!("{same}{changed}{}", router("new", 4, "10.0.0.14")));
        let guarded = Guarded {
            previous: &previous,
            remaining: Duration::from_millis(22_100),
        };
        let mut status: Vec<_> = previous
            .iter()
            .map(|it| router_in(it, "active", None))
            .collect();
        add_pending(&mut status, &new, &guarded);
        let pending = status
            .iter()
            .map(|it| (it.router.name.as_str(), it.pending.as_deref()));
        let pending: Vec<_> = pending.collect();
        let when = |verb: &str| format!("{verb} when the reload guard ends, in 23 s");
        let (changes, stops, starts) = (when("changes"), when("stops"), when("starts"));
        assert_eq!(
            pending,
            [
                ("same", None),
                ("changed", Some(changes.as_str())),
                ("stopped", Some(stops.as_str())),
                ("new", Some(starts.as_str()))
            ]
        );
        assert_eq!(
            status[1].addresses,
            ["10.0.0.11".parse::<IpAddr>().expect("parse")]
        );
        let [short, long] = [50, 51].map(Duration::from_secs);
        assert_eq!(handover_warning(&status, short), None);
        let warning = handover_warning(&status, long).expect("guard is too long");
        assert!(warning.contains("removed after 60 s"), "{warning}");
        assert_eq!(handover_warning(&status[..1], long), None);
        let text = table(&status);
        assert!(text.contains(&format!("changed: {changes}\n")), "{text}");
        assert!(!text.contains("new: starts"), "{text}");
        let row = text
            .lines()
            .find(|line| line.starts_with("new "))
            .expect("find the row");
        assert!(row.contains("init") && row.ends_with(&starts), "{text}");
    }

    #[test]
    fn vip_text_names_the_director_that_has_each_vip() {
        let settings = routers(&format!(
            "{}{}",
            router("a", 1, "10.0.0.10"),
            router("b", 2, "10.0.0.11")
        ));
        let both = ["tcp/10.0.0.10:80", "tcp/10.0.0.11:80"].map(str::to_owned);
        let [first, second] = [(0, "10.0.0.1"), (1, "10.0.0.2")].map(|(own, _)| {
            let status = |index: usize| match index == own {
                true => router_in(&settings[index], "active", None),
                false => router_in(
                    &settings[index],
                    "backup",
                    Some(["10.0.0.1", "10.0.0.2"][index]),
                ),
            };
            vec![status(0), status(1)]
        });
        let text = |vip, routers| vip_text(vip, &both, routers);
        assert_eq!(
            text("local", &first),
            "10.0.0.10 local, 10.0.0.11 on 10.0.0.2"
        );
        assert_eq!(
            text("absent", &second),
            "10.0.0.10 on 10.0.0.1, 10.0.0.11 local"
        );
        assert_eq!(text("added", &[]), "added");
        assert_eq!(vip_text("absent", &both[..1], &second), "on 10.0.0.1");
        assert_eq!(vip_text("local", &both[..1], &first), "local");
        // The first VIP is always looked up on this machine. Nothing else is known if the agent cannot be reached.
        let in_state = |state| [0, 1].map(|index| router_in(&settings[index], state, None));
        let [unknown, failed, backup] = ["init", "fault", "backup"].map(in_state);
        assert_eq!(text("local", &unknown), "local");
        assert_eq!(text("absent", &backup), "absent");
        assert_eq!(text("local", &failed), "10.0.0.10 local, 10.0.0.11 absent");
        assert_eq!(
            vip_text("absent", &["fwmark/7".to_owned()], &first),
            "absent"
        );
        let v6 = ["tcp/[2001:db8::1]:80".to_owned()];
        assert_eq!(address(&v6[0]), "2001:db8::1".parse().ok());
        assert_eq!(vip_text("added", &v6, &first), "added");
    }
}
