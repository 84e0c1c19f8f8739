//! Attaches programs to cgroups and writes their listeners, to balance connections from this machine.
//!
//! Programs are attached to a new cgroup before its listeners are written, and stay attached to an unused cgroup until
//! its listeners are removed: a new connection matches either the old or the new listener. The hooks that translate
//! addresses back and count flows stay attached while sockets are open.

use std::collections::{BTreeMap, BTreeSet};

use weir_abi::SOCKET_SCOPE_LOCAL;
use weir_dataplane::socket::{self, MAX_SCOPE, Scope, Sockets};
use weir_model::Desired;
use weir_planner::socket::{Key, cgroups, is_enabled, listeners};
use weir_sys::{Cgroup, NetNs};

use super::Engine;
use crate::error::{Error, Result};

/// The state of the cgroup programs.
#[derive(Debug, Default)]
pub(super) struct LocalClients {
    pub(super) maps: Option<Sockets>,
    /// Cookies of sockets that have already been destroyed (`SOCK_DESTROY`).
    pub(super) destroyed: BTreeSet<u64>,
    written_listeners: BTreeMap<Key, u32>,
    wanted_listeners: BTreeMap<Key, u32>,
    /// Scopes that services use, and their cgroups.
    used_scopes: BTreeMap<u32, Cgroup>,
    /// Scopes with programs that this process attached for the current data plane.
    attached_here: BTreeSet<u32>,
    /// Whether the programs of unused scopes are still attached, because they have open sockets.
    has_unused_programs: bool,
}

impl LocalClients {
    /// Marks the programs as outdated: they refer to maps of a replaced data plane.
    pub(super) fn mark_programs_outdated(&mut self) {
        self.attached_here.clear();
    }

    /// Writes changed listeners; additions come before removals.
    ///
    /// # Errors
    /// Fails if the map is full, or the kernel rejects a change.
    pub(super) fn write_listeners(&mut self) -> Result<()> {
        let Some(maps) = &self.maps else {
            return Ok(());
        };
        for (key, row) in &self.wanted_listeners {
            if self.written_listeners.get(key) != Some(row) {
                maps.listeners.set(&key.to_map_key(), row)?;
                self.written_listeners.insert(*key, *row);
            }
        }
        let written_keys: Vec<Key> = self.written_listeners.keys().copied().collect();
        for key in written_keys {
            if !self.wanted_listeners.contains_key(&key) {
                maps.listeners.remove(&key.to_map_key())?;
                self.written_listeners.remove(&key);
            }
        }
        Ok(())
    }
}

/// Scopes by cgroup path.
type ScopesByPath = BTreeMap<Option<String>, u32>;

/// Assigns a scope to every cgroup in the configuration: its current scope, or a free one if it has none. With
/// `balance_own`, the root cgroup also has the scope [`SOCKET_SCOPE_LOCAL`].
fn assign_scopes(
    desired: &Desired,
    attached: &BTreeMap<u32, Scope>,
) -> Result<(ScopesByPath, BTreeMap<u32, Cgroup>)> {
    let mut paths = ScopesByPath::new();
    let mut used: BTreeMap<u32, Cgroup> = BTreeMap::new();
    for path in cgroups(desired) {
        let cgroup = open_cgroup(path)?;
        let candidates = attached.iter().map(|(scope, it)| (*scope, it.cgroup));
        let candidates = candidates.chain(used.iter().map(|(scope, it)| (*scope, it.id())));
        let current_scope = candidates
            .filter(|(scope, id)| *scope != SOCKET_SCOPE_LOCAL && *id == cgroup.id())
            .map(|(scope, _)| scope)
            .next();
        let find_free = || {
            (SOCKET_SCOPE_LOCAL + 1..=MAX_SCOPE)
                .find(|scope| !attached.contains_key(scope) && !used.contains_key(scope))
        };
        let scope = current_scope
            .or_else(find_free)
            .ok_or(Error::Cgroups { limit: MAX_SCOPE })?;
        paths.insert(path.map(str::to_owned), scope);
        used.insert(scope, cgroup);
    }
    if desired.node.balance_own {
        used.insert(SOCKET_SCOPE_LOCAL, open_cgroup(None)?);
    }
    Ok((paths, used))
}

fn open_cgroup(path: Option<&str>) -> Result<Cgroup> {
    let cgroup = path.map_or_else(Cgroup::root, Cgroup::open);
    cgroup.map_err(|source| Error::Cgroup {
        path: path.unwrap_or("(root)").to_owned(),
        source,
    })
}

