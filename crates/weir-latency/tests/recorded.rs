//! Runs the estimator on recorded connections of real programs, and compares its samples with the true latency.
//!
//! The true latency is the time from the last packet of a request to the first payload of the response at the server's
//! interface.
//!
//! A file in `recorded/` contains a title, a line of parameters, and packets in order:
//!
//! - `TIME > CONNECTION SEQ ACK ECHO FLAGS LENGTH FIRST`, from the client. Times are in microseconds; sequence numbers
//!   and the echoed timestamp are relative to those of the SYN and the SYN-ACK.
//! - `TIME < CONNECTION LENGTH`, from the server: the first payload of at least `least` bytes after payload of the
//!   client.
//!
//! `skipped` is the number of exchanges at the start of a connection that are not requests; `ignored` contains the
//! lengths of client payloads that request nothing; `coverage` is the minimum percentage of exchanges that must yield a
//! sample.

#![allow(clippy::disallowed_methods, reason = "recordings are files")]

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use weir_abi::LATENCY_REASONS;
use weir_latency::{FirstPayload, Packet, Table};

/// Unit of the servers' clocks in microseconds.
const TICK_US: i64 = 1_000;
/// Tolerance of a single sample in addition to the clock's unit, in microseconds: the packets were recorded at the
/// server's interface instead of the director, and the SYN-ACK was sent a little later than the SYN arrived.
const SLACK_US: i64 = 200;

/// State of a connection, from the packets of both directions.
#[derive(Default)]
struct Connection {
    /// Received ranges of sequence numbers.
    received: Vec<(u32, u32)>,
    request_us: Option<i64>,
    exchanges: u32,
    /// True latencies of the responses.
    latencies_us: Vec<i64>,
}

impl Connection {
    /// Adds a payload to the received ranges. Returns whether any of it is new.
    fn receive(&mut self, seq: u32, length: u32) -> bool {
        let (mut start, mut end) = (seq, seq + length);
        if self
            .received
            .iter()
            .any(|range| range.0 <= start && end <= range.1)
        {
            return false;
        }
        self.received.retain(|range| {
            let is_disjoint = range.1 < start || end < range.0;
            if !is_disjoint {
                (start, end) = (start.min(range.0), end.max(range.1));
            }
            is_disjoint
        });
        self.received.push((start, end));
        true
    }
}

struct Parameters {
    min_bytes: u32,
    skipped: u32,
    ignored: Vec<u16>,
    coverage: usize,
}

impl Parameters {
    fn parse(line: &str) -> Self {
        let words: Vec<&str> = line.split(' ').collect();
        let [
            "least",
            min_bytes,
            "skipped",
            skipped,
            "ignored",
            ignored,
            "coverage",
            coverage,
        ] = words[..]
        else {
            panic!("invalid parameters: {line}");
        };
        let lengths = ignored.split(',').filter(|it| *it != "-");
        Self {
            min_bytes: min_bytes.parse().expect("parse `least`"),
            skipped: skipped.parse().expect("parse `skipped`"),
            ignored: lengths
                .map(|it| it.parse().expect("parse a length"))
                .collect(),
            coverage: coverage.parse().expect("parse `coverage`"),
        }
    }
}

