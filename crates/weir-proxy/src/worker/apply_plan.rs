//! Applies a new plan to a worker: changes its listeners, and moves clients to their service's new settings.

use std::collections::{HashMap, HashSet};
use std::rc::Rc;
use std::sync::Arc;

use weir_select::Balancer;

use super::Worker;
use super::listen::Listener;
use crate::context::{LocalService, local_service, removed_service};
use crate::plan::{Listeners, Plan, Service};
use crate::session::Session;

impl Worker {
    /// Applies the active plan.
    pub(super) fn apply_plan(&mut self) {
        let plan = self.shared.plan();
        self.cx.reserve_targets(plan.targets);
        let mut old_locals: HashMap<String, Rc<LocalService>> = HashMap::new();
        for key in self.sessions.keys() {
            if let Some(session) = self.sessions.get(key) {
                let local = &session.local;
                old_locals
                    .entry(local.service.name.clone())
                    .or_insert_with(|| Rc::clone(local));
            }
        }
        for key in self.h2_servers.keys() {
            if let Some(server_conn) = self.h2_servers.get(key) {
                let local = &server_conn.local;
                old_locals
                    .entry(local.service.name.clone())
                    .or_insert_with(|| Rc::clone(local));
            }
        }
        for key in self.listening.keys() {
            if let Some(listening) = self.listening.get(key) {
                let local = &listening.local;
                old_locals.insert(local.service.name.clone(), Rc::clone(local));
            }
        }
        let locals: HashMap<String, Rc<LocalService>> = plan
            .services
            .iter()
            .map(|service| {
                let old = old_locals.get(&service.name);
                let balancers = old.map_or_else(Vec::new, |old| old.balancers.take());
                let balancers = balancers
                    .into_iter()
                    .map(Balancer::invalidate_tables)
                    .collect();
                (
                    service.name.clone(),
                    local_service(Arc::clone(service), balancers),
                )
            })
            .collect();
        self.adopt_listeners(&plan, &locals);
        self.adopt_sessions(&old_locals, &locals);
        let kept_ids: HashSet<u32> = plan
            .services
            .iter()
            .flat_map(|service| service.targets().map(|target| target.id))
            .collect();
        self.cx
            .close_idle_unless(|target| kept_ids.contains(&target.id));
    }

    fn adopt_listeners(&mut self, plan: &Plan, locals: &HashMap<String, Rc<LocalService>>) {
        let local = |service: &Service| locals.get(&service.name).map(Rc::clone);
        for key in self.listening.keys() {
            let Some(listening) = self.listening.get_mut(key) else {
                continue;
            };
            let mut planned = plan.listen.iter();
            let entry = planned.find(|(listen, _)| Arc::ptr_eq(listen, &listening.listeners));
            match entry.and_then(|(_, service)| local(service)) {
                Some(local) => listening.local = local,
                None => self.stop_listening(key),
            }
        }
        if self.cx.draining {
            return;
        }
        let active: Vec<Arc<Listeners>> = self
            .listening
            .keys()
            .into_iter()
            .filter_map(|key| {
                self.listening
                    .get(key)
                    .map(|listening| Arc::clone(&listening.listeners))
            })
            .collect();
        for (listen, service) in &plan.listen {
            if active
                .iter()
                .any(|listeners| Arc::ptr_eq(listeners, listen))
            {
                continue;
            }
            let Some(local) = local(service) else {
                continue;
            };
            let indices = (self.cx.worker..listen.sockets.len()).step_by(listen.workers);
            for socket_index in indices {
                let key = self.listening.insert(Listener {
                    listeners: Arc::clone(listen),
                    socket_index,
                    local: Rc::clone(&local),
                    paused: true,
                });
                self.resume(key);
            }
        }
    }

    fn adopt_sessions(
        &mut self,
        old_locals: &HashMap<String, Rc<LocalService>>,
        locals: &HashMap<String, Rc<LocalService>>,
    ) {
        // All clients of a removed service share one `LocalService`.
        let removed_locals: HashMap<&String, Rc<LocalService>> = old_locals
            .iter()
            .filter(|(name, _)| !locals.contains_key(*name))
            .map(|(name, old)| {
                let balancers = old.balancers.take();
                (name, removed_service(Arc::clone(&old.service), balancers))
            })
            .collect();
        for key in self.sessions.keys() {
            let Some(session) = self.sessions.get_mut(key) else {
                continue;
            };
            let name = &session.local.service.name;
            if let Some(local) = locals.get(name).or_else(|| removed_locals.get(name)) {
                // A stream is not counted as a client; its connection is.
                if !session.is_stream() {
                    let old_service = &session.local.service;
                    old_service.move_client_count(&local.service, self.cx.worker);
                }
                session.apply_service(local);
            }
        }
        for key in self.h2_servers.keys() {
            let Some(server_conn) = self.h2_servers.get_mut(key) else {
                continue;
            };
            let name = &server_conn.local.service.name;
            if let Some(local) = locals.get(name).or_else(|| removed_locals.get(name)) {
                let old_service = &server_conn.local.service;
                old_service.move_client_count(&local.service, self.cx.worker);
                server_conn.local = Rc::clone(local);
            }
        }
        // HTTP/1 clients of a removed service are closed only after their next response, because a request may be on
        // its way.
        self.wake_h2_servers();
    }

    /// Closes sessions that wait for a request, and those that send copies of requests, whose responses are not needed.
    /// Authorization requests continue.
    pub(super) fn close_idle_sessions(&mut self) {
        let must_end = |session: &Session| {
            session.is_idle() || session.is_copy() && !session.is_auth_request()
        };
        for key in self.sessions.keys() {
            if self.sessions.get(key).is_some_and(must_end) {
                self.close(key);
            }
        }
    }
}
