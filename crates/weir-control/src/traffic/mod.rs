//! Manages services of both kinds under one configuration: the layer 4 engine, if needed, and the proxy.
//!
//! With proxy services alone there is no engine: nothing is loaded, attached or pinned, and only listening needs
//! capabilities. A configuration is applied to both or to neither: first the proxy is prepared, then the engine
//! applies, and then the proxy commits, which cannot fail.
//!
//! [`ServerStates`] is the only state of servers. Both planes get their weights from it (`server_state`).

mod cookie_key;
mod error;
mod handover;
mod handover_file;
mod layer4;
mod offline;
mod path;
mod plane;
mod request_outcome;
mod server_state;
mod status;

pub use error::{Error, check_rights};
pub(crate) use offline::Offline;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::thread::JoinHandle;

use weir_model::{Desired, Pool};
use weir_proxy::ServiceTickets;
use weir_state::ServerStates;
use weir_sys::privileged;

use self::cookie_key::CookieKey;
use self::handover::Handover;
use self::handover_file::HandoverFile;
use self::layer4::{Layer4, RemoteOpening};
use self::request_outcome::LastSuccess;
use self::server_state::{apply_to_proxy, now};
use crate::configuration;
use crate::keeper::{self, Kept, Link, Takeover};
use crate::order_file::OrderStore;
use crate::plane::Wanted;
use crate::trace_export::TraceExport;
use weir_engine::vip::Vips;
use weir_engine::{Opening, Paths};
use weir_engine_host::EngineClient;

/// The kind of the proxy's listening sockets in the keeper.
const SOCKETS: &str = "proxy";

/// Name of the file with TLS ticket keys in the keeper. The keys are never written to disk, and a daemon that starts
/// after a crash needs them.
const TICKETS: &str = "tickets";

/// Whether `desired` needs the layer 4 engine. A file without any service does: ipvsadm may add services.
pub(crate) fn needs_engine(desired: &Desired) -> bool {
    !desired.services.is_empty() || desired.proxies.is_empty()
}

/// What the engine of another process gets instead of a configuration.
#[derive(Debug, Default)]
struct Base {
    text: String,
    configured: Desired,
}

/// What of a configuration needs the rights of root in the daemon. `keeper_reads_file`: the keeper's processes of
/// virtual routers and announced VIPs read root's file.
pub(crate) fn root_reason(desired: &Desired, keeper_reads_file: bool) -> Option<&'static str> {
    if !keeper_reads_file && !desired.vrrp.is_empty() {
        return Some(
            "the keeper is of an earlier version, and the configuration has virtual routers",
        );
    }
    if !keeper_reads_file && desired.announce.is_some() {
        return Some("the keeper is of an earlier version, and the configuration announces VIPs");
    }
    None
}

/// The services of both kinds, under one configuration.
#[derive(Debug)]
pub struct Traffic {
    paths: Paths,
    engine: Option<Layer4>,
    /// The process that owns the engine, where this one has no rights.
    host: Option<EngineClient>,
    /// A service manager has started this process without rights.
    is_service: bool,
    /// See [`root_reason`].
    keeper_reads_file: bool,
    /// Text and lists of the active configuration.
    base: Base,
    /// Addresses of proxy services while there is no engine.
    vips: Vips,
    proxy: weir_proxy::Proxy,
    cookie_key: CookieKey,
    desired: Desired,
    /// The state of servers, for both planes.
    states: ServerStates,
    /// The file that owns overrides.
    orders: OrderStore,
    last_success: LastSuccess,
    keeper: Link,
    /// Number of sockets per address that the keeper holds.
    kept: BTreeMap<SocketAddr, usize>,
    /// The ticket keys that the keeper holds.
    kept_tickets: Vec<ServiceTickets>,
    /// Thread that sends connections to the successor.
    sender: Option<JoinHandle<()>>,
    /// Thread that receives connections from the predecessor.
    receiver: Option<JoinHandle<()>>,
    /// The counters that the successor has already.
    exported_counts: Vec<weir_proxy::ServiceStatus>,
    /// State for the next daemon.
    handover_file: HandoverFile,
    traces: TraceExport,
}

