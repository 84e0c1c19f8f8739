//! The session with one peer.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use crate::item::{ACK_BITS, Item, items};
use crate::record::Record;
use crate::replay::Window;
use crate::seal::{BODY, Cipher, Header, Key, Seed, SessionId, drawn};

/// Interval of hellos to a peer that answers, and to one that does not.
const HELLO_INTERVAL: Duration = Duration::from_millis(500);
const JOIN_INTERVAL: Duration = Duration::from_millis(200);
/// Shortest pause between answers to hellos without this director's challenge, which may be replayed.
const ANSWER_INTERVAL: Duration = Duration::from_millis(20);
/// Without a datagram for so long a peer is silent.
const SILENCE: Duration = Duration::from_secs(3);
/// A datagram without acknowledgement for so long is lost, and so is one with so many acknowledged ones after it.
const LOST_AFTER: Duration = Duration::from_millis(500);
const LOST_BEHIND: u64 = 64;
/// Datagrams without acknowledgement.
const IN_FLIGHT_MAX: usize = 256;
/// Entries in the queue; when it overflows the whole table is sent.
const QUEUE_MAX: usize = 1 << 18;
/// While fewer entries are queued, a transfer of the whole table adds more.
const TRANSFER_LOW: usize = 512;
/// So many entries before its export, an entry is prepared.
const PREPARED: usize = 8;
/// Replaced sessions that are remembered; then the challenge changes.
const RETIRED_MAX: usize = 64;
/// Maximum length of a record with its item's header.
const RECORD_MAX: usize = 160;

/// The flow table that a session sends.
pub trait Source {
    /// Appends the records of an entry: nothing if it is free or not to be sent, else a flow, and before it the
    /// template that the flow belongs to.
    fn export(&mut self, entry: u32, records: &mut Vec<Record>);

    /// An entry that is exported soon, so that its memory can be fetched meanwhile.
    fn prepare(&mut self, entry: u32);

    /// Appends used entries from `from` on, a limited number. Returns where to continue; `None` = at the end.
    fn scan(&mut self, from: u32, entries: &mut Vec<u32>) -> Option<u32>;
}

/// Why a datagram was ignored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Ignored {
    /// It is no datagram of this format.
    Format,
    /// It is forged or damaged, or the keys differ.
    Forged,
    /// It was received before.
    Replayed,
    /// It is for an earlier start of this director, or of a session that has ended.
    Stale,
}

impl Ignored {
    /// Every reason.
    pub const ALL: [Self; 4] = [Self::Format, Self::Forged, Self::Replayed, Self::Stale];

    /// As a label.
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
    /// It does not answer.
    Silent,
    /// The whole table is being sent to it.
    Transfer,
    /// It has the whole table and gets changes.
    Established,
}

impl PeerState {
    /// As text.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Silent => "silent",
            Self::Transfer => "transfer",
            Self::Established => "established",
        }
    }
}

/// Counters since the start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Records sent, repetitions included.
    pub sent: u64,
    /// Records received.
    pub received: u64,
    /// Datagrams with records that the peer did not receive; their flows are sent again.
    pub lost: u64,
    /// Changes dropped because the queue was full; the whole table is sent instead.
    pub dropped: u64,
    /// Whole tables sent.
    pub transfers: u64,
    /// Datagrams ignored, by reason.
    pub ignored: BTreeMap<Ignored, u64>,
}

/// What an operator sees of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    /// State of the peer.
    pub state: PeerState,
    /// Age of the oldest change that the peer has not acknowledged.
    pub lag: Duration,
    /// Entries that wait to be sent.
    pub queued: usize,
    /// Time since the last datagram of the peer; `None` = never.
    pub silent_for: Option<Duration>,
    /// Whether the peer has sent its whole table.
    pub complete: bool,
    /// Counters.
    pub counts: Counts,
}

#[derive(Debug)]
struct InFlight {
    at: Duration,
    entries: Vec<u32>,
    /// It has reported that the whole table was sent.
    completes: bool,
}

#[derive(Debug)]
struct Remote {
    id: SessionId,
    cipher: Cipher,
    window: Window,
    challenge: u64,
    received_at: Duration,
    complete: bool,
}

/// A session with one peer. Times are those of a clock that never goes back.
#[derive(Debug)]
pub struct Session {
    key: Key,
    seed: Seed,
    peer: u32,
    id: SessionId,
    cipher: Option<Cipher>,
    sequence: u64,
    challenge: u64,
    challenges: u32,
    remote: Option<Remote>,
    retired: Vec<SessionId>,
    /// A challenge to answer once; it may be replayed.
    answer: Option<u64>,
    answered_at: Option<Duration>,
    hello_at: Duration,
    acknowledge: bool,
    queue: VecDeque<(u32, Duration)>,
    in_flight: BTreeMap<u64, InFlight>,
    /// Where the transfer of the whole table continues.
    transfer: Option<u32>,
    announce_complete: bool,
    counts: Counts,
}

