//! Writes the metrics of the estimated latency of layer 4 servers.
//!
//! The measured latency of proxied servers is part of the summary of response times.

use super::server_row::all_servers;
use super::text::Text;
use crate::status::{Report, Server};

/// Writes the latency of all servers with an estimate, and the counters of the estimator.
pub(super) fn write_latencies(text: &mut Text, report: &Report) {
    if !report.latency.is_empty() {
        let name = "weir_latency_events_total";
        let help = "Counters of the latency estimator: samples, and reasons for missing samples.";
        text.write_family(name, "counter", help);
        for event in &report.latency {
            text.write_sample(name, &[("event", event.reason.as_str())], event.packets);
        }
    }
    let is_layer4 = |server: &&Server| server.proxy.is_none();
    let latencies_by_server = || {
        all_servers(report)
            .filter(|(_, server)| is_layer4(server))
            .filter_map(|(labels, server)| Some((labels, server.latency.as_ref()?)))
    };
    if latencies_by_server().next().is_none() {
        return;
    }
    let name = "weir_server_latency_seconds";
    let help = "Time from the last packet of a request to the first packet of its response.";
    text.write_family(name, "summary", help);
    for ([service, pool, server], latency) in latencies_by_server() {
        for (quantile, value) in [
            ("0.5", latency.p50_ms),
            ("0.9", latency.p90_ms),
            ("0.99", latency.p99_ms),
        ] {
            let method = ("method", latency.method.as_str());
            let labels = [service, pool, server, method, ("quantile", quantile)];
            text.write_sample(name, &labels, value.0 as f64 / 1e6);
        }
    }
    // This is a separate family, because parsers require the quantiles of a summary to be numbers.
    let name = "weir_server_latency_mean_seconds";
    let help = "Mean time from the last packet of a request to the first packet of its response.";
    text.write_family(name, "gauge", help);
    for ([service, pool, server], latency) in latencies_by_server() {
        let labels = [service, pool, server, ("method", latency.method.as_str())];
        text.write_sample(name, &labels, latency.mean_ms.0 as f64 / 1e6);
    }
    let name = "weir_server_latency_samples_total";
    text.write_family(name, "counter", "Samples of the server's latency.");
    for ([service, pool, server], latency) in latencies_by_server() {
        let labels = [service, pool, server, ("method", latency.method.as_str())];
        text.write_sample(name, &labels, latency.samples);
    }
}
