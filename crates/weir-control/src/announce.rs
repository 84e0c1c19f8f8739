//! Collects the announcer's input: whether each VIP of `[announce]` can serve, and whether this node is drained.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;

use weir_announce::{DaemonReport, VipState};
use weir_model::{Desired, Pool, RequiredServices, Service};

use crate::plane::Plane;

/// The data that a director may still lack after it joins a group. Connections that move to this director must reach
/// the same servers as before, and the other directors already use all servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Settling {
    /// Nothing is missing.
    Nothing,
    /// The first check results of some servers are missing.
    Servers,
    /// The previous version of the configuration is missing, and possibly check results.
    PreviousVersion,
    /// The flows of `[sync]` peers are missing.
    Flows,
}

/// Returns the announcer's input; `None` = `[announce]` is not configured.
pub(crate) fn daemon_report(
    desired: &Desired,
    plane: &impl Plane,
    is_draining: bool,
    settling: Settling,
) -> Option<DaemonReport> {
    let settings = desired.announce.clone()?;
    let is_attached = plane.is_attached();
    let mut vips: BTreeMap<IpAddr, Vec<Availability>> = BTreeMap::new();
    let settling_pools = settling_pools(desired, settling, |pool| plane.is_settling(pool));
    let mut settling: BTreeSet<IpAddr> = BTreeSet::new();
    for service in desired
        .services
        .iter()
        .filter(|service| settings.covers(&service.name))
    {
        let availability = if is_attached {
            availability(plane, &service.name, &[&service.pool])
        } else {
            Availability::unavailable(format!("{}: the data plane is not attached", service.name))
        };
        let listeners = service.listen.iter();
        let is_settling = settling_pools.contains(service.pool.as_str());
        for vip in listeners.map(|listener| listener.address) {
            if is_settling {
                settling.insert(vip);
            }
            vips.entry(vip).or_default().push(availability.clone());
        }
    }
    for proxy in desired
        .proxies
        .iter()
        .filter(|proxy| settings.covers(&proxy.name))
    {
        let availability = availability(plane, &proxy.name, &proxy.pools());
        for vip in proxy.listen.iter().map(|listener| listener.ip()) {
            vips.entry(vip).or_default().push(availability.clone());
        }
    }
    vips.retain(|vip, _| is_announceable(*vip));
    let vips = vips.into_iter().map(|(vip, services)| {
        let serves = match settings.require {
            RequiredServices::Any => services.iter().any(|service| service.serves),
            RequiredServices::All => services.iter().all(|service| service.serves),
        };
        let reasons = services.iter().filter(|service| !service.serves && !serves);
        let mut reasons: Vec<&str> = reasons.map(|service| service.reason.as_str()).collect();
        reasons.dedup();
        VipState {
            vip,
            serves,
            reason: reasons.join(", "),
            settling: settling.contains(&vip),
        }
    });
    Some(DaemonReport {
        vips: vips.collect(),
        settings,
        is_draining,
    })
}

/// Returns the names of the pools for which data is missing. `lacks_results` returns whether servers of a pool have no
/// check result yet.
fn settling_pools(
    desired: &Desired,
    settling: Settling,
    lacks_results: impl Fn(&Pool) -> bool,
) -> BTreeSet<&str> {
    let is_settling = |pool: &&Pool| match settling {
        Settling::Nothing => false,
        Settling::Servers | Settling::PreviousVersion => lacks_results(pool),
        Settling::Flows => true,
    };
    let found = desired.pools.iter().filter(is_settling);
    let mut found: BTreeSet<&str> = found.map(|pool| pool.name.as_str()).collect();
    if settling == Settling::PreviousVersion {
        let pools = desired.pools.iter();
        let pools: HashMap<&str, &Pool> = pools.map(|pool| (pool.name.as_str(), pool)).collect();
        let lacks_version = |service: &&Service| {
            let pool = pools.get(service.pool.as_str());
            pool.is_some_and(|pool| desired.uses_other_version(service, pool))
        };
        let services = desired.services.iter().filter(lacks_version);
        found.extend(services.map(|service| service.pool.as_str()));
    }
    found
}

/// Whether a service can serve.
#[derive(Clone, Debug)]
struct Availability {
    serves: bool,
    reason: String,
}

impl Availability {
    const fn unavailable(reason: String) -> Self {
        Self {
            serves: false,
            reason,
        }
    }
}

/// Returns whether a service can serve: it has no pools, or at least one usable pool. One is enough, because each of
/// the others may be used by only one route.
fn availability(plane: &impl Plane, service: &str, pools: &[&str]) -> Availability {
    let serves = |pool: &&str| plane.serves(pool);
    if pools.is_empty() || pools.iter().any(serves) {
        return Availability {
            serves: true,
            reason: String::new(),
        };
    }
    Availability::unavailable(format!(
        "{service}: no server of {} is usable",
        pools.join(", ")
    ))
}

/// Returns whether a route to the address can be announced to routers.
fn is_announceable(vip: IpAddr) -> bool {
    let is_link_local = match vip {
        IpAddr::V4(vip) => vip.is_link_local(),
        IpAddr::V6(vip) => vip.is_unicast_link_local(),
    };
    !(vip.is_loopback() || vip.is_unspecified() || vip.is_multicast() || is_link_local)
}

#[cfg(test)]
mod tests {
    use weir_config::{Host, parse};

    use super::*;

    #[test]
    fn missing_data_affects_only_services_that_use_it() {
        const TEXT: &str = "
            [cluster]
            name = \"edge\"
            member = \"lb1\"
            etcd = [\"http://127.0.0.1:1\"]
            [pool.gue]
            scheduler = \"maglev\"
            servers = [\"10.0.0.5\"]
            [pool.direct]
            scheduler = \"maglev\"
            servers = [\"10.0.0.6\"]
            [service.gue]
            listen = [\"192.0.2.10:80\"]
            forward = \"tunnel\"
            tunnel = \"gue\"
            pool = \"gue\"
            [service.direct]
            listen = [\"192.0.2.11:80\"]
            forward = \"direct\"
            pool = \"direct\"
        ";
        let desired = parse(TEXT, &Host::default()).unwrap().desired;
        let (all, none) = (vec!["direct", "gue"], Vec::new());
        for (settling, lacks_results, expected) in [
            (Settling::Nothing, true, &none),
            (Settling::Servers, false, &none),
            (Settling::Servers, true, &all),
            (Settling::PreviousVersion, false, &vec!["gue"]),
            (Settling::PreviousVersion, true, &all),
            (Settling::Flows, false, &all),
        ] {
            let found = settling_pools(&desired, settling, |_| lacks_results);
            assert_eq!(
                &Vec::from_iter(found),
                expected,
                "{settling:?}, {lacks_results}"
            );
        }
    }

    #[test]
    fn loopback_link_local_and_multicast_addresses_are_not_announced() {
        for (vip, expected) in [
            ("192.0.2.10", true),
            ("10.0.0.1", true),
            ("2001:db8::1", true),
            ("127.0.0.1", false),
            ("::1", false),
            ("0.0.0.0", false),
            ("::", false),
            ("169.254.0.1", false),
            ("fe80::1", false),
            ("224.0.0.1", false),
        ] {
            assert_eq!(is_announceable(vip.parse().unwrap()), expected, "{vip}");
        }
    }
}
