//! Compares other builds of the data plane with this build (`--against OBJECT…`).
//!
//! The builds process the same packets with the same tables in alternating rounds. This shows the effect of a change
//! without the differences between separate runs.
//!
//! An object is `bpf/weir_xdp.bpf.c`, compiled by hand. It can use a different hash or lookup, because each build
//! creates its own flows, but its maps must have the same layout as those of this build.

use std::path::PathBuf;

use crate::Result;
use crate::case::{Case, cases};
use crate::director::Director;
use crate::feed::{Feed, Objects};
use crate::measure::Effort;
use crate::network::TestNetwork;
use crate::report::{Summary, Table};
use crate::stage;

/// Prints the net nanoseconds of this build and of each object for every case whose row contains `filter`.
pub(crate) fn run(
    network: &mut TestNetwork,
    objects: &mut Objects,
    others: &[PathBuf],
    effort: Effort,
    filter: &str,
) -> Result<()> {
    println!("\n0. Builds of the data plane compared, net ns: median (least)\n");
    let names = others
        .iter()
        .map(|path| path.file_stem().unwrap_or_default().to_string_lossy());
    let names: Vec<String> = ["forward", "packets", "this build"]
        .into_iter()
        .map(str::to_owned)
        .chain(names.map(std::borrow::Cow::into_owned))
        .collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let table = Table::new(&names);
    table.print_header();
    for case in cases() {
        let label = case.stream.label();
        if !format!("{} {label}", case.name).contains(filter) {
            continue;
        }
        let nets = measure(network, objects, others, &case, effort)?;
        let nets = nets
            .iter()
            .map(|net| format!("{:.1} ({:.1})", net.median, net.min));
        let row: Vec<String> = [case.name.to_owned(), label]
            .into_iter()
            .chain(nets)
            .collect();
        table.print_row(&row);
    }
    Ok(())
}

fn measure(
    network: &mut TestNetwork,
    objects: &mut Objects,
    others: &[PathBuf],
    case: &Case,
    effort: Effort,
) -> Result<Vec<Summary>> {
    let ifindex = network.director;
    let director = Director::open(network.pin_dir(), ifindex, case.setup)?;
    let loaded = others
        .iter()
        .map(|object| stage::load(object, &director))
        .collect::<Result<Vec<_>>>()?;
    let mut targets = vec![director.program()?];
    for object in &loaded {
        targets.push(stage::program(object)?);
    }
    director.limit_syns(false)?;
    let (plans, flows) = case.setup_plans();
    for plan in &plans {
        let mut feed = Feed::load(objects, plan)?;
        for target in &targets {
            feed.set_target(target)?;
            feed.run(flows, ifindex)?;
        }
    }
    director.limit_syns(case.stream.is_limited())?;
    let mut feed = Feed::load(objects, &case.measured_plan())?;
    let null = feed.null()?;
    let packets = case.packets(effort.packets, effort.rounds);
    let mut nets = vec![Vec::new(); targets.len()];
    for _ in 0..effort.rounds {
        feed.set_target(&null)?;
        let floor = feed.run(packets, ifindex)?.ns;
        for (target, nets) in targets.iter().zip(&mut nets) {
            feed.set_target(target)?;
            let result = feed.run(packets, ifindex)?;
            case.check_frame(&result)?;
            nets.push(result.ns - floor);
        }
    }
    director.close()?;
    Ok(nets.into_iter().map(Summary::from_values).collect())
}
