//! Implements the session with a peer.

mod connection;

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use self::connection::ConnectionLists;
use crate::connection::Connection;
use crate::item::{EMPTY_ITEM_BYTES, FEATURE_CONNECTIONS, Item, items};
use crate::record::Record;
use crate::replay::Window;
use crate::seal::{Cipher, Header, Key, MAX_BODY_BYTES, Seed, SessionId, derive_bytes};

/// Interval between hellos to a live peer.
const HELLO_INTERVAL: Duration = Duration::from_millis(500);
/// Interval between hellos to a silent peer.
const JOIN_INTERVAL: Duration = Duration::from_millis(200);
/// Minimum interval between responses to hellos without this director's challenge. Such hellos can be replays.
const RESPONSE_INTERVAL: Duration = Duration::from_millis(20);
/// Time without a datagram after which a peer is silent.
const SILENT_AFTER: Duration = Duration::from_secs(3);
/// Time without an acknowledgement after which a peer is considered not to receive this director's datagrams.
const UNACKNOWLEDGED_AFTER: Duration = Duration::from_secs(3);
/// Time after which an unacknowledged datagram is considered lost.
const LOST_AFTER: Duration = Duration::from_millis(500);
/// An unacknowledged datagram is considered lost if its number is this far below the highest acknowledged number.
const LOST_BEHIND: u64 = 64;
/// Maximum number of unacknowledged datagrams.
const MAX_IN_FLIGHT: usize = 256;
/// Maximum number of queued entries; if the queue overflows, the whole table is sent.
const MAX_QUEUED: usize = 1 << 18;
/// A transfer of the whole table queues more entries while fewer than this are queued.
const TRANSFER_LOW_WATERMARK: usize = 512;
/// How many entries ahead of its export an entry is prefetched.
const PREFETCH_DISTANCE: usize = 8;
/// Maximum number of replaced sessions to store; when it is reached, the challenge changes and the list is cleared.
const MAX_RETIRED: usize = 64;
/// Maximum length of a record and its item header, in bytes.
const MAX_RECORD_BYTES: usize = 160;

/// The flow table that a session sends.
pub trait Source {
    /// Appends the records of an entry: none if the entry is free or must not be sent, otherwise the flow, preceded by
    /// its template if it has one.
    fn export(&mut self, entry: u32, records: &mut Vec<Record>);

    /// Prefetches an entry that will be exported soon.
    fn prefetch(&mut self, entry: u32);

    /// Appends a limited number of used entries, starting at `from`. Returns the entry to continue at, or `None` at the
    /// end of the table.
    fn scan(&mut self, from: u32, entries: &mut Vec<u32>) -> Option<u32>;

    /// Returns the number of slots in the list of proxied connections.
    fn connection_slots(&self) -> u32 {
        0
    }

    /// Returns the proxied connection in a slot; `None` = the slot is free.
    fn connection(&self, _slot: u32) -> Option<Connection> {
        None
    }
}

/// Why a datagram was ignored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum IgnoreReason {
    /// The datagram does not have this format.
    Format,
    /// The datagram is forged or corrupted, the keys differ, or this director sent it.
    Forged,
    /// The datagram was received before, is too old, or belongs to a replaced session.
    Replayed,
    /// The datagram does not carry this director's current challenge, or starts a session without a hello.
    Stale,
}

impl IgnoreReason {
    /// All reasons.
    pub const ALL: [Self; 4] = [Self::Format, Self::Forged, Self::Replayed, Self::Stale];

    /// Returns the reason's label in metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Format => "format",
            Self::Forged => "forged",
            Self::Replayed => "replayed",
            Self::Stale => "stale",
        }
    }
}

/// State of a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeerState {
    /// The session is new, and the peer has not responded yet.
    Connecting,
    /// The peer sends no datagrams.
    Silent,
    /// The peer sends datagrams, but acknowledges none: it does not receive this director's datagrams.
    Unacknowledged,
    /// The whole table is being sent to the peer.
    Transfer,
    /// The whole table has been sent; only changes are sent.
    Established,
}

impl PeerState {
    /// Returns the state's name in status documents.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Connecting => "connecting",
            Self::Silent => "silent",
            Self::Unacknowledged => "unacknowledged",
            Self::Transfer => "transfer",
            Self::Established => "established",
        }
    }
}

