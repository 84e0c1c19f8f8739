//! Compares the data plane's latency estimator with weir-latency's model.
//!
//! Both must emit the same samples and count the same reasons, for random sequences of client packets and for
//! weir-latency's recorded connections. `least-time` must make the same choices as weir-sched.
//!
//! `WEIR_LATENCY_PACKETS` sets the number of packets (default 20,000; a million with `WEIR_SOAK`), and `WEIR_SEED`
//! repeats a run.

use weir_abi::{Cost, Forward, LATENCY_REASONS, LatencyReason};
use weir_dataplane::RingPositions;
use weir_latency::{FirstPayload, Method, Packet as ModelPacket, Table};
use weir_model::SplitMix64;
use weir_sched::{Counts, Kind, Member, least_time};
use weir_wire::{FiveTuple, IpProtocol, Packet, TcpFlags};

use crate::bench::{Bench, CLIENT_MAC, DIRECTOR_MAC, NewServer};

const PACKETS: u64 = 20_000;
const SOAK_PACKETS: u64 = 1_000_000;
const ALL_FLOWS: u32 = 65_536;
const MS: u64 = 1_000_000;
const TIMESTAMPS: [u8; 4] = [1, 1, 8, 10];

/// A client's packet.
#[derive(Clone, Debug, Default)]
struct Segment {
    port: u16,
    seq: u32,
    ack: u32,
    ts_ecr: Option<u32>,
    flags: TcpFlags,
    payload: Vec<u8>,
}

impl Segment {
    fn frame(&self, family: usize) -> Vec<u8> {
        let (client, vip) = [("198.51.100.1", VIPS[0]), ("2001:db8:1::1", VIPS[1])][family];
        let mut options = Vec::new();
        if let Some(echo) = self.ts_ecr {
            options.extend(TIMESTAMPS);
            options.extend(7_u32.to_be_bytes());
            options.extend(echo.to_be_bytes());
        }
        Packet::ethernet(CLIENT_MAC.into(), DIRECTOR_MAC.into())
            .ip(client.parse().unwrap(), vip.parse().unwrap())
            .tcp(self.port, 80)
            .flags(self.flags)
            .seq(self.seq)
            .ack_no(self.ack)
            .options(&options)
            .payload(&self.payload)
            .build()
    }
}

const VIPS: [&str; 2] = ["192.0.2.10", "2001:db8::10"];

/// The state of a client's connection; most of the client's packets follow the protocol.
#[derive(Clone, Copy, Debug, Default)]
struct Client {
    seq: u32,
    ack: u32,
    clock: u32,
    /// Ticks of the server's timestamp clock per millisecond; 0 = no timestamps.
    rate: u32,
}

struct Random(SplitMix64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0.below(end)
    }

    fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len() as u64) as usize]
    }

    fn one_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }
}

/// Returns the next packet of a client, `elapsed_ns` after the previous packet of any client.
fn next_segment(random: &mut Random, port: u16, client: &mut Client, elapsed_ns: u64) -> Segment {
    let advance = elapsed_ns as f64 / MS as f64 * f64::from(client.rate);
    client.clock = client.clock.wrapping_add(advance as u32);
    let mut segment = Segment {
        port,
        flags: TcpFlags::ACK,
        ..Segment::default()
    };
    match random.below(100) {
        0..=4 => {
            // A retransmission, unless another packet followed the original.
            segment.flags = TcpFlags::SYN;
            segment.seq = client.seq.wrapping_sub(1);
            return segment;
        }
        5..=12 => {
            *client = Client {
                seq: random.0.next_u64() as u32,
                ack: random.0.next_u64() as u32,
                clock: random.0.next_u64() as u32,
                rate: random.pick(&[0, 1, 1, 1_000]),
            };
            segment.flags = TcpFlags::SYN;
            segment.seq = client.seq.wrapping_sub(1);
            return segment;
        }
        13 => segment.flags = TcpFlags::RST,
        14..=16 => segment.flags = TcpFlags(0x11),
        17..=50 => {
            let bytes = random.pick(&[0, 1, 24, 25, 47, 200, 255, 510, 700, 1_448, 20_000]);
            client.ack = client.ack.wrapping_add(bytes);
        }
        51..=53 => client.clock = client.clock.wrapping_sub(random.below(70) as u32),
        54 => client.clock = client.clock.wrapping_add(random.below(70) as u32),
        _ => {}
    }
    if random.one_in(2) {
        let length = random.pick(&[1, 9, 13, 17, 24, 31, 80, 80, 300, 1_400]);
        segment.payload = match random.below(6) {
            0 => [&[0x16, 3, 1][..], &[0; 200]].concat(),
            1 => b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec(),
            _ => vec![b'x'; length],
        };
    }
    segment.seq = match random.below(20) {
        0 => client.seq.wrapping_sub(10),
        1 => client.seq.wrapping_add(10),
        // All of these bytes have been sent before.
        2 => client.seq.wrapping_sub(segment.payload.len() as u32),
        _ => client.seq,
    };
    segment.ack = client.ack;
    client.seq = segment.seq.wrapping_add(segment.payload.len() as u32);
    let plain = client.rate == 0 || random.one_in(200);
    segment.ts_ecr = (!plain).then_some(client.clock);
    segment
}

