//! Edits of ipvsadm.
//!
//! Edits are executed on a copy of ipvsadm's table in order; the copy is activated as a whole, or not at all. Services
//! of the file are listed and counted too, but not changed: edits of them are rejected with their position in the file,
//! except for weights, which become overrides.

use std::time::Duration;

use weir_ipvsadm::{Edit, Errno, Refusal, Server, ServerEdit, ServerKey, ServiceKey, name_of};
use weir_model::{Desired, Listener, Mark};
use weir_state::{Override, ServerStates};

use super::Engine;
use super::attach::RESOLVE_TIMEOUT;
use crate::error::Error;
use crate::ipvsadm_term::{forward, is_from_ipvsadm, key_of, key_of_mark};
use crate::journal::Record;
use crate::listener_conflict::ListenerConflict;
use crate::origin::Origin;

/// An order that `ipvsadm -e … -w N` gives for a server of the file: the same as `weir server POOL/ADDRESS weight N`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WeightOrder {
    /// Its pool.
    pub pool: String,
    /// Its address as in the file.
    pub server: String,
    /// The override; `None` = the weight is the configured one.
    pub wanted: Option<Override>,
}

/// The service of the file that an edit is about.
fn service_of<'a>(desired: &'a Desired, key: &ServiceKey) -> Option<&'a weir_model::Service> {
    let listens = |listener: &Listener| key_of(listener).as_ref() == Some(key);
    let marked = |mark: &Mark| key_of_mark(mark) == *key;
    let services = desired.services.iter();
    let of_file = services.filter(|service| !is_from_ipvsadm(&service.name));
    let mut services = of_file
        .filter(|service| service.listen.iter().any(listens) || service.marks.iter().any(marked));
    services.next()
}

/// Whether an edit of a service of the file is allowed. [`Engine::weight_order`] has handled those of weights.
fn check_edit_of_file(service: &weir_model::Service, edit: &Edit) -> Result<(), Refusal> {
    match edit {
        Edit::AddService(_) => Err(Errno::Exists.into()),
        Edit::Zero(_) | Edit::EditServer(..) => Ok(()),
        _ => Err(belongs(service, ": change it there")),
    }
}

fn belongs(service: &weir_model::Service, but: &str) -> Refusal {
    let name = &service.name;
    Refusal::File {
        line: service.source.line,
        definition: format!("service {name} belongs to the file{but}"),
    }
}

fn weight(
    configured: &Desired,
    service: &weir_model::Service,
    key: &ServiceKey,
    edit: &ServerEdit,
) -> Result<WeightOrder, Refusal> {
    let pool = configured
        .pool(&service.pool)
        .ok_or_else(|| Refusal::from(Errno::NoEntry))?;
    let port = match key {
        ServiceKey::Address { port, .. } => *port,
        ServiceKey::Mark { .. } => 0,
    };
    let Server {
        key: ServerKey { address, .. },
        ..
    } = edit.server;
    let is = |server: &&weir_model::Server| {
        server.address == address
            && (server.port.unwrap_or(port) == edit.server.key.port
                || !server.forward_in(service).rewrites_port())
    };
    let server = pool
        .servers
        .iter()
        .find(is)
        .ok_or_else(|| Refusal::from(Errno::NoEntry))?;
    let thresholds = (edit.server.upper, edit.server.lower);
    let others = edit.forward && forward(server.forward_in(service)) != edit.server.forward
        || edit.thresholds && thresholds != (server.max_connections, server.min_connections)
        || edit.tunnel;
    if others {
        return Err(belongs(service, ": only a server's weight is changed here"));
    }
    let weight = edit.server.weight;
    if weight > weir_model::MAX_WEIGHT {
        let most = weir_model::MAX_WEIGHT;
        return Err(belongs(
            service,
            &format!(": weights of its servers are at most {most}"),
        ));
    }
    Ok(WeightOrder {
        pool: pool.name.clone(),
        server: server.name.clone(),
        wanted: (weight != server.weight).then_some(Override::Weight(weight)),
    })
}