/// Counters since startup.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Records of flows and templates sent, including retransmissions.
    pub sent: u64,
    /// Records of flows and templates received.
    pub received: u64,
    /// Datagrams with records that the peer did not acknowledge; their entries and slots are sent again.
    pub lost: u64,
    /// Changes dropped because the queue was full; the whole table was sent instead.
    pub dropped: u64,
    /// Transfers of the whole table.
    pub transfers: u64,
    /// Datagrams ignored, by reason.
    pub ignored: BTreeMap<IgnoreReason, u64>,
}

/// Status of a session, for operators.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    /// State of the peer.
    pub state: PeerState,
    /// Age of the oldest unacknowledged change.
    pub lag: Duration,
    /// Number of entries waiting to be sent.
    pub queued: usize,
    /// Time since the last datagram from the peer; `None` if there has been none.
    pub silent_for: Option<Duration>,
    /// Whether the peer has sent its whole table.
    pub complete: bool,
    /// Counters.
    pub counts: Counts,
}

/// A datagram with records that the peer has not acknowledged.
#[derive(Debug)]
struct InFlight {
    sent_at: Duration,
    /// When the oldest change in it was queued.
    queued_at: Duration,
    entries: Vec<u32>,
    /// Slots of the list of proxied connections.
    slots: Vec<u32>,
    /// Whether the datagram reports the end of the whole table.
    completes: bool,
}

/// The session that the peer sends with.
#[derive(Debug)]
struct Remote {
    id: SessionId,
    cipher: Cipher,
    window: Window,
    challenge: u64,
    /// Features in the peer's last hello.
    features: u8,
    received_at: Duration,
    complete: bool,
}

/// A session with one peer. Times come from a monotonic clock.
#[derive(Debug)]
pub struct Session {
    created_at: Duration,
    key: Key,
    seed: Seed,
    peer: u32,
    id: SessionId,
    cipher: Option<Cipher>,
    sequence: u64,
    challenge: u64,
    /// Number of times the challenge has changed.
    challenge_changes: u32,
    remote: Option<Remote>,
    retired: Vec<SessionId>,
    /// The challenge from a hello to respond to once. The hello may be a replay.
    pending_response: Option<u64>,
    responded_at: Option<Duration>,
    hello_at: Duration,
    /// Whether this director has received datagrams that it has not acknowledged.
    ack_pending: bool,
    queue: VecDeque<(u32, Duration)>,
    in_flight: BTreeMap<u64, InFlight>,
    /// When the wait for an acknowledgement began: at the last acknowledgement, or with the first datagram after it.
    /// `None` = everything is acknowledged.
    waiting_since: Option<Duration>,
    /// The entry at which the transfer of the whole table continues; `None` if no transfer is in progress.
    transfer_entry: Option<u32>,
    announce_complete: bool,
    connections: ConnectionLists,
    counts: Counts,
}

fn challenge(seed: &Seed, peer: u32, count: u32) -> u64 {
    // Zero means none.
    u64::from_be_bytes(derive_bytes(seed, b"challenge", peer, count)).max(1)
}

impl Session {
    /// Creates a session with peer number `peer`, which must be unique in the process.
    pub fn new(key: &Key, seed: Seed, peer: u32, now: Duration) -> Self {
        let id: SessionId = derive_bytes(&seed, b"session", peer, 0);
        Self {
            created_at: now,
            cipher: key.cipher(&id),
            key: key.clone(),
            peer,
            id,
            sequence: 0,
            challenge: challenge(&seed, peer, 0),
            challenge_changes: 0,
            seed,
            remote: None,
            retired: Vec::new(),
            pending_response: None,
            responded_at: None,
            hello_at: now,
            ack_pending: false,
            queue: VecDeque::new(),
            in_flight: BTreeMap::new(),
            waiting_since: None,
            transfer_entry: None,
            announce_complete: false,
            connections: ConnectionLists::default(),
            counts: Counts::default(),
        }
    }

    /// Returns whether the peer has sent a datagram in the last three seconds.
    pub fn is_alive(&self, now: Duration) -> bool {
        let remote = self.remote.as_ref();
        remote.is_some_and(|it| now.saturating_sub(it.received_at) < SILENT_AFTER)
    }

