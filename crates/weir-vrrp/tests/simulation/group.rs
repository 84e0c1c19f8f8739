//! Simulates two or three directors with a group of two virtual routers, each on a separate network segment.
//!
//! Packets are delayed and lost, and links between directors are cut in one direction or in both.

use std::time::Duration;

use super::network::{
    MAX_DELAY, Overlap, Random, Timeline, address, is_soak, multicast_group, seeds,
};
use weir_vrrp::{Config, HOP_LIMIT, Output, ReceivedPacket, Router, State, Version};

const SCHEDULES: u64 = 1_000;
const SOAK_SCHEDULES: u64 = 200_000;
const INTERVAL: Duration = Duration::from_millis(100);
const SEGMENTS: usize = 2;
/// Time at which packet loss on both segments ends, and by which cuts on the second segment have ended.
const SECOND_SEGMENT_HEALED: Duration = Duration::from_secs(4);
/// Time by which cuts on the first segment have ended.
const FIRST_SEGMENT_HEALED: Duration = Duration::from_secs(8);
const END: Duration = Duration::from_secs(12);
/// Time after which an unchanged network must have exactly one active director: more than two active down intervals.
const SETTLE_TIME: Duration = Duration::from_secs(1);

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Packet {
        to: usize,
        from: usize,
        segment: usize,
        bytes: Vec<u8>,
    },
    Timer {
        node: usize,
    },
    Start {
        node: usize,
    },
    Cut {
        link: Link,
    },
    Restore {
        link: Link,
    },
}

/// The link from one director to another on a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Link {
    segment: usize,
    from: usize,
    to: usize,
}

struct Simulation {
    random: Random,
    nodes: Vec<Router>,
    started: Vec<bool>,
    states: Vec<[State; SEGMENTS]>,
    events: Timeline<Event>,
    cut_links: Vec<Link>,
    loss_percent: u64,
    now: Duration,
    /// State changes after the network has been unchanged for [`SETTLE_TIME`].
    late_changes: Vec<(Duration, usize)>,
    overlap: Overlap,
}

impl Simulation {
    fn new(seed: u64) -> Self {
        let mut random = Random(seed);
        let preempt = random.chance(70);
        let count = 2 + random.below(2) as usize;
        let nodes = (0..count).map(|_| {
            let priority = [100, 100, 150, 200][random.below(4) as usize];
            let configs = (0..SEGMENTS).map(|segment| Config {
                name: format!("v{segment}"),
                version: Version::V3,
                vrid: 51 + segment as u8,
                priority,
                interval: INTERVAL,
                addresses: vec!["10.0.0.100".parse().unwrap()],
                preempt,
                group: Some("both".to_owned()),
                ..Config::default()
            });
            Router::new(configs.collect(), Duration::ZERO)
        });
        let nodes: Vec<_> = nodes.collect();
        let mut simulation = Self {
            random,
            started: vec![false; count],
            states: vec![[State::Init; SEGMENTS]; count],
            nodes,
            events: Timeline::new(),
            cut_links: Vec::new(),
            loss_percent: 0,
            now: Duration::ZERO,
            late_changes: Vec::new(),
            overlap: Overlap::default(),
        };
        simulation.plan();
        simulation
    }

    fn plan(&mut self) {
        let count = self.nodes.len() as u64;
        for node in 0..self.nodes.len() {
            let time = self.random.time(SECOND_SEGMENT_HEALED / 2);
            self.events.push(time, Event::Start { node });
        }
        self.loss_percent = self.random.below(50);
        for _ in 0..self.random.below(8) {
            let link = Link {
                segment: self.random.below(SEGMENTS as u64) as usize,
                from: self.random.below(count) as usize,
                to: self.random.below(count) as usize,
            };
            let time = self.random.time(SECOND_SEGMENT_HEALED);
            self.events.push(time, Event::Cut { link });
            // The first segment may stay cut after the second one has healed.
            let end = if link.segment == 0 {
                FIRST_SEGMENT_HEALED
            } else {
                SECOND_SEGMENT_HEALED
            };
            let until = match self.random.below(2) {
                0 => end,
                _ => (time + self.random.time(SECOND_SEGMENT_HEALED)).min(SECOND_SEGMENT_HEALED),
            };
            self.events.push(until, Event::Restore { link });
        }
    }

