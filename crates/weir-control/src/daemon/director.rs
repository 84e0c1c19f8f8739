//! Implements the daemon's main task, which owns the planes and executes requests one at a time.
//!
//! The task owns the active configuration and the path of its file. It does not handle sockets or signals.

mod command;
mod group;
mod guarded_reload;
mod members;
mod node;
mod plan;
mod server;
mod staging;
mod stop;
mod upgrade;

use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use weir_config::FileUse;
use weir_model::{Desired, Track, TrackObject};
use weir_sys::Channel;

use super::admin::Admin;
use super::file_watch::FileWatch;
use super::flow_sync;
use super::group::Group;
use super::host_warning::{self, add_return_path_warnings, attached_interfaces, host_warnings};
use super::local_real_server::LocalRealServer;
use super::reload_history::ReloadHistory;
use super::tracked;
use super::{Error, RuntimeDir};
use crate::announce::{Settling, daemon_report};
use crate::api::{ApiError, Caller, FileRequest, ReloadResponse};
use crate::configuration::{self, Loaded, Rejected, RememberedSecrets};
use crate::explain::{ExplainResponse, Packet, ServerInService};
use crate::group_configuration::GroupConfiguration;
use crate::history::History;
use crate::ipvsadm_message as ipvsadm;
use crate::keeper::{KeeperState, Link};
use crate::plan::plan;
use crate::plane::{Plane, PlaneConfiguration};
use crate::status::{Report, Sync, announce};
use crate::traffic::needs_engine;
use weir_discovery::{Lists, Membership};
use weir_engine_host::{FlowSynchronizer, ProxyListeners};
use weir_netlink::Event;
use weir_probing::Checks;
use weir_runtime_dir::SocketAccess;

use guarded_reload::GuardedReload;
use node::Node;
pub(super) use upgrade::DrainingDaemon;

/// Name under which the keeper stores secrets from files and the environment. After a crash, the active configuration
/// is used again, even if its secret files have been changed or removed.
pub(super) const SECRETS: &str = "secrets";

/// The daemon's main task: it owns the planes and the active configuration, and executes requests one at a time.
#[derive(Debug)]
pub struct Director<P> {
    plane: P,
    /// The active configuration: the configuration file with the servers from server lists.
    desired: Desired,
    /// The active configuration, without the servers from server lists.
    configured: Desired,
    membership: Membership,
    file: PathBuf,
    /// The file's text when it was loaded.
    text: String,
    admin: Admin,
    runtime_dir: RuntimeDir,
    checks: Checks,
    /// Number of daemon crashes since the keeper started, and the cause of the last crash.
    crashes: (u32, Option<String>),
    keeper: Link,
    /// Whether the pins are lost when this process's mount namespace ends, and whether this has been logged.
    pins_are_temporary: bool,
    has_warned_about_pins: bool,
    /// The secrets that the keeper stores.
    stored_secrets: Option<RememberedSecrets>,
    /// The successor's process ID, and the channel to the successor.
    successor: Option<(u32, Channel)>,
    /// The reload whose guard has not ended.
    guarded: Option<GuardedReload>,
    real_server: LocalRealServer,
    reloads: ReloadHistory,
    history: History,
    node: Node,
    sync: FlowSynchronizer,
    group: Group,
    /// Whether data for the active configuration may still be missing: see [`Settling`].
    is_settling: bool,
    certificates: FileWatch,
    lists: FileWatch,
    /// The list files of the active configuration.
    list_files: Vec<PathBuf>,
}

/// Returns the list files that a configuration references.
fn list_files(text: &str) -> Vec<PathBuf> {
    let files = weir_config::named_files(text).into_iter();
    let lists = files.filter(|file| file.used == FileUse::List);
    lists.map(|file| PathBuf::from(file.name)).collect()
}

/// An active configuration with its file and server lists.
#[derive(Debug, Clone)]
struct ActiveConfiguration {
    lists: Lists,
    configured: Desired,
    text: String,
    file: PathBuf,
    group: Option<Arc<GroupConfiguration>>,
}

