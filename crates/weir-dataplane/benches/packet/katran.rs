//! If the path of katran's object is set, fills its maps and measures its program with the same packets.
//!
//! `KATRAN_OBJ` is the path of an unchanged build of `balancer.bpf.c`, and `KATRAN_GUE_OBJ` that of a build with
//! `GUE_ENCAP`. The names, keys and values of the maps are those in katran's `balancer_maps.h` and
//! `balancer_structs.h`.
//!
//! The rounds of a build alternate with those of Weir's row with the same packets, on the same CPU, so that other load
//! on the machine affects both equally.

use std::net::IpAddr;
use std::time::Duration;

use aya::maps::{Array, ArrayOfMaps, HashMap, Map, MapData, MapFd, PerCpuArray};
use aya::programs::{Program, ProgramFd};
use aya::{Ebpf, EbpfLoader};

use crate::Result;
use crate::case::{Case, Stream};
use crate::feed::{Feed, Objects};
use crate::frame::{Frame, TCP, UDP};
use crate::network::{PORT, SERVERS, server, server_mac, vip};
use crate::report::{Row, Summary};

const RING: u32 = 65_537;
/// Number of connections in katran's table: the largest number of flows of Weir's cases.
const CONNECTIONS: u32 = 1 << 20;
/// Number of flows that are created in one step. katran inserts at most 125,000 connections per second per CPU.
const BATCH_FLOWS: u32 = 100_000;
const BATCH_INTERVAL: Duration = Duration::from_millis(1100);
/// Index of `stats[MAX_VIPS + LRU_CNTRS]`: the number of connection lookups, and the number of misses.
const LOOKUPS: u32 = 512;
const XDP_PASS: u32 = 2;
const XDP_TX: u32 = 3;

/// Environment variable, name of the build, and number of bytes that it adds to a packet.
const BUILDS: [(&str, &str, u32); 2] = [
    ("KATRAN_OBJ", "katran ipip", 20),
    ("KATRAN_GUE_OBJ", "katran gue", 28),
];

/// Weir's rows, each with the katran build to compare it with.
const ROWS: [(&str, &str); 4] = [
    ("direct", "katran ipip"),
    ("direct, maglev", "katran ipip"),
    ("tunnel ipip", "katran ipip"),
    ("tunnel gue, checksum", "katran gue"),
];

/// One build of katran.
pub(crate) struct Build {
    pub(crate) name: &'static str,
    object: Vec<u8>,
    overhead_bytes: u32,
}

/// The builds whose paths are set in the environment.
pub(crate) struct Builds(Vec<Build>);

impl Builds {
    /// Reads the objects of the builds. Prints a message for each variable that is not set.
    pub(crate) fn from_environment() -> Result<Self> {
        let mut builds = Vec::new();
        for (variable, name, overhead_bytes) in BUILDS {
            if let Some(path) = std::env::var_os(variable) {
                let object = std::fs::read(&path)
                    .map_err(|error| format!("{variable}={}: {error}", path.display()))?;
                builds.push(Build {
                    name,
                    object,
                    overhead_bytes,
                });
            } else {
                println!("{variable} is not set: rows of {name} are omitted");
            }
        }
        Ok(Self(builds))
    }

    /// Returns the build that a case is compared with.
    pub(crate) fn peer_of(&self, case: &Case) -> Option<&Build> {
        let (_, name) = ROWS.iter().find(|(row, _)| *row == case.name)?;
        if case.stream == Stream::NewFlows {
            return None; // katran's budget is a constant
        }
        self.0.iter().find(|build| build.name == *name)
    }
}

struct Katran {
    program: ProgramFd,
    stats: PerCpuArray<MapData, [u64; 2]>,
    /// Keeps the object's data alive; the program itself holds references to its maps.
    _object: Ebpf,
}

impl Katran {
    fn load(bytes: &[u8]) -> Result<Self> {
        let mut object = EbpfLoader::new()
            .map_max_entries("fallback_cache", CONNECTIONS)
            .load(bytes)?;
        let (_, program) = object.programs_mut().next().ok_or("no program")?;
        let Program::Xdp(program) = program else {
            return Err("not an XDP program".into());
        };
        // The program must be loaded before any map is moved out of the object, because its instructions contain the
        // maps' descriptors.
        program.load()?;
        let program = program.fd()?.try_clone()?;
        fill_maps(&mut object)?;
        let stats = PerCpuArray::try_from(take_map(&mut object, "stats")?)?;
        Ok(Self {
            program,
            stats,
            _object: object,
        })
    }

    fn counter(&self, index: u32) -> Result<[u64; 2]> {
        let values = self.stats.get(&index, 0)?;
        Ok(values
            .iter()
            .fold([0, 0], |sum, value| [sum[0] + value[0], sum[1] + value[1]]))
    }
}

/// The measurement of a loaded build in a case, with the case's flows in its table.
pub(crate) struct KatranRun {
    katran: Katran,
    feed: Feed,
    null: ProgramFd,
    stream: Stream,
    overhead_bytes: u32,
    ifindex: u32,
    before: [u64; 2],
    sent: u64,
    floors: Vec<f64>,
    nets: Vec<f64>,
}

