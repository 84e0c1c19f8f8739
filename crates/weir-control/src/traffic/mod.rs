//! Manages the services in a configuration: layer 4 services in the engine, if needed, and proxy services.
//!
//! If there are only proxy services, no engine is opened: nothing is loaded, attached or pinned, and capabilities are
//! needed only for listening. A configuration is applied to both planes or to neither: the proxy prepares the
//! configuration, the engine applies it, and then the proxy commits it, which cannot fail.
//!
//! [`ServerStates`] is the only place where server state is stored. Both planes use the weights that it computes (see
//! `server_state`).

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

pub use error::{Error, check_capabilities};
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
use crate::keeper::{self, KeeperState, Link, Takeover};
use crate::override_file::OverrideStore;
use crate::plane::PlaneConfiguration;
use crate::trace_export::TraceExport;
use weir_engine::vip::Vips;
use weir_engine::{Opening, Paths};
use weir_engine_host::EngineClient;

/// The kind under which the keeper stores the proxy's listening sockets.
const SOCKETS: &str = "proxy";

/// The name under which the keeper stores the file with TLS ticket keys. The keys are never written to disk, but a
/// daemon that starts after a crash needs them.
const TICKETS: &str = "tickets";

/// Returns whether `desired` needs the layer 4 engine. A configuration without any services needs it, because ipvsadm
/// can add services.
pub(crate) fn needs_engine(desired: &Desired) -> bool {
    !desired.services.is_empty() || desired.proxies.is_empty()
}

/// The input that the privileged process needs to open the engine for the active configuration.
#[derive(Debug, Default)]
struct OpenRequest {
    text: String,
    configured: Desired,
}

/// Returns the part of a configuration that requires the daemon to run as root; `None` = no part requires this.
/// `keeper_reads_file` specifies whether the VRRP agent and the announcer, which the keeper starts, read the
/// configuration file themselves.
pub(crate) fn root_reason(desired: &Desired, keeper_reads_file: bool) -> Option<&'static str> {
    if !keeper_reads_file && !desired.vrrp.is_empty() {
        return Some(
            "the keeper runs an earlier version, and the configuration has virtual routers",
        );
    }
    if !keeper_reads_file && desired.announce.is_some() {
        return Some("the keeper runs an earlier version, and the configuration announces VIPs");
    }
    None
}

/// The layer 4 and proxy services in one configuration.
#[derive(Debug)]
pub struct Traffic {
    paths: Paths,
    engine: Option<Layer4>,
    /// The process that owns the engine, if this process is unprivileged.
    host: Option<EngineClient>,
    /// Whether a service manager has started this process unprivileged.
    is_service: bool,
    /// Whether the keeper's processes read the configuration file; see [`root_reason`].
    keeper_reads_file: bool,
    /// The active configuration, for a privileged process that must open the engine.
    open_request: OpenRequest,
    /// The addresses that were added for proxy services while there is no engine.
    vips: Vips,
    proxy: weir_proxy::Proxy,
    cookie_key: CookieKey,
    desired: Desired,
    /// Server states, for both planes.
    states: ServerStates,
    /// The overrides file.
    override_store: OverrideStore,
    last_success: LastSuccess,
    keeper: Link,
    /// Number of sockets that the keeper holds for each address.
    keeper_sockets: BTreeMap<SocketAddr, usize>,
    /// The ticket keys that the keeper holds.
    keeper_tickets: Vec<ServiceTickets>,
    /// The thread that sends connections to the successor.
    sender: Option<JoinHandle<()>>,
    /// The thread that receives connections from the predecessor.
    receiver: Option<JoinHandle<()>>,
    /// The counters that were already sent to the successor.
    exported_counts: Vec<weir_proxy::ServiceStatus>,
    /// The file with the state for the next daemon.
    handover_file: HandoverFile,
    traces: TraceExport,
}

