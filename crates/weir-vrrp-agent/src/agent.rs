//! Runs the agent's event loop.
//!
//! The loop passes packets, timeouts, network changes, requests and the helper's responses to the state machine, and
//! executes the state machine's outputs through sockets and the helper.

mod address;
mod defend;
mod election;
mod handover;
mod policy;
mod port;
mod refresh;
mod release;
mod reload;
mod reply_receiver;
mod report;

use std::collections::{BTreeSet, HashMap};
use std::ffi::CStr;
use std::future::poll_fn;
use std::path::Path;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;
use tokio::time::{Instant, interval, sleep, timeout};
use weir_defense::Defense;
use weir_helper::{Client, NotifyState, Reply, ReplyWithRouters, Request};
use weir_model::{TrackObject, VirtualRouter};
use weir_netlink::{Event, Link, Netlink, Watch};
use weir_sys::{Channel, Clock, FrameSocket, now_ns};
use weir_vrrp::{Output, PreviousProcess, ReceivedPacket, Router, State};

use crate::control::{self, ObservedState, PendingControlRequest};
use crate::link::{self, Network};
use crate::track::{self, TrackedObject};
use crate::{ACCOUNT, Error, announce};
use handover::{Handover, RecordedRouter};
pub use handover::{active_interval, stop_routers};
use policy::PolicyRetry;
use port::Port;
use refresh::NetworkRefresh;
use reply_receiver::ReplyReceiver;

/// Real-time priority, below that of the kernel's threads.
const REAL_TIME_PRIORITY: i32 = 10;
/// Name of the process from its start as a standby until it has replaced the running agent. The keeper then stops the
/// other agent.
pub const STANDBY_NAME: &CStr = c"weir-standby";
/// Name of the process once it has replaced the running agent.
const NAME: &CStr = c"weir";
/// Maximum number of packets to handle from a socket before checking timers.
const MAX_BATCH: usize = 256;
/// Interval between attempts to open sockets that could not be opened.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);
/// Maximum time to wait for the removal of addresses when the agent stops.
const STOP_TIMEOUT: Duration = Duration::from_secs(2);

/// The purpose of a pending request to the helper.
#[derive(Debug)]
enum Purpose {
    /// See [`Request::Add`].
    Add(String),
    /// See [`Request::Remove`].
    Remove(String),
    /// See [`Request::Retire`].
    Retire(String),
    /// See [`Request::RemoveInactive`].
    RemoveInactive(String),
    /// See [`Request::TakeOver`].
    TakeOver(String),
    Track(usize),
    RemoveAllExcept,
    Notify,
    Policy,
}

struct Agent {
    client: Arc<Client>,
    netlink: Netlink,
    network: Network,
    refresh: NetworkRefresh,
    frames: FrameSocket,
    /// Finds other machines that reply for the addresses of active virtual routers.
    defense: Defense,
    settings: Vec<VirtualRouter>,
    router: Router,
    ports: Vec<Port>,
    tracked: Vec<TrackedObject>,
    pending: HashMap<u64, Purpose>,
    handover: Handover,
    policy_retry: PolicyRetry,
    /// Why addresses could not be removed. The removal is repeated until it succeeds.
    removal_failure: Option<String>,
    /// Names of virtual routers that must not be active; see the `release` module.
    released: BTreeSet<String>,
    /// The daemon's last report on tracked services, pools and the data plane.
    observed_state: Option<ObservedState>,
    /// Whether virtual routers are being stopped because they are no longer configured.
    is_reconfiguring: bool,
    /// Whether this agent was a standby and has not replaced the previous agent yet.
    is_replacing: bool,
}

/// Waits as a standby process until this process must replace the running agent (SIGUSR1), which has exited or is still
/// advertising. Returns false if the process must exit instead (SIGTERM).
async fn wait_as_standby() -> Result<bool, Error> {
    let handler = |kind| signal(kind).map_err(Error::Signals);
    let (mut activate, mut terminate) = (
        handler(SignalKind::user_defined1())?,
        handler(SignalKind::terminate())?,
    );
    // Ignore SIGHUP, which a reload may send while the previous agent exits.
    let _hangup = handler(SignalKind::hangup())?;
    set_name(STANDBY_NAME);
    Ok(tokio::select! {
        biased;
        _ = activate.recv() => true,
        _ = terminate.recv() => false,
    })
}

