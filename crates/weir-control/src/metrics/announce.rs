//! Writes the metrics of announced VIPs.

use super::text::Text;
use crate::status::Report;

pub(super) fn write_routes(text: &mut Text, report: &Report) {
    if report.announce.is_empty() {
        return;
    }
    let name = "weir_announced";
    text.write_family(name, "gauge", "1 while the VIP is announced over BGP.");
    for route in &report.announce {
        let vip = route.vip.to_string();
        let is_announced = u64::from(route.state != "withdrawn");
        text.write_sample(name, &[("vip", vip.as_str())], is_announced);
    }
    let name = "weir_announce_error";
    text.write_family(
        name,
        "gauge",
        "1 while the BGP speaker cannot be reached or rejects commands.",
    );
    text.write_sample(name, &[], u64::from(report.announce_error.is_some()));
}