impl Traffic {
    /// Opens the planes: applies a configuration and takes over the pinned data plane. Must be called inside a tokio
    /// runtime, in the director's network namespace.
    ///
    /// # Errors
    /// Fails if the configuration cannot be applied, or the kernel rejects a change. A data plane that was already
    /// running continues to run.
    pub async fn open(
        paths: &Paths,
        config: PlaneConfiguration<'_>,
        keeper_state: &mut KeeperState,
    ) -> Result<Self, Error> {
        let desired = config.desired;
        let (override_store, overrides) = OverrideStore::open(&paths.runtime_dir);
        let has_override_file = overrides.is_some();
        let mut traffic = Self {
            paths: paths.clone(),
            engine: None,
            host: keeper_state.engine.take(),
            keeper_reads_file: keeper_state.reads_file,
            open_request: OpenRequest::default(),
            vips: Vips::new(&paths.runtime_dir),
            is_service: keeper_state.root_info.is_some(),
            proxy: weir_proxy::Proxy::new(),
            cookie_key: CookieKey::new(&paths.runtime_dir),
            desired: Desired::default(),
            states: ServerStates::default(),
            override_store,
            last_success: LastSuccess::default(),
            keeper: keeper_state.link.clone(),
            keeper_sockets: BTreeMap::new(),
            keeper_tickets: Vec::new(),
            sender: None,
            receiver: None,
            exported_counts: Vec::new(),
            handover_file: HandoverFile::new(&paths.runtime_dir),
            traces: TraceExport::default(),
        };
        let inherited = keeper_state.take_sockets(SOCKETS);
        for (address, _) in &inherited {
            *traffic.keeper_sockets.entry(*address).or_default() += 1;
        }
        traffic.proxy.adopt(inherited);
        let mut takeover = keeper_state.takeover.take();
        let handover = match &mut takeover {
            Some(takeover) => Some(Handover::read(&mut takeover.state)),
            None => traffic.handover_file.read(),
        };
        let mut handover = handover.unwrap_or_default();
        let tickets = match keeper_state.take_file(TICKETS).map(File::from) {
            Some(mut file) if takeover.is_none() => Handover::read(&mut file).tickets(),
            _ => handover.tickets(),
        };
        traffic.proxy.adopt_tickets(tickets);
        let prepared = traffic.prepare(desired)?;
        traffic
            .proxy
            .add_previous_counts(&prepared, &handover.service_statuses());
        let is_proxied = |pool: &str| proxied_pools(desired).any(|proxied| proxied.name == pool);
        traffic.states = handover.states(overrides.unwrap_or_default(), is_proxied);
        // If a data plane is pinned, update it: its services are no longer configured.
        let is_local = traffic.host.is_none();
        let mut pinned = keeper_state.pinned
            || is_local && weir_engine::is_pinned(paths) && check_capabilities().is_ok();
        if pinned && is_local && !needs_engine(desired) && weir_engine::clean_unused(paths).await? {
            pinned = false;
        }
        traffic.check_privileges(desired)?;
        if needs_engine(desired) || pinned || traffic.needs_engine_for_addresses(desired) {
            traffic.open_engine(config, Some(has_override_file)).await?;
        } else {
            traffic.vips.apply(desired).await?;
        }
        traffic.determine_pool_states();
        traffic.commit(prepared, desired);
        traffic.store_open_request(config);
        if let Some(takeover) = takeover {
            traffic.receive(takeover);
        }
        Ok(traffic)
    }

    /// Determines the states of the engine's pools. Without checks, no event would do this later.
    fn determine_pool_states(&mut self) {
        let pools = self
            .engine
            .iter()
            .flat_map(|engine| &engine.desired().pools);
        for pool in pools {
            self.states.update_pool(pool);
        }
    }

    /// Starts a thread that receives connections and counters from the previous daemon, until that daemon has sent all
    /// of them.
    fn receive(&mut self, takeover: Takeover) {
        let mut receiver = self.proxy.handover_receiver();
        self.receiver = Some(std::thread::spawn(move || {
            keeper::receive(&takeover.channel, &mut receiver, |receiver, mut file| {
                receiver.add_counts(&Handover::read(&mut file).service_statuses());
            });
        }));
    }

    /// Opens everything that the proxy needs for a configuration: sockets, certificates and other files.
    fn prepare(&mut self, desired: &Desired) -> Result<weir_proxy::PreparedPlan, Error> {
        if let Some(key) = self.cookie_key.load_if_needed(desired)? {
            self.proxy.set_cookie_key(key);
        }
        Ok(self.proxy.prepare(desired)?)
    }

    /// Opens the engine. When the daemon starts, the engine's state file is read, and `has_override_file` specifies
    /// whether the overrides file exists. Later, `has_override_file` is `None`, because the states in memory are newer
    /// than those in any file.
    async fn open_engine(
        &mut self,
        plane_configuration: PlaneConfiguration<'_>,
        has_override_file: Option<bool>,
    ) -> Result<(), Error> {
        if let Some(host) = &self.host {
            let (opening, saved) = RemoteOpening::begin(host, plane_configuration)?;
            if let Some(has_override_file) = has_override_file
                && let Err(source) =
                    self.override_store
                        .adopt(&mut self.states, saved, has_override_file)
            {
                opening.cancel();
                let path = self.override_store.path().to_owned();
                return Err(Error::File { path, source });
            }
            let remote = opening.finish(&self.states)?;
            self.engine = Some(Layer4::Remote(Box::new(remote)));
            return Ok(());
        }
        check_capabilities()?;
        let (opening, saved) = Opening::begin(&self.paths, plane_configuration.desired).await?;
        if let Some(has_override_file) = has_override_file
            && let Err(source) =
                self.override_store
                    .adopt(&mut self.states, saved, has_override_file)
        {
            opening.cancel().await;
            let path = self.override_store.path().to_owned();
            return Err(Error::File { path, source });
        }
        let engine = opening.finish(&self.states).await?;
        self.engine = Some(Layer4::Local(Box::new(engine)));
        Ok(())
    }

