//! Describes announced VIPs in the status document.

use std::net::IpAddr;
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};

use super::rfc3339;

/// A VIP that is covered by `[announce]`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AnnouncedVip {
    /// The VIP.
    pub vip: IpAddr,
    /// `announced`, `draining` or `withdrawn`.
    pub state: String,
    /// When the VIP entered this state, in RFC 3339 format.
    pub since: String,
    /// The reason for the VIP's state.
    pub reason: String,
}

/// Converts the routes in the announcer's report.
pub(crate) fn routes(report: weir_announce::Report) -> Vec<AnnouncedVip> {
    let routes = report.routes.into_iter().map(|route| {
        let since = SystemTime::UNIX_EPOCH + Duration::from_millis(route.since_ms);
        AnnouncedVip {
            vip: route.vip,
            state: route.state,
            since: rfc3339(since),
            reason: route.reason,
        }
    });
    routes.collect()
}

/// Returns the text table; empty if there are neither announced VIPs nor errors.
pub(super) fn table(routes: &[AnnouncedVip], error: Option<&str>) -> String {
    let mut text = String::new();
    if let Some(error) = error {
        text.push_str(&format!("failed to announce VIPs: {error}\n"));
    }
    if routes.is_empty() {
        return text;
    }
    let vips: Vec<String> = routes.iter().map(|route| route.vip.to_string()).collect();
    let width = vips.iter().map(String::len).max().unwrap_or(0).max(3);
    text.push_str(&format!(
        "{:<width$}  {:<9}  {:<20}  REASON\n",
        "VIP", "STATE", "SINCE"
    ));
    for (vip, route) in vips.iter().zip(routes) {
        let AnnouncedVip {
            state,
            since,
            reason,
            ..
        } = route;
        text.push_str(&format!(
            "{vip:<width$}  {state:<9}  {since:<20}  {reason}\n"
        ));
    }
    text
}
