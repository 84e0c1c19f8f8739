//! The agent's loop: packets, timers, network changes, answers of the helper and requests go to the machine; its
//! outputs go to sockets and the helper.

mod answers;
mod handover;
mod port;
mod reload;
mod report;

use std::collections::HashMap;
use std::future::poll_fn;
use std::path::Path;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;
use tokio::time::{Instant, interval, sleep, timeout};
use weir_helper::{Answered, Client, NotifyState, Reply, Request, TrackedOutcome};
use weir_model::{TrackObject, VirtualRouter};
use weir_netlink::{Event, Netlink, Watch};
use weir_sys::{Channel, Clock, FrameSocket, now_ns};
use weir_vrrp::{Arrival, Output, Router, State};

use crate::control::{self, Observed, Pending};
use crate::link::Machine;
use crate::track::{self, Watched};
use crate::{ACCOUNT, Error, announce};
use answers::Answers;
use handover::Handover;
use port::Port;

/// Above everything that is not real-time, below the kernel's own threads.
const REAL_TIME_PRIORITY: i32 = 10;
/// Packets of one socket that are handled before timers are looked at again.
const BATCH: usize = 256;
/// Interval at which sockets that could not be opened are tried again.
const TICK: Duration = Duration::from_secs(1);
/// How long the removal of addresses may take when the agent stops.
const STOP_TIMEOUT: Duration = Duration::from_secs(2);

/// What an answer of the helper is for.
#[derive(Debug)]
enum Awaited {
    Add(String),
    Remove(String),
    Track(usize),
    Settle,
    Notify,
    Policy,
}

struct Agent {
    client: Arc<Client>,
    netlink: Netlink,
    machine: Machine,
    frames: FrameSocket,
    settings: Vec<VirtualRouter>,
    router: Router,
    ports: Vec<Port>,
    watched: Vec<Watched>,
    awaited: HashMap<u64, Awaited>,
    handover: Handover,
    /// What the daemon last reported, for tracked services, pools and the data plane.
    observed: Option<Observed>,
}

/// Waits as a standby until the agent that is active has ended (SIGUSR1). Returns whether to run, or to end.
async fn wait_as_standby() -> Result<bool, Error> {
    let on = |kind| signal(kind).map_err(Error::Signals);
    let (mut go, mut terminate) = (
        on(SignalKind::user_defined1())?,
        on(SignalKind::terminate())?,
    );
    // A reload while the former agent ends.
    let _hangup = on(SignalKind::hangup())?;
    set_name(c"weir-standby");
    let goes = tokio::select! {
        biased;
        _ = go.recv() => true,
        _ = terminate.recv() => false,
    };
    set_name(c"weir");
    Ok(goes)
}

/// Names the process in lists of processes.
fn set_name(name: &std::ffi::CStr) {
    let _ = weir_sys::set_process_name(name);
}

/// Runs until SIGTERM, with the helper at the other end of the channel; `standby`: from SIGUSR1 on. Standard output is
/// the file of `handover`. Must be called inside a tokio runtime of one thread, before the process has others: it
/// gives up its privileges.
///
/// # Errors
/// The helper has ended, or sockets cannot be opened.
pub async fn run(channel: Channel, runtime_dir: &Path, standby: bool) -> Result<(), Error> {
    if standby && !wait_as_standby().await? {
        return Ok(());
    }
    let listener = control::bind(runtime_dir)?;
    if let Err(error) = weir_sys::run_in_real_time(REAL_TIME_PRIORITY) {
        tracing::warn!(%error, "advertisements may be late when this machine is busy");
    }
    weir_sys::keep_net_raw(weir_sys::account(ACCOUNT))?;
    if let Err(error) = weir_sys::restrict_to_agent_calls() {
        tracing::warn!(%error, "the agent runs without a filter of system calls");
    }
    let on = |kind| signal(kind).map_err(Error::Signals);
    let (mut hangup, mut terminate) = (on(SignalKind::hangup())?, on(SignalKind::terminate())?);
    let netlink = Netlink::open()?;
    let mut watch = netlink.watch()?;
    let client = Arc::new(Client::new(channel));
    let answers = Answers::of(&client)?;
    let (sender, mut orders) = mpsc::channel(16);
    tokio::spawn(control::accept(listener, sender));
    let mut agent = Agent {
        client,
        netlink,
        machine: Machine::default(),
        frames: FrameSocket::open()?,
        settings: Vec::new(),
        router: Router::default(),
        ports: Vec::new(),
        watched: Vec::new(),
        awaited: HashMap::new(),
        handover: Handover::open(),
        observed: None,
    };
    agent.request(Request::Policy, Awaited::Policy)?;
    let mut ticks = interval(TICK);
    let mut has_more = false;
    loop {
        tokio::select! {
            biased;
            () = agent.readable(), if !has_more => {}
            answer = answers.next() => match answer {
                Some(answer) => agent.handle_answer(answer).await?,
                None => return agent.lose_helper(),
            },
            event = watch.next() => agent.handle_event(event, &mut watch).await?,
            Some(order) = orders.recv() => agent.handle_order(order),
            _ = hangup.recv() => agent.request(Request::Policy, Awaited::Policy)?,
            _ = terminate.recv() => break,
            _ = ticks.tick() => agent.attach(false),
            () = sleep(if has_more { Duration::ZERO } else { agent.pause() }) => {}
        }
        has_more = agent.receive();
        agent.router.handle_timeout(now());
        agent.check_tracked()?;
        agent.flush()?;
    }
    agent.stop(&answers).await
}

