//! Simulates the control loop of `least-time` in virtual time.
//!
//! The model has servers with queues, directors that receive only samples of responses, and new shares every 10 ms.
//!
//! The tests run hundreds of scenarios with different seeds: a server that becomes slow and recovers, bursts, a server
//! in slow start, and several directors that do not share their connections.

#![allow(
    clippy::disallowed_methods,
    reason = "the length comes from the environment"
)]

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use weir_abi::COST_EXPLORE;
use weir_latency::share::{LatencyEstimate, Server as Input, shares};
use weir_latency::{Method, Statistics};
use weir_model::SplitMix64;
use weir_sched::{Counts, Member, least_time};

const SECOND_US: u64 = 1_000_000;
const PUBLISH_US: u64 = 10_000;
/// Unit of the servers' clocks in microseconds: the error of a sample is at most this value.
const CLOCK_US: u64 = 1_000;

/// Number of clients of a scenario without a rate.
const CLIENTS: usize = 16;
/// Time between a response and the client's next request.
const NEXT_REQUEST_US: u64 = 500;

/// The part of Weir that selects the server, and the values that it uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Selection {
    /// The data plane, from shares.
    Layer4,
    /// The proxy, by the lowest cost.
    Proxy,
}

/// A scenario. Times are in microseconds.
#[derive(Clone)]
struct Scenario {
    seed: u64,
    directors: usize,
    servers: usize,
    /// Total number of requests per second. 0: [`CLIENTS`] clients that each send a request after each response.
    rate: u64,
    /// Number of requests that arrive at the same time.
    burst: u64,
    /// Number of requests that a server processes at the same time.
    slots: usize,
    service_us: u64,
    /// Mean of the random part of the processing time.
    jitter_us: u64,
    /// Additional processing time of server 0 during the interval `slow`.
    slower_us: u64,
    /// Number of requests that server 0 processes at the same time during this interval.
    slow_slots: usize,
    slow: (u64, u64),
    selection: Selection,
    weights: Vec<u32>,
    end_us: u64,
}

impl Scenario {
    fn new(seed: u64) -> Self {
        Self {
            seed,
            directors: 1,
            servers: 4,
            rate: 1_000,
            burst: 1,
            slots: 8,
            service_us: 1_000,
            jitter_us: 500,
            slower_us: 0,
            slow_slots: usize::MAX,
            selection: Selection::Layer4,
            slow: (0, 0),
            weights: vec![1; 4],
            end_us: 8 * SECOND_US,
        }
    }
}

#[derive(Default)]
struct Queue {
    busy: usize,
    /// Arrival time and director of each request.
    waiting: VecDeque<(u64, usize)>,
}

struct Director {
    active: Vec<u32>,
    statistics: Vec<Statistics>,
    samples: Vec<Vec<i64>>,
    shares: Vec<u32>,
}

impl Director {
    fn new(servers: usize) -> Self {
        Self {
            active: vec![0; servers],
            statistics: vec![Statistics::new(Method::Timestamps); servers],
            samples: vec![Vec::new(); servers],
            shares: vec![1; servers],
        }
    }

    fn publish(&mut self, weights: &[u32], now_us: u64) {
        let now_ns = (now_us + 1) * 1_000;
        for (statistics, samples) in self.statistics.iter_mut().zip(&mut self.samples) {
            statistics.add(samples, now_ns);
            samples.clear();
        }
        let latency = |statistics: &Statistics| match statistics.average_us(now_ns) {
            Some(us) => LatencyEstimate::Fresh(us),
            None if statistics.total() == 0 => LatencyEstimate::New,
            None => LatencyEstimate::Stale,
        };
        let inputs = self.statistics.iter().zip(weights);
        let inputs: Vec<Input> = inputs
            .map(|(statistics, weight)| Input {
                weight: *weight,
                latency: latency(statistics),
            })
            .collect();
        self.shares = shares(&inputs);
    }

    /// Selects like a proxy service, which measures each response.
    fn choose_as_proxy(&self, weights: &[u32], now_us: u64) -> usize {
        let cost = |index: usize| {
            let latency_us = self.statistics[index].average_us((now_us + 1) * 1_000);
            least_time::cost(
                latency_us.unwrap_or(1.0),
                self.active[index],
                weights[index],
            )
        };
        let indexes = 0..weights.len();
        indexes
            .min_by(|a, b| cost(*a).total_cmp(&cost(*b)))
            .unwrap()
    }

    fn choose(&self, weights: &[u32], random: &mut SplitMix64) -> usize {
        let member = |index: usize| Member {
            seq: index as u32 + 1,
            dest: index as u32,
            weight: weights[index],
            slot: index as u32,
            usable: true,
        };
        let members: Vec<Member> = (0..weights.len()).map(member).collect();
        let counts = |slot: u32| Counts {
            active: self.active[slot as usize],
            inactive: 0,
        };
        let share = |dest: u32| self.shares[dest as usize];
        let mut draw = || random.next_u64() as u32;
        least_time::pick(&members, &share, &counts, COST_EXPLORE, &mut draw).unwrap()
    }
}

