//! Measures the data plane's nanoseconds per packet with test runs that alternate between the floor and Weir (A B A B).
//!
//! The result is the median of the differences. The counts must match the sent packets. If a peer has a row with
//! the same packets, its runs (its own floor C and its program D) alternate with Weir's.

use aya::programs::ProgramFd;

use crate::Result;
use crate::case::{Case, Stream, cases};
use crate::director::{Counts, Director};
use crate::feed::{Feed, Objects};
use crate::katran::{Build, Builds, KatranRun};
use crate::network::TestNetwork;
use crate::report::{Comparison, NetTimes, Row, Summary, Table};

/// The number of rounds and packets.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Effort {
    /// Number of rounds of A and B (`WEIR_BENCH_ROUNDS`).
    pub(crate) rounds: u32,
    /// Number of packets of a run (`WEIR_BENCH_PACKETS`).
    pub(crate) packets: u32,
}

/// The results of all cases.
#[derive(Default)]
pub(crate) struct Measurements {
    pub(crate) nets: NetTimes,
    pub(crate) comparisons: Vec<Comparison>,
    pub(crate) failed: u32,
}

/// Measures every case whose row contains `filter` and prints the table.
pub(crate) fn run(
    network: &mut TestNetwork,
    objects: &mut Objects,
    effort: Effort,
    filter: &str,
) -> Result<Measurements> {
    println!(
        "\n1. Nanoseconds per packet, minus those of a program that only transmits ({} rounds of {} packets)\n",
        effort.rounds, effort.packets
    );
    let builds = Builds::from_environment()?;
    let table = Table::new(&["forward", "packets", "floor", "net", "least…most", "hits"]);
    table.print_header();
    let mut measurements = Measurements::default();
    for case in cases() {
        let label = case.stream.label();
        if !format!("{} {label}", case.name).contains(filter) {
            continue;
        }
        match measure(network, objects, &case, builds.peer_of(&case), effort) {
            Ok(Some((row, peer))) => {
                table.print_row(&row.cells());
                if let Some((peer_row, ratio)) = peer {
                    table.print_row(&peer_row.cells());
                    measurements.comparisons.push(Comparison {
                        weir: row.name.clone(),
                        peer: peer_row.name,
                        packets: peer_row.packets,
                        ratio,
                    });
                }
                measurements
                    .nets
                    .insert((row.name, row.packets), row.net.median);
            }
            Ok(None) => table.print_row(&[case.name, &label, "", "not built", "", ""]),
            Err(error) => {
                table.print_row(&[case.name, &label, "", "FAILED", "", ""]);
                eprintln!("bench: {}, {label}: {error}", case.name);
                measurements.failed += 1;
            }
        }
    }
    Ok(measurements)
}

/// Weir's row, and the peer's row with the ratio of the net times in each round.
type Rows = (Row, Option<(Row, Summary)>);

/// Measures one case. Returns `None` if this build omits the outer checksum that the case measures.
fn measure(
    network: &mut TestNetwork,
    objects: &mut Objects,
    case: &Case,
    peer: Option<&Build>,
    effort: Effort,
) -> Result<Option<Rows>> {
    let mut weir = WeirRun::new(network, objects, case)?;
    let mut peer = match peer {
        Some(build) => Some((
            build,
            KatranRun::new(build, objects, case, network.director)?,
        )),
        None => None,
    };
    let packets = case.packets(effort.packets, effort.rounds);
    let mut ratios = Vec::new();
    for round in 0..effort.rounds {
        // Weir and the peer take turns at running first in a round.
        let first_peer_net = match &mut peer {
            Some((_, peer)) if round % 2 == 1 => Some(peer.run_round(packets)?),
            _ => None,
        };
        let Some(net) = weir.run_round(packets)? else {
            weir.director.close()?;
            return Ok(None);
        };
        if let Some((_, peer)) = &mut peer {
            let peer_net = match first_peer_net {
                Some(peer_net) => peer_net,
                None => peer.run_round(packets)?,
            };
            ratios.push(net / peer_net);
        }
    }
    let row = weir.row(case.name)?;
    let peer = match peer {
        Some((build, peer)) => Some((peer.row(build.name)?, Summary::from_values(ratios))),
        None => None,
    };
    Ok(Some((row, peer)))
}

/// The measurement of the data plane in a case, with the case's flows in its table.
struct WeirRun<'a> {
    case: &'a Case,
    director: Director,
    program: ProgramFd,
    feed: Feed,
    null: ProgramFd,
    ifindex: u32,
    before: Counts,
    sent: u64,
    floors: Vec<f64>,
    nets: Vec<f64>,
}

impl<'a> WeirRun<'a> {
    fn new(network: &mut TestNetwork, objects: &mut Objects, case: &'a Case) -> Result<Self> {
        let ifindex = network.director;
        let director = Director::open(network.pin_dir(), ifindex, case.setup)?;
        let program = director.program()?;
        director.limit_syns(false)?;
        let (plans, flows) = case.setup_plans();
        for plan in &plans {
            let mut feed = Feed::load(objects, plan)?;
            feed.set_target(&program)?;
            feed.run(flows, ifindex)?;
        }
        director.limit_syns(case.stream.is_limited())?;
        let feed = Feed::load(objects, &case.measured_plan())?;
        Ok(Self {
            case,
            null: feed.null()?,
            before: director.counts()?,
            director,
            program,
            feed,
            ifindex,
            sent: 0,
            floors: Vec::new(),
            nets: Vec::new(),
        })
    }

    /// Runs one round: first the floor, then the program. Returns the difference in nanoseconds, or `None` if a
    /// checksum is missing.
    fn run_round(&mut self, packets: u32) -> Result<Option<f64>> {
        self.feed.set_target(&self.null)?;
        let floor = self.feed.run(packets, self.ifindex)?.ns;
        self.feed.set_target(&self.program)?;
        let result = self.feed.run(packets, self.ifindex)?;
        if self.case.lacks_checksum(&result) {
            return Ok(None);
        }
        if let Err(error) = self.case.check_frame(&result) {
            let counts = self
                .case
                .check_counts(&self.before, &self.director.counts()?, 0);
            return Err(format!("{error}; {counts:?}").into());
        }
        self.sent += u64::from(packets);
        self.floors.push(floor);
        self.nets.push(result.ns - floor);
        Ok(Some(result.ns - floor))
    }

    /// Returns the row, if the data plane's counts match the sent packets.
    fn row(self, name: &str) -> Result<Row> {
        let after = self.director.counts()?;
        let hits = self.case.check_counts(&self.before, &after, self.sent)?;
        self.director.close()?;
        Ok(Row {
            name: name.to_owned(),
            packets: self.case.stream.label(),
            floor: Summary::from_values(self.floors),
            net: Summary::from_values(self.nets),
            hits: (self.case.stream != Stream::NotVip).then_some(hits),
        })
    }
}
