//! Compares the order of two servers by estimated latency with their true order, for clients without TCP timestamps.
//!
//! Each scenario has two servers and clients at distances of 0 to 50 ms. The director sees only the clients' packets.
//! After 200 samples for each server, the mean estimates must have the same order as the mean true latencies, in 99 %
//! of the scenarios in which the true latencies differ by at least 20 % and 0.5 ms.

use weir_latency::{Method, Packet, Table};
use weir_model::SplitMix64;

const FIN: u8 = 1;
const SYN: u8 = 2;
const ACK: u8 = 16;

const US: u64 = 1_000;
const MS: u64 = 1_000_000;
const SCENARIOS: usize = 1_000;
const SAMPLES: usize = 200;
/// Mean of the random part of each one-way path between client and server.
const JITTER_NS: u64 = 50 * US;
/// Maximum number of requests on a connection that stays open.
const MAX_REQUESTS: u64 = 20;

/// How clients use connections.
#[derive(Clone, Copy, Debug)]
enum Workload {
    /// One request per connection. The client acknowledges the response immediately.
    Single,
    /// The next request acknowledges the previous response.
    Persistent,
}

/// A client's connection, whose packets the table processes in virtual time.
struct Flow<'a> {
    random: &'a mut SplitMix64,
    table: &'a mut Table,
    packet: Packet,
    distance_ns: u64,
    now_ns: u64,
}

impl Flow<'_> {
    fn exponential(&mut self, mean_ns: u64) -> u64 {
        let uniform = (self.random.next_u64() >> 11) as f64 / (1_u64 << 53) as f64;
        (-(1.0 - uniform).ln() * mean_ns as f64) as u64
    }

    /// Returns the time from a packet that the server sends to the arrival of the client's response at the director.
    fn round_trip_ns(&mut self) -> u64 {
        self.distance_ns + self.exponential(JITTER_NS) + self.exponential(JITTER_NS)
    }

    fn send(&mut self, flags: u8, length: u16) {
        let packet = Packet {
            flags,
            length,
            ..self.packet
        };
        self.table.process_packet(&packet, self.now_ns);
        self.packet.seq = self.packet.seq.wrapping_add(u32::from(length));
    }

    /// Opens the connection.
    fn connect(&mut self) {
        self.send(SYN, 0);
        self.packet.seq = self.packet.seq.wrapping_add(1);
        self.now_ns += self.round_trip_ns();
        self.send(ACK, 0);
    }

    /// Advances the time to the acknowledgement of a response that the server sends `latency_ns` after the request.
    fn receive_response(&mut self, latency_ns: u64) {
        self.now_ns += latency_ns + self.round_trip_ns();
        self.packet.ack = self.packet.ack.wrapping_add(500);
    }
}

/// Returns the mean estimate and the mean true latency of a server over [`SAMPLES`] samples, in nanoseconds.
fn measure(workload: Workload, service_ns: u64, random: &mut SplitMix64) -> (f64, f64) {
    let mut table = Table::default();
    let (mut estimated, mut actual) = (Vec::new(), Vec::new());
    let mut now_ns = 10_000 * MS;
    while estimated.len() < SAMPLES {
        let hash = random.next_u64();
        let distance_ns = random.next_u64() % (50 * MS);
        let mut flow = Flow {
            random: &mut *random,
            table: &mut table,
            packet: Packet {
                hash,
                seq: hash as u32,
                ack: 1,
                ..Packet::default()
            },
            distance_ns,
            now_ns,
        };
        flow.connect();
        let requests = match workload {
            Workload::Single => 1,
            Workload::Persistent => 1 + flow.random.next_u64() % MAX_REQUESTS,
        };
        flow.send(ACK, 100);
        for number in 1..=requests {
            let latency_ns = flow.exponential(service_ns);
            flow.receive_response(latency_ns);
            let is_last = number == requests;
            flow.send(ACK, if is_last { 0 } else { 100 });
            let samples = flow.table.take_samples();
            assert!(samples.iter().all(|sample| sample.method == Method::Gaps));
            if let [sample] = samples[..] {
                estimated.push(sample.ns as f64);
                actual.push(latency_ns as f64);
            }
        }
        flow.send(FIN | ACK, 0);
        now_ns = flow.now_ns + MS;
    }
    let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len() as f64;
    (mean(&estimated), mean(&actual))
}

#[test]
fn servers_have_the_right_order_without_timestamps() {
    for workload in [Workload::Single, Workload::Persistent] {
        let mut random = SplitMix64::new(21);
        let (mut scenario_count, mut correct_count) = (0_u32, 0_u32);
        for _ in 0..SCENARIOS {
            // Means of 0.5 to 16 ms; the servers differ by a factor of 1 to 2.
            let service_ns = (500 * US) << (random.next_u64() % 6);
            let other_ns = service_ns + random.next_u64() % service_ns;
            let (estimate, truth) = measure(workload, service_ns, &mut random);
            let (other_estimate, other_truth) = measure(workload, other_ns, &mut random);
            let difference = (truth - other_truth).abs();
            if difference < 0.5 * MS as f64 || difference < 0.2 * truth.min(other_truth) {
                continue;
            }
            scenario_count += 1;
            correct_count += u32::from((estimate < other_estimate) == (truth < other_truth));
        }
        let percent = 100.0 * f64::from(correct_count) / f64::from(scenario_count);
        println!("{workload:?}: {correct_count} of {scenario_count} scenarios: {percent:.2} %");
        assert!(scenario_count > 500, "{scenario_count}");
        assert!(percent >= 99.0, "{workload:?}: {percent:.2} %");
    }
}
