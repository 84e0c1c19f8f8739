//! What probes need from the configuration in addition to their target.

use std::collections::HashSet;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use weir_dataplane::ProbeTable;
use weir_model::Desired;

use crate::tls::Clients;

/// Read by probes while they run.
#[derive(Debug, Default)]
pub(crate) struct Context {
    /// The data plane's table of probes through a service's forward.
    probe_table: Mutex<Option<ProbeTable>>,
    /// Addresses of services: never the source of a probe by accident.
    vips: Mutex<Arc<HashSet<IpAddr>>>,
    /// TLS configurations of probes.
    pub(crate) tls_clients: Clients,
}

impl Context {
    /// Replaces everything by what a configuration says.
    pub(crate) fn set(&self, desired: &Desired, probe_table: Option<ProbeTable>) {
        *locked(&self.probe_table) = probe_table;
        self.tls_clients.clear();
        let listeners = desired.services.iter().flat_map(|service| &service.listen);
        *locked(&self.vips) = Arc::new(listeners.map(|it| it.address).collect());
    }

    pub(crate) fn probe_table(&self) -> Option<ProbeTable> {
        locked(&self.probe_table).clone()
    }

    pub(crate) fn vips(&self) -> Arc<HashSet<IpAddr>> {
        Arc::clone(&locked(&self.vips))
    }
}

/// A poisoned lock is still valid: the monitor calls no code of ours while it is locked.
pub(crate) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
