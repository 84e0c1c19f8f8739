//! Stores the services that ipvsadm created, and merges them into the configuration in the file.
//!
//! The state file contains ipvsadm's services as a separate table. The table is merged into every configuration before
//! planning, so a reload cannot change it.

use std::collections::{BTreeMap, HashSet};
use std::net::IpAddr;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use weir_ipvsadm::{Edit, EditError, Errno, ServiceKey, Table, Timeouts, lower, service_name};
use weir_model::Desired;

use crate::error::Error;
use crate::ipvsadm_term::{key_of, key_of_mark, proxy_listener};
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
    /// Returns the first listener in the configuration that an ipvsadm service already uses. Listeners of proxy
    /// services are checked too, because the data plane would forward their packets to the servers of the ipvsadm
    /// service.
    pub fn listener_conflict(&self, desired: &Desired) -> Option<ListenerConflict> {
        self.layer4_conflict(desired)
            .or_else(|| self.proxy_conflict(desired))
    }

    fn layer4_conflict(&self, desired: &Desired) -> Option<ListenerConflict> {
        let ipvsadm_keys = self.keys()?;
        desired.services.iter().find_map(|service| {
            let listeners = service.listen.iter();
            let listeners = listeners.filter_map(|it| Some((key_of(it)?, it.to_string())));
            let marks = service.marks.iter();
            let mut keys = listeners.chain(marks.map(|it| (key_of_mark(it), it.to_string())));
            let (key, listener) = keys.find(|(key, _)| ipvsadm_keys.contains(key))?;
            Some(ListenerConflict {
                service: service.name.clone(),
                listener,
                position: service.source,
                command: delete_arguments(&key),
            })
        })
    }

    fn proxy_conflict(&self, desired: &Desired) -> Option<ListenerConflict> {
        let ipvsadm_keys = self.keys()?;
        desired.proxies.iter().find_map(|proxy| {
            let listeners = proxy.listen.iter().map(proxy_listener);
            let mut keys = listeners.filter_map(|it| Some((key_of(&it)?, it)));
            let (key, listener) = keys.find(|(key, _)| ipvsadm_keys.contains(key))?;
            Some(ListenerConflict {
                service: proxy.name.clone(),
                listener: listener.to_string(),
                position: proxy.source,
                command: delete_arguments(&key),
            })
        })
    }

    /// Returns whether ipvsadm has a service with this key.
    pub(crate) fn contains(&self, key: &ServiceKey) -> bool {
        self.table.get(key).is_some()
    }

    /// Returns the keys of ipvsadm's services; `None` = it has no services.
    fn keys(&self) -> Option<HashSet<ServiceKey>> {
        let entries = self.table.services().iter();
        (!self.table.is_empty()).then(|| entries.map(|entry| entry.service.key).collect())
    }

    /// Adds ipvsadm's services to a configuration. Accepts services that use a listener of a proxy service: an earlier
    /// version may have stored them, and ipvsadm must be able to delete them.
    ///
    /// # Errors
    /// [`Error::ListenerConflict`] with a layer 4 service.
    pub fn merged_with(&self, mut desired: Desired) -> Result<Desired, Error> {
        if let Some(conflict) = self.layer4_conflict(&desired) {
            return Err(Error::ListenerConflict(conflict));
        }
        // The table lists the newest service first; the status lists the oldest first.
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
            let edit_error = EditError::from(errno);
            let (service, error) = (
                edit.key().map(|key| service_name(&key)),
                edit_error.message(edit),
            );
            tracing::warn!(service, error, "failed to restore an ipvsadm edit");
        }
    }
}

/// Returns the ipvsadm arguments that delete the service with this key.
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

#[cfg(test)]
pub(crate) mod tests {
    use weir_ipvsadm::{Protocol, Service};
    use weir_model::{Proxy, ProxyProtocol};

    use super::*;

    pub(crate) fn service(key: ServiceKey) -> Service {
        Service {
            key,
            scheduler: "wlc".to_owned(),
            flags: 0,
            persistence: None,
            engine: String::new(),
            one_packet: false,
        }
    }

    pub(crate) fn key(protocol: Protocol, address: &str, port: u16) -> ServiceKey {
        ServiceKey::Address {
            protocol,
            address: address.parse().expect("valid address"),
            port,
        }
    }

    pub(crate) fn with_service(key: ServiceKey) -> Origin {
        let mut origin = Origin::default();
        let edit = Edit::AddService(service(key));
        origin.edit(&edit).expect("add a service");
        origin
    }

    pub(crate) fn with_proxy(listen: &[&str]) -> Desired {
        let mut proxy = Proxy::new("site", ProxyProtocol::Http, "web");
        let addresses = listen.iter().map(|it| it.parse().expect("valid address"));
        proxy.listen = addresses.collect();
        Desired {
            proxies: vec![proxy],
            ..Desired::default()
        }
    }

    #[test]
    fn proxy_service_at_the_address_of_an_ipvsadm_service_is_a_conflict() {
        let origin = with_service(key(Protocol::Tcp, "10.0.0.11", 80));
        let desired = with_proxy(&["10.0.0.10:80", "10.0.0.11:80"]);
        let conflict = origin.listener_conflict(&desired).expect("a conflict");
        assert_eq!(conflict.service, "site");
        assert_eq!(conflict.listener, "tcp/10.0.0.11:80");
        assert_eq!(conflict.command, "-D -t 10.0.0.11:80");

        let origin = with_service(key(Protocol::Tcp, "fd00::11", 80));
        let conflict = origin.listener_conflict(&with_proxy(&["[fd00::11]:80"]));
        let conflict = conflict.expect("a conflict with IPv6");
        assert_eq!(conflict.command, "-D -t [fd00::11]:80");
        assert!(origin.merged_with(desired).is_ok(), "a different address");
    }

    #[test]
    fn wildcards_and_other_listeners_of_proxy_services_are_not_conflicts() {
        let origin = with_service(key(Protocol::Tcp, "10.0.0.11", 80));
        let other_listeners = [
            "0.0.0.0:80",
            "[::]:80",
            "10.0.0.11:81",
            "10.0.0.12:80",
            "[::ffff:10.0.0.11]:80",
        ];
        assert_eq!(
            origin.listener_conflict(&with_proxy(&other_listeners)),
            None
        );
        let desired = with_proxy(&["10.0.0.11:80"]);
        for other in [
            key(Protocol::Udp, "10.0.0.11", 80),
            key(Protocol::Tcp, "10.0.0.11", 0),
        ] {
            assert_eq!(with_service(other).listener_conflict(&desired), None);
        }
    }

    #[test]
    fn stored_conflict_with_a_proxy_service_can_be_merged() {
        let origin = with_service(key(Protocol::Tcp, "10.0.0.11", 80));
        let merged = origin.merged_with(with_proxy(&["10.0.0.11:80"]));
        let merged = merged.expect("the service can be deleted later");
        assert_eq!((merged.services.len(), merged.proxies.len()), (1, 1));
    }
}