/// Sets the process name that process lists show.
fn set_name(name: &CStr) {
    let _ = weir_sys::set_process_name(name);
}

/// Runs the agent until SIGTERM. `channel` leads to the helper. If `standby` is true, the agent first waits for
/// SIGUSR1. Standard output must be the state file of the `handover` module. Call this function in a single-threaded
/// tokio runtime while the process has no other threads, because it drops privileges.
///
/// # Errors
/// Returns an error if the helper exits, if it cannot read the virtual routers at the start, or if a socket that all
/// virtual routers need cannot be opened.
pub async fn run(channel: Channel, runtime_dir: &Path, standby: bool) -> Result<(), Error> {
    if standby && !wait_as_standby().await? {
        return Ok(());
    }
    let listener = control::bind(runtime_dir)?;
    if let Err(error) = weir_sys::set_real_time_priority(REAL_TIME_PRIORITY) {
        tracing::warn!(%error, "failed to set real-time priority: advertisements may be late on a busy machine");
    }
    weir_sys::keep_net_raw(weir_sys::account(ACCOUNT))?;
    if let Err(error) = weir_sys::restrict_to_agent_calls() {
        tracing::warn!(%error, "failed to install the system call filter");
    }
    let handler = |kind| signal(kind).map_err(Error::Signals);
    let (mut hangup, mut terminate) = (
        handler(SignalKind::hangup())?,
        handler(SignalKind::terminate())?,
    );
    let netlink = Netlink::open()?;
    let mut watch = netlink.watch()?;
    let client = Arc::new(Client::new(channel));
    let replies = ReplyReceiver::new(&client)?;
    let (sender, mut control_requests) = mpsc::channel(16);
    tokio::spawn(control::accept(listener, sender));
    let mut agent = Agent {
        client,
        netlink,
        network: Network::default(),
        refresh: NetworkRefresh::default(),
        frames: FrameSocket::open()?,
        defense: Defense::default(),
        settings: Vec::new(),
        router: Router::default(),
        ports: Vec::new(),
        tracked: Vec::new(),
        pending: HashMap::new(),
        handover: Handover::open(now()),
        policy_retry: PolicyRetry::default(),
        removal_failure: None,
        released: BTreeSet::new(),
        observed_state: None,
        is_reconfiguring: false,
        is_replacing: standby,
    };
    agent.request_policy()?;
    let mut retries = interval(RETRY_INTERVAL);
    let mut has_more = false;
    loop {
        tokio::select! {
            biased;
            () = agent.wait_readable(), if !has_more => {}
            reply = replies.next() => match reply {
                Some(reply) => agent.handle_reply(reply).await?,
                None => return agent.handle_helper_exit(),
            },
            event = watch.next() => agent.handle_event(event, &mut watch)?,
            // Before the first policy, every virtual router is unknown.
            Some(request) = control_requests.recv(), if !agent.handover.is_first() => {
                agent.handle_control_request(request);
            }
            _ = hangup.recv() => agent.request_policy()?,
            _ = terminate.recv() => break,
            _ = retries.tick() => agent.retry()?,
            () = sleep(if has_more { Duration::ZERO } else { agent.time_until_due() }) => {}
        }
        has_more = agent.handle_due().await?;
    }
    agent.stop(&replies).await
}

/// Removes the requests that preceded a request with a reply. The helper executes requests in order, so an earlier
/// helper has received them and exited before it replied. Only tracked objects are checked concurrently.
fn drop_lost_requests(pending: &mut HashMap<u64, Purpose>, replied: u64) {
    pending.retain(|number, purpose| *number > replied || matches!(purpose, Purpose::Track(_)));
}

/// Returns the time since 1970.
fn unix_time() -> Duration {
    let now = std::time::SystemTime::now();
    now.duration_since(std::time::SystemTime::UNIX_EPOCH)
        .unwrap_or_default()
}

/// Returns the time since boot, including suspend.
fn now() -> Duration {
    Duration::from_nanos(now_ns(Clock::Boottime))
}

impl Agent {
    fn request(&mut self, request: Request, purpose: Purpose) -> Result<(), Error> {
        let number = self.client.request(request)?;
        self.pending.insert(number, purpose);
        Ok(())
    }

