//! Executes requests received on the control socket.

use std::collections::BTreeMap;

use weir_vrrp::{Counters, IgnoredCount, TrackedState};

use super::handover::unix_milliseconds;
use super::{Agent, now};
use crate::control::{ControlRequest, Response};
use crate::status::{IdConflictStatus, RouterReport, RouterStatus, TrackedStatus};

impl Agent {
    pub(super) fn execute(&mut self, request: &ControlRequest) -> Response {
        match request {
            ControlRequest::Status => return Response::Routers(self.report()),
            ControlRequest::Observed(state) => {
                self.observed_state = Some(state.clone());
                self.evaluate_observed_state();
            }
            ControlRequest::Release { router } | ControlRequest::Resume { router }
                if !self.settings.iter().any(|it| it.name == *router) =>
            {
                return Response::Rejected(format!("the virtual router {router} does not exist"));
            }
            ControlRequest::Release { router } => {
                self.released.insert(router.clone());
            }
            ControlRequest::Resume { router } => {
                self.released.remove(router);
            }
        }
        // Record first: if this agent is killed before the release takes effect, the next agent keeps the release.
        if self.apply_releases() {
            self.record_all();
        }
        match (self.flush(), request) {
            (Ok(()), ControlRequest::Observed(_)) => Response::Routers(Vec::new()),
            (Ok(()), _) => Response::Routers(self.report()),
            (Err(error), _) => Response::Rejected(error.to_string()),
        }
    }

    fn report(&self) -> Vec<RouterReport> {
        let routers = self.router.instances().zip(&self.settings).zip(&self.ports);
        routers
            .map(|(((instance, counters), settings), port)| {
                let router = RouterStatus {
                    name: settings.name.clone(),
                    state: instance.state().as_str().to_owned(),
                    priority: instance.priority(),
                    reason: instance.reason().to_owned(),
                    active_peer: instance.active_peer().map(|peer| peer.address),
                    active_peer_priority: instance.active_peer().map(|peer| peer.priority),
                    id_conflict: instance.id_conflict(now()).map(|it| IdConflictStatus {
                        peer: it.sender,
                        router_id: it.vrid,
                    }),
                    version: settings.version,
                    router_id: settings.router_id,
                    interface: port.interface(),
                    checksum: instance.checksum().as_str().to_owned(),
                    sent: counters.sent,
                    received: counters.received,
                    lost: instance.lost(),
                    ignored: ignored_by_reason(counters, |it| it.packets),
                    last_ignored_seconds: ignored_by_reason(counters, |it| {
                        now().saturating_sub(it.last).as_secs()
                    }),
                    address_mismatches: instance.mismatches(),
                    peer_addresses_differ: instance.peer_addresses_differ(),
                    takeovers: port.takeovers,
                    tracked: instance
                        .tracked()
                        .map(|(tracked, state)| TrackedStatus {
                            name: tracked.name.clone(),
                            state: match state {
                                TrackedState::Unknown => "unknown".to_owned(),
                                TrackedState::Up => "up".to_owned(),
                                TrackedState::Down => "down".to_owned(),
                                TrackedState::Number(number) => number.to_string(),
                            },
                        })
                        .collect(),
                };
                RouterReport {
                    since_ms: unix_milliseconds(port.since),
                    router,
                }
            })
            .collect()
    }
}

/// Returns a value for each reason why packets were ignored.
fn ignored_by_reason(
    counters: &Counters,
    value: impl Fn(&IgnoredCount) -> u64,
) -> BTreeMap<String, u64> {
    let ignored = counters.ignored.iter();
    ignored
        .map(|(reason, count)| (reason.as_str().to_owned(), value(count)))
        .collect()
}
