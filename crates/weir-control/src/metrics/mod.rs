//! `GET /metrics`: the status document in Prometheus' text format, version 0.0.4.
//!
//! Names begin with `weir_`, counters end in `_total`, and labels use the names of the configuration. This module
//! counts nothing: all values come from the [`Report`] and the [`Memory`] that the caller read.

mod latency;
mod proxy;
mod vrrp;

use std::fmt::Write as _;

use crate::status::{Counters, Report, Server, Service};

/// Memory of the daemon's process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// Resident bytes.
    pub resident_bytes: u64,
}

impl Memory {
    /// Reads the memory of the calling process; 0 if `/proc` is unreadable.
    pub fn of_this_process() -> Self {
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kib = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse::<u64>().ok());
        Self {
            resident_bytes: kib.unwrap_or(0) * 1024,
        }
    }
}

type Count = (&'static str, &'static str, fn(&Counters) -> u64);

const TOTALS: [Count; 6] = [
    ("connections_total", "Flows ever bound to a server.", |c| {
        c.connections
    }),
    (
        "stateless_total",
        "Flows sent by hash without an entry.",
        |c| c.stateless,
    ),
    ("packets_in_total", "Packets from clients.", |c| {
        c.packets_in
    }),
    (
        "packets_out_total",
        "Packets to clients, where replies pass the director.",
        |c| c.packets_out,
    ),
    ("bytes_in_total", "Bytes from clients.", |c| c.bytes_in),
    (
        "bytes_out_total",
        "Bytes to clients, where replies pass the director.",
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
        "Flows in another state.",
        |server| server.inactive_connections,
    ),
    (
        "persistent_connections",
        "Persistent clients' choices that lead to the server.",
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
        "1 while the server is away for what clients' packets say of it.",
        |server| u64::from(server.ejected.is_some()),
    ),
    (
        "warning",
        "1 while something is wrong with the server although its check passes.",
        |server| u64::from(server.warning.is_some()),
    ),
    ("removed", "1 = removed, its flows live on.", |server| {
        u64::from(server.removed)
    }),
];

/// Renders all metrics.
pub fn render(report: &Report, memory: Memory) -> String {
    let mut text = Text::default();
    text.single(
        "weir_revision",
        "gauge",
        "Configurations that took effect.",
        report.revision,
    );
    text.family("weir_xdp_attached", "gauge", "XDP by interface and mode.");
    for at in &report.xdp {
        let labels = [("interface", at.interface.as_str()), ("mode", &at.mode)];
        text.sample("weir_xdp_attached", &labels, 1);
    }
    services(&mut text, report);
    servers(&mut text, report);
    latency::latencies(&mut text, report);
    proxy::proxies(&mut text, report);
    vrrp::routers(&mut text, report);
    text.family("weir_packets_total", "counter", "Packets by outcome.");
    packets(&mut text, report);
    let flows = &report.flows;
    text.single(
        "weir_flow_places",
        "gauge",
        "Slots of the flow table.",
        flows.places,
    );
    text.single(
        "weir_flow_entries",
        "gauge",
        "Flow table slots in use.",
        flows.entries,
    );
    text.single(
        "weir_flows_expired_total",
        "counter",
        "Flows that ended by timeout.",
        flows.expired,
    );
    text.family(
        "weir_drift_repaired_total",
        "counter",
        "Number of drifted kernel objects repaired, by kind.",
    );
    let drift = &report.drift;
    for (what, count) in [
        ("program", drift.programs),
        ("element", drift.elements),
        ("address", drift.addresses),
        ("neighbour", drift.neighbours),
        ("mark", drift.marks),
        ("real-server", drift.real_server),
    ] {
        text.sample("weir_drift_repaired_total", &[("what", what)], count);
    }
    text.single(
        "weir_process_resident_bytes",
        "gauge",
        "Memory of the daemon.",
        memory.resident_bytes,
    );
    text.out
}