    /// Handles received packets and then everything that is due: timers, checks of tracked objects, and last a read of
    /// the network, which can take long. Returns whether more packets may be waiting.
    async fn handle_due(&mut self) -> Result<bool, Error> {
        let has_more = self.receive();
        self.router.handle_timeout(now());
        self.end_elections()?;
        self.check_tracked()?;
        self.flush()?;
        if self.refresh.is_due(now()) {
            self.update_network().await?;
            self.flush()?;
        }
        if self.is_replacing && !self.handover.is_first() {
            self.is_replacing = false;
            set_name(NAME);
        }
        Ok(has_more)
    }

    /// Returns the time until a timer, a check of a tracked object or a read of the network is due.
    fn time_until_due(&self) -> Duration {
        let tracked = self.tracked.iter().filter_map(TrackedObject::due);
        let deadlines = self.router.next_deadline().into_iter().chain(tracked);
        let next = deadlines.chain(self.refresh.due()).min();
        next.map_or(RETRY_INTERVAL, |deadline| deadline.saturating_sub(now()))
    }

    /// Waits until a packet can be received. Cancel-safe.
    async fn wait_readable(&self) {
        poll_fn(|context| {
            let mut ready = false;
            for socket in self.ports.iter().filter_map(Port::socket) {
                // Clear readiness before receiving packets, so that a later packet makes the socket ready again.
                if let Poll::Ready(Ok(mut guard)) = socket.poll_read_ready(context) {
                    guard.clear_ready();
                    ready = true;
                }
            }
            if ready {
                Poll::Ready(())
            } else {
                Poll::Pending
            }
        })
        .await;
    }

    /// Handles received packets. Call it before handling timers, because the packets can show that another director is
    /// active. Returns whether more packets may be waiting.
    fn receive(&mut self) -> bool {
        let mut has_more = false;
        for (index, port) in self.ports.iter().enumerate() {
            let Some(socket) = port.socket() else {
                continue;
            };
            for count in 1..=MAX_BATCH {
                let packet = match socket.get_ref().receive() {
                    Ok(Some(packet)) => packet,
                    Ok(None) => break,
                    Err(error) => {
                        tracing::debug!(%error, "failed to receive a packet");
                        break;
                    }
                };
                let arrival = ReceivedPacket {
                    bytes: &packet.bytes,
                    source: packet.source,
                    destination: packet.destination,
                    hop_limit: packet.hop_limit,
                };
                let peers = &self.settings[index].peers;
                let _ = self
                    .router
                    .handle_packet(index, &arrival, peers, (now(), unix_time()));
                has_more |= count == MAX_BATCH;
            }
        }
        has_more
    }

    /// Plans a read of the network after a change. The loss of a link that a virtual router uses is urgent.
    fn handle_event(
        &mut self,
        event: weir_netlink::Result<Event>,
        watch: &mut Watch,
    ) -> Result<(), Error> {
        let is_urgent = match event {
            Ok(Event::Route { .. } | Event::Neighbor { .. }) => return Ok(()),
            Ok(Event::Link { link, removed }) => {
                if removed || !(link.up && link.carrier) {
                    for port in &mut self.ports {
                        port.addresses.forget_sender(link.index);
                    }
                }
                self.uses_link(&link)
            }
            Ok(Event::Address { .. } | Event::Lost) => false,
            Err(error) => {
                tracing::warn!(%error, "failed to watch the network; reopening the watch");
                *watch = self.netlink.watch()?;
                false
            }
        };
        self.refresh.plan(is_urgent, now());
        Ok(())
    }

    /// Returns whether a virtual router is on the link, has addresses on it, or tracks it.
    fn uses_link(&self, link: &Link) -> bool {
        let name = link.name.as_str();
        let is_tracked =
            |it: &TrackedObject| matches!(&it.kind, TrackObject::Interface(it) if it == name);
        let is_configured = |it: &VirtualRouter| {
            let mut others = it.other_interfaces.iter();
            it.interface.as_deref() == Some(name) || others.any(|other| other.interface == name)
        };
        let mut attachments = self.ports.iter().filter_map(Port::attachment);
        self.tracked.iter().any(is_tracked)
            || self.settings.iter().any(is_configured)
            || attachments.any(|it| it.ifindex == link.index)
    }

    async fn update_network(&mut self) -> Result<(), Error> {
        self.read_network().await?;
        self.attach(true);
        self.remove_inactive_addresses()?;
        self.restore_active(false)
    }

