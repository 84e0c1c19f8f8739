//! What the daemon needs of the engine.
//!
//! A trait, so that the daemon's own conduct (orders in turn, bad files, restarts of the watch) is tested without a
//! kernel.

use std::collections::BTreeSet;
use std::error::Error;
use std::io;
use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::time::Duration;

use weir_health::{SavedState, Suspended};
use weir_model::Desired;
use weir_netlink::Event;
use weir_state::{Ejected, HealthEvent, PoolChange, ServerOrder};
use weir_sys::Channel;

use crate::engine::{Claim, LastPass};
use crate::explain::{Answer, Packet};
use crate::ipvsadm;
use crate::snapshot::Snapshot;
use weir_probing::ProbeTable;

/// Everything that the daemon orders and asks.
pub trait Plane {
    /// Why it could not.
    type Error: Error + Send + Sync + 'static;

    /// Brings the kernel to `desired` and answers the revision; on an error what was in force stays.
    fn apply(&mut self, desired: &Desired) -> impl Future<Output = Result<u64, Self::Error>>;

    /// Sets or removes the override of a server.
    fn order_server(
        &mut self,
        pool: &str,
        address: &str,
        order: ServerOrder,
    ) -> impl Future<Output = Result<(), Self::Error>>;

    /// Applies results of checks.
    fn apply_health(&mut self, events: Vec<HealthEvent>) -> Result<(), Self::Error>;

    /// The result of a server's checks that new checks start from, of this run or a former one.
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

    /// Takes the changes of pools since the last call.
    fn take_pool_changes(&mut self) -> Vec<PoolChange> {
        Vec::new()
    }

    /// Where probes through a service's forward are entered; `None` = there is no forward.
    fn probe_table(&self) -> Option<ProbeTable> {
        None
    }

    /// The first listener of a file that ipvsadm has made a service of.
    fn claim(&self, desired: &Desired) -> Option<Claim>;

    /// Answers what ipvsadm asks.
    fn ipvsadm(
        &mut self,
        request: &ipvsadm::Request,
    ) -> impl Future<Output = Result<ipvsadm::Answer, Self::Error>>;

    /// What is true now.
    fn snapshot(&self) -> Result<Snapshot, Self::Error>;

    /// VIPs that Weir added to this machine, by interface.
    fn added_vips(&self) -> Vec<(String, IpAddr)> {
        Vec::new()
    }

    /// Flows of a service, or of one server in it, now.
    fn live_flows(&self, service: &str, server: Option<&str>) -> u64;

    /// Connections of a server over all services that use its pool: those that are open, and those that are closed and
    /// still known.
    ///
    /// # Errors
    /// The plane's.
    fn connections(&self, pool: &str, server: &str) -> Result<(u64, u64), Self::Error> {
        let _ = (pool, server);
        Ok((0, 0))
    }

    /// What would become of a packet.
    fn explain(&self, packet: &Packet) -> Result<Answer, Self::Error>;

    /// A change of links, addresses, routes or neighbours.
    fn network_event(&mut self, event: &Event) -> impl Future<Output = Result<(), Self::Error>>;

    /// Twice a second: what others changed in the kernel is put back.
    fn repair_drift(&mut self) -> impl Future<Output = ()> {
        std::future::ready(())
    }

    /// Several times a second: what clients' packets say of servers. `passed` is asked when a probe that went straight
    /// to a server passed last.
    ///
    /// # Errors
    /// The plane's.
    fn watch_clients(&mut self, passed: &LastPass<'_>) -> Result<(), Self::Error> {
        let _ = passed;
        Ok(())
    }

    /// Once a second.
    fn tick(&mut self) -> impl Future<Output = Result<(), Self::Error>>;

    /// What a successor is to know beside what is in the kernel and the runtime directory, as a file.
    ///
    /// # Errors
    /// There is no memory for it.
    fn export_state(&mut self) -> io::Result<OwnedFd> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// A successor that was bequeathed to has failed: what it may have changed before is taken back.
    fn resume(&mut self) -> impl Future<Output = Result<(), Self::Error>> {
        std::future::ready(Ok(()))
    }

    /// A successor is in charge: clients go to it by `channel`, as soon as each can. Nothing else may be asked of the
    /// plane from now on but [`Self::is_handed_over`], [`Self::clients`] and [`Self::close`].
    fn hand_over(&mut self, channel: Channel) {
        drop(channel);
    }

    /// How many clients are here; also of one that is succeeded.
    fn clients(&self) -> u64 {
        0
    }

    /// Whether nobody is left.
    fn is_handed_over(&self) -> bool {
        true
    }

    /// The daemon ends; proxied connections get `limit`.
    fn close(&mut self, limit: Duration) -> impl Future<Output = ()> {
        let _ = limit;
        std::future::ready(())
    }
}
