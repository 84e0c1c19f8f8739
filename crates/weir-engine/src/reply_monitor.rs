//! Defines the state of the `no_reply` module of [`crate::engine`], which reads the counters and warns.

use std::time::Instant;

use weir_health::ReplyWatch;

/// The counters of servers that must reply through the director, and the earliest time of the next scan of the flow
/// table.
#[derive(Debug)]
pub(crate) struct ReplyMonitor {
    pub(crate) servers: ReplyWatch,
    pub(crate) next_scan: Instant,
}

impl Default for ReplyMonitor {
    fn default() -> Self {
        Self {
            servers: ReplyWatch::default(),
            next_scan: Instant::now(),
        }
    }
}
