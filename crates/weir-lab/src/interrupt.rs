//! Handles SIGINT and SIGTERM with a flag that every wait loop in the lab checks.
//!
//! After the first signal, all wait loops end with [`LabError::Interrupted`], so guards are dropped and clean up.
//! A second signal terminates the process immediately; the next run then cleans up.

use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::error::{LabError, Result};

static INTERRUPTED: AtomicBool = AtomicBool::new(false);
static INSTALL: Once = Once::new();

/// Interval between checks of the condition and the flag.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Exit status after a second SIGINT or SIGTERM: 128 + SIGINT, by shell convention.
const SIGINT_EXIT_CODE: i32 = 130;

/// Installs handlers for SIGINT and SIGTERM; later calls do nothing. If the installation fails, the signals keep their
/// default action, and the next run cleans up.
pub(crate) fn install() {
    INSTALL.call_once(|| {
        let listener = || {
            let Ok(runtime) = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
            else {
                return;
            };
            runtime.block_on(listen());
        };
        // If the thread cannot be started, the signals keep their default action, as documented.
        let _ = std::thread::Builder::new()
            .name("signals".into())
            .spawn(listener);
    });
}

async fn listen() {
    use tokio::signal::unix::{SignalKind, signal};
    let (Ok(mut interrupt), Ok(mut terminate)) = (
        signal(SignalKind::interrupt()),
        signal(SignalKind::terminate()),
    ) else {
        return;
    };
    loop {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
        if INTERRUPTED.swap(true, Ordering::SeqCst) {
            std::process::exit(SIGINT_EXIT_CODE);
        }
        eprintln!("\ninterrupted: cleaning up (interrupt again to exit immediately)");
    }
}

/// Returns whether a signal was received.
pub(crate) fn is_interrupted() -> bool {
    INTERRUPTED.load(Ordering::SeqCst)
}

/// Polls `condition` until it returns a value.
///
/// # Errors
/// Returns [`LabError::Deadline`] after `limit`, with `event` and the text that `detail` returns;
/// [`LabError::Interrupted`] after a signal; or the error of the condition.
pub(crate) fn wait_for<T>(
    event: &str,
    limit: Duration,
    mut condition: impl FnMut() -> Result<Option<T>>,
    detail: impl FnOnce() -> String,
) -> Result<T> {
    let end = Instant::now() + limit;
    loop {
        if let Some(value) = condition()? {
            return Ok(value);
        }
        if is_interrupted() {
            return Err(LabError::Interrupted);
        }
        if Instant::now() >= end {
            return Err(LabError::Deadline {
                event: event.into(),
                seconds: limit.as_secs(),
                detail: detail(),
            });
        }
        std::thread::sleep(POLL_INTERVAL);
    }
}
