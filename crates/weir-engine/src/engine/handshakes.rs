//! Samples for passive checks: several times per second, the data plane's counters of clients' handshakes are read.
//! weir-state decides which servers are ejected.
//!
//! Servers that are alive although their replies do not return through the director ([`no_reply`](super::no_reply)) are
//! left out: they have a warning. So are services that behave as the kernel does (`strict_ipvs`, ipvsadm's): IPVS has
//! no passive checks.

use std::time::Duration;

use weir_health::Sample;
use weir_model::Service;
use weir_state::{ServerStates, Watched};

use super::Engine;
use crate::error::Result;
use crate::ipvsadm_term::is_from_ipvsadm;

/// When a probe that was sent directly to a server last passed, since the Unix epoch, by pool and server.
pub type LastPass<'a> = dyn Fn(&str, &str) -> Option<Duration> + 'a;

impl Engine {
    /// Reads the counters of all services whose servers may be ejected. `passed` returns when a probe of a server last
    /// passed.
    ///
    /// # Errors
    /// A map cannot be read.
    pub fn watch_clients(
        &mut self,
        passed: &LastPass<'_>,
        states: &ServerStates,
    ) -> Result<Vec<Watched<'_>>> {
        self.watch_replies(states)?;
        let mut pools = Vec::new();
        for service in &self.desired.services {
            let pool = self.desired.pool(&service.pool);
            let Some(pool) = pool.filter(|it| it.health.max_ejected > 0 && it.servers.len() > 1)
            else {
                continue;
            };
            pools.push(Watched {
                pool,
                service: Some(&service.name),
                samples: self.samples(service, passed)?,
            });
        }
        Ok(pools)
    }

    /// The counters of a service's servers that passive checks apply to.
    fn samples(&self, service: &Service, passed: &LastPass<'_>) -> Result<Vec<(String, Sample)>> {
        let slot = self.memory.allocation.services.get(&service.name);
        let Some(slot) = slot.filter(|_| !service.strict_ipvs && !is_from_ipvsadm(&service.name))
        else {
            return Ok(Vec::new());
        };
        let mut samples = Vec::new();
        let dests = slot.dests.iter();
        for dest in dests.filter(|dest| dest.removed.is_none() && !dest.sorry) {
            if self.is_alive(dest, || passed(&service.pool, &dest.name)) {
                continue;
            }
            let live = self.plane.maps().live(dest.id)?;
            let sample = Sample {
                syns: live.syns,
                answered: live.answered,
            };
            samples.push((dest.name.clone(), sample));
        }
        Ok(samples)
    }
}
