//! The interface between the daemon and the planes: layer 4 and the proxy.
//!
//! It is a trait so that the daemon (request order, bad files, reopened watches) can be tested without a kernel.

use std::collections::BTreeSet;
use std::error::Error;
use std::io;
use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::time::Duration;

use weir_health::{SavedState, Suspended};
use weir_model::{Check, Desired, Pool};
use weir_netlink::Event;
use weir_state::{Ejected, HealthEvent, Override, PoolChange, ServerOrder};
use weir_sys::Channel;

use crate::explain::{Answer, Packet};
use crate::ipvsadm_message as ipvsadm;
use crate::snapshot::Snapshot;
use crate::status::Sync;
use weir_engine::{Engine, ListenerConflict};
use weir_engine_host::AddedServer;
use weir_probing::PathTable;

/// When a probe that was sent directly to a server last passed, since the Unix epoch, by pool and server.
pub type LastPass<'a> = dyn Fn(&str, &str) -> Option<Duration> + 'a;

/// A configuration to apply.
#[derive(Clone, Copy, Debug)]
pub struct Wanted<'a> {
    /// The configuration, with servers of lists.
    pub desired: &'a Desired,
    /// The same without them.
    pub configured: &'a Desired,
    /// Its text, with included files.
    pub text: &'a str,
}

impl Wanted<'_> {
    /// The servers of lists.
    pub fn added(&self) -> Vec<AddedServer> {
        let mut added = Vec::new();
        let configured = self.configured.pools.iter();
        for (pool, own) in self.desired.pools.iter().zip(configured) {
            // Lists come after the servers of the configuration.
            for server in pool.servers.iter().skip(own.servers.len()) {
                added.push(AddedServer {
                    pool: pool.name.clone(),
                    name: server.name.clone(),
                    address: server.address,
                    port: server.port,
                    weight: server.weight,
                    max_connections: server.max_connections,
                    min_connections: server.min_connections,
                    checks: server.checks.as_ref().map(|checks| self.names(checks)),
                });
            }
        }
        added
    }

    /// The names of checks; those of lists have one.
    fn names(&self, checks: &[Check]) -> Vec<String> {
        let named = &self.configured.checks;
        let name = |check: &Check| named.iter().find(|(_, own)| own == check);
        let names = checks.iter().filter_map(name);
        names.map(|(name, _)| name.clone()).collect()
    }
}

/// Operations of the planes.
pub trait Plane {
    /// Why an operation failed.
    type Error: Error + Send + std::marker::Sync + 'static;

    /// The configuration file is being loaded, and will probably be applied.
    fn expect_file(&self) {}