/// Export all reasons, including those at zero: `rate()` needs the series before its first increase.
pub fn render_refused(counts: impl Iterator<Item = (&'static str, u64)>) -> String {
    let mut text = Text::default();
    let name = "weir_admin_refused_total";
    let help = "Requests and connections that the API over TCP refused, by reason.";
    text.family(name, "counter", help);
    for (reason, count) in counts {
        text.sample(name, &[("reason", reason)], count);
    }
    text.out
}

fn packets(text: &mut Text, report: &Report) {
    for info in &weir_abi::REASONS {
        let counted = report
            .reasons
            .iter()
            .find(|reason| reason.reason == info.label);
        let packets = counted.map_or(0, |reason| reason.packets);
        text.sample("weir_packets_total", &[("reason", info.label)], packets);
    }
}

fn services(text: &mut Text, report: &Report) {
    for (name, help, count) in TOTALS {
        let name = format!("weir_service_{name}");
        text.family(&name, "counter", help);
        for service in &report.services {
            text.sample(&name, &of_service(service), count(&service.totals));
        }
    }
    text.family("weir_service_vip", "gauge", "Whether the VIP is local.");
    for service in &report.services {
        let [service_label, pool] = of_service(service);
        let labels = [service_label, pool, ("vip", &service.vip)];
        text.sample("weir_service_vip", &labels, 1);
    }
}

type Labels<'a> = [(&'static str, &'a str); 3];

/// Every server of every service, with its labels.
fn all_servers(report: &Report) -> impl Iterator<Item = (Labels<'_>, &Server)> {
    let of = |service| (of_service(service), &service.servers);
    report
        .services
        .iter()
        .map(of)
        .flat_map(|(labels, servers)| {
            servers.iter().map(move |server| {
                let [service, (label, own)] = labels;
                let pool = (label, server.pool.as_deref().unwrap_or(own));
                ([service, pool, ("server", server.address.as_str())], server)
            })
        })
}

fn servers(text: &mut Text, report: &Report) {
    let all = || all_servers(report);
    for (name, help, count) in TOTALS {
        let name = format!("weir_server_{name}");
        text.family(&name, "counter", help);
        for (labels, server) in all() {
            text.sample(&name, &labels, count(&server.totals));
        }
    }
    for (name, help, value) in SERVER_GAUGES {
        let name = format!("weir_server_{name}");
        text.family(&name, "gauge", help);
        for (labels, server) in all() {
            text.sample(&name, &labels, value(server));
        }
    }
    text.family(
        "weir_server_state",
        "gauge",
        "The state that a server is in.",
    );
    for ([service, pool, address], server) in all() {
        let labels = [service, pool, address, ("state", &server.state)];
        text.sample("weir_server_state", &labels, 1);
    }
}

fn of_service(service: &Service) -> [(&'static str, &str); 2] {
    [("service", &service.name), ("pool", &service.pool)]
}

#[derive(Default)]
struct Text {
    out: String,
}

impl Text {
    fn family(&mut self, name: &str, kind: &str, help: &str) {
        let _ = writeln!(self.out, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: u64) {
        self.out.push_str(name);
        for (at, (label, text)) in labels.iter().enumerate() {
            self.out.push(if at == 0 { '{' } else { ',' });
            self.out.push_str(label);
            self.out.push_str("=\"");
            escape(&mut self.out, text);
            self.out.push('"');
        }
        let after = if labels.is_empty() { "" } else { "}" };
        let _ = writeln!(self.out, "{after} {value}");
    }

    fn single(&mut self, name: &str, kind: &str, help: &str, value: u64) {
        self.family(name, kind, help);
        self.sample(name, &[], value);
    }
}

/// Escapes a label value: three characters have a meaning in the format.
fn escape(out: &mut String, text: &str) {
    let mut rest = text;
    while let Some(at) = rest.find(['\\', '"', '\n']) {
        out.push_str(&rest[..at]);
        out.push('\\');
        out.push(match rest.as_bytes()[at] {
            b'\n' => 'n',
            other => char::from(other),
        });
        rest = &rest[at + 1..];
    }
    out.push_str(rest);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::tests::director;

    #[test]
    fn metrics_of_a_director() {
        let memory = Memory {
            resident_bytes: 4096,
        };
        insta::assert_snapshot!(render(&Report::from(&director()), memory));
    }

    #[test]
    fn names_are_escaped_in_labels() {
        let mut report = Report::from(&director());
        report.services[0].name = "a\"b\\c\nd".to_owned();
        let text = render(&report, Memory::default());
        assert!(text.contains(r#"service="a\"b\\c\nd""#));
        assert!(
            text.lines()
                .all(|line| line.starts_with("weir_") || line.starts_with('#'))
        );
    }
}
