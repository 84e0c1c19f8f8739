//! The task that waits for what is due.

use std::sync::Arc;
use std::time::Duration;

use crate::Shared;

/// While nothing is due at all.
const IDLE: Duration = Duration::from_secs(3600);

pub(crate) async fn drive(shared: Arc<Shared>) {
    loop {
        let next = {
            let mut monitor = shared.monitor();
            monitor.advance(shared.clock.now());
            shared.gather(&mut monitor);
            monitor.next_deadline()
        };
        let next = next.unwrap_or_else(|| shared.clock.now() + IDLE);
        let wait = tokio::time::sleep_until(shared.clock.instant(next).into());
        tokio::select! {
            () = wait => {}
            () = shared.earlier.notified() => {}
        }
    }
}
