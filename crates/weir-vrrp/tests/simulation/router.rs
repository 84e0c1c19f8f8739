//! Simulates two to four routers, which can be paused, on an unreliable network.
//!
//! The network loses and delays packets and may be partitioned.

use std::net::IpAddr;
use std::time::Duration;

use super::network::{
    MAX_DELAY, Overlap, Random, Timeline, address, is_soak, multicast_group, seeds,
};
use weir_vrrp::{Config, HOP_LIMIT, Instance, Output, ReceivedPacket, State, Version, decode};

const SCHEDULES: u64 = 2_000;
const SOAK_SCHEDULES: u64 = 1_000_000;
/// Time during which faults occur.
const FAULTY_PERIOD: Duration = Duration::from_secs(12);
/// Time without faults after that.
const HEALED_PERIOD: Duration = Duration::from_secs(12);

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Packet {
        to: usize,
        from: usize,
        bytes: Vec<u8>,
    },
    Timer {
        node: usize,
    },
    Start {
        node: usize,
    },
    Pause {
        node: usize,
        length: Duration,
    },
    Resume {
        node: usize,
    },
    Cut {
        first: usize,
        second: usize,
    },
    Restore {
        first: usize,
        second: usize,
    },
    Loss {
        percent: u64,
    },
    Heal,
}

struct Node {
    instance: Instance,
    address: IpAddr,
    is_started: bool,
    is_paused: bool,
    paused_at: Duration,
    queued_packets: Vec<(usize, Vec<u8>)>,
    state: State,
}

struct Simulation {
    random: Random,
    nodes: Vec<Node>,
    events: Timeline<Event>,
    cut_links: Vec<(usize, usize)>,
    loss_percent: u64,
    now: Duration,
    is_healed: bool,
    overlap: Overlap,
}

impl Simulation {
    fn new(seed: u64) -> Self {
        let mut random = Random(seed);
        let version = if random.chance(50) {
            Version::V2
        } else {
            Version::V3
        };
        let preempt = random.chance(70);
        let down_adverts = [2, 3, 3, 5][random.below(4) as usize];
        let count = 2 + random.below(3) as usize;
        let nodes = (0..count).map(|node| {
            let interval = match version {
                Version::V2 => Duration::from_secs(1),
                Version::V3 => {
                    [50, 100, 500, 1_000].map(Duration::from_millis)[random.below(4) as usize]
                }
            };
            // Priorities are often equal, so that the address decides.
            let priority = [100, 100, 150, 200, 254, 1][random.below(6) as usize];
            let config = Config {
                name: "v".to_owned(),
                version,
                vrid: 51,
                priority,
                interval,
                addresses: vec!["10.0.0.100".parse().unwrap()],
                preempt,
                down_adverts,
                ..Config::default()
            };
            Node {
                instance: Instance::new(config, Duration::ZERO),
                address: address(node),
                is_started: false,
                is_paused: false,
                paused_at: Duration::ZERO,
                queued_packets: Vec::new(),
                state: State::Init,
            }
        });
        let nodes = nodes.collect();
        let mut simulation = Self {
            random,
            nodes,
            events: Timeline::new(),
            cut_links: Vec::new(),
            loss_percent: 0,
            now: Duration::ZERO,
            is_healed: false,
            overlap: Overlap::default(),
        };
        simulation.plan_faults();
        simulation
    }

    fn plan_faults(&mut self) {
        let count = self.nodes.len();
        for node in 0..count {
            let time = self.random.time(Duration::from_secs(2));
            self.events.push(time, Event::Start { node });
        }
        for _ in 0..self.random.below(12) {
            let time = self.random.time(FAULTY_PERIOD);
            let until = (time + self.random.time(Duration::from_secs(6))).min(FAULTY_PERIOD);
            let (first, second) = (
                self.random.below(count as u64) as usize,
                self.random.below(count as u64) as usize,
            );
            match self.random.below(3) {
                0 => {
                    self.events.push(time, Event::Cut { first, second });
                    self.events.push(until, Event::Restore { first, second });
                }
                1 => self.events.push(
                    time,
                    Event::Pause {
                        node: first,
                        length: until - time,
                    },
                ),
                _ => {
                    let percent = self.random.below(90);
                    self.events.push(time, Event::Loss { percent });
                }
            }
        }
        self.events.push(FAULTY_PERIOD, Event::Heal);
    }

