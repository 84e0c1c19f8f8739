//! Stores the services that ipvsadm created, and merges them into the configuration of the file.
//!
//! The state file contains ipvsadm's services as a separate table. The table is merged into every configuration before
//! planning, so that a reload cannot change it.

use std::collections::{BTreeMap, HashSet};
use std::net::IpAddr;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use weir_ipvsadm::{Edit, Errno, Refusal, ServiceKey, Table, Timeouts, lower, service_name};
use weir_model::Desired;

use crate::error::Error;
use crate::ipvsadm_term::{key_of, key_of_mark};
use crate::listener_conflict::ListenerConflict;
use crate::snapshot::Totals;

/// The changes made with ipvsadm.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Origin {
    /// ipvsadm's services.
    pub(crate) table: Table,
    /// Timeouts that override those in the file; 0 = the timeout in the file.
    pub(crate) timeouts: Option<Timeouts>,
    /// Base values of zeroed counters, by service name.
    pub(crate) zeroed: BTreeMap<String, Baseline>,
}

/// Totals at the last `-Z`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Baseline {
    /// The service's totals.
    pub(crate) service: Totals,
    /// The totals of its servers, by the generation of their rows.
    pub(crate) servers: Vec<(u32, Totals)>,
}

impl Origin {
    /// Returns the first listener in the configuration that an ipvsadm service already uses.
    pub fn listener_conflict(&self, desired: &Desired) -> Option<ListenerConflict> {
        if self.table.is_empty() {
            return None;
        }
        let entries = self.table.services().iter();
        let ipvsadm_keys: HashSet<ServiceKey> = entries.map(|entry| entry.service.key).collect();
        desired.services.iter().find_map(|service| {
            let listeners = service.listen.iter();
            let listeners = listeners.filter_map(|it| Some((key_of(it)?, it.to_string())));
            let marks = service.marks.iter();
            let mut all = listeners.chain(marks.map(|it| (key_of_mark(it), it.to_string())));
            let (key, listener) = all.find(|(key, _)| ipvsadm_keys.contains(key))?;
            Some(ListenerConflict {
                service: service.name.clone(),
                listener,
                position: service.source,
                command: delete_arguments(&key),
            })
        })
    }

    /// Adds ipvsadm's services to a configuration.
    ///
    /// # Errors
    /// [`Error::ListenerConflict`].
    pub fn merged_with(&self, mut desired: Desired) -> Result<Desired, Error> {
        if let Some(conflict) = self.listener_conflict(&desired) {
            return Err(Error::ListenerConflict(conflict));
        }
        // The table lists the newest service first; status lists the oldest first.
        for entry in self.table.services().iter().rev() {
            if let Some((service, pool)) = lower(entry) {
                desired.services.push(service);
                desired.pools.push(pool);
            }
        }
        if let Some(Timeouts {
            tcp_s,
            tcp_fin_s,
            udp_s,
        }) = self.timeouts
        {
            let timeouts = &mut desired.timeouts;
            for (timeout, seconds) in [
                (&mut timeouts.tcp, tcp_s),
                (&mut timeouts.tcp_fin, tcp_fin_s),
                (&mut timeouts.udp, udp_s),
            ] {
                if seconds != 0 {
                    *timeout = Duration::from_secs(seconds.into());
                }
            }
        }
        Ok(desired)
    }

    /// Applies an edit to ipvsadm's table.
    pub(crate) fn edit(&mut self, edit: &Edit) -> Result<(), Errno> {
        match edit {
            Edit::Timeouts(new) => {
                self.timeouts.get_or_insert_default().update(new);
                return Ok(());
            }
            Edit::Clear => self.zeroed.clear(),
            Edit::DeleteService(key) => drop(self.zeroed.remove(&service_name(key))),
            _ => {}
        }
        self.table.apply(edit)
    }

    /// Reapplies an edit that was active before a restart.
    pub(crate) fn replay(&mut self, edit: &Edit) {
        if let Err(errno) = self.edit(edit) {
            let refusal = Refusal::from(errno);
            let (service, error) = (
                edit.key().map(|key| service_name(&key)),
                refusal.message(edit),
            );
            tracing::warn!(service, error, "failed to restore an ipvsadm edit");
        }
    }
}

/// Returns the arguments with which ipvsadm deletes the service with this key.
fn delete_arguments(key: &ServiceKey) -> String {
    match key {
        ServiceKey::Mark { mark, v6 } => format!("-D -f {mark}{}", if *v6 { " -6" } else { "" }),
        ServiceKey::Address {
            protocol,
            address,
            port,
        } => {
            let option = protocol.option();
            match address {
                IpAddr::V4(v4) => format!("-D {option} {v4}:{port}"),
                IpAddr::V6(v6) => format!("-D {option} [{v6}]:{port}"),
            }
        }
    }
}
