//! Stores the parts of the configuration that probes need in addition to their target.

use std::collections::HashSet;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use weir_model::Desired;

use crate::path_table::PathTable;
use crate::tls::ClientConfigs;

/// Configuration and caches that all running probes share.
#[derive(Debug, Default)]
pub(crate) struct Context {
    /// The data plane's table of probes that use a service's forwarding path; `None` = there is no data plane.
    path_table: Mutex<Option<PathTable>>,
    /// Addresses of the layer 4 services. They are never selected as the default source of a probe.
    vips: Mutex<Arc<HashSet<IpAddr>>>,
    /// TLS configurations for probes.
    pub(crate) tls_configs: ClientConfigs,
}

impl Context {
    /// Replaces the path table, and the VIPs with those of a configuration. Reloads the TLS configurations.
    pub(crate) fn set(&self, desired: &Desired, path_table: Option<PathTable>) {
        *lock(&self.path_table) = path_table;
        self.tls_configs.reload();
        let listeners = desired.services.iter().flat_map(|service| &service.listen);
        *lock(&self.vips) = Arc::new(listeners.map(|listener| listener.address).collect());
    }

    pub(crate) fn path_table(&self) -> Option<PathTable> {
        lock(&self.path_table).clone()
    }

    pub(crate) fn vips(&self) -> Arc<HashSet<IpAddr>> {
        Arc::clone(&lock(&self.vips))
    }
}

/// Locks a mutex, even if it is poisoned, so that health checks continue after a panic in one task.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
