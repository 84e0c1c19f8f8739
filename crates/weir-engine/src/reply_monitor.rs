//! The counters of servers whose replies must pass through the director.

use std::time::Instant;

use weir_health::ReplyWatch;

/// The counters of the watched servers, and when the next scan of the flow table is allowed.
#[derive(Debug)]
pub(crate) struct ReplyMonitor {
    pub(crate) servers: ReplyWatch,
    pub(crate) next: Instant,
}

impl Default for ReplyMonitor {
    fn default() -> Self {
        Self {
            servers: ReplyWatch::default(),
            next: Instant::now(),
        }
    }
}
