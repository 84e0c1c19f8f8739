//! Limits the log lines of the HTTP/2 library to one per second.
//!
//! The library may log a warning for each hostile frame, and a flood of frames would fill the disk. The next line
//! reports how many lines were suppressed.

use std::fmt;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tracing::{Event, Level, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::layer::Context;
use tracing_subscriber::registry::LookupSpan;

const MIN_INTERVAL: Duration = Duration::from_secs(1);
/// Log target of the HTTP/2 library.
const LIBRARY_TARGET: &str = "h2";

static SUPPRESSED: AtomicU64 = AtomicU64::new(0);
static LAST: Mutex<Option<Instant>> = Mutex::new(None);

/// Returns whether the limit applies to an event. It does not apply to the levels `debug` and `trace`, which only an
/// operator enables.
fn is_limited(event: &Event<'_>) -> bool {
    let metadata = event.metadata();
    let module = metadata.target().split("::").next();
    *metadata.level() <= Level::INFO && module == Some(LIBRARY_TARGET)
}

/// Returns whether a line may be logged at `now`; if so, sets `last` to `now`.
fn is_due(last: &mut Option<Instant>, now: Instant) -> bool {
    let due = last.is_none_or(|last| now.duration_since(last) >= MIN_INTERVAL);
    if due {
        *last = Some(now);
    }
    due
}

/// Suppresses lines that exceed the limit.
pub(crate) struct RateLimit;

impl<S: Subscriber> Layer<S> for RateLimit {
    fn event_enabled(&self, event: &Event<'_>, _: Context<'_, S>) -> bool {
        if !is_limited(event) {
            return true;
        }
        // If the lock is taken, another thread is logging a line at this moment.
        let due = LAST
            .try_lock()
            .is_ok_and(|mut last| is_due(&mut last, Instant::now()));
        if !due {
            SUPPRESSED.fetch_add(1, Ordering::Relaxed);
        }
        due
    }
}

/// Appends the number of suppressed lines to a line of the inner format.
pub(crate) struct WithSuppressedCount<F>(pub(crate) F);

impl<S, N, F> FormatEvent<S, N> for WithSuppressedCount<F>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
    F: FormatEvent<S, N>,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        self.0.format_event(context, writer.by_ref(), event)?;
        if !is_limited(event) {
            return Ok(());
        }
        match SUPPRESSED.swap(0, Ordering::Relaxed) {
            0 => Ok(()),
            count => writeln!(
                writer,
                "  {count} earlier lines from the HTTP/2 library were suppressed"
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_per_second_is_logged() {
        let (mut last, start) = (None, Instant::now());
        let due = (0..50u64).filter(|n| is_due(&mut last, start + Duration::from_millis(n * 100)));
        assert_eq!(due.count(), 5);
    }
}