    fn run(&mut self) {
        while let Some((time, event)) = self.events.pop(END) {
            self.now = time;
            if self.now >= SECOND_SEGMENT_HEALED {
                self.loss_percent = 0;
            }
            self.handle(event);
            self.observe();
        }
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Start { node } => {
                self.started[node] = true;
                for index in 0..SEGMENTS {
                    self.nodes[node].handle_source(index, Some(address(node)), self.now);
                }
                self.drain(node);
            }
            Event::Packet {
                to,
                from,
                segment,
                bytes,
            } => {
                if !self.started[to] {
                    return;
                }
                let arrival = ReceivedPacket {
                    bytes: &bytes,
                    source: address(from),
                    destination: multicast_group(),
                    hop_limit: HOP_LIMIT,
                };
                let times = (self.now, Duration::ZERO);
                let handled = self.nodes[to].handle_packet(segment, &arrival, &[], times);
                handled.expect("packet is accepted");
                self.drain(to);
            }
            Event::Timer { node } => {
                if self.nodes[node]
                    .next_deadline()
                    .is_some_and(|time| time <= self.now)
                {
                    self.nodes[node].handle_timeout(self.now);
                    self.drain(node);
                }
            }
            Event::Cut { link } => self.cut_links.push(link),
            Event::Restore { link } => {
                if let Some(index) = self.cut_links.iter().position(|it| *it == link) {
                    self.cut_links.swap_remove(index);
                }
            }
        }
    }

    fn drain(&mut self, node: usize) {
        while let Some((index, output)) = self.nodes[node].poll_output() {
            match output {
                Output::Send { priority } => self.send(node, index, priority),
                Output::Changed { from, to } => {
                    assert_eq!(
                        self.states[node][index], from,
                        "each change starts from the current state"
                    );
                    self.states[node][index] = to;
                    if self.now.saturating_sub(SECOND_SEGMENT_HEALED) >= SETTLE_TIME
                        && !(FIRST_SEGMENT_HEALED..FIRST_SEGMENT_HEALED + SETTLE_TIME)
                            .contains(&self.now)
                    {
                        self.late_changes.push((self.now, node));
                    }
                }
                Output::Announce { .. } | Output::AnnounceSource => {}
            }
        }
        let [first, second] = self.states[node];
        let is_active = |state| state == State::Active;
        assert_eq!(
            is_active(first),
            is_active(second),
            "members are active together"
        );
        if let Some(time) = self.nodes[node].next_deadline() {
            self.events.push(time.max(self.now), Event::Timer { node });
        }
    }

    fn send(&mut self, from: usize, segment: usize, priority: u8) {
        let receivers = [multicast_group()];
        let packets =
            self.nodes[from].packets(segment, priority, address(from), &receivers, Duration::ZERO);
        for to in 0..self.nodes.len() {
            let link = Link { segment, from, to };
            if to == from || self.cut_links.contains(&link) || self.random.chance(self.loss_percent)
            {
                continue;
            }
            let time = self.now + self.random.time(MAX_DELAY);
            for (_, bytes) in &packets {
                let bytes = bytes.clone();
                self.events.push(
                    time,
                    Event::Packet {
                        to,
                        from,
                        segment,
                        bytes,
                    },
                );
            }
        }
    }

    fn active(&self) -> Vec<usize> {
        let nodes = self.states.iter().enumerate();
        nodes
            .filter(|(_, states)| states[1] == State::Active)
            .map(|(node, _)| node)
            .collect()
    }

    /// Records overlaps of active directors. Ignores the time before the second segment has healed.
    fn observe(&mut self) {
        if self.now < SECOND_SEGMENT_HEALED {
            return;
        }
        self.overlap.observe(self.now, self.active().len());
    }
}

#[test]
fn group_has_one_active_director_and_does_not_flap() {
    run_schedules(SCHEDULES);
}

#[test]
fn group_has_one_active_director_and_does_not_flap_soak() {
    if is_soak() {
        run_schedules(SOAK_SCHEDULES);
    }
}

fn run_schedules(count: u64) {
    let mut other_winners = 0;
    for seed in seeds(count) {
        let mut simulation = Simulation::new(seed);
        simulation.run();
        let limit = INTERVAL + 2 * MAX_DELAY;
        let longest = simulation.overlap.longest;
        assert!(
            longest <= limit,
            "seed {seed}: several directors were active for {longest:?}, limit {limit:?}"
        );
        let late = &simulation.late_changes;
        assert!(late.is_empty(), "seed {seed}: changes at {late:?}");
        let active = simulation.active();
        assert_eq!(active.len(), 1, "seed {seed}: active {active:?}");
        other_winners += u64::from(active[0] != 0);
    }
    assert!(other_winners > 0, "the first director always won");
}