fn challenge(seed: &Seed, peer: u32, count: u32) -> u64 {
    // Zero means none.
    u64::from_be_bytes(drawn(seed, b"challenge", peer, count)).max(1)
}

impl Session {
    /// A session with the peer of this number; sessions of one process have different numbers.
    pub fn new(key: &Key, seed: Seed, peer: u32, now: Duration) -> Self {
        let id: SessionId = drawn(&seed, b"session", peer, 0);
        Self {
            cipher: key.cipher(&id),
            key: key.clone(),
            peer,
            id,
            sequence: 0,
            challenge: challenge(&seed, peer, 0),
            challenges: 0,
            seed,
            remote: None,
            retired: Vec::new(),
            answer: None,
            answered_at: None,
            hello_at: now,
            acknowledge: false,
            queue: VecDeque::new(),
            in_flight: BTreeMap::new(),
            transfer: None,
            announce_complete: false,
            counts: Counts::default(),
        }
    }

    fn is_alive(&self, now: Duration) -> bool {
        let remote = self.remote.as_ref();
        remote.is_some_and(|it| now.saturating_sub(it.received_at) < SILENCE)
    }

    /// Queues a changed entry.
    pub fn note(&mut self, entry: u32, now: Duration) {
        if !self.is_alive(now) {
            // It gets the whole table when it returns.
            return;
        }
        if self.queue.len() >= QUEUE_MAX {
            self.counts.dropped += 1;
            self.send_all();
            return;
        }
        self.queue.push_back((entry, now));
    }

    /// Sends the whole table (again).
    pub fn send_all(&mut self) {
        self.transfer = Some(0);
    }

    /// Handles a datagram of the peer, which is decrypted in place, and appends the records in it.
    ///
    /// # Errors
    /// Why it was ignored; it is counted.
    pub fn handle(
        &mut self,
        datagram: &mut [u8],
        now: Duration,
        records: &mut Vec<Record>,
    ) -> Result<(), Ignored> {
        let handled = self.accept(datagram, now, records);
        if let Err(why) = handled {
            *self.counts.ignored.entry(why).or_default() += 1;
        }
        handled
    }

    fn accept(
        &mut self,
        datagram: &mut [u8],
        now: Duration,
        records: &mut Vec<Record>,
    ) -> Result<(), Ignored> {
        let header = Header::parse(datagram).ok_or(Ignored::Format)?;
        // One of this director's own datagrams, sent back to it.
        if header.session == self.id {
            return Err(Ignored::Forged);
        }
        let known = self
            .remote
            .as_ref()
            .is_some_and(|it| it.id == header.session);
        if known {
            let remote = self.remote.as_mut().ok_or(Ignored::Stale)?;
            let body = remote
                .cipher
                .open(&header, datagram)
                .ok_or(Ignored::Forged)?;
            if header.challenge != self.challenge {
                return self.answer_hello(items(body));
            }
            if !remote.window.accept(header.sequence) {
                return Err(Ignored::Replayed);
            }
            remote.received_at = now;
            self.take(items(body), records);
            return Ok(());
        }
        let cipher = self.key.cipher(&header.session).ok_or(Ignored::Forged)?;
        let body = cipher.open(&header, datagram).ok_or(Ignored::Forged)?;
        if header.challenge != self.challenge {
            return self.answer_hello(items(body));
        }
        if self.retired.contains(&header.session) {
            return Err(Ignored::Replayed);
        }
        let hello = items(body).find_map(|item| match item {
            Item::Hello { challenge } => Some(challenge),
            _ => None,
        });
        let mut window = Window::default();
        window.accept(header.sequence);
        self.adopt(Remote {
            id: header.session,
            cipher,
            window,
            challenge: hello.ok_or(Ignored::Stale)?,
            received_at: now,
            complete: false,
        });
        self.take(items(body), records);
        Ok(())
    }

    /// A hello without this director's challenge is answered, so that the peer learns it, and has no other effect.
    fn answer_hello(&mut self, found: impl Iterator<Item = Item>) -> Result<(), Ignored> {
        for item in found {
            if let Item::Hello { challenge } = item {
                self.answer = Some(challenge);
                return Ok(());
            }
        }
        Err(Ignored::Stale)
    }

    fn adopt(&mut self, remote: Remote) {
        if let Some(before) = self.remote.replace(remote) {
            self.retired.push(before.id);
        }
        if self.retired.len() >= RETIRED_MAX {
            self.retired.clear();
            self.challenges += 1;
            self.challenge = challenge(&self.seed, self.peer, self.challenges);
        }
        self.in_flight.clear();
        self.queue.clear();
        self.send_all();
        self.hello_at = Duration::ZERO;
    }

    fn take(&mut self, found: impl Iterator<Item = Item>, records: &mut Vec<Record>) {
        for item in found {
            match item {
                Item::Hello { challenge } => {
                    if let Some(remote) = &mut self.remote {
                        remote.challenge = challenge;
                    }
                }
                Item::Flow(record) => {
                    self.acknowledge = true;
                    self.counts.received += 1;
                    records.push(record);
                }
                Item::Complete => {
                    self.acknowledge = true;
                    if let Some(remote) = &mut self.remote {
                        remote.complete = true;
                    }
                }
                Item::Ack { highest, received } => self.acknowledged(highest, &received),
            }
        }
    }

