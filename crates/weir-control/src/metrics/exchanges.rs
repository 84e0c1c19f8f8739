//! Writes the results and durations of proxied exchanges, by service, pool, route and server.

use weir_proxy::times::{BOUNDS_US, ErrorKind, Stage};

use super::server_row::{ServerRow, service_labels};
use super::text::{RenderedLabels, Seconds, Text, render_labels};
use crate::status::exchanges::{Exchanges, Time};
use crate::status::{ProxyServerDetails, Report};

/// The labels of a service, pool or route, and its exchanges.
type Row<'a> = (RenderedLabels, &'a Exchanges);

const CLASSES: [&str; 5] = ["1xx", "2xx", "3xx", "4xx", "5xx"];
/// The help text of the response families.
pub(super) const RESPONSES_HELP: &str = "Responses by status class; of 1xx, only 101.";

const fn help(stage: Stage) -> &'static str {
    match stage {
        Stage::Queue => "Time in a pool's queue, for requests that had to wait.",
        Stage::Connect => "Time to connect to a server, for requests that needed a new connection.",
        Stage::Response => {
            "Time from when the server connection is ready to the first byte of the response."
        }
        Stage::Total => {
            "Time from receipt of the complete request head to the end of the response; for a TCP service, the \
             connection's duration."
        }
    }
}