    /// Queues a changed entry for sending.
    pub fn queue_entry(&mut self, entry: u32, now: Duration) {
        if !self.is_alive(now) {
            // The peer gets the whole table when it returns.
            return;
        }
        if self.queue.len() >= MAX_QUEUED {
            self.counts.dropped += 1;
            self.send_all();
            return;
        }
        self.queue.push_back((entry, now));
    }

    /// Starts sending the whole table from the beginning.
    pub fn send_all(&mut self) {
        self.transfer_entry = Some(0);
        self.connections.send_all();
    }

    /// Handles a datagram from the peer: decrypts it in place, and appends its records to `records`.
    ///
    /// # Errors
    /// Returns the reason why the datagram was ignored. The reason is counted.
    pub fn handle(
        &mut self,
        datagram: &mut [u8],
        now: Duration,
        records: &mut Vec<Record>,
    ) -> Result<(), IgnoreReason> {
        let result = self.accept(datagram, now, records);
        if let Err(reason) = result {
            *self.counts.ignored.entry(reason).or_default() += 1;
        }
        result
    }

    fn accept(
        &mut self,
        datagram: &mut [u8],
        now: Duration,
        records: &mut Vec<Record>,
    ) -> Result<(), IgnoreReason> {
        let header = Header::parse(datagram).ok_or(IgnoreReason::Format)?;
        // One of this director's own datagrams, reflected to it.
        if header.session == self.id {
            return Err(IgnoreReason::Forged);
        }
        let is_current_session = self
            .remote
            .as_ref()
            .is_some_and(|it| it.id == header.session);
        if is_current_session {
            let remote = self.remote.as_mut().ok_or(IgnoreReason::Stale)?;
            let body = remote
                .cipher
                .open(&header, datagram)
                .ok_or(IgnoreReason::Forged)?;
            if header.challenge != self.challenge {
                return self.respond_to_hello(items(body));
            }
            if !remote.window.accept(header.sequence) {
                return Err(IgnoreReason::Replayed);
            }
            remote.received_at = now;
            self.handle_items(items(body), header.sequence, records);
            return Ok(());
        }
        let cipher = self
            .key
            .cipher(&header.session)
            .ok_or(IgnoreReason::Forged)?;
        let body = cipher.open(&header, datagram).ok_or(IgnoreReason::Forged)?;
        if header.challenge != self.challenge {
            return self.respond_to_hello(items(body));
        }
        if self.retired.contains(&header.session) {
            return Err(IgnoreReason::Replayed);
        }
        let hello = items(body).find_map(|item| match item {
            Item::Hello { challenge, .. } => Some(challenge),
            _ => None,
        });
        let mut window = Window::default();
        window.accept(header.sequence);
        self.adopt(Remote {
            id: header.session,
            cipher,
            window,
            challenge: hello.ok_or(IgnoreReason::Stale)?,
            features: 0,
            received_at: now,
            complete: false,
        });
        self.handle_items(items(body), header.sequence, records);
        Ok(())
    }

    /// Schedules a response to a hello that lacks this director's challenge; the response sends the challenge to the
    /// peer. The hello has no other effect.
    fn respond_to_hello(&mut self, items: impl Iterator<Item = Item>) -> Result<(), IgnoreReason> {
        for item in items {
            if let Item::Hello { challenge, .. } = item {
                self.pending_response = Some(challenge);
                return Ok(());
            }
        }
        Err(IgnoreReason::Stale)
    }

    fn adopt(&mut self, remote: Remote) {
        if let Some(previous) = self.remote.replace(remote) {
            self.retired.push(previous.id);
        }
        if self.retired.len() >= MAX_RETIRED {
            self.retired.clear();
            self.challenge_changes += 1;
            self.challenge = challenge(&self.seed, self.peer, self.challenge_changes);
        }
        self.in_flight.clear();
        self.waiting_since = None;
        self.queue.clear();
        self.connections.peer.clear();
        self.send_all();
        self.hello_at = Duration::ZERO;
    }

