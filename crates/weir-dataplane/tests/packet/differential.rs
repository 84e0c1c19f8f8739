//! Tests that random packets lead to the same verdict, frame and counters in the data plane and in the model.
//!
//! Some packets are malformed, and some flows come from another director.
//!
//! `WEIR_DIFFERENTIAL_PACKETS` sets the number of packets (default 100,000; ten million with `WEIR_SOAK`, a million per
//! table), and `WEIR_SEED` repeats a run. The stream contains no ICMP and no fragments, which the model does not cover,
//! and no IPv6 sources that are multicast addresses.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::{IpAddr, SocketAddr};

use weir_abi::{
    BUCKET_SLOTS, Be16, DEST_LIVE, DEST_LOCAL, DEST_RESCHEDULE, DEST_RESET, DEST_SNAT, Forward,
    HOP_READY, Reason, SERVICE_DROP_NO_SERVER, SYNC_CONFLICT, SYNC_GONE, SYNC_INSERTED, SYNC_OLDER,
    SYNC_UPDATED, State, SyncFlow, TUNNEL_CSUM, TUNNEL_REMCSUM, Tunnel,
};
use weir_flow::model::{PortRange, VipRow};
use weir_flow::{Geometry, Layout, PacketClass, parse};
use weir_model::SplitMix64;
use weir_sched::Kind;
use weir_wire::{FiveTuple, IpProtocol, Packet, TcpFlags};

use crate::bench::{Bench, CLIENT_MAC, DIRECTOR_MAC, NewServer, OTHER_DEVICE};
use crate::support::privileged;
use crate::wire::{Shape, at};

const PACKETS: u64 = 100_000;
const SOAK_PACKETS: u64 = 10_000_000;
/// Number of packets for one flow table.
const TABLE_PACKETS: u64 = 1_000_000;
/// Number of entries of a table that does not become full.
const LARGE_TABLE_FLOWS: u32 = 7 * 16_384;
/// Number of packets between two changes by user space.
const PACKETS_PER_CHANGE: u64 = 250;

/// Seeded random numbers.
struct Random(SplitMix64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0.below(end as u64) as usize
    }

    fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len())]
    }

    fn one_in(&mut self, times: usize) -> bool {
        self.below(times) == 0
    }
}

