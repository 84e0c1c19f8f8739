//! Decides, from recent packets, how many of a server's handshakes and half-closed flows are still in use.
//!
//! The data plane counts active flows, but handshakes that clients have abandoned are active too. Only its packets
//! show whether such a flow, or a half-closed flow whose replies bypass the director, is still in use. A flow
//! stores the tick of its last packet; a tick lasts 1.07 s. A server's packet counter is exact, so it shows within
//! [`QUIET_TIME`] that none of the server's flows receives packets any more.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use weir_abi::{EntryMeta, FLOW_ACTIVE, State};

/// Time without packets to a server after which its flows that depend on packets count as closed. Longer than the gaps
/// in a transfer that is in progress; together with the polling interval of `weir server … drain --wait`, shorter than
/// one second.
const QUIET_TIME: Duration = Duration::from_millis(700);

/// Walks of the flow table take at most 1/[`WALK_TIME_DIVISOR`] of the time.
const WALK_TIME_DIVISOR: u32 = 10;

/// Minimum time between walks while the counters alone show that connections are open.
const WALK_INTERVAL: Duration = Duration::from_secs(1);

/// Time since the last call after which a server's state is removed.
const LIFETIME: Duration = Duration::from_secs(60);

/// A server's counters, summed over its rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ServerCounters {
    /// Active flows, and connections of local clients, which have no flow.
    pub(crate) active: u64,
    /// Inactive flows.
    pub(crate) inactive: u64,
    /// Packets sent to the server.
    pub(crate) packets: u64,
}

/// A server's flows for which the counters do not show whether they are open.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct UncertainFlows {
    /// Inactive flows that are open: half-closed flows whose replies the director sees, and UDP flows with
    /// `strict_ipvs`.
    inactive_open: u64,
    /// Half-closed flows with recent packets whose replies bypass the director: they are open while packets arrive.
    half_closed_recent: u64,
    /// Incomplete handshakes with recent packets: they are open while packets arrive.
    handshakes_recent: u64,
    /// Incomplete handshakes without recent packets.
    handshakes_abandoned: u64,
}

impl UncertainFlows {
    /// Adds a flow. `sees_replies` is whether its replies pass through the director. `tick` is the current tick.
    pub(crate) fn add(&mut self, meta: EntryMeta, sees_replies: bool, tick: u32) {
        let state = State::ALL.iter().find(|state| **state as u8 == meta.state);
        let is_recent = is_recent(meta.seen, tick);
        match state {
            Some(State::Established | State::Udp) => {
                self.inactive_open += u64::from(meta.flags & FLOW_ACTIVE == 0);
            }
            Some(State::FinWait | State::CloseWait) => {
                self.inactive_open += u64::from(sees_replies);
                self.half_closed_recent += u64::from(!sees_replies && is_recent);
            }
            Some(State::SynSent | State::SynRecv | State::Synack) => {
                self.handshakes_recent += u64::from(is_recent);
                self.handshakes_abandoned += u64::from(!is_recent);
            }
            Some(State::None | State::TimeWait | State::Close | State::LastAck | State::Listen)
            | None => {}
        }
    }

    const fn handshakes(&self) -> u64 {
        self.handshakes_recent + self.handshakes_abandoned
    }
}

/// Returns whether a packet arrived in the current tick or the one before. A packet that arrives during a walk can have
/// the next tick. Without the tick before, a flow would count as closed at the start of each tick.
fn is_recent(seen: u32, tick: u32) -> bool {
    tick.wrapping_sub(seen).cast_signed() <= 1
}

/// The observations about a server.
#[derive(Clone, Debug)]
struct DrainWatch {
    packets: u64,
    /// When a packet was last observed.
    last_packet: Instant,
    last_call: Instant,
    walk: Option<Walk>,
}

/// The result of a walk of the flow table.
#[derive(Clone, Copy, Debug)]
struct Walk {
    ended: Instant,
    duration: Duration,
    flows: UncertainFlows,
}