impl Traffic {
    /// Applies a configuration and adopts the pinned data plane. Must be called inside a tokio runtime, in the
    /// director's network namespace.
    ///
    /// # Errors
    /// The configuration cannot be applied, or the kernel rejects a change. A data plane that was running continues.
    pub async fn open(paths: &Paths, wanted: Wanted<'_>, kept: &mut Kept) -> Result<Self, Error> {
        let desired = wanted.desired;
        let (orders, overrides) = OrderStore::open(&paths.runtime_dir);
        let has_orders = overrides.is_some();
        let mut traffic = Self {
            paths: paths.clone(),
            engine: None,
            host: kept.engine.take(),
            keeper_reads_file: kept.reads_file,
            base: Base::default(),
            vips: Vips::new(&paths.runtime_dir),
            is_service: kept.facts.is_some(),
            proxy: weir_proxy::Proxy::new(),
            cookie_key: CookieKey::new(&paths.runtime_dir),
            desired: Desired::default(),
            states: ServerStates::default(),
            orders,
            last_success: LastSuccess::default(),
            keeper: kept.link.clone(),
            kept: BTreeMap::new(),
            kept_tickets: Vec::new(),
            sender: None,
            receiver: None,
            exported_counts: Vec::new(),
            handover_file: HandoverFile::new(&paths.runtime_dir),
            traces: TraceExport::default(),
        };
        let left = kept.take_sockets(SOCKETS);
        for (address, _) in &left {
            *traffic.kept.entry(*address).or_default() += 1;
        }
        traffic.proxy.adopt(left);
        let mut takeover = kept.takeover.take();
        let handover = match &mut takeover {
            Some(takeover) => Some(Handover::read(&mut takeover.state)),
            None => traffic.handover_file.read(),
        };
        let mut handover = handover.unwrap_or_default();
        let tickets = match kept.take_file(TICKETS).map(File::from) {
            Some(mut file) if takeover.is_none() => Handover::read(&mut file).tickets(),
            _ => handover.tickets(),
        };
        traffic.proxy.adopt_tickets(tickets);
        let prepared = traffic.prepare(desired)?;
        traffic.proxy.count_from(&prepared, &handover.services());
        let is_proxied = |pool: &str| proxied_pools(desired).any(|it| it.name == pool);
        traffic.states = handover.states(overrides.unwrap_or_default(), is_proxied);
        // A pinned data plane of an earlier configuration must be updated: its services are gone.
        let is_local = traffic.host.is_none();
        let mut pinned =
            kept.pinned || is_local && weir_engine::is_pinned(paths) && check_rights().is_ok();
        if pinned && is_local && !needs_engine(desired) && weir_engine::clean_unused(paths).await? {
            pinned = false;
        }
        traffic.check_separation(desired)?;
        if needs_engine(desired) || pinned || traffic.adds_addresses_elsewhere(desired) {
            traffic.open_engine(wanted, Some(has_orders)).await?;
        } else {
            traffic.vips.apply(desired).await?;
        }
        traffic.commit(prepared, desired);
        traffic.note_base(wanted);
        if let Some(takeover) = takeover {
            traffic.receive(takeover);
        }
        Ok(traffic)
    }

    /// Takes over connections and counters of the former daemon until it has sent all.
    fn receive(&mut self, takeover: Takeover) {
        let mut inlet = self.proxy.inlet();
        self.receiver = Some(std::thread::spawn(move || {
            keeper::receive(&takeover.channel, &mut inlet, |inlet, mut file| {
                inlet.count(&Handover::read(&mut file).services());
            });
        }));
    }

    /// Opens everything that the proxy needs for a configuration.
    fn prepare(&mut self, desired: &Desired) -> Result<weir_proxy::Prepared, Error> {
        if let Some(key) = self.cookie_key.first_for(desired)? {
            self.proxy.set_cookie_key(key);
        }
        Ok(self.proxy.prepare(desired)?)
    }

    /// Opens the engine. When the daemon starts, its state file is adopted; `has_orders` is whether the owner file of
    /// overrides exists. Later the states in memory are newer than any file.
    async fn open_engine(
        &mut self,
        wanted: Wanted<'_>,
        has_orders: Option<bool>,
    ) -> Result<(), Error> {
        if let Some(host) = &self.host {
            let (opening, saved) = RemoteOpening::begin(host, wanted)?;
            if let Some(has_orders) = has_orders
                && let Err(source) = self.orders.adopt(&mut self.states, saved, has_orders)
            {
                opening.cancel();
                let path = self.orders.path().to_owned();
                return Err(Error::File { path, source });
            }
            let remote = opening.finish(&self.states)?;
            self.engine = Some(Layer4::Remote(Box::new(remote)));
            return Ok(());
        }
        check_rights()?;
        let (opening, saved) = Opening::begin(&self.paths, wanted.desired).await?;
        if let Some(has_orders) = has_orders
            && let Err(source) = self.orders.adopt(&mut self.states, saved, has_orders)
        {
            opening.cancel().await;
            let path = self.orders.path().to_owned();
            return Err(Error::File { path, source });
        }
        let engine = opening.finish(&self.states).await?;
        self.engine = Some(Layer4::Local(Box::new(engine)));
        Ok(())
    }

