//! Services of ipvsadm in addition to those of the file: one table with two origins.
//!
//! The state file stores the services of ipvsadm as a table of their own. It is merged into every configuration before
//! planning, so a reload cannot change it. Edits are executed on a copy in order; the copy is activated as a whole, or
//! not at all. Services of the file are listed and counted here too, but not changed: edits of them are rejected with
//! their position in the file, except for weights, which become overrides.

use std::collections::{BTreeMap, HashSet};
use std::net::IpAddr;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use weir_ipvsadm::{
    Edit, Errno, Forward, Protocol, Refusal, Server, ServerEdit, ServerKey, ServiceKey, Table,
    Timeouts, lower, name_of,
};
use weir_model::{Desired, Family, Listener, Mark, Ports, Source};
use weir_state::{Override, ServerStates};

use super::attach::RESOLVE_TIMEOUT;
use super::journal::Record;
use super::listing::is_from_ipvsadm;
use super::{Engine, Error};
use crate::snapshot::Totals;

/// What ipvsadm changed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Origin {
    /// Its services.
    pub(super) table: Table,
    /// Timeouts in place of the file's; 0 = the file's.
    pub(super) timeouts: Option<Timeouts>,
    /// Base values of counters, by service name.
    pub(super) zeroed: BTreeMap<String, Zero>,
}

/// Totals at the last `-Z`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Zero {
    /// The service's.
    pub(super) service: Totals,
    /// Its servers', by the generation of their rows.
    pub(super) servers: Vec<(u32, Totals)>,
}

/// A listener of the file that ipvsadm already uses.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{}:{}: service {service} listens on {listener}, which ipvsadm already uses (`ipvsadm {command}` removes it)",
    .at.line, .at.column
)]
pub struct Claim {
    /// Service of the file.
    pub service: String,
    /// Its listener or mark, as it is written.
    pub listener: String,
    /// Where the file names it.
    pub at: Source,
    /// Arguments of ipvsadm that remove its service.
    pub command: String,
}

impl Origin {
    /// The first listener of a file that ipvsadm already uses.
    pub(super) fn claim(&self, desired: &Desired) -> Option<Claim> {
        if self.table.is_empty() {
            return None;
        }
        let made = self.table.services().iter();
        let made: HashSet<ServiceKey> = made.map(|entry| entry.service.key).collect();
        desired.services.iter().find_map(|service| {
            let listeners = service.listen.iter();
            let listeners = listeners.filter_map(|it| Some((key_of(it)?, it.to_string())));
            let marks = service.marks.iter();
            let mut all = listeners.chain(marks.map(|it| (key_of_mark(it), it.to_string())));
            let (key, listener) = all.find(|(key, _)| made.contains(key))?;
            Some(Claim {
                service: service.name.clone(),
                listener,
                at: service.source,
                command: deletes(&key),
            })
        })
    }

    /// Adds ipvsadm's services to a configuration.
    ///
    /// # Errors
    /// [`Error::Claimed`].
    pub(super) fn merged(&self, mut merged: Desired) -> Result<Desired, Error> {
        if let Some(claim) = self.claim(&merged) {
            return Err(Error::Claimed(claim));
        }
        // The table lists the newest first; status lists the oldest first.
        for entry in self.table.services().iter().rev() {
            if let Some((service, pool)) = lower(entry) {
                merged.services.push(service);
                merged.pools.push(pool);
            }
        }
        if let Some(Timeouts {
            tcp_s,
            tcp_fin_s,
            udp_s,
        }) = self.timeouts
        {
            let timeouts = &mut merged.timeouts;
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
        Ok(merged)
    }

    /// Executes an edit of ipvsadm's own table.
    fn edit(&mut self, edit: &Edit) -> Result<(), Errno> {
        match edit {
            Edit::Timeouts(new) => {
                self.timeouts.get_or_insert_default().update(new);
                return Ok(());
            }
            Edit::Clear => self.zeroed.clear(),
            Edit::DeleteService(key) => drop(self.zeroed.remove(&name_of(key))),
            _ => {}
        }
        self.table.apply(edit)
    }

    /// Executes an edit again that was active before a restart.
    pub(super) fn repeat(&mut self, edit: &Edit) {
        if let Err(errno) = self.edit(edit) {
            let refusal = Refusal::from(errno);
            let (service, error) = (edit.key().map(|key| name_of(&key)), refusal.message(edit));
            tracing::warn!(service, error, "an edit of ipvsadm was lost");
        }
    }
}

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

/// The key of a listener in ipvsadm; a range has none.
pub(super) fn key_of(listener: &Listener) -> Option<ServiceKey> {
    let port = match listener.ports {
        Ports::One(port) => port,
        Ports::Any => 0,
        Ports::Range(..) => return None,
    };
    Some(ServiceKey::Address {
        protocol: protocol(listener.protocol),
        address: listener.address,
        port,
    })
}

pub(super) const fn protocol(protocol: weir_model::Protocol) -> Protocol {
    match protocol {
        weir_model::Protocol::Tcp => Protocol::Tcp,
        weir_model::Protocol::Udp => Protocol::Udp,
    }
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

/// The key of a mark.
pub(super) fn key_of_mark(mark: &Mark) -> ServiceKey {
    ServiceKey::Mark {
        mark: mark.mark.get(),
        v6: mark.family == Family::V6,
    }
}

/// Arguments of ipvsadm that delete the service with this key.
fn deletes(key: &ServiceKey) -> String {
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

/// Converts a forwarding method to ipvsadm's.
pub(super) const fn forward(forward: weir_model::Forward) -> Forward {
    match forward {
        // A socket service is not listed; its address is rewritten as by masquerading.
        weir_model::Forward::Nat | weir_model::Forward::Socket => Forward::Masq,
        weir_model::Forward::Direct => Forward::Route,
        weir_model::Forward::Tunnel => Forward::Tunnel,
        weir_model::Forward::L3dsr => Forward::L3dsr,
    }
}

impl Engine {
    /// The first listener of a file that ipvsadm already uses.
    pub fn claim(&self, desired: &Desired) -> Option<Claim> {
        self.memory.origin.claim(desired)
    }

    /// The order that an edit gives for a server of the file; `None` = the edit is of another kind.
    pub fn weight_order(&self, edit: &Edit) -> Option<Result<WeightOrder, Refusal>> {
        let Edit::EditServer(key, edit) = edit else {
            return None;
        };
        let service = service_of(&self.desired, key)?;
        Some(weight(&self.desired, service, key, edit))
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
