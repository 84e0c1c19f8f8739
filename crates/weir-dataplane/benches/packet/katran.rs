//! katran's own program under the same packets, where the path of its object is given; its maps are filled from outside.
//!
//! `KATRAN_OBJ` is `balancer.bpf.c` built as it comes, `KATRAN_GUE_OBJ` the same with `GUE_ENCAP`. Names, keys and values of
//! its maps are those of its `balancer_maps.h` and `balancer_structs.h`; nothing else of it is known here.

use std::net::IpAddr;
use std::time::Duration;

use aya::maps::{Array, ArrayOfMaps, HashMap, Map, MapData, MapFd, PerCpuArray};
use aya::programs::{Program, ProgramFd};
use aya::{Ebpf, EbpfLoader};

use crate::Outcome;
use crate::case::{Case, Stream, established};
use crate::feed::{Feed, Objects};
use crate::frame::{Frame, TCP, UDP};
use crate::ground::{Ground, PORT, SERVERS, server, server_mac, vip};
use crate::measure::Effort;
use crate::report::{Nets, Spread, Table};

const RING: u32 = 65_537;
/// Connections it remembers: as many as Weir's cases have flows.
const CONNECTIONS: u32 = 1 << 20;
/// It enters at most 125 000 a second and CPU: flows are made in portions, a second each.
const PORTION: u32 = 100_000;
const PORTION_TIME: Duration = Duration::from_millis(1100);
/// stats[MAX_VIPS + LRU_CNTRS]: lookups of connections, and how many missed.
const LOOKUPS: u32 = 512;
const XDP_PASS: u32 = 2;
const XDP_TX: u32 = 3;

const STREAMS: [Stream; 7] = [
    Stream::Established(1),
    Stream::Established(1 << 14),
    Stream::Established(1 << 20),
    Stream::Datagrams,
    Stream::RandomDatagrams,
    Stream::Flood,
    Stream::NotOurs,
];

/// Measures what the environment names.
pub(crate) fn run(
    ground: &Ground,
    objects: &mut Objects,
    effort: Effort,
    only: &str,
) -> Outcome<Nets> {
    let mut nets = Nets::new();
    if !"katran".contains(only) {
        return Ok(nets);
    }
    println!("\nkatran, the same packets (its connection table holds {CONNECTIONS})\n");
    let builds = [("KATRAN_OBJ", "ipip", 20), ("KATRAN_GUE_OBJ", "gue", 28)];
    let given: Vec<_> = builds
        .into_iter()
        .filter_map(|(name, encapsulation, growth)| {
            Some((std::env::var_os(name)?, encapsulation, growth))
        })
        .collect();
    if given.is_empty() {
        println!("katran: no object given (KATRAN_OBJ, KATRAN_GUE_OBJ), rows left out");
        return Ok(nets);
    }
    let table = Table::new(&["katran", "packets", "floor", "net", "least…most", "hits"]);
    table.head();
    for (path, encapsulation, growth) in given {
        let bytes = std::fs::read(path)?;
        for stream in STREAMS {
            let case = Case {
                stream,
                ..established(1)
            };
            let katran = Katran::load(&bytes)?;
            let (net, row) = katran.row(ground, objects, effort, &case, encapsulation, growth)?;
            table.row(&row);
            nets.insert((format!("katran {encapsulation}"), stream.label()), net);
        }
    }
    Ok(nets)
}

struct Katran {
    program: ProgramFd,
    stats: PerCpuArray<MapData, [u64; 2]>,
    /// What a program's maps are held by is the program; this keeps the object's own bookkeeping.
    _object: Ebpf,
}

impl Katran {
    fn load(bytes: &[u8]) -> Outcome<Self> {
        let mut object = EbpfLoader::new()
            .map_max_entries("fallback_cache", CONNECTIONS)
            .load(bytes)?;
        let (_, program) = object.programs_mut().next().ok_or("no program")?;
        let Program::Xdp(program) = program else {
            return Err("not an XDP program".into());
        };
        // Before any map is taken out of the object: the instructions name them by their descriptors.
        program.load()?;
        let program = program.fd()?.try_clone()?;
        fill(&mut object)?;
        let stats = PerCpuArray::try_from(take(&mut object, "stats")?)?;
        Ok(Self {
            program,
            stats,
            _object: object,
        })
    }

    fn counter(&self, index: u32) -> Outcome<[u64; 2]> {
        let values = self.stats.get(&index, 0)?;
        Ok(values
            .iter()
            .fold([0, 0], |sum, value| [sum[0] + value[0], sum[1] + value[1]]))
    }