impl Engine {
    /// Reattaches programs if another program has detached them, or if the cgroup was removed and recreated.
    ///
    /// # Errors
    /// Fails if a cgroup cannot be opened, or the kernel rejects the change.
    pub(super) fn repair_local_clients(&mut self) -> Result<()> {
        let local = &self.local_clients;
        if local.used_scopes.is_empty() {
            return Ok(());
        }
        let attached = socket::scopes(self.plane.pins())?;
        let is_intact = |(scope, cgroup): (&u32, &Cgroup)| {
            attached
                .get(scope)
                .is_some_and(|it| it.complete && it.cgroup == cgroup.id())
        };
        if local.used_scopes.iter().all(is_intact) {
            return Ok(());
        }
        self.prepare_local_clients()?;
        self.local_clients.write_listeners()?;
        self.finish_local_clients()?;
        self.drift.programs += 1;
        tracing::warn!("reattached the programs of a cgroup");
        Ok(())
    }

    /// Attaches the programs to new cgroups and plans the listeners, which [`Self::write_pending`] writes.
    ///
    /// # Errors
    /// Fails if a cgroup cannot be opened, or the kernel rejects the change.
    pub(super) fn prepare_local_clients(&mut self) -> Result<()> {
        let attached = socket::scopes(self.plane.pins())?;
        let local = &mut self.local_clients;
        if local.maps.is_none() {
            let maps = if is_enabled(&self.desired) || !attached.is_empty() {
                Sockets::open(&self.plane)?
            } else {
                return Ok(());
            };
            for (key, row) in maps.listeners.elements()? {
                local.written_listeners.insert(Key::from_map_key(&key), row);
            }
            local.maps = Some(maps);
        }
        let (paths, used) = assign_scopes(&self.desired, &attached)?;
        for (scope, cgroup) in &used {
            if !attached.get(scope).is_some_and(|it| it.complete) {
                attach(&self.plane, *scope, cgroup)?;
                local.attached_here.insert(*scope);
            }
        }
        let services = &self.state.allocation.services;
        local.used_scopes = used;
        local.wanted_listeners = listeners(
            &self.desired,
            |name| services.get(name).map(|slot| slot.row),
            |path| paths.get(&path.map(str::to_owned)).copied(),
        );
        Ok(())
    }

    /// Replaces programs of an earlier process or data plane, and detaches the programs that no service uses.
    ///
    /// # Errors
    /// Fails if the kernel rejects the change.
    pub(super) fn finish_local_clients(&mut self) -> Result<()> {
        let local = &mut self.local_clients;
        if local.maps.is_none() {
            return Ok(());
        }
        for (scope, cgroup) in &local.used_scopes {
            if local.attached_here.insert(*scope) {
                attach(&self.plane, *scope, cgroup)?;
            }
        }
        let attached = socket::scopes(self.plane.pins())?;
        for scope in attached
            .keys()
            .filter(|scope| !local.used_scopes.contains_key(scope))
        {
            socket::stop_balancing(self.plane.pins(), *scope)?;
            local.attached_here.remove(scope);
            local.has_unused_programs = true;
        }
        self.release_local_clients()
    }

    /// Detaches the remaining programs of unused scopes without open sockets.
    ///
    /// # Errors
    /// Fails if the kernel rejects the change.
    pub(super) fn release_local_clients(&mut self) -> Result<()> {
        let local = &mut self.local_clients;
        let Some(maps) = local.maps.as_ref().filter(|_| local.has_unused_programs) else {
            return Ok(());
        };
        let mut open_scopes = BTreeSet::new();
        maps.sockets.for_each(|_, record| {
            open_scopes.insert(u32::from(record.scope));
        })?;
        local.has_unused_programs = false;
        for scope in socket::scopes(self.plane.pins())?.keys() {
            if local.used_scopes.contains_key(scope) {
                continue;
            }
            if open_scopes.contains(scope) {
                local.has_unused_programs = true;
            } else {
                socket::detach(self.plane.pins(), *scope)?;
            }
        }
        Ok(())
    }
}

/// Attaches the programs of a scope. For `SOCKET_SCOPE_LOCAL`, they apply only to processes in the director's network
/// namespace.
fn attach(plane: &weir_dataplane::Dataplane, scope: u32, cgroup: &Cgroup) -> Result<()> {
    use std::os::fd::AsFd;
    let netns = match scope {
        SOCKET_SCOPE_LOCAL => Some(NetNs::current()?.cookie()?),
        _ => None,
    };
    Ok(socket::attach(plane, scope, cgroup.as_fd(), netns)?)
}