/// Writes all families; `report` must contain at least one proxy service.
pub(super) fn write_exchanges(text: &mut Text, report: &Report, rows: &[ServerRow<'_>]) {
    let proxies = || {
        let services = report.services.iter();
        services.filter_map(|service| Some((service, service.proxy.as_ref()?)))
    };
    let services: Vec<Row<'_>> = proxies()
        .map(|(service, proxy)| (render_labels(&service_labels(service)), &proxy.exchanges))
        .collect();
    let pools: Vec<Row<'_>> = proxies()
        .flat_map(|(service, proxy)| {
            proxy.pools.iter().map(|pool| {
                let labels = [("service", service.name.as_str()), ("pool", &pool.name)];
                (render_labels(&labels), &pool.exchanges)
            })
        })
        .collect();
    let routes: Vec<Row<'_>> = proxies()
        .flat_map(|(service, proxy)| {
            proxy.routes.iter().map(|route| {
                let labels = [("service", service.name.as_str()), ("route", &route.name)];
                (render_labels(&labels), &route.exchanges)
            })
        })
        .collect();
    // The counts of services are written elsewhere, under separate names.
    write_results(text, "proxy", &services);
    for (prefix, rows) in [("pool", &pools), ("route", &routes)] {
        if !rows.is_empty() {
            write_counts(text, prefix, rows);
            write_results(text, prefix, rows);
        }
    }
    write_servers(text, rows);
}

fn write_counts(text: &mut Text, prefix: &str, rows: &[Row<'_>]) {
    let name = format!("weir_{prefix}_requests_total");
    text.write_family(
        &name,
        "counter",
        "Finished requests; for a TCP service, closed connections.",
    );
    for (labels, exchanges) in rows {
        text.write_series((&name, ""), labels, &[], exchanges.ended);
    }
    let name = format!("weir_{prefix}_responses_total");
    text.write_family(&name, "counter", RESPONSES_HELP);
    for (labels, exchanges) in rows {
        for (class, count) in CLASSES.iter().zip(exchanges.responses) {
            text.write_series((&name, ""), labels, &[("class", class)], count);
        }
    }
}

/// Writes failures, repetitions, histograms and the longest durations.
fn write_results(text: &mut Text, prefix: &str, rows: &[Row<'_>]) {
    let name = format!("weir_{prefix}_failures_total");
    text.write_family(
        &name,
        "counter",
        "Failed requests, by kind and responsible side.",
    );
    for (labels, exchanges) in rows {
        write_failures(text, &name, labels, exchanges);
    }
    let name = format!("weir_{prefix}_repetitions_total");
    text.write_family(
        &name,
        "counter",
        "Requests that were sent again on a new connection because the server had closed the idle one.",
    );
    for (labels, exchanges) in rows {
        text.write_series((&name, ""), labels, &[], exchanges.repetitions);
    }
    let bounds = bounds();
    for stage in Stage::ALL {
        let name = format!("weir_{prefix}_{}_seconds", stage.as_str());
        text.write_family(&name, "histogram", help(stage));
        for (labels, exchanges) in rows {
            write_histogram(text, &name, labels, (exchanges.times.of(stage), &bounds));
        }
        let name = format!("weir_{prefix}_{}_max_seconds", stage.as_str());
        text.write_family(&name, "gauge", longest_help(stage));
        for (labels, exchanges) in rows {
            let longest = Seconds(exchanges.times.of(stage).max_us);
            text.write_series((&name, ""), labels, &[], longest);
        }
    }
}

const fn longest_help(stage: Stage) -> &'static str {
    match stage {
        Stage::Queue => "Longest time in a pool's queue since the process started.",
        Stage::Connect => "Longest time to connect to a server since the process started.",
        Stage::Response => {
            "Longest time to the first byte of a response since the process started."
        }
        Stage::Total => "Longest time to the end of a response since the process started.",
    }
}

fn write_failures(text: &mut Text, name: &str, labels: &RenderedLabels, exchanges: &Exchanges) {
    for kind in ErrorKind::ALL {
        write_failure(text, name, labels, (kind, exchanges));
    }
}

fn write_failure(
    text: &mut Text,
    name: &str,
    labels: &RenderedLabels,
    (kind, exchanges): (ErrorKind, &Exchanges),
) {
    let count = exchanges.errors.get(kind.as_str()).copied().unwrap_or(0);
    let more_labels = [("fault", kind.fault()), ("kind", kind.as_str())];
    text.write_series((name, ""), labels, &more_labels, count);
}

/// The bounds of the buckets, as values of `le`.
type Bounds = [String; BOUNDS_US.len()];

fn bounds() -> Bounds {
    BOUNDS_US.map(|bound| Seconds(bound).to_string())
}

fn write_histogram(
    text: &mut Text,
    name: &str,
    labels: &RenderedLabels,
    (time, bounds): (&Time, &Bounds),
) {
    let mut sum = 0;
    let mut buckets = time.buckets.iter();
    for bound in bounds {
        sum += buckets.next().copied().unwrap_or(0);
        text.write_series((name, "_bucket"), labels, &[("le", bound)], sum);
    }
    text.write_series((name, "_bucket"), labels, &[("le", "+Inf")], time.count);
    text.write_series((name, "_sum"), labels, &[], Seconds(time.sum_us));
    text.write_series((name, "_count"), labels, &[], time.count);
}

type Family = (&'static str, &'static str, fn(&ProxyServerDetails) -> u64);

const SERVER_COUNTS: [Family; 5] = [
    (
        "weir_server_requests_total",
        "Requests sent to the server, including retries.",
        |server| server.requests,
    ),
    (
        "weir_server_connect_failures_total",
        "Failed connection attempts, including failed TLS handshakes.",
        |server| server.connect_failures,
    ),
    (
        "weir_server_response_failures_total",
        "Exchanges that ended early, timed out or had an invalid response, including those that were retried.",
        |server| server.response_failures,
    ),
    (
        "weir_server_redispatches_total",
        "Requests that were sent to another server after this one had failed.",
        |server| server.exchanges.redispatches,
    ),
    (
        "weir_server_repetitions_total",
        "Requests that were sent again because the server had closed the idle connection.",
        |server| server.exchanges.repetitions,
    ),
];

type ProxiedRow<'a> = (&'a ServerRow<'a>, &'a ProxyServerDetails);

fn write_servers(text: &mut Text, servers: &[ServerRow<'_>]) {
    let proxied = |row| Some((row, ServerRow::proxied(row)?));
    let rows: Vec<ProxiedRow<'_>> = servers.iter().filter_map(proxied).collect();
    for (name, help, count) in SERVER_COUNTS {
        text.write_family(name, "counter", help);
        for (row, server) in &rows {
            text.write_series((name, ""), &row.labels, &[], count(server));
        }
    }
    let name = "weir_server_active_max";
    text.write_family(name, "gauge", "Peak number of concurrent requests.");
    for (row, server) in &rows {
        text.write_series((name, ""), &row.labels, &[], server.active_max);
    }
    write_server_results(text, &rows);
    for stage in Stage::ALL {
        write_server_times(text, stage, &rows);
    }
    write_server_histograms(text, &rows);
}

/// Writes responses for servers that had a request, and failures that occurred. With `metrics = "full"`, writes all
/// series.
fn write_server_results(text: &mut Text, rows: &[ProxiedRow<'_>]) {
    let name = "weir_server_responses_total";
    text.write_family(name, "counter", RESPONSES_HELP);
    for (row, server) in rows {
        let exchanges = &server.exchanges;
        if exchanges.ended == 0 && !row.is_full {
            continue;
        }
        for (class, count) in CLASSES.iter().zip(exchanges.responses) {
            text.write_series((name, ""), &row.labels, &[("class", class)], count);
        }
    }
    let name = "weir_server_failures_total";
    text.write_family(
        name,
        "counter",
        "Requests that failed at the server, by kind and responsible side.",
    );
    for (row, server) in rows {
        let errors = &server.exchanges.errors;
        let kinds = ErrorKind::ALL.into_iter();
        for kind in kinds.filter(|kind| row.is_full || errors.contains_key(kind.as_str())) {
            write_failure(text, name, &row.labels, (kind, &server.exchanges));
        }
    }
}

/// Writes the durations of a stage for servers that have any. With `metrics = "full"`, writes them for all servers.
fn write_server_times(text: &mut Text, stage: Stage, rows: &[ProxiedRow<'_>]) {
    let name = format!("weir_server_{}_seconds", stage.as_str());
    text.write_family(&name, "summary", help(stage));
    for (row, proxied) in rows {
        let time = proxied.exchanges.times.of(stage);
        if time.count == 0 && !row.is_full {
            continue;
        }
        let latency = row.server.latency.as_ref();
        for (quantile, time) in latency
            .filter(|_| stage == Stage::Response)
            .iter()
            .flat_map(|latency| [("0.5", latency.p50_ms), ("0.99", latency.p99_ms)])
        {
            let seconds = Seconds(time.0.unsigned_abs());
            text.write_series((&name, ""), &row.labels, &[("quantile", quantile)], seconds);
        }
        text.write_series((&name, "_sum"), &row.labels, &[], Seconds(time.sum_us));
        text.write_series((&name, "_count"), &row.labels, &[], time.count);
    }
}

/// Writes the histograms of servers with `metrics = "full"`.
fn write_server_histograms(text: &mut Text, rows: &[ProxiedRow<'_>]) {
    if !rows.iter().any(|(row, _)| row.is_full) {
        return;
    }
    let bounds = bounds();
    for stage in Stage::ALL {
        let name = format!("weir_server_{}_duration_seconds", stage.as_str());
        text.write_family(&name, "histogram", help(stage));
        for (row, proxied) in rows.iter().filter(|(row, _)| row.is_full) {
            let time = proxied.exchanges.times.of(stage);
            write_histogram(text, &name, &row.labels, (time, &bounds));
        }
    }
}
