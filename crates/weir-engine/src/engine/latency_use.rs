//! Computes weights (`adapt`) and samples for ejection (`max_latency`) from server latency.

use std::collections::BTreeMap;

use weir_health::Sample;
use weir_model::{Adapt, Pool, SchedulerKind, Service};
use weir_state::PoolSamples;

use super::Engine;
use crate::ipvsadm_term::is_from_ipvsadm;

/// Minimum interval between weight adjustments.
const ADJUST_INTERVAL_NS: u64 = 1_000_000_000;

/// Adjusted weights of a service's servers, as percentages of their weights.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct AdjustedWeights {
    /// The pool.
    pub pool: String,
    /// The service.
    pub service: String,
    /// Percentage of its weight that each server gets; a server that is not listed keeps its full weight.
    pub percent: BTreeMap<String, u32>,
}

impl Engine {
    /// Returns the numbers of responses within and above `max_latency`, for the services whose pool sets it, except
    /// ipvsadm's services and services with `strict_ipvs`.
    #[must_use]
    pub fn read_latency_counts(&self) -> Vec<PoolSamples<'_>> {
        let with_limit = |pool: &Pool| pool.health.max_latency.is_some();
        let pool_samples = self.services_where(with_limit).map(|(service, pool)| {
            let dests = self.dests(service);
            let sample = |dest: &weir_planner::allocation::DestSlot| {
                let (within, beyond) = self.latency.limit_counts(dest.id, dest.generation);
                let sample = Sample {
                    syns: within + beyond,
                    answered: within,
                };
                (dest.name.clone(), sample)
            };
            PoolSamples {
                pool,
                service: Some(&service.name),
                samples: dests.map(sample).collect(),
            }
        });
        pool_samples.collect()
    }

    /// Returns the servers' weights for each service with `adapt = "latency"`, if they have changed. Computes them at
    /// most once per second, and returns nothing in between. Skips ipvsadm's services, services with `strict_ipvs`, and
    /// services with the least-time scheduler.
    pub fn adjust_weights(&mut self) -> Vec<AdjustedWeights> {
        let now_ns = weir_sys::now_ns(weir_sys::Clock::Monotonic);
        if now_ns.saturating_sub(self.latency.adjusted_ns) < ADJUST_INTERVAL_NS {
            return Vec::new();
        }
        let mut adaptations = std::mem::take(&mut self.latency.adaptations);
        let mut adjusted = Vec::new();
        let adapts = |pool: &Pool| {
            pool.adapt == Adapt::Latency && pool.l4_scheduler().kind != SchedulerKind::LeastTime
        };
        let services: Vec<_> = self.services_where(adapts).collect();
        adaptations.retain(|name, _| services.iter().any(|(service, _)| service.name == *name));
        for (service, pool) in services {
            let adaptation = adaptations.entry(service.name.clone()).or_default();
            let servers: Vec<_> = self
                .dests(service)
                .map(|dest| {
                    let us = self.latency.average_us(dest.id, dest.generation, now_ns);
                    (dest.name.as_str(), us)
                })
                .collect();
            if let Some(percent) = adaptation.observe(&servers) {
                adjusted.push(AdjustedWeights {
                    pool: pool.name.clone(),
                    service: service.name.clone(),
                    percent,
                });
            }
        }
        self.latency.adjusted_ns = now_ns;
        self.latency.adaptations = adaptations;
        adjusted
    }

    /// Returns the `max_latency` limits by server row, in nanoseconds. Skips ipvsadm's services and services with
    /// `strict_ipvs`.
    pub(super) fn latency_limits(&self) -> BTreeMap<u32, i64> {
        let limits = self.services_where(|pool| pool.health.max_latency.is_some());
        let rows = limits.flat_map(|(service, pool)| {
            let limit = pool.health.max_latency.unwrap_or_default().as_nanos();
            let limit = i64::try_from(limit).unwrap_or(i64::MAX);
            self.dests(service).map(move |dest| (dest.id, limit))
        });
        rows.collect()
    }

    /// Returns the services for whose pool `is_selected` returns true, except ipvsadm's services and services with
    /// `strict_ipvs`.
    fn services_where(
        &self,
        is_selected: impl Fn(&Pool) -> bool,
    ) -> impl Iterator<Item = (&Service, &Pool)> {
        self.desired.services.iter().filter_map(move |service| {
            let pool = self.desired.pool(&service.pool)?;
            let applies =
                is_selected(pool) && !service.strict_ipvs && !is_from_ipvsadm(&service.name);
            applies.then_some((service, pool))
        })
    }

    fn dests(
        &self,
        service: &Service,
    ) -> impl Iterator<Item = &weir_planner::allocation::DestSlot> {
        let slot = self.state.allocation.services.get(&service.name);
        let dests = slot.into_iter().flat_map(|slot| &slot.dests);
        dests.filter(|dest| dest.removed.is_none() && !dest.sorry)
    }
}