fn take_samples(bench: &Bench, positions: &mut RingPositions) -> Vec<weir_latency::Sample> {
    let mut samples = Vec::new();
    let maps = bench.plane.maps();
    maps.latency_samples(positions, &mut samples).unwrap();
    let sample = |sample: weir_abi::LatencySample| weir_latency::Sample {
        dest: sample.dest,
        ns: sample.ns,
        method: if sample.method == weir_abi::LATENCY_METHOD_GAPS {
            Method::Gaps
        } else {
            Method::Timestamps
        },
    };
    samples.into_iter().map(sample).collect()
}

fn hash(bench: &Bench, segment: &Segment, family: usize) -> u64 {
    let tuple = FiveTuple {
        protocol: IpProtocol::TCP,
        ..Packet::parse(&segment.frame(family))
            .unwrap()
            .five_tuple()
            .unwrap()
    };
    let tuple = weir_flow::Tuple {
        src: tuple.src.into(),
        dst: tuple.dst.into(),
        sport: tuple.sport,
        dport: tuple.dport,
        protocol: 6,
        family: [weir_flow::Family::V4, weir_flow::Family::V6][family],
    };
    weir_flow::FlowHashKey::new(bench.plane.secret()).hash(&tuple)
}

fn from_environment(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().expect(name))
}

/// A data plane with a server of each family, and the model that must agree with it.
struct DataplaneAndModel {
    dests: [u32; 2],
    model: Table,
    positions: RingPositions,
}

impl DataplaneAndModel {
    fn new(bench: &mut Bench) -> Self {
        let servers =
            ["10.0.0.1", "fd00::1"].map(|address| NewServer::new(Forward::Direct, address));
        let dests = [0, 1].map(|family| {
            let listen = (VIPS[family], 80);
            bench.serve(Kind::Rr, listen, &servers[family..=family]).1[0]
        });
        Self {
            dests,
            model: Table::default(),
            positions: bench.plane.maps().latency_positions().unwrap(),
        }
    }

    /// Sends a packet through the data plane and the model. Returns the number of samples.
    fn send(
        &mut self,
        bench: &mut Bench,
        segment: &Segment,
        family: usize,
        now: u64,
        context: &str,
    ) -> usize {
        bench.change_settings(|settings| {
            settings.latency_sample = ALL_FLOWS;
            settings.latency_clock = now;
        });
        let outcome = bench.run(&segment.frame(family));
        if outcome.verdict == crate::bench::Xdp::Tx {
            let packet = ModelPacket {
                hash: hash(bench, segment, family),
                dest: self.dests[family],
                seq: segment.seq,
                ack: segment.ack,
                ts_ecr: segment.ts_ecr,
                length: segment.payload.len() as u16,
                flags: segment.flags.0,
                first: FirstPayload::from_bytes(&segment.payload),
            };
            self.model.process_packet(&packet, now);
        }
        let samples = take_samples(bench, &mut self.positions);
        assert_eq!(samples, self.model.take_samples(), "{context}");
        samples.len()
    }

    /// Asserts that the data plane and the model have counted the same reasons, and returns the model.
    fn assert_same_counts(self, bench: &Bench) -> Table {
        let counts = bench.plane.maps().latency_reasons().unwrap();
        assert_eq!(counts, *self.model.counts());
        self.model
    }
}

