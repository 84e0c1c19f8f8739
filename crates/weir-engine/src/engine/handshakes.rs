//! Reads the data plane's client-handshake counters and converts them to samples for passive checks.
//!
//! The counters are read several times per second. weir-state decides which servers are ejected. Servers that are alive
//! but whose replies bypass the director ([`no_reply`](super::no_reply)) are excluded; Weir logs a warning about them
//! instead. Services that behave like IPVS (with `strict_ipvs`, or created with ipvsadm) are excluded too, because IPVS
//! has no passive checks.

use std::collections::HashSet;
use std::time::Duration;

use weir_health::{Sample, Silence};
use weir_model::{Pool, Service};
use weir_planner::allocation::DestSlot;
use weir_state::{PoolSamples, ServerStates};
use weir_sys::SteadyClock;

use super::Engine;
use crate::error::Result;
use crate::ipvsadm_term::is_from_ipvsadm;

/// Handshake counters of one service.
#[derive(Debug)]
pub struct Handshakes<'a> {
    /// The counters of the service's servers.
    pool_samples: PoolSamples<'a>,
    /// Servers from which the director sees no replies, because they are down or because their replies bypass it: index
    /// in the samples, and the time (since the Unix epoch) of the first unanswered SYN.
    silent: Vec<(usize, Duration)>,
}

impl<'a> Handshakes<'a> {
    /// Creates a `Handshakes` from counters read by another process. `silent`: for each server from which the director
    /// sees no replies, its index in the samples and the time of the first unanswered SYN (since the Unix epoch).
    pub const fn new(pool_samples: PoolSamples<'a>, silent: Vec<(usize, Duration)>) -> Self {
        Self {
            pool_samples,
            silent,
        }
    }

    /// Returns the arguments of [`Self::new`].
    pub fn into_parts(self) -> (PoolSamples<'a>, Vec<(usize, Duration)>) {
        (self.pool_samples, self.silent)
    }

    /// Removes the servers that are alive but whose replies bypass the director. `last_success` returns the time,
    /// since the Unix epoch, of the last successful probe that was sent directly to a server of a pool.
    pub fn exclude_alive(
        self,
        last_success: impl Fn(&str, &str) -> Option<Duration>,
    ) -> PoolSamples<'a> {
        let mut pool_samples = self.pool_samples;
        for (index, since) in self.silent.into_iter().rev() {
            let Some((server, _)) = pool_samples.samples.get(index) else {
                continue;
            };
            let last_pass = last_success(&pool_samples.pool.name, server);
            if Silence::Since(since).is_alive(last_pass) {
                pool_samples.samples.remove(index);
            }
        }
        pool_samples
    }
}

impl Engine {
    /// Reads the counters of all services whose servers may be ejected.
    ///
    /// # Errors
    /// Fails if a map cannot be read.
    pub fn read_handshakes(&mut self, states: &ServerStates) -> Result<Vec<Handshakes<'_>>> {
        self.update_reply_monitor(states)?;
        self.update_unanswered_syns()?;
        let mut services = Vec::new();
        for service in &self.desired.services {
            let pool = self.desired.pool(&service.pool);
            let Some(pool) =
                pool.filter(|pool| pool.health.max_ejected > 0 && pool.servers.len() > 1)
            else {
                continue;
            };
            services.push(self.handshakes(pool, service)?);
        }
        Ok(services)
    }

    /// Records when SYNs were last sent to servers with which no client has ever completed a handshake.
    fn update_unanswered_syns(&mut self) -> Result<()> {
        let now = SteadyClock::of_process().now();
        let unanswered = &mut self.reply_monitor.unanswered;
        if !unanswered.is_due(now) {
            return Ok(());
        }
        let mut present = HashSet::new();
        let slots = self.state.allocation.services.values();
        let dests = slots.flat_map(|slot| &slot.dests);
        for dest in dests.filter(|dest| dest.removed.is_none() && !dest.staged) {
            let row = (dest.id, dest.generation);
            present.insert(row);
            if unanswered.must_be_observed(row) {
                let live = self.plane.maps().live(dest.id)?;
                unanswered.observe(row, live.syns, live.answered, now);
            }
        }
        unanswered.retain(|row| present.contains(&row));
        Ok(())
    }

    /// Returns the time since a SYN was last sent to a server with which no client has ever completed a handshake;
    /// `None` = unknown. `syns` is the current number of SYNs.
    pub(super) fn last_syn_age(&self, dest: &DestSlot, syns: u64) -> Option<Duration> {
        let now = SteadyClock::of_process().now();
        let unanswered = &self.reply_monitor.unanswered;
        unanswered.age((dest.id, dest.generation), syns, now)
    }

    /// Returns the counters of the service's servers to which passive checks apply.
    fn handshakes<'a>(&'a self, pool: &'a Pool, service: &'a Service) -> Result<Handshakes<'a>> {
        let (mut samples, mut silent) = (Vec::new(), Vec::new());
        let slot = self.state.allocation.services.get(&service.name);
        let slot = slot.filter(|_| !service.strict_ipvs && !is_from_ipvsadm(&service.name));
        let dests = slot.into_iter().flat_map(|slot| &slot.dests);
        for dest in dests.filter(|dest| dest.removed.is_none() && !dest.sorry) {
            match self.silence(dest) {
                Some(Silence::NeverReplied) => continue,
                Some(Silence::Since(since)) => silent.push((samples.len(), since)),
                None => {}
            }
            let live = self.plane.maps().live(dest.id)?;
            let sample = Sample {
                syns: live.syns,
                answered: live.answered,
            };
            samples.push((dest.name.clone(), sample));
        }
        let pool_samples = PoolSamples {
            pool,
            service: Some(&service.name),
            samples,
        };
        Ok(Handshakes {
            pool_samples,
            silent,
        })
    }
}
