//! Ctrl-C and SIGTERM as a flag that every wait of the lab looks at.
//!
//! The first signal makes all waits return [`LabError::Interrupted`], so that guards unwind and remove what they made.
//! The second one ends the process at once; what stays behind then is removed by the next run.

use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::error::{LabError, Result};

static REQUESTED: AtomicBool = AtomicBool::new(false);
static INSTALL: Once = Once::new();

/// How often a wait looks at its condition and at the flag.
const POLL: Duration = Duration::from_millis(20);

/// Exit status of a process that a signal ended, by the shell's convention for SIGINT.
const STATUS_OF_SIGINT: i32 = 130;

/// Starts to listen for SIGINT and SIGTERM; later calls do nothing. Where no listener can be had, the signals keep
/// their usual effect, and the next run cleans up.
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
        // A failure to start the thread leaves the default action in place, which is the documented fallback.
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
        if REQUESTED.swap(true, Ordering::SeqCst) {
            std::process::exit(STATUS_OF_SIGINT);
        }
        eprintln!("\ninterrupted: removing what was started (once more to leave at once)");
    }
}

/// Has a signal arrived?
pub(crate) fn requested() -> bool {
    REQUESTED.load(Ordering::SeqCst)
}

/// Polls `condition` until it yields a value.
///
/// # Errors
/// [`LabError::Deadline`] after `limit`, with `what` and the text of `detail`; [`LabError::Interrupted`] after a
/// signal; whatever the condition fails with.
pub(crate) fn wait_for<T>(
    what: &str,
    limit: Duration,
    mut condition: impl FnMut() -> Result<Option<T>>,
    detail: impl FnOnce() -> String,
) -> Result<T> {
    let end = Instant::now() + limit;
    loop {
        if let Some(value) = condition()? {
            return Ok(value);
        }
        if requested() {
            return Err(LabError::Interrupted);
        }
        if Instant::now() >= end {
            return Err(LabError::Deadline {
                what: what.into(),
                seconds: limit.as_secs(),
                detail: detail(),
            });
        }
        std::thread::sleep(POLL);
    }
}