impl<P: Plane> Director<P> {
    /// Creates a director for a plane that has applied the configuration `loaded` from `file`. Must be called inside a
    /// tokio runtime.
    pub fn new(
        plane: P,
        loaded: Loaded,
        file: PathBuf,
        admin: Admin,
        runtime_dir: RuntimeDir,
        (mut membership, lists): (Membership, Lists),
    ) -> Self {
        let desired = lists.added_to(&loaded.desired);
        membership.commit(&loaded.desired, lists);
        let node = Node::new(runtime_dir.path());
        let group = Group::new(runtime_dir.path());
        let mut director = Self {
            plane,
            desired,
            configured: loaded.desired,
            membership,
            file,
            text: loaded.text,
            admin,
            runtime_dir,
            checks: Checks::start(),
            crashes: (0, None),
            keeper: Link::default(),
            pins_are_temporary: false,
            has_warned_about_pins: false,
            stored_secrets: None,
            successor: None,
            guarded: None,
            real_server: LocalRealServer::default(),
            reloads: ReloadHistory::default(),
            history: History::default(),
            node,
            sync: FlowSynchronizer::default(),
            group,
            is_settling: true,
            certificates: FileWatch::default(),
            lists: FileWatch::default(),
            list_files: Vec::new(),
        };
        director.configure_sync();
        director
            .group
            .configure(director.configured.cluster.as_ref());
        director.configure_checks();
        director.list_files = list_files(&director.text);
        director.record_configuration();
        director
    }

    /// Sets the link to the keeper. The status reports the number of daemon crashes and the cause of the last one.
    pub(crate) fn set_keeper(&mut self, keeper_state: &KeeperState) {
        self.crashes = (keeper_state.restarts, keeper_state.last_death.clone());
        self.keeper = keeper_state.link.clone();
        self.store_secrets();
        self.configure_processes();
        self.pins_are_temporary = keeper_state.pins_are_temporary;
        self.warn_about_temporary_pins();
        if self.node.is_draining() {
            self.node.update_routers(&self.configured);
        }
    }

    /// Makes the keeper start the VRRP processes and the announcer if they are needed, and stop them otherwise. Until
    /// a guard ends, the virtual routers of the previous configuration determine whether VRRP processes are needed.
    fn configure_processes(&mut self) {
        self.keeper
            .configure_vrrp(!self.running_routers().is_empty());
        self.keeper
            .configure_announcer(self.configured.announce.is_some());
        self.announce();
    }

    /// Reports to the announcer and to the group which VIPs can be served.
    pub fn announce(&mut self) {
        let is_draining = self.node.is_draining();
        let settling = match self.is_settling && self.desired.cluster.is_some() {
            false => Settling::Nothing,
            true if self.is_joining_peers() => Settling::Flows,
            true if self.group.lacks_previous_version() => Settling::PreviousVersion,
            true => Settling::Servers,
        };
        let daemon_report = daemon_report(&self.desired, &self.plane, is_draining, settling);
        let mut vip_states = daemon_report.iter().flat_map(|it| &it.vips);
        self.is_settling = vip_states.any(|vip| vip.settling);
        let vips = daemon_report.iter().flat_map(|it| &it.vips);
        let vips = vips.filter(|_| !is_draining);
        let vips = vips.map(|it| (it.vip, it.serves)).collect();
        let mtu = self.plane.smallest_mtu();
        self.group.report(&self.desired, vips, mtu);
        self.node
            .announce(daemon_report, |vip| self.group.must_announce(vip));
    }

    /// Leaves the group, so the other directors need not wait until the lease expires.
    pub(crate) fn leave_group(&mut self) {
        self.group.leave();
    }

