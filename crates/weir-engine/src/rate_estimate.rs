//! Stores the rate estimates that ipvsadm lists; `engine/rate_estimate.rs` updates them.

use std::collections::{BTreeMap, HashMap};
use std::time::Instant;

use weir_ipvsadm::{Estimator, Rates};

/// Estimators of services by name, and of servers by the generation of their rows.
#[derive(Debug)]
pub(crate) struct RateEstimates {
    /// Time of the last update.
    pub(crate) updated_at: Option<Instant>,
    pub(crate) services: BTreeMap<String, Estimator>,
    pub(crate) servers: HashMap<u32, Estimator>,
}

impl RateEstimates {
    pub(crate) fn new() -> Self {
        Self {
            updated_at: None,
            services: BTreeMap::new(),
            servers: HashMap::new(),
        }
    }

    pub(crate) fn for_service(&self, name: &str) -> Rates {
        self.services
            .get(name)
            .map(Estimator::rates)
            .unwrap_or_default()
    }

    pub(crate) fn for_server(&self, generation: u32) -> Rates {
        self.servers
            .get(&generation)
            .map(Estimator::rates)
            .unwrap_or_default()
    }

    /// Resets the estimates of one service or of all.
    pub(crate) fn zero(&mut self, service: Option<&str>) {
        for (name, estimator) in &mut self.services {
            if service.is_none_or(|service| service == name) {
                estimator.zero();
            }
        }
        if service.is_none() {
            self.servers.values_mut().for_each(Estimator::zero);
        }
    }
}
