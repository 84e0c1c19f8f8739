//! Defines the interface between the daemon and the two planes, layer 4 and the proxy.
//!
//! The interface is a trait, so that tests of the daemon (request order, invalid files, reopened watches) do not need a
//! kernel.

use std::collections::BTreeSet;
use std::error::Error;
use std::io;
use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::time::Duration;

use weir_health::{SavedState, SuspendedServers};
use weir_model::{Check, Desired, Pool};
use weir_netlink::Event;
use weir_state::{EjectedServer, HealthEvent, Override, PoolChange, ServerUpdate};
use weir_sys::Channel;

use crate::explain::{ExplainResponse, Packet, ServerInService};
use crate::ipvsadm_message as ipvsadm;
use crate::runtime_dir::RemainingConnections;
use crate::snapshot::Snapshot;
use crate::status::Sync;
use weir_engine::{Engine, ListenerConflict};
use weir_engine_host::AddedServer;
use weir_probing::PathTable;

/// A function that returns when the last probe sent directly to a server passed, as the time since the Unix epoch. Its
/// arguments are the pool and the server.
pub type LastPassedProbe<'a> = dyn Fn(&str, &str) -> Option<Duration> + 'a;

/// The configuration that a plane applies.
#[derive(Clone, Copy, Debug)]
pub struct PlaneConfiguration<'a> {
    /// The configuration with the servers from server lists.
    pub desired: &'a Desired,
    /// The configuration without the servers from server lists.
    pub configured: &'a Desired,
    /// The configuration text, including included files.
    pub text: &'a str,
}

impl PlaneConfiguration<'_> {
    /// Returns the servers from server lists, and those of a different version of the group's configuration.
    pub fn added_servers(&self) -> Vec<AddedServer> {
        let mut result = Vec::new();
        let configured_pools = self.configured.pools.iter();
        for (pool, configured) in self.desired.pools.iter().zip(configured_pools) {
            // The servers from the configuration come first in each pool.
            let listed_servers = pool.servers.iter().skip(configured.servers.len());
            let listed_servers = listed_servers.map(|server| (server, None));
            let other_version_servers = pool.other_version.iter().flat_map(|other_version| {
                let servers = other_version.servers.iter();
                servers.map(|server| (server, Some(other_version.replaces)))
            });
            for (server, replaces_second_hop) in listed_servers.chain(other_version_servers) {
                let checks = server.checks.as_ref();
                let checks = checks.filter(|_| replaces_second_hop.is_none());
                result.push(AddedServer {
                    pool: pool.name.clone(),
                    name: server.name.clone(),
                    address: server.address,
                    port: server.port,
                    weight: server.weight,
                    max_connections: server.max_connections,
                    min_connections: server.min_connections,
                    checks: checks.map(|checks| self.check_names(checks)),
                    replaces_second_hop,
                });
            }
        }
        result
    }

    /// Returns the names of checks. The checks of servers from lists are always named checks in the configuration.
    fn check_names(&self, checks: &[Check]) -> Vec<String> {
        let configured_checks = &self.configured.checks;
        let find = |check: &Check| {
            configured_checks
                .iter()
                .find(|(_, candidate)| candidate == check)
        };
        let found = checks.iter().filter_map(find);
        found.map(|(name, _)| name.clone()).collect()
    }
}

/// The operations of the planes.
pub trait Plane {
    /// Why an operation failed.
    type Error: Error + Send + std::marker::Sync + 'static;

    /// Prepares for a configuration file that is being loaded and that will probably be applied.
    fn preload_configuration(&self) {}

    /// Applies a configuration and returns the revision. On an error, the previous configuration stays active.
    fn apply(
        &mut self,
        plane_configuration: PlaneConfiguration<'_>,
    ) -> impl Future<Output = Result<u64, Self::Error>>;

    /// Reloads the certificate files of `desired`, the active configuration. On an error, the previous certificates
    /// stay in use.
    ///
    /// # Errors
    /// Fails if a certificate file cannot be used.
    fn reload_certificates(&mut self, desired: &Desired) -> Result<(), Self::Error> {
        let _ = desired;
        Ok(())
    }

    /// Sets or removes a server's override.
    fn update_server(
        &mut self,
        pool: &str,
        address: &str,
        update: ServerUpdate,
    ) -> impl Future<Output = Result<(), Self::Error>>;

    /// Returns a server's active override. The time that this takes does not depend on the number of servers and flows.
    fn active_override(&self, pool: &str, server: &str) -> Option<Override>;

    /// Applies check results.
    fn apply_health(&mut self, events: Vec<HealthEvent>) -> Result<(), Self::Error>;

    /// Returns a server's saved check results, which are the initial state of new checks.
    fn saved_state(&self, pool: &str, server: &str) -> Option<SavedState>;

    /// Returns whether an operator has drained a server or put it in maintenance.
    fn is_withdrawn(&self, pool: &str, server: &str) -> bool {
        let _ = (pool, server);
        false
    }

    /// Returns the servers that are ejected by passive checks.
    fn ejected(&self) -> BTreeSet<EjectedServer> {
        BTreeSet::new()
    }

    /// Ends the ejections that are not in `kept`.
    ///
    /// # Errors
    /// Returns the plane's error.
    fn end_ejections_except(&mut self, kept: &BTreeSet<EjectedServer>) -> Result<(), Self::Error> {
        let _ = kept;
        Ok(())
    }

    /// Returns the servers in maintenance, which are not checked.
    fn suspended(&self) -> SuspendedServers;

    /// Returns whether a pool can serve clients.
    fn serves(&self, pool: &str) -> bool {
        let _ = pool;
        true
    }

