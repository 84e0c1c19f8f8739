//! Writes the metrics of health checks.

use super::server_row::{all_servers, service_labels};
use super::text::{RenderedLabels, Seconds, Text, render_labels};
use crate::status::{Check, Report};

type Family = (&'static str, &'static str, fn(&Check) -> u64);

const COUNTS: [Family; 4] = [
    (
        "weir_check_probes_total",
        "Probes with a result since the check was configured.",
        |check| check.probes,
    ),
    (
        "weir_check_failures_total",
        "Probes that failed.",
        |check| check.failures,
    ),
    (
        "weir_check_downs_total",
        "Number of times the check's state changed to down.",
        |check| check.downs,
    ),
    (
        "weir_check_downtime_seconds_total",
        "Total time that the check has been down.",
        |check| check.downtime_s,
    ),
];

/// Writes the metrics of checks. Writes nothing if there are no checks.
pub(super) fn write_checks(text: &mut Text, report: &Report) {
    let checks: Vec<(RenderedLabels, &Check)> = all_servers(report)
        .flat_map(|([service, pool, address], server)| {
            server.checks.iter().map(move |check| {
                let check_label = ("check", check.check.as_str());
                (render_labels(&[service, pool, address, check_label]), check)
            })
        })
        .collect();
    if checks.is_empty() {
        return;
    }
    for (name, help, count) in COUNTS {
        text.write_family(name, "counter", help);
        for (labels, check) in &checks {
            text.write_series((name, ""), labels, &[], count(check));
        }
    }
    let name = "weir_check_seconds_total";
    text.write_family(name, "counter", "Total duration of the probes.");
    for (labels, check) in &checks {
        text.write_series((name, ""), labels, &[], Seconds(check.time_us));
    }
    let name = "weir_check_last_seconds";
    text.write_family(name, "gauge", "Duration of the last probe.");
    for (labels, check) in &checks {
        text.write_series((name, ""), labels, &[], Seconds(check.last_us));
    }
    let name = "weir_pool_healthy_servers";
    text.write_family(name, "gauge", "Servers whose effective weight is above 0.");
    for service in &report.services {
        let healthy = service.servers.iter().filter(|server| {
            server.effective_weight > 0
                && server
                    .pool
                    .as_ref()
                    .is_none_or(|pool| *pool == service.pool)
        });
        text.write_sample(name, &service_labels(service), healthy.count());
    }
}