    async fn read_network(&mut self) -> Result<(), Error> {
        let start = now();
        let links = self.netlink.links().await?;
        self.network = Network::new(links, self.netlink.addresses().await?);
        self.refresh.handle_read(start, now());
        Ok(())
    }

    /// Repeats what has failed: getting the virtual routers, opening sockets, and adding and removing addresses. Finds
    /// other machines that reply for the addresses. The caller runs it once per second.
    fn retry(&mut self) -> Result<(), Error> {
        if self.policy_retry.is_due(now()) {
            self.request_policy()?;
        }
        self.attach(false);
        self.remove_again()?;
        self.restore_active(true)?;
        self.defend_addresses();
        Ok(())
    }

    /// Opens a socket for each virtual router that has none, or whose interface or source address has changed, and
    /// evaluates tracked interfaces. If `changed` is true, passes every source address to the state machine.
    fn attach(&mut self, changed: bool) {
        let virtual_addresses = link::virtual_addresses(&self.settings);
        for (index, port) in self.ports.iter_mut().enumerate() {
            let settings = &self.settings[index];
            let attachment = self
                .network
                .attachment(settings, &virtual_addresses, port.source());
            if port.attach(settings, attachment, changed) {
                self.router.handle_source(index, port.source(), now());
            }
        }
        for tracked in &self.tracked {
            if let TrackObject::Interface(name) = &tracked.kind {
                let state = track::up_or_down(self.network.is_up(name));
                self.router
                    .handle_tracked(tracked.router, tracked.object, state, now());
            }
        }
        self.evaluate_observed_state();
    }

    /// Evaluates tracked services, pools and the data plane.
    fn evaluate_observed_state(&mut self) {
        let Some(observed) = &self.observed_state else {
            return;
        };
        for tracked in &self.tracked {
            let is_up = match &tracked.kind {
                TrackObject::Service(name) => observed.services.get(name).copied(),
                TrackObject::Pool(name) => observed.pools.get(name).copied(),
                TrackObject::DataPlane => Some(observed.data_plane),
                _ => None,
            };
            if let Some(is_up) = is_up {
                let state = track::up_or_down(is_up);
                self.router
                    .handle_tracked(tracked.router, tracked.object, state, now());
            }
        }
    }

    /// Requests checks of the tracked objects that are due. The helper performs them, because reading files and the
    /// process list can take longer than an advertisement interval.
    fn check_tracked(&mut self) -> Result<(), Error> {
        let now = now();
        for index in 0..self.tracked.len() {
            let tracked = &mut self.tracked[index];
            if tracked.due().is_none_or(|due| now < due) {
                continue;
            }
            tracked.start();
            let (router, object) = (tracked.router, tracked.object);
            let router = self.settings[router].name.clone();
            self.request(Request::Track { router, object }, Purpose::Track(index))?;
        }
        Ok(())
    }

    async fn handle_reply(&mut self, (reply, routers): ReplyWithRouters) -> Result<(), Error> {
        let Some(purpose) = self.pending.remove(&reply.number) else {
            return Ok(());
        };
        match (purpose, reply.body) {
            (Purpose::Policy, body) => {
                drop_lost_requests(&mut self.pending, reply.number);
                self.handle_policy(body, routers.unwrap_or_default())
                    .await?;
            }
            (Purpose::Add(name), reply) => self.handle_added(&name, reply).await?,
            (Purpose::Track(index), reply) => self.handle_tracked(index, reply),
            (
                Purpose::Remove(router) | Purpose::Retire(router) | Purpose::RemoveInactive(router),
                Reply::Failed { reason },
            ) => self.handle_removal_failure(Some(&router), reason),
            (Purpose::TakeOver(router), Reply::Failed { reason }) => {
                self.handle_take_over_failure(&router, &reason)?;
            }
            (Purpose::RemoveAllExcept, Reply::Failed { reason }) => {
                self.handle_removal_failure(None, reason);
            }
            (Purpose::Notify, Reply::Failed { reason }) => {
                tracing::warn!(reason, "failed to run a notification program");
            }
            (Purpose::RemoveAllExcept, _) => {
                self.handle_removal();
                self.remove_inactive_addresses()?;
            }
            (Purpose::Remove(_) | Purpose::Retire(_), _) => self.remove_inactive_addresses()?,
            (Purpose::RemoveInactive(_) | Purpose::TakeOver(_) | Purpose::Notify, _) => {}
        }
        Ok(())
    }