    fn handle_items(
        &mut self,
        items: impl Iterator<Item = Item>,
        sequence: u64,
        records: &mut Vec<Record>,
    ) {
        for item in items {
            match item {
                Item::Hello {
                    challenge,
                    features,
                } => {
                    if let Some(remote) = &mut self.remote {
                        (remote.challenge, remote.features) = (challenge, features);
                    }
                }
                Item::Connection(slot, content) => {
                    self.ack_pending = true;
                    self.connections.peer.set(slot, content, sequence);
                }
                Item::Flow(record) => {
                    self.ack_pending = true;
                    self.counts.received += 1;
                    records.push(record);
                }
                Item::Complete => {
                    self.ack_pending = true;
                    if let Some(remote) = &mut self.remote {
                        remote.complete = true;
                    }
                }
                Item::Ack { highest, received } => self.handle_ack(highest, &received),
            }
        }
    }

    fn handle_ack(&mut self, highest: u64, received: &[u8]) {
        let is_received = |number: u64| {
            let distance = highest.checked_sub(number)?;
            let byte = received.get((distance / 8) as usize)?;
            Some(byte & 1 << (distance % 8) != 0)
        };
        self.in_flight
            .retain(|number, _| is_received(*number) != Some(true));
        let remote = self.remote.as_ref();
        self.waiting_since = remote
            .filter(|_| !self.in_flight.is_empty())
            .map(|remote| remote.received_at);
        let lost: Vec<u64> = self
            .in_flight
            .range(..highest.saturating_sub(LOST_BEHIND))
            .map(|(number, _)| *number)
            .collect();
        self.resend(&lost);
    }

    fn resend(&mut self, lost: &[u64]) {
        for number in lost {
            if let Some(datagram) = self.in_flight.remove(number) {
                self.counts.lost += 1;
                self.announce_complete |= datagram.completes;
                self.connections.resend(datagram.slots);
                for entry in datagram.entries {
                    self.queue.push_back((entry, datagram.queued_at));
                }
            }
        }
    }

    /// Returns the next datagram to send, or `None` if there is nothing to send now.
    pub fn poll(&mut self, now: Duration, source: &mut impl Source) -> Option<Vec<u8>> {
        if let Some(challenge) = self.pending_response.take()
            && self
                .responded_at
                .is_none_or(|time| now.saturating_sub(time) >= RESPONSE_INTERVAL)
        {
            self.responded_at = Some(now);
            return self.seal(challenge, &self.hello());
        }
        let is_alive = self.is_alive(now);
        if !is_alive {
            self.drop_queued();
        }
        let mut body = Vec::with_capacity(MAX_BODY_BYTES);
        if now >= self.hello_at {
            self.hello_at = now
                + if is_alive {
                    HELLO_INTERVAL
                } else {
                    JOIN_INTERVAL
                };
            body = self.hello();
        }
        let challenge = self.remote.as_ref().map_or(0, |remote| remote.challenge);
        if !is_alive {
            return (!body.is_empty())
                .then(|| self.seal(challenge, &body))
                .flatten();
        }
        self.append_ack(&mut body);
        let datagram = self.fill(now, source, &mut body);
        if datagram.is_some() {
            self.waiting_since.get_or_insert(now);
        } else if self.in_flight.is_empty() {
            // The flows of the lost datagrams have ended.
            self.waiting_since = None;
        }
        if body.is_empty() {
            return None;
        }
        let number = self.sequence;
        if let Some(datagram) = datagram {
            self.in_flight.insert(number, datagram);
        }
        self.seal(challenge, &body)
    }

    fn hello(&self) -> Vec<u8> {
        let mut body = Vec::new();
        Item::Hello {
            challenge: self.challenge,
            features: FEATURE_CONNECTIONS,
        }
        .encode(&mut body);
        body
    }

    fn append_ack(&mut self, body: &mut Vec<u8>) {
        let Some(remote) = self.remote.as_ref().filter(|_| self.ack_pending) else {
            return;
        };
        if let Some(highest) = remote.window.highest() {
            Item::ack(highest, |number| remote.window.contains(number)).encode(body);
        }
        self.ack_pending = false;
    }

    /// Clears the queues of a silent peer, which gets the whole table when it returns.
    fn drop_queued(&mut self) {
        self.queue.clear();
        self.in_flight.clear();
        self.waiting_since = None;
        self.send_all();
    }

