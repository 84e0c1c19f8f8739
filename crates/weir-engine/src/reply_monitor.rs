//! Defines the state of the `no_reply` and `handshakes` modules of [`crate::engine`], which read the counters.

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
