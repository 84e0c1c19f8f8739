//! Adds the state of the checks to a snapshot.

use weir_health::{ServerView, State};

use super::{CheckStatus, ServerState, Snapshot};
use weir_probing::Checks;

impl Snapshot {
    /// Adds check results, slow start shares and probe counters.
    pub(crate) fn add_checks(&mut self, checks: &Checks) {
        for service in &mut self.services {
            for server in service.servers.iter_mut().filter(|server| !server.removed) {
                let service_name = Some(service.name.as_str());
                if let Some(view) = checks.view(&service.pool, &server.name, service_name) {
                    if depends_on_checks(server.state) {
                        server.reason.clone_from(&view.reason);
                    }
                    (server.slow_start, server.checks) = slow_start_and_checks(view);
                }
            }
        }
        for service in &mut self.proxies {
            for server in &mut service.servers {
                // Routes can use pools other than the service's own pool.
                let (pool, name) = (&server.numbers.pool, &server.numbers.name);
                if let Some(view) = checks.view(pool, name, None) {
                    if depends_on_checks(server.state) {
                        server.reason.clone_from(&view.reason);
                    }
                    (server.slow_start, server.checks) = slow_start_and_checks(view);
                }
            }
        }
        self.probing = checks.probe_stats();
    }
}

const fn depends_on_checks(state: ServerState) -> bool {
    match state {
        ServerState::Up | ServerState::Down | ServerState::Starting => true,
        ServerState::Drain | ServerState::Maint | ServerState::Unchecked => false,
    }
}

/// Returns the slow start share in thousandths of the weight (`None` = slow start is complete), and the status of each
/// check.
fn slow_start_and_checks(view: ServerView) -> (Option<u32>, Vec<CheckStatus>) {
    let checks = view.checks.into_iter().map(|check| CheckStatus {
        what: check.target,
        state: state_name(check.state),
        reason: check.reason,
        results: check.results,
        counts: check.counts,
    });
    let ramp = view.server_health.ramp;
    ((ramp < 1000).then_some(ramp), checks.collect())
}

const fn state_name(state: State) -> &'static str {
    match state {
        State::Starting => "starting",
        State::Up => "up",
        State::Down => "down",
    }
}
