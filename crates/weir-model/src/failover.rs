//! Determines whether a service's TCP connections survive when another director with the same file takes over its VIP.
//!
//! Without `[sync]`, the other director has no flow entries for the connections. It schedules their packets again, and
//! selects the same server only if the choice depends only on the packet and the list of servers.

use std::fmt;

use crate::{Desired, Forward, Pool, Scheduler, SchedulerKind, Service};

/// Why connections are lost when another director takes over the VIP.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FailoverLoss {
    /// A server uses `nat`, and the translation is part of the flow.
    Nat,
    /// The servers of persistent clients are stored in a table.
    Persistence,
    /// Because of `max_load`, the server of a connection may differ from the one that the hash selects.
    MaxLoad,
    /// The scheduler's choice depends on more than the packet and the servers.
    Scheduler(SchedulerKind),
}

impl fmt::Display for FailoverLoss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nat => f.write_str(
                "with `nat`, the address translation of connections is only stored on this \
                director",
            ),
            Self::Persistence => {
                f.write_str("the servers of persistent clients are only stored on this director")
            }
            Self::MaxLoad => f.write_str(
                "the servers selected because of `max_load` are only stored on this director",
            ),
            Self::Scheduler(kind) => write!(
                f,
                "the servers selected by `{}` are only stored on this director",
                kind.as_str()
            ),
        }
    }
}

impl Desired {
    /// Returns whether another director can take over a VIP. `is_floating` returns whether a virtual router, keepalived
    /// or Pacemaker manages the VIP.
    ///
    /// A director does not have a list of all others. It assumes that no other director can take over a VIP only if
    /// Weir itself keeps the VIP on `vip_interface`, no function that involves other directors is configured, and the
    /// VIP is not floating. Without `vip_interface`, an operator or another program determines which director has the
    /// VIP.
    pub fn can_move_vip(&self, is_floating: impl FnOnce() -> bool) -> bool {
        let has_other_directors =
            self.sync.is_some() || self.cluster.is_some() || self.announce.is_some();
        has_other_directors || self.node.vip_interface.is_none() || is_floating()
    }

    /// Returns why connections to `service` are lost when another director takes over the VIP; `None` = they continue.
    /// With `[sync]`, they continue, because the other director has their flows.
    pub fn failover_loss(&self, service: &Service) -> Option<FailoverLoss> {
        match &self.sync {
            Some(_) => None,
            None => service.failover_loss(self.pool(&service.pool)?),
        }
    }
}

impl Service {
    /// Returns why connections to this service with pool `pool` are lost when another director takes over the VIP
    /// without `[sync]`; `None` = they continue.
    fn failover_loss(&self, pool: &Pool) -> Option<FailoverLoss> {
        let mut forwards = pool
            .servers
            .iter()
            .map(|server| server.forward.unwrap_or(self.forward));
        if self.forward == Forward::Nat || forwards.any(|forward| forward == Forward::Nat) {
            return Some(FailoverLoss::Nat);
        }
        if self.persistence.is_some() {
            return Some(FailoverLoss::Persistence);
        }
        let scheduler = pool.scheduler.unwrap_or(Scheduler::L4_DEFAULT);
        if !scheduler.kind.is_stateless() {
            return Some(FailoverLoss::Scheduler(scheduler.kind));
        }
        scheduler.max_load_percent.map(|_| FailoverLoss::MaxLoad)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{Persistence, Server};

    #[test]
    fn connections_survive_failover_only_with_stateless_maglev() {
        let mut pool = Pool::new("web");
        pool.servers
            .push(Server::new("10.0.0.1", "10.0.0.1".parse().unwrap(), None));
        let service = Service::new("web", Forward::Direct, "web");
        let wlc = FailoverLoss::Scheduler(SchedulerKind::Wlc);
        assert_eq!(service.failover_loss(&pool), Some(wlc));
        pool.scheduler = Some(Scheduler::new(SchedulerKind::Maglev));
        assert_eq!(service.failover_loss(&pool), None);
        let mut persistent = service.clone();
        persistent.persistence = Some(Persistence {
            timeout: Duration::from_secs(300),
            netmask: 32,
            netmask6: 128,
        });
        assert_eq!(
            persistent.failover_loss(&pool),
            Some(FailoverLoss::Persistence)
        );
        let mut bounded = pool.clone();
        bounded.scheduler.as_mut().unwrap().max_load_percent = Some(125);
        assert_eq!(service.failover_loss(&bounded), Some(FailoverLoss::MaxLoad));
        let nat = Service::new("web", Forward::Nat, "web");
        assert_eq!(nat.failover_loss(&pool), Some(FailoverLoss::Nat));
        pool.servers[0].forward = Some(Forward::Nat);
        assert_eq!(service.failover_loss(&pool), Some(FailoverLoss::Nat));
    }
}
