//! Determines the states of the objects that virtual routers can track, for the VRRP agent.

use std::collections::BTreeMap;

use weir_model::Desired;
use weir_vrrp_agent::ObservedState;

use crate::snapshot::Snapshot;
use crate::status::Report;

/// Returns only the state of the data plane, which must be attached if there are layer 4 services.
pub(crate) fn data_plane(is_attached: bool, desired: &Desired) -> ObservedState {
    let needs_data_plane = desired
        .services
        .iter()
        .any(|service| service.forward.handles_packets());
    ObservedState {
        data_plane: !needs_data_plane || is_attached,
        ..ObservedState::default()
    }
}

/// Returns the state of all objects that virtual routers can track: the data plane, and whether services and pools have
/// a usable server and their quorum.
pub(crate) fn observe(snapshot: &Snapshot, desired: &Desired) -> ObservedState {
    let report = Report::from(snapshot);
    let mut observed = data_plane(!snapshot.interfaces.is_empty(), desired);
    for service in &report.services {
        let is_below_quorum = service.pool_state.as_deref() == Some("below quorum");
        let servers = service.servers.iter();
        let servers = servers.map(|it| (it.pool.as_deref(), it.effective_weight));
        let (is_usable, pools) = usable_pools(&service.pool, is_below_quorum, servers);
        observed.services.insert(service.name.clone(), is_usable);
        for (pool, is_usable) in pools {
            // The results of path checks can differ between the services that use a pool.
            *observed.pools.entry(pool.to_owned()).or_default() |= is_usable;
        }
    }
    // Servers in a pool that no service uses are not checked, so they count as usable.
    for pool in &desired.pools {
        let has_servers = !pool.servers.is_empty();
        observed
            .pools
            .entry(pool.name.clone())
            .or_insert(has_servers);
    }
    observed
}

/// Returns whether a service is usable, and which of its pools are. `pool` is the service's pool. `servers` contains
/// the pools of the servers and their effective weights; the servers of a proxy service include those of pools that
/// only its routes use.
fn usable_pools<'a>(
    pool: &'a str,
    is_below_quorum: bool,
    servers: impl Iterator<Item = (Option<&'a str>, u32)>,
) -> (bool, BTreeMap<&'a str, bool>) {
    let mut pools = BTreeMap::from([(pool, false)]);
    for (other, effective_weight) in servers {
        *pools.entry(other.unwrap_or(pool)).or_default() |= effective_weight > 0;
    }
    let is_usable = !is_below_quorum && pools.values().any(|it| *it);
    if is_below_quorum {
        pools.insert(pool, false);
    }
    (is_usable, pools)
}

/// Returns the state to report if the data plane cannot be read: the data plane, all services and all pools have
/// failed.
pub(crate) fn all_failed(desired: &Desired) -> ObservedState {
    let services = desired.services.iter().map(|service| service.name.clone());
    let proxy_services = desired.proxies.iter().map(|proxy| proxy.name.clone());
    ObservedState {
        services: services
            .chain(proxy_services)
            .map(|name| (name, false))
            .collect(),
        pools: desired
            .pools
            .iter()
            .map(|pool| (pool.name.clone(), false))
            .collect(),
        data_plane: false,
        ..ObservedState::default()
    }
}

#[cfg(test)]
mod tests {
    use super::usable_pools;

    #[test]
    fn each_pool_of_a_proxy_service_has_its_own_state() {
        // The service's pool `web`, and the pool `api`, which only a route uses.
        let usable = |web, api, is_below_quorum| {
            let servers = [(Some("web"), web), (Some("api"), api)];
            let (service, pools) = usable_pools("web", is_below_quorum, servers.into_iter());
            (service, pools["web"], pools["api"])
        };
        assert_eq!(usable(1, 1, false), (true, true, true));
        assert_eq!(usable(1, 0, false), (true, true, false));
        assert_eq!(usable(0, 1, false), (true, false, true));
        assert_eq!(usable(0, 0, false), (false, false, false));
        assert_eq!(usable(1, 1, true), (false, false, true));
        let (service, pools) = usable_pools("web", false, [(None, 1)].into_iter());
        assert!(service && pools["web"]);
    }
}