    /// Stores the active configuration's secrets in the keeper, for a daemon that starts after a crash.
    fn store_secrets(&mut self) {
        let secrets = RememberedSecrets::of(&self.configured);
        if self.stored_secrets.as_ref() == Some(&secrets) {
            return;
        }
        match secrets.write() {
            Ok(file) if !secrets.is_empty() => self.keeper.store_file(SECRETS, file.as_fd()),
            Ok(_) => self.keeper.remove_file(SECRETS),
            Err(error) => {
                tracing::warn!(
                %error,
                "failed to store secrets in the keeper; after a crash, they are read from their sources"
                );
            }
        }
        self.stored_secrets = Some(secrets);
    }

    /// Starts maintaining the `weir real-server` settings that are recorded in these directories.
    pub(crate) fn manage_real_server(&mut self, runtime_dir: &Path, pin_dir: &Path) {
        self.real_server = LocalRealServer::new(runtime_dir, pin_dir);
    }

    /// Restores `weir real-server` settings that other programs have changed.
    pub(crate) async fn repair_real_server(&mut self) {
        self.real_server.repair().await;
    }

    /// Warns once if the active configuration needs pins that are lost when this process's mount namespace ends.
    fn warn_about_temporary_pins(&mut self) {
        if self.pins_are_temporary && needs_engine(&self.desired) && !self.has_warned_about_pins {
            self.has_warned_about_pins = true;
            tracing::warn!(
                "forwarding ends when this process is stopped or killed, because the pins are in a mount namespace \
                that ends with this process (`ip netns exec` creates such a namespace); to keep the pins, enter \
                only the network namespace: nsenter --net=/run/netns/NAME"
            );
        }
    }

    /// Stops, and removes the socket, so clients fail immediately.
    ///
    /// # Errors
    /// Fails if the runtime directory cannot be written.
    pub fn close(self) -> Result<(), Error> {
        Ok(self.runtime_dir.remove_socket()?)
    }

    /// Configures the checks according to the active configuration and the overrides.
    fn configure_checks(&self) {
        let saved = |pool: &str, server: &str| self.plane.saved_state(pool, server);
        let (suspended, probes) = (self.plane.suspended(), self.plane.path_table());
        self.checks
            .configure(&self.desired, &suspended, &saved, probes);
    }

    /// Reads and evaluates handshake counters and applies ejections.
    ///
    /// # Errors
    /// Returns the plane's error.
    pub fn read_handshakes(&mut self) -> Result<(), P::Error> {
        let checks = &self.checks;
        self.plane
            .read_handshakes(&|pool, server| checks.last_pass(pool, server))
    }

    /// Waits for check results. Cancel-safe.
    pub(crate) async fn wait_for_check_results(&self) {
        self.checks.changed().await;
    }

    /// Applies check results.
    ///
    /// # Errors
    /// Returns the plane's error. The results are applied again with the next results.
    pub(crate) async fn apply_check_results(&mut self) -> Result<(), P::Error> {
        let events = self.checks.take_results();
        // If a guarded reload has taken a server down, roll the reload back before clients lose that server.
        if let Some(regression) = self.regression_in(&events) {
            self.roll_back(&regression).await;
            return Ok(());
        }
        let events = self.group.apply_verdicts(events);
        let applied = self.plane.apply_health(events);
        self.notify_pool_changes();
        applied
    }

    /// Configures flow synchronization in this process, unless the engine process synchronizes flows.
    fn configure_sync(&mut self) {
        let config = self.configured.sync.as_ref();
        let is_sync_local = !self.plane.synchronizes();
        self.sync.configure(config.filter(|_| is_sync_local));
        if is_sync_local {
            self.sync
                .set_listeners(ProxyListeners::new(&self.configured));
        }
    }

    /// Passes a network event to flow synchronization in this process.
    pub(super) fn pass_event_to_sync(&mut self, event: &Event) {
        self.sync.network_event(event);
    }

    /// Exchanges flows with other directors. Returns the pause until the next call.
    pub fn synchronize(&mut self) -> Duration {
        self.sync.step(self.plane.engine())
    }