    /// Applies the configured virtual routers. Then repeats earlier requests, which are lost if the helper is
    /// restarted.
    async fn handle_policy(
        &mut self,
        reply: Reply,
        routers: Vec<VirtualRouter>,
    ) -> Result<(), Error> {
        self.read_network().await?;
        if matches!(reply, Reply::Policy) {
            let is_first = self.settings.is_empty() && self.handover.take_is_first();
            if is_first {
                // The previous agent may have sent advertisements since this one started.
                self.handover.read_again();
            }
            self.apply_policy(routers, is_first)?;
            if is_first {
                self.continue_active_routers();
            }
            self.policy_retry.handle_success();
        } else {
            let reason = match reply {
                Reply::Failed { reason } => reason,
                other => format!("{other:?}"),
            };
            if self.settings.is_empty() {
                return Err(Error::Policy { reason });
            }
            self.policy_retry.handle_failure(reason, now());
        }
        self.attach(true);
        self.remove_inactive_addresses()?;
        self.remove_stale_addresses()?;
        self.record_all();
        self.add_addresses_again()
    }

    /// Keeps virtual routers active that were active in the previous agent.
    fn continue_active_routers(&mut self) {
        for (index, settings) in self.settings.iter().enumerate() {
            if let Some(last_sent) = self.handover.last_sent(&settings.name) {
                let previous = PreviousProcess {
                    last_sent,
                    is_announced: self.ports[index].was_announced(settings),
                };
                self.router.continue_from(index, previous);
            }
        }
    }

    /// Records the state of all virtual routers for the next agent.
    fn record_all(&self) {
        let routers = self.router.instances().zip(&self.settings).zip(&self.ports);
        let routers: Vec<_> = routers
            .map(|(((instance, _), settings), port)| {
                let is_active = instance.state() == State::Active;
                RecordedRouter {
                    name: &settings.name,
                    last_sent: is_active.then(|| instance.last_sent()),
                    is_released: port.is_released,
                    state: instance.state(),
                    since: port.since,
                    takeovers: port.takeovers,
                    interval: instance.config().interval,
                }
            })
            .collect();
        self.handover.replace(&routers);
    }

    fn handle_tracked(&mut self, index: usize, reply: Reply) {
        let now = now();
        let Some(tracked) = self.tracked.get_mut(index) else {
            return;
        };
        let Reply::Tracked(outcome) = reply else {
            return tracked.retry(now);
        };
        let state = tracked.finish(outcome, now);
        let (router, object) = (tracked.router, tracked.object);
        self.router.handle_tracked(router, object, state, now);
    }

    /// Executes the outputs of the state machine.
    fn flush(&mut self) -> Result<(), Error> {
        while let Some((index, output)) = self.router.poll_output() {
            match output {
                Output::Send { priority } => self.send_advertisement(index, priority),
                Output::Changed { from, to } => self.handle_change(index, from, to)?,
                Output::Announce { repeat } => {
                    self.ports[index].addresses.plan_announcement(repeat);
                    self.announce(index, &[]);
                }
                Output::AnnounceSource => self.announce_source(index),
            }
        }
        Ok(())
    }

    /// Announces the source address if peers are configured. Multicast needs no address resolution.
    fn announce_source(&self, index: usize) {
        let (settings, port) = (&self.settings[index], &self.ports[index]);
        if let (false, Some(source), Some((ifindex, mac))) = (
            settings.peers.is_empty(),
            port.source(),
            port.link(settings),
        ) {
            announce::send(&self.frames, ifindex, mac, &[source], 1);
        }
    }

    fn send_advertisement(&mut self, index: usize, priority: u8) {
        let settings = &self.settings[index];
        let port = &self.ports[index];
        if let Some(source) = port.source() {
            let receivers = port.receivers(settings, source);
            let packets = self
                .router
                .packets(index, priority, source, &receivers, unix_time());
            port.send(settings, &packets, &self.frames);
        }
        let last_sent = (priority > 0).then(now);
        self.handover.write(index, &settings.name, last_sent);
    }