    /// Opens the engine with the active configuration.
    async fn open_engine_again(&mut self) -> Result<(), Error> {
        let (desired, base) = (self.desired.clone(), std::mem::take(&mut self.base));
        let wanted = Wanted {
            desired: &desired,
            configured: &base.configured,
            text: &base.text,
        };
        let opened = self.open_engine(wanted, None).await;
        self.base = base;
        opened
    }

    /// Rejects what a daemon without rights cannot do yet.
    fn check_separation(&self, desired: &Desired) -> Result<(), Error> {
        match root_reason(desired, self.keeper_reads_file).filter(|_| self.host.is_some()) {
            Some(reason) => Err(Error::Separated { reason }),
            None => Ok(()),
        }
    }

    /// Whether the process that owns the engine must add addresses of proxy services, for which there is no other one.
    fn adds_addresses_elsewhere(&self, desired: &Desired) -> bool {
        self.is_service && desired.node.vip_interface.is_some()
    }

    /// Rejects sections that processes of root would refuse.
    fn check_sections(&self, wanted: &Wanted<'_>) -> Result<(), Error> {
        let desired = wanted.desired;
        let is_used = !desired.vrrp.is_empty() || desired.announce.is_some();
        let Some(helper) = privileged::helper().filter(|_| is_used) else {
            return Ok(());
        };
        // Published services have an effect on virtual routers; the helper knows the director's own file alone.
        let own = configuration::own_desired(wanted.text, desired);
        helper
            .permits_sections(weir_helper::section_digest(own.as_ref().unwrap_or(desired)))
            .map_err(Error::Refused)
    }

    /// Notes what another process needs to open the engine.
    fn note_base(&mut self, wanted: Wanted<'_>) {
        if self.host.is_some() {
            self.base = Base {
                text: wanted.text.to_owned(),
                configured: wanted.configured.clone(),
            };
        }
    }

    /// Writes the state for the next daemon, if there is a proxy service.
    fn write_handover(&mut self) {
        let services = self.proxy.status();
        if !services.is_empty() {
            let handover = Handover::new(&self.states, &services);
            self.handover_file.write(&handover);
        }
    }

    /// Commits a prepared configuration to the proxy.
    fn commit(&mut self, prepared: weir_proxy::Prepared, desired: &Desired) {
        self.proxy.commit(prepared);
        self.traces
            .configure(desired.tracing.as_ref(), self.proxy.traces());
        for why in self.proxy.exceeding(desired) {
            tracing::warn!("{why}");
        }
        self.pass_sockets();
        self.pass_tickets();
        self.desired = desired.clone();
        let servers = proxied_pools(desired).flat_map(|pool| {
            let servers = pool.servers.iter().chain(&pool.sorry);
            servers.map(|server| (pool.name.as_str(), server.name.as_str()))
        });
        self.states.handle_proxied(servers, now());
        self.orders.count_revision(desired, self.states.overrides());
        for pool in proxied_pools(&self.desired) {
            self.states.update_pool(pool);
            apply_to_proxy(&mut self.proxy, pool, &self.states);
        }
    }

    /// Passes the ticket keys to the keeper, for a daemon that starts after a crash; they change every few hours.
    fn pass_tickets(&mut self) {
        let tickets = self.proxy.tickets();
        if tickets == self.kept_tickets {
            return;
        }
        match Handover::default().with_tickets(&tickets).write() {
            Ok(file) => self.keeper.keep_file(TICKETS, file.as_fd()),
            Err(error) => {
                tracing::warn!(%error, "TLS sessions will not be resumed after a crash of the daemon");
                self.keeper.forget_file(TICKETS);
            }
        }
        self.kept_tickets = tickets;
    }

    /// Passes listening sockets to the keeper, so that a crash does not close them.
    fn pass_sockets(&mut self) {
        let mut former = std::mem::take(&mut self.kept);
        for (address, sockets) in self.proxy.listening() {
            let held = former.remove(&address).unwrap_or(0);
            for (number, socket) in sockets.iter().enumerate().skip(held) {
                self.keeper.keep(SOCKETS, address, number, socket.as_fd());
            }
            self.kept.insert(address, sockets.len());
        }
        for (address, count) in former {
            (0..count).for_each(|number| self.keeper.forget(SOCKETS, address, number));
        }
    }
}

/// Pools that proxy services use.
fn proxied_pools(desired: &Desired) -> impl Iterator<Item = &Pool> {
    let used: BTreeSet<&str> = desired
        .proxies
        .iter()
        .flat_map(weir_model::Proxy::pools)
        .collect();
    let pools = desired.pools.iter();
    pools.filter(move |pool| used.contains(pool.name.as_str()))
}
