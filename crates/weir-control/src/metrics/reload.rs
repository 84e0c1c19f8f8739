//! Metrics of configuration reloads.

use super::text::Text;
use crate::status::{Report, seconds_of};

pub(super) fn reloads(text: &mut Text, report: &Report) {
    let name = "weir_reloads_total";
    text.family(
        name,
        "counter",
        "Reloads since the process started, by result.",
    );
    let counts = report.reload_counts;
    for (result, count) in [("applied", counts.applied), ("refused", counts.refused)] {
        text.sample(name, &[("result", result)], count);
    }
    let last = report.reloads.last();
    text.single(
        "weir_last_reload_successful",
        "gauge",
        "0 = the last reload failed, and the previous configuration is active.",
        u64::from(last.is_none_or(|it| it.error.is_none())),
    );
    text.single(
        "weir_last_reload_timestamp_seconds",
        "gauge",
        "When the last reload ended, since the Unix epoch; 0 = there was none.",
        last.and_then(|it| seconds_of(&it.at)).unwrap_or(0),
    );
}
