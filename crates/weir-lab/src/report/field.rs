//! Lists the field reports that the experiments reproduce: the authors' figures, the lab's corresponding rows, and the
//! reasons for differences.

use super::Row;

/// A field report.
#[derive(Debug)]
pub(crate) struct FieldReport {
    /// The experiment that reproduces the report.
    pub(crate) experiment: &'static str,
    /// The compared methods or programs.
    pub(crate) title: &'static str,
    /// The author's machines and load.
    pub(crate) setup: &'static str,
    pub(crate) figures: &'static [Figure],
    /// Differences between the lab and the report, and their reasons.
    pub(crate) differences: &'static [&'static str],
}

/// A figure of a report.
#[derive(Debug)]
pub(crate) struct Figure {
    pub(crate) label: &'static str,
    /// The author's value; `None` = the report has none.
    pub(crate) reported: Option<f64>,
    pub(crate) metric: Metric,
    /// The peer's row with the same measurement.
    pub(crate) peer: Option<&'static str>,
    /// Weir's row with the same measurement.
    pub(crate) weir: Option<&'static str>,
}

/// How a figure is calculated from a row.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Metric {
    RequestsPerSecond,
    KbytesPerSecond,
    Seconds,
    Failed,
    /// This quantile of the latency, in milliseconds.
    Latency(f64),
    /// The request rate divided by that of another row.
    RateRatio(&'static str),
}

impl Metric {
    pub(crate) const fn unit(self) -> &'static str {
        match self {
            Self::RequestsPerSecond => "requests/s",
            Self::KbytesPerSecond => "KB/s",
            Self::Seconds => "s",
            Self::Failed => "requests",
            Self::Latency(_) => "ms",
            Self::RateRatio(_) => "\u{d7}",
        }
    }

    /// Returns the value of the row with this name; `None` = it was not measured.
    pub(crate) fn value(self, name: &str, rows: &[Row]) -> Option<f64> {
        let find = |name: &str| rows.iter().find(|row| row.name == name);
        let row = find(name)?;
        Some(match self {
            Self::RequestsPerSecond => row.requests_per_second,
            Self::KbytesPerSecond => row.kbytes_per_second,
            Self::Seconds => row.seconds,
            Self::Failed => row.failed as f64,
            Self::Latency(quantile) => row.timing.as_ref()?.latency.quantile_ms(quantile),
            Self::RateRatio(other) => {
                let base = find(other)?.requests_per_second;
                (base > 0.0).then(|| row.requests_per_second / base)?
            }
        })
    }
}

const fn figure(
    label: &'static str,
    reported: f64,
    metric: Metric,
    peer: &'static str,
    weir: &'static str,
) -> Figure {
    Figure {
        label,
        reported: Some(reported),
        metric,
        peer: non_empty(peer),
        weir: non_empty(weir),
    }
}

/// Creates a figure that the report does not have.
const fn unreported_figure(
    label: &'static str,
    metric: Metric,
    peer: &'static str,
    weir: &'static str,
) -> Figure {
    Figure {
        label,
        reported: None,
        metric,
        peer: non_empty(peer),
        weir: non_empty(weir),
    }
}

