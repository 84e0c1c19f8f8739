//! Synchronizes flows: passes data between the socket, the sessions with the peers, and the engine's flow table.
//!
//! Steps take place every few milliseconds in the engine's process, so flows do not cross a channel. A datagram is
//! parsed only after it has been authenticated with the key from root's configuration file. The number of datagrams per
//! step is limited, so a full table does not delay requests.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::net::{SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use rustix::net::sockopt;
use weir_engine::{Engine, SyncCounts};
use weir_ipvsadm::{Edit, EditError, SyncDaemon};
use weir_model::FlowSync;
use weir_netlink::Event;
use weir_sync::{Key, MAX_DATAGRAM, PeerState, Record, Seed, Session, Source};

use crate::message::{SyncPeerStatus, SyncStatus};
use crate::proxied::{ProxiedConnections, ProxiedCounts, ProxyListeners, WithConnections};

/// Pause between two steps while a peer responds.
const BUSY_PAUSE: Duration = Duration::from_millis(5);
/// Pause between two steps while no peer responds.
const IDLE_PAUSE: Duration = Duration::from_millis(50);
/// Pause if `[sync]` is not configured.
const OFF_PAUSE: Duration = Duration::from_secs(1);
/// Maximum time that a running peer takes to respond after the start of a session.
const JOIN_TIMEOUT: Duration = Duration::from_secs(1);
/// Pause after an error, such as a failure to open the socket.
const RETRY_PAUSE: Duration = Duration::from_secs(1);
/// Pause after the address was in use. During an upgrade, the previous process closes its socket at the handover.
const IN_USE_PAUSE: Duration = Duration::from_millis(20);
/// Time after which an address that is still in use is reported as an error.
const HANDOVER_TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum number of datagrams received in one step.
const MAX_RECEIVED_DATAGRAMS: usize = 1024;
/// Maximum number of datagrams sent to one peer in one step.
const MAX_SENT_DATAGRAMS: usize = 128;
/// Receive buffer in bytes: large enough for the datagrams that arrive during a long step, such as a reload.
const RECEIVE_BUFFER_BYTES: usize = 8 << 20;

/// The state of `[sync]` while it is configured.
#[derive(Debug)]
struct ActiveSync {
    config: FlowSync,
    socket: Option<UdpSocket>,
    retry_at: Duration,
    /// Why there is no socket.
    error: Option<String>,
    sessions: Vec<(SocketAddr, Session)>,
    /// Number of datagrams from unknown addresses.
    unknown_senders: u64,
    sending: bool,
    receiving: bool,
    counts: SyncCounts,
    /// Start time of the sessions.
    joined_at: Duration,
    /// Whether peers sent flows for a service or server that this director did not have, or while it had no engine.
    has_unknown_flows: bool,
}

/// Synchronizes flows with the peers of `[sync]`.
#[derive(Debug)]
pub struct FlowSynchronizer {
    started_at: Instant,
    running: Option<ActiveSync>,
    proxied: ProxiedConnections,
    /// Time of the last step at which buckets had to be rechecked ([`Engine::has_buckets_to_recheck`]).
    rechecked_at: Duration,
    /// Revision of the engine's configuration at the last step; `None` = there was no engine.
    revision: Option<u64>,
    records: Vec<Record>,
    entries: Vec<u32>,
}

impl Default for FlowSynchronizer {
    fn default() -> Self {
        Self {
            started_at: Instant::now(),
            running: None,
            proxied: ProxiedConnections::default(),
            rechecked_at: Duration::ZERO,
            revision: None,
            records: Vec::new(),
            entries: Vec::new(),
        }
    }
}

/// Returns a new session with each peer. Logs an error and returns `None` if the random number generator fails.
fn new_sessions(config: &FlowSync, now: Duration) -> Option<Vec<(SocketAddr, Session)>> {
    let mut seed = Seed::default();
    if aws_lc_rs::rand::fill(&mut seed).is_err() {
        tracing::error!("flows are not synchronized: the system's random number generator failed");
        return None;
    }
    let key = Key::new(config.key.expose());
    let sessions = (0..).zip(&config.peers);
    let session =
        |(number, peer): (u32, &SocketAddr)| (*peer, Session::new(&key, seed, number, now));
    Some(sessions.map(session).collect())
}