/// An event of the simulation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Publish,
    Arrive,
    /// Server, director and arrival time of the request.
    Finish(usize, usize, u64),
}

/// Number of requests in each second for each server, and all latencies.
struct Outcome {
    chosen: Vec<Vec<u64>>,
    latencies_us: Vec<u64>,
}

impl Outcome {
    /// Returns a server's share of the requests in a range of seconds.
    fn share(&self, server: usize, seconds: std::ops::Range<usize>) -> f64 {
        let total: u64 = self.chosen[seconds.clone()].iter().flatten().sum();
        let count: u64 = self.chosen[seconds]
            .iter()
            .map(|counts| counts[server])
            .sum();
        count as f64 / total as f64
    }

    fn quantile_us(&mut self, quantile: f64) -> u64 {
        self.latencies_us.sort_unstable();
        self.latencies_us[(self.latencies_us.len() as f64 * quantile) as usize]
    }
}

struct Simulation {
    scenario: Scenario,
    random: SplitMix64,
    events: BinaryHeap<Reverse<(u64, Event)>>,
    queues: Vec<Queue>,
    directors: Vec<Director>,
    outcome: Outcome,
}

fn run(scenario: &Scenario) -> Outcome {
    let seconds = (scenario.end_us / SECOND_US) as usize + 1;
    let mut simulation = Simulation {
        random: SplitMix64::new(scenario.seed),
        events: BinaryHeap::new(),
        queues: (0..scenario.servers).map(|_| Queue::default()).collect(),
        directors: (0..scenario.directors)
            .map(|_| Director::new(scenario.servers))
            .collect(),
        outcome: Outcome {
            chosen: vec![vec![0; scenario.servers]; seconds],
            latencies_us: Vec::new(),
        },
        scenario: scenario.clone(),
    };
    simulation.events.push(Reverse((0, Event::Publish)));
    let arrivals = if scenario.rate == 0 { CLIENTS } else { 1 };
    for arrival in 0..arrivals {
        simulation
            .events
            .push(Reverse((1 + arrival as u64, Event::Arrive)));
    }
    while let Some(Reverse((now_us, event))) = simulation.events.pop() {
        if now_us >= scenario.end_us {
            break;
        }
        simulation.handle(now_us, event);
    }
    simulation.outcome
}

impl Simulation {
    fn handle(&mut self, now_us: u64, event: Event) {
        match event {
            Event::Publish => {
                for director in &mut self.directors {
                    director.publish(&self.scenario.weights, now_us);
                }
                self.events
                    .push(Reverse((now_us + PUBLISH_US, Event::Publish)));
            }
            Event::Arrive => {
                for _ in 0..self.scenario.burst {
                    self.arrive(now_us);
                }
                if let Some(mean) =
                    (SECOND_US * self.scenario.burst).checked_div(self.scenario.rate)
                {
                    let pause = self.exponential(mean);
                    self.events.push(Reverse((now_us + pause, Event::Arrive)));
                }
            }
            Event::Finish(server, director, arrival) => {
                self.finish(now_us, server, director, arrival)
            }
        }
    }

    fn exponential(&mut self, mean_us: u64) -> u64 {
        let uniform = (self.random.next_u64() >> 11) as f64 / (1_u64 << 53) as f64;
        (-(1.0 - uniform).ln() * mean_us as f64) as u64 + 1
    }

    fn arrive(&mut self, now_us: u64) {
        let director_index = self.random.below(self.directors.len() as u64) as usize;
        let director = &mut self.directors[director_index];
        let weights = &self.scenario.weights;
        let server = match self.scenario.selection {
            Selection::Layer4 => director.choose(weights, &mut self.random),
            Selection::Proxy => director.choose_as_proxy(weights, now_us),
        };
        director.active[server] += 1;
        self.outcome.chosen[(now_us / SECOND_US) as usize][server] += 1;
        self.queues[server]
            .waiting
            .push_back((now_us, director_index));
        self.serve(now_us, server);
    }

    fn serve(&mut self, now_us: u64, server: usize) {
        let is_slow = server == 0 && (self.scenario.slow.0..self.scenario.slow.1).contains(&now_us);
        let slow_slots = if is_slow {
            self.scenario.slow_slots
        } else {
            usize::MAX
        };
        while self.queues[server].busy < self.scenario.slots.min(slow_slots) {
            let Some((arrival, director)) = self.queues[server].waiting.pop_front() else {
                return;
            };
            self.queues[server].busy += 1;
            let scenario = &self.scenario;
            let fixed = scenario.service_us - scenario.jitter_us
                + if is_slow { scenario.slower_us } else { 0 };
            let time = fixed + self.exponential(self.scenario.jitter_us);
            let finish = Event::Finish(server, director, arrival);
            self.events.push(Reverse((now_us + time, finish)));
        }
    }