const fn non_empty(name: &'static str) -> Option<&'static str> {
    if name.is_empty() { None } else { Some(name) }
}

use Metric::{Failed, KbytesPerSecond, Latency, RateRatio, RequestsPerSecond, Seconds};

/// All field reports.
pub(crate) static REPORTS: [FieldReport; 7] = [
    FieldReport {
        experiment: "saturated-uplink",
        title: "Proxy compared with direct routing: HAProxy and LVS-DR",
        setup: "Four servers with a 4 MB file, every host's uplink limited to 10 Mbit/s; ab -n 100 -c 12.",
        figures: &[
            figure(
                "one server alone",
                1_194.86,
                KbytesPerSecond,
                "one-server",
                "",
            ),
            figure(
                "through the proxy",
                1_180.92,
                KbytesPerSecond,
                "haproxy",
                "nat",
            ),
            figure(
                "through the proxy, duration",
                388.511,
                Seconds,
                "haproxy",
                "nat",
            ),
            figure(
                "direct routing",
                4_596.12,
                KbytesPerSecond,
                "nftables",
                "direct",
            ),
            figure(
                "direct routing, duration",
                99.823,
                Seconds,
                "nftables",
                "direct",
            ),
            figure(
                "direct routing vs. the proxy",
                3.89,
                RateRatio("haproxy"),
                "nftables",
                "direct",
            ),
        ],
        differences: &[
            "The report's direct routing is IPVS in the kernel. This machine's kernel has no IPVS, so the peer is \
             nftables, which rewrites the destination IP address.",
            "The report limits links with tbf; the lab does the same, at the same rate unless --rate is given.",
        ],
    },
    FieldReport {
        experiment: "reload-under-load",
        title: "Reloads without downtime: HAProxy at a company that runs it on every host",
        setup: "nginx behind HAProxy 1.5, ab -c 10, a reload every 100 ms, traffic over loopback.",
        figures: &[
            figure(
                "plain reload: failed out of 200 000",
                504.0,
                Failed,
                "haproxy/disturbed",
                "proxy/disturbed",
            ),
            figure(
                "plain reload: median",
                2.0,
                Latency(0.5),
                "haproxy/disturbed",
                "proxy/disturbed",
            ),
            figure(
                "plain reload: 99th percentile",
                3.0,
                Latency(0.99),
                "haproxy/disturbed",
                "proxy/disturbed",
            ),
            figure(
                "plain reload: slowest",
                15.0,
                Latency(1.0),
                "haproxy/disturbed",
                "proxy/disturbed",
            ),
            figure(
                "SYNs dropped: failed",
                0.0,
                Failed,
                "haproxy-no-syns/disturbed",
                "direct/disturbed",
            ),
            figure(
                "SYNs dropped: 99th percentile",
                6.0,
                Latency(0.99),
                "haproxy-no-syns/disturbed",
                "direct/disturbed",
            ),
            figure(
                "SYNs dropped: slowest",
                1_002.0,
                Latency(1.0),
                "haproxy-no-syns/disturbed",
                "direct/disturbed",
            ),
            figure(
                "SYNs held: failed out of 1 000 000",
                0.0,
                Failed,
                "haproxy-protect/disturbed",
                "proxy/disturbed",
            ),
            figure(
                "SYNs held: 99th percentile",
                8.0,
                Latency(0.99),
                "haproxy-protect/disturbed",
                "proxy/disturbed",
            ),
            figure(
                "SYNs held: slowest",
                29.0,
                Latency(1.0),
                "haproxy-protect/disturbed",
                "proxy/disturbed",
            ),
        ],
        differences: &[
            "HAProxy is the installed version, not 1.5. Since 1.8 it can pass its sockets to the next process.",
            "`weir protect` holds the SYNs, not a plug qdisc; it also works for traffic from other hosts.",
            "Weir's rows measure reloads of Weir itself, which needs no protection, because its sockets stay open.",
        ],
    },
    FieldReport {
        experiment: "stateless-direct",
        title: "Direct routing without state: nftables compared with nginx",
        setup: "Two servers with nginx and PHP behind a router; ab -n 10000 -c 100. The author ranks the \
                methods, but gives few figures: nftables is the fastest with large pages, slightly faster with small \
                pages (400 to 500 requests/s), and slower with pages that sleep.",
        figures: &[
            figure(
                "small pages (approximate)",
                450.0,
                RequestsPerSecond,
                "nftables/small",
                "l3dsr-sh/small",
            ),
            unreported_figure(
                "small pages vs. nginx hash",
                RateRatio("nginx-hash/small"),
                "nftables/small",
                "l3dsr-sh/small",
            ),
            unreported_figure(
                "sleeping pages vs. nginx hash",
                RateRatio("nginx-hash/rand"),
                "nftables/rand",
                "l3dsr-wlc/rand",
            ),
            unreported_figure(
                "64 KB vs. nginx hash",
                RateRatio("nginx-hash/size-65535"),
                "nftables/size-65535",
                "l3dsr-sh/size-65535",
            ),
            unreported_figure(
                "640 KB vs. nginx hash",
                RateRatio("nginx-hash/size-655350"),
                "nftables/size-655350",
                "l3dsr-sh/size-655350",
            ),
        ],
        differences: &[
            "The lab has one client, so all methods hash the port; the author's production system hashes the address.",
            "The report does not use least connections, because the director receives no replies. The methods \
             direct-wlc and l3dsr-wlc measure it; the experiment slow-server also measures least time.",
        ],
    },
    FieldReport {
        experiment: "clustered-rest",
        title: "A REST service on two nodes: LVS, ldirectord and Pacemaker",
        setup: "Two Node.js nodes on gigabit links, scheduler lc; ab -c 1000 -n 10000.",
        figures: &[
            figure(
                "one node",
                3_393.52,
                RequestsPerSecond,
                "one-server/close",
                "",
            ),
            figure(
                "two nodes",
                6_068.91,
                RequestsPerSecond,
                "",
                "ldirectord/close",
            ),
            figure(
                "two nodes vs. one",
                1.79,
                RateRatio("one-server/close"),
                "",
                "ldirectord/close",
            ),
            figure(
                "one node, keep-alive",
                4_447.24,
                RequestsPerSecond,
                "one-server/keep-alive",
                "",
            ),
            figure(
                "two nodes, keep-alive",
                8_639.80,
                RequestsPerSecond,
                "",
                "ldirectord/keep-alive",
            ),
            figure(
                "keep-alive, two nodes vs. one",
                1.94,
                RateRatio("one-server/keep-alive"),
                "",
                "ldirectord/keep-alive",
            ),
        ],
        differences: &[
            "The servers are nginx, not Node.js, and share this machine's processors with the client and the \
             director. The links are limited, so that two servers have twice the capacity of one: their links limit \
             the rate, not the processors.",
            "ldirectord drives `weir ipvsadm` instead of IPVS, which this kernel lacks.",
        ],
    },
    FieldReport {
        experiment: "small-box-nat",
        title: "NAT on a small box: ipvsadm by hand, then keepalived",
        setup: "Three servers behind the NAT of a small machine; ab -n 1000.",
        figures: &[
            figure(
                "one server, 1000 clients",
                992.48,
                RequestsPerSecond,
                "one-server/c1000",
                "",
            ),
            figure(
                "NAT, 1000 clients",
                1_605.68,
                RequestsPerSecond,
                "nftables/c1000",
                "nat/c1000",
            ),
            figure(
                "NAT vs. one server, 1000 clients",
                1.6,
                RateRatio("one-server/c1000"),
                "nftables/c1000",
                "nat/c1000",
            ),
            figure(
                "one server, 100 clients",
                4_164.11,
                RequestsPerSecond,
                "one-server/c100",
                "",
            ),
            figure(
                "NAT, 100 clients",
                2_183.62,
                RequestsPerSecond,
                "nftables/c100",
                "nat/c100",
            ),
            figure(
                "NAT vs. one server, 100 clients",
                0.524,
                RateRatio("one-server/c100"),
                "nftables/c100",
                "nat/c100",
            ),
        ],
        differences: &[
            "The report's NAT was the bottleneck with 100 clients. Here all hosts share the processors, so three \
             servers are not faster than one, and the CPU time of the director reduces the rate with NAT.",
            "The peer is nftables' NAT with conntrack, because this kernel has no IPVS.",
        ],
    },
    FieldReport {
        experiment: "local-clients",
        title: "Clients on the director (from the report about reloads)",
        setup: "The report's clients reach HAProxy over loopback on every host. It has no figures for a \
                balancer without a proxy.",
        figures: &[
            unreported_figure(
                "quiet: 99th percentile",
                Latency(0.99),
                "haproxy/quiet",
                "socket/quiet",
            ),
            unreported_figure(
                "servers change: 99th percentile",
                Latency(0.99),
                "haproxy/disturbed",
                "socket/disturbed",
            ),
            unreported_figure(
                "servers change: failed",
                Failed,
                "haproxy/disturbed",
                "socket/disturbed",
            ),
            unreported_figure(
                "requests vs. a direct connection",
                RateRatio("one-server/quiet"),
                "haproxy/quiet",
                "socket/quiet",
            ),
        ],
        differences: &[
            "Weir replaces the address in connect(), so no proxy is between client and server.",
        ],
    },
    FieldReport {
        experiment: "slow-server",
        title: "Least time for direct routing (not measured by the report about stateless direct routing)",
        setup: "The author announces a later article about least connections and least time for direct routing, where \
                the balancer never receives replies.",
        figures: &[
            unreported_figure(
                "5 ms slower: 99th percentile",
                Latency(0.99),
                "haproxy-leastconn/5ms",
                "direct-least-time/5ms",
            ),
            unreported_figure(
                "20 ms slower: 99th percentile",
                Latency(0.99),
                "haproxy-leastconn/20ms",
                "direct-least-time/20ms",
            ),
            unreported_figure(
                "starved of CPU time: 99th percentile",
                Latency(0.99),
                "haproxy-leastconn/starved",
                "direct-least-time/starved",
            ),
        ],
        differences: &[
            "There is no peer for direct routing; HAProxy and nginx are proxies, which receive the replies.",
        ],
    },
];

/// Returns the field report of an experiment.
pub(crate) fn field_report(experiment: &str) -> Option<&'static FieldReport> {
    REPORTS
        .iter()
        .find(|report| report.experiment == experiment)
}

#[cfg(test)]
mod tests {
    use super::super::example;
    use super::*;

    #[test]
    fn figures_are_calculated_from_their_rows() {
        let report = example::report();
        let value = |metric: Metric, name| metric.value(name, &report.rows);
        assert_eq!(value(KbytesPerSecond, "nat"), Some(0.245 * 4096.0));
        assert_eq!(value(RateRatio("one-server"), "direct"), Some(0.998 / 0.25));
        assert_eq!(value(Seconds, "haproxy"), None, "not measured");
        let timed = example::timed_report();
        assert_eq!(
            Latency(0.99).value("proxy/disturbed", &timed.rows),
            Some(2.5)
        );
    }
}