/// A table without flows, which is used while there is no engine or sending is stopped.
struct NoTable;

impl Source for NoTable {
    fn prefetch(&mut self, _entry: u32) {}

    fn export(&mut self, _entry: u32, _records: &mut Vec<Record>) {}

    fn scan(&mut self, _from: u32, _entries: &mut Vec<u32>) -> Option<u32> {
        None
    }
}

impl ActiveSync {
    fn new(config: &FlowSync, now: Duration) -> Option<Self> {
        Some(Self {
            config: config.clone(),
            socket: None,
            retry_at: now,
            error: None,
            sessions: new_sessions(config, now)?,
            unknown_senders: 0,
            sending: true,
            receiving: true,
            counts: SyncCounts::default(),
            joined_at: now,
            has_unknown_flows: false,
        })
    }

    /// Starts new sessions, so the peers send all flows again.
    fn restart_sessions(&mut self, now: Duration) {
        if let Some(sessions) = new_sessions(&self.config, now) {
            (self.sessions, self.joined_at, self.has_unknown_flows) = (sessions, now, false);
        }
    }

    fn open(&mut self, now: Duration) {
        if self.socket.is_some() || now < self.retry_at {
            return;
        }
        match bind_socket(self.config.listen) {
            Ok(socket) => {
                self.socket = Some(socket);
                self.error = None;
                tracing::info!(listen = %self.config.listen, "flows are synchronized");
            }
            Err(error) if error.kind() == ErrorKind::AddrInUse && self.is_new(now) => {
                self.retry_at = now + IN_USE_PAUSE;
            }
            Err(error) => {
                let text = bind_failure(self.config.listen, &error);
                if self.error.as_ref() != Some(&text) {
                    tracing::warn!(listen = %self.config.listen, error = text, "flows are not synchronized");
                }
                self.error = Some(text);
                self.retry_at = now + RETRY_PAUSE;
            }
        }
    }

    /// Returns whether the sessions are so new that another process may still be handing over.
    fn is_new(&self, now: Duration) -> bool {
        now < self.joined_at + HANDOVER_TIMEOUT
    }

