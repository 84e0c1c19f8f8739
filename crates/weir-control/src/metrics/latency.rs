//! Latency of servers, as a summary of Prometheus.

use std::fmt::Write as _;

use super::{Text, all_servers, escape};
use crate::status::{Milliseconds, Report};

/// Writes the latency of all servers that have one, and the counters of the estimator.
pub(super) fn latencies(text: &mut Text, report: &Report) {
    if !report.latency.is_empty() {
        let name = "weir_latency_events_total";
        let help = "Counters of the latency estimator: samples, and why there is none.";
        text.family(name, "counter", help);
        for event in &report.latency {
            text.sample(name, &[("event", event.reason.as_str())], event.packets);
        }
    }
    let known =
        || all_servers(report).filter_map(|(labels, it)| Some((labels, it.latency.as_ref()?)));
    if known().next().is_none() {
        return;
    }
    let name = "weir_server_latency_seconds";
    let help = "From the last packet of a request to the first packet of its answer.";
    text.family(name, "gauge", help);
    for ([service, pool, server], latency) in known() {
        for (quantile, value) in [
            ("0.5", latency.p50_ms),
            ("0.9", latency.p90_ms),
            ("0.99", latency.p99_ms),
            ("mean", latency.mean_ms),
        ] {
            let method = ("method", latency.method.as_str());
            let labels = [service, pool, server, method, ("quantile", quantile)];
            seconds(text, name, &labels, value);
        }
    }
    let name = "weir_server_latency_samples_total";
    text.family(name, "counter", "Samples of the server's latency.");
    for ([service, pool, server], latency) in known() {
        let labels = [service, pool, server, ("method", latency.method.as_str())];
        text.sample(name, &labels, latency.samples);
    }
}

fn seconds(text: &mut Text, name: &str, labels: &[(&str, &str)], value: Milliseconds) {
    let mut all = String::new();
    for (at, (label, label_value)) in labels.iter().enumerate() {
        let _ = write!(all, "{}{label}=\"", if at == 0 { "" } else { "," });
        escape(&mut all, label_value);
        all.push('"');
    }
    let seconds = value.0 as f64 / 1e6;
    let _ = writeln!(text.out, "{name}{{{all}}} {seconds}");
}
