//! Measures, in alternating rounds, how long a packet takes to find its flow in tables that are 50, 80 and 90 % full.
//! The flows of each table are replaced ten times before the measurement.
//!
//! There are more flows than entries in the front cache, so each packet reads its bucket. No flow may be rejected.

use std::collections::VecDeque;

use weir_abi::{Reason, State};

use crate::Result;
use crate::case::{Case, established};
use crate::director::Director;
use crate::feed::{Feed, Objects};
use crate::measure::Effort;
use crate::network::{CLIENTS, TestNetwork};
use crate::report::{self, Summary};

/// Number of flows that start and end together.
const BATCH: u32 = 1 << 16;
/// Number of client addresses per batch.
const BATCH_CLIENTS: u32 = 1 << 6;
const TURNOVERS: u32 = 10;
/// Fill level in percent, and number of batches: the tables have about the same size.
const FILLS: [(u32, u32); 3] = [(50, 8), (80, 13), (90, 14)];
/// Largest ratio of the time per packet at 80 or 90 % to the time at 50 %.
const GOAL: f64 = 1.3;

/// Measures all tables and prints the results, if the rows' name, `fill`, contains `filter`.
pub(crate) fn run(
    network: &mut TestNetwork,
    objects: &mut Objects,
    effort: Effort,
    filter: &str,
) -> Result<()> {
    if !"fill".contains(filter) {
        return Ok(());
    }
    println!(
        "\n1b. Established packets by table fill level, after {TURNOVERS} turnovers, net ns\n"
    );
    let mut tables = Vec::new();
    for (percent, batches) in FILLS {
        tables.push(Table::new(network, objects, percent, batches)?);
    }
    for round in 0..effort.rounds as usize {
        for turn in 0..FILLS.len() {
            tables[(round + turn) % FILLS.len()].run_round(effort.packets)?;
        }
    }
    let half = tables[0].nets.clone();
    for table in tables {
        let (percent, nets) = (table.percent, table.nets.clone());
        table.close()?;
        let net = Summary::from_values(nets.clone());
        println!(
            "table at {percent} %: {:.0} ({:.0}…{:.0})",
            net.median, net.min, net.max
        );
        if percent != FILLS[0].0 {
            let ratios = nets.iter().zip(&half).map(|(net, half)| net / half);
            let label = format!("table at {percent} % to {} %", FILLS[0].0);
            report::print_ratio(&label, Summary::from_values(ratios.collect()), GOAL, true);
        }
    }
    Ok(())
}

struct Table {
    percent: u32,
    case: Case,
    director: Director,
    ifindex: u32,
    /// The first clients of the batches in the table, the oldest first.
    batches: VecDeque<u32>,
    feed: Feed,
    sent: u64,
    forwarded_before: u64,
    nets: Vec<f64>,
}

impl Table {
    fn new(
        network: &mut TestNetwork,
        objects: &mut Objects,
        percent: u32,
        batches: u32,
    ) -> Result<Self> {
        let mut case = established(BATCH);
        case.setup.flow_entries = (u64::from(batches * BATCH) * 100 / u64::from(percent)) as u32;
        let ifindex = network.director;
        let director = Director::open(network.pin_dir(), ifindex, case.setup)?;
        director.limit_syns(false)?;
        let maps = director.dataplane.maps();
        let mut settings = maps.settings()?;
        settings.timeouts[State::Close as usize] = u32::MAX;
        maps.set_settings(&settings)?;
        let feed = Feed::load(objects, &case.measured_plan())?;
        let mut table = Self {
            percent,
            case,
            director,
            ifindex,
            batches: VecDeque::new(),
            feed,
            sent: 0,
            forwarded_before: 0,
            nets: Vec::new(),
        };
        for batch in 0..batches * (1 + TURNOVERS) {
            if batch >= batches {
                table.end_oldest(objects)?;
            }
            table.begin_batch(objects, CLIENTS + batch * BATCH_CLIENTS)?;
        }
        let counts = table.director.counts()?;
        let refused = counts.reason(Reason::CountTableFull);
        if refused > 0 || counts.entries != u64::from(batches * BATCH) {
            let lost = format!("{refused} of {} flows rejected", counts.inserted + refused);
            return Err(format!("at {percent} %: {lost}, {} entries", counts.entries).into());
        }
        table.forwarded_before = counts.packets_in;
        let mut plan = table.case.measured_plan();
        plan.client = table.batches[0];
        table.feed = Feed::load(objects, &plan)?;
        Ok(table)
    }

    fn begin_batch(&mut self, objects: &mut Objects, client: u32) -> Result<()> {
        let program = self.director.program()?;
        for mut plan in self.case.setup_plans().0 {
            plan.client = client;
            let mut feed = Feed::load(objects, &plan)?;
            feed.set_target(&program)?;
            feed.run(BATCH, self.ifindex)?;
        }
        self.batches.push_back(client);
        Ok(())
    }

    /// Ends the flows of the oldest batch. Closed flows expire immediately, so the second RST of each flow finds an
    /// expired entry. The sweep that runs at the same time removes no other entry.
    fn end_oldest(&mut self, objects: &mut Objects) -> Result<()> {
        let Some(client) = self.batches.pop_front() else {
            return Ok(());
        };
        let mut feed = Feed::load(objects, &self.case.reset_plan(client))?;
        feed.set_target(&self.director.program()?)?;
        for _ in 0..2 {
            feed.run(BATCH, self.ifindex)?;
        }
        Ok(())
    }

    fn run_round(&mut self, packets: u32) -> Result<()> {
        let null = self.feed.null()?;
        self.feed.set_target(&null)?;
        let floor = self.feed.run(packets, self.ifindex)?.ns;
        self.feed.set_target(&self.director.program()?)?;
        let result = self.feed.run(packets, self.ifindex)?;
        self.case.check_frame(&result)?;
        self.sent += u64::from(packets);
        self.nets.push(result.ns - floor);
        Ok(())
    }

    /// Closes the director and checks that every packet was forwarded.
    fn close(self) -> Result<()> {
        let forwarded = self.director.counts()?.packets_in - self.forwarded_before;
        self.director.close()?;
        if forwarded == self.sent {
            return Ok(());
        }
        Err(format!("{forwarded} of {} packets forwarded", self.sent).into())
    }
}
