//! Measures the time and memory needed to start with a flow table of ten million slots.

use weir_engine::clean;
use weir_model::Desired;

use crate::Result;
use crate::director::Director;
use crate::report::{Stopwatch, Table};
use crate::testbed::Testbed;

const SLOTS: u32 = 10_000_000;

/// Returns the available memory in bytes.
fn available_memory() -> Result<u64> {
    let text = std::fs::read_to_string("/proc/meminfo")?;
    let line = text.lines().find(|line| line.starts_with("MemAvailable:"));
    let kib = line.and_then(|line| line.split_whitespace().nth(1));
    Ok(kib
        .ok_or("no MemAvailable in /proc/meminfo")?
        .parse::<u64>()?
        << 10)
}

/// Measures the time and memory that a director without services needs to start.
pub(crate) fn run(testbed: &Testbed, table: &mut Table) -> Result<()> {
    let mut desired = Desired::default();
    desired.node.max_flows = SLOTS;
    desired.node.interfaces = Some(vec!["d0".to_owned()]);
    let paths = testbed.paths("flows");
    let before = available_memory()?;
    let stopwatch = Stopwatch::now();
    let bytes = testbed.run(async || {
        let engine = Director::open(&paths, &desired).await?;
        table.row("start with 10 M flows", vec![stopwatch.elapsed()], None);
        drop(engine);
        let bytes = before.saturating_sub(available_memory()?);
        clean(&paths).await?;
        Ok(bytes)
    })?;
    let (mib, bytes_per_slot) = (bytes >> 20, bytes as f64 / f64::from(SLOTS));
    println!(
        "\n{SLOTS} flow slots: {mib} MiB less memory available, {bytes_per_slot:.1} bytes per slot"
    );
    Ok(())
}
