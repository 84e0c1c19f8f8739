//! Determines why a server accepts no new flows.

use weir_health::{Ejection, State};
use weir_state::{Override, PoolState};

/// The state of a server with the effective weight 0.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ExcludedServer<'a> {
    /// The active override.
    pub(super) active_override: Option<Override>,
    /// The state according to the checks; `None` = there are no checks.
    pub(super) state: Option<State>,
    /// The active ejection from the service.
    pub(super) ejection: Option<&'a Ejection>,
    /// The weight in the configuration.
    pub(super) configured_weight: u32,
    /// The pool's state if the pool does not use its servers according to their states.
    pub(super) pool_state: Option<PoolState>,
}

/// Why a server accepts no new flows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Exclusion {
    /// A check has failed. Only the daemon has the check's last result.
    Down,
    /// Another cause, as text.
    Other(String),
    /// The cause is unknown.
    Unknown,
}

impl ExcludedServer<'_> {
    /// Returns the cause. If there are several, returns the one that an operator must remove first.
    pub(super) fn exclusion(&self) -> Exclusion {
        Exclusion::Other(match self {
            Self {
                active_override: Some(active),
                ..
            } if active.hides_checks() => format!("{active}, set with `weir server`"),
            Self {
                state: Some(State::Down),
                ..
            } => return Exclusion::Down,
            Self {
                state: Some(State::Starting),
                ..
            } => "starting: its checks have not passed yet".to_owned(),
            Self {
                ejection: Some(ejection),
                ..
            } => format!("ejected: {}", ejection.reason),
            Self {
                active_override: Some(active),
                ..
            } if active.weight() == 0 => format!("{active}, set with `weir server`"),
            Self {
                active_override: None,
                configured_weight: 0,
                ..
            } => "weight 0 in the configuration".to_owned(),
            Self {
                pool_state: Some(PoolState::BelowQuorum),
                ..
            } => "the pool is below its quorum".to_owned(),
            _ => return Exclusion::Unknown,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn each_cause_of_weight_0_is_named() {
        let ejection = Ejection {
            reason: "5 unanswered SYNs".to_owned(),
            since: Duration::ZERO,
            until: Duration::from_secs(10),
        };
        let up = ExcludedServer {
            state: Some(State::Up),
            configured_weight: 1,
            ..ExcludedServer::default()
        };
        let text = |server: ExcludedServer<'_>| match server.exclusion() {
            Exclusion::Other(text) => text,
            other => format!("{other:?}"),
        };
        let with_override = |active| ExcludedServer {
            active_override: Some(active),
            ..up
        };
        let ejected = ExcludedServer {
            ejection: Some(&ejection),
            ..up
        };
        // Checks are suspended in maintenance, so the state may be outdated.
        let down_in_maintenance = ExcludedServer {
            state: Some(State::Down),
            ..with_override(Override::Maint)
        };
        assert_eq!(text(down_in_maintenance), "maint, set with `weir server`");
        assert_eq!(
            text(with_override(Override::Drain)),
            "drain, set with `weir server`"
        );
        assert_eq!(
            text(with_override(Override::Weight(0))),
            "weight 0, set with `weir server`"
        );
        assert_eq!(text(ejected), "ejected: 5 unanswered SYNs");
        assert_eq!(
            text(ExcludedServer {
                state: Some(State::Down),
                ..ejected
            }),
            "Down"
        );
        assert_eq!(
            text(ExcludedServer {
                state: Some(State::Starting),
                ..up
            }),
            "starting: its checks have not passed yet"
        );
        assert_eq!(
            text(ExcludedServer {
                configured_weight: 0,
                ..up
            }),
            "weight 0 in the configuration"
        );
        assert_eq!(
            text(ExcludedServer {
                pool_state: Some(PoolState::BelowQuorum),
                ..up
            }),
            "the pool is below its quorum"
        );
        assert_eq!(text(up), "Unknown");
    }
}
