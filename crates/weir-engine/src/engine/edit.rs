//! Applies ipvsadm's edits to the running engine.
//!
//! Edits are executed in order on a copy of ipvsadm's table, which is then activated as a whole. If this fails, the
//! edits are tried one at a time. ipvsadm also lists services in the file and zeroes their counters, but cannot change
//! them: an edit to such a service is rejected with the service's position in the file. The exception is a change to a
//! server's weight, which becomes an override.

use std::time::Duration;

use weir_ipvsadm::{
    Edit, EditError, Errno, Server, ServerEdit, ServerKey, ServiceKey, service_name,
};
use weir_model::{Desired, Listener, Mark, Proxy, Source};
use weir_state::{Override, ServerStates};

use super::Engine;
use super::attach::RESOLVE_TIMEOUT;
use crate::error::Error;
use crate::ipvsadm_term::{forward, is_from_ipvsadm, key_of, key_of_mark, proxy_listener};
use crate::journal::Record;
use crate::listener_conflict::ListenerConflict;
use crate::origin::Origin;

/// The fix that a rejected edit suggests.
const CHANGE_FILE: &str = "change it there";

/// A change to the weight of a server in the file, requested by `ipvsadm -e … -w N`; equivalent to
/// `weir server POOL/ADDRESS weight N`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WeightChange {
    /// Name of the server's pool.
    pub pool: String,
    /// The server's address as written in the file.
    pub server: String,
    /// The new override; `None` = no override, because the requested weight is the configured weight.
    pub wanted: Option<Override>,
}

/// Returns the service in the file that an edit refers to.
fn service_of<'a>(desired: &'a Desired, key: &ServiceKey) -> Option<&'a weir_model::Service> {
    let listens = |listener: &Listener| key_of(listener).as_ref() == Some(key);
    let has_mark = |mark: &Mark| key_of_mark(mark) == *key;
    let services = desired.services.iter();
    let in_file = services.filter(|service| !is_from_ipvsadm(&service.name));
    let mut services = in_file
        .filter(|service| service.listen.iter().any(listens) || service.marks.iter().any(has_mark));
    services.next()
}

/// Checks whether an edit to a service in the file is allowed. [`Engine::weight_change`] has already handled changes to
/// weights.
fn check_file_service_edit(service: &weir_model::Service, edit: &Edit) -> Result<(), EditError> {
    match edit {
        Edit::AddService(_) => Err(Errno::Exists.into()),
        Edit::Zero(_) | Edit::EditServer(..) => Ok(()),
        _ => Err(file_conflict(service, CHANGE_FILE)),
    }
}

/// Checks an edit for conflicts with the proxy services in the file, which ipvsadm does not list. A service that an
/// earlier version created at the address of a proxy service can be changed and deleted.
fn check_proxy_edit(desired: &Desired, origin: &Origin, edit: &Edit) -> Result<(), EditError> {
    let Some(key) = edit.key().filter(|key| !origin.contains(key)) else {
        return Ok(());
    };
    let listens = |proxy: &&Proxy| {
        let mut keys = proxy
            .listen
            .iter()
            .map(|address| key_of(&proxy_listener(address)));
        keys.any(|listener_key| listener_key == Some(key))
    };
    match (desired.proxies.iter().find(listens), edit) {
        (None, _) | (_, Edit::Zero(_)) => Ok(()),
        (Some(_), Edit::AddService(_)) => Err(Errno::Exists.into()),
        (Some(proxy), _) => Err(definition_conflict(&proxy.name, proxy.source, CHANGE_FILE)),
    }
}

fn file_conflict(service: &weir_model::Service, hint: &str) -> EditError {
    definition_conflict(&service.name, service.source, hint)
}

fn definition_conflict(name: &str, position: Source, hint: &str) -> EditError {
    EditError::File {
        line: position.line,
        definition: format!("service {name} is defined in the file: {hint}"),
    }
}

