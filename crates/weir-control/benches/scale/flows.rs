//! Ten million places for flows: what starting with them costs, in time and memory.

use weir_engine::clean;
use weir_model::Desired;

use crate::Outcome;
use crate::director::Director;
use crate::ground::Ground;
use crate::report::{Begun, Table};

const PLACES: u32 = 10_000_000;

/// Free memory, in bytes.
fn available() -> Outcome<u64> {
    let text = std::fs::read_to_string("/proc/meminfo")?;
    let line = text.lines().find(|line| line.starts_with("MemAvailable:"));
    let kib = line.and_then(|line| line.split_whitespace().nth(1));
    Ok(kib
        .ok_or("no MemAvailable in /proc/meminfo")?
        .parse::<u64>()?
        << 10)
}

/// Starts a director without services.
pub(crate) fn run(ground: &Ground, table: &mut Table) -> Outcome<()> {
    let mut desired = Desired::default();
    desired.node.max_flows = PLACES;
    desired.node.interfaces = Some(vec!["d0".to_owned()]);
    let paths = ground.paths("flows");
    let before = available()?;
    let started = Begun::now();
    let bytes = ground.run(async || {
        let engine = Director::open(&paths, &desired).await?;
        table.row("start with 10 M flows", vec![started.elapsed()], None);
        drop(engine);
        let bytes = before.saturating_sub(available()?);
        clean(&paths).await?;
        Ok(bytes)
    })?;
    let (mib, place) = (bytes >> 20, bytes as f64 / f64::from(PLACES));
    println!(
        "\n{PLACES} places for flows: {mib} MiB less memory available, {place:.1} bytes a place"
    );
    Ok(())
}
