//! Renders the status document as metrics (`GET /metrics`).
//!
//! The format is Prometheus' text format, version 0.0.4, or OpenMetrics, version 1.0.0.
//!
//! Names begin with `weir_`, names of counters end in `_total`, and labels contain names from the configuration, states
//! and reasons. This module does not count anything: all values come from the arguments of [`render`].

mod announce;
mod certificate;
mod check;
mod exchanges;
mod group;
mod latency;
mod process;
mod proxy;
mod reload;
mod server_row;
mod sync;
mod text;
mod traces;
mod vrrp;

use crate::status::{Counters, Report, Server};

use server_row::{ServerRow, all_servers, service_labels};
use text::Text;

pub use process::Process;
pub(crate) use process::uptime_s;
pub use text::Format;

type Count = (&'static str, &'static str, fn(&Counters) -> u64);

const TOTALS: [Count; 6] = [
    (
        "connections_total",
        "Flows that were bound to a server.",
        |c| c.connections,
    ),
    (
        "stateless_total",
        "Flows forwarded by hash, without a flow table entry.",
        |c| c.stateless,
    ),
    ("packets_in_total", "Packets from clients.", |c| {
        c.packets_in
    }),
    (
        "packets_out_total",
        "Packets to clients, if replies pass through the director.",
        |c| c.packets_out,
    ),
    ("bytes_in_total", "Bytes from clients.", |c| c.bytes_in),
    (
        "bytes_out_total",
        "Bytes to clients, if replies pass through the director.",
        |c| c.bytes_out,
    ),
];

type Gauge = (&'static str, &'static str, fn(&Server) -> u64);

const SERVER_GAUGES: [Gauge; 9] = [
    (
        "active_connections",
        "Flows in an active state.",
        |server| server.active_connections,
    ),
    (
        "inactive_connections",
        "Flows in an inactive state.",
        |server| server.inactive_connections,
    ),
    (
        "persistent_connections",
        "Persistent clients assigned to the server.",
        |server| server.persistent_connections,
    ),
    (
        "overloaded",
        "1 while the server is at its upper threshold.",
        |server| u64::from(server.overloaded),
    ),
    ("weight", "Configured weight.", |server| {
        u64::from(server.weight)
    }),
    (
        "effective_weight",
        "Weight that the scheduler uses.",
        |server| u64::from(server.effective_weight),
    ),
    (
        "ejected",
        "1 while the server is ejected because client traffic to it failed.",
        |server| u64::from(server.ejected.is_some()),
    ),
    (
        "warning",
        "1 while the server has a problem although its check passes.",
        |server| u64::from(server.warning.is_some()),
    ),
    (
        "removed",
        "1 if the server was removed from the pool and still has flows.",
        |server| u64::from(server.removed),
    ),
];