fn requested_weight(
    configured: &Desired,
    service: &weir_model::Service,
    key: &ServiceKey,
    edit: &ServerEdit,
) -> Result<WeightChange, EditError> {
    let pool = configured
        .pool(&service.pool)
        .ok_or_else(|| EditError::from(Errno::NoEntry))?;
    let port = match key {
        ServiceKey::Address { port, .. } => *port,
        ServiceKey::Mark { .. } => 0,
    };
    let Server {
        key: ServerKey { address, .. },
        ..
    } = edit.server;
    let is_server = |server: &&weir_model::Server| {
        server.address == address
            && (server.port.unwrap_or(port) == edit.server.key.port
                || !server.forward_in(service).rewrites_port())
    };
    let server = pool
        .servers
        .iter()
        .find(is_server)
        .ok_or_else(|| EditError::from(Errno::NoEntry))?;
    let thresholds = (edit.server.upper, edit.server.lower);
    let changes_other_fields = edit.forward
        && forward(server.forward_in(service)) != edit.server.forward
        || edit.thresholds && thresholds != (server.max_connections, server.min_connections)
        || edit.tunnel;
    if changes_other_fields {
        return Err(file_conflict(
            service,
            "ipvsadm can change only a server's weight",
        ));
    }
    let weight = edit.server.weight;
    if weight > weir_model::MAX_WEIGHT {
        let limit = weir_model::MAX_WEIGHT;
        return Err(file_conflict(
            service,
            &format!("the maximum weight is {limit}"),
        ));
    }
    Ok(WeightChange {
        pool: pool.name.clone(),
        server: server.name.clone(),
        wanted: (weight != server.weight).then_some(Override::Weight(weight)),
    })
}

/// Returns the weight change that an edit requests for a server in the file, or the reason why it is rejected. `active`
/// is the active configuration, including ipvsadm's part. `None` = a different kind of edit, or its service is not in
/// the file.
pub fn weight_change(active: &Desired, edit: &Edit) -> Option<Result<WeightChange, EditError>> {
    let Edit::EditServer(key, edit) = edit else {
        return None;
    };
    let service = service_of(active, key)?;
    Some(requested_weight(active, service, key, edit))
}

impl Engine {
    /// Returns the first listener in a file that an ipvsadm service already uses.
    pub fn listener_conflict(&self, desired: &Desired) -> Option<ListenerConflict> {
        self.state.origin.listener_conflict(desired)
    }

    /// Returns the weight change that an edit requests for a server in the file, or the reason why it is rejected;
    /// `None` = a different kind of edit, or its service is not in the file.
    pub fn weight_change(&self, edit: &Edit) -> Option<Result<WeightChange, EditError>> {
        weight_change(&self.desired, edit)
    }

    /// Returns the changes that were made with ipvsadm.
    pub const fn origin(&self) -> &Origin {
        &self.state.origin
    }

    /// Executes ipvsadm's edits in order, except for weight changes ([`WeightChange`]). Returns a result for each edit,
    /// which either takes effect or changes nothing. If the edits cannot be applied together, they are tried one at a
    /// time.
    pub async fn edit_table(
        &mut self,
        edits: &[Edit],
        states: &ServerStates,
    ) -> Vec<Result<(), EditError>> {
        let mut origin = self.state.origin.clone();
        let (mut results, mut persisted) = (Vec::with_capacity(edits.len()), Vec::new());
        for edit in edits {
            let result = self.try_edit(&mut origin, edit);
            if result == Ok(true) {
                persisted.push(edit.clone());
            }
            results.push(result.map(drop));
        }
        if origin == self.state.origin {
            return results;
        }
        match self.apply_table(origin, persisted, states).await {
            Ok(()) => results,
            Err(error) if edits.len() == 1 => {
                tracing::warn!(%error, "rejected an edit by ipvsadm");
                vec![Err(EditError::Message(error.to_string()))]
            }
            Err(_) => {
                let mut results = Vec::with_capacity(edits.len());
                for edit in edits {
                    let single = std::slice::from_ref(edit);
                    results.extend(Box::pin(self.edit_table(single, states)).await);
                }
                results
            }
        }
    }