    fn finish(&mut self, now_us: u64, server: usize, director: usize, arrival: u64) {
        self.queues[server].busy -= 1;
        self.serve(now_us, server);
        let director = &mut self.directors[director];
        director.active[server] -= 1;
        // The phase of the server's clock is different for each connection.
        let phase = self.random.below(CLOCK_US);
        let sent = (now_us + phase) / CLOCK_US * CLOCK_US;
        let sample = sent as i64 - (arrival + self.random.below(CLOCK_US)) as i64;
        director.samples[server].push(sample * 1_000);
        self.outcome.latencies_us.push(now_us - arrival);
        if self.scenario.rate == 0 {
            self.events
                .push(Reverse((now_us + NEXT_REQUEST_US, Event::Arrive)));
        }
    }
}

#[test]
fn slow_server_loses_its_share_within_a_second_and_regains_it_within_five() {
    for seed in 0..24 {
        for slower_us in [1_000, 5_000, 20_000] {
            let scenario = Scenario {
                slower_us,
                slow: (2 * SECOND_US, 5 * SECOND_US),
                end_us: 12 * SECOND_US,
                ..Scenario::new(seed)
            };
            let outcome = run(&scenario);
            let case = format!("seed {seed}, {slower_us} us slower");
            let equal = outcome.share(0, 1..2);
            assert!((0.17..0.33).contains(&equal), "{case}: {equal}");
            let reduced = outcome.share(0, 3..5);
            assert!(reduced < 0.18, "{case}: {reduced}");
            // The minimum is 1/32 of the fair share; the test requires only two thirds of this because of random
            // variation.
            assert!(reduced > 0.25 / 32.0 / 1.5, "{case}: {reduced}");
            let regained = outcome.share(0, 10..12);
            assert!((0.17..0.33).contains(&regained), "{case}: {regained}");
        }
    }
}

#[test]
fn shares_of_equal_servers_remain_equal() {
    for seed in 0..20 {
        for (directors, rate, slots) in [(1, 1_000, 8), (3, 1_000, 8), (1, 3_000, 2)] {
            let scenario = Scenario {
                directors,
                rate,
                slots,
                ..Scenario::new(seed)
            };
            let outcome = run(&scenario);
            for second in 1..8 {
                for server in 0..4 {
                    let share = outcome.share(server, second..second + 1);
                    let case = format!("seed {seed}, {directors} directors, second {second}");
                    assert!((0.18..0.32).contains(&share), "{case}: {share}");
                }
            }
        }
    }
}

#[test]
fn requests_of_a_burst_do_not_all_reach_one_server() {
    for seed in 0..20 {
        for directors in [1, 4] {
            let scenario = Scenario {
                directors,
                burst: 64,
                slots: 16,
                ..Scenario::new(seed)
            };
            let mut outcome = run(&scenario);
            // If all 64 requests were on one server, they would wait for four rounds of processing, about 5 ms.
            let p99 = outcome.quantile_us(0.99);
            assert!(p99 < 6_000, "seed {seed}, {directors} directors: {p99} us");
        }
    }
}

#[test]
fn slow_server_does_not_determine_p98() {
    let (mut pass_count, seeds) = (0, 20);
    for seed in 0..seeds {
        let scenario = Scenario {
            slower_us: 20_000,
            slow: (0, 9 * SECOND_US),
            ..Scenario::new(seed)
        };
        pass_count += u64::from(run(&scenario).quantile_us(0.98) < 15_000);
    }
    assert!(pass_count > seeds * 9 / 10, "{pass_count} of {seeds}");
}

/// The lab's experiment `slow-server`: 16 clients, and a server that handles one request at a time.
#[test]
fn p99_with_a_slow_server_is_close_to_that_of_the_proxy() {
    let median_p99_us = |selection| {
        let p99_us = |seed| {
            let scenario = Scenario {
                rate: 0,
                slots: 48,
                service_us: 4_300,
                jitter_us: 400,
                slower_us: 4_000,
                slow_slots: 1,
                slow: (0, u64::MAX),
                selection,
                ..Scenario::new(seed)
            };
            run(&scenario).quantile_us(0.99)
        };
        let mut results: Vec<u64> = (0..9).map(p99_us).collect();
        results.sort_unstable();
        results[4]
    };
    let (layer4, proxy) = (
        median_p99_us(Selection::Layer4),
        median_p99_us(Selection::Proxy),
    );
    assert!(layer4 * 10 <= proxy * 11, "{layer4} us, proxy {proxy} us");
}

