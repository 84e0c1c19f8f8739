//! Updates the rate estimates of services and servers from the totals in the maps.
//!
//! The tick updates them every two seconds, as the kernel does. [`crate::rate_estimate`] stores the estimates.

use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};

use weir_ipvsadm::Estimator;

use super::Engine;
use crate::error::Result;
use crate::ipvsadm_term::counters_since;
use crate::origin::Baseline;
use crate::rate_estimate::RateEstimates;
use crate::snapshot::Totals;
use crate::totals::totals;

/// Interval between estimates (ip_vs_est.c); the tick rounds it up to whole seconds.
const PERIOD: Duration = Duration::from_millis(1_900);

/// Rows are read in batches if more than 1/`BATCH_DIVISOR` of them are used.
const BATCH_DIVISOR: usize = 8;

impl Engine {
    /// Updates the estimates when they are due.
    pub(super) fn estimate_rates(&mut self) -> Result<()> {
        if self
            .rate_estimates
            .updated_at
            .is_some_and(|updated_at| updated_at.elapsed() < PERIOD)
        {
            return Ok(());
        }
        let mut services = std::mem::take(&mut self.rate_estimates.services);
        let mut servers = std::mem::take(&mut self.rate_estimates.servers);
        let mut estimates = RateEstimates {
            updated_at: Some(Instant::now()),
            services: BTreeMap::new(),
            servers: HashMap::with_capacity(servers.len()),
        };
        let totals_by_row = self.totals()?;
        for (name, slot) in &self.state.allocation.services {
            let mut sum = slot.retired;
            for dest in &slot.dests {
                let totals = totals_by_row.get(&dest.id).copied().unwrap_or_default();
                sum = sum.plus(totals);
                let counters = counters_since(totals, None);
                let mut estimator = servers
                    .remove(&dest.generation)
                    .unwrap_or_else(|| Estimator::new(counters));
                estimator.step(counters);
                estimates.servers.insert(dest.generation, estimator);
            }
            let counters = counters_since(sum, None);
            let mut estimator = services
                .remove(name)
                .unwrap_or_else(|| Estimator::new(counters));
            estimator.step(counters);
            estimates.services.insert(name.clone(), estimator);
        }
        self.rate_estimates = estimates;
        Ok(())
    }

    /// Returns the totals of every used row.
    fn totals(&self) -> Result<HashMap<u32, Totals>> {
        let maps = self.plane.maps();
        let ids: Vec<u32> = self
            .state
            .allocation
            .dests()
            .map(|(_, dest)| dest.id)
            .collect();
        if ids.len() * BATCH_DIVISOR < self.plane.sizes().dests as usize {
            return ids
                .into_iter()
                .map(|id| Ok((id, totals(maps, id)?)))
                .collect();
        }
        let traffic = maps.all_traffic()?;
        let row_totals = |id: u32| {
            let live = maps.live(id)?;
            let traffic = traffic.get(id as usize).copied().unwrap_or_default();
            Ok((
                id,
                Totals {
                    connections: live.total,
                    stateless: live.stateless,
                    packets_in: traffic.packets_in,
                    packets_out: traffic.packets_out,
                    bytes_in: traffic.bytes_in,
                    bytes_out: traffic.bytes_out,
                },
            ))
        };
        ids.into_iter().map(row_totals).collect()
    }

    /// Returns the current totals of the chosen services and their servers: the base values of zeroed counters.
    pub(super) fn zero_points(&self, chosen: impl Fn(&str) -> bool) -> BTreeMap<String, Baseline> {
        let maps = self.plane.maps();
        let mut zeroed = BTreeMap::new();
        let slots = self.state.allocation.services.iter();
        for (name, slot) in slots.filter(|(name, _)| chosen(name)) {
            let mut zero = Baseline {
                service: slot.retired,
                servers: Vec::new(),
            };
            for dest in &slot.dests {
                // Reading fails only for a row outside the map, and such a row is never allocated.
                let totals = totals(maps, dest.id).unwrap_or_default();
                zero.service = zero.service.plus(totals);
                zero.servers.push((dest.generation, totals));
            }
            zeroed.insert(name.clone(), zero);
        }
        zeroed
    }
}
