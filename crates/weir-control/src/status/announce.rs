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

/// Returns a line for each problem with the speaker.
pub(super) fn problems(error: Option<&str>, warning: Option<&str>) -> String {
    let error = error.map(|it| format!("failed to announce VIPs: {it}\n"));
    let warning = warning.map(|it| format!("the BGP speaker does not work as configured: {it}\n"));
    error.into_iter().chain(warning).collect()
}

/// Returns the text table; empty if there are no announced VIPs.
pub(super) fn table(routes: &[AnnouncedVip]) -> String {
    let mut text = String::new();
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