    /// Returns whether any server in the pool has checks but no result yet.
    fn is_settling(&self, pool: &Pool) -> bool {
        let _ = pool;
        false
    }

    /// Returns whether packets reach the data plane.
    fn is_attached(&self) -> bool {
        true
    }

    /// Returns the smallest MTU of the interfaces with the packet path, in bytes; `None` = no interface has it.
    fn smallest_mtu(&self) -> Option<u32> {
        None
    }

    /// Returns the pool state changes since the last call.
    fn take_pool_changes(&mut self) -> Vec<PoolChange> {
        Vec::new()
    }

    /// Returns the table of probes that use a service's forwarding method; `None` = there is no engine.
    fn path_table(&self) -> Option<PathTable> {
        None
    }

    /// Returns the first listener in a configuration that is already used by a service created with ipvsadm.
    fn listener_conflict(&self, desired: &Desired) -> Option<ListenerConflict>;

    /// Executes a request from ipvsadm.
    fn ipvsadm(
        &mut self,
        request: &ipvsadm::Request,
    ) -> impl Future<Output = Result<ipvsadm::Response, Self::Error>>;

    /// Returns the current state.
    fn snapshot(&self) -> Result<Snapshot, Self::Error>;

    /// Returns only the services of [`Plane::snapshot`]. The other parts may take longer to compute: some require
    /// iterating over all flows.
    ///
    /// # Errors
    /// Returns the plane's error.
    fn services(&self) -> Result<Snapshot, Self::Error>;

    /// Returns the VIPs that Weir has added on this host, with their interfaces.
    fn added_vips(&self) -> Vec<(String, IpAddr)> {
        Vec::new()
    }

    /// Returns the number of live flows of a service, or of one of its servers.
    fn live_flows(&self, service: &str, server: Option<&str>) -> u64;

    /// Returns the number of a server's connections, across all services that use its pool: open connections, and
    /// closed connections that have not expired.
    ///
    /// # Errors
    /// Returns the plane's error.
    fn connections(&self, pool: &str, server: &str) -> Result<(u64, u64), Self::Error> {
        let _ = (pool, server);
        Ok((0, 0))
    }

    /// Explains how a packet would be handled. `last_result` returns the reason for a server's last check result.
    fn explain(
        &self,
        packet: &Packet,
        last_result: &dyn Fn(&ServerInService<'_>) -> Option<String>,
    ) -> Result<ExplainResponse, Self::Error>;

    /// Handles a change to links, addresses, routes or neighbors.
    fn network_event(&mut self, event: &Event) -> impl Future<Output = Result<(), Self::Error>>;

    /// Reverts changes that other programs made in the kernel. Called twice per second.
    fn repair_drift(&mut self) -> impl Future<Output = ()> {
        std::future::ready(())
    }

    /// Reads handshake counters for passive checks. Called several times per second. `passed` returns the time of a
    /// server's last passed direct probe.
    ///
    /// # Errors
    /// Returns the plane's error.
    fn read_handshakes(&mut self, passed: &LastPassedProbe<'_>) -> Result<(), Self::Error> {
        let _ = passed;
        Ok(())
    }

    /// Reads latency samples and publishes the costs of `least-time`. Returns the time until the next call; `None` =
    /// there is no engine.
    ///
    /// # Errors
    /// Returns the plane's error.
    fn publish_latency(&mut self) -> Result<Option<Duration>, Self::Error> {
        Ok(None)
    }

    /// Returns whether another process synchronizes flows.
    fn synchronizes(&self) -> bool {
        false
    }

    /// Returns the status of flow synchronization in another process; `None` = this process synchronizes flows.
    fn sync_status(&self) -> Option<Sync> {
        None
    }

    /// Returns whether another process synchronizes flows and has not yet sent every peer the flows that a table change
    /// moved.
    fn is_moving_flows(&self) -> bool {
        false
    }

    /// Returns whether another process synchronizes flows and has not yet received all flows from the peers.
    fn is_joining_peers(&self) -> bool {
        false
    }

    /// Returns the engine, for flow synchronization; `None` = there is no engine.
    fn engine(&mut self) -> Option<&mut Engine> {
        None
    }

    /// Performs periodic maintenance. Called once per second.
    fn tick(&mut self) -> impl Future<Output = Result<(), Self::Error>>;

    /// Writes to an anonymous file all state that a successor needs, except state in the kernel or in the runtime
    /// directory.
    ///
    /// # Errors
    /// Fails if the file cannot be created or written.
    fn export_state(&mut self) -> io::Result<OwnedFd> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Reverts changes made by a successor that failed after [`Self::export_state`].
    fn resume(&mut self) -> impl Future<Output = Result<(), Self::Error>> {
        std::future::ready(Ok(()))
    }

    /// Starts handing over clients to the successor through `channel`. Each client is handed over as soon as possible.
    /// After this call, only [`Self::is_handed_over`], [`Self::remaining_connections`] and [`Self::close`] may be
    /// called.
    fn hand_over(&mut self, channel: Channel) {
        drop(channel);
    }

    /// Returns the remaining proxied connections. May also be called after [`Self::hand_over`].
    fn remaining_connections(&self) -> RemainingConnections {
        RemainingConnections::default()
    }

    /// Returns whether no client remains.
    fn is_handed_over(&self) -> bool {
        true
    }

    /// Closes the plane. Waits for proxied connections to end, for at most `limit`.
    fn close(&mut self, limit: Duration) -> impl Future<Output = ()> {
        let _ = limit;
        std::future::ready(())
    }
}