    /// Returns whether a table change has selected flows for sending that have not yet been sent to every `[sync]`
    /// peer.
    pub(super) fn is_moving_flows(&mut self) -> bool {
        match self.plane.synchronizes() {
            true => self.plane.is_moving_flows(),
            false => self.sync.is_moving(self.plane.engine().as_deref()),
        }
    }

    /// Returns whether this director has not yet received all flows of its `[sync]` peers.
    fn is_joining_peers(&mut self) -> bool {
        match self.plane.synchronizes() {
            true => self.plane.is_joining_peers(),
            false => self.sync.is_joining(self.plane.engine().as_deref()),
        }
    }

    /// Runs the notifier programs for pool state changes, and updates the announcements.
    pub(crate) fn notify_pool_changes(&mut self) {
        for change in self.plane.take_pool_changes() {
            self.checks.notify_pool_change(&change, &self.desired);
        }
        self.announce();
    }

    /// Records the active configuration, for commands that run without a daemon and for the next daemon after a crash.
    fn record_configuration(&mut self) {
        self.record_configuration_of(&self.file, &self.text);
        self.configure_processes();
        self.warn_about_temporary_pins();
    }

    fn record_configuration_of(&self, file: &Path, text: &str) {
        if let Err(error) = self.runtime_dir.record_configuration(file, text) {
            tracing::warn!(%error, "failed to record the active configuration");
        }
    }

    /// Returns the plane.
    pub fn plane(&mut self) -> &mut P {
        &mut self.plane
    }

    /// Adds the services' totals to the history.
    ///
    /// # Errors
    /// Returns the plane's error.
    pub(crate) fn record_history(&mut self) -> Result<(), P::Error> {
        let now = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
        self.history.record(&self.plane.services()?, now);
        Ok(())
    }

    fn status(&self) -> Result<Report, ApiError> {
        let mut snapshot = self.plane.snapshot().map_err(ApiError::new)?;
        snapshot.add_checks(&self.checks);
        snapshot.drift.real_server = self.real_server.repaired();
        let (restarts, last_death) = self.crashes.clone();
        let announced = self.node.report();
        Ok(Report {
            pid: Some(std::process::id()),
            restarts,
            last_death,
            draining: self.runtime_dir.draining(),
            sources: self.membership.sources(&self.configured),
            vrrp: self.router_status(),
            drained: self.node.is_draining(),
            pins_are_temporary: self.pins_are_temporary && needs_engine(&self.desired),
            announce_error: match (&self.configured.announce, &announced) {
                (Some(_), None) => Some("the announcer has not sent a report".to_owned()),
                (_, report) => report.as_ref().and_then(|report| report.error.clone()),
            },
            announce_warning: announced.as_ref().and_then(|report| report.warning.clone()),
            announce: announced.map(announce::routes).unwrap_or_default(),
            sync: match self.plane.synchronizes() {
                true => self.plane.sync_status(),
                false => self.sync.status().map(Sync::from),
            },
            cluster: self.group.status(),
            reloads: self.reloads.all(),
            reload_counts: self.reloads.counts(),
            admin_certificates: self.admin.certificates(SystemTime::now()),
            certificate_error: self.certificates.problem().map(str::to_owned),
            list_error: self.lists.problem().map(str::to_owned),
            ..Report::from(&snapshot)
        })
    }

    /// Reports the state of tracked objects, and whether this director is drained, to the VRRP agent. Does not wait for
    /// the agent.
    pub(crate) fn report_tracked(&self) {
        let routers = self.running_routers();
        if routers.is_empty() {
            return;
        }
        let tracked = || routers.iter().flat_map(|router| &router.track);
        let is_server =
            |track: &Track| matches!(track.object, TrackObject::Service(_) | TrackObject::Pool(_));
        let tracks_servers = tracked().any(is_server);
        // A snapshot takes time proportional to the number of servers and flows, so take one only if servers are
        // tracked.
        let mut observed_state = if tracks_servers {
            self.plane.snapshot().map_or_else(
                |error| {
                    tracing::warn!(%error, "failed to read the data plane");
                    tracked::all_failed(&self.desired)
                },
                |snapshot| tracked::observe(&snapshot, &self.desired),
            )
        } else {
            tracked::data_plane(self.plane.is_attached(), &self.desired)
        };
        observed_state.drained = self.node.is_draining();
        let directory = self.runtime_dir.path().to_owned();
        tokio::task::spawn_blocking(move || {
            if let Err(error) = weir_vrrp_agent::report_observed_state(&directory, &observed_state)
            {
                tracing::debug!(%error, "failed to report the tracked objects to the VRRP agent");
            }
        });
    }