/// The order that an edit gives for a server of the file in the active configuration, ipvsadm's part included; `None` =
/// the edit is of another kind.
pub fn weight_order(active: &Desired, edit: &Edit) -> Option<Result<WeightOrder, Refusal>> {
    let Edit::EditServer(key, edit) = edit else {
        return None;
    };
    let service = service_of(active, key)?;
    Some(weight(active, service, key, edit))
}

impl Engine {
    /// The first listener of a file that ipvsadm already uses.
    pub fn listener_conflict(&self, desired: &Desired) -> Option<ListenerConflict> {
        self.memory.origin.listener_conflict(desired)
    }

    /// The order that an edit gives for a server of the file; `None` = the edit is of another kind.
    pub fn weight_order(&self, edit: &Edit) -> Option<Result<WeightOrder, Refusal>> {
        weight_order(&self.desired, edit)
    }

    /// What ipvsadm has changed.
    pub const fn origin(&self) -> &Origin {
        &self.memory.origin
    }

    /// Executes ipvsadm's edits in order, except for those that are a [`WeightOrder`]; each is active or changed
    /// nothing. If they cannot be applied together, they are tried one at a time.
    pub async fn edit_table(
        &mut self,
        edits: &[Edit],
        states: &ServerStates,
    ) -> Vec<Result<(), Refusal>> {
        let mut origin = self.memory.origin.clone();
        let (mut answers, mut done) = (Vec::with_capacity(edits.len()), Vec::new());
        for edit in edits {
            let answer = self.try_edit(&mut origin, edit);
            if answer == Ok(true) {
                done.push(edit.clone());
            }
            answers.push(answer.map(drop));
        }
        if origin == self.memory.origin {
            return answers;
        }
        match self.apply_table(origin, done, states).await {
            Ok(()) => answers,
            Err(error) if edits.len() == 1 => {
                tracing::warn!(%error, "an edit of ipvsadm was rejected");
                vec![Err(Refusal::Message(error.to_string()))]
            }
            Err(_) => {
                let mut answers = Vec::with_capacity(edits.len());
                for edit in edits {
                    let one = std::slice::from_ref(edit);
                    answers.extend(Box::pin(self.edit_table(one, states)).await);
                }
                answers
            }
        }
    }

    /// Tries an edit on a copy of ipvsadm's table. Returns whether it must be persisted with the table.
    fn try_edit(&mut self, origin: &mut Origin, edit: &Edit) -> Result<bool, Refusal> {
        let key = edit.key();
        let of_file = key.and_then(|key| service_of(&self.desired, &key));
        let name = match (&of_file, key) {
            (Some(service), _) => Some(service.name.clone()),
            (None, key) => key.map(|key| name_of(&key)),
        };
        let made = of_file.is_none();
        if let Some(service) = of_file {
            check_edit_of_file(service, edit)?;
        } else {
            origin.edit(edit)?;
        }
        match edit {
            Edit::Zero(_) => {
                let zeroed = self.zeroed(|service| name.as_deref().is_none_or(|it| it == service));
                origin.zeroed.extend(zeroed);
                self.rate_estimates.zero(name.as_deref());
            }
            // A service that was deleted just now may still have rows: its counters start again.
            Edit::AddService(_) => {
                let zeroed = self.zeroed(|service| name.as_deref() == Some(service));
                origin.zeroed.extend(zeroed);
            }
            _ => {}
        }
        Ok(made && !matches!(edit, Edit::Zero(_)))
    }

    /// The active configuration without ipvsadm's services.
    fn of_file(&self) -> Desired {
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
        let desired = origin.merged(self.of_file())?;
        // Otherwise only listings change: SCTP, zeroed counters, flags without effect.
        if desired != *self.desired {
            self.resolve_timeout = Duration::ZERO;
            let applied = self.apply_merged(desired, states).await;
            self.resolve_timeout = RESOLVE_TIMEOUT;
            applied?;
        }
        let zeroed = origin.zeroed != self.memory.origin.zeroed;
        self.memory.origin = origin;
        self.file.append(&Record {
            edits,
            zeroed: zeroed.then(|| self.memory.origin.zeroed.clone()),
            ..Record::default()
        })
    }
}
