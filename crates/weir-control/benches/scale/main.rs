//! Measures the control plane with ten thousand services and with a flow table of ten million slots (`make bench`).
//!
//! Each row contains the median, minimum and maximum of several rounds, and the goal. The CPU time of the process shows
//! the effect of other load on the machine. Requires root privileges: the benchmark creates its own namespaces and does
//! not change anything outside them. `WEIR_BENCH_SERVICES` (10000), `WEIR_BENCH_SERVERS` per service (10) and
//! `WEIR_BENCH_ROUNDS` (5) set the size. If an argument is given, only rows whose names contain it are measured.

#[path = "../../../weir-engine/tests/engine/director.rs"]
mod director;
mod file;
mod flows;
mod report;
mod testbed;

use std::error::Error;
use std::time::Duration;

use weir_control::configuration;
use weir_control::metrics::{self, Format, Process};
use weir_control::plan::plan;
use weir_control::snapshot::Snapshot;
use weir_control::status::Report;
use weir_engine::{Paths, clean};
use weir_model::{Desired, diff};
use weir_state::Override;
use weir_sys::{Capabilities, Capability};

use director::Director;
use file::Size;
use report::{Durations, Stopwatch, Table};
use testbed::Testbed;

/// The result of a step; any error ends the benchmark with a message.
pub(crate) type Result<T> = std::result::Result<T, Box<dyn Error>>;

const MILLISECOND: Duration = Duration::from_millis(1);

fn parse_setting(name: &str, default: usize) -> Result<usize> {
    match std::env::var(name) {
        Ok(text) => Ok(text
            .parse()
            .map_err(|_| format!("{name}={text} is not a number"))?),
        Err(_) => Ok(default),
    }
}

/// Runs `operation` once per round and returns the durations.
fn rounds<T>(
    rounds: usize,
    mut operation: impl FnMut(usize) -> Result<T>,
) -> Result<Vec<Durations>> {
    (0..rounds)
        .map(|round| {
            let stopwatch = Stopwatch::now();
            let result = operation(round)?;
            let elapsed = stopwatch.elapsed();
            drop(result);
            Ok(elapsed)
        })
        .collect()
}

fn measure_parsing(
    testbed: &Testbed,
    size: &Size,
    round_count: usize,
    table: &mut Table,
) -> Result<Desired> {
    let path = testbed.file("weir.toml");
    std::fs::write(&path, size.to_toml())?;
    let load = || configuration::load(&path, false).map_err(|rejected| rejected.diagnostics);
    let elapsed = rounds(round_count, |_| Ok(load()?))?;
    table.row("parse and check the file", elapsed, Some(500 * MILLISECOND));
    Ok(load()?.desired)
}

async fn measure_starts(
    paths: &Paths,
    desired: &Desired,
    round_count: usize,
    table: &mut Table,
) -> Result<Director> {
    let (mut fresh, mut adopted) = (Vec::new(), Vec::new());
    for round in 0..round_count {
        let stopwatch = Stopwatch::now();
        let engine = Director::open(paths, desired).await?;
        fresh.push(stopwatch.elapsed());
        drop(engine);
        let stopwatch = Stopwatch::now();
        let engine = Director::open(paths, desired).await?;
        adopted.push(stopwatch.elapsed());
        if round + 1 == round_count {
            table.row(
                "start without pinned state",
                fresh,
                Some(2000 * MILLISECOND),
            );
            table.row("start with pinned state", adopted, Some(2000 * MILLISECOND));
            return Ok(engine);
        }
        drop(engine);
        clean(paths).await?;
    }
    Err("WEIR_BENCH_ROUNDS must be above 0".into())
}