/// Renders all metrics. `rejections` contains the number of requests that the API over TCP rejected, by reason.
pub fn render(
    report: &Report,
    process: Process,
    rejections: impl Iterator<Item = (&'static str, u64)>,
    format: Format,
) -> String {
    let mut text = Text::new(format);
    process::write_process(&mut text, process);
    text.write_single(
        "weir_revision",
        "gauge",
        "Number of the active configuration; it increases with each configuration that takes effect.",
        report.revision,
    );
    text.write_single(
        "weir_certificates_outdated",
        "gauge",
        "1 while changed certificate files cannot be used and the previous ones are in use.",
        u64::from(report.certificate_error.is_some()),
    );
    reload::write_reloads(&mut text, report);
    certificate::write_certificates(&mut text, report);
    text.write_family(
        "weir_xdp_attached",
        "gauge",
        "Always 1; the `mode` label is the mode in which the data plane is attached to the interface.",
    );
    for interface in &report.xdp {
        let labels = [
            ("interface", interface.interface.as_str()),
            ("mode", &interface.mode),
        ];
        text.write_sample("weir_xdp_attached", &labels, 1);
    }
    write_services(&mut text, report);
    let rows: Vec<ServerRow<'_>> = all_servers(report)
        .map(|(labels, server)| ServerRow::new(&labels, server))
        .collect();
    write_servers(&mut text, &rows);
    latency::write_latencies(&mut text, report);
    proxy::write_proxies(&mut text, report, &rows);
    check::write_checks(&mut text, report);
    vrrp::write_routers(&mut text, report);
    announce::write_routes(&mut text, report);
    sync::write_peers(&mut text, report);
    traces::write_traces(&mut text, report);
    group::write_members(&mut text, report);
    text.write_family("weir_packets_total", "counter", "Packets by outcome.");
    write_packets(&mut text, report);
    let flows = &report.flows;
    text.write_single(
        "weir_flow_places",
        "gauge",
        "Slots of the flow table.",
        flows.slots,
    );
    text.write_single(
        "weir_flow_entries",
        "gauge",
        "Flow table slots in use.",
        flows.entries,
    );
    text.write_single(
        "weir_flows_expired_total",
        "counter",
        "Flows that timed out.",
        flows.expired,
    );
    write_drift(&mut text, report);
    write_rejections(&mut text, rejections);
    text.finish()
}

fn write_drift(text: &mut Text, report: &Report) {
    text.write_family(
        "weir_drift_repaired_total",
        "counter",
        "Number of repaired kernel objects, by kind.",
    );
    let drift = &report.drift;
    for (kind, count) in [
        ("program", drift.programs),
        ("element", drift.elements),
        ("address", drift.addresses),
        ("neighbour", drift.neighbours),
        ("mark", drift.marks),
        ("real-server", drift.real_server),
    ] {
        text.write_sample("weir_drift_repaired_total", &[("what", kind)], count);
    }
}

/// Writes all reasons, even those without rejections, because `rate()` needs a series to exist before its first
/// increase.
fn write_rejections(text: &mut Text, counts: impl Iterator<Item = (&'static str, u64)>) {
    let name = "weir_admin_refused_total";
    let help = "Requests and connections that the API over TCP rejected, by reason.";
    text.write_family(name, "counter", help);
    for (reason, count) in counts {
        text.write_sample(name, &[("reason", reason)], count);
    }
}

fn write_packets(text: &mut Text, report: &Report) {
    for info in &weir_abi::REASONS {
        let row = report
            .reasons
            .iter()
            .find(|reason| reason.reason == info.label);
        let packets = row.map_or(0, |reason| reason.packets);
        text.write_sample("weir_packets_total", &[("reason", info.label)], packets);
    }
}

fn write_services(text: &mut Text, report: &Report) {
    for (name, help, count) in TOTALS {
        let name = format!("weir_service_{name}");
        text.write_family(&name, "counter", help);
        for service in &report.services {
            text.write_sample(&name, &service_labels(service), count(&service.totals));
        }
    }
    text.write_family(
        "weir_service_vip",
        "gauge",
        "Always 1; the `vip` label is the state of the VIP.",
    );
    for service in &report.services {
        let [service_label, pool] = service_labels(service);
        let labels = [service_label, pool, ("vip", &service.vip)];
        text.write_sample("weir_service_vip", &labels, 1);
    }
}

/// Families that are counted only on the packet path. For a proxied server, they are written only with
/// `metrics = "full"`, or if the value is above 0.
const PACKET_PATH: [&str; 7] = [
    "stateless_total",
    "packets_in_total",
    "packets_out_total",
    "persistent_connections",
    "overloaded",
    "warning",
    "removed",
];

fn write_servers(text: &mut Text, rows: &[ServerRow<'_>]) {
    for (name, help, count) in TOTALS {
        let value = |server: &Server| count(&server.totals);
        write_server_family(text, rows, (name, "counter", help), value);
    }
    for (name, help, value) in SERVER_GAUGES {
        write_server_family(text, rows, (name, "gauge", help), value);
    }
    let name = "weir_server_state";
    text.write_family(
        name,
        "gauge",
        "Always 1; the `state` label is the state of the server.",
    );
    for row in rows {
        let state = [("state", row.server.state.as_str())];
        text.write_series((name, ""), &row.labels, &state, 1);
    }
}

fn write_server_family(
    text: &mut Text,
    rows: &[ServerRow<'_>],
    (name, kind, help): (&str, &str, &str),
    value: impl Fn(&Server) -> u64,
) {
    let is_for_all_servers = !PACKET_PATH.contains(&name);
    let name = format!("weir_server_{name}");
    text.write_family(&name, kind, help);
    for row in rows {
        let value = value(row.server);
        if is_for_all_servers || row.is_full || value > 0 {
            text.write_series((&name, ""), &row.labels, &[], value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::ProxyServerDetails;
    use crate::status::tests::director;

    const PROCESS: Process = Process {
        resident_bytes: 4096,
        started_ms: 1_795_201_200_250,
    };

    fn render_report(report: &Report, format: Format) -> String {
        render(report, PROCESS, [("role", 2)].into_iter(), format)
    }

    #[test]
    fn metrics_of_a_director() {
        insta::assert_snapshot!(render_report(
            &Report::from(&director()),
            Format::Prometheus
        ));
    }

    #[test]
    fn open_metrics_of_a_director() {
        let text = render_report(&Report::from(&director()), Format::OpenMetrics);
        assert!(text.ends_with("\n# EOF\n"));
        assert!(text.contains("# TYPE weir_service_connections counter\n"));
        assert!(text.contains("\nweir_service_connections_total{"));
        assert!(text.contains("# UNIT weir_start_time_seconds seconds\n"));
        for line in text.lines().filter(|line| line.starts_with("# TYPE")) {
            assert!(!line.contains("_total"), "{line}");
        }
    }

    /// Each family and each series occurs only once.
    #[test]
    fn series_and_families_are_unique() {
        for format in [Format::Prometheus, Format::OpenMetrics] {
            let text = render_report(&Report::from(&director()), format);
            let mut series = std::collections::HashSet::new();
            let mut families = std::collections::HashSet::new();
            for line in text.lines() {
                if let Some(family) = line.strip_prefix("# TYPE ") {
                    assert!(families.insert(family.split(' ').next()), "{line}");
                } else if !line.starts_with('#') {
                    let (name, _) = line.rsplit_once(' ').expect("the line has a value");
                    assert!(series.insert(name), "{line}");
                }
            }
        }
    }

    #[test]
    fn names_are_escaped_in_labels() {
        let mut report = Report::from(&director());
        report.services[0].name = "a\"b\\c\nd".to_owned();
        let text = render_report(&report, Format::Prometheus);
        assert!(text.contains(r#"service="a\"b\\c\nd""#));
        assert!(
            text.lines()
                .all(|line| line.starts_with("weir_") || line.starts_with('#'))
        );
    }

    /// Returns a report that contains two layer 4 services, and a proxy service with one idle server and one used
    /// server.
    fn proxied() -> Report {
        use crate::status::{ProxyServiceDetails, exchanges::Exchanges};
        let mut report = Report::from(&director());
        let mut service = report.services[0].clone();
        service.name = "proxied".to_owned();
        let proxied: serde_json::Value = serde_json::json!({
            "protocol": "http", "clients": 0, "requests": 1, "errors": 0, "retries": 0,
        });
        service.proxy = Some(serde_json::from_value::<ProxyServiceDetails>(proxied).unwrap());
        for (index, server) in service.servers.iter_mut().enumerate() {
            let mut exchanges = Exchanges::default();
            if index == 1 {
                exchanges.ended = 2;
                exchanges.responses[1] = 1;
                exchanges.errors.insert("response".to_owned(), 1);
                exchanges.times.total.count = 2;
                exchanges.times.total.sum_us = 1_500_000;
            }
            server.totals = Counters::default();
            server.persistent_connections = 0;
            server.overloaded = false;
            server.latency = None;
            server.proxy = Some(ProxyServerDetails {
                requests: 0,
                active_max: 0,
                connect_failures: 0,
                response_failures: 0,
                connections_per_second_max: 0,
                requests_per_second_max: 0,
                unused_ms: None,
                max_connections: 0,
                backup: false,
                exchanges,
            });
        }
        report.services.push(service);
        report
    }

    /// Returns the distinct metric names for one of the proxy service's servers.
    fn names<'a>(text: &'a str, server: &str) -> Vec<&'a str> {
        let lines = text
            .lines()
            .filter(|line| line.contains("service=\"proxied\"") && line.contains(server));
        let mut names: Vec<&str> = lines.filter_map(|line| line.split('{').next()).collect();
        names.dedup();
        names
    }

    #[test]
    fn empty_series_of_proxied_servers_are_omitted_unless_metrics_is_full() {
        let mut report = proxied();
        let text = render_report(&report, Format::Prometheus);
        let (idle, used) = (names(&text, "10.0.0.5"), names(&text, "10.0.0.6"));
        for name in [
            "weir_server_packets_in_total",
            "weir_server_removed",
            "weir_server_queue_seconds_count",
        ] {
            assert!(!idle.contains(&name) && !used.contains(&name), "{name}");
            assert!(text.contains(&name.replace("_count", "")), "{name}");
        }
        for name in [
            "weir_server_requests_total",
            "weir_server_connect_failures_total",
            "weir_server_weight",
            "weir_server_state",
        ] {
            assert!(idle.contains(&name) && used.contains(&name), "{name}");
        }
        for name in [
            "weir_server_responses_total",
            "weir_server_failures_total",
            "weir_server_total_seconds_sum",
        ] {
            assert!(!idle.contains(&name) && used.contains(&name), "{name}");
        }
        assert_eq!(text.matches("weir_server_failures_total{").count(), 1);
        let service = report.services.last_mut().unwrap();
        let proxied = service.servers[0].proxy.as_mut().unwrap();
        let times = &mut proxied.exchanges.times;
        for time in [
            &mut times.queue,
            &mut times.connect,
            &mut times.response,
            &mut times.total,
        ] {
            time.buckets = vec![0; 12];
        }
        let text = render_report(&report, Format::Prometheus);
        let names_of_server = names(&text, "10.0.0.5");
        for name in used.iter().chain(&[
            "weir_server_packets_in_total",
            "weir_server_removed",
            "weir_server_queue_seconds_count",
            "weir_server_queue_duration_seconds_bucket",
        ]) {
            assert!(
                names_of_server.contains(name),
                "{name}: {names_of_server:?}"
            );
        }
    }
}