    fn receive(&mut self, now: Duration, records: &mut Vec<Record>) {
        let mut buffer = [0; MAX_DATAGRAM + 1];
        for _ in 0..MAX_RECEIVED_DATAGRAMS {
            let Some(socket) = &self.socket else {
                return;
            };
            match socket.recv_from(&mut buffer) {
                Ok((length, from)) => {
                    match self.sessions.iter_mut().find(|(peer, _)| *peer == from) {
                        // The session counts the datagrams that it ignores.
                        Some((_, session)) => {
                            let _ = session.handle(&mut buffer[..length], now, records);
                        }
                        None => self.unknown_senders += 1,
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                // The error is an ICMP error about a datagram that was sent.
                Err(_) => {}
            }
        }
    }

    fn send(&mut self, now: Duration, source: &mut impl Source) {
        let Some(socket) = &self.socket else {
            return;
        };
        for (peer, session) in &mut self.sessions {
            for _ in 0..MAX_SENT_DATAGRAMS {
                let Some(datagram) = session.poll(now, source) else {
                    break;
                };
                // A datagram that cannot be sent counts as lost, and the session sends its flows again.
                let sent = socket.send_to(&datagram, *peer);
                if sent.is_err_and(|error| error.kind() == ErrorKind::WouldBlock) {
                    break;
                }
            }
        }
    }

    fn is_alive(&self, now: Duration) -> bool {
        self.sessions
            .iter()
            .any(|(_, session)| session.is_alive(now))
    }

    fn switch(&mut self, daemon: SyncDaemon, on: bool, now: Duration) -> Result<(), EditError> {
        let state = match daemon {
            SyncDaemon::Master => &mut self.sending,
            SyncDaemon::Backup => &mut self.receiving,
        };
        if *state == on {
            let message = if on {
                "Daemon has already run"
            } else {
                "No daemon is running"
            };
            return Err(EditError::Message(message.to_owned()));
        }
        *state = on;
        if !on {
            return Ok(());
        }
        match daemon {
            // Changes were not recorded while sending was stopped.
            SyncDaemon::Master => self
                .sessions
                .iter_mut()
                .for_each(|(_, session)| session.send_all()),
            // Flows that arrived while receiving was stopped were acknowledged but not inserted.
            SyncDaemon::Backup => self.restart_sessions(now),
        }
        Ok(())
    }

    /// Returns the text of `ipvsadm -L --daemon`.
    fn daemons(&self) -> String {
        let (address, port) = (self.config.listen.ip(), self.config.listen.port());
        let mut text = String::new();
        for (role, on) in [("master", self.sending), ("backup", self.receiving)] {
            for peer in self.config.peers.iter().filter(|_| on) {
                let group = peer.ip();
                text.push_str(&format!(
                    "{role} sync daemon (mcast={address}, syncid=0, maxlen={MAX_DATAGRAM}, group={group}, port={port}, \
                     ttl=64)\n"
                ));
            }
        }
        text
    }

    fn status(&self, now: Duration, proxied: ProxiedCounts) -> SyncStatus {
        let peers = self.sessions.iter().map(|(address, session)| {
            let status = session.status(now);
            let counts = status.counts;
            let lag = match (status.state, status.silent_for) {
                (PeerState::Silent, Some(silent_for)) => silent_for,
                _ => status.lag,
            };
            SyncPeerStatus {
                address: address.to_string(),
                state: status.state.as_str().to_owned(),
                lag_ms: lag.as_millis() as u64,
                queued: status.queued as u64,
                lost: counts.lost,
                sent: counts.sent,
                received: counts.received,
                dropped: counts.dropped,
                transfers: counts.transfers,
                complete: status.complete,
                proxied_connections: session.peer_connections() as u64,
                ignored: counts
                    .ignored
                    .iter()
                    .map(|(reason, count)| (reason.as_str().to_owned(), *count))
                    .collect(),
            }
        });
        let results = self.counts.results().into_iter();
        SyncStatus {
            listen: self.config.listen.to_string(),
            error: self.error.clone(),
            sending: self.sending,
            receiving: self.receiving,
            peers: peers.collect(),
            records: results
                .filter(|(_, count)| *count > 0)
                .map(|(name, count)| (name.to_owned(), count))
                .collect::<BTreeMap<_, _>>(),
            unknown_senders: self.unknown_senders,
            overwritten: self.counts.overwritten,
            proxied_connections: proxied.listed as u64,
            excess_connections: proxied.excess as u64,
            reset_prompts: proxied.prompts,
            moving: false,
            joining: false,
            daemons: self.daemons(),
        }
    }
}

fn bind_socket(listen: SocketAddr) -> io::Result<UdpSocket> {
    let socket = UdpSocket::bind(listen)?;
    socket.set_nonblocking(true)?;
    if sockopt::set_socket_recv_buffer_size_force(&socket, RECEIVE_BUFFER_BYTES).is_err() {
        sockopt::set_socket_recv_buffer_size(&socket, RECEIVE_BUFFER_BYTES)?;
    }
    Ok(socket)
}

/// Describes why the socket could not be bound.
fn bind_failure(listen: SocketAddr, error: &io::Error) -> String {
    if error.kind() == ErrorKind::AddrNotAvailable {
        format!("{} is not configured on this machine", listen.ip())
    } else {
        error.to_string()
    }
}

impl FlowSynchronizer {
    /// Adopts a configuration. Sessions are restarted only if it differs from the current configuration.
    pub fn configure(&mut self, config: Option<&FlowSync>) {
        if self.running.as_ref().map(|running| &running.config) == config {
            return;
        }
        // Close the socket first: the new socket may have the same address.
        self.running = None;
        let now = self.started_at.elapsed();
        self.running = config.and_then(|config| ActiveSync::new(config, now));
    }

    /// Adopts the listeners of proxy services.
    pub fn set_listeners(&mut self, listeners: ProxyListeners) {
        self.proxied.set_listeners(listeners);
    }

    /// Handles a change to the network: a VIP may have been added.
    pub fn network_event(&mut self, event: &Event) {
        if self.running.is_some() {
            self.proxied.handle_event(event, self.started_at.elapsed());
        }
    }

    /// Receives, inserts and sends flows. Returns the time until the next call.
    pub fn step(&mut self, engine: Option<&mut Engine>) -> Duration {
        let now = self.started_at.elapsed();
        let on = self.running.is_some();
        let mut engine = engine;
        if let Some(engine) = &mut engine
            && engine.is_synchronizing() != Some(on)
            && let Err(error) = engine.set_sync(on)
        {
            tracing::warn!(%error, "failed to start or stop flow synchronization");
            return RETRY_PAUSE;
        }
        let Some(running) = &mut self.running else {
            return OFF_PAUSE;
        };
        running.open(now);
        let revision = engine.as_ref().map(|engine| engine.revision());
        if revision != self.revision && running.has_unknown_flows {
            // Dropped flows may have a service or a server now.
            running.restart_sessions(now);
        }
        self.revision = revision;
        self.records.clear();
        self.entries.clear();
        running.receive(now, &mut self.records);
        let sessions = running.sessions.iter_mut().map(|(_, session)| session);
        let is_prompting = self.proxied.step(now, sessions);
        let proxied = &self.proxied;
        match engine {
            Some(engine) => {
                if engine.has_buckets_to_recheck() {
                    self.rechecked_at = now;
                }
                let (records, entries) = (&self.records, &mut self.entries);
                if let Err(error) = exchange(running, engine, proxied, now, records, entries) {
                    tracing::warn!(%error, "failed to synchronize flows");
                    return RETRY_PAUSE;
                }
            }
            None => {
                running.has_unknown_flows |= !self.records.is_empty();
                let flows = &mut NoTable;
                running.send(now, &mut WithConnections { flows, proxied });
            }
        }
        if is_prompting || running.is_alive(now) || running.is_new(now) {
            BUSY_PAUSE
        } else {
            IDLE_PAUSE
        }
    }

    /// Like [`Self::step`], while a successor of this process starts. Once the successor has replaced the data plane,
    /// closes the socket instead, because the flow table may no longer be the one that packets use. The successor
    /// synchronizes flows as soon as it can open the socket, so only one process at a time inserts flows.
    pub fn step_until_replaced(&mut self, engine: Option<&mut Engine>) -> Duration {
        if engine.as_ref().is_some_and(|it| !it.has_current_plane()) {
            self.configure(None);
            return IDLE_PAUSE;
        }
        // The caller may receive no changes to the network until the successor has started.
        self.network_event(&Event::Lost);
        self.step(engine)
    }

    /// Starts or stops an ipvsadm synchronization daemon if that is the only edit: ipvsadm has a separate command for
    /// it. Returns `None` for all other edits, or if there is no `[sync]`.
    pub fn switch_daemon(&mut self, edits: &[Edit]) -> Option<Result<(), EditError>> {
        let now = self.started_at.elapsed();
        let running = self.running.as_mut()?;
        match edits {
            [Edit::StartDaemon(daemon)] => Some(running.switch(*daemon, true, now)),
            [Edit::StopDaemon(daemon)] => Some(running.switch(*daemon, false, now)),
            _ => None,
        }
    }

    /// Returns the text of `ipvsadm -L --daemon`, or `None` if there is no `[sync]`.
    pub fn daemons(&self) -> Option<String> {
        self.running.as_ref().map(ActiveSync::daemons)
    }

    /// Returns whether flows that a table change affects have not been sent to every peer yet. Silent peers are
    /// ignored.
    pub fn is_moving(&self, engine: Option<&Engine>) -> bool {
        let (Some(running), Some(engine)) = (&self.running, engine) else {
            return false;
        };
        if !running.sending || running.socket.is_none() {
            return false;
        }
        let now = self.started_at.elapsed();
        let since_recheck = now.saturating_sub(self.rechecked_at);
        let is_behind = |(_, session): &(SocketAddr, Session)| {
            let status = session.status(now);
            match status.state {
                PeerState::Connecting | PeerState::Silent | PeerState::Unacknowledged => false,
                PeerState::Transfer => true,
                PeerState::Established => {
                    status.lag > Duration::ZERO && status.lag >= since_recheck
                }
            }
        };
        engine.has_buckets_to_recheck() || running.sessions.iter().any(is_behind)
    }

    /// Returns whether flows from peers are still missing here. Silent peers are ignored, except immediately after the
    /// start, when they might not have responded yet.
    pub fn is_joining(&self, engine: Option<&Engine>) -> bool {
        let (Some(running), Some(engine)) = (&self.running, engine) else {
            return false;
        };
        let now = self.started_at.elapsed();
        let is_incomplete = |(_, session): &(SocketAddr, Session)| {
            let status = session.status(now);
            match status.state {
                PeerState::Connecting | PeerState::Silent => now < running.joined_at + JOIN_TIMEOUT,
                PeerState::Transfer | PeerState::Established | PeerState::Unacknowledged => {
                    !status.complete
                }
            }
        };
        let will_restart = running.has_unknown_flows && self.revision != Some(engine.revision());
        running.receiving
            && (will_restart
                || engine.has_unknown_servers()
                || running.sessions.iter().any(is_incomplete))
    }

    /// Returns the state for the status document, or `None` if there is no `[sync]`.
    pub fn status(&self) -> Option<SyncStatus> {
        let now = self.started_at.elapsed();
        let running = self.running.as_ref()?;
        Some(running.status(now, self.proxied.counts()))
    }
}

fn exchange(
    running: &mut ActiveSync,
    engine: &mut Engine,
    proxied: &ProxiedConnections,
    now: Duration,
    records: &[Record],
    entries: &mut Vec<u32>,
) -> Result<(), weir_engine::Error> {
    if running.receiving {
        engine.sync_insert(records)?;
    }
    engine.sync_changes(now, entries)?;
    let counts = engine.sync_counts();
    let unknown = |counts: &SyncCounts| counts.unknown_service + counts.unknown_server;
    running.has_unknown_flows |= unknown(&counts) > unknown(&running.counts);
    running.counts = counts;
    if !running.sending {
        running.send(now, &mut NoTable);
        return Ok(());
    }
    for (_, session) in &mut running.sessions {
        for entry in &*entries {
            session.queue_entry(*entry, now);
        }
    }
    let flows = engine;
    running.send(now, &mut WithConnections { flows, proxied });
    Ok(())
}

#[cfg(test)]
mod tests {
    use weir_model::{Secret, SecretSource};
    use weir_sync::Kind;

    use super::*;
    use crate::proxied::tests::{has_found_vip, with_new_vip};

    const KEY: &[u8] = b"0123456789abcdef";

    /// A table with one flow.
    struct OneFlow;

    impl Source for OneFlow {
        fn prefetch(&mut self, _entry: u32) {}

        fn export(&mut self, _entry: u32, records: &mut Vec<Record>) {
            let endpoint = |text: &str| (text.parse().expect("parse address"), 80);
            records.push(Record {
                kind: Kind::Flow,
                proto: 6,
                state: 1,
                active: true,
                client: endpoint("198.51.100.1"),
                vip: endpoint("192.0.2.10"),
                server: endpoint("10.0.0.1"),
                idle_ms: 0,
                age_s: 0,
                service: None,
                snat: None,
                timeout_ms: None,
                whole_service: false,
            });
        }

        fn scan(&mut self, _from: u32, entries: &mut Vec<u32>) -> Option<u32> {
            entries.push(0);
            None
        }
    }

    /// Returns a configuration with the peer 192.0.2.2. No interface has an address in TEST-NET-1 (RFC 5737).
    fn config() -> FlowSync {
        FlowSync {
            listen: "192.0.2.1:8482".parse().expect("parse address"),
            peers: vec!["192.0.2.2:8482".parse().expect("parse address")],
            key: Secret::new(SecretSource::Text, KEY.to_vec()),
        }
    }

    /// Delivers the datagrams of two seconds in both directions. Returns the number of flows that the peer has sent.
    fn receive_from(running: &mut ActiveSync, peer: &mut Session, now: &mut Duration) -> usize {
        let mut records = Vec::new();
        let (_, session) = &mut running.sessions[0];
        for _ in 0..40 {
            *now += Duration::from_millis(50);
            while let Some(mut datagram) = session.poll(*now, &mut NoTable) {
                let _ = peer.handle(&mut datagram, *now, &mut Vec::new());
            }
            while let Some(mut datagram) = peer.poll(*now, &mut OneFlow) {
                let _ = session.handle(&mut datagram, *now, &mut records);
            }
        }
        records.len()
    }

    #[test]
    fn peer_sends_all_flows_again_after_receiving_was_stopped() {
        let mut now = Duration::ZERO;
        let mut running = ActiveSync::new(&config(), now).expect("generate random numbers");
        let mut peer = Session::new(&Key::new(KEY), [1; 32], 0, now);
        assert_eq!(receive_from(&mut running, &mut peer, &mut now), 1);
        let stopped = running.switch(SyncDaemon::Backup, false, now);
        stopped.expect("stop receiving");
        peer.queue_entry(0, now);
        assert_eq!(receive_from(&mut running, &mut peer, &mut now), 1);
        let started = running.switch(SyncDaemon::Backup, true, now);
        started.expect("start receiving");
        let status = running.sessions[0].1.status(now);
        assert!(!status.complete, "the dropped flow is missing");
        assert_eq!(receive_from(&mut running, &mut peer, &mut now), 1);
    }

    /// Such a peer sends flows, which must not wait in the socket.
    #[test]
    fn peer_that_acknowledges_nothing_is_alive() {
        let mut now = Duration::from_secs(10);
        let mut running = ActiveSync::new(&config(), now).expect("generate random numbers");
        let mut peer = Session::new(&Key::new(KEY), [1; 32], 0, now);
        receive_from(&mut running, &mut peer, &mut now);
        running.sessions[0].1.queue_entry(0, now);
        for _ in 0..80 {
            now += Duration::from_millis(50);
            let (_, session) = &mut running.sessions[0];
            while session.poll(now, &mut OneFlow).is_some() {}
            while let Some(mut datagram) = peer.poll(now, &mut NoTable) {
                let _ = session.handle(&mut datagram, now, &mut Vec::new());
            }
        }
        let state = running.sessions[0].1.status(now).state;
        assert_eq!(state, PeerState::Unacknowledged);
        assert!(running.is_alive(now));
        assert!(!running.is_alive(now + Duration::from_secs(3)));
    }

    #[test]
    fn socket_is_opened_as_soon_as_the_previous_process_closes_it() {
        let previous = UdpSocket::bind("127.0.0.1:0").expect("bind a socket");
        let config = FlowSync {
            listen: previous.local_addr().expect("get the local address"),
            ..config()
        };
        let start = Duration::from_secs(10);
        let mut running = ActiveSync::new(&config, start).expect("generate random numbers");
        running.open(start);
        assert!(running.socket.is_none() && running.error.is_none());
        // Another program uses the address.
        let late = start + HANDOVER_TIMEOUT;
        running.open(late);
        assert!(running.error.is_some(), "the error must be reported");
        let mut running = ActiveSync::new(&config, start).expect("generate random numbers");
        running.open(start);
        drop(previous);
        running.open(start + IN_USE_PAUSE);
        assert!(running.socket.is_some());
    }

    #[test]
    fn takeover_is_detected_without_events_while_a_successor_starts() {
        let mut synchronizer = FlowSynchronizer {
            proxied: with_new_vip(),
            ..FlowSynchronizer::default()
        };
        synchronizer.configure(Some(&config()));
        synchronizer.step(None);
        assert!(!has_found_vip(&synchronizer.proxied));
        synchronizer.step_until_replaced(None);
        assert!(has_found_vip(&synchronizer.proxied));
    }

    #[test]
    fn address_of_another_machine_is_named_in_the_error() {
        let mut running =
            ActiveSync::new(&config(), Duration::ZERO).expect("generate random numbers");
        running.open(Duration::ZERO);
        let expected = "192.0.2.1 is not configured on this machine";
        assert_eq!(running.error.as_deref(), Some(expected));
    }
}