    /// Reopens the engine with the active configuration.
    async fn reopen_engine(&mut self) -> Result<(), Error> {
        let (desired, request) = (self.desired.clone(), std::mem::take(&mut self.open_request));
        let plane_configuration = PlaneConfiguration {
            desired: &desired,
            configured: &request.configured,
            text: &request.text,
        };
        let result = self.open_engine(plane_configuration, None).await;
        self.open_request = request;
        result
    }

    /// Returns an error if an unprivileged daemon cannot apply the configuration.
    fn check_privileges(&self, desired: &Desired) -> Result<(), Error> {
        match root_reason(desired, self.keeper_reads_file).filter(|_| self.host.is_some()) {
            Some(reason) => Err(Error::NeedsRoot { reason }),
            None => Ok(()),
        }
    }

    /// Returns whether the engine's process must add the addresses of proxy services, or synchronize their connections,
    /// because no other privileged process can.
    fn needs_engine_for_addresses(&self, desired: &Desired) -> bool {
        self.is_service && desired.node.vip_interface.is_some()
            || self.host.is_some() && desired.sync.is_some()
    }

    /// Returns an error if root's processes would reject the `[vrrp]` or `[announce]` section.
    fn check_sections(&self, plane_configuration: &PlaneConfiguration<'_>) -> Result<(), Error> {
        let desired = plane_configuration.desired;
        let is_used = !desired.vrrp.is_empty() || desired.announce.is_some();
        let Some(helper) = privileged::helper().filter(|_| is_used) else {
            return Ok(());
        };
        // The helper reads only the director's own file, so the digest must not include published services, which
        // virtual routers can track.
        let own_desired = configuration::own_desired(plane_configuration.text, desired);
        helper
            .permits_sections(weir_helper::section_digest(
                own_desired.as_ref().unwrap_or(desired),
            ))
            .map_err(Error::Refused)
    }

    /// Stores the input that the privileged process needs to reopen the engine.
    fn store_open_request(&mut self, plane_configuration: PlaneConfiguration<'_>) {
        if self.host.is_some() {
            self.open_request = OpenRequest {
                text: plane_configuration.text.to_owned(),
                configured: plane_configuration.configured.clone(),
            };
        }
    }

    /// Writes the state of proxy services for the next daemon if there are any proxy services.
    fn write_handover(&mut self) {
        let services = self.proxy.status();
        if !services.is_empty() {
            let handover = Handover::new(&self.states, &services);
            self.handover_file.write(&handover);
        }
    }

    /// Commits a prepared configuration to the proxy.
    fn commit(&mut self, prepared: weir_proxy::PreparedPlan, desired: &Desired) {
        self.proxy.commit(prepared);
        self.traces
            .configure(desired.tracing.as_ref(), self.proxy.traces());
        for warning in self.proxy.excessive_limits(desired) {
            tracing::warn!("{warning}");
        }
        self.pass_sockets();
        self.pass_tickets();
        self.desired = desired.clone();
        let servers = proxied_pools(desired).flat_map(|pool| {
            let servers = pool.servers.iter().chain(&pool.sorry);
            servers.map(|server| (pool.name.as_str(), server.name.as_str()))
        });
        self.states.handle_proxy_servers(servers, now());
        self.override_store
            .count_revision(desired, self.states.overrides());
        for pool in proxied_pools(&self.desired) {
            self.states.update_pool(pool);
            apply_to_proxy(&mut self.proxy, pool, &self.states);
        }
    }

    /// Passes the ticket keys to the keeper, for a daemon that starts after a crash. The ticket keys change every few
    /// hours.
    fn pass_tickets(&mut self) {
        let tickets = self.proxy.tickets();
        if tickets == self.keeper_tickets {
            return;
        }
        match Handover::default().with_tickets(&tickets).write() {
            Ok(file) => self.keeper.store_file(TICKETS, file.as_fd()),
            Err(error) => {
                tracing::warn!(
                %error,
                "failed to pass TLS ticket keys to the keeper: TLS sessions cannot be resumed after a crash"
                );
                self.keeper.remove_file(TICKETS);
            }
        }
        self.keeper_tickets = tickets;
    }

    /// Passes listening sockets to the keeper, so that a crash does not close them.
    fn pass_sockets(&mut self) {
        let mut previous = std::mem::take(&mut self.keeper_sockets);
        for (address, sockets) in self.proxy.listening_sockets() {
            let held = previous.remove(&address).unwrap_or(0);
            for (number, socket) in sockets.iter().enumerate().skip(held) {
                self.keeper
                    .store_socket(SOCKETS, address, number, socket.as_fd());
            }
            self.keeper_sockets.insert(address, sockets.len());
        }
        for (address, count) in previous {
            (0..count).for_each(|number| self.keeper.remove_socket(SOCKETS, address, number));
        }
    }
}

/// Returns the pools that proxy services use.
fn proxied_pools(desired: &Desired) -> impl Iterator<Item = &Pool> {
    let pool_names: BTreeSet<&str> = desired
        .proxies
        .iter()
        .flat_map(weir_model::Proxy::pools)
        .collect();
    let pools = desired.pools.iter();
    pools.filter(move |pool| pool_names.contains(pool.name.as_str()))
}