    fn handle_change(&mut self, index: usize, from: State, to: State) -> Result<(), Error> {
        let Some(instance) = self.router.instance(index) else {
            return Ok(());
        };
        let (router, priority) = (self.settings[index].name.clone(), instance.priority());
        tracing::info!(
            router,
            priority,
            from = from.as_str(),
            to = to.as_str(),
            reason = instance.reason(),
            "the virtual router changed state"
        );
        let is_continued = self.ports[index].record_state_change(to);
        // If this process is killed before the state `Active` is recorded, the next agent repeats the notifications.
        if to != State::Active {
            self.record_all();
        }
        if to == State::Active {
            self.add_addresses(index)?;
        }
        if from == State::Active {
            self.remove_addresses(router.clone())?;
        }
        let state = match to {
            State::Active => NotifyState::Master,
            State::Backup => NotifyState::Backup,
            State::Fault => NotifyState::Fault,
            State::Init => NotifyState::Stop,
        };
        if !is_continued {
            self.notify_group(index, state)?;
            let request = Request::Notify {
                router,
                state,
                priority,
            };
            self.request(request, Purpose::Notify)?;
        }
        if to == State::Active {
            self.record_all();
        }
        Ok(())
    }

    /// Requests the group's notification if this member reports for the group. The first member with a program reports,
    /// or the first member if none has a program. All members have the same state.
    fn notify_group(&mut self, index: usize, state: NotifyState) -> Result<(), Error> {
        let settings = &self.settings[index];
        if settings.group.is_none()
            || (settings.notify.group.is_empty() && settings.notify.fifo.is_none())
        {
            return Ok(());
        }
        // If no member has a program, the first member reports, to the FIFO.
        let is_member = |it: &VirtualRouter| it.group == settings.group;
        let reporter = self.settings.iter().find(|it| is_member(it));
        let member_with_program = self
            .settings
            .iter()
            .find(|it| is_member(it) && !it.notify.group.is_empty());
        if member_with_program.or(reporter).map(|it| &it.name) != Some(&settings.name) {
            return Ok(());
        }
        let router = settings.name.clone();
        self.request(Request::NotifyGroup { router, state }, Purpose::Notify)
    }

    fn handle_control_request(&mut self, (request, reply): PendingControlRequest) {
        let _ = reply.send(self.execute(&request));
    }

    /// Stops all virtual routers after the helper has exited, so that another director takes over. Only the next helper
    /// can remove the addresses.
    fn handle_helper_exit(mut self) -> Result<(), Error> {
        self.stop_all();
        let _ = self.flush();
        let reason = "the helper has exited".to_owned();
        Err(Error::Policy { reason })
    }

    fn stop_all(&mut self) {
        for index in 0..self.settings.len() {
            self.router.stop(index, now());
        }
    }

    /// Stops all virtual routers and waits at most [`STOP_TIMEOUT`] until their addresses are removed. First applies a
    /// requested configuration: if it has no virtual routers, their addresses may have a new owner.
    async fn stop(mut self, replies: &ReplyReceiver) -> Result<(), Error> {
        let deadline = Instant::now() + STOP_TIMEOUT;
        let is_policy = |purpose: &Purpose| matches!(purpose, Purpose::Policy);
        while self.pending.values().any(is_policy) {
            let remaining = deadline.saturating_duration_since(Instant::now());
            match timeout(remaining, replies.next()).await {
                Ok(Some(reply)) => self.handle_reply(reply).await?,
                Ok(None) | Err(_) => break,
            }
        }
        self.stop_all();
        self.end_elections()?;
        self.flush()?;
        let is_change = |purpose: &Purpose| {
            !matches!(
                purpose,
                Purpose::Track(_) | Purpose::Policy | Purpose::RemoveInactive(_)
            )
        };
        while self.pending.values().any(is_change) {
            match timeout(
                deadline.saturating_duration_since(Instant::now()),
                replies.next(),
            )
            .await
            {
                Ok(Some((reply, _))) => drop(self.pending.remove(&reply.number)),
                Ok(None) | Err(_) => break,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_before_a_reply_are_lost() {
        let name = || "outside".to_owned();
        let mut pending = HashMap::from([
            (3, Purpose::Add(name())),
            (4, Purpose::Track(0)),
            (5, Purpose::Remove(name())),
            (6, Purpose::Policy),
            (8, Purpose::Add(name())),
            (9, Purpose::Policy),
        ]);
        drop_lost_requests(&mut pending, 7);
        let mut remaining: Vec<u64> = pending.into_keys().collect();
        remaining.sort_unstable();
        assert_eq!(remaining, [4, 8, 9]);
    }
}