    /// Tries an edit on a copy of ipvsadm's table. Returns whether the edit must be persisted with the table.
    fn try_edit(&mut self, origin: &mut Origin, edit: &Edit) -> Result<bool, EditError> {
        let key = edit.key();
        let file_service = key.and_then(|key| service_of(&self.desired, &key));
        let name = match (&file_service, key) {
            (Some(service), _) => Some(service.name.clone()),
            (None, key) => key.map(|key| service_name(&key)),
        };
        let is_from_table = file_service.is_none();
        if let Some(service) = file_service {
            check_file_service_edit(service, edit)?;
        } else {
            check_proxy_edit(&self.desired, origin, edit)?;
            origin.edit(edit)?;
        }
        match edit {
            Edit::Zero(_) => {
                let zeroed =
                    self.zero_points(|service| name.as_deref().is_none_or(|name| name == service));
                origin.zeroed.extend(zeroed);
                self.rate_estimates.zero(name.as_deref());
            }
            // A service that was just deleted may still have rows. Restart its counters.
            Edit::AddService(_) => {
                let zeroed = self.zero_points(|service| name.as_deref() == Some(service));
                origin.zeroed.extend(zeroed);
            }
            _ => {}
        }
        Ok(is_from_table && !matches!(edit, Edit::Zero(_)))
    }

    /// Returns the active configuration without ipvsadm's services.
    fn file_configuration(&self) -> Desired {
        let mut desired = Desired::clone(&self.desired);
        desired
            .services
            .retain(|service| !is_from_ipvsadm(&service.name));
        desired.pools.retain(|pool| !is_from_ipvsadm(&pool.name));
        desired.timeouts = self.file_timeouts;
        desired
    }

    async fn apply_table(
        &mut self,
        origin: Origin,
        edits: Vec<Edit>,
        states: &ServerStates,
    ) -> Result<(), Error> {
        let desired = origin.merged_with(self.file_configuration())?;
        // If the configurations are equal, the edits change only what ipvsadm lists: SCTP services, zeroed counters, or
        // flags that have no effect.
        if desired != *self.desired {
            self.resolve_timeout = Duration::ZERO;
            let applied = self.apply_merged(desired, states).await;
            self.resolve_timeout = RESOLVE_TIMEOUT;
            applied?;
        }
        let zeroed = origin.zeroed != self.state.origin.zeroed;
        self.state.origin = origin;
        self.file.append(&Record {
            edits,
            zeroed: zeroed.then(|| self.state.origin.zeroed.clone()),
            ..Record::default()
        })
    }
}

#[cfg(test)]
mod tests {
    use weir_ipvsadm::Protocol;

    use super::*;
    use crate::origin::tests::{key, service, with_proxy, with_service};

    #[test]
    fn service_at_the_address_of_a_proxy_service_is_rejected() {
        let desired = with_proxy(&["10.0.0.11:80", "0.0.0.0:443"]);
        let site = key(Protocol::Tcp, "10.0.0.11", 80);
        let check = |edit: Edit| check_proxy_edit(&desired, &Origin::default(), &edit);
        let add = |key| Edit::AddService(service(key));
        assert_eq!(check(add(site)), Err(Errno::Exists.into()));
        let result = check(Edit::DeleteService(site));
        let is_rejected = matches!(&result, Err(EditError::File { definition, .. }) if definition.contains("site"));
        assert!(is_rejected, "{result:?}");
        assert_eq!(check(Edit::Zero(Some(site))), Ok(()));
        for other in [
            key(Protocol::Udp, "10.0.0.11", 80),
            key(Protocol::Tcp, "10.0.0.11", 81),
            key(Protocol::Tcp, "10.0.0.11", 443),
        ] {
            assert_eq!(check(add(other)), Ok(()));
        }
    }

    #[test]
    fn stored_service_at_the_address_of_a_proxy_service_can_be_deleted() {
        let site = key(Protocol::Tcp, "10.0.0.11", 80);
        let desired = with_proxy(&["10.0.0.11:80"]);
        let edit = Edit::DeleteService(site);
        assert_eq!(
            check_proxy_edit(&desired, &with_service(site), &edit),
            Ok(())
        );
    }
}
