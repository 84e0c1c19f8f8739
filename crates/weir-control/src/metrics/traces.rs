//! Writes the metrics of traced requests.

use super::text::Text;
use crate::status::Report;

/// Writes the metrics of traces. Writes nothing if `[tracing]` is not configured.
pub(super) fn write_traces(text: &mut Text, report: &Report) {
    let Some(traces) = &report.tracing else {
        return;
    };
    for (name, help, count) in [
        (
            "weir_traces_recorded_total",
            "Requests that were recorded as traces.",
            traces.recorded,
        ),
        (
            "weir_traces_exported_total",
            "Recorded requests that the collector accepted.",
            traces.exported,
        ),
    ] {
        text.write_single(name, "counter", help, count);
    }
    let name = "weir_traces_dropped_total";
    let help = "Recorded requests that were dropped: the exporter did not keep up (queue), or the collector did not \
                accept them (collector).";
    text.write_family(name, "counter", help);
    for (reason, count) in [("queue", traces.dropped), ("collector", traces.failed)] {
        text.write_sample(name, &[("reason", reason)], count);
    }
}