/// Maximum payload of a packet, in bytes: a recorded packet can contain several segments that the receiver has merged.
const SEGMENT_MAX_BYTES: usize = 1_448;

/// Returns the segments in a line of a recording, and their arrival time in microseconds; see weir-latency's
/// tests/recorded.rs.
fn parse_recorded_line(line: &str) -> Option<(u64, Vec<Segment>)> {
    let words: Vec<&str> = line.split(' ').collect();
    let [time, ">", connection, seq, ack, echo, flags, length, first] = words[..] else {
        return None;
    };
    let number = |text: &str| text.parse::<u32>().expect("parse number");
    let (seq, length) = (number(seq), number(length) as usize);
    let start = match first {
        "tls" => &[0x16, 3, 1][..],
        "http2" => b"PRI",
        _ => b"",
    };
    let mut payload = start.to_vec();
    payload.resize(length.max(start.len()), b'x');
    let parts: Vec<&[u8]> = match length {
        0 => vec![&[]],
        _ => payload.chunks(SEGMENT_MAX_BYTES).collect(),
    };
    let segment = |(index, part): (usize, &&[u8])| Segment {
        port: 1_000 + number(connection) as u16,
        seq: (seq + (index * SEGMENT_MAX_BYTES) as u32).wrapping_add(0xffff_f000),
        ack: number(ack).wrapping_add(0xffff_e000),
        ts_ecr: echo
            .parse::<u32>()
            .ok()
            .map(|echo| echo.wrapping_add(0xffff_ff00)),
        flags: TcpFlags(number(flags) as u8),
        payload: part.to_vec(),
    };
    let segments = parts.iter().enumerate().map(segment).collect();
    Some((time.parse().expect("parse time"), segments))
}

#[test]
fn recorded_clients_match_the_model() {
    let Some(mut bench) = Bench::open() else {
        return;
    };
    let directory =
        std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../weir-latency/tests/recorded");
    let mut files: Vec<_> = std::fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    files.sort();
    let max_lines = match std::env::var_os("WEIR_SOAK") {
        Some(_) => usize::MAX,
        None => 600,
    };
    let mut both = DataplaneAndModel::new(&mut bench);
    let mut now = 1_000 * MS;
    for (number, file) in files.iter().enumerate() {
        let text = std::fs::read_to_string(file).unwrap();
        let (family, start, mut sample_count) = (number % 2, now, 0);
        for (time, segments) in text.lines().filter_map(parse_recorded_line).take(max_lines) {
            now = start + time * 1_000;
            for segment in segments {
                let context = format!("{}, at {time}: {segment:?}", file.display());
                sample_count += both.send(&mut bench, &segment, family, now, &context);
            }
        }
        assert!(sample_count > 0, "{} yields no sample", file.display());
        // The next file's flows cannot take slots that were used in the last second.
        now += 2_000 * MS;
    }
    both.assert_same_counts(&bench);
}

#[test]
fn random_clients_match_the_model_soak() {
    let Some(mut bench) = Bench::open() else {
        return;
    };
    let default_count = match std::env::var_os("WEIR_SOAK") {
        Some(_) => SOAK_PACKETS,
        None => PACKETS,
    };
    let count = from_environment("WEIR_LATENCY_PACKETS").unwrap_or(default_count);
    let clock = || weir_sys::now_ns(weir_sys::Clock::Monotonic);
    let seed = from_environment("WEIR_SEED").unwrap_or_else(clock);
    println!("WEIR_SEED={seed} WEIR_LATENCY_PACKETS={count}");
    let mut random = Random(SplitMix64::new(seed));
    let mut both = DataplaneAndModel::new(&mut bench);
    let mut clients = [[Client::default(); 24]; 2];
    let mut now = 1_000 * MS;
    for sent in 0..count {
        let elapsed = random.pick(&[10_000, 100_000, 300_000, MS, 2 * MS, 7 * MS])
            + if random.one_in(100) { 300 * MS } else { 0 }
            + if random.one_in(2_000) { 9_000 * MS } else { 0 };
        now += elapsed;
        let (family, index) = (random.below(2) as usize, random.below(24) as usize);
        let client = &mut clients[family][index];
        let segment = next_segment(&mut random, 1_000 + index as u16, client, elapsed);
        let context = format!("WEIR_SEED={seed}, packet {sent}: {segment:?}");
        both.send(&mut bench, &segment, family, now, &context);
    }
    let model = both.assert_same_counts(&bench);
    let counts = model.counts();
    if count >= PACKETS {
        let rare = [
            LatencyReason::Busy,
            LatencyReason::TableFull,
            LatencyReason::Rescheduled,
        ];
        for (reason, label, _) in LATENCY_REASONS {
            let is_covered = model.count(reason) > 0 || rare.contains(&reason);
            assert!(is_covered, "the packets do not cause {label}: {counts:?}");
        }
    }
}

