//! Writes the metrics of configuration reloads.

use super::text::Text;
use crate::status::{Report, parse_seconds};

pub(super) fn write_reloads(text: &mut Text, report: &Report) {
    let name = "weir_reloads_total";
    text.write_family(
        name,
        "counter",
        "Reloads since the process started, by result.",
    );
    let counts = report.reload_counts;
    for (result, count) in [("applied", counts.applied), ("refused", counts.refused)] {
        text.write_sample(name, &[("result", result)], count);
    }
    let last = report.reloads.last();
    text.write_single(
        "weir_last_reload_successful",
        "gauge",
        "1 unless the last reload failed and the previous configuration is still active.",
        u64::from(last.is_none_or(|reload| reload.error.is_none())),
    );
    text.write_single(
        "weir_last_reload_timestamp_seconds",
        "gauge",
        "End of the last reload, since the Unix epoch; 0 = there was none.",
        last.and_then(|reload| parse_seconds(&reload.at))
            .unwrap_or(0),
    );
}