struct Family {
    vip: &'static str,
    clients: [&'static str; 4],
    servers: &'static str,
    snat: &'static str,
}

const FAMILIES: [Family; 2] = [
    Family {
        vip: "192.0.2.10",
        clients: ["198.51.100.1", "198.51.100.2", "203.0.113.9", "127.0.0.1"],
        servers: "10.0.0.",
        snat: "10.9.9.9",
    },
    Family {
        vip: "2001:db8::10",
        clients: [
            "2001:db8:1::1",
            "2001:db8:1::2",
            "2001:db8:ffff::9",
            "fd00:7::1",
        ],
        servers: "fd00::",
        snat: "fd00:9::9",
    },
];

fn tunnel(server: &str, tunnel: Tunnel, flags: u8) -> NewServer {
    let source = if server.contains(':') {
        "fd00:9::1"
    } else {
        "10.9.9.1"
    };
    NewServer::new(Forward::Tunnel, server).row(|row| {
        (row.tunnel, row.tunnel_flags) = (tunnel as u8, flags);
        row.tunnel_source = source.parse::<IpAddr>().unwrap().into();
        row.tunnel_port = Be16::new(6080);
    })
}

/// Schedulers and servers of the services on ports 80 to 88. The last two have no servers.
fn server_sets(family: &Family) -> [(Kind, Vec<NewServer>); 9] {
    let server = |forward, last: u8| NewServer::new(forward, &format!("{}{last}", family.servers));
    let nat = |last| server(Forward::Nat, last).port(8080);
    [
        (
            Kind::Wlc,
            vec![
                server(Forward::Direct, 1).weight(3),
                server(Forward::Direct, 2).hop(|hop| hop.vlan = 9),
                server(Forward::Direct, 3).hop(|hop| hop.vlan = 0),
                server(Forward::Direct, 4).hop(|hop| hop.ifindex = OTHER_DEVICE),
            ],
        ),
        (
            Kind::Rr,
            vec![nat(11), nat(12), nat(13).hop(|hop| hop.mtu = 300)],
        ),
        (
            Kind::Maglev,
            vec![
                server(Forward::L3dsr, 21).row(|row| row.dscp = 1),
                server(Forward::L3dsr, 22).row(|row| row.dscp = 63),
                server(Forward::L3dsr, 23),
            ],
        ),
        (
            Kind::Wrr,
            vec![
                tunnel("10.0.1.1", Tunnel::Ipip, 0).weight(2),
                tunnel("fd00:1::1", Tunnel::Ipip, 0),
                tunnel("10.0.1.2", Tunnel::Gre, TUNNEL_CSUM).weight(4),
                tunnel("fd00:1::2", Tunnel::Gre, 0).hop(|hop| hop.mtu = 400),
                tunnel("10.0.1.3", Tunnel::Gue, 0),
                tunnel("fd00:1::3", Tunnel::Gue, TUNNEL_CSUM).weight(3),
                tunnel("10.0.1.4", Tunnel::Gue, TUNNEL_REMCSUM),
                tunnel("fd00:1::4", Tunnel::Gue, TUNNEL_REMCSUM),
            ],
        ),
        (
            Kind::Lc,
            vec![
                nat(31).row(|row| row.flags |= DEST_SNAT),
                nat(32).row(|row| row.flags |= DEST_SNAT),
            ],
        ),
        (
            Kind::Rr,
            vec![
                server(Forward::Direct, 41).hop(|hop| hop.flags = HOP_READY),
                server(Forward::Direct, 42).hop(|hop| hop.ifindex = 0),
                server(Forward::Direct, 43).row(|row| row.flags |= DEST_LOCAL),
            ],
        ),
        (Kind::Wlc, vec![nat(11), nat(12)]),
        (Kind::Rr, vec![]),
        (Kind::Rr, vec![]),
    ]
}

/// Adds the services of one family on ports 80 to 88, on a range, and on any other port. Returns the services whose
/// servers may be changed, with their servers.
fn add_services(bench: &mut Bench, family: &Family) -> Vec<(u32, Vec<u32>)> {
    let mut changing = Vec::new();
    let mut services = Vec::new();
    for (port, (kind, servers)) in (80..).zip(server_sets(family)) {
        let (service, dests) = bench.serve(kind, (family.vip, port), &servers);
        if !dests.is_empty() {
            changing.push((service, dests));
        }
        services.push(service);
    }
    bench.add_snat(services[4], &[family.snat], (20_000, 20_400));
    bench.change_service_row(services[8], |row| row.flags |= SERVICE_DROP_NO_SERVER);
    bench.add_vip(
        family.vip,
        VipRow {
            any_udp: services[2],
            ranges: vec![PortRange {
                first: 90,
                last: 92,
                protocol: 6,
                service: services[0],
            }],
            ..VipRow::default()
        },
    );
    changing
}

/// Returns a packet that a client or server might send.
fn random_packet(random: &mut Random, replies: &VecDeque<FiveTuple>) -> Vec<u8> {
    static DATA: [u8; 1480] = [0x5a; 1480];
    let family = &FAMILIES[random.below(2)];
    let shape = Shape {
        udp: random.one_in(3),
        flags: TcpFlags(random.pick(&[2, 2, 2, 16, 16, 16, 24, 17, 4, 18, 20, 0, 0xff, 3])),
        payload: &DATA[..random.pick(&[0, 0, 1, 2, 17, 100, 200, 350, 1400, 1480])],
        ttl: random.pick(&[64, 64, 64, 64, 255, 2, 1, 0]),
        tos: random.pick(&[0, 0, 0x2e << 2, 1, 0xff]),
        tags: random.pick(&[&[] as &[u16], &[], &[], &[5], &[5, 6]]),
        ip_options: random.one_in(6),
        tcp_options: random.pick(&[&[] as &[u8], &[2, 4, 5, 180]]),
        bad_checksum: random.one_in(8),
        no_checksum: random.one_in(6),
        padding: random.pick(&[0, 0, 0, 6, 1]),
    };
    let shape = Shape {
        bad_checksum: shape.bad_checksum && !(shape.udp && shape.no_checksum),
        ..shape
    };
    if random.one_in(4) && !replies.is_empty() {
        let reply = replies[random.below(replies.len())];
        let shape = Shape {
            udp: reply.protocol == IpProtocol::UDP,
            ..shape
        };
        let ends = (
            SocketAddr::new(reply.dst, reply.dport),
            SocketAddr::new(reply.src, reply.sport),
        );
        return shape.build(([2, 0, 0, 0, 9, 9], DIRECTOR_MAC), ends.0, ends.1);
    }
    let client = at(random.pick(&family.clients), 1000 + random.below(40) as u16);
    if random.one_in(40) {
        let protocol = IpProtocol(random.pick(&[47, 50, 51, 132, 4, 41, 59, 255]));
        let link = Packet::ethernet(CLIENT_MAC.into(), DIRECTOR_MAC.into());
        return link
            .ip(client.ip(), family.vip.parse().unwrap())
            .raw(protocol, shape.payload)
            .build();
    }
    let address = if random.one_in(20) {
        random.pick(&family.clients)
    } else {
        family.vip
    };
    shape.arriving(client, at(address, 80 + random.below(15) as u16))
}

/// Returns a record that another director might send, for a client's flow or an unrelated flow.
fn random_record(random: &mut Random, bench: &Bench, services: &[(u32, Vec<u32>)]) -> SyncFlow {
    let (_, dests) = &services[random.below(services.len())];
    let dest = random.pick(dests);
    let row = bench.model.config().dests[&dest];
    // A tunnel server's family can differ from its service's. These records use the first family.
    let family = &FAMILIES[usize::from(row.family == 6 && row.forward != Forward::Tunnel as u8)];
    let client = random.pick(&family.clients);
    let port = 80 + random.below(9) as u16;
    let udp = random.one_in(3);
    let with_snat = (row.flags & DEST_SNAT != 0) != random.one_in(8);
    let states = [
        State::Established,
        State::Established,
        State::FinWait,
        State::CloseWait,
        State::TimeWait,
        State::Close,
    ];
    SyncFlow {
        proto: if udp { 17 } else { 6 },
        state: if udp {
            State::Udp
        } else {
            random.pick(&states)
        } as u8,
        active: u8::from(random.one_in(2)),
        snat: family.snat.parse::<IpAddr>().unwrap().into(),
        snat_port: Be16::new(if with_snat {
            20_000 + random.below(401) as u16
        } else {
            0
        }),
        dest_generation: row.generation + u32::from(random.one_in(20)),
        idle: random.pick(&[0, 0, 1, 5, 100]),
        ..bench.record(
            dest,
            (client, 1000 + random.below(40) as u16),
            (family.vip, port),
        )
    }
}

/// Changes a frame at a random position.
fn mutate(random: &mut Random, frame: &mut Vec<u8>) {
    for _ in 0..=random.below(3) {
        let header = frame.len().min(90);
        match random.below(4) {
            0 => frame.truncate(14 + random.below(frame.len() - 13)),
            1 => frame.extend([random.0.next_u64() as u8; 7]),
            2 => frame[12 + random.below(header - 12)] = random.0.next_u64() as u8,
            _ => frame[12 + random.below(header - 12)] ^= 1 << random.below(8),
        }
    }
}

/// Changes a weight, a row or a setting, as the daemon does between packets.
fn apply_random_change(random: &mut Random, bench: &mut Bench, services: &[(u32, Vec<u32>)]) {
    let (service, dests) = &services[random.below(services.len())];
    let dest = random.pick(dests);
    match random.below(8) {
        0..=2 => bench.set_weight(*service, dest, random.pick(&[0, 1, 1, 2, 5])),
        3 => {
            let removal_flags = random.pick(&[0, DEST_RESET, DEST_RESCHEDULE]);
            bench.change_dest_row(dest, |row| {
                row.flags = row.flags & !(DEST_RESET | DEST_RESCHEDULE) | DEST_LIVE | removal_flags
            });
        }
        4 => bench.change_dest_row(dest, |row| row.flags |= DEST_LIVE),
        5 => bench.change_settings(|settings| {
            settings.syn_budget = random.pick(&[u32::MAX, u32::MAX, 0])
        }),
        6 => {
            let state = random.pick(&[
                State::SynRecv,
                State::Udp,
                State::FinWait,
                State::Established,
            ]);
            let ticks = random.pick(&[1_000_000, 1_000_000, u32::MAX]);
            bench.change_settings(|settings| settings.timeouts[state as usize] = ticks);
        }
        _ => bench.change_settings(|settings| {
            settings.reject_budget = random.pick(&[u32::MAX, u32::MAX, 0])
        }),
    }
}

/// Returns whether a packet must be skipped: a packet that a separate stage handles, or a packet from a client to which
/// the kernel routes replies even with forwarding off, because it always has a route to ff00::/8.
fn is_skipped(layout: &Layout) -> bool {
    let multicast = layout.src.octets()[0] == 0xff;
    multicast
        || !matches!(
            layout.class,
            PacketClass::Plain | PacketClass::OtherProtocol
        )
}

fn from_environment(name: &str) -> Option<u64> {
    std::env::var(name)
        .ok()
        .map(|text| text.parse().expect(name))
}

#[test]
fn random_packets_match_the_model_soak() {
    let default_count = match std::env::var_os("WEIR_SOAK") {
        Some(_) => SOAK_PACKETS,
        None => PACKETS,
    };
    let count = from_environment("WEIR_DIFFERENTIAL_PACKETS").unwrap_or(default_count);
    let clock = || weir_sys::now_ns(weir_sys::Clock::Monotonic);
    let seed = from_environment("WEIR_SEED").unwrap_or_else(clock);
    let mut remaining = count;
    for table in 0.. {
        run_stream(
            seed.wrapping_add(table),
            remaining.min(TABLE_PACKETS),
            LARGE_TABLE_FLOWS,
        );
        remaining = remaining.saturating_sub(TABLE_PACKETS);
        if remaining == 0 {
            break;
        }
    }
}

/// Repeats a stream that once caused a difference, which could not be reproduced. The tick may have changed between the
/// data plane's packet and the model's.
#[test]
fn former_difference_does_not_recur() {
    run_stream(2_500_838_058_190, 20_000, LARGE_TABLE_FLOWS);
}

/// Tests tables that are so small that flows use second buckets and the stash, or find no free entry: one page, one
/// page with a stash, several pages.
#[test]
fn full_tables_match_the_model() {
    if !privileged() {
        return;
    }
    let seed = from_environment("WEIR_SEED")
        .unwrap_or_else(|| weir_sys::now_ns(weir_sys::Clock::Monotonic));
    let (mut refused, mut stashed) = (0, 0);
    for buckets in [4, 20, 35, 70] {
        let state = run_stream(seed, 6_000, 7 * buckets);
        refused += state.refused;
        stashed += state.stashed;
    }
    assert!(
        refused > 0 && stashed > 0,
        "{refused} refused, {stashed} in a stash"
    );
}

/// The final state of a table.
#[derive(Default)]
struct FinalState {
    /// Number of flows for which no entry was free; with `nat`, they were dropped.
    refused: u64,
    /// Number of entries in the stash.
    stashed: usize,
}

/// Asserts that the stream causes most reasons and every record result that is possible in a table with free slots.
fn assert_variety(reasons: &BTreeMap<u32, u64>, results: &BTreeSet<u8>) {
    assert!(
        reasons.len() >= 18,
        "the stream causes too few reasons: {reasons:?}"
    );
    let expected = [
        SYNC_INSERTED,
        SYNC_UPDATED,
        SYNC_OLDER,
        SYNC_CONFLICT,
        SYNC_GONE,
    ];
    assert!(
        expected.iter().all(|result| results.contains(result)),
        "{results:?}"
    );
}

fn run_stream(seed: u64, count: u64, flows: u32) -> FinalState {
    let Some(mut bench) = Bench::with_flows(flows) else {
        return FinalState::default();
    };
    println!("WEIR_SEED={seed} WEIR_DIFFERENTIAL_PACKETS={count}, {flows} entries");
    let mut random = Random(SplitMix64::new(seed));
    bench.learn_clients();
    let services: Vec<(u32, Vec<u32>)> = FAMILIES
        .iter()
        .flat_map(|family| add_services(&mut bench, family))
        .collect();
    let mut replies = VecDeque::new();
    let mut reasons = BTreeMap::<u32, u64>::new();
    let mut results = BTreeSet::new();
    let mut sent = 0;
    while sent < count {
        if sent % PACKETS_PER_CHANGE == 0 {
            apply_random_change(&mut random, &mut bench, &services);
        }
        if random.one_in(12) {
            let record = random_record(&mut random, &bench, &services);
            results.insert(bench.synchronize(record));
        }
        let mut frame = random_packet(&mut random, &replies);
        if random.one_in(5) {
            mutate(&mut random, &mut frame);
        }
        if parse(&frame).is_ok_and(|layout| is_skipped(&layout)) {
            continue;
        }
        sent += 1;
        let outcome = bench.try_send(&frame).unwrap_or_else(|difference| {
            panic!("WEIR_SEED={seed}, packet {sent}: {difference}");
        });
        for reason in outcome.counted {
            *reasons.entry(reason.number()).or_default() += 1;
        }
        let translated = Packet::parse(&outcome.frame)
            .ok()
            .and_then(|parsed| parsed.five_tuple());
        if let Some(tuple) =
            translated.filter(|tuple| outcome.frame != frame && tuple.dport == 8080)
        {
            replies.push_back(tuple);
            if replies.len() > 64 {
                replies.pop_front();
            }
        }
        if sent % (count / 4).max(1) == 0 {
            bench.assert_same_state();
        }
    }
    bench.assert_same_state();
    if count >= PACKETS {
        assert_variety(&reasons, &results);
    }
    let count_of = |reason: Reason| reasons.get(&reason.number()).copied().unwrap_or(0);
    let flows = &bench.plane.maps().flows;
    let homes = Geometry::new(flows.buckets()).home_count();
    let in_stash = |flow: &weir_dataplane::Flow| flow.index / BUCKET_SLOTS >= homes;
    FinalState {
        refused: count_of(Reason::DropNoPlace) + count_of(Reason::CountTableFull),
        stashed: flows.walk().filter(in_stash).count(),
    }
}
