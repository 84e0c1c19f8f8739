//! Writes the metrics of virtual routers.

use weir_vrrp_agent::RouterStatus;

use super::text::Text;
use crate::status::{Report, VirtualRouterStatus};

type Value = (
    &'static str,
    &'static str,
    &'static str,
    fn(&RouterStatus) -> u64,
);

const VALUES: [Value; 7] = [
    (
        "weir_vrrp_active",
        "gauge",
        "1 while this director has the addresses.",
        |router| u64::from(router.state == "active"),
    ),
    (
        "weir_vrrp_fault",
        "gauge",
        "1 while the virtual router is in the fault state.",
        |router| u64::from(router.state == "fault"),
    ),
    (
        "weir_vrrp_priority",
        "gauge",
        "Priority, including changes by tracked objects.",
        |router| u64::from(router.priority),
    ),
    (
        "weir_vrrp_takeovers_total",
        "counter",
        "Number of times the virtual router became active.",
        |router| router.takeovers,
    ),
    (
        "weir_vrrp_sent_total",
        "counter",
        "Advertisements sent.",
        |router| router.sent,
    ),
    (
        "weir_vrrp_received_total",
        "counter",
        "Advertisements accepted.",
        |router| router.received,
    ),
    (
        "weir_vrrp_lost_total",
        "counter",
        "Advertisements of the active peer that were missing while this director was a backup.",
        |router| router.lost,
    ),
];

pub(super) fn write_routers(text: &mut Text, report: &Report) {
    if report.vrrp.is_empty() {
        return;
    }
    for (name, kind, help, value) in VALUES {
        text.write_family(name, kind, help);
        for VirtualRouterStatus { router, .. } in &report.vrrp {
            text.write_sample(name, &[("router", router.name.as_str())], value(router));
        }
    }
    let name = "weir_vrrp_ignored_total";
    text.write_family(name, "counter", "Packets ignored, by reason.");
    for VirtualRouterStatus { router, .. } in &report.vrrp {
        for (reason, count) in &router.ignored {
            let labels = [("router", router.name.as_str()), ("reason", reason)];
            text.write_sample(name, &labels, *count);
        }
    }
}