    async fn ipvsadm(&mut self, request: &ipvsadm::Request) -> Result<ipvsadm::Response, ApiError> {
        if let Some(response) = flow_sync::respond_to_ipvsadm(&mut self.sync, request) {
            return Ok(response);
        }
        let result = self.plane.ipvsadm(request).await;
        let mut response = result.map_err(ApiError::new)?;
        if let ipvsadm::Response::Edits(results) = &mut response {
            ipvsadm::name_file(results, &self.file);
        }
        Ok(response)
    }

    fn explain(&self, packet: &Packet) -> Result<ExplainResponse, ApiError> {
        let last_result = |candidate: &ServerInService<'_>| {
            let service = Some(candidate.service);
            let view = self.checks.view(candidate.pool, candidate.server, service);
            view.map(|view| view.reason)
        };
        let explanation = self.plane.explain(packet, &last_result);
        let mut explanation = explanation.map_err(ApiError::new)?;
        let service = explanation.service.as_deref();
        let layer_4 = |name| self.desired.service(name).map(|service| service.source);
        let proxied = |name| self.desired.proxy(name).map(|proxy| proxy.source);
        if let Some(source) = service.and_then(|name| layer_4(name).or_else(|| proxied(name))) {
            let main = self.file.display().to_string();
            let file = self.desired.file_name(source, &main);
            explanation.at = Some(format!("{file}:{}", source.line));
        }
        Ok(explanation)
    }

    /// Loads the requested configuration, within the permissions of `caller`. If the request contains text instead of a
    /// path, the active path is kept.
    fn load(&self, request: &FileRequest, caller: &Caller) -> Result<(PathBuf, Loaded), ApiError> {
        let group = request.group.as_ref().or_else(|| self.group.active());
        let group = group.map(AsRef::as_ref);
        let directory = self.runtime_dir.path();
        if let Some(text) = &request.text {
            if !caller.is_owner() {
                let own_text = configuration::own_part(&self.text, group);
                configuration::permit(own_text, text, request.color).map_err(to_api_error)?;
            }
            let name = Path::new(configuration::TEXT);
            let loaded = configuration::load_text_in_group(text, request.color, group)
                .and_then(|loaded| configuration::with_published_files(loaded, group, directory))
                .and_then(|loaded| configuration::with_usable_files(loaded, name));
            return Ok((self.file.clone(), loaded.map_err(to_api_error)?));
        }
        if request.path.is_some() && !caller.is_owner() {
            return Err(ApiError::new(
                "only root and the daemon's user may specify the path of a configuration",
            ));
        }
        let path: &Path = request.path.as_deref().unwrap_or(&self.file);
        if !path.is_absolute() {
            return Err(ApiError::new(format!(
                "{}: the path must be absolute",
                path.display()
            )));
        }
        let read = configuration::Secrets::Read;
        let loaded = configuration::load_in_group(path, request.color, read, group)
            .and_then(|loaded| configuration::with_published_files(loaded, group, directory))
            .and_then(|loaded| configuration::with_usable_files(loaded, path));
        let loaded = if caller.is_owner() {
            loaded.map_err(to_api_error)?
        } else {
            loaded
                .map_err(Rejected::without_quotes)
                .map_err(to_api_error)?
                .without_quotes()
        };
        Ok((path.to_owned(), loaded))
    }

    /// Applies a configuration. If this fails, nothing changes.
    ///
    /// # Errors
    /// Fails if the configuration has an error or cannot be applied on this host.
    pub async fn reload(
        &mut self,
        request: &FileRequest,
        caller: &Caller,
    ) -> Result<ReloadResponse, ApiError> {
        let result = self.reload_unconfirmed(request, caller).await;
        if result.is_ok() {
            // A new reload confirms the guarded reload.
            self.end_guard();
        }
        result
    }

    /// Applies a configuration without recording it as active and without ending a guard. If this fails, nothing
    /// changes.
    async fn reload_unconfirmed(
        &mut self,
        request: &FileRequest,
        caller: &Caller,
    ) -> Result<ReloadResponse, ApiError> {
        let result = self.try_reload(request, caller).await;
        self.reloads.add(&result, SystemTime::now());
        match &result {
            Ok(reloaded) => {
                tracing::info!(
                    file = %self.file.display(),
                    revision = reloaded.revision,
                    changes = reloaded.changes.len(),
                    "reloaded"
                );
            }
            Err(error) => tracing::error!(error = %error, "reload failed"),
        }
        result
    }

    fn active_configuration(&self) -> ActiveConfiguration {
        ActiveConfiguration {
            lists: self.membership.lists(),
            configured: self.configured.clone(),
            text: self.text.clone(),
            file: self.file.clone(),
            group: self.group.active().cloned(),
        }
    }

    fn set_active(&mut self, active: ActiveConfiguration) {
        self.desired = active.lists.added_to(&active.configured);
        self.is_settling = true;
        self.membership.commit(&active.configured, active.lists);
        self.configured = active.configured;
        self.text = active.text;
        self.file = active.file;
        self.configure_sync();
        self.group.set_active(active.group);
        self.configure_group();
        self.store_secrets();
        self.configure_checks();
        self.list_files = list_files(&self.text);
        self.lists
            .set_loaded(weir_proxy::file_fingerprint(&self.list_files));
    }

    /// Applies lists (networks, hosts, users, maps) if their files have changed. If any file cannot be used, all
    /// previous lists stay in use.
    pub(crate) async fn watch_lists(&mut self) {
        if self.list_files.is_empty() {
            return;
        }
        let fingerprint = weir_proxy::file_fingerprint(&self.list_files);
        if !self.lists.poll(fingerprint) {
            return;
        }
        match self.apply_changed_lists().await {
            Ok(()) => tracing::info!("loaded changed list files"),
            Err(error) => {
                tracing::error!(
                    error,
                    "failed to load changed list files; the previous lists remain in use"
                );
                self.lists.set_failed(fingerprint, error);
            }
        }
    }

    async fn apply_changed_lists(&mut self) -> Result<(), String> {
        let remembered = RememberedSecrets::of(&self.configured);
        let group = self.group.active().map(AsRef::as_ref);
        let loaded = configuration::reload_lists(&self.text, &remembered).and_then(|loaded| {
            configuration::with_published_files(loaded, group, self.runtime_dir.path())
        });
        let loaded = loaded.map_err(|rejected| rejected.summary)?;
        let lists = self.membership.lists();
        let desired = lists.added_to(&loaded.desired);
        let plane_configuration = PlaneConfiguration {
            desired: &desired,
            configured: &loaded.desired,
            text: &self.text,
        };
        let applied = self.plane.apply(plane_configuration).await;
        applied.map_err(|error| error.to_string())?;
        self.set_active(ActiveConfiguration {
            lists,
            configured: loaded.desired,
            text: self.text.clone(),
            file: self.file.clone(),
            group: self.group.active().cloned(),
        });
        Ok(())
    }

    /// Loads certificates and lists if their files have changed.
    pub(crate) async fn watch_files(&mut self) {
        self.group.compare_files();
        self.watch_certificates().await;
        self.watch_lists().await;
    }

    /// Loads certificate files that have changed. If any file cannot be used, all previous certificates stay in use.
    pub(crate) async fn watch_certificates(&mut self) {
        let fingerprint = weir_proxy::certificate_fingerprint(&self.desired);
        if !self.certificates.poll(fingerprint) {
            return;
        }
        let admin = self.configured.node.admin.as_ref();
        let problem = weir_proxy::inspect_checks(&self.desired).into_iter().next();
        let prepared = match problem {
            Some(problem) => Err(problem.message),
            None => {
                let prepared = self.admin.prepare(admin).await;
                prepared.map_err(|error| error.to_string())
            }
        };
        let loaded = prepared.and_then(|admin| {
            let reloaded = self.plane.reload_certificates(&self.desired);
            reloaded.map_err(|error| error.to_string())?;
            self.admin.commit(admin);
            self.checks.reload_certificates();
            Ok(())
        });
        match loaded {
            Ok(()) => {
                tracing::info!("loaded changed certificate files");
                self.certificates.set_loaded(fingerprint);
            }
            Err(error) => {
                tracing::error!(
                    error,
                    "failed to load changed certificate files; the previous certificates remain in use"
                );
                self.certificates.set_failed(fingerprint, error);
            }
        }
    }

    async fn try_reload(
        &mut self,
        request: &FileRequest,
        caller: &Caller,
    ) -> Result<ReloadResponse, ApiError> {
        let is_active_file = request.path.as_ref().is_none_or(|path| *path == self.file);
        if is_active_file && request.text.is_none() {
            self.plane.preload_configuration();
        }
        let (path, loaded) = self.load(request, caller)?;
        if let Some(conflict) = self.plane.listener_conflict(&loaded.desired) {
            return Err(ApiError::new(format!("{}:{conflict}", path.display())));
        }
        self.membership.resolve_new(&loaded.desired).await;
        let lists = self.membership.read_for_reload(&loaded.desired);
        let desired = lists.added_to(&loaded.desired);
        let no_flows = |_: &str, _: Option<&str>| 0;
        let added = self.plane.added_vips();
        let planned = plan(&self.desired, &desired, &no_flows, &added);
        let attached = attached_interfaces(&self.plane, &self.desired, &desired);
        let mut warnings = host_warnings(&desired, &added, &attached, request, &path).await;
        let versions = (&self.desired, &desired);
        add_return_path_warnings(&mut warnings, &self.plane, versions, request, &path);
        let access = SocketAccess::from_node(&loaded.desired.node).map_err(ApiError::new)?;
        let admin = self.admin.prepare(loaded.desired.node.admin.as_ref()).await;
        let admin = admin.map_err(ApiError::new)?;
        let plane_configuration = PlaneConfiguration {
            desired: &desired,
            configured: &loaded.desired,
            text: &loaded.text,
        };
        let applied = self.plane.apply(plane_configuration).await;
        let revision = applied.map_err(ApiError::new)?;
        self.admin.commit(admin);
        if let Err(error) = self.runtime_dir.set_access(access) {
            tracing::error!(%error, "failed to set the socket's group and mode; the previous values remain in effect");
        }
        self.set_active(ActiveConfiguration {
            lists,
            configured: loaded.desired,
            text: loaded.text,
            file: path,
            group: match &request.group {
                Some(candidate) => Some(Arc::clone(candidate)),
                None => self.group.active().cloned(),
            },
        });
        let fingerprint = weir_proxy::certificate_fingerprint(&self.desired);
        self.certificates.set_loaded(fingerprint);
        Ok(ReloadResponse {
            revision,
            changes: planned.changes.into_iter().map(|it| it.change).collect(),
            findings: loaded.findings + &host_warning::format_findings(&warnings, request, caller),
        })
    }
}

/// Returns the error for a rejected configuration.
fn to_api_error(rejected: Rejected) -> ApiError {
    ApiError {
        error: rejected.summary,
        diagnostics: Some(rejected.diagnostics),
        is_stopping: false,
    }
}
