//! Sends segments that make clients respond with an ACK, which this director's kernel resets.
//!
//! A segment whose sequence number is outside the receiver's window is not processed, but the receiver responds with an
//! ACK (RFC 9293, 3.10.7.4), so the segment's numbers are arbitrary. The kernel has no connection with these addresses
//! and replies with a reset whose sequence number is the ACK's acknowledgement number (RFC 9293, 3.10.7.1). The client
//! accepts it, because this is exactly the number that it expects (RFC 5961, 3.2). If this director has such a
//! connection after all, the ACK has no effect on it.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::Duration;

use weir_sync::Connection;
use weir_sys::SegmentSocket;
use weir_wire::{Packet, TcpFlags};

/// Times after the takeover at which each client gets a segment. The first one leaves time for gratuitous ARP. Segments
/// and responses can be lost, and Linux responds to at most two segments per second (`tcp_invalid_ratelimit`).
const DELAYS: [Duration; 3] = [
    Duration::from_millis(50),
    Duration::from_millis(1000),
    Duration::from_millis(3000),
];
/// Maximum number of segments per second.
const SEGMENTS_PER_SECOND: u64 = 10_000;
/// Maximum number of segments in one step.
const MAX_BURST: u64 = 100;
const HOP_LIMIT: u8 = 64;

/// The clients of a takeover.
#[derive(Debug)]
struct Batch {
    connections: Vec<Connection>,
    /// Index of the next client.
    next: usize,
    /// Index in [`DELAYS`].
    attempt: usize,
    started_at: Duration,
}

/// The segments to send.
#[derive(Debug, Default)]
pub(super) struct Prompts {
    batches: Vec<Batch>,
    /// Sockets by source address; `None` = it could not be opened.
    sockets: HashMap<IpAddr, Option<SegmentSocket>>,
    sent: u64,
    last_sent_at: Duration,
}

impl Prompts {
    /// Schedules segments to these clients.
    pub(super) fn add(&mut self, connections: Vec<Connection>, now: Duration) {
        // An address without a socket may have moved to this machine.
        self.sockets.retain(|_, socket| socket.is_some());
        self.batches.push(Batch {
            connections,
            next: 0,
            attempt: 0,
            started_at: now,
        });
    }

    pub(super) fn is_empty(&self) -> bool {
        self.batches.is_empty()
    }

    pub(super) const fn sent(&self) -> u64 {
        self.sent
    }

    /// Sends due segments.
    pub(super) fn send(&mut self, now: Duration) {
        if self.batches.is_empty() {
            self.sockets.clear();
            self.last_sent_at = now;
            return;
        }
        let elapsed = now.saturating_sub(self.last_sent_at);
        self.last_sent_at = now;
        let budget = elapsed.as_micros() as u64 * SEGMENTS_PER_SECOND / 1_000_000;
        let mut budget = budget.min(MAX_BURST);
        // Earlier takeovers do not delay the first segments to clients of later ones.
        self.batches.sort_by_key(|batch| batch.attempt);
        for batch in &mut self.batches {
            while budget > 0
                && let Some((connection, attempt)) = batch.next_due(now)
            {
                budget -= 1;
                let vip = connection.vip.ip();
                let socket = self.sockets.entry(vip).or_insert_with(|| open(vip));
                let packet = segment(&connection, attempt);
                if let Some(socket) = socket
                    && socket.send(&packet, connection.client.ip()).is_ok()
                {
                    self.sent += 1;
                }
            }
        }
        self.batches.retain(|batch| batch.attempt < DELAYS.len());
    }
}

impl Batch {
    /// Returns the next client whose segment is due, and the number of the attempt.
    fn next_due(&mut self, now: Duration) -> Option<(Connection, usize)> {
        let delay = DELAYS.get(self.attempt)?;
        if now < self.started_at + *delay {
            return None;
        }
        let (attempt, connection) = (self.attempt, *self.connections.get(self.next)?);
        self.next += 1;
        if self.next == self.connections.len() {
            (self.next, self.attempt) = (0, attempt + 1);
        }
        Some((connection, attempt))
    }
}

fn open(vip: IpAddr) -> Option<SegmentSocket> {
    match SegmentSocket::open(vip) {
        Ok(socket) => Some(socket),
        Err(error) => {
            tracing::warn!(%error, %vip, "clients of the other director's proxy get no reset until they send a packet");
            None
        }
    }
}