/// Time since 1970.
fn unix() -> Duration {
    let now = std::time::SystemTime::now();
    now.duration_since(std::time::SystemTime::UNIX_EPOCH)
        .unwrap_or_default()
}

fn now() -> Duration {
    Duration::from_nanos(now_ns(Clock::Boottime))
}

impl Agent {
    fn request(&mut self, request: Request, awaited: Awaited) -> Result<(), Error> {
        let number = self.client.request(request)?;
        self.awaited.insert(number, awaited);
        Ok(())
    }

    /// Time until something is due.
    fn pause(&self) -> Duration {
        let tracked = self.watched.iter().filter_map(Watched::due);
        let next = self.router.next_deadline().into_iter().chain(tracked).min();
        next.map_or(TICK, |at| at.saturating_sub(now()))
    }

    /// Completes when a packet is waiting. Cancel-safe.
    async fn readable(&self) {
        poll_fn(|context| {
            let mut ready = false;
            for socket in self.ports.iter().filter_map(Port::socket) {
                // Cleared before the socket is emptied: a later packet makes it ready again.
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

    /// Handles waiting packets, before any timer: they may show that another director is active. Returns whether there
    /// may be more.
    fn receive(&mut self) -> bool {
        let mut has_more = false;
        for (index, port) in self.ports.iter().enumerate() {
            let Some(socket) = port.socket() else {
                continue;
            };
            for count in 1..=BATCH {
                let packet = match socket.get_ref().receive() {
                    Ok(Some(packet)) => packet,
                    Ok(None) => break,
                    Err(error) => {
                        tracing::debug!(%error, "failed to receive");
                        break;
                    }
                };
                let arrival = Arrival {
                    bytes: &packet.bytes,
                    source: packet.source,
                    destination: packet.destination,
                    hop_limit: packet.hop_limit,
                };
                let peers = &self.settings[index].peers;
                let _ = self
                    .router
                    .handle_packet(index, &arrival, peers, (now(), unix()));
                has_more |= count == BATCH;
            }
        }
        has_more
    }

    async fn handle_event(
        &mut self,
        event: weir_netlink::Result<Event>,
        watch: &mut Watch,
    ) -> Result<(), Error> {
        match event {
            Ok(Event::Route { .. } | Event::Neighbour { .. }) => return Ok(()),
            Ok(Event::Link { .. } | Event::Address { .. } | Event::Lost) => {}
            Err(error) => {
                tracing::warn!(%error, "the netlink watch failed");
                *watch = self.netlink.watch()?;
            }
        }
        self.read_machine().await
    }

    async fn read_machine(&mut self) -> Result<(), Error> {
        self.machine.links = self.netlink.links().await?;
        self.machine.addresses = self.netlink.addresses().await?;
        self.attach(true);
        Ok(())
    }

    /// Opens the sockets of virtual routers whose interface or source has changed, and evaluates tracked interfaces.
    /// Otherwise opens only those that failed before.
    fn attach(&mut self, changed: bool) {
        for (index, port) in self.ports.iter_mut().enumerate() {
            let settings = &self.settings[index];
            if port.attach(settings, self.machine.attachment(settings), changed) {
                self.router.handle_source(index, port.source(), now());
            }
        }
        for watched in &self.watched {
            if let TrackObject::Interface(name) = &watched.what {
                let state = track::state_of(self.machine.is_up(name));
                self.router
                    .handle_tracked(watched.router, watched.object, state, now());
            }
        }
        self.evaluate_observed();
    }

    /// Evaluates tracked services, pools and the data plane.
    fn evaluate_observed(&mut self) {
        let Some(observed) = &self.observed else {
            return;
        };
        for watched in &self.watched {
            let is_up = match &watched.what {
                TrackObject::Service(name) => observed.services.get(name).copied(),
                TrackObject::Pool(name) => observed.pools.get(name).copied(),
                TrackObject::DataPlane => Some(observed.data_plane),
                _ => None,
            };
            if let Some(is_up) = is_up {
                let state = track::state_of(is_up);
                self.router
                    .handle_tracked(watched.router, watched.object, state, now());
            }
        }
    }

    /// Requests the state of tracked objects that are due.
    fn check_tracked(&mut self) -> Result<(), Error> {
        let now = now();
        let mut names = None;
        for at in 0..self.watched.len() {
            let watched = &mut self.watched[at];
            if watched.due().is_none_or(|due| now < due) {
                continue;
            }
            watched.start();
            let (router, object) = (watched.router, watched.object);
            if let TrackObject::Process(name) = &watched.what {
                let is_running = names
                    .get_or_insert_with(track::processes)
                    .contains_key(name);
                let outcome = if is_running {
                    TrackedOutcome::Up
                } else {
                    TrackedOutcome::Down
                };
                let state = watched.finish(outcome, now);
                self.router.handle_tracked(router, object, state, now);
                continue;
            }
            let router = self.settings[router].name.clone();
            self.request(Request::Track { router, object }, Awaited::Track(at))?;
        }
        Ok(())
    }

    async fn handle_answer(&mut self, (answer, routers): Answered) -> Result<(), Error> {
        let Some(awaited) = self.awaited.remove(&answer.number) else {
            return Ok(());
        };
        match (awaited, answer.reply) {
            (Awaited::Policy, Reply::Policy) => {
                let is_first = self.settings.is_empty() && self.handover.take_first();
                self.apply(routers.unwrap_or_default())?;
                if is_first {
                    self.take_over();
                }
                self.read_machine().await?;
                if is_first {
                    self.settle()?;
                }
                self.record_all();
                self.add_again()?;
            }
            (Awaited::Policy, reply) => {
                let reason = format!("{reply:?}");
                if self.settings.is_empty() {
                    return Err(Error::Policy { reason });
                }
                tracing::error!(reason, "the virtual routers are unchanged");
            }
            (Awaited::Add(name), reply) => self.handle_added(&name, &reply),
            (Awaited::Track(at), reply) => self.handle_tracked(at, reply),
            (Awaited::Remove(router), Reply::Failed { reason }) => {
                tracing::error!(router, reason, "failed to remove addresses");
            }
            (Awaited::Settle, Reply::Failed { reason }) => {
                tracing::error!(reason, "failed to remove addresses of a previous agent");
            }
            (Awaited::Notify, Reply::Failed { reason }) => {
                tracing::warn!(reason, "failed to run a notification program");
            }
            (Awaited::Remove(_) | Awaited::Notify | Awaited::Settle, _) => {}
        }
        Ok(())
    }

    /// Continues virtual routers of a former agent that were active.
    fn take_over(&mut self) {
        for (index, settings) in self.settings.iter().enumerate() {
            if let Some(last_sent) = self.handover.last_sent(&settings.name) {
                self.router.continue_from(index, last_sent);
            }
        }
    }

    /// Records all virtual routers for the next agent.
    fn record_all(&self) {
        let routers = self.router.instances().zip(&self.settings);
        self.handover
            .replace(routers.map(|((instance, _), settings)| {
                let is_active = instance.state() == State::Active;
                (
                    settings.name.as_str(),
                    is_active.then(|| instance.last_sent()),
                )
            }));
    }

    fn active(&self) -> Vec<String> {
        let routers = self.router.instances().zip(&self.settings);
        routers
            .filter(|((instance, _), _)| instance.state() == State::Active)
            .map(|(_, settings)| settings.name.clone())
            .collect()
    }

    /// Lets the helper remove what a former agent had and this one does not continue.
    fn settle(&mut self) -> Result<(), Error> {
        let active = self.active();
        self.request(Request::Settle { active }, Awaited::Settle)
    }

    /// The helper may be a new one: requests for the former one may be lost.
    fn add_again(&mut self) -> Result<(), Error> {
        for router in self.active() {
            let request = Request::Add {
                router: router.clone(),
            };
            self.request(request, Awaited::Add(router))?;
        }
        Ok(())
    }

    fn handle_added(&mut self, name: &str, reply: &Reply) {
        if let Reply::Failed { reason } = reply {
            tracing::error!(router = name, reason, "failed to add addresses");
        }
        let index = self.settings.iter().position(|it| it.name == name);
        let Some(index) = index else { return };
        let is_active = self
            .router
            .instance(index)
            .is_some_and(|it| it.state() == State::Active);
        if is_active {
            self.ports[index].addresses_added = true;
            self.announce(index);
        }
    }

    fn handle_tracked(&mut self, at: usize, reply: Reply) {
        let now = now();
        let Some(watched) = self.watched.get_mut(at) else {
            return;
        };
        let Reply::Tracked(outcome) = reply else {
            return watched.retry(now);
        };
        let state = watched.finish(outcome, now);
        let (router, object) = (watched.router, watched.object);
        self.router.handle_tracked(router, object, state, now);
    }

    /// Executes the outputs of the machine.
    fn flush(&mut self) -> Result<(), Error> {
        while let Some((index, output)) = self.router.poll_output() {
            match output {
                Output::Send { priority } => self.send(index, priority),
                Output::Changed { from, to } => self.handle_change(index, from, to)?,
                Output::Announce { repeat } => {
                    self.ports[index].announcement_due = Some(repeat);
                    self.announce(index);
                }
                Output::AnnounceSource => self.announce_source(index),
            }
        }
        Ok(())
    }

    /// Multicast needs no address resolution.
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

    fn send(&mut self, index: usize, priority: u8) {
        let settings = &self.settings[index];
        let port = &self.ports[index];
        if let Some(source) = port.source() {
            let receivers = port.receivers(settings, source);
            let packets = self
                .router
                .packets(index, priority, source, &receivers, unix());
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
            "the virtual router has changed its state"
        );
        self.ports[index].note_change(to);
        if from == State::Active {
            self.handover.write(index, &router, None);
        }
        if to == State::Active {
            let request = Request::Add {
                router: router.clone(),
            };
            self.request(request, Awaited::Add(router.clone()))?;
        }
        if from == State::Active {
            let request = Request::Remove {
                router: router.clone(),
            };
            self.request(request, Awaited::Remove(router.clone()))?;
        }
        let state = match to {
            State::Active => NotifyState::Master,
            State::Backup => NotifyState::Backup,
            State::Fault => NotifyState::Fault,
            State::Init => NotifyState::Stop,
        };
        self.notify_group(index, state)?;
        self.request(
            Request::Notify {
                router,
                state,
                priority,
            },
            Awaited::Notify,
        )
    }

    /// Notifies the program of the group, which one member has. All members have the same state.
    fn notify_group(&mut self, index: usize, state: NotifyState) -> Result<(), Error> {
        let settings = &self.settings[index];
        if settings.group.is_none()
            || (settings.notify.group.is_empty() && settings.notify.fifo.is_none())
        {
            return Ok(());
        }
        // Without a program only the first member reports to the FIFO.
        let is_first = |it: &VirtualRouter| it.group == settings.group;
        let reporter = self.settings.iter().find(|it| is_first(it));
        let with_program = self
            .settings
            .iter()
            .find(|it| is_first(it) && !it.notify.group.is_empty());
        if with_program.or(reporter).map(|it| &it.name) != Some(&settings.name) {
            return Ok(());
        }
        let router = settings.name.clone();
        self.request(Request::NotifyGroup { router, state }, Awaited::Notify)
    }

    /// Announces the addresses of a virtual router if that is due and they are there.
    fn announce(&mut self, index: usize) {
        let port = &mut self.ports[index];
        let Some(repeat) = port.announcement_due.filter(|_| port.addresses_added) else {
            return;
        };
        port.announcement_due = None;
        if let Some((ifindex, mac)) = port.link(&self.settings[index]) {
            let router = &self.settings[index];
            let on = |interface: Option<&str>| -> Vec<_> {
                let networks = router.managed_on(interface);
                networks.map(|it| it.address).collect()
            };
            announce::send(&self.frames, ifindex, mac, &on(None), repeat);
            for other in &router.other_interfaces {
                let addresses = on(Some(&other.interface));
                if let Some((ifindex, mac)) = self.machine.hardware(&other.interface) {
                    announce::send(&self.frames, ifindex, mac, &addresses, repeat);
                }
            }
        }
    }

    fn handle_order(&mut self, (order, reply): Pending) {
        let _ = reply.send(self.execute(&order));
    }

    /// The helper has ended: nothing can remove the addresses but the next one, so another director must take over.
    fn lose_helper(mut self) -> Result<(), Error> {
        self.stop_all();
        let _ = self.flush();
        let reason = "it has ended".to_owned();
        Err(Error::Policy { reason })
    }

    fn stop_all(&mut self) {
        for index in 0..self.settings.len() {
            self.router.stop(index, now());
        }
    }

    /// Stops being active, and waits until the addresses are removed.
    async fn stop(mut self, answers: &Answers) -> Result<(), Error> {
        self.stop_all();
        self.flush()?;
        let until = Instant::now() + STOP_TIMEOUT;
        let is_change = |awaited: &Awaited| !matches!(awaited, Awaited::Track(_) | Awaited::Policy);
        while self.awaited.values().any(is_change) {
            match timeout(
                until.saturating_duration_since(Instant::now()),
                answers.next(),
            )
            .await
            {
                Ok(Some((answer, _))) => drop(self.awaited.remove(&answer.number)),
                Ok(None) | Err(_) => break,
            }
        }
        Ok(())
    }
}