#[test]
fn server_in_slow_start_gets_no_more_than_its_weight() {
    for seed in 0..20 {
        let scenario = Scenario {
            weights: vec![10, 100, 100, 100],
            ..Scenario::new(seed)
        };
        let share = run(&scenario).share(0, 1..8);
        assert!((0.01..0.05).contains(&share), "seed {seed}: {share}");
    }
}

/// Returns a random scenario: 1 to 4 directors, 2 to 6 servers, single requests or bursts.
///
/// A director sends at least 250 requests per second and server. It then receives eight samples per second from a
/// server with the minimum share, which is sufficient for the times in the tests.
fn random_scenario(seed: u64) -> Scenario {
    let mut random = SplitMix64::new(seed ^ 0x5eed);
    let mut pick = |values: &[u64]| values[random.below(values.len() as u64) as usize];
    let servers = pick(&[2, 3, 4, 6]);
    let directors = pick(&[1, 1, 2, 4]);
    let per_server = directors * pick(&[250, 500]);
    // Each of a server's slots processes 1,000 requests per second: the rate is at most half of the servers' capacity.
    let slots = (per_server / 500).max(pick(&[4, 8, 32]));
    Scenario {
        directors: directors as usize,
        servers: servers as usize,
        slots: slots as usize,
        rate: servers * per_server,
        burst: pick(&[1, 1, 8, 32]),
        slower_us: pick(&[1_000, 2_000, 5_000, 20_000]),
        slow: (3 * SECOND_US, 6 * SECOND_US),
        weights: vec![100; servers as usize],
        end_us: 12 * SECOND_US,
        ..Scenario::new(seed)
    }
}

#[test]
fn shares_stay_within_bounds_in_random_scenarios() {
    for seed in 0..100 {
        let scenario = random_scenario(seed);
        let outcome = run(&scenario);
        let case = format!(
            "seed {seed}, {} directors, {} servers, {} slots, {} requests/s in bursts of {}, {} us slower",
            scenario.directors,
            scenario.servers,
            scenario.slots,
            scenario.rate,
            scenario.burst,
            scenario.slower_us
        );
        let fair = 1.0 / scenario.servers as f64;
        // Three standard deviations of a random choice in one second, relative to the fair share.
        let variation = 3.0 / (scenario.rate as f64 * fair).sqrt();
        for second in 1..3 {
            for server in 0..scenario.servers {
                let share = outcome.share(server, second..second + 1) / fair;
                assert!(
                    (share - 1.0).abs() < 0.2 + variation,
                    "{case}: steady {share}"
                );
            }
        }
        let reduced = outcome.share(0, 4..6) / fair;
        assert!(
            reduced < 0.75 + variation / 1.4,
            "{case}: reduced to {reduced}"
        );
        // The minimum is 1/32 of the fair share, less three standard deviations of the random choice.
        let requests = scenario.rate as f64 * 3.0 * fair / 32.0;
        let floor = (1.0 - 3.0 / requests.sqrt()).max(0.0) / 32.0;
        let min_share = outcome.share(0, 3..6) / fair;
        assert!(
            min_share > floor,
            "{case}: {min_share} is less than the minimum"
        );
        let regained = outcome.share(0, 11..12) / fair;
        assert!(
            (regained - 1.0).abs() < 0.2 + variation,
            "{case}: regained {regained}"
        );
    }
}

#[test]
fn directors_that_see_the_same_change_do_not_all_choose_one_server() {
    // One of two servers becomes slow for all directors at the same time: the other server must not receive all
    // requests.
    for seed in 0..20 {
        let scenario = Scenario {
            directors: 4,
            servers: 2,
            slots: 4,
            rate: 2_000,
            weights: vec![1; 2],
            slower_us: 1_000,
            slow: (2 * SECOND_US, 6 * SECOND_US),
            ..Scenario::new(seed)
        };
        let mut outcome = run(&scenario);
        for second in 3..6 {
            let share = outcome.share(1, second..second + 1);
            assert!(
                (0.5..0.95).contains(&share),
                "seed {seed}, second {second}: {share}"
            );
        }
        let p99 = outcome.quantile_us(0.99);
        assert!(p99 < 8_000, "seed {seed}: {p99} us");
    }
}

#[test]
fn shares_stay_within_a_fifth_for_ten_minutes_soak() {
    if std::env::var_os("WEIR_SOAK").is_none() {
        return;
    }
    let scenario = Scenario {
        rate: 8_000,
        slots: 16,
        end_us: 600 * SECOND_US,
        ..Scenario::new(7)
    };
    let outcome = run(&scenario);
    for second in 1..600 {
        for server in 0..4 {
            let share = outcome.share(server, second..second + 1);
            assert!((0.2..0.3).contains(&share), "second {second}: {share}");
        }
    }
}