impl DrainWatch {
    /// Returns whether the flow table must be walked.
    fn needs_walk(&self, active: u64, now: Instant) -> bool {
        self.walk.is_none_or(|walk| {
            let pause = if active > walk.flows.handshakes() {
                WALK_INTERVAL
            } else {
                walk.duration * WALK_TIME_DIVISOR
            };
            now.saturating_duration_since(walk.ended) >= pause
        })
    }

    /// Returns the number of open connections according to the counters and the last walk.
    fn open(&self, active: u64, now: Instant) -> u64 {
        let flows = self.walk.map(|walk| walk.flows).unwrap_or_default();
        let is_quiet = now.saturating_duration_since(self.last_packet) >= QUIET_TIME;
        if is_quiet {
            active.saturating_sub(flows.handshakes()) + flows.inactive_open
        } else {
            let active = active.saturating_sub(flows.handshakes_abandoned);
            active + flows.inactive_open + flows.half_closed_recent
        }
    }
}

/// The servers whose open connections were counted recently, by pool and name.
#[derive(Debug, Default)]
pub(crate) struct DrainWatches(HashMap<(String, String), DrainWatch>);

impl DrainWatches {
    /// Returns the number of open connections to a server at the time `now`. Calls `walk` if the flow table must be
    /// walked; it returns the flows and the duration of the walk. The result is at most one second old while
    /// connections are certainly open; otherwise, its age is at most ten times the duration of a walk.
    pub(crate) fn open(
        &mut self,
        pool: &str,
        server: &str,
        counters: ServerCounters,
        now: Instant,
        walk: impl FnOnce() -> (UncertainFlows, Duration),
    ) -> u64 {
        self.0
            .retain(|_, watch| now.saturating_duration_since(watch.last_call) < LIFETIME);
        let watch = self
            .0
            .entry((pool.to_owned(), server.to_owned()))
            .or_insert_with(|| DrainWatch {
                packets: counters.packets,
                last_packet: now,
                last_call: now,
                walk: None,
            });
        watch.last_call = now;
        if watch.packets != counters.packets {
            watch.packets = counters.packets;
            watch.last_packet = now;
        }
        if counters.active == 0 && counters.inactive == 0 {
            return 0;
        }
        if watch.needs_walk(counters.active, now) {
            let (flows, duration) = walk();
            watch.walk = Some(Walk {
                ended: now + duration,
                duration,
                flows,
            });
        }
        watch.open(counters.active, now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TICK: u32 = 1000;

    fn flow(state: State, seen: u32) -> EntryMeta {
        let is_active = matches!(
            state,
            State::Established | State::Udp | State::SynRecv | State::SynSent
        );
        EntryMeta {
            generation: 0,
            kind: weir_abi::KIND_FORWARD,
            state: state as u8,
            flags: if is_active { FLOW_ACTIVE } else { 0 },
            seen,
        }
    }

    /// A server with these flows, and for each flow whether the director sees its replies.
    struct Server {
        watches: DrainWatches,
        flows: Vec<(EntryMeta, bool)>,
        packets: u64,
        start: Instant,
        walks: u32,
        walk_duration: Duration,
    }

    impl Server {
        fn new(flows: &[(EntryMeta, bool)]) -> Self {
            Self {
                watches: DrainWatches::default(),
                flows: flows.to_vec(),
                packets: 100,
                start: Instant::now(),
                walks: 0,
                walk_duration: Duration::ZERO,
            }
        }

        /// Returns the number of open connections at this time. The current tick is [`TICK`].
        fn open_at(&mut self, millis: u64) -> u64 {
            let is_active = |(flow, _): &&(EntryMeta, bool)| flow.flags & FLOW_ACTIVE != 0;
            let active = self.flows.iter().filter(is_active).count() as u64;
            let counters = ServerCounters {
                active,
                inactive: self.flows.len() as u64 - active,
                packets: self.packets,
            };
            let now = self.start + Duration::from_millis(millis);
            let (flows, walks, duration) = (&self.flows, &mut self.walks, self.walk_duration);
            self.watches.open("p", "s", counters, now, || {
                *walks += 1;
                let mut uncertain = UncertainFlows::default();
                for (flow, sees_replies) in flows {
                    uncertain.add(*flow, *sees_replies, TICK);
                }
                (uncertain, duration)
            })
        }
    }

    #[test]
    fn abandoned_handshakes_are_not_open() {
        let abandoned = (flow(State::SynRecv, TICK - 2), false);
        let established = (flow(State::Established, TICK - 90), false);
        let mut server = Server::new(&[abandoned, abandoned, established]);
        assert_eq!(server.open_at(0), 1);
        server.flows.pop();
        assert_eq!(server.open_at(100), 0);
    }

    #[test]
    fn recent_handshake_is_open_until_its_server_receives_no_packets() {
        let mut server = Server::new(&[(flow(State::SynRecv, TICK), false)]);
        assert_eq!(server.open_at(0), 1);
        assert_eq!(server.open_at(600), 1);
        assert_eq!(server.open_at(700), 0);
        server.packets += 1;
        assert_eq!(server.open_at(800), 1);
    }

    #[test]
    fn half_closed_flow_is_open_while_packets_arrive() {
        // The tick of the last packet may have just ended.
        for seen in [TICK + 1, TICK, TICK - 1] {
            let mut server = Server::new(&[(flow(State::FinWait, seen), false)]);
            for step in 0..20 {
                server.packets += 1;
                assert_eq!(server.open_at(step * 400), 1, "{seen}, step {step}");
            }
            let last_packet = 19 * 400;
            assert_eq!(server.open_at(last_packet + 600), 1, "{seen}");
            assert_eq!(server.open_at(last_packet + 700), 0, "{seen}");
        }
        // Other flows of the server receive the packets.
        let mut server = Server::new(&[(flow(State::FinWait, TICK - 2), false)]);
        assert_eq!(server.open_at(0), 0);
    }

    #[test]
    fn open_count_depends_on_flow_state_and_seen_replies() {
        let open = |state, sees_replies| {
            let mut server = Server::new(&[(flow(state, TICK - 50), sees_replies)]);
            server.open_at(0);
            server.open_at(800)
        };
        for (state, sees_replies, expected) in [
            (State::Established, false, 1),
            (State::Udp, true, 1),
            (State::CloseWait, true, 1),
            (State::FinWait, true, 1),
            (State::FinWait, false, 0),
            (State::TimeWait, true, 0),
            (State::Close, true, 0),
            (State::LastAck, true, 0),
            (State::None, true, 0),
        ] {
            assert_eq!(open(state, sees_replies), expected, "{state:?}");
        }
        // With `strict_ipvs`, UDP flows count as inactive.
        let mut strict = flow(State::Udp, TICK - 50);
        strict.flags = 0;
        assert_eq!(Server::new(&[(strict, false)]).open_at(0), 1);
    }

    #[test]
    fn active_connections_without_flows_are_open() {
        let mut watches = DrainWatches::default();
        let counters = ServerCounters {
            active: 3,
            ..ServerCounters::default()
        };
        let walk = || (UncertainFlows::default(), Duration::ZERO);
        assert_eq!(watches.open("p", "s", counters, Instant::now(), walk), 3);
    }

    #[test]
    fn walks_are_rare_while_connections_are_open_and_for_large_tables() {
        let abandoned = (flow(State::SynRecv, TICK - 2), false);
        let established = (flow(State::Established, TICK), false);
        let mut server = Server::new(&[abandoned, established]);
        server.walk_duration = Duration::from_millis(20);
        for step in 0..10 {
            assert_eq!(server.open_at(step * 100), 1);
        }
        assert_eq!(server.walks, 1);
        // The counters show that the last connection has ended.
        server.flows.pop();
        assert_eq!(server.open_at(1_000), 0);
        for step in 0..10 {
            server.open_at(1_000 + step * 100);
        }
        assert!((2..=6).contains(&server.walks), "{}", server.walks);
    }

    #[test]
    fn abandoned_handshake_after_walk_counts_as_open_for_at_most_a_second() {
        let established = (flow(State::Established, TICK), false);
        let mut server = Server::new(&[established]);
        assert_eq!(server.open_at(0), 1);
        server.flows = vec![(flow(State::SynRecv, TICK - 2), false)];
        assert_eq!(server.open_at(100), 1, "not known yet");
        assert_eq!(server.open_at(1_000), 0);
    }
}