    fn row(
        &self,
        ground: &Ground,
        objects: &mut Objects,
        effort: Effort,
        case: &Case,
        encapsulation: &str,
        growth: u32,
    ) -> Outcome<(f64, [String; 6])> {
        let mut plan = case.measured();
        plan.growth = match case.stream {
            Stream::NotOurs => 0,
            _ => growth,
        };
        let mut feed = Feed::load_plain(objects, &plan)?;
        feed.aim(&self.program)?;
        greet(&mut feed, case, ground.director)?;
        let null = feed.null()?;
        let packets = effort.packets;
        let before = self.counter(LOOKUPS)?;
        let (mut floors, mut nets) = (Vec::new(), Vec::new());
        for _ in 0..effort.rounds {
            feed.aim(&null)?;
            let floor = feed.run(packets, ground.director)?.ns;
            feed.aim(&self.program)?;
            let ran = feed.run(packets, ground.director)?;
            let expected = match case.stream {
                Stream::NotOurs => (XDP_PASS, Frame::length(vip(4))),
                _ => (XDP_TX, Frame::length(vip(4)) + growth as usize),
            };
            if (ran.verdict, ran.frame.len()) != expected {
                return Err(format!(
                    "katran answers {} with {} bytes, not {expected:?}",
                    ran.verdict,
                    ran.frame.len()
                )
                .into());
            }
            floors.push(floor);
            nets.push(ran.ns - floor);
        }
        let after = self.counter(LOOKUPS)?;
        let (lookups, misses) = (after[0] - before[0], after[1] - before[1]);
        let sent = u64::from(packets) * u64::from(effort.rounds);
        let wanted = if case.stream == Stream::NotOurs {
            0
        } else {
            sent
        };
        if lookups != wanted {
            return Err(format!("katran counted {lookups} packets of {wanted}").into());
        }
        let (floor, net) = (Spread::of(floors), Spread::of(nets));
        let row = [
            encapsulation.to_owned(),
            case.stream.label(),
            format!("{:.0}", floor.median),
            format!("{:.0}", net.median),
            format!("{:.0}…{:.0}", net.least, net.most),
            match lookups {
                0 => "–".to_owned(),
                _ => format!("{:.1} %", 100.0 - 100.0 * misses as f64 / lookups as f64),
            },
        ];
        Ok((net.median, row))
    }
}

/// Makes the flows, no faster than it enters them.
fn greet(feed: &mut Feed, case: &Case, ifindex: u32) -> Outcome<()> {
    let (plans, mut flows) = case.before();
    while !plans.is_empty() && flows > 0 {
        let portion = flows.min(PORTION);
        feed.run(portion, ifindex)?;
        flows -= portion;
        std::thread::sleep(PORTION_TIME);
    }
    Ok(())
}

fn take(object: &mut Ebpf, name: &str) -> Outcome<Map> {
    Ok(object.take_map(name).ok_or(format!("no map {name}"))?)
}

/// One virtual service on TCP and one on UDP, a hundred servers each in turn on the ring, the router's MAC.
fn fill(object: &mut Ebpf) -> Outcome<()> {
    let mut router = [0; 8];
    router[..6].copy_from_slice(&server_mac(0));
    let mut controls: Array<_, [u8; 8]> = Array::try_from(take(object, "ctl_array")?)?;
    controls.set(0, router, 0)?;
    let mut reals: Array<_, [u8; 20]> = Array::try_from(take(object, "reals")?)?;
    for index in 0..SERVERS {
        reals.set(index + 1, address(server(4, index)), 0)?;
    }
    let mut vips: HashMap<_, [u8; 20], [u32; 2]> = HashMap::try_from(take(object, "vip_map")?)?;
    let mut ring: Array<_, u32> = Array::try_from(take(object, "ch_rings")?)?;
    for (number, protocol) in [TCP, UDP].into_iter().enumerate() {
        let mut key = address(vip(4));
        key[16..18].copy_from_slice(&PORT.to_be_bytes());
        key[18] = protocol;
        vips.insert(key, [0, number as u32], 0)?;
        for place in 0..RING {
            let real = 1 + place.wrapping_mul(2_654_435_761) % SERVERS;
            ring.set(number as u32 * RING + place, real, 0)?;
        }
    }
    if let Some(map) = object.take_map("pckt_srcs") {
        let mut sources: Array<_, [u8; 20]> = Array::try_from(map)?;
        sources.set(0, address([10, 0, 255, 1].into()), 0)?;
    }
    // The table of the CPU is the object's spare one, made large.
    let mut connections: ArrayOfMaps<_, MapFd> =
        ArrayOfMaps::try_from(take(object, "lru_mapping")?)?;
    let Some(Map::LruHashMap(spare)) = object.map("fallback_cache") else {
        return Err("no map fallback_cache".into());
    };
    Ok(connections.set(crate::last_cpu() as u32, spare.fd(), 0)?)
}

/// `struct real_definition`, or the head of `struct vip_definition`.
fn address(address: IpAddr) -> [u8; 20] {
    let mut bytes = [0; 20];
    match address {
        IpAddr::V4(v4) => bytes[..4].copy_from_slice(&v4.octets()),
        IpAddr::V6(v6) => bytes[..16].copy_from_slice(&v6.octets()),
    }
    bytes
}
