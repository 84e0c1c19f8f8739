//! Defines the counters and times that `no_reply` and `handshakes` keep between reads of the maps.
//!
//! Both are modules of [`crate::engine`].

use std::time::Instant;

use weir_health::ReplyWatch;

use crate::unanswered::UnansweredSyns;

/// The counters of servers that must reply through the director, the earliest time of the next scan of the flow table,
/// and the times of SYNs to all servers whose clients have not completed a handshake.
#[derive(Debug)]
pub(crate) struct ReplyMonitor {
    pub(crate) servers: ReplyWatch,
    pub(crate) next_scan: Instant,
    pub(crate) unanswered: UnansweredSyns,
}

impl Default for ReplyMonitor {
    fn default() -> Self {
        Self {
            servers: ReplyWatch::default(),
            next_scan: Instant::now(),
            unanswered: UnansweredSyns::default(),
        }
    }
}