/// Returns a segment to a client. The sequence numbers of the attempts differ so much that at most one of them is in
/// the client's window. Only the second attempt has a timestamp: some clients drop segments without it (RFC 7323,
/// section 3.2), others drop ACKs with an old one (Linux 6.14).
fn segment(connection: &Connection, attempt: usize) -> Vec<u8> {
    let (client, vip) = (connection.client, connection.vip);
    let options: &[u8] = match attempt {
        1 => &[1, 1, 8, 10, 0, 0, 0, 1, 0, 0, 0, 0],
        _ => &[],
    };
    Packet::ip(vip.ip(), client.ip())
        .ttl(HOP_LIMIT)
        .tcp(vip.port(), client.port())
        .flags(TcpFlags::ACK)
        .seq((attempt as u32) << 30)
        .window(0)
        .options(options)
        .build()
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use weir_wire::{ChecksumState, Transport};

    use super::*;

    fn connection(port: u16) -> Connection {
        Connection {
            client: SocketAddr::from(([127, 0, 0, 1], port)),
            vip: SocketAddr::from(([127, 0, 0, 1], 80)),
        }
    }

    #[test]
    fn each_client_is_due_at_each_delay() {
        let start = Duration::from_secs(5);
        let mut batch = Batch {
            connections: vec![connection(1), connection(2)],
            next: 0,
            attempt: 0,
            started_at: start,
        };
        for (attempt, delay) in DELAYS.into_iter().enumerate() {
            assert_eq!(
                batch.next_due(start + delay - Duration::from_millis(1)),
                None
            );
            for port in [1, 2] {
                let due = batch.next_due(start + delay);
                assert_eq!(due, Some((connection(port), attempt)));
            }
        }
        assert_eq!(batch.next_due(start + Duration::from_secs(60)), None);
    }

    #[test]
    fn rate_is_limited_and_all_segments_are_sent() {
        if !weir_testing::require_root() {
            return;
        }
        let mut prompts = Prompts::default();
        let mut now = Duration::from_secs(5);
        prompts.send(now);
        let connections: Vec<Connection> = (1..=2000).map(connection).collect();
        prompts.add(connections, now);
        now += DELAYS[0];
        prompts.send(now);
        assert_eq!(prompts.sent(), MAX_BURST);
        let step = Duration::from_millis(5);
        let before = prompts.sent();
        now += step;
        prompts.send(now);
        assert_eq!(prompts.sent() - before, SEGMENTS_PER_SECOND / 200);
        while !prompts.is_empty() {
            now += step;
            prompts.send(now);
            assert!(now < Duration::from_secs(20));
        }
        assert_eq!(prompts.sent(), 2000 * DELAYS.len() as u64);
    }

    #[test]
    fn first_segments_precede_repeated_ones() {
        if !weir_testing::require_root() {
            return;
        }
        let mut prompts = Prompts::default();
        let mut now = Duration::from_secs(5);
        prompts.send(now);
        prompts.add((1..=200).map(connection).collect(), now);
        prompts.add((1001..=1050).map(connection).collect(), now);
        // All segments are due.
        now += DELAYS[2];
        prompts.send(now);
        for _ in 0..3 {
            now += Duration::from_millis(5);
            prompts.send(now);
        }
        // 250 segments were sent.
        let attempts: Vec<usize> = prompts.batches.iter().map(|it| it.attempt).collect();
        assert_eq!((prompts.sent(), attempts), (250, vec![1, 1]));
    }

    #[test]
    fn segment_is_an_empty_ack_with_valid_checksums() {
        for (client, vip) in [
            ("192.0.2.1:4000", "198.51.100.1:443"),
            ("[2001:db8::1]:4000", "[2001:db8::2]:443"),
        ] {
            let (client, vip): (SocketAddr, SocketAddr) =
                (client.parse().unwrap(), vip.parse().unwrap());
            let connection = Connection { client, vip };
            for (attempt, header_bytes) in [(0, 20), (1, 32), (2, 20)] {
                let packet = segment(&connection, attempt);
                let parsed = Packet::parse_ip(&packet).unwrap();
                assert_eq!(parsed.transport_checksum, ChecksumState::Valid);
                assert!(parsed.payload.is_empty(), "{parsed:?}");
                let Transport::Tcp(tcp) = &parsed.transport else {
                    panic!("{parsed:?}");
                };
                assert_eq!((tcp.src_port, tcp.dst_port), (443, 4000));
                assert_eq!(tcp.flags, TcpFlags::ACK);
                let ip_bytes = if vip.is_ipv4() { 20 } else { 40 };
                assert_eq!(packet.len(), ip_bytes + header_bytes);
            }
        }
    }
}