    /// Appends records to `body`. Returns what was appended, or `None` if nothing was.
    fn fill(
        &mut self,
        now: Duration,
        source: &mut impl Source,
        body: &mut Vec<u8>,
    ) -> Option<InFlight> {
        let overdue: Vec<u64> = self
            .in_flight
            .iter()
            .take_while(|(_, datagram)| now.saturating_sub(datagram.sent_at) > LOST_AFTER)
            .map(|(number, _)| *number)
            .collect();
        self.resend(&overdue);
        if self.in_flight.len() >= MAX_IN_FLIGHT {
            return None;
        }
        let (mut entries, mut records) = (Vec::new(), Vec::new());
        let mut queued_at = now;
        loop {
            self.extend_transfer(now, source);
            if MAX_BODY_BYTES.saturating_sub(body.len()) < 2 * MAX_RECORD_BYTES {
                break;
            }
            let Some((entry, since)) = self.queue.pop_front() else {
                break;
            };
            if let Some((upcoming, _)) = self.queue.get(PREFETCH_DISTANCE) {
                source.prefetch(*upcoming);
            }
            records.clear();
            source.export(entry, &mut records);
            for record in records.iter().take(2) {
                self.counts.sent += 1;
                Item::Flow(*record).encode(body);
            }
            if !records.is_empty() {
                entries.push(entry);
                queued_at = queued_at.min(since);
            }
        }
        let completes = self.announce_complete
            && self.queue.is_empty()
            && MAX_BODY_BYTES - body.len() >= EMPTY_ITEM_BYTES;
        if completes {
            self.announce_complete = false;
            Item::Complete.encode(body);
        }
        let mut slots = Vec::new();
        if self.queue.is_empty() && self.accepts_connections(now) {
            slots = self.connections.fill(source, body);
        }
        let datagram = InFlight {
            sent_at: now,
            queued_at,
            entries,
            slots,
            completes,
        };
        let is_empty = datagram.entries.is_empty() && datagram.slots.is_empty() && !completes;
        (!is_empty).then_some(datagram)
    }

    fn extend_transfer(&mut self, now: Duration, source: &mut impl Source) {
        while let Some(from) = self.transfer_entry
            && self.queue.len() < TRANSFER_LOW_WATERMARK
        {
            let mut entries = Vec::new();
            self.transfer_entry = source.scan(from, &mut entries);
            self.queue
                .extend(entries.into_iter().map(|entry| (entry, now)));
            if self.transfer_entry.is_none() {
                self.announce_complete = true;
                self.counts.transfers += 1;
            }
        }
    }

    fn seal(&mut self, challenge: u64, body: &[u8]) -> Option<Vec<u8>> {
        let header = Header {
            session: self.id,
            sequence: self.sequence,
            challenge,
        };
        self.sequence += 1;
        self.cipher.as_ref()?.seal(&header, body)
    }

    /// Returns the age of the oldest unacknowledged change. A flow that is sent again is at the end of the queue. For a
    /// slot, which is queued without a time, this is the time since the wait for an acknowledgement began.
    fn lag(&self, now: Duration) -> Duration {
        let queued = self.queue.front().into_iter().chain(self.queue.back());
        let queued = queued.map(|(_, time)| *time);
        let sent = self.in_flight.values().map(|datagram| datagram.queued_at);
        let oldest = queued.chain(sent).chain(self.waiting_since).min();
        oldest.map_or(Duration::ZERO, |time| now.saturating_sub(time))
    }

    fn is_unacknowledged(&self, now: Duration) -> bool {
        let is_overdue = |since| now.saturating_sub(since) > UNACKNOWLEDGED_AFTER;
        self.waiting_since.is_some_and(is_overdue)
    }

    /// Returns the status for operators.
    pub fn status(&self, now: Duration) -> Status {
        let is_new = self.remote.is_none() && now.saturating_sub(self.created_at) < SILENT_AFTER;
        let state = if is_new {
            PeerState::Connecting
        } else if !self.is_alive(now) {
            PeerState::Silent
        } else if self.is_unacknowledged(now) {
            PeerState::Unacknowledged
        } else if self.transfer_entry.is_some() || self.announce_complete {
            PeerState::Transfer
        } else {
            PeerState::Established
        };
        Status {
            state,
            lag: self.lag(now),
            queued: self.queue.len(),
            silent_for: self
                .remote
                .as_ref()
                .map(|it| now.saturating_sub(it.received_at)),
            complete: self.remote.as_ref().is_some_and(|it| it.complete),
            counts: self.counts.clone(),
        }
    }
}

#[cfg(test)]
mod tests;
