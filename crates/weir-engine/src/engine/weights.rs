//! Applies changed server weights ([`ServerStates`]) to the data plane between reloads.

use std::sync::Arc;

use weir_model::Indexed;
use weir_state::{HealthRecord, OverrideRecord, ServerStates};

use super::Engine;
use crate::allocate::allocate;
use crate::error::Result;
use crate::journal::Record;
use weir_dataplane::ProbeTable;

impl Engine {
    /// Applies the weights of these pools, in all services that use them, and records which pools are below their
    /// quorum.
    ///
    /// # Errors
    /// Fails if a map cannot be written. A full disk is only logged, because it must not keep a failed server in use.
    pub fn apply_weights(&mut self, pools: &[&str], states: &ServerStates) -> Result<()> {
        let services = pools
            .iter()
            .flat_map(|pool| self.desired.services_of_pool(pool));
        let names: Vec<String> = services.map(|service| service.name.clone()).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        self.file.record_below_quorum(states.below_quorum());
        let previous = allocate(&mut self.state, &self.desired, &self.plane, &names, states)?;
        self.persist_changes_if_possible(&previous);
        self.rewrite(&names)
    }

    /// Adds check results to the state file.
    ///
    /// # Errors
    /// Fails if the state file cannot be written.
    pub fn record_health(&mut self, health_states: Vec<HealthRecord>) -> Result<()> {
        if health_states.is_empty() {
            return Ok(());
        }
        self.file.append(&Record {
            health_states,
            ..Record::default()
        })
    }

    /// Adds an override to the copy in the state file, which Weir 0.1.0 reads.
    ///
    /// # Errors
    /// Fails if the state file cannot be written.
    pub fn copy_override(&mut self, record: &OverrideRecord) -> Result<()> {
        self.file.append(&Record {
            overrides: vec![record.clone()],
            ..Record::default()
        })
    }

    /// Returns the active configuration, including ipvsadm's part.
    pub const fn desired(&self) -> &Indexed {
        &self.desired
    }

    /// Returns the map of probes that use a service's forwarding method.
    pub fn probe_table(&self) -> ProbeTable {
        Arc::clone(&self.plane.maps().probes)
    }
}
