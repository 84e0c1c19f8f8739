//! Measures the data plane's cost per packet, its packet rate compared with nftables, and its memory (`make bench`).
//!
//! The units are nanoseconds per packet, packets through a veth pair, and bytes per flow.
//!
//! Every number is printed next to a floor or a peer that was measured in the same run, on the same core, in
//! alternating rounds, and only if the data plane's own counts match the sent packets. The benchmark requires root: it
//! creates namespaces and changes nothing outside them. Arguments: part of a row's name, or `--stages` for the tables
//! of stages instead, or `--against OBJECT` to compare other builds with this one. `WEIR_BENCH_ROUNDS` (default 5) and
//! `WEIR_BENCH_PACKETS` (default 2^20) set the length of the measurement; `KATRAN_OBJ` and `KATRAN_GUE_OBJ` are the
//! paths of a peer's objects.

mod case;
mod clock;
mod comparison;
mod director;
mod edit;
mod feed;
mod fill;
mod frame;
mod katran;
mod measure;
mod memory;
mod network;
mod pipeline;
mod report;
mod stage;
mod stage_removal;
#[path = "../../tests/support/mod.rs"]
mod support;

use std::error::Error;
use std::path::PathBuf;

use feed::Objects;
use measure::Effort;
use network::TestNetwork;

/// The result of a step. Any error is printed.
pub(crate) type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// Returns the number of the last CPU: interrupts usually go to the first one.
fn last_cpu() -> usize {
    std::thread::available_parallelism().map_or(0, |cpus| cpus.get() - 1)
}

fn number_from_environment(name: &str, default: u32) -> Result<u32> {
    match std::env::var(name) {
        Ok(text) => Ok(text
            .parse()
            .map_err(|_| format!("{name}={text} is not a number"))?),
        Err(_) => Ok(default),
    }
}

fn run() -> Result<()> {
    let (mut filter, mut stages, mut others) = (String::new(), false, Vec::new());
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            // `cargo bench` adds this argument.
            "--bench" => {}
            "--stages" => stages = true,
            "--against" => others.push(PathBuf::from(
                arguments
                    .next()
                    .ok_or("--against requires an object file")?,
            )),
            part => filter = part.to_owned(),
        }
    }
    let effort = Effort {
        rounds: number_from_environment("WEIR_BENCH_ROUNDS", 5)?.max(1),
        packets: number_from_environment("WEIR_BENCH_PACKETS", 1 << 20)?.max(1 << 10),
    };
    weir_sys::pin_thread(last_cpu())?;
    weir_sys::raise_memlock()?;
    let mut network = TestNetwork::new()?;
    let scratch = std::env::temp_dir().join(format!("weir-bench-{}", std::process::id()));
    std::fs::create_dir_all(&scratch)?;
    let mut objects = Objects::new(&scratch);
    let result = if stages {
        stage_removal::run(&mut network, &mut objects, &scratch, effort)
            .and_then(|()| stage::run(&mut network, &mut objects, &scratch, effort))
    } else if others.is_empty() {
        measure_all(&mut network, &mut objects, effort, &filter)
    } else {
        comparison::run(&mut network, &mut objects, &others, effort, &filter)
    };
    std::fs::remove_dir_all(&scratch)?;
    result
}

/// Measures and prints every table. A case that fails does not stop the others; the exit status reports the failure.
fn measure_all(
    network: &mut TestNetwork,
    objects: &mut Objects,
    effort: Effort,
    filter: &str,
) -> Result<()> {
    let measured = measure::run(network, objects, effort, filter)?;
    println!();
    report::print_ratios(&measured.comparisons);
    report::print_counting_cost(&measured.nets);
    report::print_estimator_cost(&measured.nets);
    report::print_sync_cost(&measured.nets);
    fill::run(network, objects, effort, filter)?;
    pipeline::run(network, objects, effort, filter)?;
    memory::run(network, filter)?;
    if measured.failed > 0 {
        return Err(format!("{} cases failed", measured.failed).into());
    }
    Ok(())
}

fn main() {
    if !support::privileged() {
        return;
    }
    if let Err(error) = run() {
        eprintln!("bench: {error}");
        std::process::exit(1);
    }
}
