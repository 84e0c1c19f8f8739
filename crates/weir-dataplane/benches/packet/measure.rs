//! Test runs: A B A B, the floor and the data plane in turn, medians of the differences, and no number without its check.

use crate::Outcome;
use crate::case::{Case, Stream, cases};
use crate::director::Director;
use crate::feed::{Feed, Objects};
use crate::ground::Ground;
use crate::report::{Nets, Spread, Table};

/// How much is measured.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Effort {
    /// Rounds of A and B; `WEIR_BENCH_ROUNDS`.
    pub(crate) rounds: u32,
    /// Packets of a run; `WEIR_BENCH_PACKETS`.
    pub(crate) packets: u32,
}

/// What a case gave.
pub(crate) struct Measured {
    pub(crate) floor: Spread,
    pub(crate) net: Spread,
    pub(crate) hits: f64,
}

/// Measures every case whose row contains `only` and prints the table; answers the nets, and how many cases failed.
pub(crate) fn run(
    ground: &mut Ground,
    objects: &mut Objects,
    effort: Effort,
    only: &str,
) -> Outcome<(Nets, u32)> {
    println!(
        "\n1. Nanoseconds a packet, net of a program that only transmits ({} rounds of {} packets)\n",
        effort.rounds, effort.packets
    );
    let table = Table::new(&["forward", "packets", "floor", "net", "least…most", "hits"]);
    table.head();
    let (mut nets, mut failed) = (Nets::new(), 0);
    for case in cases() {
        let label = case.stream.label();
        if !format!("{} {label}", case.name).contains(only) {
            continue;
        }
        let measured = measure(ground, objects, &case, effort);
        table.row(&match &measured {
            Ok(Some(measured)) => [
                case.name.to_owned(),
                label,
                format!("{:.0}", measured.floor.median),
                format!("{:.0}", measured.net.median),
                format!("{:.0}…{:.0}", measured.net.least, measured.net.most),
                if case.stream == Stream::NotOurs {
                    "–".to_owned()
                } else {
                    format!("{:.1} %", measured.hits * 100.0)
                },
            ],
            Ok(None) => [case.name, &label, "", "not built", "", ""].map(str::to_owned),
            Err(_) => [case.name, &label, "", "FAILED", "", ""].map(str::to_owned),
        });
        match measured {
            Ok(Some(measured)) => {
                nets.insert(
                    (case.name.to_owned(), case.stream.label()),
                    measured.net.median,
                );
            }
            Ok(None) => {}
            Err(error) => {
                eprintln!("bench: {}, {}: {error}", case.name, case.stream.label());
                failed += 1;
            }
        }
    }
    Ok((nets, failed))
}

/// `None` = this build leaves out the outer checksum that the case is about.
fn measure(
    ground: &mut Ground,
    objects: &mut Objects,
    case: &Case,
    effort: Effort,
) -> Outcome<Option<Measured>> {
    let ifindex = ground.director;
    let director = Director::open(ground.pin_dir(), ifindex, case.setup)?;
    let program = director.program()?;
    director.limit_syns(false)?;
    let (plans, flows) = case.before();
    for plan in &plans {
        let mut feed = Feed::load(objects, plan)?;
        feed.aim(&program)?;
        feed.run(flows, ifindex)?;
    }
    director.limit_syns(case.stream.is_limited())?;

    let mut feed = Feed::load(objects, &case.measured())?;
    let null = feed.null()?;
    let packets = case.packets(effort.packets);
    let before = director.counts()?;
    let (mut floors, mut nets) = (Vec::new(), Vec::new());
    for _ in 0..effort.rounds {
        feed.aim(&null)?;
        let floor = feed.run(packets, ifindex)?.ns;
        feed.aim(&program)?;
        let ran = feed.run(packets, ifindex)?;
        if case.lacks_checksum(&ran) {
            director.close()?;
            return Ok(None);
        }
        if let Err(error) = case.check_frame(&ran) {
            let counted = case.check_counts(&before, &director.counts()?, 0);
            return Err(format!("{error}; {counted:?}").into());
        }
        floors.push(floor);
        nets.push(ran.ns - floor);
    }
    let sent = u64::from(packets) * u64::from(effort.rounds);
    let hits = case.check_counts(&before, &director.counts()?, sent)?;
    director.close()?;
    Ok(Some(Measured {
        floor: Spread::of(floors),
        net: Spread::of(nets),
        hits,
    }))
}