    fn run(&mut self) {
        let end = FAULTY_PERIOD + HEALED_PERIOD;
        while let Some((time, event)) = self.events.pop(end) {
            self.now = time;
            self.handle(event);
            self.observe();
        }
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Start { node } => {
                self.nodes[node].is_started = true;
                let source = Some(self.nodes[node].address);
                self.nodes[node].instance.handle_source(source, self.now);
                self.drain(node);
            }
            Event::Packet { to, from, bytes } => {
                if self.nodes[to].is_paused {
                    self.nodes[to].queued_packets.push((from, bytes));
                } else {
                    self.deliver(to, from, &bytes);
                    self.drain(to);
                }
            }
            Event::Timer { node } => {
                let due = self.nodes[node].instance.next_deadline();
                if !self.nodes[node].is_paused && due.is_some_and(|due| due <= self.now) {
                    self.nodes[node].instance.handle_timeout(self.now);
                    self.drain(node);
                }
            }
            Event::Pause { node, length } => {
                if !self.nodes[node].is_paused {
                    self.nodes[node].is_paused = true;
                    self.nodes[node].paused_at = self.now;
                    self.events.push(self.now + length, Event::Resume { node });
                }
            }
            Event::Resume { node } => self.resume(node),
            Event::Cut { first, second } => self.cut_links.push((first, second)),
            Event::Restore { first, second } => {
                if let Some(index) = self.cut_links.iter().position(|it| *it == (first, second)) {
                    self.cut_links.swap_remove(index);
                }
            }
            Event::Loss { percent } => self.loss_percent = percent,
            Event::Heal => {
                self.loss_percent = 0;
                self.cut_links.clear();
                self.is_healed = true;
            }
        }
    }

    /// Resumes a paused node. Handles queued packets before timers, as the driver does.
    fn resume(&mut self, node: usize) {
        self.nodes[node].is_paused = false;
        let length = self.now - self.nodes[node].paused_at;
        let was_active = self.nodes[node].state == State::Active;
        for (from, bytes) in std::mem::take(&mut self.nodes[node].queued_packets) {
            self.deliver(node, from, &bytes);
        }
        self.nodes[node].instance.handle_timeout(self.now);
        let interval = self.nodes[node].instance.config().interval;
        let sent = self.drain(node);
        // After such a long silence, another router may be active, so the node must listen first.
        assert!(
            !(sent && was_active && length >= 3 * interval),
            "an active router sent an advertisement immediately after a long pause"
        );
    }

    fn deliver(&mut self, to: usize, from: usize, bytes: &[u8]) {
        if !self.nodes[to].is_started {
            return;
        }
        let arrival = ReceivedPacket {
            bytes,
            source: address(from),
            destination: multicast_group(),
            hop_limit: HOP_LIMIT,
        };
        let received = decode(&arrival).expect("packet is valid");
        let handled = self.nodes[to]
            .instance
            .handle_packet(&received, address(from), self.now);
        handled.expect("packet is accepted");
    }

    /// Handles the node's outputs and sets its timer. Returns whether it sent an advertisement with a priority above 0.
    fn drain(&mut self, node: usize) -> bool {
        let mut sent = false;
        while let Some(output) = self.nodes[node].instance.poll_output() {
            match output {
                Output::Send { priority } => {
                    sent |= priority > 0;
                    self.send(node, priority);
                }
                Output::Changed { from, to } => {
                    assert_eq!(
                        self.nodes[node].state, from,
                        "a change does not start from the current state"
                    );
                    assert_ne!(from, to);
                    self.nodes[node].state = to;
                }
                Output::Announce { .. } | Output::AnnounceSource => {}
            }
        }
        assert_eq!(self.nodes[node].state, self.nodes[node].instance.state());
        if let Some(time) = self.nodes[node].instance.next_deadline() {
            self.events.push(time.max(self.now), Event::Timer { node });
        }
        sent
    }

    fn send(&mut self, from: usize, priority: u8) {
        let instance = &self.nodes[from].instance;
        let packet = instance.advertisement(priority);
        let bytes = packet.encode(address(from), multicast_group(), instance.checksum());
        for to in 0..self.nodes.len() {
            let is_cut =
                self.cut_links.contains(&(from, to)) || self.cut_links.contains(&(to, from));
            if to == from || is_cut || self.random.chance(self.loss_percent) {
                continue;
            }
            let time = self.now + self.random.time(MAX_DELAY);
            self.events.push(
                time,
                Event::Packet {
                    to,
                    from,
                    bytes: bytes.clone(),
                },
            );
        }
    }

    fn active(&self) -> Vec<usize> {
        let nodes = self.nodes.iter().enumerate();
        nodes
            .filter(|(_, node)| node.state == State::Active)
            .map(|(index, _)| index)
            .collect()
    }

    fn observe(&mut self) {
        if !self.is_healed {
            return;
        }
        self.overlap.observe(self.now, self.active().len());
    }

    fn longest_interval(&self) -> Duration {
        let intervals = self
            .nodes
            .iter()
            .map(|node| node.instance.config().interval);
        intervals.max().unwrap_or_default()
    }
}

#[test]
fn one_router_is_active_after_network_heals() {
    run_schedules(SCHEDULES);
}

/// Runs a million schedules in about half an hour; requires `WEIR_SOAK=1`.
#[test]
fn one_router_is_active_after_network_heals_soak() {
    if !is_soak() {
        return;
    }
    run_schedules(SOAK_SCHEDULES);
}

fn run_schedules(count: u64) {
    let mut other_winners = 0;
    for seed in seeds(count) {
        let mut simulation = Simulation::new(seed);
        simulation.run();
        // Several routers may be active until each one's next advertisement, and the response to it, has arrived.
        let limit = simulation.longest_interval() + 2 * MAX_DELAY;
        let longest = simulation.overlap.longest;
        assert!(
            longest <= limit,
            "seed {seed}: several were active for {longest:?}, limit {limit:?}"
        );
        let active = simulation.active();
        assert_eq!(active.len(), 1, "seed {seed}: active {active:?}");
        let winner = &simulation.nodes[active[0]].instance;
        let priorities = simulation.nodes.iter().map(|node| node.instance.priority());
        if winner.config().preempt {
            assert_eq!(Some(winner.priority()), priorities.max(), "seed {seed}");
        }
        for (index, node) in simulation.nodes.iter().enumerate() {
            if index != active[0] {
                assert_eq!(
                    node.instance.active_peer().map(|peer| peer.address),
                    Some(address(active[0])),
                    "seed {seed}"
                );
            }
        }
        other_winners += u64::from(active[0] != 0);
    }
    assert!(other_winners > 0, "the first router always won");
}
