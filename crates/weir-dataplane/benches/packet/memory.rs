//! Measures the memory that the kernel accounts for the maps of a director with an empty configuration.

use std::os::fd::{AsFd, AsRawFd};
use std::path::Path;

use aya::maps::MapInfo;
use weir_dataplane::{Dataplane, OpenOptions, PinKind};

use crate::Result;
use crate::network::TestNetwork;
use crate::report::Table;

/// Goals: bytes per entry of the flow table, and MiB of an empty director.
const ENTRY_BYTES_GOAL: f64 = 100.0;
const TOTAL_GOAL_MIB: f64 = 128.0;
/// Maps smaller than this number of bytes share one row.
const SMALL_MAP_BYTES: u64 = 1 << 20;
const MIB: f64 = (1 << 20) as f64;

/// Opens a data plane with the default sizes, and prints its maps and whether the goals are met.
pub(crate) fn run(network: &mut TestNetwork, filter: &str) -> Result<()> {
    if !"memory".contains(filter) {
        return Ok(());
    }
    let options = OpenOptions::new(network.pin_dir());
    let (mut dataplane, _) = Dataplane::open(&options)?;
    dataplane.activate()?;
    println!(
        "\n3. Kernel memory of an empty director, max_flows = {}\n",
        options.sizes.flows
    );
    let table = Table::new(&["map", "MiB"]);
    table.print_header();
    let (mut total, mut flows, mut small) = (0, 0, 0);
    for pinned in dataplane.pins().list()? {
        if pinned.kind != PinKind::Map {
            continue;
        }
        let bytes = allocated_bytes(&pinned.path)?;
        let name = pinned
            .path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy();
        total += bytes;
        if name.starts_with("weir_flows") {
            flows += bytes;
        }
        if bytes < SMALL_MAP_BYTES {
            small += bytes;
        } else {
            table.print_row(&[name.into_owned(), format!("{:.1}", bytes as f64 / MIB)]);
        }
    }
    table.print_row(&[
        "smaller maps".to_owned(),
        format!("{:.1}", small as f64 / MIB),
    ]);
    let flow_entries = dataplane.maps().flows.capacity();
    let (entry_bytes, total) = (flows as f64 / f64::from(flow_entries), total as f64 / MIB);
    println!(
        "\n{entry_bytes:.1} bytes per entry (goal: under {ENTRY_BYTES_GOAL}, {}); \
         {total:.1} MiB in total (goal: under {TOTAL_GOAL_MIB}, {})",
        met(entry_bytes < ENTRY_BYTES_GOAL),
        met(total < TOTAL_GOAL_MIB)
    );
    weir_dataplane::clean(dataplane.pins())?;
    Ok(())
}

fn met(is_met: bool) -> &'static str {
    if is_met { "met" } else { "NOT met" }
}

/// Returns the `memlock` of a map: all bytes that the kernel allocated for it.
fn allocated_bytes(path: &Path) -> Result<u64> {
    let map = MapInfo::from_pin(path)?.fd()?;
    let fdinfo = format!("/proc/self/fdinfo/{}", map.as_fd().as_raw_fd());
    let text = std::fs::read_to_string(&fdinfo)?;
    let value = text
        .lines()
        .find_map(|line| line.strip_prefix("memlock:"))
        .ok_or_else(|| format!("{fdinfo} has no memlock"))?;
    Ok(value.trim().parse()?)
}