impl KatranRun {
    /// Loads the build and creates the flows.
    pub(crate) fn new(
        build: &Build,
        objects: &mut Objects,
        case: &Case,
        ifindex: u32,
    ) -> Result<Self> {
        let katran = Katran::load(&build.object)?;
        let overhead_bytes = match case.stream {
            Stream::NotVip => 0,
            _ => build.overhead_bytes,
        };
        let mut plan = case.measured_plan();
        plan.overhead_bytes = overhead_bytes;
        let mut feed = Feed::load_single_buffer(objects, &plan)?;
        feed.set_target(&katran.program)?;
        create_flows(&mut feed, case, ifindex)?;
        Ok(Self {
            null: feed.null()?,
            before: katran.counter(LOOKUPS)?,
            katran,
            feed,
            stream: case.stream,
            overhead_bytes,
            ifindex,
            sent: 0,
            floors: Vec::new(),
            nets: Vec::new(),
        })
    }

    /// Runs one round: first the floor, then the program. Returns the difference in nanoseconds.
    pub(crate) fn run_round(&mut self, packets: u32) -> Result<f64> {
        self.feed.set_target(&self.null)?;
        let floor = self.feed.run(packets, self.ifindex)?.ns;
        self.feed.set_target(&self.katran.program)?;
        let result = self.feed.run(packets, self.ifindex)?;
        let verdict = match self.stream {
            Stream::NotVip => XDP_PASS,
            _ => XDP_TX,
        };
        let expected = (
            verdict,
            Frame::length(vip(4)) + self.overhead_bytes as usize,
        );
        let actual = (result.verdict, result.frame.len());
        if actual != expected {
            return Err(format!("katran returned {actual:?}, not {expected:?}").into());
        }
        self.sent += u64::from(packets);
        self.floors.push(floor);
        self.nets.push(result.ns - floor);
        Ok(result.ns - floor)
    }

    /// Returns the row, if katran's counts match the sent packets.
    pub(crate) fn row(self, name: &str) -> Result<Row> {
        let after = self.katran.counter(LOOKUPS)?;
        let lookups = after[0] - self.before[0];
        let misses = after[1] - self.before[1];
        let expected = match self.stream {
            Stream::NotVip => 0,
            _ => self.sent,
        };
        if lookups != expected {
            return Err(format!("katran counted {lookups} packets instead of {expected}").into());
        }
        Ok(Row {
            name: name.to_owned(),
            packets: self.stream.label(),
            floor: Summary::from_values(self.floors),
            net: Summary::from_values(self.nets),
            hits: match self.stream {
                Stream::NotVip => None,
                _ => Some(1.0 - misses as f64 / lookups as f64),
            },
        })
    }
}

/// Creates the flows no faster than katran inserts them.
fn create_flows(feed: &mut Feed, case: &Case, ifindex: u32) -> Result<()> {
    let (plans, mut flows) = case.setup_plans();
    while !plans.is_empty() && flows > 0 {
        let batch = flows.min(BATCH_FLOWS);
        feed.run(batch, ifindex)?;
        flows -= batch;
        std::thread::sleep(BATCH_INTERVAL);
    }
    Ok(())
}

fn take_map(object: &mut Ebpf, name: &str) -> Result<Map> {
    Ok(object.take_map(name).ok_or(format!("no map {name}"))?)
}

/// Configures one virtual service on TCP and one on UDP, with a hundred servers each, and the router's MAC address.
fn fill_maps(object: &mut Ebpf) -> Result<()> {
    let mut router = [0; 8];
    router[..6].copy_from_slice(&server_mac(0));
    let mut controls: Array<_, [u8; 8]> = Array::try_from(take_map(object, "ctl_array")?)?;
    controls.set(0, router, 0)?;
    let mut reals: Array<_, [u8; 20]> = Array::try_from(take_map(object, "reals")?)?;
    for index in 0..SERVERS {
        reals.set(index + 1, address(server(4, index)), 0)?;
    }
    let mut vips: HashMap<_, [u8; 20], [u32; 2]> = HashMap::try_from(take_map(object, "vip_map")?)?;
    let mut ring: Array<_, u32> = Array::try_from(take_map(object, "ch_rings")?)?;
    for (number, protocol) in [TCP, UDP].into_iter().enumerate() {
        let mut key = address(vip(4));
        key[16..18].copy_from_slice(&PORT.to_be_bytes());
        key[18] = protocol;
        vips.insert(key, [0, number as u32], 0)?;
        for position in 0..RING {
            let real = 1 + position.wrapping_mul(2_654_435_761) % SERVERS;
            ring.set(number as u32 * RING + position, real, 0)?;
        }
    }
    if let Some(map) = object.take_map("pckt_srcs") {
        let mut sources: Array<_, [u8; 20]> = Array::try_from(map)?;
        sources.set(0, address([10, 0, 255, 1].into()), 0)?;
    }
    // The CPU uses the object's fallback table, which was enlarged when the object was loaded.
    let mut connections: ArrayOfMaps<_, MapFd> =
        ArrayOfMaps::try_from(take_map(object, "lru_mapping")?)?;
    let Some(Map::LruHashMap(fallback_table)) = object.map("fallback_cache") else {
        return Err("no map fallback_cache".into());
    };
    Ok(connections.set(crate::last_cpu() as u32, fallback_table.fd(), 0)?)
}

/// Encodes `struct real_definition`, or the start of `struct vip_definition`.
fn address(address: IpAddr) -> [u8; 20] {
    let mut bytes = [0; 20];
    match address {
        IpAddr::V4(v4) => bytes[..4].copy_from_slice(&v4.octets()),
        IpAddr::V6(v6) => bytes[..16].copy_from_slice(&v6.octets()),
    }
    bytes
}