/// Result of a recording. Times are in microseconds.
#[derive(Default)]
struct Outcome {
    /// Number of responses.
    responses: usize,
    /// Samples, each with the nearest of the true latencies of the connection's last two responses, and with the line
    /// that yielded it.
    pairs: Vec<(i64, i64, String)>,
    /// Counts of the reasons that are not 0.
    reasons: Vec<(&'static str, u64)>,
}

fn replay(text: &str) -> (Parameters, Outcome) {
    let mut lines = text.lines().skip(1);
    let parameters = Parameters::parse(lines.next().expect("no line of parameters"));
    let mut outcome = Outcome::default();
    let mut table = Table::default();
    let mut connections: BTreeMap<u32, Connection> = BTreeMap::new();
    for line in lines {
        let words: Vec<&str> = line.split(' ').collect();
        let number = |index: usize| -> u32 { words[index].parse().expect("parse the field") };
        let (now_us, connection) = (i64::from(number(0)), number(2));
        let state = connections.entry(connection).or_default();
        if words[1] == "<" {
            process_response(state, &parameters, now_us, number(3), &mut outcome);
            continue;
        }
        let packet = Packet {
            hash: u64::from(connection) << 51 | u64::from(connection),
            dest: connection,
            seq: number(3),
            ack: number(4),
            ts_ecr: words[5].parse().ok(),
            length: words[7].parse().expect("parse the length"),
            flags: words[6].parse().expect("parse the flags"),
            first: match words[8] {
                "tls" => FirstPayload::Tls,
                "http2" => FirstPayload::Preface,
                _ => FirstPayload::Other,
            },
        };
        let is_request = packet.length > 0 && !parameters.ignored.contains(&packet.length);
        if packet.length > 0 && state.receive(packet.seq, packet.length.into()) && is_request {
            state.request_us = Some(now_us);
        }
        table.process_packet(&packet, (now_us as u64 + 5_000_000) * 1_000);
        for sample in table.take_samples() {
            let us = sample.ns / 1_000;
            let state = &connections[&sample.dest];
            let last = state.latencies_us.iter().rev().take(2);
            let nearest = last.min_by_key(|it| (*it - us).abs());
            let nearest = nearest.unwrap_or_else(|| panic!("{line}: sample without a response"));
            outcome.pairs.push((us, *nearest, line.to_owned()));
        }
    }
    let counts = LATENCY_REASONS.map(|(reason, label, _)| (label, table.count(reason)));
    outcome.reasons = counts.into_iter().filter(|it| it.1 > 0).collect();
    (parameters, outcome)
}

fn process_response(
    state: &mut Connection,
    parameters: &Parameters,
    now_us: i64,
    length: u32,
    out: &mut Outcome,
) {
    if length < parameters.min_bytes {
        return;
    }
    let Some(request_us) = state.request_us.take() else {
        return;
    };
    state.exchanges += 1;
    if state.exchanges > parameters.skipped {
        state.latencies_us.push(now_us - request_us);
        out.responses += 1;
    }
}

fn mean(values: impl Iterator<Item = i64>, count: usize) -> f64 {
    values.sum::<i64>() as f64 / count as f64
}

#[test]
fn samples_match_latencies_at_the_servers_interface() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/recorded");
    let mut files: Vec<_> = fs::read_dir(directory)
        .expect("read the directory of recordings")
        .map(|entry| entry.expect("read the directory entry").path())
        .collect();
    files.sort();
    assert!(files.len() >= 10, "{files:?}");
    for file in files {
        let text = fs::read_to_string(&file).expect("read the recording");
        let (parameters, outcome) = replay(&text);
        let name = file.file_stem().unwrap_or_default().to_string_lossy();
        let sample_count = outcome.pairs.len();
        let is_near = |it: &&(i64, i64, String)| (it.0 - it.1).abs() <= TICK_US + SLACK_US;
        let pairs: Vec<_> = outcome.pairs.iter().filter(is_near).collect();
        let count = pairs.len();
        let estimate = mean(pairs.iter().map(|it| it.0), count);
        let true_latency = mean(pairs.iter().map(|it| it.1), count);
        println!(
            "{name:<12} {count:>4} samples of {:>4} responses, mean {:.3} ms, true mean {:.3} ms, {:?}",
            outcome.responses,
            estimate / 1_000.0,
            true_latency / 1_000.0,
            outcome.reasons
        );
        let required = outcome.responses * parameters.coverage / 100;
        assert!(
            sample_count >= required,
            "{name}: {sample_count} samples of {} responses",
            outcome.responses
        );
        // If a response and the client's probe for it are lost, the retransmitted response cannot be distinguished from
        // a late one.
        let outlier = outcome.pairs.iter().find(|it| !is_near(it));
        assert!(
            (sample_count - count) * 500 <= sample_count,
            "{name}: {outlier:?}"
        );
        // The unit of the clock adds the difference of two uniformly distributed errors, with a standard deviation of
        // 0.41 units.
        let limit =
            (true_latency * 0.05).max(150.0) + 3.0 * 0.41 * TICK_US as f64 / (count as f64).sqrt();
        assert!(
            (estimate - true_latency).abs() <= limit,
            "{name}: {estimate} us"
        );
    }
}