/// Measures reloads that each change at most one server, from the parsed file until the change takes effect.
async fn measure_reloads(
    engine: &mut Director,
    desired: &Desired,
    round_count: usize,
    table: &mut Table,
) -> Result<()> {
    type Edit = fn(&mut Desired, usize);
    let kinds: [(&str, Edit); 4] = [
        ("reload: a server's weight", |desired, round| {
            desired.pools[round].servers[0].weight = 7;
        }),
        ("reload: a server removed", |desired, round| {
            desired.pools[round + 100].servers.remove(0);
        }),
        ("reload: a server added", |desired, round| {
            desired.pools[round + 200]
                .servers
                .push(file::unused_server(round));
        }),
        ("reload: nothing changed", |_, _| {}),
    ];
    let mut current = desired.clone();
    for (name, change) in kinds {
        let mut elapsed = Vec::new();
        for round in 0..round_count {
            let mut changed_state = current.clone();
            change(&mut changed_state, round);
            let stopwatch = Stopwatch::now();
            let _changes = diff(&current, &changed_state);
            engine.apply(&changed_state).await?;
            elapsed.push(stopwatch.elapsed());
            engine.tick().await?;
            current = changed_state;
        }
        table.row(name, elapsed, Some(100 * MILLISECOND));
    }
    Ok(())
}

async fn measure_overrides(
    engine: &mut Director,
    round_count: usize,
    table: &mut Table,
) -> Result<()> {
    let mut elapsed = Vec::new();
    for round in 0..round_count * 4 {
        let (pool, server) = (file::pool(round + 300), file::server(round + 300, 1));
        let stopwatch = Stopwatch::now();
        engine.set_override(&pool, &server, Override::Weight(3))?;
        elapsed.push(stopwatch.elapsed());
    }
    table.row(
        "weight change through the API",
        elapsed,
        Some(10 * MILLISECOND),
    );
    let mut elapsed = Vec::new();
    for _ in 0..round_count {
        let stopwatch = Stopwatch::now();
        engine.tick().await?;
        elapsed.push(stopwatch.elapsed());
    }
    table.row("one periodic tick", elapsed, None);
    Ok(())
}

fn measure_reports(
    engine: &Director,
    desired: &Desired,
    round_count: usize,
    table: &mut Table,
) -> Result<()> {
    let second = Some(1000 * MILLISECOND);
    let report = || -> Result<Report> { Ok(Report::from(&Snapshot::from(engine.snapshot()?))) };
    let elapsed = rounds(round_count, |_| Ok(serde_json::to_vec(&report()?)?))?;
    table.row("status --json", elapsed, second);
    let elapsed = rounds(round_count, |_| {
        let process = Process::current();
        let refused = std::iter::empty();
        Ok(metrics::render(
            &report()?,
            process,
            refused,
            Format::Prometheus,
        ))
    })?;
    table.row("metrics", elapsed, second);
    let mut changed_state = desired.clone();
    changed_state.pools[0].servers.remove(1);
    let live = |service: &str, server: Option<&str>| engine.live_flows(service, server);
    let elapsed = rounds(round_count, |_| {
        Ok(plan(desired, &changed_state, &live, &[]))
    })?;
    table.row("plan", elapsed, second);
    Ok(())
}

fn run() -> Result<()> {
    let filter = std::env::args()
        .skip(1)
        .find(|argument| argument != "--bench")
        .unwrap_or_default();
    let round_count = parse_setting("WEIR_BENCH_ROUNDS", 5)?;
    let size = Size {
        services: parse_setting("WEIR_BENCH_SERVICES", 10_000)?.max(500),
        servers: parse_setting("WEIR_BENCH_SERVERS", 10)?.max(2),
    };
    let testbed = Testbed::new()?;
    println!(
        "{} services of {} servers, wlc\n",
        size.services, size.servers
    );
    let mut table = Table::new(filter.clone());
    let desired = measure_parsing(&testbed, &size, round_count, &mut table)?;
    let paths = testbed.paths("services");
    testbed.run(async || {
        let mut engine = measure_starts(&paths, &desired, round_count, &mut table).await?;
        measure_reloads(&mut engine, &desired, round_count, &mut table).await?;
        measure_overrides(&mut engine, round_count, &mut table).await?;
        measure_reports(&engine, &desired, round_count, &mut table)?;
        drop(engine);
        clean(&paths).await?;
        Ok(())
    })?;
    flows::run(&testbed, &mut table)
}

fn main() {
    if !Capabilities::effective().is_ok_and(|all| all.has(Capability::SysAdmin)) {
        println!("SKIPPED: needs root");
        return;
    }
    if let Err(error) = run() {
        eprintln!("bench: {error}");
        std::process::exit(1);
    }
}