    /// Applies a configuration and returns the revision; on an error, the former configuration stays active.
    fn apply(&mut self, wanted: Wanted<'_>) -> impl Future<Output = Result<u64, Self::Error>>;

    /// Loads the certificate files of `desired`, the active configuration, again; on an error, the former ones stay in
    /// use.
    ///
    /// # Errors
    /// A file cannot be used.
    fn reload_certificates(&mut self, desired: &Desired) -> Result<(), Self::Error> {
        let _ = desired;
        Ok(())
    }

    /// Sets or removes the override of a server.
    fn order_server(
        &mut self,
        pool: &str,
        address: &str,
        order: ServerOrder,
    ) -> impl Future<Output = Result<(), Self::Error>>;

    /// The override of a server. Costs no walk over servers or flows.
    fn overridden(&self, pool: &str, server: &str) -> Option<Override>;

    /// Applies results of checks.
    fn apply_health(&mut self, events: Vec<HealthEvent>) -> Result<(), Self::Error>;

    /// The saved check results of a server that new checks start from.
    fn saved_state(&self, pool: &str, server: &str) -> Option<SavedState>;

    /// Whether an operator has drained a server or put it into maintenance.
    fn is_withdrawn(&self, pool: &str, server: &str) -> bool {
        let _ = (pool, server);
        false
    }

    /// Servers that are ejected by passive checks.
    fn ejected(&self) -> BTreeSet<Ejected> {
        BTreeSet::new()
    }

    /// Ends the ejections that are not in `then`.
    ///
    /// # Errors
    /// The plane's.
    fn end_ejections(&mut self, then: &BTreeSet<Ejected>) -> Result<(), Self::Error> {
        let _ = then;
        Ok(())
    }

    /// Servers in maintenance: they are not checked.
    fn suspended(&self) -> Suspended;

    /// Whether clients of a pool are served.
    fn serves(&self, pool: &str) -> bool {
        let _ = pool;
        true
    }

    /// Whether a server of the pool has checks, and no result yet.
    fn is_settling(&self, pool: &Pool) -> bool {
        let _ = pool;
        false
    }

    /// Whether packets reach the data plane.
    fn is_attached(&self) -> bool {
        true
    }

    /// Takes the changes of pools since the last call.
    fn take_pool_changes(&mut self) -> Vec<PoolChange> {
        Vec::new()
    }

    /// The table of probes that use a service's forwarding method; `None` without an engine.
    fn path_table(&self) -> Option<PathTable> {
        None
    }

    /// The first listener of a file that ipvsadm already uses.
    fn listener_conflict(&self, desired: &Desired) -> Option<ListenerConflict>;

    /// Executes a request of ipvsadm.
    fn ipvsadm(
        &mut self,
        request: &ipvsadm::Request,
    ) -> impl Future<Output = Result<ipvsadm::Answer, Self::Error>>;

    /// Returns the current state.
    fn snapshot(&self) -> Result<Snapshot, Self::Error>;

    /// Returns the services of [`Plane::snapshot`] alone: its other parts may cost more, such as a walk over the flows.
    ///
    /// # Errors
    /// The plane's.
    fn services(&self) -> Result<Snapshot, Self::Error>;

    /// The added VIPs of this machine, by interface.
    fn added_vips(&self) -> Vec<(String, IpAddr)> {
        Vec::new()
    }

    /// Returns the current flows of a service, or of one of its servers.
    fn live_flows(&self, service: &str, server: Option<&str>) -> u64;

    /// Returns the connections of a server over all services that use its pool: open ones, and closed ones that have
    /// not expired.
    ///
    /// # Errors
    /// The plane's.
    fn connections(&self, pool: &str, server: &str) -> Result<(u64, u64), Self::Error> {
        let _ = (pool, server);
        Ok((0, 0))
    }

    /// Explains how a packet would be handled.
    fn explain(&self, packet: &Packet) -> Result<Answer, Self::Error>;

    /// Handles a change of links, addresses, routes or neighbours.
    fn network_event(&mut self, event: &Event) -> impl Future<Output = Result<(), Self::Error>>;

    /// Runs twice per second: repairs changes that other programs made in the kernel.
    fn repair_drift(&mut self) -> impl Future<Output = ()> {
        std::future::ready(())
    }

    /// Runs several times per second: reads handshake counters for passive checks. `passed` returns when a probe that
    /// was sent directly to a server last passed.
    ///
    /// # Errors
    /// The plane's.
    fn watch_clients(&mut self, passed: &LastPass<'_>) -> Result<(), Self::Error> {
        let _ = passed;
        Ok(())
    }

    /// Reads latency samples and publishes costs. Returns the pause until the next call; `None` without an engine.
    ///
    /// # Errors
    /// The plane's.
    fn publish_latency(&mut self) -> Result<Option<Duration>, Self::Error> {
        Ok(None)
    }

    /// Whether another process synchronizes flows.
    fn synchronizes(&self) -> bool {
        false
    }

    /// Flow synchronization by another process.
    fn sync_status(&self) -> Option<Sync> {
        None
    }

    /// Whether another process synchronizes flows, and a change of tables has moved some that not every peer knows yet.
    fn is_moving_flows(&self) -> bool {
        false
    }

    /// The engine, for flow synchronization; `None` without one.
    fn engine(&mut self) -> Option<&mut Engine> {
        None
    }

    /// Runs once per second.
    fn tick(&mut self) -> impl Future<Output = Result<(), Self::Error>>;

    /// Writes the state that a successor needs, and that is neither in the kernel nor in the runtime directory, to a
    /// file.
    ///
    /// # Errors
    /// There is not enough memory.
    fn export_state(&mut self) -> io::Result<OwnedFd> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Reverts the changes of a successor that failed after [`Self::export_state`].
    fn resume(&mut self) -> impl Future<Output = Result<(), Self::Error>> {
        std::future::ready(Ok(()))
    }

    /// Hands over clients to the successor through `channel`, each as soon as possible. Afterwards only
    /// [`Self::is_handed_over`], [`Self::clients`] and [`Self::close`] may be called.
    fn hand_over(&mut self, channel: Channel) {
        drop(channel);
    }

    /// Number of clients, also while draining.
    fn clients(&self) -> u64 {
        0
    }

    /// Whether no client remains.
    fn is_handed_over(&self) -> bool {
        true
    }

    /// Stops; proxied connections get `limit` to end.
    fn close(&mut self, limit: Duration) -> impl Future<Output = ()> {
        let _ = limit;
        std::future::ready(())
    }
}
