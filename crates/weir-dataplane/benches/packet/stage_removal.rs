//! Measures how much each stage adds to the cost of an established flow's packet, with builds without the stage.
//!
//! The results are the first table of `--stages`.
//!
//! Each build is a copy of bpf/ in which the stage's result is a constant, so all later stages run unchanged. The front
//! cache contains the flow, as it does for all packets of a flow in a tick except the first. A processor executes
//! several stages at the same time, so the difference for one build is the cost that its stage adds to the others; the
//! sum of all differences is only close to the total. The last build lacks all stages.

use std::path::{Path, PathBuf};

use crate::Result;
use crate::case::established;
use crate::director::Director;
use crate::edit::{KnownResults, Removal, removals};
use crate::feed::{Feed, Objects};
use crate::measure::Effort;
use crate::network::TestNetwork;
use crate::report::{Summary, Table};
use crate::stage;

fn known_results(director: &Director) -> Result<KnownResults> {
    let maps = director.dataplane.maps();
    let flow = maps.flows.walk().next().ok_or("no flow was created")?;
    let key = weir_flow::FlowHashKey::new(director.dataplane.secret());
    let hash = key.hash(&weir_flow::Tuple::from_cold(&flow.cold));
    let hop = maps.hop(flow.dest(), (hash >> 20) as u32 & 3)?;
    Ok(KnownResults {
        hash,
        dest: flow.dest(),
        tick: flow.meta().seen,
        hop: [hop.link, hop.dmac, hop.smac],
    })
}

/// Measures `direct` with one flow and prints the cost that each stage adds.
pub(crate) fn run(
    network: &mut TestNetwork,
    objects: &mut Objects,
    scratch: &Path,
    effort: Effort,
) -> Result<()> {
    println!(
        "\n4. Stages of an established packet, direct, 1 flow: the complete build minus a build without the stage, ns\n"
    );
    let case = established(1);
    let director = Director::open(network.pin_dir(), network.director, case.setup)?;
    let whole = director.program()?;
    for plan in &case.setup_plans().0 {
        let mut feed = Feed::load(objects, plan)?;
        feed.set_target(&whole)?;
        feed.run(1, network.director)?;
    }
    let removals = removals(&known_results(&director)?);
    let mut builds = removals
        .iter()
        .enumerate()
        .map(|(number, removal)| {
            stage::build_edited(
                &scratch.join(format!("without-{number}")),
                removal.edits.iter(),
            )
            .map_err(|error| format!("without {:?}: {error}", removal.stage).into())
        })
        .collect::<Result<Vec<PathBuf>>>()?;
    let none = removals.iter().flat_map(|removal| &removal.edits);
    builds.push(stage::build_edited(&scratch.join("without-all"), none)?);
    let times = stage::measure_times(network, objects, &director, &builds, &case, effort)?;
    director.close()?;
    let [floor, without @ .., none, all] = times.as_slice() else {
        return Err("nothing was measured".into());
    };
    print(&removals, [floor, none, all], without);
    Ok(())
}

fn print(removals: &[Removal], [floor, none, all]: [&Summary; 3], without: &[Summary]) {
    let table = Table::new(&["stage", "adds"]);
    table.print_header();
    let rows = removals.iter().zip(without);
    let mut rows: Vec<(&str, f64)> = rows
        .map(|(removal, time)| (removal.stage, all.min - time.min))
        .collect();
    rows.push(("entry, tuple, return", none.min - floor.min));
    let sum: f64 = rows.iter().map(|(_, adds)| adds).sum();
    rows.push(("sum", sum));
    rows.push(("whole", all.min - floor.min));
    for (stage, adds) in rows {
        table.print_row(&[stage.to_owned(), format!("{adds:.0}")]);
    }
}
