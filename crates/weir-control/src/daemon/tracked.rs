//! Reports the objects that virtual routers can track to the VRRP agent.

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
    let mut observed_state = data_plane(!snapshot.interfaces.is_empty(), desired);
    for service in &report.services {
        let is_usable = service.pool_state.as_deref() != Some("below quorum")
            && service
                .servers
                .iter()
                .any(|server| server.effective_weight > 0);
        observed_state
            .services
            .insert(service.name.clone(), is_usable);
        // The results of path checks can differ between the services that use a pool.
        let pool = observed_state
            .pools
            .entry(service.pool.clone())
            .or_default();
        *pool |= is_usable;
    }
    // Servers in a pool that no service uses are not checked.
    for pool in &desired.pools {
        let has_servers = !pool.servers.is_empty();
        observed_state
            .pools
            .entry(pool.name.clone())
            .or_insert(has_servers);
    }
    observed_state
}

/// Returns the state to report if the data plane cannot be read: no service can serve.
pub(crate) fn all_failed(desired: &Desired) -> ObservedState {
    let services = desired.services.iter().map(|service| service.name.clone());
    let proxied = desired.proxies.iter().map(|proxy| proxy.name.clone());
    ObservedState {
        services: services.chain(proxied).map(|name| (name, false)).collect(),
        pools: desired
            .pools
            .iter()
            .map(|pool| (pool.name.clone(), false))
            .collect(),
        data_plane: false,
        ..ObservedState::default()
    }
}
