//! Runs the task that waits for the monitor's next deadline.

use std::sync::Arc;
use std::time::Duration;

use crate::shared::SharedState;

/// Time to wait if there is no deadline.
const IDLE_WAIT: Duration = Duration::from_secs(3600);

/// Advances the monitor at each deadline and handles its outputs, until the task is aborted.
pub(crate) async fn drive(shared: Arc<SharedState>) {
    loop {
        let next = {
            let mut monitor = shared.monitor();
            monitor.advance(shared.clock.now());
            shared.drain_outputs(&mut monitor);
            monitor.next_deadline()
        };
        let next = next.unwrap_or_else(|| shared.clock.now() + IDLE_WAIT);
        let wait = tokio::time::sleep_until(shared.clock.instant(next).into());
        tokio::select! {
            () = wait => {}
            () = shared.deadline_moved.notified() => {}
        }
    }
}