#[test]
fn least_time_matches_weir_sched() {
    let Some(mut bench) = Bench::open() else {
        return;
    };
    bench.seed_random_numbers(9);
    let servers: Vec<_> = (1..=6)
        .map(|n| NewServer::new(Forward::Direct, &format!("10.0.0.{n}")).weight(n))
        .collect();
    let (service, dests) = bench.serve(Kind::LeastTime, (VIPS[0], 80), &servers);
    let maps = bench.plane.maps();
    let mut random = Random(SplitMix64::new(4));
    let mut draws = 0;
    for port in 0..2_000_u16 {
        if port % 50 == 0 {
            for dest in &dests {
                let share = random.pick(&[0, 1, 900, 20_000, 65_535]);
                let cost = Cost {
                    share,
                    latency_us: 1,
                };
                maps.set_cost(*dest, cost).unwrap();
            }
            maps.set_cost(
                dests[0],
                Cost {
                    share: 5,
                    latency_us: 1,
                },
            )
            .unwrap();
        }
        maps.refresh_costs_timestamp(weir_sys::now_ns(weir_sys::Clock::Monotonic))
            .unwrap();
        let member = |index: usize| Member {
            seq: index as u32 + 1,
            dest: dests[index],
            weight: index as u32 + 1,
            slot: dests[index],
            usable: true,
        };
        let members: Vec<Member> = (0..dests.len()).rev().map(member).collect();
        let counts = |slot| Counts {
            active: maps.live(slot).unwrap().active as u32,
            inactive: 0,
        };
        let share = |dest| maps.costs.get(dest).unwrap().share;
        let mut draw = || {
            draws += 1;
            weir_sched::hash::seeded_draw(9, draws - 1)
        };
        let picked = least_time::pick(&members, &share, &counts, weir_abi::COST_EXPLORE, &mut draw);
        let before: Vec<u64> = dests
            .iter()
            .map(|dest| maps.live(*dest).unwrap().total)
            .collect();
        let segment = Segment {
            port: 1_000 + port,
            flags: TcpFlags::SYN,
            ..Segment::default()
        };
        bench.run(&segment.frame(0));
        let chosen = dests
            .iter()
            .zip(before)
            .position(|(dest, before)| maps.live(*dest).unwrap().total > before);
        let expected = picked.map(|index| members[index].dest);
        assert_eq!(chosen.map(|index| dests[index]), expected, "flow {port}");
        assert_eq!(maps.cursors.get(service).unwrap().draws, draws);
    }
}

#[test]
fn least_time_behaves_like_lc_with_stale_costs() {
    let Some(mut bench) = Bench::open() else {
        return;
    };
    let servers: Vec<_> = (1..=3)
        .map(|n| NewServer::new(Forward::Direct, &format!("10.0.0.{n}")).weight(n))
        .collect();
    let (_, dests) = bench.serve(Kind::LeastTime, (VIPS[0], 80), &servers);
    let maps = bench.plane.maps();
    let (fast, slow) = (65_535, 1);
    for (dest, share) in dests.iter().zip([fast, slow, slow]) {
        maps.set_cost(
            *dest,
            Cost {
                share,
                latency_us: 1,
            },
        )
        .unwrap();
    }
    let stale = weir_sys::now_ns(weir_sys::Clock::Monotonic) - 2 * weir_abi::COST_STALE_NS;
    maps.refresh_costs_timestamp(stale).unwrap();
    for port in 0..30 {
        let segment = Segment {
            port: 1_000 + port,
            flags: TcpFlags::SYN,
            ..Segment::default()
        };
        bench.run(&segment.frame(0));
    }
    let active = |dest: &u32| maps.live(*dest).unwrap().active;
    assert_eq!(dests.iter().map(active).collect::<Vec<_>>(), [10, 10, 10]);
}