    fn acknowledged(&mut self, highest: u64, received: &[u8]) {
        let arrived = |number: u64| {
            let back = highest.checked_sub(number)?;
            let byte = received.get((back / 8) as usize)?;
            (back < ACK_BITS).then_some(byte & 1 << (back % 8) != 0)
        };
        self.in_flight
            .retain(|number, _| arrived(*number) != Some(true));
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
                for entry in datagram.entries {
                    self.queue.push_back((entry, datagram.at));
                }
            }
        }
    }

    /// The next datagram to send; `None` = nothing more to send now.
    pub fn poll(&mut self, now: Duration, source: &mut impl Source) -> Option<Vec<u8>> {
        if let Some(challenge) = self.answer.take()
            && self
                .answered_at
                .is_none_or(|at| now.saturating_sub(at) >= ANSWER_INTERVAL)
        {
            self.answered_at = Some(now);
            return self.seal(challenge, &self.hello());
        }
        let is_alive = self.is_alive(now);
        if !is_alive {
            self.forget(now);
        }
        let mut body = Vec::with_capacity(BODY);
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
        let filled = self.fill(now, source, &mut body);
        if body.is_empty() {
            return None;
        }
        let number = self.sequence;
        if let Some((entries, completes)) = filled {
            self.in_flight.insert(
                number,
                InFlight {
                    at: now,
                    entries,
                    completes,
                },
            );
        }
        self.seal(challenge, &body)
    }

    fn hello(&self) -> Vec<u8> {
        let mut body = Vec::new();
        Item::Hello {
            challenge: self.challenge,
        }
        .encode(&mut body);
        body
    }

    fn append_ack(&mut self, body: &mut Vec<u8>) {
        let Some(remote) = self.remote.as_ref().filter(|_| self.acknowledge) else {
            return;
        };
        if let Some(highest) = remote.window.highest() {
            Item::ack(highest, |number| remote.window.contains(number)).encode(body);
        }
        self.acknowledge = false;
    }

    /// A silent peer gets the whole table when it returns.
    fn forget(&mut self, _now: Duration) {
        if self.remote.is_some()
            && (!self.queue.is_empty() || !self.in_flight.is_empty() || self.transfer.is_none())
        {
            self.queue.clear();
            self.in_flight.clear();
            self.send_all();
        }
    }

    /// Appends records. Returns their entries, and whether they end the transfer of the whole table.
    fn fill(
        &mut self,
        now: Duration,
        source: &mut impl Source,
        body: &mut Vec<u8>,
    ) -> Option<(Vec<u32>, bool)> {
        let late: Vec<u64> = self
            .in_flight
            .iter()
            .take_while(|(_, datagram)| now.saturating_sub(datagram.at) > LOST_AFTER)
            .map(|(number, _)| *number)
            .collect();
        self.resend(&late);
        if self.in_flight.len() >= IN_FLIGHT_MAX {
            return None;
        }
        let (mut entries, mut records) = (Vec::new(), Vec::new());
        loop {
            self.extend_transfer(now, source);
            if BODY.saturating_sub(body.len()) < 2 * RECORD_MAX {
                break;
            }
            let Some((entry, _)) = self.queue.pop_front() else {
                break;
            };
            if let Some((later, _)) = self.queue.get(PREPARED) {
                source.prepare(*later);
            }
            records.clear();
            source.export(entry, &mut records);
            for record in records.iter().take(2) {
                self.counts.sent += 1;
                Item::Flow(*record).encode(body);
            }
            if !records.is_empty() {
                entries.push(entry);
            }
        }
        if self.announce_complete && self.queue.is_empty() && BODY - body.len() > 3 {
            self.announce_complete = false;
            Item::Complete.encode(body);
            return Some((entries, true));
        }
        (!entries.is_empty()).then_some((entries, false))
    }

    fn extend_transfer(&mut self, now: Duration, source: &mut impl Source) {
        while let Some(from) = self.transfer
            && self.queue.len() < TRANSFER_LOW
        {
            let mut entries = Vec::new();
            self.transfer = source.scan(from, &mut entries);
            self.queue
                .extend(entries.into_iter().map(|entry| (entry, now)));
            if self.transfer.is_none() {
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

    /// What an operator sees.
    pub fn status(&self, now: Duration) -> Status {
        let state = if !self.is_alive(now) {
            PeerState::Silent
        } else if self.transfer.is_some() || self.announce_complete {
            PeerState::Transfer
        } else {
            PeerState::Established
        };
        let waiting = self.queue.front().map(|(_, at)| *at);
        let sent = self.in_flight.values().map(|datagram| datagram.at);
        let oldest = waiting.into_iter().chain(sent).min();
        Status {
            state,
            lag: oldest.map_or(Duration::ZERO, |at| now.saturating_sub(at)),
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
